"""The sums that statistics, gates and reports are computed from.

A `Profile` contains all that a figure needs of one result, beside its score; a run has few different ones. `ResultSums`
count the results of a group by profile and add up their scores. `RecordSums` do the same for wire records.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_packbench.model.metric import Profile
from pytest_packbench.model.strict_json import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_packbench.model.record import EvalRecord


# scores and costs of records are added as whole billionths, so that the sum does not depend on their order
NANO = 1_000_000_000
# every float is a multiple of 2 ** -1074, so that sums of such multiples are exact
_FINEST_BITS = 1074
_FINEST = 1 << _FINEST_BITS
_MAX_USD = 1e12
# the fields of `RecordSums` that are simply added
_ADDED = (
    *("tokens_known", "tokens_input", "tokens_output", "wall_clock_ms"),
    *("score_nano", "costed", "cost_nano", "later"),
)
_Key = TypeVar("_Key")


@dataclass(slots=True)
class ResultSums:
    """The sums over a group of results.

    Attributes:
        profiles: number of results by profile.
        points: the sum of the scores in the rates, in multiples of `1 / _FINEST`.
        not_finite: the sum of those scores that are not finite.
        clusters: the clusters of the results in the rates, if the tally has a facet.
    """

    profiles: dict[Profile, int] = field(default_factory=dict)
    points: int = 0
    not_finite: float = 0.0
    clusters: set[str] = field(default_factory=set)

    def add(self, profile: Profile, points: float) -> None:
        """Add one result with its points, as `points_of` returns them."""
        self.profiles[profile] = self.profiles.get(profile, 0) + 1
        if isinstance(points, int):
            self.points += points
        else:
            self.not_finite += points

    def merge(self, other: ResultSums) -> None:
        """Add the sums of another group."""
        for profile, number in other.profiles.items():
            self.profiles[profile] = self.profiles.get(profile, 0) + number
        self.points += other.points
        self.not_finite += other.not_finite
        self.clusters |= other.clusters

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
        return self.points / _FINEST + self.not_finite


@dataclass(slots=True)
class RecordSums:
    """The sums over a group of wire records. Values under `packbench` of another type or range are ignored.

    Attributes:
        endings: number of records by passed, decision, utility, whether they have a score, and the facets that a
            metric excludes.
        tokens_known: records with a token count of either kind.
        tokens_input: their sum.
        tokens_output: their sum.
        wall_clock_ms: sum over the records, milliseconds.
        slowest_ms: the slowest record, milliseconds.
        score_nano: sum of their scores, billionths.
        costed: records with `packbench.cost_usd`.
        cost_nano: sum of those costs, billionths of a dollar.
        later: records that are a second or later trial of their case.
        hooks: number of guard firings by rule (None without one), hook and decision.
    """

    endings: dict[tuple[bool, str, bool | None, bool, tuple[tuple[str, str], ...]], int] = field(default_factory=dict)
    tokens_known: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    wall_clock_ms: int = 0
    slowest_ms: int = 0
    score_nano: int = 0
    costed: int = 0
    cost_nano: int = 0
    later: int = 0
    hooks: Counter[tuple[int | None, str, str]] = field(default_factory=Counter)

    def add(self, record: EvalRecord, facets: tuple[tuple[str, str], ...] = ()) -> None:
        """Add a record, with those of its facets that a metric excludes."""
        utility, scored = self._add_packbench(record.packbench) if record.packbench else (None, False)
        ending = (record.passed, record.agent_decision, utility, scored, facets)
        self.endings[ending] = self.endings.get(ending, 0) + 1
        tokens_input, tokens_output, wall_clock_ms = record.tokens_input, record.tokens_output, record.wall_clock_ms
        if tokens_input is not None or tokens_output is not None:
            self.tokens_known += 1
            self.tokens_input += tokens_input or 0
            self.tokens_output += tokens_output or 0
        self.wall_clock_ms += wall_clock_ms
        self.slowest_ms = max(self.slowest_ms, wall_clock_ms)
        for firing in record.hook_decisions:
            self.hooks[firing.rule, firing.hook, firing.decision] += 1

    def _add_packbench(self, packbench: Mapping[str, Any]) -> tuple[bool | None, bool]:
        utility, score = packbench.get("utility"), number_of(packbench.get("score"), 1)
        cost = number_of(packbench.get("cost_usd"), _MAX_USD)
        if score is not None:
            self.score_nano += round(score * NANO)
        if cost is not None:
            self.costed += 1
            self.cost_nano += round(cost * NANO)
        self.later += trial_of(packbench) > 0
        return utility if isinstance(utility, bool) else None, score is not None

    def merge(self, other: RecordSums) -> None:
        """Add the sums of another group."""
        for ending, number in other.endings.items():
            self.endings[ending] = self.endings.get(ending, 0) + number
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.hooks.update(other.hooks)

    def result_sums(self) -> ResultSums:
        """Return the counts as sums of results, without scores."""
        sums = ResultSums()
        for (passed, decision, utility, scored, facets), number in self.endings.items():
            verdict = "passed" if passed else "failed"
            profile = Profile(verdict, decision=decision, utility=utility, scored=scored, facets=facets)
            sums.profiles[profile] = sums.profiles.get(profile, 0) + number
        return sums


def merged(sums: Iterable[ResultSums]) -> ResultSums:
    """Return the sum over groups that share no result."""
    total = ResultSums()
    for group in sums:
        total.merge(group)
    return total


def points_of(score: float | None) -> float:
    """Return a score as a multiple of `1 / _FINEST`; a score that is not finite is returned unchanged, None is 0."""
    if score is None:
        return 0
    if not isfinite(score):
        return score
    top, bottom = score.as_integer_ratio()
    return top << (_FINEST_BITS - bottom.bit_length() + 1)


def trial_of(packbench: Mapping[str, Any]) -> int:
    """Return the trial number in a record's `packbench` object; 0 if it has none."""
    trial = packbench.get("trial")
    return trial if type(trial) is int and 0 <= trial <= U32_MAX else 0


def number_of(value: object, maximum: float) -> float | None:
    """Return a value that is a number from 0 to `maximum`; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= maximum:
        return value
    return None
