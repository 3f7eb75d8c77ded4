"""What changed between runs: two of them case by case, and the trend of the earlier ones.

The cases of two runs are taken in turn and paired by their test id. Nothing is kept of a case that did not change but
the change of its score, as a number of eight bytes; of each kind of change, the first rows and their number are.

A run shows a trend only with like runs: complete runs of the same suite, mode, target, backend, model and guards.
Nothing is judged again.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.counting import (
    ALL,
    MEAN,
    ResultSums,
    TopRows,
    cases_of,
    cluster_facet,
    differences,
    groups_of,
    in_order,
    without_record,
)
from pytest_packbench.analysis.statistics import PairedMean, format_mean, mcnemar_p_value, paired_mean
from pytest_packbench.model.result import EFFECTS, FURTHER_FIELDS, TOLERANCE, Result, models_of
from pytest_packbench.model.run import BUNDLED, Run
from pytest_packbench.model.suite import AUTHORED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from pytest_packbench.analysis.counting import Numbers, Rule
    from pytest_packbench.model.report import BaselineLookup, StoredRun
    from pytest_packbench.model.stored import BaselineChange, CommittedBaseline


THRESHOLD = 0.05
"""Points of score by which a case has improved or regressed, as in the original harness."""
SMALLER = "smaller_changes"
_NOTHING_UNCHANGED = "no case is unchanged in both runs"
# an error is no improvement over a failure
_BAD = tuple(verdict for verdict, effects in EFFECTS.items() if effects.loss)
_CONDITION = re.compile(r"\s*(?P<name>[a-z_]+)\s*(?P<sign><=|>=|<|>)\s*(?P<bound>[+-]?(?:\d+\.?\d*|\.\d+))\s*")


class Change(NamedTuple):
    """One case in both runs, over all its trials in each.

    Attributes:
        before: what it came to in the baseline.
        after: what it comes to now.
    """

    before: Result
    after: Result

    @property
    def test_id(self) -> str:
        """The case."""
        return self.after.case.test_id

    @property
    def verdicts(self) -> tuple[str, str]:
        """Its verdict before and now."""
        return self.before.score.verdict, self.after.score.verdict

    @property
    def scores(self) -> tuple[float | None, float | None]:
        """Its mean score before and now; None if any of its trials has none, and where its notes quarantine it."""
        before, after = (None if end.score.quarantined else end.score.score for end in self)
        return before, after

    @property
    def delta(self) -> float | None:
        """Score now minus score before, 0 if they differ by at most 1e-9; None if either is missing."""
        before, after = self.scores
        if before is None or after is None:
            return None
        return after - before if abs(after - before) > TOLERANCE else 0.0

    @property
    def judges_differ(self) -> bool:
        """Whether different judges decided; where nothing was judged, none did."""
        return all(end.score.counted for end in self) and self.before.score.judge != self.after.score.judge

    @property
    def edited(self) -> bool:
        """Whether the case was edited, or judged by another judge; one without a hash is taken to be unedited."""
        hashes = {end.case.case_sha256 for end in self} - {None}
        return len(hashes) > 1 or self.judges_differ

    @property
    def kinds(self) -> list[str]:
        """The kinds of change, first the one under which it is listed.

        An edited case is another case, so that it is of no kind of `_KINDS`.
        """
        kinds = ["hash_changed"] if self.edited else [kind for kind, applies in _KINDS.items() if applies(self)]
        # excluded from the rates by its notes now, and not before
        was, is_now = (end.score.quarantined for end in self)
        return ["quarantined", *kinds] if is_now and not was else kinds


def _is_new_failure(before: str, after: str) -> bool:
    return after in _BAD and (before not in _BAD or (before == "vacuous" and after == "failed"))


def _is_fixed(before: str, after: str) -> bool:
    # what could not have failed was no failure
    return after == "passed" and before in _BAD and before != "vacuous"


_KINDS: dict[str, Callable[[Change], bool]] = {
    "new_failures": lambda change: _is_new_failure(*change.verdicts),
    "regressed": lambda change: change.delta is not None and change.delta <= TOLERANCE - THRESHOLD,
    "fixed": lambda change: _is_fixed(*change.verdicts),
    "verdict_changed": lambda change: len({*change.verdicts}) > 1,
    "improved": lambda change: change.delta is not None and change.delta >= THRESHOLD - TOLERANCE,
    SMALLER: lambda change: change.delta is not None and TOLERANCE < abs(change.delta) < THRESHOLD - TOLERANCE,
}
FIGURES = (
    *("improved", "regressed", "new_failures", "fixed", "verdict_changed", SMALLER),
    *("hash_changed", "quarantined", "added", "removed", "mean"),
)
"""The figures that a condition may name."""


def _worst_first(change: Change) -> tuple[float, str]:
    return (change.delta if change.delta is not None else -2.0, change.test_id)


def _largest_first(change: Change) -> tuple[float, str]:
    return (-abs(change.delta or 0.0), change.test_id)


def _test_id(case: Result) -> str:
    return case.case.test_id


@dataclass
class GroupChanges:
    """What changed in a group of cases that are unchanged in both runs.

    Attributes:
        unchanged: how many there are.
        kinds: the test ids of those of a kind of change, by the kind.
        deltas: the changes of score of the cases that have one in both runs, by their value of
            the facet that cases share; those without one are independent, under None.
        sums: of those that were judged in both runs, before and now; nothing unless a gate asks for it.
    """

    unchanged: int = 0
    kinds: dict[str, TopRows[str]] = field(default_factory=lambda: defaultdict(lambda: TopRows(str)))
    deltas: dict[str | None, array[float]] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    sums: tuple[ResultSums, ResultSums] = field(default_factory=lambda: (ResultSums(), ResultSums()))

    @cached_property
    def mean(self) -> PairedMean | None:
        """The paired mean difference of their scores, after the last case; None if no case has a score in both runs."""
        clusters = [deltas for cluster, deltas in self.deltas.items() if cluster is not None]
        return paired_mean(self.deltas[None], clusters)


class Comparison:
    """A run compared with a baseline (spec, "Comparing runs").

    Edited cases are listed and excluded from the paired statistics. The trials of a case are one case.

    Args:
        baseline: the earlier run; read once.
        run: what is true of all results of the run.
        by: the groups whose changes are needed, by name; the values are those of the run.
        rule: the trials rule of the baseline, unless its settings contain one.
        numbers: the run, counted with gates that ask how the rates over unchanged cases were before; None without any.

    Attributes:
        baseline: what is true of the earlier run.
        current: the argument `run`.
        differences: settings in which the runs differ, in words.
        committed: whether the baseline is the committed one, which has no answers and no terms.
        common: number of cases in both runs.
        left_out: how many were edited or judged by another judge, and are not quarantined.
        unscored: how many of the new failures in `listed` have no score now, because they were not judged.
        kinds: number of cases by kind of change; a case may be of several.
        listed: the cases that have changed and are in both runs, each once, under the first of its kinds.
        added: the cases that only the run has, by test id.
        removed: those that only the baseline has, by test id.
        flips: number of unchanged cases by verdict before and now; all statistics are over these.
        groups: what changed in each group of unchanged cases, by its name and value, and in `ALL`.
        trials: the largest number of trials of a case, in the baseline and now.
        authored: whether no judged answer of the run came from a model.

    Raises:
        TrialsRuleError: the settings of a run contain an invalid trials rule.
    """

    def __init__(
        self,
        baseline: StoredRun,
        run: Run,
        *,
        by: Collection[str] = (),
        rule: Rule = MEAN,
        numbers: Numbers | None = None,
    ) -> None:
        self.baseline, self.current = baseline.run, run
        self.differences = differences(baseline.run, run)
        self.committed = baseline.committed
        self.common = self.left_out = self.unscored = 0
        self.kinds: Counter[str] = Counter()
        self.listed = {kind: TopRows(_worst_first if kind != SMALLER else _largest_first) for kind in FIGURES[:-3]}
        self.added, self.removed = TopRows(_test_id), TopRows(_test_id)
        self.flips: Counter[tuple[str, str]] = Counter()
        self.groups: dict[tuple[str, str], GroupChanges] = defaultdict(GroupChanges)
        self.trials = 1, 1
        self._by, self._facet, self._numbers = by, cluster_facet(run), numbers
        self._origins: Counter[bool] = Counter()
        self._earlier = cases_of(baseline.run, baseline.results, rule)

    def steps(self, cases: Iterable[Result]) -> Iterator[None]:
        """Compare the cases of both runs in turn, and yield after each.

        Args:
            cases: those of the run, each once, as `cases_of` and `without_twins` return them.
        """
        # cases whose other run has not come to them yet, by test id; few, since both are in the same order
        waiting: tuple[dict[str, Result], dict[str, Result]] = {}, {}
        trials = [1, 1]
        for step in zip_longest(cases, self._earlier):
            for now, case in zip((True, False), step, strict=True):
                if case is None:
                    continue
                trials[now] = max(trials[now], case.trials[1])
                if now and case.score.counted:
                    self._origins[case.attempt.llm_backend == AUTHORED] += 1
                other = waiting[not now].pop(case.case.test_id, None)
                if other is None:
                    waiting[now][case.case.test_id] = without_record(case)
                else:
                    self._compare(Change(other, case) if now else Change(case, other))
                yield
        self.trials = trials[0], trials[1]
        for table, ends in zip((self.removed, self.added), waiting, strict=True):
            deque(map(table.add, ends.values()), 0)

    def _compare(self, change: Change) -> None:
        self.common += 1
        kinds = change.kinds
        self.kinds.update(kinds)
        for first in kinds[:1]:
            self.listed[first].add(Change(*map(without_record, change)))
            self.unscored += first == "new_failures" and change.scores[1] is None
            self.left_out += first == "hash_changed"
        if "hash_changed" in kinds:
            return
        self.flips[change.verdicts] += 1
        # the groups of a case that can't be read now are those it had
        before, after = ([key for key in groups_of(end) if key[0] in self._by and key[1]] for end in change)
        for group in (self.groups[key] for key in (ALL, *(after or before))):
            group.unchanged += 1
            for kind in kinds:
                group.kinds[kind].add(change.test_id)
            if change.delta is not None:
                shared = change.after.case.facets.get(self._facet) if self._facet else None
                group.deltas[shared].append(change.delta)
            if self._numbers is not None and all(end.score.counted for end in change):
                for sums, end in zip(group.sums, change, strict=True):
                    sums.add(self._numbers.profile(end), end.score.score)

    @property
    def unchanged(self) -> int:
        """How many cases are the same in both runs."""
        return self.flips.total()

    @property
    def cases(self) -> tuple[int, int]:
        """Number of cases, in the baseline and now."""
        return self.common + self.removed.count, self.common + self.added.count

    @property
    def mean(self) -> PairedMean | None:
        """The paired mean difference of scores over comparable cases."""
        return self.groups[ALL].mean

    @property
    def lost(self) -> int:
        """Comparable cases that passed before and fail now."""
        return self.flips["passed", "failed"]

    @property
    def won(self) -> int:
        """Comparable cases that failed before and pass now."""
        return self.flips["failed", "passed"]

    @property
    def p_flips(self) -> float:
        """The p value of the exact McNemar test of these flips."""
        return mcnemar_p_value(self.lost, self.won)

    @property
    def authored(self) -> bool:
        """Whether there are judged answers, and none of them came from a model."""
        return self._origins[True] > 0 and not self._origins[False]

    @property
    def problem(self) -> str:
        """Why the runs can't be compared, in one line; empty if they can."""
        reasons = self._reasons
        return f"not compared with {self.baseline.run_id}: {reasons}" if reasons else ""

    @property
    def unusable(self) -> str:
        """Why a rate can't be compared with the baseline's, in one line; empty if it can."""
        reasons = self._reasons
        if len({*self.trials}) > 1 and not self.differences:
            # the worst of more trials is worse, so that the runs would differ by chance alone
            reasons = "trials per case: {} before, {} now".format(*self.trials)
        return f"run {self.baseline.run_id} can't be the baseline: {reasons}" if reasons else ""

    @property
    def _reasons(self) -> str:
        return "; ".join(self.differences) or ("" if self.unchanged else _NOTHING_UNCHANGED)

    def counts(self) -> dict[str, int]:
        """Return the number of cases of each kind of change, and of those added and removed."""
        ends = {"added": self.added.count, "removed": self.removed.count}
        return {name: ends.get(name, self.kinds[name]) for name in FIGURES[:-1]}

    def figures(self) -> dict[str, float]:
        """Return the figures that a condition may name: `counts`, and `mean` in points of score.

        A figure that can't be known is NaN: kinds of change if no case is unchanged in both runs, and `mean` if no
        case has a score in both runs.
        """
        unknown = {} if self.unchanged else dict.fromkeys(_KINDS, math.nan)
        return {**self.counts(), **unknown, "mean": math.nan if self.mean is None else self.mean.mean}

    def reasons(self, change: Change) -> tuple[str, ...]:
        """Return why a case changed, in words.

        Terms added, removed or changed; with several trials, how many passed; if a run did not judge the case, why.
        """
        if change.judges_differ:
            old, new = (end.score.judge or "rules only" for end in change)
            return (f"judged by {old} before, by {new} now",)
        if max(end.trials[1] for end in change) > 1:
            old, new = ("{} / {}".format(*end.trials) for end in change)
            return (f"{old} trials passed before, {new} now",)
        if self.committed:
            return ()
        # a case that was not judged has no terms, so that missing terms explain nothing
        unjudged = [
            (when, end.score) for when, end in zip(("before", "now"), change, strict=True) if not end.score.counted
        ]
        if unjudged:
            return tuple(": ".join(filter(None, (when, score.kind, score.message))) for when, score in unjudged)
        return tuple(_changed_terms(*map(_points, change)))


def _points(case: Result) -> dict[str, str]:
    points = {term.name: "note" if term.effect == "note" else term.points for term in case.score.terms}
    for name in FURTHER_FIELDS:
        if (value := getattr(case.score, name, None)) is not None:
            points[name] = str(value)
    return points


def _changed_terms(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"{name} removed ({before[name]})"
        elif name not in before:
            yield f"{name} added ({after[name]})"
        elif before[name] != after[name]:
            yield f"{name} {before[name]} to {after[name]}"


def compare(
    baseline: StoredRun, current: StoredRun, use: Callable[[Iterator[tuple[Result, bool]]], object] = iter
) -> Comparison:
    """Compare two runs case by case; both are read once.

    Args:
        baseline: the earlier run.
        current: the later run.
        use: called with the results of both as they are read, each with whether it is of the later run. It need not
            take them all.

    Raises:
        TrialsRuleError: the settings of a run contain an invalid trials rule.
        StoredRunError: a file of a run is damaged, whatever `use` makes of that.
    """
    seen: list[tuple[Result, bool]] = []
    problems: list[Exception] = []

    def noted(run: StoredRun, *, is_later: bool) -> Iterator[Result]:
        for result in in_order(run.results):
            seen.append((result, is_later))
            yield result

    def read() -> Iterator[tuple[Result, bool]]:
        try:
            for _ in comparison.steps(cases_of(current.run, noted(current, is_later=True))):
                yield from seen
                seen.clear()
            yield from seen
        except Exception as error:
            problems.append(error)
            raise

    comparison = Comparison(replace(baseline, results=noted(baseline, is_later=False)), current.run)
    results = read()
    try:
        use(results)
        deque(results, 0)
    finally:
        for problem in problems:
            raise problem
    return comparison


class ConditionError(ValueError):
    """A condition is invalid; the message is one line that says what was expected."""


class FailCondition(NamedTuple):
    """A condition on a comparison, which fails if the condition is met.

    Attributes:
        name: a figure of the comparison.
        sign: `<`, `<=`, `>` or `>=`.
        bound: a count, or points of score for `mean`.
    """

    name: str
    sign: str
    bound: float

    def is_met(self, figures: Mapping[str, float]) -> bool:
        """Whether the figure is on the named side of the bound; differences of at most 1e-9 count as equal.

        A condition on an unknown figure (NaN) is met, so that the comparison fails.
        """
        value = figures[self.name]
        if math.isnan(value):
            return True
        if abs(value - self.bound) <= TOLERANCE:
            return "=" in self.sign
        return value < self.bound if self.sign.startswith("<") else value > self.bound

    def __str__(self) -> str:
        """Return it as `parse_conditions` reads it."""
        return f"{self.name}{self.sign}{self.bound:g}"


def parse_conditions(text: str, names: Collection[str]) -> tuple[FailCondition, ...]:
    """Parse conditions separated by commas.

    Args:
        text: for each condition a name, one of `<`, `<=`, `>` and `>=`, and a number.
        names: the figures that may be named.

    Raises:
        ConditionError: a condition is malformed or names an unknown figure.
    """
    conditions = []
    for part in text.split(","):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise ConditionError(
                f"condition {part.strip()!r}: expected a name, a sign and a number, such as regressed>0 or mean<-0.02"
            )
        if match["name"] not in names:
            raise ConditionError(
                f'condition {part.strip()!r}: unknown figure "{match["name"]}"; '
                f"expected one of {', '.join(sorted(names))}"
            )
        conditions.append(FailCondition(name=match["name"], sign=match["sign"], bound=float(match["bound"])))
    return tuple(conditions)


class BaselineOutcome(NamedTuple):
    """What came of comparing a run with its baseline.

    Attributes:
        requested: the baseline as the user named it.
        comparison: the comparison; None if the baseline was not found, or the run is a shard.
        problem: why the run was not compared, in one line; empty if it was.
        optional: whether the run passes without a comparison.
        conditions: the conditions that fail the run if they are met.
        warning: what to know about the baseline, in one line; empty if there is nothing.
        stored: the baseline; None if it was not found.
        stored_failures: why the comparison failed the run when it ended, if only its report tells; one reason each.
    """

    requested: str
    comparison: Comparison | None = None
    problem: str = ""
    optional: bool = False
    conditions: tuple[FailCondition, ...] = ()
    warning: str = ""
    stored: StoredRun | None = None
    stored_failures: tuple[str, ...] = ()

    @property
    def compared(self) -> Comparison | None:
        """The comparison if it says anything; None if the runs can't be compared."""
        return None if self.problem else self.comparison

    @property
    def met(self) -> tuple[FailCondition, ...]:
        """The conditions that are met."""
        figures = {} if self.compared is None else self.compared.figures()
        return tuple(condition for condition in self.conditions if figures and condition.is_met(figures))

    @property
    def fails_unseen(self) -> bool:
        """Whether the run fails because it could not be compared."""
        return bool(self.problem) and not self.optional

    @property
    def failures(self) -> tuple[str, ...]:
        """Why the run fails because of its baseline, one reason each."""
        if self.fails_unseen:
            return (f"baseline {self.requested}: {self.problem}",)
        figures = {} if self.compared is None else self.compared.figures()
        values = [(condition, figures[condition.name]) for condition in self.met]
        return self.stored_failures + tuple(
            f"condition {condition} is met: {'the value is not known' if math.isnan(value) else f'{value:g}'}"
            for condition, value in values
        )


def baseline_outcome(earlier: BaselineLookup, comparison: Comparison | None, scope: str) -> BaselineOutcome | None:
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
        comparison, optional = None, True
        problem = "not compared: this is a shard; packbench merge --baseline compares the merged run"
    elif comparison is not None:
        if scope == "part":
            # a case that was not selected is not known to be removed
            comparison.removed = TopRows(_test_id)
        problem = comparison.problem
        # a few cases that were edited are no reason to fail a run of these only
        optional = optional or (scope == "part" and not comparison.differences)
    return BaselineOutcome(
        requested=earlier.requested,
        comparison=comparison,
        problem=problem,
        optional=optional,
        conditions=parse_conditions(earlier.fail_on, FIGURES) if earlier.fail_on else (),
        warning=earlier.warning,
        stored=earlier.stored,
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
    from pytest_packbench.model.stored import BASELINE_VERSION, CommittedBaseline

    results = tuple(results)
    cases = list(cases_of(run, results))
    origins = {case.attempt.llm_backend == AUTHORED for case in cases if case.score.counted}
    about = {
        **{name: getattr(run, name) for name in ("run_id", "pack", "pack_version", "suite_sha256", "mode", "target")},
        "suite": run.suite.removeprefix(BUNDLED),
        "finished_at": run.finished_at,
        "models": models_of(results),
        "authored": origins == {True},
    }
    if run.settings.get("trials", 1) > 1:
        about |= {name: run.settings[name] for name in ("trials", "trials_rule") if name in run.settings}
    return CommittedBaseline.model_validate(
        {
            "baseline_version": BASELINE_VERSION,
            "run": about,
            "history": [change.model_dump() for change in history],
            "cases": {case.case.test_id: _committed_case(case) for case in cases},
        }
    )


def _committed_case(case: Result) -> dict[str, Any]:
    score, (passed, trials) = case.score, case.trials
    several = {"trials": trials, "passed": passed} if trials > 1 else {}
    optional = {name: value for name, value in (("kind", score.kind), ("judge", score.judge)) if value}
    return {"sha256": case.case.case_sha256, "score": score.score, "verdict": score.verdict, **optional, **several}


def loosened(before: StoredRun, after: StoredRun) -> Iterator[str]:
    """Describe in what a baseline is looser than the one before, a line each.

    Args:
        before: the baseline so far.
        after: the run of the next one.

    Raises:
        TrialsRuleError: the settings of a run contain an invalid trials rule.
    """
    yield from differences(before.run, after.run)
    old, new = (
        {case.case.test_id: case for case in cases_of(stored.run, stored.results)} for stored in (before, after)
    )
    for test_id in sorted(old):
        reasons = _looser(old[test_id], new.get(test_id))
        if reasons:
            yield f"{test_id}: {'; '.join(reasons)}"


def _looser(before: Result, after: Result | None) -> list[str]:
    old = before.score
    if after is None:
        return [f"removed ({old.verdict})"]
    now, reasons = after.score, []
    if old.counted and not now.counted:
        reasons.append(f"{old.verdict} before, {now.kind or now.verdict} now")
    elif old.verdict == "passed" and now.verdict != "passed":
        reasons.append(f"passed before, {now.verdict} now")
    if old.score is not None and now.score is not None and now.score < old.score - TOLERANCE:
        reasons.append(f"score {format_mean(old.score)} before, {format_mean(now.score)} now")
    if before.case.case_sha256 != after.case.case_sha256:
        reasons.append("the case was edited")
    return reasons
