"""Texts and values at their exact limits: how a message shows them, what is too deep, and hashes of odd texts."""

from __future__ import annotations

import hashlib
import json
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.cases.load import JsonError, parse_json
from pytest_packbench.files import LIMITS, canonical_sha256, is_plain, printable, printable_repr
from pytest_packbench.model.errors import format_value
from pytest_packbench.packs.agent_safety.judges import JudgeError, parse_ruling
from pytest_packbench.packs.generic.values import truncate
from pytest_packbench.policy import shown

if TYPE_CHECKING:
    from collections.abc import Callable

# what shows a text, its longest text, and how a longer one ends; a JSON value counts its quotes
CUT: list[tuple[Callable[[str], str], int, int, str]] = [
    (printable, 60, 60, "..."),
    (lambda text: printable_repr(text)[1:].removesuffix("'"), 58, 59, "..."),
    (lambda text: format_value(text)[1:].removesuffix('"'), 58, 58, "…"),
    (truncate, 80, 79, "…"),
]


@pytest.mark.parametrize(("show", "longest", "kept", "end"), CUT)
def test_a_text_is_shown_whole_up_to_its_limit_and_cut_beyond(
    show: Callable[[str], str], longest: int, kept: int, end: str
) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(longest + 1))
    for length in (0, 1, longest - 1, longest):
        assert show(text[:length]) == text[:length]
    assert show(text) == text[:kept] + end
    assert show(text * 1000) == text[:kept] + end


def test_a_value_of_a_change_is_itself_up_to_60_characters() -> None:
    for value in ("a" * 60, [1, "b" * 53], 7, None):
        assert shown(value) == value
    long = "a" * 61
    assert shown(long) == f"sha256:{canonical_sha256(long)[:16]}"


def test_a_ruling_that_can_t_be_read_is_quoted_up_to_60_characters() -> None:
    # the quotes count
    for length, excerpt in ((58, f'"{"x" * 58}"'), (59, f'"{"x" * 58}…')):
        with pytest.raises(JudgeError, match=f"answered {excerpt}; expected safe"):
            parse_ruling("x" * length)


def nested(depth: int, *, inner: Any = None, objects: bool = False) -> Any:
    value: Any = {"v": inner} if objects else [inner]
    for _ in range(depth - 1):
        value = {"k": value} if objects else [value]
    return value


@pytest.mark.parametrize("objects", [False, True])
def test_100_levels_are_read_and_written_and_no_more(objects: bool) -> None:
    assert is_plain(nested(100, objects=objects))
    assert not is_plain(nested(101, objects=objects))
    for limit in (LIMITS["case"], LIMITS["record"]._replace(depth=7)):
        deep = nested(limit.depth, objects=objects)
        assert parse_json(json.dumps(deep).encode(), limit=limit) == deep
        with pytest.raises(JsonError, match=f"nested deeper than {limit.depth}; remove levels"):
            parse_json(json.dumps(nested(limit.depth + 1, objects=objects)).encode(), limit=limit)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_a_value_that_is_plain_is_read_back_unchanged(value: Any) -> None:
    if is_plain([value]):
        assert json.loads(json.dumps(value, allow_nan=False)) == value
    assert not is_plain([value, inf])


def test_a_hash_is_of_the_canonical_form_and_lone_surrogates_have_one_too() -> None:
    value = {"b": [1, True, None, "é"], "a": {"d": 1.5, "c": "x y"}}
    canonical = '{"a":{"c":"x y","d":1.5},"b":[1,true,null,"é"]}'
    assert canonical_sha256(value) == hashlib.sha256(canonical.encode()).hexdigest()
    assert canonical_sha256("\ud800") == hashlib.sha256(b'"\xed\xa0\x80"').hexdigest()
    assert len({canonical_sha256(text) for text in ("\ud800", "\ud801", "\udc00", "\ufffd", "?", "")}) == 6
