"""Scheduling on the runner's event loop: attempts start, run concurrently, and end or are abandoned."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.engine.attempt import AttemptState, Failure, abandon, end, run_target
from pytest_packbench.engine.offline import note_tasks
from pytest_packbench.engine.output import CapturedOutput, capturing_context
from pytest_packbench.engine.targets import run_in_thread
from pytest_packbench.model.errors import describe_error

if TYPE_CHECKING:
    import queue
    from collections.abc import Callable

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.metering import Ledger
    from pytest_packbench.model.case import LoadedCase


_OVERLOAD_PAUSE_S = 1.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAttempt:
    """An attempt that is over; it is settled in the thread that waits for it.

    Attributes:
        job: the job.
        attempt: the attempt; None where it was not made.
        kind: why it was not made: the reason's name.
        message: the reason in one line.
        output: what was printed and logged meanwhile.
        stored: whether the attempt is stored already, so that it must get a result although the run ends.
        stop: the exception by which the target ends the whole run.
    """

    job: Job
    attempt: AttemptState | None = None
    kind: str = ""
    message: str = ""
    output: CapturedOutput = field(default_factory=CapturedOutput)
    stored: bool = False
    stop: BaseException | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _InFlight:
    """An attempt that has started and is not over.

    Attributes:
        job: the job.
        attempt: the attempt so far.
        output: what was printed and logged so far.
        task: runs the target.
        timer: cancels the task at its time limit; None where there is no limit.
        exceeded_limit_s: the limit that was exceeded, seconds; None while none was.
    """

    job: Job
    attempt: AttemptState
    output: CapturedOutput
    task: asyncio.Task[None]
    timer: asyncio.TimerHandle | None = None
    exceeded_limit_s: float | None = None


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
class SchedulerOptions:
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


class Scheduler:
    """Starts attempts on an event loop, which runs on a thread of its own.

    Methods are called on that thread unless they say otherwise.

    Args:
        options: how attempts are scheduled.
        answers: receives finished attempts, and calls of sync targets that are to run in the waiting thread.

    Attributes:
        loop: the event loop; other threads use `call_soon_threadsafe`.
        limit_s: time limit of each attempt, seconds; None for none; other threads remove it.
        started: monotonic time at which each attempt in flight started, seconds; other threads read it.
        last_heartbeat: when the loop last answered, monotonic seconds; other threads read it.
        last_activity: when an attempt last started or ended, monotonic seconds; other threads read it.
        unwanted: attempts that nobody waits for any more; other threads add to it.
        waiting: attempts that have not started, in order; other threads read it.
        claimed: attempts whose result was claimed since the last `start_waiting`; other threads add to it.
    """

    def __init__(
        self, options: SchedulerOptions, answers: queue.SimpleQueue[FinishedAttempt | Callable[[], None]]
    ) -> None:
        self.loop = asyncio.new_event_loop()
        note_tasks(self.loop)
        self.started: dict[AttemptKey, float] = {}
        self.last_heartbeat = 0.0
        self.last_activity = 0.0
        self.unwanted: set[AttemptKey] = set()
        self.claimed: deque[AttemptKey] = deque()
        self.limit_s = options.limit_s
        self.waiting: dict[AttemptKey, Job] = {}
        self._options = options
        self._answers = answers
        self._in_thread = run_in_thread if options.use_threads else partial(run_in_thread, start=answers.put)
        self._urgent: dict[AttemptKey, Job] = {}
        self._in_flight: dict[AttemptKey, _InFlight] = {}
        self._unclaimed: set[AttemptKey] = set()
        self._closed = False
        self._ended = False

    def serve(self) -> None:
        """Run the loop until `end`; a target that stops it, or raises `SystemExit` in a task, does not end it."""
        asyncio.set_event_loop(self.loop)
        try:
            while not self._ended and not self.loop.is_closed():
                with suppress(BaseException):
                    self.loop.run_forever()
        finally:
            self.loop.close()

    def end(self) -> None:
        """End the loop as soon as possible; called from any thread."""
        self._ended = True
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)

    def heartbeat(self) -> None:
        """Show that the loop is not blocked."""
        self.last_heartbeat = self._options.clock()

    def plan(self, jobs: list[Job]) -> None:
        """Append attempts to the waiting ones, and start as many as possible."""
        self.waiting.update((job.key, job) for job in jobs)
        self.start_waiting()

    def prioritize(self, job: Job) -> None:
        """Start an attempt that is waited for now before all others, whatever the lookahead is."""
        if job.key in self._in_flight or job.key in self._unclaimed:
            self._unclaimed.discard(job.key)
        elif job.key not in self.unwanted:
            self.waiting.pop(job.key, None)
            self._urgent[job.key] = job
        self.start_waiting()

    def hasten(self, job: Job) -> None:
        """Start an attempt before all others if it still waits; one that has started, or ended, is not repeated."""
        if job.key in self.waiting:
            self.prioritize(job)
        else:
            self._unclaimed.discard(job.key)
            self.start_waiting()

    def discard(self, key: AttemptKey) -> None:
        """Drop or cancel an attempt that nobody will wait for."""
        self.waiting.pop(key, None)
        if key in self._in_flight:
            self._cancel(self._in_flight[key])
        self._unclaimed.discard(key)
        self.start_waiting()

    def start_waiting(self) -> None:
        """Note which attempts were claimed, and start as many waiting ones as possible."""
        while self.claimed:
            self._unclaimed.discard(self.claimed.popleft())
        while len(self._in_flight) < self._options.throttle.limit:
            if self._urgent:
                job = self._urgent.pop(next(iter(self._urgent)))
                self._start(job)
                self._unclaimed.discard(job.key)
            elif self.waiting and len(self._unclaimed) < self._options.lookahead:
                self._start(self.waiting.pop(next(iter(self.waiting))))
            else:
                return

    async def cancel_all(self) -> None:
        """Start nothing more, and cancel what is in flight."""
        self._closed = True
        self.waiting.clear()
        await _cancel_tasks({running.task for running in self._in_flight.values()}, self._options.waits.cancel_s)
        # tasks that targets started and left behind
        await _cancel_tasks(asyncio.all_tasks() - {asyncio.current_task()}, self._options.waits.cancel_s)
        await self.loop.shutdown_asyncgens()

    def _start(self, job: Job) -> None:
        if job.key in self.unwanted:
            return
        self._unclaimed.add(job.key)
        kind, message = ("stopped", "the run was stopped") if self._closed else self._options.ledger.exhausted()
        if kind:
            self._answers.put(FinishedAttempt(job=job, kind=kind, message=message))
            return
        self.last_activity = self.started[job.key] = self._options.clock()
        attempt, output = AttemptState(trial=job.key.trial), CapturedOutput()
        coroutine = run_target(job.context, job.loaded, attempt, in_thread=self._in_thread)
        task = self.loop.create_task(coroutine, context=capturing_context(output))
        running = self._in_flight[job.key] = _InFlight(job=job, attempt=attempt, output=output, task=task)
        if self.limit_s is not None:
            running.timer = self.loop.call_later(self.limit_s, self._time_out, running)
        task.add_done_callback(partial(self._finish, running))

    def _time_out(self, running: _InFlight) -> None:
        """Cancel an attempt at its time limit, unless the limit was removed meanwhile."""
        if self.limit_s is not None:
            running.exceeded_limit_s = self.limit_s
            # first: what goes on after the end is no other case's
            if running.attempt.traffic is not None:
                running.attempt.traffic.close()
            self._cancel(running)

    def _cancel(self, running: _InFlight) -> None:
        running.task.cancel()
        # most tasks end at once; one that ignores its cancellation is not waited for
        self.loop.call_later(self._options.waits.cancel_s, self._finish, running)

    def _finish(self, running: _InFlight, task: asyncio.Task[None] | None = None) -> None:
        """Report an attempt that ended, or that ignored its cancellation (then there is no task); only once."""
        key = running.job.key
        if self._in_flight.get(key) is not running:
            return
        del self._in_flight[key]
        self.last_activity = self._options.clock()
        self.started.pop(key, None)
        if running.timer is not None:
            running.timer.cancel()
        attempt = _finished_attempt(running, task)
        if attempt.raised is None and attempt.failure is None:
            self._options.throttle.succeeded()
        stored = attempt is running.attempt and self._end(running.job, attempt)
        self._answers.put(FinishedAttempt(job=running.job, attempt=attempt, output=running.output, stored=stored))
        self.start_waiting()

    def _end(self, job: Job, attempt: AttemptState) -> bool:
        """Check the result of an attempt and store it, before anything else can delay that; return whether it is."""
        try:
            end(job.context, job.loaded, attempt)
        except BaseException:  # noqa: BLE001 - a result may have methods of its own; settling it reports the error
            return False
        return attempt.failure is None and self._options.on_ended(job, attempt)


def _finished_attempt(running: _InFlight, task: asyncio.Task[None] | None) -> AttemptState:
    if running.exceeded_limit_s is not None:
        return abandon(running.attempt, running.exceeded_limit_s)
    if task is None or task.cancelled():
        message = "the attempt was cancelled: by a target that cancels tasks, or because the run ended"
        return AttemptState(trial=running.attempt.trial, failure=Failure(kind="cancelled", message=message))
    error = task.exception()
    if error is None:
        return running.attempt
    failure = Failure(kind="target_error", message=f"the attempt could not be made: {describe_error(error)}")
    return AttemptState(trial=running.attempt.trial, failure=failure)


async def _cancel_tasks(tasks: set[Any], wait_s: float) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        # one that ignores its cancellation is left behind
        _, left = await asyncio.wait(tasks, timeout=wait_s)
        if left:
            # asyncio reports tasks that have not ended when they are freed, with this loop
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
