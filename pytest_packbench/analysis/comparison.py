"""Compare two runs: what improved, what regressed, what is not comparable, and whether it may be chance."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple, Self

from pytest_packbench.analysis.intervals import PairedMean, mcnemar_p_value, paired_mean
from pytest_packbench.analysis.listing import MAX_ROWS, TopRows
from pytest_packbench.analysis.metrics import run_sums
from pytest_packbench.analysis.tally import TAG, Identity, Tally, identity_of, judges_differ, same_case
from pytest_packbench.analysis.trials import (
    MEAN,
    cluster_facet,
    cluster_of,
    stream_by_case,
    trials_rule_of,
    trials_rule_text,
)
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.model.score import COUNTED, EFFECTS, QUARANTINE, TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.score import Term
    from pytest_packbench.runs.report import OpenRun
    from pytest_packbench.runs.stored import StoredRun


# points of score by which a case has improved or regressed, as in the original harness
THRESHOLD = 0.05
SMALLER = "smaller_changes"
# characters of an answer that a comparison keeps
_MAX_ANSWER = 400
# the key of the changes of all cases
_ALL = ("", "")
_HASH = re.compile("[0-9a-f]{12,}")
# an error is no improvement over a failure
_BAD = tuple(verdict for verdict, effects in EFFECTS.items() if effects.loss)
_CONDITION = re.compile(r"\s*(?P<name>[a-z_]+)\s*(?P<sign><=|>=|<|>)\s*(?P<bound>[+-]?(?:\d+\.?\d*|\.\d+))\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One case in both runs.

    Attributes:
        test_id: the case.
        before: its verdict in the baseline, over all its trials.
        after: its verdict now.
        score_before: the mean over its trials; None if any of them has no score.
        score_after: the same, now.
        hash_changed: whether the case was edited, or judged by another judge.
        reasons: in words: terms added, removed or changed; with several trials, how many passed; if a run did not
            judge the case, why.
        quarantined: whether its notes exclude it from the rates now, and did not before.
        answer_before: the answer in one short string; None if there is none, or the baseline does not have it.
        answer_after: the same, now.
        mismatch_before: of a failure, what was expected instead of what, in words; else empty.
        mismatch_after: the same, now.
        file: the case file, as the later run names it.
    """

    test_id: str
    before: str
    after: str
    score_before: float | None
    score_after: float | None
    hash_changed: bool
    reasons: tuple[str, ...] = ()
    quarantined: bool = False
    answer_before: str | None = None
    answer_after: str | None = None
    mismatch_before: str = ""
    mismatch_after: str = ""
    file: str = ""

    @property
    def delta(self) -> float | None:
        """Score now minus score before, 0 if they differ by at most 1e-9; None if either is missing."""
        if self.score_before is None or self.score_after is None:
            return None
        delta = self.score_after - self.score_before
        return delta if abs(delta) > TOLERANCE else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase:
    """What a comparison reads of one case of a run, over all its trials.

    Attributes:
        test_id: the case.
        verdict: over its trials.
        score: the mean over its trials; None if any of them has none.
        kind: as in `Result`, like the next three.
        message: as there.
        case_sha256: as there.
        judge: as there.
        cluster: what the case shares with others by design; empty if the run names no such facet.
        terms: name and effect of each term, in order; empty if the case was not judged, None if they are not known.
        trials: how many there were.
        passed: how many of them passed.
        groups: name and value of the groups that it belongs to, of those that were asked for.
        answer: as in `Result`, cut.
        mismatch: of a failure, what was expected, and what was answered if `answer` is something else, in words.
        file: as there.
    """

    test_id: str
    verdict: str
    score: float | None
    kind: str
    message: str
    case_sha256: str | None
    judge: str | None
    cluster: str
    terms: tuple[tuple[str, str], ...] | None
    trials: int
    passed: int
    groups: tuple[tuple[str, str], ...] = ()
    answer: str | None = None
    mismatch: str = ""
    file: str = ""

    @property
    def quarantined(self) -> bool:
        """Whether the case's notes exclude it from the rates."""
        return self.kind in QUARANTINE

    @property
    def identity(self) -> Identity:
        """What it was judged by."""
        return Identity(self.test_id, self.case_sha256, self.judge if self.counted else "")

    @property
    def counted(self) -> bool:
        """Whether it is in the rates: it passed or failed and is not quarantined."""
        return self.verdict in COUNTED and not self.quarantined


class GroupChanges(NamedTuple):
    """What changed in a group of cases that are unchanged in both runs.

    Attributes:
        unchanged: how many there are.
        regressed: the test ids of those that regressed, sorted.
        new_failures: the test ids of those that are a failure now and were not before, sorted.
        mean: the paired mean difference of their scores; None if no case has a score in both runs.
    """

    unchanged: int = 0
    regressed: tuple[str, ...] = ()
    new_failures: tuple[str, ...] = ()
    mean: PairedMean | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """A run compared with a baseline.

    Attributes:
        baseline: the earlier run.
        current: the run that is judged.
        differences: settings in which the runs differ, in words; not empty only if the comparison was forced.
        common: number of cases in both runs.
        unchanged: how many of them are the same case in both; all statistics are over these.
        quarantined: how many of them are excluded from the rates by their notes now, and were not before.
        left_out: how many were edited or judged by another judge, and are not quarantined.
        changes: the cases of each kind of change.
        added: the first `MAX_ROWS` cases that only the current run has, by test id.
        removed: the first `MAX_ROWS` that only the baseline has, by test id.
        mean: the paired mean difference of scores over comparable cases.
        lost: comparable cases that passed before and fail now.
        won: comparable cases that failed before and pass now.
        p_flips: p value of the exact McNemar test of these flips.
        authored: whether no judged answer of the current run came from a model.
        trials: the largest number of trials of a case, in the baseline and now.
        cases: number of cases, in the baseline and now.
        groups: what changed in all cases, under `("", "")`, and in each group, by the name and the value of the group.
        listed: the cases that have changed, each once, under the first kind of `LISTED` that applies.
        committed: whether the baseline is the committed one, which has no answers and no terms.
        unscored: how many of the new failures in `listed` have no score now, because they were not judged.
    """

    baseline: Run
    current: Run
    differences: tuple[str, ...]
    common: int
    unchanged: int
    quarantined: int
    left_out: int
    changes: Mapping[str, TopRows[Change]]
    added: tuple[ComparedCase, ...]
    removed: tuple[ComparedCase, ...]
    mean: PairedMean | None
    lost: int
    won: int
    p_flips: float
    authored: bool
    trials: tuple[int, int]
    cases: tuple[int, int]
    groups: Mapping[tuple[str, str], GroupChanges] = field(default_factory=dict)
    listed: Mapping[str, TopRows[Change]] = field(default_factory=dict)
    committed: bool = False
    unscored: int = 0

    def counts(self) -> dict[str, int]:
        """Return the number of cases of each kind of change, and of those quarantined now, added and removed."""
        return {
            **{kind: changes.count for kind, changes in self.changes.items()},
            "quarantined": self.quarantined,
            "added": self.cases[1] - self.common,
            "removed": self.cases[0] - self.common,
        }

    def figures(self) -> dict[str, float]:
        """Return the figures that a condition may name: `counts`, and `mean` in points of score.

        A figure that can't be known is NaN: kinds of change if no case is unchanged in both runs, and `mean` if no
        case has a score in both runs.
        """
        unknown = {} if self.unchanged else dict.fromkeys(_KINDS_OF_PAIRS, math.nan)
        return {**self.counts(), **unknown, "mean": math.nan if self.mean is None else self.mean.mean}


_KINDS: dict[str, Callable[[Change], bool]] = {
    "improved": lambda change: change.delta is not None and change.delta >= THRESHOLD - TOLERANCE,
    "regressed": lambda change: change.delta is not None and change.delta <= TOLERANCE - THRESHOLD,
    "new_failures": lambda change: _is_new_failure(change.before, change.after),
    # what could not have failed was no failure
    "fixed": lambda change: change.after == "passed" and change.before in _BAD and change.before != "vacuous",
    "verdict_changed": lambda change: change.before != change.after,
    SMALLER: lambda change: change.delta is not None and TOLERANCE < abs(change.delta) < THRESHOLD - TOLERANCE,
    "hash_changed": lambda change: change.hash_changed,
}
LISTED = ("quarantined", "hash_changed", "new_failures", "regressed", "fixed", "verdict_changed", "improved", SMALLER)
"""The kinds under which a comparison lists a case once: the first that applies."""
_KINDS_OF_PAIRS = _KINDS.keys() - {"hash_changed"}


FIGURES = (*_KINDS, "quarantined", "added", "removed", "mean")
"""The figures that a condition may name."""


def change_of(before: Result, after: Result) -> str:
    """Return how a case has changed since an earlier run, one result for each.

    Returns:
        `changed` if the case was edited or judged by another judge, else the first of `new_failure`, `recovered`,
        `regressed` and `improved` that is true, else `same`.
    """
    change = Change(
        test_id=after.case.test_id,
        before=before.score.verdict,
        after=after.score.verdict,
        score_before=None if before.score.quarantined else before.score.score,
        score_after=None if after.score.quarantined else after.score.score,
        hash_changed=not same_case(identity_of(before), identity_of(after)),
    )
    return next((word for word, kind in _WORDS.items() if _is_of_kind(change, kind)), "same")


_WORDS = {
    "changed": "hash_changed",
    "new_failure": "new_failures",
    "recovered": "fixed",
    "regressed": "regressed",
    "improved": "improved",
}


def _is_new_failure(before: str, after: str) -> bool:
    return after in _BAD and (before not in _BAD or (before == "vacuous" and after == "failed"))


def _is_of_kind(change: Change, kind: str) -> bool:
    # an edited case is another case: it is counted as `hash_changed` alone
    return change.hash_changed is (kind == "hash_changed") and _KINDS[kind](change)


def _keep(rows: TopRows[Change], change: Change, kind: str) -> None:
    rows.add(change, _largest_first if kind == SMALLER else _worst_first)


def _worst_first(change: Change) -> tuple[float, str]:
    return (change.delta if change.delta is not None else -2.0, change.test_id)


def _largest_first(change: Change) -> tuple[float, str]:
    return (-abs(change.delta or 0.0), change.test_id)


def differences(baseline: Run, current: Run) -> tuple[str, ...]:
    """Describe the settings in which two runs differ so that their scores can't be compared."""
    settings = {
        "suite": (baseline.suite.removeprefix(BUNDLED), current.suite.removeprefix(BUNDLED)),
        "mode": (baseline.mode, current.mode),
        "pack": (f"{baseline.pack} {baseline.pack_version}", f"{current.pack} {current.pack_version}"),
        "scoring rules": (baseline.suite_sha256, current.suite_sha256),
        "trials rule": _trials_rules(baseline, current),
    }
    return tuple(
        f"{name}: {_short(before, after)!r} before, {_short(after, before)!r} now"
        for name, (before, after) in settings.items()
        if before != after
    )


def _short(value: str, other: str) -> str:
    """Return the beginning of a hash, or all of it where the other one begins alike."""
    return value[:12] if _HASH.fullmatch(value) and value[:12] != other[:12] else value


def _trials_rules(baseline: Run, current: Run) -> tuple[str, str]:
    """Return the trials rule of each run in words; two empty texts if they are equivalent."""
    before, after = (_trials_rule_words(run) for run in (baseline, current))
    # the mean is the same rule for one trial as for many
    return ("", "") if {before, after} <= {"", MEAN} else (before or "one trial", after or "one trial")


def _trials_rule_words(run: Run) -> str:
    trials = run.settings.get("trials")
    if not isinstance(trials, int) or trials == 1:
        return ""
    text = trials_rule_text(trials_rule_of(run))
    return text if text == MEAN else f"{text} of {trials}"


def compare(baseline: StoredRun | OpenRun, current: StoredRun | OpenRun, *, by: Collection[str] = ()) -> RunComparison:
    """Compare two runs case by case (spec, "Comparing runs").

    Edited cases are listed and excluded from the paired statistics. Trials of a case are one case, judged by the trials
    rule of its run. Results are read once, in any order, and only a summary of each case is kept.

    Args:
        baseline: the earlier run.
        current: the later run.
        by: the groups whose changes are needed, by name; the values are those of the later run.

    Raises:
        TrialsRuleError: the settings of a run contain an invalid trials rule.
    """
    after = ComparedRun(current.run, by).add_all(current.results)
    return after.since(baseline, current.run)


class ComparedRun:
    """The cases of a run, as far as a comparison needs them.

    Args:
        run: what is true of all its results.
        by: the groups to keep, by name.
        facet: what cases share by design; by default as the run names it, empty for none.

    Attributes:
        cases: test id to case; of two cases with the same test id the worse one, with the trials of both.

    Raises:
        TrialsRuleError: the settings of the run contain an invalid trials rule.
    """

    def __init__(self, run: Run, by: Collection[str] = (), facet: str | None = None) -> None:
        self.cases: dict[str, ComparedCase] = {}
        self._run = run
        self._by = by
        self._facet = cluster_facet(run) if facet is None else facet
        self._terms: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}
        self._tally = Tally(trials_rule=trials_rule_of(run), each_case=(self._add,))

    def add(self, result: Result) -> None:
        """Add a result; the trials of a case have to follow each other."""
        self._tally.add(result)

    def add_all(self, results: Iterable[Result]) -> Self:
        """Add the results of the run, in any order."""
        max_trials = self._run.settings.get("trials", 1)
        for attempts in stream_by_case(results, max_trials if isinstance(max_trials, int) else 1):
            for attempt in attempts:
                self._tally.add(attempt)
        self._tally.close()
        return self

    def read(self, stored: StoredRun | OpenRun) -> Self:
        """Add the results of a stored run, or those of a committed baseline, which has one for each case."""
        attempts = stored.attempts
        if attempts is None:
            return self.add_all(stored.results)
        for result in stored.results:
            self._add(result, *attempts[result.case.test_id])
            self.cases[result.case.test_id] = replace(self.cases[result.case.test_id], terms=None)
        return self

    def since(self, baseline: StoredRun | OpenRun, run: Run) -> RunComparison:
        """Compare the run with an earlier one; see `compare`.

        Args:
            baseline: the earlier run.
            run: what is true of all results of this run, now that it has ended.
        """
        self._tally.close()
        before = ComparedRun(baseline.run, self._by, self._facet).read(baseline)
        common = sorted(before.cases.keys() & self.cases.keys())
        changes: dict[str, TopRows[Change]] = {kind: TopRows() for kind in _KINDS}
        listed: dict[str, TopRows[Change]] = {kind: TopRows() for kind in LISTED}
        groups: dict[tuple[str, str], _Group] = {_ALL: _Group()}
        flips: Counter[tuple[str, str]] = Counter()
        quarantined = left_out = unscored = 0
        for test_id in common:
            case = self.cases[test_id]
            change = _change(before.cases[test_id], case)
            quarantined += change.quarantined
            if change.hash_changed:
                left_out += not change.quarantined
            else:
                flips[change.before, change.after] += 1
                # the groups of a case that can't be read now are those it had
                for key in (_ALL, *(case.groups or before.cases[test_id].groups)):
                    groups.setdefault(key, _Group()).add(change, case.cluster)
            kinds = [kind for kind in _KINDS if _is_of_kind(change, kind)]
            for kind in kinds:
                _keep(changes[kind], change, kind)
            first = "quarantined" if change.quarantined else next((kind for kind in LISTED if kind in kinds), None)
            if first is not None:
                _keep(listed[first], change, first)
                unscored += first == "new_failures" and change.score_after is None
        lost, won = flips["passed", "failed"], flips["failed", "passed"]
        found = {key: group.changes(clustered=bool(self._facet)) for key, group in groups.items()}
        return RunComparison(
            baseline=baseline.run,
            current=run,
            differences=differences(baseline.run, run),
            common=len(common),
            unchanged=flips.total(),
            quarantined=quarantined,
            left_out=left_out,
            changes=changes,
            added=self.cases_not_in(before),
            removed=before.cases_not_in(self),
            mean=found[_ALL].mean,
            lost=lost,
            won=won,
            p_flips=mcnemar_p_value(lost, won),
            authored=self.authored,
            trials=(before.trials, self.trials),
            cases=(len(before.cases), len(self.cases)),
            groups=found,
            listed=listed,
            committed=getattr(baseline, "attempts", None) is not None,
            unscored=unscored,
        )

    @property
    def trials(self) -> int:
        """The largest number of trials of a case."""
        return max((case.trials for case in self.cases.values()), default=1)

    @property
    def authored(self) -> bool:
        """Whether there are judged answers, and none of them came from a model."""
        sums = run_sums(self._tally)
        judged = sums.count(lambda profile: profile.counted)
        return judged > 0 and sums.count(lambda profile: profile.authored) == judged

    def cases_not_in(self, other: ComparedRun) -> tuple[ComparedCase, ...]:
        """Return the first `MAX_ROWS` cases that another run does not have, by test id."""
        return tuple(self.cases[test_id] for test_id in nsmallest(MAX_ROWS, self.cases.keys() - other.cases.keys()))

    def _add(self, result: Result, passed: int, trials: int) -> None:
        terms = tuple((term.name, _points(term)) for term in result.score.terms) if result.score.counted else ()
        case = ComparedCase(
            test_id=result.case.test_id,
            verdict=result.score.verdict,
            score=result.score.score,
            kind=result.score.kind,
            message=result.score.message,
            case_sha256=result.case.case_sha256,
            judge=result.score.judge,
            cluster=cluster_of(result, self._facet) if self._facet else "",
            # equal tuples are shared, since most cases have the same terms
            terms=self._terms.setdefault(terms, terms),
            trials=trials,
            passed=passed,
            groups=tuple(group for name in self._by for group in _groups_of(result, name)),
            answer=None if result.score.answer is None else result.score.answer[:_MAX_ANSWER],
            mismatch=_mismatch(result),
            file=result.case.file,
        )
        twin = self.cases.get(result.case.test_id)
        if twin is not None:
            worse = min(twin, case, key=_badness)
            case = replace(worse, trials=twin.trials + trials, passed=twin.passed + passed)
        self.cases[result.case.test_id] = case


class _Group:
    """Collects the changes of a group of cases."""

    def __init__(self) -> None:
        self._unchanged = 0
        self._of_kind: dict[str, list[str]] = {"regressed": [], "new_failures": []}
        self._deltas: list[float] = []
        self._clusters: list[str] = []

    def add(self, change: Change, cluster: str) -> None:
        self._unchanged += 1
        for kind, test_ids in self._of_kind.items():
            if _is_of_kind(change, kind):
                test_ids.append(change.test_id)
        if change.delta is not None:
            self._deltas.append(change.delta)
            self._clusters.append(cluster)

    def changes(self, *, clustered: bool) -> GroupChanges:
        return GroupChanges(
            unchanged=self._unchanged,
            **{kind: tuple(test_ids) for kind, test_ids in self._of_kind.items()},
            mean=paired_mean(self._deltas, self._clusters if clustered else None),
        )


def _groups_of(result: Result, name: str) -> Iterable[tuple[str, str]]:
    """Return the groups of this name that a case belongs to, as the tally counts them."""
    values: Iterable[str] = (result.case.facets[name],) if name in result.case.facets else ()
    if name == TAG:
        values = dict.fromkeys(result.case.tags)
    elif name in {"case_type", "difficulty"}:
        values = (getattr(result.case, name),)
    return ((name, value) for value in values if value)


def _mismatch(result: Result) -> str:
    if not (result.score.expected_text and result.score.actual_text):
        return ""
    actual = (
        "" if result.score.actual_text == result.score.answer else f"got {result.score.actual_text[:_MAX_ANSWER]}, "
    )
    return f"{actual}expected {result.score.expected_text[:_MAX_ANSWER]}"


def _badness(case: ComparedCase) -> tuple[bool, bool, float, str]:
    return case.counted, case.verdict == "passed", case.score or 0.0, repr(case)


def _change(before: ComparedCase, after: ComparedCase) -> Change:
    return Change(
        test_id=before.test_id,
        before=before.verdict,
        after=after.verdict,
        score_before=None if before.quarantined else before.score,
        score_after=None if after.quarantined else after.score,
        hash_changed=not same_case(before.identity, after.identity),
        reasons=_reasons(before, after),
        quarantined=after.quarantined and not before.quarantined,
        answer_before=before.answer,
        answer_after=after.answer,
        mismatch_before=before.mismatch,
        mismatch_after=after.mismatch,
        file=after.file,
    )


def _reasons(before: ComparedCase, after: ComparedCase) -> tuple[str, ...]:
    if judges_differ(before.identity, after.identity):
        old, new = (case.judge or "rules only" for case in (before, after))
        return (f"judged by {old} before, by {new} now",)
    if before.trials > 1 or after.trials > 1:
        old, new = (f"{case.passed} / {case.trials}" for case in (before, after))
        return (f"{old} trials passed before, {new} now",)
    if before.terms is None or after.terms is None:
        return ()
    if before.counted and after.counted:
        return tuple(_changed_terms(dict(before.terms), dict(after.terms)))
    # a case that was not judged has no terms, so that missing terms explain nothing
    unjudged = [(when, case) for when, case in (("before", before), ("now", after)) if not case.counted]
    return tuple(": ".join(part for part in (when, case.kind, case.message) if part) for when, case in unjudged)


def _changed_terms(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[str]:
    if before == after:
        return
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"{name} removed ({before[name]})"
        elif name not in before:
            yield f"{name} added ({after[name]})"
        elif before[name] != after[name]:
            yield f"{name} {before[name]} to {after[name]}"


def _points(term: Term) -> str:
    return "note" if term.effect == "note" else term.points


class ConditionError(ValueError):
    """A condition is invalid; the message is one line that says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailCondition:
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
