"""Compact JSON: the same values as the standard library writes, byte for byte except for the spelling of floats."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.runs.lines import compact_json

TEXTS = st.text(st.characters()) | st.sampled_from(["NaN", "-Infinity", "a NaN in a text"])
PLAIN = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(PLAIN | st.floats(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20)


@given(VALUES)
def test_a_line_is_read_as_the_value_that_was_written(value: Any) -> None:
    line = compact_json(value, finite=False)
    assert json.dumps(json.loads(line)) == json.dumps(value)
    assert b"\n" not in line


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=9))
def test_the_bytes_are_those_of_the_standard_library(value: Any) -> None:
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert compact_json(value) == plain.encode("utf-8", "backslashreplace")


@given(VALUES)
def test_a_number_that_is_not_finite_is_refused_wherever_it_is(value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        with pytest.raises(ValueError, match="JSON compliant"):
            compact_json(value)
    else:
        assert compact_json(value) == compact_json(value, finite=False)


def test_any_nesting_is_written() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    assert compact_json(deep) == b"[" * 501 + b"]" * 501


@pytest.mark.parametrize("value", [object(), {"a": object()}, {(1, 2): object()}])
def test_a_value_that_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        compact_json(value)
