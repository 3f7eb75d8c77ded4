"""Calls through the clients of OpenAI and Anthropic, which are alike: one POST, the client's own retries."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pytest_packbench.backends.answers import Unreadable, parsed
from pytest_packbench.backends.base import BackendUnusable
from pytest_packbench.backends.failures import (
    OVERLOADED,
    known_secrets,
    network_error,
    one_line,
    status_error,
    timeout_error,
    unreadable_error,
    unsendable_error,
    words_of,
)
from pytest_packbench.backends.opened import CONNECT_S, http_library, tls_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import ModuleType

    from pytest_packbench.backends.base import BackendOptions
    from pytest_packbench.model.request import ModelAnswer, ModelRequest, Usage


ClientT = TypeVar("ClientT")
_REFUSING = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
# a parameter as such is refused, not its value: a value that is out of range stays the user's mistake
_REFUSES = re.compile(
    r"(?i)\b(unsupported|not support(ed)?|n't support|deprecated|not permitted|not allowed|may not|not compatible|"
    r"unknown|unrecognized|unexpected|only the default)\b"
)


class Posting(ABC):
    """A backend that asks by a `Caller`; a provider adds the body of its requests, and how answers are read.

    Args:
        caller: posts the requests.
        model: which model is asked.
        options: how to ask.

    Attributes:
        name: the backend.
        model: which model is asked.
    """

    def __init__(self, caller: Caller, *, model: str, options: BackendOptions) -> None:
        self.name = caller.name
        self.model = model
        self._caller = caller
        self._options = options

    @property
    def temperature(self) -> float | None:
        """What is sent; None once the model has refused to take one."""
        return None if "temperature" in self._caller.refused else self._options.temperature

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; raises `BackendError`."""
        data = await self._caller.ask(lambda without: self._body(request, without))
        counts = data.get("usage") if isinstance(data, dict) else None
        usage = self._usage(counts if isinstance(counts, dict) else {})
        try:
            return self._answer(data, request, usage)
        except Unreadable as error:
            raise unreadable_error(self.name, error, self._caller.secrets, usage) from None

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._caller.aclose()

    @abstractmethod
    def _body(self, request: ModelRequest, without: frozenset[str]) -> dict[str, Any]:
        """Make the body of a request, without the parameters named."""

    @abstractmethod
    def _usage(self, counts: dict[str, Any]) -> Usage:
        """Read the tokens that the provider counted."""

    @abstractmethod
    def _answer(self, data: Any, request: ModelRequest, usage: Usage) -> ModelAnswer:
        """Read an answer; raises `Unreadable`, or `BackendError` where it was cut."""


class Caller:
    """One provider's client: asks, and learns which parameters the model doesn't take.

    Args:
        name: the backend.
        sdk: the client's package.
        make: opens a client from its `http_client`, `timeout` and `max_retries`.
        path: where to post to, under the base URL.
        adjustable: parameters that a call can do without, or that have another name.
        options: how to ask.

    Attributes:
        name: the backend.
        secrets: values that no message may hold.
        refused: the adjustable parameters without which a call went well that had been refused with them.

    Raises:
        BackendUnusable: the client can't be opened.
    """

    def __init__(
        self,
        *,
        name: str,
        sdk: ModuleType,
        make: Callable[..., Any],
        path: str,
        adjustable: frozenset[str],
        options: BackendOptions,
    ) -> None:
        self.name = name
        self._sdk = sdk
        self._path = path
        self._adjustable = adjustable
        self._timeout_s = options.timeout_s
        self.secrets = known_secrets()
        self.refused: frozenset[str] = frozenset()
        http = http_library(sdk)
        self._response = http.Response
        timeout = http.Timeout(options.timeout_s, connect=min(CONNECT_S, options.timeout_s))

        async def watch(response: Any) -> None:
            if response.status_code in OVERLOADED:
                options.on_overload()

        def client() -> Any:
            http_client = sdk.DefaultAsyncHttpxClient(timeout=timeout, verify=tls, event_hooks={"response": [watch]})
            return make(http_client=http_client, timeout=timeout, max_retries=options.retries)

        try:
            tls = tls_context(http)
            self._slots = Slots(client, most=options.connections, close=lambda client: client.close())
        except (ValueError, TypeError, OSError, ImportError, http.InvalidURL) as error:
            raise BackendUnusable(f"the backend {name} can't be opened: {one_line(str(error), self.secrets)}") from None

    async def ask(self, body: Callable[[frozenset[str]], dict[str, Any]]) -> Any:
        """Post a request and give the JSON value answered.

        A parameter that the server refuses by name is left out from then on, if the call goes well without it.

        Args:
            body: makes the request's body without the parameters named.

        Raises:
            BackendError: the call broke.
        """
        refused = self.refused
        while True:
            sent = body(refused)
            try:
                text = await self._post(sent)
            except self._sdk.APIStatusError as error:
                more = self._refuses(error, sent) - refused
                if not more:
                    raise status_error(self.name, error.status_code, error.response.text, self.secrets) from None
                refused |= more
                continue
            self.refused |= refused
            try:
                return parsed(text)
            except Unreadable as error:
                raise unreadable_error(self.name, error, self.secrets) from None

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._slots.aclose()

    async def _post(self, body: dict[str, Any]) -> str:
        sdk = self._sdk
        try:
            async with self._slots.client() as client:
                # by path: the typed methods walk through the whole body at each call
                response = await client.post(self._path, cast_to=self._response, body=body)
        except sdk.APITimeoutError:
            raise timeout_error(self.name, self._timeout_s) from None
        except sdk.APIConnectionError as error:
            raise network_error(self.name, error, self.secrets) from None
        except UnicodeEncodeError as error:
            raise unsendable_error(self.name, error) from None
        text: str = response.text
        return text

    def _refuses(self, error: Any, sent: dict[str, Any]) -> frozenset[str]:
        if error.status_code not in _REFUSING:
            return frozenset()
        words = words_of(error.response.text)
        if not _REFUSES.search(words):
            return frozenset()
        return frozenset(self._adjustable & sent.keys() & set(re.findall(r"\w+", words)))


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
