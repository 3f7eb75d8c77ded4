"""The numbers of a run: totals, groups, depth and refusals (design 4 and 7). One pass over the entries."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_packbench.analysis.trials import MEAN, folded, trial_figures
from pytest_packbench.model.result import QUARANTINE
from pytest_packbench.model.score import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.analysis.trials import Rule, TrialFigures
    from pytest_packbench.model.result import CaseResult


CONFIDENCE = 0.95
# the backend whose answers a person or a script wrote (design 2 and 5)
AUTHORED = "stub"
_NO_MODEL = frozenset({AUTHORED, "unknown", None})
TAG = "tag"
# the place of a name in the report; facets stand between difficulty and tags
_PLACES = {"case_type": 0, "difficulty": 1, TAG: 3}
_FACETS_PLACE = 2
_DIFFICULTIES = ("easy", "medium", "hard", "expert")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How many cases ended how; `verdicts` and `quarantined` add up to `selected`.

    Attributes:
        selected: all cases that should have run.
        verdicts: each verdict to its number of cases; quarantined cases are left out.
        quarantined: `skip` and `xfail` to the number of cases whose notes take them out.
        stale: cases whose recording answered another prompt than today's, whatever their verdict.
    """

    selected: int
    verdicts: dict[str, int]
    quarantined: dict[str, int]
    stale: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The cases that share a value.

    Attributes:
        name: what they are grouped by: `case_type`, `difficulty`, `tag`, or a facet's name.
        value: what they share; empty for cases that can't be read.
        selected: all cases in the group.
        n: those that were judged and so stand in the rates.
        passed: those of `n` that passed.
        pass_rate: `passed / n`, 0 to 1; None where `n` is 0.
        mean_score: 0 to 1; None where `n` is 0.
        interval: two-sided Wilson interval of the pass rate, 0 to 1; None where `n` is 0 or where an answer
            was authored: what somebody wrote is no sample of anything (design 7).
    """

    name: str
    value: str
    selected: int
    n: int
    passed: int
    pass_rate: float | None
    mean_score: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many answers agree at least so deep with what was expected.

    Attributes:
        level: the depth, in the pack's unit, above 0.
        agreeing: answers whose depth is `level` or more.
        n: judged answers of known depth, where an answer was due.
        share: `agreeing / n`, 0 to 1; None where `n` is 0.
        interval: two-sided Wilson interval of the share, 0 to 1; None where `n` is 0 or where an answer of the run
            was authored.
    """

    level: int
    agreeing: int
    n: int
    share: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """What was due against what came, over the judged cases.

    Attributes:
        due_refused: a refusal was due and came.
        due_answered: a refusal was due, an answer came.
        undue_refused: an answer was due, a refusal came.
        undue_answered: an answer was due and came.
    """

    due_refused: int = 0
    due_answered: int = 0
    undue_refused: int = 0
    undue_answered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The numbers of a run.

    Attributes:
        totals: how many cases ended how.
        overall: all cases as one group, `name` and `value` empty.
        groups: by case type, by difficulty, by each facet, and by tag where asked for; sorted.
        depth: from the least level up.
        refusals: what was due against what came.
        authored: judged cases whose answers a person or a script wrote.
        models: `backend/model` to the judged cases that it answered; authored and unknown answers are left out.
        cached: judged cases with a model call that a folder of kept answers answered.
        confidence: of the intervals, between 0 and 1.
        trials: what repeating the cases showed; None where each had one trial.
    """

    totals: Totals
    overall: Group
    groups: tuple[Group, ...]
    depth: tuple[Depth, ...]
    refusals: Refusals
    authored: int
    models: dict[str, int]
    cached: int = 0
    confidence: float = CONFIDENCE
    trials: TrialFigures | None = None

    @property
    def all_authored(self) -> bool:
        """Whether no judged answer came from a model: the run tests gates and scoring, and no interval is given."""
        return 0 < self.authored == self.overall.n

    @property
    def has_intervals(self) -> bool:
        """Whether some judged answer was not authored, so that a column of intervals may hold any."""
        return self.authored < self.overall.n

    def grouped(self) -> dict[str, list[Group]]:
        """Give the groups by what they are grouped by, in order."""
        found: dict[str, list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.name, []).append(group)
        return found


def wilson(k: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Give the two-sided score interval of a proportion (E. B. Wilson 1927, JASA 22:209-212).

    Args:
        k: successes, 0 to `n`.
        n: trials, 0 or more.
        confidence: between 0 and 1, both excluded.

    Returns:
        Low and high end, 0 to 1; None for no trial.

    Raises:
        ValueError: an argument is out of its range.
    """
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is no proportion")
    z = _quantile(confidence)
    if n == 0:
        return None
    share, spread = k / n, z * z / n
    middle = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
    # for all and none the formula gives 1 and 0 but for rounding
    return max(0.0, low), 1.0 if k == n else min(1.0, high)


@lru_cache
def _quantile(confidence: float) -> float:
    from statistics import NormalDist

    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} does not lie between 0 and 1")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def values_of(entry: CaseResult, name: str) -> tuple[str, ...]:
    """Give the groups that an entry belongs to.

    Args:
        entry: the entry.
        name: `case_type`, `difficulty`, `tag`, or a facet's name.

    Returns:
        One value, for tags any number, for a facet that the case doesn't have none; an empty value for the
        case type or difficulty of a case that can't be read.
    """
    if name == "case_type":
        return (entry.case_type,)
    if name == "difficulty":
        return (entry.difficulty,)
    if name == TAG:
        return tuple(dict.fromkeys(entry.tags))
    return (entry.facets[name],) if name in entry.facets else ()


def statistics(
    entries: Iterable[CaseResult],
    *,
    levels: Sequence[int] | None = None,
    by_tag: bool = False,
    confidence: float = CONFIDENCE,
    trials_rule: Rule = MEAN,
) -> Statistics:
    """Count and average a run's cases. The order of the entries makes no difference.

    Args:
        entries: one for each selected case, or for each trial of it: trials of a case count as one case.
        levels: depths to report, above 0; those found, where not given.
        by_tag: whether to group by tag too.
        confidence: of the intervals, between 0 and 1.
        trials_rule: how a case's verdict is made of its trials (`reports.trials`).

    Returns:
        The numbers. Rates are over `entry.counted` alone; everything else is counted beside them (design 7).

    Raises:
        ValueError: `confidence` is out of its range, or the rule is none.
    """
    attempts = entries if isinstance(entries, list | tuple) else tuple(entries)
    cases = folded(attempts, trials_rule)
    everything, depths, due, models = _Tally(), Counter[int](), Counter[tuple[bool, bool]](), Counter[str]()
    verdicts, quarantined = dict.fromkeys(VERDICTS, 0), dict.fromkeys(QUARANTINE, 0)
    tallies: dict[tuple[str, str], _Tally] = {}
    stale = cached = 0
    for entry in cases:
        stale += entry.stale
        if entry.quarantined:
            quarantined[entry.kind] += 1
        else:
            verdicts[entry.verdict] += 1
        everything.add(entry)
        for key in _memberships(entry, by_tag=by_tag):
            tallies.setdefault(key, _Tally()).add(entry)
        if entry.counted:
            cached += entry.cached > 0
            if entry.expects_refusal is False and entry.match_depth is not None:
                depths[entry.match_depth] += 1
            if entry.expects_refusal is not None and entry.refused is not None:
                due[entry.expects_refusal, entry.refused] += 1
            if entry.llm_backend not in _NO_MODEL:
                models[f"{entry.llm_backend}/{entry.llm_model}"] += 1
    return Statistics(
        totals=Totals(selected=everything.selected, verdicts=verdicts, quarantined=quarantined, stale=stale),
        overall=everything.group("", "", confidence),
        groups=tuple(tallies[key].group(*key, confidence) for key in sorted(tallies, key=_rank)),
        depth=_depth_table(depths, levels, None if everything.authored else confidence),
        refusals=Refusals(
            due_refused=due[True, True],
            due_answered=due[True, False],
            undue_refused=due[False, True],
            undue_answered=due[False, False],
        ),
        authored=everything.authored,
        models=dict(sorted(models.items())),
        cached=cached,
        confidence=confidence,
        # none was folded where each case has one trial
        trials=None if cases is attempts else trial_figures(attempts, trials_rule, authored=everything.authored > 0),
    )


@dataclass(slots=True)
class _Tally:
    selected: int = 0
    n: int = 0
    passed: int = 0
    authored: int = 0
    scores: list[float] = field(default_factory=list)

    def add(self, entry: CaseResult) -> None:
        self.selected += 1
        if entry.counted:
            self.n += 1
            self.passed += entry.verdict == "passed"
            self.authored += entry.llm_backend == AUTHORED
            if entry.score is not None:
                self.scores.append(entry.score)

    def group(self, name: str, value: str, confidence: float) -> Group:
        return Group(
            name=name,
            value=value,
            selected=self.selected,
            n=self.n,
            passed=self.passed,
            pass_rate=self.passed / self.n if self.n else None,
            mean_score=mean(self.scores),
            interval=None if self.authored else wilson(self.passed, self.n, confidence),
        )


def mean(scores: Sequence[float]) -> float | None:
    """Average numbers with one rounding, so that their order makes no difference; None for no number."""
    return math.fsum(scores) / len(scores) if scores else None


def _memberships(entry: CaseResult, *, by_tag: bool) -> Iterator[tuple[str, str]]:
    yield "case_type", entry.case_type
    yield "difficulty", entry.difficulty
    for name, value in entry.facets.items():
        # a facet of one of our own names would count its cases twice
        if name not in _PLACES:
            yield name, value
    if by_tag:
        for value in values_of(entry, TAG):
            yield TAG, value


def _rank(key: tuple[str, str]) -> tuple[int, str, int, str]:
    name, value = key
    # words of difficulty go from easy to expert, all others by the alphabet
    step = _DIFFICULTIES.index(value) if name == "difficulty" and value in _DIFFICULTIES else len(_DIFFICULTIES)
    return _PLACES.get(name, _FACETS_PLACE), name, step, value


def _depth_table(depths: Counter[int], levels: Sequence[int] | None, confidence: float | None) -> tuple[Depth, ...]:
    n = depths.total()
    wanted = sorted({level for level in (depths if levels is None else levels) if level > 0}, reverse=True)
    table, agreeing, left = [], 0, sorted(depths)
    for level in wanted:
        while left and left[-1] >= level:
            agreeing += depths[left.pop()]
        table.append(
            Depth(
                level=level,
                agreeing=agreeing,
                n=n,
                share=agreeing / n if n else None,
                interval=None if confidence is None else wilson(agreeing, n, confidence),
            )
        )
    return tuple(reversed(table))
