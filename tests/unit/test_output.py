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

from pytest_packbench.engine.output import Output, Streams, collected_in, outside_cases

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def streams() -> Iterator[Streams]:
    made = Streams()
    made.start()
    yield made
    made.stop()


def test_each_block_keeps_its_own(streams: Streams, capsys: pytest.CaptureFixture[str]) -> None:
    # the fixture for captured output has put its own streams in place by now, and they are routed
    print("before")  # noqa: T201 - printing is what is tried
    one, two = Output(), Output()

    def say() -> None:
        print("one")  # noqa: T201 - printing is what is tried
        print("wrong", file=sys.stderr)  # noqa: T201 - printing is what is tried
        logging.getLogger("x").warning("logged")

    collected_in(one).run(say)
    collected_in(two).run(lambda: sys.stdout.writelines(["t", "wo"]))
    assert [name for name, _ in one.sections()] == ["stdout", "stderr", "log"]
    assert dict(one.sections())["stdout"] == "one\n"
    assert "logged" in dict(one.sections())["log"]
    assert two.sections() == [("stdout", "two")]
    assert capsys.readouterr() == ("before\n", "")


def test_nothing_slips_while_streams_are_changed(streams: Streams) -> None:
    plain = [io.StringIO(), io.StringIO()]
    stop = threading.Event()
    output = Output()

    def printing() -> None:
        while not stop.is_set():
            print("x", end="")  # noqa: T201 - printing is what is tried

    thread = threading.Thread(target=collected_in(output).run, args=(printing,))
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


# a case whose print is under way while somebody who captures output changes streams
PRINTING = """
import io, sys
from contextvars import Context
from pytest_packbench.engine.output import Output, Streams, collected_in

class Slow:
    def __str__(self):
        outside.run(change)
        return "slow"

def change():
    sys.stdout = io.StringIO()
    junk = [bytearray(size % 200) for size in range(100_000)]

outside = Context()
streams, output = Streams(), Output()
streams.start()
for _ in range(20):
    collected_in(output).run(print, Slow(), "and", "more")
streams.stop()
sys.exit(0 if "".join(output.out) == "slow and more\\n" * 20 else "something slipped")
"""


def test_a_stream_that_is_printed_to_stays_while_others_take_its_place() -> None:
    found = subprocess.run([sys.executable, "-c", PRINTING], check=False, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_stream_that_comes_back_is_routed_as_before(streams: Streams) -> None:
    before, one = sys.stdout, io.StringIO()
    try:
        sys.stdout = one
        routed = sys.stdout
        sys.stdout = before
        sys.stdout = one
        assert sys.stdout is routed
        assert sys.stdout is not one
    finally:
        sys.stdout = before


def test_streams_that_never_come_back_are_let_go(streams: Streams) -> None:
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


def test_what_a_case_itself_redirects_is_its_own_affair(streams: Streams) -> None:
    own, output = io.StringIO(), Output()

    def say() -> None:
        with contextlib.redirect_stdout(own):
            print("caught")  # noqa: T201 - printing is what is tried
        print("kept")  # noqa: T201 - printing is what is tried

    collected_in(output).run(say)
    assert own.getvalue() == "caught\n"
    assert output.sections() == [("stdout", "kept\n")]


def test_a_debugger_that_kept_a_stream_gets_the_real_one(streams: Streams, capsys: pytest.CaptureFixture[str]) -> None:
    kept, output = sys.stdout, Output()

    def debug() -> None:
        streams.stop()
        kept.write("(Pdb) ")

    collected_in(output).run(debug)
    assert output.sections() == []
    assert capsys.readouterr().out == "(Pdb) "


def test_the_streams_are_given_back() -> None:
    before, kind = sys.stdout, type(sys)
    made = Streams()
    made.start()
    assert sys.stdout is not before
    made.stop()
    made.stop()
    assert sys.stdout is before
    assert type(sys) is kind


def test_a_flood_is_cut() -> None:
    output = Output()
    for _ in range(30):
        output.add("out", "x" * 100_000)
    assert len(dict(output.sections())["stdout"]) == 1_000_000


def test_records_of_cases_are_told_from_others() -> None:
    record = logging.makeLogRecord({})
    assert outside_cases(record)
    assert not collected_in(Output()).run(outside_cases, record)
