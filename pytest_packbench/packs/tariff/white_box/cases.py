"""Cases of the original harness as cases of this pack.

What is read: all that the original accepts, and spellings with one meaning. What is written: the strict case. Every
value that has no key there, or is written in another way, is kept in `notes.imported` under its JSON pointer, so that
nothing of the file is lost. What has no clear meaning is an error.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pytest_packbench.model.authoring import case_id
from pytest_packbench.model.errors import Problem, format_value, json_pointer
from pytest_packbench.packs.tariff.model import KEYS_OF_ANSWERS, SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PACK = "tariff"
IMPORTED = "imported"
"""The source of a case whose file names none that the pack knows."""
_ALIAS = re.compile(r"tariff([_-][A-Za-z0-9_-]+)?")
_NO_CATEGORY = frozenset({"", "null", "none"})
_WORDS = {"true": True, "false": False}
_MAX_ITERS = 20
_CHAPTER = 2
_TOO_LARGE = 1e15
_NOTHING: tuple[object, ...] = (None, [], {})
"""Values that say nothing."""


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
    top = _Part(data, ())
    top.require_object("a case")
    case: dict[str, Any] = {
        "id": case_id(top.part("id").text("the id of the case, a string")) or "",
        "pack_id": _pack_id(top.part("pack_id")),
        "case_type": _word(top.part("case_type")),
        "difficulty": _word(top.part("difficulty")),
        "input": _input(top.part("input")),
        "expected": _expected(top.part("expected")),
        "notes": _notes(top.part("notes")),
    }
    kept = dict(sorted(_written_otherwise(data, case, ())))
    case["input"] = {key: value for key, value in case["input"].items() if value}
    if kept:
        case["notes"]["imported"] = kept
    return case


def _written_otherwise(read: object, written: object, path: tuple[str | int, ...]) -> Iterator[tuple[str, object]]:
    """Yield what is not written, or not as it was read, with its JSON pointer; null and what is empty say nothing."""
    if isinstance(read, dict) and isinstance(written, dict):
        for key, value in read.items():
            yield from _written_otherwise(value, written.get(key), (*path, key))
    elif isinstance(read, list) and isinstance(written, list) and _are_objects(read, written):
        for index, (value, other) in enumerate(zip(read, written, strict=True)):
            yield from _written_otherwise(value, other, (*path, index))
    # 1 and true are equal in Python, not in JSON
    elif read not in _NOTHING and json.dumps(read) != json.dumps(written):
        yield json_pointer(path), read


def _are_objects(read: list[Any], written: list[Any]) -> bool:
    return len(read) == len(written) and all(isinstance(item, dict) for item in (*read, *written))


class _Part(NamedTuple):
    """A value of the file with its place."""

    value: Any
    path: tuple[str | int, ...]

    def part(self, key: str) -> _Part:
        """Return the value under a key; None where there is none."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return _Part(value, (*self.path, key))

    def parts(self) -> list[_Part]:
        """Return the members of a list; of a single value, that value; none for null and what is empty."""
        if self.value in ("", *_NOTHING):
            return []
        if isinstance(self.value, list):
            return [_Part(value, (*self.path, index)) for index, value in enumerate(self.value)]
        return [self]

    def fail(self, expected: str) -> NoReturn:
        wrong = "the key is missing or null" if self.value is None else f"got {format_value(self.value)}"
        raise MappingError(Problem(json_pointer(self.path), wrong, f"expected {expected}"))

    def require_object(self, what: str) -> None:
        if not isinstance(self.value, dict):
            self.fail(f"an object, {what}")

    def require_object_or_null(self) -> None:
        if self.value is not None and not isinstance(self.value, dict):
            self.fail("an object or null")

    def text(self, expected: str) -> str:
        text = self.value
        return text if isinstance(text, str) and text.strip() else self.fail(expected)


def _pack_id(part: _Part) -> str:
    expected = "tariff, tariff_us, tariff_ca, or another name that begins with tariff_"
    return PACK if _ALIAS.fullmatch(part.text(expected).strip().lower()) else part.fail(expected)


def _word(part: _Part) -> str:
    return re.sub(r"[\s-]+", "_", part.text("a word").strip().lower())


def _input(part: _Part) -> dict[str, Any]:
    if isinstance(part.value, str):
        # the goods themselves, without options
        return {"input": part.text("a description of the goods")}
    part.require_object("the verify request")
    options = part.part("options")
    options.require_object_or_null()
    goods, documents = part.part("input"), part.part("evidence")
    # the original gives those beside the options precedence
    listed = (documents if documents.value else options.part("evidence")).parts()
    return {
        # the other cases state an object as JSON text
        "input": json.dumps(goods.value, ensure_ascii=False)
        if isinstance(goods.value, dict | list) and goods.value
        else goods.text("a description of the goods, a string or an object"),
        "options": _options(options),
        "evidence": [found for number, each in enumerate(listed, start=1) if (found := _document(each, number))],
    }


def _options(options: _Part) -> dict[str, Any]:
    written: dict[str, Any] = {}
    iterations = options.part("max_iters")
    # the original takes its default for 0
    if iterations.value:
        number = _whole(iterations)
        written["max_iters"] = min(number, _MAX_ITERS) if number >= 1 else iterations.fail("a number of 1 or more")
    if chapters := [_chapter(chapter) for chapter in options.part("candidate_chapters").parts()]:
        written["candidate_chapters"] = chapters
    return written


def _chapter(part: _Part) -> str:
    expected = "a chapter of two digits"
    text = str(part.value) if type(part.value) is int else part.text(expected)
    chapter = text.strip().zfill(_CHAPTER)
    return chapter if re.fullmatch(r"[0-9]{2}", chapter) else part.fail(expected)


def _document(part: _Part, number: int) -> dict[str, Any]:
    # what has no name is named after its position, so that an answer can quote it
    name = f"evidence_{number}"
    if isinstance(part.value, str):
        return {"source_id": name, "text": part.value} if part.value.strip() else {}
    part.require_object("a document with its text, or a string")
    text = part.part("text").text("the text of the document, a string")
    source_id, title = part.part("source_id"), part.part("title")
    if isinstance(source_id.value, int | float):
        name = str(source_id.value)
    elif source_id.value not in (None, ""):
        name = source_id.text("the name of the document, a string")
    titled = {} if title.value in (None, "") else {"title": title.text("a string or null")}
    return {"source_id": name, "text": text, **titled}


def _expected(part: _Part) -> dict[str, Any]:
    part.require_object("the expected answer")
    accepts = _flag(part.part("expected_accept"))
    preferred = part.part("preferred_hts")
    if preferred.value is None and accepts:
        preferred.fail("a list of codes")
    read = {key: reader(part.part(key)) for key, reader in _READERS.items() if part.part(key).value is not None}
    expected = {"expected_accept": accepts, "preferred_hts": _codes(preferred), **read}
    # what no rule reads is an error in a case of this pack
    unread = ("expected_refusal_category",) if accepts else KEYS_OF_ANSWERS
    return {
        key: value
        for key, value in expected.items()
        if value is not None and (key not in unread or (key, value) == ("no_savings_expected", False))
    }


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
    return int(number) if number == int(number) else part.fail("a whole number")


def _count(part: _Part) -> int | None:
    # the original requires nothing by a number below 0
    number = _whole(part)
    return number if number >= 0 else None


def _flag(part: _Part) -> bool:
    value = part.value
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower())
    elif type(value) is int and value in (0, 1):
        value = bool(value)
    return value if isinstance(value, bool) else part.fail("true or false")


_READERS: Mapping[str, Callable[[_Part], Any]] = {
    "allowed_hts": _codes,
    "must_not_hts": _codes,
    "expected_refusal_category": _category,
    "no_savings_expected": _flag,
    "duty_delta_range": _range,
    "expected_duty_total_rate_pct": _number,
    "expected_duty_delta_direction": _direction,
    "lever_found_expected": _flag,
    "lever_compliance_ok": _flag,
    "expected_best_is_multi_step": _flag,
    "lever_count_min": _count,
    "min_lever_steps": _count,
}


def _notes(part: _Part) -> dict[str, Any]:
    part.require_object_or_null()
    source = part.part("source").value
    is_known = isinstance(source, str) and re.fullmatch(SOURCE, source)
    tags = dict.fromkeys(filter(None, map(_tag, part.part("tags").parts())))
    return {"source": source if is_known else IMPORTED, **({"tags": list(tags)} if tags else {})}


def _tag(part: _Part) -> str:
    if isinstance(part.value, dict | list | bool):
        part.fail("a word")
    return "" if part.value is None else str(part.value).strip()
