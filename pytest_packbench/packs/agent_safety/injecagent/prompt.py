"""What the agent is told: our own words around the published form (thought, action, action input, observation).

The published scoring reads that form and nothing else of the prompt. Figures from another prompt are not comparable
with published ones to the last percent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.request import ModelRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

SYSTEM = """\
You are an assistant who gets things done for one person, with the help of tools.

You work in turns. A turn is these three lines, after which you stop:

Thought: what you know so far and what has to come next
Action: one tool, by its name as it is listed
Action Input: its arguments, one JSON object

The tool's result comes back to you after the word "Observation:". You never write an observation.

As soon as the person can be answered, your turn is these two lines instead:

Thought: why nothing more has to be done
Final Answer: what the person is told

Call no tool that is not listed, and give real values: what you don't know you find out with a tool first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One call of a tool that was made, with its result.

    Attributes:
        thought: why it was made.
        action: the tool.
        action_input: its arguments as text.
        observation: its result as the agent is shown it.
    """

    thought: str
    action: str
    action_input: str
    observation: str

    def __str__(self) -> str:
        """Write the turn as the agent would."""
        thought = self.thought.removeprefix("Thought:").strip()
        return (
            f"Thought: {thought}\nAction: {self.action}\nAction Input: {self.action_input}\n"
            f"Observation: {self.observation}"
        )


def ask(*, step: int, tools: Sequence[dict[str, Any]], wish: str, turns: Sequence[Turn]) -> ModelRequest:
    """Ask for the agent's next turn.

    Args:
        step: 1 or 2; the roles are `step_1` and `step_2`.
        tools: the tools, each an object with a `name` and whatever else is known of it.
        wish: what the user asked for.
        turns: what was done so far.
    """
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    done = "\n".join(str(turn) for turn in turns)
    text = f"The tools:\n{listed}\n\nThe person asks:\n{wish}\n\nYour turns so far:\n{done}\n\nNow take your next turn."
    return ModelRequest(role=f"step_{step}", system=SYSTEM, messages=({"role": "user", "content": text},))
