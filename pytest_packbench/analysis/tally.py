"""Counting one by one what runs leave: results of cases, wire records, error lines. No run is held whole.

What a figure can ask of a result is its `Profile`, of which a run has few. Results that share something are one `Sums`:
how many of them have each profile, and what adds up. Statistics, gates and reports are made of these sums alone.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from pytest_packbench.analysis.comparison import same_case
from pytest_packbench.analysis.trials import MEAN, Trials, apart, cases_of, cluster_of, folded_case, needed, passed_of
from pytest_packbench.model.result import QUARANTINE
from pytest_packbench.model.strict_json import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_packbench.analysis.listing import Listing
    from pytest_packbench.analysis.trials import Rule
    from pytest_packbench.model.record import EvalRecord
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.runs.lines import ErrorLine


MOST_FAILING = 20
MOST_DUPLICATES = 10
TAG = "tag"
# scores and costs of records are added as whole billionths, so that their order makes no difference
NANO = 1_000_000_000
# every float is a whole multiple of this: sums of them are exact, and rounded once
_FINEST_BITS = 1074
_FINEST = 1 << _FINEST_BITS
_DIGEST = 16
_MOST_USD = 1e12
_JUDGED = ("passed", "failed")
# whether a record passed, and whether there is a duplicate of it: tuples shared by all records
_ONCE = ((False, False), (True, False))
_AGAIN = ((False, True), (True, True))
_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """All that a figure can ask of one result beside its score; see `CaseResult`. A tally makes each once.

    Attributes:
        verdict: one of `VERDICTS`.
        quarantine: `skip` or `xfail` where its notes take the case out; else empty.
        scored: whether it has a score.
        decision: what the target did, in the words of the record.
        utility: whether the user's own task was done.
        valid: whether the answer could be read.
        expects_refusal: whether a refusal was due.
        refused: whether one came.
        depth: how deep the answer agrees.
        backend: who answered the model calls.
        model: which model.
        judge: who ruled.
        stale: whether the recording answered another prompt.
        cached: whether a kept answer was used.
    """

    verdict: str
    quarantine: str = ""
    scored: bool = False
    decision: str | None = None
    utility: bool | None = None
    valid: bool | None = None
    expects_refusal: bool | None = None
    refused: bool | None = None
    depth: int | None = None
    backend: str | None = None
    model: str | None = None
    judge: str | None = None
    stale: bool = False
    cached: bool = False

    @property
    def counted(self) -> bool:
        """Whether the result stands in the rates: it was scored and passed or failed."""
        return self.verdict in _JUDGED and not self.quarantine

    @property
    def due(self) -> bool:
        """Whether the case has to end passed or failed (design 4)."""
        return not self.quarantine and self.verdict != "known_hole"


@dataclass(slots=True)
class Sums:
    """The sums of some results.

    Attributes:
        profiles: each profile to the number of results that have it.
        points: the sum of the scores of those in the rates, in whole parts of `_FINEST`.
        odd: the sum of those scores that are not finite.
        clusters: what the results in the rates share by design, where the tally was told a facet.
    """

    profiles: dict[Profile, int] = field(default_factory=dict)
    points: int = 0
    odd: float = 0.0
    clusters: set[str] = field(default_factory=set)

    def add(self, profile: Profile, points: float) -> None:
        """Add one result; its points are whole parts, or a score that is not finite."""
        self.profiles[profile] = self.profiles.get(profile, 0) + 1
        if isinstance(points, int):
            self.points += points
        else:
            self.odd += points

    def absorb(self, other: Sums) -> None:
        """Add the sums of other results."""
        for profile, number in other.profiles.items():
            self.profiles[profile] = self.profiles.get(profile, 0) + number
        self.points += other.points
        self.odd += other.odd
        self.clusters |= other.clusters

    def count(self, has: Callable[[Profile], object] = lambda _: True) -> int:
        """Count the results whose profile has something; all without a question."""
        return sum(number for profile, number in self.profiles.items() if has(profile))

    def by(self, of: Callable[[Profile], _Key]) -> Counter[_Key]:
        """Count the results by what a question says of their profiles."""
        found: Counter[_Key] = Counter()
        for profile, number in self.profiles.items():
            found[of(profile)] += number
        return found

    @property
    def score(self) -> float:
        """The sum of the scores of results in the rates, rounded once, so that their order makes no difference."""
        return self.points / _FINEST + self.odd

    @property
    def mean(self) -> float | None:
        """The mean of these scores, 0 to 1; None where there is none."""
        scored = self.count(lambda one: one.counted and one.scored)
        return self.score / scored if scored else None


@dataclass(slots=True)
class Cell:
    """The sums of some records. What `packbench` holds is counted where it is of the type and range that we write.

    Attributes:
        ends: how records ended to their number: whether they passed, the decision, whether the task was done, and
            whether they have a score.
        tokens_known: records that tell tokens of either kind.
        tokens_input: their sum.
        tokens_output: their sum.
        wall_clock_ms: sum over the records, milliseconds.
        slowest_ms: the greatest of one record, milliseconds.
        score_nano: sum of their scores, billionths.
        costed: records with `packbench.cost_usd`.
        cost_nano: sum of those costs, billionths of a dollar.
        later: records that are a second or later trial of their case.
        hooks: each kind of firing to its number.
    """

    ends: dict[tuple[bool, str, bool | None, bool], int] = field(default_factory=dict)
    tokens_known: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    wall_clock_ms: int = 0
    slowest_ms: int = 0
    score_nano: int = 0
    costed: int = 0
    cost_nano: int = 0
    later: int = 0
    hooks: Counter[tuple[int | None, str, str]] = field(default_factory=Counter)

    def add(self, record: EvalRecord) -> None:
        """Count a record."""
        utility, scored = self._add_own(record.packbench) if record.packbench else (None, False)
        end = (record.passed, record.agent_decision, utility, scored)
        self.ends[end] = self.ends.get(end, 0) + 1
        tokens_input, tokens_output, wall_clock_ms = record.tokens_input, record.tokens_output, record.wall_clock_ms
        if tokens_input is not None or tokens_output is not None:
            self.tokens_known += 1
            self.tokens_input += tokens_input or 0
            self.tokens_output += tokens_output or 0
        self.wall_clock_ms += wall_clock_ms
        self.slowest_ms = max(self.slowest_ms, wall_clock_ms)
        for one in record.hook_decisions:
            self.hooks[one.rule, one.hook, one.decision] += 1

    def _add_own(self, own: Mapping[str, Any]) -> tuple[bool | None, bool]:
        utility, score, cost = own.get("utility"), _number(own.get("score"), 1), _number(own.get("cost_usd"), _MOST_USD)
        if score is not None:
            self.score_nano += round(score * NANO)
        if cost is not None:
            self.costed += 1
            self.cost_nano += round(cost * NANO)
        self.later += _trial(own) > 0
        return utility if isinstance(utility, bool) else None, score is not None

    def absorb(self, other: Cell) -> None:
        """Add the sums of other records."""
        for end, number in other.ends.items():
            self.ends[end] = self.ends.get(end, 0) + number
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.hooks.update(other.hooks)

    def sums(self) -> Sums:
        """Give the sums that rates are made of; scores stay billionths, and are not among them."""
        found = Sums()
        for (passed, decision, utility, scored), number in self.ends.items():
            verdict = "passed" if passed else "failed"
            profile = Profile(verdict, decision=decision, utility=utility, scored=scored)
            found.profiles[profile] = found.profiles.get(profile, 0) + number
        return found


_ADDED = (
    "tokens_known",
    "tokens_input",
    "tokens_output",
    "wall_clock_ms",
    "score_nano",
    "costed",
    "cost_nano",
    "later",
)


class Place(NamedTuple):
    """What the records of one cell share.

    Attributes:
        run_id: the run.
        suite: the record's `test_suite`.
        category: the record's `attack_category`.
        mode: `packbench.mode`; empty where the record doesn't tell.
        backend: who answered the model calls.
        model: which model answered.
        judge: `packbench.judge` in one string; empty without a judge.
    """

    run_id: str
    suite: str
    category: str
    mode: str
    backend: str
    model: str
    judge: str


class Hook(NamedTuple):
    """A kind of guard firing: the rule's number (None without one), the guard's hook, and what it decided."""

    rule: int | None
    hook: str
    decision: str


@dataclass(frozen=True, slots=True, order=True)
class TrialId:
    """What makes a record the same as another one: run, test id and `packbench.trial`, 0 where it has none."""

    run_id: str
    test_id: str
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingCase:
    """A record that did not pass; the fields are those of the record and of its `packbench` object."""

    test_id: str
    trial: int
    category: str
    expected: str
    agent_decision: str
    backend: str
    model: str
    score: float | None
    threshold: float | None


@dataclass(slots=True)
class Duplicates:
    """Records that are there already.

    Attributes:
        count: how many.
        names: how many different runs, test ids and trials they have.
        conflicting: those that passed where the one that counts failed, or the reverse.
        first: the first `MOST_DUPLICATES` by run, test id and trial, each once.
    """

    count: int = 0
    names: int = 0
    conflicting: int = 0
    first: list[TrialId] = field(default_factory=list)

    def add(self, name: TrialId, *, agrees: bool, named: bool) -> None:
        """Count one.

        Args:
            name: what it shares with the record that counts.
            agrees: whether its result is that of the record that counts.
            named: whether it is not the first duplicate of this name.
        """
        self.count += 1
        self.conflicting += not agrees
        if not named:
            self.names += 1
            _keep_first(self.first, name, MOST_DUPLICATES, key=lambda one: one)


class GroupKey(NamedTuple):
    """What the results of a group share.

    Attributes:
        name: `case_type`, `difficulty`, `tag` or a facet's name; empty for all results.
        value: what they share; empty for all results, and for cases that can't be read.
        readable: whether the case could be read, so that it is known which groups it belongs to.
    """

    name: str
    value: str
    readable: bool


class PairsKey(NamedTuple):
    """What pairs of results, before and now, share: the group of the one now, and how they stand.

    Attributes:
        group: the group of the result now.
        judged: whether both stand in the rates.
        due: whether the case has to end passed or failed now.
    """

    group: GroupKey
    judged: bool
    due: bool


class Tally:
    """Counts the results of one run, or the records and error lines of any number of runs.

    Args:
        trials_rule: how a case's verdict is made of its trials.
        by_tag: whether to group results by tag too.
        required: ids of the cases whose verdicts are asked for.
        facet: what cases share by design, so that they are not independent; empty for none.
        earlier: the cases of the run to compare with, by test id; None for none.
        listings: what keeps the cases that pages show.

    Attributes:
        groups: what results share to their sums; a case of several trials is one result.
        pairs: the sums, before and now, of the cases that are the same in both runs.
        unchanged: whether any case is the same in both runs.
        required: those ids to their verdicts, of several results of one id the first that did not pass.
        trials: what repeating the cases showed.
        cells: a `Place` as a plain tuple to the sums of the records that count, in the order of their first records.
        repeated: the same of the records that are there already: of records with the same run, test id and trial the
            first one counts. Apart from this, and from the order of `cells`, the order of records makes no difference.
        duplicates: these, by name.
        failing: run and suite to the first `MOST_FAILING` failing records by test id and trial.
        errors: run and suite to the number of error lines of each verdict, or kind of quarantine.
    """

    def __init__(
        self,
        *,
        trials_rule: Rule = MEAN,
        by_tag: bool = False,
        required: Iterable[str] = (),
        facet: str = "",
        earlier: Mapping[str, CaseResult] | None = None,
        listings: Iterable[Listing] = (),
    ) -> None:
        needed(trials_rule, 1)
        self.groups: dict[GroupKey, Sums] = {}
        self.pairs: dict[PairsKey, tuple[Sums, Sums]] = {}
        self.unchanged = False
        self.required: dict[str, str] = {}
        self.trials = Trials(trials_rule)
        self.facet = facet
        self._by_tag = by_tag
        self._wanted = frozenset(required)
        self._earlier = earlier
        self._listings = tuple(listings)
        self._case: list[CaseResult] = []
        self._profiles: dict[tuple[Any, ...], Profile] = {}
        self.cells: dict[tuple[str, ...], Cell] = {}
        self.repeated: dict[tuple[str, ...], Cell] = {}
        self.duplicates = Duplicates()
        self.failing: dict[tuple[str, str], list[FailingCase]] = {}
        self.errors: dict[tuple[str, str], Counter[str]] = {}
        # a record's digest to whether it passed, and whether there is a duplicate of it
        self._seen: dict[bytes, tuple[bool, bool]] = {}
        self._seen_errors: set[bytes] = set()
        # run and suite to the digests, as of a first trial, of the cases that have a later one
        self._later: dict[tuple[str, str], set[bytes]] = {}

    def add(self, result: CaseResult) -> None:
        """Count the result of a case; those of its trials come one after the other."""
        if self._case and (self._case[0].test_id != result.test_id or self._case[0].file != result.file):
            self.close()
        self._case.append(result)

    def take(self, results: Iterable[CaseResult]) -> Self:
        """Count the results of a run that is at hand, in any order."""
        for trials in cases_of(results):
            for result in trials:
                self.add(result)
        return self.close()

    def close(self) -> Self:
        """Count the trials of the last case: no more of them come."""
        attempts, self._case = self._case, []
        for trials in apart(attempts):
            case = folded_case(trials, self.trials.rule)
            self.trials.add(trials)
            self._count(case)
            for listing in self._listings:
                listing.add(case, passed_of(trials), len(trials))
        if self._earlier and not self.unchanged:
            self.unchanged = any(self._before(one) is not None for one in attempts)
        return self

    def _count(self, case: CaseResult) -> None:
        profile, before = self._profile(case), self._before(case)
        points = _points(case) if profile.counted else 0
        for key in self._keys(case):
            sums = self.groups.get(key)
            if sums is None:
                sums = self.groups[key] = Sums()
            sums.add(profile, points)
            if self.facet and profile.counted:
                sums.clusters.add(cluster_of(case, self.facet))
            if before is not None:
                old = self._profile(before)
                pairs = PairsKey(key, old.counted and profile.counted, profile.due)
                then, now = self.pairs.setdefault(pairs, (Sums(), Sums()))
                then.add(old, _points(before) if old.counted else 0)
                now.add(profile, points)
        if case.case_id in self._wanted and self.required.get(case.case_id, "passed") == "passed":
            self.required[case.case_id] = case.verdict

    def _profile(self, case: CaseResult) -> Profile:
        fields = (
            case.verdict,
            case.kind if case.kind in QUARANTINE else "",
            case.score is not None,
            case.decision,
            case.utility,
            case.valid,
            case.expects_refusal,
            case.refused,
            case.match_depth,
            case.llm_backend,
            case.llm_model,
            case.judge,
            case.stale,
            case.cached > 0,
        )
        found = self._profiles.get(fields)
        if found is None:
            found = self._profiles[fields] = Profile(*fields)
        return found

    def _before(self, case: CaseResult) -> CaseResult | None:
        found = self._earlier.get(case.test_id) if self._earlier else None
        return found if found is not None and same_case(found, case) else None

    def _keys(self, case: CaseResult) -> list[GroupKey]:
        readable = bool(case.case_type)
        keys = [GroupKey("", "", readable), GroupKey("case_type", case.case_type, readable)]
        keys.append(GroupKey("difficulty", case.difficulty, readable))
        # a facet of one of our own names would count its cases twice
        keys += [GroupKey(name, value, readable) for name, value in case.facets.items() if name not in _OURS]
        if self._by_tag:
            keys += [GroupKey(TAG, tag, readable) for tag in dict.fromkeys(case.tags)]
        return keys

    def add_record(self, record: EvalRecord) -> None:
        """Count a record; trials of a case come in any order, and each counts."""
        own = record.packbench
        mode = judge = ""
        trial = 0
        if own:
            mode, judge, trial = _text(own.get("mode")), _judge(own.get("judge")), _trial(own)
        digest = _digest(record.run_id, record.test_id, trial)
        state = self._seen.get(digest)
        if state is None:
            self._seen[digest] = _ONCE[record.passed]
            cells = self.cells
            if trial:
                first = _digest(record.run_id, record.test_id, 0)
                self._later.setdefault((record.run_id, record.test_suite), set()).add(first)
            if not record.passed:
                self._note_failing(record, trial)
        else:
            cells = self.repeated
            passed, named = state
            name = TrialId(record.run_id, record.test_id, trial)
            self.duplicates.add(name, agrees=passed is record.passed, named=named)
            self._seen[digest] = _AGAIN[passed]
        key = (
            record.run_id,
            record.test_suite,
            record.attack_category,
            mode,
            record.llm_backend,
            record.llm_model,
            judge,
        )
        cell = cells.get(key)
        if cell is None:
            cell = cells[key] = Cell()
        cell.add(record)

    def add_error(self, line: ErrorLine) -> None:
        """Count an error line, of lines with the same run, test id, trial and verdict the first."""
        digest = _digest(line.run_id, f"{line.verdict} {line.test_id}", line.trial)
        if digest in self._seen_errors:
            return
        self._seen_errors.add(digest)
        place = (line.run_id, line.test_id.partition(":")[0])
        label = f"quarantined: {line.kind}" if line.kind in QUARANTINE else line.verdict
        self.errors.setdefault(place, Counter())[label] += 1

    def only_later(self, run_id: str, suite: str) -> int:
        """Count the cases of which a later trial left a record and the first did not."""
        return sum(first not in self._seen for first in self._later.get((run_id, suite), ()))

    def _note_failing(self, record: EvalRecord, trial: int) -> None:
        own = record.packbench or {}
        case = FailingCase(
            test_id=record.test_id,
            trial=trial,
            category=record.attack_category,
            expected=record.expected,
            agent_decision=record.agent_decision,
            backend=record.llm_backend,
            model=record.llm_model,
            score=_number(own.get("score"), 1),
            threshold=_number(own.get("threshold"), 1),
        )
        found = self.failing.setdefault((record.run_id, record.test_suite), [])
        _keep_first(found, case, MOST_FAILING, key=lambda one: (one.test_id, one.trial))


_OURS = frozenset({"case_type", "difficulty", TAG})


def merged(sums: Iterable[Sums]) -> Sums:
    """Add up the sums of groups that share no result."""
    whole = Sums()
    for one in sums:
        whole.absorb(one)
    return whole


def _points(case: CaseResult) -> float:
    """Give a score in whole parts of `_FINEST`; one that is not finite stays as it is."""
    if case.score is None:
        return 0
    if not isfinite(case.score):
        return case.score
    top, bottom = case.score.as_integer_ratio()
    return top << (_FINEST_BITS - bottom.bit_length() + 1)


def _keep_first(found: list[_Item], item: _Item, most: int, key: Callable[[_Item], Any]) -> None:
    """Put an item in its place in a sorted list that keeps its `most` first ones."""
    if len(found) < most or key(item) < key(found[-1]):
        insort(found, item, key=key)
        del found[most:]


def _digest(run_id: str, test_id: str, trial: int) -> bytes:
    # the length keeps apart what would read the same when joined
    text = f"{trial} {len(run_id)} {run_id}{test_id}"
    return blake2b(text.encode(), digest_size=_DIGEST).digest()


def _trial(own: Mapping[str, Any]) -> int:
    trial = own.get("trial")
    return trial if type(trial) is int and 0 <= trial <= U32_MAX else 0


def _number(value: object, most: float) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _judge(value: object) -> str:
    # an object also says what the judge found, which must not make a group of its own
    if isinstance(value, dict):
        return " / ".join(value[name] for name in ("name", "backend", "model") if isinstance(value.get(name), str))
    return _text(value)
