"""A run's folder, from its journal to its report: written by a session as it goes on, or at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.reports.document import run_document
from pytest_packbench.runs.journal import read_header, read_journal
from pytest_packbench.runs.resume import PriorResults
from pytest_packbench.runs.writer import RunResults, RunWriter, sort_results
from tests.unit.run_builders import case_result, conclusion_of, run
from tests.unit.stored_runs import recorded_result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult

RUN = run(run_id="01RUN")
GOOD, BAD = recorded_result(case_result("a"), "01RUN"), case_result("b", "error", kind="timeout")


def document(*results: CaseResult, **changes: Any) -> dict[str, Any]:
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
    assert read_header(writer.folder / "journal.jsonl") == RUN
    writer.write_results([GOOD, BAD])
    assert names(writer.folder) == ["errors.jsonl", "journal.jsonl", "payloads.jsonl", "records.jsonl"]
    assert not (tmp_path / "toy" / "latest").exists()
    writer.complete(document(GOOD, BAD), {"exitcode": 1})
    assert names(writer.folder) == ["errors.jsonl", "payloads.jsonl", "records.jsonl", "report.json"]
    report = json.loads((writer.folder / "report.json").read_text("utf-8"))
    assert (report["exitcode"], [row["case_id"] for row in report["packbench"]["cases"]]) == (1, ["a", "b"])
    assert (tmp_path / "toy" / "latest").read_text("utf-8") == "01RUN\n"


def test_a_partial_run_is_not_the_latest(writer: RunWriter, tmp_path: Path) -> None:
    writer.write_results([GOOD])
    writer.complete(document(GOOD, partial="interrupted"))
    assert names(tmp_path / "toy") == ["01RUN"]


def test_files_of_an_earlier_session_are_replaced_whole_or_kept(writer: RunWriter) -> None:
    writer.write_results([GOOD, BAD])
    writer.write_results([GOOD])
    before = contents(writer.folder)
    assert sorted(before) == ["payloads.jsonl", "records.jsonl"]
    with pytest.raises(ValueError, match="JSON compliant"):
        writer.write_results([BAD, case_result("c", payload={"number": float("nan")})])
    assert contents(writer.folder) == before


def test_an_atomic_run_exists_whole_or_not_at_all(tmp_path: Path) -> None:
    atomic = RunWriter(tmp_path, "toy", "01RUN", atomic=True)

    def results(*, broken: bool) -> Iterator[CaseResult]:
        yield GOOD
        assert not atomic.folder.exists()
        if broken:
            raise RuntimeError("no more")
        yield BAD

    with pytest.raises(RuntimeError, match="no more"), atomic:
        atomic.stream_results(results(broken=True))
    assert names(tmp_path / "toy") == []
    with atomic:
        atomic.stream_results(results(broken=False))
        atomic.write_page("summary.md", "# page\n")
        atomic.complete(document(GOOD, BAD))
    assert names(tmp_path / "toy") == ["01RUN", "latest"]
    session = RunWriter(tmp_path / "session", "toy", "01RUN")
    session.write_results([GOOD, BAD])
    session.write_page("summary.md", "# page\n")
    session.complete(document(GOOD, BAD))
    assert contents(session.folder) == contents(atomic.folder)


def test_results_are_sorted_by_case_test_file_and_trial() -> None:
    keys = [("a", "t", "f", 1), ("a", "t", "g", 0), ("a", "u", "e", 0), ("b", "s", "d", 0)]
    results = [case_result(case, test_id=test, file=file, trial=trial) for case, test, file, trial in keys]
    assert sort_results(reversed(results)) == results


def test_an_attempt_is_written_to_the_journal_once(writer: RunWriter) -> None:
    results = RunResults(writer, lambda: RUN)
    results.add_attempt(GOOD)
    assert results.unreported(GOOD.nodeid) == {0: GOOD}
    results.add_case((GOOD,))
    results.add_case((BAD,))
    assert results.unreported(GOOD.nodeid) == {}
    writer.close_journal()
    assert read_journal(writer.folder / "journal.jsonl") == [GOOD, BAD]
    assert results.ordered() == [GOOD, BAD]


def test_a_resumed_run_starts_with_prior_results_and_carries_over_the_rest(writer: RunWriter, tmp_path: Path) -> None:
    prior = PriorResults.of(writer.folder, RUN, [GOOD, BAD])
    resumed = RunWriter(tmp_path, "toy", "01RUN", prior=prior)
    results = RunResults(resumed, lambda: RUN)
    assert sorted(results.carry_over()) == [GOOD.nodeid, BAD.nodeid]
    assert results.ordered() == [GOOD, BAD]
    results = RunResults(resumed, lambda: RUN)
    results.mark_journaled()
    results.add_case((GOOD,))
    new = recorded_result(case_result("b", timestamp="2026-01-01T00:00:00.000Z"), "01RUN")
    results.add_case((new,))
    resumed.close_journal()
    assert read_journal(writer.folder / "journal.jsonl") == [GOOD, BAD, new]
    assert results.carry_over() == []


def test_a_folder_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("a file", encoding="utf-8")
    results = RunResults(RunWriter(tmp_path, "toy", "01RUN"), lambda: RUN)
    results.add_case((GOOD,))
    results.add_case((BAD,))
    (problem,) = results.problems
    assert problem.startswith(f"cannot write reports to {tmp_path / 'toy' / '01RUN'}: ")
