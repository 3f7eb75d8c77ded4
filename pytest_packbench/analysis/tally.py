"""Counting one by one what runs leave: results of cases, wire records, error lines. No run is held whole.

Statistics, gates and reports are made of the sums alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pytest_packbench.analysis.listing import keep_first
from pytest_packbench.analysis.sums import Cell, Sums, number_of, points_of, trial_of
from pytest_packbench.analysis.trials import MEAN, Trials, apart, cases_of, cluster_of, folded_case, needed, passed_of
from pytest_packbench.model.metric import GENERAL_METRICS, Profile
from pytest_packbench.model.result import QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_packbench.analysis.comparison import Ending
    from pytest_packbench.analysis.trials import Rule
    from pytest_packbench.model.metric import Metric
    from pytest_packbench.model.record import EvalRecord
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.runs.lines import ErrorLine

    # the metrics of the pack of a record: of its `packbench.pack` (`name/version`) and its `test_suite`
    MetricsOf = Callable[[str, str], Mapping[str, Metric]]
    # a case over all its trials, how many of them passed, and how many there are
    EachCase = Callable[[CaseResult, int, int], None]

MOST_FAILING = 20
MOST_DUPLICATES = 10
TAG = "tag"
# a facet of one of these names would count its cases twice
_OURS = frozenset({"", "case_type", "difficulty", TAG})
_DIGEST = 16
# whether a record passed, and whether there is a duplicate of it: tuples shared by all records
_ONCE = ((False, False), (True, False))
_AGAIN = ((False, True), (True, True))


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
        pack: `packbench.pack`, `name/version`; empty in foreign records.
    """

    run_id: str
    suite: str
    category: str
    mode: str
    backend: str
    model: str
    judge: str
    pack: str


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
        """Count one: whether it `agrees` with the record that counts, and whether its name is `named` already."""
        self.count += 1
        self.conflicting += not agrees
        if not named:
            self.names += 1
            keep_first(self.first, name, MOST_DUPLICATES, key=lambda one: one)


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
        metrics: the metrics of the pack, by name, beside the general ones.
        metrics_of: the same for records, by their `packbench.pack` and `test_suite`.
        trials_rule: how a case's verdict is made of its trials.
        by_tag: whether to group results by tag too.
        required: ids of the cases whose verdicts are asked for.
        facet: what cases share by design, so that they are not independent; empty for none.
        earlier: the cases of the run to compare with, by test id; None for none.
        each_case: is told each case, over all its trials, with how many of them passed and how many there are.

    Attributes:
        metrics: all metrics that gates can name.
        metrics_of: those of the pack of a record.
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
        metrics: Mapping[str, Metric] | None = None,
        metrics_of: MetricsOf = lambda _pack, _suite: {},
        trials_rule: Rule = MEAN,
        by_tag: bool = False,
        required: Iterable[str] = (),
        facet: str = "",
        earlier: Mapping[str, CaseResult] | None = None,
        each_case: Iterable[EachCase] = (),
    ) -> None:
        needed(trials_rule, 1)
        self.metrics: Mapping[str, Metric] = {**(metrics or {}), **GENERAL_METRICS}
        self.metrics_of = metrics_of
        self.groups: dict[GroupKey, Sums] = {}
        self.pairs: dict[PairsKey, tuple[Sums, Sums]] = {}
        self.unchanged = False
        self.required: dict[str, str] = {}
        self.trials = Trials(trials_rule)
        self.facet = facet
        self._by_tag = by_tag
        self._wanted = frozenset(required)
        self._earlier = earlier
        self._each_case = tuple(each_case)
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
        self.close()
        for trials in cases_of(results):
            self._count(trials)
        return self

    def close(self) -> Self:
        """Count the trials of the last case: no more of them come."""
        attempts, self._case = self._case, []
        for trials in apart(attempts):
            self._count(trials)
        return self

    def _count(self, trials: Sequence[CaseResult]) -> None:
        """Count a case by all its trials."""
        case = folded_case(trials, self.trials.rule)
        self.trials.add(trials)
        for tell in self._each_case:
            tell(case, passed_of(trials), len(trials))
        if self._earlier and not self.unchanged:
            self.unchanged = any(self._before(one) is not None for one in trials)
        profile, before = self._profile(case), self._before(case)
        points = points_of(case.score) if profile.counted else 0
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
                then.add(old, points_of(before.score) if old.counted else 0)
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
        keys += [GroupKey(name, value, readable) for name, value in case.facets.items() if name not in _OURS]
        if self._by_tag:
            keys += [GroupKey(TAG, tag, readable) for tag in dict.fromkeys(case.tags)]
        return keys

    def add_record(self, record: EvalRecord) -> None:
        """Count a record; trials of a case come in any order, and each counts."""
        own = record.packbench
        pack = mode = judge = ""
        trial = 0
        if own:
            pack, mode = _text(own.get("pack")), _text(own.get("mode"))
            judge, trial = _judge(own.get("judge")), trial_of(own)
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
            pack,
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
            score=number_of(own.get("score"), 1),
            threshold=number_of(own.get("threshold"), 1),
        )
        found = self.failing.setdefault((record.run_id, record.test_suite), [])
        keep_first(found, case, MOST_FAILING, key=lambda one: (one.test_id, one.trial))


def same_case(before: CaseResult | Ending, after: CaseResult | Ending) -> bool:
    """Whether a result of each run tells of one unchanged case, ruled on by the same judge.

    Records of others tell no hash and are believed.
    """
    if before.test_id != after.test_id or judges_differ(before, after):
        return False
    return before.case_sha256 == after.case_sha256 or None in (before.case_sha256, after.case_sha256)


def judges_differ(before: CaseResult | Ending, after: CaseResult | Ending) -> bool:
    """Whether two different judges ruled on results of a case."""
    # nobody ruled on what broke, which is no other judge
    return before.counted and after.counted and before.judge != after.judge


def _digest(run_id: str, test_id: str, trial: int) -> bytes:
    # the length keeps apart what would read the same when joined
    text = f"{trial} {len(run_id)} {run_id}{test_id}"
    return blake2b(text.encode(), digest_size=_DIGEST).digest()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _judge(value: object) -> str:
    # an object also says what the judge found, which must not make a group of its own
    if isinstance(value, dict):
        return " / ".join(value[name] for name in ("name", "backend", "model") if isinstance(value.get(name), str))
    return _text(value)
