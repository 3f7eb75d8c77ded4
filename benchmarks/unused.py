"""What an installed plugin costs a run that has nothing to do with it.

    python -m benchmarks.unused [--rounds N]

One test that does nothing, three commands in turn: without this plugin and those that it requires, with those, and with
all. Other plugins of the environment load in none. CPU time, user plus system; of many rounds the first quartile of
each counts, because other work on the machine only ever slows a run down, by more than what is looked for here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.overhead import REPORT, pytest_command, used, write_no_op

if TYPE_CHECKING:
    from collections.abc import Sequence


class Unused(NamedTuple):
    """CPU milliseconds: a run without them, what the required plugins add, and what this one adds."""

    alone: float
    required: float
    ours: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what an installed plugin costs a run without suites")
    parser.add_argument("--rounds", type=int, default=15)
    found = measured(parser.parse_args(argv).rounds)
    print(f"pytest alone {found.alone:.0f} ms, required plugins {found.required:+.1f} ms, ours {found.ours:+.1f} ms")
    return 0


def measured(rounds: int) -> Unused:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "plain")
        write_no_op(place, 1)
        installed = {found.name for found in entry_points(group="pytest11")}
        commands = [_without(installed - loaded) for loaded in (set(), {*REPORT}, {*REPORT, "packbench"})]
        for command in commands:
            used(place, command, named=False)
        times = [[1000 * used(place, command, named=False).seconds for command in commands] for _ in range(rounds)]
    alone, required, ours = (statistics.quantiles(column)[0] for column in zip(*times, strict=True))
    return Unused(alone, required - alone, ours - required)


def _without(names: set[str]) -> list[str]:
    # to name a plugin to load makes pytest look through the environment once more
    return pytest_command(*(f"no:{name}" for name in sorted(names)))


if __name__ == "__main__":
    sys.exit(main())
