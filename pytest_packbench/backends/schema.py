"""JSON Schemas as the providers take them."""

from __future__ import annotations

from typing import Any

WRAPPED = "value"
"""The property that holds the answer of a schema that isn't an object's."""

# https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas"
_STRICT = frozenset(
    {
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items", "properties"),
        *("required", "title", "type", "format", "pattern", "multipleOf", "maximum", "minimum", "maxItems", "minItems"),
        *("exclusiveMaximum", "exclusiveMinimum"),
    }
)


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
