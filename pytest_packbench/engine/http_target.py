"""A pipeline behind a URL: the verify request by POST, the result in the answer's body."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from base64 import b64encode
from http.cookiejar import DefaultCookiePolicy
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from pytest_packbench import __version__
from pytest_packbench.cases.load import parse_json
from pytest_packbench.engine.external import MOST_BYTES, TargetError, TargetFailure, Veil, request_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    import httpx2

    from pytest_packbench.model.request import VerifyRequest

HEADERS_VARIABLE = "PACKBENCH_HTTP_HEADERS"
"""Environment variable with headers of the user's, `Name: value`, a line each."""

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LOGGERS = ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy")
_CONNECT_S = 10.0
# shorter than servers keep an idle connection, or a request would meet one that is just being closed
_KEEP_ALIVE_S = 2.0
_MOST_ERROR_BYTES = 64 * 1024


def shown_url(url: str) -> str:
    """Show a URL without what may be secret in it.

    Args:
        url: any text given as a URL.

    Returns:
        Scheme, host, port and path; user and password left out, the values of the query as an ellipsis. Of a text
        that is no URL, the scheme alone.
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
        host = parts.hostname
    except ValueError:
        host, port = None, ""
    if not host:
        return f"{url.partition(':')[0]}://…" if url.startswith(("http:", "https:")) else "…"
    host = f"[{host}]" if ":" in host else host
    names = [pair.partition("=") for pair in parts.query.split("&") if pair]
    query = "&".join(f"{name}=…" if equals else "…" for name, equals, _ in names)
    return urlunsplit((parts.scheme, host + port, parts.path, query, ""))


class HttpTarget:
    """Asks a server for each case. Used from one event loop; a cancelled request's connection is closed.

    Attributes:
        opaque: its model calls, if any, are out of sight, so that it is recorded whole.
        shown: the URL as it may be shown.
    """

    opaque = True

    def __init__(self, *, url: str, timeout_s: float, connections: int) -> None:
        """Check the address and the headers; nothing is sent yet.

        Args:
            url: `http://` or `https://`; user and password in it are sent as HTTP's basic authentication.
            timeout_s: time limit of one request, from its start to the last byte of the answer, seconds.
            connections: connections that may be open at once.

        Raises:
            TargetError: one line: the URL, the headers or the library can't be used.
        """
        self.shown = shown_url(url)
        try:
            import httpx2
        except ImportError:
            raise TargetError(f'target "{self.shown}": needs httpx2; pip install "pytest-packbench[http]"') from None
        try:
            parts = urlsplit(url)
            self._url = httpx2.URL(url).copy_with(userinfo=b"", fragment=None)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except (ValueError, httpx2.InvalidURL):
            usable = False
        if not usable:
            raise TargetError(f'target "{self.shown}": expected http://host:port/path, or https')
        self._timeout_s = timeout_s
        self._connections = connections
        self._headers = _given_headers(os.environ.get(HEADERS_VARIABLE, ""))
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        queried = [pair.partition("=")[2] for pair in parts.query.split("&")]
        given = [user, password, *queried, *map(unquote, queried), *(value for _, value in self._headers)]
        # `Bearer abc`: a server may echo the second word alone
        given += [value.partition(" ")[2] for _, value in self._headers]
        self._auth = None
        if user or password:
            given.append(b64encode(f"{user}:{password}".encode()).decode("ascii"))
            if "authorization" not in {name.lower() for name, _ in self._headers}:
                self._auth = (user, password)
        self._veil = Veil(given)
        self._filter = _Hiding(self._veil)
        self._client: httpx2.AsyncClient | None = None
        self._closed = False

    async def verify(self, request: VerifyRequest) -> Any:
        """Send one request.

        Args:
            request: what the pipeline is asked.

        Returns:
            The body of the answer, parsed.

        Raises:
            TargetFailure: no result; `kind` and message say why, without a secret.
        """
        body = request_json(request.as_json())
        try:
            async with asyncio.timeout(self._timeout_s):
                raw = await self._post(body)
        except TimeoutError:
            raise TargetFailure(
                "target_timeout", f"{self.shown}: no whole answer within {self._timeout_s:g} s"
            ) from None
        return self._veil.result(self._parsed(raw))

    async def aclose(self) -> None:
        """Close all connections; the target can't be asked any more."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            for name in _LOGGERS:
                logging.getLogger(name).removeFilter(self._filter)
            await client.aclose()

    async def _post(self, body: bytes) -> bytes:
        import httpx2

        try:
            async with self._opened().stream("POST", self._url, content=body) as response:
                if not response.is_success:
                    raise await self._refused(response)
                return await self._read(response, MOST_BYTES)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            reason = self._veil.excerpt(_reason(error))
            raise TargetFailure(
                "target_unreachable",
                f"{self.shown}: can't connect: {reason}; check that the server runs and listens at this address",
            ) from None
        except httpx2.TimeoutException:
            raise TimeoutError from None
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            reason = self._veil.excerpt(_reason(error))
            raise TargetFailure(
                "target_died", f"{self.shown}: the connection ended before the answer did: {reason}"
            ) from None
        except httpx2.DecodingError:
            raise self._unreadable("the body is not encoded as its Content-Encoding says") from None
        except httpx2.HTTPError as error:
            reason = self._veil.excerpt(_reason(error))
            raise TargetFailure("target_error", f"{self.shown}: {reason}") from None

    def _opened(self) -> httpx2.AsyncClient:
        import httpx2

        if self._closed:
            raise TargetFailure("target_unreachable", f"{self.shown}: the target was closed")
        if self._client is None:
            self._client = httpx2.AsyncClient(
                headers=[
                    ("Accept", "application/json"),
                    ("Accept-Encoding", "identity"),
                    ("Content-Type", "application/json"),
                    ("User-Agent", f"pytest-packbench/{__version__}"),
                ],
                auth=self._auth,
                timeout=httpx2.Timeout(None, connect=_CONNECT_S),
                limits=httpx2.Limits(
                    max_connections=self._connections,
                    max_keepalive_connections=self._connections,
                    keepalive_expiry=_KEEP_ALIVE_S,
                ),
                follow_redirects=False,
                # a proxy of the environment's can't reach this machine's own servers
                trust_env=not _is_loopback(self._url.host),
            )
            self._client.headers.update(self._headers)
            # a cookie would tie one case to another
            self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
            for name in _LOGGERS:
                logging.getLogger(name).addFilter(self._filter)
        return self._client

    async def _read(self, response: httpx2.Response, most: int) -> bytes:
        parts = bytearray()
        async for chunk in response.aiter_bytes():
            parts += chunk
            if len(parts) > most:
                raise self._unreadable(f"the body is longer than {most // 2**20} MiB")
        return bytes(parts)

    async def _refused(self, response: httpx2.Response) -> TargetFailure:
        status = f"{self.shown}: answered {response.status_code} {response.reason_phrase}".rstrip()
        if response.has_redirect_location:
            try:
                place = self._veil.excerpt(shown_url(urljoin(str(self._url), response.headers["location"])))
            except ValueError:
                place = "an address that is none"
            return TargetFailure(
                "target_error", f"{status}, a redirect to {place}; redirects are not followed, give the address itself"
            )
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MOST_ERROR_BYTES:
                break
        said = self._veil.excerpt(bytes(body[:_MOST_ERROR_BYTES]).decode("utf-8", "replace"))
        return TargetFailure("target_error", f"{self._veil.text(status)}: {said or 'no body'}")

    def _parsed(self, raw: bytes) -> Any:
        if not raw.strip():
            raise self._unreadable("the body is empty")
        try:
            return parse_json(raw)
        except ValueError as error:
            beginning = self._veil.excerpt(raw[:_MOST_ERROR_BYTES].decode("utf-8", "replace"), 80)
            raise self._unreadable(f"{self._veil.excerpt(str(error))}; the body begins: {beginning}") from None

    def _unreadable(self, why: str) -> TargetFailure:
        return TargetFailure("result_unreadable", f"{self.shown}: the answer is no result: {why}")


class _Hiding(logging.Filter):
    """Hides secrets in what the HTTP library logs: it logs whole URLs."""

    def __init__(self, veil: Veil) -> None:
        super().__init__()
        self._veil = veil

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        shown = self._veil.text(said)
        if shown != said:
            record.msg, record.args = shown, None
        return True


def _given_headers(text: str) -> list[tuple[str, str]]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not _NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            # the line itself may be a secret that lacks its name
            raise TargetError(f'{HEADERS_VARIABLE}, line {number}: expected "Name: value" in plain ASCII')
        found.append((name, value))
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(error: BaseException) -> str:
    """Say what the system said, where it did; the library's own words are vaguer."""
    for one in _causes(error):
        if isinstance(one, ConnectionError) and one.errno:
            return os.strerror(one.errno)
        if isinstance(one, OSError) and one.strerror:
            return one.strerror
    return str(error) or type(error).__name__


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from _causes(error.exceptions[0])
        error = error.__cause__ or error.__context__
