"""What concurrent cases print and log is captured for each alone, also while others replace the streams."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import subprocess
import sys
import weakref
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.engine.scheduler import CapturedOutput, StreamRouter, capturing_context, is_outside_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def router() -> Iterator[StreamRouter]:
    router = StreamRouter()
    router.start()
    before = sys.stdout
    yield router
    sys.stdout = before
    router.stop()


def say(text: str, **options: bool) -> None:
    print(text, **options)  # type: ignore[call-overload]  # noqa: T201  # print itself is what is tested


def captured(case: Callable[[], object]) -> list[tuple[str, str]]:
    """Run a case and return its output by section."""
    output = CapturedOutput()
    capturing_context(output).run(case)
    return output.sections()


def test_each_case_has_its_own_output(capsys: Capsys) -> None:
    # the fixture for captured output has replaced the streams by now, and they are routed
    say("before")
    record = logging.makeLogRecord({})

    def case() -> None:
        assert not is_outside_cases(record)
        say("one")
        sys.stderr.write("wrong\n")
        logging.getLogger("x").warning("logged")

    (*printed, (name, log)) = captured(case)
    assert (printed, name) == ([("stdout", "one\n"), ("stderr", "wrong\n")], "log")
    assert re.fullmatch(r"WARNING  x:test_output\.py:\d+ logged", log)
    assert captured(lambda: sys.stdout.writelines(["t", "wo"])) == [("stdout", "two")]
    assert is_outside_cases(record)
    assert capsys.readouterr() == ("before\n", "")


# a case whose print is under way while somebody else replaces streams; what is freed too early crashes the process
PRINTING = """
import io, sys
from contextvars import Context
from pytest_packbench.engine.scheduler import CapturedOutput, StreamRouter, capturing_context

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
sys.exit(0 if "".join(output.out) == "slow and more\\n" * 20 else "something got lost")
"""


@pytest.mark.parametrize(
    ("other", "changed"), [("Context()", "io.StringIO()"), ("capturing_context(CapturedOutput())", "old")]
)
def test_a_stream_that_is_printed_to_stays_while_a_capture_or_a_case_replaces_it(other: str, changed: str) -> None:
    script = PRINTING.replace("OTHER", other).replace("CHANGED", changed)
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stream_that_comes_back_is_routed_as_before_and_others_are_freed() -> None:
    before, stream = sys.stdout, io.StringIO()
    sys.stdout = stream
    routed = vars(sys)["stdout"]
    sys.stdout = before
    sys.stdout = stream
    assert vars(sys)["stdout"] is routed is not stream
    sys.stdout = io.StringIO()
    first = weakref.ref(sys.stdout)
    for _ in range(2000):
        sys.stdout = io.StringIO()
    assert first() is None


def test_cases_that_redirect_at_once_do_not_disturb_each_other() -> None:
    before, buffers, outputs = sys.stdout, [io.StringIO(), io.StringIO()], [CapturedOutput(), CapturedOutput()]
    one, two = map(capturing_context, outputs)
    first, second = map(contextlib.redirect_stdout, buffers)
    one.run(first.__enter__)
    two.run(second.__enter__)
    assert two.run(lambda: sys.stdout) is buffers[1]
    # the first ends before the one that began after it
    for step in (lambda: say("first"), lambda: first.__exit__(None, None, None), lambda: say("after")):
        one.run(step)
    two.run(say, "second")
    two.run(second.__exit__, None, None, None)
    assert [buffer.getvalue() for buffer in buffers] == ["first\n", "second\n"]
    assert [output.sections() for output in outputs] == [[("stdout", "after\n")], []]
    assert sys.stdout is before


def test_a_stream_may_be_none_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def case() -> None:
        sys.stdout = None
        say("nowhere", flush=True)
        assert sys.stdout is None

    assert (captured(case), sys.stdout is None) == ([], False)
    monkeypatch.delattr(sys, "stdout")
    assert not hasattr(sys, "stdout")


def test_a_case_has_a_text_stream_like_that_of_the_process(capsys: Capsys) -> None:
    plain, buffer = sys.stdout, io.BytesIO()
    redirected = io.TextIOWrapper(buffer)

    def case() -> None:
        assert sys.stdout.buffer is plain.buffer
        assert isinstance(sys.stdout, io.TextIOBase)
        assert (sys.stdout.encoding, sys.stdout.errors) == (plain.encoding, plain.errors)
        assert (sys.stdout.isatty(), sys.stdout.writable(), sys.stdout.closed) == (False, True, False)
        sys.stdout.flush()
        with pytest.raises(TypeError, match="must be str, not bytes"):
            sys.stdout.write(b"bytes")  # type: ignore[arg-type]  # what is tested
        with contextlib.redirect_stdout(redirected):
            say("redirected", flush=True)
        with sys.stdout:
            say("printed")

    assert captured(case) == [("stdout", "printed\n")]
    assert buffer.getvalue() == b"redirected\n"
    # a case does not close the stream that all share
    say("open")
    assert capsys.readouterr().out == "open\n"


def test_surrogates_are_replaced_and_a_flood_is_cut() -> None:
    output = CapturedOutput()
    for stream, text in (("err", "model says \ud83d"), ("log", "logs \udfff"), *[("out", "x" * 400_000)] * 4):
        output.add(stream, text)
    assert output.sections() == [("stdout", "x" * 1_000_000), ("stderr", "model says ?"), ("log", "logs ?")]


def test_the_streams_are_restored(router: StreamRouter, capsys: Capsys) -> None:
    routed = vars(sys)["stdout"]

    def debug() -> None:
        router.stop()
        # as a debugger does
        routed.write("(Pdb) ")

    assert captured(debug) == []
    assert capsys.readouterr().out == "(Pdb) "
    before, kind = sys.stdout, type(sys)
    for repeat in (router.start, router.stop):
        repeat()
        assert (vars(sys)["stdout"] is before) is (repeat == router.stop)
        repeat()
    assert (sys.stdout, type(sys)) == (before, kind)
