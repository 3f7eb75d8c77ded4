"""Opens the backends of model providers on local servers."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import Backend, BackendError, BackendOptions, open_backend
from pytest_packbench.model.request import ModelAnswer, ModelRequest
from tests.servers.fake import FakeServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from tests.servers.fake import Handler

PROVIDERS = ("openai", "anthropic", "ollama")
_READ_BY_CLIENTS = ("BASE_URL", "CUSTOM_HEADERS", "HOST", "KEY", "TOKEN", "PROXY", "ORG_ID", "PROJECT_ID")


def clear_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the environment variables that the clients read."""
    for name in os.environ:
        if name.upper().endswith(_READ_BY_CLIENTS) or name.upper().startswith(("OPENAI_", "ANTHROPIC_", "OLLAMA_")):
            monkeypatch.delenv(name)


def request(text: str = "Which code?", **fields: Any) -> ModelRequest:
    messages = ({"role": "user", "content": text},)
    return ModelRequest(**{"role": "propose", "system": "Be brief.", "messages": messages, **fields})


def use_backend(provider: str, url: str, use: Callable[[Backend], Awaitable[Any]], **options: Any) -> Any:
    """Open a backend, use it on an event loop, close it."""

    async def run() -> Any:
        base_url = f"{url}/v1" if url and provider == "openai" else url
        defaults: dict[str, Any] = {"model": "some-model", "timeout_s": 5.0, "retries": 0, "connections": 4}
        backend = open_backend(provider, BackendOptions(base_url=base_url, **(defaults | options)))
        try:
            return await use(backend)
        finally:
            await backend.aclose()

    return asyncio.run(run())


def complete_once(
    provider: str, handler: Handler, model_request: ModelRequest | None = None, **options: Any
) -> tuple[ModelAnswer, FakeServer]:
    """Make one call; return the answer and the closed server."""
    with FakeServer(handler) as server:
        call = lambda backend: backend.complete(model_request or request())  # noqa: E731 - passed once
        return use_backend(provider, server.url, call, **options), server


def failed_call(
    provider: str, handler: Handler, model_request: ModelRequest | None = None, **options: Any
) -> BackendError:
    """Make one call that fails; return the error."""
    try:
        answer, _server = complete_once(provider, handler, model_request, **options)
    except BackendError as error:
        return error
    raise AssertionError(f"the call succeeded: {answer}")
