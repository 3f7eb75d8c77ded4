"""Measure how much faster two workers are with a CPU-bound target.

    python -m benchmarks.cores [--cases N] [--rounds N]

Each case adds numbers for some 20 ms. The wall clock of whole commands, plain and with `-n 2`, in turn; the fastest of
each is used because other work on the machine only slows a run down.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.overhead import suite_command, used, write_suite

if TYPE_CHECKING:
    from collections.abc import Sequence

CASES = 1500
BUSY = "    return {}\n"
WORK = "    sum(number * number for number in range(300_000))\n    return {}\n"


class Cores(NamedTuple):
    """Wall clock time, seconds."""

    one: float
    two: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the speed-up."""
    parser = argparse.ArgumentParser(description="two workers against one process")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args(argv)
    found = measured(arguments.cases, arguments.rounds)
    print(f"one process {found.one:.1f} s, two workers {found.two:.1f} s, {found.one / found.two:.2f} x faster")
    return 0


def measured(cases: int, rounds: int) -> Cores:
    """Measure both commands."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_suite(place / "suite", cases)
        conftest = place / "suite" / "conftest.py"
        conftest.write_text(conftest.read_text("utf-8").replace(BUSY, WORK), encoding="utf-8")
        plain = suite_command(reported=True)
        shared = [*plain, "-p", "xdist", "-n", "2"]
        times = [(_wall(place / "suite", plain), _wall(place / "suite", shared)) for _ in range(rounds)]
    return Cores(min(one for one, _ in times), min(two for _, two in times))


def _wall(folder: Path, command: Sequence[str]) -> float:
    begun = time.perf_counter()
    used(folder, command)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
