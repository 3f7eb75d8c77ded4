"""Measure one case of a generic suite as a whole command, compared with one empty test.

    python -m benchmarks.start [--rounds N]

This is what re-running a single case costs: starting Python and pytest, importing, reading the suite, running the case,
writing its reports. Both commands have a JSON report, load only the required plugins, and run in turn. CPU time is user
plus system of the whole process; the result is the median of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.overhead import Usage, no_op_command, suite_command, used, write_generic, write_no_op

if TYPE_CHECKING:
    from collections.abc import Sequence


class Start(NamedTuple):
    """The cost of both commands."""

    no_op: Usage
    ours: Usage

    @property
    def time(self) -> float:
        """CPU time compared with the empty test."""
        return self.ours.seconds / self.no_op.seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print both commands."""
    parser = argparse.ArgumentParser(description="one case of a generic suite against one empty test")
    parser.add_argument("--rounds", type=int, default=15)
    found = measure(parser.parse_args(argv).rounds)
    print(
        f"one case {found.ours.seconds:.3f} CPU s, {found.ours.mebibytes:.0f} MiB; "
        f"one empty test {found.no_op.seconds:.3f} CPU s, {found.no_op.mebibytes:.0f} MiB; ratio {found.time:.2f}"
    )
    return 0


def measure(rounds: int) -> Start:
    """Measure both commands, after a round that compiles and caches."""
    with tempfile.TemporaryDirectory() as folder:
        plain, suite = Path(folder, "plain"), Path(folder, "suite")
        write_no_op(plain, 1)
        write_generic(suite, 1)
        runs = ((plain, no_op_command(reported=True)), (suite, suite_command(reported=True)))
        usages = [[used(*run) for run in runs] for _ in range(rounds + 1)][1:]
    return Start(*(median(column) for column in zip(*usages, strict=True)))


def median(usages: Sequence[Usage]) -> Usage:
    """Return the median of each figure."""
    return Usage(*(statistics.median(column) for column in zip(*usages, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
