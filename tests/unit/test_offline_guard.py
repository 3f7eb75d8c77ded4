"""Whose network and processes are refused: those of the case, of its threads and tasks, also after its end."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from contextvars import copy_context

import pytest

from pytest_packbench.engine.offline import OfflineError, offline


def connect() -> None:
    with socket.socket() as opened:
        opened.connect(("127.0.0.1", 9))


def test_a_case_is_refused_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    with offline("one", allow_processes=False) as violations:
        with pytest.raises(OfflineError, match="case one: fixture mode is offline"):
            connect()
        with pytest.raises(OfflineError):
            socket.getaddrinfo("localhost", 80)
        with pytest.raises(OfflineError):
            subprocess.run([sys.executable, "-V"], check=False)
    assert [("connect" in violations[0]), ("look-up" in violations[1]), ("child process" in violations[2])] == [
        True
    ] * 3


def test_processes_may_be_allowed_and_unix_sockets_are() -> None:
    with offline("one", allow_processes=True) as violations:
        subprocess.run([sys.executable, "-V"], check=True, capture_output=True)
        for end in socket.socketpair():
            end.close()
    assert not violations


def test_outside_a_case_nothing_is_refused() -> None:
    with offline("one", allow_processes=False):
        pass
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))


def test_a_thread_of_a_case_stays_offline_when_the_case_is_over() -> None:
    go = threading.Event()
    raised: list[BaseException] = []

    def late() -> None:
        go.wait()
        try:
            connect()
        except OfflineError as error:
            raised.append(error)

    with offline("one", allow_processes=False):
        thread = threading.Thread(target=copy_context().run, args=(late,))
        thread.start()
    go.set()
    thread.join()
    assert len(raised) == 1


def test_a_thread_that_knows_no_case_is_refused_while_one_runs() -> None:
    raised: list[BaseException] = []

    def beside() -> None:
        try:
            connect()
        except OfflineError as error:
            raised.append(error)

    with offline("one", allow_processes=False) as violations:
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
    assert len(raised) == len(violations) == 1


def test_a_thread_that_knows_no_case_is_told_of_to_all_that_run() -> None:
    def beside() -> None:
        with pytest.raises(OfflineError):
            connect()

    with (
        offline("one", allow_processes=False) as first,
        offline("two", allow_processes=False) as second,
    ):
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
    told = "fixture mode is offline, but one of the running cases tried: connect"
    assert [len(first), len(second)] == [1, 1]
    assert first[0].startswith(f"case one: {told}")
    assert second[0].startswith(f"case two: {told}")


def test_cases_of_one_name_side_by_side_are_two() -> None:
    async def case(*, bad: bool, first: asyncio.Event, second: asyncio.Event) -> list[str]:
        with offline("same", allow_processes=False) as violations:
            first.set()
            await second.wait()
            if bad:
                with pytest.raises(OfflineError):
                    connect()
        return violations

    async def both() -> list[list[str]]:
        one, two = asyncio.Event(), asyncio.Event()
        return list(await asyncio.gather(case(bad=True, first=one, second=two), case(bad=False, first=two, second=one)))

    assert [len(found) for found in asyncio.run(both())] == [1, 0]


def test_a_case_that_is_let_go_of_elsewhere_ends_quietly() -> None:
    async def case() -> None:
        with offline("one", allow_processes=False):
            await asyncio.sleep(0)

    coroutine = case()
    copy_context().run(coroutine.send, None)
    # as garbage collection does with a task that was abandoned
    coroutine.close()
    with offline("two", allow_processes=False), pytest.raises(OfflineError, match="case two"):
        connect()
