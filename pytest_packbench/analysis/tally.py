"""Count results of cases one by one, without keeping them.

Statistics, gates and reports are computed from these sums only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pytest_packbench.analysis.metrics import ResultSums, points_of
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
    from pytest_packbench.model.result import Result

    # a case over all its trials, how many of them passed, and how many there are
    EachCase = Callable[[Result, int, int], None]

TAG = "tag"
# a facet of one of these names would count its cases twice
_RESERVED_FACETS = frozenset({"", "case_type", "difficulty", TAG})


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
    """Count the results of one run.

    Args:
        metrics: the metrics of the pack, by name, beside the general ones.
        trials_rule: the trials rule.
        by_tag: also group results by tag.
        required: ids of the cases whose verdicts to keep.
        facet: what cases share by design, so that they are not independent; empty for none.
        mode: the mode of the run.
        earlier: the cases of the run to compare with, by test id; None for none.
        each_case: functions called with each case over all its trials, how many of them passed, and how many there are.

    Attributes:
        metrics: all metrics that gates can name.
        groups: sums of results by group; a case with several trials is one result.
        pairs: sums, before and now, of the cases that are unchanged in both runs.
        unchanged: whether any case is unchanged in both runs.
        required: verdicts of the required cases; if an id occurs several times, the first that is not `passed`.
        facet: the argument.
        trials: what repeating the cases showed.
    """

    def __init__(
        self,
        *,
        metrics: Mapping[str, Metric] | None = None,
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
