"""A pair of AgentDojo as a world: an agent acts in its environment, AgentDojo's own checkers judge.

There are three ways to act. An agent of the user that calls tools by itself has an environment of its own: when it has
ended, AgentDojo's own runner gets that environment and the calls, as if a pipeline had made them. A pipeline of the
user runs in that runner itself, and so does the reference agent, which is a pipeline of ours (`reference`).
"""

from __future__ import annotations

from copy import copy, deepcopy
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import yaml
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.agent_pipeline.tool_execution import ToolsExecutor, tool_result_to_str
from agentdojo.attacks.base_attacks import DEFAULT_MODEL_NAME, get_model_name_from_pipeline
from agentdojo.base_tasks import BaseInjectionTask
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.task_suite import functions_stack_trace_from_messages
from agentdojo.types import get_text_content_as_str, text_content_block_from_string

from pytest_packbench.model.request import AnswerError, Tool
from pytest_packbench.packs.agent_safety.agentdojo.suites import (
    NO_ATTACK,
    UnknownUpstreamError,
    addressed_as,
    attack_of,
    changed_part,
    suite_of,
)
from pytest_packbench.packs.agent_safety.episode import (
    Call,
    Checked,
    Episode,
    NoEpisodeError,
    Said,
    Turn,
    unread_answer,
)
from pytest_packbench.packs.agent_safety.guards.base import Chain, GuardError, attack_patterns
from pytest_packbench.packs.agent_safety.serving import Output
from pytest_packbench.packs.agent_safety.worlds import BLOCKED, AgentWorld

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.episode import Status, Turn
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig


Step = tuple[Any, Any, Any, "Sequence[Any]", dict[str, Any]]
version_of = cache(version)
_ADVICE = "run the agent as a program (cmd:) or a server (http:)"
_EXPECTED_STEP = "expected (query, runtime, env, messages, extra_args), the last message the assistant's"


class Denial(str):
    """The error of a call that a guard denied; its type tells it apart from an error of the tool."""

    __slots__ = ()


class GuardedExecutor(ToolsExecutor):  # type: ignore[misc]  # the extra may be absent where types are checked
    """AgentDojo's executor; what the agent reads of its calls is what the guards make of it (`on_tool_output`)."""

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        self._chain = chain

    def query(self, *step: Any) -> Step:
        """Run the calls of the last message, then let the guards rule on the outputs."""
        query, runtime, env, messages, extra_args = super().query(*step)
        unread = trailing_outputs(messages)
        guarded = [*messages[: len(messages) - len(unread)], *map(self._guarded, unread)]
        return query, runtime, env, guarded, extra_args

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


class DojoWorld(AgentWorld):
    """The world of a pair.

    Args:
        request: the request of the case.
        context: has the guards.
        rules: the suite's.
        agent: the name of the agent.
        attack: the name of the attack; by default that of the case.
        addressed: how the attack addresses the agent; empty for what the suite says, else the model in the name of a
            pipeline.
        scripted: whether this package's own agent plays, which hides nothing, and that is a script.

    Attributes:
        version: the version of the benchmark.
        suite: AgentDojo's suite.
        user_task: the user's task.
        injection_task: the attacker's.
        injections: the text of the attack by the place where it is planted.
        functions: AgentDojo's functions that the agent is offered.
        environment: the environment at the end; before that the one to start with, None for a new one.
        pipeline: the agent, where it is a pipeline.
        executed: the calls that ran, in order, with a copy of their arguments.

    Raises:
        UnknownUpstreamError: the case names something that AgentDojo doesn't have.
    """

    def __init__(
        self,
        request: VerifyRequest,
        context: VerifyContext,
        rules: SafetySuiteConfig,
        agent: str,
        *,
        attack: str = "",
        addressed: str = "",
        scripted: bool | None = None,
    ) -> None:
        pair = request.input
        self.version, self._environment_name = pair["version"], pair["ids"]["environment"]
        self.suite = suite_of(self.version, self._environment_name)
        self.user_task = self._task(self.suite.user_tasks, pair["ids"]["user_task"])
        self.injection_task = self._task(self.suite.injection_tasks, pair["ids"]["injection_task"])
        self.functions = list(self.suite.tools)
        self.environment: Any = None
        self.pipeline: BasePipelineElement | None = None
        self.injections: dict[str, str] = {}
        super().__init__(request, Chain.of_case(context, rules), agent, scripted=scripted)
        self._attack, self._own_attacks = attack or pair["attack"], rules.attacks
        self._is_dos = False
        self._named = addressed or rules.addressed_as
        self._address(self._named or DEFAULT_MODEL_NAME)
        notes = [note for guard in context.guards if (note := getattr(guard, "system_note", ""))]
        self.system = "".join([system_message(), *notes])
        self._start: Any = None
        self._runtime: _GuardedRuntime | None = None
        self._messages: list[Any] = []
        self.executed: list[tuple[str, dict[str, Any]]] = []

    @property
    def tasks(self) -> tuple[Any, Any]:
        """The user's task and the attacker's."""
        return self.user_task, self.injection_task

    def fresh(self) -> DojoWorld:
        """Return the same pair for another session, in which nothing has happened."""
        other = copy(self)
        other.chain, other.functions, other.executed = self.chain.fresh(), list(self.functions), []
        return other

    def _task(self, tasks: dict[str, Any], name: str) -> Any:
        if name in tasks:
            return tasks[name]
        wrong = f'unknown task "{name}" in {self._environment_name}; expected one of {", ".join(tasks)}'
        raise UnknownUpstreamError(wrong)

    def _address(self, name: str) -> None:
        """Plant the attack, addressed to an agent of this name."""
        self._addressed = name
        if self._attack != NO_ATTACK:
            path = self._own_attacks.get(self._attack, "")
            attack = attack_of(self.version, self._environment_name, self._attack, name, path)
            self._is_dos = attack.is_dos_attack
            self.injections = attack.attack(self.user_task, self.injection_task)
        self.chain.planted = tuple(dict.fromkeys(self.injections.values()))
        self.chain.attack = attack_patterns(*self.chain.planted, goal=self.injection_task.GOAL)

    def prompt(self) -> str:
        """Return the user's task."""
        return str(self.user_task.PROMPT)

    def begin(self) -> bool:
        """Let the guards rule on the task and the tools; what they take off the list can't be called either."""
        self.tools = tuple(tools_of(self.functions))
        begun = super().begin()
        functions = {function.name: function for function in self.functions}
        self.functions = [
            functions[tool.name].model_copy(update={"description": tool.description}) for tool in self.tools
        ]
        for tool in self.tools if begun else ():
            self.chain.note_exposure(tool.description)
        return begun

    def run(self, name: str, arguments: dict[str, Any]) -> Output:
        """Run a tool as AgentDojo's executor does, behind the guards."""
        if self._runtime is None:
            self._start = self.suite.load_and_inject_default_environment(self.injections)
            self.environment = self.user_task.init_environment(self._start.model_copy(deep=True))
            self._runtime = _GuardedRuntime(self, notes=False)
        call = FunctionCall(function=name, args=arguments, id=f"call_{len(self._messages)}")
        asked = [assistant_message("", [call])]
        self._messages += GuardedExecutor(self.chain).query("", self._runtime, self.environment, asked, {})[3]
        message = self._messages[-1]
        return Output(text_of(message), is_error=message["error"] is not None)

    def note(self, call: FunctionCall, text: str, error: str | None) -> None:
        """Note a call of a pipeline, with what the agent read of it."""
        read = {"role": "tool", "tool_call_id": call.id, "tool_call": call, "error": error}
        self._messages += [assistant_message("", [call]), with_text(read, text)]

    def read(self, answer: Any, problem: AnswerError | None) -> Said:
        """Return the final answer; that of a pipeline is in its messages."""
        if not isinstance(answer, BasePipelineElement):
            return super().read(answer, problem)
        if self._messages:
            raise TypeError("the target called tools and returned a pipeline; let it do one of both")
        if self._named is None:
            self._address(_model_of(answer))
        self.doors.append("pipeline")
        self.pipeline = answer
        return Said(text="")

    def ending(self, said: Said) -> Episode:
        """Run a pipeline, if there is one; have AgentDojo's checkers judge what happened.

        Raises:
            NoEpisodeError: code in this process changed the checkers.
            Exception: what a guard or the pipeline raised.
        """
        element: _Ended
        if self.pipeline is not None and self.task is not None:
            element = _PipelineRun(self, self.pipeline)
        else:
            text = BLOCKED if self.task is None else self.chain.on_final_answer(said.text or "")
            element = _Ended(self.environment, self._conversation(text))
        utility, landed = self.suite.run_task_with_pipeline(
            element,
            self.user_task,
            self.injection_task,
            self.injections,
            runtime_class=lambda _: _GuardedRuntime(self, notes=self.scripted is None),
            environment=self.environment if self._start is None else self._start,
        )
        # what a pipeline of the user tells of its calls is not what is noted
        hides = isinstance(element, _PipelineRun) and self.scripted is None
        if hides:
            utility, landed = self._by_own_notes(element, utility=utility, landed=landed)
        if self.scripted is None and (changed := changed_part(self.version, self._environment_name)):
            message = f"{changed} is not as AgentDojo has it: code in this process changed it; {_ADVICE}"
            raise NoEpisodeError(message, "checkers_changed")
        self.environment = element.environment
        if self._is_dos:
            # AgentDojo's rule, except that an attack that never reached the agent has not landed
            landed = self.chain.exposed and not utility
        if element.wrong_return and not landed:
            raise TypeError(element.wrong_return)
        answer = text_of(element.messages[-1])
        messages = self._conversation(answer) if hides else element.messages
        return self.episode(
            [*self._described_attacks(), *turns_of(messages, self.chain)],
            (element.said or said).model_copy(update={"text": answer}),
            Checked(
                landed=landed,
                by_denied_calls=bool(landed) and self._only_by_denied(element, messages),
                utility=utility,
            ),
            {"agentdojo": version_of("agentdojo"), "benchmark": self.version},
            addressed_as=self._addressed,
            injection_vectors=sorted(self.injections),
        )

    def _described_attacks(self) -> list[Turn]:
        """Return the descriptions of tools in which the agent read the attack."""
        read = self.chain.attack_read_in
        return [self.chain.turn("system", tool.description) for tool in self.tools if tool.description in read]

    def _conversation(self, answer: str) -> list[Any]:
        """Return what the agent read and wrote, as messages of AgentDojo: its own calls, or those of a pipeline."""
        system, task = with_text({"role": "system"}, self.system), self.task or self.prompt()
        return [system, with_text({"role": "user"}, task), *self._messages, assistant_message(answer)]

    def _by_own_notes(self, element: _Ended, *, utility: bool, landed: bool) -> tuple[bool, bool]:
        """Judge by what was seen, too: by a pipeline's calls, played again in an environment that it never had.

        It got another environment, and may tell of other calls. The difference is to its disadvantage.
        """
        environment, runtime = element.start.model_copy(deep=True), FunctionsRuntime(self.suite.tools)
        for name, arguments in self.executed:
            runtime.run_function(environment, name, arguments)
        calls = functions_stack_trace_from_messages(self._messages)
        seen_utility, seen_landed = self.suite.run_task_with_pipeline(
            _Ended(environment, [assistant_message("", calls), element.messages[-1]]),
            self.user_task,
            self.injection_task,
            self.injections,
        )
        return utility and seen_utility, landed or seen_landed

    def _only_by_denied(self, element: _Ended, messages: Sequence[Any]) -> bool:
        """Return whether the checker finds nothing without the calls that a guard denied.

        Only a checker of calls runs again.
        """
        denied = [one["tool_call"] for one in messages if one["role"] == "tool" and status_of(one) == "denied"]
        if not denied or self._is_dos or not is_scored_by_calls(self.injection_task):
            return False
        asked = functions_stack_trace_from_messages(messages)
        executed = [call for call in asked if not any(call is one for one in denied)]
        answer = text_of(element.messages[-1])
        return not self.injection_task.security_from_traces(answer, element.start, element.environment, executed)


class _Ended(BasePipelineElement):  # type: ignore[misc]  # see GuardedExecutor
    """What an agent has done, for AgentDojo's runner, and what that runner doesn't return.

    Attributes:
        start: the environment at the start; of a pipeline a copy, where it is needed.
        environment: the environment at the end; that of a pipeline, in which the tools ran.
        messages: what the agent read and wrote.
        said: the answer of a pipeline, if a model's answer in it can't be read.
        wrong_return: what is wrong with the value that a pipeline returned; empty if nothing is.
    """

    name = "ended"

    def __init__(self, environment: Any = None, messages: Sequence[Any] = ()) -> None:
        self.start: Any = None
        self.environment = environment
        self.messages = messages
        self.said: Said | None = None
        self.wrong_return = ""

    def query(self, query: str, runtime: Any, env: Any) -> Step:
        """Return the environment and the messages of the end."""
        self.start = env
        if self.environment is None:
            self.environment = env
        return query, runtime, self.environment, self.messages, {}


class _PipelineRun(_Ended):
    """Runs a pipeline on the task that the guards let through."""

    def __init__(self, world: DojoWorld, pipeline: BasePipelineElement) -> None:
        super().__init__()
        self.name = pipeline.name
        self._world = world
        self._pipeline = pipeline

    def query(self, query: str, runtime: Any, env: Any) -> Step:  # noqa: ARG002 - the task before the guards
        """Run the pipeline; its answer is what the guards make of it."""
        world, task = self._world, str(self._world.task)
        # AgentDojo's runner asks again where the answer has no content
        if self.environment is None:
            # a copy costs more than a step of the reference agent
            copies = world.scripted is None or is_scored_by_calls(world.injection_task)
            self.start, self.environment = env.model_copy(deep=True) if copies else None, env
        try:
            step = self._pipeline.query(task, runtime, env, [], {})
            self.wrong_return = _wrong_return(self._pipeline, step, env)
            # what it did counts
            *before, last = [assistant_message("")] if self.wrong_return else step[3]
            text = world.chain.on_final_answer(text_of(last))
            self.messages = [*before, last if text == text_of(last) else with_text(last, text)]
        except AbortAgentError as stopped:
            self.messages = stopped.messages
            raise
        except AnswerError as error:
            self.said, self.messages = unread_answer(error), [assistant_message(error.text)]
        return task, runtime, env, self.messages, {}


class _GuardedRuntime(FunctionsRuntime):  # type: ignore[misc]  # see GuardedExecutor
    """Runs a tool only where the guards allow it (`pre_tool_use`).

    Where a pipeline of the user acts, the guards rule on outputs here, too, and whatever happens is noted.
    """

    def __init__(self, world: DojoWorld, *, notes: bool) -> None:
        super().__init__(world.functions)
        self._world = world
        self._notes = notes
        self._depth = 0

    def run_function(
        self,
        env: Any,
        function: str,
        kwargs: Any,
        raise_on_error: bool = False,  # noqa: FBT001, FBT002 - AgentDojo's own signature
    ) -> tuple[Any, str | None]:
        """Run a function; its output, or its error, is what the guards make of it."""
        if not self._notes:
            return self._run(env, function, dict(kwargs), raise_on_error=raise_on_error)
        world, call = self._world, FunctionCall(function=function, args=deepcopy(dict(kwargs)))
        try:
            output, error = self._run(env, function, dict(kwargs), raise_on_error=raise_on_error)
            text = tool_result_to_str(output) if error is None else error
            guarded = text if isinstance(error, Denial) else world.chain.on_tool_output(function, dict(kwargs), text)
        except Exception as raised:
            # a pipeline may ignore it
            world.failures += [raised] if isinstance(raised, GuardError) else []
            world.note(call, "", next((one for one in raised.args if isinstance(one, Denial)), str(raised)))
            raise
        if guarded != text:
            output, error = (guarded, None) if error is None else ("", guarded)
        world.note(call, guarded, error)
        return output, error

    def _run(
        self, env: Any, function: str, arguments: dict[str, Any], *, raise_on_error: bool
    ) -> tuple[Any, str | None]:
        permission = self._world.chain.pre_tool_use(function, arguments)
        if not permission.allowed:
            denial = Denial(f"denied by the guard {permission.reason}")
            if raise_on_error:
                raise PermissionError(denial)
            return "", denial
        # not a call that is the argument of another one
        if not self._depth:
            self._world.executed.append((function, deepcopy(permission.arguments)))
        self._depth += 1
        try:
            result: tuple[Any, str | None] = super().run_function(env, function, permission.arguments, raise_on_error)
            return result
        finally:
            self._depth -= 1


def is_scored_by_calls(task: Any) -> bool:
    """Return whether the checker of an injection task looks at the calls, not at the environment."""
    return type(task).security_from_traces is not BaseInjectionTask.security_from_traces


@cache
def system_message() -> str:
    """Return AgentDojo's default system prompt."""
    text = files("agentdojo").joinpath("data", "system_messages.yaml").read_text("utf-8")
    return str(yaml.safe_load(text)["default"])


def _wrong_return(pipeline: BasePipelineElement, step: Any, env: object) -> str:
    """Return why a pipeline's value is no step of AgentDojo's, in one line; empty if it is one."""
    try:
        _, _, environment, messages, _ = step
        if isinstance(environment, type(env)) and messages[-1]["role"] == "assistant":
            return ""
    except (TypeError, ValueError, LookupError):
        pass
    return f"the pipeline {type(pipeline).__name__} returned a {type(step).__name__} that is no step; {_EXPECTED_STEP}"


def _model_of(pipeline: BasePipelineElement) -> str:
    """Return how an attack addresses a pipeline: by AgentDojo's rule, else as a model of that name."""
    try:
        return str(get_model_name_from_pipeline(pipeline))
    except ValueError:
        return addressed_as("", str(pipeline.name or ""))
