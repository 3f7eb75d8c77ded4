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
from math import isfinite
from threading import RLock
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from pytest_packbench.files import SURROGATE
from pytest_packbench.model.request import AnswerError, VerifyRequest
from pytest_packbench.model.result import ResultError
from pytest_packbench.packs.agent_safety.outcome import read
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
_OUTSIDE = ("http://", "https://", "cmd:")
_EXPECTED_ANSWER = 'return the final answer as text, or {"answer": "..."}'
_EXPECTED_ERROR = 'expected {"kind": "...", "message": "..."}'
_MAX_DEPTH = 64
_MAX_BITS = 64
_WORLD_ERROR = "world_error"


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
        # an agent's text may be no UTF-8, which no result can contain
        name = _text(name) or "?"
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
        failure, wrong = _failure_of(answer)
        said = Answer(BLOCKED) if self._task is None else self.read(answer, problem)
        if failure or wrong:
            said = replace(said, problem=wrong or failure["message"] or failure["kind"])
        ending = self.ending(said if self._task is None else self.guarded(replace(said, text=_text(said.text))))
        if self.failures:
            raise self.failures[0]
        reported = self._reported(answer)
        if isinstance(ending, dict):
            return self._whole(reported, ending, failure)
        return self._awaited(reported, ending, failure)

    def _reported(self, answer: Any) -> dict[str, Any]:
        """Return what the agent says of its model: the names only where no gateway can see the model calls."""
        if not isinstance(answer, dict):
            return {}
        usage = answer.get("usage")
        counts = {key: count for key, count in usage.items() if type(count) is int} if isinstance(usage, dict) else {}
        names = ("llm_backend", "llm_model") if self.agent.startswith(_OUTSIDE) else ()
        reported = {name: answer[name] for name in names if isinstance(answer.get(name), str)}
        return {**reported, **({"usage": counts} if counts else {})}

    async def _awaited(
        self, reported: dict[str, Any], ending: Awaitable[dict[str, Any]], failure: dict[str, str]
    ) -> dict[str, Any]:
        return self._whole(reported, await ending, failure)

    def _whole(self, reported: dict[str, Any], ending: dict[str, Any], failure: dict[str, str]) -> dict[str, Any]:
        if failure and not ending.get("landed"):
            return {"error": failure}
        whole = {
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
        return _readable(_plain(whole), "the result of the world can't be read")

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
            return _readable(result, "the recorded result of the world can't be read; record it again")
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
    """Return a copy of the arguments of a call; a text that tells the agent its mistake where they are no object."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else None
        except (ValueError, RecursionError) as error:
            return f"the arguments can't be read: {error}; expected a JSON object"
    if arguments is None:
        return {}
    if not isinstance(arguments, dict) or not all(isinstance(name, str) for name in arguments):
        return f"the arguments are {_described(arguments)}; expected an object"
    try:
        checked: dict[str, Any] = _json_copy(arguments)
    except ValueError as error:
        return f"the arguments can't be read: {error}; expected a JSON object"
    return checked


def _json_copy(value: Any, depth: int = 1) -> Any:
    """Return a copy of a JSON value, without halves of UTF-16 pairs; raises `ValueError` for what JSON doesn't have."""
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and value.bit_length() <= _MAX_BITS:
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)
    if isinstance(value, int | float):
        raise ValueError(f"it contains {'a huge number' if isinstance(value, int) else value}")  # noqa: TRY004 - no type
    if not isinstance(value, dict | list | tuple):
        raise ValueError(f"it contains {_described(value)}")  # noqa: TRY004 - the agent's text
    if depth > _MAX_DEPTH:
        raise ValueError(f"more than {_MAX_DEPTH} levels")
    if not isinstance(value, dict):
        return [_json_copy(item, depth + 1) for item in value]
    if not all(isinstance(name, str) for name in value):
        raise ValueError("the name of a field is not a text")
    return {_text(name): _json_copy(item, depth + 1) for name, item in value.items()}


def _plain(value: Any, depth: int = 1) -> Any:
    """Return a value as JSON; what JSON doesn't have is described, so that no agent makes its result unreadable."""
    # a result has a few levels of its own around the arguments of a call
    if isinstance(value, dict) and depth <= 2 * _MAX_DEPTH:
        return {_text(str(name)): _plain(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple) and depth <= 2 * _MAX_DEPTH:
        return [_plain(item, depth + 1) for item in value]
    try:
        return _json_copy(value, _MAX_DEPTH + 1)
    except ValueError:
        return _described(value)


def _text(value: str) -> str:
    """Return a text with a replacement character for each half of a UTF-16 pair."""
    return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", str(value))


def _failure_of(answer: Any) -> tuple[dict[str, str], str]:
    """Return the failure that an agent reports, empty without one, and what is wrong with its form."""
    reported = answer.get("error") if isinstance(answer, dict) else None
    # null, "" and false are the usual words for none
    if not reported:
        return {}, ""
    if isinstance(reported, dict):
        kind, message = reported.get("kind"), reported.get("message")
        if isinstance(kind, str) and kind.strip() and isinstance(message, str):
            return {"kind": _text(kind), "message": _text(message)}, ""
    return {}, f"the agent's error is {_described(reported)}; {_EXPECTED_ERROR}"


def _readable(result: dict[str, Any], problem: str) -> dict[str, Any]:
    """Return a result of a world, or an error: one that can't be read is no fault of the agent."""
    try:
        read(result)
    except ResultError as error:
        return {"error": {"kind": _WORLD_ERROR, "message": f"{problem}: {' '.join(str(error).split())}"}}
    return result


def _described(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"
