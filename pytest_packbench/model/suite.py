"""The suite: a folder with a `suite.yaml`, its cases and its cassettes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from pytest_packbench.model.case import TARGET, Expected, ListOf, Name, StrictModel, Text, Threshold
from pytest_packbench.model.gate import Gate
from pytest_packbench.model.metric import GENERAL_METRICS, Metric
from pytest_packbench.model.run import BUNDLED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


CONFIG_NAME = "suite.yaml"
BASELINE_NAME = "baseline.json"
"""The file of the committed baseline."""
FIXTURES = "fixtures"
"""The folder of a suite's recordings."""
PENDING = ".pending"
"""The folder under `fixtures` of recordings that change an older one and wait for `packbench accept`."""
CONTROLS = "controls"
"""The folder under `fixtures` of controls."""


class Thresholds(StrictModel):
    """The scores at or above which cases pass, above 0, at most 1 (spec, "Scoring overview").

    Attributes:
        accept: for cases that expect an answer.
        refuse: for cases that expect a refusal.
        by_type: by case type; overrides the two above, and is overridden by the case's `expected.threshold`.
    """

    accept: Threshold = 0.8
    refuse: Threshold = 0.9
    by_type: dict[Name, Threshold] = Field(default_factory=dict)


class Prices(StrictModel):
    """The prices of a model; they override those of the library `genai-prices`.

    Attributes:
        input_per_million: price of a million input tokens, in `currency`.
        output_per_million: price of a million output tokens.
        currency: the sign or code that is printed with costs.
    """

    input_per_million: Annotated[float, Field(ge=0)]
    output_per_million: Annotated[float, Field(ge=0)]
    currency: Text = "USD"


class AtLeast(StrictModel):
    """The rule that a case passes if at least so many of its trials pass.

    Attributes:
        at_least: number of trials, 1 or more.
    """

    at_least: Annotated[int, Field(ge=1)]


class RecordingRules(StrictModel):
    """How calls of a target's own clients are compared with recorded ones.

    Attributes:
        ignore_headers: names of request headers that do not decide on an answer, in addition to those that never do;
            `*` is any text.
    """

    ignore_headers: ListOf[Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]] = ()


Trials = Annotated[
    Literal["mean", "all", "any"] | AtLeast, Expected("mean, all, any, or at_least with a number of 1 or more")
]


class SuiteConfig(StrictModel):
    """The keys of `suite.yaml` that all packs share; a pack adds its own rules in a subclass.

    Attributes:
        pack: the name of the pack.
        description: one line for lists and reports.
        thresholds: the scores at or above which cases pass.
        gates: conditions on the run; `completeness min 1.0` is added unless there is a gate on completeness.
        target: `package.module:attr`, `http://...` or `cmd:...`; None for the pack's reference target.
        backend: the default backend for model calls.
        model: the default model.
        guards: the default guards between an agent and untrusted text.
        prices: the prices of tokens, by model.
        ignore: files that are no cases, although they are in the folder of cases or look like a case: paths from the
            suite's folder, or names, with `*` and `?`; cases can't be ignored.
        trials: how several trials decide a case: `mean` (the mean score reaches the threshold), `all`, `any`, or
            `at_least: k` (k trials pass); an error in one trial makes the case an error.
        recording: how calls of the target's own clients are compared with recorded ones.
        metrics: the metrics that gates can use in addition to the general ones, by name; a pack defines its own here.
        not_scoring: keys that do not change a score; a pack may extend it (see `cases.load.scoring_sha256`).
    """

    pack: Name
    description: Text = "no description"
    thresholds: Thresholds = Thresholds.model_construct()
    gates: ListOf[Gate] = ()
    target: Annotated[str, Field(pattern=TARGET)] | None = None
    backend: Name | None = None
    model: Text | None = None
    guards: ListOf[Text] = ()
    prices: dict[Text, Prices] = Field(default_factory=dict)
    ignore: ListOf[Text] = ()
    trials: Trials = "mean"
    recording: RecordingRules = RecordingRules.model_construct()

    metrics: ClassVar[Mapping[str, Metric]] = {}
    not_scoring: ClassVar[frozenset[str]] = frozenset(
        {"backend", "description", "gates", "guards", "ignore", "model", "prices", "recording", "target", "trials"}
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
        """Return the rule for trials as plain JSON: `mean`, `all`, `any`, or `{"at_least": k}`."""
        return self.trials if isinstance(self.trials, str) else {"at_least": self.trials.at_least}

    def all_gates(self) -> tuple[Gate, ...]:
        """Return the gates of a run, the default gate on completeness first."""
        if any(gate.metric == "completeness" and gate.by is None for gate in self.gates):
            return self.gates
        return (Gate(metric="completeness", min=1.0), *self.gates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite without its cases.

    Attributes:
        name: the name of the folder; of a bundled suite with `bundled/` before it if the project has suites of its own.
        path: the folder, absolute.
        config: the content of `suite.yaml`, an instance of the pack's `suite_model`.
        sha256: hash of the scoring rules (`scoring_sha256`), hexadecimal; runs with the same hash are comparable.
        bundled: whether it is part of the installed package instead of the project.
        fixtures: the folder of its recordings, relative to its own.
    """

    name: str
    path: Path
    config: SuiteConfig
    sha256: str
    bundled: bool = False
    fixtures: str = FIXTURES

    @property
    def record_name(self) -> str:
        """The name in records and test ids, the same for a bundled suite and for a copy of it."""
        return self.name.removeprefix(BUNDLED)

    @property
    def cases_path(self) -> Path:
        """The folder of case files."""
        return self.path / "cases"

    @property
    def controls_path(self) -> Path:
        """The folder of controls."""
        return self.path / self.fixtures / CONTROLS

    @property
    def baseline_path(self) -> Path:
        """The file of the committed baseline."""
        return self.path / BASELINE_NAME

    def cassette_path(self, case_id: str) -> Path:
        """Return the path of a case's own cassette file; with a valid `case_id`, it is in the folder of the suite."""
        return self.path / self.fixtures / f"{case_id}.json"

    def pending_path(self, case_id: str) -> Path:
        """Return the path of a recording that waits for approval."""
        return self.path / self.fixtures / PENDING / f"{case_id}.json"
