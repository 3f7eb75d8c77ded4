"""What stands in AgentDojo's pipeline: an agent (a script, or the model behind `context.llm`), guards, and a spy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.logging import Logger
from agentdojo.types import get_text_content_as_str, text_content_block_from_string

from pytest_packbench.model.request import LLM, ModelRequest, Tool
from pytest_packbench.packs.agent_safety.guards.base import holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask

    from pytest_packbench.model.request import ModelAnswer
    from pytest_packbench.packs.agent_safety.guards.base import Chain

ROLE = "step"
DECLINED = "I can't help with that."
BLOCKED_PROMPT = "The request was blocked before I read it."
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


class ScriptedAgent(BasePipelineElement):  # type: ignore[misc]  # see InOrder
    """Plays a task's own solution, a call a turn, as a model would.

    Attributes:
        kind: `obedient` plays the user's task; `gullible` does too until it reads the attack, then plays the
            attacker's; `refuser` calls nothing.
        user_task: what the user asks.
        injection_task: what the attacker wants.
        attack: what to look for in tool outputs (`guards.base.needles`).
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


class ModelAgent(BasePipelineElement):  # type: ignore[misc]  # see InOrder
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


class Denial(str):
    """The error of a call that a guard denied; told from a tool's own error by its type."""

    __slots__ = ()


class GuardedRuntime(FunctionsRuntime):  # type: ignore[misc]  # see InOrder
    """Runs a tool only where the guards allow it (`pre_tool_use`).

    Attributes:
        chain: the guards.
    """

    def __init__(self, functions: Sequence[Any], *, chain: Chain) -> None:
        super().__init__(functions)
        self._chain = chain

    def run_function(
        self,
        env: Any,
        function: str,
        kwargs: Any,
        raise_on_error: bool = False,  # noqa: FBT001, FBT002 - AgentDojo's own signature
    ) -> tuple[Any, str | None]:
        """Run a function, or give the guard's reason as its error."""
        permission = self._chain.pre_tool_use(function, dict(kwargs))
        if not permission.allowed:
            denial = Denial(f"denied by the guard {permission.reason}")
            if raise_on_error:
                raise PermissionError(denial)
            return "", denial
        ran: tuple[Any, str | None] = super().run_function(env, function, permission.arguments, raise_on_error)
        return ran


class PromptGuard(BasePipelineElement):  # type: ignore[misc]  # see InOrder
    """Shows the user's words to the guards (`on_prompt_submit`); stands between the query and the agent."""

    name = "on_prompt_submit"

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Put the guards' version in the place of the user's words, or end the run."""
        *before, last = messages
        for message in before:
            self._chain.show(text_of(message))
        asked = self._chain.on_prompt_submit(text_of(last))
        if asked is None:
            raise AbortAgentError(BLOCKED_PROMPT, list(messages), env)
        kept = {**last, "content": [text_content_block_from_string(asked)]}
        return query, runtime, env, [*before, kept], extra_args or {}


class OutputGuard(BasePipelineElement):  # type: ignore[misc]  # see InOrder
    """Shows tool outputs to the guards (`on_tool_output`); stands between the executor and the agent."""

    name = "on_tool_output"

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Put the guards' version in the place of each output that the agent hasn't read yet."""
        fresh = trailing_outputs(messages)
        kept = [*messages[: len(messages) - len(fresh)], *(self._guarded(message) for message in fresh)]
        return query, runtime, env, kept, extra_args or {}

    def _guarded(self, message: Any) -> Any:
        if isinstance(message["error"], Denial):
            return message
        call, text = message["tool_call"], text_of(message)
        shown = self._chain.on_tool_output(call.function, dict(call.args), text)
        if shown == text:
            return message
        if message["error"] is not None:
            return {**message, "error": shown}
        return {**message, "content": [text_content_block_from_string(shown)]}


class Spy(BasePipelineElement):  # type: ignore[misc]  # see InOrder
    """Passes on to a pipeline and keeps its messages and the environment, which AgentDojo's call doesn't give.

    Attributes:
        messages: what the agent read and wrote.
        start: a copy of the environment at the start, where it is to be kept.
        environment: the environment at the end.
    """

    name = "spy"

    def __init__(self, pipeline: Any, *, keep_start: bool) -> None:
        self._pipeline = pipeline
        self._keep_start = keep_start
        self.start: Any = None
        self.messages: Sequence[Any] = ()
        self.environment: Any = None

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Run the pipeline."""
        if self._keep_start:
            # a copy costs more than a step
            self.start = env.model_copy(deep=True)
        try:
            step: Step = self._pipeline.query(query, runtime, env, messages, extra_args or {})
        except AbortAgentError as stopped:
            self.messages, self.environment = stopped.messages, stopped.task_environment
            raise
        self.environment, self.messages = step[2], step[3]
        return step


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
