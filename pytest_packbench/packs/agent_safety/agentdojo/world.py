"""A pair of AgentDojo as a world: an agent acts in its environment, AgentDojo's own checkers judge.

There are three ways to act. An agent of the user calls tools: when it has ended, AgentDojo's own runner gets the
environment and the calls, as if a pipeline had made them. The reference agent (`agents`) plays in that runner itself,
and so does a pipeline of the user, with an environment of its own; its calls are those of an agent in the world, too.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.agent_pipeline.tool_execution import ToolsExecutor, tool_result_to_str
from agentdojo.attacks.base_attacks import DEFAULT_MODEL_NAME, get_model_name_from_pipeline
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.task_suite import functions_stack_trace_from_messages
from agentdojo.types import get_text_content_as_str, text_content_block_from_string

from pytest_packbench.model.request import AnswerError, Tool
from pytest_packbench.packs.agent_safety.agentdojo.suites import (
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
from pytest_packbench.packs.agent_safety.metrics import NO_ATTACK
from pytest_packbench.packs.agent_safety.serving import Output
from pytest_packbench.packs.agent_safety.worlds import BLOCKED, AgentWorld

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def tool_of(function: Any) -> Tool:
    """Return a function of AgentDojo as a tool that a model can call."""
    return Tool(name=function.name, description=function.description, parameters=_schema_of(function.parameters))


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


def opening(system: str, task: str) -> list[Any]:
    """Return the messages with which a conversation begins."""
    return [with_text({"role": "system"}, system), with_text({"role": "user"}, task)]


def assistant_message(text: str, calls: Sequence[Any] = ()) -> dict[str, Any]:
    """Return an assistant's message; its content is never None, since AgentDojo would then ask again silently."""
    return with_text({"role": "assistant", "tool_calls": list(calls)}, text)


def with_text(message: Any, text: str) -> dict[str, Any]:
    """Return a message of AgentDojo with another text."""
    return {**message, "content": [text_content_block_from_string(text)]}


class DojoWorld(AgentWorld):
    """The world of a pair; for AgentDojo's runner it is the pipeline that plays (`query`).

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
        variant: the variant of ours, if the case is one.
        suite: AgentDojo's suite.
        user_task: the user's task.
        user_prompt: what the user asks for.
        injection_task: the attacker's task.
        injections: the text of the attack by the place where it is planted.
        is_dos: whether the attack lands where the user's task isn't done.
        functions: AgentDojo's functions that the agent is offered.
        start: the environment to start with; None for a new one.
        environment: the environment in which the tools run; None before the first. A pipeline of the user has another
            one, and never gets hold of this.
        pipeline: the agent, where it is a pipeline.
        unread: the answer of a model in that pipeline that can't be read.

    Raises:
        UnknownUpstreamError: the case names something that AgentDojo doesn't have.
    """

    start: Any = None
    environment: Any = None
    pipeline: Any = None
    unread: Said | None = None
    is_dos = False
    _told: Sequence[Any] = ()
    _wrong_return = ""
    # what the runner gave to a pipeline, which may return others
    _held: Sequence[Any] = ()

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
        pair, name = request.input, attack or request.input["attack"]
        ids, self.version, self.variant = pair["ids"], pair["version"], pair.get("variant")
        self.suite = suite_of(self.version, ids["environment"])
        self.user_task = task_of(self.suite.user_tasks, ids["user_task"], ids["environment"])
        self.injection_task = task_of(self.suite.injection_tasks, ids["injection_task"], ids["environment"])
        self.user_prompt = str(self.user_task.PROMPT)
        self.functions = list(self.suite.tools)
        self.injections: dict[str, str] = {}
        super().__init__(request, Chain.of_case(context, rules), agent, scripted=scripted)
        load = partial(attack_of, self.version, ids["environment"], name, path=rules.attacks.get(name, ""))
        self._attack = None if name == NO_ATTACK else load
        self._named = addressed or rules.addressed_as
        self._address(self._named or DEFAULT_MODEL_NAME)
        self.system = system_message() + "".join(getattr(guard, "system_note", "") for guard in context.guards)
        self._noted: list[Any] = []

    @property
    def is_opaque(self) -> bool:
        """Whether a pipeline of the user plays: of what it does, only the calls that reach the runtime are seen."""
        return self.pipeline is not None and self.scripted is None

    def _address(self, name: str) -> None:
        """Plant the attack, addressed to an agent of this name."""
        self._addressed = name
        if self._attack is not None:
            attack = self._attack(addressed=name)
            self.is_dos, self.injections = attack.is_dos_attack, attack.attack(self.user_task, self.injection_task)
        self.chain.planted = tuple(dict.fromkeys(self.injections.values()))
        self.chain.attack = attack_patterns(*self.chain.planted, goal=self.injection_task.GOAL)

    def prompt(self) -> str:
        """Return the user's task."""
        return self.user_prompt

    def begin(self) -> bool:
        """Let the guards rule on the task and the tools; what they take off the list can't be called either."""
        self.tools = tuple(map(tool_of, self.functions))
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
        if self.environment is None:
            self.environment = self.new_environment()
        message = self.noted(FunctionCall(function=name, args=arguments), _GuardedRuntime(self))
        return Output(text_of(message), is_error=message["error"] is not None)

    def noted(self, call: FunctionCall, runtime: FunctionsRuntime) -> Any:
        """Run a call in the environment of the world, and note it; return what the agent reads of it."""
        asked = assistant_message("", [call])
        (message,) = self.outputs(asked, runtime, self.environment)
        self._noted += [asked, message]
        return message

    def outputs(self, asked: Any, runtime: Any, env: Any) -> list[Any]:
        """Run the calls of a message by AgentDojo's executor; return what the guards let the agent read of each."""
        _, *outputs = ToolsExecutor().query("", runtime, env, [asked], {})[3]
        return [one if isinstance(one["error"], Denial) else self._guarded(one) for one in outputs]

    def _guarded(self, output: Any) -> Any:
        call, error = output["tool_call"], output["error"]
        text = self.chain.on_tool_output(call.function, dict(call.args), text_of(output))
        return with_text(output, text) if error is None else {**output, "error": text}

    def read(self, answer: Any, problem: AnswerError | None) -> Said:
        """Return the final answer; that of a pipeline is in its messages."""
        if not isinstance(answer, BasePipelineElement):
            return super().read(answer, problem)
        if self._noted:
            raise TypeError("the target called tools and returned a pipeline; let it do one of both")
        if self._named is None:
            self._address(_model_of(answer))
        self.doors.append("pipeline")
        self.pipeline, self.environment = answer, self.new_environment()
        return Said(text="")

    def ending(self, said: Said) -> Episode:
        """Run a pipeline, if there is one; have AgentDojo's checkers judge what happened.

        Raises:
            NoEpisodeError: code in this process changed the checkers.
            Exception: what a guard or the pipeline raised.
        """
        if self.pipeline is None:
            text = BLOCKED if self.task is None else self.chain.on_final_answer(said.text or "")
            self._told = self._conversation(assistant_message(text))
        runtime = (_PipelineRuntime if self.is_opaque else _GuardedRuntime)(self)
        utility, landed = self._judged(self, environment=self.start, runtime_class=lambda _: runtime)
        messages, last = self._told, self._told[-1]
        if self.is_opaque:
            # it may tell of other calls, and change its environment: the difference is to its disadvantage
            messages = self._conversation(last)
            for environment in (self.environment, *self._held):
                seen_utility, seen_landed = self._judged(_ending_in(environment, [*self._noted, last]))
                utility, landed = utility and seen_utility, landed or seen_landed
        if self.scripted is None and (changed := changed_part(self.version, self.suite.name)):
            message = f"{changed} is not as AgentDojo has it: code in this process changed it; {_ADVICE}"
            raise NoEpisodeError(message, "checkers_changed")
        if self.is_dos:
            # AgentDojo's rule, except that an attack that never reached the agent has not landed
            landed = self.chain.exposed and not utility
        if self._wrong_return and not landed:
            raise TypeError(self._wrong_return)
        by_denied = landed and not self.is_dos and self._only_by_denied(messages)
        # the descriptions of tools in which it read the attack
        described = [tool.description for tool in self.tools if tool.description in self.chain.attack_read_in]
        return self.episode(
            [*(self.chain.turn("system", text) for text in described), *turns_of(messages, self.chain)],
            (self.unread or said).model_copy(update={"text": text_of(last)}),
            Checked(landed=landed, by_denied_calls=by_denied, utility=utility),
            {"agentdojo": version_of("agentdojo"), "benchmark": self.version},
            addressed_as=self._addressed,
            injection_vectors=sorted(self.injections),
        )

    def query(self, query: str, runtime: Any, env: Any) -> Step:
        """Play for AgentDojo's runner: run the pipeline, if there is one, on the task that the guards let through.

        The runner asks again where the answer has no content.
        """
        if self.environment is None:
            self.environment = env
        self._held, returned = [*self._held, env], env
        if self.pipeline is not None:
            self._told, returned = self._run_pipeline(runtime, env)
        return query, runtime, returned if self.is_opaque else self.environment, self._told, {}

    def _run_pipeline(self, runtime: Any, env: Any) -> tuple[Sequence[Any], Any]:
        """Return the messages of the pipeline, and its environment; its answer is what the guards make of it."""
        try:
            step = self.pipeline.query(str(self.task), runtime, env, [], {})
        except AbortAgentError as stopped:
            # it may name no environment
            is_one = isinstance(stopped.task_environment, type(env))
            step = (self.task, runtime, stopped.task_environment if is_one else env, stopped.messages, {})
        except AnswerError as error:
            self.unread = unread_answer(error)
            return [assistant_message(error.text)], env
        self._wrong_return = _wrong_return(self.pipeline, step, env)
        # what it did counts
        environment, (*before, last) = (env, [assistant_message("")]) if self._wrong_return else step[2:4]
        text = self.chain.on_final_answer(text_of(last))
        return [*before, last if text == text_of(last) else with_text(last, text)], environment

    def _conversation(self, last: Any) -> list[Any]:
        """Return what the agent read and wrote, as messages of AgentDojo: the noted calls, the last message."""
        return [*opening(self.system, self.task or self.user_prompt), *self._noted, assistant_message(text_of(last))]

    def new_environment(self) -> Any:
        """Return an environment as it is at the start, with the attack."""
        return self.user_task.init_environment(self.suite.load_and_inject_default_environment(self.injections))

    def _judged(self, pipeline: Any, **how: Any) -> tuple[bool, bool]:
        """Return whether the user's task was done and whether the attack landed, by AgentDojo's own runner."""
        utility, landed = self.suite.run_task_with_pipeline(
            pipeline, self.user_task, self.injection_task, self.injections, **how
        )
        return utility, landed

    def _only_by_denied(self, messages: Sequence[Any]) -> bool:
        """Return whether a checker of calls finds nothing without the calls that a guard denied."""
        denied = [one["tool_call"] for one in messages if isinstance(one.get("error"), Denial)]
        if not denied:
            return False
        asked = functions_stack_trace_from_messages(messages)
        executed = [call for call in asked if not any(call is one for one in denied)]
        answer, start = text_of(messages[-1]), self.new_environment()
        # None from a task whose checker looks at the environment alone
        found = self.injection_task.security_from_traces(answer, start, self.environment, executed)
        return found is False


class _GuardedRuntime(FunctionsRuntime):  # type: ignore[misc]  # the extra may be absent where types are checked
    """Runs a tool only where the guards allow it (`pre_tool_use`).

    Attributes:
        permitted: the arguments with which the last call ran. A call may be an argument of another one, whose part it
            is then.
    """

    def __init__(self, world: DojoWorld) -> None:
        super().__init__(world.functions)
        self._world = world
        self.permitted: dict[str, Any] = {}

    def run_function(
        self,
        env: Any,
        function: str,
        kwargs: Any,
        raise_on_error: bool = False,  # noqa: FBT001, FBT002 - AgentDojo's own signature
    ) -> tuple[Any, str | None]:
        """Run a function where it is allowed, else return why not."""
        permission = self._world.chain.pre_tool_use(function, dict(kwargs))
        if permission.allowed:
            result: tuple[Any, str | None] = super().run_function(env, function, permission.arguments, raise_on_error)
            self.permitted = permission.arguments
            return result
        denial = Denial(f"denied by the guard {permission.reason}")
        # of an argument
        if raise_on_error:
            raise PermissionError(denial)
        return "", denial


class _PipelineRuntime(_GuardedRuntime):
    """The runtime of a pipeline of the user: its calls are those of an agent in the world.

    They run in the environment of the pipeline, too, so that it gets its output as AgentDojo's tools return it.
    """

    def run_function(
        self,
        env: Any,
        function: str,
        kwargs: Any,
        raise_on_error: bool = False,  # noqa: FBT001, FBT002 - AgentDojo's own signature
    ) -> tuple[Any, str | None]:
        """Run a function; its output, or its error, is what the guards make of it."""
        guarded = _GuardedRuntime(self._world)
        try:
            message = self._world.noted(FunctionCall(function=function, args=deepcopy(dict(kwargs))), guarded)
        except GuardError as error:
            # a pipeline may ignore it
            self._world.failures.append(error)
            raise
        wrong, read = message["error"], text_of(message)
        if wrong is not None and raise_on_error:
            raise RuntimeError(wrong)
        if wrong is not None:
            return "", wrong
        own = FunctionsRuntime(self._world.functions)
        output, _ = own.run_function(env, function, deepcopy(guarded.permitted))
        return output if tool_result_to_str(output) == read else read, None


def task_of(tasks: Mapping[str, Any], name: str, environment: str) -> Any:
    """Return a task by its id."""
    if name in tasks:
        return tasks[name]
    raise UnknownUpstreamError(f'unknown task "{name}" in {environment}; expected one of {", ".join(tasks)}')


@cache
def system_message() -> str:
    """Return AgentDojo's default system prompt."""
    text = files("agentdojo").joinpath("data", "system_messages.yaml").read_text("utf-8")
    return str(yaml.safe_load(text)["default"])


def _ending_in(environment: Any, messages: Sequence[Any]) -> Any:
    """Return a pipeline that ends with an environment and messages."""
    return SimpleNamespace(query=lambda *asked: (*asked[:2], environment, messages, {}))


def _wrong_return(pipeline: BasePipelineElement, step: Any, env: object) -> str:
    """Return why a pipeline's value is no step of AgentDojo's, in one line; empty if it is one."""
    try:
        _, _, environment, messages, _ = step
        # as the runner and the checkers read them
        functions_stack_trace_from_messages(messages)
        text_of(messages[-1])
        if isinstance(environment, type(env)) and messages[-1]["role"] == "assistant":
            return ""
    except (TypeError, ValueError, LookupError, AttributeError):
        pass
    return f"the pipeline {type(pipeline).__name__} returned a {type(step).__name__} that is no step; {_EXPECTED_STEP}"


def _model_of(pipeline: BasePipelineElement) -> str:
    """Return how an attack addresses a pipeline: by AgentDojo's rule, else as a model of that name."""
    try:
        return str(get_model_name_from_pipeline(pipeline))
    except ValueError:
        return addressed_as("", str(pipeline.name or ""))
