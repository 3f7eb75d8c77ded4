"""The verdicts of cases: pytest's outcome, the exit code, and where each is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project

# by case: fields of the case, the verdict, the kind, and a part of the message
UNSCORED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "raises": ({"python": "raise OSError('no disk')"}, "error", "target_error", "OSError: no disk"),
    "exits": ({"python": "raise SystemExit(3)"}, "error", "target_error", "SystemExit"),
    "points_no_number": ({"points": "many"}, "error", "scorer_error", "scorer raised"),
    "scorer_raises": ({"word": "crash"}, "error", "scorer_error", "ZeroDivisionError: scorer fell over"),
    "too_many_points": ({"points": 1.5}, "error", "scorer_error", "returned the score 1.5, expected 0 to 1"),
    "reports_a_breakdown": ({"down": True}, "error", "timeout", "timeout: after 5 s"),
    "empty": ({"word": "vacuous"}, "vacuous", "vacuous", "said vacuous"),
    "hole": ({"word": "known_hole"}, "known_hole", "known_hole", "said known_hole"),
    "skipped": ({"notes": {"skip": "gold in doubt"}}, "not_run", "skip", "gold in doubt"),
    "xfailed": ({"points": 0.1, "notes": {"xfail": "schedule changed"}}, "known_hole", "xfail", "schedule changed"),
    "xpassed": ({"points": 1.0, "notes": {"xfail": "should fail"}}, "known_hole", "xfail", "should fail"),
}


def test_every_verdict_has_its_outcome_and_its_line(both: Project) -> None:
    both.case("at_threshold", points=0.8)
    both.case("below", points=0.3)
    for name, (fields, *_) in UNSCORED.items():
        both.case(name, **fields)
    typo = both.case("typo")
    typo.write_text(typo.read_text("utf-8").replace('"difficulty"', '"dificulty"'), encoding="utf-8")
    both.case("twin", case_type="one")
    both.case("twin", case_type="two")
    result = both.run_toy("-rsx")
    assert result.parseoutcomes() == {"passed": 1, "failed": 1, "errors": 10, "skipped": 1, "xfailed": 3}
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    records = [
        (record["test_id"], record["passed"], record["packbench"]["score"]) for record in both.lines("records.jsonl")
    ]
    assert records == [("toy:plain:at_threshold", True, 0.8), ("toy:plain:below", False, 0.3)]
    errors = {line["test_id"]: line for line in both.lines("errors.jsonl")}
    for name, (_, verdict, kind, message) in UNSCORED.items():
        line = errors.pop(f"toy:plain:{name}")
        assert (line["verdict"], line["kind"]) == (verdict, kind), name
        assert message in line["message"], name
    assert {name: line["kind"] for name, line in errors.items()} == {
        "toy:plain:typo": "case_unreadable",
        "toy:one:twin": "case_unreadable",
        "toy:two:twin": "case_unreadable",
    }
    assert both.report()["packbench"]["totals"]["verdicts"]["known_hole"] == 1
    result.stdout.fnmatch_lines_random(
        [
            "*score 0.30 < 0.80*",
            "SKIPPED*gold in doubt*",
            "XFAIL*schedule changed*score 0.10 < 0.80*",
            '*typo.json: /dificulty: unknown key "dificulty"; did you mean "difficulty"?*',
            "*one/twin.json: /id: *twin* in*two/twin.json*",
            "*completeness 2 / 12 = 16.7 % < min 100.0 %: FAIL*",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_packbench*attempt.py*")


@pytest.mark.parametrize(
    ("fields", "exit_code"),
    [
        ({"points": 0.8}, pytest.ExitCode.OK),
        ({"points": 0.3}, pytest.ExitCode.TESTS_FAILED),
        ({"word": "vacuous"}, pytest.ExitCode.TESTS_FAILED),
        ({"word": "known_hole"}, pytest.ExitCode.OK),
        ({"notes": {"skip": "in doubt"}}, pytest.ExitCode.OK),
        ({"python": "raise OSError"}, pytest.ExitCode.TESTS_FAILED),
    ],
    ids=["passed", "failed", "vacuous", "known hole", "skipped", "error"],
)
def test_a_verdict_decides_on_the_exit_code(project: Project, fields: dict[str, Any], exit_code: int) -> None:
    project.case("good")
    project.case("one", **fields)
    assert project.run_toy().ret == exit_code
    assert (project.left() / "errors.jsonl").exists() is ("points" not in fields)
    assert (project.left().parent / "latest").read_text("utf-8").strip() == project.left().name


@pytest.mark.parametrize(("least", "result", "exit_code"), [(0.5, "PASS", 0), (0.6, "FAIL", 1)])
def test_gates_decide_instead_of_cases(project: Project, least: float, result: str, exit_code: int) -> None:
    project.suite("toy", f"pack: toy\ngates: [{{metric: pass_rate, min: {least}}}]\n")
    project.case("bad", points=0.3)
    project.case("good", points=1.0)
    run = project.run_toy("--packbench-gate=suite", "-rx")
    run.assert_outcomes(passed=1, xfailed=1)
    assert run.ret == exit_code
    run.stdout.fnmatch_lines([f"*pass_rate 1 / 2 = 50.0 % * min {least:.1%}*{result}".replace("0%", "0 %")])
    run.stdout.fnmatch_lines(["XFAIL*bad.json::bad*score 0.30 < 0.80*"])
    assert len(project.lines("records.jsonl")) == 2


def test_gates_do_not_judge_a_known_hole(project: Project) -> None:
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


def test_a_run_that_stops_early_is_partial(both: Project) -> None:
    for number in range(9):
        both.case(f"c{number}", points=0.0)
    result = both.run_toy("-x")
    assert result.ret in {pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}
    errors = both.lines("errors.jsonl")
    assert {line["verdict"] for line in errors} == {"not_run"}
    assert len(errors) + len(both.lines("records.jsonl")) == 9
    assert "PARTIAL" in (both.left() / "summary.md").read_text("utf-8")
    assert not (both.left().parent / "latest").exists()


def test_an_interrupted_run_keeps_its_results(both: Project) -> None:
    both.case("a")
    both.case("b", python="import time; time.sleep(0.4); raise KeyboardInterrupt")
    # so many that the other worker has not finished when the session is interrupted
    for number in range(14):
        both.case(f"c{number:02}", python="import time; time.sleep(0.2)")
    assert both.run_toy().ret != pytest.ExitCode.OK
    records, errors = both.lines("records.jsonl"), both.lines("errors.jsonl")
    assert "toy:plain:a" in {line["test_id"] for line in records}
    assert "not_run" in {line["verdict"] for line in errors}
    assert len(records) + len(errors) == 16
    assert "PARTIAL" in (both.left() / "summary.md").read_text("utf-8")


def test_runxfail_shows_what_is_hidden(project: Project) -> None:
    project.case("odd", points=0.1, notes={"xfail": "schedule changed"})
    project.case("well", points=1.0, notes={"xfail": "should fail"})
    project.run_toy("--runxfail").assert_outcomes(passed=1, failed=1)
