"""Count results of cases, wire records and error lines one by one, without keeping them.

Statistics, gates and reports are computed from these sums only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pytest_packbench.analysis.listing import keep_first
from pytest_packbench.analysis.metrics import RecordSums, ResultSums, number_of, points_of, trial_of
from pytest_packbench.analysis.trials import (
    MEAN,
    TrialCounter,
    cluster_of,
    count_passed,
    fold_case,
    group_by_case,
    required_passes,
    split_attempts,
)
from pytest_packbench.model.metric import GENERAL_METRICS, Profile
from pytest_packbench.model.score import FIXTURE, QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_packbench.analysis.trials import Rule
    from pytest_packbench.model.metric import Metric
    from pytest_packbench.model.record import EvalRecord
    from pytest_packbench.model.result import Result
    from pytest_packbench.runs.lines import ErrorLine

    # the metrics of the pack of a record: of its `packbench.pack` (`name/version`) and its `test_suite`
    MetricsOf = Callable[[str, str], Mapping[str, Metric]]
    # a case over all its trials, how many of them passed, and how many there are
    EachCase = Callable[[Result, int, int], None]

MAX_FAILING = 20
MAX_DUPLICATES = 10
TAG = "tag"
# a facet of one of these names would count its cases twice
_RESERVED_FACETS = frozenset({"", "case_type", "difficulty", TAG})
_DIGEST_BYTES = 16
# whether a record passed, and whether it has a duplicate; these tuples are shared by all records
_UNIQUE = ((False, False), (True, False))
_DUPLICATED = ((False, True), (True, True))


class RecordKey(NamedTuple):
    """The fields by which records are grouped.

    Attributes:
        run_id: the run.
        suite: the record's `test_suite`.
        category: the record's `attack_category`.
        mode: `packbench.mode`; empty if the record has none.
        backend: the record's `llm_backend`.
        model: the record's `llm_model`.
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


class TrialId(NamedTuple):
    """The identity of a record: run, test id and `packbench.trial`, 0 if it has none."""

    run_id: str
    test_id: str
    trial: int


class FailingCase(NamedTuple):
    """A record that did not pass, with fields of the record and of its `packbench` object."""

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
    """Records whose identity occurred before.

    Attributes:
        count: how many.
        names: how many different identities they have.
        conflicting: those that passed although the counted record failed, or the reverse.
        first: the first `MAX_DUPLICATES` identities, sorted.
    """

    count: int = 0
    names: int = 0
    conflicting: int = 0
    first: list[TrialId] = field(default_factory=list)

    def add(self, trial: TrialId, *, agrees: bool, known: bool) -> None:
        """Count a duplicate.

        Args:
            trial: its identity.
            agrees: whether it passed or failed like the counted record.
            known: whether it is a second or later duplicate of that record.
        """
        self.count += 1
        self.conflicting += not agrees
        if not known:
            self.names += 1
            keep_first(self.first, trial, MAX_DUPLICATES, key=lambda each: each)


class GroupKey(NamedTuple):
    """What the results of a group share.

    Attributes:
        name: `case_type`, `difficulty`, `tag` or a facet's name; empty for all results.
        value: what they share; empty for all results, and for unreadable cases.
        readable: whether the case could be read; the groups of unreadable cases are unknown.
    """

    name: str
    value: str
    readable: bool


class PairsKey(NamedTuple):
    """What pairs of results, before and now, share.

    Attributes:
        group: the group of the result now.
        judged: whether both results are in the rates.
        due: whether the case has to end as passed or failed now.
    """

    group: GroupKey
    judged: bool
    due: bool


class Tally:
    """Count the results of one run, or the records and error lines of any number of runs.

    Of records with the same run, test id and trial the first one counts. Apart from that, and from the order of
    `record_sums`, the order of records makes no difference.

    Args:
        metrics: the metrics of the pack, by name, beside the general ones.
        metrics_of: the same for records, by their `packbench.pack` and `test_suite`.
        trials_rule: the trials rule.
        by_tag: also group results by tag.
        required: ids of the cases whose verdicts to keep.
        facet: what cases share by design, so that they are not independent; empty for none.
        mode: the mode of the run.
        earlier: the cases of the run to compare with, by test id; None for none.
        each_case: functions called with each case over all its trials, how many of them passed, and how many there are.

    Attributes:
        metrics: all metrics that gates can name.
        metrics_of: the metrics of the pack of a record.
        groups: sums of results by group; a case with several trials is one result.
        pairs: sums, before and now, of the cases that are unchanged in both runs.
        unchanged: whether any case is unchanged in both runs.
        required: verdicts of the required cases; if an id occurs several times, the first that is not `passed`.
        facet: the argument.
        trials: what repeating the cases showed.
        record_sums: sums of the counted records by the fields of `RecordKey`, in the order of their first records.
        duplicate_sums: the same for duplicates.
        duplicates: how many duplicates there are, and which.
        failing: the first `MAX_FAILING` failing records by test id and trial, by run and suite.
        errors: number of error lines by run and suite, and by verdict or kind of quarantine.
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
        mode: str = FIXTURE,
        earlier: Mapping[str, Result] | None = None,
        each_case: Iterable[EachCase] = (),
    ) -> None:
        required_passes(trials_rule, 1)
        self.metrics: Mapping[str, Metric] = {**(metrics or {}), **GENERAL_METRICS}
        self.metrics_of = metrics_of
        self.groups: dict[GroupKey, ResultSums] = {}
        self.pairs: dict[PairsKey, tuple[ResultSums, ResultSums]] = {}
        self.unchanged = False
        self.required: dict[str, str] = {}
        self.trials = TrialCounter(trials_rule)
        self.facet = facet
        self._mode = mode
        self._by_tag = by_tag
        self._required_ids = frozenset(required)
        self._earlier = earlier
        self._each_case = tuple(each_case)
        self._attempts: list[Result] = []
        self._profiles: dict[tuple[Any, ...], Profile] = {}
        self._excluded = excluded_facets(self.metrics)
        self._excluded_of: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}
        self.record_sums: dict[tuple[str, ...], RecordSums] = {}
        self.duplicate_sums: dict[tuple[str, ...], RecordSums] = {}
        self.duplicates = Duplicates()
        self.failing: dict[tuple[str, str], list[FailingCase]] = {}
        self.errors: dict[tuple[str, str], Counter[str]] = {}
        # by a record's digest: whether it passed, and whether it has a duplicate
        self._seen: dict[bytes, tuple[bool, bool]] = {}
        self._seen_errors: set[bytes] = set()
        # by run and suite: for cases with a later trial, the digest of their first one
        self._first_trials: dict[tuple[str, str], set[bytes]] = {}

    def add(self, result: Result) -> None:
        """Count a result; the trials of a case have to follow each other."""
        if self._attempts and (
            self._attempts[0].case.test_id != result.case.test_id or self._attempts[0].case.file != result.case.file
        ):
            self.close()
        self._attempts.append(result)

    def add_all(self, results: Iterable[Result]) -> Self:
        """Count the results of a run, in any order."""
        self.close()
        for trials in group_by_case(results):
            self._count(trials)
        return self

    def close(self) -> Self:
        """Count the last case, which has no more trials."""
        attempts, self._attempts = self._attempts, []
        for trials in split_attempts(attempts):
            self._count(trials)
        return self

    def _count(self, trials: Sequence[Result]) -> None:
        """Count a case by all its trials."""
        case = fold_case(trials, self.trials.rule)
        self.trials.add(trials)
        for callback in self._each_case:
            callback(case, count_passed(trials), len(trials))
        if self._earlier and not self.unchanged:
            self.unchanged = any(self._earlier_result(trial) is not None for trial in trials)
        profile, before = self._profile(case), self._earlier_result(case)
        points = points_of(case.score.score) if profile.counted else 0
        for key in self._group_keys(case):
            sums = self.groups.get(key)
            if sums is None:
                sums = self.groups[key] = ResultSums()
            sums.add(profile, points)
            if self.facet and profile.counted:
                sums.clusters.add(cluster_of(case, self.facet))
            if before is not None:
                old_profile = self._profile(before)
                pairs_key = PairsKey(key, old_profile.counted and profile.counted, profile.due)
                old, new = self.pairs.setdefault(pairs_key, (ResultSums(), ResultSums()))
                old.add(old_profile, points_of(before.score.score) if old_profile.counted else 0)
                new.add(profile, points)
        if case.case.case_id in self._required_ids and self.required.get(case.case.case_id, "passed") == "passed":
            self.required[case.case.case_id] = case.score.verdict

    def _profile(self, case: Result) -> Profile:
        fields = (
            case.score.verdict,
            case.score.kind if case.score.kind in QUARANTINE else "",
            case.score.score is not None,
            case.score.decision,
            case.score.utility,
            case.score.valid,
            case.case.expects_refusal,
            case.score.refused,
            case.score.match_depth,
            case.score.match_level,
            case.attempt.llm_backend,
            case.attempt.llm_model,
            case.score.judge,
            case.attempt.stale,
            case.attempt.remark,
            case.attempt.cached > 0,
            tuple([facet for facet in self._excluded if case.case.facets.get(facet[0]) == facet[1]]),
        )
        profile = self._profiles.get(fields)
        if profile is None:
            profile = self._profiles[fields] = Profile(*fields, mode=self._mode)
        return profile

    def _earlier_result(self, case: Result) -> Result | None:
        earlier = self._earlier.get(case.case.test_id) if self._earlier else None
        return earlier if earlier is not None and same_case(identity_of(earlier), identity_of(case)) else None

    def _group_keys(self, case: Result) -> list[GroupKey]:
        readable = bool(case.case.case_type)
        keys = [GroupKey("", "", readable), GroupKey("case_type", case.case.case_type, readable)]
        keys.append(GroupKey("difficulty", case.case.difficulty, readable))
        keys += [
            GroupKey(name, value, readable) for name, value in case.case.facets.items() if name not in _RESERVED_FACETS
        ]
        if self._by_tag:
            keys += [GroupKey(TAG, tag, readable) for tag in dict.fromkeys(case.case.tags)]
        return keys

    def add_record(self, record: EvalRecord) -> None:
        """Count a record; each trial of a case counts, in any order."""
        packbench = record.packbench
        pack = mode = judge = ""
        trial = 0
        if packbench:
            pack, mode = _text(packbench.get("pack")), _text(packbench.get("mode"))
            judge, trial = _judge(packbench.get("judge")), trial_of(packbench)
        digest = _digest(record.run_id, record.test_id, trial)
        state = self._seen.get(digest)
        if state is None:
            self._seen[digest] = _UNIQUE[record.passed]
            group = self.record_sums
            if trial:
                first = _digest(record.run_id, record.test_id, 0)
                self._first_trials.setdefault((record.run_id, record.test_suite), set()).add(first)
            if not record.passed:
                self._add_failing(record, trial)
        else:
            group = self.duplicate_sums
            passed, known = state
            trial_id = TrialId(record.run_id, record.test_id, trial)
            self.duplicates.add(trial_id, agrees=passed is record.passed, known=known)
            self._seen[digest] = _DUPLICATED[passed]
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
        sums = group.get(key)
        if sums is None:
            sums = group[key] = RecordSums()
        sums.add(record, self._excluded_facets(packbench, pack, record.test_suite) if packbench else ())

    def _excluded_facets(self, packbench: Mapping[str, Any], pack: str, suite: str) -> tuple[tuple[str, str], ...]:
        """Return the facets of a record that a metric of its pack excludes."""
        excluded = self._excluded_of.get((pack, suite))
        if excluded is None:
            excluded = self._excluded_of[pack, suite] = excluded_facets(self.metrics_of(pack, suite))
        facets = packbench.get("facets") if excluded else None
        return tuple([each for each in excluded if facets.get(each[0]) == each[1]]) if isinstance(facets, dict) else ()

    def add_error(self, line: ErrorLine) -> None:
        """Count an error line; of lines with the same run, test id, trial and verdict the first one counts."""
        digest = _digest(line.run_id, f"{line.verdict} {line.test_id}", line.trial)
        if digest in self._seen_errors:
            return
        self._seen_errors.add(digest)
        run_and_suite = (line.run_id, line.test_id.partition(":")[0])
        label = f"quarantined: {line.kind}" if line.kind in QUARANTINE else line.verdict
        self.errors.setdefault(run_and_suite, Counter())[label] += 1

    def cases_without_first_trial(self, run_id: str, suite: str) -> int:
        """Return how many cases have a record of a later trial but none of the first."""
        return sum(first not in self._seen for first in self._first_trials.get((run_id, suite), ()))

    def _add_failing(self, record: EvalRecord, trial: int) -> None:
        packbench = record.packbench or {}
        case = FailingCase(
            test_id=record.test_id,
            trial=trial,
            category=record.attack_category,
            expected=record.expected,
            agent_decision=record.agent_decision,
            backend=record.llm_backend,
            model=record.llm_model,
            score=number_of(packbench.get("score"), 1),
            threshold=number_of(packbench.get("threshold"), 1),
        )
        cases = self.failing.setdefault((record.run_id, record.test_suite), [])
        keep_first(cases, case, MAX_FAILING, key=lambda each: (each.test_id, each.trial))


class Identity(NamedTuple):
    """What a case was judged by.

    Attributes:
        test_id: its id.
        case_sha256: the hash of its content; None in records of other tools, which are taken to be of an unedited case.
        judge: the name of the judge that counted, or None; an empty text where nothing was judged.
    """

    test_id: str
    case_sha256: str | None
    judge: str | None


def identity_of(result: Result) -> Identity:
    """Return what a result was judged by."""
    return Identity(result.case.test_id, result.case.case_sha256, result.score.judge if result.score.counted else "")


def same_case(before: Identity, after: Identity) -> bool:
    """Whether two results are of the same unedited case and of the same judge."""
    if before.test_id != after.test_id or judges_differ(before, after):
        return False
    return before.case_sha256 == after.case_sha256 or None in (before.case_sha256, after.case_sha256)


def judges_differ(before: Identity, after: Identity) -> bool:
    """Whether the results of a case were judged by different judges."""
    return "" not in (before.judge, after.judge) and before.judge != after.judge


def excluded_facets(metrics: Mapping[str, Metric]) -> tuple[tuple[str, str], ...]:
    """Return the facets whose cases metrics exclude or count apart, with their values, each once."""
    facets = (facet for metric in metrics.values() for facet in (metric.excluded, metric.apart))
    return tuple(dict.fromkeys(facet for facet in facets if facet is not None))


def _digest(run_id: str, test_id: str, trial: int) -> bytes:
    # with its length, a run id can't run into the test id
    text = f"{trial} {len(run_id)} {run_id}{test_id}"
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _judge(value: object) -> str:
    # other keys of the object are about the single answer, and would make each record a group
    if isinstance(value, dict):
        return " / ".join(value[name] for name in ("name", "backend", "model") if isinstance(value.get(name), str))
    return _text(value)
