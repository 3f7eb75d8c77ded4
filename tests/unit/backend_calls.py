"""Opens backends on local servers, for the tests of all of them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import Backend, BackendError, BackendOptions, open_backend
from pytest_packbench.model.request import ModelAnswer, ModelRequest, Tool
from tests.servers.fake import FakeServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from tests.servers.fake import Handler

PROVIDERS = ("openai", "anthropic", "ollama")
MODEL = "some-model"
SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "sure": {"type": "boolean"}},
    "required": ["code"],
    "additionalProperties": False,
}
LOOK_UP = Tool(
    name="look_up",
    description="Finds a page.",
    parameters={"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]},
)
_CLIENTS_READ = ("BASE_URL", "CUSTOM_HEADERS", "HOST", "KEY", "TOKEN", "PROXY", "ORG_ID", "PROJECT_ID")


def clear_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the environment variables that the clients read."""
    for name in os.environ:
        if name.upper().endswith(_CLIENTS_READ) or name.upper().startswith(("OPENAI_", "ANTHROPIC_", "OLLAMA_")):
            monkeypatch.delenv(name)


def request(text: str = "Which code?", **more: Any) -> ModelRequest:
    given: dict[str, Any] = {"role": "propose", "system": "Be brief.", "messages": ({"role": "user", "content": text},)}
    return ModelRequest(**(given | more))


def base_url(provider: str, url: str) -> str:
    return f"{url}/v1" if provider == "openai" else url


def create_backend(provider: str, url: str, **options: Any) -> Backend:
    given: dict[str, Any] = {"model": MODEL, "timeout_s": 5.0, "retries": 0, "connections": 4}
    return open_backend(provider, BackendOptions(base_url=base_url(provider, url), **(given | options)))


def use_backend(provider: str, url: str, use: Callable[[Backend], Awaitable[Any]], **options: Any) -> Any:
    """Open a backend, use it, close it."""

    async def run() -> Any:
        backend = create_backend(provider, url, **options)
        try:
            return await use(backend)
        finally:
            await backend.aclose()

    return asyncio.run(run())


def complete_once(
    provider: str, handler: Handler, what: ModelRequest | None = None, **options: Any
) -> tuple[ModelAnswer, FakeServer]:
    """Make one call; return the answer and the closed server."""
    with FakeServer(handler) as server:
        answer = use_backend(provider, server.url, lambda backend: backend.complete(what or request()), **options)
    return answer, server


def failed_call(provider: str, handler: Handler, what: ModelRequest | None = None, **options: Any) -> BackendError:
    """Make one call that fails; return the error."""
    try:
        answer, _server = complete_once(provider, handler, what, **options)
    except BackendError as error:
        return error
    raise AssertionError(f"the call went well: {answer}")
