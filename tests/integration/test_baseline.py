"""A run beside an earlier one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.analysis.gates import check_run
from pytest_packbench.cli import main
from pytest_packbench.model.gate import Gate
from pytest_packbench.runs.stored import find_baseline, load_run
from tests.integration.conftest import TOY

if TYPE_CHECKING:
    from pathlib import Path

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
    second.stdout.fnmatch_lines(
        [f"baseline: no score changed; 1 case changed and left out since {before.name} (diff.md)"]
    )
    page = (project.folders()[-1] / "diff.md").read_text("utf-8")
    assert "Case or judge changed" in page
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
        ["ERROR: --packbench-baseline: no run at*nowhere; expected latest, none or the folder of a run"]
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
        assert page.startswith("# packbench: toy compared - 1 regressed, 0 improved, 1 new failure, 0 fixed\n")
    assert main(["compare", "--baseline", before, "--current", after, "--fail-on", "regressed>0"]) == 1
    said = capsys.readouterr()
    assert "packbench: regressed>0: 1: FAIL" in said.err
    assert list((plain.root / "reports" / "benchmarks").glob("benchmark_diff_*.md"))
    assert main(["compare", "--baseline", before, "--current", after, "--fail-on", "mean<-0.5"]) == 0
    assert main(["compare", "--baseline", before, "--current", after, "--fail-on", "means<0"]) == 2
    assert main(["compare", "--baseline", before, "--current", f"{after}/summary.md"]) == 2
    assert "summary.md: " in capsys.readouterr().err


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


RATIO = "pack: toy\ngates:\n  - {metric: mean_score, max_ratio_to_baseline: 1.0}\n"
GATE = ("gate", "--pack=toypack:Toy")


@pytest.fixture
def twice(plain: Project, capsys: pytest.CaptureFixture[str]) -> Project:
    """A suite with a gate against a baseline, run twice: one case is changed and one broken in between."""
    # commands know the packs that they are told of
    (plain.root / "toypack.py").write_text(TOY, encoding="utf-8")
    plain.suite("toy", RATIO)
    for name in ("a", "b", "c"):
        plain.case(name, points=0.9)
    plain.run_toy()
    plain.case("b", points=1.0)
    plain.case("c", points=0.9, python="raise OSError('down')")
    plain.run_toy()
    capsys.readouterr()
    return plain


def test_a_gate_uses_the_cases_that_are_the_same_in_both(twice: Project, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = map(str, twice.folders())
    assert main([*GATE, after, "--baseline", before]) == 1
    said = capsys.readouterr().out
    told = "1.00 x the baseline's 0.90 / 1 = 0.90 on the 1 case of both runs, now 0.90 / 1 = 0.90 <= max 1.00 x"
    assert f"  mean_score 1.90 / 2 = 0.95, {told}, only 2 cases: PASS" in said
    assert "  completeness 2 / 3 = 66.7 % < min 100.0 %: FAIL" in said


def test_a_baseline_that_can_not_be_one_is_bad_usage(twice: Project, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = map(str, twice.folders())
    twice.suite("toy", f"{RATIO}thresholds: {{accept: 0.5}}\n")
    twice.run_toy()
    capsys.readouterr()
    latest = str(twice.folders()[-1])
    assert main([*GATE, latest, "--baseline", before]) == 2
    said = capsys.readouterr()
    assert "can't be the baseline: scoring rules: '" in said.err
    assert said.out == ""
    assert main([*GATE, after, "--baseline", before, "--baseline", before]) == 2
    assert "second baseline for suite toy" in capsys.readouterr().err
    twice.suite("other", "pack: toy\n")
    twice.case("x", suite="other")
    twice.run("--packbench-suite=other")
    capsys.readouterr()
    (other,) = map(str, twice.folders("other"))
    assert main([*GATE, after, "--baseline", other]) == 2
    assert "a run of suite other; expected a run of toy" in capsys.readouterr().err


def test_gates_and_words_change_no_comparison(twice: Project, capsys: pytest.CaptureFixture[str]) -> None:
    twice.suite("toy", "pack: toy\ndescription: other words\ngates:\n  - {metric: pass_rate, min: 0.1}\n")
    twice.run_toy()
    capsys.readouterr()
    _, before, after = map(str, twice.folders())
    assert main(["compare", "--baseline", before, "--current", after, "--out", "-"]) == 0


def test_bare_records_are_read_with_what_lies_beside_them(twice: Project, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = twice.folders()
    assert main([*GATE, str(after / "records.jsonl"), "--baseline", str(before / "records.jsonl")]) == 1
    whole = capsys.readouterr().out
    assert main([*GATE, str(after), "--baseline", str(before)]) == 1
    assert capsys.readouterr().out == whole
    (after / "report.json").unlink()
    assert main([*GATE, str(after / "records.jsonl"), "--baseline", str(before)]) == 1
    assert capsys.readouterr().out == whole
    assert main(["compare", "--baseline", str(before), "--current", str(after / "records.jsonl"), "--out", "-"]) == 0
    assert " 1 new failure, " in capsys.readouterr().out
    (after / "errors.jsonl").unlink()
    assert main([*GATE, str(after / "records.jsonl"), "--baseline", str(before)]) == 1
    assert "  completeness: not known from records alone" in capsys.readouterr().out
    assert main(["compare", "--baseline", str(before), "--current", str(after / "records.jsonl"), "--out", "-"]) == 0
    said = capsys.readouterr().out
    assert "- The current run was read from records only" in said
    assert "## Removed" in said


def test_pages_of_the_same_second_are_two(
    twice: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = map(str, twice.folders())
    monkeypatch.setattr("time.strftime", lambda *_: "20260102T030405Z")
    for old, new in ((before, after), (after, before)):
        assert main(["compare", "--baseline", old, "--current", new]) == 0
    capsys.readouterr()
    place = twice.root / "reports" / "benchmarks"
    pages = [place / "benchmark_diff_20260102T030405Z.md", place / "benchmark_diff_20260102T030405Z_2.md"]
    assert sorted(place.glob("benchmark_diff_*")) == pages
    assert pages[0].read_text("utf-8") != pages[1].read_text("utf-8")


def test_a_run_is_judged_by_its_baseline(twice: Project) -> None:
    first, last = twice.folders()
    stored = load_run(last)
    gates = (Gate(metric="mean_score", max_ratio_to_baseline=1.0),)
    first_run = find_baseline(str(first), last)
    (result,) = check_run(stored.run, stored.entries, gates, first_run)
    assert result.passed
    live = replace(stored.run, mode="live")
    (result,) = check_run(live, stored.entries, gates, first_run)
    assert not result.passed
    assert "can't be the baseline: mode: 'fixture' before, 'live' now" in result.text
    none = find_baseline("latest", last.parent / "nowhere" / last.name)
    (result,) = check_run(stored.run, stored.entries, gates, none)
    assert "there is no earlier complete run to compare with" in result.text


def test_a_gate_against_the_last_run_is_judged_in_a_run(project: Project) -> None:
    project.suite("toy", RATIO)
    for name in ("a", "b"):
        project.case(name, points=0.9)
    first = project.run_toy("--packbench-baseline=latest")
    assert first.ret == pytest.ExitCode.TESTS_FAILED
    first.stdout.fnmatch_lines(
        ["*mean_score*max 1 x baseline: there is no earlier complete run to compare with*: FAIL"]
    )
    second = project.run_toy("--packbench-baseline=latest")
    assert second.ret == pytest.ExitCode.OK
    second.stdout.fnmatch_lines(["*mean_score*1.00 x the baseline's 1.80 / 2 = 0.90 <= max 1.00 x*: PASS"])
    project.suite("toy", f"{RATIO}thresholds: {{accept: 0.5}}\n")
    third = project.run_toy("--packbench-baseline=latest")
    assert third.ret == pytest.ExitCode.TESTS_FAILED
    third.stdout.fnmatch_lines(["*mean_score*can't be the baseline: scoring rules: *before*"])


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"../../..", b"/etc"])
def test_a_latest_that_names_no_run_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "latest").write_bytes(content)
    found = find_baseline("latest", tmp_path / "run")
    assert (found.stored, found.why) == (None, f"not compared: {tmp_path / 'latest'}: holds no run id")
