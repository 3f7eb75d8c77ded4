"""One model call, its answer, and who can answer it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens that one call used, as the provider counted them; None where it gave no count."""

    tokens_input: int | None = None
    tokens_output: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that a model may call.

    Attributes:
        name: its name.
        description: what it does, for the model.
        parameters: JSON Schema of its arguments, an object's.
    """

    name: str
    description: str
    parameters: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Give the tool as plain JSON."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool that a model asks for.

    Attributes:
        id: the provider's id of the call; the tool's answer names it.
        name: the tool.
        arguments: what it is called with.
    """

    id: str
    name: str
    arguments: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Give the call as plain JSON."""
        return {"id": self.id, "name": self.name, "arguments": self.arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call of a model.

    Attributes:
        role: the step of the pipeline that asks (`propose`, `critique`, `revise` ...).
        system: the instructions.
        messages: in order: `{"role": "user" | "assistant", "content": str}`; one of an assistant that called
            tools has also `"tool_calls": [ToolCall.as_json()]`, and each is answered by
            `{"role": "tool", "tool_call_id": str, "content": str}`.
        output_schema: JSON Schema of the answer; None for free text.
        tools: the tools that the model may call; not together with `output_schema`.
    """

    role: str
    system: str
    messages: tuple[dict[str, Any], ...]
    output_schema: dict[str, Any] | None = None
    tools: tuple[Tool, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Give the request as plain JSON, the form that is hashed and recorded."""
        return {
            "role": self.role,
            "system": self.system,
            "messages": list(self.messages),
            "output_schema": self.output_schema,
            **({"tools": [tool.as_json() for tool in self.tools]} if self.tools else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """What a model answered.

    Attributes:
        content: the JSON value asked for by `output_schema`, else a string.
        refusal: the model's own words where it declined to answer; None otherwise.
        usage: tokens used.
        tool_calls: the tools that the model wants called before it goes on.
    """

    content: Any
    refusal: str | None = None
    usage: Usage = field(default_factory=Usage)
    tool_calls: tuple[ToolCall, ...] = ()


class LLM(Protocol):
    """What a target asks: a backend, or the cassette that stands in for it."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; raises what the backend raises."""
        ...

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request from a target that isn't async."""
        ...


class BackendError(RuntimeError):
    """A model call broke: an error of the case, never a refusal and never a number.

    Attributes:
        kind: the reason's name, for `errors.jsonl`: `timeout`, `network`, `rate_limit`, `overloaded`, `server_error`,
            `auth`, `bad_request`, `truncated` (the answer was cut off at its token limit) or `answer_unreadable`.
        usage: tokens spent all the same, where the provider counted them: an answer that is cut off or can't be read
            has its price; None where no answer came.
    """

    def __init__(self, kind: str, message: str, *, usage: Usage | None = None) -> None:
        self.kind = kind
        self.usage = usage
        super().__init__(message)


class BackendUnusable(ValueError):  # noqa: N818 - it is a mistake in the call, not in a model's answer
    """A backend can't be opened: its package, its key or its model's name is missing. One line that says what to do."""


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """How a backend is to ask.

    Attributes:
        model: the model's name; empty: the backend's default, where it has one.
        base_url: the server; empty: the client's own default.
        timeout_s: time limit of one call, seconds.
        retries: how often the client tries again after a failure that may pass, at most.
        temperature: 0 to 2.
        max_output_tokens: the longest answer, tokens.
        connections: calls that may be open at once.
        on_overload: called each time a server says that it is asked too much (429, 503, 529), retried or not.
    """

    model: str = ""
    base_url: str = ""
    timeout_s: float = 120.0
    retries: int = 4
    temperature: float = 0.0
    max_output_tokens: int = 4096
    connections: int = 8
    on_overload: Callable[[], None] = nothing


class Backend(Protocol):
    """Who answers model calls: one client for the whole run, used from one event loop."""

    @property
    def name(self) -> str:
        """The backend: `anthropic`, `openai`, `ollama` ..."""

    @property
    def model(self) -> str:
        """The model's name as it is asked for."""

    @property
    def temperature(self) -> float | None:
        """What it asks with; None where the model takes none."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request.

        Raises:
            BackendError: the call broke; the message holds no secret.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...
