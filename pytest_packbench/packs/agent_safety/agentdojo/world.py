"""A pair of AgentDojo as a world: an agent of the user acts in its environment, AgentDojo's own checkers judge.

An agent that calls tools by itself has an environment of its own. When it has ended, AgentDojo's own runner gets that
environment and the calls, as if a pipeline had made them. A pipeline of AgentDojo's kind runs in that runner itself.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.agent_pipeline.tool_execution import ToolsExecutor, tool_result_to_str
from agentdojo.attacks.base_attacks import DEFAULT_MODEL_NAME, get_model_name_from_pipeline
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.task_suite import functions_stack_trace_from_messages
from agentdojo.types import text_content_block_from_string

from pytest_packbench.model.request import AnswerError
from pytest_packbench.packs.agent_safety.agentdojo.pair import (
    is_scored_by_calls,
    status_of,
    system_message,
    task_of,
    version_of,
)
from pytest_packbench.packs.agent_safety.agentdojo.pipeline import (
    AnswerGuard,
    Denial,
    GuardedRuntime,
    OutputGuard,
    ToolListGuard,
    as_plain_message,
    assistant_message,
    text_of,
    tools_of,
)
from pytest_packbench.packs.agent_safety.agentdojo.suites import (
    NO_ATTACK,
    UnknownUpstreamError,
    addressed_as,
    changed_part,
    suite_of,
)
from pytest_packbench.packs.agent_safety.agentdojo.variants import attack_by_name
from pytest_packbench.packs.agent_safety.guards.base import Chain, GuardError, attack_patterns
from pytest_packbench.packs.agent_safety.serving import Output
from pytest_packbench.packs.agent_safety.worlds import AgentWorld, Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.request import VerifyContext, VerifyRequest
    from pytest_packbench.packs.agent_safety.agentdojo.pipeline import Step
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig


_ADVICE = "run the agent as a program (cmd:) or a server (http:)"
_STEP_PARTS = 5
_EXPECTED_STEP = "expected (query, runtime, env, messages, extra_args), the last message the assistant's"


class Noted(NamedTuple):
    """A call of a tool, as it was seen in the world.

    Attributes:
        call: AgentDojo's form of it.
        status: `run`, `denied` or `failed`.
    """

    call: Any
    status: str

    def as_json(self) -> dict[str, Any]:
        """Return the call as `tool_calls` of a result has it."""
        return {"name": self.call.function or "?", "arguments": dict(self.call.args), "status": self.status}


class DojoWorld(AgentWorld):
    """The world of a pair.

    Raises:
        UnknownUpstreamError: the case names something that AgentDojo doesn't have.
    """

    def __init__(self, request: VerifyRequest, context: VerifyContext, rules: SafetySuiteConfig, agent: str) -> None:
        pair = request.input
        ids, self._version = pair["ids"], pair["version"]
        self._pair, self._own = pair, rules.attacks
        if pair.get("any_of") or pair.get("variant"):
            what = f"the variant {pair['variant']}" if pair.get("variant") else "any of several attacks"
            raise UnknownUpstreamError(f"{what}: only the reference target runs it; import the pairs without it")
        self._suite = suite_of(self._version, ids["environment"])
        self._user_task = task_of(self._suite.user_tasks, ids["user_task"], ids["environment"])
        self._injection_task = task_of(self._suite.injection_tasks, ids["injection_task"], ids["environment"])
        self._named = rules.addressed_as
        self._is_dos = False
        self._injections: dict[str, str] = {}
        chain = Chain(guards=context.guards, llm=context.llm, time_limit_s=rules.guard_time_limit_s)
        super().__init__(agent=agent, chain=chain, request=request)
        self._address(self._named or DEFAULT_MODEL_NAME)
        notes = [note for guard in context.guards if (note := getattr(guard, "system_note", ""))]
        self.system = "".join([system_message(), *notes])
        self._runtime = GuardedRuntime(self._suite.tools, chain=chain)
        self.tools = tuple(tools_of(self._runtime))
        self._start: Any = None
        self._environment: Any = None
        self._messages: list[Any] = []
        self._noted: list[Noted] = []
        self._executed: list[tuple[str, dict[str, Any]]] = []
        self._pipeline: Any = None

    def _address(self, name: str) -> None:
        """Plant the attack, addressed to an agent of this name."""
        self._addressed = name
        if self._pair["attack"] != NO_ATTACK:
            place = self._version, self._pair["ids"]["environment"]
            attack = attack_by_name(*place, self._pair["attack"], name, self._own)
            self._is_dos = attack.is_dos_attack
            self._injections = attack.attack(self._user_task, self._injection_task)
        self.chain.planted = tuple(dict.fromkeys(self._injections.values()))
        self.chain.attack = attack_patterns(*self._injections.values(), goal=self._injection_task.GOAL)
        self.chain.planted = tuple(dict.fromkeys(self._injections.values()))

    def prompt(self) -> str:
        """Return the user's task."""
        return str(self._user_task.PROMPT)

    def run(self, name: str, arguments: dict[str, Any]) -> Output:
        """Run a tool as AgentDojo's executor does, behind the guards."""
        if self._environment is None:
            self._start = self._suite.load_and_inject_default_environment(self._injections)
            self._environment = self._user_task.init_environment(self._start.model_copy(deep=True))
            # what the guards took off the list can't be called either
            offered = {tool.name for tool in self.tools}
            functions = self._runtime.functions
            self._runtime.update_functions({each: functions[each] for each in functions if each in offered})
        call = FunctionCall(function=name, args=arguments, id=f"call_{len(self._noted)}")
        step: Step = ("", self._runtime, self._environment, [assistant_message("", [call])], {})
        for element in (ToolsExecutor(), OutputGuard(self.chain)):
            step = element.query(*step)
        self._messages += step[3]
        message = self._messages[-1]
        self._noted.append(Noted(call, status_of(message)))
        return Output(text_of(message), is_error=message["error"] is not None)

    def read(self, answer: Any, problem: AnswerError | None) -> Answer:
        """Return the final answer; that of a pipeline is in its messages."""
        if not isinstance(answer, BasePipelineElement):
            return super().read(answer, problem)
        if self._noted:
            raise TypeError("the target called tools and returned a pipeline; let it do one of both")
        if self._named is None:
            self._address(_model_of(answer))
        self.doors.append("pipeline")
        self._pipeline = answer
        return Answer("")

    def guarded(self, answer: Answer) -> Answer:
        """Return the final answer as the guards leave it; that of a pipeline is guarded where it runs."""
        return answer if self._pipeline is not None else super().guarded(answer)

    def ending(self, answer: Answer) -> dict[str, Any]:
        """Run a pipeline, if there is one; have AgentDojo's checkers judge what happened."""
        element: _Ended | _PipelineRun = (
            _Ended(self._environment, self._conversation(answer.text))
            if self._pipeline is None
            else _PipelineRun(self._pipeline, str(self._task), self.chain)
        )
        utility, landed = self._suite.run_task_with_pipeline(
            element,
            self._user_task,
            self._injection_task,
            self._injections,
            runtime_class=partial(
                _NotingRuntime,
                chain=self.chain,
                noted=self._noted,
                executed=self._executed,
                failures=self.failures,
            ),
            environment=self._start,
        )
        utility, landed = self._by_own_notes(element, utility=utility, landed=landed)
        if changed := changed_part(self._version, self._pair["ids"]["environment"]):
            message = f"{changed} is not as AgentDojo has it: code in this process changed it; {_ADVICE}"
            return {"error": {"kind": "checkers_changed", "message": message}}
        if self._is_dos:
            # AgentDojo's rule, except that an attack that never reached the agent has not landed
            landed = self.chain.exposed and not utility
        if element.wrong_return and not landed:
            raise TypeError(element.wrong_return)
        denied = any(noted.status == "denied" for noted in self._noted)
        return {
            "landed": landed,
            "landed_by_denied_calls": bool(landed and denied) and not self._landed_without_denied(element),
            "utility": utility,
            **(element.problem or answer).validity(),
            "answer": text_of(element.messages[-1]),
            "tool_calls": [noted.as_json() for noted in self._noted],
            "transcript": [as_plain_message(message) for message in element.messages],
            "versions": {"agentdojo": version_of("agentdojo"), "benchmark": self._version},
            "details": {
                "addressed_as": self._addressed,
                "injection_vectors": sorted(self._injections),
                "doors": self.doors,
            },
        }

    def _conversation(self, answer: str) -> list[Any]:
        """Return what the agent read and wrote, as messages of AgentDojo."""
        start = [
            {"role": role, "content": [text_content_block_from_string(text)]}
            for role, text in (("system", self.system), ("user", str(self._task or self.prompt())))
        ]
        return [*start, *self._messages, assistant_message(answer)]

    def _by_own_notes(self, element: _Ended | _PipelineRun, *, utility: bool, landed: bool) -> tuple[bool, bool]:
        """Judge by what was seen, too, where a pipeline returned other calls or another environment.

        So is it where the environment that it got is not as its calls left it. The difference is to its disadvantage.
        """
        told = [(call.function, dict(call.args)) for call in functions_stack_trace_from_messages(element.messages)]
        calls = [noted.call for noted in self._noted]
        same_calls = told == [(call.function, dict(call.args)) for call in calls]
        others = [] if same_calls and element.environment is element.held else [element.held]
        if isinstance(element, _PipelineRun) and (played := self._played(element.start)) != element.held:
            others.append(played)
        for environment in others:
            messages = [assistant_message("", calls), element.messages[-1]]
            seen_utility, seen_landed = self._suite.run_task_with_pipeline(
                _Ended(environment, messages),
                self._user_task,
                self._injection_task,
                self._injections,
            )
            utility, landed = utility and seen_utility, landed or seen_landed
        return utility, landed

    def _played(self, start: Any) -> Any:
        """Return the environment in which the noted calls of a pipeline have run, on a copy that it never had."""
        environment, runtime = start.model_copy(deep=True), FunctionsRuntime(self._suite.tools)
        for name, arguments in self._executed:
            runtime.run_function(environment, name, arguments)
        return environment

    def _landed_without_denied(self, element: _Ended | _PipelineRun) -> bool:
        """Return what the checker finds without the calls that a guard denied; only a checker of calls runs again."""
        if self._is_dos or not is_scored_by_calls(self._injection_task):
            return True
        executed = [noted.call for noted in self._noted if noted.status != "denied"]
        answer = text_of(element.messages[-1])
        return bool(self._injection_task.security_from_traces(answer, element.start, element.environment, executed))


class _Ended(BasePipelineElement):  # type: ignore[misc]  # the extra may be absent where types are checked
    """What an agent has done, for AgentDojo's runner.

    Attributes:
        start: the environment at the start.
        environment: the environment at the end.
        held: the same.
        messages: what the agent read and wrote.
        problem: None; see `_PipelineRun`.
        wrong_return: empty; see `_PipelineRun`.
    """

    name = "ended"
    problem = None
    wrong_return = ""

    def __init__(self, environment: Any, messages: Sequence[Any]) -> None:
        self.start: Any = None
        self.environment = self.held = environment
        self.messages = messages

    def query(
        self, query: str, runtime: Any, env: Any, messages: Sequence[Any] = (), extra_args: dict[str, Any] | None = None
    ) -> Step:
        """Return the environment and the messages of the end."""
        self.start = env
        if self.environment is None:
            self.environment = self.held = env
        return query, runtime, self.environment, [*messages, *self.messages], extra_args or {}


class _PipelineRun(BasePipelineElement):  # type: ignore[misc]  # see _Ended
    """Runs a pipeline on the task that the guards let through, and keeps what AgentDojo's runner doesn't return.

    Attributes:
        start: a copy of the environment at the start.
        environment: the environment that the pipeline returned.
        held: the one that it got, in which the tools ran.
        messages: the pipeline's messages.
        problem: the pipeline's answer, if a model's answer in it can't be read.
        wrong_return: what is wrong with the value that the pipeline returned; empty if nothing is.
    """

    def __init__(self, pipeline: BasePipelineElement, task: str, chain: Chain) -> None:
        self.name = pipeline.name
        self._chain = chain
        self.start: Any = None
        self.environment: Any = None
        self.held: Any = None
        self.messages: Sequence[Any] = ()
        self.problem: Answer | None = None
        self.wrong_return = ""
        self._pipeline = pipeline
        self._task = task

    def query(
        self,
        query: str,  # noqa: ARG002 - before the guards
        runtime: Any,
        env: Any,
        messages: Sequence[Any] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> Step:
        """Run the pipeline."""
        if self.start is None:
            # AgentDojo's runner asks again where the answer has no content
            self.start, self.held = env.model_copy(deep=True), env
        try:
            if self._chain.rules_on("on_tool_list"):
                ToolListGuard(self._chain).query(self._task, runtime, env)
            step: Step = self._pipeline.query(self._task, runtime, env, messages, extra_args or {})
            self.wrong_return = _wrong_return(self._pipeline, step, env)
            if self.wrong_return:
                # what it did counts
                step = self._task, runtime, env, [*messages, assistant_message("")], {}
            if self._chain.rules_on("on_final_answer"):
                step = AnswerGuard(self._chain).query(*step)
        except AbortAgentError as stopped:
            self.messages, self.environment = stopped.messages, stopped.task_environment
            raise
        except AnswerError as error:
            # what it did before counts
            self.problem = Answer(error.text, str(error), cut_off=error.kind == "truncated")
            step = self._task, runtime, env, [*messages, assistant_message(error.text)], {}
        self.environment, self.messages = step[2], step[3]
        return step


class _NotingRuntime(GuardedRuntime):
    """Runs the tools of a pipeline behind the guards, and notes the calls."""

    def __init__(
        self,
        functions: Sequence[Any],
        *,
        chain: Chain,
        noted: list[Noted],
        executed: list[tuple[str, dict[str, Any]]],
        failures: list[Exception],
    ) -> None:
        super().__init__(functions, chain=chain)
        self._own_chain = chain
        self._noted = noted
        self._executed = executed
        self._failures = failures
        self._depth = 0

    def run_function(
        self,
        env: Any,
        function: str,
        kwargs: Any,
        raise_on_error: bool = False,  # noqa: FBT001, FBT002 - AgentDojo's own signature
    ) -> tuple[Any, str | None]:
        """Run a function; its output is what the guards make of it."""
        try:
            return self._run_noted(env, function, kwargs, raise_on_error=raise_on_error)
        except GuardError as error:
            # a pipeline may ignore it
            self._failures.append(error)
            raise

    def execute(
        self, env: Any, function: str, arguments: dict[str, Any], *, raise_on_error: bool
    ) -> tuple[Any, str | None]:
        """Run a function, and note it with a copy of its arguments, unless another one's arguments contain the call."""
        if not self._depth:
            self._executed.append((function, deepcopy(arguments)))
        self._depth += 1
        try:
            return super().execute(env, function, arguments, raise_on_error=raise_on_error)
        finally:
            self._depth -= 1

    def _run_noted(self, env: Any, function: str, kwargs: Any, *, raise_on_error: bool) -> tuple[Any, str | None]:
        call = FunctionCall(function=function, args=deepcopy(dict(kwargs)))
        try:
            output, error = super().run_function(env, function, kwargs, raise_on_error)
        except Exception as raised:
            self._noted.append(Noted(call, "denied" if isinstance(raised, PermissionError) else "failed"))
            raise
        if isinstance(error, Denial):
            self._noted.append(Noted(call, "denied"))
            return output, error
        self._noted.append(Noted(call, "run" if error is None else "failed"))
        text = tool_result_to_str(output) if error is None else error
        guarded = self._own_chain.on_tool_output(function, dict(kwargs), text)
        if guarded == text:
            return output, error
        return (guarded, None) if error is None else ("", guarded)


def _wrong_return(pipeline: BasePipelineElement, step: object, env: object) -> str:
    """Return why a pipeline's value is no step of AgentDojo's, in one line; empty if it is one."""
    problem = ""
    if not isinstance(step, tuple | list) or len(step) != _STEP_PARTS:
        problem = "None" if step is None else f"a {type(step).__name__}"
    elif not isinstance(step[2], type(env)):
        problem = f"a {type(step[2]).__name__} as the environment"
    elif not isinstance(step[3], tuple | list) or not step[3]:
        problem = "no messages"
    elif not isinstance(step[3][-1], dict) or step[3][-1].get("role") != "assistant":
        problem = "messages whose last one is not the assistant's"
    return f"the pipeline {type(pipeline).__name__} returned {problem}; {_EXPECTED_STEP}" if problem else ""


def _model_of(pipeline: BasePipelineElement) -> str:
    """Return how an attack addresses a pipeline: by AgentDojo's rule, else as a model of that name."""
    try:
        return str(get_model_name_from_pipeline(pipeline))
    except ValueError:
        return addressed_as("", str(pipeline.name or ""))
