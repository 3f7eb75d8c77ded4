"""The suite: a folder with a `suite.yaml`, its cases and its cassettes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from pytest_packbench.cases.model import CaseId, Fraction, ListOf, Name, StrictModel, Text

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_NAME = "suite.yaml"
TARGET = r"^(https?://\S+|cmd:.*\S.*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$"
Metric = Literal[
    "completeness",
    "pass_rate",
    "mean_score",
    "attack_success_rate",
    "attack_success_rate_valid",
    "utility_rate",
    "valid_rate",
    "over_refusal_rate",
    "accuracy",
]
# metrics that are no share of independent cases: an exact bound would not mean anything
_UNBOUNDED = ("completeness", "mean_score")


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
        metric: `completeness` (cases with a verdict over cases selected), `pass_rate`, `mean_score`,
            `attack_success_rate` (unsafe acts among judged cases), `attack_success_rate_valid` (the same among those
            whose answer could be read), `utility_rate` (the user's task done, among cases that tell), `valid_rate`
            (answers that could be read, among cases that tell), `over_refusal_rate` (refusals among the cases that
            expect an answer), or `accuracy` (answers that agree to `depth`, among the cases that expect one).
        min: the least value that passes, 0 to 1.
        max: the greatest value that passes, 0 to 1.
        max_ratio_to_baseline: the greatest multiple of the baseline's value that passes.
        by: judge each group apart: `case_type`, `difficulty`, `tag` or a facet of the pack.
        depth: for `accuracy`: the depth of agreement, in the pack's unit.
        confidence: decide on the one-sided exact bound at this confidence instead of the value, 0.5 to 1.
        must_pass: instead of a metric: ids of cases that have to pass.
    """

    metric: Metric = "pass_rate"
    min: Fraction | None = None
    max: Fraction | None = None
    max_ratio_to_baseline: Annotated[float, Field(ge=0)] | None = None
    by: Name | None = None
    depth: Annotated[int, Field(ge=1)] | None = None
    confidence: Annotated[float, Field(ge=0.5, lt=1)] | None = None
    must_pass: ListOf[CaseId] = ()

    @model_validator(mode="after")
    def _decides(self) -> Self:
        bounded = any(bound is not None for bound in (self.min, self.max, self.max_ratio_to_baseline))
        named = "metric" in self.model_fields_set
        if self.must_pass and (bounded or named or self.by is not None):
            wrong = "by" if not (bounded or named) else "a metric or a bound"
            raise _wrong(f"must_pass with {wrong}", "a gate of its own for must_pass")
        if not self.must_pass and not bounded:
            raise _wrong("a gate without a bound", "min, max or both; or max_ratio_to_baseline; or must_pass")
        if not self.must_pass and not named:
            raise _wrong("a gate without a metric", "metric, such as pass_rate")
        if (self.metric == "accuracy") is (self.depth is None):
            raise _wrong(f"{self.metric} {'without' if self.depth is None else 'with'} depth", "depth with accuracy")
        if self.confidence is not None and (self.metric in _UNBOUNDED or (self.min is None and self.max is None)):
            raise _wrong(f"confidence with {self.metric}", "confidence with min or max of a rate over cases")
        return self


def _wrong(wrong: str, expected: str) -> PydanticCustomError:
    return PydanticCustomError("gate", "a gate", {"wrong": wrong, "expected": expected})


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

    not_scoring: ClassVar[frozenset[str]] = frozenset(
        {"backend", "description", "gates", "guards", "model", "prices", "target", "trials"}
    )

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
