"""Lint rules for what a description of goods must not reveal: codes, headings, the ruling and its conclusion."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pytest_packbench.files import walk
from pytest_packbench.model.errors import json_pointer
from pytest_packbench.packs.tariff.notation import chapter, digits, is_under

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.tariff.model import TariffCase

PLANTED_CODE = "planted_code"
"""The tag of a case with a wrong code in its text on purpose."""

_CODES = re.compile(
    r"""
    (?<![\d.$€£])(?<!USD\ )(?<!EUR\ )
    (?:
        \d{4}\.\d{2}(?:[. ]?\d{2}){0,2}             # 6404.11, 6404.11.90, 6404.11.9020
      | \d{4}[ -]\d{2}[ -]\d{2}[ -]?\d{2}           # 6404-11-9020; eight digits with hyphens could be a date
      | \d{4}\ \d{2}\ \d{2}
      | \d{10}
    )
    (?!\d)
    """,
    re.VERBOSE,
)
_NUMBERS = r"((?:\d[\d.]*)(?:\s*(?:,|/|and|or|to)\s*\d[\d.]*)*)"
_HEADINGS = re.compile(
    r"\b(?:(?:sub-?)?headings?|chapters?|HTS(?:US)?|HS|schedule b|tariff (?:items?|lines?|codes?|numbers?))\b"
    r"(?:\s+(?:code|number|no|item|line|of|is))*[\s:.#]*" + _NUMBERS,
    re.IGNORECASE,
)
_UNITS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
_TENS = "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
_IN_WORDS = re.compile(rf"\b(?:heading|chapter)s?\s+(?:{'|'.join(f'{_UNITS} {_TENS}'.split())})\b", re.IGNORECASE)
_RULING = re.compile(r"\b(?:NY|HQ)\s?[A-Z]?\d{5,6}\b|\b[HN]\d{6}\b|\bruling\s+(?:no\.?\s+)?[A-Z]?\d{5,6}\b")
_CONCLUSION = re.compile(
    r"\bessential character\b|\bclassifi(?:ed|able)\s+(?:in|under|as)\b|\bGRI\b|\bgeneral rules? of interpretation\b",
    re.IGNORECASE,
)
_DIGIT_SEQUENCE = re.compile(r"\d(?:[\s./-]{0,2}\d){5,}")
_HEADING = 4
_SUBHEADING = 6
_LINE = 8


Flaw: TypeAlias = tuple[str, str, str]
"""What a lint rule found: JSON pointer, name of the rule, what is wrong and what to do."""


class _Mention(NamedTuple):
    """A code or heading that a text mentions; `code` has its digits, or is empty if it is spelt out in words."""

    excerpt: str
    code: str
    rule: str


def leaks(case: TariffCase, _: object) -> Iterator[Flaw]:
    """Yield what reveals the answer in a case's description, evidence and options.

    The tag `planted_code` allows every code except the preferred ones.
    """
    texts = {
        json_pointer(("input", *place)): unicodedata.normalize("NFKC", text)
        for place, text in walk(case.input.model_dump())
        if isinstance(text, str)
    }
    for pointer, text in texts.items():
        for rule, message in (*_codes_in(text, case), *_words_in(text, case)):
            yield pointer, rule, message
    if PLANTED_CODE in case.notes.tags and not any(map(_mentions, texts.values())):
        message = f"the text contains no code; remove the tag {PLANTED_CODE}"
        yield "/notes/tags", "planted_code_absent", message
    for index, candidate in enumerate(case.input.options.candidate_chapters):
        if candidate in map(chapter, case.expected.all_preferred):
            message = f"got {candidate}, the chapter of a preferred code; remove it"
            yield f"/input/options/candidate_chapters/{index}", "leak_chapter", message


def _codes_in(text: str, case: TariffCase) -> Iterator[tuple[str, str]]:
    """Yield the rule and the message of each code or heading that may not be in the text."""
    mentions, preferred = _mentions(text), [digits(code) for code in case.expected.all_preferred]
    forbidden = [code for _, code in case.expected.codes("must_not_hts")]
    for excerpt, code, rule in mentions:
        if code and any(is_under(each, code) for each in preferred):
            yield "leak_gold", _removed(excerpt)
        elif PLANTED_CODE not in case.notes.tags:
            yield rule, _removed(excerpt)
        elif len(code) >= _HEADING and not any(is_under(code, each) or is_under(each, code) for each in forbidden):
            yield "planted_code_allowed", f'the planted code "{excerpt}" is not forbidden; add it to must_not_hts'
    for sequence in _DIGIT_SEQUENCE.findall(text):
        is_reported = any(each.excerpt in sequence or sequence in each.excerpt for each in mentions)
        plain = digits(sequence)
        # its subheading alone, or its line among other digits
        if not is_reported and any(plain == code[:_SUBHEADING] or code[:_LINE] in plain for code in preferred):
            yield "leak_gold", _removed(sequence)


def _words_in(text: str, case: TariffCase) -> Iterator[tuple[str, str]]:
    """Yield the rule and the message of each name of a ruling in the text, and of each conclusion."""
    _, _, ruling = case.notes.source.partition(":")
    for name in _RULING.findall(text) or ([ruling] if ruling and ruling in text else []):
        yield "leak_ruling", f'the text names the ruling "{name}"; remove it'
    for excerpt in _CONCLUSION.findall(text):
        yield "leak_conclusion", f"{_removed(excerpt)}, the conclusion is the target's task"


def _removed(excerpt: str) -> str:
    return f'the text contains "{excerpt}"; remove it'


def _mentions(text: str) -> list[_Mention]:
    codes = [_Mention(match, digits(match), "leak_code") for match in _CODES.findall(text)]
    headings = [
        _Mention(match[0], digits(number).zfill(2), "leak_heading")
        for match in _HEADINGS.finditer(text)
        for number in re.findall(r"\d[\d.]*", match[1])
        # the pattern of codes already matches "heading 6402.99"
        if not _CODES.match(number)
    ]
    words = [_Mention(match, "", "leak_heading") for match in _IN_WORDS.findall(text)]
    return [*(each for each in codes if chapter(each.code) != "00"), *headings, *words]
