"""The journal keeps every entry that was appended, and says which line it can't read."""

from __future__ import annotations

import json
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


def write(path: Path, *found: CaseResult) -> None:
    with Journal(path) as journal:
        for each in found:
            journal.append(each)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_what_was_appended_is_read_back(path: Path) -> None:
    write(path, FULL, case_result("b", "error", kind="timeout", message="after 5 s"))
    assert read_journal(path) == [FULL, case_result("b", "error", kind="timeout", message="after 5 s")]


@given(found=st.lists(any_case_result(), max_size=5))
def test_any_entry_is_read_back(tmp_path_factory: pytest.TempPathFactory, found: list[CaseResult]) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    write(path, *found)
    assert read_journal(path) == found


def test_an_entry_is_on_disk_as_one_line_before_the_journal_is_closed(path: Path) -> None:
    journal = Journal(path)
    journal.append(FULL)
    journal.append(case_result("b"))
    assert path.read_bytes().count(b"\n") == 2
    assert len(read_journal(path)) == 2
    journal.close()
    journal.close()


def test_nothing_is_written_after_closing(path: Path) -> None:
    journal = Journal(path)
    journal.close()
    with pytest.raises(ValueError, match="closed"):
        journal.append(FULL)


def test_a_journal_is_continued(path: Path) -> None:
    write(path, case_result("a"))
    write(path, case_result("b"))
    assert [each.case_id for each in read_journal(path)] == ["a", "b"]


def test_a_line_cut_short_anywhere_is_left_out_and_mended(path: Path) -> None:
    write(path, case_result("a"))
    whole = path.read_bytes()
    write(path, FULL)
    both = path.read_bytes()
    for length in range(len(whole), len(both)):
        path.write_bytes(both[:length])
        complete = length == len(both) - 1
        before = ["a", "full"] if complete else ["a"]
        assert [each.case_id for each in read_journal(path)] == before
        write(path, case_result("c"))
        assert [each.case_id for each in read_journal(path)] == [*before, "c"]


def test_a_crash_in_the_first_line_leaves_an_empty_journal(path: Path) -> None:
    path.write_bytes(b'{"suite": "to')
    assert read_journal(path) == []
    write(path, case_result("a"))
    assert len(read_journal(path)) == 1


BAD = [b"{", b"[]", b"null", b'{"suite":"toy"}', b"\xff", b"", b"[" * 100_000, b'{"tags":1,"terms":[]}']


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: repr(bad[:20]))
@pytest.mark.parametrize("last", [True, False])
def test_a_bad_line_is_named(path: Path, bad: bytes, last: bool) -> None:
    write(path, case_result("a"))
    good = path.read_bytes()
    path.write_bytes(good + bad + b"\n" + (b"" if last else good))
    with pytest.raises(JournalError, match=r"journal\.jsonl:2: not a result: ") as caught:
        read_journal(path)
    assert "\n" not in str(caught.value)


def test_an_unknown_key_is_a_bad_line(path: Path) -> None:
    path.write_text(json.dumps({**FULL.as_json(), "colour": "red"}) + "\n", encoding="utf-8")
    with pytest.raises(JournalError, match="colour"):
        read_journal(path)


def test_the_last_entry_of_a_case_wins() -> None:
    found = [case_result("a", "error"), case_result("b"), case_result("a"), case_result("b", "failed")]
    assert last_attempts(found) == [case_result("a"), case_result("b", "failed")]


def test_trials_are_attempts_of_their_own() -> None:
    found = [case_result("a", trial=0), case_result("a", trial=1), case_result("a", "failed", trial=0)]
    assert last_attempts(found) == [case_result("a", "failed", trial=0), case_result("a", trial=1)]


def test_the_head_tells_what_was_run_and_is_no_entry(path: Path) -> None:
    of = run()
    with Journal(path, lambda: of) as journal:
        journal.append(case_result("a"))
    with Journal(path, lambda: of) as journal:
        journal.append(case_result("b"))
    assert read_header(path) == of
    assert [each.case_id for each in read_journal(path)] == ["a", "b"]
    assert path.read_bytes().count(b"packbench_journal") == 1
    rewrite_journal(path, of, [case_result("c")])
    assert read_header(path) == of
    assert [each.case_id for each in read_journal(path)] == ["c"]


def test_a_journal_without_a_head_has_none(path: Path) -> None:
    write(path, case_result("a"))
    assert read_header(path) is None


def test_a_head_of_another_version_is_named(path: Path) -> None:
    path.write_text('{"packbench_journal": 2, "run": {}}\n', encoding="utf-8")
    with pytest.raises(JournalError, match=r"journal\.jsonl:1: /packbench_journal: got 2; this version reads 1"):
        read_header(path)


LOCKING = """
import sys
from pathlib import Path
from pytest_packbench.runs.journal import Journal
journal = Journal(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_journal_is_locked_while_it_is_open(path: Path) -> None:
    assert not is_locked(path)
    with Journal(path) as journal:
        assert is_locked(path)
        journal.append(FULL)
        # a second writer is not kept out: the lock only answers whether the run goes on
        write(path, case_result("b"))
    assert not is_locked(path)
    assert [each.case_id for each in read_journal(path)] == ["full", "b"]


def test_the_lock_of_a_killed_process_is_released(path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOCKING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        assert is_locked(path)
        process.kill()
    assert not is_locked(path)
