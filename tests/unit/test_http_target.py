"""A pipeline behind a URL, asked over loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import subprocess
import sys
import threading
import zlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.external_io import MAX_RESULT_BYTES, TargetError, TargetFailure
from pytest_packbench.engine.http_target import HEADERS_VARIABLE, HttpTarget, shown_url
from pytest_packbench.engine.targets import TargetCaller, run_in_thread
from pytest_packbench.model.request import VerifyRequest
from tests.servers.fake import FakeServer, Received, Reply, closed_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

REQUEST = VerifyRequest(input={"text": "Zwei Stühle 🪑\u2028"}, options={"max_iters": 2}, evidence=("a", {"b": 1}))


def use_target(url: str, use: Callable[[HttpTarget], Awaitable[Any]], **options: Any) -> Any:
    """Use a target on a loop of its own, and close it."""

    async def run() -> Any:
        target = HttpTarget(**{"url": url, "timeout_s": 30.0, "connections": 4, **options})
        async with aclosing(target):
            return await use(target)

    return asyncio.run(run())


def answer_to(url: str, request: VerifyRequest = REQUEST, **options: Any) -> Any:
    return use_target(url, lambda target: target.verify(request), **options)


def failure_of(url: str, **options: Any) -> TargetFailure:
    with pytest.raises(TargetFailure) as caught:
        answer_to(url, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def failing(reply: Reply, **options: Any) -> TargetFailure:
    with FakeServer(lambda _: reply) as server:
        return failure_of(f"{server.url}/verify", **options)


def test_the_request_of_the_spec_goes_out_and_the_body_comes_back() -> None:
    result = {"verdict": "größer", "sum": 1.5, "list": [None, True]}
    with FakeServer(lambda _: Reply(body=result)) as server:
        assert answer_to(f"{server.url}/verify?version=2") == result
        (received,) = server.requests
    assert (received.method, received.path) == ("POST", "/verify?version=2")
    assert received.headers["content-type"] == "application/json"
    assert received.json() == REQUEST.as_json()
    assert set(received.json()) == {"input", "options", "evidence"}


def test_it_is_a_target_for_the_caller() -> None:
    with FakeServer(lambda _: Reply(body={"x": 1})) as server:
        target = HttpTarget(url=server.url, timeout_s=30, connections=1)
        caller = TargetCaller(target.verify)
        assert (caller.opaque, caller.asks_model) == (True, False)

        async def run() -> Any:
            result = await caller.call_async(REQUEST, None, run_in_thread)  # type: ignore[arg-type]  # it asks for no context
            await caller.aclose()
            return result

        assert asyncio.run(run()) == {"x": 1}


def test_many_at_once_each_get_their_own_answer_over_few_connections() -> None:
    def double(received: Received) -> Reply:
        return Reply(body={"twice": 2 * received.json()["input"]}, delay_s=0.01)

    async def use(target: HttpTarget) -> list[Any]:
        return await asyncio.gather(*(target.verify(VerifyRequest(input=number)) for number in range(40)))

    with FakeServer(double) as server:
        results = use_target(server.url, use, connections=8)
        assert 1 < server.most_open <= 8
    assert results == [{"twice": 2 * number} for number in range(40)]


def test_a_cancelled_request_is_closed_and_the_next_one_works() -> None:
    async def run() -> Any:
        asked, left = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b'"evidence":[]}')
            if b"hang" in head:
                asked.set()
                assert await reader.read() == b""
                left.set()
            else:
                writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"fine"')
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        target = HttpTarget(url=url, timeout_s=30, connections=1)
        async with server, aclosing(target):
            task = asyncio.create_task(target.verify(VerifyRequest(input="hang")))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(left.wait(), 30)
            return await target.verify(VerifyRequest(input="go on"))

    assert asyncio.run(run()) == "fine"


def test_a_server_that_hangs_is_left_at_the_time_limit() -> None:
    failure = failing(Reply(hang=True), timeout_s=0.2)
    assert failure.kind == "target_timeout"
    assert "no complete response within 0.2 s" in str(failure)


def test_nobody_listens() -> None:
    failure = failure_of(f"http://127.0.0.1:{closed_port()}/verify")
    assert failure.kind == "target_unreachable"
    assert "Connection refused; check that the server runs and listens at this address" in str(failure)


def test_a_name_that_is_none() -> None:
    failure = failure_of("http://nobody.invalid/verify")
    assert failure.kind == "target_unreachable"


def test_a_server_that_is_killed_in_the_middle() -> None:
    code = (
        "import sys, http.server\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        print('asked', flush=True)\n"
        "        sys.stdin.read()\n"
        "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n"
        "print(server.server_port, flush=True)\n"
        "server.serve_forever()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as server:
        said = server.stdout
        assert said is not None
        url = f"http://127.0.0.1:{said.readline().strip()}/"

        def kill_when_asked() -> None:
            said.readline()
            server.kill()

        killer = threading.Thread(target=kill_when_asked)
        killer.start()
        dead = failure_of(url)
        killer.join()
        server.wait()
        gone = failure_of(url)
    assert dead.kind == "target_died"
    assert "the connection was closed before the response was complete" in str(dead)
    assert gone.kind == "target_unreachable"


def test_a_connection_that_is_cut_inside_the_body() -> None:
    assert failing(Reply(body={"long": "x" * 1000}, cut=True)).kind == "target_died"


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_a_status_that_is_no_success(status: int) -> None:
    failure = failing(Reply(status=status, body=b"the model\n  is not loaded " + b"x" * 100_000))
    assert failure.kind == "target_error"
    assert f"answered {status} Status: the model is not loaded xxx" in str(failure)
    assert len(str(failure)) < 400


def test_a_redirect_is_not_followed() -> None:
    with FakeServer(lambda _: Reply(body="stolen")) as other:
        place = f"{other.url.replace('http://', 'http://spy:pass4spy@')}/v2?key=hushhush"
        failure = failing(Reply(status=307, headers={"location": place}))
        assert other.requests == []
    assert failure.kind == "target_error"
    assert f"a redirect to {other.url}/v2?key=…; redirects are not followed, use the final address" in str(failure)


@pytest.mark.parametrize("location", ["/v2/", "http://[broken", "://", ""])
def test_any_redirect_is_one_line(location: str) -> None:
    assert failing(Reply(status=302, headers={"location": location})).kind in {"target_error", "target_died"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is empty"),
        (b"<html>Welcome</html>", "line 1 column 1: not JSON"),
        (b'{"score": NaN}', "NaN is not JSON"),
        (b'{"a": 1, "a": 2}', 'duplicate key "a"'),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": 1} {"b": 2}', "Extra data"),
    ],
)
def test_a_body_that_is_no_result(body: bytes, said: str) -> None:
    failure = failing(Reply(body=body))
    assert failure.kind == "result_unreadable"
    assert said in str(failure)
    assert len(str(failure)) < 400


def test_the_beginning_of_an_unreadable_body_is_shown() -> None:
    assert "the body begins: <html>Welcome</html>" in str(failing(Reply(body=b"<html>Welcome</html>")))


def test_a_large_result_comes_whole_and_a_huge_one_is_refused() -> None:
    large = "x" * 3_000_000
    with FakeServer(lambda _: Reply(body=large)) as server:
        assert answer_to(server.url) == large
    failure = failing(Reply(body=b" " * (MAX_RESULT_BYTES + 1)))
    assert failure.kind == "result_unreadable"
    assert "longer than 32 MiB" in str(failure)


def test_a_body_that_unpacks_to_more_than_is_read() -> None:
    packed = zlib.compress(b" " * (MAX_RESULT_BYTES + 1))
    failure = failing(Reply(body=packed, headers={"content-encoding": "deflate"}))
    assert "longer than 32 MiB" in str(failure)


def test_a_wrong_content_encoding() -> None:
    failure = failing(Reply(body=b"plain", headers={"content-encoding": "gzip"}))
    assert failure.kind == "result_unreadable"
    assert "Content-Encoding" in str(failure)


def test_no_cookie_ties_one_case_to_the_next() -> None:
    async def use(target: HttpTarget) -> None:
        await target.verify(REQUEST)
        await target.verify(REQUEST)

    with FakeServer(lambda _: Reply(body=1, headers={"set-cookie": "session=1; Path=/"})) as server:
        use_target(server.url, use)
        assert [received.headers.get("cookie") for received in server.requests] == [None, None]


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with FakeServer(lambda _: Reply(body=1)) as server:
        assert answer_to(server.url) == 1


def test_an_infinite_number_in_a_request_is_that_cases_error() -> None:
    with FakeServer(lambda _: Reply(body=1)) as server:
        with pytest.raises(TargetFailure, match="can't be encoded as JSON") as caught:
            answer_to(server.url, VerifyRequest(input=json.loads("1e999")))
        assert server.requests == []
    assert caught.value.kind == "target_error"


def test_a_lone_surrogate_travels() -> None:
    with FakeServer(lambda received: Reply(body={"back": received.json()["input"]})) as server:
        assert answer_to(server.url, VerifyRequest(input="\ud800")) == {"back": "\ud800"}


def test_after_closing_it_says_so() -> None:
    async def run() -> None:
        target = HttpTarget(url="http://127.0.0.1:1/", timeout_s=1, connections=1)
        await target.aclose()
        await target.aclose()
        await target.verify(REQUEST)

    with pytest.raises(TargetFailure, match="was closed"):
        asyncio.run(run())


USER, PASSWORD, QUERY, TOKEN, OWN = "user-0f3a", "p4ss/w@rd!", "query-77b1", "tok-5d2c9e81", "own-1c4e"
ENVIRONMENT = "sk-environment-93d1"


@pytest.fixture
def secret_url(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    monkeypatch.setenv(HEADERS_VARIABLE, f"X-Api-Key: Bearer {TOKEN}\n\n  X-Own: {OWN}\n")
    monkeypatch.setenv("PIPELINE_API_KEY", ENVIRONMENT)
    return lambda url: f"{url.replace('http://', f'http://{USER}:p4ss%2Fw%40rd%21@')}/verify?key={QUERY}&n=3"


def echoes() -> str:
    basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return " ".join([USER, PASSWORD, "p4ss%2Fw%40rd%21", basic, QUERY, f"Bearer {TOKEN}", TOKEN, OWN, ENVIRONMENT])


def leaks(text: str) -> list[str]:
    return [word for word in echoes().split() if word != "Bearer" and word in text]


def test_headers_and_credentials_are_sent(secret_url: Callable[[str], str]) -> None:
    with FakeServer(lambda _: Reply(body=1)) as server:
        answer_to(secret_url(server.url))
        (received,) = server.requests
    assert received.headers["x-api-key"] == f"Bearer {TOKEN}"
    assert received.headers["x-own"] == OWN
    scheme, basic = received.headers["authorization"].split()
    assert (scheme, base64.b64decode(basic)) == ("Basic", f"{USER}:{PASSWORD}".encode())


def test_a_given_authorization_wins(secret_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS_VARIABLE, f"authorization: Bearer {TOKEN}")
    with FakeServer(lambda _: Reply(body=1)) as server:
        answer_to(secret_url(server.url))
        assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=401, body=echoes().encode()),
        Reply(status=500, body={"echo": echoes()}),
        Reply(status=500, body=(echoes() * 50).encode()),
        Reply(body=echoes().encode()),
        Reply(body=f'{{"{TOKEN}": 1, "{TOKEN}": 2}}'.encode()),
        Reply(status=302, headers={"location": f"/{TOKEN}/{PASSWORD}?a={QUERY}"}),
        Reply(hang=True),
        Reply(body=b"x" * 100, cut=True),
    ],
)
def test_no_secret_in_a_message(reply: Reply, secret_url: Callable[[str], str]) -> None:
    with FakeServer(lambda _: reply) as server:
        failure = failure_of(secret_url(server.url), timeout_s=0.2 if reply.hang else 30)
    assert leaks("\n".join([str(failure), *failure.details])) == []
    assert server.url in str(failure)


def test_no_secret_in_a_message_when_nobody_listens(secret_url: Callable[[str], str]) -> None:
    failure = failure_of(secret_url(f"http://127.0.0.1:{closed_port()}"))
    assert leaks(str(failure)) == []


def test_no_secret_in_an_echoed_result(secret_url: Callable[[str], str]) -> None:
    def echo(received: Received) -> Reply:
        return Reply(body={"headers": received.headers, "more": [echoes()], TOKEN: received.json()["input"]})

    with FakeServer(echo) as server:
        result = answer_to(secret_url(server.url))
    assert leaks(json.dumps(result)) == []
    assert result["headers"]["content-type"] == "application/json"
    assert REQUEST.input in result.values()


def test_no_secret_in_the_librarys_logging(secret_url: Callable[[str], str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeServer(lambda _: Reply(body=1, headers={"x-echo": echoes()})) as server:
        answer_to(secret_url(server.url))
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "HTTP Request: POST" in said
    assert leaks(said) == []
    assert not logging.getLogger("httpx2").filters


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host/verify", "http://host/verify"),
        ("https://user:word@Host:8443/a/b", "https://host:8443/a/b"),
        ("http://key@host/", "http://host/"),
        ("http://u:a@b@host/", "http://host/"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("http://host/x?key=abc&flag&n=1#part", "http://host/x?key=…&…&n=…"),
        ("http://user:pa/ss@host/", "http://…"),
        ("http://user:word@[broken/", "http://…"),
        ("http://", "http://…"),
        ("no url, but user:word@host", "…"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///verify",
        "http://host:99999/",
        "http://us:word@[broken/",
        "ftp://us:word@host/",
        "http://host:0/",
    ],
)
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(TargetError, match=r"expected http://host:port/path, or https$") as caught:
        HttpTarget(url=url, timeout_s=1, connections=1)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    "lines", ["just-a-secret", "Good: 1\nBad Name: just-a-secret", "A: b\n: just-a-secret", "X: jüst"]
)
def test_headers_that_are_none(lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEADERS_VARIABLE, lines)
    with pytest.raises(TargetError, match=r'PACKBENCH_HTTP_HEADERS, line [12]: expected "Name: value"') as caught:
        HttpTarget(url="http://host/", timeout_s=1, connections=1)
    assert "secret" not in str(caught.value)


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(TargetError, match=r'pip install "pytest-packbench\[http\]"'):
        HttpTarget(url="http://u:word@host/", timeout_s=1, connections=1)


def test_its_library_is_imported_only_when_it_is_made() -> None:
    code = "import sys, pytest_packbench.engine.http_target; print('httpx2' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
