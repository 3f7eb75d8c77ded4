"""Two runs side by side: what improved, what got worse, what can't be compared, and whether it is chance."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Self

from pytest_packbench.analysis.figures import TOLERANCE
from pytest_packbench.analysis.intervals import PairedMean, mcnemar, paired_mean
from pytest_packbench.analysis.listing import MOST_ROWS, keep_first
from pytest_packbench.analysis.metrics import whole_of
from pytest_packbench.analysis.sums import JUDGED
from pytest_packbench.analysis.tally import Tally, judges_differ, same_case
from pytest_packbench.analysis.trials import MEAN, cluster_of, facet_of, rule_of, rule_text, together
from pytest_packbench.model.result import QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.report import OpenRun
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


@dataclass(slots=True)
class Changes:
    """The changes of one kind.

    Attributes:
        first: the first `MOST_ROWS` of them, in the order of a page.
        count: how many there are.
    """

    first: list[Change] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one case of a run ended, over all its trials: what a comparison reads of it.

    Attributes:
        test_id: the case.
        verdict: over its trials.
        score: the mean over them; None where one has none.
        kind: see `CaseResult`, like the next three.
        message: see there.
        case_sha256: see there.
        judge: see there.
        cluster: what the case shares with others by design; empty where the run names nothing of that kind.
        terms: name of each term to its effect in words, in order; of judged cases alone.
        trials: how many there were.
        passed: how many of them passed.
    """

    test_id: str
    verdict: str
    score: float | None
    kind: str
    message: str
    case_sha256: str | None
    judge: str | None
    cluster: str
    terms: tuple[tuple[str, str], ...]
    trials: int
    passed: int

    @property
    def quarantined(self) -> bool:
        """Whether the case's own notes keep it out of the rates."""
        return self.kind in QUARANTINE

    @property
    def counted(self) -> bool:
        """Whether it stands in the rates: it was scored and passed or failed."""
        return self.verdict in JUDGED and not self.quarantined


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """Two runs compared.

    Attributes:
        baseline: the run compared with.
        current: the run that is judged.
        differences: settings in which the runs differ, in words; not empty only when comparing was forced.
        common: how many cases stand in both runs.
        unchanged: how many of them are the same case in both, which alone can tell what changed.
        quarantined: how many of them notes keep out of the rates now, and did not before.
        left_out: how many are others now, or judged by another judge, and not quarantined.
        changes: each kind of change to the cases it was seen in.
        added: the first `MOST_ROWS` cases that only the current run has, by test id.
        removed: the first `MOST_ROWS` that only the baseline has, by test id.
        mean: the paired mean difference of scores over comparable cases.
        lost: comparable cases that passed before and fail now.
        won: comparable cases that failed before and pass now.
        p_flips: McNemar's exact p value of these flips.
        authored: whether no judged answer of the current run came from a model.
        trials: the most trials of a case in the baseline and now.
        cases: how many cases the baseline has, and the current run.
    """

    baseline: Run
    current: Run
    differences: tuple[str, ...]
    common: int
    unchanged: int
    quarantined: int
    left_out: int
    changes: Mapping[str, Changes]
    added: tuple[Ending, ...]
    removed: tuple[Ending, ...]
    mean: PairedMean | None
    lost: int
    won: int
    p_flips: float
    authored: bool
    trials: tuple[int, int]
    cases: tuple[int, int]

    def counts(self) -> dict[str, int]:
        """Count the cases of each kind, and those that are quarantined now, added and removed."""
        return {
            **{kind: found.count for kind, found in self.changes.items()},
            "quarantined": self.quarantined,
            "added": self.cases[1] - self.common,
            "removed": self.cases[0] - self.common,
        }

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


def compare(baseline: StoredRun | OpenRun, current: StoredRun | OpenRun) -> RunComparison:
    """Compare two runs case by case (spec, "Comparing runs").

    Cases whose hash changed are listed and left out of the paired statistics; trials of a case are one case, judged by
    the rule of its run. Neither run is held: a tally counts each, and of a case is kept how it ended. The order of
    results makes no difference.

    Raises:
        TrialsRuleError: a run was judged by a rule for trials that is none.
    """
    facet = facet_of(current.run)
    before, after = (
        Endings(baseline.run, facet).take(baseline.results),
        Endings(current.run, facet).take(current.results),
    )
    common = sorted(before.cases.keys() & after.cases.keys())
    changes: dict[str, Changes] = {kind: Changes() for kind in _KINDS}
    pairs: list[tuple[float, str]] = []
    flips: Counter[tuple[str, str]] = Counter()
    quarantined = left_out = 0
    for name in common:
        change = _change(before.cases[name], after.cases[name])
        quarantined += change.quarantined
        if change.hash_changed:
            left_out += not change.quarantined
        else:
            flips[change.before, change.after] += 1
            if change.delta is not None:
                pairs.append((change.delta, after.cases[name].cluster))
        for kind, found in changes.items():
            if _is(change, kind):
                found.count += 1
                keep_first(found.first, change, MOST_ROWS, key=_largest_first if kind == SMALLER else _worst_first)
    lost, won = flips["passed", "failed"], flips["failed", "passed"]
    return RunComparison(
        baseline=baseline.run,
        current=current.run,
        differences=differences(baseline.run, current.run),
        common=len(common),
        unchanged=flips.total(),
        quarantined=quarantined,
        left_out=left_out,
        changes=changes,
        added=after.beside(before),
        removed=before.beside(after),
        mean=paired_mean([delta for delta, _ in pairs], [cluster for _, cluster in pairs] if facet else None),
        lost=lost,
        won=won,
        p_flips=mcnemar(lost, won),
        authored=after.authored,
        trials=(before.trials, after.trials),
        cases=(len(before.cases), len(after.cases)),
    )


class Endings:
    """How the cases of a run ended, by test id.

    Args:
        run: what is true of all its results.
        facet: what cases share by design; empty for none.

    Attributes:
        cases: test id to the end of that case; where two cases have one test id, the worse one with the trials of both.

    Raises:
        TrialsRuleError: the run was judged by a rule for trials that is none.
    """

    def __init__(self, run: Run, facet: str) -> None:
        self.cases: dict[str, Ending] = {}
        self._run = run
        self._facet = facet
        self._terms: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}
        self._tally = Tally(trials_rule=rule_of(run), each_case=(self._add,))

    def take(self, results: Iterable[CaseResult]) -> Self:
        """Count the results of the run, in any order, without holding them."""
        most = self._run.settings.get("trials", 1)
        for attempts in together(results, most if isinstance(most, int) else 1):
            for attempt in attempts:
                self._tally.add(attempt)
        self._tally.close()
        return self

    @property
    def trials(self) -> int:
        """The most trials of a case."""
        return max((one.trials for one in self.cases.values()), default=1)

    @property
    def authored(self) -> bool:
        """Whether there are judged answers, and none of them came from a model."""
        whole = whole_of(self._tally)
        judged = whole.count(lambda one: one.counted)
        return judged > 0 and whole.count(lambda one: one.authored) == judged

    def beside(self, other: Endings) -> tuple[Ending, ...]:
        """Give the first `MOST_ROWS` cases that are not in another run, by test id."""
        return tuple(self.cases[name] for name in nsmallest(MOST_ROWS, self.cases.keys() - other.cases.keys()))

    def _add(self, case: CaseResult, passed: int, trials: int) -> None:
        terms = tuple((str(term["name"]), _points(term)) for term in case.terms) if case.counted else ()
        found = Ending(
            test_id=case.test_id,
            verdict=case.verdict,
            score=case.score,
            kind=case.kind,
            message=case.message,
            case_sha256=case.case_sha256,
            judge=case.judge,
            cluster=cluster_of(case, self._facet) if self._facet else "",
            # most cases have the terms of others
            terms=self._terms.setdefault(terms, terms),
            trials=trials,
            passed=passed,
        )
        twin = self.cases.get(case.test_id)
        if twin is not None:
            worse = min(twin, found, key=_how_good)
            found = replace(worse, trials=twin.trials + trials, passed=twin.passed + passed)
        self.cases[case.test_id] = found


def _how_good(one: Ending) -> tuple[bool, bool, float, str]:
    return one.counted, one.verdict == "passed", one.score or 0.0, repr(one)


def _change(old: Ending, new: Ending) -> Change:
    return Change(
        test_id=old.test_id,
        before=old.verdict,
        after=new.verdict,
        score_before=None if old.quarantined else old.score,
        score_after=None if new.quarantined else new.score,
        hash_changed=not same_case(old, new),
        reasons=_why(old, new),
        quarantined=new.quarantined and not old.quarantined,
    )


def _why(before: Ending, after: Ending) -> tuple[str, ...]:
    if judges_differ(before, after):
        was, now = (one.judge or "the rules alone" for one in (before, after))
        return (f"judged by {was} before, by {now} now",)
    if before.trials > 1 or after.trials > 1:
        was, now = (f"{one.passed} / {one.trials}" for one in (before, after))
        return (f"{was} trials passed before, {now} now",)
    if before.counted and after.counted:
        return tuple(_reasons(dict(before.terms), dict(after.terms)))
    # what broke has no terms: that they are gone is no reason
    told = [(name, one) for name, one in (("before", before), ("now", after)) if not one.counted]
    return tuple(f"{name} {': '.join(part for part in (one.kind, one.message) if part)}" for name, one in told)


def _reasons(old: Mapping[str, str], new: Mapping[str, str]) -> Iterable[str]:
    if old == new:
        return
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{name} went ({old[name]})"
        elif name not in old:
            yield f"{name} came ({new[name]})"
        elif old[name] != new[name]:
            yield f"{name} {old[name]} to {new[name]}"


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
