"""What editors' readers of pytest rely on, and debuggers, which stop in one case at a time."""

from __future__ import annotations

import bdb
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
import yaml

from tests.doc_blocks import ROOT, PageRunner, blocks, clean_environment
from tests.integration.conftest import CASES, json_lines, toy_case

if TYPE_CHECKING:
    from types import FrameType

    from tests.integration.conftest import Project

MANY = f"{CASES}/many.jsonl"


def write_cases(project: Project) -> None:
    project.case("good")
    project.case("bad", case_type="odd", points=0.2)


def test_what_the_tree_of_vs_code_is_made_from(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cases(project)
    project.case_lines(toy_case("first"), "", toy_case("second"), path=MANY)
    items, _ = project.pytester.inline_genitems("--packbench-suite=toy")
    lines = {item.nodeid: item.location[1] for item in items}
    # a click opens a case's own line, counted from 0
    assert lines == {
        f"{MANY}::first": 0,
        f"{MANY}::second": 2,
        f"{CASES}/odd/bad.json::bad": 0,
        f"{CASES}/plain/good.json::good": 0,
    }
    for item in items:
        # its adapter asks the parent for the file, and would take an item with callspec for a Python function
        assert isinstance(item.parent, pytest.File)
        assert item.parent.path == item.path
        assert item.path.is_file()
        assert not hasattr(item, "callspec")
        path, _, name = item.location
        assert item.nodeid == f"{path}::{name}" == f"{item.parent.nodeid}::{item.name}"
        # suite, case type and case are levels of the tree
        folders = [node.path.name for node in item.listchain() if isinstance(node, pytest.Directory)]
        assert folders[-len(path.split("/")) + 3 :] == path.split("/")[2:-1]
    # an id with an absolute path, from another folder
    (project.root / "elsewhere").mkdir()
    monkeypatch.chdir(project.root / "elsewhere")
    nodeid = f"{project.root}/{CASES}/plain/good.json::good"
    project.run(f"--rootdir={project.root}", nodeid).assert_outcomes(passed=1)


def test_the_settings_of_the_page_work(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clean_environment(monkeypatch)
    runner = PageRunner(pytester, capsys)
    page = list(blocks(ROOT / "docs" / "editors.md"))
    settings = json.loads(next(block.text for block in page if block.file == ".vscode/settings.json"))
    assert runner.command("packbench init support") == 0
    (pytester.path / "tests").mkdir()
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for block in page:
        if block.kind == "console":
            runner.block(block)
    assert set(runner.codes) == {0}
    (entry,) = settings["json.schemas"]
    schema = json.loads((pytester.path / entry["url"]).read_text("utf-8"))
    (pattern,) = entry["fileMatch"]
    cases = sorted(pytester.path.glob(pattern.removeprefix("/")))
    assert [path.stem for path in cases] == ["refund_by_name", "refund_in_other_words"]
    for path in cases:
        jsonschema.validate(json.loads(path.read_text("utf-8")), schema, jsonschema.Draft202012Validator)
    result = pytester.runpytest(f"--rootdir={pytester.path}", *settings["python.testing.pytestArgs"])
    result.assert_outcomes(passed=3, failed=1)


STARTS = yaml.safe_load((Path(__file__).parent / "data" / "editors.yaml").read_text("utf-8"))["starts"]


@pytest.fixture
def configured(project: Project) -> Project:
    """A project whose ini names two suites, one of two cases and one of one, with two tests of its own."""
    project.pytester.makeini("[pytest]\npackbench_suite = toy more\n")
    project.suite("more")
    project.case("one")
    project.case("two")
    project.case("three", suite="more")
    project.write("tests/test_own.py", "def test_one(): pass\ndef test_two(): pass\n")
    project.write("elsewhere/notes.txt", "")
    return project


def ran(project: Project) -> tuple[int, int]:
    """Return how many cases of each suite ran, and remove the reports."""
    counts = [sum(len(json_lines(folder / "records.jsonl")) for folder in project.folders(name)) for name in SUITES]
    shutil.rmtree(project.root / "reports", ignore_errors=True)
    return counts[0], counts[1]


SUITES = ("toy", "more")


@pytest.mark.parametrize("ini", ["", "testpaths = tests", "addopts = --import-mode=importlib"])
def test_what_an_editor_starts_is_what_runs(configured: Project, monkeypatch: pytest.MonkeyPatch, ini: str) -> None:
    configured.pytester.makeini(f"[pytest]\npackbench_suite = toy more\n{ini}\n")
    names = {"root": configured.root, "case": f"{configured.root}/{CASES}/plain/one.json::one"}
    for start, (arguments, folder, expected) in STARTS.items():
        monkeypatch.chdir(configured.root / folder)
        result = configured.run(*(argument.format(**names) for argument in arguments))
        result.assert_outcomes(passed=sum(expected))
        assert ran(configured) == tuple(expected[1:]), start
        assert result.ret == (pytest.ExitCode.OK if any(expected) else pytest.ExitCode.NO_TESTS_COLLECTED), start


def test_which_suites_of_the_ini_do_not_run_is_said(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.pytester.makeini("[pytest]\npackbench_suite = toy,more\n")
    project.suite("more")
    project.case("one")
    project.case("three", suite="more")
    project.write("tests/test_own.py", "def test_one(): pass\n")
    left_out = "packbench: not run: {} (ini packbench_suite), because arguments name other tests"
    result = project.run("tests")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([left_out.format("toy,more")])
    result = project.run("storage/benchmarks/more")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([left_out.format("toy")])
    project.run().assert_outcomes(passed=3)
    # what the ini always adds is no choice of one test
    project.pytester.makeini("[pytest]\npackbench_suite = toy,more\naddopts = tests\n")
    project.run().assert_outcomes(passed=3)
    project.run("tests").assert_outcomes(passed=1)
    monkeypatch.setenv("PACKBENCH_SUITE", "toy")
    project.run("tests").assert_outcomes(passed=2)


def test_a_suite_requested_by_name_fails_the_run_if_nothing_of_it_is_left(both: Project) -> None:
    both.suite("more")
    both.case("one")
    both.case("three", suite="more")
    result = both.run("--packbench-suite=toy,more", "-k", "one")
    result.assert_outcomes(passed=1, deselected=0 if both.workers else 1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    message = "is requested by name, but none of its cases is selected; select at least one, or do not name the suite"
    result.stdout.fnmatch_lines([f'packbench: suite "more" {message}'])
    assert both.run("--packbench-suite=toy", "-k", "none").ret != pytest.ExitCode.OK
    both.pytester.makeini("[pytest]\npackbench_suite = toy,more\n")
    assert both.run("-k", "one").ret == pytest.ExitCode.OK


PIPELINE = """
def stop(request):
    value = request.input["text"] * 2
    breakpoint()
    print("printed in the debugger")
    return {"points": 1.0}


async def stop_async(request):
    return stop(request)


def fail(request):
    value = request.input["text"] * 2
    raise ValueError("failed")
"""
LIVE = "--packbench-mode=live"
FIXTURE = "--packbench-mode=fixture"


def debug(project: Project, keys: str, target: str, *options: str) -> tuple[int, str]:
    """Run two cases, and type keys into the debugger; return the exit code and what was printed."""
    project.write("pipeline.py", PIPELINE)
    for text in ("ab", "cd"):
        project.case(text, text=text)
    options = ("--packbench-suite=toy", f"--packbench-target=pipeline:{target}", *options)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    result = subprocess.run(
        command, cwd=project.root, input=keys, capture_output=True, text=True, timeout=120, check=False
    )
    return result.returncode, result.stdout


@pytest.mark.parametrize(
    ("target", "options"), [("stop", (LIVE, "--pdb")), ("stop_async", (LIVE, "--pdb")), ("stop", (FIXTURE,))]
)
def test_a_breakpoint_stops_one_case_at_a_time(project: Project, target: str, options: tuple[str, ...]) -> None:
    code, output = debug(project, "p value\nn\nn\nc\np value\nc\n", target, *options)
    assert code == 0, output
    assert output.index("'abab'") < output.index("'cdcd'")
    assert output.splitlines().count("(Pdb) printed in the debugger") == 1
    assert ("concurrent attempts: 1, no timeout" in output) is (LIVE in options)


@pytest.mark.parametrize("mode", [LIVE, FIXTURE])
def test_a_debugger_opens_where_the_target_raised_and_ends_the_run_when_it_is_quit(project: Project, mode: str) -> None:
    assert "'abab'" in debug(project, "p value\nq\n", "fail", mode, "--pdb")[1]
    # of two that stop at once either could read the key
    code, output = debug(project, "q\n", "stop", mode, "--packbench-concurrency=1")
    assert (code, "Quitting debugger" in output) == (pytest.ExitCode.INTERRUPTED, True), output


def test_a_tool_that_traces_is_no_debugger(project: Project) -> None:
    project.write(
        "traced.py", "import sys\nclass Tracer:\n    def trace(self, *_): pass\nsys.settrace(Tracer().trace)\n"
    )
    _, output = debug(project, "", "fail", "-p", "traced", LIVE)
    assert "concurrent attempts: 8, timeout 300 s per attempt" in output


class Debugger(bdb.Bdb):
    """Stops at the lines of a file, as an editor's debugger does."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[tuple[str, object]] = []

    def user_line(self, frame: FrameType) -> None:
        if frame.f_code.co_filename.endswith("stepped.py"):
            self.stops.append((frame.f_code.co_name, frame.f_locals["request"].input["n"]))
        self.set_continue()


def test_a_breakpoint_in_the_target_is_hit_one_case_at_a_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        project.case(f"case_{number}", n=number)
    module = project.write("stepped.py", "def act(request):\n    return {'points': 1.0}\n")
    debugger = Debugger()
    monkeypatch.syspath_prepend(project.root)
    before = sys.gettrace()
    debugger.set_break(str(module), 2)
    # as under a debugger: traced from the start, with many cases at once requested
    debugger.set_trace()
    debugger.set_continue()
    try:
        result = project.run_toy("--packbench-target=stepped:act", "--packbench-concurrency=8")
    finally:
        sys.settrace(before)
        debugger.clear_all_breaks()
    result.assert_outcomes(passed=3)
    assert debugger.stops == [("act", 0), ("act", 1), ("act", 2)]
