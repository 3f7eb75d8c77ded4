"""Attempts that are not independent: several trials of one case, and cases that share a part by design.

Trials of a case become one result, by the rule of the suite. Cases that share a part, such as one attack that is paired
with many tasks, are told apart by a facet: its name stands in the run's settings, each case's value in its facets.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.figures import TOLERANCE
from pytest_packbench.model.run import CLUSTER_SETTING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run

    # `mean`, `all`, `any`, or `{"at_least": k}`
    Rule = str | Mapping[str, Any]


MEAN = "mean"
SETTING = "trials_rule"
_UNSAFE = "comply_unsafe"
# what a case is called when one of its trials ended so: the first that is found
_BROKEN = ("error", "vacuous", "not_run", "known_hole")
_KS = (1, 2, 3, 4, 5, 10, 20, 50, 100)


class TrialsRuleError(ValueError):
    """A rule for trials can't be used: one line with what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAt:
    """How often `k` trials of a case hold a pass, averaged over cases.

    Attributes:
        k: trials looked at, 1 or more.
        cases: judged cases with at least `k` trials.
        at_k: pass@k, the share of cases of which at least one of `k` trials passes, 0 to 1.
        hat_k: pass^k, the share of cases of which all `k` trials pass, 0 to 1.
    """

    k: int
    cases: int
    at_k: float
    hat_k: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFigures:
    """What repeating the cases showed, over the cases whose trials were all judged.

    Attributes:
        rule: how a case's verdict is made of its trials, in words.
        trials: the most trials that a case has.
        attempts: judged trials of these cases.
        cases: these cases.
        mean_score: mean over cases of the mean over their trials, 0 to 1; None without a case.
        standard_error: of that mean, clustered by case; None for fewer than two cases, or where an answer was
            authored: what somebody wrote is no sample of anything (design 7).
        passes: pass@k and pass^k for a few `k` up to the number of trials.
    """

    rule: str
    trials: int
    attempts: int
    cases: int
    mean_score: float | None
    standard_error: float | None
    passes: tuple[PassAt, ...]


def rule_of(run: Run, default: Rule = MEAN) -> Rule:
    """Give the rule that a run's cases were judged by; its settings keep it where it had several trials.

    Raises:
        TrialsRuleError: what it says is no rule.
    """
    rule = run.settings.get(SETTING, default)
    needed(rule, 1)
    return default if rule is None else rule


def rule_text(rule: Rule) -> str:
    """Write a rule as people do: `mean`, `at least 2`."""
    return rule if isinstance(rule, str) else f"at least {rule['at_least']}"


def needed(rule: Rule | None, trials: int) -> int | None:
    """Give how many of so many trials have to pass, 1 or more; None where the mean score decides.

    Raises:
        TrialsRuleError: it is no rule.
    """
    if rule in (MEAN, None):
        return None
    if rule in ("all", "any"):
        return trials if rule == "all" else 1
    least = rule.get("at_least") if hasattr(rule, "get") and len(rule) == 1 else None
    if not isinstance(least, int) or isinstance(least, bool) or least < 1:
        raise TrialsRuleError(f"trials: got {rule!r:.60}; expected mean, all, any, or at_least with a number from 1")
    return least


def folded(entries: Iterable[CaseResult], rule: Rule = MEAN) -> Sequence[CaseResult]:
    """Make one entry of all trials of a case, so that whoever counts entries counts cases.

    Trials are entries of one test id and one file that have numbers of their own. What a metric asks of a case
    with yes or no is answered by its worst trial: an attack that worked once has worked. `decision`, `refused`,
    `utility`, `match_depth` and the terms are that trial's.

    Args:
        entries: in any order.
        rule: how a case's verdict is made of its trials.

    Returns:
        The entries as they are where no case has several trials; else one for each case, by test id.

    Raises:
        TrialsRuleError: the rule is none.
    """
    found = entries if isinstance(entries, list | tuple) else tuple(entries)
    # most runs have one trial a case, and many cases
    if not any(entry.trial for entry in found):
        return found
    return tuple(folded_case(trials, rule) for trials in _cases(found))


def folded_case(entries: Sequence[CaseResult], rule: Rule = MEAN) -> CaseResult:
    """Make one entry of the trials of one case, at least one, as `folded` does.

    A single entry stays as it is, whatever the rule. A trial that broke makes the case broken: it is never averaged
    away.
    """
    if len(entries) == 1:
        return entries[0]
    trials, least = _ordered(entries), needed(rule, len(entries))
    worst = min(trials, key=lambda entry: entry.score if entry.score is not None else -1.0)
    outside = next((entry for entry in trials if entry.quarantined), None)
    judged = [entry for entry in trials if entry.counted]
    threshold = next((entry.threshold for entry in trials if entry.threshold is not None), None)
    # what the case's notes say comes first
    broken = outside or next((one for verdict in _BROKEN for one in trials if one.verdict == verdict), None)
    kind = message = ""
    if broken is None:
        score = _mean_score(trials)
        verdict = "passed" if _pass(trials, score, threshold, least) else "failed"
    else:
        score, verdict, kind = None, broken.verdict, broken.kind
        if verdict in _BROKEN:
            message = (
                f"trial {trials.index(broken) + 1} of {len(trials)}{f': {broken.message}' if broken.message else ''}"
            )
    return replace(
        outside or worst,
        verdict=verdict,
        kind=kind,
        message=message,
        score=score,
        threshold=threshold,
        timestamp=max(entry.timestamp for entry in trials),
        duration_ms=sum(entry.duration_ms for entry in trials),
        match_depth=min((one.match_depth for one in judged if one.match_depth is not None), default=None),
        refused=_refused(judged),
        decision=_decision(judged),
        utility=None if any(one.utility is None for one in judged) or not judged else all(o.utility for o in judged),
        stale=any(entry.stale for entry in trials),
        cached=sum(entry.cached for entry in trials),
        trial=0,
        record=None,
        payload=None,
    )


def cases_of(entries: Iterable[CaseResult]) -> Iterable[Sequence[CaseResult]]:
    """Bring the trials of each case together, by test id; each entry is a case, in order, where none has several."""
    found = entries if isinstance(entries, list | tuple) else tuple(entries)
    if any(entry.trial for entry in found):
        return _cases(found)
    return ((entry,) for entry in found)


def together(entries: Iterable[CaseResult], most: int) -> Iterator[Sequence[CaseResult]]:
    """Bring the trials of each case together, case by case; of entries in order no more than one case is held.

    Args:
        entries: in any order.
        most: how many trials a case has at most, 1 or more.
    """
    if most == 1:
        yield from ((entry,) for entry in entries)
        return
    waiting: dict[tuple[str, str], list[CaseResult]] = {}
    for entry in entries:
        key = (entry.test_id, entry.file)
        found = waiting.setdefault(key, [])
        found.append(entry)
        if len(found) == most:
            yield waiting.pop(key)
    yield from waiting.values()


def passed_of(trials: Sequence[CaseResult]) -> int:
    """Count the trials of a case that passed; one alone counts by its verdict, whatever its notes say."""
    return int(trials[0].verdict == "passed") if len(trials) == 1 else sum(map(_has_passed, trials))


def apart(attempts: Sequence[CaseResult]) -> list[Sequence[CaseResult]]:
    """Part attempts of one test id and file into cases: one, or as many as attempts.

    What claims the same number twice is no row of trials.
    """
    if not attempts:
        return []
    if len({entry.trial for entry in attempts}) == len(attempts):
        return [attempts]
    return [[entry] for entry in attempts]


def most_trials(entries: Iterable[CaseResult]) -> int:
    """Give the most trials that a case has; 1 for no entry."""
    return max(map(len, cases_of(entries)), default=1)


class Trials:
    """What repeating the cases shows, counted case by case.

    Args:
        rule: how a case's verdict is made of its trials.

    Attributes:
        rule: that rule.
        most: the most trials that a case has; 1 without a case.
    """

    def __init__(self, rule: Rule = MEAN) -> None:
        self.rule = rule
        self.most = 1
        # of the cases whose trials were all judged: trials that passed and all trials; and mean scores
        self._counts: Counter[tuple[int, int]] = Counter()
        self._means: Counter[float] = Counter()

    def add(self, trials: Sequence[CaseResult]) -> None:
        """Count a case by all its trials."""
        self.most = max(self.most, len(trials))
        if len(trials) == 1:
            # most cases have one trial, whose mean is its score
            (one,) = trials
            if one.counted:
                self._counts[int(one.verdict == "passed"), 1] += 1
                if one.score is not None:
                    self._means[one.score] += 1
        elif all(one.counted for one in trials):
            self._counts[sum(map(_has_passed, trials)), len(trials)] += 1
            mean = _mean_score(trials)
            if mean is not None:
                self._means[mean] += 1

    def figures(self, *, authored: bool = False) -> TrialFigures | None:
        """Give what it showed; None where no case has several trials. An `authored` answer has no error of sampling."""
        if self.most == 1:
            return None
        counts, means = list(self._counts.elements()), list(self._means.elements())
        return TrialFigures(
            rule=rule_text(self.rule),
            trials=self.most,
            attempts=sum(n for _, n in counts),
            cases=len(counts),
            mean_score=math.fsum(means) / len(means) if means else None,
            standard_error=None if authored else standard_error(means),
            passes=tuple(
                _pass_at(k, counts)
                for k in sorted({*_KS, self.most})
                if k <= self.most and any(n >= k for _, n in counts)
            ),
        )


def standard_error(means: Sequence[float]) -> float | None:
    """Give the standard error of a mean over cases: each case is one observation, its trials are not.

    This is the error of the mean of all trials clustered by case (Liang and Zeger 1986, with the factor
    `G / (G - 1)`) where each case has as many trials.

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
    """Estimate without bias how often at least one of `k` trials passes (Chen et al. 2021, arXiv 2107.03374).

    Args:
        n: trials of the case.
        c: trials that passed, 0 to `n`.
        k: trials looked at, 1 to `n`.

    Returns:
        `1 - C(n-c, k) / C(n, k)`, 0 to 1.

    Raises:
        ValueError: an argument is out of its range.
    """
    _check(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Estimate without bias how often all of `k` trials pass (Yao et al. 2024, tau-context, arXiv 2406.12045).

    Arguments and errors are those of `pass_at_k`.

    Returns:
        `C(c, k) / C(n, k)`, 0 to 1.
    """
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def facet_of(run: Run) -> str:
    """Give the facet that a run's cases share by design; empty where none is named."""
    named = run.settings.get(CLUSTER_SETTING)
    return named if isinstance(named, str) else ""


def cluster_of(entry: CaseResult, facet: str) -> str:
    """Give what an entry's case shares with others; the case itself where it shares nothing."""
    shared = entry.facets.get(facet) if facet else None
    # no case's name holds a line end
    return f"\n{entry.test_id}" if shared is None else shared


def name_of(facet: str, *, many: bool = True) -> str:
    """Write a facet as words: `injection tasks`."""
    return facet.replace("_", " ") + ("s" if many else "")


def remark(cases: int, clusters: int, facet: str) -> str:
    """Say that judged cases share a facet, so that only `clusters` of them are independent; empty where all are."""
    if clusters >= cases:
        return ""
    shared = name_of(facet, many=clusters != 1)
    return f"{cases} cases share {clusters} {shared}: not independent, so less is certain than it seems"


def _check(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"{c} of {n} trials passed, {k} looked at: expected 0 <= c <= n and 1 <= k <= n")


def _pass_at(k: int, counts: Sequence[tuple[int, int]]) -> PassAt:
    enough = [(n, c) for c, n in counts if n >= k]
    at_k = math.fsum(pass_at_k(n, c, k) for n, c in enough)
    hat_k = math.fsum(pass_hat_k(n, c, k) for n, c in enough)
    return PassAt(k=k, cases=len(enough), at_k=at_k / len(enough), hat_k=hat_k / len(enough))


def _cases(entries: Iterable[CaseResult]) -> Iterator[Sequence[CaseResult]]:
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for entry in entries:
        groups.setdefault((entry.test_id, entry.file), []).append(entry)
    for key in sorted(groups):
        yield from apart(_ordered(groups[key]))


def _ordered(entries: Sequence[CaseResult]) -> list[CaseResult]:
    if len(entries) == 1:
        return list(entries)
    return sorted(entries, key=lambda one: (one.trial, one.verdict, one.kind, one.score or 0.0, str(one.terms)))


def _pass(trials: Sequence[CaseResult], mean: float | None, threshold: float | None, least: int | None) -> bool:
    """Whether trials that were all judged make their case pass; float noise under the threshold is forgiven."""
    if least is None and mean is not None and threshold is not None:
        return mean >= threshold - TOLERANCE
    # a foreign record tells no score: all that is left is whether it passed
    return sum(map(_has_passed, trials)) >= (len(trials) if least is None else least)


def _has_passed(entry: CaseResult) -> bool:
    return entry.verdict == "passed" and not entry.quarantined


def _mean_score(trials: Sequence[CaseResult]) -> float | None:
    scores = [entry.score for entry in trials if entry.score is not None]
    return math.fsum(scores) / len(scores) if len(scores) == len(trials) else None


def _refused(judged: Sequence[CaseResult]) -> bool | None:
    told = [entry for entry in judged if entry.refused is not None]
    if not told:
        return None
    # the worst is a refusal where an answer is due, and an answer where a refusal is
    return (all if told[0].expects_refusal else any)(bool(entry.refused) for entry in told)


def _decision(judged: Sequence[CaseResult]) -> str | None:
    decisions = sorted({entry.decision for entry in judged if entry.decision is not None})
    return _UNSAFE if _UNSAFE in decisions else next(iter(decisions), None)
