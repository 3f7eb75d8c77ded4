"""The numbers of a run, out of a tally: totals, groups, depth and refusals (design 4 and 7)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_packbench.analysis.intervals import wilson
from pytest_packbench.analysis.metrics import measured, whole_of
from pytest_packbench.analysis.sums import merged
from pytest_packbench.analysis.tally import TAG
from pytest_packbench.model.metric import AUTHORED, GENERAL_METRICS, MEAN_SCORE
from pytest_packbench.model.result import QUARANTINE
from pytest_packbench.model.score import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.analysis.sums import Sums
    from pytest_packbench.analysis.tally import Tally
    from pytest_packbench.analysis.trials import TrialFigures


_NO_MODEL = frozenset({AUTHORED, "unknown", None})
# the place of a name in the report
_PLACES = {"case_type": 0, "difficulty": 1}
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
        name: what they are grouped by: `case_type`, `difficulty`, or a facet's name.
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
        groups: by case type, by difficulty and by each facet; sorted.
        depth: from the least level up.
        refusals: what was due against what came.
        authored: judged cases whose answers a person or a script wrote.
        models: `backend/model` to the judged cases that it answered; authored and unknown answers are left out.
        cached: judged cases with a model call that a folder of kept answers answered.
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


def statistics_of(tally: Tally, *, levels: Sequence[int] | None = None) -> Statistics:
    """Make the numbers of the results of a run.

    Rates are over the results that are `counted` alone; everything else is counted beside them (design 7). A group by
    tag is for gates alone.

    Args:
        tally: the results.
        levels: depths to report, above 0; those found, where not given.
    """
    whole = whole_of(tally.close())
    groups: dict[tuple[str, str], list[Sums]] = {}
    for key, sums in tally.groups.items():
        if key.name not in {"", TAG}:
            groups.setdefault((key.name, key.value), []).append(sums)
    verdicts, quarantined = dict.fromkeys(VERDICTS, 0), dict.fromkeys(QUARANTINE, 0)
    depths, due, models = Counter[int](), Counter[tuple[bool | None, bool | None]](), Counter[str]()
    for one, number in whole.profiles.items():
        if one.quarantine:
            quarantined[one.quarantine] += number
        else:
            verdicts[one.verdict] += number
        if one.counted:
            due[one.expects_refusal, one.refused] += number
            if one.expects_refusal is False and one.depth is not None:
                depths[one.depth] += number
            if one.backend not in _NO_MODEL:
                models[f"{one.backend}/{one.model}"] += number
    authored = whole.count(lambda one: one.authored)
    stale = whole.count(lambda one: one.stale)
    return Statistics(
        totals=Totals(selected=whole.count(), verdicts=verdicts, quarantined=quarantined, stale=stale),
        overall=_group("", "", whole),
        groups=tuple(_group(*key, merged(groups[key])) for key in sorted(groups, key=_rank)),
        depth=_depth_table(depths, levels, sampled=not authored),
        refusals=Refusals(
            due_refused=due[True, True],
            due_answered=due[True, False],
            undue_refused=due[False, True],
            undue_answered=due[False, False],
        ),
        authored=authored,
        models=dict(sorted(models.items())),
        cached=whole.count(lambda one: one.counted and one.cached),
        trials=tally.trials.figures(authored=authored > 0),
    )


def _group(name: str, value: str, sums: Sums) -> Group:
    passed, points = (measured(sums, GENERAL_METRICS[metric]) for metric in ("pass_rate", MEAN_SCORE))
    return Group(
        name=name,
        value=value,
        selected=sums.count(),
        n=passed.bottom,
        passed=round(passed.top),
        pass_rate=passed.value if passed.bottom else None,
        mean_score=points.value if points.bottom else None,
        interval=None if sums.count(lambda one: one.authored) else wilson(round(passed.top), passed.bottom),
    )


def _rank(key: tuple[str, str]) -> tuple[int, str, int, str]:
    name, value = key
    # words of difficulty go from easy to expert, all others by the alphabet
    step = _DIFFICULTIES.index(value) if name == "difficulty" and value in _DIFFICULTIES else len(_DIFFICULTIES)
    return _PLACES.get(name, _FACETS_PLACE), name, step, value


def _depth_table(depths: Counter[int], levels: Sequence[int] | None, *, sampled: bool) -> tuple[Depth, ...]:
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
                interval=wilson(agreeing, n) if sampled else None,
            )
        )
    return tuple(reversed(table))
