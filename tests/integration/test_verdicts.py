"""The verdict table of the design: each row, plain and under xdist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project


def test_passed(project: Project) -> None:
    project.case("good", points=0.8)
    result = project.run_toy()
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
    (record,) = project.lines("records.jsonl")
    assert record["test_id"] == "toy:plain:good"
    assert record["passed"] is True
    assert record["packbench"]["score"] == 0.8
    assert not (project.left() / "errors.jsonl").exists()
    assert (project.left().parent / "latest").read_text("utf-8").strip() == project.left().name


def test_failed_by_case(project: Project) -> None:
    project.case("bad", points=0.3)
    result = project.run_toy()
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*score 0.30 < 0.80*"])
    (record,) = project.lines("records.jsonl")
    assert record["passed"] is False


def test_failed_with_gates_deciding_is_xfailed_with_its_score(project: Project) -> None:
    project.suite("toy", "pack: toy\ngates: [{metric: pass_rate, min: 0.5}]\n")
    project.case("bad", points=0.3)
    project.case("good", points=1.0)
    result = project.run_toy("--packbench-gate=suite", "-rx")
    result.assert_outcomes(passed=1, xfailed=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["XFAIL*bad.json::bad*score 0.30 < 0.80*"])
    assert len(project.lines("records.jsonl")) == 2


def test_gates_decide_against_the_run(project: Project) -> None:
    project.suite("toy", "pack: toy\ngates: [{metric: pass_rate, min: 0.6}]\n")
    project.case("bad", points=0.3)
    project.case("good", points=1.0)
    result = project.run_toy("--packbench-gate=suite")
    result.assert_outcomes(passed=1, xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*pass_rate 1 / 2 = 50.0 % < min 60.0 %, 95 % Wilson interval*FAIL", "*toy: FAILED*"])


@pytest.mark.parametrize(
    ("order", "kind", "words"),
    [
        ({"python": "raise OSError('no disk')"}, "target_error", "OSError: no disk"),
        ({"python": "raise SystemExit(3)"}, "target_error", "SystemExit"),
        ({"points": "many"}, "scorer_error", "scorer raised"),
        ({"word": "crash"}, "scorer_error", "ZeroDivisionError: scorer fell over"),
        ({"points": 1.5}, "scorer_error", "returned the score 1.5, expected 0 to 1"),
        ({"down": True}, "timeout", "timeout: after 5 s"),
        (
            {"python": "context.llm.complete_sync(ModelRequest(role='ask', system='', messages=()))"},
            "target_error",
            "NameError",
        ),
    ],
)
def test_error(project: Project, order: dict[str, Any], kind: str, words: str) -> None:
    project.case("broken", **order)
    project.case("good")
    result = project.run_toy()
    result.assert_outcomes(passed=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (line,) = project.lines("errors.jsonl")
    assert (line["verdict"], line["kind"]) == ("error", kind)
    assert words in line["message"]
    assert len(project.lines("records.jsonl")) == 1
    result.stdout.fnmatch_lines(["*completeness 1 / 2 = 50.0 % < min 100.0 %: FAIL*"])
    result.stdout.no_fnmatch_line("*pytest_packbench*attempt.py*")


def test_vacuous(project: Project) -> None:
    project.case("empty", word="vacuous")
    result = project.run_toy()
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (line,) = project.lines("errors.jsonl")
    assert (line["verdict"], line["message"]) == ("vacuous", "said vacuous")
    assert project.lines("records.jsonl") == []


def test_known_hole(project: Project) -> None:
    project.case("hole", word="known_hole")
    project.case("good")
    result = project.run_toy()
    result.assert_outcomes(passed=1, xfailed=1)
    assert result.ret == pytest.ExitCode.OK
    (line,) = project.lines("errors.jsonl")
    assert line["verdict"] == "known_hole"
    assert project.report()["packbench"]["totals"]["verdicts"]["known_hole"] == 1


def test_stopped_early_is_not_run(project: Project) -> None:
    for number in range(9):
        project.case(f"c{number}", points=0.0)
    result = project.run_toy("-x")
    assert result.ret in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
    errors = project.lines("errors.jsonl")
    assert errors
    assert {line["verdict"] for line in errors} == {"not_run"}
    assert len(errors) + len(project.lines("records.jsonl")) == 9
    assert "PARTIAL" in (project.left() / "summary.md").read_text("utf-8")
    assert not (project.left().parent / "latest").exists()


def test_interrupted_is_not_run_and_keeps_what_was_done(project: Project) -> None:
    project.case("a")
    project.case("b", python="import time; time.sleep(0.5); raise KeyboardInterrupt")
    # so many that another worker is not through with them when the session is interrupted
    for number in range(20):
        project.case(f"c{number}", python="import time; time.sleep(0.2)")
    result = project.run_toy()
    assert result.ret != pytest.ExitCode.OK
    assert {line["test_id"] for line in project.lines("records.jsonl")} >= {"toy:plain:a"}
    assert "not_run" in {line["verdict"] for line in project.lines("errors.jsonl")}
    everything = len(project.lines("records.jsonl")) + len(project.lines("errors.jsonl"))
    assert everything == 22
    assert "PARTIAL" in (project.left() / "summary.md").read_text("utf-8")


def test_quarantine_by_skip_and_xfail(project: Project) -> None:
    project.case("skipped", notes={"skip": "gold in doubt"})
    project.case("odd", points=0.1, notes={"xfail": "schedule changed"})
    project.case("well", points=1.0, notes={"xfail": "should fail"})
    project.case("good")
    result = project.run_toy("-rsx")
    result.assert_outcomes(passed=1, skipped=1, xfailed=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines_random(["*gold in doubt*", "*schedule changed*score 0.10 < 0.80*"])
    kinds = {line["test_id"]: line["kind"] for line in project.lines("errors.jsonl")}
    assert kinds == {"toy:plain:skipped": "skip", "toy:plain:odd": "xfail", "toy:plain:well": "xfail"}
    assert [line["test_id"] for line in project.lines("records.jsonl")] == ["toy:plain:good"]


def test_runxfail_shows_what_is_hidden(project: Project) -> None:
    project.case("odd", points=0.1, notes={"xfail": "schedule changed"})
    project.case("well", points=1.0, notes={"xfail": "should fail"})
    result = project.run_toy("--runxfail")
    result.assert_outcomes(passed=1, failed=1)


def test_an_unreadable_case_hides_no_other(project: Project) -> None:
    path = project.case("typo")
    path.write_text(path.read_text("utf-8").replace('"difficulty"', '"dificulty"'), encoding="utf-8")
    project.case("good")
    result = project.run_toy()
    result.assert_outcomes(passed=1, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(['*typo.json: /dificulty: unknown key "dificulty"; did you mean "difficulty"?*'])
    (line,) = project.lines("errors.jsonl")
    assert (line["kind"], line["test_id"]) == ("case_unreadable", "toy:plain:typo")


def test_a_dead_worker_is_an_error_of_its_case(plain: Project) -> None:
    plain.case("killer", python="import os; os._exit(9)")
    for number in range(4):
        plain.case(f"c{number}")
    result = plain.run_toy("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (line,) = plain.lines("errors.jsonl")
    assert (line["test_id"], line["kind"]) == ("toy:plain:killer", "worker_crashed")
    assert len(plain.lines("records.jsonl")) == 4


def test_two_cases_of_one_id_name_each_other(project: Project) -> None:
    project.case("twin", case_type="one")
    project.case("twin", case_type="two")
    result = project.run_toy()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines_random(["*one/twin.json: /id: *twin* in*two/twin.json*"])


def test_a_hole_or_a_quarantined_case_alone_is_fine(project: Project) -> None:
    project.suite("toy", "pack: toy\ngates: [{metric: pass_rate, min: 1.0}, {metric: accuracy, depth: 2, min: 1.0}]\n")
    hole = project.case("hole", word="known_hole")
    project.case("good")
    result = project.run(str(hole))
    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "*completeness: no case had to be judged: PASS",
            "*pass_rate: not judged, because none of its cases is selected",
        ]
    )
