"""The types and ranges of an entry that came out of a file: reports count, compare and sort by these."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_packbench.records.entry import VERDICTS, Entry
from pytest_packbench.records.evalrecord import EVAL_DECISIONS
from pytest_packbench.records.serde import U32_MAX, shown

if TYPE_CHECKING:
    from collections.abc import Callable

_DIGEST = re.compile(r"[0-9a-f]{64}")
_EFFECTS = ("add", "zero", "clamp", "note")


def entry_problem(entry: Entry) -> tuple[str, str] | None:
    """Tell what is wrong with an entry.

    Args:
        entry: made of what a file holds, whatever its annotations promise.

    Returns:
        The field and, in words, what it is and was expected to be; None where all fields are sound.
    """
    for name, (is_sound, expected) in _CHECKS.items():
        value = getattr(entry, name)
        if not is_sound(value):
            return name, f"got {shown(repr(value))}, expected {expected}"
    return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_share(value: Any) -> bool:
    return value is None or (type(value) in {int, float} and 0 <= value <= 1)


def _is_digest(value: Any) -> bool:
    return value is None or (isinstance(value, str) and _DIGEST.fullmatch(value) is not None)


def _is_term(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and value.get("effect") in _EFFECTS
        and type(value.get("value")) in {int, float}
        and -1 <= value["value"] <= 1
        and isinstance(value.get("detail"), str)
    )


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_TEXT = (_is_text, "a string")
_TEXT_OR_NULL = (_or_none(_is_text), "a string or null")
_FLAG_OR_NULL = (_or_none(_is_flag), "true, false or null")
_SHARE = (_is_share, "a number from 0 to 1, or null")
_COUNT = (_is_count, "an integer of 0 or more")
_HASH = (_is_digest, "a SHA-256 in hexadecimal, or null")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("suite", "test_id", "case_id", "nodeid", "file", "kind", "message"), _TEXT),
    **dict.fromkeys(("timestamp", "case_type", "difficulty"), _TEXT),
    **dict.fromkeys(("match_level", "answer", "llm_backend", "llm_model", "judge"), _TEXT_OR_NULL),
    **dict.fromkeys(("expects_refusal", "refused", "utility", "valid"), _FLAG_OR_NULL),
    **dict.fromkeys(("score", "threshold"), _SHARE),
    "duration_ms": _COUNT,
    "cached": _COUNT,
    "trial": (lambda value: _is_count(value) and value <= U32_MAX, f"an integer from 0 to {U32_MAX}"),
    **dict.fromkeys(("case_sha256", "cassette_sha256"), _HASH),
    "verdict": (lambda value: value in VERDICTS, f"one of {', '.join(VERDICTS)}"),
    "decision": (_or_none(lambda value: value in EVAL_DECISIONS), f"one of {', '.join(EVAL_DECISIONS)}, or null"),
    "match_depth": (_or_none(_is_count), "an integer of 0 or more, or null"),
    "stale": (_is_flag, "true or false"),
    "tags": (lambda value: isinstance(value, tuple) and all(map(_is_text, value)), "an array of strings"),
    "facets": (
        lambda value: isinstance(value, dict) and all(map(_is_text, value)) and all(map(_is_text, value.values())),
        "an object of strings",
    ),
    "terms": (
        lambda value: isinstance(value, tuple) and all(map(_is_term, value)),
        "an array of objects with name, effect, value from -1 to 1, and detail",
    ),
}
