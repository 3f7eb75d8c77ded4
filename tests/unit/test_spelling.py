"""The one form of a text: what it makes equal, what it keeps apart, and texts that would take long."""

from __future__ import annotations

import unicodedata

import pytest

from pytest_packbench.model.errors import fold, spellings

EQUAL = [
    (
        "not so",
        "not\u00a0so",
        "not\u202fso",
        "not \t\n so",
        "not\u2003so",
        "not\u3000so",
        "n\u00adot so",
        "no\u2060t so\ufeff",
    ),
    ("für", "fu\u0308r", "fu\u200b\u0308r", "\uff46\u00fc\uff52", "f\u00fcr\ufe0f"),
    ("don't", "don\u2019t", "don\u2018t", "don\u00b4t", "don\u2032t"),
    ('"a"', "\u201ca\u201d", "\u201ea\u201c", "\u00aba\u00bb"),
    ("a-b", "a\u2011b", "a\u2013b", "a\u2014b", "a\u2212b"),
    ("office", "o\ufb03ce"),
]
APART = [
    ("a", "A"),
    ("fur", "für"),
    ("a b", "ab"),
    ("\u2014", "-"),
    ("\u2026", "..."),
    ("\u200b", ""),
    (" ", "\u00a0"),
    ("1", "true"),
]


@pytest.mark.parametrize("texts", EQUAL, ids=lambda texts: texts[0])
def test_spellings_of_one_text_have_one_form(texts: tuple[str, ...]) -> None:
    assert {fold(text) for text in texts} == {unicodedata.normalize("NFC", texts[0])}
    assert fold({"k": [texts[-1], 1, True, None]}) == {"k": [texts[0], 1, True, None]}


@pytest.mark.parametrize(("one", "other"), APART)
def test_other_texts_and_signs_alone_stay_apart(one: str, other: str) -> None:
    assert fold(one) != fold(other)


def test_a_zero_width_space_is_nothing_or_a_space() -> None:
    assert list(spellings({"a\u200bb": "c\u200bd"})) == [{"a\u200bb": "c\u200bd"}, {"ab": "cd"}, {"a b": "c d"}]


def test_accents_without_end_are_cut_because_sorting_them_takes_their_number_squared() -> None:
    assert len(fold("a" + "\u0323\u0300" * 100_000 + "b" + "\u0301\u0323" * 100_000 + "c")) < 100
    assert fold("x" + "\u0323\u0300" * 10) == unicodedata.normalize("NFKC", "x" + "\u0323\u0300" * 10)
