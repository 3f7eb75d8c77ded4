"""`--packbench-concurrency`: cases run at once, are reported in order, and end early without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.conftest import ended

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model


def test_cases_run_at_once_and_are_reported_in_order(project: Project, model: Model) -> None:
    project.prepare(*["points 1"] * 12)
    model.latency_s = 0.1
    shared = model.run(project, "-n", "2", "--packbench-concurrency=8")
    ended(shared, 0, "*each worker runs two attempts at a time*", passed=12)
    assert model.most_open <= 4
    result = ended(model.run(project, "-v", "--packbench-concurrency=5"), 0, passed=12)
    assert model.most_open == 5
    reported = [line.split("::")[1].split()[0] for line in result.outlines if "PASSED" in line and "::" in line]
    assert reported == [f"case_{number:02}" for number in range(12)]
    # without a terminal no line tells how far it is
    assert "under way" not in result.stdout.str()


def test_a_run_that_stops_early_wastes_the_calls_of_its_window_at_most(project: Project, model: Model) -> None:
    project.prepare("points 0", *["points 1"] * 40)
    model.latency_s = 0.02
    result = ended(model.run(project, "-x", "--packbench-concurrency=3"), 1, failed=1)
    assert len(model.requests) <= 1 + 2 * 3
    # answers arrive while the files of the run are closed
    assert "Traceback" not in result.stderr.str()
    assert {line["kind"] for line in project.lines("errors.jsonl")} == {"stopped"}


def test_an_interrupted_run_stores_all_answers_that_it_has(project: Project, model: Model) -> None:
    project.prepare(*["points 1"] * 8)
    project.extend_conftest("""
        def pytest_runtest_logreport(report):
            if report.when == "call" and "case_02" in report.nodeid:
                raise KeyboardInterrupt
        """)
    model.latency_s = 0.05
    assert "Traceback" not in ended(model.run(project, "--packbench-concurrency=2"), 2).stderr.str()
    # also of cases that pytest had not reached
    scored = len(project.records())
    assert 3 <= scored <= len(model.requests) <= 3 + 2 * 2
    assert [line["kind"] for line in project.lines("errors.jsonl")] == ["interrupted"] * (8 - scored)
