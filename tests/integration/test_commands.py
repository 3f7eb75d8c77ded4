"""Commands on runs that pytest has written: validate, rescore, history, merge, gate, compare."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from pytest_packbench.cli import main
from pytest_packbench.commands.schema import schema
from tests.integration.conftest import CASES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

RULES = "pack: toy\ngates: [{metric: pass_rate, min: 0.5}]\n"
LATEST = "toy/latest"


@pytest.fixture
def ran(project: Project, capsys: pytest.CaptureFixture[str]) -> Project:
    """A suite of three cases, one of them below its threshold, that was run once."""
    project.suite(text=RULES)
    for name, points in {"a": 1.0, "b": 0.9, "low": 0.5}.items():
        project.case(name, points=points, notes={"source": "made up"})
    project.run_toy("--packbench-gate=suite")
    capsys.readouterr()
    return project


def latest(project: Project) -> Path:
    parent = project.root / "reports" / "benchmarks" / "toy"
    return parent / (parent / "latest").read_text("utf-8").strip()


def test_the_files_of_a_run_are_valid(ran: Project) -> None:
    jsonschema.Draft202012Validator(schema("report")).validate(ran.report())
    for line in ran.lines("records.jsonl"):
        jsonschema.Draft202012Validator(schema("record")).validate(line)
    assert main(["validate", "storage", "reports"]) == 0


INVALID = {
    "no JSON": ("a.json", '{"id": 1,}'),
    "pack": ("a.json", '{"pack_id": "tarif"}'),
    "version of a recording": ("a.json", '{"cassette_version": 3}'),
    "version of a report": ("a.json", '{"packbench": {"version": 9}}'),
    "record": ("a.jsonl", '{"test_suite": 1}\n'),
    "rules": ("suite.yaml", "pack: x\n"),
}


def test_validate_reports_what_is_wrong_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = []
    for name, (file, text) in INVALID.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
        assert main(["validate", file]) == 2, name
        lines.append(f"{name}: {capsys.readouterr().out}")
    assert main(["validate", "nowhere.json"]) == 2
    expected.check("".join([*lines, f"no file: {capsys.readouterr().out}"]))


def test_rescore_applies_the_rules_of_today(ran: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", LATEST]) == 0
    assert capsys.readouterr().out.startswith("# packbench: toy compared - no score changed\n")
    ran.suite(text=f"{RULES}thresholds: {{accept: 0.95}}\n")
    assert main(["rescore", LATEST, "--fail-on", "new_failures>0"]) == 1
    assert "1 new failure" in capsys.readouterr().out
    (latest(ran) / "payloads.jsonl").unlink()
    assert main(["rescore", LATEST]) == 2
    assert "the run stored no results" in capsys.readouterr().err


def test_runs_that_do_not_belong_together_are_not_merged(ran: Project, capsys: pytest.CaptureFixture[str]) -> None:
    whole = str(latest(ran))
    ran.run("--packbench-gate=suite", f"{CASES}/plain/a.json")
    (part,) = {str(folder) for folder in ran.folders()} - {whole}
    capsys.readouterr()
    for message, folders in {
        "is passed twice": [whole, whole],
        "each case may be in one run": [whole, part],
    }.items():
        assert main(["merge", *folders]) == 2
        assert message in capsys.readouterr().err
    ran.suite(text=f"{RULES}thresholds: {{accept: 0.9}}\n")
    assert main(["merge", whole]) == 2
    assert "the rules of suite toy have changed" in capsys.readouterr().err


def test_gates_judge_stored_runs(ran: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", str(latest(ran) / "records.jsonl")]) == 0
    assert capsys.readouterr().out.endswith("all gates passed\n")
    ran.suite("strict", "pack: toy\ngates: [{metric: accuracy, depth: 2, min: 1}, {metric: mean_score, max: 0.5}]\n")
    assert main(["gate", LATEST, "--rules", "strict"]) == 1
    output = capsys.readouterr().out
    assert "accuracy@2" in output
    assert "> max 0.50, only 3 cases: FAIL" in output
    assert main(["gate", "nowhere"]) == 2
    ran.suite(text="pack: toy\ngates: [{metric: over_refusal_rate, max_ratio_to_baseline: 0.5}]\n")
    assert main(["gate", LATEST]) == 1
    assert "no baseline; pass an earlier run as the baseline, 95 %" in capsys.readouterr().out
    assert main(["gate", LATEST, "--baseline", LATEST]) == 0
    assert "the baseline is 0, so only 0 passes" in capsys.readouterr().out


def test_a_damaged_report_is_one_line_everywhere(ran: Project, capsys: pytest.CaptureFixture[str]) -> None:
    report = ran.report()
    report["packbench"]["cases"][0]["score"] = 7
    damaged = ran.write("damaged.json", json.dumps(report))
    assert main(["compare", "--baseline", str(damaged), "--current", LATEST]) == 2
    assert "not a run document" in capsys.readouterr().err
    assert main(["validate", str(damaged)]) == 2
    result = ran.run_toy(f"--packbench-baseline={damaged}", "--packbench-gate=suite")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["baseline: not compared:*not a run document*"])
