"""Forwards calls to providers, by hand on asyncio streams: keep-alive, TLS, answers piece by piece.

No redirects are followed: a call goes to the address that was fixed before the run, or nowhere. The proxy and the
certificates of the environment are those of the start of the run too.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import ssl
import sys
import time
import zlib
from binascii import b2a_base64
from collections import defaultdict
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from pytest_packbench.engine.gateway.proxies import proxies_of_environment, proxy_for
from pytest_packbench.engine.gateway.server import fields_of, next_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CONNECT_S = 20.0
_HEAD_BYTES = 64 * 1024
_PIECE_BYTES = 256 * 1024
# servers close after 5 seconds or later
_MAX_IDLE_S = 4.0
_COMPRESSIONS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "compress"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})
_NOT_FORWARDED = frozenset(
    {
        *("accept-encoding", "connection", "content-length", "expect", "forwarded", "host", "keep-alive", "te"),
        *("proxy-authenticate", "proxy-authorization", "proxy-connection", "trailer", "transfer-encoding", "upgrade"),
    }
)
_LENGTH, _IS_LENGTH = "content-length", re.compile("[0-9]{1,18}")
_STATUS_LINE = re.compile(r"(HTTP/1\.[0-9]) ([1-9][0-9]{2})(?: [^\0\n\v\f\r]*)?")
# some servers pad the size with blanks
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,20})(;.*|[ \t]*)\r\n")
_SWITCHED, _SUCCESS, _NO_CONTENT, _FIRST_REDIRECT, _NOT_MODIFIED, _NO_LOGIN = 101, 200, 204, 300, 304, 407
# what OpenSSL itself reads is not among them
_AUTHORITIES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")


class UpstreamError(Exception):
    """A provider can't be reached, or does not speak HTTP.

    Attributes:
        kind: `network`.
    """

    kind = "network"


class UnreachableError(UpstreamError):
    """There is no connection to a provider."""


class CutError(UpstreamError):
    """A provider's answer ended in the middle."""


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class _Head(NamedTuple):
    status: int
    version: str
    headers: dict[str, str]
    decode: Callable[[bytes], bytes]


class Answer:
    """The answer of a provider, whose head has arrived.

    Attributes:
        status: its status.
        headers: its headers, names in lower case.
        length: the length of the body as it is forwarded; None where it is not known.
        connection: what it is read from.

    A body that was compressed although this was not asked for is decompressed.
    """

    def __init__(
        self,
        upstream: Upstream,
        origin: _Origin,
        connection: _Connection,
        method: str,
        head: _Head,
    ) -> None:
        self.status, version, self.headers, self._decode = head
        self._upstream = upstream
        self._origin = origin
        self.connection = connection
        connection_header = self.headers.get("connection", "").lower()
        self._keeps = "close" not in connection_header and (version == "HTTP/1.1" or "keep-alive" in connection_header)
        self._is_chunked = "transfer-encoding" in self.headers
        stated = "" if self._is_chunked else self.headers.get(_LENGTH, "")
        self._size = self.length = int(stated) if stated else None
        if self._decode is not bytes:
            self.length = None
        if method == "HEAD" or self.status in {_NO_CONTENT, _NOT_MODIFIED}:
            self._size, self._is_chunked = 0, False
        # of the body, or of the chunk that is being read
        self._missing = self._size or 0
        self._has_begun = False

    async def read(self) -> bytes:
        """Return the next piece of the body as it arrives; nothing at its end, where the connection is free.

        Raises:
            CutError: the provider broke off.
        """
        try:
            piece = await self._decoded()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            self.close()
            raise CutError("the provider broke off its answer") from error
        if piece:
            return piece
        if self._keeps:
            self._upstream.keep(self._origin, self.connection)
        else:
            self.close()
        return b""

    async def _decoded(self) -> bytes:
        while piece := await self._read():
            try:
                decoded = self._decode(piece)
            except Exception as error:
                raise ValueError("the body can't be decompressed") from error
            # the first bytes may say nothing yet
            if decoded:
                return decoded
        return b""

    async def _read(self) -> bytes:
        reader = self.connection.reader
        if self._is_chunked and not self._missing:
            self._missing = await next_chunk(reader, _CHUNK_LINE, is_first=not self._has_begun)
            self._has_begun = True
        elif self._size is None and not self._is_chunked:
            self._keeps = False
            return await reader.read(_PIECE_BYTES)
        if not self._missing:
            return b""
        piece = await reader.read(min(self._missing, _PIECE_BYTES))
        if not piece:
            raise asyncio.IncompleteReadError(b"", self._missing)
        self._missing -= len(piece)
        return piece

    def close(self) -> None:
        """Abandon the answer."""
        self.connection.writer.transport.abort()


class Upstream:
    """Connections to providers, of one event loop; those that are free are kept."""

    def __init__(self) -> None:
        self._idle: defaultdict[_Origin, list[tuple[_Connection, float]]] = defaultdict(list)
        self._tls: ssl.SSLContext | None = None
        self._proxies = proxies_of_environment()
        self._authorities = {name: os.environ[name] for name in _AUTHORITIES if os.environ.get(name)}

    async def send(
        self,
        method: str,
        address: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        switches: bool = False,
    ) -> Answer:
        """Forward a request; return the answer once its head has arrived.

        Args:
            method: the method.
            address: the provider's, which alone decides where the request goes; a login in it is sent where the client
                sends none.
            path: the path below that of the address, with the query.
            headers: the client's headers; those of the connection are not forwarded.
            body: the body.
            switches: whether it asks for a websocket.

        Raises:
            UpstreamError: there is no answer.
        """
        origin, host, base, authorization = _parsed(address)
        proxy, target = proxy_for(address, self._proxies), f"/{(base + path).lstrip('/')}"
        reads = bool(proxy) and origin.scheme == "http" and not switches
        if reads:
            target = f"http://{host}{target}"
        lines = [f"{method} {target} HTTP/1.1", f"host: {host}", "accept-encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items() if name not in _NOT_FORWARDED]
        if authorization and "authorization" not in headers:
            lines.append(f"authorization: {authorization}")
        if body or method not in {"GET", "HEAD"}:
            lines.append(f"content-length: {len(body)}")
        if reads:
            lines += _proxy_login(proxy)
        if switches:
            lines += ["connection: Upgrade", "upgrade: websocket"]
        data = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body
        kept = None if switches else await self._kept(origin)
        connection = kept or await self._connect(origin, proxy, tunnels=bool(proxy) and not reads)
        answer = await self._ask(origin, connection, method, data, switches=switches)
        if reads and answer.status == _NO_LOGIN:
            answer.close()
            raise UpstreamError(_LOGIN_ADVICE)
        return answer

    def keep(self, origin: _Origin, connection: _Connection) -> None:
        """Keep a connection that is free."""
        self._idle[origin].append((connection, time.monotonic()))

    def close(self) -> None:
        """Close the connections that are kept."""
        for connections in self._idle.values():
            for connection, _ in connections:
                connection.writer.transport.abort()
        self._idle.clear()

    async def _kept(self, origin: _Origin) -> _Connection | None:
        """Return a connection that is free; None where there is none."""
        idle = self._idle[origin]
        if idle and origin.scheme == "https":
            # the loop may not have seen yet that the provider has closed one
            for _ in range(2):
                await asyncio.sleep(0)
        while idle:
            connection, since = idle.pop()
            # closed meanwhile, or soon, or it has sent what nobody asked for
            is_old = time.monotonic() - since > _MAX_IDLE_S
            if not (is_old or connection.reader.at_eof() or connection.writer.transport.is_closing()) and (
                origin.scheme == "https" or not _has_news(connection.writer)
            ):
                return connection
            connection.writer.transport.abort()
        return None

    async def _connect(self, origin: _Origin, proxy: str, *, tunnels: bool) -> _Connection:
        goal = _parsed(proxy, "of the proxy ")[0] if proxy else origin
        where = f"the proxy {goal.host}:{goal.port}: " if proxy else ""
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    goal.host, goal.port, ssl=self._context(goal), limit=_HEAD_BYTES * 4
                )
                try:
                    if tunnels:
                        await _tunnel(reader, writer, origin, proxy)
                        where = ""
                    if tunnels and (tls := self._context(origin)) is not None:
                        await writer.start_tls(tls, server_hostname=origin.host)
                except BaseException:
                    writer.transport.abort()
                    raise
        except TimeoutError:
            raise UnreachableError(f"{where}no connection within {_CONNECT_S:g} seconds") from None
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, UpstreamError) as error:
            raise UnreachableError(f"{where}{str(error) or type(error).__name__}") from None
        return _Connection(reader, writer)

    def _context(self, origin: _Origin) -> ssl.SSLContext | None:
        """Return what checks the certificate of an address, by the authorities of the system and the environment."""
        if origin.scheme != "https":
            return None
        if self._tls is None:
            tls = ssl.create_default_context()
            for name, path in self._authorities.items():
                try:
                    tls.load_verify_locations(path)
                except OSError as error:
                    raise UpstreamError(f"{name}={path} can't be read: {error}") from None
            self._tls = tls
        return self._tls

    async def _ask(
        self, origin: _Origin, connection: _Connection, method: str, data: bytes, *, switches: bool
    ) -> Answer:
        reader, writer = connection
        is_answered = False
        try:
            writer.write(data)
            await writer.drain()
            head = await _head(reader)
            while head[0] < _SUCCESS and not (switches and head[0] == _SWITCHED):
                head = await _head(reader)
            is_answered = True
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            if isinstance(error, asyncio.IncompleteReadError) and error.partial:
                raise UpstreamError("the answer ended in its head") from None
            # not sent again: the provider may have read it, and charge for it
            raise UpstreamError("the connection was closed without an answer") from None
        except OSError as error:
            raise UpstreamError(str(error) or type(error).__name__) from None
        except (ValueError, asyncio.LimitOverrunError):
            raise UpstreamError("the answer is no HTTP/1.1") from None
        finally:
            if not is_answered:
                writer.transport.abort()
        return Answer(self, origin, connection, method, head)


_LOGIN_ADVICE = "the proxy asks for a login (407); set it in the variable: https_proxy=http://USER:PASSWORD@HOST:PORT"


def _proxy_login(proxy: str) -> list[str]:
    """Return the header with the login of a proxy."""
    login = _parsed(proxy, "of the proxy ")[3]
    return [f"proxy-authorization: {login}"] if login else []


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, origin: _Origin, proxy: str) -> None:
    """Have a proxy connect to an origin: what follows passes it unread."""
    goal = f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
    lines = [f"CONNECT {goal} HTTP/1.1", f"host: {goal}", *_proxy_login(proxy)]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    status = (await _head(reader))[0]
    if not _SUCCESS <= status < _FIRST_REDIRECT:
        raise UpstreamError(_LOGIN_ADVICE if status == _NO_LOGIN else f"it answers CONNECT by the status {status}")


@lru_cache(maxsize=64)
def _parsed(url: str, whose: str = "") -> tuple[_Origin, str, str, str]:
    """Return where a URL leads, the value of the header `host`, the path, and a login as a header.

    Args:
        url: the URL.
        whose: whose address it is, for messages.

    Raises:
        UpstreamError: it is no address of a provider.
    """
    parts = urlsplit(url)
    try:
        origin = _Origin(parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    except ValueError as error:
        raise UpstreamError(f"the address {whose}can't be read: {error}") from None
    if parts.scheme not in {"http", "https"} or not origin.host:
        raise UpstreamError(f"the address {whose}is neither http:// nor https://")
    login, _, host = parts.netloc.rpartition("@")
    authorization = ""
    if login:
        name, _, password = login.partition(":")
        pair = b2a_base64(unquote_to_bytes(name) + b":" + unquote_to_bytes(password), newline=False)
        authorization = f"Basic {pair.decode()}"
    return origin, host, parts.path, authorization


def _has_news(writer: asyncio.StreamWriter) -> bool:
    """Whether a connection that is free has something to read: its end, or what nobody asked for.

    Asking the system costs less than rounds of the event loop, in which it would notice.
    """
    descriptor = writer.get_extra_info("socket").fileno()
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    # `select` takes no descriptor above 1023
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


async def _head(reader: asyncio.StreamReader) -> _Head:
    """Read the head of an answer; raise `ValueError` where it is none."""
    text = (await reader.readuntil(b"\r\n\r\n"))[:-2].decode("latin-1")
    first, _, lines = text.partition("\r\n")
    status = _STATUS_LINE.fullmatch(first)
    headers = fields_of(lines)
    if status is None or headers.get("transfer-encoding", "chunked").lower() != "chunked":
        raise ValueError(first)
    coding = headers.get("content-encoding", "").lower()
    decode: Callable[[bytes], bytes] = bytes
    # other values say nothing of the bytes
    if not _COMPRESSIONS.isdisjoint(re.split("[, ]+", coding)):
        decode = _decoder_of(coding)
        del headers["content-encoding"]
    if _LENGTH in headers:
        # it may be repeated, as long as it stays the same
        headers[_LENGTH], *others = sorted({part.strip() for part in headers[_LENGTH].split(",")})
        if others or not _IS_LENGTH.fullmatch(headers[_LENGTH]):
            raise ValueError(headers[_LENGTH][:20])
    return _Head(int(status[2]), status[1], headers, decode)


def _decoder_of(coding: str) -> Callable[[bytes], bytes]:
    """Return what decompresses a body piece by piece.

    Raises:
        UpstreamError: nothing here can.
    """
    if coding in _ZLIB:
        # of gzip and zlib, as the first bytes say
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress
    library: Any
    decode: Callable[[bytes], bytes]
    # the clients use these as well, if they are installed
    with suppress(ImportError):
        if coding == "br":
            library = import_module("brotli")
            decode = library.Decompressor().process
            return decode
        if coding == "zstd":
            library = import_module("zstandard")
            decode = library.ZstdDecompressor().decompressobj().decompress
            return decode
    raise UpstreamError(f"the answer is compressed ({coding}), although this was not asked for")
