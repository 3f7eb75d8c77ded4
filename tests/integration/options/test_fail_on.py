"""`--packbench-fail-on` and gates on changes: a run that got worse than its baseline fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Project

LATEST, BY_GATES = "--packbench-baseline=latest", "--packbench-gate=suite"
CHANGES = "gates: [{metric: pass_rate, min: 0.5}, {max_regressions: 1}, {max_new_failures: 0, by: case_type}]\n"


def worse(project: Project, monkeypatch: pytest.MonkeyPatch, rules: str = "") -> None:
    """Run four cases, after which one of them is to fail, within a gate on the pass rate."""
    project.suite(text=f"pack: toy\n{rules or 'gates: [{metric: pass_rate, min: 0.5}]'}\n")
    for name in ("a", "b", "c"):
        project.case(name)
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
    before = project.left()
    baseline = f"--packbench-baseline={before}"
    met = "condition regressed>0 is met: 1"
    headline = f"1 new failure since run {before.name} of "
    for options, failed in (((), False), (("--packbench-fail-on=regressed>0, mean<-0.5",), True)):
        result = project.run_toy(baseline, BY_GATES, *options)
        assert result.ret == (pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK)
        result.stdout.fnmatch_lines([f"baseline: {headline}* UTC (diff.md)"])
        folder = project.folders()[-1]
        summary = (folder / "summary.md").read_text("utf-8")
        assert f"- baseline: {headline}" in summary
        assert page.read_text("utf-8").count(f"- baseline: {headline}") == 1
        page.unlink()
        document = json.loads((folder / "report.json").read_text("utf-8"))["packbench"]
        assert document["status"] == ("failed" if failed else "passed")
        comparison = document["comparison"]
        assert (comparison["baseline"], comparison["failed"]) == (before.name, failed)
        assert (comparison["figures"]["regressed"], comparison["mean"]["n"]) == (1, 4)
        assert (met.replace(">", "&gt;") in summary.splitlines()[2].replace("Condition", "condition")) is failed
        assert ("**FAILED: the condition" in (folder / "diff.md").read_text("utf-8")) is failed
        if failed:
            result.stdout.fnmatch_lines([f"baseline: {met}: FAIL", f"::error *title=toy%3A baseline::{met}"])
            assert [each["met"] for each in comparison["conditions"]] == [True, False]


def test_gates_on_changes_name_the_cases(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(project, monkeypatch, CHANGES)
    result = project.run_toy(LATEST, BY_GATES)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = (
        "  regressions 1 <= max 1 over 4 cases in both runs, toy:odd:z: PASS",
        "  new_failures (case_type odd) 1 > max 0 over 1 case in both runs, toy:odd:z: FAIL",
        "  new_failures (case_type plain) 0 <= max 0 over 3 cases in both runs: PASS",
    )
    result.stdout.fnmatch_lines(list(lines))
    # without a baseline such a gate can't be judged
    alone = project.run_toy(BY_GATES)
    assert alone.ret == pytest.ExitCode.TESTS_FAILED
    alone.stdout.fnmatch_lines(["  regressions: no baseline; pass an earlier run as the baseline: FAIL"])
    # of a part of the suite, only what was selected is judged
    monkeypatch.setenv("POINTS", "1.0")
    removed = "--packbench-fail-on=removed>0"
    for name in ("z", "a"):
        assert project.run_toy(LATEST, BY_GATES, removed, "-k", name).ret == pytest.ExitCode.OK, name
    (project.root / "storage/benchmarks/toy/cases/plain/a.json").unlink()
    assert project.run_toy(LATEST, BY_GATES, removed).ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--packbench-fail-on=regressed>0"], "--packbench-fail-on: got 'regressed>0' without a baseline; *"),
        ([LATEST, "--packbench-fail-on=regresed>0"], '--packbench-fail-on: condition *unknown figure "regresed"*'),
        ([LATEST, "-o", "packbench_fail_on=mean"], "ini packbench_fail_on: condition 'mean': expected a name*"),
        ([LATEST, "-o", "packbench_baseline_optional=maybe"], "ini packbench_baseline_optional: got 'maybe'*"),
    ],
)
def test_a_condition_that_can_t_be_judged_is_a_usage_error(project: Project, options: list[str], message: str) -> None:
    project.case("a")
    result = project.run_toy(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_workers_and_the_environment_make_no_difference(both: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(both, monkeypatch)
    monkeypatch.setenv("PACKBENCH_FAIL_ON", "new_failures>0")
    monkeypatch.setenv("PACKBENCH_BASELINE", "latest")
    result = both.run_toy(BY_GATES)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["baseline: condition new_failures>0 is met: 1: FAIL"])
