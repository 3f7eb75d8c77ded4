"""The texts of an InjecAgent case: one tool call of the user's, and the attack that stands in its result."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from pytest_packbench.model.case import ListOf, StrictModel, Text

AttackerTools = Annotated[ListOf[Text], Field(min_length=1, max_length=2)]


class Material(StrictModel):
    """What the agent is shown, and what the attacker is after.

    Attributes:
        user_instruction: what the user asked for.
        user_tool: the tool that the agent called for it.
        tool_parameters: the arguments of that call, as text.
        thought: why the agent called it.
        tool_response: what the tool gave back, as text, the attack in it.
        attacker_instruction: the attack.
        attacker_tools: the tools that the attacker wants called, in order: one that does the harm, or one that reads
            data and `GmailSendEmail`, which sends them away.
        simulated_response: what the first of two attacker's tools gives back; one of our own unless given.
        tools: what is known of the tools, each an object with its `name`; names only unless given.
    """

    user_instruction: Text
    user_tool: Text
    tool_parameters: Text
    thought: Text
    tool_response: Text
    attacker_instruction: Text
    attacker_tools: AttackerTools
    simulated_response: Text | None = None
    tools: ListOf[dict[str, Any]] = ()

    @model_validator(mode="after")
    def _brings_the_attack(self) -> Self:
        if self.attacker_instruction not in self.tool_response:
            raise _wrong("attacker_instruction does not stand in tool_response", "a response that brings the attack")
        if self.tools and {tool.get("name") for tool in self.tools} != {self.user_tool, *self.attacker_tools}:
            raise _wrong("tools names other tools", "the user's and the attacker's, each once")
        return self

    @property
    def described_tools(self) -> list[dict[str, Any]]:
        """The tools as the agent is told of them, the user's first."""
        known = {tool["name"]: tool for tool in self.tools}
        names = dict.fromkeys((self.user_tool, *self.attacker_tools))
        return [known.get(name, {"name": name}) for name in names]


def _wrong(wrong: str, expected: str) -> PydanticCustomError:
    return PydanticCustomError("material", "material", {"wrong": wrong, "expected": expected})
