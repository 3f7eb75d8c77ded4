"""Faults that a run survives: the cases that they do not touch keep their verdicts; `benchmarks.stress.faults` has all."""

from __future__ import annotations

import errno
import faulthandler
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.offline import keep_process, offline
from pytest_packbench.engine.scheduler import CapturedOutput, capturing_context
from pytest_packbench.engine.time_limit import ProcessState, TimeLimit, Watchdog
from pytest_packbench.runs.writing import RunWriter
from tests.integration.conftest import CASES, TOY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Project

RESUME = "--packbench-resume=latest"
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_target_does_not_end_the_run_as_if_all_were_well(project: Project, concurrency: int) -> None:
    for number, call in enumerate(("os._exit(0)", "os.execv('/bin/true', ['true'])", "posix._exit(0)", "os.getpid()")):
        project.case(f"case_{number}", python=f"import os, posix; {call}")
    project.write("pytest.ini", "[pytest]\npackbench_allow_processes = yes\n")
    # in a process of its own: this one would end, as if all were well
    result = project.pytester.runpytest_subprocess("--packbench-suite=toy", f"--packbench-concurrency={concurrency}")
    result.assert_outcomes(errors=3, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for name in ("case_0", "case_1", "case_2"):
        assert "would end the whole run; return, or raise an exception" in project.errors()[name]["message"]


ENDING = """
import atexit, os, posix, threading

def insist():
    while True:
        try:
            os._exit(0)
        except BaseException:
            pass

"""


@pytest.mark.parametrize(
    ("when", "left", "points", "status"),
    [
        ("import", "atexit.register(lambda: os._exit(0))", 0.0, 1),
        ("import", "atexit.register(lambda: os._exit(0))", 1.0, 0),
        ("import", "atexit.register(posix._exit, 0)", 0.0, 1),
        ("case", "atexit.register(lambda: os._exit(0))", 0.0, 1),
        # it goes on beside the run
        ("case", "threading.Thread(target=insist, daemon=True).start()", 1.0, 1),
    ],
)
def test_the_exit_code_is_that_of_the_run_whatever_a_target_leaves_behind(
    project: Project, when: str, left: str, points: float, status: int
) -> None:
    project.write("leaving.py", ENDING + (left if when == "import" else f"def leave(): {left}"))
    project.write("conftest.py", TOY.replace("    return act\n", "    import leaving\n    return act\n"))
    project.case("only", points=points, python="import leaving; leaving.leave()" if when == "case" else "")
    assert project.pytester.runpytest_subprocess("--packbench-suite=toy").ret == status


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The exit codes with which the process would have ended, and what was told."""
    ended: list[Any] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    finish = keep_process(ended.append)
    yield ended
    finish(0)


def end(code: int) -> None:
    # for type checkers, the function itself never returns
    vars(os)["_exit"](code)


def test_the_end_of_the_process_is_a_failure_outside_of_cases_and_an_error_in_them(
    ended: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    end(0)
    assert ended[0].startswith("packbench: os._exit(0) ended the run")
    end(3)
    assert ended[1::2] == [1, 3]
    with offline("case", allow_processes=True), pytest.raises(SystemExit, match=r"os\._exit\(0\) would end the whole"):
        end(0)
    with pytest.raises(SystemExit):
        capturing_context(CapturedOutput()).run(end, 0)
    # a process that a target has forked
    monkeypatch.setattr(os, "getpid", lambda: 1)
    end(0)
    assert ended[4:] == [0]


def test_what_the_rest_of_the_run_needs_is_restored(ended: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    limit, state = sys.getrecursionlimit(), ProcessState()
    sys.setrecursionlimit(limit - 100)
    state.restore()
    assert (sys.getrecursionlimit(), ended) == (limit, [])
    sys.setrecursionlimit(limit + 100)
    state.restore()
    assert sys.getrecursionlimit() == limit + 100
    sys.setrecursionlimit(limit)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    state.restore()
    assert ended == [1]


def test_a_hang_in_c_code_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(Watchdog, "file", 2)
    monkeypatch.setattr(Watchdog, "again_s", 0.0)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **how: calls.append((seconds, how)))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: calls.append("cancel"))
    for _ in range(2):
        with TimeLimit(5):
            pass
    # once for many cases, because it takes longer than a short one
    assert calls == [(305.0, {"exit": True, "file": 2})]
    TimeLimit.remove()
    Watchdog.cancel()
    assert calls[1:] == ["cancel"]
    with TimeLimit(None):
        pass
    assert len(calls) == 2


HOURS = """
import faulthandler
import os
import signal

watched = []


def watch(seconds, **how):
    watched[:] = [seconds]


faulthandler.dump_traceback_later = watch
faulthandler.cancel_dump_traceback_later = watched.clear


def take_hours(what):
    # as it ends after hours: with the process, or by an alarm
    if watched or signal.getitimer(signal.ITIMER_REAL)[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    print("HOURS:", what)
"""
SLOW = """
from hours import take_hours, watched
import pytest


@pytest.fixture(scope="session", autouse=True)
def service():
    yield
    take_hours("end of the session")


@pytest.fixture
def slow(request):
    take_hours(f"{request.node.originalname}, setup")
    yield
    take_hours(f"{request.node.originalname}, teardown")


def test_other(slow): take_hours("test_other")


@pytest.mark.packbench_cases("more")
def test_marked(packbench_check, slow):
    assert watched
    packbench_check({"points": 1.0})
"""


def slow_project(project: Project) -> None:
    """Write cases that are watched, and modules whose functions take hours."""
    project.write("hours.py", HOURS)
    project.extend_conftest("import hours")
    project.write("test_slow.py", SLOW)
    for number in range(3):
        project.case(f"case_{number}", python="import hours; assert hours.watched")
    project.suite("more")
    project.case("case_more", suite="more")


def hours(result: pytest.RunResult) -> list[str]:
    """What took hours, in order."""
    return [line.partition("HOURS: ")[2] for line in result.outlines if "HOURS: " in line]


def test_what_is_no_case_of_a_file_may_take_as_long_as_it_likes(project: Project) -> None:
    slow_project(project)
    cases = [f"{CASES}/plain/case_{number}.json" for number in range(3)]
    other, marked = "test_slow.py::test_other", "test_slow.py::test_marked"
    result = project.pytester.runpytest_subprocess("-s", cases[0], other, cases[1], marked, cases[2])
    result.assert_outcomes(passed=5)
    assert hours(result) == [
        "test_other, setup",
        "test_other",
        "test_other, teardown",
        "test_marked, setup",
        "test_marked, teardown",
        "end of the session",
    ]


def test_a_test_in_a_folder_of_cases_may_take_as_long_as_it_likes(project: Project) -> None:
    slow_project(project)
    project.write(f"{CASES}/plain/test_inner.py", "from hours import take_hours\ndef test_inner(): take_hours('inner')")
    result = project.pytester.runpytest_subprocess("-s", "--packbench-suite=toy")
    result.assert_outcomes(passed=4)
    assert hours(result) == ["inner"]


@pytest.mark.parametrize("order", ["", "tryfirst=True"])
def test_what_a_plugin_does_after_the_last_case_may_take_as_long_as_it_likes(project: Project, order: str) -> None:
    slow_project(project)
    project.extend_conftest(f"""
        import hours
        import pytest

        @pytest.hookimpl({order})
        def pytest_runtest_teardown(item, nextitem):
            if nextitem is None:
                item.parent.parent.addfinalizer(lambda: hours.take_hours("folder"))
                hours.take_hours("plugin")
    """)
    result = project.pytester.runpytest_subprocess("-s", "--packbench-suite=toy")
    result.assert_outcomes(passed=3)
    assert hours(result) == ["plugin", "folder"]


def test_the_end_of_a_session_that_is_interrupted_may_take_as_long_as_it_likes(project: Project) -> None:
    slow_project(project)
    project.case("case_1", python="raise KeyboardInterrupt")
    result = project.pytester.runpytest_subprocess("-s", "--packbench-suite=toy", "test_slow.py::test_other", "storage")
    assert (result.ret, hours(result)[3:]) == (pytest.ExitCode.INTERRUPTED, ["end of the session"])


@pytest.mark.parametrize("plugin", ["faulthandler", "no:faulthandler"])
def test_a_debugger_may_take_as_long_as_it_likes_and_the_next_case_is_watched(project: Project, plugin: str) -> None:
    slow_project(project)
    project.case("case_0", python="breakpoint()")
    command = (sys.executable, "-m", "pytest", "-p", plugin, "--packbench-suite=toy")
    result = project.pytester.run(*command, stdin=b"import hours; hours.take_hours('debugger')\nc\n")
    result.assert_outcomes(passed=3)
    assert hours(result) == ["debugger"]


def test_a_hang_in_c_code_ends_the_process_also_after_a_case_that_failed(project: Project) -> None:
    project.case("case_0", python="1 / 0")
    project.case("case_1")
    project.extend_conftest("""
        def pytest_runtest_logfinish(nodeid):
            import faulthandler
            from pytest_packbench.engine.time_limit import Watchdog
            # pytest has ended the thread
            assert bool(Watchdog.again_s) == ("case_1" in nodeid)
            Watchdog.cancel()
    """)
    project.run_toy("-p", "faulthandler").assert_outcomes(passed=1, errors=1)


def test_a_time_limit_of_the_user_for_each_test_is_kept(project: Project) -> None:
    slow_project(project)
    project.case("case_0", python="import hours; assert hours.watched == [5]")
    result = project.pytester.runpytest_subprocess(
        "--packbench-suite=toy", "-k", "case_0", "-o", "faulthandler_timeout=5"
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("options", [(), ("-p", "no:capture")])
def test_nothing_of_the_last_resort_is_left(project: Project, options: tuple[str, ...]) -> None:
    # after a failed run, one of an earlier test, its exit code is kept
    keep_process(print)(0)
    before = os._exit, os.execv, os.execve
    # a target may close all that is open
    project.case("case_0", python="import os, pytest_packbench.engine.time_limit as t; os.close(t.TimeLimit.file)")
    result = project.run_toy(*options)
    assert result.ret == pytest.ExitCode.OK
    assert (Watchdog.file, Watchdog.again_s, TimeLimit.file) == (None, 0.0, 2)
    assert (os._exit, os.execv, os.execve) == before


@pytest.mark.parametrize("method", ["write_results", "complete"])
def test_a_run_that_cannot_be_written_says_how_to_go_on(
    project: Project, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    project.case("case_0")

    def refuse(*_: object) -> None:
        raise FULL

    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, method, refuse)
        result = project.run_toy()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (folder,) = project.folders()
    advice = f"what was stored is kept: correct that, then resume with --packbench-resume={folder.name}"
    lines = [f"packbench: cannot write reports to {folder}: No space left on device", f"packbench: {advice}"]
    if method == "complete":
        lines = [f"packbench: {folder / 'report.json'}: OSError: *No space left on device; {advice}"]
    result.stdout.fnmatch_lines(lines)
    project.run_toy(RESUME).assert_outcomes(passed=1)
    assert project.records()["case_0"]["packbench"]["verdict"] == "passed"


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError(), RecursionError("deep")])
def test_a_process_without_resources_ends_with_a_line(
    project: Project, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    project.case("case_0")

    def refuse(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("pytest_packbench.analysis.conclusion.conclude", refuse)
        result = project.run_toy()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["packbench: the run can't be concluded: *; what was stored is kept: *", "*: FAILED"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    project.run_toy(RESUME).assert_outcomes(passed=1)
