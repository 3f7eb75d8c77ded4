"""What providers and clients do wrong: cuts, aborts, errors, old and odd answers; each is kept and replayed as it was."""

from __future__ import annotations

import datetime as dt
import json
import ssl
import time
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from tests.servers.fake import FakeServer, Reply, closed_port, scripted
from tests.servers.raw import CLOSE, RawServer, chunk, chunked, head
from tests.servers.wire import error_reply, openai_reply
from tests.unit.gateways import KEY, from_file, recording, replaying, stored
from tests.unit.test_gateway_protocols import OPENAI, sse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_packbench.engine.gateway import CaseTraffic, Gateway
    from pytest_packbench.model.recording import GatewayExchange

TEXT: Any = [{"role": "user", "content": "x"}]
ANSWER = json.dumps(openai_reply("Zwölf").body).encode()
STREAM = "text/event-stream"
EVENTS = sse(*OPENAI, "[DONE]")


def client(gateway: Gateway, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.environment()["OPENAI_BASE_URL"], api_key=KEY, **options)


def ask(gateway: Gateway, **options: Any) -> str | None:
    with client(gateway, **options) as asking:
        return asking.chat.completions.create(model="m", messages=TEXT).choices[0].message.content


def both(url: str, act: Any) -> tuple[CaseTraffic, CaseTraffic, list[GatewayExchange]]:
    """Do the same against a provider and on its recording; return both traffics and the recording."""
    with recording(url) as gateway:
        traffic = gateway.open_case("one")
        with traffic.active():
            first = act(gateway)
    exchanges = stored(traffic)
    with replaying() as gateway:
        replayed = gateway.open_case("one", exchanges)
        with replayed.active():
            assert act(gateway) == first
        replayed.finish()
    assert replayed.mismatch == ""
    assert [call.end for call in replayed.calls] == [call.end for call in traffic.calls]
    return traffic, replayed, exchanges


@pytest.mark.parametrize(
    "wire",
    [
        [head(f"content-length: {len(ANSWER)}", "content-type: application/json"), ANSWER[:10], 0.02, ANSWER[10:]],
        [head("content-type: application/json", f"content-length: {len(ANSWER)}, {len(ANSWER)}"), ANSWER],
        [head("content-type: application/json", "connection: close"), ANSWER, CLOSE],
        [head("content-type: application/json", version="1.0"), ANSWER, CLOSE],
        [head(status="103 Early Hints"), *chunked("application/json", [ANSWER[:7], ANSWER[7:]])],
        [head(f"content-length: {len(ANSWER)}", "content-type: application/json", "content-encoding: utf-8"), ANSWER],
        [*chunked("application/json", [ANSWER])[:-1], b"0\r\nx-checksum: 1\r\nx: y\r\n\r\n"],
    ],
    ids=["length", "repeated length", "close", "1.0", "interim", "no compression", "trailers"],
)
def test_every_framing_of_an_answer_arrives(wire: Sequence[bytes | float]) -> None:
    with RawServer(lambda _: wire) as server:
        _, _, (exchange, _) = both(server.url, lambda gateway: [ask(gateway), ask(gateway)])
        assert b"accept-encoding: identity\r\n" in server.requests[0]
        # nothing of an answer is left on its connection
        assert server.connections == (2 if CLOSE in wire else 1)
    assert exchange.body["choices"][0]["message"]["content"] == "Zwölf"
    assert set(exchange.headers) - {"content-encoding"} == {"content-type"}


def stream_until_cut(gateway: Gateway) -> list[str]:
    parts = []
    with client(gateway) as asking:
        stream = asking.chat.completions.create(model="m", messages=TEXT, stream=True)
        try:
            for part in stream:
                parts.append(part.choices[0].delta.content or "")  # noqa: PERF401 - the stream raises
        except httpx.RemoteProtocolError as error:
            parts.append(type(error).__name__)
        except openai.APIConnectionError as error:
            parts.append(type(error).__name__)
    return parts


@pytest.mark.parametrize("end", [CLOSE, b"-5\r\n"])
def test_a_stream_that_the_provider_cuts_is_cut_again_after_the_same_bytes(end: bytes) -> None:
    wire = [head(f"content-type: {STREAM}", "transfer-encoding: chunked"), chunk(EVENTS[0]), end]
    with RawServer(lambda _: wire) as server:
        traffic, replayed, (exchange,) = both(server.url, stream_until_cut)
    assert (exchange.end, exchange.content()) == ("cut", EVENTS[0])
    for each in (traffic, replayed):
        error = each.unrecovered_error()
        assert error is not None
        assert (error.kind, "broke off" in str(error)) == ("network", True)


def test_a_body_that_is_cut_is_asked_again_and_then_recovered() -> None:
    wire = [head("content-length: 500", "content-type: application/json"), ANSWER[:50], CLOSE]
    whole = [head(f"content-length: {len(ANSWER)}", "content-type: application/json"), ANSWER]
    answers: Iterator[Any] = iter([wire, whole])
    with RawServer(lambda _: next(answers)) as server:
        traffic, replayed, exchanges = both(server.url, ask)
    assert [exchange.end for exchange in exchanges] == ["cut", "complete"]
    assert exchanges[0].text == ANSWER[:50].decode()
    assert traffic.unrecovered_error() is replayed.unrecovered_error() is None


def test_a_client_that_leaves_after_the_last_event_has_the_whole_answer() -> None:
    def read(gateway: Gateway) -> str:
        url = f"{gateway.url}/openai/v1/chat/completions"
        with httpx.stream("POST", url, json={}, trust_env=False) as answer:
            return next(line for line in answer.iter_lines() if "[DONE]" in line)

    wire: list[bytes | float] = [*chunked(STREAM, EVENTS)[:-1], 600.0]
    with RawServer(lambda _: wire) as server:
        _, _, (exchange,) = both(server.url, read)
    assert (exchange.end, exchange.content()) == ("complete", b"".join(EVENTS))


def test_a_stream_that_the_client_aborts_is_kept_as_far_as_it_came_and_counted() -> None:
    from pytest_packbench.engine.live_models import Ledger
    from pytest_packbench.model.run import Caps

    def first_part(gateway: Gateway) -> str | None:
        with client(gateway) as asking:
            stream = asking.chat.completions.create(model="m", messages=TEXT, stream=True)
            part = next(iter(stream)).choices[0].delta.content
            stream.close()
        return part

    pieces = [head(f"content-type: {STREAM}", "transfer-encoding: chunked"), chunk(EVENTS[0])]
    rest: list[bytes | float] = [0.05, chunk(EVENTS[1])]
    wire = [*pieces, *rest * 200]
    with RawServer(lambda _: wire) as server:
        ledger = Ledger(Caps())
        with recording(server.url, ledger=ledger) as gateway:
            with (traffic := gateway.open_case("one")).active():
                first_part(gateway)
            assert (ledger.calls, ledger.uncounted) == (1, 1)
        assert server.lost.wait(5)
        _, _, (exchange,) = both(server.url, first_part)
    assert (exchange.end, traffic.calls[0].end) == ("aborted", "aborted")
    assert exchange.content().startswith(EVENTS[0])
    assert traffic.calls[0].usage is None
    assert traffic.unrecovered_error() is None


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


def test_errors_of_the_provider_are_replayed_as_such_and_without_the_wait() -> None:
    slow_down = error_reply(429, "slow down", headers={"retry-after": "1", "x-request-id": "r1", "set-cookie": "a=b"})
    overloads: list[int] = []
    with FakeServer(scripted(slow_down, error_reply(500), openai_reply("there"))) as server:
        with recording(server.url, on_overload=lambda: overloads.append(1)) as gateway:
            traffic = gateway.open_case("one")
            with traffic.active():
                assert ask(gateway, max_retries=2) == "there"
        assert len(server.requests) == 3
    exchanges = stored(traffic)
    assert [exchange.status for exchange in exchanges] == [429, 500, 200]
    assert exchanges[0].headers == {"content-type": "application/json", "retry-after": "1", "x-request-id": "r1"}
    assert overloads == [1]
    assert traffic.unrecovered_error() is None
    with replaying() as gateway:
        replayed = gateway.open_case("one", exchanges)
        begun = time.monotonic()
        with replayed.active():
            assert ask(gateway, max_retries=2) == "there"
        assert time.monotonic() - begun < 1
        replayed = gateway.open_case("one", exchanges)
        with replayed.active(), pytest.raises(openai.RateLimitError, match="slow down"):
            ask(gateway, max_retries=0)
        replayed.finish()
    error = replayed.unrecovered_error()
    assert error is not None
    assert error.kind == "rate_limit"
    assert "made only 1 of the 3 recorded calls; not made: /gateway/1" in replayed.mismatch


def test_a_provider_that_cannot_be_reached_is_an_error_that_a_later_answer_recovers() -> None:
    port = closed_port()
    with recording(f"http://127.0.0.1:{port}") as gateway:
        traffic = gateway.open_case("one")
        with traffic.active(), pytest.raises(openai.InternalServerError, match="packbench: openai: no answer from"):
            ask(gateway, max_retries=1)
        assert [call.status for call in traffic.calls] == [502, 502]
        error = traffic.unrecovered_error()
        assert error is not None
        assert error.kind == "network"
        traffic = gateway.open_case("two")
        with traffic.active():
            with pytest.raises(openai.InternalServerError):
                ask(gateway, max_retries=0)
            with FakeServer(scripted(openai_reply("there"))) as server:
                gateway.upstreams["openai"] = f"{server.url}/v1"
                assert ask(gateway) == "there"
        assert traffic.unrecovered_error() is None
        # where each provider's client looks for it
        path = "gemini/v1beta/models/m:generateContent"
        answer = httpx.post(f"{gateway.url}/{path}", json={}, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["status"]) == (502, "network")
        for address, problem in (
            ("http://127.0.0.1:99999", "the address can't be read: Port out of range"),
            ("ftp://127.0.0.1", "the address is neither http:// nor https://"),
        ):
            gateway.upstreams["openai"] = address
            with gateway.open_case("three").active(), pytest.raises(openai.InternalServerError, match=problem):
                ask(gateway, max_retries=0)


@pytest.mark.parametrize(
    "wire",
    [
        [b"SSH-2.0-x\r\n\r\n"],
        [CLOSE],
        [b"HTTP/1.1 200 OK\r\n", CLOSE],
        [head("content-type: application/json", "content-length: " + "9" * 5000), ANSWER, CLOSE],
        [head("content-type: application/json", "content-length: 7, 8"), ANSWER, CLOSE],
        ["HTTP/1.1 200 OK\r\ncontent-length: \xb2\r\n\r\n".encode("latin-1"), ANSWER, CLOSE],
    ],
    ids=["no HTTP", "nothing", "half a head", "long length", "two lengths", "no digits"],
)
def test_what_is_no_answer_is_an_error_of_the_provider(wire: list[bytes]) -> None:
    with RawServer(lambda _: wire) as server, recording(server.url) as gateway:
        traffic = gateway.open_case("one")
        with traffic.active(), pytest.raises(openai.OpenAIError):
            ask(gateway, max_retries=0)
    assert len(server.requests) == 1


def test_redirects_are_passed_on_and_not_followed() -> None:
    with FakeServer(scripted(Reply(status=307, headers={"location": "http://127.0.0.1:1/x"}))) as server:
        with recording(server.url) as gateway, (traffic := gateway.open_case("one")).active():
            path = f"{gateway.url}/openai/v1/chat/completions"
            assert httpx.post(path, json={}, trust_env=False).status_code == 307
        assert len(server.requests) == 1
    assert "location" not in traffic.calls[0].headers


def test_connections_are_kept_and_one_that_the_provider_closed_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    whole = [head(f"content-length: {len(ANSWER)}", "content-type: application/json"), ANSWER]
    wires = iter([whole, whole, [*whole, CLOSE], whole, [CLOSE], whole])
    with RawServer(lambda _: next(wires)) as server, recording(server.url) as gateway:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, gateway.environment()[name])
        for _ in range(4):
            assert ask(gateway, max_retries=0) == "Zwölf"
        assert server.connections == 2
        # closed after the request was sent, which the provider may have read: it is the client's to ask again
        assert ask(gateway, max_retries=1) == "Zwölf"
        assert server.connections == 3


def test_an_answer_that_is_too_long_is_cut() -> None:
    wire = [head("content-type: application/json", "transfer-encoding: chunked"), *[chunk(b"x" * 2**22)] * 17]
    with (
        RawServer(lambda _: wire) as server,
        recording(server.url) as gateway,
        (traffic := gateway.open_case("one")).active(),
        pytest.raises(httpx.RemoteProtocolError),
    ):
        httpx.get(f"{gateway.url}/openai/v1/models", trust_env=False, timeout=30)
    error = traffic.unrecovered_error()
    assert error is not None
    assert (error.kind, str(error).endswith(": the answer is longer than 64 MiB")) == ("network", True)


def test_a_provider_with_tls_must_have_a_certificate_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    whole = [head(f"content-length: {len(ANSWER)}", "content-type: application/json"), ANSWER]
    with RawServer(lambda _: whole, tls=context) as server:
        with recording(server.url) as gateway, pytest.raises(openai.InternalServerError, match="certificate"):
            ask(gateway, max_retries=0)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with recording(server.url) as gateway:
            assert [ask(gateway, max_retries=0) for _ in range(2)] == ["Zwölf"] * 2
        assert server.connections == 1


def self_signed(folder: Path) -> Path:
    """A certificate of localhost with its key."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - dt.timedelta(days=1))
    builder = builder.not_valid_after(now + dt.timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path = folder / "localhost.pem"
    path.write_bytes(pem + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"plain", b'{"a": 1, "a": 2}', b"[1.10, 1e5]", b'"\\ud800"', b"\xff\xfe", b'{"a":\n 1.5}', b"{} "],
)
@pytest.mark.parametrize("kind", ["application/json", STREAM])
def test_every_body_is_replayed_as_it_was(body: bytes, kind: str) -> None:
    wire = [head(f"content-type: {kind}", f"content-length: {len(body)}"), body]
    contents = []
    with RawServer(lambda _: wire) as server, recording(server.url) as gateway:
        traffic = gateway.open_case("one")
        with traffic.active():
            contents.append(httpx.get(f"{gateway.url}/openai/v1/models", trust_env=False).content)
    exchange = from_file(traffic.calls[0].as_exchange())
    with replaying() as gateway, gateway.open_case("one", [exchange]).active():
        contents.append(httpx.get(f"{gateway.url}/openai/v1/models", trust_env=False).content)
    # spaces between JSON values are not kept
    assert [b"".join(content.split()) for content in contents] == [b"".join(body.split())] * 2
    if kind == STREAM:
        assert contents == [body] * 2
