"""The case: one JSON document with the same outline for every pack (spec, "Case schema").

A pack narrows `input`, `expected`, `notes` and `case_type` in a subclass of `Case`.
"""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
    ValidationError,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, SchemaValidator, core_schema

ItemT = TypeVar("ItemT")
CASE_ID = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
CASE_ID_LENGTH = 120
NAME = r"^[a-z0-9][a-z0-9_-]*$"
SMALLEST_THRESHOLD = 1e-6
"""A threshold is above this: the comparison with a score has a tolerance, which must not let a score of 0 pass."""
TARGET = r"^(https?://\S+|cmd:.*\S.*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$"
SHA256 = r"^[0-9a-f]{64}$"
DATE = r"^\d{4}-\d{2}-\d{2}$"


class Expected(NamedTuple):
    """Annotates a type with what was expected, which errors say instead of pydantic's words.

    Attributes:
        text: what was expected.
        schema: what validates a value; None for the type's own.
    """

    text: str
    schema: core_schema.CoreSchema | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return how pydantic validates the type."""
        return core_schema.custom_error_schema(
            self.schema or handler(source),
            custom_error_type="misfit",
            custom_error_message="a misfit",
            custom_error_context={"expected": self.text},
        )


@cache
def _matched(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern))


class Matching(NamedTuple):
    """Annotates a text with its pattern, which is compiled when the first text comes: a class of Unicode takes long."""

    pattern: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Return how pydantic validates the type."""
        return core_schema.no_info_after_validator_function(self.matched, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return its JSON Schema."""
        return {**handler(schema), "pattern": self.pattern}

    def matched(self, text: str) -> Any:
        """Return a text; raises `ValidationError` as a constraint of pydantic does."""
        return _matched(self.pattern).validate_python(text)


def CurrentVersion(version: int) -> Expected:  # noqa: N802 - annotates a type
    """Return the integer of the current version of a format, and no value that equals it in Python."""
    return Expected(str(version), core_schema.int_schema(strict=True, ge=version, le=version))


CaseId = Annotated[str, StringConstraints(pattern=CASE_ID, max_length=CASE_ID_LENGTH)]
Name = Annotated[str, StringConstraints(pattern=NAME, max_length=80)]
Text = Annotated[str, StringConstraints(min_length=1)]
# JSON has only lists, but a frozen model needs tuples
ListOf = Annotated[tuple[ItemT, ...], Strict(strict=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), Expected("a number from 0 to 1, such as 0.95")]
Threshold = Annotated[
    float,
    Field(gt=SMALLEST_THRESHOLD, le=1, allow_inf_nan=False),
    Expected("a number above 0 and at most 1, such as 0.8"),
]
"""A score that every passing case reaches: above 0, which every score would reach."""
Difficulty = Literal["easy", "medium", "hard", "expert"]


class StrictModel(BaseModel):
    """A frozen pydantic model that converts no types and forbids unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def misfit(wrong: str, expected: str) -> PydanticCustomError:
    """Return the error of a value whose parts do not fit each other, for validators of models.

    Args:
        wrong: what is wrong, in the place of `got ...`.
        expected: what was expected.
    """
    return PydanticCustomError("misfit", "a misfit", {"wrong": wrong, "expected": expected})


Location: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""


class Flaw(NamedTuple):
    """What is wrong in a suite or a case, below the value that is being validated.

    Attributes:
        location: its place below that value.
        wrong: what is wrong, in the place of `got ...`.
        expected: what was expected.
    """

    location: Location
    wrong: str
    expected: str


def refused(*flaws: Flaw) -> ValidationError:
    """Return flaws, at least one, as one error with the location of each, for validators of models."""
    details = [
        InitErrorDetails(type=misfit(wrong, expected), loc=place, input=None) for place, wrong, expected in flaws
    ]
    return ValidationError.from_exception_data("flaws", details)


Mark = Literal["gold_is_wrong", "also_acceptable", "quarantine"]
LineText = Annotated[str, StringConstraints(pattern=r"\S", max_length=2000)]
"""A text of a reviewer that is not blank."""
PersonName = Annotated[str, StringConstraints(pattern=r"\S", max_length=200)]


class Review(StrictModel):
    """A mark that a reviewer set on a page of a run, as the notes of the case keep it.

    Attributes:
        mark: `gold_is_wrong` (the expected answer is wrong), `also_acceptable` (the answer of the run is right, too) or
            `quarantine` (the case must not run).
        by: who set the mark.
        reason: why.
        run_id: the run whose page it was.
        marked_at: when, UTC, `2026-03-01T12:00:00.000Z`.
    """

    mark: Mark
    by: PersonName
    reason: LineText
    run_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=80)]
    marked_at: Annotated[str, Field(max_length=30), Matching(r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z$")]


def _existing(day: str) -> str:
    try:
        date.fromisoformat(day)
    except ValueError:
        raise ValueError("expected a day that exists, as YYYY-MM-DD") from None
    return day


class Notes(StrictModel):
    """Metadata of a case: its source, its tags, its quarantine, what reviewers marked.

    Attributes:
        source: where the expected answer comes from.
        tags: words for the selection of cases.
        skip: why the case is not run (quarantine).
        xfail: why the case is run but not counted (quarantine).
        date: the day on which the expected answer was verified, `YYYY-MM-DD`.
        reviews: the marks of reviewers that `packbench review` has written into the case.
    """

    source: Text | None = None
    tags: ListOf[Text] = ()
    skip: Text | None = None
    xfail: Text | None = None
    date: Annotated[str, Matching(DATE), AfterValidator(_existing)] | None = None
    reviews: ListOf[Review] = ()


class Case(StrictModel):
    """One benchmark case.

    Attributes:
        id: the name of the file without its suffix; letters, digits, `_` and `-`, so that every test runner accepts it.
        pack_id: the name of the pack that reads and scores it.
        case_type: the behaviour that it tests; the pack defines the types.
        difficulty: `easy`, `medium`, `hard` or `expert`.
        input: what the target gets.
        expected: what the pack compares the result with.
        notes: source, tags and quarantine.
        schema_uri: the optional `$schema` key, for editors.
    """

    id: CaseId
    pack_id: Name
    case_type: Name
    difficulty: Difficulty
    input: Any
    expected: Any
    notes: Notes = Notes.model_construct()
    schema_uri: Text | None = Field(default=None, alias="$schema")

    @property
    def own_threshold(self) -> float | None:
        """The lowest score at which this case passes; None for that of its type, or by what it expects."""
        return None

    @property
    def keeps_prompts(self) -> bool:
        """Whether recordings, and a failing case, may contain what the model was asked about it."""
        return True

    @property
    def described(self) -> str:
        """The input for people who read why the case failed; empty for the values of the request by their names."""
        return ""

    @property
    def vacuous_if_unread(self) -> str:
        """Why an answer that can't be read shows nothing of the case, so that it has no score; empty where it fails."""
        return ""

    def test_id(self, suite: str) -> str:
        """Return the record's `test_id`, unique in a suite: `<suite>:<case type>:<case id>`.

        Args:
            suite: the name of the suite.
        """
        return f"{suite}:{self.case_type}:{self.id}"


class LoadedCase(NamedTuple):
    """A case with the hashes that show whether it has changed.

    Attributes:
        case: the case, an instance of the pack's `case_model`.
        sha256: hash of the whole case except `$schema`.
        input_sha256: hash of its `input`.
    """

    case: Case
    sha256: str
    input_sha256: str
