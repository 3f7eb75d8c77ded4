"""The journal: what a run has, one line each, as soon as it has it, so that a run that is killed keeps it.

Its first line is a header with the metadata of the run, so that the run can be resumed under the same conditions. The
others are attempts whose target has ended, before they are scored, and results. Each process has a journal of its own.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import ValidationError

from pytest_packbench.files import LIMITS, OpenFile, finite_line, replace_atomic
from pytest_packbench.model.case import CurrentVersion
from pytest_packbench.model.errors import StoredRunError, first_problem
from pytest_packbench.model.record import RecordError
from pytest_packbench.model.result import EndedAttempt, Result, adapter, ended_from, ended_line, result_from
from pytest_packbench.model.run import Run
from pytest_packbench.runs.folder import WORKER_JOURNALS, line_value, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


HEADER_KEY = "packbench_journal"
ENDED_KEY = "packbench_ended"
"""The only key of the line of an attempt that is not scored yet."""
JOURNAL_VERSION = 1

Entry = Result | EndedAttempt


@dataclass(frozen=True, slots=True)
class _Header:
    """The first line: the version of the format, and the metadata of the run."""

    packbench_journal: Annotated[int, CurrentVersion(JOURNAL_VERSION)]
    run: Run


class Journal:
    """Appends entries to a file. What a crash cut short is left out when a resumed run writes its journal anew.

    The file is locked while it is open, so that a run in progress cannot be resumed. Several threads may append.

    Args:
        path: the file; it is created if it does not exist. Its folder must exist.
        header: returns the metadata of the run; called when the file is empty. None writes no header.

    Attributes:
        path: the file.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, header: Callable[[], Run] | None = None) -> None:
        self.path = path
        # unbuffered: a line that a full disk refused must not be written together with a later one
        self._file = path.open("ab", buffering=0)
        self._writing = threading.Lock()
        _lock(self._file.fileno())
        self._end = self._file.seek(0, os.SEEK_END)
        if header is not None and self._end == 0:
            try:
                self.append(header())
            except OSError:
                self._file.close()
                raise

    def append(self, entry: Run | Entry) -> None:
        """Pass an entry, or the run for the header, to the operating system immediately, as one line in one write.

        Raises:
            OSError: the line cannot be written; the journal ends with the previous entry.
            TypeError: the entry contains something that is not JSON.
            ValueError: the journal is closed.
        """
        line = _line(entry)
        with self._writing:
            try:
                written = self._file.write(line)
                while written < len(line):
                    # writing the rest raises the reason why only a part was written
                    written += self._file.write(line[written:])
            except OSError:
                with suppress(OSError):
                    self._file.truncate(self._end)
                raise
            self._end += len(line)

    def close(self) -> None:
        """Close the file and release its lock; a closed journal can be closed again."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return the journal."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the journal."""
        self.close()


def read_journal(path: Path | OpenFile) -> tuple[Run | None, list[Entry]]:
    """Return the run of a journal's header, and its entries in the order in which they were appended.

    A last line without a line end that cannot be read was cut short by a crash and is ignored.

    Returns:
        The run, None without a header: the file is empty, or an older version wrote it; and all entries, both results
        of a case that ran twice.

    Raises:
        OSError: the file cannot be read.
        StoredRunError: another line is neither an entry nor a header, or the header has another version.
    """
    run, entries = None, []
    for location, entry in read_lines(path, _parse_line, LIMITS["journal"], may_be_cut=True):
        if not isinstance(entry, Run):
            entries.append(entry)
        elif run is None:
            run = entry
        else:
            raise StoredRunError(f"{location}: a second header; restore the file from the run")
    return run, entries


def rewrite_journal(path: Path, run: Run, entries: Iterable[Entry]) -> None:
    """Replace a journal atomically.

    Args:
        path: the file; its folder must exist.
        run: the metadata for the header.
        entries: the entries, one line each.

    Raises:
        OSError: the file cannot be written; an existing journal is unchanged.
    """
    with replace_atomic(path) as file:
        file.write(_line(run))
        file.writelines(map(_line, entries))


class WorkerJournals:
    """The journals of an xdist worker: what it has done is on the disk even if the controller never learns of it.

    Args:
        base: the folder of reports.
        run_id: the id of the session's run.
        worker: the name of the worker.

    Attributes:
        problem: why an entry could not be written, in one line; empty if all could, or on another machine, without the
            folder.
    """

    def __init__(self, base: Path, run_id: str, worker: str) -> None:
        self._base = base
        self._run_id = run_id
        self._name = f"journal.{worker}-{os.getpid()}.jsonl"
        self._journals: dict[str, Journal] = {}
        self._opening = threading.Lock()
        self.problem = ""

    def append(self, entry: Entry) -> bool:
        """Append an entry, on any thread; return whether it is on the disk.

        Write errors are left to the controller, which writes to the same folder.
        """
        folder = self._base / entry.case.suite / self._run_id
        try:
            with self._opening:
                journal = self._journals.get(entry.case.suite)
                if journal is None:
                    # the controller creates the folder: on another machine it does not exist, and nothing is left there
                    journal = self._journals[entry.case.suite] = Journal(folder / self._name)
            journal.append(entry)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.problem = f"cannot write reports to {folder}: {error.strerror or error}"
            return False
        return True

    def close(self) -> None:
        """Close all journals."""
        for journal in self._journals.values():
            journal.close()


def read_worker_journals(folder: Path) -> dict[str, dict[int, Entry]]:
    """Return the last entries of attempts in the journals of xdist workers, by node id and trial.

    Unreadable journals are ignored.
    """
    journals: list[list[Entry]] = []
    for path in sorted(folder.glob(WORKER_JOURNALS)):
        with suppress(OSError, StoredRunError):
            journals.append(read_journal(path)[1])
    attempts: dict[str, dict[int, Entry]] = {}
    for entry in last_attempts(journals):
        attempts.setdefault(entry.case.nodeid, {})[entry.attempt.trial] = entry
    return attempts


def _lock(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed or the process ends, even if the process is killed.

    Returns:
        False if another process has locked it; True otherwise, also where the file system has no locks.
    """
    try:
        if sys.platform == "win32":
            from filelock import lock_descriptor

            return lock_descriptor(descriptor, blocking=False)
        # filelock imports asyncio, which a run in fixture mode does without
        from fcntl import LOCK_EX, LOCK_NB, flock

        flock(descriptor, LOCK_EX | LOCK_NB)
    except (BlockingIOError, PermissionError):
        # as some file systems raise
        return False
    except OSError:
        return True
    return True


def lock_folder(folder: Path) -> int | None:
    """Lock a folder, other than by the files in it, until its descriptor is closed or the process ends.

    Returns:
        The descriptor; a negative number where folders can't be opened; None if another process has locked it.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        # as on Windows
        return -1
    if _lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def is_locked(path: Path) -> bool:
    """Return whether another open file has locked a file; False if it does not exist or cannot be locked."""
    # opening a pipe would wait forever
    if path.is_file():
        with suppress(OSError), path.open("rb", buffering=0) as file:
            return not _lock(file.fileno())
    return False


def last_attempts(journals: Iterable[Iterable[Entry]]) -> list[Entry]:
    """Return the last entry of each trial of each case: its result if the attempt was scored.

    Args:
        journals: the entries of each; in one the last line counts, because a clock can be stepped back. Of several
            journals the last time counts, and of equal times the result, or the last one.
    """
    last = [entry for entries in journals for entry in _by_attempt(entries)]
    return _by_attempt(sorted(last, key=lambda entry: (entry.attempt.timestamp, isinstance(entry, Result))))


def _by_attempt(entries: Iterable[Entry]) -> list[Entry]:
    return list({(entry.case.suite, entry.case.case_id, entry.attempt.trial): entry for entry in entries}.values())


def _parse_line(line: bytes | str) -> Run | Entry:
    """Return the run of a header, or an entry.

    Raises:
        RecordError: the line is neither.
    """
    data = line_value(line)
    if not isinstance(data, dict):
        raise RecordError("not a result: expected an object")
    what = "header" if HEADER_KEY in data else "result"
    try:
        if HEADER_KEY in data:
            header: _Header = adapter(_Header).validate_python(data)
            return header.run
        if ENDED_KEY not in data:
            return result_from(data, data.get("record"))
        if not isinstance(data[ENDED_KEY], dict):
            raise RecordError(f"not a result: /{ENDED_KEY}: expected an object")
        return ended_from(data[ENDED_KEY])
    except ValidationError as error:
        raise RecordError(f"not a {what}: {first_problem(error, data)}") from None


def _line(entry: Run | Entry) -> bytes:
    if isinstance(entry, Result):
        data = entry.as_json()
    elif isinstance(entry, Run):
        data = asdict(_Header(JOURNAL_VERSION, entry))
    else:
        data = {ENDED_KEY: ended_line(entry)}
    return finite_line(data) + b"\n"
