"""Who answers model calls: one file each, its client imported inside.

Opening one is the only place where keys are looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.model.request import ModelAnswer, ModelRequest, Usage

MODULES = {"anthropic": "Anthropic", "openai": "OpenAI", "ollama": "Ollama"}
"""Backends that ask a model: the module of that name here, and its class."""

STUB = "stub"
"""The backend whose scripted models come from a pack."""

RECORDED = "recorded"
"""Instead of a backend, in fixture mode: replay recordings, also where the suite names a scripted model."""


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
    on_overload: Callable[[], None] = lambda: None


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


def open_backend(name: str, options: BackendOptions) -> Backend:
    """Open a backend.

    Args:
        name: one of `MODULES`.
        options: how it is to ask.

    Raises:
        BackendUnusable: its package, its key or its model's name is missing; says what to do.
    """
    backend: Backend = getattr(import_module(f"{__name__}.{name}"), MODULES[name])(options)
    return backend
