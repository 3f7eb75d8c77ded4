"""What a run left is read back as it was, and nothing that is damaged is let in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_packbench.commands.validate import kind_of
from pytest_packbench.model.checks import extension_problem, extension_schema, result_problem
from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.schema import RECORD, REPORT
from pytest_packbench.model.score import VERDICTS
from pytest_packbench.packs.registry import Packs
from pytest_packbench.runs.folder import StoredRunError
from pytest_packbench.runs.report import open_report
from pytest_packbench.runs.stored import load_run
from tests.unit.record_lines import line
from tests.unit.run_builders import case_result
from tests.unit.stored_runs import any_results, recorded_result, run_of, suite, write

if TYPE_CHECKING:
    from pathlib import Path

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TERM = {"name": "points", "effect": "add", "value": 1.0, "detail": "ü"}
OWN: dict[str, Any] = {
    "version": 1,
    "score": 0.5,
    "threshold": 0.8,
    "verdict": "failed",
    "terms": [TERM],
    "case_id": "a",
    "mode": "live",
    "pack": "toy/1",
    "trial": 0,
}


def file_results(found: list[CaseResult]) -> list[CaseResult]:
    """Entries as a report keeps them: by test id and trial, without record and payload."""
    return sorted(found, key=lambda one: (one.test_id, one.trial))


@QUICK
@given(any_results(trials=True))
def test_a_run_that_was_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, found: list[CaseResult]) -> None:
    place = tmp_path_factory.mktemp("stored")
    root = suite(place)
    told = run_of(root, partial="a part", versions={"a": "1"})
    folder = write(place / "out", told, found, root)
    stored = load_run(folder)
    assert (stored.run, list(stored.results)) == (told, file_results(found))
    assert load_run(folder / "report.json") == stored
    report = open_report(folder)
    assert [each.case_id for each in report.results] == sorted(each.case_id for each in found)
    for name in ("report.json", "records.jsonl", "payloads.jsonl"):
        assert kind_of(folder / name, Packs())


@QUICK
@given(any_results(trials=True))
def test_the_records_of_a_run_tell_the_same_of_judged_cases(
    tmp_path_factory: pytest.TempPathFactory, found: list[CaseResult]
) -> None:
    place = tmp_path_factory.mktemp("stored")
    root = suite(place)
    folder = write(place / "out", run_of(root), found, root)
    judged = [one for one in file_results(found) if one.counted]
    if not judged:
        with pytest.raises(StoredRunError, match="contains no records"):
            load_run(folder / "records.jsonl")
        return
    told = load_run(folder / "records.jsonl").results
    same = ("suite", "test_id", "case_id", "trial", "verdict", "score", "threshold", "llm_backend")
    assert [[getattr(one, name) for name in same] for one in told] == [
        [getattr(one, name) for name in same] for one in judged
    ]


def test_keys_in_another_order_are_the_same_report(tmp_path: Path) -> None:
    root = suite(tmp_path)
    folder = write(tmp_path / "out", run_of(root), [case_result("b"), case_result("a", "error", kind="x")], root)
    before = load_run(folder)
    report = json.loads((folder / "report.json").read_text("utf-8"))
    (folder / "report.json").write_text(json.dumps(report, sort_keys=True, indent=1), encoding="utf-8")
    keys = list(json.loads((folder / "report.json").read_text("utf-8"))["packbench"])
    assert keys.index("cases") < keys.index("run")
    assert load_run(folder) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON: Expecting value at character 1"),
        ("[1]", 'the key "packbench" is missing'),
        ('{"packbench": 1}', 'the key "packbench" is missing'),
        ('{"packbench": {"version": 1, "run"', "not JSON: Expecting value at character 35"),
        ('{"packbench": {"version": true}}', "/packbench/version: got True; this version reads 1"),
        ('{"packbench": {"version": 1.0}}', "/packbench/version: got 1.0; this version reads 1"),
        ('{"packbench": {}}', "/packbench/version: got None"),
        ('{"packbench": {"version": 1}}', "/packbench/run: not a run document: expected an object"),
        ('{"packbench": {"version": 1, "run": {}}}', "/packbench/run: not a run document: missing: 'run_id', "),
        ("[" * 100_000, 'the key "packbench" is missing'),
        ('{"packbench": {"version": ' + "[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_report_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StoredRunError) as caught:
        load_run(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_report_cut_anywhere_is_refused(tmp_path: Path) -> None:
    root = suite(tmp_path)
    folder = write(tmp_path / "out", run_of(root), [case_result("a"), case_result("b", terms=(TERM,))], root)
    whole = (folder / "report.json").read_bytes()
    for length in range(0, len(whole) - 1, 7):
        (folder / "report.json").write_bytes(whole[:length])
        with pytest.raises(StoredRunError):
            load_run(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tags": "ab"}, "/packbench/cases/0/tags: not a run document: got 'ab', expected an array of strings"),
        ({"tags": ["a", 1]}, "/tags: "),
        ({"facets": {"a": [1]}}, "/facets: "),
        ({"terms": [{"name": "x"}]}, "/terms: "),
        ({"refused": "yes"}, "/refused: "),
        ({"score": True}, "/score: "),
        ({"score": 7}, "/score: not a run document: got 7, expected a number from 0 to 1, or null"),
        ({"trial": -1}, "/trial: "),
        ({"decision": "x"}, "/decision: "),
        ({"case_sha256": "x"}, "/case_sha256: "),
        ({"verdict": "great"}, "/verdict: not a run document: got 'great', expected one of passed, failed"),
    ],
)
def test_a_damaged_row_is_named_by_its_pointer(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    root = suite(tmp_path)
    folder = write(tmp_path / "out", run_of(root), [case_result("a")], root)
    report = json.loads((folder / "report.json").read_text("utf-8"))
    report["packbench"]["cases"][0].update(change)
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    with pytest.raises(StoredRunError) as caught:
        load_run(folder)
    assert said in str(caught.value)


def records(folder: Path, *changes: dict[str, Any]) -> Path:
    """A file of records of our own, each with changes of its `packbench` object or, under `record`, of itself."""
    path = folder / "in.jsonl"
    made = [
        line(**{"test_id": f"agentdojo:{number}", "packbench": {**OWN, **change}, **change.pop("record", {})})
        for number, change in enumerate(changes)
    ]
    path.write_bytes(b"".join(made))
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trial": "x"}, ":2: packbench.trial: expected a valid integer, got 'x'"),
        ({"score": "x"}, ":2: packbench.score: "),
        ({"terms": [{**TERM, "effect": "x"}]}, ":2: packbench.terms[0].effect: expected 'add'"),
        ({"version": True}, ":2: packbench.version: "),
        ({"facets": {"a": 1}}, ":2: packbench.facets.a: "),
        ({"mode": "fixture"}, ":2: packbench.mode is 'fixture', but 'live' in the lines above; expected the records"),
        ({"suite_sha256": "ab" * 32}, ":2: packbench.suite_sha256 is"),
        ({"pack": "toy/2"}, ":2: packbench.pack is 'toy/2', but 'toy/1'"),
        ({"target": "mine"}, ":2: packbench.target is"),
        ({"record": {"run_id": "other"}}, ":2: run_id is 'other'"),
        ({"record": {"test_suite": "harmbench"}}, ":2: test_suite is 'harmbench'"),
    ],
)
def test_records_of_one_run_are_sound_and_alike(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = records(tmp_path, {}, change)
    with pytest.raises(StoredRunError) as caught:
        load_run(path)
    assert str(caught.value).startswith(f"{path}{said}")
    assert "\n" not in str(caught.value)


def test_trials_are_records_of_their_own(tmp_path: Path) -> None:
    same = {"test_id": "agentdojo:x"}
    path = records(tmp_path, {"trial": 1, "record": same}, {"record": same}, {"score": 0.1, "record": same})
    assert [(one.trial, one.score) for one in load_run(path).results] == [(0, 0.5), (1, 0.5)]


OWN_FIELDS = extension_schema()["fields"]
ODD = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        2**32,
        2,
        0.5,
        1.5,
        "",
        "x",
        "live",
        "passed",
        "ab" * 32,
        [],
        ["a"],
        [1],
        {},
        {"a": "b"},
        {"a": 1},
    ]
)


@given(st.dictionaries(st.sampled_from([*OWN, *OWN_FIELDS, "foreign"]), ODD, max_size=3), st.booleans())
def test_the_schema_of_our_object_agrees_with_its_check(change: dict[str, Any], drop: bool) -> None:
    own = {**OWN, **change}
    if drop:
        own.pop(next(iter(change), "score"))
    validator = jsonschema.Draft202012Validator(RECORD["properties"]["packbench"])
    assert validator.is_valid(own) is (extension_problem(own) is None), extension_problem(own)


@pytest.mark.parametrize("judge", [None, "words", {"name": "words", "verdict": "no"}, False, 0, 5, [], {}, {"name": 1}])
def test_a_judge_is_a_name_or_has_one(judge: object) -> None:
    problem = extension_problem({**OWN, "judge": judge})
    assert jsonschema.Draft202012Validator(RECORD["properties"]["packbench"]).is_valid({**OWN, "judge": judge}) is (
        problem is None
    )
    name = judge.get("name") if isinstance(judge, dict) else judge
    if judge is None or isinstance(name, str):
        assert problem is None
    else:
        assert problem == f"packbench.judge: expected a judge's name, or an object with its name, got {judge!r}"


ROW = REPORT["properties"]["packbench"]["properties"]["cases"]["items"]


@given(st.dictionaries(st.sampled_from(sorted(ROW["properties"])), ODD, max_size=2))
def test_the_schema_of_a_row_agrees_with_its_check(change: dict[str, Any]) -> None:
    row = {
        name: value for name, value in case_result("a").as_json().items() if name not in {"suite", "record", "payload"}
    }
    row |= change
    plain: dict[str, Any] = {
        name: tuple(value) if name in {"tags", "terms"} and isinstance(value, list) else value
        for name, value in row.items()
    }
    sound = result_problem(CaseResult(suite="toy", **plain)) is None
    assert jsonschema.Draft202012Validator(ROW).is_valid(row) is sound


def test_the_words_of_our_object_are_those_of_entries() -> None:
    for verdict in VERDICTS:
        assert extension_problem({**OWN, "verdict": verdict}) is None
    assert set(OWN) <= set(OWN_FIELDS) | {"case_id"}
    assert set(OWN_FIELDS) == set(RECORD["properties"]["packbench"]["properties"])


def test_what_is_recorded_is_of_the_schema() -> None:
    record = recorded_result(replace(case_result("a"), llm_backend="anthropic"), "r").record
    assert jsonschema.Draft202012Validator(RECORD).is_valid(record)
