"""Debuggers stop in one case at a time; a tool that only traces is no debugger."""

from __future__ import annotations

import bdb
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import FrameType

    from tests.integration.conftest import Project

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
    assert ("concurrent attempts: 1, no timeout; " in output) is (LIVE in options)


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
