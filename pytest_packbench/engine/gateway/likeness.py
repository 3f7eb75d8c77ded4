"""Requests that differ in each run and ask the same: ids that a client makes up, and what a suite's rules name."""

from __future__ import annotations

import json
import re
from functools import cache
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

from pytest_packbench.files import canonical_sha256, walk
from pytest_packbench.model.errors import json_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_packbench.model.recording import GatewayExchange
    from pytest_packbench.model.suite import IgnoreRule


# by these the result of a tool names its call, whose `id` is the same; keys are sorted
_REFERENCE = r'"(?:tool_call_id|toolCallId|tool_use_id|call_id|function_?[rR]esponse": {"id)": "((?:[^"\\]|\\.)+)"'
_ID = r'("(?:tool_call_id|toolCallId|tool_use_id|call_id|id)": "){}"'
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


def alike_sha256(method: str, path: str, body: Any, rules: Sequence[IgnoreRule]) -> str:
    """Return a hash that requests share that ask the same."""
    return canonical_sha256([method, path, alike(body, rules)])


def recorded_sha256s(exchange: GatewayExchange, rules: Sequence[IgnoreRule]) -> list[str]:
    """Return the same of a recorded call: as it was recorded, and by the rules of today; where they are known."""
    recorded = [exchange.alike_sha256] if exchange.alike_sha256 is not None else []
    if exchange.request is not None:
        # of a request with a secret, it is that of another one
        recorded.append(alike_sha256(exchange.method, exchange.path, exchange.request, rules))
    return recorded


def alike(body: Any, rules: Sequence[IgnoreRule] = ()) -> Any:
    """Return the body of a request without what differs in each run.

    What a rule matches becomes the rule's words. An id of a tool call becomes the number of its first use by a result,
    so that it still tells which result belongs to which call.
    """
    for rule in rules:
        body = applied(rule, body)
    text = json.dumps(body, sort_keys=True)
    for number, found in enumerate(dict.fromkeys(re.findall(_REFERENCE, text)), start=1):
        text = re.sub(_ID.format(re.escape(found)), rf'\g<1>#{number}"', text)
    return json.loads(text)


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


def differences(before: Any, after: Any, *, known_only: bool) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the places in which the bodies of two requests differ, as JSON pointers.

    Each has the rules that would make them alike there, as `suite.yaml` has them; none where none is known.

    Args:
        before: one body.
        after: the other.
        known_only: whether rules are for what looks like a date, an id or a path only, not for any word.
    """
    old, new = (
        {
            json_pointer(path): item if isinstance(item, str) else json.dumps(item)
            for path, item in walk(body)
            if not isinstance(item, dict | list)
        }
        for body in (before, after)
    )
    for place in old | new:
        if old.get(place) != new.get(place):
            rules = _rules(old[place], new[place], known_only=known_only) if place in old and place in new else {}
            yield place, [{"at": place, "pattern": pattern, "as": words} for words, pattern in rules.items()]


def _rules(old: str, new: str, *, known_only: bool) -> dict[str, str]:
    """Return patterns that make two texts alike, by their words; none where there are none."""
    found = {}
    for words, known in (*_KINDS.items(), *([] if known_only else [("<differs>", "")])):
        # the word in which they differ, by what comes before it
        before = re.sub(r"\S*\Z", "", commonprefix([old, new]))[-_MOST_CONTEXT:]  # noqa: RUF071 - of texts
        pattern = known or (rf"(?<={re.escape(before)})\S+" if before else r"^\S+")
        matches = [[match[0] for match in re.finditer(pattern, text)] for text in (old, new)]
        if matches[0] != matches[1] and len(matches[0]) == len(matches[1]):
            found[words] = pattern
            old, new = (re.sub(pattern, words, text) for text in (old, new))
    return found if old == new else {}
