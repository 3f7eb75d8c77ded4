"""`--packbench-gate`: whether each case decides on the run, or the gates only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project


@pytest.mark.parametrize(
    ("option", "minimum", "outcome", "code"),
    [
        ("case", 0.5, "failed", 1),
        ("suite", 0.5, "xfailed", 0),
        ("suite", 0.51, "xfailed", 1),
    ],
)
def test_a_gate_decides_at_its_minimum(project: Project, option: str, minimum: float, outcome: str, code: int) -> None:
    project.suite(text=f"pack: toy\ngates: [{{metric: pass_rate, min: {minimum}}}]\n")
    project.case("bad", points=0.3)
    project.case("good", points=0.8)
    result = project.run_toy(f"--packbench-gate={option}", "-rx")
    result.assert_outcomes(passed=1, **{outcome: 1})
    assert result.ret == code
    assert project.report()["packbench"]["status"] == ("failed" if code else "passed")
    assert len(project.records()) == 2
    if option == "suite":
        result.stdout.fnmatch_lines([f"*pass_rate 1 / 2 = 50.0 % * min *: {'FAIL' if code else 'PASS'}*"])
        result.stdout.fnmatch_lines(["XFAIL*bad.json::bad*score 0.30 < 0.80*"])


def test_gates_do_not_judge_a_known_hole(project: Project) -> None:
    project.suite("toy", "pack: toy\ngates: [{metric: pass_rate, min: 1.0}, {metric: accuracy, depth: 2, min: 1.0}]\n")
    hole = project.case("hole", word="known_hole")
    project.case("good")
    result = project.run(str(hole))
    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.OK
    unjudged = "*pass_rate: not judged, because none of its cases is selected"
    result.stdout.fnmatch_lines(["*completeness: not judged, because none of its cases is selected", unjudged])
    hole.with_name("good.json").unlink()
    # without another case, the suite measures nothing
    assert project.run_toy().ret == pytest.ExitCode.TESTS_FAILED
