"""What a target is given: the verify request of the spec, and the context of its case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field

from pytest_packbench.backends.base import LLM, ModelAnswer, ModelRequest, Tool, ToolCall, Usage
from pytest_packbench.cases.model import ListOf, StrictModel

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "LLM",
    "ModelAnswer",
    "ModelRequest",
    "Target",
    "Tool",
    "ToolCall",
    "Usage",
    "VerifyContext",
    "VerifyRequest",
    "without_model",
]

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
