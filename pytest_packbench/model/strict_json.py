"""JSON that means the same to every program: its grammar, and values that can be written and read back unchanged.

Python's `json` accepts more than other readers (repeated keys, `NaN`, unpaired surrogates) and less than serde_json in
two cases (depth, integers of many digits).
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
SURROGATE = re.compile(r"[\ud800-\udfff]")
"""Half of a UTF-16 pair: not valid in UTF-8, but possible in a Python string and as a JSON escape."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\n\r]*+")
# A string without its closing quote, so that a message can name the character that ends it. Up to CPython 3.11.4, a
# possessive group is only matched correctly if it has no repetition that can fail: hence the four digits one by one.
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F])*+')
# Everything up to the next structural character, so that a message can show all of `01240` or `NaN`.
_BARE = re.compile(r'[^ \t\n\r,:"\[\]{}]*+')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_CLOSER = {"[": "]", "{": "}"}
_MAX_LENGTH = 60
# Well below the limits of json and pydantic_core, so that every valid record can be written and read.
_MAX_DEPTH = 100
_MAX_BITS = 14_000


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
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RepeatedKeyError(key)
            seen.add(key)
    return data


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


def expected_integer(maximum: int) -> str:
    """Return the description of an integer from 0 to `maximum`, for messages."""
    return f"expected an integer 0..{maximum}"


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


def unwritable(value: Any) -> tuple[tuple[str | int, ...], str] | None:
    """Return the first place in an array or object that can't be written as JSON and read back unchanged.

    Returns:
        The keys and indexes that lead to it, and what is wrong there; None if there is no such place.
    """
    if is_plain(value):
        return None
    problems = ((path, _problem_of(item, depth=len(path))) for path, item in walk(value))
    return next((found for found in problems if found[1]), None)


def is_plain(value: Any) -> bool:  # noqa: C901 - a function call per value takes twice as long
    """Return whether an array or object is certainly not `unwritable`, as nearly all are not; False is not certain."""
    pending = [(value, 1)]
    while pending:
        container, depth = pending.pop()
        if depth > _MAX_DEPTH:
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
                or (kind is int and -U64_MAX <= item <= U64_MAX)
                or (kind is float and isfinite(item))
            ):
                return False
    return True


def all_finite(values: Iterable[Any]) -> bool:
    """Return whether all numbers are finite: from_json parses 1e999 as infinity, which JSON cannot express."""
    for value in values:
        kind = type(value)
        if kind is float:
            if not isfinite(value):
                return False
        elif (kind is dict and not all_finite(value.values())) or (kind is list and not all_finite(value)):
            return False
    return True


def _problem_of(item: object, *, depth: int) -> str:
    """Return why an item of a value can't be written; empty if nothing but its members may be wrong."""
    if type(item) is dict or type(item) is list:
        keys = item if type(item) is dict else ()
        wrong = [name for name in keys if type(name) is not str or has_surrogate(name)]
        if wrong:
            return f"expected a key of valid Unicode, got {printable_repr(wrong[0])}"
        return f"nested deeper than {_MAX_DEPTH}" if depth >= _MAX_DEPTH else ""
    if type(item) is str:
        return f"unpaired surrogate in {printable_repr(item)}" if has_surrogate(item) else ""
    if type(item) is float:
        return "" if isfinite(item) else f"expected a finite number, got {item}"
    if type(item) is int:
        return f"expected an integer of at most {_MAX_BITS} bits" if item.bit_length() > _MAX_BITS else ""
    return "" if item is None or type(item) is bool else f"expected a JSON value, got {printable_repr(item)}"


def split_json(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Split a JSON text, which only has to match the grammar, however deep it is and however many digits it has.

    Args:
        text: the text, without unescaped surrogates.

    Returns:
        Its first character, empty for a blank text; and the members of an array or object, each with its key, which is
        empty in an array.

    Raises:
        ValueError: it is no JSON, or a key of the object contains half of a surrogate pair; one line.
    """
    scanner = _Scanner(text)
    opener = scanner.peek()
    members = []
    if opener in _CLOSER:
        members = scanner.members()
    elif opener:
        scanner.skip()
    if scanner.peek():
        raise scanner.malformed("the end of the line")
    return opener, members


class _Scanner:
    """A cursor over one JSON text. Every method reads one item and moves the cursor behind it.

    Every method raises ValueError if the text violates the grammar.
    """

    __slots__ = ("_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def members(self) -> list[tuple[str, str]]:
        """Read an array or object, whose first character is next."""
        closer = _CLOSER[self.peek()]
        self._position += 1
        found: list[tuple[str, str]] = []
        while self.peek() != closer:
            if found:
                self._consume(",", f"a comma or {closer}")
            key: str = json.loads(self._key(closer))
            if has_surrogate(key):
                raise ValueError(f"unpaired surrogate in {printable_repr(key)}")
            found.append((key, self.skip()))
        self._position += 1
        return found

    def skip(self) -> str:
        """Read one value and return its text."""
        closers: list[str] = []
        opener = self.peek()
        start = self._position
        while True:
            if opener in _CLOSER:
                self._position += 1
                closers.append(_CLOSER[opener])
                if self.peek() != closers[-1]:
                    self._key(closers[-1])
                    opener = self.peek()
                    continue
            elif opener == '"':
                self._string()
            else:
                self._word()
            while closers and self.peek() == closers[-1]:
                self._position += 1
                closers.pop()
            if not closers:
                return self._text[start : self._position]
            self._consume(",", f"a comma or {closers[-1]}")
            self._key(closers[-1])
            opener = self.peek()

    def peek(self) -> str:
        """Move to the next character that is not white space and return it; "" at the end."""
        char = self._text[self._position : self._position + 1]
        if char > " ":
            return char
        match = _SPACE.match(self._text, self._position)
        self._position = match.end() if match else self._position
        return self._text[self._position : self._position + 1]

    def malformed(self, what: str) -> ValueError:
        """Return the error of a text that has something else than `what` next."""
        match = _BARE.match(self._text, self._position)
        found = (match[0] if match else "") or self._text[self._position : self._position + 1]
        got = printable(found) or "the end of the line"
        return ValueError(f"expected {what} at column {self._position + 1}, got {got}")

    def _key(self, closer: str) -> str:
        """Read the key of a member and the colon; an array has an empty one."""
        if closer == "]":
            return '""'
        if self.peek() != '"':
            raise self.malformed("a key in double quotes")
        key = self._string()
        self._consume(":", ":")
        return key

    def _string(self) -> str:
        start = self._position
        match = _STRING.match(self._text, start)
        self._position = match.end() if match else start
        # not _consume(), which would skip an unescaped line end
        if self._text[self._position : self._position + 1] != '"':
            raise self.malformed("the rest of a string")
        self._position += 1
        return self._text[start : self._position]

    def _word(self) -> None:
        match = _BARE.match(self._text, self._position)
        word = match[0] if match else ""
        if word not in ("true", "false", "null") and not _NUMBER.fullmatch(word):
            raise self.malformed("a value")
        self._position += len(word)

    def _consume(self, char: str, what: str) -> None:
        if self.peek() != char:
            raise self.malformed(what)
        self._position += 1
