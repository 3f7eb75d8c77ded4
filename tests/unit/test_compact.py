"""Compact JSON: the same values as the standard library writes, byte for byte but for how floats are spelt."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.runs.lines import compact_json

TEXTS = st.text(st.characters())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: of one type each, and NaN is itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


@given(VALUES)
def test_what_is_written_is_read_again_as_it_was(value: Any) -> None:
    line = compact_json(value, finite=False)
    assert same(json.loads(line), value)
    assert b"\n" not in line


@given(st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, st.lists, max_leaves=9))
def test_bytes_are_those_of_the_standard_library(value: Any) -> None:
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert compact_json(value) == plain.encode("utf-8", "backslashreplace")


@given(VALUES)
def test_a_number_that_is_not_finite_is_refused_wherever_it_stands(value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        with pytest.raises(ValueError, match="JSON compliant"):
            compact_json(value)
    else:
        assert compact_json(value) == compact_json(value, finite=False)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "a NaN in a text"])
def test_words_in_texts_are_no_numbers(text: str) -> None:
    assert json.loads(compact_json({text: [text]})) == {text: [text]}


def test_nesting_deeper_than_the_fast_way_goes() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    assert compact_json(deep) == b"[" * 501 + b"]" * 501


@pytest.mark.parametrize("value", [object(), {"a": object()}, {(1, 2): object()}])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        compact_json(value)
