"""Cases that no report told of: what was made of them is kept, whatever ended the session."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.integration.model_server import SECRET, live, points, prepare
from tests.integration.test_resume import FLAKY, RESUME, called_cases, run_with_errors
from tests.servers.fake import FakeServer, Received, Reply
from tests.servers.wire import parse_request

if TYPE_CHECKING:
    from tests.integration.conftest import Project

DYING = """
import os
from pathlib import Path


def verify(request):
    name = request.input["name"]
    with open("asked.txt", "a") as file:
        file.write(name + "\\n")
    times = Path("asked.txt").read_text().split().count(name)
    if name == "dies" and times >= 3 and not Path("mended").exists():
        # its worker is killed while the third trial is under way
        os.kill(os.getpid(), 9)
    return {"points": 1.0}
"""


def verdicts_by_case(project: Project) -> dict[str, list[tuple[int, str]]]:
    """Trials and verdicts in the report, by case."""
    found: dict[str, list[tuple[int, str]]] = {}
    for row in project.report()["packbench"]["cases"]:
        found.setdefault(row["case_id"], []).append((row["trial"], row["verdict"]))
    return found


def test_a_resumed_session_that_ends_early_keeps_what_was_scored(project: Project) -> None:
    project.case("a", python=FLAKY)
    for name in "bcde":
        project.case(name)
    (project.root / "broken").touch()
    project.run_toy().assert_outcomes(passed=4, errors=1)
    before = {record["test_id"]: record for record in project.lines("records.jsonl")}
    assert project.run_toy(RESUME, "-x").ret in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
    assert {record["test_id"]: record for record in project.lines("records.jsonl")} == before
    assert len(project.lines("payloads.jsonl")) == 4
    (project.root / "broken").unlink()
    project.run_toy(RESUME).assert_outcomes(passed=5)
    assert len(project.lines("records.jsonl")) == 5


def test_answers_that_came_before_a_live_run_ended_early_are_kept(
    plain: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    prepare(plain, "points 0.1", *["points 1"] * 5)

    def first_last(received: Received) -> Reply:
        reply = points(received)
        return replace(reply, delay_s=2.0) if "points 0.1" in parse_request(received).text else reply

    with FakeServer(first_last) as server:
        stopped = plain.run_toy(*live(server, "-x"))
        assert stopped.ret == pytest.ExitCode.TESTS_FAILED
        assert "Traceback" not in stopped.stderr.str()
        assert len(server.requests) == 6
        assert verdicts_by_case(plain) == {
            f"case_{number:02}": [(0, "passed" if number else "failed")] for number in range(6)
        }
        plain.run_toy(*live(server, RESUME)).assert_outcomes(passed=5, failed=1)
        assert len(server.requests) == 6


def test_trials_that_a_killed_worker_had_finished_are_kept(plain: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    plain.pytester.makepyfile(mine=DYING)
    plain.case("dies", name="dies")
    plain.case("lives", name="lives")
    with FakeServer(points) as server:
        options = live(server, "-n2", "--packbench-trials=3", "--packbench-concurrency=1", target="mine:verify")
        for more in ((), (RESUME,)):
            plain.run_toy(*options, *more)
            assert verdicts_by_case(plain) == {
                "dies": [(0, "passed"), (1, "passed"), (2, "error")],
                "lives": [(trial, "passed") for trial in range(3)],
            }
        (plain.root / "mended").touch()
        plain.run_toy(*options, RESUME).assert_outcomes(passed=2)
    assert called_cases(plain) == ["dies"] * 5 + ["lives"] * 3
    assert len(plain.lines("records.jsonl")) == 6


def test_what_is_said_of_cases_that_are_not_selected_stays(project: Project) -> None:
    run_with_errors(project)
    folder = "storage/benchmarks/toy/cases/plain"
    project.run(*(f"{folder}/{name}.json::{name}" for name in ("a", "x")), RESUME)
    verdicts = {case: found[0][1] for case, found in verdicts_by_case(project).items()}
    assert verdicts == {"a": "passed", "b": "passed", "low": "failed", "x": "passed", "y": "error"}
    assert project.report()["packbench"]["complete"]
    project.run_toy(RESUME).assert_outcomes(passed=4, failed=1)
    assert called_cases(project) == ["x", "y"]


def test_a_changed_case_that_is_not_selected_is_refused(project: Project) -> None:
    run_with_errors(project)
    project.case("b", points=0.2)
    result = project.run("storage/benchmarks/toy/cases/plain/x.json::x", RESUME)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "can't be resumed: case b changed; " in result.stderr.str() + result.stdout.str()


def test_a_broken_case_that_is_gone_stops_nobody(plain: Project) -> None:
    run_with_errors(plain)
    (plain.root / "storage/benchmarks/toy/cases/plain/y.json").unlink()
    plain.run_toy(RESUME).assert_outcomes(passed=3, failed=1)
    assert set(verdicts_by_case(plain)) == {"a", "b", "low", "x"}


def test_kept_records_name_the_lines_of_today(plain: Project) -> None:
    path = plain.case("first", python=FLAKY)
    many = path.parent.parent / "many.jsonl"
    line = path.read_text("utf-8")
    path.unlink()
    second = line.replace("first", "second").replace("raise RuntimeError", "print")
    many.write_text(f"{line}\n{second}\n", encoding="utf-8")
    (plain.root / "broken").touch()
    plain.run_toy().assert_outcomes(passed=1, errors=1)
    (plain.root / "broken").unlink()
    many.write_text(f"{line.replace('first', 'new')}\n{line}\n{second}\n", encoding="utf-8")
    plain.run_toy(RESUME).assert_outcomes(passed=3)
    places = {row["case_id"]: row["file"] for row in plain.report()["packbench"]["cases"]}
    assert {case: file.rpartition(":")[2] for case, file in places.items()} == {"new": "1", "first": "2", "second": "3"}
    for record in plain.lines("records.jsonl"):
        assert record["packbench"]["file"] == places[record["packbench"]["case_id"]]


def test_a_run_is_no_baseline_of_its_own(plain: Project) -> None:
    gates = "gates: [{metric: pass_rate, min: 0.1}, {metric: mean_score, max_ratio_to_baseline: 0.6}]\n"
    plain.suite(text=f"pack: toy\n{gates}")
    plain.case("good")
    asked_with = ("--packbench-gate=suite", "--packbench-baseline=latest")
    assert plain.run_toy(*asked_with).ret == pytest.ExitCode.TESTS_FAILED
    assert plain.run_toy(*asked_with).ret == pytest.ExitCode.TESTS_FAILED
    newest = plain.folders()[-1]
    again = plain.run_toy(*asked_with, f"--packbench-resume={newest.name}")
    assert again.ret == pytest.ExitCode.TESTS_FAILED
    again.stdout.fnmatch_lines([f"*run {newest.name} cannot be compared with itself; name another run*"])
    assert json.loads((newest / "report.json").read_text("utf-8"))["packbench"]["status"] == "failed"


def test_calls_of_rules_that_changed_stay_paid(plain: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    prepare(plain, "points 0.9", "points 0.5")
    with FakeServer(points) as server:
        plain.run_toy(*live(server))
        plain.suite(text="pack: toy\nthresholds: {accept: 0.4}\n")
        plain.pytester.makeini("[pytest]\npackbench_resume_changed = run\n")
        name = plain.left().name
        plain.run_toy(*live(server, f"--packbench-resume={name}")).assert_outcomes(passed=2)
        assert len(server.requests) == 4
    assert plain.report()["packbench"]["run"]["settings"]["spent"]["calls"] == 4
