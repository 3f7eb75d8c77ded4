"""`--packbench-gate`: whether each case decides on the run, or the gates only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.conftest import ended

if TYPE_CHECKING:
    from tests.integration.conftest import Project


@pytest.mark.parametrize(
    ("option", "minimum", "outcome", "code"),
    [("case", 0.5, "failed", 1), ("suite", 0.5, "xfailed", 0), ("suite", 0.51, "xfailed", 1)],
)
def test_a_gate_decides_at_its_minimum(project: Project, option: str, minimum: float, outcome: str, code: int) -> None:
    project.suite(text=f"pack: toy\ngates: [{{metric: pass_rate, min: {minimum}}}]\n")
    project.case("bad", points=0.3)
    project.case("good", points=0.8)
    rate = f"*pass_rate 1 / 2 = 50.0 % * min *: {'FAIL' if code else 'PASS'}*"
    lines = (rate, "XFAIL*bad.json::bad*score 0.30 < 0.80*") if option == "suite" else ()
    ended(project.run_toy(f"--packbench-gate={option}", "-rx"), code, *lines, passed=1, **{outcome: 1})
    assert project.document()["status"] == ("failed" if code else "passed")
    assert len(project.records()) == 2


def test_gates_do_not_judge_a_known_hole(project: Project) -> None:
    project.suite("toy", "pack: toy\ngates: [{metric: pass_rate, min: 1.0}, {metric: accuracy, depth: 2, min: 1.0}]\n")
    hole = project.case("hole", word="known_hole")
    project.case("good")
    unjudged = [f"*{name}: not judged, because none of its cases is selected" for name in ("completeness", "pass_rate")]
    ended(project.run(str(hole)), 0, *unjudged, xfailed=1)
    hole.with_name("good.json").unlink()
    # without another case, the suite measures nothing
    ended(project.run_toy(), 1)
