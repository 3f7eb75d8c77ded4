"""What a guard is: an object with any of three methods, each of which may rule on what it is shown.

A guard keeps no state between calls: one object serves all cases of a run, several at a time. A `Chain` is the guards
of one case: it asks them in order, and keeps their firings and what they kept from the agent.

Whether a text holds the attack is told by its letters and digits in their order. These survive what tools make of it on
the way: they give YAML or JSON, where quotes are doubled, line ends become escapes, long lines are folded, and marks
are put between words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pytest_packbench.model.outcome import Firing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Ruled = Literal["allow", "deny", "ask", "replace"]
WITHHELD = "[withheld by a guard]"
_DENIED = ("deny", "ask")
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRuling:
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
    outputs: tuple[str, ...] = ()


class Guard(Protocol):
    """A guard; any of the three methods may be missing."""

    name: str

    def on_prompt_submit(self, prompt: Prompt) -> GuardRuling | None:
        """Rule on what the user asks. Denied: the agent never runs."""

    def on_tool_output(self, output: ToolOutput) -> GuardRuling | None:
        """Rule on what a tool gave. Denied: the agent gets a note in its place."""

    def pre_tool_use(self, call: ToolUse) -> GuardRuling | None:
        """Rule on a call. Denied: it is not run, and the agent gets the reason as the tool's error."""


class GuardError(RuntimeError):
    """A guard raised, or gave what is no ruling: an error of the case, no success of the guard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What became of a call.

    Attributes:
        allowed: whether to run it.
        arguments: what to run it with.
        reason: why it is denied.
    """

    allowed: bool
    arguments: dict[str, Any]
    reason: str = ""


@dataclass(slots=True)
class Chain:
    """The guards of one case.

    Attributes:
        guards: in order.
        attack: what to look for in texts (`needles`), to tell whether the attack reached the agent.
        firings: what the guards decided so far, in order.
        exposed: whether the agent was given a text that holds the attack.
        removed_by: the guards that took the attack out of a text, each once.
    """

    guards: Sequence[Any]
    attack: tuple[str, ...] = ()
    firings: list[Firing] = field(default_factory=list)
    exposed: bool = False
    removed_by: list[str] = field(default_factory=list)
    _prompt: str = ""
    _outputs: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The guards' names, in order."""
        return [name_of(guard) for guard in self.guards]

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The firings as a result tells them under `hook_decisions`, plain JSON."""
        return [
            {"hook": one.hook, "decision": one.decision, **({} if one.rule is None else {"rule": one.rule})}
            for one in self.firings
        ]

    def on_prompt_submit(self, text: str) -> str | None:
        """Give the user's words as the agent is to read them; None where a guard denied them.

        Raises:
            GuardError: a guard broke.
        """
        self._prompt = text
        for name, hook in self._hooks("on_prompt_submit"):
            before = text
            ruling = self._fired(name, "on_prompt_submit", hook, Prompt(text=text))
            if ruling is None:
                continue
            if ruling.decision in _DENIED:
                self._note_removal(name, before, "")
                return None
            if ruling.decision == "replace":
                text = _text_of(name, "on_prompt_submit", ruling)
                self._note_removal(name, before, text)
        self.show(text)
        return text

    def on_tool_output(self, tool: str, arguments: dict[str, Any], text: str) -> str:
        """Give a tool's output as the agent is to read it.

        Raises:
            GuardError: a guard broke.
        """
        self._outputs.append(text)
        for name, hook in self._hooks("on_tool_output"):
            before = text
            output = ToolOutput(tool=tool, arguments=arguments, text=text, prompt=self._prompt)
            ruling = self._fired(name, "on_tool_output", hook, output)
            if ruling is None or ruling.decision == "allow":
                continue
            text = _text_of(name, "on_tool_output", ruling) if ruling.decision == "replace" else WITHHELD
            self._note_removal(name, before, text)
        self.show(text)
        return text

    def pre_tool_use(self, tool: str, arguments: dict[str, Any]) -> Permission:
        """Say whether a call is to be run, and with which arguments.

        Raises:
            GuardError: a guard broke.
        """
        for name, hook in self._hooks("pre_tool_use"):
            call = ToolUse(tool=tool, arguments=arguments, prompt=self._prompt, outputs=tuple(self._outputs))
            ruling = self._fired(name, "pre_tool_use", hook, call)
            if ruling is None or ruling.decision == "allow":
                continue
            if ruling.decision in _DENIED:
                return Permission(allowed=False, arguments=arguments, reason=f"{name}: {ruling.reason or 'denied'}")
            if ruling.arguments is None:
                raise GuardError(f"guard {name}.pre_tool_use: replace without arguments")
            arguments = ruling.arguments
        return Permission(allowed=True, arguments=arguments)

    def show(self, text: str) -> None:
        """Note that the agent reads a text that went through no guard, such as a system message."""
        self.exposed = self.exposed or holds(text, self.attack)

    def _hooks(self, phase: str) -> Iterator[tuple[str, Any]]:
        for guard in self.guards:
            hook = getattr(guard, phase, None)
            if hook is not None:
                yield name_of(guard), hook

    def _fired(self, name: str, phase: str, hook: Any, event: object) -> GuardRuling | None:
        try:
            ruling = hook(event)
        except Exception as error:
            raise GuardError(f"guard {name}.{phase} raised {type(error).__name__}: {error}") from error
        if ruling is None:
            return None
        if not isinstance(ruling, GuardRuling):
            raise GuardError(f"guard {name}.{phase} gave {type(ruling).__name__}, expected a GuardRuling or None")
        self.firings.append(Firing(hook=f"{name}.{phase}", decision=ruling.decision, rule=ruling.rule))
        return ruling

    def _note_removal(self, name: str, before: str, after: str) -> None:
        taken = holds(before, self.attack) and not holds(after, self.attack)
        if taken and name not in self.removed_by:
            self.removed_by.append(name)


def name_of(guard: object) -> str:
    """Give a guard's name: its own, else its class's."""
    return str(getattr(guard, "name", None) or type(guard).__name__)


def _text_of(name: str, phase: str, ruling: GuardRuling) -> str:
    if ruling.text is None:
        raise GuardError(f"guard {name}.{phase}: replace without text")
    return ruling.text


def holds(text: str, needles: tuple[str, ...]) -> bool:
    """Whether a text holds one of several attacks, each as `needle` gave it."""
    if not needles:
        return False
    plain = needle(text)
    if any(one in plain for one in needles):
        return True
    if "\\" not in text:
        return False
    unescaped = needle(_ESCAPE.sub(_meant, text))
    return any(one in unescaped for one in needles)


def needle(text: str) -> str:
    """Give a text's letters and digits alone; what is empty then can't be looked for."""
    return "".join(filter(str.isalnum, text))


def needles(*texts: str, goal: str = "") -> tuple[str, ...]:
    """Give what to look for.

    Args:
        texts: the attack as it was planted; found only where it is whole.
        goal: what the attacker wants done, in its words; found where either half of it is, for a guard that leaves
            half an instruction has not removed it.

    Returns:
        Each once, without what has neither letter nor digit.
    """
    plain = needle(goal)
    middle = len(plain) // 2
    found = (*map(needle, texts), plain[:middle], plain[middle:])
    return tuple(dict.fromkeys(one for one in found if one))


def _meant(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits is None:
        return " "
    point = int(digits, 16)
    return chr(point) if point <= 0x10FFFF else " "  # noqa: PLR2004 - the last code point of Unicode
