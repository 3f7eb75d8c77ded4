"""Opening a backend: what is missing is one line that says what to do, before the first call."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.backends import BackendOptions, BackendUnusable, open_backend
from pytest_packbench.backends.client import ClientPool
from tests.servers.fake import FakeServer, scripted
from tests.servers.wire import REPLIES
from tests.unit.backend_calls import PROVIDERS, clear_environment, complete_once, request, use_backend

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

LOCAL = "http://127.0.0.1:1"
BAD_URLS = (
    "ftp://host/",
    "http:///path",
    "http://host:port",
    "http://host:99999",
    "http://host:0",
    "http://[::1",
    "http://someone:hunter2@host/",
    "http://hunter2@host/",
    "http://host/?key=hunter2",
    "http://host/#hunter2",
)
PROBLEMS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "no key": ("openai", {"model": "m"}, {}),
    "blank key": ("anthropic", {}, {"ANTHROPIC_API_KEY": "  "}),
    "a key elsewhere": ("anthropic", {}, {"ANTHROPIC_AUTH_TOKEN": "another", "ANTHROPIC_PROFILE": "default"}),
    "an admin key": ("openai", {"model": "m"}, {"OPENAI_ADMIN_KEY": "another"}),
    "a key of two lines": ("openai", {"model": "m"}, {"OPENAI_API_KEY": "sk-two\nlines-of-key"}),
    "a key that is not ASCII": ("anthropic", {}, {"ANTHROPIC_API_KEY": "sk-ключ"}),
    "a key with a space": ("openai", {"model": "m"}, {"OPENAI_API_KEY": "sk-a b"}),
    "no model": ("openai", {"base_url": LOCAL}, {}),
    "no model of Ollama": ("ollama", {"base_url": LOCAL}, {}),
    "a bad address of the environment": ("openai", {"model": "m"}, {"OPENAI_BASE_URL": "https://u:hunter2@host/"}),
    "a bad host of the environment": ("ollama", {"model": "m"}, {"OLLAMA_HOST": "http://u:hunter2@host/"}),
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_environment(monkeypatch)


def problem_of(provider: str, **options: Any) -> str:
    with pytest.raises(BackendUnusable) as caught:
        open_backend(provider, BackendOptions(**options))
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    message = str(caught.value)
    assert "\n" not in message
    assert [secret for secret in ("hunter2", "sk-", "another") if secret in message] == []
    return message


def test_what_is_missing_is_one_line_that_says_what_to_do(expected: ExpectedTexts) -> None:
    lines = []
    for name, (provider, options, environment) in PROBLEMS.items():
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in environment.items():
                patch.setenv(variable, value)
            lines.append(f"{name}: {problem_of(provider, **options)}\n")
    for provider in PROVIDERS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, provider, None)
            lines.append(f"no package: {problem_of(provider, model='m', base_url=LOCAL)}\n")
        messages = {problem_of(provider, model="m", base_url=url) for url in BAD_URLS}
        lines += [f"bad address: {message}\n" for message in messages]
    expected.check("".join(lines))


@pytest.mark.parametrize("url", ["localhost:11434", "127.0.0.1", ":11434", "http://host:1/path", "[::1]:5"])
def test_ollama_accepts_a_bare_host(url: str) -> None:
    backend = open_backend("ollama", BackendOptions(model="m", base_url=url))
    assert (backend.name, backend.model, backend.temperature) == ("ollama", "m", 0.0)


def test_only_anthropic_has_a_default_model() -> None:
    assert open_backend("anthropic", BackendOptions(base_url=LOCAL)).model == "claude-sonnet-4-6"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_server_of_the_users_own_needs_no_key_and_gets_none_from_elsewhere(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "must-not-be-sent")
    address = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL", "ollama": "OLLAMA_HOST"}[provider]
    with FakeServer(scripted(REPLIES[provider]("hello"))) as server:
        url = {"openai": f"{server.url}/v1", "anthropic": server.url, "ollama": server.url.removeprefix("http://")}
        by_option = use_backend(provider, server.url, lambda backend: backend.complete(request()))
        monkeypatch.setenv(address, url[provider])
        by_environment = use_backend(provider, "", lambda backend: backend.complete(request()))
    assert (by_option.content, by_environment.content, len(server.requests)) == ("hello", "hello", 2)
    assert "must-not-be-sent" not in str([received.headers for received in server.requests])


def test_the_options_of_a_backend_are_sent() -> None:
    sent = {}
    for provider in PROVIDERS:
        reply = scripted(REPLIES[provider]("hello"))
        _answer, server = complete_once(provider, reply, model="other", temperature=0.5, max_output_tokens=7)
        body = server.requests[0].json()
        sent[provider] = (body["model"], body.get("options", body)["temperature"], str(body).count("7"))
    assert sent == dict.fromkeys(PROVIDERS, ("other", 0.5, 1))


def new_pool(size: int, closed: list[int]) -> ClientPool[int]:
    numbers = count(1)

    async def close(client: int) -> None:
        closed.append(client)

    return ClientPool(lambda: next(numbers), size=size, close=close)


def test_a_pool_lends_each_client_to_one_call_at_a_time_and_closes_all() -> None:
    lent: list[int] = []
    closed: list[int] = []

    async def use() -> list[int]:
        pool = new_pool(3, closed)

        async def call() -> int:
            async with pool.lend() as client:
                assert client not in lent
                lent.append(client)
                await asyncio.sleep(0.001)
                lent.remove(client)
                return client

        used = await asyncio.gather(*(call() for _ in range(20)))
        await pool.aclose()
        return used

    assert set(asyncio.run(use())) == {1, 2, 3}
    assert sorted(closed) == [1, 2, 3]


def test_a_client_returns_to_the_pool_after_its_call_also_after_a_failed_one() -> None:
    async def use() -> list[int]:
        pool, used = new_pool(8, []), []
        for _ in range(3):
            with contextlib.suppress(LookupError):
                async with pool.lend() as client:
                    used.append(client)
                    raise LookupError
        return used

    assert asyncio.run(use()) == [1] * 3


def test_calls_that_come_together_start_in_order_one_per_turn_of_the_loop() -> None:
    async def use() -> tuple[list[int], list[int]]:
        loop, pool = asyncio.get_running_loop(), new_pool(10, [])
        turns = [0]
        starts: list[int] = []
        order: list[int] = []

        def tick() -> None:
            turns[0] += 1
            if len(starts) < 10:
                loop.call_soon(tick)

        async def call(number: int) -> None:
            async with pool.lend():
                starts.append(turns[0])
                order.append(number)
                await asyncio.sleep(0)

        tick()
        await asyncio.gather(*(call(number) for number in range(10)))
        return starts, order

    starts, order = asyncio.run(use())
    assert len(set(starts)) == 10
    assert order == list(range(10))
