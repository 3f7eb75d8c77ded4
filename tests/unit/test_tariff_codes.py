"""Tariff codes: one code in any spelling, prefixes, depth of agreement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.packs.tariff.codes import LEVELS, chapter, depth, digits, dotted, is_under

CODES = st.text("0123456789", min_size=2, max_size=10)


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A code as digits, and the same as somebody writes it: other digits, dots, spaces, dashes, words."""
    plain = draw(CODES)
    marks = draw(st.lists(st.sampled_from(["", ".", " ", "-", "\u00a0"]), min_size=len(plain), max_size=len(plain)))
    wide = draw(st.booleans())
    written = "".join(
        (chr(0xFF10 + int(char)) if wide else char) + mark for char, mark in zip(plain, marks, strict=True)
    )
    return plain, draw(st.sampled_from(["", "HTS ", "HTSUS: "])) + written


@given(spellings())
def test_spelling_does_not_matter(pair: tuple[str, str]) -> None:
    plain, written = pair
    assert digits(written) == plain
    assert chapter(written) == plain[:2]
    assert is_under(written, plain)
    assert is_under(plain, written)
    assert depth(written, plain) == depth(plain, plain)


@pytest.mark.parametrize(
    ("left", "right", "agreed"),
    [
        ("6404.11.9020", "6404119020", 10),
        ("6404.11.9020", "6404.11.9050", 8),
        ("6404.11.9020", "6404.11.2030", 6),
        ("6404.11.9020", "6404.19.9030", 4),
        ("6404.11.9020", "6402.99.3165", 2),
        ("6404.11.9020", "8544.42.9090", 0),
        ("6404.11.9020", "6404.1", 4),
        ("6404.11.9020", "6", 0),
        ("6404.11.9020", "", 0),
        ("6404.11.9020", "6404.11.9025", 8),
    ],
)
def test_depth_counts_whole_levels(left: str, right: str, agreed: int) -> None:
    assert depth(left, right) == agreed


@given(CODES, CODES)
def test_depth_is_symmetric_and_bounded(left: str, right: str) -> None:
    found = depth(left, right)
    assert found == depth(right, left)
    assert found in {0, *LEVELS}
    assert left[:found] == right[:found]
    assert found <= depth(left, left)


@given(CODES, CODES)
def test_a_code_stands_under_its_prefixes_alone(code: str, other: str) -> None:
    for length in range(1, len(code) + 1):
        assert is_under(code, code[:length])
    assert is_under(code, other) == code.startswith(other)


def test_nothing_stands_under_no_code() -> None:
    assert not is_under("6404.11.9020", "")
    assert not is_under("6404.11.9020", "none")


@pytest.mark.parametrize(
    ("code", "written"),
    [("6404119020", "6404.11.90.20"), ("64041190", "6404.11.90"), ("6404", "6404"), ("64", "64"), ("", "")],
)
def test_dotted_writes_as_the_schedule(code: str, written: str) -> None:
    assert dotted(code) == written


def test_two_codes_in_one_string_stand_under_none() -> None:
    assert is_under("6404.11.9020", "6404.11")
    assert not is_under("6404.11.9020 or 6402.99.3165", "6404.11")
