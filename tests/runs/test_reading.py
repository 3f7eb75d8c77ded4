"""Runs read from records, with the files beside them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.model.errors import StoredRunError
from pytest_packbench.runs.reading import open_run
from pytest_packbench.runs.writing import RunWriter
from tests.unit.run_builders import COMPLETE, case_result, check_run, data, document, gate
from tests.unit.stored_runs import read_jsonl, recorded_result, run_of, suite, write, write_jsonl

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.result import Result

DATA: dict[str, Any] = data("reading.yaml")

BROKEN = case_result("broken", "error", kind="timeout", message="after 5 s")
BOTH = "llama_guard", "words"
DAMAGED: Any = DATA["damaged"]


def records_of(folder: Path, *results: Result, partial: str = "") -> Path:
    """Write a run and return its records; beside them are its errors and its report."""
    root = suite(folder)
    return write(folder, run_of(root, partial=partial), results, root) / "records.jsonl"


def completeness(path: Path) -> str:
    stored = open_run(path, checked=False).read()
    (result,) = check_run(stored.run, stored.results, [COMPLETE], with_errors=stored.lists_all_cases)
    return result.text


def test_records_with_the_errors_of_their_run_list_all_cases_and_a_damaged_line_is_an_error(tmp_path: Path) -> None:
    path = records_of(tmp_path / "1", case_result("a"), BROKEN, case_result("skipped", "not_run", kind="skip"))
    path.with_name("report.json").unlink()
    errors = path.with_name("errors.jsonl")
    results = open_run(path, checked=False).read().results
    assert [
        (result.case.case_id, result.score.verdict, result.score.kind, result.score.message) for result in results
    ] == [
        ("a", "passed", "", ""),
        ("broken", "error", "timeout", "after 5 s"),
        ("skipped", "not_run", "skip", ""),
    ]
    assert completeness(path) == "completeness 1 / 2 = 50.0 % < min 100.0 %: FAIL"
    write_jsonl(errors, [line | {"run_id": "01OTHER"} for line in read_jsonl(errors)])
    assert not open_run(path, checked=False).read().lists_all_cases
    for text, message in DAMAGED.items():
        errors.write_text(text + "\n", encoding="utf-8")
        with pytest.raises(StoredRunError, match=message):
            open_run(path, checked=False).read()
    errors.unlink()
    assert not open_run(path, checked=False).read().lists_all_cases
    assert completeness(path).startswith("completeness: unknown, because records alone")
    # an error in one trial of a case
    trials = [case_result(name[0], trial=int(name[1])) for name in ("a0", "a2", "b0", "b1")]
    path = records_of(tmp_path / "2", *trials, case_result("a", "error", trial=1, kind="timeout"))
    path.with_name("report.json").unlink()
    lines = read_jsonl(path)
    for line in lines:
        line["packbench"]["file"] = f"cases/{line['packbench']['case_id']}.json"
    write_jsonl(path, lines)
    assert sorted(
        result.attempt.trial for result in open_run(path, checked=False).read().results if result.case.case_id == "a"
    ) == [0, 1, 2]
    assert completeness(path) == "completeness 1 / 2 = 50.0 % < min 100.0 %: FAIL"


def test_records_with_the_report_of_their_run_list_all_cases(tmp_path: Path) -> None:
    path = records_of(tmp_path, case_result("a"), case_result("b"), BROKEN, partial="stopped early")
    path.with_name("errors.jsonl").unlink()
    stored = open_run(path, checked=False)
    assert (stored.lists_all_cases, stored.run.partial, len(list(stored.results))) == (True, "stopped early", 3)
    assert completeness(path) == completeness(path.parent) == "completeness 2 / 3 = 66.7 % < min 100.0 %: FAIL"
    lines = read_jsonl(path)
    for changed in (lines[:1], [*lines, lines[-1]], [line | {"run_id": "01OTHER"} for line in lines]):
        write_jsonl(path, changed)
        with pytest.raises(StoredRunError, match=r"records\.jsonl(:\d)?: toy:plain:. is not as in report\.json"):
            open_run(path).read()
    # under another name they are records alone
    write_jsonl(path.with_name("some.jsonl"), lines[:1])
    assert not open_run(path.with_name("some.jsonl")).read().lists_all_cases


@pytest.mark.parametrize("judges", [BOTH, tuple({"name": name, "verdict": "unsafe"} for name in BOTH)])
def test_records_alone_name_their_judges_and_rates_of_two_judges_fail(tmp_path: Path, judges: tuple[object]) -> None:
    lines = read_jsonl(records_of(tmp_path, case_result("a"), case_result("b")))
    for line, judge in zip(lines, judges, strict=True):
        line["packbench"]["judge"] = judge
    path = tmp_path / "alone.jsonl"
    write_jsonl(path, lines)
    stored = open_run(path, checked=False).read()
    assert [result.score.judge for result in stored.results] == ["llama_guard", "words"]
    (result,) = check_run(stored.run, stored.results, [gate("pass_rate", min=0.5)])
    assert result.text == "pass_rate: judged by llama_guard and words; rates of several judges are not mixed: FAIL"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The folder of a run of two cases, as a session writes it beside the document of another plugin."""
    root = suite(tmp_path)
    results = [recorded_result(case_result(name, answer="ü"), run_of(root).run_id) for name in "ab"]
    writer = RunWriter(tmp_path, "toy", run_of(root).run_id)
    writer.write_results(results)
    tests = [{"nodeid": "ä"}, {"nodeid": "b"}]
    writer.complete(
        {**document(run_of(root), results), "cases": []}, {"collectors": [{"a": 1}], "tests": tests, "exitcode": 0}
    )
    return writer.folder


@pytest.mark.parametrize("chunk", [1, 7, 1 << 18])
def test_a_report_is_read_in_chunks_of_any_size_with_the_files_beside_it(
    whole: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_packbench.runs.reading._CHUNK", chunk)
    results = list(open_run(whole, complete=True).results)
    assert [(each.case.case_id, each.score.answer) for each in results] == [("a", "ü"), ("b", "ü")]
    lines = [read_jsonl(whole / name) for name in ("records.jsonl", "payloads.jsonl")]
    assert [each.record for each in results] == lines[0]
    assert [each.attempt.payload for each in results] == [line["result"] for line in lines[1]]


@pytest.mark.parametrize("name", DATA["tampered"])
def test_a_report_that_was_tampered_with_is_refused_with_its_place(whole: Path, name: str) -> None:
    *texts, message = DATA["tampered"][name]
    old, new = (text.encode("utf-8", "surrogateescape") for text in texts)
    path = whole / "report.json"
    content = path.read_bytes()
    first = content[content.index(b'"cases":[') + 9 :].partition(b',{"test_id"')[0]
    old, new = old.replace(b"ROW", first), new.replace(b"ROW", first)
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(StoredRunError, match=re.escape(message)):
        list(open_run(whole).results)


def test_an_attempt_that_is_there_again_under_another_id_is_refused(whole: Path) -> None:
    path = whole / "report.json"
    content = path.read_bytes()
    first = content[content.index(b'"cases":[') + 9 :].partition(b',{"test_id"')[0]
    again = first.replace(b'"case_id":"a"', b'"case_id":"c"')
    assert again != first
    path.write_bytes(content.replace(b"}]}}\n", b"}," + again + b"]}}\n"))
    with pytest.raises(StoredRunError, match="/packbench/cases: a case is there under two ids"):
        list(open_run(whole, checked=False).results)
