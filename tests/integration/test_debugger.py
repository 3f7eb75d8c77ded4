"""Debuggers stop in one case at a time; a tool that only traces is no debugger."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project

PIPELINE = """
def stop(request):
    value = request.input["text"] * 2
    breakpoint()
    print("printed in the debugger")
    return {"points": 1.0}


async def stop_async(request):
    value = request.input["text"] * 2
    breakpoint()
    return {"points": 1.0}


def fail(request):
    value = request.input["text"] * 2
    raise ValueError("failed")
"""
LIVE = "--packbench-mode=live"


def debug(project: Project, keys: str, target: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run two cases, and type keys into the debugger."""
    project.pytester.makepyfile(pipeline=PIPELINE)
    for text in ("ab", "cd"):
        project.case(text, text=text)
    options = ("--packbench-suite=toy", f"--packbench-target=pipeline:{target}", *options)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command, cwd=project.root, input=keys, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("target", "keys", "options"),
    [("stop", "n\nn\n", (LIVE, "--pdb")), ("stop_async", "", (LIVE, "--pdb")), ("stop", "n\nn\n", ())],
    ids=["live", "live async", "fixture"],
)
def test_a_breakpoint_stops_one_case_at_a_time(
    project: Project, target: str, keys: str, options: tuple[str, ...]
) -> None:
    result = debug(project, f"p value\n{keys}c\np value\nc\n", target, *options)
    assert result.returncode == 0, result.stdout
    assert result.stdout.index("'abab'") < result.stdout.index("'cdcd'")
    if options:
        assert "concurrent attempts: 1, no timeout; " in result.stdout
    if target == "stop":
        assert result.stdout.splitlines().count("(Pdb) printed in the debugger") == 1


@pytest.mark.parametrize("mode", ["live", "fixture"])
def test_a_debugger_opens_where_the_target_raised(project: Project, mode: str) -> None:
    result = debug(project, "p value\nq\n", "fail", f"--packbench-mode={mode}", "--pdb")
    assert "'abab'" in result.stdout


@pytest.mark.parametrize("mode", ["live", "fixture"])
def test_quitting_a_debugger_ends_the_run(project: Project, mode: str) -> None:
    # of two that stop at once either could read the key
    result = debug(project, "q\n", "stop", f"--packbench-mode={mode}", "--packbench-concurrency=1")
    assert result.returncode == pytest.ExitCode.INTERRUPTED, result.stdout
    assert "Quitting debugger" in result.stdout


def test_a_tool_that_traces_is_no_debugger(project: Project) -> None:
    project.pytester.makepyfile(
        traced="import sys\nclass Tracer:\n    def trace(self, *_): pass\nsys.settrace(Tracer().trace)\n"
    )
    result = debug(project, "", "fail", "-p", "traced", LIVE)
    assert "concurrent attempts: 8, timeout 300 s per attempt" in result.stdout
