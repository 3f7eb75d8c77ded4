"""Metrics: what a gate can bound. Each is a share of the results of a run, computed from their profiles.

`GENERAL_METRICS` exist in every suite; the suite model of a pack can add its own (`SuiteConfig.metrics`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_packbench.model.score import COUNTED, FIXTURE, is_due

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


AUTHORED = "stub"
"""The backend whose answers were written by a person or a script."""
COMPLETENESS = "completeness"
MEAN_SCORE = "mean_score"
EXPOSURE = "exposure_rate"


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Everything about one result that a metric can use, except its score.

    The fields are those of `CaseResult`, except for five: `quarantine` is `skip` or `xfail` where the notes of the case
    quarantine it, else empty; `scored` is whether there is a score; `depth` and `level` are its `match_depth` and
    `match_level`; `cached` is whether a cached answer was used. `mode` is that of the run, and `facets` has those that
    a metric excludes or counts apart (`Metric.excluded`, `Metric.apart`).
    """

    verdict: str
    quarantine: str = ""
    scored: bool = False
    decision: str | None = None
    utility: bool | None = None
    valid: bool | None = None
    expects_refusal: bool | None = None
    refused: bool | None = None
    depth: int | None = None
    level: str | None = None
    backend: str | None = None
    model: str | None = None
    judge: str | None = None
    stale: bool = False
    remark: str = ""
    cached: bool = False
    facets: tuple[tuple[str, str], ...] = ()
    mode: str = FIXTURE

    @property
    def counted(self) -> bool:
        """Whether the result counts in rates: it was scored and passed or failed."""
        return self.verdict in COUNTED and not self.quarantine

    @property
    def due(self) -> bool:
        """Whether the case has to end as passed or failed."""
        return not self.quarantine and is_due(self.verdict, self.mode)

    @property
    def vacuous(self) -> bool:
        """Whether the case ran and could not have failed."""
        return self.verdict == "vacuous" and not self.quarantine

    @property
    def authored(self) -> bool:
        """Whether it is a counted answer written by a person or a script: not a sample of a model's answers."""
        return self.counted and self.backend == AUTHORED

    @property
    def answer_due(self) -> bool:
        """Whether the result counts in rates and its case expects an answer, not a refusal."""
        return self.counted and self.expects_refusal is False


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A share of the results of a run: those that `counts` among those that `among` accepts.

    Attributes:
        among: whether a result belongs to the denominator.
        counts: whether a result of the denominator belongs to the numerator; the second argument is the `depth` of the
            gate, 1 where it has none.
        skips_refusals: whether a group in which every case expects a refusal is left out.
        excluded: a facet and its value; None for none. Cases with it are not what the metric is about: they do not
            count, and its gates pass in a run that has no others.
        apart: a facet and its value; None for none. Cases with it count only in a group without others that count.
    """

    among: Callable[[Profile], object]
    counts: Callable[[Profile, int], object]
    skips_refusals: bool = False
    excluded: tuple[str, str] | None = None
    apart: tuple[str, str] | None = None

    def is_about(self, result: Profile) -> bool:
        """Whether the metric is about a result at all, judged or not."""
        return self.excluded is None or self.excluded not in result.facets


GENERAL_METRICS: Mapping[str, Metric] = {
    COMPLETENESS: Metric(among=lambda result: result.due, counts=lambda result, _: result.counted),
    # cases that could have failed, among those that ran
    EXPOSURE: Metric(among=lambda result: result.counted or result.vacuous, counts=lambda result, _: result.counted),
    "pass_rate": Metric(among=lambda result: result.counted, counts=lambda result, _: result.verdict == "passed"),
    # the numerator is the sum of the scores (`analysis.metrics.measure`)
    MEAN_SCORE: Metric(among=lambda result: result.counted and result.scored, counts=lambda *_: True),
    "over_refusal_rate": Metric(
        among=lambda result: result.answer_due, counts=lambda result, _: result.refused, skips_refusals=True
    ),
    # a refusal where an answer is due agrees to no depth
    "accuracy": Metric(
        among=lambda result: result.answer_due,
        counts=lambda result, depth: (result.depth or 0) >= depth,
        skips_refusals=True,
    ),
}
"""The metrics of every suite, by the name that a gate uses."""
