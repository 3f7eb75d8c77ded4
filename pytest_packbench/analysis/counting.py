"""The numbers of a run: results are counted one by one, each case once; what a report says in numbers follows.

A `Profile` contains all that a figure needs of one result, beside its score; a run has few different ones.
`ResultSums` count the results of a group by profile and add up their scores. The trials of a case are folded into one
result first, by the suite's trials rule. Then one table has the sums of each group of cases; totals, rates, depths,
refusals and gates are readings of it. Cases that share a part by design, such as one attack paired with many tasks,
form a cluster: the run's settings name the facet they share.
"""

from __future__ import annotations

import math
import re
from bisect import insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pytest_packbench.analysis.labels import Confusion
from pytest_packbench.analysis.statistics import format_with_bounds, wilson_interval
from pytest_packbench.model.errors import describe_raised, pluralize
from pytest_packbench.model.report import Depth, Exposure, Group, PassAt, Refusals, Totals, TrialFigures
from pytest_packbench.model.result import FIXTURE, QUARANTINE, TOLERANCE, UNREAD, VERDICTS, Result, Score, values_of
from pytest_packbench.model.run import BUNDLED, CLUSTER_SETTING, Run
from pytest_packbench.model.suite import AUTHORED, EXPOSURE, GENERAL_METRICS, MEAN_SCORE, Metric, Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.result import Labels
    from pytest_packbench.model.suite import Gate

    # `mean`, `all`, `any`, or `{"at_least": k}`
    Rule = str | Mapping[str, Any]


_Key = TypeVar("_Key")
# scores are added as whole numbers, so that the sum does not depend on their order
_FINEST = 1 << 60


@dataclass(slots=True)
class ResultSums:
    """The sums over a group of results.

    Attributes:
        profiles: number of results by profile.
        points: the sum of the scores in the rates, in multiples of `1 / _FINEST`.
        clusters: the clusters of the results in the rates, if the tally has a facet.
        confusion: how the labels agree, once it was asked for; each result that is added takes it away.
    """

    profiles: Counter[Profile] = field(default_factory=Counter)
    points: int = 0
    clusters: set[str] = field(default_factory=set)
    confusion: Confusion | None = None

    def add(self, profile: Profile, score: float | None) -> None:
        """Add one result."""
        self.confusion = None
        self.profiles[profile] += 1
        if profile.counted and score is not None:
            self.points += round(score * _FINEST)

    def count(self, predicate: Callable[[Profile], object] = lambda _: True) -> int:
        """Return how many results have a profile for which the predicate is true."""
        return sum(number for profile, number in self.profiles.items() if predicate(profile))

    def count_by(self, key: Callable[[Profile], _Key]) -> Counter[_Key]:
        """Return the number of results for each value of the key."""
        counts: Counter[_Key] = Counter()
        for profile, number in self.profiles.items():
            counts[key(profile)] += number
        return counts

    @property
    def score(self) -> float:
        """The sum of the scores in the rates, rounded once, so that it does not depend on their order."""
        return self.points / _FINEST


class Fraction(NamedTuple):
    """A metric's value as numerator (`top`) over denominator (`bottom`)."""

    top: float
    bottom: int

    @property
    def value(self) -> float:
        """The quotient, 0 to 1.

        Raises:
            ZeroDivisionError: there is no case to judge.
        """
        return self.top / self.bottom


def confusion_of(sums: ResultSums) -> Confusion:
    """Return how the labels of the judged cases of a group agree with the expected ones."""
    if sums.confusion is None:
        sums.confusion = Confusion.of(sums.count_by(lambda profile: profile.labels if profile.counted else None))
    return sums.confusion


def measure(sums: ResultSums, metric: Metric, depth: int | None = None, label: str | None = None) -> Fraction:
    """Return a metric's value for a group of cases.

    Args:
        sums: those of the group.
        metric: what to measure.
        depth: for `accuracy`: the depth to which an answer has to agree, 1 by default.
        label: for a metric of labels: the label; None for all of them.
    """
    if metric.of_labels:
        return Fraction(*confusion_of(sums).share(metric.of_labels, label))

    def counts_in(result: Profile) -> bool:
        return metric.is_about(result) and bool(metric.among(result))

    def leads(result: Profile) -> bool:
        return counts_in(result) and metric.apart not in result.facets

    # without a case that leads, those that are counted apart are the group
    belongs = leads if metric.apart is not None and sums.count(leads) else counts_in
    among = sums.count(belongs)
    if metric is GENERAL_METRICS[MEAN_SCORE]:
        return Fraction(sums.score, among)
    return Fraction(sums.count(lambda result: belongs(result) and metric.counts(result, depth or 1)), among)


def excluded_facets(metrics: Mapping[str, Metric]) -> tuple[tuple[str, str], ...]:
    """Return the facets whose cases metrics exclude or count apart, with their values, each once."""
    facets = (facet for metric in metrics.values() for facet in (metric.excluded, metric.apart))
    return tuple(dict.fromkeys(facet for facet in facets if facet is not None))


class Bounds(NamedTuple):
    """The bounds of a value.

    Attributes:
        min: the smallest value that passes; None for no bound.
        max: the largest value that passes; None for no bound.
        tolerance: by how much a value may exceed a bound and still count as equal.
    """

    min: float | None = None
    max: float | None = None
    tolerance: float = TOLERANCE

    def is_enough(self, value: float) -> bool:
        """Whether a value is at or above `min`."""
        return self.min is None or value >= self.min - self.tolerance

    def is_within(self, value: float) -> bool:
        """Whether a value is at or below `max`."""
        return self.max is None or value <= self.max + self.tolerance

    def includes(self, value: float) -> bool:
        """Whether a value is within both bounds."""
        return self.is_enough(value) and self.is_within(value)


def line(subject: str, parts: Iterable[str], *, passed: bool) -> str:
    """Return a gate's decision in one line: its subject, the parts that are not empty, and PASS or FAIL."""
    return f"{subject} {', '.join(part for part in parts if part)}: {'PASS' if passed else 'FAIL'}"


def arithmetic(fraction: Fraction, bounds: Bounds, *, as_percent: bool = True, compared: bool = True) -> str:
    """Return a fraction, its value, and how that compares with the bounds: `3 / 50 = 6.0 % < min 90.0 %`.

    Args:
        fraction: the metric's fraction.
        bounds: those of the gate; the value has as many decimals as are needed to show how they compare.
        as_percent: whether the value is a share; else a mean score, `2.50 / 5 = 0.50`.
        compared: include the bounds.
    """
    value = fraction.value
    present = [bound for bound in (bounds.min, bounds.max) if bound is not None]
    number, *limits = format_with_bounds(value, *present, as_percent=as_percent)
    decimals = 0 if as_percent else len(number.partition(".")[2])
    comparisons = []
    if compared and bounds.min is not None:
        comparisons.append(f"{'>=' if bounds.is_enough(value) else '<'} min {limits[0]}")
    if compared and bounds.max is not None:
        comparisons.append(f"{'<=' if bounds.is_within(value) else '>'} max {limits[-1]}")
    return f"{fraction.top:.{decimals}f} / {fraction.bottom} = {number} {', '.join(comparisons)}".rstrip()


MEAN = "mean"
TAG = "tag"
ALL = ("", "")
"""The group of all cases."""
# only a case that can't be read has no type
_UNREADABLE = ("case_type", "")
_SETTING = "trials_rule"
_HASH = "[0-9a-f]{12,}"
_UNSAFE = "comply_unsafe"
# a trial with one of these verdicts gives it to the whole case; the first one found decides
_UNJUDGED = ("error", "vacuous", "not_run", "known_hole")
# a facet of one of these names would count its cases twice
_RESERVED_FACETS = frozenset({"", "case_type", "difficulty", TAG})
_NO_MODEL = frozenset({AUTHORED, "unknown", None})
# the order of groups in a report: difficulties go from easy to expert, all other values alphabetically
_GROUPING_RANKS = {"case_type": 0, "difficulty": 1}
_DIFFICULTIES = ("easy", "medium", "hard", "expert")
_KS = (1, 2, 3, 4, 5, 10, 20, 50, 100)
# the fields of a profile that a result has as well, in their order
_of_profile = values_of(
    *("verdict", "decision", "utility", "valid", "expects_refusal", "refused", "match_depth", "match_level"),
    *("llm_backend", "llm_model", "judge", "stale", "remark", "labels"),
)


class TrialsRuleError(ValueError):
    """A trials rule is invalid; the message is one line that says what was expected."""


class MetricError(ValueError):
    """A function of a pack's metric raises an exception; the message is one line with its place."""


def trials_rule_of(run: Run, default: Rule = MEAN) -> Rule:
    """Return the trials rule of a run; its settings contain one if it had several trials.

    Raises:
        TrialsRuleError: the setting is not a valid rule.
    """
    rule = run.settings.get(_SETTING, default)
    required_passes(rule, 1)
    return default if rule is None else rule


def trials_rule_text(rule: Rule) -> str:
    """Return a trials rule in words: `mean`, `at least 2`."""
    return rule if isinstance(rule, str) else f"at least {rule['at_least']}"


def required_passes(rule: Rule | None, trials: int) -> int | None:
    """Return how many of a case's trials have to pass, 1 or more; None if the mean score decides.

    Raises:
        TrialsRuleError: the rule is invalid.
    """
    if rule in (MEAN, None):
        return None
    if rule in ("all", "any"):
        return trials if rule == "all" else 1
    least = rule.get("at_least") if hasattr(rule, "get") and len(rule) == 1 else None
    if not isinstance(least, int) or isinstance(least, bool) or least < 1:
        raise TrialsRuleError(
            f"trials: expected mean, all, any, or at_least with a whole number of 1 or more; got {rule!r:.60}"
        )
    return least


def by_case(results: Iterable[Result]) -> Iterator[Sequence[Result]]:
    """Yield the attempts at each case.

    Attempts with the same test id and file are one case if their trial numbers differ; if a number occurs twice, each
    attempt is a case of its own.

    Args:
        results: a sequence in any order, whose cases are yielded by test id; or a stream in which the results of a case
            follow each other, read while its cases are yielded.
    """
    for _, group in groupby(in_order(results), key=_case_key):
        attempts = list(group)
        is_one = len(attempts) == 1 or len({result.attempt.trial for result in attempts}) == len(attempts)
        yield from [attempts] if is_one else ([result] for result in attempts)


def in_order(results: Iterable[Result]) -> Iterable[Result]:
    """Return results as `by_case` takes them: a sequence sorted by case and trial, a stream as it is."""
    if isinstance(results, list | tuple):
        return sorted(results, key=lambda result: (*_case_key(result), result.attempt.trial))
    return results


def _case_key(result: Result) -> tuple[str, str]:
    return result.case.test_id, result.case.file


def fold_case(attempts: Sequence[Result], rule: Rule = MEAN) -> Result:
    """Fold the trials of one case, at least one, into one result.

    Yes-or-no properties of a case are those of its worst trial: an attack that succeeded once has succeeded.
    `decision`, `refused`, `utility`, `match_depth` and the terms come from that trial. If any trial was not judged,
    neither is the case: errors are never averaged away. A vacuous trial hides no failure: if another one failed, the
    judged ones decide. A single result is returned unchanged, whatever the rule.

    Args:
        attempts: in any order.
        rule: the trials rule.

    Raises:
        TrialsRuleError: the rule is invalid.
    """
    if len(attempts) == 1:
        return attempts[0]
    trials, least = sorted(attempts, key=lambda trial: trial.attempt.trial), required_passes(rule, len(attempts))
    judged = [trial for trial in trials if trial.score.counted]
    unjudged = _unjudged(trials)
    threshold = next((trial.score.threshold for trial in trials if trial.score.threshold is not None), None)
    changes: dict[str, Any]
    if unjudged is None:
        mean = _mean_score(judged)
        passed = _passes(judged, mean, threshold, least)
        # what it passed with is not explained by a trial that a rule other than the mean forgives
        forgives = passed and least is not None
        shown = min((trial for trial in judged if not (forgives and has_hard_fail(trial))), key=_badness)
        changes = {"verdict": "passed" if passed else "failed", "kind": "", "message": "", "score": mean}
    else:
        shown = unjudged if unjudged.score.quarantined else min(trials, key=_badness)
        score = unjudged.score
        reason = f"trial {trials.index(unjudged) + 1} of {len(trials)}{score.message and f': {score.message}'}"
        message = reason if score.verdict in _UNJUDGED else ""
        changes = {"verdict": score.verdict, "kind": score.kind, "message": message, "score": None}
    costs = [trial.attempt.cost_usd for trial in trials if trial.attempt.cost_usd is not None]
    attempt = replace(
        shown.attempt,
        timestamp=max(trial.attempt.timestamp for trial in trials),
        duration_ms=sum(trial.attempt.duration_ms for trial in trials),
        stale=any(trial.attempt.stale for trial in trials),
        remark=next((trial.attempt.remark for trial in trials if trial.attempt.remark), ""),
        cached=sum(trial.attempt.cached for trial in trials),
        cost_usd=sum(costs) if len(costs) == len(trials) else None,
        trial=0,
        payload=None,
    )
    worst = _worst([trial.score for trial in judged], expects_refusal=trials[0].case.expects_refusal)
    score = replace(shown.score, threshold=threshold, **changes, **worst)
    return Result(case=shown.case, attempt=attempt, score=score, folded=(sum(map(_has_passed, trials)), len(trials)))


def cases_of(run: Run, results: Iterable[Result], rule: Rule = MEAN) -> Iterator[Result]:
    """Return each case of a stored run once, over its trials; of two cases with the same test id the worse one.

    Args:
        run: what is true of its results.
        results: as `by_case` groups them.
        rule: the trials rule, unless the settings of the run contain one.

    Raises:
        TrialsRuleError: the settings of the run contain an invalid trials rule.
    """
    rule = trials_rule_of(run, rule)
    return without_twins(fold_case(trials, rule) for trials in by_case(results))


def without_twins(cases: Iterable[Result]) -> Iterator[Result]:
    """Yield of cases with the same test id, which follow each other, the worse one, with the trials of all."""
    for _, twins in groupby(cases, key=lambda case: case.case.test_id):
        yield reduce(_worse, twins)


def _worse(one: Result, other: Result) -> Result:
    """Return the worse of two cases with the same test id, with the trials of both."""
    worse = min(one, other, key=_goodness)
    passed, trials = (sum(each) for each in zip(one.trials, other.trials, strict=True))
    return replace(worse, folded=(passed, trials))


def _goodness(case: Result) -> tuple[bool, bool, float, str]:
    return case.score.counted, case.score.verdict == "passed", case.score.score or 0.0, case.case.file


def _unjudged(trials: Sequence[Result]) -> Result | None:
    """Return the trial that leaves its case without a verdict that counts; None if there is none."""
    has_failed = any(trial.score.counted and trial.score.verdict == "failed" for trial in trials)
    verdicts = [verdict for verdict in _UNJUDGED if not (verdict == "vacuous" and has_failed)]
    # the case's own notes take precedence
    found = [trial for trial in trials if trial.score.quarantined]
    found += [trial for verdict in verdicts for trial in trials if trial.score.verdict == verdict]
    return found[0] if found else None


def _passes(trials: Sequence[Result], mean: float | None, threshold: float | None, least: int | None) -> bool:
    """Whether a case passes by its judged trials.

    A mean counts all of them, so that none may be a hard fail; the other rules count those that passed.
    """
    if least is None and mean is not None and threshold is not None:
        return mean >= threshold - TOLERANCE and not any(map(has_hard_fail, trials))
    # records of other tools have no score, only whether they passed
    return sum(map(_has_passed, trials)) >= (len(trials) if least is None else least)


def has_hard_fail(result: Result) -> bool:
    """Whether a term made the score of a trial exactly 0."""
    return any(term.effect == "zero" for term in result.score.terms)


def _has_passed(result: Result) -> bool:
    return result.score.verdict == "passed" and not result.score.quarantined


def _mean_score(trials: Sequence[Result]) -> float | None:
    scores = [result.score.score for result in trials if result.score.score is not None]
    return math.fsum(scores) / len(scores) if len(scores) == len(trials) else None


def _badness(result: Result) -> tuple[float, bool]:
    # of trials with the same score, an unsafe one is the worst
    return -1.0 if result.score.score is None else result.score.score, result.score.decision != _UNSAFE


def _worst(judged: Sequence[Score], *, expects_refusal: bool | None) -> dict[str, Any]:
    """Return what a case came to at worst, by the names of fields of its score."""
    refused = [score.refused for score in judged if score.refused is not None]
    decisions = {score.decision for score in judged} - {None}
    utilities = [score.utility for score in judged]
    return {
        "match_depth": min((score.match_depth for score in judged if score.match_depth is not None), default=None),
        # the worst is a refusal if an answer is expected, and an answer if a refusal is
        "refused": (all if expects_refusal else any)(refused) if refused else None,
        "decision": min(decisions, key=lambda decision: (decision != _UNSAFE, decision), default=None),
        "utility": None if None in utilities or not utilities else all(utilities),
        "labels": max((score.labels for score in judged if score.labels), key=_confused, default=None),
    }


class Statistics(NamedTuple):
    """The statistics of a run.

    Attributes:
        totals: number of cases by verdict.
        overall: all cases as one group, `name` and `value` empty.
        groups: by case type, by difficulty and by each facet; sorted.
        depth: by level, lowest first.
        refusals: expected against actual refusals.
        authored: judged cases whose answers a person or a script wrote.
        models: number of judged cases by `backend/model`, or by `model` where the backend is unknown; without
            authored and unknown answers.
        cached: judged cases with a model call that the response cache answered.
        remarks: number of cases by what has changed since their recording.
        trials: what repeating the cases showed; None if each had one trial.
        exposure: how many cases could have failed; None if all that ran could.
        unread: vacuous cases whose answer nobody could read.
        unread_answers: among the answers of `refusals`, those that nobody could read: of cases that expect a refusal,
            and of those that expect an answer.
    """

    totals: Totals
    overall: Group
    groups: tuple[Group, ...]
    depth: tuple[Depth, ...]
    refusals: Refusals
    authored: int
    models: dict[str, int]
    cached: int
    remarks: Mapping[str, int]
    trials: TrialFigures | None
    exposure: Exposure | None
    unread: int
    unread_answers: tuple[int, int]

    @property
    def all_authored(self) -> bool:
        """Whether no judged answer came from a model, so that the run only tests gates and scoring."""
        return 0 < self.authored == self.overall.n

    @property
    def has_intervals(self) -> bool:
        """Whether any judged answer was not authored, so that there may be intervals."""
        return self.authored < self.overall.n

    def grouped(self) -> dict[str, list[Group]]:
        """Return the groups by what they are grouped by, in order."""
        return {name: list(groups) for name, groups in groupby(self.groups, key=lambda group: group.name)}


def _confused(labels: Labels) -> int:
    return sum(expected != given for expected, given in labels)


class Numbers:
    """Count the cases of a run, one at a time, without keeping them.

    Args:
        gates: those that will judge the run: they ask for groups by tag, and for the verdicts of single cases.
        metrics: the metrics of the pack, by name, beside the general ones.
        rule: the trials rule.
        facet: what cases share by design, so that they are not independent; empty for none.
        mode: the mode of the run.
        pack: the name of the pack.

    Attributes:
        metrics: all metrics that gates can name.
        facet: the argument.
        groups: sums of results by name and value of their group, `ALL` for all of them; a case with several trials is
            one result.
        required: verdicts of the required cases; if an id occurs several times, the first that is not `passed`.
        max_trials: the largest number of trials of a case; 1 without a case.

    Raises:
        TrialsRuleError: the rule is invalid.
    """

    def __init__(
        self,
        gates: Iterable[Gate] = (),
        *,
        metrics: Mapping[str, Metric] | None = None,
        rule: Rule = MEAN,
        facet: str = "",
        mode: str = FIXTURE,
        pack: str = "",
    ) -> None:
        required_passes(rule, 1)
        gates = tuple(gates)
        self.metrics: Mapping[str, Metric] = {**(metrics or {}), **GENERAL_METRICS}
        self.facet = facet
        self.groups: dict[tuple[str, str], ResultSums] = defaultdict(ResultSums)
        self.required: dict[str, str] = {}
        self.max_trials = 1
        self._rule, self._mode, self._pack = rule, mode, pack
        self._has_tags = any(gate.by == TAG for gate in gates)
        self._required_ids = {name for gate in gates for name in gate.must_pass}
        self._excluded = excluded_facets(self.metrics)
        self._profiles: dict[tuple[Any, ...], Profile] = {}
        # over the cases whose trials were all judged: passed trials and all trials; mean scores
        self._passes: Counter[tuple[int, int]] = Counter()
        self._means: Counter[float] = Counter()

    def measure(self, name: str, sums: ResultSums, depth: int | None = None, label: str | None = None) -> Fraction:
        """Return the value of the metric with a name, as `measure` does.

        Raises:
            MetricError: a function of the metric raises an exception; states which one, and where.
        """
        try:
            return measure(sums, self.metrics[name], depth, label)
        except Exception as error:
            raise MetricError(f"the pack {self._pack} raised in metric {name}: {describe_raised(error)}") from error

    def add(self, attempts: Sequence[Result]) -> Result:
        """Count a case by all its attempts, at least one, and return what it came to."""
        case = fold_case(attempts, self._rule)
        profile = self.profile(case)
        for key in (ALL, *groups_of(case)):
            if key[0] == TAG and not self._has_tags:
                continue
            self.groups[key].add(profile, case.score.score)
            if self.facet and profile.counted:
                # no value contains a line end
                self.groups[key].clusters.add(case.case.facets.get(self.facet, f"\n{case.case.test_id}"))
        case_id = case.case.case_id
        if case_id in self._required_ids and self.required.get(case_id, "passed") == "passed":
            self.required[case_id] = case.score.verdict
        self.max_trials = max(self.max_trials, len(attempts))
        if all(trial.score.counted for trial in attempts):
            self._passes[case.trials] += 1
            if case.score.score is not None:
                self._means[case.score.score] += 1
        return case

    def profile(self, case: Result) -> Profile:
        """Return what metrics use of a case, the same object for equal ones."""
        verdict, *others = _of_profile(case)
        quarantine = case.score.kind if case.score.quarantined else ""
        facets = tuple([facet for facet in self._excluded if case.case.facets.get(facet[0]) == facet[1]])
        is_scored, is_cached = case.score.score is not None, case.attempt.cached > 0
        unread = case.score.valid is False or any(term.name in UNREAD for term in case.score.terms)
        is_unread = unread and not case.score.refused
        fields: tuple[Any, ...] = (verdict, quarantine, is_scored, *others, is_cached, facets, self._mode, is_unread)
        profile = self._profiles.get(fields)
        if profile is None:
            profile = self._profiles[fields] = Profile(*fields)
        return profile

    def statistics(self, levels: Sequence[int] | None = None) -> Statistics:
        """Return the statistics of the run.

        Rates are over judged results only; all others are counted separately. Groups by tag are used by gates only.

        Args:
            levels: depths to report, above 0; by default those that occur.
        """
        total, keys = self.groups[ALL], [key for key in self.groups if key[0] not in {"", TAG}]
        verdicts = total.count_by(lambda profile: profile.quarantine or profile.verdict)
        refusals = total.count_by(lambda profile: profile.counted and (profile.expects_refusal, profile.refused))
        unread = total.count_by(lambda profile: profile.counted and profile.unread and (profile.expects_refusal,))
        depths = total.count_by(lambda profile: profile.depth if profile.answer_due else None)
        authored = total.count(lambda profile: profile.authored)
        return Statistics(
            totals=Totals(
                selected=total.count(),
                verdicts={verdict: verdicts[verdict] for verdict in VERDICTS},
                quarantined={kind: verdicts[kind] for kind in QUARANTINE},
                stale=total.count(lambda profile: profile.stale),
            ),
            overall=_group("", "", total),
            groups=tuple(_group(*key, self.groups[key]) for key in sorted(keys, key=_rank)),
            depth=_depth_table(depths, levels, sampled=not authored),
            refusals=Refusals(*(refusals[due, refused] for due in (True, False) for refused in (True, False))),
            authored=authored,
            models=_named(total.count_by(_model_of)),
            cached=total.count(lambda profile: profile.counted and profile.cached),
            remarks=_named(total.count_by(lambda profile: profile.remark)),
            trials=self._trials(authored=authored > 0),
            exposure=_exposure(total),
            unread=total.count(lambda profile: profile.vacuous and profile.unread),
            unread_answers=(unread[True,], unread[False,]),
        )

    def _trials(self, *, authored: bool) -> TrialFigures | None:
        """Return what repeating the cases showed; None if no case has several trials."""
        if self.max_trials == 1:
            return None
        counts, means = list(self._passes.elements()), list(self._means.elements())
        return TrialFigures(
            rule=trials_rule_text(self._rule),
            trials=self.max_trials,
            attempts=sum(n for _, n in counts),
            cases=len(counts),
            mean_score=math.fsum(means) / len(means) if means else None,
            standard_error=None if authored else standard_error(means),
            passes=tuple(
                _pass_at(k, counts)
                for k in sorted({*_KS, self.max_trials})
                if k <= self.max_trials and any(n >= k for _, n in counts)
            ),
        )


def groups_of(result: Result) -> list[tuple[str, str]]:
    """Return name and value of each group that a case belongs to."""
    case = result.case
    facets = [(name, value) for name, value in case.facets.items() if name not in _RESERVED_FACETS]
    tags = [(TAG, tag) for tag in dict.fromkeys(case.tags)]
    return [("case_type", case.case_type), ("difficulty", case.difficulty), *facets, *tags]


def groups_by(groups: Mapping[tuple[str, str], ResultSums], name: str) -> dict[str, ResultSums]:
    """Return the sums of each group of a name, by its value, sorted.

    Cases that can't be read, whose groups are not known, are those of an empty value.
    """
    found = {value: sums for (each, value), sums in groups.items() if each == name and value}
    unreadable = {"": groups[_UNREADABLE]} if _UNREADABLE in groups else {}
    return unreadable | dict(sorted(found.items()))


def _named(counts: Mapping[Any, int]) -> dict[str, int]:
    """Return the counts that have a name, sorted by it."""
    return {name: counts[name] for name in sorted(filter(None, counts))}


def _model_of(profile: Profile) -> str | None:
    """Return the model that answered in a judged case; None for a person, a script or one that is not known."""
    if not profile.counted or profile.backend == AUTHORED or {profile.backend, profile.model} <= _NO_MODEL:
        return None
    # several providers, or one that records can't name
    return str(profile.model) if profile.backend in _NO_MODEL else f"{profile.backend}/{profile.model}"


def _group(name: str, value: str, sums: ResultSums) -> Group:
    passed, points = (measure(sums, GENERAL_METRICS[metric]) for metric in ("pass_rate", MEAN_SCORE))
    is_sample = not sums.count(lambda profile: profile.authored)
    return Group(
        name=name,
        value=value,
        selected=sums.count(),
        n=passed.bottom,
        passed=round(passed.top),
        pass_rate=passed.value if passed.bottom else None,
        mean_score=points.value if points.bottom else None,
        interval=wilson_interval(round(passed.top), passed.bottom) if is_sample else None,
    )


def _rank(key: tuple[str, str]) -> tuple[int, str, int, str]:
    name, value = key
    step = _DIFFICULTIES.index(value) if name == "difficulty" and value in _DIFFICULTIES else len(_DIFFICULTIES)
    return _GROUPING_RANKS.get(name, len(_GROUPING_RANKS)), name, step, value


def _depth_table(depths: Counter[int | None], levels: Sequence[int] | None, *, sampled: bool) -> tuple[Depth, ...]:
    known = [depth for depth in depths.elements() if depth is not None]
    table = []
    for level in sorted({level for level in (known if levels is None else levels) if level > 0}):
        agreeing, n = sum(depth >= level for depth in known), len(known)
        interval = wilson_interval(agreeing, n) if sampled else None
        table.append(Depth(level=level, agreeing=agreeing, n=n, share=agreeing / n if n else None, interval=interval))
    return tuple(table)


def _exposure(total: ResultSums) -> Exposure | None:
    fraction = measure(total, GENERAL_METRICS[EXPOSURE])
    tested = round(fraction.top)
    if tested == fraction.bottom:
        return None
    authored = total.count(lambda profile: (profile.counted or profile.vacuous) and profile.backend == AUTHORED)
    interval = None if authored else wilson_interval(tested, fraction.bottom)
    return Exposure(tested=tested, n=fraction.bottom, share=fraction.value, interval=interval)


def standard_error(means: Sequence[float]) -> float | None:
    """Return the standard error of a mean over cases: each case is one observation, its trials are not.

    If all cases have the same number of trials, this is the error of the mean of all trials, clustered by case (Liang
    and Zeger 1986, with the factor `G / (G - 1)`).

    Args:
        means: the mean score of each case.

    Returns:
        In points of score; None for fewer than two cases.
    """
    n = len(means)
    if n < 2:  # noqa: PLR2004 - one observation has no spread
        return None
    mean = math.fsum(means) / n
    return math.sqrt(math.fsum((value - mean) ** 2 for value in means) / (n - 1) / n)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate that at least one of `k` trials passes (Chen et al. 2021, arXiv 2107.03374).

    Args:
        n: trials of the case.
        c: trials that passed, 0 to `n`.
        k: trials drawn, 1 to `n`.

    Returns:
        `1 - C(n-c, k) / C(n, k)`, 0 to 1.
    """
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate that all of `k` trials pass (Yao et al. 2024, tau-context, arXiv 2406.12045).

    Arguments are those of `pass_at_k`.

    Returns:
        `C(c, k) / C(n, k)`, 0 to 1.
    """
    return math.comb(c, k) / math.comb(n, k)


def _pass_at(k: int, counts: Sequence[tuple[int, int]]) -> PassAt:
    enough = [(n, c) for c, n in counts if n >= k]
    at_k = math.fsum(pass_at_k(n, c, k) for n, c in enough)
    hat_k = math.fsum(pass_hat_k(n, c, k) for n, c in enough)
    return PassAt(k=k, cases=len(enough), at_k=at_k / len(enough), hat_k=hat_k / len(enough))


def cluster_facet(run: Run) -> str:
    """Return the facet that a run's cases share by design; empty for none."""
    facet = run.settings.get(CLUSTER_SETTING)
    return facet if isinstance(facet, str) else ""


def facet_words(facet: str) -> str:
    """Return a facet's name in words: `injection task`."""
    return facet.replace("_", " ")


def dependence_note(cases: int, clusters: int, facet: str) -> str:
    """Return a note that judged cases share a facet and are not independent; empty if each is its own cluster."""
    if clusters >= cases:
        return ""
    shared = pluralize(clusters, facet_words(facet))
    return f"{pluralize(cases, 'case')} share {shared}: not independent, so the uncertainty is larger than shown"


def differences(baseline: Run, current: Run) -> tuple[str, ...]:
    """Describe the settings in which two runs differ so that their scores can't be compared."""
    settings = {
        "suite": (baseline.suite.removeprefix(BUNDLED), current.suite.removeprefix(BUNDLED)),
        "mode": (baseline.mode, current.mode),
        "pack": (f"{baseline.pack} {baseline.pack_version}", f"{current.pack} {current.pack_version}"),
        "scoring rules": (baseline.suite_sha256, current.suite_sha256),
        "trials rule": (_trials_rule(baseline), _trials_rule(current)),
    }
    return tuple(
        f"{name}: {_short_hash(before)!r} before, {_short_hash(after)!r} now"
        for name, (before, after) in settings.items()
        if before != after
    )


def _short_hash(value: str) -> str:
    """Return a text, or the beginning of a hash."""
    return value[:12] if re.fullmatch(_HASH, value) else value


def _trials_rule(run: Run) -> str:
    """Return the trials rule of a run in words; the mean is the same rule for one trial as for many."""
    trials = run.settings.get("trials")
    text = MEAN if not isinstance(trials, int) or trials == 1 else trials_rule_text(trials_rule_of(run))
    return text if text == MEAN else f"{text} of {trials}"


_Item = TypeVar("_Item")


# longer tables are not read by people
MAX_ROWS = 200


_MAX_NAMED = 3


@dataclass(slots=True)
class TopRows(Generic[_Item]):
    """The first rows of a sorted table.

    Attributes:
        key: what the rows are sorted by.
        max_rows: how many rows are kept, 1 or more; the others are only counted.
        kept: what is kept of a row, with the same key.
        first: these rows, in order.
        count: how many rows the table has in all.
    """

    key: Callable[[_Item], Any]
    max_rows: int = MAX_ROWS
    kept: Callable[[_Item], _Item] = lambda row: row
    first: list[_Item] = field(default_factory=list)
    count: int = 0

    def add(self, row: _Item) -> None:
        """Count a row, and keep it if it is among the first."""
        self.count += 1
        first, key = self.first, self.key
        if len(first) < self.max_rows or key(row) < key(first[-1]):
            insort(first, self.kept(row), key=key)
            del first[self.max_rows :]


class Listing:
    """Sort the cases of a run into tables, one case at a time, and keep the first rows of each.

    Rows are sorted by how far a failed case is below its threshold, the worst first, then by case id.

    Args:
        max_rows: how many rows of a table are kept, 1 or more; the others are only counted.

    Attributes:
        tables: one for each verdict, `quarantined` for cases of any verdict, and beside these `stale`, and `broken` for
            `error` and `vacuous` together; there is no table without rows.
        repeated: whether any case has several trials.
        errors: the cases of `broken` by their error, equal ones together; each with the first cases.
    """

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self.tables: dict[str, TopRows[Result]] = defaultdict(lambda: TopRows(_low_first, max_rows, without_record))
        self.repeated = False
        self.errors: dict[str, TopRows[Result]] = {}

    def add(self, case: Result) -> None:
        """Add a case over all its trials."""
        score = case.score
        self.repeated = self.repeated or case.trials[1] > 1
        names = ["quarantined" if score.quarantined else score.verdict, *["stale"] * case.attempt.stale]
        if score.verdict in {"error", "vacuous"}:
            names.append("broken")
            error = error_key(f"{score.kind or score.verdict} {score.message}", case.case.case_id, case.case.file)
            # of so many different errors, the others are only counted in their table
            if error in self.errors or len(self.errors) < self._max_rows:
                self.errors.setdefault(error, TopRows(_low_first, _MAX_NAMED, without_record)).add(case)
        for name in names:
            self.tables[name].add(case)

    def error_groups(self, max_groups: int) -> list[TopRows[Result]]:
        """Return the errors of most cases, each with its first cases and their number."""
        return sorted(self.errors.values(), key=lambda group: (-group.count, _low_first(group.first[0])))[:max_groups]

    def first(self, name: str, max_rows: int) -> Sequence[Result]:
        """Return the first rows of a table; none if the table is empty."""
        return self.tables[name].first[:max_rows]

    def count(self, name: str) -> int:
        """Return how many rows a table has."""
        return self.tables[name].count


def without_record(case: Result) -> Result:
    """Return a result without record and payload, which are most of its memory, and which no page of cases shows."""
    if case.record is None and case.attempt.payload is None:
        return case
    return replace(case, record=None, attempt=replace(case.attempt, payload=None))


def _low_first(case: Result) -> tuple[float, str, str]:
    below = how_far_below(case.score) if case.score.verdict == "failed" else 0.0
    return below, case.case.case_id, case.case.test_id


def how_far_below(score: Score) -> float:
    """Return how far a score is from its threshold, negative if it is below; what is missing counts as 0."""
    return (score.score or 0.0) - (score.threshold or 0.0)


def error_key(text: str, case_id: str, file: str) -> str:
    """Return the text of an error without what names its case; it is the same for equal errors of several cases."""
    places = ((file, ""), (f"/{case_id}.json", "/"), (f"::{case_id}", "::"), (f"-k {case_id}", "-k"))
    for place, general in places:
        text = text.replace(place, general) if place else text
    return text


def name_some(names: Sequence[str], count: int = 0, *, limit: int = _MAX_NAMED) -> str:
    """Return the first names of a list in words, with how many more there are: of `count` in all, if more."""
    shown, hidden = ", ".join(names[:limit]), max(count, len(names)) - limit
    return f"{shown} and {hidden} more" if hidden > 0 else shown
