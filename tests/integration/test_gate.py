"""`--packbench-gate`: what fails a run, a case below its threshold or only a gate."""

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
        ("case", 0.51, "failed", 1),
    ],
)
def test_a_gate_decides_at_its_minimum(project: Project, option: str, minimum: float, outcome: str, code: int) -> None:
    project.suite(text=f"pack: toy\ngates: [{{metric: pass_rate, min: {minimum}}}]\n")
    project.case("bad", points=0.3)
    project.case("good", points=0.8)
    result = project.run_toy(f"--packbench-gate={option}")
    result.assert_outcomes(passed=1, **{outcome: 1})
    assert result.ret == code
    conclusion = "PASSED" if code == 0 else "FAILED"
    result.stdout.fnmatch_lines([f"*toy: {conclusion}*"])
    assert len(project.records()) == 2
