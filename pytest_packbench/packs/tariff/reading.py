"""Values in a target's result with their places, for the parsers of results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pytest_packbench.model.errors import format_value, json_pointer
from pytest_packbench.model.result import ResultError

if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECT = "an object"
_MAX_RENDERED_BITS = 64


@dataclass(slots=True)
class Node:
    """A value in the result with its path; a missing value is None."""

    value: object
    path: tuple[str | int, ...] = ()

    @property
    def pointer(self) -> str:
        """The place of the value in the result, as a JSON pointer."""
        return json_pointer(self.path)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in the value: null, false, blank text, or lists and objects of nothing else."""
        return _is_empty(self.value)

    def fail(self, expected: str) -> NoReturn:
        """Refuse the value.

        Raises:
            ResultError: always.
        """
        raise ResultError(self.pointer, f"got {_render(self.value)}; expected {expected}")

    def require_object(self) -> None:
        """Refuse a value that is neither an object nor, below the root, null."""
        if not isinstance(self.value, dict) and (self.value is not None or not self.path):
            self.fail(OBJECT)

    def at(self, key: str) -> Node:
        """Return a field of an object; its value is None if it is missing."""
        self.require_object()
        child = self.value.get(key) if isinstance(self.value, dict) else None
        return Node(child, (*self.path, key))

    def items(self, expected: str = "") -> list[Node]:
        """Return the items of a list, none for null; if `expected` names their type, an item must not be null."""
        if self.value is None:
            return []
        if not isinstance(self.value, (list, tuple)):
            self.fail("a list")
        items = [Node(item, (*self.path, index)) for index, item in enumerate(self.value)]
        if expected:
            for item in items:
                if item.value is None:
                    item.fail(expected)
        return items

    def text(self) -> str | None:
        """Return a string that can be written as UTF-8; None for null."""
        if self.value is None:
            return None
        if not isinstance(self.value, str):
            self.fail("a string")
        if not is_unicode(self.value):
            self.fail("text without lone surrogates")
        return self.value

    def required_text(self) -> str:
        """Return a string that is not empty."""
        return self.text() or self.fail("a non-empty string")

    def texts(self) -> tuple[str, ...]:
        """Return the strings of a list; none for null."""
        return tuple(item.text() or "" for item in self.items("a string"))

    def number(self) -> float | None:
        """Return a finite number; None for null."""
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            self.fail("a number")
        try:
            number = float(self.value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.fail("a finite number")
        return number

    def flag(self) -> bool | None:
        """Return true or false; None for null."""
        if self.value is not None and not isinstance(self.value, bool):
            self.fail("true or false")
        return self.value

    def required_flag(self) -> bool:
        """Return true or false."""
        flag = self.flag()
        return self.fail("true or false") if flag is None else flag


def find(top: Node, key: str) -> Node:
    """Return a field from the top of the result or, if it is missing or empty there, from `proof`."""
    direct, in_proof = top.at(key), top.at("proof").at(key)
    is_set = direct.value is not None and direct.value not in ([], {})
    return direct if is_set or in_proof.value is None else in_proof


def both(top: Node, key: str) -> Iterator[Node]:
    """Yield a field from the top of the result and from `proof`, where it is not null."""
    yield from (node for node in (top.at(key), top.at("proof").at(key)) if node.value is not None)


def is_unicode(text: str) -> bool:
    """Return whether a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_empty(value: object) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
        elif item is not None and item is not False and not (isinstance(item, str) and not item.strip()):
            return False
    return True


def _render(value: object) -> str:
    """Render a value briefly, however deep or large it is."""
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and value.bit_length() > _MAX_RENDERED_BITS:
        return "a huge integer"
    return format_value(value).encode("utf-8", "backslashreplace").decode()
