"""The suite: a folder with a `suite.yaml`, its cases and its cassettes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from pytest_packbench.cases.model import Fraction, ListOf, Name, StrictModel, Text

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_NAME = "suite.yaml"
Metric = Literal["completeness", "pass_rate", "mean_score", "over_refusal_rate"]


class Thresholds(StrictModel):
    """The score from which a case passes, 0 to 1 (spec, "Scoring overview").

    Attributes:
        accept: where the case expects an answer.
        refuse: where the case expects a refusal.
        by_type: by case type, before the two above; a case's own `expected.threshold` comes before all.
    """

    accept: Fraction = 0.8
    refuse: Fraction = 0.9
    by_type: dict[Name, Fraction] = Field(default_factory=dict)


class Gate(StrictModel):
    """A condition on a whole run.

    Attributes:
        metric: `completeness` (cases with a verdict over cases selected), `pass_rate`, `mean_score`, or
            `over_refusal_rate` (refusals among the cases that expect an answer).
        min: the least value that passes, 0 to 1.
        max: the greatest value that passes, 0 to 1.
        by: judge each group apart: `case_type`, `difficulty`, `tag` or a facet of the pack.
    """

    metric: Metric
    min: Fraction | None = None
    max: Fraction | None = None
    by: Name | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.min is None and self.max is None:
            raise PydanticCustomError(
                "gate_bound",
                "a gate needs a bound",
                {"wrong": "a gate without a bound", "expected": "min, max or both"},
            )
        return self


class SuiteConfig(StrictModel):
    """What `suite.yaml` says, for every pack; a pack adds its own rules in a subclass.

    Attributes:
        pack: the pack's name.
        description: one line for lists and reports.
        thresholds: when a case passes.
        gates: conditions on the run; `completeness min 1.0` always applies unless a gate on completeness is named.
        target: `package.module:attr`, where the suite doesn't use the pack's reference target.
    """

    pack: Name
    description: Text = "no description"
    thresholds: Thresholds = Thresholds()
    gates: ListOf[Gate] = ()
    target: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")] | None = None

    def all_gates(self) -> tuple[Gate, ...]:
        """Give the gates of a run, the default one on completeness first (design 4)."""
        if any(gate.metric == "completeness" and gate.by is None for gate in self.gates):
            return self.gates
        return (Gate(metric="completeness", min=1.0), *self.gates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite that was found and read.

    Attributes:
        name: the folder's name.
        path: the folder, absolute.
        config: what its `suite.yaml` says, in the pack's own model.
        sha256: hash of the rules (canonical JSON of the config), hexadecimal.
        bundled: whether it comes with the installed package instead of the project.
    """

    name: str
    path: Path
    config: SuiteConfig
    sha256: str
    bundled: bool = False

    @property
    def cases_path(self) -> Path:
        """The folder of case files."""
        return self.path / "cases"

    def cassette_path(self, case_id: str) -> Path:
        """Give the place of a case's cassette; `case_id` is a valid case id, so it stays in the folder."""
        return self.path / "fixtures" / f"{case_id}.json"
