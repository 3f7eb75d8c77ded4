"""Clients for calls that run at the same time: one connection each, handed out in turn and taken back.

A connection pool looks at all its connections at each request; of 64 that costs more than the rest of a call.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

ClientT = TypeVar("ClientT")


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
