"""The journal: every appended result is read back, whatever ended the process that wrote it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.runs.journal import (
    Journal,
    JournalError,
    is_locked,
    last_attempts,
    read_header,
    read_journal,
    rewrite_journal,
)
from tests.unit.run_builders import any_case_result, case_result, run

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult

TERM = {"name": "points", "effect": "add", "value": 1.0, "detail": "ü\n\u2028"}
FULL = case_result("full", tags=("a", "b"), terms=(TERM,), record={"x": [1]}, payload={"deep": [None, "\ud800"]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, *results: CaseResult) -> None:
    with Journal(path) as journal:
        for result in results:
            journal.append(result)


def case_ids(path: Path) -> list[str]:
    return [result.case_id for result in read_journal(path)]


@given(results=st.lists(any_case_result() | st.just(FULL), max_size=5))
def test_any_result_is_read_back(tmp_path_factory: pytest.TempPathFactory, results: list[CaseResult]) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    write(path, *results[:2])
    write(path, *results[2:])
    assert read_journal(path) == results


def test_a_result_is_one_line_on_disk_before_the_journal_is_closed(path: Path) -> None:
    journal = Journal(path)
    journal.append(FULL)
    journal.append(case_result("b"))
    assert path.read_bytes().count(b"\n") == 2
    assert read_journal(path) == [FULL, case_result("b")]
    journal.close()
    journal.close()
    with pytest.raises(ValueError, match="closed"):
        journal.append(FULL)


def test_a_line_cut_short_anywhere_is_ignored_and_repaired(path: Path) -> None:
    write(path, case_result("a"))
    whole = path.read_bytes()
    write(path, FULL)
    both = path.read_bytes()
    for length in range(len(whole), len(both)):
        path.write_bytes(both[:length])
        before = ["a", "full"] if length == len(both) - 1 else ["a"]
        assert case_ids(path) == before
        write(path, case_result("c"))
        assert case_ids(path) == [*before, "c"]
    path.write_bytes(b'{"suite": "to')
    assert case_ids(path) == []
    write(path, case_result("a"))
    assert case_ids(path) == ["a"]


UNKNOWN_KEY = json.dumps({**FULL.as_json(), "colour": "red"}).encode()
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
    UNKNOWN_KEY,
]
BAD_HEADERS = {
    b'{"packbench_journal": 2, "run": {}}': "/packbench_journal: got 2; this version reads 1",
    b'{"packbench_journal": 1, "run": []}': "/run: expected an object",
}


@pytest.mark.parametrize("bad", BAD_RESULTS, ids=lambda bad: repr(bad[:20]))
def test_a_bad_line_is_named(path: Path, bad: bytes) -> None:
    write(path, case_result("a"))
    good = path.read_bytes()
    for rest in (b"", good):
        path.write_bytes(good + bad + b"\n" + rest)
        with pytest.raises(JournalError, match=r"journal\.jsonl:2: not a result: ") as caught:
            read_journal(path)
        assert "\n" not in str(caught.value)
        assert ("colour" in str(caught.value)) is (bad is UNKNOWN_KEY)
    for header, message in BAD_HEADERS.items():
        path.write_bytes(header + b"\n")
        with pytest.raises(JournalError, match=f"journal.jsonl:1: {re.escape(message)}"):
            read_header(path)


def test_the_last_attempt_of_each_trial_counts() -> None:
    results = [case_result("a", "error"), case_result("b"), case_result("a"), case_result("b", "failed")]
    assert last_attempts(results) == [case_result("a"), case_result("b", "failed")]
    trials = [case_result("a", trial=0), case_result("a", trial=1), case_result("a", "failed", trial=0)]
    assert last_attempts(trials) == [case_result("a", "failed", trial=0), case_result("a", trial=1)]


def test_the_header_describes_the_run_and_is_no_result(path: Path) -> None:
    for case_id in ("a", "b"):
        with Journal(path, run) as journal:
            journal.append(case_result(case_id))
    assert read_header(path) == run()
    assert case_ids(path) == ["a", "b"]
    assert path.read_bytes().count(b"packbench_journal") == 1
    rewrite_journal(path, run(), [case_result("c")])
    assert (read_header(path), case_ids(path)) == (run(), ["c"])
    path.unlink()
    write(path, case_result("a"))
    assert read_header(path) is None


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
