"""Cases of the original harness as cases of this pack, by one mapping.

A value with one meaning is written as the strict case has it; any other stays as it is, and the strict case refuses it
with its place. What has no key there, or is written in another way, is kept in `notes.imported` under its JSON pointer,
so that nothing of the file is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_packbench.model.authoring import case_id
from pytest_packbench.model.errors import json_pointer
from pytest_packbench.packs.tariff.model import KEYS_OF_ANSWERS, SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator

Keys: TypeAlias = Mapping[str, Callable[[Any], Any]]
"""The keys of an object that become keys of the case, in their order there, each with what converts its value."""
PACK = "tariff"
IMPORTED = "imported"
"""The source of a case whose file names none that the pack knows."""
_ALIAS = re.compile(r"tariff([_-][A-Za-z0-9_-]+)?")
_NO_CATEGORY = frozenset({"", "null", "none"})
_FLAGS = {"true": True, "false": False, "1": True, "0": False}
_NOT_ASKED = ("no_savings_expected", False)
_MAX_ITERS = 20
_NOTHING: tuple[object, ...] = (None, [], {})
"""Values that say nothing."""


def to_case(data: dict[str, Any]) -> dict[str, Any]:
    """Convert a case of the original, parsed JSON, to plain JSON for the case model of this pack."""
    case: dict[str, Any] = _converted(_CASE, {**data, "notes": data.get("notes") or {}})
    kept = dict(sorted(_written_otherwise(data, case, ())))
    if isinstance(case.get("input"), dict):
        case["input"] = {key: value for key, value in case["input"].items() if value not in _NOTHING}
    if kept and isinstance(case["notes"], dict):
        case["notes"]["imported"] = kept
    return case


def _converted(keys: Keys, part: Any) -> Any:
    """Return the known keys of an object with converted values; null says nothing, and what is no object stays."""
    if not isinstance(part, dict):
        return part
    written = {key: convert(part[key]) for key, convert in keys.items() if part.get(key) is not None}
    return {key: value for key, value in written.items() if value is not None}


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


def _list(value: Any) -> list[Any]:
    """Return a list; a single value as the only one in it."""
    return value if isinstance(value, list) else [] if value in ("", {}) else [value]


def _word(value: Any) -> Any:
    return re.sub(r"[\s-]+", "_", value.strip().lower()) if isinstance(value, str) else value


def _flag(value: Any) -> Any:
    return _FLAGS.get(str(value).strip().lower(), value)


def _number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _whole(value: Any) -> Any:
    number = _number(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _count(value: Any) -> Any:
    # the original requires nothing by a number below 0
    number = _whole(value)
    return None if isinstance(number, int) and number < 0 else number


def _iterations(value: Any) -> Any:
    # the original takes its default for 0
    number = _whole(value)
    return min(number, _MAX_ITERS) or None if type(number) is int else number


def written_id(value: Any) -> Any:
    """Return the id of a case as it is written, which a file can be named after; what is no text stays."""
    return case_id(value) if isinstance(value, str) and value.strip() else value


def _pack_id(value: Any) -> Any:
    return PACK if isinstance(value, str) and _ALIAS.fullmatch(value.strip().lower()) else value


def _category(value: Any) -> Any:
    word = _word(value)
    return None if isinstance(word, str) and word in _NO_CATEGORY else word


def _input(value: Any) -> Any:
    if not isinstance(value, dict):
        # the goods themselves, without options
        return {"input": value}
    options = value.get("options")
    # the original gives documents beside the options precedence
    elsewhere = options.get("evidence") if isinstance(options, dict) else None
    return _converted(_INPUT, {**value, "evidence": value.get("evidence") or elsewhere})


def _goods(value: Any) -> Any:
    # the other cases state an object as JSON text
    return json.dumps(value, ensure_ascii=False) if value and isinstance(value, dict | list) else value


def _chapters(value: Any) -> list[Any] | None:
    return [_chapter(each) for each in _list(value)] or None


def _chapter(value: Any) -> Any:
    return re.sub(r"^[0-9]$", r"0\g<0>", str(value).strip()) if isinstance(value, int | str) else value


def _documents(value: Any) -> list[Any]:
    # what has no name is named after its position, so that an answer can quote it
    return [
        _document(each, f"evidence_{at}") for at, each in enumerate(_list(value), 1) if each != {} and str(each).strip()
    ]


def _document(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return {"source_id": name, "text": value}
    return {"source_id": name, **_converted(_DOCUMENT, value)} if isinstance(value, dict) else value


def _expected(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    refuses = _flag(value.get("expected_accept")) is False
    if refuses:
        value = {**value, "preferred_hts": value.get("preferred_hts") or []}
    # what no rule reads is an error in a case of this pack
    unread = KEYS_OF_ANSWERS if refuses else ("expected_refusal_category",)
    written = _converted(_EXPECTED, value)
    return {key: each for key, each in written.items() if key not in unread or (key, each) == _NOT_ASKED}


def _notes(value: Any) -> Any:
    return {"source": IMPORTED, **_converted(_NOTES, value)} if isinstance(value, dict) else value


def _source(value: Any) -> str | None:
    return value if isinstance(value, str) and re.fullmatch(SOURCE, value) else None


def _tags(value: Any) -> list[Any] | None:
    tags = [str(tag).strip() if isinstance(tag, str | int | float) else tag for tag in _list(value)]
    return [tag for at, tag in enumerate(tags) if tag not in (None, "", *tags[:at])] or None


_OPTIONS: Keys = {"max_iters": _iterations, "candidate_chapters": _chapters}
_DOCUMENT: Keys = {
    "source_id": lambda name: str(name) if isinstance(name, int | float) else name or None,
    "text": lambda text: text,
    "title": lambda title: title or None,
}
_INPUT: Keys = {"input": _goods, "options": partial(_converted, _OPTIONS), "evidence": _documents}
_EXPECTED: Keys = {
    "expected_accept": _flag,
    "preferred_hts": _list,
    "allowed_hts": _list,
    "must_not_hts": _list,
    "expected_refusal_category": _category,
    "no_savings_expected": _flag,
    "duty_delta_range": lambda ends: [_number(end) for end in ends] if isinstance(ends, list) else ends,
    "expected_duty_total_rate_pct": _number,
    "expected_duty_delta_direction": _word,
    "lever_found_expected": _flag,
    "lever_compliance_ok": _flag,
    "expected_best_is_multi_step": _flag,
    "lever_count_min": _count,
    "min_lever_steps": _count,
}
_CASE: Keys = {
    "id": written_id,
    "pack_id": _pack_id,
    "case_type": _word,
    "difficulty": _word,
    "input": _input,
    "expected": _expected,
    "notes": _notes,
}
_NOTES: Keys = {"source": _source, "tags": _tags}
