"""Two runs side by side: what improved, what got worse, what can't be compared, and whether it is chance."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.figures import TOLERANCE
from pytest_packbench.analysis.intervals import PairedMean, mcnemar, paired_mean
from pytest_packbench.analysis.sums import AUTHORED
from pytest_packbench.analysis.tally import judges_differ, same_case
from pytest_packbench.analysis.trials import (
    MEAN,
    cases_of,
    cluster_of,
    facet_of,
    folded_case,
    rule_of,
    rule_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pytest_packbench.analysis.trials import Rule
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.stored import StoredRun


# the change of score that makes a case improved or regressed: the original's mark
THRESHOLD = 0.05
SMALLER = "smaller_changes"
# a case that broke is no better than one that failed
_BAD = ("failed", "error", "vacuous", "not_run")
_FORM = re.compile(r"\s*(?P<name>[a-z_]+)\s*(?P<sign><=|>=|<|>)\s*(?P<bound>[+-]?(?:\d+\.?\d*|\.\d+))\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One case in both runs.

    Attributes:
        test_id: the case.
        before: its verdict in the baseline, over all its trials.
        after: its verdict now.
        score_before: the mean over its trials; None where one of them has no score.
        score_after: the same, now.
        hash_changed: whether the case itself is another one now, or was ruled on by another judge.
        reasons: terms that came, went or changed, in words; of several trials, how many passed; where one of the
            runs has no verdict of the rules, what broke.
        quarantined: whether its notes keep it out of the rates now, and did not before.
    """

    test_id: str
    before: str
    after: str
    score_before: float | None
    score_after: float | None
    hash_changed: bool
    reasons: tuple[str, ...] = ()
    quarantined: bool = False

    @property
    def delta(self) -> float | None:
        """Score now minus score before; None where one of them is missing."""
        if self.score_before is None or self.score_after is None:
            return None
        return self.score_after - self.score_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs compared.

    Attributes:
        baseline: the run compared with.
        current: the run that is judged.
        differences: settings in which the runs differ, in words; not empty only when comparing was forced.
        changes: every case of both runs, by test id.
        added: cases that only the current run has.
        removed: cases that only the baseline has.
        mean: the paired mean difference of scores over comparable cases.
        lost: comparable cases that passed before and fail now.
        won: comparable cases that failed before and pass now.
        p_flips: McNemar's exact p value of these flips.
        trials: the most trials of a case in the baseline and now.
        cases: how many cases the baseline has, and the current run.
    """

    baseline: StoredRun
    current: StoredRun
    differences: tuple[str, ...]
    changes: tuple[Change, ...]
    added: tuple[CaseResult, ...]
    removed: tuple[CaseResult, ...]
    mean: PairedMean | None
    lost: int
    won: int
    p_flips: float
    trials: tuple[int, int]
    cases: tuple[int, int]

    def of(self, kind: str) -> tuple[Change, ...]:
        """Give the changes of a kind, worst first, smaller changes the largest first; kinds as in `counts`."""
        order = _largest_first if kind == SMALLER else _worst_first
        return tuple(sorted((one for one in self.changes if _is(one, kind)), key=order))

    def counts(self) -> dict[str, int]:
        """Count the cases of each kind, and those that are quarantined now, added and removed."""
        return {
            **{kind: sum(_is(one, kind) for one in self.changes) for kind in _KINDS},
            "quarantined": sum(one.quarantined for one in self.changes),
            "added": len(self.added),
            "removed": len(self.removed),
        }

    @property
    def left_out(self) -> int:
        """How many cases are others now, or judged by another judge, and not quarantined."""
        return sum(one.hash_changed and not one.quarantined for one in self.changes)

    @property
    def authored(self) -> bool:
        """Whether no judged answer of the current run came from a model."""
        judged = [entry for entry in self.current.entries if entry.counted]
        return bool(judged) and all(entry.llm_backend == AUTHORED for entry in judged)

    @property
    def unchanged(self) -> tuple[Change, ...]:
        """The cases of both runs that are the same case in both, which alone can tell what changed."""
        return tuple(one for one in self.changes if not one.hash_changed)

    def figures(self) -> dict[str, float]:
        """Give what a condition may name and judges: `counts`, and `mean` in points of score.

        Not a number is what only unchanged cases of both runs can tell, where there is none: none has regressed and
        none has not, and a condition on it can't be judged. So is `mean` where no case has a score in both runs.
        """
        unknown = {} if self.unchanged else dict.fromkeys(_OF_PAIRS, math.nan)
        return {**self.counts(), **unknown, "mean": math.nan if self.mean is None else self.mean.mean}


_KINDS: dict[str, Callable[[Change], bool]] = {
    "improved": lambda change: change.delta is not None and change.delta >= THRESHOLD - TOLERANCE,
    "regressed": lambda change: change.delta is not None and change.delta <= TOLERANCE - THRESHOLD,
    "new_failures": lambda change: change.after in _BAD and change.before not in _BAD,
    "fixed": lambda change: change.after == "passed" and change.before in _BAD,
    "verdict_changed": lambda change: change.before != change.after,
    SMALLER: lambda change: change.delta is not None and TOLERANCE < abs(change.delta) < THRESHOLD - TOLERANCE,
    "hash_changed": lambda change: change.hash_changed,
}
_OF_PAIRS = _KINDS.keys() - {"hash_changed"}


def _is(change: Change, kind: str) -> bool:
    # a changed case is another case: nothing else is said of it
    return change.hash_changed is (kind == "hash_changed") and _KINDS[kind](change)


def _worst_first(change: Change) -> tuple[float, str]:
    return (change.delta if change.delta is not None else -2.0, change.test_id)


def _largest_first(change: Change) -> tuple[float, str]:
    return (-abs(change.delta or 0.0), change.test_id)


def differences(baseline: Run, current: Run) -> tuple[str, ...]:
    """Say in what two runs differ that makes their scores different things: suite, mode, pack, rules."""
    named = {
        "suite": (baseline.suite, current.suite),
        "mode": (baseline.mode, current.mode),
        "pack": (f"{baseline.pack} {baseline.pack_version}", f"{current.pack} {current.pack_version}"),
        "scoring rules": (baseline.suite_sha256[:12], current.suite_sha256[:12]),
        "rule for trials": _rules(baseline, current),
    }
    return tuple(
        f"{name}: {before!r} before, {after!r} now" for name, (before, after) in named.items() if before != after
    )


def _rules(baseline: Run, current: Run) -> tuple[str, str]:
    """Say how verdicts are made of trials; the mean is the same thing for one trial as for many."""
    before, after = (_rule_text(run) for run in (baseline, current))
    return ("", "") if {before, after} <= {"", MEAN} else (before or "one trial", after or "one trial")


def _rule_text(run: Run) -> str:
    trials = run.settings.get("trials")
    if not isinstance(trials, int) or trials == 1:
        return ""
    text = rule_text(rule_of(run))
    return text if text == MEAN else f"{text} of {trials}"


def compare(baseline: StoredRun, current: StoredRun) -> Comparison:
    """Compare two runs case by case (spec, "Comparing runs").

    Cases whose hash changed are listed and left out of the paired statistics; trials of a case are one case, judged by
    the rule of its run. The order of entries makes no difference.

    Raises:
        TrialsRuleError: a run was judged by a rule for trials that is none.
    """
    before, after = (_by_case(one.entries, rule_of(one.run)) for one in (baseline, current))
    sizes = [[len(trials) for trials in cases_of(one.entries)] for one in (baseline, current)]
    changes = tuple(_change(name, before[name], after[name]) for name in sorted(before.keys() & after.keys()))
    comparable = [one for one in changes if not one.hash_changed]
    paired, facet = [one for one in comparable if one.delta is not None], facet_of(current.run)
    flips = [(one.before, one.after) for one in comparable]
    lost, won = flips.count(("passed", "failed")), flips.count(("failed", "passed"))
    return Comparison(
        baseline=baseline,
        current=current,
        differences=differences(baseline.run, current.run),
        changes=changes,
        added=tuple(after[name].case for name in sorted(after.keys() - before.keys())),
        removed=tuple(before[name].case for name in sorted(before.keys() - after.keys())),
        mean=paired_mean(
            [one.delta for one in paired if one.delta is not None],
            [cluster_of(after[one.test_id].case, facet) for one in paired] if facet else None,
        ),
        lost=lost,
        won=won,
        p_flips=mcnemar(lost, won),
        trials=(max(sizes[0], default=1), max(sizes[1], default=1)),
        cases=(len(sizes[0]), len(sizes[1])),
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """One case of a run: all its trials as one entry, how many there were and how many passed."""

    case: CaseResult
    trials: int
    passed: int


def _by_case(entries: Iterable[CaseResult], rule: Rule) -> dict[str, _Case]:
    found: dict[str, list[CaseResult]] = {}
    for entry in entries:
        found.setdefault(entry.test_id, []).append(entry)
    return {
        name: _Case(folded_case(trials, rule), len(trials), sum(entry.verdict == "passed" for entry in trials))
        for name, trials in found.items()
    }


def _change(test_id: str, before: _Case, after: _Case) -> Change:
    old, new = before.case, after.case
    return Change(
        test_id=test_id,
        before=old.verdict,
        after=new.verdict,
        score_before=None if old.quarantined else old.score,
        score_after=None if new.quarantined else new.score,
        hash_changed=not same_case(old, new),
        reasons=_why(before, after),
        quarantined=new.quarantined and not old.quarantined,
    )


def _why(before: _Case, after: _Case) -> tuple[str, ...]:
    if judges_differ(before.case, after.case):
        was, now = (one.case.judge or "the rules alone" for one in (before, after))
        return (f"judged by {was} before, by {now} now",)
    if before.trials > 1 or after.trials > 1:
        was, now = (f"{one.passed} / {one.trials}" for one in (before, after))
        return (f"{was} trials passed before, {now} now",)
    if before.case.counted and after.case.counted:
        return tuple(_reasons(before.case.terms, after.case.terms))
    # what broke has no terms: that they are gone is no reason
    told = [(name, one.case) for name, one in (("before", before), ("now", after)) if not one.case.counted]
    return tuple(f"{name} {': '.join(part for part in (one.kind, one.message) if part)}" for name, one in told)


def _reasons(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    old, new = ({str(term["name"]): term for term in terms} for terms in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{name} went ({_points(old[name])})"
        elif name not in old:
            yield f"{name} came ({_points(new[name])})"
        elif _points(old[name]) != _points(new[name]):
            yield f"{name} {_points(old[name])} to {_points(new[name])}"


def _points(term: Mapping[str, Any]) -> str:
    if term["effect"] == "zero":
        return "=0"
    return f"{term['value']:+.2f}" if term["effect"] in {"add", "clamp"} else "note"


class ConditionError(ValueError):
    """A condition can't be read: one line with what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; where it holds, the comparison fails.

    Attributes:
        name: a figure of the comparison.
        sign: `<`, `<=`, `>` or `>=`.
        bound: a count, or points of score for `mean`.
    """

    name: str
    sign: str
    bound: float

    def holds(self, figures: Mapping[str, float]) -> bool:
        """Whether the figure lies on the named side of the bound; float noise of 1e-9 decides nothing.

        It holds, and so fails the comparison, where there is no figure to judge.
        """
        value = figures[self.name]
        if math.isnan(value):
            return True
        if abs(value - self.bound) <= TOLERANCE:
            return "=" in self.sign
        return value < self.bound if self.sign.startswith("<") else value > self.bound

    def __str__(self) -> str:
        """Write it as it is read."""
        return f"{self.name}{self.sign}{self.bound:g}"


def parse_conditions(text: str, names: Collection[str]) -> tuple[Condition, ...]:
    """Read conditions that are separated by commas.

    Args:
        text: `name`, `<`, `<=`, `>` or `>=`, and a number, each.
        names: the figures that may be named.

    Raises:
        ConditionError: one is malformed or names no figure.
    """
    found = []
    for part in text.split(","):
        match = _FORM.fullmatch(part)
        if match is None:
            raise ConditionError(f"condition {part.strip()!r}: expected a form such as regressed>0 or mean<-0.02")
        if match["name"] not in names:
            raise ConditionError(f"condition {part.strip()!r}: expected one of: {', '.join(sorted(names))}")
        found.append(Condition(name=match["name"], sign=match["sign"], bound=float(match["bound"])))
    return tuple(found)
