"""The runner makes attempts ahead of pytest's item loop, within a bounded window, on an event loop of its own.

The threads of the loop and of sync targets are daemons: one that hangs never delays the interpreter's exit.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.attempt import AttemptState, Failure, settle
from pytest_packbench.engine.scheduler import AttemptKey, FinishedAttempt, Job, Scheduler
from pytest_packbench.engine.targets import release_pools, start_daemon_thread
from pytest_packbench.model.errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from pytest_packbench.engine.scheduler import SchedulerOptions

_PLANNED_WAIT_S = 0.05
_POLL_S = 0.001


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

    Args:
        options: how attempts are scheduled.
        on_settled: called for each attempt in the order in which they end, in the waiting thread.
    """

    def __init__(self, options: SchedulerOptions, *, on_settled: Callable[[FinishedAttempt], None]) -> None:
        self._options = options
        self._on_settled = on_settled
        self._answers: queue.SimpleQueue[FinishedAttempt | Callable[[], None]] = queue.SimpleQueue()
        self._settled: dict[AttemptKey, FinishedAttempt] = {}
        self._planned: set[AttemptKey] = set()
        self._over: set[AttemptKey] = set()
        self._heartbeat_requested: float | None = None
        self._next_tick = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._scheduler = Scheduler(options, self._answers)

    def plan(self, jobs: Iterable[Job]) -> None:
        """Announce attempts that will be waited for, in this order; known ones are ignored."""
        new = [job for job in jobs if job.key not in self._planned]
        self._planned.update(job.key for job in new)
        if new:
            self._on_loop(self._scheduler.plan, new)

    def wait_for(self, job: Job, tick: Callable[[], None]) -> FinishedAttempt:
        """Return a finished attempt, waiting for it; one that was returned before is made again.

        Args:
            job: the attempt; it need not have been planned.
            tick: called about twice a second while waiting.

        Raises:
            BaseException: what the target raised to end the whole run (`RunOptions.stops`).
        """
        key = job.key
        if key in self._scheduler.unwanted:
            self.settle_all()
            self._scheduler.unwanted.discard(key)
            # the loop has dropped it
            self._planned.discard(key)
        if key not in self._settled and not self._answers.empty():
            self.settle_all()
        if key not in self._settled:
            self._wait(job, tick)
        # frees a place: at once where the lookahead is short, else together with further ones
        self._scheduler.claimed.append(key)
        if len(self._scheduler.claimed) > self._options.lookahead // 8:
            self._on_loop(self._scheduler.start_waiting)
        finished = self._settled.pop(key)
        if finished.stop is not None:
            raise finished.stop
        return finished

    def discard(self, keys: Iterable[AttemptKey]) -> None:
        """Drop or cancel attempts that nobody will wait for."""
        for key in keys:
            over = key in self._over
            if key not in self._planned or (over and key not in self._settled):
                continue
            self._settled.pop(key, None)
            if not over:
                self._scheduler.unwanted.add(key)
            self._on_loop(self._scheduler.discard, key)

    def settle_all(self) -> None:
        """Settle the attempts that have ended, without waiting; once the runner is closed, those that are stored."""
        while not self._answers.empty():
            if not self._closed:
                self._receive(0)
                continue
            answer = self._answers.get()
            if isinstance(answer, FinishedAttempt) and answer.stored:
                self._settle(answer)

    def stop(self) -> None:
        """Start nothing more and cancel what is in flight; called from any thread."""
        if self._thread is not None:
            self._run_on_loop(self._scheduler.cancel_all)

    @property
    def limit_s(self) -> float | None:
        """The time limit of attempts, seconds; None for none."""
        return self._scheduler.limit_s

    def remove_limit(self) -> None:
        """Remove the time limit of attempts, as a debugger needs."""
        self._scheduler.limit_s = None

    def progress(self) -> RunProgress:
        """Return the progress of the run."""
        started = list(self._scheduler.started.values())
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
            self._on_loop(self._scheduler.heartbeat)
        self._closed = True
        if self._thread is None:
            self._scheduler.loop.close()
            return
        if self._run_on_loop(_do_nothing):
            for closer in (self._scheduler.cancel_all, *closers):
                self._run_on_loop(closer)
            self._scheduler.end()
            self._thread.join(timeout=self._options.waits.close_s)
        else:
            self._scheduler.end()
        release_pools()

    def _wait(self, job: Job, tick: Callable[[], None]) -> None:
        key = job.key
        # a planned attempt starts by itself, and each call on the loop costs a switch of threads
        planned = key in self._planned and key not in self._over and self._options.lookahead > 0
        self._planned.add(key)
        self._next_tick = max(self._next_tick, self._options.clock() + self._options.waits.tick_s)
        self._on_loop(self._scheduler.start_waiting)
        if not planned:
            self._on_loop(self._scheduler.prioritize, job)
        while key not in self._settled:
            self._receive(_PLANNED_WAIT_S if planned else self._options.waits.tick_s)
            if planned and key not in self._settled and self._answers.empty():
                planned = False
                # it may end before the loop gets this call
                self._on_loop(self._scheduler.hasten, job)
            if key not in self._settled and self._options.clock() >= self._next_tick:
                self._next_tick = self._options.clock() + self._options.waits.tick_s
                tick()
                self._check_loop(job)
        self._await_burst()

    def _receive(self, timeout_s: float) -> None:
        """Wait for one finished attempt, or for a sync target that is to run in this thread."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return
        if isinstance(answer, FinishedAttempt):
            self._settle(answer)
        else:
            answer()

    def _await_burst(self) -> None:
        """Wait while attempts end in a burst and others wait to start.

        Settling each attempt would delay the next calls, and can be done while those are in flight. Half of the
        lookahead may fill with ended attempts meanwhile; the other half keeps the window full.
        """
        scheduler, end = self._scheduler, self._options.clock() + self._options.waits.burst_s
        while scheduler.waiting and self._answers.qsize() + len(self._settled) < self._options.lookahead // 2:
            now = self._options.clock()
            if now >= end or now - scheduler.last_activity >= self._options.waits.quiet_s:
                return
            time.sleep(_POLL_S)

    def _check_loop(self, job: Job) -> None:
        """Give up a job if the loop has ended or is blocked by a target: an error instead of an endless wait."""
        now, limit_s = self._options.clock(), self._scheduler.limit_s
        if self._heartbeat_requested is not None and self._scheduler.last_heartbeat >= self._heartbeat_requested:
            self._heartbeat_requested = None
        if self._heartbeat_requested is None:
            self._heartbeat_requested = now
            self._on_loop(self._scheduler.heartbeat)
        silence_s = now - self._heartbeat_requested
        if self._thread is None or not self._thread.is_alive():
            message = "the event loop ended: a target stopped it"
        elif limit_s is not None and silence_s > limit_s + self._options.waits.blocked_s:
            message = f"an async target blocked the event loop for {silence_s:.0f} s: it waits without await"
        else:
            return
        attempt = AttemptState(trial=job.key.trial, failure=Failure(kind="loop_blocked", message=message))
        self._settle(FinishedAttempt(job=job, attempt=attempt))
        # the attempt itself may still end, too late
        self._scheduler.unwanted.add(job.key)

    def _settle(self, finished: FinishedAttempt) -> None:
        job = finished.job
        if job.key in self._scheduler.unwanted:
            return
        if finished.attempt is not None:
            stop = self._stop_of(finished.attempt, job)
            finished = replace(finished, attempt=_settle_safely(job, finished.attempt), stop=stop)
        self._settled[job.key] = finished
        self._over.add(job.key)
        if finished.stop is None:
            self._on_settled(finished)

    def _stop_of(self, attempt: AttemptState, job: Job) -> BaseException | None:
        raised = attempt.raised
        if not isinstance(raised, job.context.options.stops):
            return None
        # Ctrl-C reaches the main thread alone: on another one the target raised it, an error of its case
        return None if self._options.use_threads and isinstance(raised, KeyboardInterrupt) else raised

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have the loop call a function soon; nothing happens if it has ended."""
        if self._thread is None and not self._closed:
            self._thread = start_daemon_thread(self._scheduler.serve, "packbench-loop")
        with suppress(RuntimeError):
            self._scheduler.loop.call_soon_threadsafe(call, *arguments)

    def _run_on_loop(self, function: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run an async function on the loop; return whether it ended within seconds."""
        coroutine = _ignore_errors(function)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._scheduler.loop)
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
