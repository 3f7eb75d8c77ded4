"""Values as Python writes them: read, never evaluated."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.packs.agent_safety.injecagent.upstream import MAX_DEPTH, MAX_LENGTH, LiteralError, parse_literal

PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=10,
)
REFUSED = r"""__import__('os').system('true') | open('x') | 'a'.upper() | 'a'('b') | ['a'][0] | 1 + 1 | 1+1j | 9**9**9 |
    f'{1}' | b'a' | {1, 2} | {1: 'a'} | {None: 'a'} | ... | lambda: 1 | [x for x in 'ab'] | 'a' if 1 else 'b' | not True |
    true | 1_000 | 0x10 | 1e999 | 'unclosed | ['a' | 'a'] | a | 1 2"""


@given(PLAIN)
def test_reads_what_repr_writes(value: Any) -> None:
    assert parse_literal(repr(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': (1, 'b')}", {"a": [1, "b"]}),
        # brackets in strings are no nesting
        ("['" + "[" * 200 + "']", ["[" * 200]),
        (r"'\d'", r"\d"),
        ("[" * 3 + "]" * 3 + " ", [[[]]]),
    ],
)
def test_reads_tuples_as_lists_and_strings_as_written(text: str, value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_literal(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *(text.strip() for text in REFUSED.split(" |")),
        *("'line\nbreak'", "'\x00'", "", "'" + "9" * 50 + "' " + "9" * 5000),
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


def test_the_greatest_depth_and_length() -> None:
    assert parse_literal("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    # side by side is no depth
    assert parse_literal("[" + "[], " * (MAX_DEPTH + 1) + "]") is not None
    assert parse_literal("'" + "a" * (MAX_LENGTH - 2) + "'")
    for text, message in (
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "column 51: nested more than 50"),
        ("'" + "a" * (MAX_LENGTH - 1) + "'", "got 200001 characters, expected at most 200000"),
    ):
        with pytest.raises(LiteralError, match=message):
            parse_literal(text)


@pytest.mark.parametrize("text", ["'" * 99_999, "'\\" * 60_000, "1." * 90_000, "' " * 90_000, '"\\' * 99_000 + "'"])
def test_hostile_texts_are_read_in_one_pass(text: str) -> None:
    with suppress(LiteralError):
        parse_literal(text)
