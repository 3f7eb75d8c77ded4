"""Measuring metrics on a tally, and the arithmetic of gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_packbench.analysis.figures import TOLERANCE, aligned
from pytest_packbench.analysis.sums import Sums, merged
from pytest_packbench.model.metric import COMPLETENESS, GENERAL_METRICS, MEAN_SCORE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_packbench.analysis.tally import PairsKey, Tally
    from pytest_packbench.model.metric import Metric


@dataclass(frozen=True, slots=True)
class Fraction:
    """What a metric adds up and divides: `top` over `bottom`."""

    top: float
    bottom: int

    @property
    def value(self) -> float:
        """The quotient, 0 to 1.

        Raises:
            ZeroDivisionError: there is no case to judge.
        """
        return self.top / self.bottom


def measured(sums: Sums, metric: Metric, depth: int | None = None) -> Fraction:
    """Measure a group of cases.

    Args:
        sums: the sums of the group.
        metric: what to measure.
        depth: for `accuracy`: the depth to which an answer has to agree; 1 by default.
    """
    among = sums.count(metric.among)
    if metric is GENERAL_METRICS[MEAN_SCORE]:
        return Fraction(sums.score, among)
    return Fraction(sums.count(lambda result: metric.among(result) and metric.counts(result, depth or 1)), among)


def whole_of(tally: Tally) -> Sums:
    """Give the sums of all results of a run."""
    return merged(sums for key, sums in tally.groups.items() if not key.name)


def groups(tally: Tally, metric: str, by: str) -> dict[str, Sums]:
    """Split a run by what a gate names, leaving out groups of which the metric says nothing.

    Args:
        tally: the run.
        metric: the name of one of the tally's metrics.
        by: as a gate has it.

    Returns:
        The sums of each group with a case that has to end passed or failed, by the group's name; "" for cases that
        can't be read: nobody knows which groups they belong to.
    """
    parts: dict[str, list[Sums]] = {}
    for key, sums in tally.groups.items():
        if _belongs(key.name, by, readable=key.readable):
            parts.setdefault(key.value, []).append(sums)
    found = {value: merged(sums) for value, sums in parts.items()}
    return {value: sums for value, sums in found.items() if _concerns(tally.metrics[metric], value, sums)}


def pairs(tally: Tally, metric: str, by: str | None, value: str) -> tuple[Sums, Sums]:
    """Give the sums before and now of the cases of a group that a metric counts and that are the same in both runs.

    Without `by` the group is the whole run.
    """
    found = [both for key, both in tally.pairs.items() if _is_pair(key, metric, by, value)]
    return merged(before for before, _ in found), merged(now for _, now in found)


def _is_pair(key: PairsKey, metric: str, by: str | None, value: str) -> bool:
    if metric != COMPLETENESS and not key.judged:
        return False
    if by is None:
        return not key.group.name
    return key.due and key.group.value == value and _belongs(key.group.name, by, readable=key.group.readable)


def _belongs(name: str, by: str, *, readable: bool) -> bool:
    # of a case that can't be read only the group of all results is known
    return name == (by if readable else "")


def _concerns(metric: Metric, value: str, sums: Sums) -> bool:
    """Return whether a metric can be measured on a group.

    A case that can't be read is missing from completeness and from nothing else; a group that only expects
    refusals has no over-refusals. A group of which nothing is known yet concerns every metric.
    """
    if not sums.count(lambda result: result.due):
        return False
    if metric is GENERAL_METRICS[COMPLETENESS]:
        return True
    if metric.skips_refusals and sums.count(lambda result: result.counted):
        return bool(sums.count(lambda result: result.answer_due))
    return bool(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a number has to reach and to keep to.

    Attributes:
        min: the least value that passes; None for none.
        max: the greatest value that passes; None for none.
        tolerance: how far it may lie outside and count as equal.
    """

    min: float | None = None
    max: float | None = None
    tolerance: float = TOLERANCE

    def is_enough(self, value: float) -> bool:
        """Whether a value is not under the least that passes."""
        return self.min is None or value >= self.min - self.tolerance

    def is_within(self, value: float) -> bool:
        """Whether a value is not over the greatest that passes."""
        return self.max is None or value <= self.max + self.tolerance

    def hold(self, value: float) -> bool:
        """Whether a value passes."""
        return self.is_enough(value) and self.is_within(value)


def line(subject: str, parts: Iterable[str], *, passed: bool) -> str:
    """Write how a gate decided: its subject, the parts that are not empty, and the verdict."""
    return f"{subject} {', '.join(part for part in parts if part)}: {'PASS' if passed else 'FAIL'}"


def arithmetic(fraction: Fraction, bounds: Bounds, *, as_percent: bool = True, compared: bool = True) -> str:
    """Write what was counted, its share, and how that stands to the bounds: `3 / 50 = 6.0 % < min 90.0 %`.

    Args:
        fraction: what was counted.
        bounds: what decides on its value; the share has as many decimals as it takes to see how.
        as_percent: write a share; else a mean score, `2.50 / 5 = 0.50`.
        compared: write the bounds too.
    """
    value = fraction.value
    given = [bound for bound in (bounds.min, bounds.max) if bound is not None]
    shown, *bounds_shown = aligned(value, *given, as_percent=as_percent)
    decimals = 0 if as_percent else len(shown.partition(".")[2])
    comparisons = []
    if compared and bounds.min is not None:
        comparisons.append(f"{'>=' if bounds.is_enough(value) else '<'} min {bounds_shown[0]}")
    if compared and bounds.max is not None:
        comparisons.append(f"{'<=' if bounds.is_within(value) else '>'} max {bounds_shown[-1]}")
    return f"{fraction.top:.{decimals}f} / {fraction.bottom} = {shown} {', '.join(comparisons)}".rstrip()
