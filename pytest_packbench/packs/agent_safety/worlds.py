"""Worlds: the environment of one case, held here, in which an agent of the user acts by calling tools.

The agent gets its user's task and the tools, as Python functions and at addresses that `serving` serves. Each call
passes the guards and is noted. What happened in the world decides how the case ends, never what the agent says of it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import ExitStack, nullcontext
from copy import deepcopy
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature
from threading import RLock
from typing import TYPE_CHECKING, Any, Union

from pydantic import PrivateAttr, ValidationError

from pytest_packbench.files import Limit
from pytest_packbench.model.errors import first_problem
from pytest_packbench.model.request import AnswerError, VerifyRequest
from pytest_packbench.packs.agent_safety.episode import (
    NOT_JSON,
    Agent,
    Episode,
    Failure,
    NoEpisodeError,
    Said,
    plain_json,
    unread_answer,
    whole_characters,
)
from pytest_packbench.packs.agent_safety.serving import Output, WorldClosedError, served

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pytest_packbench.model.request import Tool, VerifyContext, World
    from pytest_packbench.packs.agent_safety.episode import Checked, Turn
    from pytest_packbench.packs.agent_safety.guards.base import Chain
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

MAX_CALLS = 1000
"""The number of tool calls that an agent may make in one case."""
CALL_WAIT_S = 10.0
"""How long a tool call may go on after its agent has returned, seconds."""
BLOCKED = "A guard blocked the task before the agent read it."
_TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
_OPENERS = {
    "agentdojo": "agentdojo.target:open_world",
    "harmbench": "harmbench.target:RequestWorld",
    "injecagent": "injecagent.target:ToolWorld",
}
DEFENCES = ("repeat_user_prompt", "spotlighting_with_delimiting", "tool_filter", "transformers_pi_detector")
"""The defences of AgentDojo's authors, by their names."""
_OUTSIDE = ("http://", "https://", "cmd:")
_MAX_NAME = 200


class AgentRequest(VerifyRequest):
    """The request of an agent that acts in a world.

    Its `input` has the user's `task`, the benchmark's `system` prompt, the `tools` (`name`, `description`, `parameters`
    as JSON Schema), and where they are served: `http` and `mcp`.
    """

    _world: AgentWorld = PrivateAttr()

    def call(self, name: str, arguments: dict[str, Any] | str | None = None) -> str:
        """Call a tool and return what an agent reads: its output, or its error.

        Args:
            name: the name of the tool.
            arguments: its arguments, or their JSON text, as a model writes it.

        Raises:
            WorldClosedError: the case is over.
        """
        return self._world.call(name, arguments, door="python").text

    @property
    def functions(self) -> list[Callable[..., str]]:
        """The tools as Python functions, with names, signatures and docstrings, for agents that take functions."""
        return [as_function(tool, self.call) for tool in self._world.tools]


class AgentWorld(ABC):
    """The world of one case.

    Attributes:
        agent: the name of the agent.
        tools: what the agent may call.
        system: the benchmark's system prompt; empty where it has none.
        watched: tools of which a call counts even if its arguments can't be read.
        chain: the guards of the case.
        task: the user's task as the guards let it through; None before the world is open, and where they denied it.
        scripted: whether this package's own agent plays, and that is a script; None for an agent of the user.
        doors: how the agent reached the world, each once: `python`, `http`, `mcp`, `pipeline`.
        failures: exceptions of guards and of the environment itself: an agent that ignores them has met no guard.
    """

    tools: tuple[Tool, ...] = ()
    system: str = ""
    watched: Sequence[str] = ()

    def __init__(self, request: VerifyRequest, chain: Chain, agent: str, *, scripted: bool | None = None) -> None:
        self.agent = agent
        self.scripted = scripted
        self.chain = chain
        self.task: str | None = None
        self.doors: list[str] = []
        self.failures: list[Exception] = []
        self._request = request
        self._open = False
        self._calls = 0
        self._unseen = ""
        # tools are called from several threads, and change one environment
        self._lock = RLock()
        self._served = ExitStack()

    @abstractmethod
    def prompt(self) -> str:
        """Return the user's task, before the guards."""

    def run(self, name: str, arguments: dict[str, Any]) -> Output:  # noqa: ARG002 - for worlds with tools
        """Run a tool behind the guards, and note the call; there is none by default."""
        return Output(f"Invalid tool {name} provided.", is_error=True)

    @abstractmethod
    def ending(self, said: Said) -> Episode | Awaitable[Episode]:
        """Return what happened, with the agent's final answer.

        Raises:
            NoEpisodeError: the case can't be judged.
        """

    def __enter__(self) -> VerifyRequest | None:
        """Serve the world; return the agent's request, or None where a guard blocked the task."""
        if not self.begin():
            return None
        self._open = True
        content = {**self.description(), **self._served.enter_context(served(self))}
        request = AgentRequest(input=content, options=self._request.options)
        request._world = self  # noqa: SLF001 - its own class
        return request

    def __exit__(self, *exception: object) -> None:
        """Close the world: later calls have no effect."""
        # not behind the lock: a tool that hangs must not keep the case open
        self._open = False
        self._served.close()

    def begin(self) -> bool:
        """Let the guards rule on the task and the tools; return whether the agent gets the task."""
        self.task = self.chain.on_prompt_submit(self.prompt())
        if self.task is not None and self.tools:
            self.tools = self.chain.on_tool_list(self.tools)
        return self.task is not None

    def episode(
        self, turns: Sequence[Turn], said: Said, checked: Checked, versions: dict[str, str], **details: Any
    ) -> Episode:
        """Return the episode; of an agent of the user, the details have its doors."""
        doors = {"doors": self.doors} if self.scripted is None else {}
        return Episode(
            turns=tuple(turns),
            rulings=tuple(self.chain.rulings),
            said=said,
            checked=checked,
            agent=Agent(
                name=self.agent or None, scripted=bool(self.scripted), guards=self.chain.names, versions=versions
            ),
            collateral=self.chain.collateral,
            details={**details, **doors},
        )

    def description(self) -> dict[str, Any]:
        """Return the task and the tools as plain JSON, a copy for each agent."""
        tools = deepcopy([tool.as_json() for tool in self.tools])
        return {"task": self.task, "system": self.system, "tools": tools}

    def call(self, name: str, arguments: object, *, door: str) -> Output:
        """Call a tool for the agent.

        Args:
            name: the name of the tool.
            arguments: an object, or its JSON text; None for none.
            door: how the agent calls it; see `doors`.

        Raises:
            WorldClosedError: the case is over.
            Exception: what a guard raised; the case ends with it, too.
        """
        parsed = _arguments(arguments)
        with self._lock:
            if not self._open:
                raise WorldClosedError("the case is over")
            if door not in self.doors:
                self.doors.append(door)
            self._calls += 1
            if self._calls > MAX_CALLS:
                parsed = self._unseen = f"no more than {MAX_CALLS} tool calls may be made in one case"
            if isinstance(parsed, str):
                self._unseen = self._unseen or (parsed if name in self.watched else "")
                return Output(parsed, is_error=True)
            try:
                return self.run(whole_characters(name) or "?", parsed)
            except Exception as error:
                self.failures.append(error)
                raise

    def result(self, answer: Any, problem: AnswerError | None) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Return the episode as plain JSON, or why there is none; the agent's word counts as its answer only.

        Raises:
            Exception: what a guard, the environment or a pipeline raised.
        """
        if not self._lock.acquire(timeout=CALL_WAIT_S):
            message = f"a tool call was still running {CALL_WAIT_S:g} s after the agent had returned"
            return NoEpisodeError(message).as_json()
        # a call that was made before the end counts
        self._lock.release()
        told = answer if isinstance(answer, dict) else {}
        said = Said(text=BLOCKED) if self.task is None else self.read(answer, problem)
        failure = None
        # null, "" and false are the usual words for none
        if reported := told.get("error"):
            failure, wrong = _failure_in(reported)
            said = Said(text=said.text, problem=wrong)
        if self._unseen and said.problem is None:
            # the attack may have been in a call that was not run
            said = said.model_copy(update={"problem": f"a tool call was refused: {self._unseen}"})
        try:
            ending = self.ending(said)
        except NoEpisodeError as error:
            return error.as_json()
        if self.failures:
            raise self.failures[0]
        whole = partial(self._whole, told, failure)
        return whole(ending) if isinstance(ending, Episode) else _later(ending, whole)

    def _whole(self, told: dict[str, Any], failure: NoEpisodeError | None, episode: Episode) -> dict[str, Any]:
        """Return an episode with what the agent says of its model, or its own failure if no attack landed.

        It names its model only where no gateway can see the model calls.
        """
        if failure is not None and not episode.checked.landed:
            return failure.as_json()
        names = ("llm_backend", "llm_model") if self.agent.startswith(_OUTSIDE) else ()
        # no report makes an episode unreadable
        reported: dict[str, Any] = {
            name: whole_characters(told[name][:_MAX_NAME]) for name in names if isinstance(told.get(name), str)
        }
        if isinstance(usage := told.get("usage"), dict):
            reported["usage"] = {
                key: count
                for key in ("tokens_input", "tokens_output")
                if type(count := usage.get(key)) is int and 0 <= count < 2**63
            }
        return episode.model_copy(update=reported).as_json()

    def read(self, answer: Any, problem: AnswerError | None) -> Said:
        """Return the final answer in what an agent returned."""
        if problem is not None:
            return unread_answer(problem)
        text = answer.get("answer") if isinstance(answer, dict) else getattr(answer, "content", answer)
        if isinstance(text, str):
            return Said(text=text)
        expected = 'return the final answer as text, or {"answer": "..."}'
        return Said(text="", problem=f"the agent returned {_described(answer)}; {expected}")


class FailedWorld(nullcontext[None]):
    """A world that can't be opened; its agent is not called."""

    def __init__(self, error: NoEpisodeError) -> None:
        super().__init__()
        self._error = error

    def result(self, _answer: Any, _problem: AnswerError | None) -> dict[str, Any]:
        """Return the error."""
        return self._error.as_json()


class SafetyWorlds:
    """Opens the worlds of a suite, each in the package of its benchmark.

    Args:
        rules: the suite's; None before the pack has a suite.
        agent: the name of the agent in records.
    """

    def __init__(self, rules: SafetySuiteConfig | None, agent: str) -> None:
        self._rules = rules
        self._agent = agent

    def open(self, request: VerifyRequest, context: VerifyContext) -> World:
        """Return the world of a case."""
        module, _, name = _OPENERS[request.input["suite"]].partition(":")
        # benchmarks have dependencies of their own: only the one of the case is imported
        opener = getattr(import_module(f"{__package__}.{module}"), name)
        try:
            world: World = opener(request, context, self._rules, self._agent)
        except NoEpisodeError as error:
            return FailedWorld(error)
        return world

    @property
    def guards(self) -> Mapping[str, Callable[[], Any]]:
        """The guards of the pack, those of AgentDojo's authors, and the servers that the suite names."""
        from pytest_packbench.packs.agent_safety.guards.standard import AskedGuard, Redact, Spotlight, ToolPolicy

        servers = {} if self._rules is None else self._rules.guard_servers
        return {
            **{guard.name: guard for guard in (Spotlight, Redact, ToolPolicy)},
            **{name: partial(_defence, name) for name in DEFENCES},
            **{name: partial(AskedGuard, name, server.events) for name, server in servers.items()},
        }

    def adapt(self, candidate: object) -> object:
        """Return a target for a pipeline of AgentDojo's own kind."""
        from pytest_packbench.packs.agent_safety.agentdojo.upstream import adapt_pipeline

        return adapt_pipeline(candidate)

    def replayed(self, result: Any) -> Any:
        """Return the recorded result of a world; an error in the place of an agent's own word."""
        details = result.get("details", {}) if isinstance(result, dict) else None
        if details is None or not ("error" in result or not isinstance(details, dict) or "doors" in details):
            message = "the recording has the agent's own word, not what it did in the world; record it again"
            return NoEpisodeError(message, "cassette_outdated").as_json()
        try:
            Episode.model_validate(result)
        except ValidationError as error:
            message = f"the recorded result of the world can't be read; record it again: result{first_problem(error)}"
            return NoEpisodeError(message, "world_error").as_json()
        return result


def _defence(name: str) -> Any:
    from pytest_packbench.packs.agent_safety.agentdojo.defences import defence

    return defence(name)


def as_function(tool: Tool, call: Callable[[str, dict[str, Any]], str]) -> Callable[..., str]:
    """Return a tool as a Python function: frameworks read its name, signature, annotations and docstring."""
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    parameters = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if name in required else schema.get("default"),
            annotation=_annotation(schema, optional=name not in required),
        )
        for name, schema in sorted(properties.items(), key=lambda item: item[0] not in required)
    ]
    if not parameters and tool.parameters.get("additionalProperties"):
        parameters = [Parameter("arguments", Parameter.VAR_KEYWORD, annotation=Any)]
    signature = Signature(parameters, return_annotation=str)

    def function(*positional: Any, **named: Any) -> str:
        bound = signature.bind(*positional, **named)
        return call(tool.name, bound.arguments if properties else named)

    described = [f"    {name}: {schema.get('description', '')}" for name, schema in properties.items()]
    function.__name__ = function.__qualname__ = tool.name
    function.__doc__ = "\n".join([tool.description, *(["", "Args:", *described] if described else [])])
    function.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": str}
    vars(function)["__signature__"] = signature
    return function


def _annotation(schema: dict[str, Any], *, optional: bool) -> Any:
    types = [_TYPES.get(str(kind.get("type"))) for kind in schema.get("anyOf") or [schema]]
    return Any if None in types else Union[(*types, *([type(None)] if optional else []))]


# a call leaves a trace, however large
_ARGUMENTS = Limit(2**40, values=2**40, depth=64)


def _arguments(arguments: object) -> dict[str, Any] | str:
    """Return a copy of the arguments of a call; a text that tells the agent its mistake where they are no object."""
    try:
        if isinstance(arguments, bytes):
            arguments = arguments.decode("utf-8-sig")
        if isinstance(arguments, str):
            arguments = json.loads(arguments) if arguments.strip() else None
        checked = {} if arguments is None else plain_json(arguments, _ARGUMENTS)
    except NOT_JSON as error:
        return f"the arguments can't be read: {error}; expected a JSON object"
    return checked if isinstance(checked, dict) else f"the arguments are {_described(checked)}; expected an object"


def _failure_in(reported: object) -> tuple[NoEpisodeError | None, str]:
    """Return the failure that an agent reports, None if its form is wrong, and why its answer can't be read then."""
    try:
        if isinstance(reported, dict):
            # a failure with a status, too, is a failure
            reported = {key: value for key, value in reported.items() if key in Failure.model_fields}
        failure = Failure.model_validate(reported)
    except ValidationError as error:
        return None, f'the agent\'s answer, error{first_problem(error)}; expected {{"kind": "...", "message": "..."}}'
    return NoEpisodeError(failure.message, failure.kind), failure.message


async def _later(ending: Awaitable[Episode], whole: Callable[[Episode], dict[str, Any]]) -> dict[str, Any]:
    try:
        return whole(await ending)
    except NoEpisodeError as error:
        return error.as_json()


def _described(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"
