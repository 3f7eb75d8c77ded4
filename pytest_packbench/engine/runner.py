"""The runner makes attempts ahead of pytest's item loop, within a bounded window, on an event loop of its own.

The threads of the loop and of sync targets are daemons: one that hangs never delays the interpreter's exit.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.engine.attempt import AttemptState, Failure, abandon, end, run_target, settle
from pytest_packbench.engine.offline import note_tasks
from pytest_packbench.engine.output import CapturedOutput, capturing_context
from pytest_packbench.engine.targets import release_pools, run_in_thread, start_daemon_thread
from pytest_packbench.model.errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.metering import Ledger
    from pytest_packbench.model.case import LoadedCase


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


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """An attempt from its start until somebody has waited for it; it is settled in the thread that waits.

    Attributes:
        job: the job.
        attempt: the attempt so far.
        kind: why it is not made: the reason's name; empty where it is.
        message: the reason in one line.
        output: what was printed and logged meanwhile.
        started_s: when it started, monotonic seconds.
        task: runs the target, until it is over.
        timer: cancels the task at its time limit; None where there is no limit.
        exceeded_limit_s: the limit that was exceeded, seconds; None while none was.
        stored: whether the attempt is stored already, so that it must get a result although the run ends.
        stop: the exception by which the target ends the whole run.
    """

    job: Job
    attempt: AttemptState
    kind: str = ""
    message: str = ""
    output: CapturedOutput = field(default_factory=CapturedOutput)
    started_s: float = 0.0
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    exceeded_limit_s: float | None = None
    stored: bool = False
    stop: BaseException | None = None


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
class RunnerOptions:
    """How attempts are scheduled.

    Attributes:
        throttle: limits the attempts in flight.
        lookahead: how many attempts may have started without being claimed, beside the one that is waited for.
        limit_s: time limit of one attempt, seconds; None for none.
        ledger: counts what the run uses, and knows its caps.
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
    on_ended: Callable[[Job, AttemptState], bool] = lambda _job, _attempt: False
    use_threads: bool = True
    waits: WaitTimes = field(default_factory=WaitTimes)
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress of a run.

    Attributes:
        done: attempts that are over.
        planned: attempts known so far, those included.
        in_flight: attempts that have started and are not over.
        oldest_s: age of the oldest of them, seconds; 0 where there is none.
    """

    done: int
    planned: int
    in_flight: int
    oldest_s: float


class Runner:
    """Makes attempts ahead of the order in which they are waited for.

    One thread waits for attempts; the loop that makes them has another, on which the methods that begin with `_loop_`
    are called. What both use are numbers, and sets and dicts whose single operations are atomic.

    Args:
        options: how attempts are scheduled.
        on_settled: called for each attempt in the order in which they end, in the waiting thread.

    Attributes:
        limit_s: time limit of each attempt, seconds; None for none, as a debugger needs.
    """

    def __init__(self, options: RunnerOptions, *, on_settled: Callable[[Flight], None]) -> None:
        self.limit_s = options.limit_s
        self._options = options
        self._on_settled = on_settled
        self._loop = asyncio.new_event_loop()
        note_tasks(self._loop)
        # what has ended, and sync targets that are to run in the waiting thread
        self._answers: queue.SimpleQueue[Flight | Callable[[], None]] = queue.SimpleQueue()
        self._in_thread = run_in_thread if options.use_threads else partial(run_in_thread, start=self._answers.put)
        # both threads
        self._waiting: dict[AttemptKey, Job] = {}
        self._in_flight: dict[AttemptKey, Flight] = {}
        self._unwanted: set[AttemptKey] = set()
        self._claimed: deque[AttemptKey] = deque()
        self._last_heartbeat = self._last_activity = 0.0
        self._ended = False
        # the loop's
        self._urgent: dict[AttemptKey, Job] = {}
        self._unclaimed: set[AttemptKey] = set()
        self._stopped = False
        # the waiting thread's
        self._settled: dict[AttemptKey, Flight] = {}
        self._planned: set[AttemptKey] = set()
        self._over: set[AttemptKey] = set()
        self._heartbeat_requested: float | None = None
        self._next_tick = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    def plan(self, jobs: Iterable[Job]) -> None:
        """Announce attempts that will be waited for, in this order; known ones are ignored."""
        new = [job for job in jobs if job.key not in self._planned]
        self._planned.update(job.key for job in new)
        if new:
            self._on_loop(self._loop_plan, new)

    def wait_for(self, job: Job, tick: Callable[[], None]) -> Flight:
        """Return a finished attempt, waiting for it; one that was returned before is made again.

        Args:
            job: the attempt; it need not have been planned.
            tick: called about twice a second while waiting.

        Raises:
            BaseException: what the target raised to end the whole run (`RunOptions.stops`).
        """
        key = job.key
        if key in self._unwanted:
            self.settle_all()
            self._unwanted.discard(key)
            # the loop has dropped it
            self._planned.discard(key)
        if key not in self._settled and not self._answers.empty():
            self.settle_all()
        if key not in self._settled:
            self._wait(job, tick)
        # frees a place: at once where the lookahead is short, else together with further ones
        self._claimed.append(key)
        if len(self._claimed) > self._options.lookahead // 8:
            self._on_loop(self._loop_start_waiting)
        flight = self._settled.pop(key)
        if flight.stop is not None:
            raise flight.stop
        return flight

    def discard(self, keys: Iterable[AttemptKey]) -> None:
        """Drop or cancel attempts that nobody will wait for."""
        for key in keys:
            over = key in self._over
            if key not in self._planned or (over and key not in self._settled):
                continue
            self._settled.pop(key, None)
            if not over:
                self._unwanted.add(key)
            self._on_loop(self._loop_discard, key)

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
            self._run_on_loop(self._loop_cancel_all)

    def progress(self) -> RunProgress:
        """Return the progress of the run."""
        started = [flight.started_s for flight in list(self._in_flight.values())]
        oldest = self._options.clock() - min(started) if started else 0.0
        return RunProgress(done=len(self._over), planned=len(self._planned), in_flight=len(started), oldest_s=oldest)

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
        for closer in (self._loop_cancel_all, *closers) if is_alive else ():
            self._run_on_loop(closer)
        self._ended = True
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        if is_alive:
            self._thread.join(timeout=self._options.waits.close_s)
        release_pools()

    def _wait(self, job: Job, tick: Callable[[], None]) -> None:
        key, options = job.key, self._options
        planned = key in self._planned and key not in self._over and options.lookahead > 0
        self._planned.add(key)
        self._next_tick = max(self._next_tick, options.clock() + options.waits.tick_s)
        # a planned one may have ended before the loop gets this call
        self._on_loop(self._loop_hasten if planned else self._loop_prioritize, job)
        while key not in self._settled:
            self._receive(options.waits.tick_s)
            if key not in self._settled and options.clock() >= self._next_tick:
                self._next_tick = options.clock() + options.waits.tick_s
                tick()
                self._check_loop(job)
        self._await_burst()

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
        clock, waits = self._options.clock, self._options.waits
        end = clock() + waits.burst_s
        while self._waiting and self._answers.qsize() + len(self._settled) < self._options.lookahead // 2:
            now = clock()
            if now >= end or now - self._last_activity >= waits.quiet_s:
                return
            time.sleep(_POLL_S)

    def _check_loop(self, job: Job) -> None:
        """Give up a job if the loop has ended or is blocked by a target: an error instead of an endless wait."""
        now, limit_s = self._options.clock(), self.limit_s
        if self._heartbeat_requested is not None and self._last_heartbeat >= self._heartbeat_requested:
            self._heartbeat_requested = None
        if self._heartbeat_requested is None:
            self._heartbeat_requested = now
            self._on_loop(self._loop_heartbeat)
        silence_s = now - self._heartbeat_requested
        if self._thread is None or not self._thread.is_alive():
            message = "the event loop ended: a target stopped it"
        elif limit_s is not None and silence_s > limit_s + self._options.waits.blocked_s:
            message = f"an async target blocked the event loop for {silence_s:.0f} s: it waits without await"
        else:
            return
        attempt = AttemptState(trial=job.key.trial, failure=Failure(kind="loop_blocked", message=message))
        self._settle(Flight(job=job, attempt=attempt))
        # the attempt itself may still end, too late
        self._unwanted.add(job.key)

    def _settle(self, flight: Flight) -> None:
        job = flight.job
        if job.key in self._unwanted:
            return
        if not flight.kind:
            flight.stop = self._stop_of(flight.attempt, job)
            flight.attempt = _settle_safely(job, flight.attempt)
        self._settled[job.key] = flight
        self._over.add(job.key)
        if flight.stop is None:
            self._on_settled(flight)

    def _stop_of(self, attempt: AttemptState, job: Job) -> BaseException | None:
        raised = attempt.raised
        if not isinstance(raised, job.context.options.stops):
            return None
        # Ctrl-C reaches the main thread alone: on another one the target raised it, an error of its case
        return None if self._options.use_threads and isinstance(raised, KeyboardInterrupt) else raised

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
        if not ended.wait(self._options.waits.close_s):
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
        self._last_heartbeat = self._options.clock()

    def _loop_plan(self, jobs: list[Job]) -> None:
        """Append attempts to the waiting ones, and start as many as possible."""
        self._waiting.update((job.key, job) for job in jobs)
        self._loop_start_waiting()

    def _loop_prioritize(self, job: Job) -> None:
        """Start an attempt that is waited for now before all others, whatever the lookahead is."""
        if job.key in self._in_flight or job.key in self._unclaimed:
            self._unclaimed.discard(job.key)
        elif job.key not in self._unwanted:
            self._waiting.pop(job.key, None)
            self._urgent[job.key] = job
        self._loop_start_waiting()

    def _loop_hasten(self, job: Job) -> None:
        """Start an attempt before all others if it still waits; one that has started, or ended, is not repeated."""
        if job.key in self._waiting:
            self._loop_prioritize(job)
        else:
            self._unclaimed.discard(job.key)
            self._loop_start_waiting()

    def _loop_discard(self, key: AttemptKey) -> None:
        """Drop or cancel an attempt that nobody will wait for."""
        self._waiting.pop(key, None)
        if key in self._in_flight:
            self._loop_cancel(self._in_flight[key])
        self._unclaimed.discard(key)
        self._loop_start_waiting()

    def _loop_start_waiting(self) -> None:
        """Note which attempts were claimed, and start as many waiting ones as possible."""
        while self._claimed:
            self._unclaimed.discard(self._claimed.popleft())
        while len(self._in_flight) < self._options.throttle.limit:
            if self._urgent:
                job = self._urgent.pop(next(iter(self._urgent)))
                self._loop_start(job)
                self._unclaimed.discard(job.key)
            elif self._waiting and len(self._unclaimed) < self._options.lookahead:
                self._loop_start(self._waiting.pop(next(iter(self._waiting))))
            else:
                return

    async def _loop_cancel_all(self) -> None:
        """Start nothing more, and cancel what is in flight."""
        self._stopped = True
        self._waiting.clear()
        wait_s = self._options.waits.cancel_s
        await _cancel_tasks({flight.task for flight in self._in_flight.values()}, wait_s)
        # tasks that targets started and left behind
        await _cancel_tasks(asyncio.all_tasks() - {asyncio.current_task()}, wait_s)
        await self._loop.shutdown_asyncgens()

    def _loop_start(self, job: Job) -> None:
        if job.key in self._unwanted:
            return
        self._unclaimed.add(job.key)
        flight = Flight(job=job, attempt=AttemptState(trial=job.key.trial))
        why = ("stopped", "the run was stopped") if self._stopped else self._options.ledger.exhausted()
        flight.kind, flight.message = why
        if flight.kind:
            self._answers.put(flight)
            return
        self._in_flight[job.key] = flight
        self._last_activity = flight.started_s = self._options.clock()
        coroutine = run_target(job.context, job.loaded, flight.attempt, in_thread=self._in_thread)
        flight.task = self._loop.create_task(coroutine, context=capturing_context(flight.output))
        if self.limit_s is not None:
            flight.timer = self._loop.call_later(self.limit_s, self._loop_time_out, flight)
        flight.task.add_done_callback(partial(self._loop_finish, flight))

    def _loop_time_out(self, flight: Flight) -> None:
        """Cancel an attempt at its time limit, unless the limit was removed meanwhile."""
        if self.limit_s is not None:
            flight.exceeded_limit_s = self.limit_s
            # first: what goes on after the end is no other case's
            if flight.attempt.traffic is not None:
                flight.attempt.traffic.close()
            self._loop_cancel(flight)

    def _loop_cancel(self, flight: Flight) -> None:
        if flight.task is not None:
            flight.task.cancel()
        # most tasks end at once; one that ignores its cancellation is not waited for
        self._loop.call_later(self._options.waits.cancel_s, self._loop_finish, flight)

    def _loop_finish(self, flight: Flight, task: asyncio.Task[None] | None = None) -> None:
        """Report an attempt that ended, or that ignored its cancellation (then there is no task); only once."""
        key = flight.job.key
        if self._in_flight.get(key) is not flight:
            return
        del self._in_flight[key]
        self._last_activity = self._options.clock()
        if flight.timer is not None:
            flight.timer.cancel()
        flight.task = flight.timer = None
        ended = _attempt_at_end(flight, task)
        if ended.raised is None and ended.failure is None:
            self._options.throttle.succeeded()
        flight.stored = ended is flight.attempt and self._loop_store(flight)
        flight.attempt = ended
        self._answers.put(flight)
        self._loop_start_waiting()

    def _loop_store(self, flight: Flight) -> bool:
        """Check the result of an attempt and store it, before anything else can delay that; return whether it is."""
        job, attempt = flight.job, flight.attempt
        try:
            end(job.context, job.loaded, attempt)
        except BaseException:  # noqa: BLE001 - a result may have methods of its own; settling it reports the error
            return False
        return attempt.failure is None and self._options.on_ended(job, attempt)


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
