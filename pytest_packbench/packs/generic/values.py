"""JSON values: places in them, when two are the same, and how they are shown.

A place is a JSON pointer (RFC 6901), or a JSONPath (RFC 9535) where it begins with `$`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator

from pytest_packbench.packs.generic.refused import GENERIC, Location, need, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

_SHOWN = 80
_INDEX = re.compile(r"0|[1-9][0-9]*")
_BAD_ESCAPE = re.compile(r"~(?![01])")
# their patterns come from documents and have no time limit
_NO_FUNCTIONS = ("match", "search")


class Missing(Enum):
    """What a path finds where nothing stands; null is something."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path, ready to be followed.

    Attributes:
        text: the path as it was written.
        find: gives the value at the place, or `MISSING`.
        many: whether it may find several values, which come as a list.
        location: keys and positions, where they are known.
    """

    text: str
    find: Callable[[Any], Any]
    many: bool = False
    location: Location = ()

    def __str__(self) -> str:
        """Name the place."""
        return self.text or "the whole"


@lru_cache(maxsize=1024)
def compile_path(text: str) -> Place:
    """Make a path ready.

    A JSONPath that can match one place only gives the value there. Any other gives the list of what it matches, and
    `MISSING` where it matches nothing.

    Raises:
        PydanticCustomError: it is neither a JSON pointer nor a JSONPath.
    """
    if text.startswith("$"):
        return _json_path(text)
    if text and not text.startswith("/"):
        raise refused(f'"{text}" is no path', f'"/{text}", a JSON pointer, or a JSONPath that begins with $')
    if _BAD_ESCAPE.search(text):
        raise refused(f'"{text}" has a "~" that stands for nothing', "~0 for a tilde, ~1 for a slash")
    tokens = tuple(token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:])
    return Place(text=text, find=_follower(tokens), location=tokens)


def _follower(tokens: tuple[str, ...]) -> Callable[[Any], Any]:
    def find(document: Any) -> Any:
        here = document
        for token in tokens:
            if isinstance(here, dict):
                here = here.get(token, MISSING)
            elif isinstance(here, list) and _INDEX.fullmatch(token) and int(token) < len(here):
                here = here[int(token)]
            else:
                return MISSING
        return here

    return find


def _json_path(text: str) -> Place:
    library = need("jsonpath", extra=GENERIC, what=f"the path {text}")
    environment = library.JSONPathEnvironment(strict=True)
    for name in _NO_FUNCTIONS:
        del environment.function_extensions[name]
    try:
        query = environment.compile(text)
    except library.JSONPathError as error:
        why = str(error).partition("\n")[0]
        raise refused(f'"{text}" is no JSONPath: {why}', "one by RFC 9535, such as $.items[*].name") from None
    many = not query.singular_query()

    def find(document: Any) -> Any:
        found = query.findall(document)
        if not found:
            return MISSING
        return found if many else found[0]

    return Place(text=text, find=find, many=many)


def _checked(text: str) -> str:
    compile_path(text)
    return text


PathText = Annotated[str, AfterValidator(_checked)]
"""A path in a model; kept as text, so that the suite's hash stays what people wrote."""


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same: 1 and 1.0 are, 1 and true are not."""
    # Python's own comparison is fast and wrong for booleans only
    return left == right and _same_booleans(left, right)


def _same_booleans(left: Any, right: Any) -> bool:
    """Whether two values that Python takes for equal have their booleans in the same places."""
    if isinstance(left, dict):
        return all(_same_booleans(value, right[name]) for name, value in left.items())
    if isinstance(left, list):
        return all(map(_same_booleans, left, right))
    return isinstance(left, bool) is isinstance(right, bool)


def key(value: Any) -> Hashable:
    """Give something hashable that is equal for the same JSON values only."""
    if isinstance(value, dict):
        return "object", frozenset((name, key(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return "list", tuple(key(inner) for inner in value)
    return isinstance(value, bool), value


def leaves(value: Any) -> Iterator[Any]:
    """Give every text, number, boolean and null in a value; keys are no values."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield value


def is_number(value: Any) -> bool:
    """Whether a value is a finite JSON number; a boolean is none."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def plain_json(value: Any) -> Any:
    """Take a value that JSON can hold.

    Raises:
        PydanticCustomError: YAML read something else, such as a date.
    """
    if isinstance(value, dict):
        odd = next((name for name in value if not isinstance(name, str)), None)
        if odd is not None:
            raise refused(f"the key {odd!r} is no text", "keys in quotes")
    foreign = next((leaf for leaf in leaves(value) if not _is_json(leaf)), None)
    if foreign is not None:
        raise refused(f"got {foreign} ({type(foreign).__name__})", "a JSON value")
    return value


def _is_json(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, str | bool) or is_number(leaf)


def brief(value: str) -> str:
    """Cut a text to what fits a table."""
    return value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
