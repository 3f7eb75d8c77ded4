"""Judge a run by what changed since its baseline: its regressions, its new failures and the mean change in score."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.analysis.comparison import GroupChanges, RunComparison
from pytest_packbench.analysis.formatting import format_with_bounds
from pytest_packbench.analysis.metrics import groups, line
from pytest_packbench.model.gate import CHANGE_METRICS, GateResult
from pytest_packbench.model.metric import COMPLETENESS
from pytest_packbench.model.score import TOLERANCE
from pytest_packbench.model.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.analysis.tally import Tally
    from pytest_packbench.model.gate import Gate

_NAMED = 3


class Changes(NamedTuple):
    """What a run is compared with, for gates on changes.

    Attributes:
        comparison: the comparison with the baseline; None if there is none.
        reason: why there is none, or why it can't be used, in words.
        optional: whether such a gate passes without a comparison.
    """

    comparison: RunComparison | None = None
    reason: str = "no baseline; pass an earlier run as the baseline"
    optional: bool = False


def judge_change(gate: Gate, tally: Tally, changes: Changes) -> list[GateResult]:
    """Judge a run by a gate on changes: one result, or one for each group of the run with a case to judge."""
    if gate.by is None:
        return [_result(gate, None, changes, ("", ""))]
    # an error is a new failure, so that a group of errors is judged as well
    values = sorted(value for value in groups(tally, COMPLETENESS, gate.by) if value)
    if not values:
        return [_result(gate, None, changes, (gate.by, ""))]
    return [_result(gate, value, changes, (gate.by, value)) for value in values]


def _result(gate: Gate, value: str | None, changes: Changes, key: tuple[str, str]) -> GateResult:
    bound = float(getattr(gate, gate.change))
    is_min = gate.change == "min_mean_change"
    undecided = GateResult(
        metric=CHANGE_METRICS[gate.change],
        by=gate.by,
        value=value,
        passed=False,
        observed=None,
        min=bound if is_min else None,
        max=None if is_min else bound,
        text="",
    )
    if changes.comparison is None or changes.reason:
        verdict = "not judged, because the baseline is optional" if changes.optional else "FAIL"
        return undecided.decided(f"{undecided.subject}: {changes.reason}: {verdict}", passed=changes.optional)
    group = changes.comparison.groups.get(key, GroupChanges())
    if not group.unchanged:
        text = f"{undecided.subject}: no case is unchanged in both runs: FAIL"
        return undecided.decided(text, passed=False, absent=True)
    if is_min:
        return _mean_change(undecided, group, bound, changes.comparison)
    return _count(undecided, group, int(bound))


def _count(undecided: GateResult, group: GroupChanges, bound: int) -> GateResult:
    test_ids: Sequence[str] = getattr(group, "regressed" if undecided.metric == "regressions" else undecided.metric)
    passed = len(test_ids) <= bound
    more = [f"and {len(test_ids) - _NAMED} more"] if len(test_ids) > _NAMED else []
    parts = (
        f"{len(test_ids)} {'<=' if passed else '>'} max {bound} over {pluralize(group.unchanged, 'case')} in both runs",
        *test_ids[:_NAMED],
        *more,
    )
    return undecided.decided(line(undecided.subject, parts, passed=passed), passed=passed, observed=len(test_ids))


def _mean_change(undecided: GateResult, group: GroupChanges, bound: float, comparison: RunComparison) -> GateResult:
    mean = group.mean
    if mean is None:
        text = f"{undecided.subject}: no case has a score in both runs: FAIL"
        return undecided.decided(text, passed=False)
    passed = mean.mean >= bound - TOLERANCE
    value, limit = format_with_bounds(mean.mean, bound)
    interval = ""
    if comparison.authored:
        # authored answers are no random sample
        interval = "authored answers, so no interval"
    elif mean.low is not None and mean.high is not None:
        interval = f"two-sided 95 % confidence interval {mean.low:+.3f} to {mean.high:+.3f}"
    parts = (f"{value} {'>=' if passed else '<'} min {limit} over {pluralize(mean.n, 'pair')}", interval)
    return undecided.decided(line(undecided.subject, parts, passed=passed), passed=passed, observed=mean.mean)
