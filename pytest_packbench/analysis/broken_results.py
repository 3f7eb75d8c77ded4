"""Broken results: copies of a right result that differ from it in one respect.

They know nothing of a domain: a result is JSON, and every part of it can be removed, emptied, changed or replaced.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from random import Random

Location = tuple[str | int, ...]

EMPTY = "empty result"
OTHER_RESULT = "result of another case"
WRONG = "result that a rule forbids"
KINDS = (
    EMPTY,
    OTHER_RESULT,
    "all values emptied",
    "value removed",
    "value of another type",
    "value of another case",
    "text emptied",
    "text changed",
    "number changed",
    "true and false swapped",
    "list emptied",
    "list shortened",
    "expected value in the wrong place",
    WRONG,
)
"""The ways in which results are broken, in the order of reports."""

ANY = "*"
"""Stands for the position in a list."""
_OTHERS = 2
_VALUES = 50
_MAX_DEPTH = 100


class Change(NamedTuple):
    """One way to break a result.

    Attributes:
        kind: one of `KINDS`.
        location: the keys and positions of the part that changes; empty for the whole result.
        value: what replaces it.
        is_removed: whether it is removed instead.
        rule: the rule that has to notice it; empty if that is not known.
    """

    kind: str
    location: Location = ()
    value: Any = None
    is_removed: bool = False
    rule: str = ""

    @property
    def part(self) -> Location:
        """The location without positions in lists: the same part of the results of all cases."""
        return part_of(self.location)

    def apply(self, text: str) -> Any:
        """Return the broken copy of a result.

        Args:
            text: the result as JSON.
        """
        if not self.location:
            return json.loads(json.dumps(self.value))
        result = parent = json.loads(text)
        for step in self.location[:-1]:
            parent = parent[step]
        if self.is_removed:
            del parent[self.location[-1]]
        else:
            # a copy, so that a pack that changes its argument changes no other result
            parent[self.location[-1]] = json.loads(json.dumps(self.value))
        return result


def part_of(location: Location) -> Location:
    """Return a location without positions in lists."""
    return tuple(ANY if isinstance(step, int) else step for step in location)


class ResultBreaker:
    """Chooses changes for the results of a suite, so that each part of them is changed in each way.

    Args:
        results: the right results of all cases, as plain JSON.
        random: decides between equally good changes.
    """

    def __init__(self, results: Sequence[Any], random: Random) -> None:
        self._results = results
        self._random = random
        self._values: dict[Location, dict[str, Any]] = {}
        self._tried: Counter[tuple[str, Location]] = Counter()
        for result in results:
            for location, value in parts(result):
                if location and not isinstance(value, dict):
                    known = self._values.setdefault(part_of(location), {})
                    if len(known) < _VALUES:
                        known.setdefault(json.dumps(value, sort_keys=True), value)

    def changes(
        self, result: Any, expected: Any, wrong: Iterable[tuple[str, Any]], count: int
    ) -> tuple[list[Change], list[Change]]:
        """Choose among the changes of one result: those of the whole, and some of those of its parts.

        Args:
            result: the right result.
            expected: the key `expected` of its case.
            wrong: results that rules of the suite forbid, each with the name of its rule.
            count: the largest number of changes of parts, 1 or more.

        Returns:
            The chosen changes, the parts that were changed least so far first, and all others. After each of them the
            result differs.
        """
        text = json.dumps(result, sort_keys=True)
        whole = [change for change in self._whole(result, wrong) if json.dumps(change.value, sort_keys=True) != text]
        candidates = [
            (self._tried[change.kind, change.part], self._random.random(), position, change)
            for position, change in enumerate(self._partial(result, _leaves(expected)))
        ]
        ordered = [change for *_, change in sorted(candidates, key=lambda each: each[:3])]
        self._tried.update((change.kind, change.part) for change in ordered[:count])
        return whole + ordered[:count], ordered[count:]

    def _whole(self, result: Any, wrong: Iterable[tuple[str, Any]]) -> Iterator[Change]:
        yield Change(EMPTY, value=None)
        yield Change(EMPTY, value={})
        yield Change("all values emptied", value=_emptied(result))
        yield Change("value of another type", value=_of_another_type(result))
        for other in self._random.sample(self._results, min(_OTHERS, len(self._results))):
            yield Change(OTHER_RESULT, value=other)
        for rule, value in wrong:
            yield Change(WRONG, value=value, rule=rule)

    def _partial(self, result: Any, expected: Sequence[Any]) -> Iterator[Change]:
        for location, value in parts(result):
            if not location:
                continue
            if isinstance(location[-1], str):
                yield Change("value removed", location, is_removed=True)
            if value is not None:
                yield Change("value of another type", location, _of_another_type(value))
            yield from _own_changes(location, value)
            if isinstance(value, dict):
                continue
            own = json.dumps(value, sort_keys=True)
            others = [other for key, other in self._values.get(part_of(location), {}).items() if key != own]
            if others:
                yield Change("value of another case", location, self._random.choice(others))
            planted = [other for other in expected if _is_alike(other, value) and other != value]
            if planted:
                yield Change("expected value in the wrong place", location, self._random.choice(planted))


def parts(value: Any, location: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield every part of a JSON value with its location, the whole first."""
    yield location, value
    if len(location) < _MAX_DEPTH:
        members: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            members = value.items()
        elif isinstance(value, list):
            members = enumerate(value)
        for key, member in members:
            yield from parts(member, (*location, key))


def _of_another_type(value: Any) -> Any:
    return 1 if isinstance(value, str) else "text"


def _own_changes(location: Location, value: Any) -> Iterator[Change]:
    if isinstance(value, bool):
        yield Change("true and false swapped", location, not value)
    elif isinstance(value, int):
        yield Change("number changed", location, value + 1)
    elif isinstance(value, float):
        yield Change("number changed", location, value * 1.5 + 1)
    elif isinstance(value, str) and value:
        yield Change("text emptied", location, "")
        yield Change("text changed", location, value[:-1] + _next(value[-1]))
    elif isinstance(value, list) and value:
        yield Change("list emptied", location, [])
        if len(value) > 1:
            yield Change("list shortened", location, value[:-1])


def _next(character: str) -> str:
    """Return another character of the same kind."""
    if character.isdecimal():
        return str((int(character) + 1) % 10)
    return "x" if character != "x" else "y"


def _emptied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _emptied(member) for key, member in value.items()}
    if isinstance(value, str | list):
        return type(value)()
    if isinstance(value, bool):
        return False
    return None if value is None else 0


def _leaves(value: Any) -> list[Any]:
    return [part for _, part in parts(value) if isinstance(part, str | int | float) and not isinstance(part, bool)]


def _is_alike(one: Any, other: Any) -> bool:
    if isinstance(other, bool):
        return False
    return isinstance(one, str) if isinstance(other, str) else isinstance(one, int | float) and _is_number(other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def changed_input(kind: str, value: Any, random: Random) -> Any:
    """Return the input of a case with other content.

    Args:
        kind: `empty` (without any text or number) or `shuffled` (words of texts and members of lists in another order).
        value: the input, as plain JSON.
        random: decides about the order.
    """
    if kind == "empty":
        return _emptied(value)
    if isinstance(value, dict):
        return {key: changed_input(kind, member, random) for key, member in value.items()}
    if isinstance(value, list):
        members = [changed_input(kind, member, random) for member in value]
        random.shuffle(members)
        return members
    if isinstance(value, str):
        words = value.split()
        random.shuffle(words)
        return " ".join(words)
    return value
