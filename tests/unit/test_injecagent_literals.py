"""Values as Python writes them: read, never evaluated, whatever stands there."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.packs.agent_safety.injecagent.upstream import MAX_DEPTH, MAX_LENGTH, LiteralError, parse_literal

PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_reads_what_repr_writes(value: Any) -> None:
    assert parse_literal(repr(value)) == value


def test_a_tuple_becomes_a_list() -> None:
    assert parse_literal("{'a': (1, 'b')}") == {"a": [1, "b"]}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('x')",
        "'a'.upper()",
        "'a'('b')",
        "['a'][0]",
        "1 + 1",
        "1+1j",
        "9**9**9",
        "f'{1}'",
        "b'a'",
        "{1, 2}",
        "{1: 'a'}",
        "{None: 'a'}",
        "...",
        "lambda: 1",
        "[x for x in 'ab']",
        "'a' if 1 else 'b'",
        "not True",
        "true",
        "1_000",
        "0x10",
        "1e999",
        "'unclosed",
        "['a'",
        "'a']",
        "'line\nbreak'",
        "'\x00'",
        "",
        "a",
        "1 2",
        "'" + "9" * 50 + "' " + "9" * 5000,
    ],
)
def test_refuses_all_else_in_one_line(text: str) -> None:
    with pytest.raises(LiteralError) as refused:
        parse_literal(text)
    assert "\n" not in str(refused.value)
    assert "0x7f" not in str(refused.value)


@pytest.mark.parametrize("text", ["[" * 100_000, "-" * 100_000 + "1", "(" * 90 + ")" * 90, "{'a':" * 500, "~" * 1000])
def test_deep_nesting_never_reaches_the_parser(text: str) -> None:
    with pytest.raises(LiteralError, match=r"nested more than 50 levels deep|expected a value"):
        parse_literal(text)


def test_the_bounds_are_where_they_are_said_to_be() -> None:
    assert parse_literal("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    with pytest.raises(LiteralError, match="nested"):
        parse_literal("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert parse_literal("'" + "a" * (MAX_LENGTH - 2) + "'")
    with pytest.raises(LiteralError, match="at most 200000"):
        parse_literal("'" + "a" * (MAX_LENGTH - 1) + "'")


def test_brackets_in_strings_are_no_nesting() -> None:
    assert parse_literal("['" + "[" * 200 + "']") == ["[" * 200]


def test_an_unknown_escape_warns_nobody() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_literal(r"'\d'") == r"\d"


@pytest.mark.parametrize("text", ["'" * 99_999, "'\\" * 60_000, "1." * 90_000, "' " * 90_000, '"\\' * 99_000 + "'"])
def test_hostile_texts_are_read_in_one_pass(text: str) -> None:
    try:
        parse_literal(text)
    except LiteralError as refused:
        assert len(str(refused)) < 300
