"""What a tally adds up.

All that a figure can ask of a result is its `Profile`, of which a run has few. Results that share something are one
`Sums`: how many of them have each profile, and the sum of their scores. Records that share something are one `Cell`.
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


# scores and costs of records are added as whole billionths, so that their order makes no difference
NANO = 1_000_000_000
# every float is a whole multiple of this part of 1: sums of them are exact, and rounded once
_FINEST_BITS = 1074
_FINEST = 1 << _FINEST_BITS
_MOST_USD = 1e12
# the numbers of a cell that are added up
_ADDED = (
    *("tokens_known", "tokens_input", "tokens_output", "wall_clock_ms"),
    *("score_nano", "costed", "cost_nano", "later"),
)
_Key = TypeVar("_Key")


@dataclass(slots=True)
class Sums:
    """The sums of some results.

    Attributes:
        profiles: each profile to the number of results that have it.
        points: the sum of the scores of those in the rates, in whole parts of `_FINEST`.
        odd: the sum of those scores that are not finite.
        clusters: what the results in the rates share by design, where the tally was told a facet.
    """

    profiles: dict[Profile, int] = field(default_factory=dict)
    points: int = 0
    odd: float = 0.0
    clusters: set[str] = field(default_factory=set)

    def add(self, profile: Profile, points: float) -> None:
        """Add one result; its points are whole parts, or a score that is not finite."""
        self.profiles[profile] = self.profiles.get(profile, 0) + 1
        if isinstance(points, int):
            self.points += points
        else:
            self.odd += points

    def absorb(self, other: Sums) -> None:
        """Add the sums of other results."""
        for profile, number in other.profiles.items():
            self.profiles[profile] = self.profiles.get(profile, 0) + number
        self.points += other.points
        self.odd += other.odd
        self.clusters |= other.clusters

    def count(self, has: Callable[[Profile], object] = lambda _: True) -> int:
        """Count the results whose profile has something; all without a question."""
        return sum(number for profile, number in self.profiles.items() if has(profile))

    def by(self, of: Callable[[Profile], _Key]) -> Counter[_Key]:
        """Count the results by what a question says of their profiles."""
        found: Counter[_Key] = Counter()
        for profile, number in self.profiles.items():
            found[of(profile)] += number
        return found

    @property
    def score(self) -> float:
        """The sum of the scores of results in the rates, rounded once, so that their order makes no difference."""
        return self.points / _FINEST + self.odd


@dataclass(slots=True)
class Cell:
    """The sums of some records. What `packbench` holds is counted where it is of the type and range that we write.

    Attributes:
        ends: how records ended to their number: whether they passed, the decision, whether the task was done, and
            whether they have a score.
        tokens_known: records that tell tokens of either kind.
        tokens_input: their sum.
        tokens_output: their sum.
        wall_clock_ms: sum over the records, milliseconds.
        slowest_ms: the greatest of one record, milliseconds.
        score_nano: sum of their scores, billionths.
        costed: records with `packbench.cost_usd`.
        cost_nano: sum of those costs, billionths of a dollar.
        later: records that are a second or later trial of their case.
        hooks: rule (None without one), hook and decision of guard firings to their number.
    """

    ends: dict[tuple[bool, str, bool | None, bool], int] = field(default_factory=dict)
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

    def add(self, record: EvalRecord) -> None:
        """Count a record."""
        utility, scored = self._add_own(record.packbench) if record.packbench else (None, False)
        end = (record.passed, record.agent_decision, utility, scored)
        self.ends[end] = self.ends.get(end, 0) + 1
        tokens_input, tokens_output, wall_clock_ms = record.tokens_input, record.tokens_output, record.wall_clock_ms
        if tokens_input is not None or tokens_output is not None:
            self.tokens_known += 1
            self.tokens_input += tokens_input or 0
            self.tokens_output += tokens_output or 0
        self.wall_clock_ms += wall_clock_ms
        self.slowest_ms = max(self.slowest_ms, wall_clock_ms)
        for one in record.hook_decisions:
            self.hooks[one.rule, one.hook, one.decision] += 1

    def _add_own(self, own: Mapping[str, Any]) -> tuple[bool | None, bool]:
        utility, score = own.get("utility"), number_of(own.get("score"), 1)
        cost = number_of(own.get("cost_usd"), _MOST_USD)
        if score is not None:
            self.score_nano += round(score * NANO)
        if cost is not None:
            self.costed += 1
            self.cost_nano += round(cost * NANO)
        self.later += trial_of(own) > 0
        return utility if isinstance(utility, bool) else None, score is not None

    def absorb(self, other: Cell) -> None:
        """Add the sums of other records."""
        for end, number in other.ends.items():
            self.ends[end] = self.ends.get(end, 0) + number
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.hooks.update(other.hooks)

    def sums(self) -> Sums:
        """Give the sums that rates are made of; scores stay billionths, and are not among them."""
        found = Sums()
        for (passed, decision, utility, scored), number in self.ends.items():
            verdict = "passed" if passed else "failed"
            profile = Profile(verdict, decision=decision, utility=utility, scored=scored)
            found.profiles[profile] = found.profiles.get(profile, 0) + number
        return found


def merged(sums: Iterable[Sums]) -> Sums:
    """Add up the sums of groups that share no result."""
    whole = Sums()
    for one in sums:
        whole.absorb(one)
    return whole


def points_of(score: float | None) -> float:
    """Give a score in the whole parts that `Sums` adds up; one that is not finite stays as it is, None is 0."""
    if score is None:
        return 0
    if not isfinite(score):
        return score
    top, bottom = score.as_integer_ratio()
    return top << (_FINEST_BITS - bottom.bit_length() + 1)


def trial_of(own: Mapping[str, Any]) -> int:
    """Give which of several trials a record is, from its own object; 0 where that does not tell."""
    trial = own.get("trial")
    return trial if type(trial) is int and 0 <= trial <= U32_MAX else 0


def number_of(value: object, most: float) -> float | None:
    """Give a number of our own object that lies from 0 to the most that it can be; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    return None
