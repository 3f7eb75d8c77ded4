"""What happens on the runner's event loop: attempts begin, take their time, and end or are abandoned."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.engine.attempt import Attempt, Failure, abandoned, ask_ahead
from pytest_packbench.engine.output import Output, collected_in
from pytest_packbench.engine.targets import in_thread
from pytest_packbench.model.errors import describe_error

if TYPE_CHECKING:
    import queue
    from collections.abc import Callable

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.metering import Ledger
    from pytest_packbench.model.case import LoadedCase


_FAREWELL_S = 1.0
_PAUSE_S = 1.0


class Key(NamedTuple):
    """What names an attempt in a session.

    Attributes:
        nodeid: the case's item.
        trial: which attempt at it, from 0.
    """

    nodeid: str
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """One attempt to make.

    Attributes:
        key: its name.
        context: what the suite's cases share.
        loaded: the case.
    """

    key: Key
    context: SuiteContext
    loaded: LoadedCase


class Throttle:
    """Additive increase, multiplicative decrease (Chiu and Jain 1989), as TCP does it.

    Attributes:
        most: attempts under way at most, 1 or more.
        limit: attempts that may be under way now, 1 to `most`.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self.limit = most
        self._clock = clock
        self._shrunk = float("-inf")
        self._well = 0

    def overloaded(self) -> None:
        """Halve the limit; replies of one burst count once a second."""
        now = self._clock()
        self._well = 0
        if now - self._shrunk >= _PAUSE_S:
            self._shrunk = now
            self.limit = max(1, self.limit // 2)

    def went_well(self) -> None:
        """Note an attempt without trouble: a whole window of them raises the limit by one."""
        if self.limit == self.most:
            return
        self._well += 1
        if self._well >= self.limit:
            self._well = 0
            self.limit += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An attempt that is over: asked, then settled in the thread that takes it.

    Attributes:
        job: what was to be done.
        attempt: what asking left, then settled; None where it was not begun.
        kind: why it was not begun, the reason's name.
        message: the same for people.
        output: what was printed and logged meanwhile.
        stop: what the target raised to end the whole run.
    """

    job: Job
    attempt: Attempt | None = None
    kind: str = ""
    message: str = ""
    output: Output = field(default_factory=Output)
    stop: BaseException | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _UnderWay:
    """An attempt that has begun and is not over.

    Attributes:
        job: what is to be done.
        attempt: what asking has left so far.
        output: what was printed and logged so far.
        task: asks the target.
        timer: gives up on it when the limit passes; None where there is no limit.
        overdue: the limit that passed, seconds; None while none did.
    """

    job: Job
    attempt: Attempt
    output: Output
    task: asyncio.Task[None]
    timer: asyncio.TimerHandle | None = None
    overdue: float | None = None


class Work:
    """What happens on the loop's thread; what others touch is named.

    The arguments are those of `Runner`; `answers` takes what is over, and the calls of sync targets that are to run in
    the thread that takes.

    Attributes:
        loop: the event loop; threads that call on it use `call_soon_threadsafe`.
        limit_s: time limit of each attempt, seconds; None for none; others lift it.
        begun: when each attempt under way began, monotonic seconds; others read it.
        beaten: when the loop was last seen alive; others read it.
        stirred: when an attempt last began or ended, monotonic seconds; others read it.
        unwanted: attempts that nobody waits for any more; others add to it.
        waiting: attempts that have not begun, in their order; others read it.
        room: attempts that were taken, and whose place is free; others add to it.
    """

    def __init__(
        self,
        throttle: Throttle,
        lookahead: int,
        limit_s: float | None,
        ledger: Ledger,
        answers: queue.SimpleQueue[Done | Callable[[], None]],
        *,
        beside: bool,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.begun: dict[Key, float] = {}
        self.beaten = 0.0
        self.stirred = 0.0
        self.unwanted: set[Key] = set()
        self.room: deque[Key] = deque()
        self._throttle = throttle
        self._lookahead = lookahead
        self.limit_s = limit_s
        self._ledger = ledger
        self._answers = answers
        self._aside = in_thread if beside else partial(in_thread, start=answers.put)
        self._urgent: dict[Key, Job] = {}
        self.waiting: dict[Key, Job] = {}
        self._under_way: dict[Key, _UnderWay] = {}
        self._ahead: set[Key] = set()
        self._closed = False
        self._ended = False

    def serve(self) -> None:
        """Run the loop until it is to end: a target that stops it, or raises `SystemExit` in a task, doesn't end it."""
        asyncio.set_event_loop(self.loop)
        try:
            while not self._ended and not self.loop.is_closed():
                with suppress(BaseException):
                    self.loop.run_forever()
        finally:
            self.loop.close()

    def end(self) -> None:
        """End the loop as soon as it can; called from any thread."""
        self._ended = True
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)

    def beat(self) -> None:
        """Show that the loop is alive."""
        self.beaten = time.monotonic()

    def plan(self, jobs: list[Job]) -> None:
        """Line up attempts and begin as many as may be."""
        self.waiting.update((job.key, job) for job in jobs)
        self.pump()

    def want(self, job: Job) -> None:
        """Put an attempt that is waited for now before all others, whatever the lookahead says."""
        if job.key in self._under_way or job.key in self._ahead:
            self._ahead.discard(job.key)
        elif job.key not in self.unwanted:
            self.waiting.pop(job.key, None)
            self._urgent[job.key] = job
        self.pump()

    def release(self, key: Key) -> None:
        """Let go of an attempt that nobody will take."""
        self.waiting.pop(key, None)
        if key in self._under_way:
            self._cancel(self._under_way[key])
        self._ahead.discard(key)
        self.pump()

    def pump(self) -> None:
        """Note what was taken, and begin as many attempts as may be."""
        while self.room:
            self._ahead.discard(self.room.popleft())
        while len(self._under_way) < self._throttle.limit:
            if self._urgent:
                job = self._urgent.pop(next(iter(self._urgent)))
                self._begin(job)
                self._ahead.discard(job.key)
            elif self.waiting and len(self._ahead) < self._lookahead:
                self._begin(self.waiting.pop(next(iter(self.waiting))))
            else:
                return

    async def cancel_all(self) -> None:
        """Begin nothing more and cancel what is under way."""
        self._closed = True
        self.waiting.clear()
        await _cancelled({one.task for one in self._under_way.values()})
        # what targets began and left behind
        await _cancelled(asyncio.all_tasks() - {asyncio.current_task()})
        await self.loop.shutdown_asyncgens()

    def _begin(self, job: Job) -> None:
        if job.key in self.unwanted:
            return
        self._ahead.add(job.key)
        kind, message = ("stopped", "the run was stopped") if self._closed else self._ledger.exhausted()
        if kind:
            self._answers.put(Done(job=job, kind=kind, message=message))
            return
        self.stirred = self.begun[job.key] = time.monotonic()
        attempt, output = Attempt(trial=job.key.trial), Output()
        asking = ask_ahead(job.context, job.loaded, attempt, aside=self._aside)
        task = self.loop.create_task(asking, context=collected_in(output))
        one = self._under_way[job.key] = _UnderWay(job=job, attempt=attempt, output=output, task=task)
        if self.limit_s is not None:
            one.timer = self.loop.call_later(self.limit_s, self._give_up, one)
        task.add_done_callback(partial(self._end, one))

    def _give_up(self, one: _UnderWay) -> None:
        """Cancel an attempt whose limit has passed, unless it was lifted meanwhile."""
        if self.limit_s is not None:
            one.overdue = self.limit_s
            self._cancel(one)

    def _cancel(self, one: _UnderWay) -> None:
        one.task.cancel()
        # most end at once; one that swallows its cancellation is not waited for
        self.loop.call_later(_FAREWELL_S, self._end, one)

    def _end(self, one: _UnderWay, task: asyncio.Task[None] | None = None) -> None:
        """Answer for an attempt that ended, or that did not end although it was cancelled; the second time is late."""
        key = one.job.key
        if self._under_way.get(key) is not one:
            return
        del self._under_way[key]
        self.stirred = time.monotonic()
        self.begun.pop(key, None)
        if one.timer is not None:
            one.timer.cancel()
        attempt = _ended(one, task)
        if attempt.trouble is None and attempt.failure is None:
            self._throttle.went_well()
        self._answers.put(Done(job=one.job, attempt=attempt, output=one.output))
        self.pump()


def _ended(one: _UnderWay, task: asyncio.Task[None] | None) -> Attempt:
    if one.overdue is not None:
        return abandoned(one.attempt, one.overdue)
    if task is None or task.cancelled():
        why = "the attempt was cancelled: by a target that cancels tasks, or because the run ended"
        return Attempt(trial=one.attempt.trial, failure=Failure(kind="cancelled", message=why))
    error = task.exception()
    if error is None:
        return one.attempt
    broken = Failure(kind="target_error", message=f"the attempt could not be made: {describe_error(error)}")
    return Attempt(trial=one.attempt.trial, failure=broken)


async def _cancelled(tasks: set[Any]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        # one that swallows its cancellation is left behind
        await asyncio.wait(tasks, timeout=_FAREWELL_S)
