"""The agents: three scripts that act inside AgentDojo's own pipeline, and a model behind `context.llm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import FunctionCall
from agentdojo.logging import Logger
from agentdojo.types import get_text_content_as_str, text_content_block_from_string

from pytest_packbench.model.request import LLM, ModelRequest, Tool
from pytest_packbench.packs.agent_safety.exposure import holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask

    from pytest_packbench.model.request import ModelAnswer

ROLE = "step"
DECLINED = "I can't help with that."
Step = tuple[Any, Any, Any, "Sequence[Any]", dict[str, Any]]


class InOrder(BasePipelineElement):  # type: ignore[misc]  # the extra may be absent where types are checked
    """Asks one element after the other, as AgentDojo's `AgentPipeline`, whose module imports four providers' clients.

    Attributes:
        elements: the elements, each given what the former left.
    """

    name = "in_order"

    def __init__(self, elements: Sequence[BasePipelineElement]) -> None:
        self.elements = tuple(elements)

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Give what the last element leaves; each state goes to AgentDojo's own log."""
        step: Step = (query, runtime, env, messages, extra_args or {})
        for element in self.elements:
            step = element.query(*step)
            Logger().get().log(step[3])
        return step


class ScriptedAgent(BasePipelineElement):  # type: ignore[misc]  # the extra may be absent where types are checked
    """Plays a task's own solution, a call a turn, as a model would.

    Attributes:
        kind: `obedient` plays the user's task; `gullible` does too until it reads the attack, then plays the
            attacker's; `refuser` calls nothing.
        user_task: what the user asks.
        injection_task: what the attacker wants.
        attack: what to look for in tool outputs (`exposure.needles`).
    """

    name = "scripted"

    def __init__(
        self, kind: str, user_task: BaseUserTask, injection_task: BaseInjectionTask, attack: tuple[str, ...]
    ) -> None:
        self._kind = kind
        self._task: Any = user_task
        self._injection_task = injection_task
        self._attack = attack
        self._calls: list[Any] | None = None

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Add the next call of the script, or its closing words."""
        if self._kind == "refuser":
            answer = said(DECLINED)
        else:
            if self._calls is None:
                self._calls = list(self._task.ground_truth(env))
            elif self._kind == "gullible" and self._reads_the_attack(messages):
                self._task, self._kind = self._injection_task, "obedient"
                self._calls = list(self._task.ground_truth(env))
            answer = said("", [self._calls.pop(0)]) if self._calls else said(self._task.GROUND_TRUTH_OUTPUT)
        return query, runtime, env, [*messages, answer], extra_args or {}

    def _reads_the_attack(self, messages: Sequence[Any]) -> bool:
        return any(holds(text_of(message), self._attack) for message in trailing_outputs(messages))


class ModelAgent(BasePipelineElement):  # type: ignore[misc]  # see ScriptedAgent
    """Asks a model for the next step, so that it can be recorded and replayed.

    Attributes:
        llm: who answers, in the role `step`.
    """

    name = "model"

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._tools: tuple[Tool, ...] | None = None

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Add what the model answers; raises what the backend raises."""
        if self._tools is None:
            self._tools = tuple(tools_of(runtime))
        system = "\n".join(text_of(message) for message in messages if message["role"] == "system")
        asked = tuple(plain(message) for message in messages if message["role"] != "system")
        answer = self._llm.complete_sync(ModelRequest(role=ROLE, system=system, messages=asked, tools=self._tools))
        return query, runtime, env, [*messages, _as_message(answer, len(messages))], extra_args or {}


def tools_of(runtime: Any) -> Iterator[Tool]:
    """Give AgentDojo's functions as tools that a model may call."""
    for function in runtime.functions.values():
        parameters = function.parameters.model_json_schema()
        yield Tool(name=function.name, description=function.description, parameters=parameters)


def plain(message: Any) -> dict[str, Any]:
    """Give a message of AgentDojo's as a `ModelRequest` has it."""
    role, content = message["role"], text_of(message)
    if role == "tool":
        return {"role": role, "tool_call_id": message["tool_call_id"], "content": content}
    calls = [
        {"id": call.id, "name": call.function, "arguments": dict(call.args)} for call in message.get("tool_calls") or ()
    ]
    return {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}


def text_of(message: Any) -> str:
    """Give what an agent reads of a message: a tool's error, else the text."""
    if message["role"] == "tool" and message["error"] is not None:
        return str(message["error"])
    return str(get_text_content_as_str(message["content"] or []))


def trailing_outputs(messages: Sequence[Any]) -> list[Any]:
    """Give the tool messages that the agent hasn't answered yet, in order."""
    found: list[Any] = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        found.insert(0, message)
    return found


def said(text: str, calls: Sequence[Any] = ()) -> dict[str, Any]:
    """Make an assistant's message; its content is never None, for then AgentDojo asks again without a word."""
    return {"role": "assistant", "content": [text_content_block_from_string(text)], "tool_calls": list(calls)}


def _as_message(answer: ModelAnswer, position: int) -> dict[str, Any]:
    if answer.refusal is not None:
        return said(answer.refusal)
    calls = [
        FunctionCall(function=call.name, args=dict(call.arguments), id=call.id or f"call_{position}_{index}")
        for index, call in enumerate(answer.tool_calls)
    ]
    return said("" if answer.content is None else str(answer.content), calls)
