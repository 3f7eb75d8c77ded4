"""HTTP targets: a pipeline behind a URL, called by POST with the verify request as JSON."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pytest_packbench import __version__
from pytest_packbench.backends import BackendUnusable
from pytest_packbench.backends.client import headers_of
from pytest_packbench.cases.load import parse_json
from pytest_packbench.files import LIMITS
from pytest_packbench.model.redaction import Redactor, redact_log_record, secrets_of_url
from pytest_packbench.model.request import (
    MAX_RESULT_BYTES,
    ROUTE,
    AnswerError,
    TargetError,
    TargetFailure,
    VerifyRequest,
    causes_of,
    request_json,
)

if TYPE_CHECKING:
    import httpx2


HEADERS_VARIABLE = "PACKBENCH_HTTP_HEADERS"
"""Environment variable with request headers, `Name: value`, one per line."""
GATEWAY_HEADER = "x-packbench-gateway"
"""The request header with the address at which the gateway serves the case, in live and record mode."""

_LOGGERS = ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy")
_CONNECT_S = 10.0
# shorter than servers keep idle connections: a request must not use one that is just being closed
_KEEP_ALIVE_S = 2.0
_MAX_ERROR_BYTES = 64 * 1024


def shown_url(url: str) -> str:
    """Return a URL without the parts that may be secret.

    Args:
        url: any text that should be a URL.

    Returns:
        Scheme, host, port and path, without user and password; the values of the query are replaced by an ellipsis.
        Of a text that is no URL, the scheme alone.
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
    """Calls a server for each case, from one event loop; the connection of a cancelled request is closed.

    Attributes:
        shown: the URL without secrets.
    """

    opaque = True

    def __init__(self, *, url: str, timeout_s: float, connections: int, redactor: Redactor | None = None) -> None:
        """Check the address and the headers; nothing is sent yet.

        Args:
            url: `http://` or `https://`; a user and password in it are sent by HTTP basic authentication.
            timeout_s: time limit of one request, from its start to the last byte of the response, seconds.
            connections: maximum number of open connections.
            redactor: the run's; one of its own by default.

        Raises:
            TargetError: one line: the URL or the headers are invalid, or the HTTP library is missing.
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
        try:
            self._headers = headers_of(HEADERS_VARIABLE)
        except BackendUnusable as error:
            raise TargetError(str(error)) from None
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        self._auth = None
        if (user or password) and "authorization" not in {name.lower() for name, _ in self._headers}:
            self._auth = (user, password)
        # the values of headers are those of an environment variable
        self._redactor = Redactor(os.environ, secrets_of_url(url)) if redactor is None else redactor
        # the HTTP library logs whole URLs
        self._filter = partial(redact_log_record, redactor=self._redactor)
        self._client: httpx2.AsyncClient | None = None
        self._closed = False

    async def verify(self, request: VerifyRequest) -> Any:
        """Send one request and return the parsed body of the response.

        Raises:
            AnswerError: it has answered, and that is no result.
            TargetFailure: there is no answer; says why, without secrets.
        """
        body = request_json(request.as_json())
        try:
            async with asyncio.timeout(self._timeout_s):
                raw = await self._post(body)
        except TimeoutError:
            raise TargetFailure(
                "target_timeout", f"{self.shown}: no complete response within {self._timeout_s:g} s"
            ) from None
        return self._parse(raw)

    async def aclose(self) -> None:
        """Close all connections; the target can't be called any more."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            for name in _LOGGERS:
                logging.getLogger(name).removeFilter(self._filter)
            await client.aclose()

    async def _post(self, body: bytes) -> bytes:
        import httpx2

        try:
            async with self._open_client().stream(
                "POST", self._url, content=body, headers=_gateway_header()
            ) as response:
                parts = bytearray()
                async for chunk in response.aiter_bytes():
                    parts += chunk
                    if len(parts) > MAX_RESULT_BYTES:
                        break
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            advice = "; check that the server runs and listens at this address"
            raise self._failure("target_unreachable", "can't connect", error, advice) from None
        except httpx2.TimeoutException:
            raise TimeoutError from None
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            problem = "the connection was closed before the response was complete"
            raise self._failure("target_died", problem, error) from None
        except httpx2.HTTPError as error:
            raise self._failure("target_error", "the response can't be read", error) from None
        if not response.is_success:
            raise self._refused(response, bytes(parts))
        if len(parts) > MAX_RESULT_BYTES:
            raise self._unreadable(f"the body is longer than {MAX_RESULT_BYTES // 2**20} MiB")
        return bytes(parts)

    def _failure(self, kind: str, problem: str, error: Exception, advice: str = "") -> TargetFailure:
        return TargetFailure(kind, f"{self.shown}: {problem}: {self._redactor.excerpt(_reason(error))}{advice}")

    def _open_client(self) -> httpx2.AsyncClient:
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
                # a proxy of the environment can't reach servers on this machine
                trust_env=not _is_loopback(self._url.host),
            )
            self._client.headers.update(self._headers)
            # cookies would make cases depend on each other
            self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
            for name in _LOGGERS:
                logging.getLogger(name).addFilter(self._filter)
        return self._client

    def _refused(self, response: httpx2.Response, body: bytes) -> TargetFailure:
        status = self._redactor.text(f"{self.shown}: answered {response.status_code} {response.reason_phrase}".rstrip())
        if response.is_redirect:
            return TargetFailure("target_error", f"{status}; redirects are not followed, use the final address")
        text = self._redactor.excerpt(body[:_MAX_ERROR_BYTES].decode("utf-8", "replace"))
        return TargetFailure("target_error", f"{status}: {text or 'no body'}")

    def _parse(self, raw: bytes) -> Any:
        if not raw.strip():
            raise self._unreadable("the body is empty")
        try:
            return parse_json(raw, LIMITS["result"])
        except ValueError as error:
            excerpt = self._redactor.excerpt(raw[:_MAX_ERROR_BYTES].decode("utf-8", "replace"), 80)
            problem = f"{self._redactor.excerpt(str(error))}; the body begins: {excerpt}"
            raise self._unreadable(problem, excerpt) from None

    def _unreadable(self, problem: str, text: str = "") -> AnswerError:
        message = f"{self.shown}: the response is not a result: {problem}"
        return AnswerError("answer_unreadable", message, text=text)


def _gateway_header() -> dict[str, str]:
    """Return the header by which a server can have the gateway answer its model calls."""
    route = ROUTE.get()
    return {} if route is None else {GATEWAY_HEADER: route.url}


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(error: BaseException) -> str:
    """Return the operating system's message if there is one; the library's own is vaguer."""
    for cause in causes_of(error):
        if isinstance(cause, ConnectionError) and cause.errno:
            return os.strerror(cause.errno)
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
    return str(error) or type(error).__name__
