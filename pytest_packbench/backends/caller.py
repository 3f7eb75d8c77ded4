"""Who asks: clients that are lent for a call, and one POST by the clients of OpenAI and Anthropic, which are alike."""

from __future__ import annotations

import asyncio
import os
import re
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pytest_packbench.backends.answers import Unreadable, parsed
from pytest_packbench.backends.failures import OVERLOADED, Failures, known_secrets, words_of
from pytest_packbench.backends.opened import (
    CONNECT_S,
    checked_url,
    http_library,
    imported,
    key_from,
    model_named,
    tls_context,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from pytest_packbench.backends import BackendOptions
    from pytest_packbench.model.request import ModelAnswer, ModelRequest, Usage


ClientT = TypeVar("ClientT")
_REFUSING = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
# a parameter as such is refused, not its value: a value that is out of range stays the user's mistake
_REFUSES = re.compile(
    r"(?i)\b(unsupported|not support(ed)?|n't support|deprecated|not permitted|not allowed|may not|not compatible|"
    r"unknown|unrecognized|unexpected|only the default)\b"
)


class Asking(ABC):
    """A backend that asks by clients of a provider; a provider says how it is asked, and how answers are read.

    Args:
        options: how to ask.
        model: which model is asked.
        http: the HTTP library that the clients are built on.

    Attributes:
        name: the backend.
        model: which model is asked.

    Raises:
        BackendUnusable: no client can be opened.
    """

    name: ClassVar[str]

    def __init__(self, options: BackendOptions, *, model: str, http: Any) -> None:
        self.model = model
        self._options = options
        self._failures = Failures(self.name, known_secrets())
        timeout = http.Timeout(options.timeout_s, connect=min(CONNECT_S, options.timeout_s))

        def client() -> Any:
            return self._open(timeout=timeout, verify=tls, event_hooks={"response": [self._watch]})

        try:
            tls = tls_context(http)
            self._slots = Slots(client, most=options.connections, close=self._close)
        except (ValueError, TypeError, OSError, ImportError, http.InvalidURL) as error:
            raise self._failures.unopened(error) from None

    @property
    def temperature(self) -> float | None:
        """What is sent."""
        return self._options.temperature

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; raises `BackendError`."""
        data = await self._ask(request)
        usage = self._usage(data)
        try:
            return self._answer(data, request, usage)
        except Unreadable as error:
            raise self._failures.unreadable(error, usage) from None

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._slots.aclose()

    async def _watch(self, response: Any) -> None:
        """Look at each response as it comes, also at those after which the client tries again."""
        if response.status_code in OVERLOADED:
            self._options.on_overload()

    async def _close(self, client: Any) -> None:
        await client.close()

    @abstractmethod
    def _open(self, **how: Any) -> Any:
        """Open a client; `how` is `timeout`, `verify` and `event_hooks` of its HTTP library."""

    @abstractmethod
    async def _ask(self, request: ModelRequest) -> Any:
        """Give what the provider answers; raises `BackendError`."""

    @abstractmethod
    def _usage(self, data: Any) -> Usage:
        """Read the tokens that the provider counted."""

    @abstractmethod
    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:
        """Read an answer; raises `Unreadable`, or `BackendError` where it was cut."""


class Posting(Asking):
    """Asks by one POST, and learns which parameters the model doesn't take.

    The key comes from `<NAME>_API_KEY`, which only the provider's own address needs; the client tries again by itself.

    Attributes:
        default_model: which model is asked where none is named; empty: one has to be.
        path: where to post to, under the base URL.
        adjustable: parameters that a call can do without, or that have another name.
    """

    default_model: ClassVar[str] = ""
    path: ClassVar[str]
    adjustable: ClassVar[frozenset[str]]

    def __init__(self, options: BackendOptions) -> None:
        self._sdk: Any = imported(self.name)
        model = model_named(options.model, name=self.name, default=self.default_model)
        base_url = options.base_url or os.environ.get(f"{self.name.upper()}_BASE_URL", "")
        self._key = key_from(f"{self.name.upper()}_API_KEY", name=self.name, own_server=bool(base_url))
        self._url = checked_url(base_url, name=self.name) if base_url else None
        # those without which a call went well that had been refused with them
        self._refused: frozenset[str] = frozenset()
        http = http_library(self._sdk)
        self._response = http.Response
        super().__init__(options, model=model, http=http)

    @property
    def temperature(self) -> float | None:
        """What is sent; None once the model has refused to take one."""
        return None if "temperature" in self._refused else self._options.temperature

    @abstractmethod
    def _client(self, **how: Any) -> Any:
        """Open the provider's client; `how` is its `http_client`, `timeout` and `max_retries`."""

    @abstractmethod
    def _body(self, request: ModelRequest, without: frozenset[str]) -> dict[str, Any]:
        """Make the body of a request, without the parameters named."""

    @abstractmethod
    def _counted(self, counts: dict[str, Any]) -> Usage:
        """Read the tokens in the answer's `usage`."""

    def _open(self, **how: Any) -> Any:
        http_client = self._sdk.DefaultAsyncHttpxClient(**how)
        return self._client(http_client=http_client, timeout=how["timeout"], max_retries=self._options.retries)

    async def _ask(self, request: ModelRequest) -> Any:
        # a parameter that the server refuses by name is left out from then on, if the call goes well without it
        refused = self._refused
        while True:
            sent = self._body(request, refused)
            try:
                text = await self._post(sent)
            except self._sdk.APIStatusError as error:
                more = self._refuses(error, sent) - refused
                if not more:
                    raise self._failures.of_status(error.status_code, error.response.text) from None
                refused |= more
                continue
            self._refused |= refused
            try:
                return parsed(text)
            except Unreadable as error:
                raise self._failures.unreadable(error) from None

    async def _post(self, body: dict[str, Any]) -> str:
        sdk = self._sdk
        try:
            async with self._slots.client() as client:
                # by path: the typed methods walk through the whole body at each call
                response = await client.post(self.path, cast_to=self._response, body=body)
        except sdk.APITimeoutError:
            raise self._failures.timeout(self._options.timeout_s) from None
        except sdk.APIConnectionError as error:
            raise self._failures.network(error) from None
        except UnicodeEncodeError as error:
            raise self._failures.unsendable(error) from None
        text: str = response.text
        return text

    def _refuses(self, error: Any, sent: dict[str, Any]) -> frozenset[str]:
        if error.status_code not in _REFUSING:
            return frozenset()
        words = words_of(error.response.text)
        if not _REFUSES.search(words):
            return frozenset()
        return frozenset(self.adjustable & sent.keys() & set(re.findall(r"\w+", words)))

    def _usage(self, data: Any) -> Usage:
        counts = data.get("usage") if isinstance(data, dict) else None
        return self._counted(counts if isinstance(counts, dict) else {})


class Slots(Generic[ClientT]):
    """At most so many clients, opened when first needed.

    Args:
        make: opens a client; the first is opened at once, so that a wrong setting shows before the first call.
        most: clients at most, 1 or more; whoever comes later waits.
        close: closes a client.
    """

    def __init__(
        self, make: Callable[[], ClientT], *, most: int, close: Callable[[ClientT], Awaitable[object]]
    ) -> None:
        self._make = make
        self._close = close
        self._free = asyncio.Semaphore(most)
        self._turn = asyncio.Lock()
        self._all = [make()]
        self._idle = list(self._all)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ClientT]:
        """Lend a client for one call."""
        async with self._free:
            # one call starts in a round of the loop: started together, calls are sent only when all are prepared,
            # answered together, and the loop has nothing to do in between
            async with self._turn:
                await asyncio.sleep(0)
            if self._idle:
                client = self._idle.pop()
            else:
                client = self._make()
                self._all.append(client)
            try:
                yield client
            finally:
                self._idle.append(client)

    async def aclose(self) -> None:
        """Close them all, lent ones too."""
        clients, self._all, self._idle = self._all, [], []
        for client in clients:
            await self._close(client)
