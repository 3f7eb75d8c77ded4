"""Gates: conditions on a whole run, judged with their arithmetic shown (design 4 and 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pytest_packbench.reports.figures import TOLERANCE, UNREADABLE, aligned
from pytest_packbench.reports.statistics import values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_packbench.records.entry import Entry


class GateRule(Protocol):
    """What a gate demands; a suite's gates are such objects.

    Attributes:
        metric: `completeness`, `pass_rate`, `mean_score` or `over_refusal_rate`.
        min: the least value that passes, 0 to 1.
        max: the greatest value that passes, 0 to 1.
        by: judge each group apart: `case_type`, `difficulty`, `tag` or a facet's name; None for the whole run.
    """

    @property
    def metric(self) -> str:
        """What is measured."""

    @property
    def min(self) -> float | None:
        """The least value that passes."""

    @property
    def max(self) -> float | None:
        """The greatest value that passes."""

    @property
    def by(self) -> str | None:
        """What to group by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """How one gate decided on the run, or on one group of it.

    Attributes:
        metric: what was measured.
        by: what the run was split by; None for the whole run.
        value: the group's value; None for the whole run, and where no case belongs to any group.
        passed: whether the gate holds.
        observed: the measured value, 0 to 1; None where there was no case to judge.
        min: the least value that passes.
        max: the greatest value that passes.
        text: the arithmetic in one line: `pass_rate 3 / 50 = 6.0 % < min 90.0 %: FAIL`.
    """

    metric: str
    by: str | None
    value: str | None
    passed: bool
    observed: float | None
    min: float | None
    max: float | None
    text: str

    @property
    def subject(self) -> str:
        """What was measured, where: `pass_rate`, `pass_rate (case_type negative)`."""
        if self.by is None:
            return self.metric
        if self.value is None:
            return f"{self.metric} (by {self.by})"
        return f"{self.metric} ({self.by} {self.value or UNREADABLE})"


@dataclass(frozen=True, slots=True)
class _Fraction:
    """What a metric adds up and divides: `top` over `bottom`."""

    top: float
    bottom: int


def check(entries: Sequence[Entry], rules: Iterable[GateRule]) -> tuple[GateResult, ...]:
    """Judge a run by its gates.

    A gate without a case to judge fails: it can't tell. So does a gate by a name that no case has.

    Args:
        entries: one for each selected case.
        rules: the gates; time is linear in entries times gates.

    Returns:
        For each gate one result, or one for each group in the order of the groups' names.

    Raises:
        ValueError: no such metric.
    """
    return tuple(result for rule in rules for result in _judged(entries, rule))


def _judged(entries: Sequence[Entry], rule: GateRule) -> list[GateResult]:
    if rule.metric not in _METRICS:
        raise ValueError(f'no metric is called "{rule.metric}"; known: {", ".join(_METRICS)}')
    if rule.by is None:
        return [_result(rule, None, _METRICS[rule.metric](entries))]
    groups = _groups(entries, rule.metric, rule.by)
    if not groups:
        return [_result(rule, None, _Fraction(0, 0))]
    return [_result(rule, value, _METRICS[rule.metric](groups[value])) for value in sorted(groups)]


def _groups(entries: Sequence[Entry], metric: str, by: str) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if _is_due(entry):
            for value in _values(entry, by):
                groups.setdefault(value, []).append(entry)
    return {value: members for value, members in groups.items() if _concerns(metric, value, members)}


def _values(entry: Entry, by: str) -> tuple[str, ...]:
    # without a case type the case can't be read, and nobody knows which groups it belongs to
    return values_of(entry, by) if entry.case_type else ("",)


def _concerns(metric: str, value: str, members: list[Entry]) -> bool:
    """Whether a metric has anything to say of a group.

    A case that can't be read is missing from completeness and from nothing else; a group that only expects
    refusals has no over-refusals. A group of which nothing is known yet concerns every metric.
    """
    if metric == "completeness":
        return True
    if metric == "over_refusal_rate" and any(entry.counted for entry in members):
        return any(entry.counted and entry.expects_refusal is False for entry in members)
    return bool(value)


def _is_due(entry: Entry) -> bool:
    """Whether the case has to end passed or failed (design 4)."""
    return not entry.quarantined and entry.verdict != "known_hole"


def _completeness(entries: Iterable[Entry]) -> _Fraction:
    due = [entry.counted for entry in entries if _is_due(entry)]
    return _Fraction(sum(due), len(due))


def _pass_rate(entries: Iterable[Entry]) -> _Fraction:
    counted = [entry.verdict == "passed" for entry in entries if entry.counted]
    return _Fraction(sum(counted), len(counted))


def _mean_score(entries: Iterable[Entry]) -> _Fraction:
    scores = [entry.score for entry in entries if entry.counted and entry.score is not None]
    return _Fraction(math.fsum(scores), len(scores))


def _over_refusal_rate(entries: Iterable[Entry]) -> _Fraction:
    refused = [bool(entry.refused) for entry in entries if entry.counted and entry.expects_refusal is False]
    return _Fraction(sum(refused), len(refused))


_METRICS: dict[str, Callable[[Iterable[Entry]], _Fraction]] = {
    "completeness": _completeness,
    "pass_rate": _pass_rate,
    "mean_score": _mean_score,
    "over_refusal_rate": _over_refusal_rate,
}


def _result(rule: GateRule, value: str | None, fraction: _Fraction) -> GateResult:
    observed = fraction.top / fraction.bottom if fraction.bottom else None
    passed = observed is not None and _is_enough(rule, observed) and _is_within(rule, observed)
    told = ": no case to judge" if observed is None else f" {_arithmetic(rule, fraction, observed)}"
    result = GateResult(
        metric=rule.metric,
        by=rule.by,
        value=value,
        passed=passed,
        observed=observed,
        min=rule.min,
        max=rule.max,
        text=f"{told}: {'PASS' if passed else 'FAIL'}",
    )
    return replace(result, text=result.subject + result.text)


def _is_enough(rule: GateRule, observed: float) -> bool:
    return rule.min is None or observed >= rule.min - TOLERANCE


def _is_within(rule: GateRule, observed: float) -> bool:
    return rule.max is None or observed <= rule.max + TOLERANCE


def _arithmetic(rule: GateRule, fraction: _Fraction, observed: float) -> str:
    is_score = rule.metric == "mean_score"
    bounds = [bound for bound in (rule.min, rule.max) if bound is not None]
    shown, *shown_bounds = aligned(observed, *bounds, as_percent=not is_score)
    decimals = len(shown.partition(".")[2]) if is_score else 0
    comparisons = []
    if rule.min is not None:
        comparisons.append(f"{'>=' if _is_enough(rule, observed) else '<'} min {shown_bounds[0]}")
    if rule.max is not None:
        comparisons.append(f"{'<=' if _is_within(rule, observed) else '>'} max {shown_bounds[-1]}")
    return f"{fraction.top:.{decimals}f} / {fraction.bottom} = {shown} {', '.join(comparisons)}"
