"""The program `packbench`: runs a command, and reports its errors in one line with an exit code.

Exit codes: 0 success, 1 a gate or comparison failed, 2 usage error or unreadable input.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE, FAILED, UNUSABLE = 0, 1, 2
_MAX_MESSAGE = 2000
COMMANDS = {
    "accept": "Take over recordings that change older ones: shows scores before and after, and the changed answers.",
    "audit": "Break right results in many ways, and show which rules of a suite notice it and which do not.",
    "baseline": "Set the committed baseline of a suite from a run, with a reason, or show it with its history.",
    "init": "Create a suite of your own, with two cases and a target, or a copy of a bundled one.",
    "import": "Convert files into cases: CSV, JSONL, and other formats that packs can read.",
    "report": "Summarize any number of records: rates with intervals, gates, duplicates, failing cases.",
    "compare": "Compare two runs: what improved, what regressed, and whether that may be chance.",
    "gate": "Check stored runs against gates, and acceptance policies against those of a base.",
    "history": "Show like runs of a suite over time, its flaky cases, and what a case came to in each run.",
    "lint": "Check a suite's cases, cassettes and rules for mistakes.",
    "open": "Open the page of a run in a browser.",
    "merge": "Join runs, or the shards of a run, and apply the gates.",
    "rescore": "Score the stored results of a run with the current rules, without running the target.",
    "review": "Write what reviewers marked on the page of a run into the cases; shows the patch first.",
    "schema": "Print the JSON Schema of a file format, such as case, suite, cassette or record.",
    "validate": "Check any file of a suite or a run, and print its kind and version.",
}
_MODULES = {"accept": "review", "import": "import_", "lint": "validate", "schema": "validate"}
"""The modules that have not the name of their command."""


class UsageError(Exception):
    """A command can't do what was requested; reported in one line, with exit code 2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments, without the program's name; `sys.argv` by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    # suites may name functions of the project; appended, so that a file of the project can't shadow a library
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    # only the module of the requested command is imported
    requested = words[0] if words and words[0] in COMMANDS else None
    parser = argparse.ArgumentParser(prog="packbench", description="Create and check suites; report and compare runs.")
    parser.add_argument("--version", action="version", version=f"packbench {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, description in COMMANDS.items():
        command = commands.add_parser(name, help=description, description=description)
        if name == requested:
            declare(name, command)
    if not words:
        parser.print_help()
        return UNUSABLE
    arguments = parser.parse_args(words)
    try:
        return int(arguments.command(arguments))
    except KeyboardInterrupt:
        warn("interrupted")
    except BrokenPipeError:
        # the reader of the output has closed it; output that was not read is no success
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # the system's own text has the file behind it
        warn(f"{error.filename}: {error.strerror}" if error.filename is not None else str(error))
    except (UsageError, ValueError) as error:
        warn(str(error))
    return UNUSABLE


def declare(name: str, parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a command, and as `command` what runs it; only its module is imported."""
    module = import_module(f"pytest_packbench.commands.{_MODULES.get(name, name)}")
    # the second command of a module has its name in those of its functions
    getattr(module, f"add_{name}_arguments", module.add_arguments)(parser)
    parser.set_defaults(command=getattr(module, f"run_{name}", module.run))


def warn(text: str) -> None:
    """Print a problem in one line on standard error."""
    from pytest_packbench.reports.terminal import one_line

    sys.stderr.write(f"packbench: {one_line(text, _MAX_MESSAGE)}\n")
