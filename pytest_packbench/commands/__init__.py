"""The commands of `packbench`, one module each, with `add_arguments(parser)` and `run(arguments) -> exit code`."""
