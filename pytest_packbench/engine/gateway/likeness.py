"""Requests that differ in each run and ask the same: ids that a client makes up, and what a suite's rules name."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import count
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.errors import json_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_packbench.model.case import Location
    from pytest_packbench.model.suite import IgnoreRule


# by these the result of a tool names its call, which has the same `id`
_REFERENCES = frozenset({"tool_call_id", "toolCallId", "tool_use_id", "call_id"})
_RESULTS = frozenset({"functionResponse", "function_response"})
_MONTHS = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_KINDS = {
    "<uuid>": r"[0-9A-Fa-f]{8}(-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}",
    "<path>": r"([A-Z]:|/private)?[\\/](tmp|var[\\/]folders|Users[\\/][^\\/]+[\\/]AppData)[\\/][^\s,;]+",
    "<time>": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?",
    "<date>": r"\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{2,4}",
    "<day>": rf"((Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?(\d\d?[a-z.]* )?{_MONTHS}( \d\d?[a-z]*)?,? \d{{4}}",
    "<weekday>": r"(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day",
    "<clock>": r"\d\d?:\d\d(:\d\d([.,]\d+)?)?( ?[AaPp][Mm])?",
    "<number>": r"\b\d{6,}([.]\d+)?\b",
    "<hex>": r"(?=[a-f]*\d)[0-9a-f]{8,}",
}
"""What differs in each run by its form, and how a rule could call it."""
_MOST_CONTEXT = 20


class Difference(NamedTuple):
    """A place in which two requests differ, and the rules that would make them alike there; none where none is known.

    Attributes:
        place: a JSON pointer.
        rules: each as `suite.yaml` would have it.
    """

    place: str
    rules: tuple[dict[str, str], ...]


def alike_sha256(method: str, path: str, body: Any, rules: Sequence[IgnoreRule]) -> str:
    """Return a hash that requests share that ask the same."""
    return canonical_sha256([method, path, alike(body, rules)])


def alike(body: Any, rules: Sequence[IgnoreRule] = ()) -> Any:
    """Return the body of a request without what differs in each run.

    An id of a tool call becomes the number of its first use by a result, so that it still tells which result belongs to
    which call. What a rule matches becomes the rule's words. A number is the same with and without a point.
    """
    for rule in rules:
        body = applied(rule, body)
    numbers = count(1)
    ids = {found: f"#{next(numbers)}" for found in dict.fromkeys(_referenced(body))}
    return _renamed(body, ids)


def _referenced(value: Any, parent: str = "") -> Iterator[str]:
    """Yield the ids by which results name their calls."""
    if isinstance(value, list):
        for item in value:
            yield from _referenced(item)
    elif isinstance(value, dict):
        for name, item in sorted(value.items()):
            if isinstance(item, str) and (name in _REFERENCES or (name == "id" and parent in _RESULTS)):
                yield item
            yield from _referenced(item, name)


def _renamed(value: Any, ids: dict[str, str], name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _renamed(item, ids, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, ids) for item in value]
    if isinstance(value, str):
        return ids.get(value, value) if name == "id" or name in _REFERENCES else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def applied(rule: IgnoreRule, body: Any) -> Any:
    """Return the body of a request with the words of a rule for what it matches, at its place and below."""
    pattern = _compiled(rule.pattern)

    def change(value: Any) -> Any:
        if isinstance(value, bool | None):
            return value
        text = value if isinstance(value, str) else json.dumps(value)
        changed = pattern.sub(lambda _: rule.words, text)
        return value if changed == text else changed

    return _at(body, [step.replace("~1", "/").replace("~0", "~") for step in rule.at.split("/")[1:]], change)


def _at(value: Any, steps: list[str], change: Callable[[Any], Any]) -> Any:
    """Return a value with its scalars changed that are at a place, or below it."""
    first, rest = (steps[0], steps[1:]) if steps else ("*", steps)
    if isinstance(value, dict):
        return {key: _at(item, rest, change) if first in {"*", key} else item for key, item in value.items()}
    if isinstance(value, list):
        return [_at(item, rest, change) if first in {"*", str(at)} else item for at, item in enumerate(value)]
    return value if steps else change(value)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def differences(before: Any, after: Any, *, known_only: bool, place: Location = ()) -> Iterator[Difference]:
    """Yield the places in which two requests differ.

    Args:
        before: the body of one.
        after: that of the other.
        known_only: whether rules are for what looks like a date, an id or a path only, not for any text.
        place: where they are.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before | after:
            if name in before and name in after:
                yield from differences(before[name], after[name], known_only=known_only, place=(*place, name))
            else:
                yield Difference(json_pointer((*place, name)), ())
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, known_only=known_only, place=(*place, at))
    elif before != after:
        pointer = json_pointer(place)
        texts = [each if isinstance(each, str) else json.dumps(each) for each in (before, after)]
        is_scalar = not any(isinstance(each, dict | list | bool | None) for each in (before, after))
        found = _rules(*texts, known_only=known_only) if is_scalar else {}
        yield Difference(
            pointer, tuple({"at": pointer, "pattern": pattern, "as": words} for words, pattern in found.items())
        )


def _rules(old: str, new: str, *, known_only: bool) -> dict[str, str]:
    """Return patterns that make two texts alike by their words; none where there are none."""
    found = {}
    for words, pattern in _KINDS.items():
        matches = [[match[0] for match in re.finditer(pattern, text)] for text in (old, new)]
        if matches[0] != matches[1] and len(matches[0]) == len(matches[1]):
            found[words] = pattern
            old, new = (re.sub(pattern, words, text) for text in (old, new))
    if old == new:
        return found
    start = len(commonprefix([old, new]))  # noqa: RUF071 - of texts, not of paths
    # the word in which they differ
    start = max(old.rfind(space, 0, start) + 1 for space in " \n\t")
    context = re.escape(old[max(0, start - _MOST_CONTEXT) : start])
    pattern = rf"(?<={context})\S+" if context else r"^\S+"
    if known_only or re.sub(pattern, "", old) != re.sub(pattern, "", new):
        return {}
    return found | {"<differs>": pattern}
