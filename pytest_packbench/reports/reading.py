"""Reading a run with all that lies beside it: records alone hide the cases that broke."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_packbench.records.entry import VERDICTS, Entry
from pytest_packbench.records.stored import StoredRun, StoredRunError, load_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

REPORT, ERRORS = "report.json", "errors.jsonl"
_TEXTS = ("run_id", "test_id", "verdict", "kind", "message", "file", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun:
    """A run, and whether it is all of it.

    Attributes:
        stored: the run.
        whole: whether cases that broke or did not run stand in it; False where it was read from records alone, so
            that nobody can say how many there were.
    """

    stored: StoredRun
    whole: bool


def read_run(path: Path) -> ReadRun:
    """Read a run; of record lines also what lies beside them.

    Beside a file of records are looked for, in this order: the `report.json` of the same run, which tells all, and
    the lines of the same run in `errors.jsonl`, which tell the cases without a score.

    Args:
        path: a run folder, its `report.json`, or a `.jsonl` of records of one run.

    Raises:
        StoredRunError: it is none of these, or what lies beside it can't be read.
        OSError: a file can't be read.
    """
    stored = load_run(path)
    if path.is_dir() or path.suffix != ".jsonl":
        return ReadRun(stored=stored, whole=True)
    report, errors = path.with_name(REPORT), path.with_name(ERRORS)
    if report.is_file():
        told = load_run(report)
        if (told.run.run_id, told.run.suite) == (stored.run.run_id, stored.run.suite):
            return ReadRun(stored=_checked(told, stored), whole=True)
    lines = list(_error_lines(errors, stored)) if errors.is_file() else []
    if not lines:
        return ReadRun(stored=stored, whole=False)
    entries = sorted((*stored.entries, *_numbered(lines, stored.entries)), key=lambda one: (one.test_id, one.trial))
    return ReadRun(stored=replace(stored, entries=tuple(entries)), whole=True)


def _checked(told: StoredRun, records: StoredRun) -> StoredRun:
    """Make sure that the records are those of the report: who cut them or joined others means something else."""
    counted = {(entry.test_id, entry.trial) for entry in told.entries if entry.counted}
    found = {(entry.test_id, entry.trial) for entry in records.entries}
    if found != counted:
        wrong = min(name for name, _ in found ^ counted)
        raise StoredRunError(
            f"{records.source}: not the records that {told.source} tells of ({wrong} stands in one of them); "
            "give the run's folder, or the records without the report beside them"
        )
    return told


def _error_lines(path: Path, stored: StoredRun) -> Iterator[Entry]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise StoredRunError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(data, dict) or not all(isinstance(data.get(name, ""), str) for name in _TEXTS):
                raise StoredRunError(f"{path}:{number}: expected an object with {', '.join(_TEXTS)}")
            if data.get("verdict") not in VERDICTS or not data.get("test_id"):
                raise StoredRunError(f"{path}:{number}: expected a test_id, and a verdict of {', '.join(VERDICTS)}")
            # runs may be joined in one file; those of another suite belong to its records
            if data.get("run_id") == stored.run.run_id:
                yield _entry(data, stored)


def _entry(data: dict[str, Any], stored: StoredRun) -> Entry:
    """Make an entry of a line; which groups it belongs to, no line tells."""
    test_id = data["test_id"]
    case_id = test_id.rpartition(":")[2]
    file, trial = data.get("file", ""), data.get("trial", 0)
    return Entry(
        suite=stored.run.suite,
        test_id=test_id,
        case_id=case_id,
        nodeid=f"{file}::{case_id}",
        file=file,
        verdict=data["verdict"],
        kind=data.get("kind", ""),
        message=data.get("message", ""),
        timestamp=data.get("timestamp", ""),
        trial=trial if isinstance(trial, int) and trial > 0 else 0,
    )


def _numbered(lines: Iterable[Entry], records: Iterable[Entry]) -> Iterator[Entry]:
    """Number the trials that broke; where a line does not tell which one it was, it makes no difference."""
    taken = {(entry.test_id, entry.trial) for entry in records}
    for entry in lines:
        trial = entry.trial
        while (entry.test_id, trial) in taken:
            trial += 1
        taken.add((entry.test_id, trial))
        yield replace(entry, trial=trial)
