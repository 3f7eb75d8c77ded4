"""What came of comparing a run with its baseline, and whether that fails the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.analysis.gates import incomparable

if TYPE_CHECKING:
    from pytest_packbench.analysis.comparison import FailCondition, RunComparison
    from pytest_packbench.runs.stored import BaselineLookup


class BaselineOutcome(NamedTuple):
    """What came of comparing a run with its baseline.

    Attributes:
        requested: the baseline as the user named it.
        comparison: the comparison; None if the baseline was not found, or the run is a shard.
        problem: why the run was not compared, in one line; empty if it was.
        optional: whether the run passes without a comparison.
        conditions: the conditions that fail the run if they are met.
        warning: what to know about the baseline, in one line; empty if there is nothing.
    """

    requested: str
    comparison: RunComparison | None = None
    problem: str = ""
    optional: bool = False
    conditions: tuple[FailCondition, ...] = ()
    warning: str = ""

    @property
    def compared(self) -> RunComparison | None:
        """The comparison if it says anything; None if the runs can't be compared."""
        return None if self.problem else self.comparison

    @property
    def met(self) -> tuple[FailCondition, ...]:
        """The conditions that are met."""
        comparison = self.compared
        if comparison is None:
            return ()
        figures = comparison.figures()
        return tuple(condition for condition in self.conditions if condition.is_met(figures))

    @property
    def fails_unseen(self) -> bool:
        """Whether the run fails because it could not be compared."""
        return bool(self.problem) and not self.optional

    @property
    def failures(self) -> tuple[str, ...]:
        """Why the run fails because of its baseline, one reason each."""
        if self.problem:
            return () if self.optional else (f"baseline {self.requested}: {self.problem}",)
        return tuple(self._met_text(condition) for condition in self.met)

    def _met_text(self, condition: FailCondition) -> str:
        figures = {} if self.comparison is None else self.comparison.figures()
        value = figures.get(condition.name, float("nan"))
        known = value == value  # noqa: PLR0124 - only NaN differs from itself
        return f"condition {condition} is met: {f'{value:g}' if known else 'the value is not known'}"


def baseline_outcome(earlier: BaselineLookup, comparison: RunComparison | None, scope: str) -> BaselineOutcome | None:
    """Return what came of comparing a run with a baseline.

    Args:
        earlier: the baseline, or why there is none.
        comparison: the comparison; None if there was nothing to compare with.
        scope: of the run, as in `conclude`.

    Returns:
        The outcome; None if no baseline was requested.

    Raises:
        ConditionError: a condition is malformed or names an unknown figure.
    """
    if earlier.stored is None and not earlier.reason:
        return None
    problem, optional = earlier.reason, earlier.optional
    if scope == "shard":
        problem, optional = "not compared: this is a shard; packbench merge --baseline compares the merged run", True
    elif comparison is not None:
        if scope == "part":
            # a case that was not selected is not known to be removed
            comparison = replace(comparison, removed=(), cases=(comparison.common, comparison.cases[1]))
        problem = incomparable(comparison)
        # a few cases that were edited are no reason to fail a run of these only
        optional = optional or (scope == "part" and not comparison.differences)
    conditions: tuple[FailCondition, ...] = ()
    if earlier.fail_on:
        from pytest_packbench.analysis.comparison import FIGURES, parse_conditions

        conditions = parse_conditions(earlier.fail_on, FIGURES)
    return BaselineOutcome(
        requested=earlier.requested,
        comparison=comparison,
        problem=problem,
        optional=optional,
        conditions=conditions,
        warning=earlier.warning,
    )
