"""The pipeline under test: found by what the user names, and called whatever shape it has, plain or async."""

from __future__ import annotations

import asyncio
import inspect
import sys
import weakref
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.external import TargetError
from pytest_packbench.model.errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pytest_packbench.model.request import Target, VerifyContext, VerifyRequest

    Aside = Callable[[Callable[[], Any]], Awaitable[Any]]


_WITH_CONTEXT = 2


def as_target(found: Any, name: str) -> Target:
    """Take a function, or an object with a method `verify`; raises `TargetError` where it is neither."""
    verify = getattr(found, "verify", None)
    if callable(verify):
        return verify  # type: ignore[no-any-return]  # what a user gives is checked when it is called
    if not callable(found):
        raise TargetError(
            f'target "{name}": expected a function or an object with verify(), got {type(found).__name__}'
        )
    return found  # type: ignore[no-any-return]  # see above


def find_target(spec: str, *, replayed: bool, cwd: Path, timeout_s: float, concurrency: int) -> tuple[Target, str]:
    """Find a target by its name.

    Args:
        spec: `package.module:attr`, `http://...`, `https://...` or `cmd:...`.
        replayed: whether targets outside this process are replayed whole, so that nothing is opened for them.
        cwd: the folder that the processes of `cmd:` start in; the user's modules are found in it.
        timeout_s: time limit of one HTTP request, seconds.
        concurrency: requests that may be open at once, and processes.

    Returns:
        The target and its name as it may be shown.

    Raises:
        TargetError: one line: what is missing, and where.
    """
    make_importable(cwd)
    if spec.startswith(("http://", "https://")):
        from pytest_packbench.engine.http_target import HttpTarget, shown_url

        if replayed:
            return _Replayed().verify, shown_url(spec)
        server = HttpTarget(url=spec, timeout_s=timeout_s, connections=concurrency)
        return server.verify, server.shown
    if spec.startswith("cmd:"):
        from pytest_packbench.engine.command_target import CommandTarget

        command = CommandTarget(command=spec.removeprefix("cmd:"), cwd=cwd, processes=concurrency)
        return command.verify, f"cmd:{command.shown}"
    return import_target(spec), spec


def import_target(spec: str) -> Target:
    """Import a target, `package.module:attr`; raises as `find_target`."""
    if not spec.partition(":")[0] or not spec.partition(":")[2]:
        raise TargetError(f'target "{spec}": expected package.module:attr, http://... or cmd:...')
    return as_target(import_object(spec, "target"), spec)


def import_object(spec: str, what: str) -> Any:
    """Import `package.module:attr`; errors call it by `what` it is to be.

    Raises:
        TargetError: one line: what is missing, and where.
    """
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise TargetError(f'{what} "{spec}": expected package.module:attr')
    try:
        found: Any = import_module(module_name)
    except ImportError as error:
        raise TargetError(f'{what} "{spec}": {error}') from error
    except (Exception, SystemExit) as error:
        raise TargetError(f'{what} "{spec}": importing {module_name} raised {describe_error(error)}') from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise TargetError(f'{what} "{spec}": {module_name} has no "{path}"') from None
    return found


def make_importable(folder: Path) -> None:
    """Append a folder to `sys.path`: the user's modules are found there, and none of them shadows a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


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

    def __init__(self, target: Target) -> None:
        self.target = target
        self._takes_context = takes_context(target)
        owner = getattr(target, "__self__", None)
        self.opaque = bool(getattr(owner, "opaque", False))
        # only the context brings a model along
        self.asks_model = self._takes_context and not self.opaque and bool(getattr(target, "asks_model", True))
        self._close = getattr(owner, "aclose", None) if self.opaque else None
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
        """Give the same without holding up the event loop: `aside` runs a target that isn't async, as `in_thread`."""
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


class _Replayed:
    """Stands for a target outside this process in fixture mode, where it is replayed and never asked."""

    opaque = True

    async def verify(self, request: VerifyRequest) -> Any:
        raise RuntimeError(f"a target outside this process is not asked in fixture mode: {request!r}")


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
