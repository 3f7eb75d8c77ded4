"""Lint rules for what a description of goods must not reveal: codes, headings, the ruling and its conclusion."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pytest_packbench.model.authoring import Finding
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
_HEADING_DIGITS = 4
_SUBHEADING_DIGITS = 6
_LINE_DIGITS = 8


@dataclass(frozen=True, slots=True)
class _RequestText:
    """A text of the request, in NFKC form, with its pointer."""

    pointer: str
    content: str


@dataclass(frozen=True, slots=True)
class _Mention:
    """A code or heading that a text mentions; `code` has its digits, or is empty if it is spelt out in words."""

    pointer: str
    excerpt: str
    code: str
    rule: str


def leaks(case: TariffCase, file: str) -> Iterator[Finding]:
    """Yield what reveals the answer in a case's description, evidence and options.

    The tag `planted_code` allows every code except the preferred ones.
    """
    finding = partial(Finding, file=file)
    texts = list(_texts(case))
    mentions = [mention for text in texts for mention in _mentions(text)]
    planted = PLANTED_CODE in case.notes.tags
    for mention in mentions:
        message = f'the text contains "{mention.excerpt}"; remove it'
        if mention.code and any(is_under(code, mention.code) for code in case.expected.all_preferred):
            yield finding(pointer=mention.pointer, rule="leak_gold", message=message)
        elif not planted:
            yield finding(pointer=mention.pointer, rule=mention.rule, message=message)
        elif len(mention.code) >= _HEADING_DIGITS and not _is_forbidden(mention.code, case):
            message = f'the planted code "{mention.excerpt}" is not forbidden; add it to must_not_hts'
            yield finding(pointer=mention.pointer, rule="planted_code_allowed", message=message)
    if planted and not mentions:
        message = f"the text contains no code; remove the tag {PLANTED_CODE}"
        yield finding(pointer="/notes/tags", rule="planted_code_absent", message=message)
    for text in texts:
        yield from _other_leaks(text, case, file, mentions)
    yield from _candidate_chapters(case, file)


def _texts(case: TariffCase) -> Iterator[_RequestText]:
    yield _normalized("/input/input", case.input.input)
    for index, document in enumerate(case.input.evidence):
        for key, content in (("source_id", document.source_id), ("title", document.title), ("text", document.text)):
            yield _normalized(f"/input/evidence/{index}/{key}", content or "")
    for index, change in enumerate(case.input.options.changes):
        yield _normalized(f"/input/options/changes/{index}/text", change.text)


def _normalized(pointer: str, content: str) -> _RequestText:
    return _RequestText(pointer, unicodedata.normalize("NFKC", content))


def _mentions(text: _RequestText) -> Iterator[_Mention]:
    for match in _CODES.finditer(text.content):
        code = digits(match[0])
        if chapter(code) != "00":
            yield _Mention(text.pointer, match[0], code, "leak_code")
    for match in _HEADINGS.finditer(text.content):
        # the pattern of codes already matches "heading 6402.99"
        numbers = (number for number in re.findall(r"\d[\d.]*", match[1]) if not _CODES.match(number))
        for number in numbers:
            yield _Mention(text.pointer, match[0], digits(number).zfill(2), "leak_heading")
    for match in _IN_WORDS.finditer(text.content):
        yield _Mention(text.pointer, match[0], "", "leak_heading")


def _is_forbidden(code: str, case: TariffCase) -> bool:
    lists = (case.expected.must_not_hts, *(article.must_not_hts for article in case.expected.articles or ()))
    forbidden = [code for codes in lists for code in codes or ()]
    return any(is_under(code, prefix) or is_under(prefix, code) for prefix in forbidden)


def _other_leaks(text: _RequestText, case: TariffCase, file: str, mentions: list[_Mention]) -> Iterator[Finding]:
    """Yield other leaks: a preferred code among other digits, the ruling, its conclusion."""
    finding = partial(Finding, file=file, pointer=text.pointer)
    reported = [mention.excerpt for mention in mentions if mention.pointer == text.pointer]
    for sequence in _DIGIT_SEQUENCE.findall(text.content):
        is_reported = any(excerpt in sequence or sequence in excerpt for excerpt in reported)
        if _contains_preferred(digits(sequence), case) and not is_reported:
            yield finding(rule="leak_gold", message=f'the text contains "{sequence}"; remove it')
    _, _, ruling = case.notes.source.partition(":")
    for match in _RULING.finditer(text.content):
        yield finding(rule="leak_ruling", message=f'the text names the ruling "{match[0]}"; remove it')
    if ruling and ruling in text.content and not _RULING.search(text.content):
        yield finding(rule="leak_ruling", message=f'the text names the ruling "{ruling}"; remove it')
    for match in _CONCLUSION.finditer(text.content):
        message = f'the text contains "{match[0]}"; remove it, the conclusion is the target\'s task'
        yield finding(rule="leak_conclusion", message=message)


def _contains_preferred(sequence: str, case: TariffCase) -> bool:
    codes = [digits(code) for code in case.expected.all_preferred]
    return any(
        sequence == code[:_SUBHEADING_DIGITS] or (len(code) >= _LINE_DIGITS and code[:_LINE_DIGITS] in sequence)
        for code in codes
    )


def _candidate_chapters(case: TariffCase, file: str) -> Iterator[Finding]:
    preferred = {chapter(code) for code in case.expected.all_preferred}
    for index, candidate in enumerate(case.input.options.candidate_chapters):
        if candidate in preferred:
            pointer = f"/input/options/candidate_chapters/{index}"
            message = f"got {candidate}, the chapter of a preferred code; remove it"
            yield Finding(file=file, pointer=pointer, rule="leak_chapter", message=message)
