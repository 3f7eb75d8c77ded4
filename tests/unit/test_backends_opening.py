"""Opening a backend: what is missing is one line that says what to do, before the first call."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from pytest_packbench.backends import BackendOptions, BackendUnusable, open_backend
from tests.servers.fake import FakeServer, scripted
from tests.servers.wire import anthropic_reply, openai_reply
from tests.unit.backend_calls import PROVIDERS, clear_environment, request, use_backend

LOCAL = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_environment(monkeypatch)


def refusal_message(provider: str, **options: Any) -> str:
    with pytest.raises(BackendUnusable) as caught:
        open_backend(provider, BackendOptions(**options))
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_package(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, provider, None)
    assert f"pip install 'pytest-packbench[{provider}]'" in refusal_message(provider, model="m", base_url=LOCAL)


@pytest.mark.parametrize(("provider", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")])
def test_no_key(provider: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert variable in refusal_message(provider, model="m")
    monkeypatch.setenv(variable, "  ")
    assert "--packbench-base-url" in refusal_message(provider, model="m")


def test_no_other_place_holds_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another")
    monkeypatch.setenv("ANTHROPIC_PROFILE", "default")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "another")
    assert "ANTHROPIC_API_KEY" in refusal_message("anthropic")
    assert "OPENAI_API_KEY" in refusal_message("openai", model="m")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_server_of_ones_own_needs_no_key(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "must-not-be-sent")
    reply = openai_reply("hello") if provider == "openai" else anthropic_reply("hello")
    with FakeServer(scripted(reply)) as server:
        assert use_backend(provider, server.url, lambda backend: backend.complete(request())).content == "hello"
        monkeypatch.setenv(f"{provider.upper()}_BASE_URL", f"{server.url}/v1" if provider == "openai" else server.url)

        async def use() -> str:
            backend = open_backend(provider, BackendOptions(model="m", retries=0))
            try:
                return str((await backend.complete(request())).content)
            finally:
                await backend.aclose()

        assert asyncio.run(use()) == "hello"
    for received in server.requests:
        assert "must-not-be-sent" not in str(received.headers)


@pytest.mark.parametrize(("provider", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")])
@pytest.mark.parametrize("key", ["sk-two\nlines-of-key", "sk-ключ", "sk-a b"])
def test_a_key_that_no_header_can_carry(
    provider: str, variable: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, key)
    message = refusal_message(provider, model="m")
    assert variable in message
    assert "sk-" not in message


@pytest.mark.parametrize("provider", ["openai", "ollama"])
def test_no_model(provider: str) -> None:
    assert "--packbench-model" in refusal_message(provider, base_url=LOCAL)


def test_the_default_model() -> None:
    assert open_backend("anthropic", BackendOptions(base_url=LOCAL)).model == "claude-sonnet-4-6"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/",
        "http:///path",
        "http://host:port",
        "http://host:99999",
        "http://[::1",
        "http://someone:hunter2@host/",
        "http://hunter2@host/",
        "http://host/?key=hunter2",
        "http://host/#hunter2",
    ],
)
def test_a_base_url_that_is_none(provider: str, url: str) -> None:
    message = refusal_message(provider, model="m", base_url=url)
    assert "base URL" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("url", ["localhost:11434", "127.0.0.1", ":11434", "http://host:1/path", "[::1]:5"])
def test_ollama_takes_a_bare_host(url: str) -> None:
    assert open_backend("ollama", BackendOptions(model="m", base_url=url)).name == "ollama"


def test_a_base_url_of_the_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://someone:hunter2@host/")
    assert "hunter2" not in refusal_message("openai", model="m")
