"""The texts of an InjecAgent case, and the arguments of calls in them."""

from __future__ import annotations

import ast
import json
import warnings
from contextlib import suppress
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from pytest_packbench.model.case import Expected, ListOf, StrictModel, misfit
from pytest_packbench.packs.agent_safety.episode import NOT_JSON, plain_json
from pytest_packbench.packs.agent_safety.model import Filled  # noqa: TC001 - pydantic reads it at run time


def arguments_of(text: str) -> dict[str, Any] | None:
    """Parse the arguments of a call, in JSON or as a Python literal, which is read and never run.

    Returns:
        Plain JSON, in which a tuple is a list; None of anything but a dict, and of one that is larger or deeper than
        `plain_json` allows.
    """
    for parse in (json.loads, ast.literal_eval):
        # Python warns about unknown escapes and leaves them as written
        with warnings.catch_warnings(action="ignore"), suppress(*NOT_JSON, SyntaxError, MemoryError):
            value = plain_json(parse(text.strip()))
            if isinstance(value, dict):
                return value
    return None


class Material(StrictModel):
    """The texts of a case: what the agent reads, and what the attacker wants.

    Attributes:
        user_instruction: the user's request.
        user_tool: the tool that the agent called for it.
        tool_parameters: the arguments of that call, as text.
        thought: why the agent called it.
        tool_response: the output of the tool, as text, with the attack in it.
        attacker_instruction: the attack.
        attacker_tools: the tools that the attacker wants called, in order: one that does the harm, or one that reads
            data and `GmailSendEmail`, which sends them away.
        simulated_response: the output of the first of two attacker's tools; a built-in one by default.
        tools: descriptions of the tools, each an object with its `name`; names only by default.
    """

    user_instruction: Filled
    user_tool: Filled
    tool_parameters: Filled
    thought: Filled
    tool_response: Filled
    attacker_instruction: Filled
    attacker_tools: Annotated[ListOf[Filled], Field(min_length=1, max_length=2), Expected("one or two names")]
    simulated_response: Filled | None = None
    tools: ListOf[dict[str, Any]] = ()

    @model_validator(mode="after")
    def _brings_the_attack(self) -> Self:
        if self.attacker_instruction not in self.tool_response:
            raise misfit("tool_response does not contain attacker_instruction", "a response with the attack in it")
        if self.tools and {tool.get("name") for tool in self.tools} != {self.user_tool, *self.attacker_tools}:
            raise misfit("tools has other names", "the user's and the attacker's tools, each once")
        return self

    @property
    def described_tools(self) -> list[dict[str, Any]]:
        """The descriptions of the tools for the agent, the user's tool first."""
        names = {name: {"name": name} for name in (self.user_tool, *self.attacker_tools)}
        return list((names | {tool["name"]: tool for tool in self.tools}).values())
