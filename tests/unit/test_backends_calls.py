"""What every backend does alike, each through its real client against a local server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.backends import BackendError
from pytest_packbench.model.request import Usage
from tests.servers.fake import FakeServer, Reply, closed_port, scripted
from tests.servers.wire import answer_with, anthropic_reply, error_reply, ollama_reply, openai_reply
from tests.unit.backend_calls import (
    LOOK_UP,
    MODEL,
    PROVIDERS,
    SCHEMA,
    clear_environment,
    complete_once,
    failed_call,
    request,
    use_backend,
)

if TYPE_CHECKING:
    from pytest_packbench.backends import Backend
    from tests.servers.fake import Handler
    from tests.servers.wire import ProviderRequest

CALL = {"id": "call_1", "name": "look_up", "arguments": {"page": 3}}
TOOLS: dict[str, Reply] = {
    "openai": openai_reply(None, tool_calls=[CALL]),
    "anthropic": anthropic_reply("I look.", tool_uses=[CALL]),
    "ollama": ollama_reply(tool_calls=[CALL]),
}
CUT_OFF: dict[str, Reply] = {
    "openai": openai_reply('{"code": "64', finish_reason="length", usage=(5, 9)),
    "anthropic": anthropic_reply(
        tool_uses=[{"id": "t", "name": "answer", "arguments": {}}], stop_reason="max_tokens", usage=(5, 9)
    ),
    "ollama": ollama_reply('{"code": "64', done_reason="length", usage=(5, 9)),
}
NO_JSON: dict[str, Reply] = {
    "openai": openai_reply("Sure! Here it is", usage=(5, 9)),
    "anthropic": anthropic_reply("Sure! Here it is", usage=(5, 9)),
    "ollama": ollama_reply("Sure! Here it is", usage=(5, 9)),
}
NO_USAGE: dict[str, Reply] = {
    "openai": openai_reply("hello", usage=None),
    "anthropic": anthropic_reply("hello", usage=None),
    "ollama": ollama_reply("hello", usage=None),
}

pytestmark = pytest.mark.parametrize("provider", PROVIDERS)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_environment(monkeypatch)


def request_with(answer: Any) -> Handler:
    return answer_with(lambda _asked: answer)


def test_text(provider: str) -> None:
    answer, server = complete_once(provider, request_with("hello"))
    assert (answer.content, answer.refusal, answer.tool_calls) == ("hello", None, ())
    assert answer.usage == Usage(tokens_input=11, tokens_output=7)
    body = server.requests[0].json()
    assert body["model"] == MODEL
    assert body["messages"][-1] == {"role": "user", "content": "Which code?"}
    assert "Be brief." in json.dumps(body)
    assert (body if provider != "ollama" else body["options"])["temperature"] == 0.0


def test_json_by_schema(provider: str) -> None:
    given = {"code": "6404.11", "sure": True}
    answer, server = complete_once(provider, request_with(given), request(output_schema=SCHEMA))
    assert answer.content == given
    assert json.dumps(SCHEMA)[1:-1] in json.dumps(server.requests[0].json())


def test_an_answer_is_plain_json(provider: str) -> None:
    for handler, what in (
        (request_with({"code": "1"}), request(output_schema=SCHEMA)),
        (scripted(TOOLS[provider]), request(tools=(LOOK_UP,))),
    ):
        answer, _server = complete_once(provider, handler, what)
        plain = json.loads(json.dumps(asdict(answer)))
        assert (plain["content"], len(plain["tool_calls"])) == (answer.content, len(answer.tool_calls))


@pytest.mark.parametrize(
    "schema",
    [{"type": "array", "items": {"type": "integer"}}, {"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}}],
    ids=["array", "ref"],
)
def test_json_that_is_no_object(provider: str, schema: dict[str, Any]) -> None:
    value = [1, 2] if "items" in schema else 5
    wrapped = value if provider == "ollama" else {"value": value}
    answer, server = complete_once(provider, request_with(wrapped), request(output_schema=schema))
    assert answer.content == value
    if provider == "openai":
        sent = server.requests[0].json()["response_format"]["json_schema"]["schema"]
        assert (sent["type"], sent["required"]) == ("object", ["value"])
        assert sent.get("$defs") == schema.get("$defs")


def test_tools_there_and_back(provider: str) -> None:
    answer, server = complete_once(provider, scripted(TOOLS[provider]), request(tools=(LOOK_UP,)))
    (call,) = answer.tool_calls
    assert (call.id, call.name, call.arguments) == ("call_1", "look_up", {"page": 3})
    assert answer.content == ("I look." if provider == "anthropic" else "")
    (tool,) = server.requests[0].json()["tools"]
    function = tool if provider == "anthropic" else tool["function"]
    assert (function["name"], function["description"]) == ("look_up", "Finds a page.")
    assert function["input_schema" if provider == "anthropic" else "parameters"] == LOOK_UP.parameters
    messages = (
        {"role": "user", "content": "Find it"},
        {"role": "assistant", "content": answer.content, "tool_calls": [call.as_json()]},
        {"role": "tool", "tool_call_id": call.id, "content": "The text of page 3"},
    )
    later, server = complete_once(provider, request_with("done"), request(messages=messages, tools=(LOOK_UP,)))
    assert later.content == "done"
    *_, calling, told = server.requests[0].json()["messages"]
    assert calling["role"] == "assistant"
    expected = {
        "openai": {"role": "tool", "tool_call_id": "call_1", "content": "The text of page 3"},
        "anthropic": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "The text of page 3"}],
        },
        "ollama": {"role": "tool", "content": "The text of page 3", "tool_name": "look_up"},
    }
    assert told == expected[provider]


def test_no_count_is_invented(provider: str) -> None:
    answer, _server = complete_once(provider, scripted(NO_USAGE[provider]))
    assert answer.usage == Usage(tokens_input=None, tokens_output=None)


def test_asked_too_much_and_again(provider: str) -> None:
    told = []
    overloaded = error_reply(429, headers={"retry-after": "0.02"})
    handler = scripted(overloaded, error_reply(503, headers={"retry-after": "0.02"}), _reply(provider))
    answer, server = complete_once(provider, handler, retries=2, on_overload=lambda: told.append(1))
    assert answer.content == "hello"
    assert len(server.requests) == 3
    assert len(told) == 2
    first, second, third = (received.at for received in server.requests)
    assert second - first >= 0.02
    assert third - second >= 0.02


def test_the_wait_that_a_server_asks_for_is_longer_than_the_clients_own(provider: str) -> None:
    handler = scripted(error_reply(429, headers={"retry-after": "1"}), _reply(provider))
    _answer, server = complete_once(provider, handler, retries=1)
    assert server.requests[1].at - server.requests[0].at >= 1


def _reply(provider: str, text: str = "hello") -> Reply:
    if provider == "openai":
        return openai_reply(text)
    return anthropic_reply(text) if provider == "anthropic" else ollama_reply(text)


@pytest.mark.parametrize(
    ("status", "kind", "overloads"),
    [
        (400, "bad_request", 0),
        (401, "auth", 0),
        (403, "auth", 0),
        (404, "bad_request", 0),
        (408, "timeout", 0),
        (422, "bad_request", 0),
        (429, "rate_limit", 1),
        (500, "server_error", 0),
        (503, "overloaded", 1),
        (529, "overloaded", 1),
    ],
)
def test_statuses(provider: str, status: int, kind: str, overloads: int) -> None:
    told = []
    error = failed_call(provider, scripted(error_reply(status, "the\nreason")), on_overload=lambda: told.append(1))
    assert (error.kind, str(error)) == (kind, f"{provider}: HTTP {status}: the reason")
    assert error.usage is None
    assert len(told) == overloads


@pytest.mark.parametrize("body", [b"<html>Bad\n Gateway</html>", b"[1]", b'"no"', b"", b"null", b'{"error": [1]}'])
def test_a_failure_in_whatever_words(provider: str, body: bytes) -> None:
    error = failed_call(provider, scripted(Reply(status=502, body=body)))
    assert error.kind == "server_error"
    assert str(error).startswith(f"{provider}: HTTP 502")
    assert "\n" not in str(error)


def test_a_long_failure_is_shortened(provider: str) -> None:
    assert len(str(failed_call(provider, scripted(error_reply(400, "x" * 100_000))))) < 400


def test_a_failure_that_passes(provider: str) -> None:
    handler = scripted(Reply(status=500, body={}, headers={"retry-after": "0.01"}), _reply(provider))
    answer, server = complete_once(provider, handler, retries=1)
    assert answer.content == "hello"
    assert len(server.requests) == 2


def test_a_hang(provider: str) -> None:
    error = failed_call(provider, scripted(Reply(hang=True)), timeout_s=0.2)
    assert (error.kind, str(error)) == ("timeout", f"{provider}: no answer within 0.2 seconds")


def test_a_cut_connection(provider: str) -> None:
    error = failed_call(provider, scripted(Reply(body={"cut": "in the middle"}, cut=True)))
    assert error.kind == "network"
    assert str(error).startswith(f"{provider}: no answer: RemoteProtocolError")


def test_nobody_listens(provider: str) -> None:
    with pytest.raises(BackendError) as caught:
        use_backend(provider, f"http://127.0.0.1:{closed_port()}", lambda backend: backend.complete(request()))
    assert caught.value.kind == "network"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "body", [b"{not json", b"[]", b"null", b'"text"', b"{}", b'{"choices": [], "content": 3, "message": []}', b"\xff"]
)
def test_an_answer_of_no_known_form(provider: str, body: bytes) -> None:
    error = failed_call(provider, scripted(Reply(body=body)), request(output_schema=SCHEMA))
    assert error.kind == "answer_unreadable"
    assert str(error).startswith(f"{provider}: ")


def test_no_json_where_json_is_asked_for(provider: str) -> None:
    error = failed_call(provider, scripted(NO_JSON[provider]), request(output_schema=SCHEMA))
    assert error.kind == "answer_unreadable"
    assert "Sure! Here it is" in str(error)
    assert error.usage == Usage(tokens_input=5, tokens_output=9)


def test_an_answer_that_was_cut_off(provider: str) -> None:
    error = failed_call(provider, scripted(CUT_OFF[provider]), request(output_schema=SCHEMA), max_output_tokens=9)
    assert (error.kind, error.usage) == ("truncated", Usage(tokens_input=5, tokens_output=9))
    assert "at its limit of 9 output tokens" in str(error)


def test_half_a_character_cannot_be_sent(provider: str) -> None:
    error = failed_call(provider, request_with("hello"), request("half \ud83d"))
    assert error.kind == "bad_request"


def test_many_calls_at_once_on_a_few_connections(provider: str) -> None:
    def twice(asked: ProviderRequest) -> str:
        return asked.text * 2

    async def use(backend: Backend) -> list[Any]:
        answers = await asyncio.gather(*(backend.complete(request(f"<{number}>")) for number in range(20)))
        return [answer.content for answer in answers]

    with FakeServer(answer_with(twice), latency_s=0.05) as server:
        contents = use_backend(provider, server.url, use, connections=5)
    assert contents == [f"<{number}><{number}>" for number in range(20)]
    assert server.most_open == 5


def test_a_cancelled_call_leaves_the_client_usable(provider: str) -> None:
    async def use(backend: Backend) -> Any:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(backend.complete(request()), 0.1)
        return (await backend.complete(request())).content

    with FakeServer(scripted(Reply(hang=True), _reply(provider))) as server:
        assert use_backend(provider, server.url, use, connections=1) == "hello"


def test_a_server_that_goes_away_between_two_calls(provider: str) -> None:
    with FakeServer(request_with("hello")) as server:

        async def use(backend: Backend) -> Any:
            await backend.complete(request())
            server.close_connections()
            return (await backend.complete(request())).content

        assert use_backend(provider, server.url, use, retries=1) == "hello"


KEY = "sk-planted-0123456789abcdef"


@pytest.mark.parametrize(
    "echo",
    [
        f"Incorrect API key provided: {KEY}",
        "Incorrect API key provided: sk-plant*********cdef",
        f'you sent {{"Authorization": "Bearer {KEY}", "x-api-key": "{KEY}"}}',
        "environment: hunter2-hunter2 and header planted-in-a-header",
    ],
)
@pytest.mark.parametrize("status", [400, 401, 500])
def test_no_secret_in_a_message(provider: str, status: int, echo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2-hunter2")
    if provider != "ollama":
        monkeypatch.setenv(f"{provider.upper()}_CUSTOM_HEADERS", "X-Gateway: planted-in-a-header")
    else:
        monkeypatch.setenv("GATEWAY_TOKEN", "planted-in-a-header")
    message = str(failed_call(provider, scripted(error_reply(status, echo))))
    assert "redacted" in message
    for part in ("planted", "hunter2", "cdef", "0123456789"):
        assert part not in message


def test_no_secret_where_an_answer_is_unreadable(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hunter2-hunter2")
    echo = _reply(provider, "the key is hunter2-hunter2")
    error = failed_call(provider, scripted(echo), request(output_schema=SCHEMA))
    assert error.kind == "answer_unreadable"
    assert "hunter2" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_the_key_goes_to_the_server(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", f" {KEY}\n" if provider != "ollama" else KEY)
    _answer, server = complete_once(provider, request_with("hello"))
    headers = server.requests[0].headers
    assert f"Bearer {KEY}" == headers.get("authorization") or headers["x-api-key"] == KEY
