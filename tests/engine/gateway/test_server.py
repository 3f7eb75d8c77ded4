"""The gateway's server lets in who knows its secret, reads each form of a request, and costs no more than it states."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from pytest_packbench.engine.gateway.server import MAX_BODY_BYTES, LoopbackServer
from tests.engine.gateway.gateways import CHAT as PATH
from tests.engine.gateway.gateways import question, recording, replaying, stored
from tests.servers.fake import FakeServer
from tests.servers.raw import CLOSE, RawServer, chunked, head
from tests.servers.wire import answer_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.engine.gateway import Gateway
    from pytest_packbench.engine.gateway.server import Reply as ServerReply
    from pytest_packbench.engine.gateway.server import Request

BODY = json.dumps(question("x")).encode()


def request(gateway: Gateway, path: str = PATH, method: str = "POST", **headers: str) -> bytes:
    """A request with its body, unless a header states another framing; the path without a slash is taken as it is."""
    fields = {"host": "{}:{}".format(*gateway.address), "content-length": str(len(BODY))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    target = f"/{gateway.url.rpartition('/')[2]}{path}" if path.startswith("/") else f"/{path}"
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value), "", ""]
    return "\r\n".join(lines).encode() + (BODY if fields["content-length"] == str(len(BODY)) else b"")


def converse(gateway: Gateway, *pieces: bytes, ends: bool = True) -> bytes:
    """Send pieces, then nothing more; return everything that comes back."""
    with socket.create_connection(gateway.address, 10) as connection:
        for piece in pieces:
            connection.sendall(piece)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer(answer_with(lambda question: question.text), latency_s=0.05) as fake:
        yield fake


@pytest.fixture
def gateway(server: FakeServer) -> Iterator[Gateway]:
    with recording(server.url) as serving:
        yield serving


@pytest.mark.parametrize(
    ("status", "path", "headers"),
    [
        (404, f"wrong{PATH}", {}),
        (404, "", {}),
        (421, PATH, {"host": "packbench.test"}),
        (421, PATH, {"host": ""}),
        (403, PATH, {"origin": "http://127.0.0.1"}),
        (403, PATH, {"sec_fetch_site": "cross-site"}),
        (404, "/mistral/v1/chat/completions", {}),
        (400, "/case/unknown" + PATH, {}),
        (413, PATH, {"content_length": str(50 * 2**20)}),
        (413, PATH, {"content_length": "9" * 5000}),
        (400, f"{PATH}\x07", {}),
        (431, PATH, {"x-long": "x" * 70_000}),
    ],
)
def test_what_is_refused_reaches_no_provider(
    status: int, path: str, headers: dict[str, str], gateway: Gateway, server: FakeServer
) -> None:
    before = len(server.requests)
    answer = converse(gateway, request(gateway, path, **headers))
    assert int(answer[9:12]) == status
    assert b"x-should-retry: false" in answer
    assert len(server.requests) == before


def test_a_body_that_is_too_long_is_refused_although_it_is_still_sent(gateway: Gateway) -> None:
    size = 50 * 2**20
    assert size > MAX_BODY_BYTES
    stated = request(gateway, content_length=str(size))
    chunks = [b"%x\r\n" % 2**20 + b"x" * 2**20 + b"\r\n"] * 50
    coded = request(gateway, content_length="", transfer_encoding="chunked")
    for pieces in ([stated, b"x" * size], [coded, *chunks], [coded, b"%x\r\n" % size]):
        answer = converse(gateway, *pieces)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"32 MiB" in answer
    assert converse(gateway, coded, b"2g\r\n").endswith(b"a chunk of the body can't be read")


def test_every_framing_of_a_request_arrives(gateway: Gateway, server: FakeServer) -> None:
    plain = request(gateway, connection="close")
    chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in (BODY[:5], BODY[5:])) + b"0\r\nx: y\r\n\r\n"
    coded = request(gateway, content_length="", transfer_encoding="chunked", connection="close") + chunks
    old = plain.replace(b"HTTP/1.1", b"HTTP/1.0")
    proxied = plain.replace(b"POST /", b"POST http://127.0.0.1/")
    expecting = request(gateway, connection="close", expect="100-continue")
    for pieces in (
        [plain],
        [bytes([byte]) for byte in plain],
        [bytes([byte]) for byte in coded],
        [old],
        [proxied],
        [expecting[: -len(BODY)], BODY],
        [request(gateway), request(gateway), plain],
    ):
        before = len(server.requests)
        answer = converse(gateway, *pieces, ends=False)
        count = answer.count(b'"chatcmpl-1"')
        assert answer.count(b"HTTP/1.1 200") == count == len(server.requests) - before == (3 if len(pieces) == 3 else 1)
        assert {json.dumps(json.loads(each.body)) for each in server.requests[before:]} == {BODY.decode()}
        assert b"connection: close" in answer
        assert answer.startswith(b"HTTP/1.1 100") == (pieces[0] == expecting[: -len(BODY)])


CODED = "transfer-encoding: chunked"


@pytest.mark.parametrize(
    ("asked", "wire", "expected"),
    [
        ("HEAD HTTP/1.1", [head("content-length: 20")], "200 OK|content-length: 20|"),
        ("GET HTTP/1.1", [head(status="204 No Content")], "204 No Content|"),
        ("GET HTTP/1.1", [head("content-length: 0", status="299 Odd")], "299 Unknown|content-length: 0|"),
        ("GET HTTP/1.1", [head(CODED), CLOSE], f"200 OK|{CODED}|"),
        ("GET HTTP/1.0", chunked("text/plain", [b"one ", b"two"]), "200 OK|content-type: text/plain|one two"),
    ],
    ids=["head", "no content", "unknown status", "cut after the head", "HTTP/1.0"],
)
def test_answers_without_a_body_or_without_a_length(asked: str, wire: list[bytes], expected: str) -> None:
    method, version = asked.split()
    with RawServer(lambda _: wire) as server, recording(server.url) as gateway:
        sent = request(gateway, "/ollama/api/version", method, content_length="", connection="close")
        answer = converse(gateway, sent.replace(b"HTTP/1.1", version.encode()))
    top, _, body = answer.partition(b"\r\n\r\n")
    status, *fields = top.decode().removeprefix("HTTP/1.1 ").split("\r\n")
    assert fields.pop() == "connection: close"
    assert "|".join([status, *fields, body.decode()]) == expected


def test_200_connections_at_once(gateway: Gateway) -> None:
    asked = request(gateway, connection="close")
    with ThreadPoolExecutor(200) as pool:
        begun = time.monotonic()
        answers = list(pool.map(lambda _: converse(gateway, asked, ends=False), range(200)))
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 200"] * 200
    # one after the other they would need 10
    assert time.monotonic() - begun < 8


def test_a_client_that_stops_reading_delays_nobody_and_ends_with_its_case(server: FakeServer) -> None:
    sent = threading.Event()
    pieces = [b"data: " + b"x" * 60_000 + b"\n\n"] * 400

    def answer(_: bytes) -> Iterator[bytes]:
        yield from chunked("text/event-stream", pieces)
        sent.set()

    with RawServer(answer) as slow, recording(slow.url) as gateway:  # type: ignore[arg-type]
        traffic = gateway.open_case("stuck")
        with traffic.active(), socket.create_connection(gateway.address, 10) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(request(gateway))
            connection.recv(10)
            # 24 MB do not pile up: the provider has to wait
            assert not sent.wait(0.3)
            assert converse(gateway, request(gateway, "/none", connection="close")).startswith(b"HTTP/1.1 404")
        assert slow.lost.wait(5)
    (exchange,) = stored(traffic)
    assert exchange.end == "aborted"


def test_a_gateway_can_be_stopped_at_any_time() -> None:
    with replaying() as gateway:
        url, address = gateway.url, gateway.address
        with socket.create_connection(address) as idle:
            idle.sendall(b"POST")
            gateway.stop()
            gateway.stop()
            with suppress(ConnectionResetError):
                assert idle.recv(10) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        gateway.start()
    unused = LoopbackServer(lambda *_: pytest.fail("it does not serve"))
    unused.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(unused.address)
    with replaying() as other:
        assert other.url.rpartition("/")[2] != url.rpartition("/")[2]
        assert len(other.url.rpartition("/")[2]) >= 32


def test_a_mistake_of_the_gateway_itself_is_no_answer_of_a_provider() -> None:
    async def fail(asked: Request, reply: ServerReply) -> None:
        if asked.method == "GET":
            reply.start(200, {})
            await reply.write(b"some")
        if asked.method == "PUT":
            raise BrokenPipeError("the client has left")
        raise KeyError("x")

    server = LoopbackServer(fail)
    server.start()
    try:
        answer = httpx.post(server.url, trust_env=False)
        assert (answer.status_code, answer.text) == (500, "packbench's gateway failed: KeyError: 'x'")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(server.url, trust_env=False)
        with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
            httpx.put(server.url, trust_env=False)
    finally:
        server.stop()
