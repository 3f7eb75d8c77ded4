"""The journal of a worker of xdist: what it finished and has not told yet, for its process may be killed."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_packbench.records.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.records.entry import Entry


class WorkerJournals:
    """Keeps the attempts of a live run as they end: a case is told when all its trials are over.

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

    def keep(self, entry: Entry) -> None:
        """Append an entry; where that can't be done the controller says so, which writes to the same folder."""
        # the folder is the controller's to make: on another machine there is none, and nothing is to be left there
        folder = self._base / entry.suite / self._run_id
        with suppress(OSError):
            if entry.suite not in self._open:
                self._open[entry.suite] = Journal(folder / self._name)
            self._open[entry.suite].append(entry)

    def close(self) -> None:
        """Close them."""
        for journal in self._open.values():
            journal.close()
