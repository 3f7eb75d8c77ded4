"""Metrics measured on a tally, the arithmetic of gates, and the sums that both are computed from.

A `Profile` contains all that a figure needs of one result, beside its score; a run has few different ones. `ResultSums`
count the results of a group by profile and add up their scores.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pytest_packbench.analysis.formatting import format_with_bounds
from pytest_packbench.model.metric import COMPLETENESS, GENERAL_METRICS, MEAN_SCORE, Profile
from pytest_packbench.model.score import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_packbench.analysis.tally import PairsKey, Tally
    from pytest_packbench.model.metric import Metric


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


def run_sums(tally: Tally) -> ResultSums:
    """Return the sums of all results of a run."""
    return merged(sums for key, sums in tally.groups.items() if not key.name)


def groups(tally: Tally, metric: str, by: str) -> dict[str, ResultSums]:
    """Split a run into groups, without those to which the metric does not apply.

    Args:
        tally: the run.
        metric: the name of one of the tally's metrics.
        by: the gate's `by`.

    Returns:
        The sums of each group with a case that has to be judged or is vacuous, by the group's value; "" for unreadable
        cases, whose groups are unknown.
    """
    parts: dict[str, list[ResultSums]] = {}
    for key, sums in tally.groups.items():
        if _belongs(key.name, by, readable=key.readable):
            parts.setdefault(key.value, []).append(sums)
    totals = {value: merged(sums) for value, sums in parts.items()}
    return {value: sums for value, sums in totals.items() if _applies(tally.metrics[metric], value, sums)}


def pairs(tally: Tally, metric: str, by: str | None, value: str) -> tuple[ResultSums, ResultSums]:
    """Return the sums before and now of those cases of a group that are unchanged in both runs.

    Without `by` the group is the whole run.
    """
    both = [sums for key, sums in tally.pairs.items() if _is_pair(key, metric, by, value)]
    return merged(before for before, _ in both), merged(now for _, now in both)


def _is_pair(key: PairsKey, metric: str, by: str | None, value: str) -> bool:
    if metric != COMPLETENESS and not key.judged:
        return False
    if by is None:
        return not key.group.name
    return key.due and key.group.value == value and _belongs(key.group.name, by, readable=key.group.readable)


def _belongs(name: str, by: str, *, readable: bool) -> bool:
    # an unreadable case is only known to be in the group of all results
    return name == (by if readable else "")


def _applies(metric: Metric, value: str, sums: ResultSums) -> bool:
    """Whether a metric applies to a group.

    Unreadable cases count for completeness only, and groups that only expect refusals have no over-refusals. Every
    metric applies to a group without a judged case.
    """
    due = bool(sums.count(lambda result: result.due))
    if metric is GENERAL_METRICS[COMPLETENESS]:
        return due
    # a group of vacuous cases has not shown what its gate asks for
    if not due and not sums.count(lambda result: result.vacuous):
        return False
    if metric.skips_refusals and sums.count(lambda result: result.counted):
        return bool(sums.count(lambda result: result.answer_due))
    return bool(value)


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


# every float is a multiple of 2 ** -1074, so that sums of such multiples are exact
_FINEST_BITS = 1074
_FINEST = 1 << _FINEST_BITS
_Key = TypeVar("_Key")


@dataclass(slots=True)
class ResultSums:
    """The sums over a group of results.

    Attributes:
        profiles: number of results by profile.
        points: the sum of the scores in the rates, in multiples of `1 / _FINEST`.
        not_finite: the sum of those scores that are not finite.
        clusters: the clusters of the results in the rates, if the tally has a facet.
    """

    profiles: dict[Profile, int] = field(default_factory=dict)
    points: int = 0
    not_finite: float = 0.0
    clusters: set[str] = field(default_factory=set)

    def add(self, profile: Profile, points: float) -> None:
        """Add one result with its points, as `points_of` returns them."""
        self.profiles[profile] = self.profiles.get(profile, 0) + 1
        if isinstance(points, int):
            self.points += points
        else:
            self.not_finite += points

    def merge(self, other: ResultSums) -> None:
        """Add the sums of another group."""
        for profile, number in other.profiles.items():
            self.profiles[profile] = self.profiles.get(profile, 0) + number
        self.points += other.points
        self.not_finite += other.not_finite
        self.clusters |= other.clusters

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
        return self.points / _FINEST + self.not_finite


def merged(sums: Iterable[ResultSums]) -> ResultSums:
    """Return the sum over groups that share no result."""
    total = ResultSums()
    for group in sums:
        total.merge(group)
    return total


def points_of(score: float | None) -> float:
    """Return a score as a multiple of `1 / _FINEST`; a score that is not finite is returned unchanged, None is 0."""
    if score is None:
        return 0
    if not isfinite(score):
        return score
    top, bottom = score.as_integer_ratio()
    return top << (_FINEST_BITS - bottom.bit_length() + 1)
