"""What the description of goods must not give away: codes, headings, the ruling and its conclusion."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pytest_packbench.model.finding import Finding
from pytest_packbench.packs.tariff.codes import chapter, digits, stands_under

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.tariff.model import TariffCase

PLANTED = "planted_code"
"""The tag of a case whose text holds a wrong code on purpose."""

_CODES = re.compile(
    r"""
    (?<![\d.$€£])(?<!USD\ )(?<!EUR\ )
    (?:
        \d{4}\.\d{2}(?:[. ]?\d{2}){0,2}             # 6404.11, 6404.11.90, 6404.11.9020
      | \d{4}[ -]\d{2}[ -]\d{2}[ -]?\d{2}           # 6404-11-9020; eight digits with hyphens may be a date
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
_RUN = re.compile(r"\d(?:[\s./-]{0,2}\d){5,}")
_SUBHEADING = 6
_LINE = 8
_HEADING = 4


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of the request: where it stands, and what it says in plain characters."""

    pointer: str
    words: str


@dataclass(frozen=True, slots=True)
class _Mention:
    """A code that a text names: the words, and the digits; no digits where it is spelt out."""

    pointer: str
    words: str
    code: str
    rule: str


def leaks(case: TariffCase, file: str) -> Iterator[Finding]:
    """Find what gives the answer away in a case's description, evidence and options.

    The tag `planted_code` allows any code but the preferred ones.
    """
    at = partial(Finding, file=file)
    texts = list(_texts(case))
    mentions = [mention for text in texts for mention in _mentions(text)]
    gold = [digits(code) for code in case.expected.preferred_hts]
    planted = PLANTED in case.notes.tags
    for mention in mentions:
        message = f'the text says "{mention.words}"; take it out'
        if mention.code and any(code.startswith(mention.code) for code in gold):
            yield at(pointer=mention.pointer, rule="leak_gold", message=message)
        elif not planted:
            yield at(pointer=mention.pointer, rule=mention.rule, message=message)
        elif len(mention.code) >= _HEADING and not _is_forbidden(mention.code, case):
            message = f'the text plants "{mention.words}", which no code of must_not_hts forbids; add it there'
            yield at(pointer=mention.pointer, rule="planted_code_allowed", message=message)
    if planted and not mentions:
        yield at(pointer="/notes/tags", rule="planted_code_absent", message="no code stands in the text; drop the tag")
    for text in texts:
        yield from _said(text, case, file, mentions)
    yield from _named_chapters(case, file)


def _texts(case: TariffCase) -> Iterator[_Text]:
    yield _text("/input/input", case.input.input)
    for index, document in enumerate(case.input.evidence):
        for key, words in (("source_id", document.source_id), ("title", document.title), ("text", document.text)):
            yield _text(f"/input/evidence/{index}/{key}", words or "")


def _text(pointer: str, words: str) -> _Text:
    return _Text(pointer, unicodedata.normalize("NFKC", words))


def _mentions(text: _Text) -> Iterator[_Mention]:
    for match in _CODES.finditer(text.words):
        code = digits(match[0])
        if chapter(code) != "00":
            yield _Mention(text.pointer, match[0], code, "leak_code")
    for match in _HEADINGS.finditer(text.words):
        # "heading 6402.99" is found as a code already
        numbers = (number for number in re.findall(r"\d[\d.]*", match[1]) if not _CODES.match(number))
        for number in numbers:
            yield _Mention(text.pointer, match[0], digits(number).zfill(2), "leak_heading")
    for match in _IN_WORDS.finditer(text.words):
        yield _Mention(text.pointer, match[0], "", "leak_heading")


def _is_forbidden(code: str, case: TariffCase) -> bool:
    return any(stands_under(code, one) or stands_under(one, code) for one in case.expected.must_not_hts or ())


def _said(text: _Text, case: TariffCase, file: str, mentions: list[_Mention]) -> Iterator[Finding]:
    """Find what no pattern of codes shows: the gold among other digits, the ruling, its conclusion."""
    at = partial(Finding, file=file, pointer=text.pointer)
    known = [mention.words for mention in mentions if mention.pointer == text.pointer]
    for run in _RUN.findall(text.words):
        if _holds_gold(digits(run), case) and not any(words in run or run in words for words in known):
            yield at(rule="leak_gold", message=f'the text says "{run}"; take it out')
    _, _, ruling = case.notes.source.partition(":")
    for match in _RULING.finditer(text.words):
        yield at(rule="leak_ruling", message=f'the text names the ruling "{match[0]}"; take it out')
    if ruling and ruling in text.words and not _RULING.search(text.words):
        yield at(rule="leak_ruling", message=f'the text names the ruling "{ruling}"; take it out')
    for match in _CONCLUSION.finditer(text.words):
        yield at(rule="leak_conclusion", message=f'the text says "{match[0]}"; leave the conclusion to the target')


def _holds_gold(run: str, case: TariffCase) -> bool:
    golds = [digits(code) for code in case.expected.preferred_hts]
    return any(run == gold[:_SUBHEADING] or (len(gold) >= _LINE and gold[:_LINE] in run) for gold in golds)


def _named_chapters(case: TariffCase, file: str) -> Iterator[Finding]:
    golds = {chapter(code) for code in case.expected.preferred_hts}
    for index, named in enumerate(case.input.options.candidate_chapters):
        if named in golds:
            pointer = f"/input/options/candidate_chapters/{index}"
            message = f"got {named}, the chapter of the preferred code; leave the option out"
            yield Finding(file=file, pointer=pointer, rule="leak_chapter", message=message)
