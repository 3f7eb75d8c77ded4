"""Each provider gets requests in its own format; each reply is an answer or an error of one line, without a secret."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.backends import BackendError, BackendOptions, BackendUnusable, open_backend
from pytest_packbench.backends.client import counts_in, retry_delay_s
from pytest_packbench.model.request import AnswerError, ModelAnswer, ModelRequest, Tool, Usage
from tests.servers.fake import FakeServer, Received, Reply, closed_port, scripted
from tests.servers.wire import REPLIES, answer_with, error_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pytest_packbench.backends import Backend
    from tests.conftest import ExpectedTexts
    from tests.servers.fake import Handler

PROVIDERS = ("openai", "anthropic", "ollama")
LOCAL = "http://127.0.0.1:1"
DATA = yaml.safe_load(Path(__file__).with_name("data").joinpath("backends.yaml").read_text("utf-8"))


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
) -> BackendError | AnswerError:
    with pytest.raises((BackendError, AnswerError)) as caught:
        complete_once(provider, handler, model_request, **options)[0].readable()
    assert isinstance(caught.value, BackendError | AnswerError)
    return caught.value


def from_data(fields: dict[str, Any]) -> ModelRequest:
    return request(**{**fields, "tools": tuple(Tool(**tool) for tool in fields.get("tools", ()))})


REQUESTS = {name: from_data(fields) for name, fields in DATA["requests"].items()}
KEY = "sk-planted-0123456789abcdef"
each_provider = pytest.mark.parametrize("provider", PROVIDERS)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove what the clients read."""
    suffixes = ("BASE_URL", "CUSTOM_HEADERS", "HOST", "KEY", "TOKEN", "PROXY", "ORG_ID", "PROJECT_ID")
    for name in os.environ:
        if name.upper().endswith(suffixes) or name.upper().startswith(("OPENAI_", "ANTHROPIC_", "OLLAMA_")):
            monkeypatch.delenv(name)


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


@each_provider
def test_a_redirect_is_not_followed(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", KEY)
    with FakeServer(scripted(hello(provider))) as other:
        error = failed_call(provider, scripted(Reply(status=308, headers={"location": other.url})))
    advice = "a redirect, which is not followed; set the address to which it leads"
    assert (error.kind, str(error)) == ("bad_request", f"{provider}: HTTP 308: {advice}")
    assert other.requests == []
    assert str(failed_call(provider, scripted(Reply(status=304)))) == f"{provider}: HTTP 304"


def reply_to(provider: str, fields: dict[str, Any]) -> Reply:
    """Return the reply that a row of the data describes."""
    fields = {name: value for name, value in fields.items() if name != "request"}
    if "body" in fields:
        return Reply(**{**fields, "body": fields["body"].encode("latin-1")})
    if "status" in fields:
        return error_reply(fields["status"], fields.get("message", "the\nreason"))
    changes = fields.pop("change", {})
    text = [fields.pop("text")] if "text" in fields else []
    reply = REPLIES[provider](*text, **fields)
    for path, value in changes.items():
        *parents, last = path.split(".")
        target = reply.body
        for part in parents:
            target = target[int(part) if part.isdecimal() else part]
        target[int(last) if last.isdecimal() else last] = value
    return reply


def describe(error: BackendError | AnswerError) -> str:
    message = str(error)
    assert "\n" not in message
    assert len(message) < 400
    # without the words of JSON's and the client's parsers, which differ from version to version
    parsers = r"(chat response|HTTP 502): .*(line 1|expected|codec|argument|error for|status code).*"
    message = re.sub(r"JSON \(.*\)", "JSON (...)", re.sub(parsers, r"\1", message))
    return f"{error.kind}, {message}{tokens(error.usage)}"


def tokens(usage: Usage | None) -> str:
    return f", {usage.tokens_input}/{usage.tokens_output} tokens" if usage else ""


@each_provider
def test_each_reply_is_an_answer_or_an_error_of_one_line(provider: str, expected: ExpectedTexts) -> None:
    rows = DATA["responses"] | DATA["replies"]["each"] | DATA["replies"][provider]
    replies = {name: (reply_to(provider, row), row.get("request", "text")) for name, row in rows.items()}
    replies["deep JSON"] = REPLIES[provider]("[" * 100_000, usage=(5, 9)), "JSON"
    replies["long error"] = error_reply(400, "x" * 100_000), "text"
    overloads: list[int] = []
    options: dict[str, Any] = {"max_output_tokens": 9, "on_overload": lambda: overloads.append(1)}

    async def outcomes(backend: Backend) -> list[str]:
        lines = []
        for name, (_, request_name) in replies.items():
            overloads.clear()
            try:
                answer = (await backend.complete(REQUESTS[request_name])).readable()
                fields = {key: value for key, value in asdict(answer).items() if value not in (None, ())}
                del fields["usage"]
                assert [call.as_json() for call in answer.tool_calls] == list(fields.get("tool_calls", ()))
                line = re.sub(r"JSON \((?:[^()]|\([^()]*\))*\)", "JSON (...)", json.dumps(fields)) + tokens(
                    answer.usage
                )
            except AnswerError as error:
                line = f"said {error.text[:40]!r}: {describe(error)}"
            except BackendError as error:
                line = describe(error)
            lines.append(f"{name}: {line}{', overload' * len(overloads)}\n")
        return lines

    with FakeServer(scripted(*(reply for reply, _ in replies.values()))) as server:
        expected.check("".join(use_backend(provider, server.url, outcomes, **options)))


@each_provider
def test_a_temporary_failure_is_retried_after_the_wait_that_the_server_asks_for(provider: str) -> None:
    # longer than the clients' own waits
    waits = {429: 0.6, 503: 0.02, 500: 0.01}
    replies = [error_reply(status, headers={"retry-after": str(wait)}) for status, wait in waits.items()]
    overloads: list[int] = []
    repeated: list[int] = []
    options: dict[str, Any] = {"retries": 3, "on_overload": lambda: overloads.append(1)}
    options["on_retry"] = lambda: repeated.append(1)
    answer, server = complete_once(provider, scripted(*replies, hello(provider)), **options)
    assert (answer.content, len(server.requests), len(overloads), len(repeated)) == ("hello", 4, 2, 3)
    pauses = [later.at - earlier.at for earlier, later in pairwise(server.requests)]
    assert [pause >= wait for pause, wait in zip(pauses, waits.values(), strict=True)] == [True] * 3


@each_provider
def test_each_of_several_calls_is_repeated_only_where_it_may_help(provider: str) -> None:
    texts, retries = [], DATA["retries"]

    def handler(received: Received) -> Reply:
        text = parse_request(received).text
        texts.append(text)
        status, wait, _, kind = retries[text]
        failing = kind or texts.count(text) == 1
        return error_reply(status, headers={"retry-after": wait}) if failing else hello(provider)

    async def use(backend: Backend) -> list[Any]:
        return await asyncio.gather(*(backend.complete(request(text)) for text in retries), return_exceptions=True)

    with FakeServer(handler, latency_s=0.05) as server:
        results = use_backend(provider, server.url, use, retries=2, connections=5)
    for (text, (_, _, requests, kind)), result in zip(retries.items(), results, strict=True):
        assert (texts.count(text), getattr(result, "kind", "")) == (requests, kind), text


def test_a_repetition_waits_as_long_as_the_server_asks_or_exponentially_longer() -> None:
    assert retry_delay_s(0, "3") == 3
    later = datetime.now(UTC) + timedelta(seconds=60)
    for date in (format_datetime(later, usegmt=True), format_datetime(later).replace("+0000", "-0000")):
        assert 55 <= retry_delay_s(0, date) <= 60
    for useless in ("", "soon", "-1", "0", "nan", "Wed, 21 Oct 2015 07:28:00 GMT"):
        assert 0.375 <= retry_delay_s(0, useless) <= 0.5
        assert 1.5 <= retry_delay_s(2, useless) <= 2
        assert 6 <= retry_delay_s(50, useless) <= 8


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
    # an exception of the test's handler is no answer
    with pytest.raises(ZeroDivisionError):
        failed_call(provider, lambda _: 1 / 0)  # type: ignore[arg-type, return-value]  # it never returns


@each_provider
def test_concurrent_calls_share_the_connections_and_survive_a_cancelled_and_a_lost_one(provider: str) -> None:
    reply = answer_with(lambda question: question.text * 2)

    async def use(backend: Backend) -> list[Any]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(backend.complete(request("hang")), 0.1)
        answers = await asyncio.gather(*(backend.complete(request(f"<{number}>")) for number in range(20)))
        server.close_connections()
        return [answer.content for answer in [*answers, await backend.complete(request("<20>"))]]

    def handler(received: Received) -> Reply:
        return Reply(hang=True) if b"hang" in received.body else reply(received)

    with FakeServer(handler, latency_s=0.05) as server:
        contents = use_backend(provider, server.url, use, connections=5, retries=1)
    assert contents == [f"<{number}><{number}>" for number in range(21)]
    assert server.most_open == 5


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
        error = failed_call(provider, scripted(reply), request(output_schema={"type": "object"}))
        assert "redacted" in str(error)
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None
        assert [part for part in ("planted", "hunter2", "cdef", "0123456789") if part in str(error)] == []


@each_provider
def test_the_key_and_the_options_are_sent(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", f" {KEY}\n" if provider != "ollama" else KEY)
    for name in ("ORG", "PROJECT"):
        monkeypatch.setenv(f"OPENAI_{name}_ID", name)
    options: dict[str, Any] = {"model": "other", "temperature": 0.5, "max_output_tokens": 7}
    _answer, server = complete_once(provider, scripted(hello(provider)), **options)
    headers, body = server.requests[0].headers, server.requests[0].json()
    assert headers.get("authorization") == f"Bearer {KEY}" or headers["x-api-key"] == KEY
    assert (body["model"], body.get("options", body)["temperature"], str(body).count("7")) == ("other", 0.5, 1)
    own = [headers.get(f"openai-{name}") for name in ("organization", "project")]
    assert own == (["ORG", "PROJECT"] if provider == "openai" else [None, None])


@each_provider
def test_headers_of_the_user_replace_those_of_the_same_name(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", KEY)
    monkeypatch.setenv(f"{provider.upper()}_CUSTOM_HEADERS", "AUTHORIZATION: mine\nX-API-Key: mine")
    backend: Any = open_backend(provider, BackendOptions(model="m", base_url=LOCAL))
    headers = backend._client.headers  # noqa: SLF001 - a server may see only one of two
    assert [headers.get_list(name) for name in ("authorization", "x-api-key")] == [["mine"], ["mine"]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-le"])
def test_a_server_of_json_may_answer_in_any_encoding_of_unicode(encoding: str) -> None:
    reply = Reply(body='{"word": "Zwölf"}'.encode(encoding))
    assert complete_once("json_server", scripted(reply), request("{}"))[0].content == {"word": "Zwölf"}


@pytest.mark.parametrize("charset", ["hex", "idna", "rot13", "undefined", "unknown"])
def test_a_charset_that_is_none_of_text_is_read_as_utf_8(charset: str) -> None:
    headers = {"content-type": f"application/json; charset={charset}"}
    reply = hello("openai")
    reply.headers.update(headers)
    assert complete_once("openai", scripted(reply))[0].content == "hello"
    assert "busy" in str(failed_call("openai", scripted(Reply(status=500, body=b"busy", headers=headers))))


def test_the_address_of_a_server_of_json_is_taken_as_it_is() -> None:
    with FakeServer(scripted(Reply(body={}))) as server:
        for path in ("/check/", "/check"):
            use_backend("json_server", server.url + path, lambda backend: backend.complete(request("{}")))
    assert [received.path for received in server.requests] == ["/check/", "/check"]


@pytest.mark.parametrize("words", DATA["refusals of a parameter"])
@pytest.mark.parametrize(("provider", "parameter", "instead"), DATA["refused parameters"])
def test_a_parameter_that_the_model_refuses_is_omitted_from_then_on(
    provider: str, parameter: str, instead: str | None, words: str
) -> None:
    def handler(received: Received) -> Reply:
        refused = parameter in received.json()
        return error_reply(400, words.format(parameter)) if refused else REPLIES[provider]('{"code": "1"}')

    async def call_twice(backend: Any) -> list[float | None]:
        temperatures = [backend.temperature]
        for _ in range(2):
            await backend.complete(REQUESTS["JSON" if parameter == "tool_choice" else "text"])
            temperatures.append(backend.temperature)
        return temperatures

    with FakeServer(handler) as server:
        temperatures = use_backend(provider, server.url, call_twice, max_output_tokens=77)
    later = None if parameter == "temperature" else 0.0
    assert temperatures == [0.0, later, later]
    bodies = [received.json() for received in server.requests]
    assert [parameter in body for body in bodies] == [True, False, False]
    assert instead is None or [body.get(instead) for body in bodies] == [None, 77, 77]


def test_a_raw_answer_is_text_although_it_has_a_schema() -> None:
    raw = request(raw=True, output_schema={"type": "integer"})
    assert complete_once("openai", scripted(Reply(body={"choices": [{"text": "5"}]})), raw)[0].content == "5"


def test_a_parameter_is_kept_where_the_call_fails_without_it_too() -> None:
    async def use(backend: Any) -> float | None:
        with pytest.raises(BackendError, match="not allowed"):
            await backend.complete(request())
        return float(backend.temperature)

    replies = [error_reply(400, "not allowed: temperature")] * 2
    with FakeServer(scripted(*replies)) as server:
        assert use_backend("openai", server.url, use) == 0.0
    assert ["temperature" in received.json() for received in server.requests] == [True, False]


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
    for name, (provider, options, environment) in DATA["unusable"].items():
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in environment.items():
                patch.setenv(variable, value)
            lines.append(f"{name}: {problem_of(provider, **options)}\n")
    for provider in PROVIDERS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "httpx2", None)
            lines.append(f"no package: {problem_of(provider, model='m', base_url=LOCAL)}\n")
        messages = {problem_of(provider, model="m", base_url=url) for url in DATA["bad addresses"]}
        lines += [f"bad address: {message}\n" for message in messages]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "httpx2", None)
        lines.append(f"no package: {problem_of('json_server', model='wall', base_url=LOCAL)}\n")
    expected.check("".join(lines))


@each_provider
def test_a_proxy_that_no_client_can_use_is_a_mistake_of_the_environment(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "ftp://127.0.0.1:1")
    problem = problem_of(provider, model="m", base_url="http://host:1")
    assert problem.startswith(f"the backend {provider} can't be opened: Unknown scheme for proxy URL")


@pytest.mark.parametrize(
    ("reply", "text", "kind", "message"),
    [
        (Reply(hang=True), "{}", "timeout", "wall: no answer within 0.2 seconds"),
        (Reply(body={}), "\ud83d", "bad_request", "wall: "),
        (Reply(status=503, body=b"busy"), "{}", "overloaded", "busy"),
        # not a ruling, although it is JSON
        (Reply(status=422, body=b'{"flagged": false}'), "{}", "bad_request", "wall: HTTP 422: "),
        (Reply(body=b'"\xff"'), "{}", "response_unreadable", "expected JSON ('utf-8' codec"),
        (Reply(body=b"1" * (2**20 + 1)), "{}", "response_unreadable", "an answer longer than 1 MiB"),
    ],
    ids=["hang", "half a character", "status", "refusal", "bytes", "too long"],
)
def test_a_server_of_json_that_does_not_answer_is_an_error(reply: Reply, text: str, kind: str, message: str) -> None:
    error = failed_call("json_server", scripted(reply), request(text), model="wall", timeout_s=0.2)
    assert (error.kind, message in str(error)) == (kind, True), error


def test_ollama_accepts_a_bare_host_and_anthropic_has_a_default_model() -> None:
    for url in ("localhost:11434", "127.0.0.1", ":11434", "http://host:1/path", "[::1]:5", ""):
        backend = open_backend("ollama", BackendOptions(model="m", base_url=url))
        assert (backend.name, backend.model, backend.temperature) == ("ollama", "m", 0.0)
    assert open_backend("anthropic", BackendOptions(base_url=LOCAL)).model == "claude-sonnet-4-6"


@each_provider
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


def test_a_total_that_is_too_small_counts_no_tokens_less_than_none() -> None:
    assert counts_in({"usage": {"prompt_tokens": 100, "total_tokens": 0}})["tokens_output"] is None
    assert counts_in({"usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 1}})["tokens_output"] is None
