"""The numbers of a run: results are counted one by one, each case once; what a report says in numbers follows.

The trials of a case are folded into one result first, by the suite's trials rule. Then one table has the sums of each
group of cases; totals, rates, depths, refusals and gates are readings of it. Cases that share a part by design, such as
one attack paired with many tasks, form a cluster: the run's settings name the facet they share.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.intervals import wilson_interval
from pytest_packbench.analysis.metrics import ResultSums, excluded_facets, measure
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.metric import AUTHORED, EXPOSURE, GENERAL_METRICS, MEAN_SCORE, Profile
from pytest_packbench.model.report import Depth, Exposure, Group, PassAt, Refusals, Totals, TrialFigures
from pytest_packbench.model.result import Result, values_of
from pytest_packbench.model.run import BUNDLED, CLUSTER_SETTING
from pytest_packbench.model.score import FIXTURE, QUARANTINE, TOLERANCE, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.gate import Gate
    from pytest_packbench.model.metric import Metric
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.score import Score

    # `mean`, `all`, `any`, or `{"at_least": k}`
    Rule = str | Mapping[str, Any]


MEAN = "mean"
TAG = "tag"
ALL = ("", "")
"""The group of all cases."""
# only a case that can't be read has no type
_UNREADABLE = ("case_type", "")
_SETTING = "trials_rule"
_HASH = re.compile("[0-9a-f]{12,}")
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
    *("llm_backend", "llm_model", "judge", "stale", "remark"),
)


class TrialsRuleError(ValueError):
    """A trials rule is invalid; the message is one line that says what was expected."""


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


class Numbers:
    """Count the cases of a run, one at a time, without keeping them.

    Args:
        gates: those that will judge the run: they ask for groups by tag, and for the verdicts of single cases.
        metrics: the metrics of the pack, by name, beside the general ones.
        rule: the trials rule.
        facet: what cases share by design, so that they are not independent; empty for none.
        mode: the mode of the run.

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
    ) -> None:
        required_passes(rule, 1)
        gates = tuple(gates)
        self.metrics: Mapping[str, Metric] = {**(metrics or {}), **GENERAL_METRICS}
        self.facet = facet
        self.groups: dict[tuple[str, str], ResultSums] = defaultdict(ResultSums)
        self.required: dict[str, str] = {}
        self.max_trials = 1
        self._rule, self._mode = rule, mode
        self._has_tags = any(gate.by == TAG for gate in gates)
        self._required_ids = {name for gate in gates for name in gate.must_pass}
        self._excluded = excluded_facets(self.metrics)
        self._profiles: dict[tuple[Any, ...], Profile] = {}
        # over the cases whose trials were all judged: passed trials and all trials; mean scores
        self._passes: Counter[tuple[int, int]] = Counter()
        self._means: Counter[float] = Counter()

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
        fields: tuple[Any, ...] = (verdict, quarantine, is_scored, *others, is_cached, facets, self._mode)
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
    return value[:12] if _HASH.fullmatch(value) else value


def _trials_rule(run: Run) -> str:
    """Return the trials rule of a run in words; the mean is the same rule for one trial as for many."""
    trials = run.settings.get("trials")
    text = MEAN if not isinstance(trials, int) or trials == 1 else trials_rule_text(trials_rule_of(run))
    return text if text == MEAN else f"{text} of {trials}"
