"""Cases of the original harness as cases of this pack.

What is read: all that the original accepts, and spellings with one meaning. What is written: the strict case. Every
value that has no key there, or is written in another way, is kept in `notes.imported` under its JSON pointer, so that
nothing of the file is lost. What has no clear meaning is an error.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_packbench.model.authoring import case_id
from pytest_packbench.model.errors import Problem, format_value, json_pointer
from pytest_packbench.packs.tariff.model import KEYS_OF_ANSWERS, SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PACK = "tariff"
IMPORTED = "imported"
"""The source of a case whose file names none that the pack knows."""
_ALIAS = re.compile(r"tariff([_-][A-Za-z0-9_-]+)?")
_KEYS = ("id", "pack_id", "case_type", "difficulty", "input", "expected", "notes")
_CODE_LISTS = ("allowed_hts", "must_not_hts")
_FLAGS = ("lever_found_expected", "lever_compliance_ok", "expected_best_is_multi_step")
_COUNTS = ("lever_count_min", "min_lever_steps")
_NO_CATEGORY = frozenset({"", "null", "none"})
_WORDS = {"true": True, "false": False}
_MAX_ITERS = 20
_CHAPTER = 2
_TOO_LARGE = 1e15


class MappingError(ValueError):
    """A file of the original that can't become a case.

    Attributes:
        problem: the key, what is wrong with it, and what was expected.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def to_case(data: object) -> dict[str, Any]:
    """Convert a case of the original, parsed JSON, to a case of this pack, plain JSON.

    Raises:
        MappingError: a key is missing, or its value has no clear meaning.
    """
    kept: dict[str, Any] = {}
    top = _Part(data, (), kept)
    top.require_object("a case")
    case_input, expected, notes = top.part("input"), top.part("expected"), top.part("notes")
    case = {
        "id": _id(top),
        "pack_id": _pack_id(top),
        "case_type": _word(top, "case_type"),
        "difficulty": _word(top, "difficulty"),
        "input": _input(case_input),
        "expected": _expected(expected),
        "notes": _notes(notes),
    }
    top.keep_others(_KEYS)
    if kept:
        case["notes"]["imported"] = dict(sorted(kept.items()))
    return case


class _Part:
    """A value of the file with its place; what is not written as it was read is kept."""

    def __init__(self, value: object, path: tuple[str | int, ...], kept: dict[str, Any]) -> None:
        self.value = value
        self._path = path
        self._kept = kept

    def part(self, key: str) -> _Part:
        """Return the value under a key; None where there is none."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return self._child(key, value)

    def parts(self) -> list[_Part]:
        """Return the members of a list; of a single value, that value; none for null and what is empty."""
        if self.value is None or self.value in ("", [], {}):
            self.keep()
            return []
        if isinstance(self.value, list):
            return [self._child(index, value) for index, value in enumerate(self.value)]
        self.keep()
        return [self]

    def _child(self, step: str | int, value: object) -> _Part:
        return _Part(value, (*self._path, step), self._kept)

    def keep(self) -> None:
        """Keep the value, unless it is null or an empty list or object, which say nothing."""
        if self.value not in (None, [], {}):
            self._kept[json_pointer(self._path)] = self.value

    def keep_others(self, keys: Iterable[str]) -> None:
        """Keep the values of all other keys."""
        for key, value in self.value.items() if isinstance(self.value, dict) else ():
            if key not in keys:
                self._child(key, value).keep()

    def written(self, value: object) -> Any:
        """Return what is written for the value, which is kept if it differs."""
        if type(value) is not type(self.value) or value != self.value:
            self.keep()
        return value

    def fail(self, expected: str) -> NoReturn:
        wrong = "the key is missing or null" if self.value is None else f"got {format_value(self.value)}"
        raise MappingError(Problem(json_pointer(self._path), wrong, f"expected {expected}"))

    def require_object(self, what: str) -> None:
        if not isinstance(self.value, dict):
            self.fail(f"an object, {what}" if what else "an object")

    def text(self, expected: str) -> str:
        text = self.value
        return text if isinstance(text, str) and text.strip() else self.fail(expected)

    def optional(self, read: Callable[[_Part], Any]) -> Any:
        """Return what `read` returns; None where there is no value."""
        return None if self.value is None else self.written(read(self))


def _id(top: _Part) -> str:
    part = top.part("id")
    return part.written(case_id(part.text("the id of the case, a string"))) or ""


def _pack_id(top: _Part) -> str:
    part = top.part("pack_id")
    name = part.text("tariff, tariff_us, tariff_ca, or another name that begins with tariff_")
    if not _ALIAS.fullmatch(name.strip().lower()):
        part.fail("tariff, tariff_us, tariff_ca, or another name that begins with tariff_")
    part.written(PACK)
    return PACK


def _word(top: _Part, key: str) -> Any:
    part = top.part(key)
    return part.written(re.sub(r"[\s-]+", "_", part.text("a word").strip().lower()))


def _input(part: _Part) -> dict[str, Any]:
    if isinstance(part.value, str):
        # the goods themselves, without options
        part.keep()
        return {"input": part.text("a description of the goods")}
    part.require_object("the verify request")
    options = part.part("options")
    if options.value is not None and not isinstance(options.value, dict):
        options.fail("an object or null")
    case_input: dict[str, Any] = {"input": _goods(part.part("input")), "options": _options(options)}
    evidence = _evidence(part, options)
    if evidence:
        case_input["evidence"] = evidence
    part.keep_others(("input", "options", "evidence"))
    return {key: value for key, value in case_input.items() if value}


def _goods(part: _Part) -> Any:
    if isinstance(part.value, dict | list) and part.value:
        # the other cases state an object as JSON text
        return part.written(json.dumps(part.value, ensure_ascii=False))
    return part.text("a description of the goods, a string or an object")


def _options(options: _Part) -> dict[str, Any]:
    written: dict[str, Any] = {}
    iterations = options.part("max_iters")
    if iterations.value:
        number = _whole(iterations)
        if number < 1:
            iterations.fail("a number of 1 or more")
        written["max_iters"] = iterations.written(min(number, _MAX_ITERS))
    else:
        # the original takes its default for 0
        iterations.keep()
    chapters = options.part("candidate_chapters")
    found = [_chapter(chapter) for chapter in chapters.parts()]
    if found:
        written["candidate_chapters"] = chapters.written(found)
    options.keep_others(("max_iters", "candidate_chapters", "evidence"))
    return written


def _chapter(part: _Part) -> str:
    value = part.value
    text = (
        str(value) if isinstance(value, int) and not isinstance(value, bool) else part.text("a chapter of two digits")
    )
    text = text.strip().zfill(_CHAPTER)
    if not re.fullmatch(r"[0-9]{2}", text):
        part.fail("a chapter of two digits")
    return text


def _evidence(case_input: _Part, options: _Part) -> list[dict[str, Any]]:
    evidence, in_options = case_input.part("evidence"), options.part("evidence")
    if evidence.value:
        # the original gives these precedence
        in_options.keep()
    else:
        evidence.keep()
        in_options.keep()
        evidence = in_options
    documents = [_document(part, number) for number, part in enumerate(evidence.parts(), start=1)]
    return [document for document in documents if document]


def _document(part: _Part, number: int) -> dict[str, Any]:
    # what has no name is named after its position, so that an answer can quote it
    name = f"evidence_{number}"
    if isinstance(part.value, str):
        part.keep()
        return {"source_id": name, "text": part.value} if part.value.strip() else {}
    part.require_object("a document with its text, or a string")
    text = part.part("text").text("the text of the document, a string")
    source_id = part.part("source_id")
    if isinstance(source_id.value, int | float):
        name = source_id.written(str(source_id.value))
    elif source_id.value not in (None, ""):
        name = source_id.text("the name of the document, a string")
    title = part.part("title")
    document = {"source_id": name, "text": text}
    if title.value not in (None, ""):
        document["title"] = title.text("a string or null")
    part.keep_others(("source_id", "text", "title"))
    return document


def _expected(part: _Part) -> dict[str, Any]:
    part.require_object("the expected answer")
    accept = part.part("expected_accept")
    expected: dict[str, Any] = {"expected_accept": accept.written(_flag(accept))}
    preferred = part.part("preferred_hts")
    if preferred.value is None and expected["expected_accept"]:
        preferred.fail("a list of codes")
    expected["preferred_hts"] = preferred.written(_codes(preferred)) if preferred.value is not None else []
    for key in _CODE_LISTS:
        expected[key] = part.part(key).optional(_codes)
    expected["expected_refusal_category"] = part.part("expected_refusal_category").optional(_category)
    expected["no_savings_expected"] = part.part("no_savings_expected").optional(_flag)
    expected["duty_delta_range"] = part.part("duty_delta_range").optional(_range)
    expected["expected_duty_total_rate_pct"] = part.part("expected_duty_total_rate_pct").optional(_number)
    expected["expected_duty_delta_direction"] = part.part("expected_duty_delta_direction").optional(_direction)
    for key in _FLAGS:
        expected[key] = part.part(key).optional(_flag)
    for key in _COUNTS:
        # the original requires nothing by a number below 0
        count = part.part(key)
        number = count.optional(_whole)
        expected[key] = None if number is None else count.written(number if number >= 0 else None)
    part.keep_others(expected)
    # what no rule reads is an error in a case of this pack
    for key in KEYS_OF_ANSWERS if not expected["expected_accept"] else ("expected_refusal_category",):
        if expected.get(key) is not None and not (key == "no_savings_expected" and expected[key] is False):
            part.part(key).keep()
            expected[key] = None
    return {key: value for key, value in expected.items() if value is not None}


def _codes(part: _Part) -> list[str]:
    return [code.text("a tariff code, a string such as 6404.11.9020") for code in part.parts()]


def _category(part: _Part) -> str | None:
    if not isinstance(part.value, str):
        part.fail("a refusal category, or null")
    word = part.value.strip().lower()
    return None if word in _NO_CATEGORY else word


def _direction(part: _Part) -> str:
    return part.text("decrease, increase or flat").strip().lower()


def _range(part: _Part) -> list[float]:
    if not isinstance(part.value, list):
        part.fail("two numbers in percentage points, the lower one first")
    return [_number(number) for number in part.parts()]


def _number(part: _Part) -> float:
    value = part.value
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            part.fail("a number")
    # no limit of the schema is near this one, and a larger integer has no float
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _TOO_LARGE:
        part.fail("a number")
    return value


def _whole(part: _Part) -> int:
    number = _number(part)
    if number != int(number):
        part.fail("a whole number")
    return int(number)


def _flag(part: _Part) -> bool:
    value = part.value
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower())
    elif type(value) is int and value in (0, 1):
        value = bool(value)
    if not isinstance(value, bool):
        part.fail("true or false")
    return value


def _notes(part: _Part) -> dict[str, Any]:
    if part.value is not None and not isinstance(part.value, dict):
        part.fail("an object or null")
    notes: dict[str, Any] = {"source": _source(part.part("source"))}
    tags = part.part("tags")
    found = [_tag(tag) for tag in tags.parts()]
    written = list(dict.fromkeys(tag for tag in found if tag))
    if written:
        notes["tags"] = tags.written(written)
    elif tags.value:
        tags.keep()
    part.keep_others(("source", "tags"))
    return notes


def _source(part: _Part) -> str:
    if isinstance(part.value, str) and re.fullmatch(SOURCE, part.value):
        return part.value
    part.keep()
    return IMPORTED


def _tag(part: _Part) -> str:
    if isinstance(part.value, dict | list | bool):
        part.fail("a word")
    return "" if part.value is None else str(part.value).strip()
