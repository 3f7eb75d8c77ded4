"""Runs read from records, with what lies beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.analysis.gates import check_run
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.runs.folder import StoredRunError
from pytest_packbench.runs.stored import read_run
from tests.unit.run_builders import COMPLETE, case_result, document, gate, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult

RUN_ID = run().run_id


def record(found: CaseResult) -> EvalRecord:
    return EvalRecord(
        test_suite="toy",
        test_id=found.test_id,
        attack_category="plain",
        agent_decision="comply_safe",
        expected="comply_safe",
        passed=found.verdict == "passed",
        hook_decisions=(),
        tokens_input=None,
        tokens_output=None,
        wall_clock_ms=1,
        llm_backend="anthropic",
        llm_model="m-1",
        run_id=RUN_ID,
        timestamp="2026-01-02T03:04:05.000Z",
        packbench={
            "version": 1,
            "score": found.score,
            "threshold": found.threshold,
            "verdict": found.verdict,
            "terms": [],
            "case_id": found.case_id,
            "case_type": found.case_type,
            "difficulty": "easy",
            "tags": [],
            "facets": {},
            "file": found.file,
            "trial": found.trial,
            "mode": "fixture",
            "pack": "toy/1",
            "target": "reference",
            "case_sha256": "ab" * 32,
            "suite_sha256": "ab" * 32,
        },
    )


def records(folder: Path, *found: CaseResult, name: str = "records.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{record(one).to_json_line()}\n" for one in found), encoding="utf-8")
    return path


def errors(folder: Path, *found: CaseResult, **changes: Any) -> None:
    lines = [{**one.error_line(RUN_ID), **changes} for one in found]
    (folder / "errors.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def report(folder: Path, *found: CaseResult, **changes: Any) -> None:
    text = json.dumps({"packbench": document(run(**changes), found)})
    (folder / "report.json").write_text(text, encoding="utf-8")


BROKEN = case_result("broken", "error", kind="timeout", message="after 5 s")


def completeness(path: Path) -> str:
    read = read_run(path)
    (result,) = check_run(read.run, read.results, [COMPLETE], with_errors=read.lists_all_cases)
    return result.text


def test_records_alone_do_not_tell_what_broke(tmp_path: Path) -> None:
    path = records(tmp_path, case_result("a"))
    assert not read_run(path).lists_all_cases
    assert completeness(path).startswith("completeness: unknown, because records alone")


def test_the_errors_beside_them_do(tmp_path: Path) -> None:
    path = records(tmp_path, case_result("a"))
    errors(tmp_path, BROKEN, case_result("skipped", "not_run", kind="skip"))
    read = read_run(path)
    assert [(one.case_id, one.verdict, one.kind, one.message) for one in read.results] == [
        ("a", "passed", "", ""),
        ("broken", "error", "timeout", "after 5 s"),
        ("skipped", "not_run", "skip", ""),
    ]
    assert completeness(path) == "completeness 1 / 2 = 50.0 % < min 100.0 %: FAIL"


def test_the_errors_of_another_run_do_not(tmp_path: Path) -> None:
    path = records(tmp_path, case_result("a"))
    errors(tmp_path, BROKEN, run_id="01OTHER")
    assert not read_run(path).lists_all_cases


def test_the_report_beside_them_tells_all(tmp_path: Path) -> None:
    path = records(tmp_path, case_result("a"))
    report(tmp_path, case_result("a"), BROKEN, partial="stopped early")
    read = read_run(path)
    assert (read.lists_all_cases, read.run.partial, len(read.results)) == (True, "stopped early", 2)
    report(tmp_path, case_result("a"), run_id="01OTHER")
    assert not read_run(path).lists_all_cases


def test_a_report_without_errors_needs_no_errors_file(tmp_path: Path) -> None:
    path = records(tmp_path, case_result("a"))
    report(tmp_path, case_result("a"))
    assert completeness(path) == "completeness 1 / 1 = 100.0 % >= min 100.0 %: PASS"
    assert completeness(tmp_path) == completeness(path)


def test_records_that_were_cut_are_not_those_of_the_report(tmp_path: Path) -> None:
    path = records(tmp_path, case_result("a"))
    report(tmp_path, case_result("a"), case_result("b"))
    with pytest.raises(StoredRunError, match=r"does not match .*report.json \(toy:plain:b is in only one of them\)"):
        read_run(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "errors.jsonl:1: not JSON"),
        ("[]", "errors.jsonl:1: expected an object with run_id, test_id"),
        ('{"run_id": 1}', "errors.jsonl:1: expected an object"),
        ('{"test_id": "a", "verdict": "great"}', "errors.jsonl:1: expected a test_id, and a verdict of passed"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = records(tmp_path, case_result("a"))
    (tmp_path / "errors.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(StoredRunError, match=said):
        read_run(path)


def test_a_broken_trial_keeps_its_case_out(tmp_path: Path) -> None:
    path = records(
        tmp_path,
        case_result("a", trial=0),
        case_result("a", trial=2),
        case_result("b", trial=0),
        case_result("b", trial=1),
    )
    errors(tmp_path, case_result("a", "error", trial=1, kind="timeout"))
    read = read_run(path)
    assert sorted((one.case_id, one.trial) for one in read.results if one.case_id == "a") == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
    ]
    assert completeness(path) == "completeness 1 / 2 = 50.0 % < min 100.0 %: FAIL"


@pytest.mark.parametrize(
    "form", [lambda name: {"name": name, "verdict": "unsafe"}, lambda name: name], ids=["object", "name"]
)
def test_records_alone_tell_who_judged(tmp_path: Path, form: Callable[[str], object]) -> None:
    path = tmp_path / "records.jsonl"
    found = []
    for case_id, judge in (("a", "llama_guard"), ("b", "words")):
        one = record(case_result(case_id))
        found.append(replace(one, packbench={**(one.packbench or {}), "judge": form(judge)}).to_json_line())
    path.write_text("\n".join(found), "utf-8")
    stored = read_run(path)
    assert [one.judge for one in stored.results] == ["llama_guard", "words"]
    (result,) = check_run(stored.run, stored.results, [gate("pass_rate", min=0.5)])
    assert result.text == "pass_rate: judged by llama_guard and words; rates of several judges are not mixed: FAIL"
