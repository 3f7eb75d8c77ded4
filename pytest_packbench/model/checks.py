"""Checks of results that are read back from files, by pydantic models made of the types of `CaseResult`.

Results that are made here are not checked. A foreign writer may add keys to our own object in a record; what is of ours
has to be what a report can count and compare.
"""

from __future__ import annotations

from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema, create_model

from pytest_packbench.model.cassette import Origin
from pytest_packbench.model.result import HINTS, LATER, OWN_KEYS, OWN_VERSION, ROW, CaseResult
from pytest_packbench.model.run import Mode
from pytest_packbench.model.score import Kind, Term
from pytest_packbench.model.strict_json import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def result_problem(result: CaseResult) -> tuple[str, str] | None:
    """Tell what is wrong with a result.

    Args:
        result: made of what a file holds, whatever its annotations promise. Record and payload are not looked at.

    Returns:
        The field and, in words, what it is and was expected to be; None where all fields are sound.
    """
    model, kinds = _result_model()
    try:
        model.model_validate({name: getattr(result, name) for name in kinds})
    except ValidationError as error:
        name = str(error.errors(include_url=False, include_context=False)[0]["loc"][0])
        return name, f"got {shown(repr(getattr(result, name)))}, expected {kinds[name].words}"
    return None


def own_problem(own: Mapping[str, Any]) -> str | None:
    """Tell what is wrong with a record's own object.

    Args:
        own: what stands under `packbench`.

    Returns:
        One line that begins with the key, such as `packbench.trial: expected a valid integer, got 'x'`; None where
        every key of ours is of its type and range.
    """
    try:
        own_model().model_validate(own)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "packbench" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        if first["type"] == "missing":
            return f"{place}: is missing"
        expected = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        expected = expected.replace("String should match", "a string that matches")
        return f"{place}: expected {expected}, got {shown(repr(first['input']))}"
    return None


@cache
def own_model() -> type[BaseModel]:
    """Give the model of a record's own object."""
    shared = _hints(*(name for name in OWN_KEYS if name in HINTS))
    of_run = {
        "version": Annotated[int, AfterValidator(_version), WithJsonSchema({"const": OWN_VERSION})],
        "mode": Mode,
        "origin": Origin | None,
        "target": str,
        "pack": str,
        "bundled": bool,
        "calls": shared["cached"],
        "suite_sha256": shared["case_sha256"],
        "versions": shared["facets"],
    }
    # they stand there otherwise than in a result
    changed = {"tags": list[str], "terms": list[_term_model()], "utility": bool, "valid": bool}  # type: ignore[misc]  # made as it is called
    found = {**shared, **of_run, **changed}
    required = ("version", "score", "threshold", "verdict", "terms")
    return model_of("Own", {**{key: found[key] for key in OWN_KEYS}, "judge": _JUDGE}, required)


@cache
def row_model() -> type[BaseModel]:
    """Give the model of a report's row."""
    return model_of("Row", _hints(*ROW), [name for name in ROW if name not in LATER])


def model_of(name: str, hints: Mapping[str, Any], required: Collection[str]) -> type[BaseModel]:
    """Make a strict model that leaves foreign keys alone; what is not required may be missing."""
    fields: dict[str, Any] = {key: (hint, ... if key in required else None) for key, hint in hints.items()}
    return create_model(name, __config__=ConfigDict(strict=True, frozen=True), **fields)


def bounded_hints(kind: type) -> dict[str, Any]:
    """Give the types of a dataclass's fields by name, for pydantic."""
    return {name: _bounded(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


@cache
def _result_model() -> tuple[type[BaseModel], dict[str, Kind]]:
    kinds = {name: kind for name, hint in HINTS.items() if (kind := _kind(hint)) is not None}
    return model_of("Result", _hints(*kinds), kinds), kinds


@cache
def _term_model() -> type[BaseModel]:
    hints = bounded_hints(Term)
    return model_of("Term", hints, hints)


def _hints(*names: str) -> dict[str, Any]:
    """Give the types of fields for pydantic; a term stands as plain JSON."""
    found = {name: _bounded(HINTS[name]) for name in names}
    return found | ({"terms": tuple[_term_model(), ...]} if "terms" in found else {})  # type: ignore[misc]  # made as it is called


def _bounded(hint: Any) -> Any:
    """Put what a type says of its values into pydantic's words."""
    kind = _kind(hint)
    if kind is None:
        return hint
    plain = get_args(hint)[0]
    if kind.among:
        return Literal[kind.among] | None if NoneType in get_args(plain) else Literal[kind.among]
    bounds = {"ge": kind.least, "le": kind.most, "pattern": kind.pattern}
    given: Any = {name: bound for name, bound in bounds.items() if bound is not None}
    return Annotated[plain, Field(**given)] if given else plain


def _kind(hint: Any) -> Kind | None:
    beside = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((one for one in beside if isinstance(one, Kind)), None)


def _version(found: int) -> int:
    if found != OWN_VERSION:
        raise ValueError(str(OWN_VERSION))
    return found


def _judge(found: Any) -> Any:
    # an object also says what the judge found
    name = found.get("name") if isinstance(found, dict) else found
    if found is not None and not isinstance(name, str):
        raise ValueError("a judge's name, or an object with its name")
    return found


_NAMED_JUDGE = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_JUDGE = Annotated[Any, AfterValidator(_judge), WithJsonSchema({"anyOf": [{"type": ["string", "null"]}, _NAMED_JUDGE]})]
