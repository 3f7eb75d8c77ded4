"""The elements of AgentDojo's pipeline, among them the model behind `context.llm`; the runtime behind the guards."""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.tool_execution import ToolsExecutor
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.logging import Logger
from agentdojo.types import get_text_content_as_str, text_content_block_from_string

from pytest_packbench.model.request import AnswerError, ModelRequest, Tool
from pytest_packbench.packs.agent_safety.episode import Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.model.request import LLM, ModelAnswer
    from pytest_packbench.packs.agent_safety.episode import Status, Turn
    from pytest_packbench.packs.agent_safety.guards.base import Chain

ROLE = "step"
Step = tuple[Any, Any, Any, "Sequence[Any]", dict[str, Any]]


class Sequential(BasePipelineElement):  # type: ignore[misc]  # the extra may be absent where types are checked
    """Runs its elements in order, like AgentDojo's `AgentPipeline`, whose module imports four providers' clients."""

    name = "sequential"

    def __init__(self, elements: Sequence[BasePipelineElement]) -> None:
        self.elements = tuple(elements)

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Return the result of the last element; each state is logged by AgentDojo's own logger."""
        step: Step = (query, runtime, env, messages, extra_args or {})
        for element in self.elements:
            step = element.query(*step)
            Logger().get().log(step[3])
        return step


class ModelAgent(BasePipelineElement):  # type: ignore[misc]  # see Sequential
    """Calls a model for the next step in the role `step`, so that the call can be recorded and replayed.

    Attributes:
        problem: why the model's last answer could not be read; None if it could.
    """

    name = "model"

    def __init__(self, llm: LLM) -> None:
        self.problem: AnswerError | None = None
        self._llm = llm
        self._tools: tuple[Tool, ...] | None = None

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Append the model's answer, or the text of one that can't be read; raises what the backend raises."""
        if self._tools is None:
            self._tools = tuple(tools_of(runtime.functions.values()))
        system = "\n".join(text_of(message) for message in messages if message["role"] == "system")
        others = tuple(as_plain_message(message) for message in messages if message["role"] != "system")
        request = ModelRequest(role=ROLE, system=system, messages=others, tools=self._tools)
        try:
            answer = self._llm.complete_sync(request)
        except AnswerError as error:
            # the agent calls nothing more; the checkers see what it did before
            self.problem = error
            return query, runtime, env, [*messages, assistant_message(error.text)], extra_args or {}
        if answer.problem is not None:
            # the calls that can be read are made; without the others, the agent shows no resistance
            self.problem = AnswerError(*answer.problem)
        return query, runtime, env, [*messages, _as_agentdojo_message(answer, len(messages))], extra_args or {}


class Denial(str):
    """The error of a call that a guard denied; its type tells it apart from an error of the tool."""

    __slots__ = ()


class GuardedRuntime(FunctionsRuntime):  # type: ignore[misc]  # see Sequential
    """Runs a tool only where the guards allow it (`pre_tool_use`)."""

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
        """Run a function, or return the guard's reason as its error."""
        permission = self._chain.pre_tool_use(function, dict(kwargs))
        if permission.allowed:
            return self.execute(env, function, permission.arguments, raise_on_error=raise_on_error)
        denial = Denial(f"denied by the guard {permission.reason}")
        if raise_on_error:
            raise PermissionError(denial)
        return "", denial

    def execute(
        self, env: Any, function: str, arguments: dict[str, Any], *, raise_on_error: bool
    ) -> tuple[Any, str | None]:
        """Run a function that the guards allow."""
        result: tuple[Any, str | None] = super().run_function(env, function, arguments, raise_on_error)
        return result


class GuardedExecutor(ToolsExecutor):  # type: ignore[misc]  # see Sequential
    """AgentDojo's executor; what the agent reads of its calls is what the guards make of it (`on_tool_output`)."""

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        self._chain = chain

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Run the calls of the last message, then let the guards rule on the outputs."""
        query, runtime, env, messages, extra_args = super().query(query, runtime, env, messages, extra_args or {})
        unread = trailing_outputs(messages)
        guarded = [*messages[: len(messages) - len(unread)], *map(self._guarded, unread)]
        return query, runtime, env, guarded, extra_args or {}

    def _guarded(self, message: Any) -> Any:
        if isinstance(message["error"], Denial):
            return message
        call, text = message["tool_call"], text_of(message)
        guarded = self._chain.on_tool_output(call.function, dict(call.args), text)
        if guarded == text:
            return message
        if message["error"] is not None:
            return {**message, "error": guarded}
        return with_text(message, guarded)


class PromptRepeater(BasePipelineElement):  # type: ignore[misc]  # see Sequential
    """Repeats the user's prompt after outputs, as upstream's `InitQuery` does, which would warn each time."""

    name = "repeat_user_prompt"

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Append the prompt."""
        return query, runtime, env, [*messages, with_text({"role": "user"}, query)], extra_args or {}


def tools_of(functions: Iterable[Any]) -> Iterator[Tool]:
    """Yield functions of AgentDojo as tools that a model can call."""
    for function in functions:
        yield Tool(name=function.name, description=function.description, parameters=_schema_of(function.parameters))


@cache
def _schema_of(parameters: Any) -> dict[str, Any]:
    schema: dict[str, Any] = parameters.model_json_schema()
    return schema


def status_of(message: Any) -> Status:
    """Return the status of the call that a tool message answers."""
    if message["error"] is None:
        return "run"
    return "denied" if isinstance(message["error"], Denial) else "failed"


def turns_of(messages: Sequence[Any], chain: Chain) -> list[Turn]:
    """Return messages of AgentDojo as turns of an episode, with the calls that have an answer."""
    status = {id(message["tool_call"]): status_of(message) for message in messages if message["role"] == "tool"}
    return [
        chain.turn(
            message["role"],
            text_of(message),
            tuple(
                Call(name=call.function or "?", arguments=dict(call.args), status=status[id(call)])
                for call in message.get("tool_calls") or ()
                if id(call) in status
            ),
        )
        for message in messages
    ]


def as_plain_message(message: Any) -> dict[str, Any]:
    """Convert a message of AgentDojo to the form of `ModelRequest.messages`."""
    role, content = message["role"], text_of(message)
    if role == "tool":
        return {"role": role, "tool_call_id": message["tool_call_id"], "content": content}
    calls = [
        {"id": call.id, "name": call.function, "arguments": dict(call.args)} for call in message.get("tool_calls") or ()
    ]
    return {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}


def text_of(message: Any) -> str:
    """Return what an agent reads of a message: the error of a tool, else the text."""
    if message["role"] == "tool" and message["error"] is not None:
        return str(message["error"])
    return str(get_text_content_as_str(message["content"] or []))


def trailing_outputs(messages: Sequence[Any]) -> list[Any]:
    """Return the tool messages that the agent hasn't answered yet, in order."""
    outputs = list(takewhile(lambda message: message["role"] == "tool", reversed(messages)))
    return outputs[::-1]


def assistant_message(text: str, calls: Sequence[Any] = ()) -> dict[str, Any]:
    """Return an assistant's message; its content is never None, since AgentDojo would then ask again silently."""
    return with_text({"role": "assistant", "tool_calls": list(calls)}, text)


def with_text(message: Any, text: str) -> dict[str, Any]:
    """Return a message of AgentDojo with another text."""
    return {**message, "content": [text_content_block_from_string(text)]}


def _as_agentdojo_message(answer: ModelAnswer, position: int) -> dict[str, Any]:
    if answer.refusal is not None:
        return assistant_message(answer.refusal)
    calls = [
        FunctionCall(function=call.name, args=dict(call.arguments), id=call.id or f"call_{position}_{index}")
        for index, call in enumerate(answer.tool_calls)
    ]
    return assistant_message("" if answer.content is None else str(answer.content), calls)
