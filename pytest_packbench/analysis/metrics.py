"""Sums over groups of results, metrics measured on them, and their arithmetic in words.

A `Profile` contains all that a figure needs of one result, beside its score; a run has few different ones.
`ResultSums` count the results of a group by profile and add up their scores.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pytest_packbench.analysis.formatting import format_with_bounds
from pytest_packbench.model.metric import GENERAL_METRICS, MEAN_SCORE, Profile
from pytest_packbench.model.score import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_packbench.model.metric import Metric

_Key = TypeVar("_Key")
# scores are added as whole numbers, so that the sum does not depend on their order
_FINEST = 1 << 60


@dataclass(slots=True)
class ResultSums:
    """The sums over a group of results.

    Attributes:
        profiles: number of results by profile.
        points: the sum of the scores in the rates, in multiples of `1 / _FINEST`.
        clusters: the clusters of the results in the rates, if the tally has a facet.
    """

    profiles: Counter[Profile] = field(default_factory=Counter)
    points: int = 0
    clusters: set[str] = field(default_factory=set)

    def add(self, profile: Profile, score: float | None) -> None:
        """Add one result."""
        self.profiles[profile] += 1
        if profile.counted and score is not None:
            self.points += round(score * _FINEST)

    def count(self, predicate: Callable[[Profile], object] = lambda _: True) -> int:
        """Return how many results have a profile for which the predicate is true."""
        return sum(number for profile, number in self.profiles.items() if predicate(profile))

    def count_by(self, key: Callable[[Profile], _Key]) -> Counter[_Key]:
        """Return the number of results for each value of the key."""
        counts: Counter[_Key] = Counter()
        for profile, number in self.profiles.items():
            counts[key(profile)] += number
        return counts

    @property
    def score(self) -> float:
        """The sum of the scores in the rates, rounded once, so that it does not depend on their order."""
        return self.points / _FINEST


class Fraction(NamedTuple):
    """A metric's value as numerator (`top`) over denominator (`bottom`)."""

    top: float
    bottom: int

    @property
    def value(self) -> float:
        """The quotient, 0 to 1.

        Raises:
            ZeroDivisionError: there is no case to judge.
        """
        return self.top / self.bottom


def measure(sums: ResultSums, metric: Metric, depth: int | None = None) -> Fraction:
    """Return a metric's value for a group of cases.

    Args:
        sums: those of the group.
        metric: what to measure.
        depth: for `accuracy`: the depth to which an answer has to agree, 1 by default.
    """

    def counts_in(result: Profile) -> bool:
        return metric.is_about(result) and bool(metric.among(result))

    def leads(result: Profile) -> bool:
        return counts_in(result) and metric.apart not in result.facets

    # without a case that leads, those that are counted apart are the group
    belongs = leads if metric.apart is not None and sums.count(leads) else counts_in
    among = sums.count(belongs)
    if metric is GENERAL_METRICS[MEAN_SCORE]:
        return Fraction(sums.score, among)
    return Fraction(sums.count(lambda result: belongs(result) and metric.counts(result, depth or 1)), among)


def excluded_facets(metrics: Mapping[str, Metric]) -> tuple[tuple[str, str], ...]:
    """Return the facets whose cases metrics exclude or count apart, with their values, each once."""
    facets = (facet for metric in metrics.values() for facet in (metric.excluded, metric.apart))
    return tuple(dict.fromkeys(facet for facet in facets if facet is not None))


class Bounds(NamedTuple):
    """The bounds of a value.

    Attributes:
        min: the smallest value that passes; None for no bound.
        max: the largest value that passes; None for no bound.
        tolerance: by how much a value may exceed a bound and still count as equal.
    """

    min: float | None = None
    max: float | None = None
    tolerance: float = TOLERANCE

    def is_enough(self, value: float) -> bool:
        """Whether a value is at or above `min`."""
        return self.min is None or value >= self.min - self.tolerance

    def is_within(self, value: float) -> bool:
        """Whether a value is at or below `max`."""
        return self.max is None or value <= self.max + self.tolerance

    def includes(self, value: float) -> bool:
        """Whether a value is within both bounds."""
        return self.is_enough(value) and self.is_within(value)


def line(subject: str, parts: Iterable[str], *, passed: bool) -> str:
    """Return a gate's decision in one line: its subject, the parts that are not empty, and PASS or FAIL."""
    return f"{subject} {', '.join(part for part in parts if part)}: {'PASS' if passed else 'FAIL'}"


def arithmetic(fraction: Fraction, bounds: Bounds, *, as_percent: bool = True, compared: bool = True) -> str:
    """Return a fraction, its value, and how that compares with the bounds: `3 / 50 = 6.0 % < min 90.0 %`.

    Args:
        fraction: the metric's fraction.
        bounds: those of the gate; the value has as many decimals as are needed to show how they compare.
        as_percent: whether the value is a share; else a mean score, `2.50 / 5 = 0.50`.
        compared: include the bounds.
    """
    value = fraction.value
    present = [bound for bound in (bounds.min, bounds.max) if bound is not None]
    number, *limits = format_with_bounds(value, *present, as_percent=as_percent)
    decimals = 0 if as_percent else len(number.partition(".")[2])
    comparisons = []
    if compared and bounds.min is not None:
        comparisons.append(f"{'>=' if bounds.is_enough(value) else '<'} min {limits[0]}")
    if compared and bounds.max is not None:
        comparisons.append(f"{'<=' if bounds.is_within(value) else '>'} max {limits[-1]}")
    return f"{fraction.top:.{decimals}f} / {fraction.bottom} = {number} {', '.join(comparisons)}".rstrip()
