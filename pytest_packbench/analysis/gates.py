"""Gates: whether a run is good enough, and the arithmetic of it in one line (design 4 and 7)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_packbench.analysis.comparison import differences
from pytest_packbench.analysis.figures import TOLERANCE, aligned, count, interval
from pytest_packbench.analysis.intervals import exact_bound, wilson
from pytest_packbench.analysis.metrics import (
    COMPLETENESS,
    MEAN_SCORE,
    METRICS,
    Bounds,
    arithmetic,
    groups,
    line,
    measured,
    pairs,
    whole_of,
)
from pytest_packbench.analysis.sums import Sums
from pytest_packbench.analysis.tally import TAG, Tally
from pytest_packbench.analysis.trials import MEAN, facet_of, folded, most_trials, remark, rule_of
from pytest_packbench.model.gate import GateResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.metrics import Fraction
    from pytest_packbench.analysis.tally import EachCase
    from pytest_packbench.analysis.trials import Rule
    from pytest_packbench.model.gate import Gate
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.stored import BaselineLookup, StoredRun


_ABSENT = "not in this run"
_NOT_KNOWN = "not known from records alone, which hold no case that broke; give the run's folder or its report.json"
_USUAL = 0.95
# one is a count of the run itself, the other no share of cases
_NO_SAMPLE = (COMPLETENESS, MEAN_SCORE)
_FEW = 5


def gate_tally(
    gates: Iterable[Gate],
    *,
    trials_rule: Rule = MEAN,
    facet: str = "",
    baseline: Baseline | None = None,
    each_case: Iterable[EachCase] = (),
) -> Tally:
    """Give the tally of a run that these gates judge: they say which groups and cases are asked for; see `Tally`."""
    found = tuple(gates)
    return Tally(
        trials_rule=trials_rule,
        by_tag=any(gate.by == TAG for gate in found),
        required=[name for gate in found for name in gate.must_pass],
        facet=facet,
        earlier=None if baseline is None else baseline.cases,
        each_case=each_case,
    )


def judged(
    tally: Tally, gates: Iterable[Gate], baseline: Baseline | None = None, *, whole: bool = True
) -> tuple[GateResult, ...]:
    """Judge a run by its gates.

    A gate without a case to judge fails: it can't tell. So does a gate by a name that no case has, and one that
    asks for a baseline where there is none that can be compared with.

    Args:
        tally: the run, counted as `gate_tally` says.
        gates: the gates; time is linear in them and in the run's groups.
        baseline: the run to compare with, for `max_ratio_to_baseline`.
        whole: whether cases that broke or did not run were counted; where that is not known, completeness is not known
            either, and fails.

    Returns:
        For each gate one result, or one for each group in the order of the groups' names.

    Raises:
        ValueError: no such metric.
    """
    run = _Run(tally.close(), baseline)
    return tuple(result for gate in gates for result in run.judged(gate, whole=whole))


def check_run(
    run: Run,
    entries: Sequence[CaseResult],
    gates: Iterable[Gate],
    earlier: BaselineLookup | None = None,
    *,
    whole: bool = True,
    trials_rule: Rule = MEAN,
) -> tuple[GateResult, ...]:
    """Judge a run that is at hand by its gates, and by an earlier run where that one can be compared with.

    Args:
        run: what is true of all entries.
        entries: one for each selected case, or for each trial of it, in any order: trials of a case count as one case.
        gates: as in `judged`.
        earlier: the run to compare with, or why there is none.
        whole: whether cases that broke or did not run stand in the entries.
        trials_rule: how a case's verdict is made of its trials, where the runs' settings don't say.

    Raises:
        ValueError: no such metric, or no such rule for trials.
    """
    gates = tuple(gates)
    baseline = baseline_of(earlier, gates, trials_rule)
    rule = rule_of(run, trials_rule)
    tally = gate_tally(gates, trials_rule=rule, facet=facet_of(run), baseline=baseline).take(entries)
    if baseline is not None:
        baseline = baseline.for_run(run, tally)
    return judged(tally, gates, baseline, whole=whole)


def of_a_part(results: Iterable[GateResult]) -> tuple[GateResult, ...]:
    """Let gates pass that found no case to judge, or not all, because only a part of the suite was selected.

    Whoever runs one case asks about that case; a gate over others has nothing to say, and says so.
    """
    return tuple(
        one
        if one.passed or not (one.observed is None or one.absent)
        else replace(one, passed=True, text=_not_judged(one))
        for one in results
    )


def of_a_shard(results: Iterable[GateResult]) -> tuple[GateResult, ...]:
    """Leave gates to the merged run, but for an incomplete run where all has to be complete: that stays so."""
    return tuple(
        one
        if one.metric == "completeness" and one.min == 1 and one.observed is not None and not one.passed
        else replace(one, passed=True, text=f"{one.subject}: not judged here: packbench merge judges")
        for one in results
    )


def _not_judged(one: GateResult) -> str:
    if one.absent:
        return f"{one.text.removesuffix(': FAIL')}: not judged further, only a part of the suite is selected"
    return f"{one.subject}: not judged, no case of it is selected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The cases of an earlier run, for `max_ratio_to_baseline`.

    Attributes:
        cases: one entry for each case, by test id; a test id that stands twice in it is left out.
        run: what is true of them; None where that is not known, and they are taken to be of a run like the other.
        trials: the most trials that a case has.
        unusable: why nothing can be compared with it, in words; empty where it can.
    """

    cases: Mapping[str, CaseResult] = field(default_factory=dict)
    run: Run | None = None
    trials: int = 1
    unusable: str = ""

    @classmethod
    def of(cls, entries: Sequence[CaseResult], rule: Rule = MEAN, run: Run | None = None) -> Baseline:
        """Take a run's entries; trials of a case become one."""
        cases = folded(entries, rule)
        times = Counter(case.test_id for case in cases)
        once = {case.test_id: case for case in cases if times[case.test_id] == 1}
        return cls(cases=once, run=run, trials=most_trials(entries))

    def for_run(self, run: Run, tally: Tally) -> Baseline:
        """Say whether a run can be compared with it.

        Args:
            run: what is true of the run that is judged.
            tally: its results, counted beside these cases.

        Returns:
            Itself, `unusable` where suite, mode, pack, rules or the number of trials are others, or where no case is
            the same in both.
        """
        if self.run is None:
            return self
        wrong = differences(self.run, run)
        if not wrong and self.trials != tally.close().trials.most:
            # with more attempts more of them go wrong
            wrong = (f"trials a case: {self.trials} before, {tally.trials.most} now",)
        if not wrong and not tally.unchanged:
            wrong = ("no case stands unchanged in both runs",)
        if not wrong:
            return self
        return replace(self, unusable=f"run {self.run.run_id} can't be the baseline: {'; '.join(wrong)}")


def baseline_of(earlier: BaselineLookup | None, gates: Iterable[Gate], trials_rule: Rule = MEAN) -> Baseline | None:
    """Take an earlier run as the baseline of gates; its cases are held only where one of them compares with it.

    Args:
        earlier: the run, or why there is none.
        gates: the gates.
        trials_rule: how a case's verdict is made of its trials, where the run's settings don't say.

    Returns:
        The baseline; None where none was asked for, or no gate asks.
    """
    if earlier is None or all(gate.max_ratio_to_baseline is None for gate in gates):
        return None
    if earlier.stored is not None:
        return Baseline.of(earlier.stored.results, rule_of(earlier.stored.run, trials_rule), earlier.stored.run)
    return Baseline(unusable=earlier.reason) if earlier.reason else None


def baseline_for(run: Run, entries: Sequence[CaseResult], earlier: StoredRun, trials_rule: Rule = MEAN) -> Baseline:
    """Take an earlier run as the baseline of a run that is at hand, or say in `unusable` why it can't be that."""
    found = Baseline.of(earlier.results, rule_of(earlier.run, trials_rule), earlier.run)
    tally = gate_tally((), trials_rule=rule_of(run, trials_rule), baseline=found)
    return found.for_run(run, tally.take(entries))


@dataclass(frozen=True, slots=True)
class _Run:
    """A run under judgement."""

    tally: Tally
    baseline: Baseline | None

    def judged(self, gate: Gate, *, whole: bool) -> list[GateResult]:
        if gate.must_pass:
            return [self._must_pass(gate)]
        if not whole and gate.metric == COMPLETENESS:
            result = _undecided(gate, None, None)
            return [replace(result, text=f"{result.subject}: {_NOT_KNOWN}: FAIL")]
        if gate.metric not in METRICS:
            raise ValueError(f'no metric is called "{gate.metric}"; known: {", ".join(METRICS)}')
        if gate.by is None:
            return [self._result(gate, None, whole_of(self.tally))]
        found = groups(self.tally, gate.metric, gate.by)
        if not found:
            return [self._result(gate, None, Sums())]
        return [self._result(gate, value, found[value]) for value in sorted(found)]

    def _must_pass(self, gate: Gate) -> GateResult:
        found = {name: self.tally.required.get(name, _ABSENT) for name in gate.must_pass}
        missed = [f"{name} ({verdict})" for name, verdict in found.items() if verdict != "passed"]
        kept = len(found) - len(missed)
        told = f"; not passed: {', '.join(missed)}" if missed else ""
        return GateResult(
            metric="must_pass",
            by=None,
            value=None,
            passed=not missed,
            observed=kept / len(found),
            min=1.0,
            max=None,
            text=line("must_pass", [f"{kept} / {len(found)}{told}"], passed=not missed),
            absent=bool(missed) and all(verdict in {"passed", _ABSENT} for verdict in found.values()),
        )

    def _result(self, gate: Gate, value: str | None, sums: Sums) -> GateResult:
        fraction = measured(sums, gate.metric, gate.depth)
        observed = fraction.value if fraction.bottom else None
        result = _undecided(gate, value, observed)
        if observed is None and gate.metric == COMPLETENESS and sums.profiles:
            return replace(result, passed=True, text=f"{result.subject}: no case is due: PASS")
        if observed is None:
            return replace(result, text=f"{result.subject}: no case to judge: FAIL")
        judges = sorted({one.judge for one in sums.profiles if one.counted and one.judge is not None})
        if len(judges) > 1 and gate.metric != COMPLETENESS:
            named = " and ".join(judges)
            return replace(result, text=f"{result.subject}: judged by {named}, whose rates are not mixed: FAIL")
        passed, told = _decided(gate, fraction)
        near, ratio = self._ratio(gate, value, fraction)
        parts = (told, ratio, *_remarks(gate, sums, fraction, self.tally.facet))
        return replace(result, passed=passed and near, text=line(result.subject, parts, passed=passed and near))

    def _ratio(self, gate: Gate, value: str | None, fraction: Fraction) -> tuple[bool, str]:
        """Compare a value with the baseline's, over the cases that are the same in both runs.

        Returns:
            Whether it is at most so many times that as the gate allows, and the arithmetic, or why there is none.
        """
        if gate.max_ratio_to_baseline is None:
            return True, ""
        most = f"max {gate.max_ratio_to_baseline:g} x baseline"
        if self.baseline is None or self.baseline.unusable:
            why = "no baseline was given" if self.baseline is None else self.baseline.unusable
            return False, f"{most}: {why}"
        # the same cases on both sides, or the ratio tells of the cases and not of the change
        both = pairs(self.tally, gate.metric, gate.by, value or "")
        before, after = (measured(sums, gate.metric, gate.depth) for sums in both)
        if not before.bottom or not after.bottom:
            return False, f"{most}: the baseline has no case to judge that is the same in both runs"
        as_percent = gate.metric != MEAN_SCORE
        was, today = (arithmetic(one, Bounds(), as_percent=as_percent) for one in (before, after))
        common = "" if after == fraction else f" on the {count(after.bottom, 'case')} of both runs, now {today}"
        if before.value <= TOLERANCE:
            # a multiple of nothing is nothing
            return after.value <= TOLERANCE, f"{most}: the baseline is 0, so only 0 passes ({was}{common})"
        passed = after.value <= gate.max_ratio_to_baseline * before.value + TOLERANCE
        shown, bound = aligned(after.value / before.value, gate.max_ratio_to_baseline)
        return passed, f"{shown} x the baseline's {was}{common} {'<=' if passed else '>'} max {bound} x"


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
    )


def _decided(gate: Gate, fraction: Fraction) -> tuple[bool, str]:
    """Compare a value, or with a confidence the end of it that has to hold, with a gate's bounds."""
    bounds, as_percent = Bounds(min=gate.min, max=gate.max), gate.metric != MEAN_SCORE
    if gate.confidence is None:
        return bounds.hold(fraction.value), arithmetic(fraction, bounds, as_percent=as_percent)
    low, high = (
        exact_bound(round(fraction.top), fraction.bottom, gate.confidence, upper=upper) for upper in (False, True)
    )
    exact = f"one-sided exact {100 * gate.confidence:g} %"
    parts = [arithmetic(fraction, bounds, as_percent=as_percent, compared=False)]
    if gate.min is not None:
        shown, bound = aligned(low, gate.min, as_percent=True)
        parts.append(f"{exact} lower bound {shown} {'>=' if bounds.is_enough(low) else '<'} min {bound}")
    if gate.max is not None:
        shown, bound = aligned(high, gate.max, as_percent=True)
        parts.append(f"{exact} upper bound {shown} {'<=' if bounds.is_within(high) else '>'} max {bound}")
    return bounds.is_enough(low) and bounds.is_within(high), ", ".join(parts)


def _remarks(gate: Gate, sums: Sums, fraction: Fraction, facet: str) -> Iterator[str]:
    """Say how far the number can be trusted: its interval, cases that share something, too few of them."""
    # what somebody wrote is no sample of anything (design 7)
    authored = sums.count(lambda one: one.authored) > 0
    if gate.metric not in _NO_SAMPLE and not authored:
        yield f"95 % interval {interval(wilson(round(fraction.top), fraction.bottom))} (Wilson)"
        n = sums.count(lambda one: one.counted)
        yield remark(n, len(sums.clusters) if facet else n, facet)
    yield _few(gate, fraction, authored=authored)
    if authored and gate.confidence is not None:
        yield "of authored answers, which are no sample of a model's"


def _few(gate: Gate, fraction: Fraction, *, authored: bool) -> str:
    within = gate.confidence is None and gate.max and fraction.top <= gate.max * fraction.bottom
    if within and METRICS[gate.metric].of_attacks and not authored:
        # a rate within the bound is no proof of it, and whoever reads of safety has to know
        needed = _clean_cases(gate, _USUAL)
        if fraction.bottom < needed:
            many = f"it takes {needed} clean cases to show that (one-sided exact 95 %)"
            return f"only {count(fraction.bottom, 'case')}: {many}"
    needed = _clean_cases(gate, gate.confidence)
    if fraction.bottom < needed:
        many = "no number of cases shows that" if needed == math.inf else f"it takes {needed} clean cases to show that"
        return f"only {count(fraction.bottom, 'case')}: {many}"
    if gate.metric == COMPLETENESS or fraction.bottom >= _FEW:
        return ""
    return f"only {count(fraction.bottom, 'case')}"


def _clean_cases(gate: Gate, confidence: float | None) -> float:
    """Give how many clean cases it takes until the exact bound can hold (see `intervals.unseen`)."""
    away = min(1.0 if gate.max is None else gate.max, 1.0 if gate.min is None else 1.0 - gate.min)
    if confidence is None or away >= 1:
        return 0
    return math.ceil(math.log(1 - confidence) / math.log1p(-away) - TOLERANCE) if away > 0 else math.inf
