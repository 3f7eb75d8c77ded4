"""AgentDojo's pipeline under watch: guards at its three places, and a spy that keeps what went through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import text_content_block_from_string

from pytest_packbench.packs.agent_safety.agentdojo.agents import text_of, trailing_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.packs.agent_safety.agentdojo.agents import Step
    from pytest_packbench.packs.agent_safety.guards.base import Chain

BLOCKED_PROMPT = "The request was blocked before I read it."


class Denial(str):
    """The error of a call that a guard denied; told from a tool's own error by its type."""

    __slots__ = ()


class GuardedRuntime(FunctionsRuntime):  # type: ignore[misc]  # the extra may be absent where types are checked
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


class PromptGuard(BasePipelineElement):  # type: ignore[misc]  # see GuardedRuntime
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


class OutputGuard(BasePipelineElement):  # type: ignore[misc]  # see GuardedRuntime
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


class Spy(BasePipelineElement):  # type: ignore[misc]  # see GuardedRuntime
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
