"""Checks of results that are read back from files: schemas of pydantic's core, made of the types of `CaseResult`.

Results that are made here are not checked. A foreign writer may add keys to our own object in a record; what is of ours
has to be what a report can count and compare.
"""

from __future__ import annotations

from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

# of pydantic only its core, which reads records as well: a command that compares runs needs no more
from pydantic_core import SchemaValidator, ValidationError, core_schema

from pytest_packbench.model.result import EXTENSION_KEYS, EXTENSION_VERSION, OPTIONAL_ROW_FIELDS, ROW_FIELDS, CaseResult
from pytest_packbench.model.run import Mode, Origin
from pytest_packbench.model.score import Constraint, Term
from pytest_packbench.model.strict_json import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pydantic_core import CoreSchema


_HINTS: Mapping[str, Any] = get_type_hints(CaseResult, include_extras=True)


def result_problem(result: CaseResult) -> tuple[str, str] | None:
    """Tell what is wrong with a result.

    Args:
        result: made of what a file holds, whatever its annotations promise. Record and payload are not looked at.

    Returns:
        The field and, in words, what it is and was expected to be; None where all fields are sound.
    """
    check, kinds = _result_check()
    try:
        check.validate_python({name: getattr(result, name) for name in kinds})
    except ValidationError as error:
        name = str(error.errors(include_url=False, include_context=False)[0]["loc"][0])
        return name, f"got {printable(repr(getattr(result, name)))}, expected {kinds[name].words}"
    return None


def extension_problem(own: Mapping[str, Any]) -> str | None:
    """Tell what is wrong with a record's own object.

    Args:
        own: what stands under `packbench`.

    Returns:
        One line that begins with the key, such as `packbench.trial: expected a valid integer, got 'x'`; None where
        every key of ours is of its type and range.
    """
    try:
        _own_check().validate_python(own)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "packbench" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        if first["type"] == "missing":
            return f"{place}: is missing"
        expected = first["msg"].removeprefix("Input should be ")
        expected = expected.replace("String should match", "a string that matches")
        return f"{place}: expected {expected}, got {printable(repr(first['input']))}"
    return None


def extension_schema() -> CoreSchema:
    """Give the schema of a record's own object."""
    text, name = schema_of(str), core_schema.typed_dict_field(schema_of(str), required=True)
    found = _schemas(name for name in EXTENSION_KEYS if name in _HINTS) | {
        # of the run
        "version": core_schema.chain_schema([schema_of(int), core_schema.literal_schema([EXTENSION_VERSION])]),
        "mode": schema_of(Mode),
        "origin": schema_of(Origin | None),
        **dict.fromkeys(("target", "pack"), text),
        "bundled": schema_of(bool),
        "calls": schema_of(_HINTS["cached"]),
        "suite_sha256": schema_of(_HINTS["case_sha256"]),
        "versions": schema_of(_HINTS["facets"]),
        # of the case, but not as in a result
        "tags": core_schema.list_schema(text, strict=True),
        "terms": core_schema.list_schema(_term_schema(), strict=True),
        **dict.fromkeys(("utility", "valid"), schema_of(bool)),
        # an object also says what the judge found
        "judge": core_schema.custom_error_schema(
            core_schema.union_schema([schema_of(str | None), core_schema.typed_dict_schema({"name": name})]),
            custom_error_type="judge",
            custom_error_message="a judge's name, or an object with its name",
        ),
    }
    required = ("version", "score", "threshold", "verdict", "terms")
    return object_schema({key: found[key] for key in (*EXTENSION_KEYS, "judge")}, required)


def row_schema() -> CoreSchema:
    """Give the schema of a report's row."""
    return object_schema(_schemas(ROW_FIELDS), [name for name in ROW_FIELDS if name not in OPTIONAL_ROW_FIELDS])


def object_schema(members: Mapping[str, CoreSchema], required: Collection[str]) -> CoreSchema:
    """Give the schema of an object; foreign keys are left alone."""
    fields = {name: core_schema.typed_dict_field(schema, required=name in required) for name, schema in members.items()}
    return core_schema.typed_dict_schema(fields, strict=True)


def schemas_of(kind: type) -> dict[str, CoreSchema]:
    """Give the schemas of a dataclass's fields by name."""
    return {name: schema_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def schema_of(hint: Any) -> CoreSchema:
    """Give the strict schema of a type: plain ones, literals, tuples, dicts, or None; with its `Constraint`."""
    plain, *beside = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    kind = next((one for one in beside if isinstance(one, Constraint)), Constraint())
    origin, inner = get_origin(plain), get_args(plain)
    if NoneType in inner:
        (some,) = (one for one in inner if one is not NoneType)
        return core_schema.nullable_schema(schema_of(Annotated[some, kind]))
    if kind.among or origin is Literal:
        return core_schema.literal_schema(list(kind.among or inner))
    if origin is tuple:
        return core_schema.tuple_schema([schema_of(inner[0])], variadic_item_index=0, strict=True)
    if origin is dict:
        return core_schema.dict_schema(*map(schema_of, inner), strict=True)
    made: dict[Any, CoreSchema] = {
        str: core_schema.str_schema(pattern=kind.pattern, strict=True),
        bool: core_schema.bool_schema(strict=True),
        int: core_schema.int_schema(ge=kind.least, le=kind.most, strict=True),
        float: core_schema.float_schema(ge=kind.least, le=kind.most, strict=True),
        Any: core_schema.any_schema(),
    }
    return made[plain]


@cache
def _result_check() -> tuple[SchemaValidator, dict[str, Constraint]]:
    beside = ((name, one) for name, hint in _HINTS.items() for one in get_args(hint))
    kinds = {name: one for name, one in beside if isinstance(one, Constraint)}
    return SchemaValidator(object_schema(_schemas(kinds), kinds)), kinds


@cache
def _own_check() -> SchemaValidator:
    return SchemaValidator(extension_schema())


def _schemas(names: Iterable[str]) -> dict[str, CoreSchema]:
    """Give the schemas of fields; a term stands as plain JSON."""
    found = {name: schema_of(_HINTS[name]) for name in names}
    terms = core_schema.tuple_schema([_term_schema()], variadic_item_index=0, strict=True)
    return found | ({"terms": terms} if "terms" in found else {})


def _term_schema() -> CoreSchema:
    members = schemas_of(Term)
    return object_schema(members, members)
