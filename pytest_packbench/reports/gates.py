"""Gates: conditions on a whole run, judged with their arithmetic shown (design 4 and 7)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pytest_packbench.reports.arithmetic import arithmetic, decisive, is_enough, is_within, remarks
from pytest_packbench.reports.baseline import Baseline, against_baseline, baseline_for
from pytest_packbench.reports.clusters import facet_of
from pytest_packbench.reports.figures import UNREADABLE
from pytest_packbench.reports.rates import METRICS, groups, measured
from pytest_packbench.reports.trials import MEAN, folded, rule_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.run import Run
    from pytest_packbench.records.stored import StoredRun
    from pytest_packbench.reports.trials import Rule


_ABSENT = "not in this run"


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
    low, high = (decisive(rule, fraction, upper=upper) for upper in (False, True))
    ratio = against_baseline(rule, members, fraction, known.baseline)
    passed = is_enough(rule, low) and is_within(rule, high) and ratio.passed
    parts = (arithmetic(rule, fraction, low, high), ratio.text, *remarks(rule, members, fraction, known.cluster))
    told = ", ".join(part for part in parts if part)
    return replace(result, passed=passed, text=f"{result.subject} {told}: {'PASS' if passed else 'FAIL'}")
