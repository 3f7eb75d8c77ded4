"""An HTTP/1.1 server on loopback, by hand on asyncio: keep-alive, bodies by length or chunked, streamed answers.

A request is served only if it knows the secret in the path, names the server's own address as its host, and does not
come from a web page. A client that leaves cancels what is done for it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.engine.offline import own_work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping

    Handler = Callable[["Request", "Reply"], Awaitable[None]]

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 32 * 1024 * 1024
"""Requests with a longer body are refused; no provider accepts them."""
_MAX_READ_BYTES = 1024 * 1024
_MOST_DIGITS = 18
_MAX_DRAINED_BYTES = 256 * 1024 * 1024
_DRAIN_S = 10.0
_WAIT_S = 10.0
_CHUNK = 64 * 1024
_PROBE_S = 0.25
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_SWITCHED = 101
_NO_BODY = frozenset({_SWITCHED, 204, 304})
_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_WORDS = re.compile(f"{_WORD}*")
_REQUEST_LINE = re.compile(rf"({_WORD}+) ([!-~]+) HTTP/1\.([0-9])")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,20})(;.*)?\r\n")
_SINGLE = frozenset({"content-length", "transfer-encoding", "host"})


class Request(NamedTuple):
    """A request: `target` is its path after the secret, with the query; names of headers are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def is_websocket(self) -> bool:
        """Whether it asks for a websocket."""
        return self.headers.get("upgrade", "").lower() == "websocket"


class _RefusedError(Exception):
    """A request is answered by an error, and its connection closed.

    Attributes:
        status: the status of the answer.
        message: its body.
        request: the request, as far as it was read, if it knows the secret.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        self.request: Request | None = None
        super().__init__(message)


class Reply:
    """The answer to one request, sent as a whole or piece by piece.

    Attributes:
        started: whether its status has been sent.
        dropped: whether the connection is to be closed, because the answer is not complete.
    """

    def __init__(self, writer: asyncio.StreamWriter, *, method: str, is_old: bool, reader: Any = None) -> None:
        self.started = False
        self.dropped = False
        self.closes = is_old
        self._reader = reader
        self._writer = writer
        self._is_old = is_old
        self._has_body = method != "HEAD"
        self._is_chunked = False
        self._head = b""

    async def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole answer."""
        self.start(status, headers, len(body))
        await self.write(body)
        await self.finish()

    def start(self, status: int, headers: Mapping[str, str], length: int | None = None) -> None:
        """Begin an answer; its head is sent with the first piece."""
        lines = [f"HTTP/1.1 {status} {_reason(status)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if status in _NO_BODY:
            self._has_body = False
        elif length is not None:
            lines.append(f"content-length: {length}")
        elif self._is_old:
            self.closes = True
        else:
            self._is_chunked = True
            lines.append("transfer-encoding: chunked")
        if self.closes:
            lines.append("connection: close")
        self._head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
        self.started = True

    async def write(self, piece: bytes) -> None:
        """Send a piece; waits where the client reads slowly."""
        data = self._head
        self._head = b""
        if piece and self._has_body:
            data += b"%x\r\n%s\r\n" % (len(piece), piece) if self._is_chunked else piece
        if data:
            self._writer.write(data)
            await self._writer.drain()

    async def finish(self) -> None:
        """End the answer."""
        if self._is_chunked and self._has_body:
            self._writer.write(self._head + _LAST_CHUNK)
        elif self._head:
            self._writer.write(self._head)
        self._head = b""
        await self._writer.drain()

    async def switch(
        self, headers: Mapping[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Open a websocket: pass on what either side sends, until one of them ends.

        Args:
            headers: of the answer.
            reader: what the other side sends.
            writer: what it gets; aborted at the end.
        """
        self.start(_SWITCHED, {"connection": "Upgrade", "upgrade": "websocket", **headers})
        self.closes = True
        await self.write(b"")
        sending = asyncio.ensure_future(_pass_on(self._reader, writer))
        try:
            # a client that leaves cancels this
            await _pass_on(reader, self._writer)
        finally:
            sending.cancel()
            writer.transport.abort()

    def drop(self) -> None:
        """Close the connection after what was sent: the answer ends in the middle."""
        if self._head:
            self._writer.write(self._head)
            self._head = b""
        self.dropped = True


async def _pass_on(source: Any, goal: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            goal.write(data)
            await goal.drain()


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


class _Reader(asyncio.StreamReader):
    """A reader that tells when the client has closed its side, or the connection is lost."""

    on_end: Callable[[], None] | None = None
    has_ended = False

    def feed_eof(self) -> None:
        super().feed_eof()
        self.has_ended = True
        if self.on_end is not None:
            self.on_end()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        if self.on_end is not None:
            self.on_end()


class LoopbackServer:
    """Serves on 127.0.0.1, in a thread and on an event loop of its own.

    Args:
        handler: answers requests, on the event loop.
        on_refused: called with a request that is not given to the handler although it knows the secret, and why.
        port: the port; 0 for any that is free.

    Attributes:
        secret: the first step of every path.
        url: `http://127.0.0.1:PORT/SECRET`.
        address: host and port.
        loop: the event loop, which runs between `start` and `stop`.
    """

    def __init__(
        self, handler: Handler, on_refused: Callable[[Request, str], None] | None = None, port: int = 0
    ) -> None:
        self._handler = handler
        self._on_refused = on_refused
        self._socket = socket.create_server(("127.0.0.1", port), backlog=1024)
        self.address: tuple[str, int] = self._socket.getsockname()
        self.secret = secrets.token_urlsafe(24)
        port = self.address[1]
        self.url = f"http://127.0.0.1:{port}/{self.secret}"
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Start the thread."""
        if self._thread is None and not self.loop.is_closed():
            self._thread = threading.Thread(target=self._serve, name="packbench-gateway", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Close all connections and end the thread."""
        if self._thread is not None:
            self._ready.wait(_WAIT_S)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_WAIT_S)
            self._thread = None
        elif not self.loop.is_closed():
            self.loop.close()
        self._socket.close()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None

    def run(self, coroutine: Coroutine[None, None, None], wait_s: float = _WAIT_S) -> None:
        """Run a coroutine on the event loop, from another thread, and wait for its end for a limited time."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        with suppress(TimeoutError):
            future.result(wait_s)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        with own_work():
            self._run()

    def _run(self) -> None:
        server = self.loop.run_until_complete(
            self.loop.create_server(self._connection, sock=self._socket, backlog=1024)
        )
        self.loop.call_soon(self._ready.set)
        try:
            self.loop.run_forever()
        finally:
            # a closed server could not take over what it has accepted
            self.loop.remove_reader(self._socket)
            self.loop.run_until_complete(self._end_all())
            server.close()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    async def _end_all(self) -> None:
        # connections that were just accepted become ours in the loop's next rounds, and would be lost if cancelled now
        for _ in range(4):
            await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # a task that is cancelled before its first step does not close its connection
        for writer in self._connections:
            writer.transport.abort()
        await asyncio.sleep(0.001)

    def _connection(self) -> asyncio.StreamReaderProtocol:
        reader = _Reader(limit=_MAX_READ_BYTES, loop=self.loop)
        return asyncio.StreamReaderProtocol(reader, self._accept, loop=self.loop)

    def _accept(self, reader: Any, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = self.loop.create_task(self._converse(reader, writer))

    async def _converse(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of a connection, one after the other."""
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            # the client has left
            pass
        except asyncio.CancelledError:
            # the client has left, its case has ended, or the server stops: nobody may read what is left
            writer.transport.abort()
        finally:
            writer.close()
            self._connections.pop(writer, None)

    async def _serve_one(self, reader: _Reader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether another one may follow."""
        try:
            request, is_old, keeps = await self._read(reader, writer)
        except _RefusedError as error:
            if error.request is not None and self._on_refused is not None:
                self._on_refused(error.request, error.message)
            await _refuse(reader, writer, error)
            return False
        reply = Reply(writer, method=request.method, is_old=is_old, reader=reader)
        reply.closes = not keeps
        # no task for each request: starting and awaiting it would take two more rounds of the loop
        task = asyncio.current_task()
        reader.on_end = lambda: self._end(task, reply, writer)
        if reader.has_ended:
            reader.on_end()
        try:
            await self._handler(request, reply)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not look like a provider's
            await _fail(reply, error)
        finally:
            reader.on_end = None
            reply.started = True
        return not (reply.closes or reply.dropped)

    def _end(self, task: asyncio.Task[Any] | None, reply: Reply, writer: asyncio.StreamWriter) -> None:
        """A client has closed its side: it has left, or only sends nothing more, which a provisional answer tells."""
        if not (reply.started or writer.transport.is_closing()):
            for times in (1, 2):
                self.loop.call_later(_PROBE_S * times, _probe, reply, writer)
        elif task is not None:
            task.cancel()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Request, bool, bool]:
        """Read a request; return it, whether its version is 1.0, and whether the connection stays open."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            # not read to its end, so that nobody knows whose it is
            raise _too_long_head() from None
        # an empty line before a request is ignored (RFC 9112, 2.2)
        first, _, lines = head[:-2].removeprefix(b"\r\n").decode("latin-1").partition("\r\n")
        asked = _REQUEST_LINE.fullmatch(first)
        if asked is None:
            raise _RefusedError(400, "this is no HTTP/1.1 request")
        method, target, minor = asked.groups()
        try:
            headers = fields_of(lines, _SINGLE)
        except ValueError as error:
            raise _RefusedError(400, str(error)) from None
        target = self._checked(target, headers)
        is_old = minor == "0"
        connection = headers.get("connection", "").lower()
        keeps = "keep-alive" in connection if is_old else "close" not in connection
        try:
            _check_length(head)
            body = await _body(reader, writer, headers)
        except _RefusedError as error:
            error.request = Request(method, target, headers, b"")
            raise
        return Request(method, target, headers, body), is_old, keeps

    def _checked(self, target: str, headers: Mapping[str, str]) -> str:
        """Return the part of a path after the secret."""
        if headers.get("host", "").lower() not in self._hosts:
            raise _RefusedError(421, "the host of the request is not this server")
        if "origin" in headers or headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            raise _RefusedError(403, "requests of web pages are refused")
        return self._after_secret(target)

    def _after_secret(self, target: str) -> str:
        # a proxy's form
        if target.startswith("http://"):
            target = "/" + target[7:].partition("/")[2]
        secret, _, rest = target.removeprefix("/").partition("/")
        if not hmac.compare_digest(secret.encode("utf-8", "replace"), self.secret.encode()):
            raise _RefusedError(404, "nothing is served here")
        return f"/{rest}"


async def _fail(reply: Reply, error: Exception) -> None:
    """Answer by an error of this server; close the connection where an answer has begun."""
    if reply.started:
        reply.drop()
        return
    message = f"packbench's gateway failed: {type(error).__name__}: {error}".encode()
    reply.closes = True
    await reply.send(500, {"content-type": "text/plain", "x-should-retry": "false"}, message)


def _probe(reply: Reply, writer: asyncio.StreamWriter) -> None:
    """Send what a client that waits ignores; where nobody waits, the first piece is rejected, and the second fails."""
    if not reply.started and not writer.transport.is_closing():
        writer.write(_CONTINUE)


async def _body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Mapping[str, str]) -> bytes:
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None and (coding.lower() != "chunked" or length is not None):
        raise _RefusedError(400, f"the transfer coding {coding} can't be read")
    if length is not None and (not length.isascii() or not length.isdigit()):
        raise _RefusedError(400, "the length of the body can't be read")
    # Python converts no number of more than 4,300 digits
    size = int(length or 0) if len(length or "") <= _MOST_DIGITS else MAX_BODY_BYTES + 1
    if size > MAX_BODY_BYTES:
        raise _too_long()
    if (size or coding) and headers.get("expect", "").lower() == "100-continue":
        writer.write(_CONTINUE)
    if not coding:
        return await reader.readexactly(size) if size else b""
    pieces: list[bytes] = []
    total = 0
    try:
        while size := await next_chunk(reader, _CHUNK_LINE, is_first=not pieces):
            total += size
            if total > MAX_BODY_BYTES:
                raise _too_long()
            pieces.append(await reader.readexactly(size))
    except (ValueError, asyncio.LimitOverrunError):
        raise _RefusedError(400, "a chunk of the body can't be read") from None
    return b"".join(pieces)


async def next_chunk(reader: asyncio.StreamReader, line: re.Pattern[bytes], *, is_first: bool) -> int:
    """Return the size of a body's next chunk; 0 at its end, where the trailing headers have been read.

    Args:
        reader: after the head, or after the content of the chunk before.
        line: what the line with the size has to match.
        is_first: whether there is no chunk before.

    Raises:
        ValueError: this is no chunk, nor the end of the body.
    """
    if not is_first and await reader.readexactly(2) != b"\r\n":
        raise ValueError("a chunk is longer than its size")
    found = line.fullmatch(await reader.readuntil(b"\n"))
    if found is None:
        raise ValueError("the size of a chunk can't be read")
    size = int(found[1], 16)
    while not size and (trailer := await reader.readuntil(b"\n")) != b"\r\n":
        fields_of(trailer.decode("latin-1"))
    return size


def fields_of(text: str, single: Container[str] = ()) -> dict[str, str]:
    """Return the headers in the lines of a head, names in lower case, values of the same name joined.

    Raises:
        ValueError: a line is no header, or one of the `single` names is repeated.
    """
    headers: dict[str, str] = {}
    *lines, rest = text.split("\r\n")
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower() if colon else "", value.strip(" \t")
        if name in headers:
            if name in single:
                raise ValueError(f"the header {name} is repeated")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    # all at once: an expression for each line would take as long as the rest
    if (
        rest
        or "" in headers
        or text.count("\r") + text.count("\n") > 2 * len(lines)
        or any(control in text for control in "\0\v\f")
        or not _WORDS.fullmatch("".join(headers))
    ):
        raise ValueError("a header can't be read")
    return headers


def _check_length(head: bytes) -> None:
    if len(head) > MAX_HEAD_BYTES:
        raise _too_long_head()


def _too_long_head() -> _RefusedError:
    return _RefusedError(431, "the head of the request is too long")


def _too_long() -> _RefusedError:
    return _RefusedError(413, f"packbench's gateway takes bodies of {MAX_BODY_BYTES // 2**20} MiB at most")


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, error: _RefusedError) -> None:
    """Answer by an error, and read what the client still sends: it would not read the answer else."""
    body = error.message.encode()
    reply = Reply(writer, method="", is_old=False)
    reply.closes = True
    await reply.send(error.status, {"content-type": "text/plain", "x-should-retry": "false"}, body)
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            drained = 0
            while drained < _MAX_DRAINED_BYTES and (piece := await reader.read(_CHUNK)):
                drained += len(piece)
