"""The texts of an InjecAgent case, and Python literals in them, which are read and never run."""

from __future__ import annotations

import ast
import warnings
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from pytest_packbench.model.case import Expected, ListOf, StrictModel, misfit
from pytest_packbench.model.errors import format_value
from pytest_packbench.packs.agent_safety.episode import NOT_JSON, plain_json

Filled = Annotated[str, StringConstraints(pattern=r"\S"), Expected("text")]


def parse_literal(text: str) -> Any:
    """Parse a Python literal as plain JSON: a dict, list, string, number, True, False or None; a tuple becomes a list.

    Raises:
        ValueError: it is anything else, or larger or deeper than `plain_json` allows.
    """
    with warnings.catch_warnings():
        # Python warns about unknown escapes and leaves them as written
        warnings.simplefilter("ignore")
        try:
            # a parser of literals, which runs nothing
            return plain_json(ast.literal_eval(text.strip()))
        except (*NOT_JSON, SyntaxError, MemoryError):
            raise ValueError(f"got {format_value(text)}; expected a Python dict, list, string or number") from None


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
        known = {tool["name"]: tool for tool in self.tools}
        names = dict.fromkeys((self.user_tool, *self.attacker_tools))
        return [known.get(name, {"name": name}) for name in names]
