"""Strategies of JSON values that fit a model, by the schema that pydantic makes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from pydantic import TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TEXTS = st.text(max_size=12) | st.sampled_from(("a", "x y", "Ä😀", "e\u0301", "\u202e", "/a/b", "a" * 200))
NUMBERS = st.integers(-5, 5) | st.sampled_from((0.5, 1.0, -1.5, 1e300, 2**53 + 1))
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FEW = 3


def values_of(model: Any) -> st.SearchStrategy[Any]:
    """Return JSON values for a model or another type; its validators may refuse some of them."""
    schema = TypeAdapter(model).json_schema()
    return _values(schema, schema.get("$defs", {}))


def _values(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return st.deferred(lambda: _values(defs[schema["$ref"].rpartition("/")[2]], defs))
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return st.one_of([_values(each, defs) for each in schema[word]])
    if isinstance(schema.get("type"), list):
        return st.one_of([_values({**schema, "type": each}, defs) for each in schema["type"]])
    kinds: dict[str, Callable[..., st.SearchStrategy[Any]]] = {
        "string": _texts,
        "integer": _integers,
        "number": _floats,
        "array": _arrays,
        "object": _objects,
        "boolean": lambda *_: st.booleans(),
        "null": lambda *_: st.none(),
    }
    made = kinds.get(schema.get("type", ""))
    return ANYTHING if made is None else made(schema, defs)


def _texts(schema: Mapping[str, Any], _: object) -> st.SearchStrategy[Any]:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 10**6)
    # in Python, $ matches before a last line end too
    pattern = re.sub(r"\$$", r"\\Z", schema.get("pattern", ""))
    texts = st.from_regex(pattern) if pattern else TEXTS
    return texts.filter(lambda text: least <= len(text) <= most)


def _integers(schema: Mapping[str, Any], _: object) -> st.SearchStrategy[Any]:
    least = schema.get("minimum", schema.get("exclusiveMinimum", -1001) + 1)
    most = schema.get("maximum", schema.get("exclusiveMaximum", max(least, 0) + 1000) - 1)
    return st.integers(least, most)


def _floats(schema: Mapping[str, Any], _: object) -> st.SearchStrategy[Any]:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    return st.floats(
        least,
        most,
        exclude_min="exclusiveMinimum" in schema,
        exclude_max="exclusiveMaximum" in schema,
        allow_nan=False,
        allow_infinity=False,
    )


def _arrays(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if "prefixItems" in schema:
        return st.tuples(*(_values(each, defs) for each in schema["prefixItems"])).map(list)
    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", least + FEW), least + FEW)
    return st.lists(_values(schema.get("items", {}), defs), min_size=least, max_size=most)


def _objects(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    given, required = schema.get("properties", {}), {*schema.get("required", ())}
    fields = {name: _values(each, defs) for name, each in given.items()}
    known = st.fixed_dictionaries(
        {name: each for name, each in fields.items() if name in required},
        optional={name: each for name, each in fields.items() if name not in required},
    )
    more = schema.get("additionalProperties", False)
    if not more:
        return known
    others = st.dictionaries(TEXTS, _values(more if isinstance(more, dict) else {}, defs), max_size=FEW)
    return st.builds(lambda one, two: {**two, **one}, known, others)
