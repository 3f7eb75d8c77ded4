"""HTTP/1.1 by hand against h11: what h11 refuses the gateway refuses, what h11 reads it reads alike, both ways."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import pytest
import yaml

from pytest_packbench.engine.gateway.server import LoopbackServer
from pytest_packbench.engine.gateway.upstream import Upstream, UpstreamError
from tests.servers.raw import CLOSE, RawServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.engine.gateway.server import Reply, Request

TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("data").joinpath("http1.yaml").read_text("utf-8"))
REQUEST = {
    "first": "{}\r\nhost: HOST\r\n\r\n",
    "field": "POST TARGET HTTP/1.1\r\nhost: HOST\r\n{}\r\ncontent-length: 3\r\n\r\nabc",
    "framing": "POST TARGET HTTP/1.1\r\nhost: HOST\r\n{}\r\n\r\nabc",
    "chunks": "POST TARGET HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: Chunked\r\n\r\n{}",
    "whole": "{}",
}
ANSWER = {
    "first": "{}\r\ncontent-length: 3\r\n\r\nabc",
    "field": "HTTP/1.1 200 OK\r\n{}\r\ncontent-length: 3\r\n\r\nabc",
    "framing": "HTTP/1.1 200 OK\r\n{}\r\n\r\nabc",
    "chunks": "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n{}",
    "whole": "{}",
}
# what is read: the method or the status, the path of a request, the headers, the body
Read = tuple[str, str, dict[str, str], bytes]


class Reading:
    """A server of the gateway's kind, which keeps what it reads."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.server = LoopbackServer(self.keep)

    async def keep(self, request: Request, reply: Reply) -> None:
        self.requests.append(request)
        await reply.send(200, {}, b"")

    def wire(self, kind: str, row: str) -> bytes:
        text = REQUEST[kind].format(row).replace("TARGET", f"/{self.server.secret}/x")
        return text.replace("HOST", "{}:{}".format(*self.server.address)).encode("latin-1")

    def read(self, wire: bytes) -> Read | None:
        self.requests.clear()
        with socket.create_connection(self.server.address, 10) as connection:
            connection.sendall(wire)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        for request in self.requests:
            return request.method, f"/{self.server.secret}{request.target}", request.headers, request.body
        return None


@pytest.fixture(scope="module")
def reading() -> Iterator[Reading]:
    reading = Reading()
    reading.server.start()
    yield reading
    reading.server.stop()


def answer_read(wire: bytes) -> Read | None:
    async def ask(url: str) -> Read:
        upstream = Upstream()
        answer = await upstream.send("GET", url, "/x", {}, b"")
        body = b""
        while piece := await answer.read():
            body += piece
        upstream.close()
        return str(answer.status), "", answer.headers, body

    with RawServer(lambda _: [wire, CLOSE]) as server:
        try:
            return asyncio.run(ask(server.url))
        except UpstreamError:
            return None


def oracle(wire: bytes, role: Any) -> Read | None:
    """What h11 reads, None where it refuses it or misses something."""
    connection = h11.Connection(role)
    if role is h11.CLIENT:
        connection.send(h11.Request(method="GET", target="/x", headers=[("host", "x")]))
        connection.send(h11.EndOfMessage())
    first, target, headers, body = "", "", {}, b""
    try:
        connection.receive_data(wire)
        connection.receive_data(b"")
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                return None
            if isinstance(event, h11.Request | h11.Response):
                headers = joined(event.headers)
            if isinstance(event, h11.Request):
                first, target = event.method.decode(), event.target.decode()
            elif isinstance(event, h11.Response):
                first = str(event.status_code)
            elif isinstance(event, h11.Data):
                body += event.data
    except h11.RemoteProtocolError:
        return None
    return first, target, headers, body


def joined(fields: Any) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in ((name.decode(), value.decode("latin-1")) for name, value in fields):
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


@pytest.mark.parametrize(
    ("table", "kind", "row"),
    [
        pytest.param(table, kind, row, id=f"{table} {kind} {row!r}")
        for table, kinds in TABLES.items()
        for kind, each in kinds.items()
        for row in each
    ],
)
def test_http_is_read_as_h11_reads_it_or_as_the_table_allows(table: str, kind: str, row: str, reading: Reading) -> None:
    if table.endswith("answers"):
        wire = ANSWER[kind].format(row).encode("latin-1")
        ours, theirs = answer_read(wire), oracle(wire, h11.CLIENT)
    else:
        wire = reading.wire(kind, row)
        ours, theirs = reading.read(wire), oracle(wire, h11.SERVER)
    if " " in table:
        assert (ours is None, theirs is None) == (table.startswith("stricter"), table.startswith("laxer"))
        return
    if ours is not None and "transfer-encoding" in ours[2]:
        # as h11 writes it
        ours[2]["transfer-encoding"] = ours[2]["transfer-encoding"].lower()
    assert ours == theirs
