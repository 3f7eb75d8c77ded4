"""A run's folder: written from its journal to its report, read back as it was written, and nothing that is damaged is let in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pytest_packbench.analysis.changes import committed_baseline
from pytest_packbench.analysis.conclusion import run_document
from pytest_packbench.commands import main
from pytest_packbench.commands.validate import kind_of, schema
from pytest_packbench.model.errors import StoredRunError, format_value
from pytest_packbench.model.report import BaselineLookup, ReviewMark
from pytest_packbench.model.result import VERDICTS, Result, extension_model, extension_problem, result_from
from pytest_packbench.model.stored import BaselineChange
from pytest_packbench.packs.registry import Packs
from pytest_packbench.runs.journal import Journal, read_journal
from pytest_packbench.runs.reading import find_baseline, open_run
from pytest_packbench.runs.resuming import PriorResults
from pytest_packbench.runs.writing import RunResults, RunWriter, sort_results, write_baseline
from tests.unit.run_builders import any_results, case_result, conclusion_of, data, run
from tests.unit.stored_runs import line, recorded_result, run_of, suite, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import ExpectedTexts


RUN = run(run_id="01RUN")
GOOD, BAD = recorded_result(case_result("a"), "01RUN"), case_result("b", "error", kind="timeout")


def document_of(*results: Result, **changes: Any) -> dict[str, Any]:
    return run_document(conclusion_of(run(run_id="01RUN", **changes), results))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter(tmp_path, "toy", "01RUN")


def test_the_journal_exists_until_the_report_does(writer: RunWriter, tmp_path: Path) -> None:
    writer.open_journal(lambda: RUN).append(GOOD)
    assert writer.open_journal(lambda: RUN) is writer.open_journal(lambda: RUN)
    writer.close_journal()
    assert read_journal(writer.folder / "journal.jsonl") == (RUN, [GOOD])
    writer.write_results([GOOD, BAD])
    assert names(writer.folder) == [".rows.tmp", "errors.jsonl", "journal.jsonl", "payloads.jsonl", "records.jsonl"]
    assert not (tmp_path / "toy" / "latest").exists()
    # a hook may have added the key that is written
    writer.complete(document_of(GOOD, BAD), {"exitcode": 1, "packbench": "by a hook"})
    assert names(writer.folder) == ["errors.jsonl", "payloads.jsonl", "records.jsonl", "report.json"]
    report = json.loads((writer.folder / "report.json").read_text("utf-8"))
    assert (report["exitcode"], [row["case_id"] for row in report["packbench"]["cases"]]) == (1, ["a", "b"])
    assert (tmp_path / "toy" / "latest").read_text("utf-8") == "01RUN\n"


def test_files_of_an_earlier_session_are_replaced_whole_or_kept(writer: RunWriter) -> None:
    writer.write_results([GOOD, BAD])
    writer.write_results([GOOD])
    before = contents(writer.folder)
    assert sorted(before) == [".rows.tmp", "payloads.jsonl", "records.jsonl"]
    with pytest.raises(ValueError, match="JSON compliant"):
        writer.write_results([BAD, case_result("c", payload={"number": float("nan")})])
    assert contents(writer.folder) == before
    # results are sorted by case, test, file and trial
    keys = [("a", "t", "f", 1), ("a", "t", "g", 0), ("a", "u", "e", 0), ("b", "s", "d", 0)]
    results = [case_result(case, test_id=test, file=file, trial=trial) for case, test, file, trial in keys]
    assert sort_results(reversed(results)) == results


def test_an_atomic_run_exists_whole_or_not_at_all(tmp_path: Path) -> None:
    atomic = RunWriter(tmp_path, "toy", "01RUN", atomic=True)

    def results(*, broken: bool) -> Iterator[Result]:
        yield GOOD
        assert not atomic.folder.exists()
        if broken:
            raise RuntimeError("no more")
        yield BAD

    with pytest.raises(RuntimeError, match="no more"), atomic:
        atomic.write_results(results(broken=True))
    assert names(tmp_path / "toy") == []
    session = RunWriter(tmp_path / "session", "toy", "01RUN")
    session.write_results([GOOD, BAD])
    with atomic:
        atomic.write_results(results(broken=False))
        for each in (session, atomic):
            each.write_page("summary.md", "# page\n")
            each.complete(document_of(GOOD, BAD))
    assert names(tmp_path / "toy") == ["01RUN", "latest"]
    assert contents(session.folder) == contents(atomic.folder)


def test_an_attempt_is_written_to_the_journal_once_and_a_resumed_run_carries_over_the_rest(
    writer: RunWriter, tmp_path: Path
) -> None:
    results = RunResults(writer, lambda: RUN)
    assert results.journal(GOOD)
    assert results.unreported(GOOD.case.nodeid) == {0: GOOD}
    results.add_case((GOOD,))
    results.add_case((BAD,))
    assert results.unreported(GOOD.case.nodeid) == {}
    writer.close_journal()
    assert read_journal(writer.folder / "journal.jsonl") == (RUN, [GOOD, BAD])
    assert results.ordered() == [GOOD, BAD]
    of_worker = tmp_path / "journal.gw0-1.jsonl"
    of_worker.touch()
    prior = PriorResults.of(writer.folder, RUN, [GOOD, BAD], [of_worker])
    resumed = RunWriter(tmp_path / "b", "toy", "01RUN", prior=prior)
    results = RunResults(resumed, lambda: RUN)
    results.carry_over(lambda _: None)
    assert sorted(results.by_nodeid) == [GOOD.case.nodeid, BAD.case.nodeid]
    assert results.ordered() == [GOOD, BAD]
    results = RunResults(resumed, lambda: RUN)
    results.add_case((GOOD,))
    new = recorded_result(case_result("b", timestamp="2026-01-01T00:00:00.000Z"), "01RUN")
    results.add_case((new,))
    resumed.close_journal()
    assert not of_worker.exists()
    assert read_journal(resumed.folder / "journal.jsonl") == (RUN, [GOOD, BAD, new])
    results.carry_over(lambda _: None)
    assert results.ordered() == [GOOD, new]


def test_a_baseline_is_found_or_the_reason_is_said(tmp_path: Path) -> None:
    root = suite(tmp_path)
    ids = [f"01K{number:023d}" for number in range(3)]
    for run_id in ids:
        now = write(tmp_path, run_of(root, run_id=run_id), [case_result("a")], root)
    (tmp_path / "toy" / ids[1] / "report.json").write_text("{", encoding="utf-8")

    def find(name: str, **changes: Any) -> BaselineLookup:
        lookup = BaselineLookup(requested=name)
        return find_baseline(lookup, run_of(root, **changes), folder=now, committed=tmp_path / "baseline.json")

    passed = find("passed").stored
    assert passed is not None
    assert passed.run.run_id == ids[0]
    assert find("committed").reason.endswith("run the suite, then packbench baseline set RUN --reason TEXT")
    assert find("committed", bundled=True).reason.endswith("copy the suite with packbench init --from")


MARK: dict[str, Any] = {
    "version": 1,
    "mark": "quarantine",
    "case": "a",
    "case_sha256": "0" * 64,
    "by": "x",
    "reason": "y",
    "run_id": "1",
    "marked_at": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize("kind", ["report.json", "journal.jsonl", "baseline.json", "review.jsonl"])
def test_a_suite_is_named_and_no_path(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind

    def read(name: str) -> None:
        facts = run(suite=name)
        if kind == "journal.jsonl":
            path.unlink(missing_ok=True)
            with Journal(path, lambda: facts) as journal:
                journal.append(GOOD)
            read_journal(path)
        elif kind == "review.jsonl":
            ReviewMark.model_validate({**MARK, "suite": name})
        else:
            if kind == "baseline.json":
                change = BaselineChange(set_at="", run_id="", reason="why")
                write_baseline(path, committed_baseline(facts, [case_result("a")], [change]))
            else:
                path.write_text(json.dumps({"packbench": run_document(conclusion_of(facts, []))}))
            open_run(path, checked=False).read()

    for name in ("own", "bundled/own", "Größe 1.2", "a..b", "a:b"):
        read(name)
    paths = ("", ".", "..", "../own", "/own", "a/b", "./own", "bundled/", "bundled/..", "bundled/a/b", "a\\b", "\\a")
    for name in (*paths, "own\n", "own\0", "\tx"):
        with pytest.raises(ValueError, match="suite"):
            read(name)


@pytest.mark.parametrize(
    "changes", [{"agent_decision": "comply_unsafe", "passed": False}, {"agent_decision": "comply_safe"}]
)
def test_records_that_contradict_each_other_are_refused_in_any_order(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "records.jsonl", str(tmp_path / "diff.md")
    fields = {"test_suite": "injecagent", "expected": "refuse", "agent_decision": "refuse", "passed": True}
    first, other = line(**fields), line(**{**fields, **changes})
    for lines, problem in (([first, other], True), ([other, first], True), ([first, first], True), ([first], False)):
        path.write_bytes(b"".join(lines))
        for words in (["gate", str(path)], ["compare", "--baseline", str(path), "--current", str(path), "--out", out]):
            code, errors = main(words), capsys.readouterr().err
            assert (code == 2, "records.jsonl:2: " in errors, "is there twice; " in errors) == (problem,) * 3, errors


DAMAGES = data("damaged_runs.yaml")
EXTENSION: dict[str, Any] = DAMAGES["extension"]
RECORDED = ("suite", "test_id", "case_id", "trial", "verdict", "score", "threshold", "llm_backend")


@settings(max_examples=15)
@given(any_results(trials=True))
def test_a_run_that_was_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, results: list[Result]) -> None:
    root = suite(tmp_path_factory.mktemp("stored"))
    run = run_of(root, partial="a part", versions={"a": "1"})
    folder = write(root.parent / "out", run, results, root)
    stored = open_run(folder, checked=False).read()
    ordered = sorted(results, key=lambda result: (result.case.test_id, result.attempt.trial))
    assert (stored.run, list(stored.results)) == (run, ordered)
    assert open_run(folder / "report.json", checked=False).read() == stored
    assert [result.case.case_id for result in open_run(folder, checked=False).results] == sorted(
        result.case.case_id for result in results
    )
    for name in ("report.json", "records.jsonl", "payloads.jsonl"):
        assert kind_of(folder / name, Packs())
    values = [[result.as_json()[name] for name in RECORDED] for result in ordered if result.score.counted]
    (folder / "report.json").unlink()
    (folder / "errors.jsonl").unlink(missing_ok=True)
    if values:
        records = open_run(folder / "records.jsonl", checked=False).read().results
        assert [[result.as_json()[name] for name in RECORDED] for result in records] == values
    else:
        with pytest.raises(StoredRunError, match="contains no records"):
            open_run(folder / "records.jsonl", checked=False).read()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run of two cases."""
    root = suite(tmp_path)
    return write(
        tmp_path / "out",
        run_of(root),
        [case_result("b", terms=tuple(EXTENSION["terms"])), case_result("a", "error", kind="x")],
        root,
    )


def test_keys_of_a_report_may_be_in_another_order_and_one_that_is_cut_anywhere_is_refused(folder: Path) -> None:
    before = open_run(folder, checked=False).read()
    path = folder / "report.json"
    whole = path.read_bytes()
    report = json.loads(whole)
    for first in ("cases", "version"):
        keys = sorted(report["packbench"], key=lambda key: (key != first, key))
        assert keys.index("cases") < keys.index("run")
        report["packbench"] = {key: report["packbench"][key] for key in keys}
        path.write_text(json.dumps(report, indent=1), encoding="utf-8")
        assert open_run(folder, checked=False).read() == before
    compact = json.dumps(json.loads(whole), separators=(",", ":")).encode() + b"\n"
    for content in (whole, compact):
        path.write_bytes(content)
        assert open_run(folder, checked=False).read() == before
        for length in range(0, len(content) - 1, 23):
            path.write_bytes(content[:length])
            with pytest.raises(StoredRunError):
                open_run(folder, checked=False).read()


def write_records(path: Path, *changes: dict[str, Any]) -> None:
    """Write records, each with changes of its `packbench` object or, under `record`, of itself."""
    lines = [
        line(**{"test_id": f"agentdojo:{number}", "packbench": {**EXTENSION, **change}, **change.pop("record", {})})
        for number, change in enumerate(map(dict, changes))
    ]
    path.write_bytes(b"".join(lines))


def test_damaged_reports_rows_and_records_are_named_by_their_place(folder: Path, expected: ExpectedTexts) -> None:
    messages = []

    def refuse(name: str, path: Path) -> None:
        with pytest.raises(StoredRunError) as error:
            open_run(path, checked=False).read()
        message = str(error.value).replace(str(path), path.name).partition(": maximum recursion")[0]
        messages.append(f"{name}: {message}\n")

    path = folder / "report.json"
    report = json.loads(path.read_text("utf-8"))
    rows = report["packbench"]["cases"]
    header = {key: value for key, value in report["packbench"].items() if key != "cases"}
    texts = {
        "a deep array": "[" * 100_000,
        "a deep version": '{"packbench": {"version": ' + "[" * 100_000,
        "no cases": json.dumps({"packbench": header}),
        "no array of cases": json.dumps({"packbench": {**header, "cases": {}}}),
    }
    for name, value in ("guards", 5), ("guards", [5]), ("trials", "2"), ("trials", 0):
        stored = {**header["run"], "settings": {name: value}}
        texts[f"{name} {value!r}"] = json.dumps({"packbench": {**header, "run": stored, "cases": []}})
    for name, text in {**DAMAGES["reports"], **texts}.items():
        path.write_text(text, encoding="utf-8")
        refuse(name, path)
    for name, change in DAMAGES["rows"].items():
        row = {key: value for key, value in {**rows[1], **change}.items() if value != "MISSING"} if change else None
        report["packbench"]["cases"] = [rows[0], row]
        path.write_text(json.dumps(report), encoding="utf-8")
        refuse(f"row, {name}", path)
    for name, change in DAMAGES["records"].items():
        write_records(folder / "in.jsonl", {}, change)
        refuse(f"record, {name}", folder / "in.jsonl")
    expected.check("".join(messages))
    # trials of a case are separate records
    same = {"test_id": "agentdojo:x"}
    write_records(folder / "in.jsonl", {"trial": 1, "record": same}, {"record": same})
    trials = open_run(folder / "in.jsonl", checked=False).read().results
    assert [(result.attempt.trial, result.score.score) for result in trials] == [(0, 0.5), (1, 0.5)]


RECORD, REPORT = schema("record"), schema("report")
EXTENSION_SCHEMA = jsonschema.Draft202012Validator({**RECORD["properties"]["packbench"], "$defs": RECORD["$defs"]})
ROW = {**REPORT["properties"]["packbench"]["properties"]["cases"]["items"], "$defs": REPORT["$defs"]}
ODD = st.sampled_from(
    [
        *(None, True, False, 0, 1, -1, 2**32, 2, 0.5, 1.5, "", "x", "live", "passed", "ab" * 32),
        *([], ["a"], [1], {}, {"a": "b"}, {"a": 1}),
    ]
)


@given(
    st.dictionaries(st.sampled_from([*EXTENSION, *extension_model().model_fields, "foreign"]), ODD, max_size=3),
    st.booleans(),
)
def test_the_schema_of_the_packbench_object_agrees_with_its_check(change: dict[str, Any], drop: bool) -> None:
    extension = {**EXTENSION, **change}
    if drop:
        extension.pop(next(iter(change), "score"))
    assert EXTENSION_SCHEMA.is_valid(extension) is (not extension_problem(extension))


@given(st.dictionaries(st.sampled_from(sorted(ROW["properties"])), ODD, max_size=2))
def test_the_schema_of_a_row_agrees_with_its_check(change: dict[str, Any]) -> None:
    row = case_result("a").as_json() | change
    row = {name: value for name, value in row.items() if name not in {"suite", "record", "payload"}}
    try:
        result_from({**row, "suite": "toy"})
    except ValidationError:
        is_sound = False
    else:
        is_sound = True
    assert jsonschema.Draft202012Validator(ROW).is_valid(row) is is_sound


def test_records_have_the_verdicts_the_judges_and_the_keys_of_the_schema() -> None:
    judges: tuple[Any, ...] = (None, "words", {"name": "words", "verdict": "no"}, False, 0, 5, [], {}, {"name": 1})
    for judge in judges:
        problem = extension_problem({**EXTENSION, "judge": judge})
        assert EXTENSION_SCHEMA.is_valid({**EXTENSION, "judge": judge}) is (not problem)
        name = judge.get("name") if isinstance(judge, dict) else judge
        wrong = f"packbench/judge: got {format_value(judge)}; expected a string"
        assert problem == ("" if judge is None or isinstance(name, str) else wrong)
    for verdict in VERDICTS:
        assert not extension_problem({**EXTENSION, "verdict": verdict})
    keys = set(extension_model().model_fields)
    assert set(EXTENSION) <= keys | {"case_id"}
    assert keys == set(RECORD["properties"]["packbench"]["properties"])
    record = recorded_result(case_result("a", llm_backend="anthropic"), "r").record
    assert jsonschema.Draft202012Validator(RECORD).is_valid(record)
