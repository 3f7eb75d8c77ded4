"""JSON by the rules of Rust's serde_json: a reader of typed fields, and a validation of values before writing.

Python's `json` accepts more than serde_json (repeated keys, `NaN`, `-0` as an integer, unpaired surrogates) and less in
two cases (depth, integers of many digits). The rules here are those of serde_json for a derived struct; values of
unknown keys only have to match the grammar.
"""

from __future__ import annotations

import json
import re
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


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
_INTEGER = re.compile(r"0|[1-9][0-9]{0,19}")
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


class SerdeError(ValueError):
    """A text was rejected: `problem` in one line, and the `path` of the field, or "" for the whole text."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.problem = problem
        self.path = path

    def inside(self, name: str) -> SerdeError:
        """Return the same error for the struct or list that contains the value as `name`."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        return SerdeError(self.problem, f"{name}{dot}{self.path}")


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


def check_value(value: Any) -> None:
    """Raise SerdeError unless a value can be written as JSON and read back unchanged."""
    if not is_plain(value):
        _check_json(value, depth=1)


def is_plain(value: Any) -> bool:  # noqa: C901 - a function call per value takes twice as long
    """Return whether an array or object certainly passes `check_value`, as nearly all do; False is not certain."""
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


def _check_json(value: Any, *, depth: int) -> None:
    """Raise SerdeError with the path of the first value that cannot be written."""
    kind = type(value)
    if kind is not dict and kind is not list:
        _check_scalar(value)
        return
    if depth > _MAX_DEPTH:
        raise SerdeError(f"nested deeper than {_MAX_DEPTH}")
    for name, item in value.items() if kind is dict else enumerate(value):
        if kind is dict and (type(name) is not str or has_surrogate(name)):
            raise SerdeError(f"expected a key of valid Unicode, got {printable_repr(name)}")
        try:
            _check_json(item, depth=depth + 1)
        except SerdeError as error:
            raise error.inside(printable(name) if isinstance(name, str) else f"[{name}]") from None


def _check_scalar(value: object) -> None:
    if type(value) is str:
        if has_surrogate(value):
            raise SerdeError(f"unpaired surrogate in {printable_repr(value)}")
    elif type(value) is float:
        if not isfinite(value):
            raise SerdeError(f"expected a finite number, got {value}")
    elif type(value) is int:
        if value.bit_length() > _MAX_BITS:
            raise SerdeError(f"expected an integer of at most {_MAX_BITS} bits")
    elif value is not None and type(value) is not bool:
        raise SerdeError(f"expected a JSON value, got {printable_repr(value)}")


class JsonReader:
    """A cursor over one JSON text. Every method reads one item and moves the cursor behind it.

    Every method raises SerdeError if serde_json would reject the text.
    """

    __slots__ = ("_position", "_text")

    def __init__(self, text: str) -> None:
        """Start before `text`, which must not contain unescaped surrogates."""
        self._text = text
        self._position = 0

    def struct(
        self,
        fields: Mapping[str, Callable[[JsonReader], Any]],
        defaults: Mapping[str, Any],
        extra: Mapping[str, Callable[[JsonReader], Any]] | None = None,
    ) -> dict[str, Any]:
        """Read a struct: an object in any order, or an array in the order of `fields`.

        Args:
            fields: the reader of each field.
            defaults: the values of missing fields; fields without a default are required.
            extra: the readers of optional keys that only the object form has.

        Returns:
            The values of all fields, and of the extra keys that are present. Other keys are skipped.
        """
        opener = self._peek()
        if opener == "{":
            values = self._object({**fields, **(extra or {})})
        elif opener == "[":
            values = self._array(fields)
        else:
            raise self._unexpected("expected an object")
        for name in fields:
            if name not in values:
                if name not in defaults:
                    raise SerdeError("missing", name)
                values[name] = defaults[name]
        return values

    def _object(self, fields: Mapping[str, Callable[[JsonReader], Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for _ in self._members("}"):
            name = self._string("a key in double quotes")
            self._consume(":")
            read = fields.get(name)
            if read is None:
                self.skip()
            elif name in values:
                raise SerdeError("duplicate key", name)
            else:
                values[name] = self._inside(name, read)
        return values

    def _array(self, fields: Mapping[str, Callable[[JsonReader], Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        self._position += 1
        for name, read in fields.items():
            if self._peek() == "]":
                break
            if values:
                self._consume(",", "a comma or ]")
            values[name] = self._inside(name, read)
        self._consume("]", f"] after {len(values)} values")
        return values

    def sequence(self, read: Callable[[JsonReader], Any]) -> list[Any]:
        """Read an array; `read` reads each item."""
        if self._peek() != "[":
            raise self._unexpected("expected an array")
        return [self._inside(f"[{number}]", read) for number in self._members("]")]

    def _members(self, closer: str) -> Iterator[int]:
        """Iterate over the members of an object or array, with the cursor before each; yields their numbers."""
        self._position += 1
        if self._peek() != closer:
            yield 0
            for number in count(1):
                if self._peek() == closer:
                    break
                self._consume(",", f"a comma or {closer}")
                yield number
        self._position += 1

    def string(self) -> str:
        """Read a string that is valid Unicode after its escapes are decoded."""
        return self._string("a string")

    def _string(self, what: str) -> str:
        if self._peek() != '"':
            raise self._unexpected(f"expected {what}")
        token = self._string_token()
        if "\\" not in token:
            return token[1:-1]
        value: str = json.loads(token)
        if has_surrogate(value):
            raise SerdeError(f"unpaired surrogate in {printable(token)}")
        return value

    def _string_token(self) -> str:
        start = self._position
        match = _STRING.match(self._text, start)
        self._position = match.end() if match else start
        # Not _consume(), which would skip an unescaped line end.
        if self._text[self._position : self._position + 1] != '"':
            raise self._malformed("the rest of a string")
        self._position += 1
        return self._text[start : self._position]

    def integer(self, maximum: int) -> int:
        """Read an integer 0..`maximum` without sign, fraction or exponent (`-0` is a float to serde_json)."""
        token = self._bare()
        # The pattern limits the length: int() raises ValueError for thousands of digits.
        value = int(token) if _INTEGER.fullmatch(token) else -1
        if not 0 <= value <= maximum:
            raise self._unexpected(expected_integer(maximum))
        self._position += len(token)
        return value

    def boolean(self) -> bool:
        """Read `true` or `false`."""
        for word in ("true", "false"):
            if self._literal(word):
                return word == "true"
        raise self._unexpected("expected true or false")

    def null(self) -> bool:
        """Read a `null` if it is next, and return whether it was."""
        return self._literal("null")

    def variant(self) -> str:
        """Read the name of an enum variant: a string, or serde's map form `{"name": null}`."""
        if self._peek() != "{":
            return self.string()
        self._position += 1
        name = self.string()
        self._consume(":")
        if not self.null():
            raise self._unexpected("expected null")
        self._consume("}")
        return name

    def skip(self) -> str:
        """Skip one value, which only has to match the grammar, and return its text."""
        closers: list[str] = []
        opener = self._peek()
        start = self._position
        while True:
            if opener in _CLOSER:
                self._position += 1
                closers.append(_CLOSER[opener])
                if self._peek() != closers[-1]:
                    self._skip_key(closers[-1])
                    opener = self._peek()
                    continue
            elif opener == '"':
                self._string_token()
            else:
                self._skip_bare()
            while closers and self._peek() == closers[-1]:
                self._position += 1
                closers.pop()
            if not closers:
                return self._text[start : self._position]
            self._consume(",", f"a comma or {closers[-1]}")
            self._skip_key(closers[-1])
            opener = self._peek()

    def _skip_key(self, closer: str) -> None:
        if closer == "}":
            if self._peek() != '"':
                raise self._unexpected("expected a key in double quotes")
            self._string_token()
            self._consume(":")

    def _skip_bare(self) -> None:
        token = self._bare()
        if token not in ("true", "false", "null") and not _NUMBER.fullmatch(token):
            raise self._malformed("a value")
        self._position += len(token)

    def end(self) -> None:
        """Check that nothing but white space follows."""
        if self._peek():
            raise self._malformed("the end of the line")

    def _inside(self, name: str, read: Callable[[JsonReader], Any]) -> Any:
        try:
            return read(self)
        except SerdeError as error:
            raise error.inside(name) from None

    def _peek(self) -> str:
        """Move to the next character that is not white space and return it; "" at the end."""
        char = self._text[self._position : self._position + 1]
        if char > " ":
            return char
        match = _SPACE.match(self._text, self._position)
        self._position = match.end() if match else self._position
        return self._text[self._position : self._position + 1]

    def _consume(self, char: str, what: str = "") -> None:
        if self._peek() != char:
            raise self._malformed(what or char)
        self._position += 1

    def _literal(self, word: str) -> bool:
        if self._bare() != word:
            return False
        self._position += len(word)
        return True

    def _bare(self) -> str:
        """Return the text up to the next structural character, without moving behind it."""
        self._peek()
        match = _BARE.match(self._text, self._position)
        return match[0] if match else ""

    def _unexpected(self, problem: str) -> SerdeError:
        """Return the error for a value of the wrong type: what was expected and what was found."""
        bare = self._bare()
        string = _STRING.match(self._text, self._position)
        end = string.end() + 1 if string else self._position + (len(bare) or 1)
        token = self._text[self._position : end]
        return SerdeError(f"{problem}, got {printable(token) or 'nothing'}")

    def _malformed(self, what: str) -> SerdeError:
        """Return the error for text that violates the grammar."""
        char = printable(self._text[self._position : self._position + 1]) or "the end of the line"
        return SerdeError(f"expected {what} at column {self._position + 1}, got {char}")
