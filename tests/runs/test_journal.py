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
from tests.unit.run_builders import any_case_result, case_result, run

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


def test_a_second_header_is_refused(path: Path) -> None:
    rewrite_journal(path, run(), [case_result("a")])
    path.write_bytes(path.read_bytes() + path.read_bytes())
    with pytest.raises(StoredRunError, match=r"journal\.jsonl:\d: a second header; restore the file from the run"):
        read_journal(path)


def test_the_last_attempt_of_each_trial_counts() -> None:
    results = [case_result("a", "error"), case_result("b"), case_result("a"), case_result("b", "failed")]
    assert last_attempts([results]) == [case_result("a"), case_result("b", "failed")]
    trials = [case_result("a", trial=0), case_result("a", trial=1), case_result("a", "failed", trial=0)]
    assert last_attempts([trials]) == [case_result("a", "failed", trial=0), case_result("a", trial=1)]


def ended(case_id: str = "a", **changes: Any) -> EndedAttempt:
    """Return an attempt that ended at the time of `case_result`."""
    fields: dict[str, Any] = {
        "suite": "toy",
        "case_id": case_id,
        "nodeid": f"{case_id}.json::{case_id}",
        "file": f"{case_id}.json",
        "trial": 0,
        "finished_ns": 0,
        "duration_ms": 7,
        "case_sha256": "0" * 64,
        "cassette_sha256": None,
        "llm_backend": "openai",
        "llm_model": "fake-1",
        "tokens_input": 3,
        "tokens_output": None,
        "calls": 2,
        "cached": 1,
        "stale": False,
        "remark": "",
        "payload": {"deep": [None, "\ud800"]},
        "recording": None,
    }
    return ended_from({**fields, **changes})


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


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"trial": "0"}, '/trial: got "0"; expected an integer'),
        ({"finished_ns": -1}, "/timestamp: got null; expected a string"),
        ({"tokens_input": 0.5}, "/tokens_input: got 0.5; expected an integer"),
    ],
)
def test_an_edited_ended_attempt_is_refused(path: Path, change: dict[str, Any], problem: str) -> None:
    line = {ENDED_KEY: {**ended_line(ended()), **change}}
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(StoredRunError, match=re.escape(f"journal.jsonl:1: not a result: {problem}")):
        read_journal(path)[1]


def test_what_a_later_version_adds_to_an_unreadable_answer_is_ignored(path: Path) -> None:
    unread = {"term": "later_term", "reason": "r", "later": 1}
    path.write_text(json.dumps({ENDED_KEY: {**ended_line(ended()), "unread": unread}}) + "\n", encoding="utf-8")
    (entry,) = read_journal(path)[1]
    assert entry.attempt.unread == UnreadAnswer("unreadable_answer", "r")


def test_the_last_entry_of_each_attempt_counts_in_whatever_journal_it_is() -> None:
    result, error = case_result("a", **at(2)), case_result("a", "error", **at(2))
    early, late = ended("a", finished_ns=2_000_000_000), ended("a", finished_ns=3_000_000_000)
    # a result has the time at which its target ended
    assert last_attempts([[result], [early]]) == last_attempts([[early], [result]]) == [result]
    # an attempt that was repeated after an error
    assert last_attempts([[late], [early], [error]]) == [late]
    other = case_result("a", trial=1, **at(1))
    assert last_attempts([[late, other], [ended("b", finished_ns=0)]]) == [ended("b", finished_ns=0), other, late]


def test_a_clock_that_steps_back_does_not_bring_back_what_a_later_line_replaced() -> None:
    error, answer = case_result("a", "error", **at(9)), ended("a", finished_ns=2_000_000_000)
    assert last_attempts([[error, answer]]) == [answer]
    result = case_result("a", **at(2))
    assert last_attempts([[error, answer, result]]) == [result]


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
