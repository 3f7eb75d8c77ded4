"""Cases of the original harness as cases of this pack.

What the original reads is written as it stands, and the strict case refuses it with its place. What it ignores, and
what no rule reads in such a case here, is kept in `notes.imported` under its JSON pointer, so that nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_packbench.model.errors import json_pointer
from pytest_packbench.packs.tariff.model import SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator

Keys: TypeAlias = Mapping[str, "Keys | None"]
"""The keys that are read of an object, or of each object of a list, with those below them; None for any value."""
PACK = "tariff"
_OF_COUNTRIES = ("tariff_us", "tariff_ca")
IMPORTED = "imported"
"""The source of a case whose file names none that the pack knows."""
_NOTHING: tuple[object, ...] = (None, [], {})
"""Values that say nothing."""
_REFUSAL = ("expected_accept", "expected_refusal_category", "preferred_hts", "must_not_hts")
_ANSWER = (
    *("expected_accept", "preferred_hts", "allowed_hts", "must_not_hts", "no_savings_expected", "duty_delta_range"),
    *("expected_duty_total_rate_pct", "expected_duty_delta_direction", "lever_found_expected", "lever_count_min"),
    *("lever_compliance_ok", "expected_best_is_multi_step", "min_lever_steps"),
)
_REQUEST: Keys = {
    "input": None,
    # documents among the options reach the original's pipeline, so they are not ignored: the strict case refuses them
    "options": dict.fromkeys(("max_iters", "candidate_chapters", "evidence")),
    "evidence": dict.fromkeys(("source_id", "title", "text")),
}


def to_case(data: Any) -> Any:
    """Convert a case of the original, parsed JSON, to plain JSON for the case model of this pack."""
    expected = data.get("expected") if isinstance(data, dict) else None
    refuses = isinstance(expected, dict) and expected.get("expected_accept") is False
    keys: Keys = {
        **dict.fromkeys(("id", "pack_id", "case_type", "difficulty")),
        "input": _REQUEST,
        "expected": dict.fromkeys(_REFUSAL if refuses else _ANSWER),
        "notes": dict.fromkeys(("source", "tags")),
    }
    case = _read(data, keys)
    notes = case.get("notes") if isinstance(case, dict) else None
    if isinstance(notes, dict):
        if case.get("pack_id") in _OF_COUNTRIES:
            case["pack_id"] = PACK
        if not re.fullmatch(SOURCE, str(notes.get("source"))):
            notes["source"] = IMPORTED
        if kept := dict(sorted(_otherwise(data, case, ()))):
            notes["imported"] = kept
    return case


def _read(part: Any, keys: Keys | None) -> Any:
    """Return a part of a case with the keys that are read; null says nothing."""
    if keys is None or not isinstance(part, dict | list):
        return part
    if isinstance(part, list):
        return [_read(each, keys) for each in part]
    return {key: _read(part[key], below) for key, below in keys.items() if part.get(key) is not None}


def _otherwise(read: Any, written: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str, Any]]:
    """Yield what is not written, or not as it was read, with its JSON pointer."""
    if isinstance(read, dict) and isinstance(written, dict):
        for key, value in read.items():
            yield from _otherwise(value, written.get(key), (*path, key))
    elif isinstance(read, list) and isinstance(written, list):
        for index, (value, other) in enumerate(zip(read, written, strict=True)):
            yield from _otherwise(value, other, (*path, index))
    elif read not in _NOTHING and read != written:
        yield json_pointer(path), read
