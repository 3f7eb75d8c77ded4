"""Walking through one large JSON document without holding it: a report may be hundreds of megabytes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator


_PIECE: Final = 1 << 18
_SPACE: Final = re.compile(r"[ \t\n\r]*")
# a string, array or object says itself where it ends; a number only by what follows it
_CLOSED: Final = frozenset('"]}')
_AFTER: Final = frozenset(",]} \t\n\r")


class JsonStreamError(ValueError):
    """The document is no JSON, or another value stands where one is walked: says the character."""


class JsonStream:
    """A place in a JSON document that goes forward only.

    Whoever walks takes each value in one of three ways before going on: `value`, `skip`, or the loop over its
    `members` or `items`. A loop that is left early leaves the place where it was.

    Args:
        file: the document, opened as text with `newline=""`; read piece by piece.
        piece: characters to read at once.
    """

    def __init__(self, file: TextIO, *, piece: int = _PIECE) -> None:
        self._file = file
        self._piece = piece
        self._text = ""
        self._at = 0
        self._before = 0
        self._ended = False
        self._decode = json.JSONDecoder().raw_decode

    def value(self) -> Any:
        """Give the value here, whole, and go past it.

        Raises:
            WalkError: there is none, or it is no JSON.
            RecursionError: it is nested too deeply.
        """
        self._peek()
        while True:
            try:
                found, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._more():
                    raise self._wrong(error.msg, error.pos) from None
                continue
            except ValueError:
                # Python reads no integer of more than 4,300 digits
                raise self._wrong("A number of thousands of digits") from None
            whole = self._text[end - 1] in _CLOSED or self._text[end : end + 1] in _AFTER
            if whole or not self._more():
                self._at = end
                return found

    def members(self) -> Iterator[str]:
        """Walk over an object's keys; the value of each is to be taken before the next.

        Raises:
            WalkError: no object stands here, or it is no JSON.
        """
        if self._peek() != "{":
            raise self._wrong("Expecting an object")
        self._at += 1
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            if self._peek() != '"':
                raise self._wrong("Expecting property name enclosed in double quotes")
            key = self.value()
            self._take(":")
            yield key
            if self._take(",}") == "}":
                return

    def items(self) -> Iterator[None]:
        """Walk over an array; each item is to be taken before the next.

        Raises:
            WalkError: no array stands here, or it is no JSON.
        """
        if self._peek() != "[":
            raise self._wrong("Expecting an array")
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield
            if self._take(",]") == "]":
                return

    def begins(self, bracket: str) -> bool:
        """Tell whether an object (`{`) or an array (`[`) begins here."""
        return self._peek() == bracket

    def skip(self) -> None:
        """Go past the value here, holding no more of it than the largest item of an array in it."""
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
        """Check that the document ends here.

        Raises:
            WalkError: it goes on.
        """
        if self._peek(wanted=False):
            raise self._wrong("Extra data")

    def _peek(self, *, wanted: bool = True) -> str:
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches nothing, too
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                if wanted:
                    raise self._wrong("Expecting value")
                return ""

    def _take(self, allowed: str) -> str:
        found = self._peek()
        if found not in allowed:
            raise self._wrong(f"Expecting {' or '.join(allowed)}")
        self._at += 1
        return found

    def _more(self) -> bool:
        if self._ended:
            return False
        rest = len(self._text) - self._at
        # as much again as there is: what is large is not tried too often
        piece = self._file.read(max(self._piece, rest))
        self._ended = not piece
        self._before += self._at
        self._text, self._at = self._text[self._at :] + piece, 0
        return not self._ended

    def _wrong(self, message: str, at: int | None = None) -> JsonStreamError:
        place = self._before + (self._at if at is None else at)
        return JsonStreamError(f"{message} at character {place + 1}")
