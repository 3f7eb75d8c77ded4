"""What cases print and log side by side is kept apart, also while somebody else changes the streams."""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.engine.output import CapturedOutput, StreamRouter, capturing_context, is_outside_cases

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stream_outcome() -> Iterator[StreamRouter]:
    made = StreamRouter()
    made.start()
    yield made
    made.stop()


def test_each_block_keeps_its_own(stream_outcome: StreamRouter, capsys: pytest.CaptureFixture[str]) -> None:
    # the fixture for captured output has put its own streams in place by now, and they are routed
    print("before")  # noqa: T201 - printing is what is tried
    one, two = CapturedOutput(), CapturedOutput()

    def say() -> None:
        print("one")  # noqa: T201 - printing is what is tried
        print("wrong", file=sys.stderr)  # noqa: T201 - printing is what is tried
        logging.getLogger("x").warning("logged")

    capturing_context(one).run(say)
    capturing_context(two).run(lambda: sys.stdout.writelines(["t", "wo"]))
    assert [name for name, _ in one.sections()] == ["stdout", "stderr", "log"]
    assert dict(one.sections())["stdout"] == "one\n"
    assert "logged" in dict(one.sections())["log"]
    assert two.sections() == [("stdout", "two")]
    assert capsys.readouterr() == ("before\n", "")


def test_nothing_slips_while_streams_are_changed(stream_outcome: StreamRouter) -> None:
    plain = [io.StringIO(), io.StringIO()]
    stop = threading.Event()
    output = CapturedOutput()

    def printing() -> None:
        while not stop.is_set():
            print("x", end="")  # noqa: T201 - printing is what is tried

    thread = threading.Thread(target=capturing_context(output).run, args=(printing,))
    before = sys.stdout
    try:
        thread.start()
        for turn in range(2000):
            sys.stdout = plain[turn % 2]
    finally:
        stop.set()
        thread.join()
        sys.stdout = before
    assert [one.getvalue() for one in plain] == ["", ""]
    assert set("".join(output.out)) == {"x"}


# a case whose print is under way while somebody else changes streams
PRINTING = """
import io, sys
from contextvars import Context
from pytest_packbench.engine.output import CapturedOutput, StreamRouter, capturing_context

class Slow:
    def __str__(self):
        other.run(change)
        return "slow"

def begin():
    global old
    old, sys.stdout = sys.stdout, io.StringIO()

def change():
    sys.stdout = CHANGED
    junk = [bytearray(size % 200) for size in range(100_000)]

other = OTHER
streams, output = StreamRouter(), CapturedOutput()
streams.start()
for _ in range(20):
    other.run(begin)
    capturing_context(output).run(print, Slow(), "and", "more")
streams.stop()
sys.exit(0 if "".join(output.out) == "slow and more\\n" * 20 else "something slipped")
"""


@pytest.mark.parametrize(
    ("other", "changed"),
    [("Context()", "io.StringIO()"), ("capturing_context(CapturedOutput())", "old")],
    ids=["who captures output", "a case that redirects its own"],
)
def test_a_stream_that_is_printed_to_stays_while_others_take_its_place(other: str, changed: str) -> None:
    script = PRINTING.replace("OTHER", other).replace("CHANGED", changed)
    found = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_stream_that_comes_back_is_routed_as_before(stream_outcome: StreamRouter) -> None:
    before, one = sys.stdout, io.StringIO()
    try:
        sys.stdout = one
        routed = vars(sys)["stdout"]
        sys.stdout = before
        sys.stdout = one
        assert vars(sys)["stdout"] is routed
        assert routed is not one
    finally:
        sys.stdout = before


def test_streams_that_never_come_back_are_let_go(stream_outcome: StreamRouter) -> None:
    before = sys.stdout
    try:
        sys.stdout = io.StringIO()
        gone = weakref.ref(sys.stdout)
        for _ in range(2000):
            sys.stdout = io.StringIO()
            assert sys.stdout.write("") == 0
    finally:
        sys.stdout = before
    assert gone() is None


def test_what_a_case_itself_redirects_is_its_own_affair(stream_outcome: StreamRouter) -> None:
    own, output = io.StringIO(), CapturedOutput()

    def say() -> None:
        with contextlib.redirect_stdout(own):
            print("caught")  # noqa: T201 - printing is what is tried
        print("kept")  # noqa: T201 - printing is what is tried

    capturing_context(output).run(say)
    assert own.getvalue() == "caught\n"
    assert output.sections() == [("stdout", "kept\n")]


def test_cases_that_redirect_at_once_undo_nothing_of_each_other(stream_outcome: StreamRouter) -> None:
    before = sys.stdout
    buffers, outputs = [io.StringIO(), io.StringIO()], [CapturedOutput(), CapturedOutput()]
    one, two = map(capturing_context, outputs)
    first, second = map(contextlib.redirect_stdout, buffers)
    one.run(first.__enter__)
    two.run(second.__enter__)
    assert two.run(lambda: sys.stdout) is buffers[1]
    one.run(print, "first")
    two.run(print, "second")
    # it ends before the one that began after it
    one.run(first.__exit__, None, None, None)
    one.run(print, "after")
    two.run(print, "more")
    two.run(second.__exit__, None, None, None)
    assert [buffer.getvalue() for buffer in buffers] == ["first\n", "second\nmore\n"]
    assert [output.sections() for output in outputs] == [[("stdout", "after\n")], []]
    assert sys.stdout is before


def test_a_case_may_have_no_stream_at_all(stream_outcome: StreamRouter) -> None:
    output = CapturedOutput()

    def say() -> None:
        sys.stdout = None
        print("nowhere", flush=True)  # noqa: T201 - printing is what is tried
        assert sys.stdout is None

    capturing_context(output).run(say)
    assert output.sections() == []
    assert sys.stdout is not None


def test_outside_cases_a_stream_is_what_was_put_there(
    stream_outcome: StreamRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = io.StringIO()
    monkeypatch.setattr(sys, "stdout", mine)
    print("mine")  # noqa: T201 - printing is what is tried
    assert sys.stdout is mine
    assert mine.getvalue() == "mine\n"
    monkeypatch.delattr(sys, "stdout")
    assert not hasattr(sys, "stdout")


def test_a_case_sees_a_text_stream_of_the_processes_kind(
    stream_outcome: StreamRouter, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, output = sys.stdout, CapturedOutput()

    def look() -> None:
        assert sys.stdout.buffer is plain.buffer
        assert isinstance(sys.stdout, io.TextIOBase)
        assert (sys.stdout.encoding, sys.stdout.errors) == (plain.encoding, plain.errors)
        assert (sys.stdout.isatty(), sys.stdout.writable(), sys.stdout.closed) == (False, True, False)
        sys.stdout.flush()
        with pytest.raises(TypeError, match="must be str, not bytes"):
            sys.stdout.write(b"bytes")  # type: ignore[arg-type]  # what is tried
        with sys.stdout:
            print("said")  # noqa: T201 - printing is what is tried

    capturing_context(output).run(look)
    assert output.sections() == [("stdout", "said\n")]
    # a case closes nothing that is everybody's
    print("open")  # noqa: T201 - printing is what is tried
    assert capsys.readouterr().out == "open\n"


def test_half_of_a_surrogate_pair_is_replaced() -> None:
    output = CapturedOutput()
    output.add("out", "model says \ud83d")
    output.add("log", "logs \udfff")
    assert output.sections() == [("stdout", "model says ?"), ("log", "logs ?")]


def test_a_debugger_that_kept_a_stream_gets_the_real_one(
    stream_outcome: StreamRouter, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, output = vars(sys)["stdout"], CapturedOutput()

    def debug() -> None:
        stream_outcome.stop()
        kept.write("(Pdb) ")

    capturing_context(output).run(debug)
    assert output.sections() == []
    assert capsys.readouterr().out == "(Pdb) "


def test_the_streams_are_given_back() -> None:
    before, kind = sys.stdout, type(sys)
    made = StreamRouter()
    made.start()
    assert vars(sys)["stdout"] is not before
    made.stop()
    made.stop()
    assert sys.stdout is before
    assert type(sys) is kind


def test_a_flood_is_cut() -> None:
    output = CapturedOutput()
    for _ in range(30):
        output.add("out", "x" * 100_000)
    assert len(dict(output.sections())["stdout"]) == 1_000_000


def test_records_of_cases_are_told_from_others() -> None:
    record = logging.makeLogRecord({})
    assert is_outside_cases(record)
    assert not capturing_context(CapturedOutput()).run(is_outside_cases, record)
