"""A small HTTP server on loopback with scripted answers that records its requests.

`with FakeServer(handler) as server: server.url` runs it in a thread of this process, `python -m tests.servers` in a
process of its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

_T = TypeVar("_T")
_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Received:
    """One request: header names in lower case, `at` in seconds of the server's clock."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response; a body that is no bytes is sent as JSON.

    Attributes:
        delay_s: seconds between request and response.
        cut: close the connection in the middle of the response.
        hang: never respond; the connection stays open until the client leaves.
    """

    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: bool = False
    hang: bool = False

    def wire(self) -> bytes:
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        headers = {"content-type": "application/json"} | self.headers | {"content-length": str(len(body))}
        lines = [f"HTTP/1.1 {self.status} Status", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        whole = "\r\n".join(lines).encode("latin-1") + body
        return whole[: -len(body) // 2] if self.cut else whole


Handler = Callable[[Received], Reply]


def scripted(*replies: Reply) -> Handler:
    """Return a handler that answers with these in order, and then with the last one again."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


class _Connection(asyncio.Protocol):
    """One client's connection: HTTP/1.1 with keep-alive, bodies by Content-Length, one request at a time.

    The latency counts from the arrival of a request, so that the server's own work doesn't add to it.
    """

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.transports.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.transports.discard(self._transport)
        if self._timer is not None:
            self._timer.cancel()
        self._end_request()

    def data_received(self, data: bytes) -> None:
        at = self._loop.time()
        self._data += data
        head, separator, rest = self._data.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        if len(rest) < size:
            return
        self._data = rest[size:]
        method, path, _version = first.split(" ", 2)
        self._busy = True
        reply = self._server.reply(Received(method, path, headers, rest[:size], at))
        if not reply.hang:
            due = at + (reply.delay_s or self._server.latency_s)
            self._timer = self._loop.call_at(due, self._send, reply.wire(), reply)

    def _send(self, wire: bytes, reply: Reply) -> None:
        self._end_request()
        if self._transport.is_closing():
            return
        self._transport.write(wire)
        if reply.cut:
            self._transport.close()

    def _end_request(self) -> None:
        self._server.open -= self._busy
        self._busy = False


class FakeServer:
    """A server in a thread; an exception of the handler is raised again at the end of the `with`.

    Attributes:
        url: `http://127.0.0.1:<port>`.
        requests: the requests so far, in order, unless `record` is False.
        open: how many requests wait for their answers; none does once its connection is closed.
        most_open: the most that waited at once.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        latency_s: float = 0.0,
        record: bool = True,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.url = ""
        self.requests: list[Received] = []
        self.open = self.most_open = 0
        self.latency_s = latency_s
        self.transports: set[asyncio.Transport] = set()
        self._handler = handler
        self._record = record
        self._failure: Exception | None = None
        self._loop = loop or asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def reply(self, received: Received) -> Reply:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        if self._record:
            self.requests.append(received)
        try:
            return self._handler(received)
        except Exception as error:  # noqa: BLE001 - the end of the `with` raises it in the test
            self._failure = self._failure or error
            return Reply(status=500, body={"error": {"message": f"the test's handler failed: {error!r}"}})

    def close_connections(self) -> None:
        """Cut every connection, as the end of a server does; the port stays open."""
        self._run(self._abort())

    def __enter__(self) -> Self:
        self._thread.start()
        new_connection = partial(_Connection, self)
        self._listener = self._run(self._loop.create_server(new_connection, "127.0.0.1", 0, backlog=1024))
        self.url = "http://{}:{}".format(*self._listener.sockets[0].getsockname())
        return self

    def __exit__(self, *_raised: object) -> None:
        self._loop.call_soon_threadsafe(self._listener.close)
        self._run(self._abort())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._failure is not None:
            raise self._failure

    async def _abort(self) -> None:
        for transport in list(self.transports):
            transport.abort()
        # the transports tell their protocols in the loop's next round
        await asyncio.sleep(0)

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_WAIT_S)


def closed_port() -> int:
    """Return a loopback port without a listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
    return port
