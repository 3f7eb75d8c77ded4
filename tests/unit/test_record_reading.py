"""Lines of records: compact JSON, reading them line by line, and counting them."""

from __future__ import annotations

import io
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.overview import overview
from pytest_packbench.analysis.tally import MAX_DUPLICATES, MAX_FAILING, RecordKey, TrialId
from pytest_packbench.model.record import EVAL_DECISIONS, EVAL_SUITES
from pytest_packbench.reports.document import overview_document
from pytest_packbench.runs.lines import (
    RecordLineError,
    RecordSource,
    SkippedLines,
    compact_json,
    read_errors,
    record_source,
)
from tests.unit.stored_runs import RUN, error, file_of, folder_of, line, read, record, tally_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.record import EvalRecord


TEXTS = st.text(st.characters()) | st.sampled_from(["NaN", "-Infinity", "a NaN in a text"])
PLAIN = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(PLAIN | st.floats(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20)


@given(VALUES)
def test_a_line_is_read_as_the_value_that_was_written(value: Any) -> None:
    line = compact_json(value, finite=False)
    assert json.dumps(json.loads(line)) == json.dumps(value)
    assert b"\n" not in line


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=9))
def test_the_bytes_are_those_of_the_standard_library(value: Any) -> None:
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert compact_json(value) == plain.encode("utf-8", "backslashreplace")


@given(VALUES)
def test_a_number_that_is_not_finite_is_refused_wherever_it_is(value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        with pytest.raises(ValueError, match="JSON compliant"):
            compact_json(value)
    else:
        assert compact_json(value) == compact_json(value, finite=False)


def test_any_nesting_is_written_and_a_value_that_is_no_json_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    assert compact_json(deep) == b"[" * 501 + b"]" * 501
    for value in (object(), {"a": object()}, {(1, 2): object()}):
        with pytest.raises(TypeError):
            compact_json(value)


LINE = line().rstrip()
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2005\u200a\u2028\u2029\u202f\u205f\u3000"
NO_WHITE_SPACE = "\x1c\x1d\x1e\x1f\u200b\u2060\ufeff\x00\x08"


def problem(folder: Path, content: bytes, **options: Any) -> str:
    path = file_of(folder, content)
    with pytest.raises(RecordLineError) as caught:
        read(path, **options)
    return str(caught.value).replace(f"{folder}/", "")


def test_lines_end_at_a_line_feed_and_blank_ones_are_skipped(tmp_path: Path) -> None:
    for end in (b"\n", b"\r\n", b"\n\n\n", b"\n \t\r\n", "\n\u3000\x85\n".encode(), b"\r\r\n"):
        assert read(file_of(tmp_path, end.join([LINE, LINE, LINE]))) == [record()] * 3


def test_white_space_is_what_rust_trims(tmp_path: Path) -> None:
    for char in map(str.encode, WHITE_SPACE):
        assert read(file_of(tmp_path, char + LINE + char)) == [record()]
        assert read(file_of(tmp_path, char * 3)) == []
    for char in map(str.encode, NO_WHITE_SPACE):
        assert problem(tmp_path, line() + char + line()).startswith("in.jsonl:2 ")
        assert problem(tmp_path, char).startswith("in.jsonl:1 ")
    for char in map(str.encode, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"):
        assert problem(tmp_path, LINE + char + LINE).startswith("in.jsonl:1 ")


@settings(max_examples=30)
@given(st.lists(st.sampled_from([b"", b"\r", b" ", b"\xe2\x80\xa8", LINE, b"\r" + LINE + b" \r"]), max_size=6))
def test_line_numbers_count_every_line(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    content = b"\n".join([*parts, b"{"])
    assert problem(tmp_path_factory.getbasetemp(), content).startswith(f"in.jsonl:{len(parts) + 1} ")


BAD_LINES = {
    b"{}": "test_suite: missing",
    line().replace(b'"schema_version":1', b'"schema_version":2'): "schema_version: expected 1, got 2",
    LINE[:-1]: "expected",
    b"\xff" + LINE: "not UTF-8: invalid start byte at byte 1",
    b"\xef\xbb\xbf" + LINE: "expected an object",
}


def test_the_first_bad_line_stops_the_reading(tmp_path: Path) -> None:
    for bad, reason in BAD_LINES.items():
        assert problem(tmp_path, line() + b"\n" + bad).startswith(f"in.jsonl:3 {reason}")


def test_bad_lines_are_counted_if_wanted(tmp_path: Path) -> None:
    skipped = SkippedLines()
    path = file_of(tmp_path, (b"{}\n\n" + line()) * 20)
    assert len(read(path, skipped=skipped)) == 20
    assert skipped.count == 20
    assert [location.split()[0] for location in skipped.first] == [f"{path}:{3 * number + 1}" for number in range(10)]


def test_strict_reading_keeps_a_sound_extension_and_leaves_out_a_bad_one(tmp_path: Path) -> None:
    assert "test_suite: expected one of" in problem(tmp_path, line(test_suite="tariff"), strict=True)
    extended = line(packbench={"trial": 1})
    assert read(file_of(tmp_path, extended), strict=True) == [record(packbench={"trial": 1})]
    bad = extended.replace(b'{"trial":1}', b'"a string"')
    assert read(file_of(tmp_path, bad), strict=True) == [record()]
    assert "packbench" in problem(tmp_path, bad)


def test_a_folder_has_errors_and_a_file_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "run", line(), error("vacuous"), error("error", kind="no_key"))
    source = record_source(folder)
    assert read(source.records) == [record()]
    assert [(each.verdict, each.kind) for each in read_errors(source)] == [("vacuous", "timeout"), ("error", "no_key")]
    file = record_source(f"{folder}/records.jsonl")
    assert (file.errors, list(read_errors(file))) == (None, [])
    assert list(read_errors(record_source(folder_of(tmp_path / "good", line())))) == []
    with pytest.raises(FileNotFoundError):
        read(str(tmp_path / "none.jsonl"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line() + b"{")))
    with pytest.raises(RecordLineError, match=r"<stdin>:2 "):
        read("-")


@pytest.mark.parametrize(
    "bad", [b"{", b"[]", b'{"run_id":"r"}', json.dumps(error("splendid")).encode(), b"[" * 100_000, b"\xff"]
)
def test_a_bad_error_line_stops_the_reading_too(tmp_path: Path, bad: bytes) -> None:
    source = RecordSource("-", file_of(tmp_path, json.dumps(error()).encode() + b"\n" + bad, "errors.jsonl"))
    with pytest.raises(RecordLineError, match=r"errors\.jsonl:2 "):
        list(read_errors(source))
    skipped = SkippedLines()
    assert (len(list(read_errors(source, skipped=skipped))), skipped.count) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 1),
        ({"packbench": {"trial": 0}}, 1),
        ({"run_id": "other"}, 0),
        ({"test_id": "other"}, 0),
        ({"run_id": RUN[:-1], "test_id": f"{RUN[-1]}agentdojo:1"}, 0),
        ({"packbench": {"trial": 1}}, 0),
        *(({"packbench": {"trial": trial}}, 1) for trial in (-1, 2**40, "1", True, None)),
    ],
)
def test_a_duplicate_has_the_same_run_test_and_trial(changes: dict[str, Any], count: int) -> None:
    duplicates = tally_of([record(), record(**changes)]).duplicates
    assert (duplicates.count, duplicates.first) == (count, [TrialId(RUN, "agentdojo:1", 0)] * count)


def test_the_first_of_duplicates_counts_and_conflicts_are_counted() -> None:
    tally = tally_of([record(test_id=f"t{number:02}") for number in range(30)] * 3)
    assert (tally.duplicates.count, tally.duplicates.names, tally.duplicates.conflicting) == (60, 30, 0)
    assert [name.test_id for name in tally.duplicates.first] == [f"t{number:02}" for number in range(MAX_DUPLICATES)]
    passed, failed = record(), record(passed=False)
    passed_first, failed_first = tally_of([passed, failed, passed]), tally_of([failed, failed, passed])
    for conflict in (passed_first.duplicates, failed_first.duplicates):
        assert (conflict.count, conflict.names, conflict.conflicting) == (2, 1, 1)
    assert (len(passed_first.failing), len(failed_first.failing)) == (0, 1)


def test_failing_records_are_the_first_by_name() -> None:
    ((_, failing),) = tally_of(
        record(test_id=f"t{number:02}", passed=number % 2 == 0) for number in range(99, -1, -1)
    ).failing.items()
    assert [case.test_id for case in failing] == [f"t{number:02}" for number in range(1, 2 * MAX_FAILING, 2)]


def test_values_that_packbench_never_writes_are_not_counted() -> None:
    wrong_types = {"score": "1", "utility": 1, "cost_usd": True, "trial": "2", "judge": 3, "mode": None}
    too_much = {"score": 1e308, "cost_usd": 1e308, "trial": 2**40}, {"score": 10**400, "cost_usd": 10**400}
    for extension in (wrong_types, *too_much, {"score": -0.1, "cost_usd": -1, "trial": -1}):
        ((key, sums),) = tally_of([record(packbench=extension)]).record_sums.items()
        (profile,) = sums.result_sums().profiles
        assert (profile.scored, profile.utility, sums.costed, sums.later) == (False, None, 0, 0)
        assert (RecordKey(*key).mode, RecordKey(*key).judge) == ("", "")


def test_a_judge_is_known_by_its_name_and_model_not_by_its_verdict() -> None:
    judges = ({"name": "j", "model": "m", "verdict": verdict} for verdict in ("safe", "unsafe"))
    tally = tally_of(record(test_id=judge["verdict"], packbench={"judge": judge}) for judge in judges)
    assert [RecordKey(*key).judge for key in tally.record_sums] == ["j / m"]


def figures(records: list[EvalRecord]) -> dict[str, Any]:
    """Return what a report shows of records, except for the run that the original names."""
    document = overview_document(overview(tally_of(records)))
    if document["original"]:
        del document["original"]["run_id"]
    return document


def test_sums_do_not_depend_on_the_order() -> None:
    shares = (1 / 3, 1 / 7, 2 / 3)
    records = [record(test_id=str(share), packbench={"score": share, "cost_usd": share}) for share in shares]
    first, *others = [figures(list(order)) for order in itertools.permutations(records)]
    assert others == [first] * 5
    assert first["runs"][0]["effort"]["cost_usd"] == pytest.approx(sum(shares), abs=1e-8)


EXTENSIONS = st.fixed_dictionaries(
    {},
    optional={
        "trial": st.integers(0, 2),
        "score": st.floats(0, 1),
        "cost_usd": st.floats(0, 10),
        "utility": st.booleans(),
        "judge": st.sampled_from(["j1", "j2"]),
        "mode": st.sampled_from(["fixture", "live"]),
    },
)
NAMES = st.text(max_size=4) | st.sampled_from(["a", "b", "|", "a\nb"])
RECORDS = st.builds(
    record,
    test_suite=st.sampled_from((*EVAL_SUITES, "tariff")),
    test_id=st.sampled_from("abcde"),
    attack_category=NAMES,
    agent_decision=st.sampled_from(EVAL_DECISIONS),
    passed=st.booleans(),
    wall_clock_ms=st.integers(0, 2**64 - 1),
    tokens_input=st.none() | st.integers(0, 2**64 - 1),
    llm_backend=st.sampled_from(["stub", "anthropic"]),
    run_id=st.sampled_from(["r1", "r2"]),
    packbench=st.none() | EXTENSIONS,
)


@settings(max_examples=40)
@given(st.lists(RECORDS, max_size=8, unique_by=lambda each: (each.run_id, each.test_id)), st.data())
def test_a_record_counts_once_whatever_the_order(once: list[EvalRecord], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(once), max_size=6)) if once else []
    mixed = data.draw(st.permutations([*once, *again]))
    document = figures(mixed)
    assert document["duplicates"]["count"] == len(again)
    assert document["duplicates"]["names"] == len({id(each) for each in again})
    assert document["runs"] == figures(once)["runs"]
    assert figures([*once, *again]) == document
    tally = tally_of(mixed)
    assert sum(sums.result_sums().count() for sums in tally.record_sums.values()) == len(once)
    assert sum(sums.result_sums().count() for sums in tally.duplicate_sums.values()) == len(again)
