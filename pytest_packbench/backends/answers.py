"""Answers of a form: how their schema is given to a provider, and how what came is read, whoever it was."""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
WRAPPED = "value"
"""The property that holds the answer of a schema that isn't an object's."""
_MOST_SHOWN = 80
# what a record can hold
_MOST_TOKENS = 2**64 - 1
# https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas"
_STRICT = frozenset(
    {
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items", "properties"),
        *("required", "title", "type", "format", "pattern", "multipleOf", "maximum", "minimum", "maxItems", "minItems"),
        *("exclusiveMaximum", "exclusiveMinimum"),
    }
)


class Unreadable(ValueError):  # noqa: N818 - it is turned into a BackendError with the usage beside it
    """An answer that isn't what was asked for; the message says why."""


def parsed(text: str) -> Any:
    """Read JSON.

    Raises:
        Unreadable: it is none, or one that can't be written again (NaN, too deep).
    """
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        shown = " ".join(text.split())
        begins = f"{shown[:_MOST_SHOWN]}..." if len(shown) > _MOST_SHOWN else shown
        raise Unreadable(f"expected JSON ({error}); got {begins!r}") from None


def member(value: Any, name: str, kind: type[T]) -> T:
    """Give an object's member; an empty one of its kind where it is null or absent.

    Raises:
        Unreadable: there is no object, or the member is of another kind.
    """
    if not isinstance(value, dict):
        raise Unreadable(f"expected an object with {name!r}, got {type(value).__name__}")
    found = value.get(name)
    if found is None:
        return kind()
    if not isinstance(found, kind):
        raise Unreadable(f"expected {name!r} to be {kind.__name__}, got {type(found).__name__}")
    return found


def arguments(value: Any, tool: str) -> dict[str, Any]:
    """Read the arguments of a tool call: an object, or its JSON text; no text is no arguments.

    Raises:
        Unreadable: they are neither.
    """
    read = parsed(value or "{}") if isinstance(value, str) else value
    if not isinstance(read, dict):
        raise Unreadable(f"expected an object as the arguments of the tool {tool!r}, got {type(read).__name__}")
    return read


def count(value: object) -> int | None:
    """Read a number of tokens; None where there is none, or one that nobody can have counted."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None


def as_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Make a schema an object's, as tool arguments and strict answers have to be; another's stands in `WRAPPED`."""
    if schema.get("type") == "object":
        return schema
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED], "additionalProperties": False}
    return outer | {"$defs": schema["$defs"]} if "$defs" in schema else outer


def unwrapped(answer: Any, schema: dict[str, Any]) -> Any:
    """Take an answer to `as_object(schema)` out of its wrapping, if it has one."""
    if schema.get("type") == "object" or not isinstance(answer, dict) or answer.keys() != {WRAPPED}:
        return answer
    return answer[WRAPPED]


def fits_strict(schema: Any) -> bool:
    """Tell whether OpenAI's strict mode takes a schema: every object closed, all its properties required."""
    if not isinstance(schema, dict) or not schema.keys() <= _STRICT:
        return False
    properties = schema.get("properties", {})
    if schema.get("type") == "object" or properties:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != properties.keys():
            return False
    children = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    if "items" in schema:
        children.append(schema["items"])
    return all(fits_strict(child) for child in children)


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
