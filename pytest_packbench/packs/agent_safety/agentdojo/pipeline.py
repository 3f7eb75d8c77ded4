"""The elements of AgentDojo's pipeline: the model behind `context.llm`, guards, an observer."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.logging import Logger
from agentdojo.types import get_text_content_as_str, text_content_block_from_string

from pytest_packbench.model.request import LLM, AnswerError, ModelRequest, Tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.request import ModelAnswer
    from pytest_packbench.packs.agent_safety.guards.base import Chain

ROLE = "step"
BLOCKED_PROMPT = "The request was blocked before I read it."
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
            self._tools = tuple(tools_of(runtime))
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
        if not permission.allowed:
            denial = Denial(f"denied by the guard {permission.reason}")
            if raise_on_error:
                raise PermissionError(denial)
            return "", denial
        return self.execute(env, function, permission.arguments, raise_on_error=raise_on_error)

    def execute(
        self, env: Any, function: str, arguments: dict[str, Any], *, raise_on_error: bool
    ) -> tuple[Any, str | None]:
        """Run a function that the guards allow."""
        result: tuple[Any, str | None] = super().run_function(env, function, arguments, raise_on_error)
        return result


class PromptGuard(BasePipelineElement):  # type: ignore[misc]  # see Sequential
    """Passes the user's prompt through the guards (`on_prompt_submit`), before the agent."""

    name = "on_prompt_submit"

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Replace the prompt by the guards' version, or end the run where a guard denies it."""
        *before, last = messages
        for message in before:
            self._chain.note_exposure(text_of(message))
        prompt = self._chain.on_prompt_submit(text_of(last))
        if prompt is None:
            raise AbortAgentError(BLOCKED_PROMPT, list(messages), env)
        guarded = {**last, "content": [text_content_block_from_string(prompt)]}
        return query, runtime, env, [*before, guarded], extra_args or {}


class OutputGuard(BasePipelineElement):  # type: ignore[misc]  # see Sequential
    """Passes tool outputs through the guards (`on_tool_output`), between the executor and the agent."""

    name = "on_tool_output"

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Replace each output that the agent hasn't read yet by the guards' version."""
        unread = trailing_outputs(messages)
        guarded = [*messages[: len(messages) - len(unread)], *(self._guarded(message) for message in unread)]
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
        return {**message, "content": [text_content_block_from_string(guarded)]}


class PromptRepeater(BasePipelineElement):  # type: ignore[misc]  # see Sequential
    """Repeats the user's prompt after outputs, as upstream's `InitQuery` does, which would warn each time."""

    name = "repeat_user_prompt"

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Append the prompt."""
        repeated = {"role": "user", "content": [text_content_block_from_string(query)]}
        return query, runtime, env, [*messages, repeated], extra_args or {}


class ToolListGuard(BasePipelineElement):  # type: ignore[misc]  # see Sequential
    """Passes the list of tools through the guards (`on_tool_list`), before the agent sees it."""

    name = "on_tool_list"

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Leave the runtime with the tools, and the descriptions, that the guards offer."""
        offered = self._chain.on_tool_list(tuple(tools_of(runtime)))
        functions = {
            tool.name: runtime.functions[tool.name].model_copy(update={"description": tool.description})
            for tool in offered
        }
        runtime.update_functions(functions)
        return query, runtime, env, messages, extra_args or {}


class AnswerGuard(BasePipelineElement):  # type: ignore[misc]  # see Sequential
    """Passes the final answer through the guards (`on_final_answer`), after the agent."""

    name = "on_final_answer"

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Replace the text of the last message by the guards' version."""
        *before, last = messages
        if last["role"] == "assistant":
            text = text_of(last)
            guarded = self._chain.on_final_answer(text)
            if guarded != text:
                last = {**last, "content": [text_content_block_from_string(guarded)]}
        return query, runtime, env, [*before, last], extra_args or {}


class PipelineObserver(BasePipelineElement):  # type: ignore[misc]  # see Sequential
    """Runs a pipeline and stores its messages and environment, which AgentDojo's own call doesn't return.

    Attributes:
        messages: what the agent read and wrote.
        start: a copy of the environment at the start; None unless `copy_start`.
        environment: the environment at the end.
    """

    name = "observer"

    def __init__(self, pipeline: Any, *, copy_start: bool) -> None:
        self._pipeline = pipeline
        self._copy_start = copy_start
        self.start: Any = None
        self.messages: Sequence[Any] = ()
        self.environment: Any = None

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Run the pipeline."""
        if self._copy_start:
            # only where needed: a copy costs more than a step
            self.start = env.model_copy(deep=True)
        try:
            step: Step = self._pipeline.query(query, runtime, env, messages, extra_args or {})
        except AbortAgentError as stopped:
            self.messages, self.environment = stopped.messages, stopped.task_environment
            raise
        self.environment, self.messages = step[2], step[3]
        return step


def tools_of(runtime: Any) -> Iterator[Tool]:
    """Yield AgentDojo's functions as tools that a model can call."""
    for function in runtime.functions.values():
        parameters = function.parameters.model_json_schema()
        yield Tool(name=function.name, description=function.description, parameters=parameters)


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
    return {"role": "assistant", "content": [text_content_block_from_string(text)], "tool_calls": list(calls)}


def _as_agentdojo_message(answer: ModelAnswer, position: int) -> dict[str, Any]:
    if answer.refusal is not None:
        return assistant_message(answer.refusal)
    calls = [
        FunctionCall(function=call.name, args=dict(call.arguments), id=call.id or f"call_{position}_{index}")
        for index, call in enumerate(answer.tool_calls)
    ]
    return assistant_message("" if answer.content is None else str(answer.content), calls)
