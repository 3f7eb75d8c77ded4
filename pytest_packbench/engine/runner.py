"""The runner: works ahead of pytest's item loop, within a bounded window, on an event loop of its own.

The loop's thread is a daemon, and so are those of sync targets: one that hangs never holds up the interpreter's exit.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.attempt import Attempt, Failure, settle
from pytest_packbench.engine.offline import THREADS
from pytest_packbench.engine.scheduler import Done, Job, Key, Work
from pytest_packbench.engine.targets import daemon, release_pools
from pytest_packbench.model.errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from pytest_packbench.engine.metering import Ledger
    from pytest_packbench.engine.scheduler import Throttle

_TICK_S = 0.5
_GRACE_S = 5.0
_CLOSING_S = 5.0
_WANT_S = 0.05
_SWITCH_S = 0.0005
# a burst is over when nothing happens for longer than the loop takes for an attempt, and long before progress is due
_QUIET_S = 0.004
_BURST_S = 0.05
_NAP_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is.

    Attributes:
        done: attempts that are over.
        planned: attempts known so far, those included.
        under_way: attempts begun and not over.
        oldest_s: age of the oldest of them, seconds; 0 where there is none.
    """

    done: int
    planned: int
    under_way: int
    oldest_s: float


class Runner:
    """Makes attempts ahead of the order in which they are taken.

    Args:
        throttle: how many may be under way.
        lookahead: how many may be begun and not yet taken, beside the one that is waited for.
        limit_s: time limit of one attempt, seconds; None for none.
        ledger: what the run uses, with its caps.
        settled: called for each attempt in the order in which they end, in the thread that takes.
        beside: whether sync targets run on threads of their own; else each runs in the thread that takes, where a
            debugger is at home.
    """

    def __init__(
        self,
        *,
        throttle: Throttle,
        lookahead: int,
        limit_s: float | None,
        ledger: Ledger,
        settled: Callable[[Done], None],
        beside: bool = True,
    ) -> None:
        self.ledger = ledger
        self._lookahead = lookahead
        self._switch_s: float | None = None
        self._settled = settled
        self._beside = beside
        self._answers: queue.SimpleQueue[Done | Callable[[], None]] = queue.SimpleQueue()
        self._done: dict[Key, Done] = {}
        self._planned: set[Key] = set()
        self._over: set[Key] = set()
        self._given_up: set[Key] = set()
        self._beat_asked: float | None = None
        self._next_tick = 0.0
        self._closed = False
        self._work = Work(throttle, lookahead, limit_s, ledger, self._answers, beside=beside)
        self._thread: threading.Thread | None = None

    def plan(self, jobs: Iterable[Job]) -> None:
        """Name attempts that will be taken, in this order; those known already are left out."""
        new = [job for job in jobs if job.key not in self._planned]
        self._planned.update(job.key for job in new)
        if new:
            self._on_loop(self._work.plan, new)

    def take(self, job: Job, tick: Callable[[], None]) -> Done:
        """Give an attempt, waiting for it; one taken already is made anew.

        Args:
            job: the attempt; needn't have been planned.
            tick: called about twice a second while waiting.

        Raises:
            BaseException: what the target raised to end the whole run (`RunOptions.stops`).
        """
        key = job.key
        if key in self._given_up:
            self.settle_all()
            self._given_up.discard(key)
            self._work.unwanted.discard(key)
        if key not in self._done and not self._answers.empty():
            self.settle_all()
        if key not in self._done:
            self._wait_for_answer(job, tick)
        # room for others: made at once where it is needed soon, else together with further ones
        self._work.room.append(key)
        if len(self._work.room) > self._lookahead // 8:
            self._on_loop(self._work.pump)
        done = self._done.pop(key)
        if done.stop is not None:
            raise done.stop
        return done

    def release(self, keys: Iterable[Key]) -> None:
        """Let go of attempts that nobody will take: not begun, or cancelled."""
        for key in keys:
            over = key in self._over
            if key not in self._planned or (over and key not in self._done):
                continue
            self._done.pop(key, None)
            if not over:
                self._given_up.add(key)
            self._on_loop(self._work.release, key)

    def settle_all(self) -> None:
        """Settle what is over and was not looked at yet; never waits. Once closed, nothing: nobody keeps it."""
        while not self._closed and not self._answers.empty():
            self._receive(0)

    def lift_limit(self) -> None:
        """Wait for every attempt as long as it takes from now on: somebody steps through the code."""
        self._work.limit_s = None

    def progress(self) -> Progress:
        """Say how far the run is."""
        begun = list(self._work.begun.values())
        oldest = time.monotonic() - min(begun) if begun else 0.0
        return Progress(done=len(self._over), planned=len(self._planned), under_way=len(begun), oldest_s=oldest)

    def close(self, *closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin nothing more, cancel what is under way, end the loop. What hangs is left behind.

        What is given as `closing` runs on the loop before it ends; whatever it raises is dropped.
        """
        if self._closed:
            return
        if closing:
            # what was opened for the run may need a loop to be closed on
            self._on_loop(self._work.beat)
        self._closed = True
        if self._switch_s is not None:
            sys.setswitchinterval(self._switch_s)
        if self._thread is None:
            self._work.loop.close()
            return
        if self._wait_for(_nothing):
            for work in (self._work.cancel_all, *closing):
                self._wait_for(work)
            self._work.end()
            self._thread.join(timeout=_CLOSING_S)
        else:
            self._work.end()
        release_pools()

    def _wait_for_answer(self, job: Job, tick: Callable[[], None]) -> None:
        key = job.key
        # what is planned comes by itself, and each call on the loop costs a change of threads
        coming = key in self._planned and key not in self._over and self._lookahead > 0
        self._planned.add(key)
        self._next_tick = max(self._next_tick, time.monotonic() + _TICK_S)
        self._on_loop(self._work.pump)
        if not coming:
            self._on_loop(self._work.want, job)
        while key not in self._done:
            self._receive(_WANT_S if coming else _TICK_S)
            if coming and key not in self._done and self._answers.empty():
                coming = False
                self._on_loop(self._work.want, job)
            if key not in self._done and time.monotonic() >= self._next_tick:
                self._next_tick = time.monotonic() + _TICK_S
                tick()
                self._look_after(job)
        self._let_others_come()

    def _receive(self, timeout_s: float) -> None:
        """Wait for one answer, or for a sync target that wants to run in this thread."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return
        if isinstance(answer, Done):
            self._settle(answer)
        else:
            answer()

    def _let_others_come(self) -> None:
        """Wait while answers come in a burst and other attempts wait to begin.

        What is to be done with each answer would hold up the next calls, and can be done while these are under way.
        Half of the lookahead may fill with answers meanwhile: the other half keeps the window full.
        """
        work, end = self._work, time.monotonic() + _BURST_S
        while work.waiting and self._answers.qsize() + len(self._done) < self._lookahead // 2:
            now = time.monotonic()
            if now >= end or now - work.stirred >= _QUIET_S:
                return
            time.sleep(_NAP_S)

    def _look_after(self, job: Job) -> None:
        """Give up on a loop that is gone or that a target holds up: its cases are errors, not an endless wait."""
        now, limit_s = time.monotonic(), self._work.limit_s
        if self._beat_asked is not None and self._work.beaten >= self._beat_asked:
            self._beat_asked = None
        if self._beat_asked is None:
            self._beat_asked = now
            self._on_loop(self._work.beat)
        silent = now - self._beat_asked
        if self._thread is None or not self._thread.is_alive():
            why = "the event loop ended: a target stopped it"
        elif limit_s is not None and silent > limit_s + _GRACE_S:
            why = f"an async target held up all others for {silent:.0f} s: it waits without await"
        else:
            return
        left = Attempt(trial=job.key.trial, failure=Failure(kind="loop_blocked", message=why))
        self._settle(Done(job=job, attempt=left))
        # its own answer may still come, and is too late then
        self._given_up.add(job.key)
        self._work.unwanted.add(job.key)

    def _settle(self, done: Done) -> None:
        job = done.job
        if job.key in self._given_up:
            return
        if done.attempt is not None:
            stop = self._stop_of(done.attempt, job)
            done = replace(done, attempt=_settled(job, done.attempt), stop=stop)
        self._done[job.key] = done
        self._over.add(job.key)
        if done.stop is None:
            self._settled(done)

    def _stop_of(self, attempt: Attempt, job: Job) -> BaseException | None:
        trouble = attempt.trouble
        if not isinstance(trouble, job.context.options.stops):
            return None
        # Ctrl-C comes to the main thread alone: on another one it is a target's own doing, and its case's error
        return None if self._beside and isinstance(trouble, KeyboardInterrupt) else trouble

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have the loop call a function soon; nothing where it has ended."""
        if self._thread is None and not self._closed:
            self._thread = daemon(self._work.serve, f"{THREADS}-loop")
            # the loop lets go of the interpreter at each packet, and would wait 5 ms for it each time
            self._switch_s = sys.getswitchinterval()
            sys.setswitchinterval(min(self._switch_s, _SWITCH_S))
        with suppress(RuntimeError):
            self._work.loop.call_soon_threadsafe(call, *arguments)

    def _wait_for(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Have the loop do something; False where it doesn't within seconds."""
        coroutine = _quietly(work)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._work.loop)
        except RuntimeError:
            coroutine.close()
            return False
        # a future's own exception types differ between Pythons
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        if not ended.wait(_CLOSING_S):
            future.cancel()
            return False
        return True


def _settled(job: Job, attempt: Attempt) -> Attempt:
    """Settle an attempt so that whatever a user's code raises belongs to its own case, not to the one waited for."""
    try:
        return settle(job.context, job.loaded, attempt)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a pack may be anybody's
        broken = Failure(kind="pack_error", message=f"scoring raised {describe_error(error)}")
        # what the target left may be what broke
        return settle(job.context, job.loaded, replace(attempt, failure=broken, payload=None, outcome=None, score=None))


async def _nothing() -> None:
    """Show that the loop does what it is asked."""


async def _quietly(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with suppress(Exception):
        await work()
