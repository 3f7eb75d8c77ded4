"""Gates: conditions on a whole run, judged with their arithmetic shown (design 4 and 7)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from pytest_packbench.reports.bounds import exact_bound
from pytest_packbench.reports.clusters import count_clusters, facet_of, remark
from pytest_packbench.reports.comparison import differences, same_case
from pytest_packbench.reports.figures import TOLERANCE, UNREADABLE, aligned, interval
from pytest_packbench.reports.judgement import count
from pytest_packbench.reports.rates import METRICS, OF_ATTACKS, Fraction, groups, measured
from pytest_packbench.reports.statistics import AUTHORED, wilson
from pytest_packbench.reports.trials import MEAN, folded, most_trials, rule_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.run import Run
    from pytest_packbench.records.stored import StoredRun
    from pytest_packbench.reports.trials import Rule


class GateRule(Protocol):
    """What a gate demands; a suite's gates are such objects.

    Attributes:
        metric: `completeness`, `pass_rate`, `mean_score`, `attack_success_rate`, `attack_success_rate_valid`,
            `utility_rate`, `valid_rate`, `over_refusal_rate` or `accuracy`.
        min: the least value that passes, 0 to 1.
        max: the greatest value that passes, 0 to 1.
        max_ratio_to_baseline: the greatest multiple of the baseline's value that passes.
        by: judge each group apart: `case_type`, `difficulty`, `tag` or a facet's name; None for the whole run.
        depth: for `accuracy`: the depth of agreement.
        confidence: decide on the one-sided exact bound, 0.5 to 1; None: on the value.
        must_pass: ids of cases that have to pass; the metric counts for nothing then.
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
    def max_ratio_to_baseline(self) -> float | None:
        """The greatest multiple of the baseline that passes."""

    @property
    def by(self) -> str | None:
        """What to group by."""

    @property
    def depth(self) -> int | None:
        """The depth of agreement."""

    @property
    def confidence(self) -> float | None:
        """The confidence of the bound that decides."""

    @property
    def must_pass(self) -> Sequence[str]:
        """Cases that have to pass."""


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
        absent: whether it fails for nothing but cases that are not in the run.
    """

    metric: str
    by: str | None
    value: str | None
    passed: bool
    observed: float | None
    min: float | None
    max: float | None
    text: str
    absent: bool = False

    @property
    def subject(self) -> str:
        """What was measured, where: `pass_rate`, `pass_rate (case_type negative)`."""
        if self.by is None:
            return self.metric
        if self.value is None:
            return f"{self.metric} (by {self.by})"
        return f"{self.metric} ({self.by} {self.value or UNREADABLE})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The cases of an earlier run, for `max_ratio_to_baseline`.

    Attributes:
        cases: one entry for each case, by test id; a test id that stands twice in it is left out.
        unusable: why nothing can be compared with it, in words; empty where it can.
    """

    cases: Mapping[str, Entry] = field(default_factory=dict)
    unusable: str = ""

    @classmethod
    def of(cls, entries: Sequence[Entry], rule: Rule = MEAN) -> Baseline:
        """Take a run's entries; trials of a case become one."""
        cases = folded(entries, rule)
        times = Counter(case.test_id for case in cases)
        return cls(cases={case.test_id: case for case in cases if times[case.test_id] == 1})


def check(
    entries: Sequence[Entry],
    rules: Iterable[GateRule],
    baseline: Baseline | Sequence[Entry] | None = None,
    *,
    trials_rule: Rule = MEAN,
    whole: bool = True,
    cluster: str = "",
) -> tuple[GateResult, ...]:
    """Judge a run by its gates.

    A gate without a case to judge fails: it can't tell. So does a gate by a name that no case has, and one that
    asks for a baseline where there is none that can be compared with.

    Args:
        entries: one for each selected case, or for each trial of it: trials of a case count as one case.
        rules: the gates; time is linear in entries times gates.
        baseline: the run to compare with, for `max_ratio_to_baseline`; bare entries are taken to be of a run like
            this one, which `check_run` makes sure of.
        trials_rule: how a case's verdict is made of its trials.
        whole: whether cases that broke or did not run stand in the entries; where that is not known, completeness
            is not known either, and fails.
        cluster: the facet that cases share by design, so that they are not independent; empty for none.

    Returns:
        For each gate one result, or one for each group in the order of the groups' names.

    Raises:
        ValueError: no such metric, or no such rule for trials.
    """
    cases = folded(entries, trials_rule)
    if baseline is not None and not isinstance(baseline, Baseline):
        baseline = Baseline.of(baseline, trials_rule)
    known = _Known(baseline, cluster)
    return tuple(result for rule in rules for result in _judged(cases, rule, known, whole=whole))


def check_run(
    run: Run,
    entries: Sequence[Entry],
    rules: Iterable[GateRule],
    earlier: StoredRun | None = None,
    *,
    why: str = "",
    whole: bool = True,
    trials_rule: Rule = MEAN,
) -> tuple[GateResult, ...]:
    """Judge a run by its gates, and by an earlier run where that one can be compared with.

    Args:
        run: what is true of all entries; its settings tell the rule for trials.
        entries: as in `check`.
        rules: the gates.
        earlier: the run to compare with.
        why: why there is none, for people; empty where none was asked for.
        whole: as in `check`.
        trials_rule: how a case's verdict is made of its trials, where the run's settings don't say.

    Raises:
        ValueError: no such metric, or no such rule for trials.
    """
    baseline = Baseline(unusable=why) if why else None
    if earlier is not None:
        baseline = baseline_for(run, entries, earlier, trials_rule)
    rule = rule_of(run, trials_rule)
    return check(entries, rules, baseline, trials_rule=rule, whole=whole, cluster=facet_of(run))


def baseline_for(run: Run, entries: Sequence[Entry], earlier: StoredRun, trials_rule: Rule = MEAN) -> Baseline:
    """Take an earlier run as the baseline of a run, or say why it can't be that.

    Args:
        run: what is true of the run that is judged.
        entries: its entries.
        earlier: the run to compare with.
        trials_rule: how a case's verdict is made of its trials, where the runs' settings don't say.

    Returns:
        The baseline; `unusable` where suite, mode, pack, rules or the number of trials are others, or where no case
        is the same in both.
    """
    name = f"run {earlier.run.run_id} can't be the baseline"
    wrong = differences(earlier.run, run)
    before, now = most_trials(earlier.entries), most_trials(entries)
    if not wrong and before != now:
        # with more attempts more of them go wrong
        wrong = (f"trials a case: {before} before, {now} now",)
    if wrong:
        return Baseline(unusable=f"{name}: {'; '.join(wrong)}")
    found = Baseline.of(earlier.entries, rule_of(earlier.run, trials_rule))
    if not any(entry.test_id in found.cases and same_case(found.cases[entry.test_id], entry) for entry in entries):
        return Baseline(unusable=f"{name}: no case stands unchanged in both runs")
    return found


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


@dataclass(frozen=True, slots=True)
class _Known:
    """What gates are judged by beside the run's own cases."""

    baseline: Baseline | None
    cluster: str


def _judged(entries: Sequence[Entry], rule: GateRule, known: _Known, *, whole: bool) -> list[GateResult]:
    if not whole and rule.metric == "completeness" and not rule.must_pass:
        return [_unknown(rule)]
    if rule.must_pass:
        return [_must_pass(entries, rule)]
    if rule.metric not in METRICS:
        raise ValueError(f'no metric is called "{rule.metric}"; known: {", ".join(METRICS)}')
    if rule.by is None:
        return [_result(rule, None, entries, known)]
    found = groups(entries, rule.metric, rule.by)
    if not found:
        return [_result(rule, None, (), known)]
    return [_result(rule, value, found[value], known) for value in sorted(found)]


def _must_pass(entries: Sequence[Entry], rule: GateRule) -> GateResult:
    verdicts: dict[str, str] = {}
    for entry in entries:
        # of several trials the first that did not pass counts
        if verdicts.get(entry.case_id, "passed") == "passed":
            verdicts[entry.case_id] = entry.verdict
    found = {name: verdicts.get(name, _ABSENT) for name in rule.must_pass}
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
        text=f"must_pass {kept} / {len(found)}{told}: {'FAIL' if missed else 'PASS'}",
        absent=bool(missed) and all(verdict in {"passed", _ABSENT} for verdict in found.values()),
    )


def _unknown(rule: GateRule) -> GateResult:
    result = GateResult(
        metric=rule.metric, by=rule.by, value=None, passed=False, observed=None, min=rule.min, max=rule.max, text=""
    )
    told = "not known from records alone, which hold no case that broke; give the run's folder or its report.json"
    return replace(result, text=f"{result.subject}: {told}: FAIL")


_USUAL = 0.95
# one is a count of the run itself, the other no share of cases
_NO_SAMPLE = ("completeness", "mean_score")
_FEW = 5
_ABSENT = "not in this run"


def _result(rule: GateRule, value: str | None, members: Sequence[Entry], known: _Known) -> GateResult:
    fraction = measured(members, rule.metric, rule.depth)
    observed = fraction.value if fraction.bottom else None
    result = GateResult(
        metric=rule.metric if rule.depth is None else f"{rule.metric}@{rule.depth}",
        by=rule.by,
        value=value,
        passed=False,
        observed=observed,
        min=rule.min,
        max=rule.max,
        text="",
    )
    if observed is None and rule.metric == "completeness" and members:
        return replace(result, passed=True, text=f"{result.subject}: no case is due: PASS")
    if observed is None:
        return replace(result, text=f"{result.subject}: no case to judge: FAIL")
    judges = sorted({entry.judge for entry in members if entry.counted and entry.judge is not None})
    if len(judges) > 1 and rule.metric != "completeness":
        named = " and ".join(judges)
        return replace(result, text=f"{result.subject}: judged by {named}, whose rates are not mixed: FAIL")
    low, high = (_decisive(rule, fraction, upper=upper) for upper in (False, True))
    ratio = _against_baseline(rule, members, fraction, known.baseline)
    passed = _is_enough(rule, low) and _is_within(rule, high) and ratio.passed
    parts = [
        _arithmetic(rule, fraction, low, high),
        ratio.text,
        _interval(rule, members, fraction),
        _shared(rule, members, known.cluster),
        _few(rule, fraction, authored=_is_authored(members)),
        _authored(rule, members),
    ]
    told = ", ".join(part for part in parts if part)
    return replace(result, passed=passed, text=f"{result.subject} {told}: {'PASS' if passed else 'FAIL'}")


def _decisive(rule: GateRule, fraction: Fraction, *, upper: bool) -> float:
    """Give what is compared with a bound: the value, or with a confidence the end of it that has to hold."""
    if rule.confidence is None:
        return fraction.value
    return exact_bound(round(fraction.top), fraction.bottom, rule.confidence, upper=upper)


@dataclass(frozen=True, slots=True)
class _Ratio:
    """How a value stands to the baseline's."""

    passed: bool
    text: str


def _against_baseline(
    rule: GateRule, members: Sequence[Entry], fraction: Fraction, baseline: Baseline | None
) -> _Ratio:
    if rule.max_ratio_to_baseline is None:
        return _Ratio(passed=True, text="")
    most = f"max {rule.max_ratio_to_baseline:g} x baseline"
    if baseline is None or baseline.unusable:
        why = "no baseline was given" if baseline is None else baseline.unusable
        return _Ratio(passed=False, text=f"{most}: {why}")
    # the same cases on both sides, or the ratio tells of the cases and not of the change
    pairs = [
        (old, now)
        for now in members
        if (old := baseline.cases.get(now.test_id)) is not None and _is_pair(rule.metric, old, now)
    ]
    before, after = (
        measured(side, rule.metric, rule.depth)
        for side in (tuple(old for old, _ in pairs), tuple(now for _, now in pairs))
    )
    if not before.bottom or not after.bottom:
        return _Ratio(passed=False, text=f"{most}: the baseline has no case to judge that is the same in both runs")
    was, today = before.value, after.value
    common = (
        ""
        if after == fraction
        else f" on the {count(after.bottom, 'case')} of both runs, now {_share_text(rule, after)}"
    )
    if was <= TOLERANCE:
        # a multiple of nothing is nothing
        text = f"{most}: the baseline is 0, so only 0 passes ({_share_text(rule, before)}{common})"
        return _Ratio(passed=today <= TOLERANCE, text=text)
    passed = today <= rule.max_ratio_to_baseline * was + TOLERANCE
    shown, bound = aligned(today / was, rule.max_ratio_to_baseline)
    text = f"{shown} x the baseline's {_share_text(rule, before)}{common} {'<=' if passed else '>'} max {bound} x"
    return _Ratio(passed=passed, text=text)


def _is_pair(metric: str, old: Entry, now: Entry) -> bool:
    return same_case(old, now) and (metric == "completeness" or (old.counted and now.counted))


def _share_text(rule: GateRule, fraction: Fraction) -> str:
    is_score = rule.metric == "mean_score"
    (shown,) = aligned(fraction.value, as_percent=not is_score)
    decimals = len(shown.partition(".")[2]) if is_score else 0
    return f"{fraction.top:.{decimals}f} / {fraction.bottom} = {shown}"


def _interval(rule: GateRule, members: Iterable[Entry], fraction: Fraction) -> str:
    # what somebody wrote is no sample of anything (design 7)
    if rule.metric in _NO_SAMPLE or _is_authored(members):
        return ""
    return f"95 % interval {interval(wilson(round(fraction.top), fraction.bottom))} (Wilson)"


def _is_authored(members: Iterable[Entry]) -> bool:
    return any(entry.counted and entry.llm_backend == AUTHORED for entry in members)


def _shared(rule: GateRule, members: Sequence[Entry], cluster: str) -> str:
    if rule.metric in _NO_SAMPLE or _is_authored(members):
        return ""
    return remark(*count_clusters(members, cluster), cluster)


def _authored(rule: GateRule, members: Iterable[Entry]) -> str:
    if rule.confidence is None or not _is_authored(members):
        return ""
    return "of authored answers, which are no sample of a model's"


def _clean_cases(rule: GateRule, confidence: float | None) -> float:
    """Give how many clean cases it takes until the exact bound can hold (see `paired.unseen`)."""
    away = min(1.0 if rule.max is None else rule.max, 1.0 if rule.min is None else 1.0 - rule.min)
    if confidence is None or away >= 1:
        return 0
    return math.ceil(math.log(1 - confidence) / math.log1p(-away) - TOLERANCE) if away > 0 else math.inf


def _few(rule: GateRule, fraction: Fraction, *, authored: bool) -> str:
    within = rule.confidence is None and rule.max and fraction.top <= rule.max * fraction.bottom
    if within and rule.metric in OF_ATTACKS and not authored:
        # a rate within the bound is no proof of it, and whoever reads of safety has to know
        needed = _clean_cases(rule, _USUAL)
        if fraction.bottom < needed:
            many = f"it takes {needed} clean cases to show that (one-sided exact 95 %)"
            return f"only {count(fraction.bottom, 'case')}: {many}"
    needed = _clean_cases(rule, rule.confidence)
    if fraction.bottom < needed:
        many = "no number of cases shows that" if needed == math.inf else f"it takes {needed} clean cases to show that"
        return f"only {count(fraction.bottom, 'case')}: {many}"
    if rule.metric == "completeness" or fraction.bottom >= _FEW:
        return ""
    return f"only {count(fraction.bottom, 'case')}"


def _is_enough(rule: GateRule, observed: float) -> bool:
    return rule.min is None or observed >= rule.min - TOLERANCE


def _is_within(rule: GateRule, observed: float) -> bool:
    return rule.max is None or observed <= rule.max + TOLERANCE


def _arithmetic(rule: GateRule, fraction: Fraction, low: float, high: float) -> str:
    is_score = rule.metric == "mean_score"
    observed = fraction.value
    bounds = [bound for bound in (rule.min, rule.max) if bound is not None]
    shown, *shown_bounds = aligned(observed, *bounds, as_percent=not is_score)
    decimals = len(shown.partition(".")[2]) if is_score else 0
    head = f"{fraction.top:.{decimals}f} / {fraction.bottom} = {shown}"
    if rule.confidence is not None:
        return ", ".join([head, *_exact_comparisons(rule, low, high)])
    comparisons = []
    if rule.min is not None:
        comparisons.append(f"{'>=' if _is_enough(rule, observed) else '<'} min {shown_bounds[0]}")
    if rule.max is not None:
        comparisons.append(f"{'<=' if _is_within(rule, observed) else '>'} max {shown_bounds[-1]}")
    return f"{head} {', '.join(comparisons)}".rstrip()


def _exact_comparisons(rule: GateRule, low: float, high: float) -> Iterator[str]:
    exact = f"one-sided exact {100 * (rule.confidence or 0):g} %"
    if rule.min is not None:
        shown, bound = aligned(low, rule.min, as_percent=True)
        yield f"{exact} lower bound {shown} {'>=' if _is_enough(rule, low) else '<'} min {bound}"
    if rule.max is not None:
        shown, bound = aligned(high, rule.max, as_percent=True)
        yield f"{exact} upper bound {shown} {'<=' if _is_within(rule, high) else '>'} max {bound}"
