"""The commands of `packbench`, a module each: `add_arguments(parser)` and `run(arguments) -> exit code`."""
