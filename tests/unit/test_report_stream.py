"""Reading records line by line, and counting them."""

from __future__ import annotations

import io
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.overview import overview
from pytest_packbench.analysis.tally import MAX_DUPLICATES, MAX_FAILING, TrialId
from pytest_packbench.reports.document import overview_document
from pytest_packbench.runs.lines import RecordLineError, RecordSource, SkippedLines, read_errors, record_source
from tests.unit.record_lines import RUN, error, file_of, folder_of, line, names, read, record, records, tally_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.record import EvalRecord

RUST_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2005\u200a\u2028\u2029\u202f\u205f\u3000"
NO_SPACE = "\x1c\x1d\x1e\x1f\u200b\u2060\ufeff\x00\x08"


def problem(folder: Path, content: bytes, **options: Any) -> str:
    path = file_of(folder, content)
    with pytest.raises(RecordLineError) as caught:
        read(path, **options)
    return str(caught.value).replace(str(folder) + "/", "")


def figures(found: list[EvalRecord]) -> dict[str, Any]:
    """What a report says of records, but for the original's first run."""
    document = overview_document(overview(tally_of(found)))
    if document["original"]:
        del document["original"]["run_id"]
    return document


class TestFraming:
    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n\n", b"\n \t\r\n", "\n\u3000\x85\n".encode(), b"\r\r\n"])
    def test_lines_end_at_a_line_feed_and_blank_ones_are_skipped(self, tmp_path: Path, end: bytes) -> None:
        one = line().rstrip()
        assert read(file_of(tmp_path, end.join([one, one, one]))) == [record()] * 3

    @pytest.mark.parametrize("char", RUST_SPACE)
    def test_white_space_around_a_line_does_not_count(self, tmp_path: Path, char: str) -> None:
        one = char.encode() + line().rstrip() + char.encode()
        assert read(file_of(tmp_path, one)) == [record()]
        assert read(file_of(tmp_path, char.encode() * 3)) == []

    @pytest.mark.parametrize("char", NO_SPACE)
    def test_what_rust_does_not_trim_is_no_white_space(self, tmp_path: Path, char: str) -> None:
        assert problem(tmp_path, line() + char.encode() + line()).startswith("in.jsonl:2 ")
        assert problem(tmp_path, char.encode()).startswith("in.jsonl:1 ")

    @pytest.mark.parametrize("char", "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
    def test_no_other_character_ends_a_line(self, tmp_path: Path, char: str) -> None:
        one = line().rstrip()
        assert problem(tmp_path, one + char.encode() + one).startswith("in.jsonl:1 ")

    def test_the_last_line_needs_no_end(self, tmp_path: Path) -> None:
        assert read(file_of(tmp_path, line() + line().rstrip())) == [record()] * 2

    @given(st.lists(st.sampled_from([b"", b"\r", b" ", b"\xe2\x80\xa8", b"one", b"\rone \r"]), max_size=6))
    def test_line_numbers_count_every_line(self, tmp_path_factory: pytest.TempPathFactory, given_: list[bytes]) -> None:
        content = b"\n".join([*(part.replace(b"one", line().rstrip()) for part in given_), b"{"])
        assert problem(tmp_path_factory.getbasetemp(), content).startswith(f"in.jsonl:{len(given_) + 1} ")


class TestBadLines:
    @pytest.mark.parametrize(
        ("bad", "why"),
        [
            (b"{}", "test_suite: missing"),
            (line().replace(b'"schema_version":1', b'"schema_version":2'), "schema_version: expected 1, got 2"),
            (line()[:-2], "expected"),
            (b"\xff" + line(), "not UTF-8: invalid start byte at byte 1"),
            (b"\xef\xbb\xbf" + line(), "expected an object"),
        ],
    )
    def test_the_first_one_aborts_with_its_place(self, tmp_path: Path, bad: bytes, why: str) -> None:
        assert problem(tmp_path, line() + b"\n" + bad).startswith(f"in.jsonl:3 {why}")

    def test_they_are_counted_where_that_is_wanted(self, tmp_path: Path) -> None:
        skipped = SkippedLines()
        path = file_of(tmp_path, (b"{}\n\n" + line()) * 20)
        assert len(read(path, skipped=skipped)) == 20
        assert skipped.count == 20
        assert [place.split()[0] for place in skipped.first] == [f"{path}:{3 * number + 1}" for number in range(10)]

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            read(str(tmp_path / "none.jsonl"))


OWN: dict[str, Any] = {"packbench": {"trial": 1}}


class TestStrict:
    def test_open_suites_and_backends_are_refused(self, tmp_path: Path) -> None:
        assert "test_suite: expected one of" in problem(tmp_path, line(test_suite="tariff"), strict=True)
        assert "llm_backend: expected one of" in problem(tmp_path, line(llm_backend="unknown"), strict=True)
        assert len(read(file_of(tmp_path, line(test_suite="tariff", llm_backend="unknown")))) == 1

    def test_our_object_is_kept(self, tmp_path: Path) -> None:
        path = file_of(tmp_path, line(**OWN))
        assert read(path, strict=True) == read(path) == [record(**OWN)]

    def test_our_object_is_no_reason_to_refuse_what_rust_reads(self, tmp_path: Path) -> None:
        bad = line(**OWN).replace(b'{"trial":1}', b'"a string"')
        assert read(file_of(tmp_path, bad), strict=True) == [record()]
        assert "packbench" in problem(tmp_path, bad)


class TestSources:
    def test_a_folder_is_its_records_and_its_errors(self, tmp_path: Path) -> None:
        folder = folder_of(tmp_path / "run", line(), error("vacuous"), error("error", kind="no_key"))
        source = record_source(folder)
        assert read(source.records) == [record()]
        assert [(one.verdict, one.kind) for one in read_errors(source)] == [("vacuous", "timeout"), ("error", "no_key")]

    def test_a_folder_without_errors_has_none(self, tmp_path: Path) -> None:
        source = record_source(folder_of(tmp_path / "run", line()))
        assert list(read_errors(source)) == []

    def test_a_file_knows_no_errors(self, tmp_path: Path) -> None:
        folder_of(tmp_path / "run", line(), error())
        source = record_source(str(tmp_path / "run" / "records.jsonl"))
        assert source.errors is None
        assert list(read_errors(source)) == []

    def test_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line() + b"{")))
        with pytest.raises(RecordLineError, match=r"<stdin>:2 "):
            read("-")

    @pytest.mark.parametrize(
        "bad", [b"{", b"[]", b'{"run_id":"r"}', json.dumps(error("splendid")).encode(), b"[" * 100_000, b"\xff"]
    )
    def test_a_bad_error_line_aborts_too(self, tmp_path: Path, bad: bytes) -> None:
        path = file_of(tmp_path, json.dumps(error()).encode() + b"\n" + bad, "errors.jsonl")
        source = RecordSource("-", path)
        with pytest.raises(RecordLineError, match=r"errors\.jsonl:2 "):
            list(read_errors(source))
        skipped = SkippedLines()
        assert len(list(read_errors(source, skipped=skipped))) == 1
        assert skipped.count == 1


class TestDuplicates:
    def test_run_test_and_trial_make_a_record_the_same(self) -> None:
        found = [
            record(),
            record(run_id="other"),
            record(test_id="other"),
            record(packbench={"trial": 1}),
            record(packbench={"trial": 0}),
        ]
        tally = tally_of(found)
        assert (tally.duplicates.count, tally.duplicates.first) == (1, [TrialId(RUN, "agentdojo:1", 0)])

    @pytest.mark.parametrize("trial", [-1, 2**40, "1", True, None])
    def test_a_trial_that_we_do_not_write_is_none(self, trial: Any) -> None:
        assert tally_of([record(), record(packbench={"trial": trial})]).duplicates.count == 1

    def test_what_reads_the_same_when_joined_is_not_the_same(self) -> None:
        tally = tally_of([record(run_id="a", test_id="bc"), record(run_id="ab", test_id="c")])
        assert tally.duplicates.count == 0

    def test_names_are_bounded_and_counted(self) -> None:
        tally = tally_of([record(test_id=f"t{number:02}") for number in range(30)] * 3)
        assert (tally.duplicates.count, tally.duplicates.names) == (60, 30)
        assert [name.test_id for name in tally.duplicates.first] == [
            f"t{number:02}" for number in range(MAX_DUPLICATES)
        ]

    def test_the_first_counts_and_another_result_is_told(self) -> None:
        tally = tally_of([record(), record(passed=False), record()])
        assert (tally.duplicates.count, tally.duplicates.names, tally.duplicates.conflicting) == (2, 1, 1)
        assert not tally.failing
        failed_first = tally_of([record(passed=False), record(passed=False), record()])
        assert failed_first.duplicates.conflicting == 1
        assert len(failed_first.failing) == 1

    @given(st.lists(records, max_size=12, unique_by=lambda one: (one.run_id, one.test_id)), st.data())
    def test_they_are_counted_once_whatever_the_order(self, once: list[EvalRecord], data: st.DataObject) -> None:
        again = data.draw(st.lists(st.sampled_from(once), max_size=8)) if once else []
        mixed = data.draw(st.permutations([*once, *again]))
        expected, found = figures(once), figures(mixed)
        assert found["duplicates"]["count"] == len(again)
        assert found["duplicates"]["names"] == len({id(one) for one in again})
        assert found["runs"] == expected["runs"]
        assert figures([*once, *again]) == found

    @given(st.lists(records, max_size=12), st.lists(records, max_size=12))
    @settings(max_examples=50)
    def test_two_files_are_read_as_one(
        self, tmp_path_factory: pytest.TempPathFactory, first: list[EvalRecord], second: list[EvalRecord]
    ) -> None:
        folder = tmp_path_factory.getbasetemp()
        contents = ["".join(f"{one.to_json_line()}\n" for one in some).encode() for some in (first, second)]
        paths = [file_of(folder, content, f"{place}.jsonl") for place, content in enumerate(contents)]
        whole = file_of(folder, b"".join(contents), "whole.jsonl")
        assert figures([one for path in paths for one in read(path)]) == figures(read(whole))


class TestCounts:
    def test_failing_records_are_the_first_by_name(self) -> None:
        found = [record(test_id=f"t{number:02}", passed=number % 2 == 0) for number in range(99, -1, -1)]
        ((_, failing),) = tally_of(found).failing.items()
        assert [one.test_id for one in failing] == [f"t{number:02}" for number in range(1, 2 * MAX_FAILING, 2)]

    @pytest.mark.parametrize(
        "odd",
        [
            {"score": "1", "utility": 1, "cost_usd": True, "trial": "2", "judge": 3, "mode": None},
            {"score": 1e308, "cost_usd": 1e308, "trial": 2**40},
            {"score": -0.1, "cost_usd": -1, "trial": -1},
            {"score": 10**400, "cost_usd": 10**400},
        ],
    )
    def test_values_that_we_do_not_write_are_not_counted(self, odd: dict[str, Any]) -> None:
        ((key, cell),) = tally_of([record(packbench=odd)]).record_sums.items()
        (profile,) = cell.result_sums().profiles
        assert (profile.scored, profile.utility, cell.costed, cell.later) == (False, None, 0, 0)
        assert (key[3], key[6]) == ("", "")

    def test_sums_do_not_depend_on_the_order(self) -> None:
        shares = (1 / 3, 1 / 7, 2 / 3)
        found = [record(test_id=str(share), packbench={"score": share, "cost_usd": share}) for share in shares]
        (first, *others) = [figures(list(some)) for some in itertools.permutations(found)]
        assert all(other == first for other in others)
        assert first["runs"][0]["effort"]["cost_usd"] == pytest.approx(sum(shares), abs=1e-8)

    def test_a_judge_is_known_by_its_name_not_by_what_it_found(self) -> None:
        found = [
            record(test_id=verdict, packbench={"judge": {"name": "j", "model": "m", "verdict": verdict}})
            for verdict in ("safe", "unsafe")
        ]
        ((key, _),) = tally_of(found).record_sums.items()
        assert key[6] == "j / m"

    @given(st.lists(st.builds(record, attack_category=names, test_id=names), max_size=8))
    def test_every_record_counts_once_or_as_a_duplicate(self, found: list[EvalRecord]) -> None:
        tally = tally_of(found)
        assert sum(cell.result_sums().count() for cell in tally.record_sums.values()) + tally.duplicates.count == len(
            found
        )
        assert sum(cell.result_sums().count() for cell in tally.duplicate_sums.values()) == tally.duplicates.count
