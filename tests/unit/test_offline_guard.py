"""The offline guard: which network access and child processes are refused, and of which case."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import multiprocessing
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from multiprocessing import forkserver, resource_tracker
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine import targets
from pytest_packbench.engine.offline import OfflineError, offline, replace, serve_address, take_late

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


def test_a_thread_belongs_to_the_case_that_started_it() -> None:
    with offline("one", allow_processes=False) as first:
        run_in_thread(try_to_connect)
        with offline("two", allow_processes=False) as second:
            run_in_thread(try_to_connect)
    own = "fixture mode is offline, but the target tried: connect"
    messages = [f"case one: {own}", f"case two: {own}"]
    assert [text.startswith(message) for text, message in zip([*first, *second], messages, strict=True)] == [True] * 2


def test_a_thread_that_no_case_started_may_serve_each_running_one() -> None:
    begin, done = threading.Event(), threading.Event()

    def serve() -> None:
        begin.wait()
        try_to_connect()
        done.set()

    threading.Thread(target=serve, name="server").start()
    with offline("one", allow_processes=False) as first, offline("two", allow_processes=False) as second:
        begin.set()
        done.wait()
    outside = 'fixture mode is offline, but code on the thread "server", which no case started, tried: connect'
    messages = [f"case one: {outside}", f"case two: {outside}"]
    assert [text.startswith(message) for text, message in zip([*first, *second], messages, strict=True)] == [True] * 2
    # and may use the network while none runs
    run_in_thread(bind)


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


def test_without_code_of_the_target_on_the_stack_no_place_is_named() -> None:
    async def case() -> list[str]:
        with offline("one", allow_processes=False, shares_thread=True) as violations, suppress(OfflineError):
            await targets.run_in_thread(partial(socket.gethostbyname, "localhost"))
        return violations

    (violation,) = asyncio.run(case())
    assert "tried: look-up of 'localhost'; record its model calls" in violation


def test_a_call_in_the_waiting_thread_belongs_to_its_case() -> None:
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    async def case() -> list[str]:
        with offline("one", allow_processes=False, shares_thread=True) as violations:
            await targets.run_in_thread(lambda: Context().run(try_to_connect), start=calls.put)
        return violations

    with ThreadPoolExecutor(1) as loop_thread:
        result = loop_thread.submit(asyncio.run, case())
        # as with a debugger, which needs the main thread
        calls.get(timeout=30)()
    assert ["the target tried: connect" in violation for violation in result.result()] == [True]


def test_what_the_guard_does_not_see_is_as_documented() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as opened:
        accepted, _ = server.accept()
        with accepted, offline("one", allow_processes=False) as violations:
            opened.send(b"connected before")
            assert accepted.recv(16) == b"connected before"
            call_libc_connect(server.getsockname()[1])
            with socket.socket() as listening:
                listening.listen()
            for pair in socket.socketpair():
                pair.close()
    assert violations == []


def test_a_callback_of_the_collector_counts_for_the_case_that_runs_as_documented() -> None:
    seen: list[str] = []

    def flush(*_: object) -> None:
        try:
            connect()
        except OSError:
            seen.append("nobody's")
        except OfflineError as error:
            seen.append(str(error)[:8])

    with offline("one", allow_processes=False):
        gc.callbacks.append(flush)
    with offline("two", allow_processes=False) as violations:
        gc.collect()
    gc.collect()
    gc.callbacks.remove(flush)
    assert (set(seen), seen[0], seen[-1]) == ({"case two", "nobody's"}, "case two", "nobody's")
    assert len(violations) == seen.count("case two")


def call_libc_connect(port: int) -> None:
    address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton("127.0.0.1"))
    with socket.socket() as opened:
        assert ctypes.CDLL(None).connect(opened.fileno(), address, len(address)) == 0


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
