"""Gates: conditions on a whole run, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from pytest_packbench.model.case import CaseId, Fraction, ListOf, Name, StrictModel, misfit
from pytest_packbench.model.metric import COMPLETENESS, MEAN_SCORE
from pytest_packbench.model.result import UNREADABLE_GROUP
from pytest_packbench.model.score import Count, Flag, Number  # noqa: TC001 - pydantic reads the types of fields

if TYPE_CHECKING:
    from collections.abc import Sequence

# not proportions of independent cases, so that an exact bound does not exist
_WITHOUT_BOUND = (COMPLETENESS, MEAN_SCORE)
CHANGES = ("max_regressions", "max_new_failures", "min_mean_change")
"""The bounds of a gate on the change since the baseline."""
CHANGE_METRICS = dict(zip(CHANGES, ("regressions", "new_failures", "mean_change"), strict=True))
"""What they bound, as results name it."""


class Gate(StrictModel):
    """A condition on a whole run.

    Attributes:
        metric: `completeness` (cases with a verdict over cases selected), `exposure_rate` (cases that could have failed
            over those that ran, so without the vacuous ones), `pass_rate`, `mean_score`,
            `over_refusal_rate` (refusals among the cases that expect an answer), `accuracy` (answers that agree to
            `depth`, among the cases that expect one), or a metric of the suite's pack.
        min: the smallest value that passes, 0 to 1.
        max: the largest value that passes, 0 to 1.
        max_ratio_to_baseline: the largest multiple of the baseline's value that passes.
        by: check each group separately: `case_type`, `difficulty`, `tag` or a facet of the pack.
        depth: for `accuracy`, the depth of agreement in the pack's unit.
        confidence: compare the one-sided exact bound at this confidence instead of the value, 0.5 to 1.
        must_pass: instead of a metric, the ids of cases that must pass.
        max_regressions: instead of a metric, the largest number of cases whose score may have fallen by 0.05 or more
            since the baseline.
        max_new_failures: instead of a metric, the largest number of cases that may fail or end in an error now, and did
            not in the baseline.
        min_mean_change: instead of a metric, the smallest mean change of the scores since the baseline that passes, in
            points of score, -1 to 1.
    """

    metric: Name = "pass_rate"
    min: Fraction | None = None
    max: Fraction | None = None
    max_ratio_to_baseline: Annotated[float, Field(ge=0)] | None = None
    by: Name | None = None
    depth: Annotated[int, Field(ge=1)] | None = None
    confidence: Annotated[float, Field(ge=0.5, lt=1)] | None = None
    must_pass: ListOf[CaseId] = ()
    max_regressions: Count | None = None
    max_new_failures: Count | None = None
    min_mean_change: Annotated[float, Field(ge=-1, le=1)] | None = None

    @property
    def change(self) -> str:
        """The bound on the change since the baseline that the gate has instead of a metric; empty if it has none."""
        return next((name for name in CHANGES if getattr(self, name) is not None), "")

    @property
    def compares(self) -> bool:
        """Whether the gate needs a baseline."""
        return self.max_ratio_to_baseline is not None or bool(self.change)

    @model_validator(mode="after")
    def _decides(self) -> Self:
        bounded = any(bound is not None for bound in (self.min, self.max, self.max_ratio_to_baseline))
        named = "metric" in self.model_fields_set
        changes = [name for name in CHANGES if getattr(self, name) is not None]
        if changes:
            others = (bounded, named, self.depth is not None, self.confidence is not None, bool(self.must_pass))
            if len(changes) > 1 or any(others):
                wrong = " and ".join(changes) if len(changes) > 1 else f"{changes[0]} with a metric or another bound"
                raise misfit(wrong, "each in a gate of its own, alone or with by")
            return self
        if self.must_pass and (bounded or named or self.by is not None):
            wrong = "by" if not (bounded or named) else "a metric or a bound"
            raise misfit(f"must_pass with {wrong}", "must_pass in a separate gate")
        if not self.must_pass and not bounded:
            raise misfit(
                "a gate without a bound",
                "min, max or both; or max_ratio_to_baseline; or must_pass; or " + ", ".join(CHANGES),
            )
        if not self.must_pass and not named:
            raise misfit("a gate without a metric", "metric, such as pass_rate")
        if (self.metric == "accuracy") is (self.depth is None):
            raise misfit(f"{self.metric} {'without' if self.depth is None else 'with'} depth", "depth with accuracy")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise misfit(f"min {self.min:g} above max {self.max:g}, so that no run passes", "min at most max")
        if self.confidence is not None and (self.metric in _WITHOUT_BOUND or (self.min is None and self.max is None)):
            raise misfit(f"confidence with {self.metric}", "confidence with min or max of a rate over cases")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of one gate for a run, or for one group of cases.

    Attributes:
        metric: the metric, `must_pass`, or what changed: `regressions`, `new_failures` or `mean_change`.
        by: what the cases were grouped by; None for the whole run.
        value: the value of the group; None for the whole run, and if no case belongs to a group.
        passed: whether the gate passed; true as well where it was not judged.
        observed: the value of the metric, 0 to 1; for a change a number of cases, or points of score from -1 to 1; None
            if it is not known.
        min: the smallest value that passes.
        max: the largest value that passes.
        text: the calculation in one line: `pass_rate 3 / 50 = 6.0 % < min 90.0 %: FAIL`.
        absent: whether it failed only because of cases that are not in the run.
        proven: for a rate within its bounds, whether the exact one-sided bound at the gate's `confidence`, else at
            95 %, is within them too; None where the question does not apply: for authored answers, for bounds of 0 and
            1 without `confidence`, which no number of cases can prove, and for a rate that is not within its bounds.
        counted: the counts behind the value, such as 3 of 50; None where it is no share of cases.
        interval: the two-sided 95 % interval of the value; None without one, as for authored answers.
        judged: whether it was judged: not in a shard, nor where its cases are not in the run; the text states why.
        confidence: of the one-sided exact bound that is compared instead of the value; None if the value is.
    """

    metric: str
    by: str | None
    value: str | None
    passed: Flag
    observed: Number | None
    min: Number | None
    max: Number | None
    text: str
    absent: Flag = False
    proven: Flag | None = None
    counted: tuple[Count, Count] | None = None
    interval: tuple[Number, Number] | None = None
    judged: Flag = True
    confidence: Number | None = None

    @property
    def subject(self) -> str:
        """The metric and the group: `pass_rate`, `pass_rate (case_type negative)`."""
        if self.by is None:
            return self.metric
        if self.value is None:
            return f"{self.metric} (by {self.by})"
        return f"{self.metric} ({self.by} {self.value or UNREADABLE_GROUP})"


def gates_text(gates: Sequence[GateResult]) -> str:
    """Return how many gates passed: `2 of 3 passed, 1 not judged`; or `0 of 3 judged`, which is no success."""
    judged = [gate for gate in gates if gate.judged]
    if gates and not judged:
        return f"0 of {len(gates)} judged"
    more = f", {len(gates) - len(judged)} not judged" if len(judged) < len(gates) else ""
    return f"{sum(gate.passed for gate in judged)} of {len(gates)} passed{more}"
