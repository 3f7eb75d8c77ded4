"""Compute the statistics of a run from its tally: totals, groups, depth and refusals."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.analysis.intervals import wilson_interval
from pytest_packbench.analysis.metrics import measure, merged, run_sums
from pytest_packbench.analysis.tally import TAG
from pytest_packbench.model.metric import AUTHORED, EXPOSURE, GENERAL_METRICS, MEAN_SCORE
from pytest_packbench.model.score import QUARANTINE, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_packbench.analysis.metrics import ResultSums
    from pytest_packbench.analysis.tally import Tally
    from pytest_packbench.analysis.trials import TrialFigures
    from pytest_packbench.model.score import Verdict


_NO_MODEL = frozenset({AUTHORED, "unknown", None})
# the order of groupings in a report
_GROUPING_RANKS = {"case_type": 0, "difficulty": 1}
_FACET_RANK = 2
_DIFFICULTIES = ("easy", "medium", "hard", "expert")


class Totals(NamedTuple):
    """The number of cases by verdict; `verdicts` and `quarantined` add up to `selected`.

    Attributes:
        selected: all cases that should have run.
        verdicts: number of cases by verdict, without quarantined cases.
        quarantined: number of cases that their notes exclude, for `skip` and `xfail`.
        stale: cases whose prompt has changed since the recording was made, whatever their verdict.
    """

    selected: int
    verdicts: Mapping[Verdict, int]
    quarantined: dict[str, int]
    stale: int


class Group(NamedTuple):
    """The cases that share a value.

    Attributes:
        name: what they are grouped by: `case_type`, `difficulty`, or a facet's name.
        value: what they share; empty for unreadable cases.
        selected: all cases in the group.
        n: those that were judged, which the rates are over.
        passed: those of `n` that passed.
        pass_rate: `passed / n`, 0 to 1; None if `n` is 0.
        mean_score: 0 to 1; None if `n` is 0.
        interval: two-sided Wilson interval of the pass rate, 0 to 1; None if `n` is 0 or any answer was authored,
            because authored answers are no random sample.
    """

    name: str
    value: str
    selected: int
    n: int
    passed: int
    pass_rate: float | None
    mean_score: float | None
    interval: tuple[float, float] | None


class Depth(NamedTuple):
    """How many answers agree with what was expected to at least one depth.

    Attributes:
        level: the depth, in the pack's unit, above 0.
        agreeing: answers whose depth is `level` or more.
        n: judged answers of known depth to cases that expect an answer.
        share: `agreeing / n`, 0 to 1; None if `n` is 0.
        interval: two-sided Wilson interval of the share, 0 to 1; None if `n` is 0 or any answer of the run was
            authored.
    """

    level: int
    agreeing: int
    n: int
    share: float | None
    interval: tuple[float, float] | None


class Exposure(NamedTuple):
    """How many of the cases that ran could have failed.

    Attributes:
        tested: those that were judged.
        n: those and the vacuous ones.
        share: `tested / n`, 0 to 1.
        interval: two-sided Wilson interval of the share, 0 to 1; None if any answer was authored.
    """

    tested: int
    n: int
    share: float
    interval: tuple[float, float] | None


class Refusals(NamedTuple):
    """Expected against actual refusals, over the judged cases.

    Attributes:
        due_refused: cases that expect a refusal and were refused.
        due_answered: cases that expect a refusal and were answered.
        undue_refused: cases that expect an answer and were refused.
        undue_answered: cases that expect an answer and were answered.
    """

    due_refused: int = 0
    due_answered: int = 0
    undue_refused: int = 0
    undue_answered: int = 0


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
    cached: int = 0
    remarks: Mapping[str, int] = MappingProxyType({})
    trials: TrialFigures | None = None
    exposure: Exposure | None = None

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
        by_name: dict[str, list[Group]] = {}
        for group in self.groups:
            by_name.setdefault(group.name, []).append(group)
        return by_name


def statistics_of(tally: Tally, *, levels: Sequence[int] | None = None) -> Statistics:
    """Compute the statistics of a run.

    Rates are over judged results only; all others are counted separately. Groups by tag are used by gates only.

    Args:
        tally: the results.
        levels: depths to report, above 0; by default those that occur.
    """
    total = run_sums(tally.close())
    groups: dict[tuple[str, str], list[ResultSums]] = {}
    for key, sums in tally.groups.items():
        if key.name not in {"", TAG}:
            groups.setdefault((key.name, key.value), []).append(sums)
    verdicts: dict[Verdict, int] = dict.fromkeys(VERDICTS, 0)
    quarantined = dict.fromkeys(QUARANTINE, 0)
    depths, refusals, models = Counter[int](), Counter[tuple[bool | None, bool | None]](), Counter[str]()
    remarks = Counter[str]()
    for profile, number in total.profiles.items():
        if profile.quarantine:
            quarantined[profile.quarantine] += number
        else:
            verdicts[profile.verdict] += number
        if profile.remark:
            remarks[profile.remark] += number
        if profile.counted:
            refusals[profile.expects_refusal, profile.refused] += number
            if profile.expects_refusal is False and profile.depth is not None:
                depths[profile.depth] += number
            if profile.backend not in _NO_MODEL:
                models[f"{profile.backend}/{profile.model}"] += number
            elif profile.backend != AUTHORED and profile.model not in _NO_MODEL:
                # several providers, or one that records can't name
                models[str(profile.model)] += number
    authored = total.count(lambda profile: profile.authored)
    stale = total.count(lambda profile: profile.stale)
    return Statistics(
        totals=Totals(selected=total.count(), verdicts=verdicts, quarantined=quarantined, stale=stale),
        overall=_group("", "", total),
        groups=tuple(_group(*key, merged(groups[key])) for key in sorted(groups, key=_rank)),
        depth=_depth_table(depths, levels, sampled=not authored),
        refusals=Refusals(
            due_refused=refusals[True, True],
            due_answered=refusals[True, False],
            undue_refused=refusals[False, True],
            undue_answered=refusals[False, False],
        ),
        authored=authored,
        models=dict(sorted(models.items())),
        cached=total.count(lambda profile: profile.counted and profile.cached),
        remarks=dict(sorted(remarks.items())),
        trials=tally.trials.figures(authored=authored > 0),
        exposure=_exposure(total),
    )


def _exposure(total: ResultSums) -> Exposure | None:
    fraction = measure(total, GENERAL_METRICS[EXPOSURE])
    tested = round(fraction.top)
    if tested == fraction.bottom:
        return None
    authored = total.count(lambda profile: (profile.counted or profile.vacuous) and profile.backend == AUTHORED)
    interval = None if authored else wilson_interval(tested, fraction.bottom)
    return Exposure(tested=tested, n=fraction.bottom, share=fraction.value, interval=interval)


def _group(name: str, value: str, sums: ResultSums) -> Group:
    passed, points = (measure(sums, GENERAL_METRICS[metric]) for metric in ("pass_rate", MEAN_SCORE))
    return Group(
        name=name,
        value=value,
        selected=sums.count(),
        n=passed.bottom,
        passed=round(passed.top),
        pass_rate=passed.value if passed.bottom else None,
        mean_score=points.value if points.bottom else None,
        interval=None
        if sums.count(lambda profile: profile.authored)
        else wilson_interval(round(passed.top), passed.bottom),
    )


def _rank(key: tuple[str, str]) -> tuple[int, str, int, str]:
    name, value = key
    # difficulties go from easy to expert, all other values alphabetically
    step = _DIFFICULTIES.index(value) if name == "difficulty" and value in _DIFFICULTIES else len(_DIFFICULTIES)
    return _GROUPING_RANKS.get(name, _FACET_RANK), name, step, value


def _depth_table(depths: Counter[int], levels: Sequence[int] | None, *, sampled: bool) -> tuple[Depth, ...]:
    n = depths.total()
    reported = sorted({level for level in (depths if levels is None else levels) if level > 0}, reverse=True)
    table, agreeing, left = [], 0, sorted(depths)
    for level in reported:
        while left and left[-1] >= level:
            agreeing += depths[left.pop()]
        table.append(
            Depth(
                level=level,
                agreeing=agreeing,
                n=n,
                share=agreeing / n if n else None,
                interval=wilson_interval(agreeing, n) if sampled else None,
            )
        )
    return tuple(reversed(table))
