"""The journals of xdist's workers, beside the one of the session: what was paid for outlives a worker that dies."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_packbench.runs.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult


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
