"""What a target gets and may use: the verify request of the spec, and the context with its model client; its errors.

A target outside this process gets the request as JSON, and the way to the gateway.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from pydantic import Field

from pytest_packbench.files import U64_MAX
from pytest_packbench.model.case import ListOf, StrictModel

if TYPE_CHECKING:
    from pathlib import Path


TargetT = TypeVar("TargetT", bound=Callable[..., Any])
Target = Callable[..., Any | Awaitable[Any]]
"""`target(request)` or `target(request, context)`, a function or coroutine function that returns a JSON object."""


class VerifyRequest(StrictModel):
    """The verify request (spec, "Case schema").

    Attributes:
        input: the input of the case, any JSON value.
        options: settings of the pipeline for this case, such as `max_iters`.
        evidence: documents that the pipeline may quote.
    """

    input: Any
    options: dict[str, Any] = Field(default_factory=dict)
    evidence: ListOf[Any] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the request as plain JSON."""
        return {"input": self.input, "options": self.options, "evidence": list(self.evidence)}


def without_model(target: TargetT) -> TargetT:
    """Mark a target that calls no model: its cases need no cassette, and a model call is an error."""
    target.asks_model = False  # type: ignore[attr-defined]  # a function accepts attributes
    return target


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyContext:
    """What a target may use in addition to its request.

    Attributes:
        llm: the client for model calls: the cassette in fixture mode, otherwise a backend.
        suite: the name of the suite.
        case_id: the id of the case, for logs; a pipeline must not decide by it. An agent in a world gets a hash of it.
        mode: `fixture`, `live` or `record`.
        files: files that users configured for packs, by name (ini `packbench_<name>`), absolute.
        backend: the configured backend; `stub` if a scripted model of the pack answers, empty if none is configured.
        model: the configured model; empty if none is configured.
        guards: the guards between the agent and untrusted text, in order; the pack defines their interface.
        judges: the judges that the user registered, by name.
    """

    llm: LLM
    suite: str
    case_id: str
    mode: str
    files: Mapping[str, Path] = field(default_factory=dict)
    backend: str = ""
    model: str = ""
    guards: tuple[Any, ...] = ()
    judges: Mapping[str, Any] = field(default_factory=dict)


class WatchedContext(VerifyContext):
    """A context that notes whether its guards were read: results of a target that ignores them met no guard.

    Attributes:
        read: whether they were.
    """

    read = False

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute."""
        if name == "guards":
            object.__setattr__(self, "read", True)
        return object.__getattribute__(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call, as counted by the provider; None for a count that it did not report."""

    tokens_input: int | None = None
    tokens_output: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that a model may call.

    Attributes:
        name: its name.
        description: what it does, for the model.
        parameters: JSON Schema of its arguments, which are an object.
    """

    name: str
    description: str
    parameters: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the tool as plain JSON."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call that a model requests.

    Attributes:
        id: the provider's id of the call, which the answer of the tool repeats.
        name: the name of the tool.
        arguments: its arguments.
    """

    id: str
    name: str
    arguments: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the call as plain JSON."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call.

    Attributes:
        role: the step of the pipeline that makes the call (`propose`, `critique`, `revise` ...).
        system: the system prompt.
        messages: the conversation: `{"role": "user" | "assistant", "content": str}`; a message of an assistant that
            called tools also has `"tool_calls": [ToolCall.as_json()]`, and each call is followed by its answer,
            `{"role": "tool", "tool_call_id": str, "content": str}`.
        output_schema: JSON Schema of the answer; None allows any text.
        tools: the tools that the model may call; not together with `output_schema`.
        max_output_tokens: the limit of this answer in tokens, at least 1; None for the limit of the run.
        raw: whether the text of the only message is sent as it is, without the model's chat template: it is continued
            by OpenAI's completions API, and the limit ends the answer without cutting it off.
    """

    role: str
    system: str
    messages: tuple[dict[str, Any], ...]
    output_schema: dict[str, Any] | None = None
    tools: tuple[Tool, ...] = ()
    max_output_tokens: int | None = None
    raw: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the request as plain JSON, the form that is hashed and recorded."""
        return {
            "role": self.role,
            "system": self.system,
            "messages": list(self.messages),
            "output_schema": self.output_schema,
            **({"tools": [tool.as_json() for tool in self.tools]} if self.tools else {}),
            **({} if self.max_output_tokens is None else {"max_output_tokens": self.max_output_tokens}),
            **({"raw": True} if self.raw else {}),
        }


class AnswerProblem(NamedTuple):
    """Why an answer can't be read.

    Attributes:
        kind: `answer_unreadable`, or `truncated` if it was cut off at its limit of tokens.
        message: one line.
    """

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """The answer of a model.

    Attributes:
        content: the JSON value that `output_schema` describes, otherwise a string.
        refusal: the model's words if it declined to answer; None otherwise.
        usage: the tokens of the call.
        tool_calls: the tool calls that the model requests before it continues.
        problem: why the answer can't be read; a target gets an `AnswerError` instead of such an answer, unless it
            is that only some of its tool calls can be read, which `tool_calls` has then.
    """

    content: Any
    refusal: str | None = None
    usage: Usage = field(default_factory=Usage)
    tool_calls: tuple[ToolCall, ...] = ()
    problem: AnswerProblem | None = None

    def readable(self) -> ModelAnswer:
        """Return the answer; raises `AnswerError` if it can't be read."""
        if self.problem is None or self.tool_calls:
            return self
        text = self.content if isinstance(self.content, str) else ""
        raise AnswerError(self.problem.kind, self.problem.message, text=text, usage=self.usage)


class AnswerError(RuntimeError):
    """A model, or a target outside this process, has answered, and the answer can't be read; no failure of a call.

    A target that lets it pass gets a score of 0. One that catches it is scored by what it returns.

    Attributes:
        kind: `answer_unreadable`, or `truncated` if the answer was cut off at its limit of tokens.
        text: the answer, as far as it is known.
        usage: the tokens of the call; None where unknown.
        details: what a target wrote next to its answer, one entry per line.
    """

    def __init__(
        self, kind: str, message: str, *, text: str = "", usage: Usage | None = None, details: tuple[str, ...] = ()
    ) -> None:
        self.kind = kind
        self.text = text
        self.usage = usage
        self.details = details
        super().__init__(message)


class LLM(Protocol):
    """The model client of a target: a backend, or the cassette that replays it."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; raises `AnswerError` if the answer can't be read; errors of the backend propagate."""
        ...

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request, for targets that are not async."""
        ...


class World(Protocol):
    """The environment in which a target acts during one attempt, as a context manager around its call.

    It gives the target its request, and ends with the block: what the target tries afterwards has no effect.
    """

    def __enter__(self) -> VerifyRequest | None:
        """Return the target's own request; None where the target is not to be called."""
        ...

    def __exit__(self, *exception: object) -> None:
        """End the world."""
        ...

    def result(self, answer: Any, problem: AnswerError | None) -> Any:
        """Return the result to be read and scored: what happened in the world. It may have to be awaited.

        Args:
            answer: what the target returned; None where it wasn't called or has returned nothing.
            problem: why its answer can't be read; None if it can.

        Raises:
            Exception: whatever the target's own code raises where the world runs it.
        """
        ...


class Worlds(Protocol):
    """Opens the worlds of a suite."""

    def open(self, request: VerifyRequest, context: VerifyContext) -> World:
        """Return the world of one attempt; nothing is served before its block."""
        ...

    def replayed(self, result: Any) -> Any:
        """Return a recorded result to be read and scored; an error in its place where it is not one of a world."""
        ...


MAX_RESULT_BYTES = 32 * 1024 * 1024
"""Size limit of a result, bytes."""


class TargetError(ValueError):
    """The target can't be found, or can't be called."""


class TargetFailure(RuntimeError):  # noqa: N818 - what failed is a server or a process
    """A target outside this process returned no result.

    Attributes:
        kind: the reason's name, for `errors.jsonl`: `target_unreachable`, `target_timeout`, `target_died`
            or `target_error`.
        details: the target's own output, such as its standard error, one entry per line.
    """

    def __init__(self, kind: str, message: str, details: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.details = details
        super().__init__(message)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what led to it: its parts, its cause and its context, each once, depth first."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop(0)
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            parts = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            pending[:0] = [*parts, each.__cause__, each.__context__]


def request_json(value: object) -> bytes:
    """Encode a request as one line of ASCII JSON, without a line end.

    Raises:
        TargetFailure: it contains something that JSON can't represent, such as infinity.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetFailure("target_error", f"the request can't be encoded as JSON: {error}") from None


class GatewayRoute(NamedTuple):
    """How a target outside this process reaches the gateway for one attempt.

    Attributes:
        url: the address for this attempt.
        environment: the variables of a process that is started for this attempt alone; None where processes are
            reused.
        shared_environment: returns a token and the variables of a process that works for several attempts.
        assign: attributes the calls of such a process, by its token, to this attempt from now.
    """

    url: str
    environment: dict[str, str] | None
    shared_environment: Callable[[], tuple[str, dict[str, str]]]
    assign: Callable[[str], None]


ROUTE: ContextVar[GatewayRoute | None] = ContextVar("packbench_gateway_route", default=None)
"""The route of the attempt that runs in this context; None where the gateway does not serve."""


def count(value: object) -> int | None:
    """Return a token count; None where the value is none, or too large for a record."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX else None
