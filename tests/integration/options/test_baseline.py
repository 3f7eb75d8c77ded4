"""`--packbench-baseline`, `packbench compare` and gates against an earlier run: like is compared with like, or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_packbench.commands import main
from tests.integration.conftest import ended

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.integration.conftest import Project

RATIO = "pack: toy\ngates:\n  - {metric: mean_score, max_ratio_to_baseline: 1.0}\n"
OTHER_RULES = "thresholds: {accept: 0.5}\n"
LATEST = "--packbench-baseline=latest"


def test_a_run_is_compared_with_the_last_complete_one(project: Project) -> None:
    project.cases("c0", "c1", "c2", "c3", points=0.9)
    # an empty name, as of an unset variable, is not none
    for name in ("latest", ""):
        ended(project.run_toy(f"--packbench-baseline={name}", "-k", "c3"), 1)
    ended(project.run_toy(LATEST), 1, "baseline: there is no earlier complete run to compare with: FAIL")
    complete = project.left()
    project.run_toy("-k", "c1")
    project.case("c0", points=0.2)
    line = f"baseline: no score changed; 1 case changed and excluded since run {complete.name} of * UTC (diff.md)"
    ended(project.run_toy(LATEST), 1, line)
    assert "toy:plain:c0" in project.text("diff.md").partition("Case or judge changed")[2]
    report = project.report()
    expected = "expected none, latest, passed, committed, the id of a run or a path"
    project.refused(f"--packbench-baseline: no run at*nowhere; {expected}", "--packbench-baseline=nowhere")
    report["packbench"]["cases"][0]["score"] = 7
    damaged = project.write("damaged.json", json.dumps(report))
    ended(project.run_toy(f"--packbench-baseline={damaged}"), 1, "baseline: not compared:*not a run document*")


def test_the_command_compares_folders_reports_and_records(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.case("a", python="import os; order['points'] = float(os.environ['POINTS'])")
    project.case("b")
    for points in ("1.0", "0.4"):
        monkeypatch.setenv("POINTS", points)
        project.run_toy()
    project.suite(text=f"pack: toy\n{OTHER_RULES}")
    ended(project.run_toy(LATEST), 1, "baseline: not compared with*: scoring rules:*before*now: FAIL")
    before, after, other = map(str, project.folders())

    def compare(new: str, *options: str, old: str = before) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["compare", "--baseline", old, "--current", new, *options])
        return code, "".join(capsys.readouterr())

    for old, new in ((before, after), (f"{before}/report.json", f"{after}/records.jsonl")):
        code, page = compare(new, "--out", "-", old=old)
        assert (code, page.partition(" - ")[2].splitlines()[0]) == (0, "1 new failure")
    # two pages of the same second
    monkeypatch.setattr("time.strftime", lambda *_: "20260102T030405Z")
    for new, option, expected, part in (
        (other, "", 2, "can't be compared: scoring rules"),
        (other, "--force --out=-", 0, "Forced comparison: the runs differ in scoring rules"),
        (after, "--fail-on=regressed>0", 1, "benchmark_diff_20260102T030405Z.md"),
        (after, "--fail-on=mean<-0.5", 0, "benchmark_diff_20260102T030405Z_2.md"),
        (f"{after}/summary.md", "", 2, "summary.md: "),
    ):
        code, output = compare(new, *option.split())
        assert (code, part in output) == (expected, True), output


def test_a_gate_compares_the_cases_that_are_the_same_in_both_runs(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(project.root)
    project.write("toypack.py", (project.root / "conftest.py").read_text("utf-8"))
    project.suite("toy", RATIO)
    project.cases("a", "b", "c", points=0.9)
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
    # records are read with the report in their folder, or with the errors
    assert gate(after / "records.jsonl", "--baseline", before / "records.jsonl") == (1, output)
    (after / "report.json").unlink()
    assert gate(after / "records.jsonl", "--baseline", before) == (1, output)
    (after / "errors.jsonl").unlink()
    assert main(["compare", "--baseline", str(before), "--current", str(after / "records.jsonl"), "--out=-"]) == 0
    page = capsys.readouterr().out
    assert ("was read from records only" in page, "## Removed" in page) == (True, True)
    project.suite("toy", f"{RATIO}{OTHER_RULES}")
    project.run_toy()
    project.suite("other", "pack: toy\n")
    project.case("x", suite="other")
    project.run("--packbench-suite=other")
    mistakes: dict[str, tuple[Path, ...]] = {
        "can't be the baseline: scoring rules: '": (project.left(), before),
        "got a run of suite toy; expected one run of each suite among toy": (before, before, before),
        "got a run of suite other; expected one run of each suite among toy": (before, project.left("other")),
    }
    for message, (current, *baselines) in mistakes.items():
        code, output = gate(current, *(f"--baseline={baseline}" for baseline in baselines))
        assert (code, message in output) == (2, True), output


def test_a_gate_against_the_last_run_is_judged_in_a_run_but_not_against_itself(project: Project) -> None:
    project.suite("toy", RATIO)
    project.cases("a", "b", points=0.9)
    missing = "*mean_score*max 1 x baseline: there is no earlier complete run to compare with*: FAIL"
    ended(project.run_toy(LATEST), 1, missing)
    ended(project.run_toy(LATEST), 0, "*mean_score*1.00 x the baseline's 1.80 / 2 = 0.90 <= max 1.00 x*: PASS")
    newest = project.left().name
    itself = f"*run {newest} cannot be compared with itself; name another run*"
    ended(project.run_toy(LATEST, f"--packbench-resume={newest}"), 1, itself)
    assert project.document()["status"] == "failed"
    project.suite("toy", f"{RATIO}{OTHER_RULES}")
    ended(project.run_toy(LATEST), 1, "*mean_score*can't be the baseline: scoring rules: *before*")
