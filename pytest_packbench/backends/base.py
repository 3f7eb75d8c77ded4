"""One model call, its answer, and who can answer it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens that one call used, as the provider counted them; None where it gave no count."""

    tokens_input: int | None = None
    tokens_output: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call of a model.

    Attributes:
        role: the step of the pipeline that asks (`propose`, `critique`, `revise` ...).
        system: the instructions.
        messages: `{"role": "user" | "assistant", "content": str}`, in order.
        output_schema: JSON Schema of the answer; None for free text.
    """

    role: str
    system: str
    messages: tuple[dict[str, str], ...]
    output_schema: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Give the request as plain JSON, the form that is hashed and recorded."""
        return {
            "role": self.role,
            "system": self.system,
            "messages": list(self.messages),
            "output_schema": self.output_schema,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """What a model answered.

    Attributes:
        content: the JSON value asked for by `output_schema`, else a string.
        refusal: the model's own words where it declined to answer; None otherwise.
        usage: tokens used.
    """

    content: Any
    refusal: str | None = None
    usage: Usage = field(default_factory=Usage)


class LLM(Protocol):
    """What a target asks: a backend, or the cassette that stands in for it."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; raises what the backend raises."""
        ...

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request from a target that isn't async."""
        ...
