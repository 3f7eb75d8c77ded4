"""A run beside an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cli import main

if TYPE_CHECKING:
    from tests.integration.conftest import Project


def test_a_run_says_what_changed_since_the_last_complete_one(project: Project) -> None:
    for number in range(4):
        project.case(f"c{number}", points=0.9)
    first = project.run_toy("--packbench-baseline=latest")
    first.stdout.fnmatch_lines(["baseline: there is no earlier complete run to compare with"])
    (before,) = project.folders()
    project.run_toy("-k", "c1")
    project.case("c0", points=0.2)
    project.case("c1", points=0.9)
    second = project.run_toy("--packbench-baseline=latest")
    second.stdout.fnmatch_lines([f"baseline: no score changed since {before.name} (diff.md)"])
    page = (project.folders()[-1] / "diff.md").read_text("utf-8")
    assert "Case changed" in page
    assert "toy:plain:c0" in page


def test_other_rules_are_not_compared(plain: Project) -> None:
    plain.case("a")
    plain.run_toy()
    plain.suite("toy", "pack: toy\nthresholds: {accept: 0.7}\n")
    result = plain.run_toy("--packbench-baseline=latest")
    result.stdout.fnmatch_lines(["baseline: not compared with*: scoring rules:*before*now"])
    assert result.ret == pytest.ExitCode.OK


def test_a_baseline_that_is_not_there_is_a_usage_error(plain: Project) -> None:
    plain.case("a")
    result = plain.run_toy("--packbench-baseline=nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --packbench-baseline: no run at*nowhere; expected latest, none or a run's folder"]
    )


def test_the_command_compares_folders_reports_and_records(
    plain: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POINTS", "1.0")
    code = "import os; order['points'] = float(os.environ['POINTS'])"
    plain.case("a", python=code)
    plain.case("b")
    plain.run_toy()
    monkeypatch.setenv("POINTS", "0.4")
    plain.run_toy()
    before, after = (str(folder) for folder in plain.folders())
    capsys.readouterr()
    for old, new in ((before, after), (f"{before}/report.json", f"{after}/records.jsonl")):
        assert main(["compare", "--baseline", old, "--current", new, "--out", "-"]) == 0
        page = capsys.readouterr().out
        assert page.startswith("# packbench: toy compared - 1 regressed, 0 improved, 1 new failures, 0 fixed\n")
    assert main(["compare", "--baseline", before, "--current", after, "--fail-on", "regressed>0"]) == 1
    said = capsys.readouterr()
    assert "packbench: regressed>0: 1: FAIL" in said.err
    assert list((plain.root / "reports" / "benchmarks").glob("benchmark_diff_*.md"))
    assert main(["compare", "--baseline", before, "--current", after, "--fail-on", "mean<-0.5"]) == 0
    assert main(["compare", "--baseline", before, "--current", after, "--fail-on", "means<0"]) == 2
    assert main(["compare", "--baseline", before, "--current", f"{after}/summary.md"]) == 2
    assert "not JSON" in capsys.readouterr().err


def test_the_command_refuses_runs_of_other_rules_without_force(
    plain: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.case("a")
    plain.run_toy()
    plain.suite("toy", "pack: toy\nthresholds: {accept: 0.7}\n")
    plain.run_toy()
    before, after = (str(folder) for folder in plain.folders())
    assert main(["compare", "--baseline", before, "--current", after]) == 2
    assert "can't be compared: scoring rules" in capsys.readouterr().err
    assert main(["compare", "--baseline", before, "--current", after, "--force", "--out", "-"]) == 0
    assert "Compared by force; the runs differ in scoring rules" in capsys.readouterr().out
