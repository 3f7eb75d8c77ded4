"""Each case is attempted once: no plugin and no option makes a result the best of several attempts."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import CASES, json_lines, two_workers

if TYPE_CHECKING:
    from tests.integration.conftest import Project

CALLED = """
from pathlib import Path
calls = Path('calls.txt')
calls.write_text((calls.read_text() if calls.exists() else '') + 'called\\n')
"""
# passes at its second attempt
FLAKY = f"{CALLED}len(calls.read_text()) > 7 or 1 / 0"
MARKED = """
import pytest


@pytest.mark.packbench_cases("toy")
def test_case(packbench_check):
    with open("calls.txt", "a") as file:
        print("called", file=file)
    with open("calls.txt") as file:
        packbench_check({"points": 0.0 if len(file.readlines()) < 2 else 1.0})


def test_ordinary():
    with open("ordinary.txt", "a") as file:
        print("called", file=file)
    with open("ordinary.txt") as file:
        assert len(file.readlines()) == 2
"""
# as plugins do that run a failed test again
AGAIN = """
import pytest
from _pytest.runner import runtestprotocol


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    for _ in range(3):
        reports = runtestprotocol(item, nextitem=nextitem, log={log})
    if not {log}:
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
    return True
"""


@pytest.fixture(autouse=True)
def _with_reruns(monkeypatch: pytest.MonkeyPatch, project: Project) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:anyio -p no:hypothesispytest")


def calls(project: Project) -> int:
    return len((project.root / "calls.txt").read_text("utf-8").splitlines())


def check_one_attempt(project: Project, result: pytest.RunResult, **outcomes: int) -> None:
    """Check that one case was attempted once, and that all files of the run say so."""
    result.assert_outcomes(**outcomes)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert calls(project) == 1
    report = project.report()
    assert report["packbench"]["totals"]["selected"] == 1
    assert len(report["packbench"]["cases"]) == 1
    # the part of pytest-json-report
    assert len(report["tests"]) == report["summary"]["total"] == 1
    journal = project.left() / "journal.jsonl"
    assert not journal.exists() or len(json_lines(journal)) == 1


@pytest.mark.parametrize(
    ("options", "ini"),
    [
        (("--reruns=3",), ""),
        (("--reruns=3", "--reruns-mode=append"), ""),
        ((), "reruns = 3"),
        (("--reruns-mode=append",), "reruns = 3"),
    ],
)
@pytest.mark.parametrize("marked", [False, True], ids=["files", "marked"])
def test_reruns_apply_to_other_tests_only(
    project: Project, options: tuple[str, ...], ini: str, *, marked: bool
) -> None:
    project.pytester.makeini(f"[pytest]\n{ini}\n")
    project.case("one", python="" if marked else FLAKY)
    ordinary = MARKED if marked else MARKED[MARKED.index("def test_ordinary") :]
    project.write("test_own.py", ordinary)
    result = project.run(*(() if marked else ("--packbench-suite=toy",)), "test_own.py", *options)
    outcomes = {"passed": 1, "failed": 1} if marked else {"passed": 1, "errors": 1}
    check_one_attempt(project, result, **outcomes)
    assert result.parseoutcomes()["rerun"] == 1


def test_a_mark_flaky_does_not_repeat_a_case(both: Project) -> None:
    both.case("one")
    both.write("test_own.py", MARKED.replace("@pytest", "@pytest.mark.flaky(reruns=4)\n@pytest", 1))
    check_one_attempt(both, both.run("test_own.py", "-k", "case"), failed=1)
    (both.root / "calls.txt").unlink()
    (both.root / "test_own.py").unlink()
    both.pytester.run("rm", "-r", "reports")
    both.case("one", python=FLAKY)
    both.extend_conftest("""
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.flaky(reruns=4))
        """)
    check_one_attempt(both, both.run_toy("-m", "flaky"), errors=1)


@pytest.mark.parametrize("options", [(), ("--packbench-concurrency=2",)])
def test_a_case_that_a_plugin_adds_after_collection_is_attempted(project: Project, options: tuple[str, ...]) -> None:
    for name in ("one", "two"):
        project.case(name)
    project.extend_conftest("""
        import pytest

        held = []

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(items):
            held[:], items[:] = items, []

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(session):
            session.items[:] = held
        """)
    project.run_toy(*options).assert_outcomes(passed=2)


def test_a_worker_that_dies_is_no_reason_to_attempt_its_case_again(project: Project) -> None:
    project.case("one", python=f"{CALLED}__import__('os').kill(__import__('os').getpid(), 9)")
    project.case("other")
    result = project.run_toy("-n", "1", "--reruns=3", "--reruns-mode=append")
    result.assert_outcomes(passed=1, failed=1)
    assert calls(project) == 1
    assert project.errors()["one"]["kind"] == "worker_crashed"


def test_what_repeats_every_test_is_a_usage_error(project: Project) -> None:
    project.case("one")
    path = project.write("test_own.py", MARKED)
    other = project.write("test_other.py", "def test_other(): pass")
    refused = {
        ("--force-reruns=2",): "--force-reruns=2: each case is attempted once; use --reruns, which cases opt out of",
        ("--dist=each", "-n", "2"): "--dist=each: each worker would attempt every case; use --dist=load",
    }
    for options, message in refused.items():
        result = project.run_toy(*options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert [line for line in result.stderr.lines if line] == [f"ERROR: {message}"]
        result = project.run(str(path), *options)
        assert result.ret != pytest.ExitCode.OK
        result.stdout.fnmatch_lines([f"*test_own.py::test_case: packbench_cases: {message}*"])
        # what makes no attempt is not refused
        assert project.run_toy("--collect-only", *options).ret == pytest.ExitCode.OK
        assert project.run(str(other), *options).ret == pytest.ExitCode.OK
    assert not (project.root / "calls.txt").exists()
    assert not project.folders()


@pytest.mark.parametrize("log", [False, True])
def test_a_plugin_that_runs_items_again_gets_the_first_verdict_again(project: Project, *, log: bool) -> None:
    project.extend_conftest(dedent(AGAIN).format(log=log))
    times = 3 if log else 1
    project.case("one", python=FLAKY)
    check_one_attempt(project, project.run_toy(), errors=times)
    assert project.errors()["one"]["kind"] == "target_error"


@pytest.mark.parametrize("log", [False, True])
def test_a_marked_test_that_is_run_again_is_an_error(project: Project, *, log: bool) -> None:
    project.extend_conftest(dedent(AGAIN).format(log=log))
    project.case("one")
    project.write("test_own.py", MARKED.partition("def test_ordinary")[0])
    result = project.run("test_own.py")
    check_one_attempt(project, result, **({"failed": 1, "errors": 2} if log else {"errors": 1}))
    result.stdout.fnmatch_lines(["*the test was run again; each case is attempted once*"])


@two_workers
def test_an_item_that_is_selected_twice_is_run_once(both: Project) -> None:
    both.case("one", python=CALLED)
    both.run("--keep-duplicates", f"{CASES}/plain/one.json", f"{CASES}/plain/one.json").assert_outcomes(passed=1)
    assert calls(both) == 1
