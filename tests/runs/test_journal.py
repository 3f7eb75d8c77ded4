"""The journal: every appended result is read back, whatever ended the process that wrote it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.model.errors import StoredRunError
from pytest_packbench.model.result import EndedAttempt, Result, UnreadAnswer, ended_from, ended_line, format_timestamp
from pytest_packbench.runs.journal import (
    ENDED_KEY,
    Journal,
    WorkerJournals,
    is_locked,
    last_attempts,
    read_journal,
    read_worker_journals,
    rewrite_journal,
)
from tests.unit.run_builders import USUAL, any_case_result, case_result, run

if TYPE_CHECKING:
    from pathlib import Path

TERM = {"name": "points", "effect": "add", "value": 1.0, "detail": "ü\n\u2028"}
FULL = case_result("full", tags=("a", "b"), terms=(TERM,), record={"x": [1]}, payload={"deep": [None, "\ud800"]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, *results: Result) -> None:
    with Journal(path) as journal:
        for result in results:
            journal.append(result)


def results_in(path: Path) -> list[Result]:
    return [entry for entry in read_journal(path)[1] if isinstance(entry, Result)]


def case_ids(path: Path) -> list[str]:
    return [result.case.case_id for result in results_in(path)]


@given(results=st.lists(any_case_result() | st.just(FULL), max_size=5))
def test_any_result_is_read_back(tmp_path_factory: pytest.TempPathFactory, results: list[Result]) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    write(path, *results[:2])
    write(path, *results[2:])
    assert results_in(path) == results


def test_a_result_is_one_line_on_disk_before_the_journal_is_closed(path: Path) -> None:
    journal = Journal(path)
    journal.append(FULL)
    journal.append(case_result("b"))
    assert path.read_bytes().count(b"\n") == 2
    assert results_in(path) == [FULL, case_result("b")]
    journal.close()
    journal.close()
    with pytest.raises(ValueError, match="closed"):
        journal.append(FULL)


def test_a_line_cut_short_anywhere_is_ignored(path: Path) -> None:
    write(path, case_result("a"))
    whole = path.read_bytes()
    write(path, FULL)
    both = path.read_bytes()
    for length in range(len(whole), len(both)):
        path.write_bytes(both[:length])
        assert case_ids(path) == (["a", "full"] if length == len(both) - 1 else ["a"])
    path.write_bytes(b'{"suite": "to')
    assert case_ids(path) == []


# lines of a journal, and what the error about them says
BAD_RESULTS = [
    b"{",
    b"[]",
    b"null",
    b'{"suite":"toy"}',
    b"\xff",
    b"",
    b"[" * 100_000,
    b'{"tags":1,"terms":[]}',
    b'{"packbench_ended":null}',
]
BAD_LINES: dict[str, Any] = {
    '/trial: got "0"; expected an integer': {"trial": "0"},
    "/timestamp: got null; expected a string": {"finished_ns": -1},
    "/tokens_input: got 0.5; expected an integer": {"tokens_input": 0.5},
}
BAD_HEADERS = {
    b'{"packbench_journal": 2, "run": {}}': "not a header: /packbench_journal: got 2; expected 1",
    b'{"packbench_journal": 1, "run": []}': "not a header: ",
    b'{"packbench_journal": 1, "run": {"findings": "f"}}': "not a header: /run/run_id: the key",
    b'{"packbench_journal": 1, "run": {}}': "not a header: /run/run_id: the key",
}


@pytest.mark.parametrize("bad", BAD_RESULTS, ids=lambda bad: repr(bad[:20]))
def test_a_bad_line_is_named(path: Path, bad: bytes) -> None:
    write(path, case_result("a"))
    good = path.read_bytes()
    for rest in (b"", good):
        path.write_bytes(good + bad + b"\n" + rest)
        with pytest.raises(StoredRunError, match=r"journal\.jsonl:2: not (a result|JSON|UTF-8): ") as caught:
            results_in(path)
        assert "\n" not in str(caught.value)
    for header, message in BAD_HEADERS.items():
        path.write_bytes(header + b"\n")
        with pytest.raises(StoredRunError, match=f"journal.jsonl:1: {re.escape(message)}"):
            read_journal(path)[0]


def ended(case_id: str = "a", **changes: Any) -> EndedAttempt:
    """Return an attempt that ended at the time of `case_result`."""
    names = {"nodeid": f"{case_id}.json::{case_id}", "file": f"{case_id}.json"}
    return ended_from({**USUAL["ended"], "case_id": case_id, **names, **changes})


def at(seconds: int) -> dict[str, Any]:
    return {"timestamp": format_timestamp(seconds * 1_000_000_000)}


def test_ended_attempts_are_read_back(path: Path) -> None:
    entries: list[Result | EndedAttempt] = [ended("a"), case_result("a")]
    entries += [ended("b", recording={"exchanges": [{"answer": 1}]}), ended("c", trial=1)]
    with Journal(path, run) as journal:
        for entry in entries:
            journal.append(entry)
    assert read_journal(path)[1] == entries
    assert results_in(path) == [case_result("a")]
    rewrite_journal(path, run(), entries)
    assert read_journal(path)[1] == entries
    path.write_bytes(path.read_bytes()[:-20])
    assert read_journal(path)[1] == entries[:-1]


def test_an_edited_line_is_refused_and_what_a_later_version_adds_is_ignored(path: Path) -> None:
    def read(**change: Any) -> Any:
        path.write_text(json.dumps({ENDED_KEY: {**ended_line(ended()), **change}}) + "\n", encoding="utf-8")
        return read_journal(path)[1]

    for problem, change in BAD_LINES.items():
        with pytest.raises(StoredRunError, match=re.escape(f"journal.jsonl:1: not a result: {problem}")):
            read(**change)
    (entry,) = read(unread={"term": "later_term", "reason": "r", "later": 1})
    assert entry.attempt.unread == UnreadAnswer("unreadable_answer", "r")
    rewrite_journal(path, run(), [case_result("a")])
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(StoredRunError, match=r"journal\.jsonl:\d: a second header; restore the file from the run"):
        read_journal(path)


def test_the_last_entry_of_each_attempt_counts_in_whatever_journal_it_is() -> None:
    first, trial, failed = case_result("a"), case_result("a", trial=1), case_result("a", "failed")
    result, error, later = (
        case_result("a", **at(2)),
        case_result("a", "error", **at(2)),
        case_result("a", trial=1, **at(1)),
    )
    early, late, b = ended("a", finished_ns=2 * 10**9), ended("a", finished_ns=3 * 10**9), ended("b", finished_ns=0)
    broken = case_result("a", "error", **at(9))
    journals: list[tuple[list[list[Any]], list[Any]]] = [
        ([[case_result("a", "error"), case_result("b"), first]], [first, case_result("b")]),
        ([[first, trial, failed]], [failed, trial]),
        # a result has the time at which its target ended
        ([[result], [early]], [result]),
        ([[early], [result]], [result]),
        # an attempt that was repeated after an error
        ([[late], [early], [error]], [late]),
        ([[late, later], [b]], [b, later, late]),
        # a clock that steps back does not bring back what a later line replaced
        ([[broken, early]], [early]),
        ([[broken, early, result]], [result]),
    ]
    for entries, last in journals:
        assert last_attempts(entries) == last


def test_several_threads_append_whole_lines(path: Path) -> None:
    long = {"text": "x" * 20_000}
    with Journal(path) as journal, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: journal.append(ended(str(number), payload=long)), range(200)))
    assert sorted(int(entry.case.case_id) for entry in read_journal(path)[1]) == list(range(200))


def test_a_worker_stores_nothing_where_the_controller_made_no_folder(tmp_path: Path) -> None:
    journals = WorkerJournals(tmp_path, "01RUN", "gw0")
    assert not journals.append(ended())
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "toy" / "01RUN"
    folder.mkdir(parents=True)
    assert journals.append(ended())
    assert journals.append(case_result("a", trial=1))
    attempts = read_worker_journals(folder)
    assert {name: sorted(trials) for name, trials in attempts.items()} == {
        "a.json::a": [0],
        "cases/a.json::a": [1],
    }
    (path,) = folder.iterdir()
    assert is_locked(path)
    journals.close()
    assert not is_locked(path)


def test_the_header_describes_the_run_and_is_no_result(path: Path) -> None:
    for case_id in ("a", "b"):
        with Journal(path, run) as journal:
            journal.append(case_result(case_id))
    assert read_journal(path)[0] == run()
    assert case_ids(path) == ["a", "b"]
    assert path.read_bytes().count(b"packbench_journal") == 1
    rewrite_journal(path, run(), [case_result("c")])
    assert (read_journal(path)[0], case_ids(path)) == (run(), ["c"])
    path.unlink()
    write(path, case_result("a"))
    assert read_journal(path)[0] is None


LOCKING = """
import sys
from pathlib import Path
from pytest_packbench.runs.journal import Journal
journal = Journal(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_journal_is_locked_until_it_is_closed_or_its_process_is_killed(path: Path) -> None:
    assert not is_locked(path)
    with Journal(path) as journal:
        assert is_locked(path)
        journal.append(FULL)
        # a second writer is not kept out: the lock only shows that the run is in progress
        write(path, case_result("b"))
    assert not is_locked(path)
    assert case_ids(path) == ["full", "b"]
    command = [sys.executable, "-c", LOCKING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        assert is_locked(path)
        process.kill()
    assert not is_locked(path)
