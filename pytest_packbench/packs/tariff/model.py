"""The tariff case and its suite rules (spec, "Case schema" and "Scoring overview"; design 5 and 6)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from pytest_packbench.model.case import Case, Fraction, ListOf, Notes, StrictModel, Text
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.tariff.codes import digits

CaseType = Literal["positive", "negative", "adversarial", "no_savings", "savings_possible"]
RefusalCategory = Literal["insufficient_info", "ambiguous", "out_of_scope", "missing_evidence"]
Direction = Literal["increase", "decrease", "flat"]
_LEAST_DIGITS = 2


def _code(value: str) -> str:
    if len(digits(value)) < _LEAST_DIGITS or not value.isprintable():
        raise PydanticCustomError(
            "hts_code", "too short", {"expected": "a tariff code of two digits or more, such as 6404.11.9020"}
        )
    return value


Code = Annotated[str, AfterValidator(_code), Field(json_schema_extra={"pattern": r"[0-9]\D*[0-9]"})]


class Evidence(StrictModel):
    """A document that the request brings along and that may be quoted."""

    source_id: Text
    text: Text
    title: Text | None = None


class Options(StrictModel):
    """Settings of the verify request.

    Attributes:
        max_iters: how often the pipeline may propose, 1 to 20.
        candidate_chapters: chapters that the importer names, two digits each.
    """

    max_iters: Annotated[int, Field(ge=1, le=20)] = 4
    candidate_chapters: ListOf[Annotated[str, StringConstraints(pattern=r"^\d{2}$")]] = ()


class TariffInput(StrictModel):
    """The verify request of a tariff case: the goods as an importer describes them."""

    input: str
    options: Options = Options()
    evidence: ListOf[Evidence] = ()


class Expected(StrictModel):
    """What a right answer looks like.

    Attributes:
        preferred_hts: codes of full credit; a code of 6 or 8 digits matches as a prefix.
        allowed_hts: codes of partial credit.
        must_not_hts: codes that fail the case whatever else is right, as prefixes.
        expected_accept: whether an answer is due; a refusal otherwise.
        expected_refusal_category: the category of a due refusal; null takes any.
        no_savings_expected: whether savings levers and what-if options fail the case.
        duty_delta_range: optimised minus baseline duty, percentage points, both ends included.
        expected_duty_total_rate_pct: total duty rate of the scored code, percent.
        expected_duty_delta_direction: the sign of optimised minus baseline.
        lever_found_expected: whether a savings lever is due (true) or forbidden (false).
        lever_count_min: the least number of levers.
        lever_compliance_ok: true where the levers have to pass their compliance check.
        expected_best_is_multi_step: true where the first lever needs two steps or more.
        min_lever_steps: the least number of steps of the first lever.
        threshold: the score from which this case passes, before the suite's.
    """

    preferred_hts: ListOf[Code]
    allowed_hts: ListOf[Code] | None = ()
    must_not_hts: ListOf[Code] | None = ()
    expected_accept: bool
    expected_refusal_category: RefusalCategory | None = None
    no_savings_expected: bool = False
    duty_delta_range: ListOf[float] | None = None
    expected_duty_total_rate_pct: float | None = None
    expected_duty_delta_direction: Direction | None = None
    lever_found_expected: bool | None = None
    lever_count_min: Annotated[int, Field(ge=0)] | None = None
    lever_compliance_ok: bool | None = None
    expected_best_is_multi_step: bool | None = None
    min_lever_steps: Annotated[int, Field(ge=0)] | None = None
    threshold: Fraction | None = None

    @field_validator("expected_refusal_category", mode="before")
    @classmethod
    def _null_is_no_word(cls, value: Any) -> Any:
        if value == "null":
            raise PydanticCustomError(
                "null_word", "null", {"wrong": 'got the word "null"', "expected": "null without quotes"}
            )
        return value

    @field_validator("duty_delta_range")
    @classmethod
    def _two_ends(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and (len(value) != len("ab") or value[0] > value[1]):
            raise PydanticCustomError("range", "range", {"expected": "two numbers, low and high, in percentage points"})
        return value


class TariffNotes(Notes):
    """Source, edition and reasons of a tariff case.

    Attributes:
        source: `expert`, `synthetic`, `internal` or `ruling:<id>`.
        hts_edition: the edition of the schedule in which the codes are right.
        reasons: why a code is preferred, allowed or forbidden, code to text.
    """

    source: Annotated[str, StringConstraints(pattern=r"^(expert|synthetic|internal|ruling:[A-Za-z0-9_-]+)$")]
    hts_edition: Text | None = None
    reasons: dict[Code, Text] = Field(default_factory=dict)

    @field_validator("source", mode="wrap")
    @classmethod
    def _known_source(cls, value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValueError:
            raise PydanticCustomError(
                "source", "source", {"expected": 'expert, synthetic, internal or "ruling:<id>"'}
            ) from None


class TariffCase(Case):
    """One tariff case."""

    case_type: CaseType
    input: TariffInput
    expected: Expected
    notes: TariffNotes


class Scoring(StrictModel):
    """The constants of the scoring rules (design 6); all but `ladder` are 0..1 or -1..0 points.

    Attributes:
        preferred: the match of a preferred code.
        allowed: the match of an allowed code.
        chapter: agreement with a preferred code's chapter.
        ladder: credit by digits of agreement with a preferred code (4, 6, 8); empty: off.
        bonus: for an accepted, matched answer whose critical gates passed.
        gri_sequence: for a violated order of the interpretation rules.
        duty_delta: for a duty delta outside its range.
        wrong_refusal_category: the match of a refusal in the wrong category.
    """

    preferred: Fraction = 1.0
    allowed: Fraction = 0.7
    chapter: Fraction = 0.3
    ladder: dict[Literal["4", "6", "8"], Fraction] = Field(default_factory=dict)
    bonus: Fraction = 0.05
    gri_sequence: Annotated[float, Field(ge=-1, le=0)] = -0.1
    duty_delta: Annotated[float, Field(ge=-1, le=0)] = -0.1
    wrong_refusal_category: Fraction = 0.5


class TariffSuiteConfig(SuiteConfig):
    """The `suite.yaml` of a tariff suite.

    Attributes:
        hts_edition: the edition of the schedule that the codes of the suite come from.
        scored_code: `final` scores the optimised code before the baseline, `baseline` the goods as they are.
        scoring: the constants of the rules.
    """

    hts_edition: Text | None = None
    scored_code: Literal["final", "baseline"] = "final"
    scoring: Scoring = Scoring()

    @model_validator(mode="after")
    def _types_are_known(self) -> Self:
        known = CaseType.__args__  # type: ignore[attr-defined]  # a Literal has them at run time
        for name in self.thresholds.by_type:
            if name not in known:
                raise PydanticCustomError(
                    "case_type",
                    "unknown case type",
                    {"wrong": f'thresholds.by_type names "{name}"', "expected": f"one of {', '.join(known)}"},
                )
        return self
