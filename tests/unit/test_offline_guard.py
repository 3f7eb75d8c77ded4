"""The offline guard: which network access and child processes are refused, and of which case."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.engine.offline import OfflineError, offline

if TYPE_CHECKING:
    from collections.abc import Callable


def connect() -> None:
    with socket.socket() as opened:
        opened.connect(("127.0.0.1", 9))


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


def test_access_by_a_thread_is_a_violation_of_its_case_and_else_of_each_running_one() -> None:
    with offline("one", allow_processes=False) as first:
        context = copy_context()
        run_in_thread(try_to_connect)
        with offline("two", allow_processes=False) as second:
            run_in_thread(try_to_connect)
    # a thread of a case stays offline after its end
    run_in_thread(lambda: context.run(try_to_connect))
    own = "fixture mode is offline, but the target tried: connect"
    unknown = "fixture mode is offline, but one of the running cases tried: connect"
    messages = [f"case one: {own}", f"case one: {unknown}", f"case one: {own}", f"case two: {unknown}"]
    assert [text.startswith(message) for text, message in zip([*first, *second], messages, strict=True)] == [True] * 4


def test_two_concurrent_cases_with_the_same_name_are_told_apart() -> None:
    async def case(*, connects: bool, started: asyncio.Event, other: asyncio.Event) -> int:
        with offline("same", allow_processes=False) as violations:
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
        with offline("one", allow_processes=False):
            await asyncio.sleep(0)

    coroutine = case()
    copy_context().run(coroutine.send, None)
    # as garbage collection does with an abandoned task
    coroutine.close()
    with offline("two", allow_processes=False), pytest.raises(OfflineError, match="case two"):
        connect()
