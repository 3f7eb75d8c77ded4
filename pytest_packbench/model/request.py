"""What a target is given: the verify request of the spec, and the context of its case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import Field

from pytest_packbench.model.case import ListOf, StrictModel

if TYPE_CHECKING:
    from pathlib import Path


TargetT = TypeVar("TargetT", bound=Callable[..., Any])
Target = Callable[..., Any | Awaitable[Any]]
"""`target(request)` or `target(request, context)`, plain or async; gives a JSON object."""


class VerifyRequest(StrictModel):
    """The verify request (spec, "Case schema").

    Attributes:
        input: what is to be judged; text in the tariff pack, any JSON elsewhere.
        options: settings of the pipeline for this case, such as `max_iters`.
        evidence: documents that the pipeline may quote.
    """

    input: Any
    options: dict[str, Any] = Field(default_factory=dict)
    evidence: ListOf[Any] = ()

    def as_json(self) -> dict[str, Any]:
        """Give the request as plain JSON."""
        return {"input": self.input, "options": self.options, "evidence": list(self.evidence)}


def without_model(target: TargetT) -> TargetT:
    """Mark a target that asks no model: its cases need no cassette, and a model call is an error."""
    target.asks_model = False  # type: ignore[attr-defined]  # a callable of the user's takes attributes
    return target


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyContext:
    """What a target may use beside its request.

    Attributes:
        llm: answers model calls: the cassette in fixture mode, a backend else.
        suite: the suite's name.
        case_id: the case's id, for logs; a pipeline that decides by it cheats.
        mode: `fixture`, `live` or `record`.
        files: files of the packs' own that were given, by name (ini `packbench_<name>`), absolute.
        backend: who answers model calls as it was asked for; `stub` where a scripted model of the pack's answers,
            empty where nobody was named.
        model: which model answers, as it was asked for; empty where none was named.
        guards: what stands between an agent and untrusted text, in order; objects as the pack defines them.
        judges: judges of the user's own, by name.
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
