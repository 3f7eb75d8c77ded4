"""The case: one JSON file, strict, the same for every pack in its outline (spec, "Case schema").

A pack narrows `input`, `expected`, `notes` and `case_type` in a subclass.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints
from pydantic_core import core_schema

ItemT = TypeVar("ItemT")
# made once: `json.dumps` makes one each time
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
CASE_ID = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
CASE_ID_LENGTH = 120
NAME = r"^[a-z0-9][a-z0-9_-]*$"
DATE = r"^\d{4}-\d{2}-\d{2}$"


class _From0To1:
    """A number from 0 to 1; what is none is told as of any number, what is out of range in words of its own."""

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> core_schema.CoreSchema:
        # a validator in Python would be called for each of the thresholds and weights of a case
        ranged = core_schema.custom_error_schema(
            core_schema.float_schema(ge=0, le=1, allow_inf_nan=False),
            custom_error_type="fraction",
            custom_error_message="a fraction",
            custom_error_context={"expected": "a number from 0 to 1, such as 0.95"},
        )
        return core_schema.chain_schema([core_schema.float_schema(allow_inf_nan=True), ranged])

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        return {"maximum": 1, "minimum": 0, "type": "number"}


CaseId = Annotated[str, StringConstraints(pattern=CASE_ID, max_length=CASE_ID_LENGTH)]
Name = Annotated[str, StringConstraints(pattern=NAME, max_length=80)]
Text = Annotated[str, StringConstraints(min_length=1)]
# JSON has lists only; a tuple keeps the frozen model frozen
ListOf = Annotated[tuple[ItemT, ...], Strict(strict=False)]
Fraction = Annotated[float, _From0To1()]
Difficulty = Literal["easy", "medium", "hard", "expert"]


class StrictModel(BaseModel):
    """A frozen model that takes JSON types as they are and no unknown key."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Notes(StrictModel):
    """What is known of a case beside its test: where it comes from, how it is found.

    Attributes:
        source: where the expected answer comes from.
        tags: words to select by.
        skip: why the case is not run (quarantine).
        xfail: why the case is run without counting (quarantine).
        date: the day on which the expected answer was true, `YYYY-MM-DD`.
    """

    source: Text | None = None
    tags: ListOf[Text] = ()
    skip: Text | None = None
    xfail: Text | None = None
    date: Annotated[str, StringConstraints(pattern=DATE)] | None = None


class Case(StrictModel):
    """One benchmark case.

    Attributes:
        id: the stem of the file's name; letters, digits, `_` and `-`, so that every test runner can address it.
        pack_id: the pack that reads and scores it.
        case_type: the kind of behaviour that it asks for; the pack names the kinds.
        difficulty: `easy`, `medium`, `hard` or `expert`.
        input: what the target is given.
        expected: what the pack compares with.
        notes: source and tags.
        schema_uri: the optional `$schema` key, for editors.
    """

    id: CaseId
    pack_id: Name
    case_type: Name
    difficulty: Difficulty
    input: Any
    expected: Any
    notes: Notes = Notes()
    schema_uri: Text | None = Field(default=None, alias="$schema")


def canonical_sha256(value: object) -> str:
    """Hash a JSON value by its meaning: sorted keys, no spaces, UTF-8; hexadecimal SHA-256."""
    text = _CANONICAL.encode(value)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCase:
    """A case with the hashes that tell whether it changed.

    Attributes:
        case: the model, in the pack's own class.
        sha256: hash of the whole case but its `$schema`.
        input_sha256: hash of its `input`.
    """

    case: Case
    sha256: str
    input_sha256: str
