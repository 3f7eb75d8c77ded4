"""Validation of results that are read from files, with schemas built from the field types of `CaseResult`.

Results of this process are not validated. Other programs may add keys to the `packbench` object of a record; the keys
that pytest-packbench defines must have the types that reports count and compare.
"""

from __future__ import annotations

from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

# the core alone: commands that compare runs do without importing the rest of pydantic
from pydantic_core import SchemaValidator, ValidationError, core_schema

from pytest_packbench.model.result import (
    EXTENSION_KEYS,
    EXTENSION_VERSION,
    OPTIONAL_ROW_FIELDS,
    ROW_FIELDS,
    CaseResult,
    EndedAttempt,
)
from pytest_packbench.model.run import Mode, Origin
from pytest_packbench.model.score import Constraint, Term
from pytest_packbench.model.strict_json import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pydantic_core import CoreSchema


_HINTS: Mapping[str, Any] = get_type_hints(CaseResult, include_extras=True)


def result_problem(result: CaseResult | EndedAttempt) -> tuple[str, str] | None:
    """Return the first problem of a result, or of an ended attempt, that was created from the content of a file.

    Args:
        result: its values may contradict the annotations. Record, payload and recording are not validated.

    Returns:
        The name of the field, and a description of its value and the expected one; None if all fields are valid.
    """
    validator, constraints = _result_validator(ended=isinstance(result, EndedAttempt))
    try:
        validator.validate_python({name: getattr(result, name) for name in constraints})
    except ValidationError as error:
        name = str(error.errors(include_url=False, include_context=False)[0]["loc"][0])
        return name, f"got {printable(repr(getattr(result, name)))}, expected {constraints[name].description}"
    return None


def extension_problem(extension: Mapping[str, Any]) -> str | None:
    """Return the first problem of the `packbench` object of a record.

    Args:
        extension: the object.

    Returns:
        One line that starts with the key, such as `packbench.trial: expected a valid integer, got 'x'`; None if the
        object is valid.
    """
    try:
        _extension_validator().validate_python(extension)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        location = "packbench" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        if first["type"] == "missing":
            return f"{location}: is missing"
        expected = first["msg"].removeprefix("Input should be ")
        expected = expected.replace("String should match", "a string that matches")
        return f"{location}: expected {expected}, got {printable(repr(first['input']))}"
    return None


def extension_schema() -> CoreSchema:
    """Return the schema of the `packbench` object of a record."""
    text, name = schema_of(str), core_schema.typed_dict_field(schema_of(str), required=True)
    schemas = _schemas(name for name in EXTENSION_KEYS if name in _HINTS) | {
        # values of the run
        "version": core_schema.chain_schema([schema_of(int), core_schema.literal_schema([EXTENSION_VERSION])]),
        "mode": schema_of(Mode),
        "origin": schema_of(Origin | None),
        **dict.fromkeys(("target", "pack"), text),
        "bundled": schema_of(bool),
        "calls": schema_of(_HINTS["cached"]),
        "suite_sha256": schema_of(_HINTS["case_sha256"]),
        "versions": schema_of(_HINTS["facets"]),
        # values of the case in another form than in a result
        "tags": core_schema.list_schema(text, strict=True),
        "terms": core_schema.list_schema(_term_schema(), strict=True),
        **dict.fromkeys(("utility", "valid"), schema_of(bool)),
        # an object also contains the judge's findings
        "judge": core_schema.custom_error_schema(
            core_schema.union_schema([schema_of(str | None), core_schema.typed_dict_schema({"name": name})]),
            custom_error_type="judge",
            custom_error_message="a judge's name, or an object with its name",
        ),
    }
    required = ("version", "score", "threshold", "verdict", "terms")
    return object_schema({key: schemas[key] for key in (*EXTENSION_KEYS, "judge")}, required)


def row_schema() -> CoreSchema:
    """Return the schema of a row of a report."""
    return object_schema(_schemas(ROW_FIELDS), [name for name in ROW_FIELDS if name not in OPTIONAL_ROW_FIELDS])


def object_schema(members: Mapping[str, CoreSchema], required: Collection[str]) -> CoreSchema:
    """Return the schema of an object, which ignores other keys."""
    fields = {name: core_schema.typed_dict_field(schema, required=name in required) for name, schema in members.items()}
    return core_schema.typed_dict_schema(fields, strict=True)


def schemas_of(kind: type) -> dict[str, CoreSchema]:
    """Return the schemas of the fields of a dataclass, by name."""
    return {name: schema_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def schema_of(hint: Any) -> CoreSchema:
    """Return the strict schema of a scalar, literal, tuple, dict or optional type, with its `Constraint`."""
    bare, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    constraint = next((each for each in metadata if isinstance(each, Constraint)), Constraint())
    origin, arguments = get_origin(bare), get_args(bare)
    if NoneType in arguments:
        (inner,) = (each for each in arguments if each is not NoneType)
        return core_schema.nullable_schema(schema_of(Annotated[inner, constraint]))
    if constraint.choices or origin is Literal:
        return core_schema.literal_schema(list(constraint.choices or arguments))
    if origin is tuple:
        return core_schema.tuple_schema([schema_of(arguments[0])], variadic_item_index=0, strict=True)
    if origin is dict:
        return core_schema.dict_schema(*map(schema_of, arguments), strict=True)
    scalars: dict[Any, CoreSchema] = {
        str: core_schema.str_schema(pattern=constraint.pattern, strict=True),
        bool: core_schema.bool_schema(strict=True),
        int: core_schema.int_schema(ge=constraint.minimum, le=constraint.maximum, strict=True),
        float: core_schema.float_schema(ge=constraint.minimum, le=constraint.maximum, strict=True),
        Any: core_schema.any_schema(),
    }
    return scalars[bare]


@cache
def _result_validator(*, ended: bool) -> tuple[SchemaValidator, dict[str, Constraint]]:
    hints = get_type_hints(EndedAttempt, include_extras=True) if ended else _HINTS
    metadata = ((name, each) for name, hint in hints.items() for each in get_args(hint))
    constraints = {name: each for name, each in metadata if isinstance(each, Constraint)}
    schemas = {name: schema_of(hints[name]) for name in constraints} if ended else _schemas(constraints)
    return SchemaValidator(object_schema(schemas, constraints)), constraints


@cache
def _extension_validator() -> SchemaValidator:
    return SchemaValidator(extension_schema())


def _schemas(names: Iterable[str]) -> dict[str, CoreSchema]:
    """Return the schemas of fields of a result, by name; terms are plain JSON."""
    schemas = {name: schema_of(_HINTS[name]) for name in names}
    terms = core_schema.tuple_schema([_term_schema()], variadic_item_index=0, strict=True)
    return schemas | ({"terms": terms} if "terms" in schemas else {})


def _term_schema() -> CoreSchema:
    members = schemas_of(Term)
    return object_schema(members, members)
