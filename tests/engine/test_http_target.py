"""Each request to a server gets its answer or an error of one line; no login and no header is shown."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
import zlib
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.engine.http_target import HEADERS_VARIABLE, HttpTarget, shown_url
from pytest_packbench.engine.targets import TargetCaller, run_in_thread
from pytest_packbench.model.request import MAX_RESULT_BYTES, AnswerError, TargetError, TargetFailure, VerifyRequest
from tests.engine.attempts import wait_until
from tests.servers.fake import FakeServer, Received, Reply, closed_port, scripted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.conftest import ExpectedTexts

REQUEST = VerifyRequest(input={"text": "Zwei Stühle 🪑\u2028"}, options={"max_iters": 2}, evidence=("a", {"b": 1}))


def use_target(url: str, use: Callable[[HttpTarget], Awaitable[Any]], **options: Any) -> Any:
    """Use a target on an event loop of its own and close it."""

    async def run() -> Any:
        async with aclosing(HttpTarget(**{"url": url, "timeout_s": 30.0, "connections": 4, **options})) as target:
            return await use(target)

    return asyncio.run(run())


def answer_of(url: str, request: VerifyRequest = REQUEST, **options: Any) -> Any:
    return use_target(url, lambda target: target.verify(request), **options)


def failure_of(url: str, **options: Any) -> TargetFailure | AnswerError:
    with pytest.raises((TargetFailure, AnswerError)) as caught:
        answer_of(url, **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 450
    assert isinstance(caught.value, TargetFailure | AnswerError)
    return caught.value


def test_the_request_is_posted_as_json_and_the_body_is_the_result() -> None:
    result = {"verdict": "größer", "sum": 1.5, "list": [None, True], "large": "x" * 3_000_000}

    async def call(target: HttpTarget) -> None:
        caller = TargetCaller(target.verify)
        assert (caller.opaque, caller.asks_model) == (True, False)
        answer = await caller.call(REQUEST, None, run_in_thread)  # type: ignore[arg-type]  # it takes no context
        assert answer == result
        with pytest.raises(TargetFailure, match="can't be encoded as JSON") as caught:
            await target.verify(VerifyRequest(input=json.loads("1e999")))
        assert caught.value.kind == "target_error"
        assert await target.verify(VerifyRequest(input="\ud800")) == result
        await caller.aclose()
        with pytest.raises(TargetFailure, match="was closed"):
            await target.verify(REQUEST)

    with FakeServer(lambda _: Reply(body=result)) as server:
        use_target(f"{server.url}/verify?version=2", call)
    received, half = server.requests
    assert half.json()["input"] == "\ud800"
    assert (received.method, received.path) == ("POST", "/verify?version=2")
    assert received.headers["content-type"] == "application/json"
    assert received.json() == REQUEST.as_json()
    assert set(received.json()) == {"input", "options", "evidence"}


def test_requests_share_the_connections_and_each_gets_its_own_answer() -> None:
    def double(received: Received) -> Reply:
        number = received.json()["input"]
        cookie = {"set-cookie": "session=1; Path=/"}
        return Reply(body=2 * number, delay_s=0.01, headers=cookie) if number >= 0 else Reply(hang=True)

    async def use(target: HttpTarget) -> list[Any]:
        task = asyncio.create_task(target.verify(VerifyRequest(input=-1)))
        await wait_until(lambda: server.open)
        task.cancel()
        # the connection of a cancelled request is closed
        await wait_until(lambda: not server.open)
        return await asyncio.gather(*(target.verify(VerifyRequest(input=number)) for number in range(40)))

    with FakeServer(double) as server:
        results = use_target(server.url, use, connections=8)
    assert 1 < server.most_open <= 8
    assert results == [2 * number for number in range(40)]
    # no cookie connects one case to the next
    assert {received.headers.get("cookie") for received in server.requests} == {None}


DATA = yaml.safe_load(Path(__file__).with_name("data").joinpath("http_target.yaml").read_text("utf-8"))
TOO_LONG = b" " * (MAX_RESULT_BYTES + 1)
REPLIES = {
    **{name: Reply(**row | {"body": row.get("body", "").encode("latin-1")}) for name, row in DATA["failures"].items()},
    "deep": Reply(body=b"[" * 100_000),
    "long error": Reply(status=400, body=b"x" * 100_000),
    "too long": Reply(body=TOO_LONG),
    "too long when decompressed": Reply(body=zlib.compress(TOO_LONG), headers={"content-encoding": "deflate"}),
}


def test_every_failure_is_one_line(expected: ExpectedTexts) -> None:
    lines = []
    for name, reply in REPLIES.items():
        with FakeServer(scripted(reply)) as server:
            failure = failure_of(f"{server.url}/verify", timeout_s=0.2 if reply.hang else 30)
        message = str(failure).replace(server.url, "<server>")
        # the rest is the words of the library
        message = message[: message.index("complete:") + 8] if name == "cut" else message
        lines.append(f"{name}: {failure.kind}: {message}\n")
    url = f"http://127.0.0.1:{closed_port()}"
    failure = failure_of(url)
    lines.append(f"no server: {failure.kind}: {str(failure).replace(url, '<server>')}\n")
    expected.check("".join(lines))
    assert failure_of("http://nobody.invalid/verify").kind == "target_unreachable"


def test_a_server_on_this_machine_is_called_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with FakeServer(lambda _: Reply(body=1)) as server:
        assert answer_of(server.url) == 1
        assert answer_of(server.url.replace("127.0.0.1", "localhost")) == 1
    # a server elsewhere is called through it
    assert "can't connect: Connection refused" in str(failure_of("http://example.invalid/"))


USER, PASSWORD, QUERY, TOKEN, OTHER = "user-0f3a", "p4ss/w@rd!", "query-77b1", "tok-5d2c9e81", "other-1c4e"
ENVIRONMENT = "sk-environment-93d1"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
ENCODED = "p4ss%2Fw%40rd%21"
SECRETS = (USER, PASSWORD, ENCODED, BASIC, QUERY, TOKEN, OTHER, ENVIRONMENT)
ECHO = " ".join([*SECRETS, f"Bearer {TOKEN}"])
LEAKS = (
    Reply(status=401, body=ECHO.encode()),
    Reply(status=500, body={"echo": ECHO}),
    Reply(status=500, body=(ECHO * 50).encode()),
    Reply(body=ECHO.encode()),
    Reply(body=f'{{"{TOKEN}": 1, "{TOKEN}": 2}}'.encode()),
    Reply(status=302, headers={"location": f"/{TOKEN}/{PASSWORD}?a={QUERY}"}),
    Reply(hang=True),
    Reply(body=b"x" * 100, cut=True),
)


@pytest.fixture
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS_VARIABLE, f"X-Api-Key: Bearer {TOKEN}\n\n  X-Other: {OTHER}\n")
    monkeypatch.setenv("PIPELINE_API_KEY", ENVIRONMENT)


def secret_url(url: str) -> str:
    return f"{url.replace('http://', f'http://{USER}:{ENCODED}@')}/verify?key={QUERY}&n=3"


def leaks(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.usefixtures("_secrets")
def test_no_message_contains_a_secret() -> None:
    for reply in LEAKS:
        with FakeServer(scripted(reply)) as server:
            failure = failure_of(secret_url(server.url), timeout_s=0.2 if reply.hang else 30)
        assert leaks("\n".join([str(failure), *failure.details])) == []
        assert server.url in str(failure)
    assert leaks(str(failure_of(secret_url(f"http://127.0.0.1:{closed_port()}")))) == []


@pytest.mark.usefixtures("_secrets")
def test_headers_and_login_are_sent_but_never_stored_or_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def echo(received: Received) -> Reply:
        body = {"headers": received.headers, "more": [ECHO], TOKEN: received.json()["input"]}
        return Reply(body=body, headers={"x-echo": ECHO})

    caplog.set_level(logging.DEBUG)
    with FakeServer(echo) as server:
        result = answer_of(secret_url(server.url))
        logs = "\n".join(record.getMessage() for record in caplog.records)
        # a header of authorization replaces the login
        monkeypatch.setenv(HEADERS_VARIABLE, f"authorization: Bearer {TOKEN}")
        answer_of(secret_url(server.url))
    first, second = (received.headers for received in server.requests)
    assert (first["x-api-key"], first["x-other"]) == (f"Bearer {TOKEN}", OTHER)
    assert (first["authorization"], second["authorization"]) == (f"Basic {BASIC}", f"Bearer {TOKEN}")
    # scored as it is, and redacted with the attempt
    assert result["more"] == [ECHO]
    assert result["headers"]["content-type"] == "application/json"
    assert REQUEST.input in result.values()
    assert "HTTP Request: POST" in logs
    assert leaks(logs) == []
    assert not logging.getLogger("httpx2").filters


def test_a_url_is_shown_without_its_secrets_and_an_invalid_one_or_header_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {url: shown_url(url) for url in DATA["shown"]} == DATA["shown"]
    for url in DATA["invalid"]:
        with pytest.raises(TargetError, match=r"expected http://host:port/path, or https$") as caught:
            HttpTarget(url=url, timeout_s=1, connections=1)
        assert "word" not in str(caught.value)
    for lines, number in DATA["headers"].items():
        monkeypatch.setenv(HEADERS_VARIABLE, lines)
        with pytest.raises(TargetError) as caught:
            HttpTarget(url="http://host/", timeout_s=1, connections=1)
        message = f'PACKBENCH_HTTP_HEADERS, line {number}: expected "Name: value" in plain ASCII'
        assert str(caught.value) == message
    for name in ("Content-Length", "transfer-encoding", "Connection"):
        monkeypatch.setenv(HEADERS_VARIABLE, f"{name}: 1")
        with pytest.raises(TargetError, match=f"^{HEADERS_VARIABLE}, line 1: {name} follows from the request itself"):
            HttpTarget(url="http://host/", timeout_s=1, connections=1)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(TargetError, match=r'pip install "pytest-packbench\[http\]"'):
        HttpTarget(url="http://u:word@host/", timeout_s=1, connections=1)
