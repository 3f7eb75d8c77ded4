"""`--packbench-fail-on` and gates on changes: a run that got worse than its baseline fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.conftest import ended

if TYPE_CHECKING:
    import pytest

    from tests.integration.conftest import Project

LATEST, BY_GATES = "--packbench-baseline=latest", "--packbench-gate=suite"
CHANGES = "gates: [{metric: pass_rate, min: 0.5}, {max_regressions: 1}, {max_new_failures: 0, by: case_type}]\n"


def worse(project: Project, monkeypatch: pytest.MonkeyPatch, rules: str = "") -> None:
    """Run four cases, after which one of them is to fail, within a gate on the pass rate."""
    project.suite(text=f"pack: toy\n{rules or 'gates: [{metric: pass_rate, min: 0.5}]'}\n")
    project.cases("a", "b", "c")
    project.case("z", case_type="odd", python="import os; order['points'] = float(os.environ['POINTS'])")
    monkeypatch.setenv("POINTS", "1.0")
    project.run_toy()
    monkeypatch.setenv("POINTS", "0.4")


def test_a_new_failure_within_the_gates_fails_the_run_if_a_condition_says_so(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    worse(project, monkeypatch)
    page = project.root / "page.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    before = project.left().name
    met, headline = "condition regressed>0 is met: 1", f"1 new failure since run {before} of "
    for options, failed in (((), False), (("--packbench-fail-on=regressed>0, mean<-0.5",), True)):
        lines = [f"baseline: {met}: FAIL", f"::error *title=toy%3A baseline::{met}"] if failed else []
        result = project.run_toy(f"--packbench-baseline={before}", BY_GATES, *options)
        ended(result, int(failed), f"baseline: {headline}* UTC (diff.md)", *lines)
        assert f"- baseline: {headline}" in project.text()
        assert page.read_text("utf-8").count(f"- baseline: {headline}") == 1
        page.unlink()
        document = project.document()
        comparison = document["comparison"]
        assert document["status"] == ("failed" if failed else "passed")
        assert (comparison["baseline"], comparison["failed"]) == (before, failed)
        assert (comparison["figures"]["regressed"], comparison["mean"]["n"]) == (1, 4)
        assert [each["met"] for each in comparison["conditions"]] == [True, False] * failed
        assert ("ondition regressed&gt;0 is met: 1" in project.text().splitlines()[2]) is failed
        assert ("**FAILED: the condition" in project.text("diff.md")) is failed


def test_gates_on_changes_name_the_cases(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(project, monkeypatch, CHANGES)
    ended(
        project.run_toy(LATEST, BY_GATES),
        1,
        "  regressions 1 <= max 1 over 4 cases in both runs, toy:odd:z: PASS",
        "  new_failures (case_type odd) 1 > max 0 over 1 case in both runs, toy:odd:z: FAIL",
        "  new_failures (case_type plain) 0 <= max 0 over 3 cases in both runs: PASS",
    )
    # without a baseline such a gate can't be judged
    missing = "  regressions: no baseline; pass an earlier run as the baseline: FAIL"
    ended(project.run_toy(BY_GATES), 1, missing)
    # of a part of the suite, only what was selected is judged
    monkeypatch.setenv("POINTS", "1.0")
    removed = (LATEST, BY_GATES, "--packbench-fail-on=removed>0")
    for name in ("z", "a"):
        ended(project.run_toy(*removed, "-k", name), 0)
    (project.root / "storage/benchmarks/toy/cases/plain/a.json").unlink()
    ended(project.run_toy(*removed), 1)


def test_workers_and_the_environment_make_no_difference(both: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(both, monkeypatch)
    monkeypatch.setenv("PACKBENCH_FAIL_ON", "new_failures>0")
    monkeypatch.setenv("PACKBENCH_BASELINE", "latest")
    ended(both.run_toy(BY_GATES), 1, "baseline: condition new_failures>0 is met: 1: FAIL")
