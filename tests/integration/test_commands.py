"""What is done with runs after they ended: validate, rescore, history, merge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from pytest_packbench.cli import main
from pytest_packbench.commands.schema import schema
from pytest_packbench.model.result import CaseResult
from pytest_packbench.runs.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Copy


@pytest.fixture
def ran(copy: Copy, capsys: pytest.CaptureFixture[str]) -> Copy:
    """The tariff suite, run once."""
    copy.run()
    capsys.readouterr()
    return copy


def latest(copy: Copy) -> Path:
    place = copy.pytester.path / "reports" / "benchmarks" / "tariff"
    return place / (place / "latest").read_text("utf-8").strip()


def test_what_a_run_leaves_is_of_its_schema(ran: Copy) -> None:
    folder = latest(ran)
    report = json.loads((folder / "report.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema("report")).validate(report)
    record = jsonschema.Draft202012Validator(schema("record"))
    for line in (folder / "records.jsonl").read_text("utf-8").splitlines():
        record.validate(json.loads(line))


def test_validate_knows_all_of_our_files(ran: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "storage", "reports"]) == 0
    said = capsys.readouterr().out
    for words in (
        "rules of a suite of pack tariff",
        "case of pack tariff",
        "cassette, version 1, authored",
        "report of a run, version 1",
        "each eval record, version 1",
        "each result of a run, version 1",
    ):
        assert words in said


def test_validate_knows_a_journal_that_a_killed_run_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = CaseResult(suite="s", test_id="s:a:b", case_id="b", nodeid="f::b", file="f", verdict="passed")
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.append(entry)
    assert main(["validate", str(tmp_path / "journal.jsonl")]) == 0
    assert "1 line, each entry of a journal, version 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"id": 1,}', "a.json: line 1 column"),
        ("a.json", '{"pack_id": "tarif"}', '/pack_id: unknown pack "tarif"; did you mean "tariff"?'),
        ("a.json", '{"cassette_version": 3}', "/cassette_version: got 3; expected 1"),
        ("a.json", '{"packbench": {"version": 9}}', "/packbench/version: got 9; this version reads 1"),
        ("a.jsonl", '{"test_suite": 1}\n', "a.jsonl:1: test_suite"),
        ("suite.yaml", "pack: x\n", 'unknown pack "x"'),
    ],
)
def test_validate_says_what_is_wrong_and_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["validate", str(tmp_path / name)]) == 2
    out = capsys.readouterr().out
    assert said in out
    assert out.endswith("NOT VALID\n")
    assert out.count("\n") == 1


def test_validate_of_nothing_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "nowhere.json"]) == 2
    assert "nowhere.json: No such file or directory: NOT VALID" in capsys.readouterr().out


def test_rescoring_by_the_same_rules_changes_nothing(ran: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", "tariff/latest"]) == 0
    assert capsys.readouterr().out.startswith("# packbench: tariff compared - no score changed\n")


def test_rescoring_by_stricter_rules_shows_what_falls(ran: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    rules = ran.folder / "suite.yaml"
    rules.write_text(rules.read_text("utf-8").replace("preferred: 1.0", "preferred: 0.6"), encoding="utf-8")
    assert main(["rescore", "tariff/latest", "--fail-on", "regressed>0"]) == 1
    said = capsys.readouterr().out
    assert "preferred_match +1.00 to +0.60" in said
    assert "new failures" in said


def test_a_run_without_results_cannot_be_rescored(ran: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    (latest(ran) / "payloads.jsonl").unlink()
    assert main(["rescore", "tariff/latest"]) == 2
    assert "the run stored no results" in capsys.readouterr().err


def test_history_shows_runs_over_time(ran: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    copy_of_one = ran.cases()[0]
    ran.pytester.runpytest(str(copy_of_one))
    capsys.readouterr()
    assert main(["history", "tariff", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in rows] == ["passed", "partial"]
    assert [row["cases"] for row in rows] == [len(ran.cases()), 1]
    assert main(["history", "nosuch"]) == 2


def test_two_halves_merge_to_the_whole(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    half = len(copy.cases()) // 2
    first, second = copy.cases()[:half], copy.cases()[half:]
    copy.pytester.runpytest(*map(str, first))
    copy.pytester.runpytest(*map(str, second))
    place = copy.pytester.path / "reports" / "benchmarks" / "tariff"
    parts = sorted(path for path in place.glob("*/"))
    capsys.readouterr()
    assert main(["merge", *map(str, parts)]) == 0
    (merged,) = set(place.glob("*/")) - set(parts)
    assert (place / "latest").read_text("utf-8").strip() == merged.name
    copy.run()
    whole = latest(copy)
    assert (
        main(
            [
                "compare",
                "--baseline",
                str(merged),
                "--current",
                str(whole),
                "--fail-on",
                "verdict_changed>0, added>0, removed>0",
            ]
        )
        == 0
    )
    assert records_without_times(merged) == records_without_times(whole)


def records_without_times(folder: Path) -> list[dict[str, Any]]:
    """The records of a run but for time and run id."""
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text("utf-8").splitlines()]
    return [{**line, "run_id": "", "timestamp": "", "wall_clock_ms": 0} for line in lines]


def test_merging_says_what_does_not_belong_together(ran: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(latest(ran))
    assert main(["merge", one, one]) == 2
    assert "is passed twice" in capsys.readouterr().err
    ran.pytester.runpytest(str(ran.cases()[0]))
    again = str(max(latest(ran).parent.glob("*/")))
    capsys.readouterr()
    assert main(["merge", one, again]) == 2
    assert "each case may be in one run" in capsys.readouterr().err
    rules = ran.folder / "suite.yaml"
    rules.write_text(rules.read_text("utf-8").replace("preferred: 1.0", "preferred: 0.9"), encoding="utf-8")
    assert main(["merge", one]) == 2
    assert "the rules of suite tariff have changed" in capsys.readouterr().err


def test_a_merge_with_a_part_missing_is_partial_and_leaves_latest(
    ran: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    before = latest(ran)
    ran.pytester.runpytest(str(ran.cases()[0]))
    part = max(before.parent.glob("*/"))
    assert main(["merge", str(part)]) == 1
    assert "are in none of the runs" in capsys.readouterr().out
    assert latest(ran) == before


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "compare" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["nonsense"])
    assert stop.value.code == 2


def test_gates_judge_stored_runs(ran: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "tariff/latest"]) == 0
    said = capsys.readouterr().out
    assert "  completeness " in said
    assert said.endswith("all gates passed\n")
    rules = ran.folder.parent / "strict"
    rules.mkdir()
    (rules / "suite.yaml").write_text(
        "pack: tariff\ngates: [{metric: accuracy, depth: 10, min: 1}, {metric: mean_score, max: 0.5}]\n",
        encoding="utf-8",
    )
    assert main(["gate", "tariff/latest", "--rules", "strict"]) == 1
    said = capsys.readouterr().out
    assert "accuracy@10" in said
    assert "> max 0.50: FAIL" in said
    assert main(["gate", str(latest(ran) / "records.jsonl"), "--require", "agentdojo"]) == 1
    assert "agentdojo: no run of this suite is among RUNS: FAIL" in capsys.readouterr().out
    assert main(["gate", "nowhere"]) == 2


def test_a_gate_against_a_baseline(ran: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    rules = ran.folder / "suite.yaml"
    rules.write_text(
        rules.read_text("utf-8") + "  - metric: over_refusal_rate\n    max_ratio_to_baseline: 0.5\n", encoding="utf-8"
    )
    assert main(["gate", "tariff/latest"]) == 1
    assert "no baseline; pass an earlier run as the baseline: FAIL" in capsys.readouterr().out
    assert main(["gate", "tariff/latest", "--baseline", "tariff/latest"]) == 0
    assert "the baseline is 0, so only 0 passes" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        {"score": "x"},
        {"verdict": "great"},
        {"test_id": 5},
        {"terms": [1]},
        {"trial": "0"},
        {"facets": []},
        {"score": 7},
    ],
)
def test_a_damaged_report_is_one_line_everywhere(
    ran: Copy, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    path = latest(ran) / "report.json"
    report = json.loads(path.read_text("utf-8"))
    report["packbench"]["cases"][0].update(change)
    damaged = ran.pytester.path / "damaged.json"
    damaged.write_text(json.dumps(report), encoding="utf-8")
    assert main(["compare", "--baseline", str(damaged), "--current", "tariff/latest"]) == 2
    assert main(["validate", str(damaged)]) == 2
    assert "not a run document" in capsys.readouterr().err
    result = ran.run(f"--packbench-baseline={damaged}")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["baseline: not compared:*not a run document*"])
