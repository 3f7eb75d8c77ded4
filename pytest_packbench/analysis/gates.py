"""Judge whether a run is good enough, and show the arithmetic of each gate in one line."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.analysis.counting import (
    ALL,
    Bounds,
    Fraction,
    Numbers,
    ResultSums,
    arithmetic,
    confusion_of,
    dependence_note,
    groups_by,
    line,
)
from pytest_packbench.analysis.labels import F1, PRECISION, RECALL
from pytest_packbench.analysis.statistics import (
    exact_bound,
    format_change,
    format_interval,
    format_with_bounds,
    wilson_interval,
)
from pytest_packbench.model.errors import first_of, pluralize
from pytest_packbench.model.result import TOLERANCE
from pytest_packbench.model.suite import (
    CHANGE_METRICS,
    COMPLETENESS,
    GENERAL_METRICS,
    LABEL,
    MEAN_SCORE,
    Gate,
    GateResult,
    Metric,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.analysis.changes import BaselineOutcome, GroupChanges


_ABSENT = "not in this run"
_NO_BASELINE = "no baseline; pass an earlier run as the baseline"
_UNKNOWN = (
    "unknown, because records alone do not show errors and cases that did not run; "
    "pass the run's folder or its report.json"
)
_USUAL = 0.95
# not proportions of a sample of cases
_NO_SAMPLE = (COMPLETENESS, MEAN_SCORE)
_FEW = 5
_NAMED = 3
# why a share of a label has nothing to be counted among
_NO_SUCH = {
    PRECISION: "no answer has",
    RECALL: "no case expects",
    F1: "no case expects and no answer has",
}
# what a committed baseline can be measured by: it has no more of a case than its verdict and its score
_COMMITTED = (COMPLETENESS, "pass_rate", MEAN_SCORE)


class GateJudge(NamedTuple):
    """Judges one run by gates.

    Attributes:
        numbers: the run, counted with these gates.
        outcome: what came of comparing it with its baseline; None if none was requested.
        with_errors: whether errors and cases that did not run were counted; if not, completeness is unknown and fails.
    """

    numbers: Numbers
    outcome: BaselineOutcome | None = None
    with_errors: bool = True

    def results(self, gates: Iterable[Gate]) -> tuple[GateResult, ...]:
        """Return one result for each gate, or one for each group in the order of the groups' names.

        A gate without a case to judge fails. So does a gate by a name that no case has, and a gate with
        `max_ratio_to_baseline` or on changes without a comparable baseline.

        Raises:
            ValueError: a metric is unknown.
        """
        return tuple(result for gate in gates for result in self._results(gate))

    def _results(self, gate: Gate) -> Iterator[GateResult]:
        if gate.must_pass:
            yield self._must_pass(gate)
            return
        metric = COMPLETENESS if gate.change else gate.metric
        if metric not in self.numbers.metrics:
            raise ValueError(f'unknown metric "{metric}"; expected one of {", ".join(self.numbers.metrics)}')
        if metric == COMPLETENESS and not gate.change and not self.with_errors:
            yield _failed(_undecided(gate, None), _UNKNOWN)
            return
        found: dict[str | None, ResultSums] = {None: self.numbers.groups[ALL]}
        if gate.by is not None:
            groups, applied = groups_by(self.numbers.groups, gate.by), self.numbers.metrics[metric]
            found = {value: sums for value, sums in groups.items() if _applies(applied, value, sums)}
            if gate.by == LABEL and applied.of_labels:
                confusion = confusion_of(self.numbers.groups[ALL])
                labels = confusion.known if applied.of_labels == PRECISION else confusion.expected
                found = dict.fromkeys(labels, self.numbers.groups[ALL])
        if gate.change:
            # an error is a new failure, so that a group of errors is judged as well
            values: Sequence[str | None] = [value for value in found if value] or [None]
            yield from (self._change(gate, value) for value in values)
            return
        # of thousands of labels all have the same results
        last, sample = None, None
        for value, sums in (found or {None: ResultSums()}).items():
            if sample is None or sums is not last:
                last, sample = sums, _sample_of(sums)
            yield self._rate(gate, value, sums, sample)

    def _must_pass(self, gate: Gate) -> GateResult:
        verdicts = {name: self.numbers.required.get(name, _ABSENT) for name in gate.must_pass}
        missed = [f"{name} ({verdict})" for name, verdict in verdicts.items() if verdict != "passed"]
        passed, total = len(verdicts) - len(missed), len(verdicts)
        names = f"; not passed: {', '.join(missed)}" if missed else ""
        return replace(
            _undecided(gate, None, "must_pass"),
            passed=not missed,
            observed=passed / total,
            min=1.0,
            text=line("must_pass", [f"{passed} / {total}{names}"], passed=not missed),
            absent=bool(missed) and all(verdict in {"passed", _ABSENT} for verdict in verdicts.values()),
            counted=(passed, total),
        )

    def _rate(self, gate: Gate, value: str | None, sums: ResultSums, sample: _Sample) -> GateResult:
        metric, result = self.numbers.metrics[gate.metric], _undecided(gate, value)
        label = _label_of(gate, metric, value)
        fraction = self.numbers.measure(gate.metric, sums, gate.depth, label)
        if not fraction.bottom:
            return _unmeasured(result, metric, sums)
        result = replace(result, observed=fraction.value)
        judges, authored, n = sample
        if len(judges) > 1 and gate.metric != COMPLETENESS:
            return _failed(result, f"judged by {' and '.join(judges)}; rates of several judges are not mixed")
        # authored answers are no random sample, so that no interval applies
        is_sample = gate.metric not in _NO_SAMPLE and metric.of_labels != F1 and not authored
        is_within, decision = _decision(gate, fraction)
        is_near, ratio = self._ratio(gate, value, fraction)
        proven, proof = _proof(gate, fraction) if is_sample else (None, "")
        interval = wilson_interval(round(fraction.top), fraction.bottom) if is_sample else None
        clusters = len(sums.clusters) if self.numbers.facet else n
        parts = (
            decision,
            ratio,
            f"95 % Wilson interval {format_interval(interval)}" if is_sample else "",
            dependence_note(n, clusters, self.numbers.facet) if is_sample else "",
            proof or _too_few(gate, fraction),
            "authored answers, not a sample of a model's answers" if authored and gate.confidence else "",
        )
        passed = is_within and is_near
        return replace(
            result,
            passed=passed,
            proven=proven,
            text=line(result.subject, parts, passed=passed),
            counted=None if gate.metric == MEAN_SCORE else (round(fraction.top), fraction.bottom),
            interval=interval,
        )

    def _ratio(self, gate: Gate, value: str | None, fraction: Fraction) -> tuple[bool, str]:
        """Compare a value with the baseline's, over the cases that are unchanged in both runs.

        Returns:
            Whether it is at most the allowed multiple, and the arithmetic, or why there is none.
        """
        if gate.max_ratio_to_baseline is None:
            return True, ""
        limit, problem = f"max {gate.max_ratio_to_baseline:g} x baseline", self._unusable(gate.metric)
        if problem or self.outcome is None or self.outcome.comparison is None:
            return False, f"{limit}: {problem}"
        # over the same cases on both sides, so that the ratio measures the change and not the choice of cases
        metric = self.numbers.metrics[gate.metric]
        label = _label_of(gate, metric, value)
        key = (gate.by or "", value or "") if label is None else ("", "")
        both = self.outcome.comparison.groups[key].sums
        before, now = (self.numbers.measure(gate.metric, sums, gate.depth, label) for sums in both)
        if not before.bottom or not now.bottom:
            return False, f"{limit}: no judged case is unchanged in both runs"
        as_percent = gate.metric != MEAN_SCORE
        old, new = (arithmetic(each, Bounds(), as_percent=as_percent) for each in (before, now))
        common = "" if now == fraction else f" over the {pluralize(now.bottom, 'case')} in both runs, now {new}"
        if before.value <= TOLERANCE:
            # any multiple of 0 is 0
            return now.value <= TOLERANCE, f"{limit}: the baseline is 0, so only 0 passes ({old}{common})"
        passed = now.value <= gate.max_ratio_to_baseline * before.value + TOLERANCE
        ratio, bound = format_with_bounds(now.value / before.value, gate.max_ratio_to_baseline)
        return passed, f"{ratio} x the baseline's {old}{common} {'<=' if passed else '>'} max {bound} x"

    def _unusable(self, metric: str) -> str:
        """Return why a metric can't be compared with the baseline's; empty if it can."""
        if self.outcome is None:
            return _NO_BASELINE
        comparison = self.outcome.comparison
        if comparison is None:
            return self.outcome.problem
        if comparison.unusable:
            return comparison.unusable
        if comparison.committed and metric not in _COMMITTED:
            return f"the committed baseline does not contain {metric}; pass a run as the baseline"
        return ""

    def _change(self, gate: Gate, value: str | None) -> GateResult:
        """Judge a run, or a group of it, by a gate on changes."""
        bound, is_min = float(getattr(gate, gate.change)), gate.change == "min_mean_change"
        result = replace(
            _undecided(gate, value, CHANGE_METRICS[gate.change]),
            min=bound if is_min else None,
            max=None if is_min else bound,
        )
        comparison = None if self.outcome is None else self.outcome.comparison
        if self.outcome is None:
            return _failed(result, _NO_BASELINE)
        if comparison is None or comparison.differences:
            if self.outcome.optional:
                return _not_judged(result, f"{self.outcome.problem}: not judged, because the baseline is optional")
            return _failed(result, self.outcome.problem)
        # each group says whether it has a case that is unchanged in both runs
        group = comparison.groups[gate.by or "", value or ""]
        if not group.unchanged:
            return replace(_failed(result, "no case is unchanged in both runs"), absent=True)
        return _mean_change(result, group, authored=comparison.authored) if is_min else _changed_cases(result, group)


class _Sample(NamedTuple):
    """Who judged a group of results, whether some of them are authored, and how many are in the rates."""

    judges: list[str]
    authored: bool
    n: int


def _sample_of(sums: ResultSums) -> _Sample:
    return _Sample(
        sorted({each.judge for each in sums.profiles if each.counted and each.judge is not None}),
        sums.count(lambda profile: profile.authored) > 0,
        sums.count(lambda profile: profile.counted),
    )


def _label_of(gate: Gate, metric: Metric, value: str | None) -> str | None:
    """Return the label that a gate is about; None for all, and for a facet that is called so."""
    return value if gate.by == LABEL and metric.of_labels else None


def _changed_cases(result: GateResult, group: GroupChanges) -> GateResult:
    changed = group.kinds["regressed" if result.metric == "regressions" else "new_failures"]
    count = changed.count
    passed = count <= (result.max or 0)
    compared = f"{count} {'<=' if passed else '>'} max {result.max:g}"
    named = first_of(changed.first, _NAMED, count)
    parts = (f"{compared} over {pluralize(group.unchanged, 'case')} in both runs", *named)
    text = line(result.subject, parts, passed=passed)
    return replace(result, passed=passed, observed=count, text=text)


def _mean_change(result: GateResult, group: GroupChanges, *, authored: bool) -> GateResult:
    mean, bound = group.mean, result.min or 0.0
    if mean is None:
        return _failed(result, "no case has a score in both runs")
    passed = mean.mean >= bound - TOLERANCE
    value, limit = format_with_bounds(mean.mean, bound)
    interval, ends = "", None
    if authored:
        # authored answers are no random sample
        interval = "authored answers, so no interval"
    elif mean.low is not None and mean.high is not None:
        ends = mean.low, mean.high
        kind = "exact one-sided 95 % bound" if mean.method == "exact" else "two-sided 95 % confidence interval"
        interval = f"{kind} {format_change(mean.low, 3)} to {format_change(mean.high, 3)}"
    parts = (f"{value} {'>=' if passed else '<'} min {limit} over {pluralize(mean.n, 'pair')}", interval)
    text = line(result.subject, parts, passed=passed)
    return replace(result, passed=passed, observed=mean.mean, interval=ends, text=text)


def _undecided(gate: Gate, value: str | None, metric: str = "") -> GateResult:
    return GateResult(
        metric=metric or (gate.metric if gate.depth is None else f"{gate.metric}@{gate.depth}"),
        by=gate.by,
        value=value,
        passed=False,
        observed=None,
        min=gate.min,
        max=gate.max,
        text="",
        confidence=gate.confidence,
    )


def _failed(result: GateResult, why: str) -> GateResult:
    return replace(result, text=f"{result.subject}: {why}: FAIL")


def _not_judged(result: GateResult, why: str, said: str = "") -> GateResult:
    """Return a gate that passes because it was not judged, without a value that would look like a decision."""
    text = f"{said or result.subject}: {why}"
    return replace(
        result, passed=True, judged=False, text=text, observed=None, proven=None, counted=None, interval=None
    )


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


def _unmeasured(result: GateResult, metric: Metric, sums: ResultSums) -> GateResult:
    """Return what a gate comes to whose metric counts no case."""
    if result.metric == COMPLETENESS and sums.profiles:
        # else quarantine would turn any suite green; in live mode, vacuous cases are outside completeness
        vacuous = sums.count(lambda profile: profile.vacuous)
        why = "no case could have failed" if vacuous else "no case had to be judged"
        return _failed(result, f"{why}, so nothing was measured")
    if metric.excluded and sums.profiles and not sums.count(metric.is_about):
        cases = " ".join(metric.excluded)
        return _not_judged(result, f"not judged, because it is not about cases with {cases}, and there are no others")
    if metric.of_labels and sums.profiles:
        return _failed(result, f"not known, because {_NO_SUCH[metric.of_labels]} such a label")
    return _failed(result, "no case to judge")


def _decision(gate: Gate, fraction: Fraction) -> tuple[bool, str]:
    """Compare a value, or with `confidence` its exact bounds, with a gate's bounds."""
    bounds, as_percent = Bounds(min=gate.min, max=gate.max), gate.metric != MEAN_SCORE
    if gate.confidence is None:
        return bounds.includes(fraction.value), arithmetic(fraction, bounds, as_percent=as_percent)
    exact = _exact_bounds(fraction, bounds, gate.confidence)
    observed = arithmetic(fraction, bounds, as_percent=as_percent, compared=False)
    return all(exact.values()), ", ".join([observed, *exact])


def _exact_bounds(fraction: Fraction, bounds: Bounds, confidence: float) -> dict[str, bool]:
    """Return how the exact one-sided bounds of a rate compare with those of a gate, each with whether it is within."""
    compared = {}
    for upper, name, limit in ((False, "lower", bounds.min), (True, "upper", bounds.max)):
        if limit is None:
            continue
        end = exact_bound(round(fraction.top), fraction.bottom, confidence, upper=upper)
        holds = bounds.is_within(end) if upper else bounds.is_enough(end)
        sign = ("<= max" if holds else "> max") if upper else (">= min" if holds else "< min")
        value, bound = format_with_bounds(end, limit, as_percent=True)
        compared[f"exact one-sided {100 * confidence:g} % {name} bound {value} {sign} {bound}"] = holds
    return compared


def _proof(gate: Gate, fraction: Fraction) -> tuple[bool | None, str]:
    """Return whether the exact one-sided bound of a rate is within a gate's bounds, and what is missing in words.

    Of what `GateResult.proven` says, authored answers are left to the caller.
    """
    bounds, level = Bounds(min=gate.min, max=gate.max), gate.confidence or _USUAL
    if gate.confidence is None:
        # that none or all of the observed cases count is no claim about a rate
        bounds = Bounds(min=None if gate.min == 1 else gate.min, max=gate.max or None)
    if bounds[:2] == (None, None) or not bounds.includes(fraction.value):
        return None, ""
    exact = _exact_bounds(fraction, bounds, level)
    if all(exact.values()):
        return True, ""
    missing = [text for text, holds in exact.items() if not holds and gate.confidence is None]
    needed = _clean_cases(bounds, level)
    if needed == math.inf:
        missing.append("no number of cases can show this")
    elif fraction.bottom < needed:
        missing.append(f"only {pluralize(fraction.bottom, 'case')}, at least {needed} clean cases are needed")
    return False, ": ".join(filter(None, ("not proven", ", ".join(missing))))


def _too_few(gate: Gate, fraction: Fraction) -> str:
    return f"only {pluralize(fraction.bottom, 'case')}" * (gate.metric != COMPLETENESS and fraction.bottom < _FEW)


def _clean_cases(bounds: Bounds, confidence: float) -> float:
    """Return how many clean cases are needed for the exact bound to pass (see `intervals.unseen_rate_bound`)."""
    distance = min(1.0 if bounds.max is None else bounds.max, 1.0 if bounds.min is None else 1.0 - bounds.min)
    if distance >= 1:
        return 0
    return math.ceil(math.log(1 - confidence) / math.log1p(-distance) - TOLERANCE) if distance > 0 else math.inf


def deferred(results: Iterable[GateResult], scope: str) -> tuple[GateResult, ...]:
    """Return the gates of a part of a suite, of which some are left to the whole; the text of each says so.

    Args:
        results: how they were judged.
        scope: `shard` for all of them but a failed `completeness` of min 1.0, which fails a shard already; `part` for
            those that failed only because their cases were not selected; else none.
    """
    defer = {"shard": _in_shard, "part": _in_part}.get(scope, lambda result: result)
    return tuple(map(defer, results))


def _in_shard(result: GateResult) -> GateResult:
    if result.metric == COMPLETENESS and result.min == 1 and result.observed is not None and not result.passed:
        return result
    return _not_judged(result, "not judged in a shard; packbench merge judges it")


def _in_part(result: GateResult) -> GateResult:
    if result.absent and not result.passed:
        said = result.text.removesuffix(": FAIL")
        return _not_judged(result, "not judged, because only part of the suite is selected", said)
    if result.passed or result.observed is not None or result.metric in CHANGE_METRICS.values():
        return result
    return _not_judged(result, "not judged, because none of its cases is selected")
