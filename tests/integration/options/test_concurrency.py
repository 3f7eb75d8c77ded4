"""`--packbench-concurrency`: cases run at once, are reported in order, and end early without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model


def test_cases_run_at_once_and_are_reported_in_order(project: Project, model: Model) -> None:
    project.prepare(*["points 1"] * 12)
    model.latency_s = 0.1
    workers = model.run(project, "-n", "2", "--packbench-concurrency=8")
    workers.assert_outcomes(passed=12)
    workers.stdout.fnmatch_lines(["*each worker runs two attempts at a time*"])
    assert model.most_open <= 4
    result = model.run(project, "-v", "--packbench-concurrency=5")
    result.assert_outcomes(passed=12)
    assert model.most_open == 5
    reported = [line.split("::")[1].split()[0] for line in result.outlines if "PASSED" in line and "::" in line]
    assert reported == [f"case_{number:02}" for number in range(12)]
    # nobody watches
    assert "under way" not in result.stdout.str()


def test_a_run_that_stops_early_wastes_the_calls_of_its_window_at_most(project: Project, model: Model) -> None:
    project.prepare("points 0", *["points 1"] * 40)
    model.latency_s = 0.02
    result = model.run(project, "-x", "--packbench-concurrency=3")
    assert len(model.requests) <= 1 + 2 * 3
    result.assert_outcomes(failed=1)
    # answers arrive while the files of the run are closed
    assert (result.ret, "Traceback" in result.stderr.str()) == (pytest.ExitCode.TESTS_FAILED, False)
    assert {line["kind"] for line in project.lines("errors.jsonl")} == {"stopped"}


def test_an_interrupted_run_stores_all_answers_that_it_has(project: Project, model: Model) -> None:
    project.prepare(*["points 1"] * 8)
    project.extend_conftest("""
        def pytest_runtest_logreport(report):
            if report.when == "call" and "case_02" in report.nodeid:
                raise KeyboardInterrupt
        """)
    model.latency_s = 0.05
    result = model.run(project, "--packbench-concurrency=2")
    assert (result.ret, "Traceback" in result.stderr.str()) == (pytest.ExitCode.INTERRUPTED, False)
    # also of cases that pytest had not reached
    scored = len(project.records())
    assert 3 <= scored <= len(model.requests) <= 3 + 2 * 2
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["interrupted"] * (8 - scored)
