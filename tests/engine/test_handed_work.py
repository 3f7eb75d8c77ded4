"""Whose work a thread from before the case does: the case's that gave it something, however; else no case's."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.offline import (
    OfflineError,
    for_no_case,
    offline,
    own_work,
    serve_address,
    take_refused,
    watch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAIT_S = 30.0
watch()


def connect() -> None:
    # a lazy pipeline: what it does not get, it does without
    with suppress(OfflineError, OSError), socket.socket() as opened:
        opened.connect(("127.0.0.1", 9))


def start(target: Callable[[], object]) -> None:
    threading.Thread(target=target, daemon=True, name="from before").start()


def through_queue(made: Any) -> Callable[[], None]:
    def work() -> None:
        while True:
            done = made.get()[1]
            connect()
            done.set()

    start(work)

    def use() -> None:
        done = threading.Event()
        made.put((0, done))
        assert done.wait(WAIT_S)

    return use


def through_timed_queue() -> Callable[[], None]:
    jobs: queue.Queue[threading.Event] = queue.Queue()

    def work() -> None:
        while True:
            with suppress(queue.Empty):
                done = jobs.get(timeout=0.01)
                connect()
                done.set()

    start(work)

    def use() -> None:
        done = threading.Event()
        jobs.put(done)
        assert done.wait(WAIT_S)

    return use


def through_event() -> Callable[[], None]:
    wanted, done, jobs = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        wanted.wait()
        jobs.pop()
        connect()
        done.set()

    start(work)

    def use() -> None:
        jobs.append("question")
        wanted.set()
        assert done.wait(WAIT_S)

    return use


def through_condition() -> Callable[[], None]:
    condition, state = threading.Condition(), {"wanted": False, "done": False}

    def work() -> None:
        with condition:
            condition.wait_for(lambda: state["wanted"])
            connect()
            state["done"] = True
            condition.notify_all()

    start(work)

    def use() -> None:
        with condition:
            state["wanted"] = True
            condition.notify()
            assert condition.wait_for(lambda: state["done"], WAIT_S)

    return use


def through_semaphore() -> Callable[[], None]:
    wanted, done = threading.Semaphore(0), threading.Semaphore(0)

    def work() -> None:
        wanted.acquire()
        connect()
        done.release()

    start(work)

    def use() -> None:
        wanted.release()
        assert done.acquire(timeout=WAIT_S)

    return use


def through_dispatcher() -> Callable[[], None]:
    jobs, passed = queue.Queue[threading.Event](), queue.SimpleQueue[Any]()
    through_queue(passed)

    def dispatch() -> None:
        while True:
            passed.put((0, jobs.get()))

    start(dispatch)

    def ask() -> None:
        done = threading.Event()
        jobs.put(done)
        assert done.wait(WAIT_S)

    return ask


def through_pool() -> Callable[[], None]:
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()
    return lambda: pool.submit(connect).result(WAIT_S)


def through_old_pool() -> Callable[[], None]:
    pool = ThreadPool(1)
    pool.apply(int)

    def use() -> None:
        pool.apply_async(connect).get(WAIT_S)
        pool.terminate()

    return use


def through_loop(*, in_thread: bool = False) -> Callable[[], None]:
    """An event loop of the module, with a task that takes work from its queue."""
    loop, jobs = asyncio.new_event_loop(), asyncio.Queue[threading.Event]()

    async def work() -> None:
        while True:
            done = await jobs.get()
            if in_thread:
                await asyncio.to_thread(connect)
            else:
                connect()
            done.set()

    def serve() -> None:
        loop.create_task(work())
        loop.run_forever()

    start(serve)

    def use() -> None:
        done = threading.Event()
        loop.call_soon_threadsafe(jobs.put_nowait, done)
        assert done.wait(WAIT_S)

    return use


WAYS: dict[str, Callable[[], Callable[[], None]]] = {
    "queue": lambda: through_queue(queue.Queue()),
    "queue by priority": lambda: through_queue(queue.PriorityQueue()),
    "simple queue": lambda: through_queue(queue.SimpleQueue()),
    "queue with a time limit": through_timed_queue,
    "event": through_event,
    "condition": through_condition,
    "semaphore": through_semaphore,
    "thread that passes it on": through_dispatcher,
    "pool": through_pool,
    "pool of multiprocessing": through_old_pool,
    "event loop": through_loop,
    "thread of an event loop": lambda: through_loop(in_thread=True),
}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    take_refused()


@pytest.mark.parametrize("way", WAYS)
def test_what_a_case_gives_to_a_thread_from_before_is_its_violation_or_its_connection(way: str) -> None:
    use = WAYS[way]()
    with offline("one", allow_processes=False) as violations:
        use()
    assert ["connect to ('127.0.0.1', 9)" in line for line in violations] == [True]
    assert take_refused() == []
    unseen: dict[str, tuple[int, str]] = {}
    use = WAYS[way]()
    with offline("two", allow_processes=True, unseen=unseen) as violations:
        use()
    assert violations == []
    ((goal, (count, place)),) = unseen.items()
    assert (goal, count, place.startswith(__file__)) == ("127.0.0.1:9", 1, True)


def test_what_nobody_gave_is_refused_and_no_violation() -> None:
    jobs: queue.Queue[str] = queue.Queue()
    tried, go_on, entered = threading.Event(), threading.Event(), list[bool]()

    def report() -> None:
        # a queue that the case does not use, and a clock
        for _ in range(3):
            with suppress(queue.Empty):
                jobs.get(timeout=0.01)
            connect()
        tried.set()
        go_on.wait(WAIT_S)

    def when_entered() -> None:
        while not entered:
            threading.Event().wait(0.005)
        report()

    start(when_entered)
    with offline("one", allow_processes=False) as violations:
        entered.append(True)
        assert tried.wait(WAIT_S)
        # its own work is a violation as before
        connect()
    go_on.set()
    assert len(violations) == 1
    (line,) = take_refused()
    assert line.startswith("3 x the thread \"from before\" (tests) tried: connect to ('127.0.0.1', 9) at ")
    assert take_refused() == []


def library_work(module: str, call: Callable[[], None] = connect) -> Callable[[], None]:
    """A function as a library has it."""

    def run() -> None:
        call()

    run.__module__ = module
    return run


def finished(thread: threading.Thread) -> None:
    thread.start()
    thread.join(WAIT_S)


TRACERS = ["langsmith._internal._background_thread", "opentelemetry.sdk.trace.export", "sentry_sdk.worker"]


@pytest.mark.parametrize("module", TRACERS)
def test_the_thread_of_a_tracer_is_no_case_s_even_if_a_case_starts_it(module: str) -> None:
    unseen: dict[str, tuple[int, str]] = {}
    with offline("one", allow_processes=False) as violations:
        finished(threading.Thread(target=library_work(module), name="reports"))
        # and what it has done by a pool
        finished(threading.Thread(target=library_work(module, through_pool()), name="reports"))
    assert violations == []
    assert f'the thread "reports" ({module.partition(".")[0]}) tried' in take_refused()[0]
    with offline("two", allow_processes=True, unseen=unseen):
        finished(threading.Thread(target=library_work(module)))
    assert unseen == {}


def test_what_the_case_asks_a_tracer_s_library_itself_is_its_own() -> None:
    # such as a prompt that the pipeline uses
    with offline("one", allow_processes=False) as violations:
        library_work("langfuse.api")()
        finished(threading.Thread(target=library_work("acme_metrics.sender")))
    assert len(violations) == 2


def test_a_recorded_case_leads_where_its_name_was_looked_up_and_what_is_not_needed_is_left_out() -> None:
    unseen: dict[str, tuple[int, str]] = {}
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as served:
        port, end = one.getsockname()[1], serve_address(*served.getsockname())
        with offline("one", allow_processes=True, unseen=unseen, unneeded=["127.0.0.1:9"]):
            for _ in range(3):
                socket.create_connection(("localhost", port)).close()
            socket.create_connection(served.getsockname()).close()
            connect()
            with for_no_case():
                socket.create_connection(("localhost", port)).close()
            with own_work():
                socket.create_connection(("localhost", port)).close()
        end()
    ((goal, (count, _)),) = unseen.items()
    assert (goal, count) == (f"localhost:{port}", 3)


def test_what_a_case_does_without_is_refused_and_no_violation() -> None:
    with offline("one", allow_processes=False, unneeded=["127.0.0.1:9", "db.example.test:5432"]) as violations:
        with socket.socket() as opened, pytest.raises(OfflineError):
            opened.connect(("127.0.0.1", 9))
        with pytest.raises(OfflineError):
            socket.getaddrinfo("db.example.test", 5432)
        assert violations == []
        for host, port in (("db.example.test", 5433), ("other.example.test", 5432)):
            with pytest.raises(OfflineError):
                socket.getaddrinfo(host, port)
    assert len(violations) == 2


EXPORTER = "def export(call):\n    call()\n"
CLIENT = """
import socket


def send():
    with socket.socket() as opened:
        opened.connect(("127.0.0.1", 9))
"""


def loaded(file: Path, code: str, name: str) -> Any:
    """A function of a library at another place."""
    found: dict[str, Any] = {}
    exec(compile(code, str(file), "exec"), found)  # noqa: S102 - a module without a file
    return found[name]


def test_an_exporter_that_sends_on_the_thread_of_the_case_is_no_case_s(tmp_path: Path) -> None:
    export = loaded(tmp_path / "opentelemetry/exporter/otlp/trace.py", EXPORTER, "export")
    send = loaded(tmp_path / "site-packages/http_client.py", CLIENT, "send")
    with offline("one", allow_processes=False) as violations:
        with suppress(OfflineError):
            export(send)
        assert violations == []
        with suppress(OfflineError):
            send()
    assert len(violations) == 1


def test_work_of_nobody_on_a_thread_that_a_case_started_is_that_of_the_case_that_lets_it_go_on() -> None:
    opened = threading.Event()

    def waiting() -> None:
        opened.wait(60)
        with suppress(OfflineError):
            socket.create_connection(("127.0.0.1", 9))

    with ThreadPoolExecutor(1) as pool:
        with offline("first", allow_processes=False) as before:
            pool.submit(int).result()
        work = pool.submit(waiting)
        with offline("second", allow_processes=False) as violations:
            opened.set()
            work.result(60)
    assert before == []
    (line,) = violations
    assert "which no case started," in line
