"""`--packbench-baseline`, `packbench compare` and gates against an earlier run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.commands import main
from pytest_packbench.model.report import BaselineLookup
from pytest_packbench.runs.reading import find_baseline
from tests.unit.run_builders import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Project

RATIO = "pack: toy\ngates:\n  - {metric: mean_score, max_ratio_to_baseline: 1.0}\n"
OTHER_RULES = "thresholds: {accept: 0.5}\n"
LATEST = "--packbench-baseline=latest"


def test_a_run_is_compared_with_the_last_complete_one(project: Project) -> None:
    for number in range(4):
        project.case(f"c{number}", points=0.9)
    project.run_toy(LATEST).stdout.fnmatch_lines(["baseline: there is no earlier complete run to compare with: FAIL"])
    (complete,) = project.folders()
    project.run_toy("-k", "c1")
    project.case("c0", points=0.2)
    second = project.run_toy(LATEST)
    second.stdout.fnmatch_lines(
        [f"baseline: no score changed; 1 case changed and excluded since run {complete.name} of * UTC (diff.md)"]
    )
    page = (project.folders()[-1] / "diff.md").read_text("utf-8")
    assert "toy:plain:c0" in page.partition("Case or judge changed")[2]
    refused = project.run_toy("--packbench-baseline=nowhere")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    message = "no run at*nowhere; expected none, latest, passed, committed, the id of a run or a path"
    refused.stderr.fnmatch_lines([f"ERROR: --packbench-baseline: {message}"])
    report = json.loads((project.folders()[-1] / "report.json").read_text("utf-8"))
    report["packbench"]["cases"][0]["score"] = 7
    damaged = project.write("damaged.json", json.dumps(report))
    result = project.run_toy(f"--packbench-baseline={damaged}")
    result.stdout.fnmatch_lines(["baseline: not compared:*not a run document*"])


def test_an_empty_name_is_not_none(project: Project) -> None:
    # as of an unset variable
    project.case("a")
    assert project.run_toy("--packbench-baseline=").ret == pytest.ExitCode.TESTS_FAILED


def test_the_command_compares_folders_reports_and_records(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.case("a", python="import os; order['points'] = float(os.environ['POINTS'])")
    project.case("b")
    for points in ("1.0", "0.4"):
        monkeypatch.setenv("POINTS", points)
        project.run_toy()
    project.suite("toy", f"pack: toy\n{OTHER_RULES}")
    result = project.run_toy(LATEST)
    result.stdout.fnmatch_lines(["baseline: not compared with*: scoring rules:*before*now: FAIL"])
    before, after, other = map(str, project.folders())
    capsys.readouterr()

    def compare(*options: str, old: str = before, new: str = after) -> tuple[int, str]:
        code = main(["compare", "--baseline", old, "--current", new, *options])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    for old, new in ((before, after), (f"{before}/report.json", f"{after}/records.jsonl")):
        code, page = compare("--out", "-", old=old, new=new)
        assert (code, page.partition(" - ")[2].splitlines()[0]) == (0, "1 new failure")
    code, output = compare(new=other)
    assert (code, "can't be compared: scoring rules" in output) == (2, True)
    code, page = compare("--force", "--out", "-", new=other)
    assert (code, "Forced comparison: the runs differ in scoring rules" in page) == (0, True)
    # two pages of the same second
    monkeypatch.setattr("time.strftime", lambda *_: "20260102T030405Z")
    assert [compare("--fail-on", condition)[0] for condition in ("regressed>0", "mean<-0.5")] == [1, 0]
    pages = sorted((project.root / "reports" / "benchmarks").glob("benchmark_diff_*"))
    names = ["benchmark_diff_20260102T030405Z.md", "benchmark_diff_20260102T030405Z_2.md"]
    assert [path.name for path in pages] == names
    code, output = compare(new=f"{after}/summary.md")
    assert (code, "summary.md: " in output) == (2, True)


def test_a_gate_compares_the_cases_that_are_the_same_in_both_runs(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(project.root)
    project.write("toypack.py", (project.root / "conftest.py").read_text("utf-8"))
    project.suite("toy", RATIO)
    for name in ("a", "b", "c"):
        project.case(name, points=0.9)
    project.run_toy()
    # one case is changed, and one has an error
    project.case("b", points=1.0)
    project.case("c", points=0.9, python="raise OSError('down')")
    project.run_toy()
    before, after = project.folders()

    def gate(*arguments: str | Path) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["gate", "--pack=toypack:Toy", *map(str, arguments)])
        return code, "".join(capsys.readouterr())

    code, output = gate(after, "--baseline", before)
    ratio = "1.00 x the baseline's 0.90 / 1 = 0.90 over the 1 case in both runs, now 0.90 / 1 = 0.90 <= max 1.00 x"
    assert f"  mean_score 1.90 / 2 = 0.95, {ratio}, only 2 cases: PASS" in output
    assert "  completeness 2 / 3 = 66.7 % < min 100.0 %: FAIL" in output
    assert code == 1
    # records are read with the report beside them, or with the errors
    assert gate(after / "records.jsonl", "--baseline", before / "records.jsonl") == (1, output)
    (after / "report.json").unlink()
    assert gate(after / "records.jsonl", "--baseline", before) == (1, output)
    compare = ["compare", "--baseline", str(before), "--current", str(after / "records.jsonl"), "--out", "-"]
    for errors, messages in (
        (True, [" 1 new failure (1 without a score)"]),
        (False, ["was read from records only", "## Removed"]),
    ):
        if not errors:
            (after / "errors.jsonl").unlink()
        assert main(compare) == 0
        page = capsys.readouterr().out
        assert [message for message in messages if message not in page] == []
    project.suite("toy", f"{RATIO}{OTHER_RULES}")
    project.run_toy()
    project.suite("other", "pack: toy\n")
    project.case("x", suite="other")
    project.run("--packbench-suite=other")
    (other,) = project.folders("other")
    mistakes: dict[str, tuple[Path, ...]] = {
        "can't be the baseline: scoring rules: '": (project.folders()[-1], before),
        "got a run of suite toy; expected one run of each suite among toy": (before, before, before),
        "got a run of suite other; expected one run of each suite among toy": (before, other),
    }
    for message, (current, *baselines) in mistakes.items():
        code, output = gate(current, *(f"--baseline={baseline}" for baseline in baselines))
        assert (code, message in output) == (2, True), output


def test_a_gate_against_the_last_run_is_judged_in_a_run_but_not_against_itself(project: Project) -> None:
    project.suite("toy", RATIO)
    for name in ("a", "b"):
        project.case(name, points=0.9)
    for line, exit_code in (
        ("*mean_score*max 1 x baseline: there is no earlier complete run to compare with*: FAIL", 1),
        ("*mean_score*1.00 x the baseline's 1.80 / 2 = 0.90 <= max 1.00 x*: PASS", 0),
    ):
        result = project.run_toy(LATEST)
        assert result.ret == exit_code
        result.stdout.fnmatch_lines([line])
    newest = project.folders()[-1]
    again = project.run_toy(LATEST, f"--packbench-resume={newest.name}")
    assert again.ret == pytest.ExitCode.TESTS_FAILED
    again.stdout.fnmatch_lines([f"*run {newest.name} cannot be compared with itself; name another run*"])
    assert json.loads((newest / "report.json").read_text("utf-8"))["packbench"]["status"] == "failed"
    project.suite("toy", f"{RATIO}{OTHER_RULES}")
    other = project.run_toy(LATEST)
    assert other.ret == pytest.ExitCode.TESTS_FAILED
    other.stdout.fnmatch_lines(["*mean_score*can't be the baseline: scoring rules: *before*"])


def test_a_latest_without_a_run_id_is_no_baseline(tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"", b"../../..", b"/etc"):
        (tmp_path / "latest").write_bytes(content)
        folder = tmp_path / "run"
        baseline = find_baseline(
            BaselineLookup(requested="latest"), run(), folder=folder, committed=folder / "baseline.json"
        )
        reason = f"not compared: {tmp_path / 'latest'}: does not contain a run id; "
        assert (baseline.stored, baseline.reason.startswith(reason)) == (None, True)
