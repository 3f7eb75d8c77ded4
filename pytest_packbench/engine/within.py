"""Waiting for a user's target no longer than it may take, whatever it does with its cancellation."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

_FAREWELL_S = 1.0


@dataclass(slots=True)
class Limit:
    """A time limit that may be lifted while it runs.

    Attributes:
        seconds: None for none.
    """

    seconds: float | None

    def lift(self) -> None:
        """Wait as long as it takes from now on: somebody steps through the code."""
        self.seconds = None


class OverdueError(RuntimeError):
    """The limit passed."""


async def within(call: Coroutine[Any, Any, Any], limit: Limit) -> tuple[Any, BaseException | None]:
    """Wait for a coroutine until the limit passes; one that goes on after that is left to itself.

    Args:
        call: the coroutine; it runs in a task of its own.
        limit: how long it may take.

    Returns:
        What it gave and what it raised; the latter may be anything, even `SystemExit`.

    Raises:
        OverdueError: the limit passed.
    """
    task = asyncio.ensure_future(_caught(call))
    try:
        if await _ended(task, limit):
            return task.result()
        task.cancel()
        # most end at once; one that swallows its cancellation is not waited for
        await asyncio.wait((task,), timeout=_FAREWELL_S)
        raise OverdueError
    finally:
        task.cancel()


async def _ended(task: asyncio.Task[Any], limit: Limit) -> bool:
    begun = time.monotonic()
    while not task.done():
        seconds = limit.seconds
        left = None if seconds is None else begun + seconds - time.monotonic()
        if left is not None and left <= 0:
            return False
        await asyncio.wait((task,), timeout=left)
    return True


async def _caught(call: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    try:
        return await call, None
    except BaseException as error:  # noqa: BLE001 - whatever a user's target raises is that case's error
        return None, error
