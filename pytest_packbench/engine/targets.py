"""Calling the pipeline under test, whatever shape it has: a function or an object, plain or async."""

from __future__ import annotations

import asyncio
import inspect
import sys
import weakref
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pytest_packbench.model.request import Target, VerifyContext, VerifyRequest

    Aside = Callable[[Callable[[], Any]], Awaitable[Any]]


_WITH_CONTEXT = 2


class TargetError(ValueError):
    """The target can't be found, or can't be called as one."""


def as_target(found: Any, name: str) -> Target:
    """Take a function, or an object with a method `verify`.

    Raises:
        TargetError: it is neither.
    """
    verify = getattr(found, "verify", None)
    if callable(verify):
        return verify  # type: ignore[no-any-return]  # what a user gives is checked when it is called
    if not callable(found):
        raise TargetError(
            f'target "{name}": expected a function or an object with verify(), got {type(found).__name__}'
        )
    return found  # type: ignore[no-any-return]  # see above


def takes_context(target: Target) -> bool:
    """Whether the target wants the context beside the request: two positional parameters or `*args`."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = sum(1 for one in parameters if one.kind in kinds)
    return positional >= _WITH_CONTEXT or any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)


class Caller:
    """Calls one target for many cases; async targets share one event loop.

    Attributes:
        target: the callable.
        asks_model: whether it may make model calls; see `without_model`.
        opaque: whether it lives outside this process: recorded and replayed whole, at the verify boundary.
    """

    def __init__(self, target: Target, *, close: Callable[[], Awaitable[None]] | None = None) -> None:
        self.target = target
        self._takes_context = takes_context(target)
        owner = getattr(target, "__self__", None)
        self.opaque = bool(getattr(owner, "opaque", False))
        # only the context brings a model along
        self.asks_model = self._takes_context and not self.opaque and bool(getattr(target, "asks_model", True))
        self._close = close or getattr(owner, "aclose", None) if self.opaque else close
        self._loop: asyncio.Runner | None = None

    def __call__(self, request: VerifyRequest, context: VerifyContext) -> Any:
        """Give the target's result; raises what the target raises."""
        result = self._begin(request, context)
        if inspect.isawaitable(result):
            if self._loop is None:
                self._loop = asyncio.Runner()
                # whoever forgets to close the caller leaves no loop behind
                weakref.finalize(self, self._loop.close)
            return self._loop.run(_awaited(result))
        return result

    async def ahead(self, request: VerifyRequest, context: VerifyContext, aside: Aside) -> Any:
        """Give the target's result without holding up the event loop; raises what the target raises.

        Args:
            request: what the target is asked.
            context: what it may use.
            aside: runs a target that isn't async; see `in_thread`.
        """
        if _is_async(self.target):
            return await self._begin(request, context)
        result = await aside(partial(self._begin, request, context))
        return await result if inspect.isawaitable(result) else result

    async def aclose(self) -> None:
        """End what the target holds outside this process."""
        if self._close is not None:
            await self._close()

    def close(self) -> None:
        """Close the event loop of direct calls, if there was one."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _begin(self, request: VerifyRequest, context: VerifyContext) -> Any:
        return self.target(request, context) if self._takes_context else self.target(request)


def _is_async(target: Target) -> bool:
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(getattr(target, "__call__", None))  # noqa: B004 - whether its call is async is asked, not whether it can be called


async def _awaited(result: Any) -> Any:
    return await result


def daemon(call: Callable[[], object], name: str = "packbench-target") -> Thread:
    """Run a call on a daemon thread, which never holds up the interpreter's exit."""
    thread = Thread(target=call, name=name, daemon=True)
    thread.start()
    return thread


async def in_thread(call: Callable[[], Any], start: Callable[[Callable[[], None]], object] = daemon) -> Any:
    """Run a call on a thread and wait for it; the thread is left to itself where the wait is cancelled.

    The pool of `concurrent.futures` would hold up the interpreter's exit: its threads are joined there.

    Args:
        call: what to run; it sees the context variables of now.
        start: has a function called on some thread.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    settle = partial(_settle, done)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = call()
        except StopIteration as stopped:
            # a future refuses this one
            error = RuntimeError(f"StopIteration: {stopped}")
        except BaseException as raised:  # noqa: BLE001 - whatever a user's target raises is that case's error
            # without this frame: what the target left open is let go of with its own frames, at once
            error = raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next)
        # the loop is closed where the run ended without waiting for this thread
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    start(partial(copy_context().run, run))
    try:
        return await done
    finally:
        del done


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)


def release_pools() -> None:
    """Let the interpreter end although a target's own `ThreadPoolExecutor` hangs.

    Its threads are joined at exit even where they are daemons, as all are that a target starts on a daemon thread;
    pools of the main thread's own have none.
    """
    pools = sys.modules.get("concurrent.futures.thread")
    joined = getattr(pools, "_threads_queues", {})
    for thread in [thread for thread in list(joined) if thread.daemon]:
        joined.pop(thread, None)
