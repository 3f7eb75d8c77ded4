"""Runs read from records, with the files beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.analysis.gates import check_run
from pytest_packbench.runs.folder import StoredRunError
from pytest_packbench.runs.stored import read_run
from tests.unit.run_builders import COMPLETE, case_result, document, gate, run
from tests.unit.stored_runs import record

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult

RUN_ID = run().run_id
# what a result does not have
EXTENSION = {"version": 1, "mode": "fixture", "pack": "toy/1", "target": "reference", "suite_sha256": "ab" * 32}
BROKEN = case_result("broken", "error", kind="timeout", message="after 5 s")


def write_records(folder: Path, *results: CaseResult, judges: tuple[object, ...] = ()) -> Path:
    lines = []
    for number, result in enumerate(results):
        names = ("score", "threshold", "verdict", "case_id", "case_type", "difficulty", "file", "trial", "case_sha256")
        fields = {name: getattr(result, name) for name in names}
        extension = EXTENSION | fields | {"terms": [], "tags": [], "facets": {}, "case_sha256": "ab" * 32}
        judge = {"judge": judges[number]} if judges else {}
        passed = result.verdict == "passed"
        lines.append(
            record(test_suite="toy", test_id=result.test_id, passed=passed, run_id=RUN_ID, packbench=extension | judge)
        )
    path = folder / "records.jsonl"
    path.write_text("".join(f"{line.to_json_line()}\n" for line in lines), encoding="utf-8")
    return path


def write_errors(folder: Path, *results: CaseResult, **changes: Any) -> None:
    lines = [json.dumps(result.error_line(RUN_ID) | changes) for result in results]
    (folder / "errors.jsonl").write_text("\n".join(lines), encoding="utf-8")


def write_report(folder: Path, *results: CaseResult, **changes: Any) -> None:
    report = {"packbench": document(run(**changes), results)}
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


def completeness(path: Path) -> str:
    stored = read_run(path)
    (result,) = check_run(stored.run, stored.results, [COMPLETE], with_errors=stored.lists_all_cases)
    return result.text


def test_records_with_the_errors_of_their_run_list_all_cases(tmp_path: Path) -> None:
    path = write_records(tmp_path, case_result("a"))
    assert not read_run(path).lists_all_cases
    assert completeness(path).startswith("completeness: unknown, because records alone")
    write_errors(tmp_path, BROKEN, run_id="01OTHER")
    assert not read_run(path).lists_all_cases
    write_errors(tmp_path, BROKEN, case_result("skipped", "not_run", kind="skip"))
    results = read_run(path).results
    assert [(result.case_id, result.verdict, result.kind, result.message) for result in results] == [
        ("a", "passed", "", ""),
        ("broken", "error", "timeout", "after 5 s"),
        ("skipped", "not_run", "skip", ""),
    ]
    assert completeness(path) == "completeness 1 / 2 = 50.0 % < min 100.0 %: FAIL"
    # an error in one trial of a case
    write_records(tmp_path, *(case_result(name[0], trial=int(name[1])) for name in ("a0", "a2", "b0", "b1")))
    write_errors(tmp_path, case_result("a", "error", trial=1, kind="timeout"))
    assert sorted(result.trial for result in read_run(path).results if result.case_id == "a") == [0, 1, 2]
    assert completeness(path) == "completeness 1 / 2 = 50.0 % < min 100.0 %: FAIL"


def test_records_with_the_report_of_their_run_list_all_cases(tmp_path: Path) -> None:
    path = write_records(tmp_path, case_result("a"))
    write_report(tmp_path, case_result("a"), run_id="01OTHER")
    assert not read_run(path).lists_all_cases
    write_report(tmp_path, case_result("a"), BROKEN, partial="stopped early")
    stored = read_run(path)
    assert (stored.lists_all_cases, stored.run.partial, len(stored.results)) == (True, "stopped early", 2)
    write_report(tmp_path, case_result("a"), case_result("b"))
    with pytest.raises(StoredRunError, match=r"does not match .*report.json \(toy:plain:b is in only one of them\)"):
        read_run(path)
    write_report(tmp_path, case_result("a"))
    assert completeness(path) == completeness(tmp_path) == "completeness 1 / 1 = 100.0 % >= min 100.0 %: PASS"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "errors.jsonl:1: not JSON"),
        ("[]", "errors.jsonl:1: expected an object with run_id, test_id"),
        ('{"run_id": 1}', "errors.jsonl:1: expected an object"),
        ('{"test_id": "a", "verdict": "great"}', "errors.jsonl:1: expected a test_id, and a verdict of passed"),
    ],
)
def test_a_damaged_line_is_an_error_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    path = write_records(tmp_path, case_result("a"))
    (tmp_path / "errors.jsonl").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(StoredRunError, match=message):
        read_run(path)


BOTH = "llama_guard", "words"


@pytest.mark.parametrize("judges", [BOTH, tuple({"name": name, "verdict": "unsafe"} for name in BOTH)])
def test_records_alone_name_their_judges_and_rates_of_two_judges_fail(tmp_path: Path, judges: tuple[object]) -> None:
    stored = read_run(write_records(tmp_path, case_result("a"), case_result("b"), judges=judges))
    assert [result.judge for result in stored.results] == ["llama_guard", "words"]
    (result,) = check_run(stored.run, stored.results, [gate("pass_rate", min=0.5)])
    assert result.text == "pass_rate: judged by llama_guard and words; rates of several judges are not mixed: FAIL"
