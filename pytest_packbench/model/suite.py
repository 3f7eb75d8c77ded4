"""The suite: a folder with a `suite.yaml`, its cases and its cassettes; and the metrics and gates of a whole run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, Strict, ValidationError, ValidationInfo, create_model, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from pytest_packbench.model.case import (
    TARGET,
    Case,
    CaseId,
    Expected,
    Fraction,
    ListOf,
    Matching,
    Name,
    StrictModel,
    Text,
    Threshold,
    misfit,
    refused,
)
from pytest_packbench.model.errors import first_problem
from pytest_packbench.model.result import (
    COUNTED,
    FIXTURE,
    UNREADABLE_GROUP,
    Count,
    Flag,
    Labels,
    Number,
    Verdict,
    adapter,
    is_due,
)
from pytest_packbench.model.run import BUNDLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.case import Flaw


AUTHORED = "stub"
"""The backend whose answers were written by a person or a script."""
IGNORED = "ignore"
"""The value of `unknown_keys` in a suite that leaves keys unread that the answer model does not have."""
COMPLETENESS = "completeness"
MEAN_SCORE = "mean_score"
EXPOSURE = "exposure_rate"
# a number that is read back stays what it was
_Number = Annotated[Annotated[int, Strict()] | Number, Expected("a number")]
_FIGURE_TEXTS = ("name", "definition", "group", "unit", "note")
_FIGURE_KEYS = (
    *("group", "name", "headline", "count", "total", "share", "number", "unit", "interval", "note", "definition"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Everything about one result that a metric can use, except its score.

    The fields are those of `Result`, except for six: `quarantine` is `skip` or `xfail` where the notes of the case
    quarantine it, else empty; `scored` is whether there is a score; `depth` and `level` are its `match_depth` and
    `match_level`; `cached` is whether a cached answer was used. `mode` is that of the run, and `facets` has those that
    a metric excludes or counts apart (`Metric.excluded`, `Metric.apart`). `unread` is whether the answer is
    unreadable, and it is no refusal.
    """

    verdict: Verdict
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
    labels: Labels | None = None
    cached: bool = False
    facets: tuple[tuple[str, str], ...] = ()
    mode: str = FIXTURE
    unread: bool = False

    @property
    def counted(self) -> bool:
        """Whether the result counts in rates: it was scored and passed or failed."""
        return self.verdict in COUNTED and not self.quarantine

    @property
    def due(self) -> bool:
        """Whether the case has to end as passed or failed."""
        return not self.quarantine and is_due(self.verdict, self.mode, valid=self.valid)

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
        definition: what it is, in one sentence; with one, reports show it as a figure.
        skips_refusals: whether a group in which every case expects a refusal is left out.
        excluded: a facet and its value; None for none. Cases with it are not what the metric is about: they do not
            count, and its gates pass in a run that has no others.
        of_labels: `precision`, `recall` or `F1` of labels, which takes the place of the first two; empty for none.
        apart: a facet and its value; None for none. Cases with it count only in a group without others that count.
    """

    among: Callable[[Profile], object]
    counts: Callable[[Profile, int], object]
    definition: str = ""
    skips_refusals: bool = False
    excluded: tuple[str, str] | None = None
    apart: tuple[str, str] | None = None
    of_labels: str = ""

    def is_about(self, result: Profile) -> bool:
        """Whether the metric is about a result at all, judged or not."""
        return self.excluded is None or self.excluded not in result.facets


GENERAL_METRICS: Mapping[str, Metric] = {
    COMPLETENESS: Metric(among=lambda result: result.due, counts=lambda result, _: result.counted),
    # cases that could have failed, among those that ran
    EXPOSURE: Metric(among=lambda result: result.counted or result.vacuous, counts=lambda result, _: result.counted),
    "pass_rate": Metric(among=lambda result: result.counted, counts=lambda result, _: result.verdict == "passed"),
    # the numerator is the sum of the scores (`analysis.counting.measure`)
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


LABEL = "label"
"""What `by` of a gate on labels can be: each label is checked separately."""
LABEL_METRICS: Mapping[str, Metric] = {
    f"label_{kind.lower()}": Metric(among=lambda result: result.counted, counts=lambda *_: False, of_labels=kind)
    for kind in ("precision", "recall", "F1")
}
"""The metrics of suites whose answers have labels (`RecordFacts.labels`)."""


class Interval(NamedTuple):
    """A confidence interval.

    Attributes:
        low: the lower end; for a share 0 to 1, otherwise in the unit of the figure.
        high: the upper end.
        method: the confidence and the method in a few words, such as `95 % Wilson`.
    """

    low: _Number
    high: _Number
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A named figure of a run: a count among a total, or a number with its unit.

    Without a count and a number, or with a total of 0, the figure is not measured, which is not the same as 0.

    Attributes:
        name: its name in the words of the field, unique in its group: `benign utility`.
        definition: what it is, in one sentence that a reader of the report understands.
        count: how many, 0 to `total`; None for a number, and if it is not measured.
        total: among how many; None with a number.
        number: the value if it is not a share; None if it is not measured.
        unit: of the number: `percentage points`, `USD`; empty if it has none.
        interval: its confidence interval; None without one, as for answers that were authored.
        group: what the figure is about, where a run has several of a name: `AgentDojo, gpt-4o behind redact`.
        headline: whether a terminal shows it; reports show all figures.
        note: what else a reader has to know about this value, such as how many cases it lacks; empty for nothing.
    """

    name: str
    definition: str
    count: Count | None = None
    total: Count | None = None
    number: _Number | None = None
    unit: str = ""
    interval: Interval | None = None
    group: str = ""
    headline: Flag = False
    note: str = ""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a text is missing or has several lines, or the numbers contradict each other.
        """
        problem = next(self._problems(), "")
        if problem:
            raise ValueError(f"figure {self.name!r}: {problem}")

    @property
    def share(self) -> float | None:
        """The share that the count is of the total, 0 to 1; None for a number, and if it is not measured."""
        return self.count / self.total if self.count is not None and self.total else None

    @property
    def measured(self) -> bool:
        """Whether there is a value."""
        return self.share is not None or self.number is not None

    @classmethod
    def from_json(cls, stored: Any) -> Figure:
        """Return a figure from what `as_json` returned; keys of later versions are ignored.

        Raises:
            ValueError: it is not a figure.
        """
        try:
            figure: Figure = adapter(Figure).validate_python(stored)
        except ValidationError as error:
            raise ValueError(str(first_problem(error, stored))) from None
        return figure

    def with_texts(self, change: Callable[[str], str]) -> Figure:
        """Return the figure with each of its texts changed, such as by a redactor."""
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in _FIGURE_TEXTS}
        return replace(self, **changed)

    def as_json(self) -> dict[str, Any]:
        """Return the figure as plain JSON, with its share; the interval is an object or null."""
        plain = {name: getattr(self, name) for name in _FIGURE_KEYS}
        return plain | {"interval": None if self.interval is None else self.interval._asdict()}

    def _problems(self) -> Iterator[str]:
        if not self.name or not self.definition:
            yield "got no name or no definition; expected both"
        if any("\n" in getattr(self, name) for name in _FIGURE_TEXTS):
            yield "got several lines; expected one"
        if self.number is not None and (self.count is not None or self.total is not None):
            yield "got a number and a count; expected one of them"
        if self.count is not None and (self.total is None or not 0 <= self.count <= self.total):
            yield f"got a count of {self.count} among {self.total}; expected 0 to the total"
        if self.number is not None and not isfinite(self.number):
            yield f"got {self.number}; expected a finite number"
        if self.interval is not None and not self.measured:
            yield "got an interval without a value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What a pack adds to the page of a run: a table, a matrix of counts, or some of the run's figures.

    Attributes:
        title: what it shows, in a few words.
        intro: one or more sentences for readers who do not know the field; empty for none.
        head: the names of the columns; the first column names the rows.
        rows: the cells of each row, as many as `head`: a text, a number, or None where it is not known.
        matrix: whether the cells are counts, and right where row and column have the same name.
        figures: figures of the run, shown as a table with their intervals.
    """

    title: str
    intro: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str | float | None, ...], ...] = ()
    matrix: bool = False
    figures: tuple[Figure, ...] = ()

    def __post_init__(self) -> None:
        """Check the form.

        Raises:
            ValueError: the title is missing, there is nothing to show, or a row has another length than the head.
        """
        if not self.title or "\n" in self.title:
            raise ValueError(f"panel {self.title!r}: got no title in one line; expected one")
        if not (self.intro or self.rows or self.figures):
            raise ValueError(f"panel {self.title!r}: got nothing to show; expected intro, rows or figures")
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"panel {self.title!r}: got a row of {len(row)} cells; expected {len(self.head)}")
        if self.matrix and not all(type(cell) is int for row in self.rows for cell in row[1:]):
            raise ValueError(f"panel {self.title!r}: got a matrix with another cell than a count; expected counts")


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


CONFIG_NAME = "suite.yaml"
BASELINE_NAME = "baseline.json"
"""The file of the committed baseline."""
FIXTURES = "fixtures"
"""The folder of a suite's recordings."""
PENDING = ".pending"
"""The folder under `fixtures` of recordings that change an older one and wait for `packbench accept`."""
PARTIAL = ".partial"
"""The folder under `fixtures` of what was recorded of cases that use more than the gateway sees; never replayed."""
SHARED = "shared/calls.json"
"""The file under `fixtures` with the calls that one case makes for all."""
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

    def of(self, case: Case, *, refuses: bool) -> float:
        """Return the lowest passing score of a case, 0 to 1: its own, that of its type, or by what it expects.

        Args:
            case: the case.
            refuses: whether it expects a refusal.
        """
        general = self.by_type.get(case.case_type, self.refuse if refuses else self.accept)
        return general if case.own_threshold is None else case.own_threshold


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


_ANY_QUESTION = "Which of the 12 articles that I have bought may be returned, and until when?"


class IgnoreRule(StrictModel):
    """What differs in each run at a place in requests, and decides on no answer.

    Attributes:
        at: a JSON pointer into the body of a request, in which `*` is any step; what is below it is meant, too.
        pattern: a regular expression for what differs there.
        words: what it is called instead, such as `<date>`.
    """

    at: Annotated[str, Field(pattern="^(/[^/]*)+$")]
    pattern: str
    words: Text = Field(alias="as")

    @field_validator("pattern")
    @classmethod
    def _leaves_the_question(cls, pattern: str) -> str:
        expected = "a regular expression for what differs, and for no more"
        try:
            left = re.sub(pattern, "", _ANY_QUESTION)
            matches_nothing = re.search(pattern, "") is not None
        except re.error as error:
            raise misfit(f"no regular expression: {error}", expected) from None
        if matches_nothing or 2 * len(re.sub(r"\W", "", left)) < len(re.sub(r"\W", "", _ANY_QUESTION)):
            raise misfit("it matches any question, so that each would get a recorded answer", expected)
        return pattern


class RecordingRules(StrictModel):
    """How calls of a target's own clients are compared with recorded ones, which may fail, and what is done without.

    Attributes:
        ignore_headers: names of request headers that do not decide on an answer, in addition to those that never do;
            `*` is any text.
        ignore: what differs in each run in the bodies of requests, and decides on no answer.
        check: whether what was recorded is replayed once; `off` for a target with effects that must not happen again.
        tests_fallback: whether a case may end without any answer of a model, because that is what it tests.
        unseen: what a target reaches past the gateway while it is recorded, and does without offline: `HOST:PORT`.
    """

    check: bool = True
    ignore: ListOf[IgnoreRule] = ()
    ignore_headers: ListOf[Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]] = ()
    tests_fallback: Flag = False
    unseen: ListOf[Annotated[str, Field(pattern=r"^[^\s/@*]+:\d{1,5}$")]] = ()


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
        capture: for `packbench capture`, by the key `input`, the JSON pointer of a case's input in the body of a
            conversation's first request, where the app does not state it; an index may be negative.
        unknown_keys: what happens to keys of an answer that the pack's answer model does not have: `refuse` (the
            answer is unreadable) or `ignore` (they are left unread, and each is listed next to the score: a claim may
            hide in what is not read).
        metrics: the metrics that gates can use in addition to the general ones, by name; a pack defines its own here.
        not_scoring: keys that do not change a score; a pack may extend it (see `cases.load.scoring_sha256`).
        scripted: the models that the pack's reference target simulates itself; users select one with
            `--packbench-backend=stub --packbench-model=NAME`.
    """

    pack: Name
    description: Text = "no description"
    thresholds: Thresholds = Thresholds.model_construct()
    gates: ListOf[Gate] = ()
    target: Annotated[str, Matching(TARGET)] | None = None
    backend: Name | None = None
    model: Text | None = None
    guards: ListOf[Text] = ()
    prices: dict[Text, Prices] = Field(default_factory=dict)
    ignore: ListOf[Text] = ()
    trials: Trials = "mean"
    recording: RecordingRules = RecordingRules.model_construct()
    capture: dict[Literal["input"], Annotated[str, Field(pattern="^(/[^~]*)?$")]] = Field(default_factory=dict)
    unknown_keys: Literal["refuse", "ignore"] = "refuse"

    metrics: ClassVar[Mapping[str, Metric]] = {}
    scripted: ClassVar[tuple[str, ...]] = ()
    not_scoring: ClassVar[frozenset[str]] = frozenset(
        {"backend", "capture", "description", "gates", "guards", "ignore", "model", "prices", "recording", "target"}
        | {"trials"}
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

    @property
    def unusable(self) -> str:
        """Why no case can run here, such as a missing library, in one line; empty if cases can run."""
        return ""

    @property
    def accepts_more(self) -> bool:
        """Whether `packbench review` can add another right answer to a case (`Tools.also_acceptable`)."""
        return False

    def flaws(self, case: Any) -> Iterable[Flaw]:  # noqa: ARG002 - for packs whose suites check their cases
        """Return what is wrong with a case by the rules of this suite, each with its place in the case.

        Args:
            case: the case, an instance of the pack's `case_model`.
        """
        return ()

    def narrowed(self, case_model: type[Case]) -> type[Case]:
        """Return the model of this suite's cases: that of the pack, without flaws.

        Args:
            case_model: the model of the pack.
        """

        def is_flawless(case: Case) -> Case:
            if found := [*self.flaws(case)]:
                raise refused(*found)
            return case

        check: Any = model_validator(mode="after")(is_flawless)
        return create_model("CaseOfSuite", __base__=case_model, __validators__={"is_flawless": check})

    def unused_rules(self, expected: Sequence[Any]) -> Iterable[str]:  # noqa: ARG002 - for packs with rules of suites
        """Return the rules that no case of the suite uses, so that they decide nothing; one line each.

        A run of a whole suite with such a rule is refused.

        Args:
            expected: the key `expected` of each case, as plain JSON or as the pack's model of it; at least one.
        """
        return ()

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
        record_name: the name in records and test ids, the same for a bundled suite and for a copy of it.
    """

    name: str
    path: Path
    config: SuiteConfig
    sha256: str
    bundled: bool = False
    fixtures: str = FIXTURES
    record_name: str = field(init=False)

    def __post_init__(self) -> None:
        """State the name in records."""
        object.__setattr__(self, "record_name", self.name.removeprefix(BUNDLED))

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

    def partial_path(self, case_id: str) -> Path:
        """Return the path of what was recorded of a case in part."""
        return self.path / self.fixtures / PARTIAL / f"{case_id}.json"
