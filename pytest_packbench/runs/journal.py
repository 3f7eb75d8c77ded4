"""The journal: entries as they come, one line each, so that a run that dies keeps what it had (design 4).

Its first line is a head: what is true of the run, so that it can be resumed by what it was.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from pytest_packbench.atomic import replace_atomic
from pytest_packbench.model.result import CaseResult
from pytest_packbench.runs.folder import WORKER_JOURNALS
from pytest_packbench.runs.lines import compact_json
from pytest_packbench.runs.metadata import RunFieldError, parse_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from io import FileIO
    from pathlib import Path

    from pytest_packbench.model.run import Run


HEADER_KEY = "packbench_journal"
JOURNAL_VERSION = 1


class JournalError(ValueError):
    """A line of a journal is no entry, said in one line as `FILE:LINE: why`."""


class Journal:
    """Appends entries to a file. A last line that a crash cut short is completed or taken away when it is opened.

    While it is open it is held, so that nobody resumes a run that is under way.

    Args:
        path: the file; made where it is missing, its folder exists.
        head: gives what is true of the run; asked where the file is empty, and not written where it is None.

    Attributes:
        path: the file.

    Raises:
        OSError: the file can't be opened.
    """

    def __init__(self, path: Path, head: Callable[[], Run] | None = None) -> None:
        self.path = path
        _mend(path)
        # unbuffered: what a full disk refuses must not come back with a later line
        self._file = path.open("ab", buffering=0)
        lock(self._file)
        self._end = self._file.seek(0, os.SEEK_END)
        if head is not None and self._end == 0:
            self._write(_head_line(head()))

    def append(self, entry: CaseResult) -> None:
        """Hand an entry to the operating system at once, as one line in one write.

        Raises:
            OSError: it can't be written; the journal ends with the entry before.
            TypeError: the entry holds something that is not JSON.
            ValueError: the journal is closed.
        """
        self._write(_line(entry.as_json()))

    def _write(self, line: bytes) -> None:
        try:
            _write_whole(self._file, line)
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._end)
            raise
        self._end += len(line)

    def close(self) -> None:
        """Close the file; once more does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        """Give the journal."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()


def read_journal(path: Path) -> list[CaseResult]:
    """Read the entries of a journal in the order in which they came.

    A last line without its end that can't be read was cut short by a crash and is left out.

    Returns:
        All entries, of cases that ran twice both.

    Raises:
        OSError: the file can't be read.
        JournalError: any other line is no entry.
    """
    entries = []
    for data, where in _objects(path):
        if HEADER_KEY not in data:
            try:
                entries.append(parse_result(data))
            except JournalError as error:
                raise JournalError(f"{where}: {error}") from None
    return entries


def read_header(path: Path) -> Run | None:
    """Read what a journal says of its run; None where it has no head: it is empty, or an older version wrote it.

    Raises:
        OSError: the file can't be read.
        JournalError: the head is of another version or tells of no run, or the first line is nothing of a journal.
    """
    head, _ = next(_objects(path), ({}, ""))
    if HEADER_KEY not in head:
        return None
    if head[HEADER_KEY] != JOURNAL_VERSION:
        raise JournalError(
            f"{path}:1: /{HEADER_KEY}: got {head[HEADER_KEY]!r:.60}; this program reads {JOURNAL_VERSION}"
        )
    run = head.get("run")
    if not isinstance(run, dict):
        raise JournalError(f"{path}:1: /run: expected an object")
    try:
        return parse_run(run)
    except RunFieldError as error:
        told = "not what a run is" if error.name else error.value
        raise JournalError(f"{path}:1: /run: {told}") from None


def rewrite_journal(path: Path, run: Run, entries: Iterable[CaseResult]) -> None:
    """Put a journal of a run and its entries in the place of an older one, whole or not at all.

    Args:
        path: the file; its folder exists.
        run: what is true of the run.
        entries: what it has so far, one line each.

    Raises:
        OSError: it can't be written; an older one is untouched.
    """
    with replace_atomic(path) as file:
        file.write(_head_line(run))
        for entry in entries:
            file.write(_line(entry.as_json()))


class WorkerJournals:
    """Keeps the attempts of a live run as they end: a worker reports a case when all its trials are over.

    Args:
        base: the folder of reports.
        run_id: the session's.
        worker: the worker's name.
    """

    def __init__(self, base: Path, run_id: str, worker: str) -> None:
        self._base = base
        self._run_id = run_id
        self._name = f"journal.{worker}-{os.getpid()}.jsonl"
        self._open: dict[str, Journal] = {}

    def keep(self, result: CaseResult) -> None:
        """Append a result; where that can't be done the controller says so, which writes to the same folder."""
        # the folder is the controller's to make: on another machine there is none, and nothing is to be left there
        folder = self._base / result.suite / self._run_id
        with suppress(OSError):
            if result.suite not in self._open:
                self._open[result.suite] = Journal(folder / self._name)
            self._open[result.suite].append(result)

    def close(self) -> None:
        """Close them."""
        for journal in self._open.values():
            journal.close()


def read_worker_journals(folder: Path) -> dict[str, dict[int, CaseResult]]:
    """Read what workers of xdist finished, by node id and trial; what of a run's folder can't be read is left out."""
    found: dict[str, dict[int, CaseResult]] = {}
    for part in sorted(folder.glob(WORKER_JOURNALS)):
        with suppress(OSError, JournalError):
            for result in read_journal(part):
                found.setdefault(result.nodeid, {})[result.trial] = result
    return found


def lock(file: FileIO) -> bool:
    """Hold an open file until it is closed or the process ends, however it ends.

    Returns:
        Whether it is ours; also where nothing can be held.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # a file system without locks
        return True
    return True


def is_locked(path: Path) -> bool:
    """Whether somebody holds a file; False where there is none, or where it can't be told."""
    with suppress(OSError), path.open("rb", buffering=0) as file:
        return not lock(file)
    return False


def last_attempts(entries: Iterable[CaseResult]) -> list[CaseResult]:
    """Keep the last entry of each trial of each case, in the order in which they came first."""
    return list({(entry.suite, entry.test_id, entry.trial): entry for entry in entries}.values())


def parse_result(data: dict[str, Any]) -> CaseResult:
    """Make an entry of what a line holds.

    Raises:
        JournalError: a key is missing or unknown, or a value is of another type or range.
    """
    from pytest_packbench.model.checks import result_problem

    try:
        entry = CaseResult.from_json(data)
    except (TypeError, KeyError, ValueError) as error:
        raise JournalError(f"no entry: {type(error).__name__}: {' '.join(str(error).split())}") from None
    problem = result_problem(entry)
    if problem is not None:
        raise JournalError(f"no entry: {problem[0]}: {problem[1]}")
    return entry


def _write_whole(file: FileIO, line: bytes) -> None:
    written = file.write(line)
    while written < len(line):
        # what is left says why there is no room for it
        written += file.write(line[written:])


def _objects(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Give the object of each line, and where it stands; without a last line that was cut short."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}:{number}"
            try:
                found = _object(line)
                if not line.endswith(b"\n") and HEADER_KEY not in found:
                    parse_result(found)
            except JournalError as error:
                if not line.endswith(b"\n"):
                    return
                raise JournalError(f"{where}: {error}") from None
            yield found, where


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise JournalError(f"no entry: {type(error).__name__}: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise JournalError("no entry: expected an object")
    return data


def _line(data: dict[str, Any]) -> bytes:
    return compact_json(data, finite=False) + b"\n"


def _head_line(run: Run) -> bytes:
    return _line({HEADER_KEY: JOURNAL_VERSION, "run": asdict(run)})


def _mend(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        start, last = 0, b""
        for line in file:
            start, last = start + len(last), line
        if not last or last.endswith(b"\n"):
            return
        try:
            data = _object(last)
            if HEADER_KEY not in data:
                parse_result(data)
        except JournalError:
            file.truncate(start)
        else:
            file.write(b"\n")
