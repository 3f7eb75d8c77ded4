"""What a provider or a client does wrong is kept and replayed as it was: cuts, aborts, errors, old and odd answers."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import time
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from pytest_packbench.engine.live_models import Ledger
from pytest_packbench.model.run import Caps
from tests.engine.gateway.gateways import (
    CHAT,
    KEY,
    OPENAI,
    error_of,
    post,
    question,
    recorded,
    recording,
    replayed,
    sse,
    stored,
)
from tests.servers.fake import FakeServer, Reply, closed_port, scripted
from tests.servers.raw import CLOSE, RawServer, chunk, chunked, head
from tests.servers.wire import error_reply, openai_reply

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_packbench.engine.gateway import CaseTraffic, Gateway
    from pytest_packbench.model.recording import GatewayExchange

TEXT: Any = question("x")["messages"]
ANSWER = json.dumps(openai_reply("Zwölf").body).encode()
STREAM = "text/event-stream"
EVENTS = sse(*OPENAI, "[DONE]")
WHOLE = [head(f"content-length: {len(ANSWER)}", "content-type: application/json"), ANSWER]
BEGUN = [head(f"content-type: {STREAM}", "transfer-encoding: chunked"), chunk(EVENTS[0])]


def client(gateway: Gateway, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.environment()["OPENAI_BASE_URL"], api_key=KEY, **options)


def ask(gateway: Gateway, **options: Any) -> str | None:
    with client(gateway, **options) as asking:
        return asking.chat.completions.create(model="m", messages=TEXT).choices[0].message.content


def fail(gateway: Gateway) -> None:
    with pytest.raises(openai.OpenAIError):
        ask(gateway, max_retries=0)


def both(url: str, act: Any) -> tuple[CaseTraffic, CaseTraffic, list[GatewayExchange]]:
    """Do the same against a provider and on its recording; return both traffics and the recording."""
    found: list[Any] = []
    traffic = recorded(url, lambda gateway: found.append(act(gateway)))
    again = replayed(stored(traffic), lambda gateway: found.append(act(gateway)))
    again.finish()
    assert (found[0], again.mismatch) == (found[1], "")
    # calls that are made at once come in any order
    assert sorted(call.end for call in again.calls) == sorted(call.end for call in traffic.calls)
    return traffic, again, stored(traffic)


def test_an_answer_after_interim_ones_or_in_an_encoding_that_is_none_arrives() -> None:
    wires: list[Sequence[bytes]] = [
        [head(status="103 Early Hints"), *chunked("application/json", [ANSWER[:7], ANSWER[7:]])],
        [head(f"content-length: {len(ANSWER)}", "content-type: application/json", "content-encoding: utf-8"), ANSWER],
    ]
    left = iter(wires)
    with RawServer(lambda _: next(left)) as server:
        _, _, exchanges = both(server.url, lambda gateway: [ask(gateway), ask(gateway)])
        assert b"accept-encoding: identity\r\n" in server.requests[0]
        # nothing of an answer is left on its connection
        assert server.connections == 1
    for exchange in exchanges:
        assert exchange.body["choices"][0]["message"]["content"] == "Zwölf"
        assert set(exchange.headers) - {"content-encoding"} == {"content-type"}


def test_a_body_that_is_cut_is_asked_again_and_then_recovered() -> None:
    wire = [head("content-length: 500", "content-type: application/json"), ANSWER[:50], CLOSE]
    answers: Iterator[Any] = iter([wire, WHOLE])
    with RawServer(lambda _: next(answers)) as server:
        traffic, again, exchanges = both(server.url, ask)
    assert [exchange.end for exchange in exchanges] == ["cut", "complete"]
    assert exchanges[0].text == ANSWER[:50].decode()
    assert error_of(traffic) == error_of(again) == ""


def test_a_client_that_leaves_after_the_last_event_has_the_whole_answer() -> None:
    def read(gateway: Gateway) -> str:
        url = f"{gateway.url}/openai/v1/chat/completions"
        with httpx.stream("POST", url, json={}, trust_env=False) as answer:
            return next(line for line in answer.iter_lines() if "[DONE]" in line)

    wire: list[bytes | float] = [*chunked(STREAM, EVENTS)[:-1], 600.0]
    with RawServer(lambda _: wire) as server:
        _, _, (exchange,) = both(server.url, read)
    assert (exchange.end, exchange.content()) == ("complete", b"".join(EVENTS))


def test_a_client_that_waits_no_longer_ends_the_call_upstream() -> None:
    def asked(gateway: Gateway) -> str:
        try:
            ask(gateway, timeout=0.3, max_retries=0)
        except openai.APIConnectionError:
            return "no answer"
        return "answer"

    with FakeServer(scripted(Reply(hang=True))) as server:
        traffic, _, (exchange,) = both(server.url, asked)
        deadline = time.monotonic() + 5
        while server.open and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.open == 0
    assert (exchange.status, exchange.end, exchange.content()) == (None, "aborted", b"")
    assert not traffic.calls[0].succeeded


def first_parts(gateway: Gateway, most: int = 9) -> list[str]:
    """The parts of a stream until it is cut, or until the client leaves."""
    parts: list[str] = []
    with client(gateway) as asking:
        stream = asking.chat.completions.create(model="m", messages=TEXT, stream=True)
        try:
            while len(parts) < most:
                parts.append(next(stream).choices[0].delta.content or "")
        except (httpx.RemoteProtocolError, openai.APIConnectionError) as error:
            parts.append(type(error).__name__)
        stream.close()
    return parts


@pytest.mark.parametrize("end", [CLOSE, b"-5\r\n"])
def test_a_stream_that_the_provider_cuts_is_cut_again_after_the_same_bytes(end: bytes) -> None:
    with RawServer(lambda _: [*BEGUN, end]) as server:
        *traffics, (exchange,) = both(server.url, first_parts)
    assert (exchange.end, exchange.content()) == ("cut", EVENTS[0])
    for each in traffics:
        assert error_of(each).startswith("network: ")
        assert "broke off" in error_of(each)


def test_a_stream_that_the_client_aborts_is_kept_as_far_as_it_came_and_counted() -> None:
    ledger = Ledger(Caps())
    rest: list[bytes | float] = [0.05, chunk(EVENTS[1])]
    with RawServer(lambda _: [*BEGUN, *rest * 200]) as server:
        traffic = recorded(server.url, lambda gateway: first_parts(gateway, 1), ledger=ledger)
        assert (ledger.calls, ledger.uncounted) == (1, 1)
        assert server.lost.wait(5)
        _, _, (exchange,) = both(server.url, lambda gateway: first_parts(gateway, 1))
    assert (exchange.end, traffic.calls[0].end, traffic.calls[0].usage) == ("aborted", "aborted", None)
    assert exchange.content().startswith(EVENTS[0])
    assert error_of(traffic) == ""


def test_errors_of_the_provider_are_replayed_as_such_and_without_the_wait() -> None:
    slow_down = error_reply(429, "slow down", headers={"retry-after": "1", "x-request-id": "r1", "set-cookie": "a=b"})
    overloads: list[int] = []
    with FakeServer(scripted(slow_down, error_reply(500), openai_reply("there"))) as server:
        traffic = recorded(server.url, ask, on_overload=lambda: overloads.append(1))
        assert (len(server.requests), error_of(traffic), overloads) == (3, "", [1])
    exchanges = stored(traffic)
    assert [exchange.status for exchange in exchanges] == [429, 500, 200]
    # the client repeated it by itself, and nobody read this answer
    kept = {"content-type": "application/json", "retry-after": "1", "x-request-id": "r1", "retry-after-ms": "1"}
    assert exchanges[0].headers == kept
    begun = time.monotonic()
    replayed(exchanges, ask)
    assert time.monotonic() - begun < 1
    again = replayed(exchanges, fail)
    again.finish()
    assert error_of(again).startswith("rate_limit: ")
    assert "made only 1 of the 3 recorded calls; not made: /gateway/1" in again.mismatch


def test_a_provider_that_cannot_be_reached_is_an_error_that_a_later_answer_recovers() -> None:
    def act(gateway: Gateway) -> None:
        with pytest.raises(openai.APIConnectionError):
            ask(gateway, max_retries=1)
        assert post(gateway, {}, "/gemini/v1beta/models/m:generateContent").status_code == 0
        for address in ("http://127.0.0.1:99999", "ftp://127.0.0.1"):
            gateway.upstreams["openai"] = address
            assert post(gateway).status_code == 0

    address = f"http://127.0.0.1:{closed_port()}"
    traffic = recorded(address, act)
    assert [call.end for call in traffic.calls] == ["refused"] * 3 + ["cut"] * 2
    assert error_of(traffic).startswith("network: openai: no answer from ")
    problems = ("the address can't be read: Port out of range", "the address is neither http:// nor https://")
    assert [problem in str(call.error) for problem, call in zip(problems, traffic.calls[3:], strict=True)] == [True] * 2

    def recovered(gateway: Gateway) -> None:
        assert post(gateway).status_code == 0
        with FakeServer(scripted(openai_reply("there"))) as server:
            gateway.upstreams["openai"] = f"{server.url}/v1"
            assert post(gateway).status_code == 200

    assert error_of(recorded(address, recovered)) == ""


@pytest.mark.parametrize(
    "wire",
    [
        [b"SSH-2.0-x\r\n\r\n"],
        [CLOSE],
        [b"HTTP/1.1 200 OK\r\n", CLOSE],
        [head("content-type: application/json", "content-length: " + "9" * 5000), ANSWER, CLOSE],
    ],
    ids=["no HTTP", "nothing", "half a head", "long length"],
)
def test_what_is_no_answer_is_an_error_of_the_provider(wire: list[bytes]) -> None:
    with RawServer(lambda _: wire) as server:
        traffic = recorded(server.url, fail)
    assert (len(server.requests), error_of(traffic)[:8]) == (1, "network:")


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_connections_are_kept_and_nothing_is_sent_again(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    # the last one is closed after the request was sent, which the provider may have read
    wires, ledger = iter([WHOLE, WHOLE, [*WHOLE, CLOSE], WHOLE, [CLOSE], WHOLE]), Ledger(Caps())
    path = CHAT if method == "POST" else "/openai/v1/models"
    codes: list[int] = []
    with RawServer(lambda _: next(wires)) as server:
        ask = lambda gateway: codes.extend(post(gateway, None, path, method=method).status_code for _ in range(6))  # noqa: E731
        traffic = recorded(server.url, ask, ledger=ledger)
    assert (codes, server.connections, len(server.requests)) == ([200] * 4 + [0, 200], 3, 6)
    assert ledger.calls == (6 if method == "POST" else 0)
    assert "closed without an answer" in str(traffic.calls[4].error)


def test_an_answer_that_is_too_long_is_cut() -> None:
    wire = [head("content-type: application/json", "transfer-encoding: chunked"), *[chunk(b"x" * 2**22)] * 17]
    with RawServer(lambda _: wire) as server:
        traffic = recorded(server.url, fail)
    assert error_of(traffic).startswith("network: ")
    assert error_of(traffic).endswith(": the answer is longer than 64 MiB")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the certificate")
def test_a_provider_with_tls_must_have_a_certificate_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem, context = str(tmp_path / "localhost.pem"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-out",
    ]
    subprocess.run(["openssl", *words, pem, "-keyout", f"{pem}.key"], check=True, capture_output=True)
    context.load_cert_chain(pem, f"{pem}.key")
    with RawServer(lambda _: WHOLE, tls=context) as server:
        assert "certificate" in error_of(recorded(server.url, fail))
        monkeypatch.setenv("SSL_CERT_FILE", pem)
        with recording(server.url) as gateway:
            assert [ask(gateway, max_retries=0) for _ in range(2)] == ["Zwölf"] * 2
        assert server.connections == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"plain", b'{"a": 1, "a": 2}', b"[1.10, 1e5]", b'"\\ud800"', b"\xff\xfe", b'{"a":\n 1.5}', b"{} "],
)
@pytest.mark.parametrize("kind", ["application/json", STREAM])
def test_every_body_is_replayed_as_it_was(body: bytes, kind: str) -> None:
    contents: list[bytes] = []

    def get(gateway: Gateway) -> None:
        contents.append(post(gateway, None, "/openai/v1/models", method="GET").content)

    with RawServer(lambda _: [head(f"content-type: {kind}", f"content-length: {len(body)}"), body]) as server:
        traffic = recorded(server.url, get)
    replayed(stored(traffic), get)
    # spaces between JSON values are not kept
    assert [b"".join(content.split()) for content in contents] == [b"".join(body.split())] * 2
    assert kind != STREAM or contents == [body] * 2
