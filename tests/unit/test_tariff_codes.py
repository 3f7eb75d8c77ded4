"""Tariff codes: one code in any spelling, prefixes, depth of agreement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.packs.tariff.codes import LEVELS, chapter, depth, digits, dotted, is_under

CODES = st.text("0123456789", min_size=2, max_size=10)


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A code as digits, and as a person writes it: other digits, dots, spaces, dashes, words."""
    plain = draw(CODES)
    marks = draw(st.lists(st.sampled_from(["", ".", " ", "-", "\u00a0"]), min_size=len(plain), max_size=len(plain)))
    zero = draw(st.sampled_from(["0", "\uff10"]))
    written = "".join(chr(ord(zero) + int(char)) + mark for char, mark in zip(plain, marks, strict=True))
    return plain, draw(st.sampled_from(["", "HTS ", "HTSUS: "])) + written


@given(spellings())
def test_a_code_is_the_same_in_any_spelling(pair: tuple[str, str]) -> None:
    plain, written = pair
    assert (digits(written), chapter(written)) == (plain, plain[:2])
    assert is_under(written, plain)
    assert is_under(plain, written)
    assert depth(written, plain) == depth(plain, plain)


@pytest.mark.parametrize(
    ("other", "agreed"),
    [
        ("6404119020", 10),
        ("6404.11.9050", 8),
        ("6404.11.9025", 8),
        ("6404.11.2030", 6),
        ("6404.19.9030", 4),
        ("6404.1", 4),
        ("6402.99.3165", 2),
        ("8544.42.9090", 0),
        ("6", 0),
        ("", 0),
    ],
)
def test_depth_counts_whole_levels(other: str, agreed: int) -> None:
    assert depth("6404.11.9020", other) == depth(other, "6404.11.9020") == agreed


@given(CODES, CODES)
def test_codes_agree_to_a_level_and_are_under_their_own_prefixes(left: str, right: str) -> None:
    agreed = depth(left, right)
    assert agreed == depth(right, left) <= depth(left, left)
    assert agreed in {0, *LEVELS}
    assert left[:agreed] == right[:agreed]
    assert is_under(left, right) == left.startswith(right)
    assert all(is_under(left, left[:length]) for length in range(1, len(left) + 1))


@pytest.mark.parametrize(
    ("code", "prefix", "under"),
    [
        ("6404.11.9020", "6404.11", True),
        ("6404.11.9020", "", False),
        ("6404.11.9020", "none", False),
        ("6404.11.9020 or 6402.99.3165", "6404.11", False),
    ],
)
def test_a_code_is_under_no_empty_prefix_and_two_codes_are_under_none(code: str, prefix: str, under: bool) -> None:
    assert is_under(code, prefix) is under


@pytest.mark.parametrize("code", ["6404.11.90.20", "6404.11.90", "6404", "64", ""])
def test_dotted_writes_a_code_as_the_schedule_does(code: str) -> None:
    assert dotted(code.replace(".", "")) == code
