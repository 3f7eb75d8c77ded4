"""Judge whether a run is good enough, and show the arithmetic of each gate in one line."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.analysis.formatting import format_interval, format_with_bounds
from pytest_packbench.analysis.intervals import exact_bound, wilson_interval
from pytest_packbench.analysis.metrics import (
    Bounds,
    ResultSums,
    arithmetic,
    groups,
    line,
    measure,
    pairs,
    run_sums,
)
from pytest_packbench.analysis.tally import TAG, Tally
from pytest_packbench.analysis.trials import (
    MEAN,
    cluster_facet,
    dependence_note,
    fold_trials,
    max_trial_count,
    trials_rule_of,
)
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.gate import CHANGE_METRICS, GateResult
from pytest_packbench.model.metric import COMPLETENESS, MEAN_SCORE
from pytest_packbench.model.score import FIXTURE, TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.baseline import Changes
    from pytest_packbench.analysis.metrics import Fraction
    from pytest_packbench.analysis.tally import EachCase
    from pytest_packbench.analysis.trials import Rule
    from pytest_packbench.model.gate import Gate
    from pytest_packbench.model.metric import Metric
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.stored import BaselineLookup, StoredRun


_ABSENT = "not in this run"
_UNKNOWN = (
    "unknown, because records alone do not show errors and cases that did not run; "
    "pass the run's folder or its report.json"
)
_USUAL = 0.95
# not proportions of a sample of cases
_NO_SAMPLE = (COMPLETENESS, MEAN_SCORE)
_FEW = 5


def gate_tally(
    gates: Iterable[Gate],
    *,
    metrics: Mapping[str, Metric] | None = None,
    trials_rule: Rule = MEAN,
    facet: str = "",
    mode: str = FIXTURE,
    baseline: Baseline | None = None,
    each_case: Iterable[EachCase] = (),
) -> Tally:
    """Return a tally that counts what these gates need; for the other arguments see `Tally`."""
    gates = tuple(gates)
    return Tally(
        metrics=metrics,
        trials_rule=trials_rule,
        by_tag=any(gate.by == TAG for gate in gates),
        required=[name for gate in gates for name in gate.must_pass],
        facet=facet,
        mode=mode,
        earlier=None if baseline is None else baseline.cases,
        each_case=each_case,
    )


def judge_gates(
    tally: Tally,
    gates: Iterable[Gate],
    baseline: Baseline | None = None,
    *,
    changes: Changes | None = None,
    with_errors: bool = True,
) -> tuple[GateResult, ...]:
    """Judge a run by its gates.

    A gate without a case to judge fails. So does a gate by a name that no case has, and a gate with
    `max_ratio_to_baseline` or on changes without a comparable baseline.

    Args:
        tally: the run, counted by the tally of `gate_tally`.
        gates: the gates; time is linear in them and in the run's groups.
        baseline: the run to compare with, for `max_ratio_to_baseline`.
        changes: the comparison with that run, for gates on changes.
        with_errors: whether errors and cases that did not run were counted; if not, completeness is unknown and fails.

    Returns:
        One result for each gate, or one for each group in the order of the groups' names.

    Raises:
        ValueError: a metric is unknown.
    """
    judge = _GateJudge(tally.close(), baseline, changes)
    return tuple(result for gate in gates for result in judge.results(gate, with_errors=with_errors))


def check_run(
    run: Run,
    results: Sequence[Result],
    gates: Iterable[Gate],
    earlier: BaselineLookup | None = None,
    *,
    metrics: Mapping[str, Metric] | None = None,
    with_errors: bool = True,
    trials_rule: Rule = MEAN,
) -> tuple[GateResult, ...]:
    """Judge a run by its gates, and compare it with an earlier run if a gate asks for that.

    Args:
        run: what is true of all results.
        results: one for each selected case, or for each trial of it, in any order; trials of a case count as one case.
        gates: as in `judge_gates`.
        earlier: the run to compare with, or why there is none.
        metrics: the metrics of the pack, by name, beside the general ones.
        with_errors: whether the results include errors and cases that did not run.
        trials_rule: the trials rule, unless the runs' settings contain one.

    Raises:
        ValueError: a metric is unknown or a trials rule invalid.
    """
    gates = tuple(gates)
    baseline = gate_baseline(earlier, gates, trials_rule)
    changes = _changes(run, results, gates, earlier)
    rule = trials_rule_of(run, trials_rule)
    facet = cluster_facet(run)
    tally = gate_tally(gates, metrics=metrics, trials_rule=rule, facet=facet, mode=run.mode, baseline=baseline)
    tally.add_all(results)
    if baseline is not None:
        baseline = baseline.checked(run, tally)
    return judge_gates(tally, gates, baseline, changes=changes, with_errors=with_errors)


def _changes(
    run: Run, results: Sequence[Result], gates: Iterable[Gate], earlier: BaselineLookup | None
) -> Changes | None:
    """Compare a run with an earlier one if a gate asks for it."""
    if earlier is None or not any(gate.change for gate in gates):
        return None
    from pytest_packbench.analysis.baseline import Changes, incomparable
    from pytest_packbench.analysis.comparison import compare
    from pytest_packbench.runs.stored import StoredRun

    if earlier.stored is None:
        return Changes(reason=earlier.reason) if earlier.reason else None
    current = StoredRun(source=run.run_id, run=run, results=tuple(results))
    comparison = compare(earlier.stored, current, by=group_names(gates))
    return Changes(comparison=comparison, reason=incomparable(comparison) if comparison.differences else "")


def group_names(gates: Iterable[Gate]) -> set[str]:
    """Return the names of the groups whose changes gates bound."""
    return {gate.by for gate in gates if gate.change and gate.by is not None}


def skip_unselected(results: Iterable[GateResult]) -> tuple[GateResult, ...]:
    """Let gates pass that failed only because their cases were not selected, and say so in their text."""
    return tuple(
        _not_judged(result, _unselected_text(result))
        if not result.passed and (result.absent or (result.observed is None and not _is_change(result)))
        else result
        for result in results
    )


def defer_to_merge(results: Iterable[GateResult]) -> tuple[GateResult, ...]:
    """Leave the gates of a shard to the merged run; only a failed `completeness` of min 1.0 fails the shard already."""
    return tuple(
        result
        if result.metric == "completeness" and result.min == 1 and result.observed is not None and not result.passed
        else _not_judged(result, f"{result.subject}: not judged in a shard; packbench merge judges it")
        for result in results
    )


def _not_judged(result: GateResult, text: str) -> GateResult:
    """Return a gate that passes because it was not judged, without a value that would look like a decision."""
    return replace(
        result, passed=True, judged=False, text=text, observed=None, proven=None, counted=None, interval=None
    )


def _is_change(result: GateResult) -> bool:
    return result.metric in CHANGE_METRICS.values()


def _unselected_text(result: GateResult) -> str:
    if result.absent:
        return f"{result.text.removesuffix(': FAIL')}: not judged, because only part of the suite is selected"
    return f"{result.subject}: not judged, because none of its cases is selected"


class Baseline(NamedTuple):
    """The cases of an earlier run, for `max_ratio_to_baseline`.

    Attributes:
        cases: one result for each case, by test id; test ids that occur twice are left out.
        run: what is true of them; None if unknown, in which case the run is assumed to be comparable.
        trials: the largest number of trials of a case.
        unusable: why the run can't be the baseline, in words; empty if it can.
        metrics: the metrics that it can be measured by; empty for all.
    """

    cases: Mapping[str, Result] = MappingProxyType({})
    run: Run | None = None
    trials: int = 1
    unusable: str = ""
    metrics: tuple[str, ...] = ()

    @classmethod
    def from_results(cls, results: Sequence[Result], rule: Rule = MEAN, run: Run | None = None) -> Baseline:
        """Build a baseline from a run's results; the trials of a case become one result."""
        cases = fold_trials(results, rule)
        occurrences = Counter(case.case.test_id for case in cases)
        unique = {case.case.test_id: case for case in cases if occurrences[case.case.test_id] == 1}
        return cls(cases=unique, run=run, trials=max_trial_count(results))

    def checked(self, run: Run, tally: Tally) -> Baseline:
        """Check whether a run can be compared with this baseline.

        Args:
            run: what is true of the run that is judged.
            tally: its results, counted together with these cases.

        Returns:
            The baseline, `unusable` if suite, mode, pack, rules or the number of trials differ, or if no case is
            unchanged in both runs.
        """
        if self.run is None:
            return self
        from pytest_packbench.analysis.comparison import differences

        reasons = differences(self.run, run)
        if not reasons and self.trials != tally.close().trials.max_trials:
            # the worst of more trials is worse, so that the runs would differ by chance alone
            reasons = (f"trials per case: {self.trials} before, {tally.trials.max_trials} now",)
        if not reasons and not tally.unchanged:
            reasons = ("no case is unchanged in both runs",)
        if not reasons:
            return self
        return self._replace(unusable=f"run {self.run.run_id} can't be the baseline: {'; '.join(reasons)}")


def gate_baseline(earlier: BaselineLookup | None, gates: Iterable[Gate], trials_rule: Rule = MEAN) -> Baseline | None:
    """Return an earlier run as the baseline of gates.

    Args:
        earlier: the run, or why there is none.
        gates: the gates.
        trials_rule: the trials rule, unless the run's settings contain one.

    Returns:
        The baseline; None if none was requested, or no gate compares with it.
    """
    if earlier is None or all(gate.max_ratio_to_baseline is None for gate in gates):
        return None
    if earlier.stored is not None:
        return _baseline_of(earlier.stored, trials_rule)
    return Baseline(unusable=earlier.reason) if earlier.reason else None


def _baseline_of(stored: StoredRun, trials_rule: Rule) -> Baseline:
    if stored.attempts is None:
        return Baseline.from_results(stored.results, trials_rule_of(stored.run, trials_rule), stored.run)
    # a committed baseline has one result for each case, without what other metrics need
    trials = max((count for _, count in stored.attempts.values()), default=1)
    cases = {result.case.test_id: result for result in stored.results}
    return Baseline(cases=cases, run=stored.run, trials=trials, metrics=(COMPLETENESS, "pass_rate", MEAN_SCORE))


def checked_baseline(run: Run, results: Sequence[Result], earlier: StoredRun, trials_rule: Rule = MEAN) -> Baseline:
    """Return an earlier run as the baseline of a run; `unusable` says why if they are not comparable."""
    baseline = _baseline_of(earlier, trials_rule)
    tally = gate_tally((), trials_rule=trials_rule_of(run, trials_rule), mode=run.mode, baseline=baseline)
    return baseline.checked(run, tally.add_all(results))


class _GateJudge(NamedTuple):
    """Judges one run by gates."""

    tally: Tally
    baseline: Baseline | None
    changes: Changes | None = None

    def results(self, gate: Gate, *, with_errors: bool) -> list[GateResult]:
        if gate.must_pass:
            return [self._must_pass(gate)]
        if gate.change:
            from pytest_packbench.analysis.baseline import Changes, judge_change

            return judge_change(gate, self.tally, self.changes or Changes())
        if not with_errors and gate.metric == COMPLETENESS:
            result = _undecided(gate, None, None)
            return [replace(result, text=f"{result.subject}: {_UNKNOWN}: FAIL")]
        if gate.metric not in self.tally.metrics:
            raise ValueError(f'unknown metric "{gate.metric}"; expected one of {", ".join(self.tally.metrics)}')
        if gate.by is None:
            return [self._result(gate, None, run_sums(self.tally))]
        sums_by_value = groups(self.tally, gate.metric, gate.by)
        if not sums_by_value:
            return [self._result(gate, None, ResultSums())]
        return [self._result(gate, value, sums_by_value[value]) for value in sorted(sums_by_value)]

    def _must_pass(self, gate: Gate) -> GateResult:
        verdicts = {name: self.tally.required.get(name, _ABSENT) for name in gate.must_pass}
        missed = [f"{name} ({verdict})" for name, verdict in verdicts.items() if verdict != "passed"]
        passed = len(verdicts) - len(missed)
        names = f"; not passed: {', '.join(missed)}" if missed else ""
        return GateResult(
            metric="must_pass",
            by=None,
            value=None,
            passed=not missed,
            observed=passed / len(verdicts),
            min=1.0,
            max=None,
            text=line("must_pass", [f"{passed} / {len(verdicts)}{names}"], passed=not missed),
            absent=bool(missed) and all(verdict in {"passed", _ABSENT} for verdict in verdicts.values()),
            counted=(passed, len(verdicts)),
        )

    def _result(self, gate: Gate, value: str | None, sums: ResultSums) -> GateResult:
        fraction = measure(sums, self.tally.metrics[gate.metric], gate.depth)
        observed = fraction.value if fraction.bottom else None
        result = _undecided(gate, value, observed)
        if observed is None and gate.metric == COMPLETENESS and sums.count(lambda profile: profile.vacuous):
            # outside completeness in live mode, but a run of such cases alone has measured nothing
            return replace(result, text=f"{result.subject}: no case could have failed, so nothing was measured: FAIL")
        if observed is None and gate.metric == COMPLETENESS and sums.profiles:
            # else quarantine would turn any suite green
            return replace(result, text=f"{result.subject}: no case had to be judged, so nothing was measured: FAIL")
        metric = self.tally.metrics[gate.metric]
        if observed is None and metric.excluded and sums.profiles and not sums.count(metric.is_about):
            cases = " ".join(metric.excluded)
            text = f"{result.subject}: not judged, because it is not about cases with {cases}, and there are no others"
            return _not_judged(result, text)
        if observed is None:
            return replace(result, text=f"{result.subject}: no case to judge: FAIL")
        judges = sorted({each.judge for each in sums.profiles if each.counted and each.judge is not None})
        if len(judges) > 1 and gate.metric != COMPLETENESS:
            names = " and ".join(judges)
            return replace(
                result, text=f"{result.subject}: judged by {names}; rates of several judges are not mixed: FAIL"
            )
        within_bounds, comparison = _decide(gate, fraction)
        within_ratio, ratio = self._ratio(gate, value, fraction)
        passed = within_bounds and within_ratio
        authored = sums.count(lambda profile: profile.authored) > 0
        proof = _proof(gate, fraction, authored=authored)
        parts = (comparison, ratio, *_notes(gate, self.tally, sums, fraction, proof))
        return replace(
            result,
            passed=passed,
            proven=proof.holds,
            text=line(result.subject, parts, passed=passed),
            counted=None if gate.metric == MEAN_SCORE else (round(fraction.top), fraction.bottom),
            interval=_interval(gate, fraction, authored=authored),
        )

    def _ratio(self, gate: Gate, value: str | None, fraction: Fraction) -> tuple[bool, str]:
        """Compare a value with the baseline's, over the cases that are unchanged in both runs.

        Returns:
            Whether it is at most the allowed multiple, and the arithmetic, or why there is none.
        """
        if gate.max_ratio_to_baseline is None:
            return True, ""
        limit = f"max {gate.max_ratio_to_baseline:g} x baseline"
        if self.baseline is None or self.baseline.unusable:
            reason = (
                "no baseline; pass an earlier run as the baseline" if self.baseline is None else self.baseline.unusable
            )
            return False, f"{limit}: {reason}"
        if self.baseline.metrics and gate.metric not in self.baseline.metrics:
            reason = f"the committed baseline does not contain {gate.metric}; pass a run as the baseline"
            return False, f"{limit}: {reason}"
        # over the same cases on both sides, so that the ratio measures the change and not the choice of cases
        both = pairs(self.tally, gate.metric, gate.by, value or "")
        before, after = (measure(sums, self.tally.metrics[gate.metric], gate.depth) for sums in both)
        if not before.bottom or not after.bottom:
            return False, f"{limit}: no judged case is unchanged in both runs"
        as_percent = gate.metric != MEAN_SCORE
        old, new = (arithmetic(each, Bounds(), as_percent=as_percent) for each in (before, after))
        common = "" if after == fraction else f" over the {pluralize(after.bottom, 'case')} in both runs, now {new}"
        if before.value <= TOLERANCE:
            # any multiple of 0 is 0
            return after.value <= TOLERANCE, f"{limit}: the baseline is 0, so only 0 passes ({old}{common})"
        passed = after.value <= gate.max_ratio_to_baseline * before.value + TOLERANCE
        ratio, bound = format_with_bounds(after.value / before.value, gate.max_ratio_to_baseline)
        return passed, f"{ratio} x the baseline's {old}{common} {'<=' if passed else '>'} max {bound} x"


def _undecided(gate: Gate, value: str | None, observed: float | None) -> GateResult:
    return GateResult(
        metric=gate.metric if gate.depth is None else f"{gate.metric}@{gate.depth}",
        by=gate.by,
        value=value,
        passed=False,
        observed=observed,
        min=gate.min,
        max=gate.max,
        text="",
        confidence=gate.confidence,
    )


def _decide(gate: Gate, fraction: Fraction) -> tuple[bool, str]:
    """Compare a value, or with `confidence` its exact bound, with a gate's bounds."""
    bounds, as_percent = Bounds(min=gate.min, max=gate.max), gate.metric != MEAN_SCORE
    if gate.confidence is None:
        return bounds.includes(fraction.value), arithmetic(fraction, bounds, as_percent=as_percent)
    low, high = _exact_bounds(fraction, gate.confidence)
    observed = arithmetic(fraction, bounds, as_percent=as_percent, compared=False)
    parts = [observed, *_compared(bounds, low, high, gate.confidence, all_of_them=True)]
    return bounds.is_enough(low) and bounds.is_within(high), ", ".join(parts)


class _Proof(NamedTuple):
    """Whether a count shows that a rate is within the bounds of a gate, and what is missing in words."""

    holds: bool | None = None
    text: str = ""


def _proof(gate: Gate, fraction: Fraction, *, authored: bool) -> _Proof:
    """Return whether the exact one-sided bound of a rate is within the bounds of a gate; see `GateResult.proven`."""
    bounds, level = Bounds(min=gate.min, max=gate.max), gate.confidence or _USUAL
    if gate.confidence is None:
        # that none or all of the observed cases count is no claim about a rate
        bounds = Bounds(min=None if gate.min == 1 else gate.min, max=gate.max or None)
    if gate.metric in _NO_SAMPLE or authored or bounds[:2] == (None, None) or not bounds.includes(fraction.value):
        return _Proof()
    low, high = _exact_bounds(fraction, level)
    if bounds.is_enough(low) and bounds.is_within(high):
        return _Proof(holds=True)
    missing = [] if gate.confidence is not None else _compared(bounds, low, high, level, all_of_them=False)
    needed = _clean_cases(bounds, level)
    if needed == math.inf:
        missing.append("no number of cases can show this")
    elif fraction.bottom < needed:
        missing.append(f"only {pluralize(fraction.bottom, 'case')}, at least {needed} clean cases are needed")
    return _Proof(holds=False, text=": ".join(filter(None, ("not proven", ", ".join(missing)))))


def _exact_bounds(fraction: Fraction, confidence: float) -> tuple[float, float]:
    """Return the exact one-sided lower and upper bound of a rate."""
    low, high = (exact_bound(round(fraction.top), fraction.bottom, confidence, upper=upper) for upper in (False, True))
    return low, high


def _compared(bounds: Bounds, low: float, high: float, confidence: float, *, all_of_them: bool) -> list[str]:
    """Return how the exact bounds compare with those of a gate: all of them, or those that are missed."""
    exact, parts = f"exact one-sided {100 * confidence:g} %", []
    if bounds.min is not None and (all_of_them or not bounds.is_enough(low)):
        lower, bound = format_with_bounds(low, bounds.min, as_percent=True)
        parts.append(f"{exact} lower bound {lower} {'>=' if bounds.is_enough(low) else '<'} min {bound}")
    if bounds.max is not None and (all_of_them or not bounds.is_within(high)):
        upper, bound = format_with_bounds(high, bounds.max, as_percent=True)
        parts.append(f"{exact} upper bound {upper} {'<=' if bounds.is_within(high) else '>'} max {bound}")
    return parts


def _notes(gate: Gate, tally: Tally, sums: ResultSums, fraction: Fraction, proof: _Proof) -> Iterator[str]:
    """Describe how reliable the number is: its interval, dependent cases, what it proves, too few cases."""
    # authored answers are no random sample, so that no interval applies
    authored = sums.count(lambda profile: profile.authored) > 0
    if gate.metric not in _NO_SAMPLE and not authored:
        yield f"95 % Wilson interval {format_interval(_interval(gate, fraction, authored=authored))}"
        n = sums.count(lambda profile: profile.counted)
        yield dependence_note(n, len(sums.clusters) if tally.facet else n, tally.facet)
    yield proof.text or _too_few(gate, fraction)
    if authored and gate.confidence is not None:
        yield "authored answers, not a sample of a model's answers"


def _interval(gate: Gate, fraction: Fraction, *, authored: bool) -> tuple[float, float] | None:
    """Return the two-sided interval of a rate; None where the cases are no sample of any."""
    if gate.metric in _NO_SAMPLE or authored:
        return None
    return wilson_interval(round(fraction.top), fraction.bottom)


def _too_few(gate: Gate, fraction: Fraction) -> str:
    cases = f"only {pluralize(fraction.bottom, 'case')}"
    needed = 0 if gate.confidence is None else _clean_cases(Bounds(min=gate.min, max=gate.max), gate.confidence)
    if fraction.bottom < needed:
        enough = "no number of cases can" if needed == math.inf else f"{needed} clean cases are needed to"
        return f"{cases}: {enough} show this"
    return "" if gate.metric == COMPLETENESS or fraction.bottom >= _FEW else cases


def _clean_cases(bounds: Bounds, confidence: float) -> float:
    """Return how many clean cases are needed for the exact bound to pass (see `intervals.unseen_rate_bound`)."""
    distance = min(1.0 if bounds.max is None else bounds.max, 1.0 if bounds.min is None else 1.0 - bounds.min)
    if distance >= 1:
        return 0
    return math.ceil(math.log(1 - confidence) / math.log1p(-distance) - TOLERANCE) if distance > 0 else math.inf
