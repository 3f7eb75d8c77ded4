"""JSON as Rust's serde_json has it: a reader of text into typed fields, and a check of values that are to be written.

Python's `json` is laxer than serde_json (repeated keys, `NaN`, `-0` as an integer, unpaired surrogates) and
stricter in two places (depth, very long integers). The rules here are those of serde_json's reader of a
derived struct; numbers, strings and nesting inside values that nobody keeps are only checked against the
grammar.
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
"""Half of a pair of UTF-16, which no UTF-8 holds; a text may, in Python and where JSON escapes it."""
_SPACE = re.compile(r"[ \t\n\r]*+")
# A string but for its closing quote, so that a message can point at what breaks it off.
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+')
# Everything up to the next structural character, so that a message can show `01240` or `NaN` whole.
_BARE = re.compile(r'[^ \t\n\r,:"\[\]{}]*+')
_INTEGER = re.compile(r"0|[1-9][0-9]{0,19}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_CLOSER = {"[": "]", "{": "}"}
_SHOWN = 60
# Well below what json and pydantic_core can nest and count: what is constructed can be written and read.
_MAX_DEPTH = 100
_MAX_BITS = 14_000


class SerdeError(ValueError):
    """Why a text was refused: `problem` in one line, and the `path` of the field or "" for the whole text."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.problem = problem
        self.path = path

    def inside(self, name: str) -> SerdeError:
        """The same error as seen from the struct or list that holds the value as `name`."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        return SerdeError(self.problem, f"{name}{dot}{self.path}")


def has_surrogate(text: str) -> bool:
    """Whether `text` holds a surrogate, which UTF-8 can't."""
    return not text.isascii() and SURROGATE.search(text) is not None


def printable(text: str) -> str:
    """`text` cut to 60 characters with everything unprintable escaped, so that a message stays one line."""
    head = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:_SHOWN])
    return head + "..." if len(text) > _SHOWN else head


def expected_integer(maximum: int) -> str:
    """The wording for a number outside 0..`maximum` or not an integer."""
    return f"expected an integer 0..{maximum}"


def printable_repr(value: object) -> str:
    """Show any value as `shown` shows texts; of one without a repr the type."""
    try:
        return printable(repr(value))
    except (ValueError, RecursionError):
        # Integers of more than 4,300 digits and deep lists have no repr.
        return f"a huge {type(value).__name__}"


def check_value(value: Any) -> None:
    """Raise SerdeError unless a value can be written as JSON and is read again as the same value."""
    if not is_plain(value):
        _check_json(value, depth=1)


def is_plain(value: Any) -> bool:  # noqa: C901 - a call a value takes twice as long
    """Tell at once that an array or object passes `check_value`, as nearly all do; False only says that it may not."""
    waiting = [(value, 1)]
    while waiting:
        found, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            return False
        if type(found) is dict:
            for name in found:
                if type(name) is not str or not (name.isascii() or SURROGATE.search(name) is None):
                    return False
            found = found.values()
        for one in found:
            kind = type(one)
            if kind is str:
                if not (one.isascii() or SURROGATE.search(one) is None):
                    return False
            elif kind is dict or kind is list:
                waiting.append((one, depth + 1))
            elif not (
                one is None
                or kind is bool
                or (kind is int and -U64_MAX <= one <= U64_MAX)
                or (kind is float and isfinite(one))
            ):
                return False
    return True


def all_finite(values: Iterable[Any]) -> bool:
    """Tell whether no number overflowed: from_json reads 1e999 as infinity, which JSON can't write."""
    for value in values:
        kind = type(value)
        if kind is float:
            if not isfinite(value):
                return False
        elif (kind is dict and not all_finite(value.values())) or (kind is list and not all_finite(value)):
            return False
    return True


def _check_json(value: Any, *, depth: int) -> None:
    """Do as `check_value`, one value after the other, and name the place of what can't be written."""
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
    """A cursor over one JSON text. Every method reads one thing and leaves the cursor behind it.

    Every method raises SerdeError where serde_json would refuse the text.
    """

    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        """Start before `text`, which must hold no raw surrogates."""
        self._text = text
        self._at = 0

    def struct(
        self,
        fields: Mapping[str, Callable[[JsonReader], Any]],
        defaults: Mapping[str, Any],
        extra: Mapping[str, Callable[[JsonReader], Any]] | None = None,
    ) -> dict[str, Any]:
        """A struct, as an object in any order or as an array in the order of `fields`.

        `fields` without an entry in `defaults` are required. `extra` are known to the object form only and
        left out of the answer where absent. Other keys are skipped.
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
            self._take(":")
            read = fields.get(name)
            if read is None:
                self.skip()
            elif name in values:
                raise SerdeError("given twice", name)
            else:
                values[name] = self._inside(name, read)
        return values

    def _array(self, fields: Mapping[str, Callable[[JsonReader], Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        self._at += 1
        for name, read in fields.items():
            if self._peek() == "]":
                break
            if values:
                self._take(",", "a comma or ]")
            values[name] = self._inside(name, read)
        self._take("]", f"] after {len(values)} values")
        return values

    def sequence(self, read: Callable[[JsonReader], Any]) -> list[Any]:
        """An array whose items are read by `read`."""
        if self._peek() != "[":
            raise self._unexpected("expected an array")
        return [self._inside(f"[{number}]", read) for number in self._members("]")]

    def _members(self, closer: str) -> Iterator[int]:
        """Step through an object or array: counts its members, the cursor before each in turn, at last behind it."""
        self._at += 1
        if self._peek() != closer:
            yield 0
            for number in count(1):
                if self._peek() == closer:
                    break
                self._take(",", f"a comma or {closer}")
                yield number
        self._at += 1

    def string(self) -> str:
        """A string that is valid Unicode once its escapes are decoded."""
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
        start = self._at
        match = _STRING.match(self._text, start)
        self._at = match.end() if match else start
        # Not _take(), which would step over a raw line end.
        if self._text[self._at : self._at + 1] != '"':
            raise self._malformed("the rest of a string")
        self._at += 1
        return self._text[start : self._at]

    def integer(self, maximum: int) -> int:
        """An integer 0..`maximum` without sign, fraction or exponent (`-0` is a float to serde_json)."""
        token = self._bare()
        # The pattern bounds the length first: int() of thousands of digits raises by itself.
        value = int(token) if _INTEGER.fullmatch(token) else -1
        if not 0 <= value <= maximum:
            raise self._unexpected(expected_integer(maximum))
        self._at += len(token)
        return value

    def boolean(self) -> bool:
        """`true` or `false`."""
        for word in ("true", "false"):
            if self._literal(word):
                return word == "true"
        raise self._unexpected("expected true or false")

    def null(self) -> bool:
        """Whether a `null` stands here; it is read if it does."""
        return self._literal("null")

    def variant(self) -> str:
        """The name of an enum's variant: a string, or serde's map form `{"name": null}`."""
        if self._peek() != "{":
            return self.string()
        self._at += 1
        name = self.string()
        self._take(":")
        if not self.null():
            raise self._unexpected("expected null")
        self._take("}")
        return name

    def skip(self) -> str:
        """One value of any kind and depth, checked against the grammar only. Returns its text."""
        closers: list[str] = []
        opener = self._peek()
        start = self._at
        while True:
            if opener in _CLOSER:
                self._at += 1
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
                self._at += 1
                closers.pop()
            if not closers:
                return self._text[start : self._at]
            self._take(",", f"a comma or {closers[-1]}")
            self._skip_key(closers[-1])
            opener = self._peek()

    def _skip_key(self, closer: str) -> None:
        if closer == "}":
            if self._peek() != '"':
                raise self._unexpected("expected a key in double quotes")
            self._string_token()
            self._take(":")

    def _skip_bare(self) -> None:
        token = self._bare()
        if token not in ("true", "false", "null") and not _NUMBER.fullmatch(token):
            raise self._malformed("a value")
        self._at += len(token)

    def end(self) -> None:
        """Nothing but white space may follow."""
        if self._peek():
            raise self._malformed("the end of the line")

    def _inside(self, name: str, read: Callable[[JsonReader], Any]) -> Any:
        try:
            return read(self)
        except SerdeError as error:
            raise error.inside(name) from None

    def _peek(self) -> str:
        """The next character that is not white space, or "" at the end; the cursor is put before it."""
        char = self._text[self._at : self._at + 1]
        if char > " ":
            return char
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, char: str, what: str = "") -> None:
        if self._peek() != char:
            raise self._malformed(what or char)
        self._at += 1

    def _literal(self, word: str) -> bool:
        if self._bare() != word:
            return False
        self._at += len(word)
        return True

    def _bare(self) -> str:
        """The text up to the next structural character; the cursor is put before it."""
        self._peek()
        match = _BARE.match(self._text, self._at)
        return match[0] if match else ""

    def _unexpected(self, problem: str) -> SerdeError:
        """The value here is of the wrong kind: say what was expected and show what stands here."""
        bare = self._bare()
        string = _STRING.match(self._text, self._at)
        end = string.end() + 1 if string else self._at + (len(bare) or 1)
        token = self._text[self._at : end]
        return SerdeError(f"{problem}, got {printable(token) or 'nothing'}")

    def _malformed(self, what: str) -> SerdeError:
        """The text breaks the grammar here: say what would have been right."""
        found = printable(self._text[self._at : self._at + 1]) or "the end of the line"
        return SerdeError(f"expected {what} at column {self._at + 1}, got {found}")
