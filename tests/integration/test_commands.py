"""Commands on runs that pytest has written: validate, rescore, history, merge, gate, compare."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from pytest_packbench.cli import main
from pytest_packbench.commands.schema import schema
from pytest_packbench.model.result import CaseResult
from pytest_packbench.runs.journal import Journal
from tests.integration.conftest import CASES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import ExpectedTexts
    from tests.integration.conftest import Project

RULES = "pack: toy\ngates: [{metric: pass_rate, min: 0.5}]\n"
LATEST = "toy/latest"
TIMES = ("run_id", "timestamp", "wall_clock_ms")


@pytest.fixture
def ran(project: Project, capsys: pytest.CaptureFixture[str]) -> Project:
    """A suite of three cases, one of them below its threshold, that was run once."""
    project.suite(text=RULES)
    for name, points in {"a": 1.0, "b": 0.9, "low": 0.5}.items():
        project.case(name, points=points, notes={"source": "made up"})
    project.run_toy("--packbench-gate=suite")
    capsys.readouterr()
    return project


def run_cases(project: Project, *names: str) -> Path:
    """Run some cases and return the folder of the run."""
    before = project.folders()
    project.run("--packbench-gate=suite", *(f"{CASES}/plain/{name}.json" for name in names))
    (folder,) = set(project.folders()) - set(before)
    return folder


def latest(project: Project) -> Path:
    parent = project.root / "reports" / "benchmarks" / "toy"
    return parent / (parent / "latest").read_text("utf-8").strip()


def test_the_files_of_a_run_are_valid(
    ran: Project, capsys: pytest.CaptureFixture[str], expected: ExpectedTexts
) -> None:
    jsonschema.Draft202012Validator(schema("report")).validate(ran.report())
    record = jsonschema.Draft202012Validator(schema("record"))
    for line in ran.lines("records.jsonl"):
        record.validate(line)
    ran.write(
        "storage/benchmarks/toy/fixtures/a.json",
        json.dumps(
            {
                "cassette_version": 1,
                "case_id": "a",
                "input_sha256": "0" * 64,
                "origin": "authored",
                "llm_backend": "stub",
                "llm_model": "authored",
                "exchanges": [],
            }
        ),
    )
    result = CaseResult(suite="s", test_id="s:a:b", case_id="b", nodeid="f::b", file="f", verdict="passed")
    with Journal(ran.root / "reports" / "journal.jsonl") as journal:
        journal.append(result)
    assert main(["validate", "storage", "reports"]) == 0
    expected.check(re.sub(r"/01\w+/", "/RUN/", capsys.readouterr().out))


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


def test_history_lists_runs(ran: Project, capsys: pytest.CaptureFixture[str]) -> None:
    run_cases(ran, "a")
    capsys.readouterr()
    assert main(["history", "toy", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["status"], row["cases"]) for row in rows] == [("passed", 3), ("partial", 1)]
    assert main(["history", "other"]) == 2


def records_without_times(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text("utf-8").splitlines()]
    return [{**line, **dict.fromkeys(TIMES)} for line in lines]


def test_parts_merge_to_the_whole(ran: Project, capsys: pytest.CaptureFixture[str]) -> None:
    whole = latest(ran)
    parts = [run_cases(ran, "a"), run_cases(ran, "b", "low")]
    assert main(["merge", *map(str, parts)]) == 0
    (merged,) = set(ran.folders()) - {whole, *parts}
    assert latest(ran) == merged
    changes = "verdict_changed>0, added>0, removed>0"
    assert main(["compare", "--baseline", str(merged), "--current", str(whole), "--fail-on", changes]) == 0
    assert records_without_times(merged) == records_without_times(whole)
    # a part that is missing leaves `latest`
    assert main(["merge", str(parts[0])]) == 1
    assert "are in none of the runs" in capsys.readouterr().out
    assert latest(ran) == merged


def test_runs_that_do_not_belong_together_are_not_merged(ran: Project, capsys: pytest.CaptureFixture[str]) -> None:
    whole, part = str(latest(ran)), str(run_cases(ran, "a"))
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
    assert main(["gate", LATEST]) == 0
    output = capsys.readouterr().out
    assert "  completeness " in output
    assert output.endswith("all gates passed\n")
    ran.suite("strict", "pack: toy\ngates: [{metric: accuracy, depth: 2, min: 1}, {metric: mean_score, max: 0.5}]\n")
    assert main(["gate", LATEST, "--rules", "strict"]) == 1
    output = capsys.readouterr().out
    assert "accuracy@2" in output
    assert "> max 0.50, only 3 cases: FAIL" in output
    assert main(["gate", str(latest(ran) / "records.jsonl"), "--require", "agentdojo"]) == 1
    assert "agentdojo: no run of this suite is among RUNS: FAIL" in capsys.readouterr().out
    assert main(["gate", "nowhere"]) == 2


def test_a_gate_compares_with_a_baseline(ran: Project, capsys: pytest.CaptureFixture[str]) -> None:
    ran.suite(text="pack: toy\ngates: [{metric: over_refusal_rate, max_ratio_to_baseline: 0.5}]\n")
    assert main(["gate", LATEST]) == 1
    assert "no baseline; pass an earlier run as the baseline, 95 %" in capsys.readouterr().out
    assert main(["gate", LATEST, "--baseline", LATEST]) == 0
    assert "the baseline is 0, so only 0 passes" in capsys.readouterr().out


DAMAGES: list[dict[str, Any]] = [
    {"score": "x"},
    {"verdict": "great"},
    {"test_id": 5},
    {"terms": [1]},
    {"trial": "0"},
    {"facets": []},
    {"score": 7},
]


def test_a_damaged_report_is_one_line_everywhere(ran: Project, capsys: pytest.CaptureFixture[str]) -> None:
    report = ran.report()
    damaged = ran.root / "damaged.json"
    for change in DAMAGES:
        first, *others = report["packbench"]["cases"]
        cases = [{**first, **change}, *others]
        document = {**report, "packbench": {**report["packbench"], "cases": cases}}
        damaged.write_text(json.dumps(document), encoding="utf-8")
        assert main(["compare", "--baseline", str(damaged), "--current", LATEST]) == 2, change
        assert "not a run document" in capsys.readouterr().err, change
        assert main(["validate", str(damaged)]) == 2, change
    result = ran.run_toy(f"--packbench-baseline={damaged}", "--packbench-gate=suite")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["baseline: not compared:*not a run document*"])


def test_help_and_unknown_commands_exit(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in {("--help",): 0, ("nonsense",): 2}.items():
        with pytest.raises(SystemExit) as stop:
            main(list(arguments))
        assert stop.value.code == code
    assert "compare" in capsys.readouterr().out
