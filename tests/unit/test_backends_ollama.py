"""Ollama's backend: what only its wire format has, and the retries that its client lacks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from pytest_packbench.backends.ollama import _retry_delay_s
from pytest_packbench.model.request import Tool
from tests.servers.fake import FakeServer, Reply, scripted
from tests.servers.wire import error_reply, ollama_reply
from tests.unit.backend_calls import (
    LOOK_UP,
    SCHEMA,
    clear_environment,
    complete_once,
    create_backend,
    failed_call,
    request,
    use_backend,
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_environment(monkeypatch)


def test_where_and_what_is_asked() -> None:
    _answer, server = complete_once("ollama", scripted(ollama_reply('{"code": "1"}')), request(output_schema=SCHEMA))
    (received,) = server.requests
    assert (received.method, received.path) == ("POST", "/api/chat")
    body = received.json()
    assert body.pop("messages")[0] == {"role": "system", "content": "Be brief."}
    assert body.pop("tools", []) == []
    assert body == {
        "model": "some-model",
        "stream": False,
        "format": SCHEMA,
        "options": {"temperature": 0.0, "num_predict": 4096},
    }


def test_a_schema_keeps_its_nulls() -> None:
    schema = {"type": "object", "properties": {"code": {"enum": ["a", None], "default": None}}}
    _answer, server = complete_once("ollama", scripted(ollama_reply("{}")), request(output_schema=schema))
    assert server.requests[0].json()["format"] == schema


def test_an_error_in_its_own_words() -> None:
    reply = Reply(status=404, body={"error": "model 'some-model' not found"})
    assert str(failed_call("ollama", scripted(reply))) == "ollama: HTTP 404: model 'some-model' not found"


def test_each_call_of_a_tool_has_another_id() -> None:
    calls = [{"id": "call_1", "name": "look_up", "arguments": {"page": 1}}]
    messages = (
        {"role": "user", "content": "Find it"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "no"},
    )
    more = [{"name": "look_up", "arguments": {"page": number}} for number in (2, 3)]
    answer, _server = complete_once(
        "ollama", scripted(ollama_reply(tool_calls=more)), request(messages=messages, tools=(LOOK_UP,))
    )
    assert [call.id for call in answer.tool_calls] == ["call_2", "call_3"]


def test_what_the_client_drops_of_a_tool_stands_in_words() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "place": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Where."},
            "plain": {"type": "string", "title": "Plain"},
        },
    }
    tool = Tool(name="go", description="Goes.", parameters=parameters)
    _answer, server = complete_once("ollama", scripted(ollama_reply("ok")), request(tools=(tool,)))
    sent = server.requests[0].json()["tools"][0]["function"]["parameters"]["properties"]
    assert sent == {
        "place": {"description": 'Where. (JSON Schema: {"anyOf": [{"type": "string"}, {"type": "null"}]})'},
        "plain": {"type": "string"},
    }


def test_a_key_goes_along_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", "a-key-of-some-length")
    _answer, server = complete_once("ollama", scripted(ollama_reply("hello")))
    assert server.requests[0].headers["authorization"] == "Bearer a-key-of-some-length"


def test_the_address_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer(scripted(ollama_reply("hello"))) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url.removeprefix("http://"))
        assert use_backend("ollama", "", lambda backend: backend.complete(request())).content == "hello"


def test_retries_are_bounded() -> None:
    handler = scripted(error_reply(503, headers={"retry-after": "0.01"}))
    with FakeServer(handler) as server:

        async def use(backend: Any) -> None:
            with pytest.raises(RuntimeError, match="HTTP 503"):
                await backend.complete(request())

        use_backend("ollama", server.url, use, retries=3)
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 404])
def test_what_will_not_pass_is_not_tried_again(status: int) -> None:
    with FakeServer(scripted(error_reply(status))) as server:

        async def use(backend: Any) -> None:
            with pytest.raises(RuntimeError, match=f"HTTP {status}"):
                await backend.complete(request())

        use_backend("ollama", server.url, use, retries=3)
    assert len(server.requests) == 1


def test_a_wait_of_hours_is_an_error_at_once() -> None:
    error = failed_call("ollama", scripted(error_reply(429, headers={"retry-after": "7200"})), retries=3)
    assert error.kind == "rate_limit"


def test_how_long_it_waits() -> None:
    assert _retry_delay_s(0, "3") == 3
    assert 0 < _retry_delay_s(0, format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)) <= 60
    for useless in ("", "soon", "-1", "0", "nan", format_datetime(datetime(2001, 1, 1, tzinfo=UTC))):
        assert 0.375 <= _retry_delay_s(0, useless) <= 0.5
        assert 6 <= _retry_delay_s(50, useless) <= 8


def test_two_calls_at_once_keep_their_own_waits() -> None:
    # the wait is read from a response of the same call, not from whichever came last
    told = {"a": "0.01", "b": "7200"}

    def handler(received: Any) -> Reply:
        text = received.json()["messages"][-1]["content"]
        first = text in told and not any(other.json()["messages"][-1]["content"] == text for other in seen)
        seen.append(received)
        return error_reply(429, headers={"retry-after": told[text]}) if first else ollama_reply(text)

    seen: list[Any] = []

    async def use(backend: Any) -> list[Any]:
        return await asyncio.gather(*(backend.complete(request(text)) for text in told), return_exceptions=True)

    with FakeServer(handler, latency_s=0.05) as server:
        first, second = use_backend("ollama", server.url, use, retries=1)
    assert first.content == "a"
    assert second.kind == "rate_limit"


def test_it_opens_without_a_server() -> None:
    backend = create_backend("ollama", "http://127.0.0.1:1")
    assert (backend.name, backend.model) == ("ollama", "some-model")
