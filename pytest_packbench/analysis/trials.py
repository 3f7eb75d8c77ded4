"""Attempts that are not independent: several trials of one case, and cases that share a part by design.

The trials of a case become one result, by the suite's trials rule. Cases that share a part, such as one attack paired
with many tasks, form a cluster: the run's settings name the facet they share, and each case's facets contain its value.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.result import Result
from pytest_packbench.model.run import CLUSTER_SETTING
from pytest_packbench.model.score import COUNTED, TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.record import EvalDecision
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.score import Verdict

    # `mean`, `all`, `any`, or `{"at_least": k}`
    Rule = str | Mapping[str, Any]


MEAN = "mean"
SETTING = "trials_rule"
_UNSAFE = "comply_unsafe"
# a trial with one of these verdicts gives it to the whole case; the first one found decides
_UNJUDGED = ("error", "vacuous", "not_run", "known_hole")
_KS = (1, 2, 3, 4, 5, 10, 20, 50, 100)


class TrialsRuleError(ValueError):
    """A trials rule is invalid; the message is one line that says what was expected."""


class PassAt(NamedTuple):
    """pass@k and pass^k for one `k`, averaged over cases.

    Attributes:
        k: number of trials drawn, 1 or more.
        cases: judged cases with at least `k` trials.
        at_k: pass@k, the probability that at least one of `k` trials passes, 0 to 1.
        hat_k: pass^k, the probability that all of `k` trials pass, 0 to 1.
    """

    k: int
    cases: int
    at_k: float
    hat_k: float


class TrialFigures(NamedTuple):
    """What repeating the cases showed, over the cases whose trials were all judged.

    Attributes:
        rule: the trials rule in words.
        trials: the largest number of trials of a case.
        attempts: judged trials of these cases.
        cases: number of these cases.
        mean_score: mean over cases of the mean over their trials, 0 to 1; None without a case.
        standard_error: of that mean, clustered by case; None for fewer than two cases, and if any answer was authored,
            because authored answers are not a random sample.
        passes: pass@k and pass^k for some `k` up to the number of trials.
    """

    rule: str
    trials: int
    attempts: int
    cases: int
    mean_score: float | None
    standard_error: float | None
    passes: tuple[PassAt, ...]


def trials_rule_of(run: Run, default: Rule = MEAN) -> Rule:
    """Return the trials rule of a run; its settings contain one if it had several trials.

    Raises:
        TrialsRuleError: the setting is not a valid rule.
    """
    rule = run.settings.get(SETTING, default)
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


def fold_trials(results: Iterable[Result], rule: Rule = MEAN) -> Sequence[Result]:
    """Fold all trials of a case into one result, so that counting results counts cases.

    Trials are results with the same test id and file, and different trial numbers. Yes-or-no properties of a case are
    those of its worst trial: an attack that succeeded once has succeeded. `decision`, `refused`, `utility`,
    `match_depth` and the terms come from that trial.

    Args:
        results: in any order.
        rule: the trials rule.

    Returns:
        The results unchanged if no case has several trials; else one for each case, by test id.

    Raises:
        TrialsRuleError: the rule is invalid.
    """
    sequence = results if isinstance(results, list | tuple) else tuple(results)
    # most runs have one trial per case, and many cases
    if not any(result.attempt.trial for result in sequence):
        return sequence
    return tuple(fold_case(trials, rule) for trials in _sorted_cases(sequence))


def fold_case(trials: Sequence[Result], rule: Rule = MEAN) -> Result:
    """Fold the trials of one case, at least one, into one result, as `fold_trials` does.

    A single result is returned unchanged, whatever the rule. If any trial was not judged, neither is the case: errors
    are never averaged away. A vacuous trial hides no failure: if another one failed, the judged ones decide.
    """
    if len(trials) == 1:
        return trials[0]
    trials, least = _in_order(trials), required_passes(rule, len(trials))
    worst = min(trials, key=_badness)
    quarantined = next((result for result in trials if result.score.quarantined), None)
    judged = [result for result in trials if result.score.counted]
    threshold = next((result.score.threshold for result in trials if result.score.threshold is not None), None)
    # the case's own notes take precedence
    unjudged = quarantined or next(
        (result for verdict in _UNJUDGED for result in trials if result.score.verdict == verdict), None
    )
    if (
        unjudged is not None
        and unjudged.score.verdict == "vacuous"
        and any(each.score.verdict == "failed" for each in judged)
    ):
        unjudged = next((result for result in trials if result.score.verdict not in {"vacuous", *COUNTED}), None)
    kind = message = ""
    verdict: Verdict
    if unjudged is None:
        score = _mean_score(judged)
        verdict = "passed" if _passes(judged, score, threshold, least) else "failed"
        # what it passed with is not explained by a trial that a rule other than the mean forgives
        forgiven = verdict == "passed" and least is not None
        worst = min((each for each in judged if not (forgiven and has_hard_fail(each))), key=_badness)
    else:
        score, verdict, kind = None, unjudged.score.verdict, unjudged.score.kind
        if verdict in _UNJUDGED:
            reason = f": {unjudged.score.message}" if unjudged.score.message else ""
            message = f"trial {trials.index(unjudged) + 1} of {len(trials)}{reason}"
    shown = quarantined or worst
    return Result(
        case=shown.case,
        attempt=replace(
            shown.attempt,
            timestamp=max(result.attempt.timestamp for result in trials),
            duration_ms=sum(result.attempt.duration_ms for result in trials),
            stale=any(result.attempt.stale for result in trials),
            remark=next((result.attempt.remark for result in trials if result.attempt.remark), ""),
            cached=sum(result.attempt.cached for result in trials),
            cost_usd=_total_cost(trials),
            trial=0,
            payload=None,
        ),
        score=replace(
            shown.score,
            verdict=verdict,
            kind=kind,
            message=message,
            score=score,
            threshold=threshold,
            match_depth=min(
                (each.score.match_depth for each in judged if each.score.match_depth is not None), default=None
            ),
            refused=_worst_refused(judged),
            decision=_worst_decision(judged),
            utility=_worst_utility(judged),
        ),
    )


def _total_cost(trials: Sequence[Result]) -> float | None:
    costs = [result.attempt.cost_usd for result in trials if result.attempt.cost_usd is not None]
    return sum(costs) if len(costs) == len(trials) else None


def group_by_case(results: Iterable[Result]) -> Iterable[Sequence[Result]]:
    """Group results into cases, by test id; if no case has several trials, each result is a case, in order."""
    sequence = results if isinstance(results, list | tuple) else tuple(results)
    if any(result.attempt.trial for result in sequence):
        return _sorted_cases(sequence)
    return ((result,) for result in sequence)


def stream_by_case(results: Iterable[Result], max_trials: int) -> Iterator[Sequence[Result]]:
    """Group results into cases while reading; if they are ordered by case, only one case is in memory at a time.

    Args:
        results: in any order.
        max_trials: the largest number of trials of a case, 1 or more.
    """
    if max_trials == 1:
        yield from ((result,) for result in results)
        return
    incomplete: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        key = (result.case.test_id, result.case.file)
        trials = incomplete.setdefault(key, [])
        trials.append(result)
        if len(trials) == max_trials:
            yield incomplete.pop(key)
    yield from incomplete.values()


def count_passed(trials: Sequence[Result]) -> int:
    """Return how many trials of a case passed; a single one counts by its verdict, quarantined or not."""
    return int(trials[0].score.verdict == "passed") if len(trials) == 1 else sum(map(_has_passed, trials))


def split_attempts(attempts: Sequence[Result]) -> list[Sequence[Result]]:
    """Split attempts with the same test id and file into cases.

    Attempts with different trial numbers are one case; if a number occurs twice, each attempt is a case of its own.
    """
    if not attempts:
        return []
    if len({result.attempt.trial for result in attempts}) == len(attempts):
        return [attempts]
    return [[result] for result in attempts]


def max_trial_count(results: Iterable[Result]) -> int:
    """Return the largest number of trials of a case; 1 without results."""
    return max(map(len, group_by_case(results)), default=1)


class TrialCounter:
    """Count what repeating the cases shows, one case at a time.

    Args:
        rule: the trials rule.

    Attributes:
        rule: that rule.
        max_trials: the largest number of trials of a case; 1 without a case.
    """

    def __init__(self, rule: Rule = MEAN) -> None:
        self.rule = rule
        self.max_trials = 1
        # over the cases whose trials were all judged: passed trials and all trials; mean scores
        self._counts: Counter[tuple[int, int]] = Counter()
        self._means: Counter[float] = Counter()

    def add(self, trials: Sequence[Result]) -> None:
        """Count a case by all its trials."""
        self.max_trials = max(self.max_trials, len(trials))
        if len(trials) == 1:
            # fast path: most cases have one trial, whose mean is its score
            (result,) = trials
            if result.score.counted:
                self._counts[int(result.score.verdict == "passed"), 1] += 1
                if result.score.score is not None:
                    self._means[result.score.score] += 1
        elif all(result.score.counted for result in trials):
            self._counts[sum(map(_has_passed, trials)), len(trials)] += 1
            mean = _mean_score(trials)
            if mean is not None:
                self._means[mean] += 1

    def figures(self, *, authored: bool = False) -> TrialFigures | None:
        """Return the figures; None if no case has several trials.

        Args:
            authored: whether any answer was authored, so that there is no standard error.
        """
        if self.max_trials == 1:
            return None
        counts, means = list(self._counts.elements()), list(self._means.elements())
        return TrialFigures(
            rule=trials_rule_text(self.rule),
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

    Raises:
        ValueError: an argument is out of its range.
    """
    _check_range(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate that all of `k` trials pass (Yao et al. 2024, tau-context, arXiv 2406.12045).

    Arguments and errors are those of `pass_at_k`.

    Returns:
        `C(c, k) / C(n, k)`, 0 to 1.
    """
    _check_range(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def cluster_facet(run: Run) -> str:
    """Return the facet that a run's cases share by design; empty for none."""
    facet = run.settings.get(CLUSTER_SETTING)
    return facet if isinstance(facet, str) else ""


def cluster_of(result: Result, facet: str) -> str:
    """Return the cluster of a result's case: its value of the facet; the case itself if it has none."""
    value = result.case.facets.get(facet) if facet else None
    # no facet value contains a line end
    return f"\n{result.case.test_id}" if value is None else value


def facet_words(facet: str) -> str:
    """Return a facet's name in words: `injection task`."""
    return facet.replace("_", " ")


def dependence_note(cases: int, clusters: int, facet: str) -> str:
    """Return a note that judged cases share a facet and are not independent; empty if each is its own cluster."""
    if clusters >= cases:
        return ""
    shared = pluralize(clusters, facet_words(facet))
    return f"{pluralize(cases, 'case')} share {shared}: not independent, so the uncertainty is larger than shown"


def _check_range(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"expected 0 <= c <= n and 1 <= k <= n; got n={n}, c={c}, k={k}")


def _pass_at(k: int, counts: Sequence[tuple[int, int]]) -> PassAt:
    enough = [(n, c) for c, n in counts if n >= k]
    at_k = math.fsum(pass_at_k(n, c, k) for n, c in enough)
    hat_k = math.fsum(pass_hat_k(n, c, k) for n, c in enough)
    return PassAt(k=k, cases=len(enough), at_k=at_k / len(enough), hat_k=hat_k / len(enough))


def _sorted_cases(results: Iterable[Result]) -> Iterator[Sequence[Result]]:
    attempts: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        attempts.setdefault((result.case.test_id, result.case.file), []).append(result)
    for key in sorted(attempts):
        yield from split_attempts(_in_order(attempts[key]))


def _in_order(trials: Sequence[Result]) -> list[Result]:
    if len(trials) == 1:
        return list(trials)
    return sorted(
        trials,
        key=lambda trial: (
            trial.attempt.trial,
            trial.score.verdict,
            trial.score.kind,
            trial.score.score or 0.0,
            str(trial.score.terms),
        ),
    )


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


def _worst_refused(judged: Sequence[Result]) -> bool | None:
    known = [result for result in judged if result.score.refused is not None]
    if not known:
        return None
    # the worst is a refusal if an answer is expected, and an answer if a refusal is
    return (all if known[0].case.expects_refusal else any)(bool(result.score.refused) for result in known)


def _worst_decision(judged: Sequence[Result]) -> EvalDecision | None:
    decisions = sorted({result.score.decision for result in judged if result.score.decision is not None})
    return _UNSAFE if _UNSAFE in decisions else next(iter(decisions), None)


def _worst_utility(judged: Sequence[Result]) -> bool | None:
    utilities = [result.score.utility for result in judged]
    return None if None in utilities or not utilities else all(utilities)
