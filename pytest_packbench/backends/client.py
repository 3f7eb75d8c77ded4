"""What the backends of the providers' clients share: settings, a pool of clients, one POST for OpenAI and Anthropic."""

from __future__ import annotations

import asyncio
import functools
import os
import re
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from urllib.parse import urlsplit

from pytest_packbench.backends import BackendUnusable
from pytest_packbench.backends.answers import UnreadableAnswer, UnreadableResponse, counts_in, parse_response
from pytest_packbench.backends.errors import OVERLOADED, ErrorFactory, error_message
from pytest_packbench.backends.originals import original
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.request import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import ModuleType

    from pytest_packbench.backends import BackendOptions
    from pytest_packbench.model.request import ModelAnswer, ModelRequest

ClientT = TypeVar("ClientT")
# what a redirect to another server keeps: any other header may contain a key
_KEYLESS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}
)
_REFUSALS = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
# the parameter itself is refused, not its value: a value out of range is the user's mistake and stays an error
_REFUSED_PARAMETER = re.compile(
    r"(?i)\b(unsupported|not support(ed)?|n't support|deprecated|not permitted|not allowed|may not|not compatible|"
    r"unknown|unrecognized|unexpected|only the default)\b"
)


class ClientBackend(ABC):
    """A backend that asks through a provider's client; subclasses send requests and read answers.

    Args:
        options: how requests are sent.
        model: the model's name.
        http: the HTTP library that the client uses.

    Attributes:
        name: the backend's name.
        model: the model's name.
        continues_texts: whether it can send a text as it is (`ModelRequest.raw`).

    Raises:
        BackendUnusable: no client can be created.
    """

    name: ClassVar[str]
    continues_texts: ClassVar[bool] = False

    def __init__(self, options: BackendOptions, *, model: str, http: Any) -> None:
        self.model = model
        self._options = options
        self._errors = ErrorFactory(self.name, options.redactor or Redactor(os.environ))
        timeout = http.Timeout(options.timeout_s, connect=min(CONNECT_S, options.timeout_s))

        def create() -> Any:
            return self._open(timeout=timeout, verify=tls, event_hooks={"response": [self._on_response]})

        try:
            tls = tls_context(http)
            self._clients = ClientPool(create, size=options.connections, close=self._close)
        except (ValueError, TypeError, OSError, ImportError, http.InvalidURL) as error:
            raise self._errors.unopened(error) from None

    @property
    def temperature(self) -> float | None:
        """The temperature of requests."""
        return self._options.temperature

    def limit_of(self, request: ModelRequest) -> int:
        """Return the limit of an answer, in tokens."""
        return request.max_output_tokens or self._options.max_output_tokens

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; an answer that can't be read has a problem.

        Raises:
            BackendError: the call failed.
        """
        usage = None
        if request.raw and not self.continues_texts:
            raise self._errors.no_completions()
        try:
            data = await self._ask(request)
            usage = Usage(**counts_in(data))
            return self._answer(data, request, usage)
        except UnreadableResponse as error:
            raise self._errors.bad_response(error, usage) from None
        except UnreadableAnswer as error:
            return self._errors.unreadable(error, usage)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._clients.aclose()

    async def _on_response(self, response: Any) -> None:
        """Report overload and repetitions, keep keys from another server; called before the client goes on."""
        if response.status_code in OVERLOADED:
            self._options.on_overload()
        # the clients of OpenAI and Anthropic count in each request
        if response.request.headers.get("x-stainless-retry-count", "0") != "0":
            self._options.on_retry()
        if "location" in response.headers:
            request = response.request
            # the client itself refuses an address that can't be read
            with suppress(Exception):
                here, there = request.url, request.url.join(response.headers["location"])
                if (there.host, there.port) != (here.host, here.port) or there.scheme not in {here.scheme, "https"}:
                    for name in set(request.headers) - _KEYLESS:
                        del request.headers[name]

    async def _close(self, client: Any) -> None:
        await client.close()

    @abstractmethod
    def _open(self, **http_options: Any) -> Any:
        """Create a client; the options are `timeout`, `verify` and `event_hooks` of its HTTP library."""

    @abstractmethod
    async def _ask(self, request: ModelRequest) -> Any:
        """Return the provider's response; raises `UnreadableResponse`, or `BackendError` where none came."""

    @abstractmethod
    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:
        """Return the answer in a response.

        Raises:
            UnreadableResponse: there is none.
            UnreadableAnswer: it does not have the requested form.
        """


class PostBackend(ClientBackend):
    """Sends one POST per call, and learns which parameters the model refuses.

    The key comes from `<NAME>_API_KEY` and is required for the provider's own address only; the client retries.

    Attributes:
        default_model: the model's name where none is set; empty: one has to be set.
        address: the provider's own address; the client would read it from the environment.
        path: the path of requests under the base URL.
        adjustable: parameters that a request can omit, or that have another name.
    """

    default_model: ClassVar[str] = ""
    address: ClassVar[str]
    path: ClassVar[str]
    adjustable: ClassVar[frozenset[str]]

    def __init__(self, options: BackendOptions) -> None:
        self._sdk: Any = import_client(self.name)
        model = required_model(options.model, name=self.name, default=self.default_model)
        base_url = options.base_url or original(f"{self.name.upper()}_BASE_URL")
        self._key = api_key(f"{self.name.upper()}_API_KEY", name=self.name, own_server=bool(base_url))
        self._url = check_url(base_url, name=self.name) if base_url else None
        # parameters with which a call was refused that succeeded without them
        self._refused: frozenset[str] = frozenset()
        http = http_library(self._sdk)
        self._response = http.Response
        super().__init__(options, model=model, http=http)

    @property
    def temperature(self) -> float | None:
        """The temperature of requests; None once the model has refused the parameter."""
        return None if "temperature" in self._refused else self._options.temperature

    @abstractmethod
    def _client(self, **client_options: Any) -> Any:
        """Create the provider's client; the options are its `http_client`, `timeout` and `max_retries`."""

    @abstractmethod
    def _body(self, request: ModelRequest, without: frozenset[str]) -> dict[str, Any]:
        """Return the body of a request, without the named parameters."""

    def _open(self, **http_options: Any) -> Any:
        http_client = self._sdk.DefaultAsyncHttpxClient(**http_options)
        return self._client(http_client=http_client, timeout=http_options["timeout"], max_retries=self._options.retries)

    async def _ask(self, request: ModelRequest) -> Any:
        # a parameter that the server refuses by name is omitted from now on, if the call succeeds without it
        refused = self._refused
        while True:
            body = self._body(request, refused)
            try:
                text = await self._post(self._path(request), body)
            except self._sdk.APIStatusError as error:
                newly_refused = self._refused_parameters(error, body) - refused
                if not newly_refused:
                    raise self._errors.of_status(error.status_code, error.response.text) from None
                refused |= newly_refused
                continue
            self._refused |= refused
            return parse_response(text)

    def _path(self, request: ModelRequest) -> str:  # noqa: ARG002 - for providers with several paths
        """Return the path of a request."""
        return self.path

    async def _post(self, path: str, body: dict[str, Any]) -> str:
        sdk = self._sdk
        with self._errors.sending(self._options.timeout_s, late=sdk.APITimeoutError, lost=sdk.APIConnectionError):
            async with self._clients.lend() as client:
                # the clients' typed methods convert the whole body at each call
                response = await client.post(path, cast_to=self._response, body=body)
        text: str = response.text
        return text

    def _refused_parameters(self, error: Any, body: dict[str, Any]) -> frozenset[str]:
        if error.status_code not in _REFUSALS:
            return frozenset()
        message = error_message(error.response.text)
        if not _REFUSED_PARAMETER.search(message):
            return frozenset()
        return frozenset(self.adjustable & body.keys() & set(re.findall(r"\w+", message)))


# by hand: one client with the limits of its HTTP library searches all its connections at each request, which at 64
# calls at once takes a seventh more CPU time
class ClientPool(Generic[ClientT]):
    """Lends clients, one per call in flight; creates each when it is first needed.

    Args:
        create: creates a client; the first is created at once, so that an invalid setting fails before the first call.
        size: the number of clients, 1 or more; further calls wait.
        close: closes a client.
    """

    def __init__(
        self, create: Callable[[], ClientT], *, size: int, close: Callable[[ClientT], Awaitable[object]]
    ) -> None:
        self._create = create
        self._close = close
        self._free = asyncio.Semaphore(size)
        self._turn = asyncio.Lock()
        self._all = [create()]
        self._idle = list(self._all)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[ClientT]:
        """Lend a client for one call."""
        async with self._free:
            # one call starts per turn of the loop: calls that start together are sent only when all are prepared,
            # are answered together, and leave the loop idle in between
            async with self._turn:
                await asyncio.sleep(0)
            if self._idle:
                client = self._idle.pop()
            else:
                client = self._create()
                self._all.append(client)
            try:
                yield client
            finally:
                self._idle.append(client)

    async def aclose(self) -> None:
        """Close all clients, lent ones included."""
        clients, self._all, self._idle = self._all, [], []
        for client in clients:
            await self._close(client)


NO_KEY = "no-key"
"""The key sent to a server of the user's own where none is set: the clients require one."""

_HTTP_LIBRARIES = frozenset({"httpx", "httpx2"})

CONNECT_S = 10.0
"""Time limit of opening a connection, seconds."""


def import_client(package: str) -> ModuleType:
    """Import a provider's client.

    Raises:
        BackendUnusable: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        name = getattr(error, "name", None)
        missing = "" if name in {package, None} else f" ({name} is missing)"
        raise BackendUnusable(
            f"the backend {package} needs the package {package}{missing}: pip install 'pytest-packbench[{package}]'"
        ) from None


def http_library(client: ModuleType) -> Any:
    """Return the HTTP library that a client uses: `httpx2`, or `httpx` under older clients."""
    bases = client.DefaultAsyncHttpxClient.__mro__
    return import_module(next(base.__module__ for base in bases if base.__module__ in _HTTP_LIBRARIES))


@functools.cache
def tls_context(http: Any) -> Any:
    """Return an HTTP library's TLS settings, created once: reading the certificates is most of the cost of a client."""
    return http.create_ssl_context()


def required_model(model: str, *, name: str, default: str = "") -> str:
    """Return the model's name, else the default.

    Raises:
        BackendUnusable: there is neither.
    """
    if not (model or default):
        raise BackendUnusable(f"the backend {name} has no default model: set --packbench-model")
    return model or default


def api_key(variable: str, *, name: str, own_server: bool) -> str:
    """Return the key from an environment variable; a server of the user's own needs none.

    Raises:
        BackendUnusable: it is missing, or is not valid in an HTTP header.
    """
    key = os.environ.get(variable, "").strip()
    if not key and own_server:
        return NO_KEY
    if not key:
        raise BackendUnusable(
            f"the backend {name} needs a key: set the environment variable {variable} "
            "(or set --packbench-base-url for your own server)"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise BackendUnusable(
            f"{variable} contains characters that are invalid in an HTTP header: set it to the key alone"
        )
    return key


def check_url(url: str, *, name: str, bare_host: bool = False) -> str:
    """Check a server's address; the error does not contain it, since it may contain a password.

    With `bare_host` the scheme may be missing. A login or a query is refused: the clients log it with every call.

    Raises:
        BackendUnusable: it is not just scheme, host, port and path.
    """
    try:
        parts = urlsplit(url if "://" in url or not bare_host else f"http://{url}")
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname or (bare_host and "://" not in url))
        valid = valid and not (parts.username or parts.password or parts.query or parts.fragment) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise BackendUnusable(
            f"the base URL of the backend {name} is invalid: expected http:// or https://, a host, an optional port "
            "and path, and no user name, password or query"
        )
    return url
