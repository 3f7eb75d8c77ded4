"""Targets: find the pipeline under test, and call it, sync or async."""

from __future__ import annotations

import inspect
import sys
import threading
import weakref
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.offline import bound_to_case, note_tasks
from pytest_packbench.engine.time_limit import TimeLimitReached
from pytest_packbench.model.errors import describe_error
from pytest_packbench.model.request import (
    AnswerError,
    Target,
    TargetError,
    VerifyContext,
    VerifyRequest,
    Worlds,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.model.run import RunOptions

    RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
    Take = Callable[[Any], Any]


_PARAMETERS_WITH_CONTEXT = 2
_OPAQUE_ID = 12
_CANCEL_S = 1.0


def as_target(candidate: Any, name: str, adapt: Callable[[Any], Any] | None = None) -> Target:
    """Return the target of a function, of an object with a method `verify`, `invoke` or `ainvoke`, or of a factory.

    A factory is a class, or a function without parameters, and is called once. `invoke` and `ainvoke` get the input of
    the case; a message that they return counts as its content.

    Args:
        candidate: the function, object or factory.
        name: its name, for errors.
        adapt: returns a target for objects that only a pack knows (`Pack.adapt_target`).

    Raises:
        TargetError: it is none of them, or the factory fails.
    """
    if isinstance(candidate, type) or _is_factory(candidate):
        try:
            candidate = candidate()
        except Exception as error:
            raise TargetError(f'target "{name}": calling it for the target raised {describe_error(error)}') from error
        if inspect.isawaitable(candidate):
            close = getattr(candidate, "close", None)
            if callable(close):
                close()
            raise TargetError(f'target "{name}": an async function without parameters; expected target(request)')
    if adapt is not None:
        candidate = adapt(candidate)
    verify = getattr(candidate, "verify", None)
    if callable(verify):
        return verify  # type: ignore[no-any-return]  # its signature is checked when it is called
    for method in ("invoke", "ainvoke"):
        call = getattr(candidate, method, None)
        if callable(call):
            return _invoked(call)
    if not callable(candidate):
        raise TargetError(
            f'target "{name}": expected a function, or an object with verify(), invoke() or ainvoke(), '
            f"got {type(candidate).__name__}"
        )
    return candidate  # type: ignore[no-any-return]  # its signature is checked when it is called


def _is_factory(candidate: Any) -> bool:
    """Whether it is a function that takes nothing: a target takes a request."""
    if not inspect.isroutine(candidate):
        return False
    try:
        return not inspect.signature(candidate).parameters
    except (TypeError, ValueError):
        return False


def _invoked(call: Callable[[Any], Any]) -> Target:
    """Return the target of a method that is called as chains of other libraries are: with the input alone."""

    async def awaited(answer: Awaitable[Any]) -> Any:
        return _plain_answer(await answer)

    def verify(request: VerifyRequest) -> Any:
        answer = call(request.input)
        return awaited(answer) if inspect.isawaitable(answer) else _plain_answer(answer)

    return verify


def _plain_answer(answer: Any) -> Any:
    dump = getattr(answer, "model_dump", None)
    if not callable(dump):
        return answer
    content = getattr(answer, "content", None)
    return content if isinstance(content, str) else dump(mode="json")


def find_target(
    spec: str, options: RunOptions, redactor: Redactor, adapt: Callable[[Any], Any] | None = None
) -> tuple[Target, str]:
    """Find a target by its specification.

    Args:
        spec: `package.module:attr`, `http://...`, `https://...` or `cmd:...`.
        options: of the run: modules are imported, and processes start, in its folder. In fixture mode, results of
            servers are replayed, and nothing is opened.
        redactor: the run's.
        adapt: as that of `as_target`.

    Returns:
        The target, and its name without secrets.

    Raises:
        TargetError: one line: what is missing, and where.
    """
    cwd, most = options.root, options.concurrency
    make_importable(cwd)
    if spec.startswith(("http://", "https://")):
        from pytest_packbench.engine.http_target import HttpTarget, shown_url

        if options.mode == "fixture":
            return _ReplayedTarget().verify, shown_url(spec)
        timeout_s = options.case_timeout_s or options.call_timeout_s
        server = HttpTarget(url=spec, timeout_s=timeout_s, connections=most, redactor=redactor)
        return server.verify, server.shown
    if spec.startswith("cmd:"):
        from pytest_packbench.engine.command_target import CommandTarget

        command = CommandTarget(command=spec.removeprefix("cmd:"), cwd=cwd, processes=most, redactor=redactor)
        return command.verify, f"cmd:{command.shown}"
    return import_target(spec, adapt), spec


def import_target(spec: str, adapt: Callable[[Any], Any] | None = None) -> Target:
    """Import a target, `package.module:attr`; raises as `find_target` does."""
    candidate = import_object(spec, "target", "package.module:attr, http://... or cmd:...")
    return as_target(candidate, spec, adapt)


def import_object(spec: str, what: str, forms: str = "package.module:attr") -> Any:
    """Import `package.module:attr`.

    Args:
        spec: what to import.
        what: the object's purpose, for errors, such as `target`.
        forms: what else it could be, for errors.

    Raises:
        TargetError: one line: what is missing, and where.
    """
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise TargetError(f'{what} "{spec}": expected {forms}')
    try:
        value: Any = import_module(module_name)
    except (Exception, SystemExit) as error:
        raise TargetError(f'{what} "{spec}": importing {module_name} raised {describe_error(error)}') from error
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise TargetError(f'{what} "{spec}": {module_name} has no "{path}"') from None
    return value


def make_importable(folder: Path) -> None:
    """Append a folder to `sys.path`, so that the user's modules can be imported and none of them shadows a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _positional(target: Target) -> tuple[int, float]:
    """Return how many positional arguments a target requires, and how many it accepts; none where it does not say."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return 0, 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    defaults = [each.default for each in parameters if each.kind in kinds]
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    required = sum(default is inspect.Parameter.empty for default in defaults)
    return required, float("inf") if takes_any else len(defaults)


class TargetCaller:
    """Calls one target for many cases; async targets share one event loop.

    Attributes:
        target: the callable.
        worlds: opens the world in which each case's call takes place; None where the target's result is taken as it is.
        takes_context: whether it takes a context beside the request.
        meets_guards: whether its results can meet the guards: those of its world, or of its context.
        asks_model: whether it may make model calls through its context; see `without_model`.
        without_model: whether it is marked as calling no model at all.
        requires_context: whether it takes a context without a default.
        opaque: whether it runs outside this process, so that its result is recorded and replayed, not its model calls.
        runs_offline: whether it is a program, which can run on recorded model calls all the same.
    """

    def __init__(self, target: Target, worlds: Worlds | None = None) -> None:
        self.target = target
        self.worlds = worlds
        required, accepted = _positional(target)
        self.takes_context = accepted >= _PARAMETERS_WITH_CONTEXT
        self.meets_guards = self.takes_context or worlds is not None
        owner = getattr(target, "__self__", None)
        self.opaque = bool(getattr(owner, "opaque", False))
        self.runs_offline = self.opaque and bool(getattr(owner, "runs_offline", False))
        # only the context offers a model
        self.without_model = not getattr(target, "asks_model", True)
        self.asks_model = self.takes_context and not self.opaque and not self.without_model
        self.requires_context = required >= _PARAMETERS_WITH_CONTEXT
        self._close = getattr(owner, "aclose", None) if self.opaque else None
        self._loop: asyncio.Runner | None = None
        self._closer: weakref.finalize[Any, Any] | None = None

    async def call(
        self,
        request: VerifyRequest,
        context: VerifyContext,
        in_thread: RunInThread | None = None,
        take: Take = lambda result: result,
    ) -> Any:
        """Return what `take` makes of the target's result, or of what its world makes of it.

        Args:
            request: the target's input.
            context: what the target may use.
            in_thread: runs a sync target, and `take` with it, so that the event loop is not blocked; None where all is
                done here: then the coroutine never waits.
            take: called as soon as there is a result.

        Raises:
            BaseException: what the target raises.
        """
        if self.worlds is None:
            return await self._answer(request, context, in_thread, take)
        run = in_thread or _run_here
        world = await run(partial(self.worlds.open, request, context))
        answer, problem = None, None
        # it ends with the attempt, also where a sync target is abandoned and goes on
        with ExitStack() as opened:
            opened.push(world.__exit__)
            # on a thread, because guards may wait
            own_request = await run(world.__enter__)
            try:
                if own_request is not None:
                    answer = await self._answer(own_request, _for_agent(context), in_thread, lambda result: result)
            except AnswerError as error:
                problem = error
        return await self._taken(partial(world.result, answer, problem), in_thread, take)

    async def aclose(self) -> None:
        """Close what the target opened outside this process."""
        if self._close is not None:
            await self._close()

    def close(self) -> None:
        """Close the event loop of direct calls, if there is one."""
        if self._closer is not None:
            self._closer()
        self._closer = self._loop = None

    async def _answer(
        self, request: VerifyRequest, context: VerifyContext, in_thread: RunInThread | None, take: Take
    ) -> Any:
        """Call the target itself; a sync one on a thread, if there is one to run it."""
        ask = partial(self.target, request, *([context] if self.takes_context else ()))
        if in_thread is not None and _is_async(self.target):
            return take(await ask())
        return await self._taken(ask, in_thread, take)

    async def _taken(self, call: Callable[[], Any], in_thread: RunInThread | None, take: Take) -> Any:
        """Return what `take` makes of the result of a call: where it was called, or here if it has to be awaited."""

        def taken() -> Any:
            result = call()
            return result if inspect.isawaitable(result) else take(result)

        result = await (in_thread or _run_here)(taken)
        if not inspect.isawaitable(result):
            return result
        return take(self._wait_for(result) if in_thread is None else await result)

    def _wait_for(self, result: Awaitable[Any]) -> Any:
        """Return what a result comes to, on the loop of direct calls."""
        if self._loop is None:
            import asyncio  # most targets of recorded cases are sync

            self._loop = asyncio.Runner()
            note_tasks(self._loop.get_loop())
            # closes the loop although nobody closed the caller
            self._closer = weakref.finalize(self, self._loop.close)
        try:
            return _run(self._loop.get_loop(), result)
        except BaseException as error:
            if _is_time_up(error):
                self._end_tasks(self._loop.get_loop())
            raise

    def _end_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what a case has left on the loop of direct calls; leave the loop if something does not end."""
        import asyncio

        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if self._closer is not None:
            # the runner's own way would wait for threads that hang
            self._closer.detach()
            self._closer = weakref.finalize(self, loop.close)
        try:
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_S))
        finally:
            left = [task for task in tasks if not task.done()]
            if left:
                # asyncio reports tasks that have not ended when they are freed
                loop.set_exception_handler(lambda *_: None)
                self.close()
            for task in left:
                _close_coroutine(task)


async def _run_here(call: Callable[[], Any]) -> Any:
    """Run a call as `run_in_thread` does, on this thread."""
    return _without_stop(call)


def _without_stop(call: Callable[[], Any]) -> Any:
    """Return what a call returns; neither a future nor a coroutine can pass on a `StopIteration` of it."""
    try:
        return call()
    except StopIteration as stopped:
        raise RuntimeError(f"StopIteration: {stopped}").with_traceback(stopped.__traceback__) from None


def _run(loop: asyncio.AbstractEventLoop, result: Awaitable[Any]) -> Any:
    """Return what a result comes to; `Runner.run` sets a handler of SIGINT each time, which takes 0.1 ms."""
    from asyncio import CancelledError, _get_running_loop

    if _get_running_loop() is not None:
        if inspect.iscoroutine(result):
            result.close()
        raise RuntimeError("an async target can't be called from a running event loop")
    # else all cases share the context of the first
    coroutine = result if inspect.iscoroutine(result) else _awaited(result)
    # else all cases share the context of the first
    task = loop.create_task(coroutine, context=copy_context())
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        if not task.done():
            task.cancel()
            # the target cleans up; Ctrl-C again ends that
            with suppress(Exception, CancelledError):
                loop.run_until_complete(task)
        raise


def _close_coroutine(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task now: when the task is freed, it could catch that and go on without a time limit."""
    close = getattr(task.get_coro(), "close", None)
    if close is not None:
        with suppress(Exception, TimeLimitReached):
            close()


def _is_time_up(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(TimeLimitReached) is not None
    return isinstance(error, TimeLimitReached)


def _for_agent(context: VerifyContext) -> VerifyContext:
    """Return the context of an agent in a world, which has the guards and judges: the agent must not reach them.

    The id of a case may name the attack; its hash, the same in each run, is for logs.
    """
    opaque = sha256(f"{context.suite}/{context.case_id}".encode()).hexdigest()[:_OPAQUE_ID]
    return replace(context, case_id=f"case_{opaque}", guards=(), judges={})


class _ReplayedTarget:
    """Replaces a target outside this process in fixture mode, where its results are replayed."""

    opaque = True

    async def verify(self, request: VerifyRequest) -> Any:
        raise RuntimeError(f"a target outside this process is not called in fixture mode: {request!r}")


def _is_async(target: Target) -> bool:
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(getattr(target, "__call__", None))  # noqa: B004 - the question is whether the call is async, not whether the object is callable


async def _awaited(result: Any) -> Any:
    return await result


def start_daemon_thread(call: Callable[[], object], name: str = "packbench-target") -> threading.Thread:
    """Run a call on a daemon thread, which never delays the interpreter's exit."""
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    return thread


async def run_in_thread(
    call: Callable[[], Any], start: Callable[[Callable[[], None]], object] = start_daemon_thread
) -> Any:
    """Run a call on a thread and wait for it; the thread is abandoned where the wait is cancelled.

    `asyncio.to_thread` would delay the interpreter's exit, which joins the threads of `concurrent.futures`.

    Args:
        call: the function; it has a copy of the current context variables.
        start: has a function called on some thread.
    """
    from asyncio import get_running_loop

    loop = get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    settle = partial(_settle, future)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = _without_stop(call)
        except BaseException as raised:  # noqa: BLE001 - any exception of a target is an error of its case
            # without this frame, so that the target's own frames are freed with its objects at once
            error = raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next)
        # the loop is closed if the run ended without waiting for this thread
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, error)

    start(bound_to_case(partial(copy_context().run, run)))
    try:
        return await future
    finally:
        del future


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def release_pools() -> None:
    """Let the interpreter exit although a target's own `ThreadPoolExecutor` hangs.

    Its threads are daemons, since a target runs on a daemon thread; those of the main thread's pools are not.
    """
    # private names: the interpreter's exit joins these threads, daemons too, and only `os._exit` would skip that
    pools = sys.modules.get("concurrent.futures.thread")
    queues = getattr(pools, "_threads_queues", {})
    for thread in [thread for thread in list(queues) if thread.daemon]:
        queues.pop(thread, None)
