"""Whose violation it is: threads, tasks and pools of several cases, which run during or after their case.

A carrier lets work run later: it is called with the work in a case, or outside of cases, and returns a function that
lets the work run and waits until it has.
"""

from __future__ import annotations

import _thread
import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.offline import OfflineError, note_tasks, offline, take_late
from tests.unit.test_offline_guard import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEEDS = range(12)
STEPS = 40
WAIT_S = 30.0
CARRY = 0.6
NOBODY = "nobody"


def rng_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a sequence that can be repeated


def work() -> None:
    # outside of cases nobody refuses it, and nobody listens
    with suppress(OfflineError, ConnectionRefusedError):
        connect()


class Gate:
    """Work that waits on its thread until it may run."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.done = threading.Event()

    def run(self) -> None:
        self.opened.wait(WAIT_S)
        work()
        self.done.set()

    def open(self) -> None:
        self.opened.set()
        assert self.done.wait(WAIT_S)


class Shared:
    """What all cases use: pools and an event loop, made before them or by the first that needs one."""

    def __init__(self) -> None:
        # far more threads than work that waits
        self.pool = ThreadPoolExecutor(200)
        self.made_before = ThreadPoolExecutor(200)
        for result in [self.made_before.submit(int) for _ in range(3)]:
            result.result()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def close(self) -> None:
        self.pool.shutdown()
        self.made_before.shutdown()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def shared() -> Iterator[Shared]:
    made = Shared()
    yield made
    made.close()


def thread(_: Shared, name: str = "own") -> Callable[[], None]:
    gate = Gate()
    threading.Thread(target=gate.run, name=name).start()
    return gate.open


def raw_thread(_: Shared) -> Callable[[], None]:
    gate = Gate()
    _thread.start_new_thread(gate.run, ())
    return gate.open


def timer(_: Shared) -> Callable[[], None]:
    gate = Gate()
    threading.Timer(0, gate.run).start()
    return gate.open


def thread_of_a_thread(_: Shared) -> Callable[[], None]:
    gate = Gate()
    outer = threading.Thread(target=lambda: threading.Thread(target=gate.run).start())
    outer.start()
    outer.join()
    return gate.open


def old_pool(_: Shared) -> Callable[[], None]:
    gate, pool = Gate(), ThreadPool(1)
    pool.apply_async(gate.run)

    def run() -> None:
        gate.open()
        pool.terminate()

    return run


def own_pool(_: Shared) -> Callable[[], None]:
    gate, pool = Gate(), ThreadPoolExecutor(1)
    pool.submit(gate.run)
    pool.shutdown(wait=False)
    return gate.open


def shared_pool(shared: Shared) -> Callable[[], None]:
    gate = Gate()
    shared.pool.submit(gate.run)
    return gate.open


def pool_made_before(shared: Shared) -> Callable[[], None]:
    gate = Gate()
    shared.made_before.submit(gate.run)
    return gate.open


def own_loop(_: Shared) -> Callable[[], None]:
    gate = Gate()

    async def main() -> None:
        await asyncio.get_running_loop().create_task(asyncio.to_thread(gate.run), context=Context())

    threading.Thread(target=lambda: asyncio.run(main())).start()
    return gate.open


def loop_made_before(shared: Shared) -> Callable[[], None]:
    opened = asyncio.Event()

    async def main() -> None:
        await opened.wait()
        work()

    future = asyncio.run_coroutine_threadsafe(main(), shared.loop)

    def run() -> None:
        shared.loop.call_soon_threadsafe(opened.set)
        future.result(WAIT_S)

    return run


def emptied(carry: Callable[[Shared], Callable[[], None]]) -> Callable[[Shared], Callable[[], None]]:
    """Call a carrier in a context without variables."""

    def in_empty_context(shared: Shared) -> Callable[[], None]:
        return Context().run(carry, shared)

    return in_empty_context


CARRIERS: dict[str, Callable[[Shared], Callable[[], None]]] = {
    "thread": thread,
    "thread with a name of ours": partial(thread, name="packbench-loop"),
    "raw thread": raw_thread,
    "timer": timer,
    "thread of a thread": thread_of_a_thread,
    "pool of multiprocessing": old_pool,
    "own pool": own_pool,
    "shared pool": shared_pool,
    "pool made before": pool_made_before,
    "own loop": own_loop,
    "loop made before": loop_made_before,
    "thread, empty context": emptied(thread),
    "raw thread, empty context": emptied(raw_thread),
    "shared pool, empty context": emptied(shared_pool),
    "pool made before, empty context": emptied(pool_made_before),
}


async def waiting(opened: asyncio.Event) -> None:
    await opened.wait()
    work()


def task(context: Context | None = None) -> Callable[[], Any]:
    opened = asyncio.Event()
    created = asyncio.get_running_loop().create_task(waiting(opened), context=context)

    async def run() -> None:
        opened.set()
        await created

    return run


def task_of_a_task() -> Callable[[], Any]:
    opened = asyncio.Event()
    inner: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def outer() -> None:
        inner.set_result(asyncio.create_task(waiting(opened), context=Context()))

    created = asyncio.create_task(outer())

    async def run() -> None:
        opened.set()
        await created
        await inner.result()

    return run


def task_that_empties_its_context() -> Callable[[], Any]:
    opened = asyncio.Event()

    async def main() -> None:
        await opened.wait()
        Context().run(work)

    created = asyncio.create_task(main())

    async def run() -> None:
        opened.set()
        await created

    return run


def executor() -> Callable[[], Any]:
    gate = Gate()
    future = asyncio.get_running_loop().run_in_executor(None, gate.run)

    async def run() -> None:
        gate.opened.set()
        await future

    return run


def to_thread() -> Callable[[], Any]:
    gate = Gate()
    created = asyncio.create_task(asyncio.to_thread(gate.run))

    async def run() -> None:
        gate.opened.set()
        await created

    return run


def callback() -> Callable[[], Any]:
    opened, done = asyncio.Event(), asyncio.Event()

    def call() -> None:
        if not opened.is_set():
            asyncio.get_running_loop().call_later(0.001, call)
            return
        work()
        done.set()

    asyncio.get_running_loop().call_soon(call)

    async def run() -> None:
        opened.set()
        await done.wait()

    return run


ASYNC_CARRIERS: dict[str, Callable[[], Callable[[], Any]]] = {
    "task": task,
    "task, empty context": lambda: task(Context()),
    "task of a task, empty context": task_of_a_task,
    "task that empties its context": task_that_empties_its_context,
    "executor of the loop": executor,
    "to_thread": to_thread,
    "callback": callback,
}


class Expected:
    """The violations that each case has, and should have."""

    def __init__(self) -> None:
        self.violations: dict[str, list[str]] = {}
        self.over: set[str] = set()
        self._texts: dict[str, list[str]] = {}

    def begin(self, case: str, violations: list[str]) -> None:
        self.violations[case] = violations
        self._texts[case] = []

    def late(self) -> dict[str, str]:
        """The first violation of each case after its end."""
        late = {case: [line for line in lines if "left running" in line] for case, lines in self.violations.items()}
        return {case: lines[0] for case, lines in late.items() if lines}

    def ran(self, owner: str, what: str) -> None:
        """Check whose violation work was: of a case, or of all running ones if it is from outside."""
        cases = [owner] if owner != NOBODY else [case for case in self.violations if case not in self.over]
        for case in cases:
            culprit = "which no case started," if owner == NOBODY else "the target"
            self._texts[case].append(f"left running by case {owner}," if owner in self.over else culprit)
        found = {
            case: [text in line for text, line in zip(self._texts[case], lines, strict=False)]
            for case, lines in self.violations.items()
        }
        assert found == {case: [True] * len(texts) for case, texts in self._texts.items()}, (
            f"{what} of {owner}: {[lines[-1:] for lines in self.violations.values()]}"
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_what_sync_cases_start_is_theirs(shared: Shared, seed: int) -> None:
    rng, expected, suite = rng_of(seed), Expected(), object()
    carried: list[tuple[str, str, Callable[[], None]]] = []

    def step(owner: str) -> None:
        if rng.random() < CARRY:
            name = rng.choice(list(CARRIERS))
            carried.append((owner, name, CARRIERS[name](shared)))
        elif carried:
            other, name, run = carried.pop(rng.randrange(len(carried)))
            run()
            expected.ran(other, name)

    for number in range(STEPS // 8):
        for _ in range(rng.randrange(4)):
            step(NOBODY)
        case = f"c{number}"
        with offline(case, suite=suite, allow_processes=False) as violations:
            expected.begin(case, violations)
            for _ in range(rng.randrange(8)):
                step(case)
        expected.over.add(case)
    for owner, name, run in carried:
        run()
        expected.ran(owner, name)
    assert dict(take_late(suite)) == expected.late()


class Turns:
    """Async cases that take turns on one event loop, in the order that the generator decides."""

    def __init__(self, shared: Shared, rng: random.Random) -> None:
        self.shared, self.rng, self.expected = shared, rng, Expected()
        self.carried: list[tuple[str, str, Callable[[], Any]]] = []
        self.ends: dict[str, asyncio.Queue[str]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.taken = asyncio.Event()

    async def run(self) -> None:
        note_tasks(asyncio.get_running_loop())
        for number in range(STEPS):
            running = [name for name, task in self.tasks.items() if not task.done()]
            action = self.rng.choices(["begin", "outside", "step", "end"], [3, 3, 11, 3])[0]
            if action == "begin" or not running:
                await self.begin(f"c{number}")
            elif action == "outside":
                await self.step(NOBODY)
            else:
                await self.take_turn(self.rng.choice(running), action)
        for name, task in self.tasks.items():
            if not task.done():
                await self.take_turn(name, "end")
        while self.carried:
            await self.let_run()
        assert dict(take_late(self)) == self.expected.late()

    async def begin(self, name: str) -> None:
        self.ends[name] = asyncio.Queue()
        self.tasks[name] = asyncio.create_task(self.case(name))
        await asyncio.sleep(0)

    async def take_turn(self, name: str, action: str) -> None:
        self.taken.clear()
        self.ends[name].put_nowait(action)
        if action == "end":
            await self.tasks[name]
        else:
            await self.taken.wait()

    async def case(self, name: str) -> None:
        with offline(name, suite=self, allow_processes=False, shares_thread=True) as violations:
            self.expected.begin(name, violations)
            while await self.ends[name].get() == "step":
                await self.step(name)
                self.taken.set()
        self.expected.over.add(name)

    async def step(self, owner: str) -> None:
        if self.rng.random() < CARRY:
            name = self.rng.choice([*CARRIERS, *ASYNC_CARRIERS])
            run = CARRIERS[name](self.shared) if name in CARRIERS else ASYNC_CARRIERS[name]()
            self.carried.append((owner, name, run))
        elif self.carried:
            await self.let_run()

    async def let_run(self) -> None:
        owner, name, run = self.carried.pop(self.rng.randrange(len(self.carried)))
        # a task begins
        await asyncio.sleep(0)
        result = run()
        if result is not None:
            await result
        self.expected.ran(owner, name)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_async_cases_start_is_theirs(shared: Shared, seed: int) -> None:
    async def main() -> None:
        await Turns(shared, rng_of(seed)).run()

    # as the runner does: the main thread's own work is exempt
    with ThreadPoolExecutor(1) as loop_thread:
        loop_thread.submit(asyncio.run, main()).result()


def callback_in_an_empty_context() -> None:
    asyncio.get_running_loop().call_soon(work, context=Context())


def test_a_callback_of_no_task_and_no_context_may_be_of_each_running_case() -> None:
    async def case(name: str, *, calls: bool) -> list[str]:
        with offline(name, allow_processes=False, shares_thread=True) as violations:
            await asyncio.sleep(0)
            if calls:
                callback_in_an_empty_context()
            await asyncio.sleep(0.01)
        return violations

    async def both() -> list[list[str]]:
        return list(await asyncio.gather(case("one", calls=True), case("two", calls=False)))

    with ThreadPoolExecutor(1) as loop_thread:
        found = loop_thread.submit(asyncio.run, both()).result()
    assert ["which no case started, tried: connect" in line for lines in found for line in lines] == [True, True]
