"""How often the 95 % interval of a mean change covers the true one, on seeded data of several kinds.

    python -m benchmarks.intervals [--draws N]

A draw is a sample of pairs; the share of draws whose interval contains the true mean is its coverage, and beside it
stands the mean width of the interval, in points of score.
"""

from __future__ import annotations

import argparse
import sys
from random import Random
from typing import TYPE_CHECKING

from pytest_packbench.analysis.statistics import PairedMean, paired_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED = 7
PAIRS = (8, 12, 24, 50, 200)
LOST = -1.0


def alone(_: int) -> int:
    """Return the size of a group that is one pair."""
    return 1


def sometimes(
    rate: float, change: Callable[[Random], float], other: Callable[[Random], float] = lambda _: 0.0
) -> Callable[[Random], float]:
    """Return a draw of one change with this rate, 0 to 1, and else of the other."""
    return lambda random: change(random) if random.random() < rate else other(random)


KINDS: dict[str, tuple[Callable[[Random], float], float, Callable[[int], int]]] = {
    "one in twenty cases is lost": (sometimes(0.05, lambda _: LOST), -0.05, alone),
    "one in five cases is lost": (sometimes(0.2, lambda _: LOST), -0.2, alone),
    "small changes, and one in twenty is lost": (
        sometimes(0.05, lambda _: LOST, lambda random: random.gauss(0, 0.03)),
        -0.05,
        alone,
    ),
    "one in ten changes, up or down": (sometimes(0.1, lambda random: random.uniform(-0.5, 0.5)), 0.0, alone),
    "all win as much, but one in five, which is lost": (sometimes(0.2, lambda _: LOST, lambda _: 0.9), 0.52, alone),
    "a tenth of groups of three is lost together": (sometimes(0.1, lambda _: LOST), -0.1, lambda _: 3),
    "half of the groups are lost, one of them is of twenty": (
        sometimes(0.5, lambda _: LOST),
        -0.5,
        lambda number: 1 if number else 20,
    ),
}
"""For each kind: the change of a pair or a group, the true mean, and how many pairs a group has, by its number."""


def sample(kind: str, pairs: int, random: Random) -> PairedMean:
    """Draw so many pairs, or groups, and return the mean of their changes with its interval."""
    draw, _, size = KINDS[kind]
    drawn = [[draw(random)] * size(number) for number in range(pairs)]
    mean = paired_mean((), drawn)
    assert mean is not None, "there are pairs"  # noqa: S101 - for the type checker
    return mean


def ends_of(kind: str, pairs: int, draws: int) -> list[tuple[float, float]]:
    """Return the ends of the intervals of so many draws."""
    random = Random(SEED)  # noqa: S311 - a simulation, no secret
    means = [sample(kind, pairs, random) for _ in range(draws)]
    return [(mean.low or 0.0, mean.high or 0.0) for mean in means]


def coverage(kind: str, ends: Sequence[tuple[float, float]]) -> float:
    """Return the share of intervals that contain the true mean, 0 to 1."""
    true = KINDS[kind][1]
    return sum(low <= true <= high for low, high in ends) / len(ends)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the coverage and the mean width of each kind by the number of pairs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intervals", description="coverage of intervals")
    parser.add_argument("--draws", type=int, default=4000, help="samples of each kind and size (default: 4000)")
    draws = parser.parse_args(argv).draws
    print("| changes of cases | " + " | ".join(f"{pairs} pairs" for pairs in PAIRS) + " |")
    print("|---|" + "---|" * len(PAIRS))
    for kind in KINDS:
        cells = []
        for pairs in PAIRS:
            ends = ends_of(kind, pairs, draws)
            width = sum(high - low for low, high in ends) / draws
            cells.append(f"{100 * coverage(kind, ends):.1f} %, width {width:.2f}")
        print(f"| {kind} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
