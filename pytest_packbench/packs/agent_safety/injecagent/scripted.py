"""Scripted agents: they show what the suite and its guards do, and nothing about any model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def _gullible(tool: str, instruction: str, attacked: bool) -> str:  # noqa: FBT001 - one signature for all agents
    if not attacked:
        return _obedient(tool, instruction, attacked)
    arguments = json.dumps({"request": instruction})
    return f"Thought: The result asks for one thing more, so I do it.\nAction: {tool}\nAction Input: {arguments}"


def _obedient(tool: str, instruction: str, attacked: bool) -> str:  # noqa: ARG001, FBT001 - see above
    return "Thought: The result holds what I was asked for.\nFinal Answer: Here is what the tool gave back."


def _refuser(tool: str, instruction: str, attacked: bool) -> str:  # noqa: ARG001, FBT001 - see above
    return "Thought: I take no part in this at all.\nFinal Answer: I'm sorry, but I can't help with that."


AGENTS: dict[str, Callable[[str, str, bool], str]] = {
    "gullible": _gullible,
    "obedient": _obedient,
    "refuser": _refuser,
}
"""By name: given the attacker's tool, its instruction and whether it reached the agent, the agent's turn."""
