"""Sessions that end before every case has a report: what was scored is kept, and resuming completes the run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import CASES, MANY, toy_case
from tests.integration.model_server import live, model_server, points, prepare
from tests.integration.test_resume import FLAKY, RESUME, called_cases, run_with_errors
from tests.servers.wire import parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project
    from tests.servers.fake import Received, Reply

DYING = """
import os
from pathlib import Path


def verify(request):
    name = request.input["name"]
    with open("asked.txt", "a") as file:
        file.write(name + "\\n")
    times = Path("asked.txt").read_text().split().count(name)
    if name == "dies" and times >= 3 and not Path("fixed").exists():
        # its worker is killed during the third trial
        os.kill(os.getpid(), 9)
    return {"points": 1.0}
"""


def verdicts_by_case(project: Project) -> dict[str, list[str]]:
    """Return the verdicts in the report, by case and in order of trials."""
    verdicts: dict[str, list[str]] = {}
    for row in sorted(project.report()["packbench"]["cases"], key=lambda row: row["trial"]):
        verdicts.setdefault(row["case_id"], []).append(row["verdict"])
    return verdicts


def test_a_resumed_session_that_ends_early_keeps_what_was_scored(both: Project) -> None:
    both.case("a", python=FLAKY)
    for name in "bcde":
        both.case(name)
    (both.root / "broken").touch()
    both.run_toy().assert_outcomes(passed=4, errors=1)
    before = both.records()
    assert both.run_toy(RESUME, "-x").ret in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
    assert both.records() == before
    assert len(both.lines("payloads.jsonl")) == 4
    (both.root / "broken").unlink()
    both.run_toy(RESUME).assert_outcomes(passed=5)
    assert len(both.records()) == 5


def test_answers_that_came_before_a_live_run_ended_early_are_kept(project: Project) -> None:
    prepare(project, "points 0.1", *["points 1"] * 5)

    def first_last(received: Received) -> Reply:
        reply = points(received)
        return replace(reply, delay_s=1.0) if "points 0.1" in parse_request(received).text else reply

    with model_server(first_last) as server:
        stopped = project.run_toy(*live(server, "-x"))
        assert stopped.ret == pytest.ExitCode.TESTS_FAILED
        assert "Traceback" not in stopped.stderr.str()
        assert len(server.requests) == 6
        verdicts = {f"case_{number:02}": ["passed" if number else "failed"] for number in range(6)}
        assert verdicts_by_case(project) == verdicts
        project.run_toy(*live(server, RESUME)).assert_outcomes(passed=5, failed=1)
        assert len(server.requests) == 6


def test_trials_that_a_killed_worker_had_finished_are_kept(project: Project) -> None:
    project.write("mine.py", DYING)
    for name in ("dies", "lives"):
        project.case(name, name=name)
    with model_server() as server:
        options = live(server, "-n2", "--packbench-trials=3", "--packbench-concurrency=1", target="mine:verify")
        for more in ((), (RESUME,)):
            project.run_toy(*options, *more)
            assert verdicts_by_case(project) == {"dies": ["passed", "passed", "error"], "lives": ["passed"] * 3}
        (project.root / "fixed").touch()
        project.run_toy(*options, RESUME).assert_outcomes(passed=2)
    assert called_cases(project) == ["dies"] * 5 + ["lives"] * 3
    assert len(project.lines("records.jsonl")) == 6


def test_results_of_cases_that_are_not_selected_are_kept(both: Project) -> None:
    run_with_errors(both)
    both.run(*(f"{CASES}/plain/{name}.json::{name}" for name in ("a", "x")), RESUME)
    verdicts = {case_id: verdict for case_id, (verdict,) in verdicts_by_case(both).items()}
    assert verdicts == {"a": "passed", "b": "passed", "low": "failed", "x": "passed", "y": "error"}
    assert both.report()["packbench"]["complete"]
    both.run_toy(RESUME).assert_outcomes(passed=4, failed=1)
    assert called_cases(both) == ["x", "y"]


def test_a_change_is_refused_and_a_deletion_is_not(project: Project) -> None:
    run_with_errors(project)
    (project.root / CASES / "plain" / "y.json").unlink()
    project.run_toy(RESUME).assert_outcomes(passed=3, failed=1)
    assert set(verdicts_by_case(project)) == {"a", "b", "low", "x"}
    project.case("b", points=0.2)
    result = project.run(f"{CASES}/plain/x.json::x", f"--packbench-resume={project.left().name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "can't be resumed: case b changed; " in result.stderr.str()


def test_kept_records_name_the_lines_of_today(project: Project) -> None:
    first, second = toy_case("first", python=FLAKY), toy_case("second")
    project.case_lines(first, second)
    (project.root / "broken").touch()
    project.run_toy().assert_outcomes(passed=1, errors=1)
    (project.root / "broken").unlink()
    project.case_lines(toy_case("new"), first, second)
    project.run_toy(RESUME).assert_outcomes(passed=3)
    files = {row["case_id"]: row["file"] for row in project.report()["packbench"]["cases"]}
    assert files == {"new": f"{MANY}:1", "first": f"{MANY}:2", "second": f"{MANY}:3"}
    assert {name: record["packbench"]["file"] for name, record in project.records().items()} == files


def test_a_run_is_no_baseline_of_itself(project: Project) -> None:
    gates = "gates: [{metric: pass_rate, min: 0.1}, {metric: mean_score, max_ratio_to_baseline: 0.6}]\n"
    project.suite(text=f"pack: toy\n{gates}")
    project.case("good")
    options = ("--packbench-gate=suite", "--packbench-baseline=latest")
    for _ in range(2):
        assert project.run_toy(*options).ret == pytest.ExitCode.TESTS_FAILED
    newest = project.folders()[-1]
    again = project.run_toy(*options, f"--packbench-resume={newest.name}")
    assert again.ret == pytest.ExitCode.TESTS_FAILED
    again.stdout.fnmatch_lines([f"*run {newest.name} cannot be compared with itself; name another run*"])
    assert json.loads((newest / "report.json").read_text("utf-8"))["packbench"]["status"] == "failed"


def test_calls_of_attempts_that_are_repeated_stay_counted(project: Project) -> None:
    prepare(project, "points 0.9", "points 0.5")
    with model_server() as server:
        project.run_toy(*live(server))
        project.suite(text="pack: toy\nthresholds: {accept: 0.4}\n")
        project.pytester.makeini("[pytest]\npackbench_resume_changed = run\n")
        name = project.left().name
        project.run_toy(*live(server, f"--packbench-resume={name}")).assert_outcomes(passed=2)
        assert len(server.requests) == 4
    assert project.report()["packbench"]["run"]["settings"]["spent"]["calls"] == 4
