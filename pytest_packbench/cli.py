"""The command `packbench`: finds the command's module, and turns what it raises into one line and an exit code.

Exit codes: 0 fine, 1 a gate or comparison failed, 2 bad usage or unreadable input.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE, FAILED, UNUSABLE = 0, 1, 2
COMMANDS = {
    "init": "Begin a suite of your own: rules, two cases, a target.",
    "import": "Turn what you have into cases: CSV, JSONL, and what else the packs can read.",
    "report": "Report any number of records: rates with intervals, gates, duplicates, failing cases.",
    "compare": "Compare two runs: what improved, what got worse, and whether that can be chance.",
    "gate": "Judge stored runs by gates, with the arithmetic.",
    "history": "List the runs of a suite over time.",
    "lint": "Find what is not good in a suite's cases, cassettes and rules.",
    "merge": "Join runs that belong together and apply the gates.",
    "rescore": "Apply today's rules to the stored results of a run, without running anything.",
    "schema": "Print the JSON Schema of a case, suite, cassette, record or report.",
    "validate": "Check any of our files and say which version it is.",
}


class UsageError(Exception):
    """What a command says to the person who called it: one line, exit code 2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments, without the program's name; `sys.argv` by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    # the rules of a suite may name functions of the project; last, so that none stands in for a library
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    # only the module of the command that is called is imported
    chosen = words[0] if words and words[0] in COMMANDS else None
    parser = argparse.ArgumentParser(prog="packbench", description="Benchmark runs: report, compare, decide.")
    parser.add_argument("--version", action="version", version=f"packbench {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about)
        if name == chosen:
            # a keyword names no module
            module = import_module(f"pytest_packbench.commands.{name}{'_' * iskeyword(name)}")
            module.add_arguments(command)
            command.set_defaults(command=module.run)
    if not words:
        parser.print_help()
        return UNUSABLE
    arguments = parser.parse_args(words)
    try:
        return int(arguments.command(arguments))
    except KeyboardInterrupt:
        sys.stderr.write("packbench: interrupted\n")
        return UNUSABLE
    except BrokenPipeError:
        # the reader of our output went away, which is its right; what it did not read can't be called fine
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    except (UsageError, ValueError, OSError) as error:
        sys.stderr.write(f"packbench: {_one_line(error)}\n")
        return UNUSABLE


def _one_line(error: Exception) -> str:
    from pytest_packbench.reports.terminal import printable

    if isinstance(error, OSError) and error.filename is not None:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(" ".join(str(error).split()))
