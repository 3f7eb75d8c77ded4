"""A result, or an exception, that has methods of its own is read while its case runs: under the guard and the limit."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.attempt import attempt
from pytest_packbench.model.request import AnswerError
from pytest_packbench.model.run import RunOptions
from tests.engine.attempts import RunnerContext, case, context, job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.engine.attempt import AttemptState


def connect() -> None:
    with socket.socket() as opened:
        opened.connect(("127.0.0.1", 9))


class Lazy(dict[str, Any]):
    """Reads itself when it is read."""

    def __init__(self, read: Callable[[], object], **values: Any) -> None:
        super().__init__(values)
        self.read = read

    def items(self) -> Any:
        self.read()
        return super().items()


class LazyList(list[Any]):
    def __iter__(self) -> Any:
        connect()
        return super().__iter__()

    def __len__(self) -> int:
        connect()
        return super().__len__()


class LazyError(Exception):
    def __str__(self) -> str:
        connect()
        return "gone"


class LazyAnswerError(AnswerError):
    def __str__(self) -> str:
        with suppress(Exception):
            connect()
        return "gone"


def quiet() -> None:
    with suppress(Exception):
        connect()


RESULTS: dict[str, Callable[[], Any]] = {
    "a dict": lambda: Lazy(connect, points=1.0),
    "a dict that ignores the exception": lambda: Lazy(quiet, points=1.0),
    "a dict in a list in a dict": lambda: {"points": 1.0, "more": [1, {"deep": [Lazy(connect, a=1)]}]},
    "a list": lambda: {"points": 1.0, "list": LazyList([1, 2])},
    "a dict on a thread of its own": lambda: Lazy(in_thread, points=1.0),
    "an exception": LazyError,
    "an exception in a group": lambda: ExceptionGroup(
        "both", [LazyAnswerError("answer_unreadable", "x"), ValueError("y")]
    ),
    "an unreadable answer": lambda: LazyAnswerError("answer_unreadable", "x"),
}
WAYS = ("alone", "sync beside others", "async beside others", "awaitable beside others", "async alone")


def in_thread() -> None:
    thread = threading.Thread(target=quiet)
    thread.start()
    thread.join()


def target_of(result: Callable[[], Any], way: str) -> Callable[[object], Any]:
    def call(_: object) -> Any:
        value = result()
        if isinstance(value, Exception):
            raise value
        return value

    async def call_async(request: object) -> Any:
        return call(request)

    def call_later(request: object) -> Any:
        return call_async(request)

    return {"async": call_async, "awaitable": call_later}.get(way.split(maxsplit=1)[0], call)


def attempted(folder: Path, way: str, result: Callable[[], Any], limit_s: float | None = None) -> AttemptState:
    prepared = context(folder, target_of(result, way), mode="fixture")
    if way.endswith("alone"):
        options = RunOptions(mode="fixture", case_timeout_s=limit_s)
        with closing(prepared.caller):
            return attempt(replace(prepared, options=options), case())
    with RunnerContext(limit_s=limit_s or 60.0) as runner:
        return runner.attempt(job(prepared))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("result", RESULTS)
def test_what_connects_when_it_is_read_is_an_error_of_its_case(tmp_path: Path, result: str, way: str) -> None:
    finished = attempted(tmp_path, way, RESULTS[result])
    assert finished.failure is not None
    assert finished.failure.kind == "offline"
    assert finished.failure.message.startswith("case a: fixture mode is offline, but the target tried: connect to")
    assert f"at {__file__}:" in finished.failure.message


@pytest.mark.parametrize("way", WAYS)
def test_only_plain_json_outlives_the_case(tmp_path: Path, way: str) -> None:
    finished = attempted(tmp_path, way, lambda: {"points": 1.0, "more": Lazy(int, a=(1, Lazy(int, b=2)))})
    assert finished.failure is None
    assert finished.payload == {"points": 1.0, "more": {"a": [1, {"b": 2}]}}
    assert [type(finished.payload["more"]), type(finished.payload["more"]["a"][1])] == [dict, dict]


# what is awaited is read on the event loop, which a target may block
@pytest.mark.parametrize("way", ["alone", "sync beside others", "async alone"])
def test_what_hangs_when_it_is_read_is_over_with_the_time_of_its_case(tmp_path: Path, way: str) -> None:
    finished = attempted(tmp_path, way, lambda: Lazy(threading.Event().wait, points=1.0), limit_s=0.2)
    assert finished.failure is not None
    assert (finished.failure.kind, finished.payload) == ("timeout", None)


def test_live_mode_reads_a_result_as_it_is(tmp_path: Path) -> None:
    read: list[str] = []
    target = target_of(lambda: Lazy(lambda: read.append("read"), points=1.0), "alone")
    with RunnerContext() as runner:
        finished = runner.attempt(job(context(tmp_path, target)))
    assert (finished.failure, finished.payload, read) == (None, {"points": 1.0}, ["read"])
