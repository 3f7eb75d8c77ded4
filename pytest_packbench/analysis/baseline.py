"""What came of comparing a run with its baseline, and whether that fails the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.comparison import ComparedCase, ComparedRun, GroupChanges, RunComparison, differences
from pytest_packbench.analysis.formatting import format_change, format_mean, format_with_bounds
from pytest_packbench.analysis.metrics import groups, line
from pytest_packbench.model.baseline import BASELINE_VERSION, CommittedBaseline
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.gate import CHANGE_METRICS, GateResult
from pytest_packbench.model.metric import COMPLETENESS
from pytest_packbench.model.result import models_of
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.score import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.comparison import FailCondition, RunComparison
    from pytest_packbench.analysis.tally import Tally
    from pytest_packbench.model.baseline import BaselineChange
    from pytest_packbench.model.gate import Gate
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.stored import BaselineLookup, StoredRun


class BaselineOutcome(NamedTuple):
    """What came of comparing a run with its baseline.

    Attributes:
        requested: the baseline as the user named it.
        comparison: the comparison; None if the baseline was not found, or the run is a shard.
        problem: why the run was not compared, in one line; empty if it was.
        optional: whether the run passes without a comparison.
        conditions: the conditions that fail the run if they are met.
        warning: what to know about the baseline, in one line; empty if there is nothing.
    """

    requested: str
    comparison: RunComparison | None = None
    problem: str = ""
    optional: bool = False
    conditions: tuple[FailCondition, ...] = ()
    warning: str = ""

    @property
    def compared(self) -> RunComparison | None:
        """The comparison if it says anything; None if the runs can't be compared."""
        return None if self.problem else self.comparison

    @property
    def met(self) -> tuple[FailCondition, ...]:
        """The conditions that are met."""
        comparison = self.compared
        if comparison is None:
            return ()
        figures = comparison.figures()
        return tuple(condition for condition in self.conditions if condition.is_met(figures))

    @property
    def fails_unseen(self) -> bool:
        """Whether the run fails because it could not be compared."""
        return bool(self.problem) and not self.optional

    @property
    def failures(self) -> tuple[str, ...]:
        """Why the run fails because of its baseline, one reason each."""
        if self.problem:
            return () if self.optional else (f"baseline {self.requested}: {self.problem}",)
        return tuple(self._met_text(condition) for condition in self.met)

    def _met_text(self, condition: FailCondition) -> str:
        figures = {} if self.comparison is None else self.comparison.figures()
        value = figures.get(condition.name, float("nan"))
        known = value == value  # noqa: PLR0124 - only NaN differs from itself
        return f"condition {condition} is met: {f'{value:g}' if known else 'the value is not known'}"


def baseline_outcome(earlier: BaselineLookup, comparison: RunComparison | None, scope: str) -> BaselineOutcome | None:
    """Return what came of comparing a run with a baseline.

    Args:
        earlier: the baseline, or why there is none.
        comparison: the comparison; None if there was nothing to compare with.
        scope: of the run, as in `conclude`.

    Returns:
        The outcome; None if no baseline was requested.

    Raises:
        ConditionError: a condition is malformed or names an unknown figure.
    """
    if earlier.stored is None and not earlier.reason:
        return None
    problem, optional = earlier.reason, earlier.optional
    if scope == "shard":
        problem, optional = "not compared: this is a shard; packbench merge --baseline compares the merged run", True
    elif comparison is not None:
        if scope == "part":
            # a case that was not selected is not known to be removed
            comparison = replace(comparison, removed=(), cases=(comparison.common, comparison.cases[1]))
        problem = incomparable(comparison)
        # a few cases that were edited are no reason to fail a run of these only
        optional = optional or (scope == "part" and not comparison.differences)
    conditions: tuple[FailCondition, ...] = ()
    if earlier.fail_on:
        from pytest_packbench.analysis.comparison import FIGURES, parse_conditions

        conditions = parse_conditions(earlier.fail_on, FIGURES)
    return BaselineOutcome(
        requested=earlier.requested,
        comparison=comparison,
        problem=problem,
        optional=optional,
        conditions=conditions,
        warning=earlier.warning,
    )


def committed_baseline(run: Run, results: Iterable[Result], history: Iterable[BaselineChange]) -> CommittedBaseline:
    """Return a run as a committed baseline.

    Args:
        run: what is true of all results.
        results: one for each attempt, in any order.
        history: the entries of its history, the oldest first.

    Raises:
        TrialsRuleError: the settings of the run contain an invalid trials rule.
    """
    results = tuple(results)
    compared = ComparedRun(run).add_all(results)
    about = {
        **{name: getattr(run, name) for name in ("run_id", "pack", "pack_version", "suite_sha256", "mode", "target")},
        "suite": run.suite.removeprefix(BUNDLED),
        "finished_at": run.finished_at,
        "models": models_of(results),
        "authored": compared.authored,
    }
    if run.settings.get("trials", 1) > 1:
        about |= {name: run.settings[name] for name in ("trials", "trials_rule") if name in run.settings}
    return CommittedBaseline.model_validate(
        {
            "baseline_version": BASELINE_VERSION,
            "run": about,
            "history": [change.model_dump() for change in history],
            "cases": {test_id: _case(case) for test_id, case in compared.cases.items()},
        }
    )


def _case(case: ComparedCase) -> dict[str, Any]:
    several = {"trials": case.trials, "passed": case.passed} if case.trials > 1 else {}
    optional = {name: value for name, value in (("kind", case.kind), ("judge", case.judge)) if value}
    return {"sha256": case.case_sha256, "score": case.score, "verdict": case.verdict, **optional, **several}


def loosened(before: StoredRun, after: StoredRun) -> Iterator[str]:
    """Describe in what a baseline is looser than the one before, a line each.

    Args:
        before: the baseline so far.
        after: the run of the next one.

    Raises:
        TrialsRuleError: the settings of a run contain an invalid trials rule.
    """
    yield from differences(before.run, after.run)
    old, new = (ComparedRun(stored.run).read(stored).cases for stored in (before, after))
    for test_id in sorted(old):
        yield from _loosened_case(old[test_id], new)


def _loosened_case(before: ComparedCase, cases: Mapping[str, ComparedCase]) -> Iterator[str]:
    after = cases.get(before.test_id)
    if after is None:
        yield f"{before.test_id}: removed ({before.verdict})"
        return
    reasons = []
    if before.counted and not after.counted:
        reasons.append(f"{before.verdict} before, {after.kind or after.verdict} now")
    elif before.verdict == "passed" and after.verdict != "passed":
        reasons.append(f"passed before, {after.verdict} now")
    if None not in (before.score, after.score) and (after.score or 0.0) < (before.score or 0.0) - TOLERANCE:
        reasons.append(f"score {format_mean(before.score)} before, {format_mean(after.score)} now")
    if before.case_sha256 != after.case_sha256:
        reasons.append("the case was edited")
    if reasons:
        yield f"{before.test_id}: {'; '.join(reasons)}"


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
        decided = undecided.decided(f"{undecided.subject}: {changes.reason}: {verdict}", passed=changes.optional)
        return replace(decided, judged=not changes.optional)
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
        interval = f"two-sided 95 % confidence interval {format_change(mean.low, 3)} to {format_change(mean.high, 3)}"
    parts = (f"{value} {'>=' if passed else '<'} min {limit} over {pluralize(mean.n, 'pair')}", interval)
    decided = undecided.decided(line(undecided.subject, parts, passed=passed), passed=passed, observed=mean.mean)
    if comparison.authored or mean.low is None or mean.high is None:
        return decided
    return replace(decided, interval=(mean.low, mean.high))


def incomparable(comparison: RunComparison) -> str:
    """Return why a run can't be compared with its baseline, in words; empty if it can."""
    name = comparison.baseline.run_id
    if comparison.differences:
        return f"not compared with {name}: {'; '.join(comparison.differences)}"
    if not comparison.unchanged:
        return f"not compared with {name}: no case is unchanged in both runs"
    return ""
