"""Fixture mode reaches no network and no process, and each violation is that of the case whose work it is.

A carrier lets work run later: it is called with the work in a case, or outside of cases, and returns a function that
lets the work run and waits until it has.
"""

from __future__ import annotations

import _thread
import asyncio
import multiprocessing
import os
import platform
import random
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.offline import OfflineError, note_tasks, offline, replace, serve_address, take_late

if TYPE_CHECKING:
    from collections.abc import Iterator


def connect() -> None:
    with socket.socket() as opened:
        opened.connect(("127.0.0.1", 9))


def bind() -> None:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))


def run_in_thread(call: Callable[..., object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def try_to_connect() -> None:
    with pytest.raises(OfflineError):
        connect()


def test_a_case_may_use_no_network_and_no_process() -> None:
    with offline("one", allow_processes=False) as violations:
        with pytest.raises(OfflineError, match="case one: fixture mode is offline, but the target tried: connect"):
            connect()
        with pytest.raises(OfflineError):
            socket.getaddrinfo("localhost", 80)
        with pytest.raises(OfflineError):
            subprocess.run([sys.executable, "-V"], check=False)
    assert [f"at {__file__}:" in violation for violation in violations] == [True] * 3
    words = ("connect to", "look-up of 'localhost'", "child process (subprocess.Popen")
    assert [word in violation for word, violation in zip(words, violations, strict=True)] == [True] * 3


def test_what_a_case_left_running_is_taken_once_by_its_suite() -> None:
    suite, other = object(), object()
    with offline("one", suite=suite, allow_processes=False) as violations:
        context = copy_context()
    run_in_thread(lambda: context.run(try_to_connect))
    assert take_late(other) == []
    ((case_id, message),) = take_late(suite)
    assert (case_id, message) == ("one", violations[0])
    assert '(<lambda>)", left running by case one, tried: connect to' in message
    assert message.endswith("; end it before the target returns")
    assert take_late(suite) == []


def test_two_concurrent_cases_with_the_same_name_are_told_apart() -> None:
    async def case(*, connects: bool, started: asyncio.Event, other: asyncio.Event) -> int:
        with offline("same", allow_processes=False, shares_thread=True) as violations:
            started.set()
            await other.wait()
            if connects:
                with suppress(OfflineError):
                    connect()
        return len(violations)

    async def both() -> list[int]:
        one, two = asyncio.Event(), asyncio.Event()
        cases = case(connects=True, started=one, other=two), case(connects=False, started=two, other=one)
        return list(await asyncio.gather(*cases))

    assert asyncio.run(both()) == [1, 0]


def test_an_abandoned_case_that_is_closed_elsewhere_ends_quietly() -> None:
    async def case() -> None:
        with offline("one", allow_processes=False, shares_thread=True):
            await asyncio.sleep(0)

    coroutine = case()
    copy_context().run(coroutine.send, None)
    # as garbage collection does with an abandoned task
    coroutine.close()
    with offline("two", allow_processes=False), pytest.raises(OfflineError, match="case two"):
        connect()


def fork_exec() -> None:
    import _posixsubprocess

    _posixsubprocess.fork_exec([b"/bin/true"], [b"/bin/true"])  # type: ignore[call-arg]  # refused before they are read


def start_process(method: Any) -> None:
    multiprocessing.get_context(method).Process(target=bind).start()


@pytest.mark.parametrize(
    ("start", "how"),
    [
        (partial(start_process, "spawn"), f"fork_exec: {[sys.executable]}"),
        (partial(start_process, "forkserver"), f"fork_exec: {[sys.executable]}"),
        (partial(start_process, "fork"), "os.fork"),
        (fork_exec, "fork_exec: ['/bin/true']"),
        (partial(os.posix_spawn, "/bin/true", ["true"], {}), "os.posix_spawn: '/bin/true'"),
        (partial(os.spawnv, os.P_WAIT, "/bin/true", ["true"]), "os.fork"),
        (partial(os.execv, "/bin/true", ["true"]), "os.exec: '/bin/true'"),
    ],
)
def test_a_process_of_any_kind_is_refused(start: Callable[[], object], how: str) -> None:
    with offline("one", allow_processes=False) as violations, suppress(OfflineError):
        start()
    (violation,) = violations
    assert f"the target tried: child process ({how}) at {__file__}:" in violation
    assert violation.endswith("; set packbench_allow_processes = yes to allow it")


@pytest.fixture
def _no_helper_remains() -> Iterator[None]:
    """End the processes that multiprocessing keeps: other tests look for children."""
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # noqa: SLF001 - as above


@pytest.mark.usefixtures("_no_helper_remains")
def test_a_running_fork_server_starts_no_process_for_a_case() -> None:
    server = multiprocessing.get_context("forkserver")
    allowed = server.Process(target=os.getpid)
    with offline("one", allow_processes=True) as violations:
        allowed.start()
        allowed.join()
    assert (violations, allowed.exitcode) == ([], 0)
    with offline("two", allow_processes=False) as violations, suppress(OfflineError):
        start_process("forkserver")
    assert ["fork_exec: " in violation or "forkserver" in violation for violation in violations] == [True]


@pytest.mark.usefixtures("_no_helper_remains")
def test_the_helper_of_multiprocessing_for_locks_is_no_process_of_a_case() -> None:
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # noqa: SLF001 - as if no test before had needed it
    with offline("one", allow_processes=False) as violations:
        multiprocessing.get_context("spawn").Lock()
    assert violations == []


def test_the_processor_of_the_machine_may_be_looked_up() -> None:
    # the header x-stainless-os of some clients needs it at their first call
    processor: Any = platform._Processor  # type: ignore[attr-defined]  # noqa: SLF001 - as if nothing before had asked
    with offline("one", allow_processes=False) as violations:
        processor.from_subprocess()
        with suppress(OfflineError):
            subprocess.run(["uname", "-a"], check=False)
    assert ["'uname'" in violation for violation in violations] == [True]


def test_what_was_connected_before_or_reaches_no_network_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as opened:
        accepted, _ = server.accept()
        with accepted, offline("one", allow_processes=False) as violations:
            opened.send(b"connected before")
            assert accepted.recv(16) == b"connected before"
            with socket.socket() as listening:
                listening.listen()
            for pair in socket.socketpair():
                pair.close()
    assert violations == []


def test_a_case_may_reach_what_its_own_process_serves_and_nothing_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as served, socket.create_server(("127.0.0.1", 0)) as other:
        end = serve_address(*served.getsockname())
        with offline("one", allow_processes=False) as violations:
            with socket.create_connection(served.getsockname()) as connection:
                connection.sendmsg([b"question"])
            assert violations == []
            for address in (other.getsockname(), ("localhost", served.getsockname()[1])):
                with socket.socket() as opened, pytest.raises(OfflineError):
                    opened.connect(address)
            with pytest.raises(OfflineError):
                bind()
        end()
        with socket.socket() as opened, offline("two", allow_processes=False), pytest.raises(OfflineError):
            opened.connect(served.getsockname())


class Pretender(socket.socket):
    """A socket that says that it stays on this machine, and talks to what this process serves."""

    family = socket.AF_UNIX

    def getpeername(self) -> Any:
        return ("127.0.0.1", 1)

    getsockname = getpeername


class Anywhere(tuple[Any, ...]):
    __slots__ = ()

    def __getitem__(self, _: Any) -> Any:
        return ("127.0.0.1", 1)

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = tuple.__hash__


def test_a_socket_or_an_address_that_pretends_deceives_nobody() -> None:
    end = serve_address("127.0.0.1", 1)
    with socket.create_server(("127.0.0.1", 0)) as server, Pretender() as opened, Pretender() as before:
        before.connect(server.getsockname())
        acts: list[Callable[[], object]] = [
            lambda: opened.connect(server.getsockname()),
            lambda: opened.connect(Anywhere(server.getsockname())),
            lambda: opened.bind(("127.0.0.1", 0)),
            lambda: before.sendmsg([b"x"]),
        ]
        with offline("one", allow_processes=False) as violations:
            for act in acts:
                with suppress(OfflineError):
                    act()
    end()
    assert len(violations) == len(acts)


def test_a_finalizer_is_work_of_the_case_that_made_it() -> None:
    suite, kept = object(), [threading.Event(), threading.Event()]
    with offline("one", suite=suite, allow_processes=False) as first:
        finalizers = [weakref.finalize(each, try_to_connect) for each in kept]
    assert finalizers[0].peek() == (kept[0], try_to_connect, (), {})
    with offline("two", suite=suite, allow_processes=False) as second:
        finalizers[0]()
        del kept[:]
    assert (len(first), second) == (2, [])
    assert [case_id for case_id, _ in take_late(suite)] == ["one"]


def test_a_function_that_was_replaced_is_the_inherited_one_again() -> None:
    class Base:
        def say(self) -> str:
            return "one"

    class Own(Base):
        pass

    undo = replace(Own, "say", lambda before: lambda own: f"not {before(own)}")
    assert (Own().say(), Base().say()) == ("not one", "one")
    undo()
    assert (Own().say(), "say" in vars(Own)) == ("one", False)


Carrier = Callable[["Shared"], Callable[[], None]]
SEEDS = range(12)
STEPS = 40
WAIT_S = 30.0
CARRY = 0.6
NOBODY = "nobody"
# a sequence that can be repeated
RNG = random.Random


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


def gated(start: Callable[[Shared, Callable[[], None]], object]) -> Carrier:
    """A carrier that starts work which waits at its gate."""

    def carry(shared: Shared) -> Callable[[], None]:
        gate = Gate()
        start(shared, gate.run)
        return gate.open

    return carry


def emptied(carry: Carrier) -> Carrier:
    return lambda shared: Context().run(carry, shared)


def start_thread(_: Shared, run: Callable[[], None], name: str = "own") -> None:
    threading.Thread(target=run, name=name).start()


def start_thread_of_a_thread(_: Shared, run: Callable[[], None]) -> None:
    run_in_thread(lambda: threading.Thread(target=run).start())


def start_in_own_pool(_: Shared, run: Callable[[], None]) -> None:
    pool = ThreadPoolExecutor(1)
    pool.submit(run)
    pool.shutdown(wait=False)


def start_in_own_loop(_: Shared, run: Callable[[], None]) -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_task(asyncio.to_thread(run), context=Context())

    threading.Thread(target=lambda: asyncio.run(main())).start()


def old_pool(_: Shared) -> Callable[[], None]:
    gate, pool = Gate(), ThreadPool(1)
    pool.apply_async(gate.run)

    def run() -> None:
        gate.open()
        pool.terminate()

    return run


def loop_made_before(shared: Shared) -> Callable[[], None]:
    opened = asyncio.Event()
    future = asyncio.run_coroutine_threadsafe(waiting(opened), shared.loop)

    def run() -> None:
        shared.loop.call_soon_threadsafe(opened.set)
        future.result(WAIT_S)

    return run


async def waiting(opened: asyncio.Event, run: Callable[[], None] = work) -> None:
    await opened.wait()
    run()


STARTS: dict[str, Callable[[Shared, Callable[[], None]], object]] = {
    "thread": start_thread,
    "raw thread": lambda _, run: _thread.start_new_thread(run, ()),
    "shared pool": lambda shared, run: shared.pool.submit(run),
    "pool made before": lambda shared, run: shared.made_before.submit(run),
}
CARRIERS: dict[str, Carrier] = {
    **{name: gated(start) for name, start in STARTS.items()},
    # in a context without variables
    **{f"{name}, empty context": emptied(gated(start)) for name, start in STARTS.items()},
    "thread with a name of ours": gated(partial(start_thread, name="packbench-loop")),
    "timer": gated(lambda _, run: threading.Timer(0, run).start()),
    "thread of a thread": gated(start_thread_of_a_thread),
    "own pool": gated(start_in_own_pool),
    "own loop": gated(start_in_own_loop),
    "pool of multiprocessing": old_pool,
    "loop made before": loop_made_before,
}


def opening(awaitable: Callable[[asyncio.Event], Any]) -> Callable[[], Callable[[], Any]]:
    """A carrier on the event loop: what it creates waits for an event."""

    def carry() -> Callable[[], Any]:
        opened = asyncio.Event()
        created = awaitable(opened)

        async def run() -> None:
            opened.set()
            if asyncio.isfuture(inner := await created):
                await inner

        return run

    return carry


def task(opened: asyncio.Event, context: Context | None = None, run: Callable[[], None] = work) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(waiting(opened, run), context=context)


async def task_of_a_task(opened: asyncio.Event) -> asyncio.Task[None]:
    return task(opened, Context())


async def in_thread(opened: asyncio.Event, start: Callable[[Callable[[], None]], Any]) -> None:
    gate = Gate()
    working = asyncio.ensure_future(start(gate.run))
    await opened.wait()
    gate.opened.set()
    await working


def callback(opened: asyncio.Event) -> asyncio.Future[None]:
    done = asyncio.get_running_loop().create_future()

    def call() -> None:
        if opened.is_set():
            work()
            done.set_result(None)
        else:
            asyncio.get_running_loop().call_later(0.001, call)

    asyncio.get_running_loop().call_soon(call)
    return done


ASYNC_CARRIERS: dict[str, Callable[[], Callable[[], Any]]] = {
    "task": opening(task),
    "task, empty context": opening(lambda opened: task(opened, Context())),
    "task of a task, empty context": opening(lambda opened: asyncio.create_task(task_of_a_task(opened))),
    "task that empties its context": opening(lambda opened: task(opened, run=lambda: Context().run(work))),
    "executor of the loop": opening(
        lambda opened: asyncio.create_task(
            in_thread(opened, lambda run: asyncio.get_running_loop().run_in_executor(None, run))
        )
    ),
    "to_thread": opening(lambda opened: asyncio.create_task(in_thread(opened, asyncio.to_thread))),
    "callback": opening(callback),
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
    rng, expected, suite = RNG(seed), Expected(), object()
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
        await Turns(shared, RNG(seed)).run()

    # as the runner does: the main thread's own work is exempt
    with ThreadPoolExecutor(1) as loop_thread:
        loop_thread.submit(asyncio.run, main()).result()


def test_a_callback_of_no_task_and_no_context_may_be_of_each_running_case() -> None:
    async def case(name: str, *, calls: bool) -> list[str]:
        with offline(name, allow_processes=False, shares_thread=True) as violations:
            await asyncio.sleep(0)
            if calls:
                asyncio.get_running_loop().call_soon(work, context=Context())
            await asyncio.sleep(0.01)
        return violations

    async def both() -> list[list[str]]:
        return list(await asyncio.gather(case("one", calls=True), case("two", calls=False)))

    with ThreadPoolExecutor(1) as loop_thread:
        found = loop_thread.submit(asyncio.run, both()).result()
    assert ["which no case started, tried: connect" in line for lines in found for line in lines] == [True, True]
