"""`--packbench-concurrency`: cases run at once and are reported in order."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.model_server import live, model_server, prepare

if TYPE_CHECKING:
    from tests.integration.conftest import Project


def test_cases_run_at_once_and_are_reported_in_order(project: Project) -> None:
    prepare(project, *["points 1"] * 12)
    with model_server(latency_s=0.1) as server:
        result = project.run_toy(*live(server, "-v", "--packbench-concurrency=5"))
        assert server.most_open == 5
    result.assert_outcomes(passed=12)
    reported = [line.split("::")[1].split()[0] for line in result.outlines if "PASSED" in line and "::" in line]
    assert reported == [f"case_{number:02}" for number in range(12)]
    # nobody watches
    assert "in flight" not in result.stdout.str()


def test_a_run_that_stops_early_wastes_the_calls_of_its_window_at_most(project: Project) -> None:
    prepare(project, "points 0", *["points 1"] * 40)
    with model_server(latency_s=0.02) as server:
        result = project.run_toy(*live(server, "-x", "--packbench-concurrency=3"))
        assert len(server.requests) <= 1 + 2 * 3
    result.assert_outcomes(failed=1)
    # answers arrive while the files of the run are closed
    assert (result.ret, "Traceback" in result.stderr.str()) == (pytest.ExitCode.TESTS_FAILED, False)
    assert {line["kind"] for line in project.lines("errors.jsonl")} == {"stopped"}


def test_a_worker_runs_two_cases_at_once(project: Project) -> None:
    prepare(project, *["points 1"] * 12)
    with model_server(latency_s=0.1) as server:
        result = project.run_toy("-n", "2", *live(server, "--packbench-concurrency=8"))
        assert server.most_open <= 4
    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["*each worker runs two attempts at a time*"])


def test_cases_in_fixture_mode_run_at_once_and_offline(both: Project) -> None:
    for number in range(6):
        both.case(f"good_{number}", points=1.0)
    both.case("online", python="import socket\nwith socket.socket() as s: s.connect(('127.0.0.1', 9))")
    both.run_toy("--packbench-concurrency=4").assert_outcomes(passed=6, errors=1)
    assert [(line["kind"], line["test_id"]) for line in both.lines("errors.jsonl")] == [("offline", "toy:plain:online")]


def test_a_terminal_shows_the_progress(project: Project) -> None:
    prepare(project, *["points 1"] * 2)
    with model_server(latency_s=0.8) as server:
        controller, terminal = pty.openpty()
        options = live(server, "--packbench-concurrency=1")
        command = [sys.executable, "-m", "pytest", "--packbench-suite=toy", *options]
        process = subprocess.Popen(command, cwd=project.root, stdout=terminal, stderr=terminal, stdin=terminal)
        os.close(terminal)
        output = b""
        try:
            while chunk := os.read(controller, 65536):
                output += chunk
        except OSError:
            # the terminal is closed at the other end
            pass
        process.wait(timeout=60)
        os.close(controller)
    text = output.decode("utf-8", "replace")
    assert process.returncode == 0, text
    assert re.search(r"packbench: \d of 2 done, .* 1 in flight", text), text
