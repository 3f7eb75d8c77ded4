"""The suite: a folder with a `suite.yaml`, its cases and its cassettes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pytest_packbench.model.case import Fraction, ListOf, Name, StrictModel, Text
from pytest_packbench.model.gate import Gate
from pytest_packbench.model.metric import GENERAL_METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_packbench.model.metric import Metric


CONFIG_NAME = "suite.yaml"
TARGET = r"^(https?://\S+|cmd:.*\S.*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$"


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


class Prices(StrictModel):
    """What a model's tokens cost, where the price library doesn't know or isn't wanted.

    Attributes:
        input_per_million: for a million tokens that the model reads, in `currency`.
        output_per_million: for a million tokens that it writes.
        currency: the sign or code shown beside costs.
    """

    input_per_million: Annotated[float, Field(ge=0)]
    output_per_million: Annotated[float, Field(ge=0)]
    currency: Text = "USD"


class AtLeast(StrictModel):
    """So many trials of a case have to pass.

    Attributes:
        at_least: trials, 1 or more.
    """

    at_least: Annotated[int, Field(ge=1)]


def _one_of_the_rules(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError:
        expected = "mean, all, any, or at_least with a number from 1"
        raise PydanticCustomError("trials", "a rule for trials", {"expected": expected}) from None


Trials = Annotated[Literal["mean", "all", "any"] | AtLeast, WrapValidator(_one_of_the_rules)]


class SuiteConfig(StrictModel):
    """What `suite.yaml` says, for every pack; a pack adds its own rules in a subclass.

    Attributes:
        pack: the pack's name.
        description: one line for lists and reports.
        thresholds: when a case passes.
        gates: conditions on the run; `completeness min 1.0` always applies unless a gate on completeness is named.
        target: `package.module:attr`, `http://...` or `cmd:...`, where it is not the pack's reference target.
        backend: who answers model calls, where no option says it.
        model: which model answers, where no option says it.
        guards: what stands between an agent and untrusted text, where no option says it.
        prices: what tokens cost, by model.
        trials: how a case's verdict is made of several trials: `mean` (the mean score reaches the threshold), `all`,
            `any`, or `at_least: k` (so many pass); a trial that broke makes the case broken.
        metrics: the metrics that gates can use beside the general ones, by name; a pack may define its own here.
        not_scoring: keys that change no score; a pack may name more of its own (see `cases.rules`).
    """

    pack: Name
    description: Text = "no description"
    thresholds: Thresholds = Thresholds()
    gates: ListOf[Gate] = ()
    target: Annotated[str, Field(pattern=TARGET)] | None = None
    backend: Name | None = None
    model: Text | None = None
    guards: ListOf[Text] = ()
    prices: dict[Text, Prices] = Field(default_factory=dict)
    trials: Trials = "mean"

    metrics: ClassVar[Mapping[str, Metric]] = {}
    not_scoring: ClassVar[frozenset[str]] = frozenset(
        {"backend", "description", "gates", "guards", "model", "prices", "target", "trials"}
    )

    @field_validator("gates")
    @classmethod
    def _has_known_metrics(cls, gates: tuple[Gate, ...], info: ValidationInfo) -> tuple[Gate, ...]:
        known = cls.metric_names()
        whose = f"one of the metrics of pack {info.data['pack']}" if "pack" in info.data else "one of"
        wrong = PydanticCustomError("metric", "expected {expected}", {"expected": f"{whose}: {', '.join(known)}"})
        errors = [
            InitErrorDetails(type=wrong, loc=(index, "metric"), input=gate.metric)
            for index, gate in enumerate(gates)
            if gate.metric not in known
        ]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return gates

    @classmethod
    def metric_names(cls) -> tuple[str, ...]:
        """Return the names that `metric` of a gate can have, the general ones first."""
        return tuple({**GENERAL_METRICS, **cls.metrics})

    def trials_rule(self) -> str | dict[str, int]:
        """Give the rule for trials in plain JSON: `mean`, `all`, `any`, or `{"at_least": k}`."""
        return self.trials if isinstance(self.trials, str) else {"at_least": self.trials.at_least}

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
        sha256: hash of the scoring rules (`cases.rules`), hexadecimal; runs of the same hash are comparable.
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
