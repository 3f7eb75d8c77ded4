"""Worlds: the environment of one case, held here, in which an agent of the user acts by calling tools.

The agent gets its user's task and the tools, as Python functions and at addresses that `serving` serves. Each call
passes the guards and is noted. What happened in the world decides how the case ends, never what the agent says of it.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from pytest_packbench.model.request import AnswerError, VerifyRequest
from pytest_packbench.packs.agent_safety.serving import Output, WorldClosedError, WorldServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pytest_packbench.model.request import Tool, VerifyContext, World
    from pytest_packbench.packs.agent_safety.guards.base import Chain
    from pytest_packbench.packs.agent_safety.model import SafetySuiteConfig

MAX_CALLS = 1000
"""The number of tool calls that an agent may make in one case."""
CALL_WAIT_S = 10.0
"""How long a tool call may go on after its agent has returned, seconds."""
OVER = "the case is over"
BLOCKED = "A guard blocked the task before the agent read it."
_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
_OPENERS = {
    "agentdojo": "agentdojo.target:open_world",
    "harmbench": "text_worlds:open_harmbench",
    "injecagent": "text_worlds:open_injecagent",
}
_REPORTED = ("usage", "llm_backend", "llm_model")
_EXPECTED_ANSWER = 'return the final answer as text, or {"answer": "..."}'


class AgentRequest(VerifyRequest):
    """The request of an agent that acts in a world.

    Its `input` has the user's `task`, the benchmark's `system` prompt, the `tools` (`name`, `description`, `parameters`
    as JSON Schema), and where they are served: `http`, `mcp`, and `mcp_stdio`, the program that serves them over
    standard input and output.
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
        chain: the guards of the case.
        doors: how the agent reached the world, each once: `python`, `http`, `mcp`, `mcp_stdio`, `pipeline`.
        failures: exceptions of guards and of the environment itself: an agent that ignores them has met no guard.
    """

    tools: tuple[Tool, ...] = ()
    system: str = ""

    def __init__(self, *, agent: str, chain: Chain, request: VerifyRequest) -> None:
        self.agent = agent
        self.chain = chain
        self.doors: list[str] = []
        self.failures: list[Exception] = []
        self._request = request
        self._task: str | None = None
        self._open = False
        self._calls = 0
        # tools are called from several threads, and change one environment
        self._lock = RLock()
        self._server: WorldServer | None = None

    @abstractmethod
    def prompt(self) -> str:
        """Return the user's task, before the guards."""

    @abstractmethod
    def run(self, name: str, arguments: dict[str, Any]) -> Output:
        """Run a tool behind the guards, and note the call."""

    @abstractmethod
    def ending(self, answer: Answer) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Return what happened, with the agent's final answer: the benchmark's part of the result."""

    def __enter__(self) -> VerifyRequest | None:
        """Serve the world; return the agent's request, or None where a guard blocked the task."""
        self._task = self.chain.on_prompt_submit(self.prompt())
        if self._task is None:
            return None
        self.tools = self.chain.on_tool_list(self.tools)
        self._open = True
        self._server = WorldServer(self)
        content = {**self.description(), **self._server.addresses}
        request = AgentRequest(input=content, options=self._request.options)
        request._world = self  # noqa: SLF001 - its own class
        return request

    def __exit__(self, *exception: object) -> None:
        """Close the world: later calls have no effect."""
        # not behind the lock: a tool that hangs must not keep the case open
        self._open = False
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def description(self) -> dict[str, Any]:
        """Return the task and the tools as plain JSON."""
        return {"task": self._task, "system": self.system, "tools": [tool.as_json() for tool in self.tools]}

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
                raise WorldClosedError(OVER)
            if door not in self.doors:
                self.doors.append(door)
            self._calls += 1
            if self._calls > MAX_CALLS:
                return Output(f"no more than {MAX_CALLS} tool calls may be made in one case", is_error=True)
            if isinstance(parsed, str):
                return Output(parsed, is_error=True)
            try:
                return self.run(name, parsed)
            except Exception as error:
                self.failures.append(error)
                raise

    def result(self, answer: Any, problem: AnswerError | None) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Return the result for `outcome.read`; the agent's word counts as its answer only.

        Raises:
            Exception: what a guard, the environment or a pipeline raised.
        """
        if not self._lock.acquire(timeout=CALL_WAIT_S):
            message = f"a tool call was still running {CALL_WAIT_S:g} s after the agent had returned"
            return {"error": {"kind": "target_error", "message": message}}
        # a call that was made before the end counts
        self._lock.release()
        if isinstance(answer, dict) and "error" in answer:
            return {"error": answer["error"]}
        said = Answer(BLOCKED) if self._task is None else self.guarded(self.read(answer, problem))
        reported = {key: answer[key] for key in _REPORTED if key in answer} if isinstance(answer, dict) else {}
        ending = self.ending(said)
        if self.failures:
            raise self.failures[0]
        return self._whole(reported, ending) if isinstance(ending, dict) else self._awaited(reported, ending)

    async def _awaited(self, reported: dict[str, Any], ending: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        return self._whole(reported, await ending)

    def _whole(self, reported: dict[str, Any], ending: dict[str, Any]) -> dict[str, Any]:
        return {
            **reported,
            **ending,
            "exposed": self.chain.exposed,
            "removed_by": self.chain.removed_by,
            "collateral": self.chain.collateral,
            "hook_decisions": self.chain.decisions,
            "guard_timeouts": self.chain.timeouts,
            "guards": self.chain.names,
            "agent": self.agent,
            "scripted": False,
        }

    def guarded(self, answer: Answer) -> Answer:
        """Return the final answer as the guards leave it."""
        return replace(answer, text=self.chain.on_final_answer(answer.text))

    def read(self, answer: Any, problem: AnswerError | None) -> Answer:
        """Return the final answer in what an agent returned."""
        if problem is not None:
            return Answer(problem.text, str(problem), cut_off=problem.kind == "truncated")
        text = answer.get("answer") if isinstance(answer, dict) else getattr(answer, "content", answer)
        if isinstance(text, str):
            return Answer(text)
        return Answer("", f"the agent returned {_described(answer)}; {_EXPECTED_ANSWER}")


@dataclass(frozen=True, slots=True)
class Answer:
    """The agent's final answer.

    Attributes:
        text: its text.
        problem: why it can't be read, in one line; empty if it can.
        cut_off: whether the reason is that a model's answer was cut off.
    """

    text: str
    problem: str = ""
    cut_off: bool = False

    def validity(self) -> dict[str, Any]:
        """Return the keys of a result that say whether it can be read."""
        if not self.problem:
            return {}
        return {"valid": False, "invalid_because": " ".join(self.problem.split()), "cut_off": self.cut_off}


class FailedWorld:
    """A world that can't be opened; its agent is not called."""

    def __init__(self, kind: str, message: str) -> None:
        self._error = {"kind": kind, "message": message}

    def __enter__(self) -> None:
        """Return no request."""

    def __exit__(self, *exception: object) -> None:
        """End nothing."""

    def result(self, answer: Any, problem: AnswerError | None) -> dict[str, Any]:  # noqa: ARG002 - no agent was called
        """Return the error."""
        return {"error": self._error}


class SafetyWorlds:
    """Opens the worlds of a suite, each in the package of its benchmark.

    Args:
        rules: the suite's.
        agent: the name of the agent in records.
    """

    def __init__(self, rules: SafetySuiteConfig, agent: str) -> None:
        self._rules = rules
        self._agent = agent

    def open(self, request: VerifyRequest, context: VerifyContext) -> World:
        """Return the world of a case."""
        module, _, name = _OPENERS[request.input["suite"]].partition(":")
        # benchmarks have dependencies of their own: only the one of the case is imported
        world: World = getattr(import_module(f"{__package__}.{module}"), name)(
            request, context, self._rules, self._agent
        )
        return world

    def replayed(self, result: Any) -> Any:
        """Return the recorded result of a world; an error in the place of an agent's own word."""
        if isinstance(result, dict) and ("error" in result or "doors" in (result.get("details") or ())):
            return result
        message = "the recording has the agent's own word, not what it did in the world; record it again"
        return {"error": {"kind": "cassette_outdated", "message": message}}


def as_function(tool: Tool, call: Callable[[str, dict[str, Any]], str]) -> Callable[..., str]:
    """Return a tool as a Python function: frameworks read its name, signature, annotations and docstring."""
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if name in required else schema.get("default"),
            annotation=_annotation(schema, optional=name not in required),
        )
        for name, schema in sorted(properties.items(), key=lambda item: item[0] not in required)
    ]
    if not parameters and tool.parameters.get("additionalProperties"):
        parameters = [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD, annotation=Any)]
    signature = inspect.Signature(parameters, return_annotation=str)

    def function(*positional: Any, **named: Any) -> str:
        bound = signature.bind(*positional, **named)
        return call(tool.name, dict(bound.arguments) if properties else named)

    described = [f"    {name}: {schema.get('description', '')}" for name, schema in properties.items()]
    function.__name__ = function.__qualname__ = tool.name
    function.__doc__ = "\n".join([tool.description, *(["", "Args:", *described] if described else [])])
    vars(function)["__signature__"] = signature
    function.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": str}
    return function


def _annotation(schema: dict[str, Any], *, optional: bool) -> Any:
    kinds: Sequence[Any] = schema.get("anyOf") or [schema]
    types = [_TYPES.get(str(kind.get("type"))) for kind in kinds if kind.get("type") != "null"]
    if not types or None in types:
        return Any
    union: Any = types[0]
    for each in types[1:]:
        union |= each
    return union | None if optional or len(types) < len(kinds) else union


def _arguments(arguments: object) -> dict[str, Any] | str:
    """Return the arguments of a call; a text that tells the agent its mistake where they are no object."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else None
        except (ValueError, RecursionError) as error:
            return f"the arguments can't be read: {error}; expected a JSON object"
    if arguments is None:
        return {}
    if not isinstance(arguments, dict) or not all(isinstance(name, str) for name in arguments):
        return f"the arguments are {_described(arguments)}; expected an object"
    return arguments


def _described(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
