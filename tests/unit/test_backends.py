"""The backends of model providers: what each sends and reads, through its real client against a local server."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.backends import BackendError
from pytest_packbench.backends.answers import fits_strict
from pytest_packbench.backends.ollama import retry_delay_s
from pytest_packbench.model.request import Tool, ToolCall, Usage
from tests.servers.fake import FakeServer, Received, Reply, closed_port, scripted
from tests.servers.wire import REPLIES, answer_with, anthropic_reply, error_reply, openai_reply
from tests.unit.backend_calls import PROVIDERS, clear_environment, complete_once, failed_call, request, use_backend

if TYPE_CHECKING:
    from pytest_packbench.backends import Backend
    from tests.conftest import ExpectedTexts
    from tests.servers.fake import Handler

CODE = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "sure": {"type": "boolean"}},
    "required": ["code"],
    "additionalProperties": False,
}
STRICT = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"A": {"type": "array", "items": {"type": "string", "enum": ["x"]}}},
}
ARRAY = {"type": "array", "items": {"type": "integer"}}
REFERENCE = {"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}}
LOOK_UP = Tool(
    name="look_up",
    description="Finds a page.",
    parameters={"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]},
)
GO = Tool(
    name="go",
    description="Goes.",
    parameters={
        "type": "object",
        "properties": {
            "place": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Where."},
            "plain": {"type": "string", "title": "Plain"},
        },
    },
)
CALLS = [ToolCall(id=f"call_{page}", name="look_up", arguments={"page": page}).as_json() for page in (1, 2)]
CONVERSATION = (
    {"role": "user", "content": "Find both"},
    {"role": "assistant", "content": "I look.", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "call_1", "content": "one"},
    {"role": "tool", "tool_call_id": "call_2", "content": "two"},
    {"role": "assistant", "content": "", "tool_calls": CALLS[:1]},
    {"role": "tool", "tool_call_id": "call_1", "content": "again"},
    {"role": "assistant", "content": "Found."},
    {"role": "user", "content": "Thanks"},
)
REQUESTS = {
    "text": request(),
    "no instructions": request(system=""),
    "JSON": request(output_schema=CODE),
    "JSON in strict mode": request(output_schema=STRICT),
    "JSON array": request(output_schema=ARRAY),
    "JSON by reference": request(output_schema=REFERENCE),
    "JSON with null": request(output_schema={"type": "object", "properties": {"a": {"enum": ["a", None]}}}),
    "tools": request(tools=(LOOK_UP, GO)),
    "tool results": request(messages=CONVERSATION, tools=(LOOK_UP,)),
}
SHORT = (5, 9)
KEY = "sk-planted-0123456789abcdef"
WORDS = (
    "Unsupported value: '{}' does not support 0 with this model. Only the default (1) value is supported.",
    "Unsupported parameter: '{}' is not supported with this model.",
    "Unrecognized request argument supplied: {}",
    "`{}` is deprecated for this model.",
    "{}: Extra inputs are not permitted",
    "Thinking may not be enabled when {} forces tool use.",
)

each_provider = pytest.mark.parametrize("provider", PROVIDERS)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_environment(monkeypatch)


def hello(provider: str) -> Reply:
    return REPLIES[provider]("hello")


@each_provider
def test_each_request_is_sent_in_the_providers_format(provider: str, expected: ExpectedTexts) -> None:
    async def send(backend: Backend) -> None:
        for model_request in REQUESTS.values():
            await backend.complete(model_request)

    with FakeServer(scripted(REPLIES[provider]("{}"))) as server:
        use_backend(provider, server.url, send)
    lines = []
    for name, received in zip(REQUESTS, server.requests, strict=True):
        version = received.headers.get("anthropic-version", "")
        lines.append(f"{name}: {received.method} {received.path} {version}".rstrip())
        fields = sorted((key, value) for key, value in received.json().items() if value != [])
        lines += [f"    {key}: {json.dumps(value, sort_keys=True)}" for key, value in fields]
    expected.check("\n".join(lines) + "\n")


def changed(reply: Reply, path: str, value: Any) -> Reply:
    """Set a value in the body of a reply."""
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    target = reply.body
    for part in parents:
        target = target[part]
    target[last] = value
    return reply


def replies_of_all(provider: str) -> dict[str, tuple[Reply, str]]:
    """Return replies that each provider gives in its own format, and the names of their requests."""
    text = REPLIES[provider]
    forms = (b"{not json", b"[]", b"null", b'"text"', b"{}", b'{"choices": [], "content": 3, "message": []}', b"\xff")
    failures = (b"<html>Bad\n Gateway</html>", b"[1]", b'"no"', b"", b"null", b'{"error": [1]}', b'{"error": "own"}')
    return {
        "text": (text("hello"), "text"),
        "empty text": (text(""), "text"),
        "no token counts": (text("hello", usage=None), "text"),
        "text instead of JSON": (text("Sure! Here it is", usage=SHORT), "JSON"),
        "deep JSON": (text("[" * 100_000, usage=SHORT), "JSON"),
        "NaN": (text('{"code": NaN}', usage=SHORT), "JSON"),
        "JSON in text": (text('{"code": "2"}'), "JSON"),
        **{f"body {body!r}": (Reply(body=body), "JSON") for body in forms},
        **{
            f"status {status}": (error_reply(status, "the\nreason"), "text")
            for status in (400, 401, 403, 404, 408, 422, 429, 499, 500, 503, 529)
        },
        **{f"status 502 {body!r}": (Reply(status=502, body=body), "text") for body in failures},
        "long error": (error_reply(400, "x" * 100_000), "text"),
    }


def openai_replies() -> dict[str, tuple[Reply, str]]:
    calls = "choices.0.message.tool_calls.0.function.arguments"
    counts = (-1, "7", 1.5, True, None, 2**64, 10**4200, 2**64 - 1, 0)
    return {
        "wrapped array": (openai_reply('{"value": [1, 2]}'), "JSON array"),
        "wrapped number": (openai_reply('{"value": 5}'), "JSON by reference"),
        "unwrapped object": (openai_reply('{"value": 5, "more": 1}'), "JSON array"),
        "tool call": (openai_reply(None, tool_calls=CALLS[:1]), "tools"),
        **{
            f"tool call with {arguments!r}": (changed(openai_reply(None, tool_calls=CALLS[:1]), calls, arguments), "tools")
            for arguments in ("[1]", "{page: 3}", "NaN", "", None)
        },
        "no text": (openai_reply(None), "text"),
        "cut off": (openai_reply('{"code": "64', finish_reason="length", usage=SHORT), "JSON"),
        "refusal": (openai_reply(refusal="I can't help with that."), "text"),
        "content filter": (openai_reply(None, finish_reason="content_filter"), "JSON"),
        "content filter with text": (openai_reply("I", finish_reason="content_filter"), "JSON"),
        **{
            f"count {str(count)[:30]}": (changed(openai_reply("hello"), "usage.prompt_tokens", count), "text")
            for count in counts
        },
    }  # fmt: skip


def anthropic_replies() -> dict[str, tuple[Reply, str]]:
    def answer(arguments: Any, **fields: Any) -> Reply:
        return anthropic_reply(tool_uses=[{"id": "t", "name": "answer", "arguments": arguments}], **fields)

    def refusal(text: str | None, explanation: str | None) -> Reply:
        details = {"type": "refusal", "category": "bio", "explanation": explanation}
        return anthropic_reply(text, stop_reason="refusal", stop_details=details)

    thinking = {"type": "thinking", "thinking": "hm", "signature": "x"}
    text = {"type": "text", "text": "hello"}
    cached = {"input_tokens": 3, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 500, "output_tokens": 6}
    huge = {"input_tokens": 2**63, "cache_read_input_tokens": 2**63, "output_tokens": 6}
    return {
        "JSON as a tool": (answer({"code": "1"}), "JSON"),
        "wrapped array": (answer({"value": [1, 2]}), "JSON array"),
        "wrapped number": (answer({"value": 5}), "JSON by reference"),
        "tool call": (anthropic_reply("I look.", tool_uses=CALLS[:1]), "tools"),
        "tool call with a list": (anthropic_reply(tool_uses=[{**CALLS[0], "arguments": [1]}]), "tools"),
        "cut off": (answer({}, stop_reason="max_tokens", usage=SHORT), "JSON"),
        "full context window": (anthropic_reply("so", stop_reason="model_context_window_exceeded"), "text"),
        "refusal with text": (refusal("I won't do that.", "Not this."), "JSON"),
        "refusal with an explanation": (refusal(None, "Not this."), "JSON"),
        "refusal without words": (refusal(None, None), "JSON"),
        "refusal without details": (anthropic_reply(stop_reason="refusal"), "JSON"),
        "thinking": (changed(anthropic_reply(""), "content", [thinking, text]), "text"),
        "cached tokens": (anthropic_reply("hello", usage=cached), "text"),
        "more tokens than a record can contain": (anthropic_reply("hello", usage=huge), "text"),
    }


def ollama_replies() -> dict[str, tuple[Reply, str]]:
    ollama_reply = REPLIES["ollama"]
    return {
        "array": (ollama_reply("[1, 2]"), "JSON array"),
        "number": (ollama_reply("5"), "JSON by reference"),
        "tool call": (ollama_reply(tool_calls=CALLS[:1]), "tools"),
        "tool calls after three others": (ollama_reply(tool_calls=CALLS), "tool results"),
        "cut off": (ollama_reply('{"code": "64', done_reason="length", usage=SHORT), "JSON"),
    }


REPLIES_OF_ONE = {"openai": openai_replies, "anthropic": anthropic_replies, "ollama": ollama_replies}


def describe(error: BackendError) -> str:
    message = str(error)
    assert "\n" not in message
    assert len(message) < 400
    # without the words of JSON's and the client's parsers, which differ from version to version
    message = re.sub(
        r"(chat response|HTTP 502): .*(line 1|expected|codec|argument|error for|status code).*", r"\1", message
    )
    message = re.sub(r"JSON \(.*\)", "JSON (...)", message)
    return f"{error.kind}, {message}{'' if error.usage is None else tokens(error.usage)}"


def tokens(usage: Usage) -> str:
    return f", {usage.tokens_input}/{usage.tokens_output} tokens"


@each_provider
def test_each_reply_is_an_answer_or_an_error_of_one_line(provider: str, expected: ExpectedTexts) -> None:
    replies = replies_of_all(provider) | REPLIES_OF_ONE[provider]()
    overloads: list[int] = []

    async def outcomes(backend: Backend) -> list[str]:
        lines = []
        for name, (_, request_name) in replies.items():
            overloads.clear()
            try:
                answer = await backend.complete(REQUESTS[request_name])
                fields = {
                    key: value for key, value in asdict(answer).items() if key != "usage" and value not in (None, ())
                }
                line = json.dumps(fields) + tokens(answer.usage)
            except BackendError as error:
                line = describe(error)
            lines.append(f"{name}: {line}{', overload' * len(overloads)}\n")
        return lines

    with FakeServer(scripted(*(reply for reply, _ in replies.values()))) as server:
        lines = use_backend(
            provider, server.url, outcomes, max_output_tokens=9, on_overload=lambda: overloads.append(1)
        )
    expected.check("".join(lines))


@each_provider
def test_a_temporary_failure_is_retried_after_the_wait_that_the_server_asks_for(provider: str) -> None:
    # longer than the clients' own waits
    waits = {429: 0.6, 503: 0.02, 500: 0.01}
    replies = [error_reply(status, headers={"retry-after": str(wait)}) for status, wait in waits.items()]
    overloads: list[int] = []
    answer, server = complete_once(
        provider, scripted(*replies, hello(provider)), retries=3, on_overload=lambda: overloads.append(1)
    )
    assert (answer.content, len(server.requests), len(overloads)) == ("hello", 4, 2)
    times = [received.at for received in server.requests]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert [pause >= wait for pause, wait in zip(pauses, waits.values(), strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("reply", "kind", "requests"),
    [
        (error_reply(503, headers={"retry-after": "0.01"}), "overloaded", 4),
        (error_reply(400), "bad_request", 1),
        (error_reply(401), "auth", 1),
        (error_reply(404), "bad_request", 1),
        (error_reply(429, headers={"retry-after": "7200"}), "rate_limit", 1),
    ],
    ids=["temporary", "400", "401", "404", "hours"],
)
def test_ollama_repeats_a_call_only_where_it_may_help(reply: Reply, kind: str, requests: int) -> None:
    with FakeServer(scripted(reply)) as server, pytest.raises(BackendError) as caught:
        use_backend("ollama", server.url, lambda backend: backend.complete(request()), retries=3)
    assert (caught.value.kind, len(server.requests)) == (kind, requests)


def test_ollama_waits_as_long_as_the_server_asks_or_exponentially_longer() -> None:
    in_a_minute = datetime.now(UTC) + timedelta(seconds=60)
    assert retry_delay_s(0, "3") == 3
    assert 0 < retry_delay_s(0, format_datetime(in_a_minute, usegmt=True)) <= 60
    for useless in ("", "soon", "-1", "0", "nan", format_datetime(datetime(2001, 1, 1, tzinfo=UTC))):
        assert 0.375 <= retry_delay_s(0, useless) <= 0.5
        assert 1.5 <= retry_delay_s(2, useless) <= 2
        assert 6 <= retry_delay_s(50, useless) <= 8


def test_each_of_two_calls_to_ollama_has_the_wait_of_its_own_response() -> None:
    waits, texts = {"a": "0.01", "b": "7200"}, []

    def handler(received: Received) -> Reply:
        text = received.json()["messages"][-1]["content"]
        texts.append(text)
        first = texts.count(text) == 1
        return error_reply(429, headers={"retry-after": waits[text]}) if first else REPLIES["ollama"](text)

    async def use(backend: Backend) -> list[Any]:
        return await asyncio.gather(*(backend.complete(request(text)) for text in waits), return_exceptions=True)

    with FakeServer(handler, latency_s=0.05) as server:
        first, second = use_backend("ollama", server.url, use, retries=1)
    assert (first.content, second.kind) == ("a", "rate_limit")


@each_provider
def test_a_call_without_a_response_is_an_error(provider: str) -> None:
    hang = failed_call(provider, scripted(Reply(hang=True)), timeout_s=0.2)
    assert (hang.kind, str(hang)) == ("timeout", f"{provider}: no answer within 0.2 seconds")
    cut = failed_call(provider, scripted(Reply(body={"cut": "in the middle"}, cut=True)))
    assert (cut.kind, str(cut)[: len(provider) + 33]) == ("network", f"{provider}: no answer: RemoteProtocolError:")
    unsendable = failed_call(provider, scripted(hello(provider)), request("half \ud83d"))
    assert unsendable.kind == "bad_request"
    with pytest.raises(BackendError) as caught:
        use_backend(provider, f"http://127.0.0.1:{closed_port()}", lambda backend: backend.complete(request()))
    assert (caught.value.kind, caught.value.__cause__) == ("network", None)


@each_provider
def test_concurrent_calls_share_the_connections_and_each_gets_its_own_answer(provider: str) -> None:
    async def use(backend: Backend) -> list[Any]:
        answers = await asyncio.gather(*(backend.complete(request(f"<{number}>")) for number in range(20)))
        return [answer.content for answer in answers]

    with FakeServer(answer_with(lambda question: question.text * 2), latency_s=0.05) as server:
        contents = use_backend(provider, server.url, use, connections=5)
    assert contents == [f"<{number}><{number}>" for number in range(20)]
    assert server.most_open == 5


@each_provider
def test_a_client_stays_usable_after_a_cancelled_call_and_a_lost_connection(provider: str) -> None:
    async def use(backend: Backend) -> list[Any]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(backend.complete(request()), 0.1)
        answers = [await backend.complete(request())]
        server.close_connections()
        return [answer.content for answer in [*answers, await backend.complete(request())]]

    with FakeServer(scripted(Reply(hang=True), hello(provider))) as server:
        assert use_backend(provider, server.url, use, connections=1, retries=1) == ["hello", "hello"]


@each_provider
@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_no_message_contains_a_secret(provider: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2-hunter2")
    header = "GATEWAY_TOKEN" if provider == "ollama" else f"{provider.upper()}_CUSTOM_HEADERS"
    monkeypatch.setenv(header, "planted-in-a-header" if provider == "ollama" else "X-Gateway: planted-in-a-header")
    echoes = (
        f"Incorrect API key provided: {KEY}",
        "Incorrect API key provided: sk-plant*********cdef",
        f'you sent {{"Authorization": "Bearer {KEY}", "x-api-key": "{KEY}"}}',
        "environment: hunter2-hunter2 and header planted-in-a-header",
    )
    for echo in echoes:
        reply = REPLIES[provider](echo) if status == 200 else error_reply(status, echo)
        error = failed_call(provider, scripted(reply), request(output_schema=CODE))
        assert "redacted" in str(error)
        assert error.__cause__ is None
        assert error.__suppress_context__
        assert [part for part in ("planted", "hunter2", "cdef", "0123456789") if part in str(error)] == []


@each_provider
def test_the_key_goes_to_the_server(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", f" {KEY}\n" if provider != "ollama" else KEY)
    _answer, server = complete_once(provider, scripted(hello(provider)))
    headers = server.requests[0].headers
    assert headers.get("authorization") == f"Bearer {KEY}" or headers["x-api-key"] == KEY


def refusing(provider: str, parameter: str, words: str) -> Handler:
    """Return a handler that refuses requests with a parameter."""

    def handler(received: Received) -> Reply:
        return error_reply(400, words.format(parameter)) if parameter in received.json() else hello(provider)

    return handler


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize(
    ("provider", "parameter", "instead"),
    [
        ("openai", "temperature", None),
        ("openai", "max_tokens", "max_completion_tokens"),
        ("anthropic", "temperature", None),
        ("anthropic", "tool_choice", None),
    ],
)
def test_a_parameter_that_the_model_refuses_is_omitted_from_then_on(
    provider: str, parameter: str, instead: str | None, words: str
) -> None:
    model_request = REQUESTS["JSON" if parameter == "tool_choice" else "text"]
    temperatures: list[float | None] = []

    async def twice(backend: Any) -> None:
        for _ in range(2):
            temperatures.append(backend.temperature)
            await backend.complete(model_request)
        temperatures.append(backend.temperature)

    reply = anthropic_reply('{"code": "1"}') if parameter == "tool_choice" else hello(provider)
    handler = refusing(provider, parameter, words)
    with FakeServer(lambda received: reply if parameter not in received.json() else handler(received)) as server:
        use_backend(provider, server.url, twice, max_output_tokens=77)
    later = None if parameter == "temperature" else 0.0
    assert temperatures == [0.0, later, later]
    bodies = [received.json() for received in server.requests]
    assert [parameter in body for body in bodies] == [True, False, False]
    assert instead is None or [body.get(instead) for body in bodies] == [None, 77, 77]


@pytest.mark.parametrize(
    ("provider", "parameter", "words"),
    [
        ("openai", "max_tokens", "{} is too large: 99999. This model supports at most 4096 completion tokens."),
        ("anthropic", "temperature", "{}: range: 0..1"),
    ],
)
def test_a_value_out_of_range_stays_an_error(provider: str, parameter: str, words: str) -> None:
    error = failed_call(provider, refusing(provider, parameter, words))
    assert str(error) == f"{provider}: HTTP 400: {words.format(parameter)}"


def test_a_parameter_is_kept_where_the_call_fails_without_it_too() -> None:
    def handler(received: Received) -> Reply:
        failing = b"Which" in received.body
        return error_reply(400, "not allowed: temperature") if failing else openai_reply("hello")

    async def use(backend: Any) -> float | None:
        with pytest.raises(BackendError, match="not allowed"):
            await backend.complete(request())
        await backend.complete(request("Another"))
        temperature: float | None = backend.temperature
        return temperature

    with FakeServer(handler) as server:
        assert use_backend("openai", server.url, use) == 0.0
    assert server.requests[-1].json()["temperature"] == 0.0


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"required": ["a"]}, False),
        ({"additionalProperties": True}, False),
        ({"$defs": {"A": {"type": "string", "default": "x"}}}, False),
        ({"$defs": {"A": {"type": "object", "properties": {}}}}, False),
        ({"$defs": {"A": {"type": "array", "items": {"type": "string", "minLength": 1}}}}, False),
        ({"allOf": []}, False),
    ],
)
def test_the_strict_mode_of_openai_needs_closed_objects_of_known_keywords(change: dict[str, Any], fits: bool) -> None:
    assert fits_strict(STRICT | change) is fits
