"""JSON that means the same to every program: its grammar, and values that can be written and read back unchanged.

Python's `json` accepts more than other readers (repeated keys, `NaN`, unpaired surrogates) and less than serde_json in
two cases (depth, integers of many digits).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, is_dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
SURROGATE = re.compile(r"[\ud800-\udfff]")
"""Half of a UTF-16 pair: not valid in UTF-8, but possible in a Python string and as a JSON escape."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_MAX_LENGTH = 60
_SCALARS = frozenset({str, int, bool, type(None)})
# Well below the limits of json and pydantic_core, so that every valid record can be written and read.
MAX_DEPTH = 100
MAX_BITS = 14_000


class NumberError(ValueError):
    """A text has a number that is too large for a double, or a word that is no number of JSON: its `token`."""

    def __init__(self, token: str) -> None:
        super().__init__(f"{token[:20]} is no finite number")
        self.token = token


def _finite(token: str) -> float:
    number = float(token)
    if not isfinite(number):
        raise NumberError(token)
    return number


def _integer(token: str) -> int:
    try:
        return int(token)
    except ValueError:
        # Python converts no integer of more than 4,300 digits
        raise NumberError(token) from None


NUMBERS: dict[str, Any] = {"parse_float": _finite, "parse_int": _integer, "parse_constant": _finite}
"""How `json` has to read the numbers of all that users and other programs write; others raise NumberError."""


class RepeatedKeyError(ValueError):
    """An object has a `key` twice: it would not be known which value counts."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {json.dumps(key)} occurs twice")
        self.key = key


def position_of(token: str, raw: bytes) -> tuple[int, int]:
    """Return line and column of the first number or word of a JSON text that begins with a token; else of its start."""
    # outside of strings, whose digits are no number
    tokens = re.finditer(rb'"(?:[^"\\]++|\\.)*+"|[^\s,:\[\]{}"]++', raw, re.DOTALL)
    start = next((found.start() for found in tokens if found[0].startswith(token.encode())), 0)
    return raw.count(b"\n", 0, start) + 1, start - raw.rfind(b"\n", 0, start)


def parse_strict(text: str) -> Any:
    """Parse JSON as every reader of JSON does: without a key twice, and without numbers too large for a double.

    Raises:
        RepeatedKeyError: an object has a key twice.
        NumberError: a number is too large, or a word is none.
        ValueError: it is not JSON (`json.JSONDecodeError`).
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=without_duplicates, **NUMBERS)


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, for `json`.

    Raises:
        RepeatedKeyError: a key occurs twice.
    """
    data = dict(pairs)
    if len(data) < len(pairs):
        raise RepeatedKeyError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return data


def finite_json(value: Any) -> Any:
    """Copy a value as plain JSON: keys become strings, numbers that are not finite null.

    Tuples become arrays, named tuples and dataclasses objects.
    """
    if isinstance(value, dict):
        # without a call for what is most frequent
        return {str(key): item if type(item) in _SCALARS else finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return finite_json(value._asdict()) if hasattr(value, "_asdict") else [finite_json(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return finite_json(asdict(value)) if is_dataclass(value) and not isinstance(value, type) else value


def has_surrogate(text: str) -> bool:
    """Return whether a text contains a surrogate, which UTF-8 cannot encode."""
    return not text.isascii() and SURROGATE.search(text) is not None


def printable(text: str) -> str:
    """Return a text, at most 60 characters and with unprintable ones escaped, so that a message stays one line."""
    head = escape_unprintable(text[:_MAX_LENGTH])
    return head + "..." if len(text) > _MAX_LENGTH else head


def escape_unprintable(text: str) -> str:
    """Return a text with escapes for control characters, line ends, surrogates and other unprintable characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def has_control_characters(name: str) -> bool:
    """Return whether a name has characters that terminals and services of CI interpret, or that UTF-8 can't encode.

    These are control characters, line ends, marks of the direction of text, and surrogates.
    """
    return not name.isprintable() and _CONTROL.search(name) is not None


def printable_repr(value: object) -> str:
    """Return the `printable` form of a value's repr; its type if it has no repr."""
    try:
        return printable(repr(value))
    except (ValueError, RecursionError):
        # Integers of more than 4,300 digits and deeply nested lists have no repr.
        return f"a huge {type(value).__name__}"


def walk(value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield a JSON value and what it contains, in order, each with the keys and indexes that lead to it."""
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        yield path, item
        if isinstance(item, dict):
            pending += reversed([((*path, key), member) for key, member in item.items()])
        elif isinstance(item, list | tuple):
            pending += reversed([((*path, index), element) for index, element in enumerate(item)])


def is_plain(value: Any) -> bool:  # noqa: C901 - a function call per value takes twice as long
    """Return whether an array or object can be written as JSON that every program reads back unchanged."""
    pending = [(value, 1)]
    while pending:
        container, depth = pending.pop()
        if depth > MAX_DEPTH:
            return False
        if type(container) is dict:
            for name in container:
                if type(name) is not str or not (name.isascii() or SURROGATE.search(name) is None):
                    return False
            container = container.values()
        for item in container:
            kind = type(item)
            if kind is str:
                if not (item.isascii() or SURROGATE.search(item) is None):
                    return False
            elif kind is dict or kind is list:
                pending.append((item, depth + 1))
            elif not (
                item is None
                or kind is bool
                or (kind is int and (-U64_MAX <= item <= U64_MAX or item.bit_length() <= MAX_BITS))
                or (kind is float and isfinite(item))
            ):
                return False
    return True
