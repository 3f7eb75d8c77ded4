"""Incremental reading of one large JSON document; a report may be hundreds of megabytes.

Not `ijson`: its C parser takes 1.4 times as long on a report of 20,000 cases (its Python parser 24 times), rejects
integers over 64 bits, replaces escaped surrogates without an error, and its messages span lines and name no position.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TextIO

from pytest_packbench.limits import LIMITS, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator


_CHUNK_SIZE: Final = 1 << 18
_SPACE: Final = re.compile(r"[ \t\n\r]*")
# strings, arrays and objects have a closing character; the end of a number is known only by what follows it
_CLOSING: Final = frozenset('"]}')
_AFTER_VALUE: Final = frozenset(",]} \t\n\r")


class JsonStreamError(ValueError):
    """The document is not JSON, or a value has another type than the caller requested; names the character."""


class JsonStream:
    """A cursor that moves forward through a JSON document.

    The caller consumes each value in one of three ways before the next: `value`, `skip`, or a loop over its `members`
    or `items`. Leaving such a loop early leaves the cursor where it was.

    Args:
        file: the document, opened as text with `newline=""`; read in chunks.
        chunk_size: characters to read at once.
    """

    def __init__(self, file: TextIO, *, chunk_size: int = _CHUNK_SIZE) -> None:
        self._file = file
        self._chunk_size = chunk_size
        self._buffer = ""
        self._position = 0
        self._discarded = 0
        self._at_end = False
        self._decode = json.JSONDecoder().raw_decode

    def value(self) -> Any:
        """Return the whole value at the cursor and move behind it.

        Raises:
            JsonStreamError: there is no value, or it is not JSON.
            RecursionError: the value is nested too deeply.
        """
        self._peek()
        while True:
            try:
                value, end = self._decode(self._buffer, self._position)
            except json.JSONDecodeError as error:
                if len(self._buffer) - self._position > LIMITS["report"].size:
                    raise self._error(f"a value longer than {format_size(LIMITS['report'].size)}") from None
                if not self._read_more():
                    raise self._error(error.msg, error.pos) from None
                continue
            except ValueError:
                # Python converts no integer of more than 4,300 digits
                raise self._error("A number with thousands of digits") from None
            is_whole = self._buffer[end - 1] in _CLOSING or self._buffer[end : end + 1] in _AFTER_VALUE
            if is_whole or not self._read_more():
                self._position = end
                return value

    def members(self) -> Iterator[str]:
        """Iterate over the keys of the object at the cursor; consume the value of each key before the next.

        Raises:
            JsonStreamError: the value at the cursor is not an object, or is not JSON.
        """
        if self._peek() != "{":
            raise self._error("Expecting an object")
        self._position += 1
        if self._peek() == "}":
            self._position += 1
            return
        while True:
            if self._peek() != '"':
                raise self._error("Expecting property name enclosed in double quotes")
            key = self.value()
            self._consume(":")
            yield key
            if self._consume(",}") == "}":
                return

    def items(self) -> Iterator[None]:
        """Iterate over the array at the cursor; consume each item before the next.

        Raises:
            JsonStreamError: the value at the cursor is not an array, or is not JSON.
        """
        if self._peek() != "[":
            raise self._error("Expecting an array")
        self._position += 1
        if self._peek() == "]":
            self._position += 1
            return
        while True:
            yield
            if self._consume(",]") == "]":
                return

    def starts_with(self, bracket: str) -> bool:
        """Return whether an object (`{`) or an array (`[`) starts at the cursor."""
        return self._peek() == bracket

    def skip(self) -> None:
        """Move behind the value at the cursor; at most one array item of it is in memory at a time."""
        first = self._peek()
        if first == "{":
            for _ in self.members():
                self.skip()
        elif first == "[":
            for _ in self.items():
                self.value()
        else:
            self.value()

    def end(self) -> None:
        """Check that nothing but white space follows.

        Raises:
            JsonStreamError: something follows.
        """
        if self._peek(required=False):
            raise self._error("Extra data")

    def _peek(self, *, required: bool = True) -> str:
        while True:
            self._position = _SPACE.match(self._buffer, self._position).end()  # type: ignore[union-attr]  # it matches the empty string
            if self._position < len(self._buffer):
                return self._buffer[self._position]
            if not self._read_more():
                if required:
                    raise self._error("Expecting value")
                return ""

    def _consume(self, allowed: str) -> str:
        char = self._peek()
        if char not in allowed:
            raise self._error(f"Expecting {' or '.join(allowed)}")
        self._position += 1
        return char

    def _read_more(self) -> bool:
        if self._at_end:
            return False
        remaining = len(self._buffer) - self._position
        # at least as much again as is buffered, so that a large value is not decoded from its start too often
        chunk = self._file.read(max(self._chunk_size, remaining))
        self._at_end = not chunk
        self._discarded += self._position
        self._buffer, self._position = self._buffer[self._position :] + chunk, 0
        return not self._at_end

    def _error(self, message: str, position: int | None = None) -> JsonStreamError:
        character = self._discarded + (self._position if position is None else position)
        return JsonStreamError(f"{message} at character {character + 1}")
