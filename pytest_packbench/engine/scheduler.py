"""The scheduler makes attempts ahead of pytest's item loop, within a bounded window, on an event loop of its own.

The threads of the loop and of sync targets are daemons: one that hangs never delays the interpreter's exit. What
concurrent cases print and log is collected case by case.
"""

from __future__ import annotations

import asyncio
import io
import logging
import queue
import sys
import threading
import time
from collections import OrderedDict, deque
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.engine.attempt import AttemptState, Failure, abandon, end, run_target, settle
from pytest_packbench.engine.offline import CURRENT_OUTPUT, note_tasks
from pytest_packbench.engine.targets import release_pools, run_in_thread, start_daemon_thread
from pytest_packbench.model.errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import ModuleType

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.live_models import Ledger
    from pytest_packbench.model.case import LoadedCase


_MAX_CHARACTERS = 1_000_000
# far more than the assignments of streams that happen while one object is printed
_MAX_STREAMS = 1_000
_STREAMS = {"stdout": "out", "stderr": "err"}
_FORMAT = "%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"


@dataclass(slots=True)
class CapturedOutput:
    """What one attempt printed and logged, at most a million characters of each.

    Attributes:
        out: pieces of standard output.
        err: pieces of standard error.
        log: log records, one line each.
        redirected: the streams that the case itself assigned, by their names in `sys`.
    """

    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    redirected: dict[str, Any] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def add(self, stream: str, text: str) -> None:
        """Add a piece of `out`, `err` or `log`."""
        size = self._sizes.get(stream, 0)
        if size < _MAX_CHARACTERS:
            self._sizes[stream] = size + len(text)
            getattr(self, stream).append(text[: _MAX_CHARACTERS - size])

    def sections(self) -> list[tuple[str, str]]:
        """Return the output that is not empty by pytest's names of sections: `stdout`, `stderr`, `log`."""
        texts = (("stdout", "".join(self.out)), ("stderr", "".join(self.err)), ("log", "\n".join(self.log)))
        # unpaired surrogates are replaced as in pytest's own capture
        return [(name, text.encode("utf-8", "replace").decode("utf-8")) for name, text in texts if text]


def capturing_context(output: CapturedOutput) -> Context:
    """Return a copy of the current context in which a started `StreamRouter` captures what is printed and logged."""
    context = copy_context()
    context.run(CURRENT_OUTPUT.set, output)
    return context


class _Delegated:
    """An attribute of the current stream behind a routed one."""

    def __set_name__(self, _: type[_RoutedStream], name: str) -> None:
        self._name = name

    def __get__(self, stream: _RoutedStream, _: type[_RoutedStream] | None = None) -> Any:
        return getattr(stream.current, self._name)


class _RoutedStream(io.TextIOBase):
    """A standard stream that captures the text of cases and passes on everything else.

    Whoever keeps a reference to it, such as a debugger, writes to the stream itself once the router has stopped.
    """

    # attributes that the base class defines; others are resolved by `__getattr__`
    encoding: Any = _Delegated()
    errors: Any = _Delegated()
    newlines: Any = _Delegated()
    fileno: Any = _Delegated()
    isatty: Any = _Delegated()
    writable: Any = _Delegated()
    closed: Any = False

    def __init__(self, stream: Any, name: str, router: StreamRouter) -> None:
        self.original = stream
        self._name = name
        self._router = router

    @property
    def current(self) -> Any:
        """The stream behind this one: the one that the current case assigned, else the original."""
        case = self._case()
        return self.original if case is None else case.redirected.get(self._name, self.original)

    def write(self, text: str) -> int:
        case = self._case()
        if case is None:
            return int(self.original.write(text) or 0)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._name not in case.redirected:
            case.add(_STREAMS[self._name], text)
        elif (redirected := case.redirected[self._name]) is not None:
            # print does not read the attribute of `sys`, and always has this stream
            return int(redirected.write(text) or 0)
        return len(text)

    def flush(self) -> None:
        case = self._case()
        # captured text is not buffered
        if (case is None or self._name in case.redirected) and self.current is not None:
            self.current.flush()

    def close(self) -> None:
        """Do nothing: the original is shared, and the base class calls this when the object is freed."""

    def _case(self) -> CapturedOutput | None:
        return CURRENT_OUTPUT.get() if self._router.active else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


class _CaptureHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        output = CURRENT_OUTPUT.get()
        if output is not None:
            output.add("log", self.format(record))


def is_outside_cases(_: logging.LogRecord) -> bool:
    """Whether a log record belongs to no case: a filter for handlers that would show it with another case."""
    return CURRENT_OUTPUT.get() is None


class StreamRouter:
    """Routes standard streams and logging to the cases that run ahead, from `start` to `stop`."""

    def __init__(self) -> None:
        # print keeps no reference to the stream it writes to: one that is freed while a case prints crashes the process
        self._routed: OrderedDict[tuple[str, int], _RoutedStream] = OrderedDict()
        self._handler = _CaptureHandler()
        self._handler.setFormatter(logging.Formatter(_FORMAT))
        self._sys_class: type[ModuleType] | None = None

    @property
    def active(self) -> bool:
        """Whether streams are routed."""
        return self._sys_class is not None

    def start(self) -> None:
        """Start to route the current streams and those that replace them later."""
        if self.active:
            return
        logging.getLogger().addHandler(self._handler)
        self._sys_class = type(sys)
        # pytest's capture assigns sys.stdout again and again while cases print: only a class of the module `sys` sees
        # every assignment, and tells those of a case (redirect_stdout) from others
        sys.__class__ = type("System", (self._sys_class,), {name: self._property(name) for name in _STREAMS})
        for name in _STREAMS:
            setattr(sys, name, getattr(sys, name))

    def stop(self) -> None:
        """Restore the streams and the module `sys`."""
        if self._sys_class is None:
            return
        sys.__class__, self._sys_class = self._sys_class, None
        logging.getLogger().removeHandler(self._handler)
        case = CURRENT_OUTPUT.get()
        for name in _STREAMS:
            stream = vars(sys).get(name)
            if case is not None:
                # a debugger that stops in a case has assigned the terminal
                stream = case.redirected.pop(name, stream)
            if name in vars(sys):
                setattr(sys, name, stream.original if isinstance(stream, _RoutedStream) else stream)

    def _property(self, name: str) -> property:
        """Return a property of `sys` that is local to each case; print bypasses it and gets the routed stream."""
        attributes = vars(sys)

        def get(_: ModuleType) -> Any:
            if name not in attributes:
                raise AttributeError(f"module 'sys' has no attribute {name!r}")
            case, stream = CURRENT_OUTPUT.get(), attributes[name]
            if case is not None:
                return case.redirected.get(name, stream)
            return stream.original if isinstance(stream, _RoutedStream) else stream

        def assign(_: ModuleType, stream: Any) -> None:
            case = CURRENT_OUTPUT.get()
            if case is None:
                attributes[name] = self._route(name, stream)
            elif isinstance(stream, _RoutedStream):
                case.redirected.pop(name, None)
            else:
                case.redirected[name] = stream

        def delete(_: ModuleType) -> None:
            attributes.pop(name, None)

        return property(get, assign, delete)

    def _route(self, name: str, stream: Any) -> Any:
        if isinstance(stream, _RoutedStream) or stream is None:
            return stream
        # captures assign the same few streams again and again
        key = (name, id(stream))
        known = self._routed.pop(key, None)
        routed = self._routed[key] = _RoutedStream(stream, name, self) if known is None else known
        if len(self._routed) > _MAX_STREAMS:
            self._routed.popitem(last=False)
        return routed


_OVERLOAD_PAUSE_S = 1.0
_POLL_S = 0.001


class AttemptKey(NamedTuple):
    """Identifies an attempt in a session.

    Attributes:
        nodeid: the case's item.
        trial: the number of the attempt at the case, from 0.
    """

    nodeid: str
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """An attempt to be made.

    Attributes:
        key: its identity.
        context: what the suite's cases share.
        loaded: the case.
    """

    key: AttemptKey
    context: SuiteContext
    loaded: LoadedCase


# by hand: asyncio's semaphores have a fixed size
class Throttle:
    """Limits attempts in flight: additive increase, multiplicative decrease (Chiu and Jain 1989), as in TCP.

    Attributes:
        max_limit: the highest limit, 1 or more.
        limit: attempts that may be in flight now, 1 to `max_limit`.
    """

    def __init__(self, max_limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_limit = max_limit
        self.limit = max_limit
        self._clock = clock
        self._last_decrease = float("-inf")
        self._successes = 0

    def overloaded(self) -> None:
        """Halve the limit, at most once a second: the responses of one burst count once."""
        now = self._clock()
        self._successes = 0
        if now - self._last_decrease >= _OVERLOAD_PAUSE_S:
            self._last_decrease = now
            self.limit = max(1, self.limit // 2)

    def succeeded(self) -> None:
        """Count an attempt without an error: as many as the limit raise it by one."""
        if self.limit == self.max_limit:
            return
        self._successes += 1
        if self._successes >= self.limit:
            self._successes = 0
            self.limit += 1


# the text of a task has that of its callbacks' arguments, which would be that of all calls so far
@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Flight:
    """An attempt from its plan until somebody has waited for it; it is settled in the thread that waits.

    Attributes:
        job: the job.
        attempt: the attempt so far, once it has started, like the next one.
        output: what was printed and logged meanwhile.
        has_started: whether it has started, or was refused.
        is_awaited: whether somebody waits for it now, so that the lookahead does not limit it.
        is_wanted: whether anybody will wait for it.
        is_over: whether it is settled.
        kind: why it is not made: the reason's name; empty where it is.
        message: the reason in one line.
        started_s: when it started, monotonic seconds.
        task: runs the target, until it is over.
        timer: cancels the task at its time limit; None where there is no limit.
        exceeded_limit_s: the limit that was exceeded, seconds; None while none was.
        stored: whether the attempt is stored already, so that it must get a result although the run ends.
        stop: the exception by which the target ends the whole run.
        trial: what `on_settled` has returned.
    """

    job: Job
    attempt: AttemptState = field(init=False)
    output: CapturedOutput = field(init=False)
    has_started: bool = False
    is_awaited: bool = False
    is_wanted: bool = True
    is_over: bool = False
    kind: str = ""
    message: str = ""
    started_s: float = 0.0
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    exceeded_limit_s: float | None = None
    stored: bool = False
    stop: BaseException | None = None
    trial: Any = None

    def start(self) -> None:
        """Create what an attempt needs, once: before, it may wait for long."""
        self.has_started = True
        self.attempt, self.output = AttemptState(trial=self.job.key.trial), CapturedOutput()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTimes:
    """How long the runner waits for what, seconds.

    Attributes:
        tick_s: the time between two ticks.
        blocked_s: how long beyond the time limit of an attempt the event loop may be silent.
        cancel_s: how long an attempt that was cancelled may take to end before it is left behind.
        quiet_s: a burst of ended attempts is over when nothing happens for this time: longer than the loop needs for
            an attempt, and much shorter than a tick.
        burst_s: the longest wait for the end of a burst.
        close_s: the longest wait for each step of closing.
    """

    tick_s: float = 0.5
    blocked_s: float = 5.0
    cancel_s: float = 1.0
    quiet_s: float = 0.004
    burst_s: float = 0.05
    close_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress of a run.

    Attributes:
        done: attempts that are over, or that nobody wants.
        planned: attempts known so far, those included.
        in_flight: attempts that have started and are not over.
        oldest_s: age of the oldest of them, seconds; 0 where there is none.
    """

    done: int
    planned: int
    in_flight: int
    oldest_s: float


@dataclass(kw_only=True, eq=False, repr=False)
class Runner:
    """Makes attempts ahead of the order in which they are waited for: one queue of flights.

    One thread waits for attempts; the loop that makes them has another, on which the methods that begin with `_loop_`
    are called. What both use are attributes, and sets and queues whose single operations are atomic.

    Attributes:
        throttle: limits the attempts in flight.
        lookahead: how many attempts may have started without being claimed, beside the one that is waited for.
        limit_s: time limit of each attempt, seconds; None for none, as a debugger needs.
        ledger: counts what the run uses, and knows its caps.
        on_settled: called for each attempt in the order in which they end, in the waiting thread; what it returns is
            kept with the attempt.
        on_ended: called on the loop for each attempt as soon as its target has ended without a failure, before it is
            settled; returns whether it has stored the attempt. It must be short and must not raise.
        use_threads: whether sync targets run on threads of their own; else each runs in the waiting thread, where a
            debugger works.
        waits: how long the runner waits for what.
        clock: monotonic clock, seconds.
    """

    throttle: Throttle
    lookahead: int
    limit_s: float | None
    ledger: Ledger
    on_settled: Callable[[Flight], Any]
    on_ended: Callable[[Job, AttemptState], bool] = lambda _job, _attempt: False
    use_threads: bool = True
    waits: WaitTimes = field(default_factory=WaitTimes)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Create the loop, which runs as soon as there is something to do."""
        self._loop = asyncio.new_event_loop()
        note_tasks(self._loop)
        # what has ended, and sync targets that are to run in the waiting thread
        self._answers: queue.SimpleQueue[Flight | Callable[[], None]] = queue.SimpleQueue()
        self._in_thread = run_in_thread if self.use_threads else partial(run_in_thread, start=self._answers.put)
        # both threads
        self._waiting: deque[Flight] = deque()
        self._in_flight: set[Flight] = set()
        self._claimed: deque[Flight] = deque()
        self._last_heartbeat = self._last_activity = 0.0
        self._ended = False
        # the loop's
        self._unclaimed: set[Flight] = set()
        self._stopped = False
        # the waiting thread's; None for one that somebody has, or that nobody wants
        self._known: dict[AttemptKey, Flight | None] = {}
        # how many are settled and not claimed
        self._kept = 0
        self._heartbeat_requested: float | None = None
        self._next_tick = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    def plan(self, jobs: Iterable[Job]) -> None:
        """Announce attempts that will be waited for, in this order; known ones are ignored."""
        new = {job.key: Flight(job=job) for job in jobs if job.key not in self._known}
        self._known.update(new)
        if new:
            self._on_loop(self._loop_plan, list(new.values()))

    def wait_for(self, job: Job, tick: Callable[[], None]) -> Flight:
        """Return a finished attempt, waiting for it; one that was returned before is made again.

        Args:
            job: the attempt; it need not have been planned.
            tick: called about twice a second while waiting.

        Raises:
            BaseException: what the target raised to end the whole run (`RunOptions.stops`).
        """
        key = job.key
        flight = self._known.get(key)
        if flight is None:
            flight = self._known[key] = Flight(job=job)
        if not flight.is_over:
            self.settle_all()
        if not flight.is_over:
            flight = self._wait(flight, tick)
        self._known[key] = None
        self._kept -= 1
        # frees a place: at once where the lookahead is short, else together with further ones
        self._claimed.append(flight)
        if len(self._claimed) > self.lookahead // 8:
            self._on_loop(self._loop_start_waiting)
        if flight.stop is not None:
            raise flight.stop
        return flight

    def discard(self, keys: Iterable[AttemptKey]) -> None:
        """Drop or cancel attempts that nobody will wait for."""
        for key in keys:
            flight = self._known.get(key)
            if flight is not None:
                self._known[key], flight.is_wanted = None, False
                self._kept -= flight.is_over
                self._on_loop(self._loop_discard, flight)

    def settle_all(self) -> None:
        """Settle the attempts that have ended, without waiting; once the runner is closed, those that are stored."""
        while not self._answers.empty():
            if not self._closed:
                self._receive(0)
                continue
            answer = self._answers.get()
            if isinstance(answer, Flight) and answer.stored:
                self._settle(answer)

    def stop(self) -> None:
        """Start nothing more and cancel what is in flight; called from any thread."""
        if self._thread is not None:
            self._run_on_loop(self._loop_cancel_attempts)

    def progress(self) -> RunProgress:
        """Return the progress of the run."""
        started = [flight.started_s for flight in list(self._in_flight)]
        oldest = self.clock() - min(started) if started else 0.0
        done = sum(flight is None or flight.is_over for flight in self._known.values())
        return RunProgress(done=done, planned=len(self._known), in_flight=len(started), oldest_s=oldest)

    def close(self, *closers: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start nothing more, cancel what is in flight, end the loop. What hangs is left behind.

        The `closers` run on the loop before it ends; their exceptions are ignored.
        """
        if self._closed:
            return
        if closers:
            # what was opened for the run may need a running loop to be closed
            self._on_loop(self._loop_heartbeat)
        self._closed = True
        if self._thread is None:
            self._loop.close()
            return
        is_alive = self._run_on_loop(_do_nothing)
        # a closer waits for the processes that are starting: tasks of the loop, which would leave pipes behind
        for closer in (self._loop_cancel_attempts, *closers, self._loop_cancel_rest) if is_alive else ():
            self._run_on_loop(closer)
        self._ended = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        if is_alive:
            self._thread.join(timeout=self.waits.close_s)
        release_pools()

    def _wait(self, flight: Flight, tick: Callable[[], None]) -> Flight:
        """Return a flight when it is over; another one in its place where it is given up."""
        tick_s = self.waits.tick_s
        self._next_tick = max(self._next_tick, self.clock() + tick_s)
        self._on_loop(self._loop_hasten, flight)
        while not flight.is_over:
            self._receive(tick_s)
            if self.clock() >= self._next_tick:
                self._next_tick = self.clock() + tick_s
                tick()
                flight = self._check_loop(flight)
        self._await_burst()
        return flight

    def _receive(self, timeout_s: float) -> None:
        """Wait for one finished attempt, or for a sync target that is to run in this thread."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return
        if isinstance(answer, Flight):
            self._settle(answer)
        else:
            answer()

    def _await_burst(self) -> None:
        """Wait while attempts end in a burst and others wait to start.

        Settling each attempt would delay the next calls, and can be done while those are in flight. Half of the
        lookahead may fill with ended attempts meanwhile; the other half keeps the window full.
        """
        clock, waits = self.clock, self.waits
        end = clock() + waits.burst_s
        while self._waiting and self._answers.qsize() + self._kept < self.lookahead // 2:
            now = clock()
            if now >= end or now - self._last_activity >= waits.quiet_s:
                return
            time.sleep(_POLL_S)

    def _check_loop(self, flight: Flight) -> Flight:
        """Give up a flight if the loop has ended or is blocked by a target: an error instead of an endless wait."""
        now, limit_s = self.clock(), self.limit_s
        if self._heartbeat_requested is not None and self._last_heartbeat >= self._heartbeat_requested:
            self._heartbeat_requested = None
        if self._heartbeat_requested is None:
            self._heartbeat_requested = now
            self._on_loop(self._loop_heartbeat)
        silence_s, message = now - self._heartbeat_requested, ""
        if self._thread is None or not self._thread.is_alive():
            message = "the event loop ended: a target stopped it"
        elif limit_s is not None and silence_s > limit_s + self.waits.blocked_s:
            message = f"an async target blocked the event loop for {silence_s:.0f} s: it waits without await"
        if flight.is_over or not message:
            return flight
        # it may still end, too late
        flight.is_wanted = False
        lost = Flight(job=flight.job)
        lost.start()
        lost.attempt.failure = Failure(kind="loop_blocked", message=message)
        self._settle(lost)
        return lost

    def _settle(self, flight: Flight) -> None:
        if not flight.is_wanted:
            return
        if not flight.kind:
            flight.stop = self._stop_of(flight)
            flight.attempt = _settle_safely(flight.job, flight.attempt)
        flight.is_over = True
        self._kept += 1
        if flight.stop is None:
            flight.trial = self.on_settled(flight)

    def _stop_of(self, flight: Flight) -> BaseException | None:
        raised = flight.attempt.raised
        if not isinstance(raised, flight.job.context.options.stops):
            return None
        # Ctrl-C reaches the main thread alone: on another one the target raised it, an error of its case
        return None if self.use_threads and isinstance(raised, KeyboardInterrupt) else raised

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have the loop call a function soon; nothing happens if it has ended."""
        if self._thread is None and not self._closed:
            self._thread = start_daemon_thread(self._serve, "packbench-loop")
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)

    def _run_on_loop(self, function: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run an async function on the loop; return whether it ended within seconds."""
        coroutine = _ignore_errors(function)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            return False
        # the exception types of `Future.result` differ between versions of Python
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        if not ended.wait(self.waits.close_s):
            future.cancel()
            return False
        return True

    def _serve(self) -> None:
        """Run the loop to its end; a target that stops it, or raises `SystemExit` in a task, does not end it."""
        asyncio.set_event_loop(self._loop)
        try:
            while not self._ended and not self._loop.is_closed():
                with suppress(BaseException):
                    self._loop.run_forever()
        finally:
            self._loop.close()

    def _loop_heartbeat(self) -> None:
        """Show that the loop is not blocked."""
        self._last_heartbeat = self.clock()

    def _loop_plan(self, planned: list[Flight]) -> None:
        """Append flights to the waiting ones, and start as many as possible."""
        self._waiting.extend(planned)
        self._loop_start_waiting()

    def _loop_hasten(self, flight: Flight) -> None:
        """Start a flight that is waited for now before all others, whatever the lookahead is, if it still waits."""
        flight.is_awaited = True
        self._unclaimed.discard(flight)
        self._waiting.appendleft(flight)
        self._loop_start_waiting()

    def _loop_discard(self, flight: Flight) -> None:
        """Cancel a flight that nobody will wait for."""
        if flight in self._in_flight:
            self._loop_cancel(flight)
        self._unclaimed.discard(flight)
        self._loop_start_waiting()

    def _loop_start_waiting(self) -> None:
        """Note which flights were claimed, and start as many waiting ones as possible."""
        while self._claimed:
            self._unclaimed.discard(self._claimed.popleft())
        while self._waiting:
            flight = self._waiting[0]
            # else it was hastened, or discarded
            if flight.is_wanted and not flight.has_started:
                is_free = flight.is_awaited or len(self._unclaimed) < self.lookahead
                if not is_free or len(self._in_flight) >= self.throttle.limit:
                    return
                self._loop_start(flight)
            self._waiting.popleft()

    async def _loop_cancel_attempts(self) -> None:
        """Start nothing more, and cancel what is in flight."""
        self._stopped = True
        self._waiting.clear()
        await _cancel_tasks({flight.task for flight in self._in_flight}, self.waits.cancel_s)

    async def _loop_cancel_rest(self) -> None:
        """Cancel tasks that targets started and left behind."""
        await _cancel_tasks(asyncio.all_tasks() - {asyncio.current_task()}, self.waits.cancel_s)
        await self._loop.shutdown_asyncgens()

    def _loop_start(self, flight: Flight) -> None:
        job = flight.job
        flight.start()
        if not flight.is_awaited:
            self._unclaimed.add(flight)
        why = ("stopped", "the run was stopped") if self._stopped else self.ledger.reached_cap()
        flight.kind, flight.message = why
        if flight.kind:
            self._answers.put(flight)
            return
        self._in_flight.add(flight)
        self._last_activity = flight.started_s = self.clock()
        coroutine = run_target(job.context, job.loaded, flight.attempt, in_thread=self._in_thread)
        flight.task = self._loop.create_task(coroutine, context=capturing_context(flight.output))
        if self.limit_s is not None:
            flight.timer = self._loop.call_later(self.limit_s, self._loop_time_out, flight, self.limit_s)
        flight.task.add_done_callback(partial(self._loop_finish, flight))

    def _loop_time_out(self, flight: Flight, ran_s: float) -> None:
        """Cancel an attempt at its time limit, unless the limit was removed meanwhile."""
        if self.limit_s is not None:
            limit_s = flight.attempt.limited(self.limit_s) or 0
            if limit_s > ran_s:
                # the recording is known as soon as the attempt has begun
                flight.timer = self._loop.call_later(limit_s - ran_s, self._loop_time_out, flight, limit_s)
                return
            flight.exceeded_limit_s = limit_s
            # first: what goes on after the end is no other case's
            if flight.attempt.traffic is not None:
                flight.attempt.traffic.close()
            self._loop_cancel(flight)

    def _loop_cancel(self, flight: Flight) -> None:
        if flight.task is not None:
            flight.task.cancel()
        # most tasks end at once; one that ignores its cancellation is not waited for
        self._loop.call_later(self.waits.cancel_s, self._loop_finish, flight)

    def _loop_finish(self, flight: Flight, task: asyncio.Task[None] | None = None) -> None:
        """Report an attempt that ended, or that ignored its cancellation (then there is no task); only once."""
        if flight not in self._in_flight:
            return
        self._in_flight.remove(flight)
        self._last_activity = self.clock()
        if flight.timer is not None:
            flight.timer.cancel()
        flight.task = flight.timer = None
        ended = _attempt_at_end(flight, task)
        if ended.raised is None and ended.failure is None:
            self.throttle.succeeded()
        flight.stored = ended is flight.attempt and self._loop_journal(flight)
        flight.attempt = ended
        self._answers.put(flight)
        self._loop_start_waiting()

    def _loop_journal(self, flight: Flight) -> bool:
        """Check the result of an attempt and store it, before anything else can delay that; return whether it is."""
        job, attempt = flight.job, flight.attempt
        try:
            end(job.context, job.loaded, attempt)
        except BaseException:  # noqa: BLE001 - a result may have methods of its own; settling it reports the error
            return False
        return attempt.failure is None and self.on_ended(job, attempt)


def _settle_safely(job: Job, attempt: AttemptState) -> AttemptState:
    """Settle an attempt; an exception of the pack belongs to its case, not to the case that is waited for."""
    try:
        return settle(job.context, job.loaded, attempt)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be third-party code
        failure = Failure(kind="pack_error", message=f"scoring raised {describe_error(error)}")
        # without the payload, which may be what failed
        failed = replace(attempt, failure=failure, payload=None, outcome=None, score=None)
        return settle(job.context, job.loaded, failed)


async def _do_nothing() -> None:
    """Show that the loop is not blocked."""


async def _ignore_errors(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with suppress(Exception):
        await function()


def _attempt_at_end(flight: Flight, task: asyncio.Task[None] | None) -> AttemptState:
    """Return the attempt as it ended; another one where its target may still change the first."""
    if flight.exceeded_limit_s is not None:
        return abandon(flight.attempt, flight.exceeded_limit_s)
    if task is None or task.cancelled():
        message = "the attempt was cancelled: by a target that cancels tasks, or because the run ended"
        failure = Failure(kind="cancelled", message=message)
    elif (error := task.exception()) is not None:
        message = f"the attempt could not be made: {describe_error(error)}"
        failure = Failure(kind="target_error", message=message)
    else:
        return flight.attempt
    return AttemptState(trial=flight.attempt.trial, failure=failure)


async def _cancel_tasks(tasks: set[Any], wait_s: float) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        # one that ignores its cancellation is left behind
        _, left = await asyncio.wait(tasks, timeout=wait_s)
        if left:
            # asyncio reports tasks that have not ended when they are freed, with this loop
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
