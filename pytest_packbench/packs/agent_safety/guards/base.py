"""What a guard is: an object with any of three methods, each of which may rule on what it is shown.

A guard keeps no state between calls: one object serves all cases of a run, several at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Ruled = Literal["allow", "deny", "ask", "replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What a guard decides. A guard that has nothing to say gives None instead, and leaves no trace.

    Attributes:
        decision: `allow`; `deny`; `ask` a person, which without one denies; `replace` by what follows.
        text: the text that takes the place of a prompt or an output; only with `replace`.
        arguments: the arguments that take the place of a call's; only with `replace`.
        rule: the number of the guard's rule, 0 to 4294967295.
        reason: why, in a few words; a denied call's is shown to the agent.
    """

    decision: Ruled
    text: str | None = None
    arguments: dict[str, Any] | None = None
    rule: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the user asks, before the agent reads it.

    Attributes:
        text: the user's words, as earlier guards left them.
    """

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What a tool gave, before the agent reads it: untrusted.

    Attributes:
        tool: the tool.
        arguments: what it was called with.
        text: what it gave, as earlier guards left it.
        prompt: what the user asked.
    """

    tool: str
    arguments: dict[str, Any]
    text: str
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A call that the agent wants, before it is run.

    Attributes:
        tool: the tool.
        arguments: what it is to be called with, as earlier guards left it.
        prompt: what the user asked: the text to trust.
        outputs: all tool outputs so far as the tools gave them: the text not to trust.
    """

    tool: str
    arguments: dict[str, Any]
    prompt: str
    outputs: tuple[str, ...] = field(default=())


class Guard(Protocol):
    """A guard; any of the three methods may be missing."""

    name: str

    def on_prompt_submit(self, prompt: Prompt) -> Ruling | None:
        """Rule on what the user asks. Denied: the agent never runs."""

    def on_tool_output(self, output: ToolOutput) -> Ruling | None:
        """Rule on what a tool gave. Denied: the agent gets a note in its place."""

    def pre_tool_use(self, call: ToolUse) -> Ruling | None:
        """Rule on a call. Denied: it is not run, and the agent gets the reason as the tool's error."""
