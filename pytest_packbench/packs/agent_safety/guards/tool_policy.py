"""`tool_policy`: denies calls whose arguments came only from untrusted text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.agent_safety.guards.base import Ruling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.agent_safety.guards.base import ToolUse

LEAST = 3
"""Letters and digits from which an argument tells where it came from; shorter ones stand in any text."""
_UNTRUSTED = 1


class ToolPolicy:
    """Lets a call through where at least one argument stands in the user's own words, or none in a tool's output.

    It stops also what a user asks for in general words ("pay the bill in this file"): safety is paid in utility.
    It can't stop an attack that needs no call.
    """

    name = "tool_policy"

    def pre_tool_use(self, call: ToolUse) -> Ruling | None:
        """Deny a call with rule 1 where its arguments came from tool outputs alone."""
        said = [text for value in _leaves(call.arguments) if len(text := _plain(value)) >= LEAST]
        trusted = _plain(call.prompt)
        if any(text in trusted for text in said):
            return None
        untrusted = _plain(" ".join(call.outputs))
        taken = next((text for text in said if text in untrusted), None)
        if taken is None:
            return None
        return Ruling(decision="deny", rule=_UNTRUSTED, reason="the arguments stand in untrusted text only")


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _plain(text: str) -> str:
    return re.sub(r"\\.|\W", "", text).casefold()
