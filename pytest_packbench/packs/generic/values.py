"""JSON values: when two are the same, and how they are shown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.generic.refused import refused

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

_SHOWN = 80


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
