"""Compact JSON as bytes: what each line of a run's files is made of."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_json

from pytest_packbench.records.atomic import encoded

_CAREFUL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_FINITE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CONSTANTS = (b"NaN", b"Infinity")


def compact(value: Any, *, finite: bool = True) -> bytes:
    r"""Write plain JSON without spaces as UTF-8, on one line; a surrogate, which UTF-8 can't hold, as its escape.

    Args:
        value: plain JSON: objects with keys that are texts, arrays, texts, numbers, true, false and null.
        finite: whether numbers have to be finite; else `NaN`, `Infinity` and `-Infinity` are written.

    Raises:
        TypeError: something in it is no JSON; not each such thing is noticed.
        ValueError: a number is not finite where it has to be, or something holds itself.
        RecursionError: it is nested too deeply.
    """
    try:
        # several times as fast, but it takes no surrogate and no deep nesting
        text = to_json(value, inf_nan_mode="constants")
    except ValueError:
        return encoded((_FINITE if finite else _CAREFUL).encode(value))
    if finite and any(word in text for word in _CONSTANTS):
        # a text may hold these words as well
        _FINITE.encode(value)
    return text
