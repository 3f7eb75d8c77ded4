"""The earlier run that gates hold a run against (design 4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_packbench.reports.arithmetic import share_text
from pytest_packbench.reports.comparison import differences, same_case
from pytest_packbench.reports.figures import TOLERANCE, aligned
from pytest_packbench.reports.judgement import count
from pytest_packbench.reports.rates import measured
from pytest_packbench.reports.trials import MEAN, folded, most_trials, rule_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.run import Run
    from pytest_packbench.records.stored import StoredRun
    from pytest_packbench.reports.gates import GateRule
    from pytest_packbench.reports.rates import Fraction
    from pytest_packbench.reports.trials import Rule


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


@dataclass(frozen=True, slots=True)
class Ratio:
    """How a value stands to the baseline's.

    Attributes:
        passed: whether it is at most so many times that as the gate allows.
        text: the arithmetic, or why there is none.
    """

    passed: bool
    text: str


def against_baseline(rule: GateRule, members: Sequence[Entry], fraction: Fraction, baseline: Baseline | None) -> Ratio:
    """Compare with the baseline, over the cases that are the same in both runs.

    Args:
        rule: the gate; without `max_ratio_to_baseline` anything passes.
        members: the cases that it judges, of the run.
        fraction: what was counted of them.
        baseline: the earlier run; None where none was given: then it fails.
    """
    if rule.max_ratio_to_baseline is None:
        return Ratio(passed=True, text="")
    most = f"max {rule.max_ratio_to_baseline:g} x baseline"
    if baseline is None or baseline.unusable:
        why = "no baseline was given" if baseline is None else baseline.unusable
        return Ratio(passed=False, text=f"{most}: {why}")
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
        return Ratio(passed=False, text=f"{most}: the baseline has no case to judge that is the same in both runs")
    was, today = before.value, after.value
    common = (
        ""
        if after == fraction
        else f" on the {count(after.bottom, 'case')} of both runs, now {share_text(rule, after)}"
    )
    if was <= TOLERANCE:
        # a multiple of nothing is nothing
        text = f"{most}: the baseline is 0, so only 0 passes ({share_text(rule, before)}{common})"
        return Ratio(passed=today <= TOLERANCE, text=text)
    passed = today <= rule.max_ratio_to_baseline * was + TOLERANCE
    shown, bound = aligned(today / was, rule.max_ratio_to_baseline)
    text = f"{shown} x the baseline's {share_text(rule, before)}{common} {'<=' if passed else '>'} max {bound} x"
    return Ratio(passed=passed, text=text)


def _is_pair(metric: str, old: Entry, now: Entry) -> bool:
    return same_case(old, now) and (metric == "completeness" or (old.counted and now.counted))
