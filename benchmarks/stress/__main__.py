"""Put runs under stress for a limited time.

    python -m benchmarks.stress [kills] [faults] [soak] [--seconds N] [--seed S] [--only WORD]

`kills` kills runs at seeded moments and resumes them; `faults` has runs meet faults of the disk, the clock, signals,
servers, targets, guards and judges; `soak` makes long runs of everything and compares their totals with an oracle. Each
starts nothing new after its seconds (60 by default). `--only` has only faults with this word happen. The exit code is 1
if something came out that should not.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.stress import faults, kills, soak

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("kills", "faults", "soak")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is named, or all, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stress", description="runs under stress")
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=float, default=60, help="time of each (default 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="faults with this word")
    chosen = parser.parse_args(argv)
    wrong = 0
    for name in chosen.names or NAMES:
        begun = time.monotonic()
        print(f"\n== {name}, seed {chosen.seed}", flush=True)
        if name == "faults":
            found = faults.run(chosen.seed, chosen.seconds, chosen.only)
        else:
            found = (kills.run if name == "kills" else soak.run)(chosen.seed, chosen.seconds)
        print(f"\n{found} wrong, {time.monotonic() - begun:.0f} s", flush=True)
        wrong += found
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
