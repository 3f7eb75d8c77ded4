"""The runner: works ahead of pytest's item loop, within a bounded window, on an event loop of its own.

The loop's thread is a daemon, and so are those of sync targets: one that hangs never holds up the interpreter's exit.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.engine.attempt import Attempt, Draft, Failure, ask_ahead, settle
from pytest_packbench.engine.offline import THREADS
from pytest_packbench.engine.output import Output, collecting

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from pytest_packbench.cases.load import LoadedCase
    from pytest_packbench.engine.attempt import Bench
    from pytest_packbench.engine.ledger import Ledger
    from pytest_packbench.engine.throttle import Throttle

_TICK_S = 0.5
_GRACE_S = 5.0
_CLOSING_S = 5.0


class Key(NamedTuple):
    """What names an attempt in a session.

    Attributes:
        nodeid: the case's item.
        trial: which attempt at it, from 0.
    """

    nodeid: str
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt to make.

    Attributes:
        key: its name.
        bench: what the suite's cases share.
        loaded: the case.
    """

    key: Key
    bench: Bench
    loaded: LoadedCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An attempt that is over.

    Attributes:
        job: what was to be done.
        attempt: what it left; None where it was not begun.
        kind: why it was not begun, the reason's name.
        message: the same for people.
        output: what was printed and logged meanwhile.
    """

    job: Job
    attempt: Attempt | None = None
    kind: str = ""
    message: str = ""
    output: Output = field(default_factory=Output)


@dataclass(slots=True)
class _Answer:
    job: Job
    draft: Draft | None
    kind: str = ""
    message: str = ""
    output: Output = field(default_factory=Output)


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
        lookahead: how many may be begun and not yet taken.
        limit_s: time limit of one attempt, seconds; None for none.
        ledger: what the run uses, with its caps.
        settled: called for each attempt in the order in which they end, in the thread that takes.
    """

    def __init__(
        self,
        *,
        throttle: Throttle,
        lookahead: int,
        limit_s: float | None,
        ledger: Ledger,
        settled: Callable[[Done], None],
    ) -> None:
        self.throttle = throttle
        self.ledger = ledger
        self._lookahead = lookahead
        self._limit_s = limit_s
        self._settled = settled
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._done: dict[Key, Done] = {}
        self._planned: set[Key] = set()
        self._over = 0
        self._closed = False
        self._work = _Work(throttle, lookahead, limit_s, ledger, self._answers)
        self._thread = threading.Thread(target=self._work.serve, name=f"{THREADS}-loop", daemon=True)
        self._thread.start()

    def plan(self, jobs: Iterable[Job]) -> None:
        """Name attempts that will be taken, in this order; those known already are left out."""
        new = [job for job in jobs if job.key not in self._planned]
        self._planned.update(job.key for job in new)
        self.call_on_loop(self._work.plan, new)

    def take(self, job: Job, tick: Callable[[], None]) -> Done:
        """Give an attempt, waiting for it; one taken already is made anew.

        Args:
            job: the attempt; needn't have been planned.
            tick: called about twice a second while waiting.
        """
        if job.key not in self._done:
            self._planned.add(job.key)
            self.call_on_loop(self._work.want, job)
        while job.key not in self._done:
            try:
                self._settle(self._answers.get(timeout=_TICK_S))
            except queue.Empty:
                tick()
                self._look_after(job)
        self.call_on_loop(self._work.taken, job.key)
        return self._done.pop(job.key)

    def settle_all(self) -> None:
        """Settle what is over and was not looked at yet; never waits."""
        while not self._answers.empty():
            self._settle(self._answers.get())

    def progress(self) -> Progress:
        """Say how far the run is."""
        begun = list(self._work.begun.values())
        oldest = time.monotonic() - min(begun) if begun else 0.0
        return Progress(done=self._over, planned=len(self._planned), under_way=len(begun), oldest_s=oldest)

    def call_on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have the loop call a function soon; nothing where it has ended."""
        with suppress(RuntimeError):
            self._work.loop.call_soon_threadsafe(call, *arguments)

    def close(self, *closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin nothing more, cancel what is under way, end the loop. What hangs is left behind.

        Args:
            closing: what to run on the loop before it ends; whatever it raises is dropped.
        """
        if self._closed:
            return
        self._closed = True
        for work in (self._work.cancel_all, *closing):
            self._wait_for(work)
        self.call_on_loop(self._work.loop.stop)
        self._thread.join(timeout=_CLOSING_S)

    def _wait_for(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._thread.is_alive():
            return
        future = asyncio.run_coroutine_threadsafe(_quietly(work), self._work.loop)
        try:
            future.result(timeout=_CLOSING_S)
        except TimeoutError:
            future.cancel()

    def _look_after(self, job: Job) -> None:
        """Give up on a loop that is gone or that a target holds up: its cases are errors, not an endless wait."""
        self.call_on_loop(self._work.beat)
        silent = time.monotonic() - self._work.beaten
        if not self._thread.is_alive():
            why = "the event loop ended: a target stopped it"
        elif self._limit_s is not None and silent > self._limit_s + _GRACE_S:
            why = f"an async target held up all others for {silent:.0f} s: it waits without await"
        else:
            return
        self._settle(_Answer(job, Draft(trial=job.key.trial, failure=Failure(kind="loop_blocked", message=why))))

    def _settle(self, answer: _Answer) -> None:
        job = answer.job
        attempt = None if answer.draft is None else settle(job.bench, job.loaded, answer.draft)
        done = Done(job=job, attempt=attempt, kind=answer.kind, message=answer.message, output=answer.output)
        self._done[job.key] = done
        self._over += 1
        self._settled(done)


class _Work:
    """What happens on the loop's thread; all but `begun` and `beaten` is touched there only.

    Attributes:
        loop: the event loop.
        begun: when each attempt under way began, monotonic seconds.
        beaten: when the loop was last seen alive.
    """

    def __init__(
        self,
        throttle: Throttle,
        lookahead: int,
        limit_s: float | None,
        ledger: Ledger,
        answers: queue.SimpleQueue[_Answer],
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.begun: dict[Key, float] = {}
        self.beaten = time.monotonic()
        self._throttle = throttle
        self._lookahead = lookahead
        self._limit_s = limit_s
        self._ledger = ledger
        self._answers = answers
        self._waiting: deque[Job] = deque()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._ahead: set[Key] = set()
        self._closed = False

    def serve(self) -> None:
        """Run the loop until it is stopped."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def beat(self) -> None:
        """Show that the loop is alive."""
        self.beaten = time.monotonic()

    def plan(self, jobs: list[Job]) -> None:
        """Line up attempts and begin as many as may be."""
        self._waiting.extend(jobs)
        self._pump()

    def want(self, job: Job) -> None:
        """Begin an attempt that is waited for now, whatever the lookahead says."""
        if job.key in self._tasks or job.key in self._ahead:
            self._ahead.discard(job.key)
        else:
            with suppress(ValueError):
                self._waiting.remove(job)
            self._begin(job)
            self._ahead.discard(job.key)
        self._pump()

    def taken(self, key: Key) -> None:
        """Note that an attempt was taken."""
        self._ahead.discard(key)
        self._pump()

    async def cancel_all(self) -> None:
        """Begin nothing more and cancel what is under way."""
        self._closed = True
        self._waiting.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # what targets began and left behind
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _pump(self) -> None:
        while (
            self._waiting
            and not self._closed
            and len(self._tasks) < self._throttle.limit
            and len(self._ahead) < self._lookahead
        ):
            self._begin(self._waiting.popleft())

    def _begin(self, job: Job) -> None:
        self._ahead.add(job.key)
        kind, message = ("stopped", "the run was stopped") if self._closed else self._ledger.exhausted()
        if kind:
            self._answers.put(_Answer(job, None, kind, message))
            return
        self.begun[job.key] = time.monotonic()
        task = self.loop.create_task(self._attempt(job))
        self._tasks[job.key] = task
        task.add_done_callback(lambda _: self._end(job))

    async def _attempt(self, job: Job) -> None:
        with collecting() as output:
            draft = await ask_ahead(job.bench, job.loaded, trial=job.key.trial, limit_s=self._limit_s)
        self._answers.put(_Answer(job, draft, output=output))
        if draft.trouble is None and draft.failure is None:
            self._throttle.went_well()

    def _end(self, job: Job) -> None:
        self._tasks.pop(job.key, None)
        self.begun.pop(job.key, None)
        self._pump()


async def _quietly(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with suppress(Exception):
        await work()
