"""The journal: entries as they come, one line each, so that a run that dies keeps what it had (design 4)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

from pytest_packbench.records.entry import Entry
from pytest_packbench.records.entry_check import entry_problem

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class JournalError(ValueError):
    """A line of a journal is no entry, said in one line as `FILE:LINE: why`."""


class Journal:
    """Appends entries to a file. A last line that a crash cut short is completed or taken away when it is opened.

    Attributes:
        path: the file; made where it is missing, its folder exists.

    Raises:
        OSError: the file can't be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _mend(path)
        self._file = path.open("ab")

    def append(self, entry: Entry) -> None:
        """Write an entry as one line and hand it to the operating system at once.

        Raises:
            OSError: it can't be written.
            TypeError: the entry holds something that is not JSON.
            ValueError: the journal is closed.
        """
        line = _ENCODER.encode(entry.as_json()) + "\n"
        # a surrogate, which UTF-8 can't hold, becomes the escape that JSON has for it
        self._file.write(line.encode("utf-8", "backslashreplace"))
        self._file.flush()

    def close(self) -> None:
        """Close the file; once more does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        """Give the journal."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()


def read_journal(path: Path) -> list[Entry]:
    """Read the entries of a journal in the order in which they came.

    A last line without its end that can't be read was cut short by a crash and is left out.

    Args:
        path: the file.

    Returns:
        All entries, of cases that ran twice both.

    Raises:
        OSError: the file can't be read.
        JournalError: any other line is no entry.
    """
    entries = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                entries.append(_entry(line))
            except JournalError as error:
                if not line.endswith(b"\n"):
                    break
                raise JournalError(f"{path}:{number}: {error}") from None
    return entries


def latest(entries: Iterable[Entry]) -> list[Entry]:
    """Keep the last entry of each trial of each case, in the order in which they came first."""
    return list({(entry.suite, entry.test_id, entry.trial): entry for entry in entries}.values())


def parse_entry(data: dict[str, Any]) -> Entry:
    """Make an entry of what a line holds.

    Raises:
        JournalError: a key is missing or unknown, or a value is of another type or range.
    """
    try:
        entry = Entry.from_json(data)
    except (TypeError, KeyError, ValueError) as error:
        raise JournalError(f"no entry: {type(error).__name__}: {' '.join(str(error).split())}") from None
    problem = entry_problem(entry)
    if problem is not None:
        raise JournalError(f"no entry: {problem[0]}: {problem[1]}")
    return entry


def _entry(line: bytes) -> Entry:
    try:
        data = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise JournalError(f"no entry: {type(error).__name__}: {' '.join(str(error).split())}") from None
    return parse_entry(data)


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
            _entry(last)
        except JournalError:
            file.truncate(start)
        else:
            file.write(b"\n")
