"""Writing a run: its results and their journal while it goes on, and at its end every file that it leaves."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from pytest_packbench.atomic import write_atomic
from pytest_packbench.runs.folder import (
    DRAFTS,
    ERRORS,
    JOURNAL,
    LATEST,
    PAYLOADS,
    RECORDS,
    REPORT,
    WORKER_JOURNALS,
    ensure_gitignore,
)
from pytest_packbench.runs.journal import Journal, rewrite_journal
from pytest_packbench.runs.lines import open_jsonl
from pytest_packbench.runs.report import row_line, write_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.resume import PriorResults

_ROWS = "rows.jsonl"


def sort_results(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Sort results by case id, as every file shows them."""
    return sorted(results, key=lambda result: (result.case_id, result.test_id, result.file, result.trial))


class RunWriter:
    """Writes what a run leaves, in this order: journal, results, pages, report.

    A session writes into the run's folder, where its journal lies. A run of which everything is known before it is
    written, as a merged one, is written `apart`: beside its place first, so that the folder is there whole, with its
    report, or not at all. Then `with` gives the writer, and leaves nothing where the run was not completed.

    Args:
        output: the folder of reports; made where it is missing.
        suite: the suite's name.
        run_id: the run's id.
        apart: whether to write beside the folder's place first.
        resumed: what is kept of the run where a session goes on with it; asked when the journal is begun.

    Attributes:
        folder: the run's folder, named after its id.
        resumed: see above.
    """

    def __init__(
        self, output: Path, suite: str, run_id: str, *, apart: bool = False, resumed: PriorResults | None = None
    ) -> None:
        self.folder = output / suite / run_id
        self._output = output
        self._run_id = run_id
        self.resumed = resumed
        self._place = self.folder.with_name(f".{run_id}.tmp") if apart else self.folder
        self._journal: Journal | None = None
        self._results: Sequence[CaseResult] = ()

    def __enter__(self) -> Self:
        """Begin a run that is written apart.

        Raises:
            OSError: nothing can be written there, or a run of this id is being written.
        """
        ensure_gitignore(self._output)
        self._place.mkdir(parents=True)
        return self

    def __exit__(self, *exception: object) -> None:
        """Leave nothing beside the place of a folder that was not completed."""
        shutil.rmtree(self._place, ignore_errors=True)

    def begin(self, head: Callable[[], Run]) -> Journal:
        """Begin the journal, unless it is begun: of a resumed run with what is kept of it.

        Args:
            head: gives what is true of the run so far.

        Raises:
            OSError: it can't be written.
        """
        if self._journal is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            ensure_gitignore(self._output)
            path, kept = self.folder / JOURNAL, self.resumed
            if kept is not None:
                # what is not kept must not come back after a second crash
                rewrite_journal(path, head(), [*kept.all_entries(), *kept.broken_entries()])
                for part in kept.parts:
                    part.unlink(missing_ok=True)
            self._journal = Journal(path, head)
        return self._journal

    def end_journal(self) -> None:
        """Close the journal: no result follows. It stays until the report is there."""
        if self._journal is not None:
            self._journal.close()

    def write_results(self, results: Sequence[CaseResult]) -> None:
        """Write `records.jsonl`, `errors.jsonl` (only when there are any) and `payloads.jsonl`.

        Args:
            results: one for each attempt, in order; they are read again for the report.

        Raises:
            OSError: a file can't be written; the files of an earlier run in its place are whole.
        """
        self._place.mkdir(parents=True, exist_ok=True)
        ensure_gitignore(self._output)
        self._results = results
        self._write_lines(results)

    def stream_results(self, results: Iterable[CaseResult]) -> None:
        """Write the same files of results that come one by one and are not held; for a run that is written apart.

        Args:
            results: one for each attempt, in order, with record and payload; what they raise is passed on.

        Raises:
            OSError: a file can't be written.
        """
        with (self._place / _ROWS).open("xb") as rows:

            def noted() -> Iterator[CaseResult]:
                for result in results:
                    rows.write(row_line(result) + b"\n")
                    yield result

            self._write_lines(noted())

    def write_page(self, name: str, text: str) -> None:
        """Write a page of the run, whole.

        Raises:
            OSError: it can't be written.
        """
        write_atomic(self._place / name, text)

    def complete(self, document: dict[str, Any], report: Mapping[str, Any] | None = None) -> None:
        """Write `report.json`; then the run has ended: its journal goes, and `latest` names it where it is complete.

        Args:
            document: the run's object, with `cases` last and empty.
            report: what else the report holds; nothing by default.

        Raises:
            OSError: a file can't be written, or something stands in the folder's place.
        """
        path = self._place / REPORT
        if self._place != self.folder:
            rows = self._place / _ROWS
            with rows.open("rb") as lines:
                write_report(path, report or {}, document, (line.rstrip(b"\n") for line in lines))
            rows.unlink()
            self._place.rename(self.folder)
        else:
            write_report(path, report or {}, document, map(row_line, self._results))
        if document["complete"]:
            write_atomic(self.folder.parent / LATEST, self._run_id + "\n")
        # a process that was killed may have left drafts
        drafts = self.folder.glob(DRAFTS) if self.resumed is not None else ()
        for left in (self.folder / JOURNAL, *self.folder.glob(WORKER_JOURNALS), *drafts):
            left.unlink(missing_ok=True)

    def _write_lines(self, results: Iterable[CaseResult]) -> None:
        errors_path, run_id = self._place / ERRORS, self._run_id
        with ExitStack() as files:
            records = files.enter_context(open_jsonl(self._place / RECORDS))
            payloads = files.enter_context(open_jsonl(self._place / PAYLOADS))
            errors: Callable[[dict[str, Any]], None] | None = None
            for result in results:
                if result.record is not None:
                    records({**result.record, "run_id": run_id})
                else:
                    errors = errors or files.enter_context(open_jsonl(errors_path))
                    errors(result.error_line(run_id))
                if result.payload is not None:
                    about = {"test_id": result.test_id, "case_id": result.case_id, "trial": result.trial}
                    payloads({"run_id": run_id, **about, "result": result.payload})
        if errors is None:
            # a resumed run may have left some
            errors_path.unlink(missing_ok=True)


class RunResults:
    """Collects the results of a run while it goes on; each stands in the journal once, from when its attempt ended.

    Args:
        writer: writes what the run leaves, and knows what is kept of it where a session goes on with it.
        head: gives what is true of the run so far, for the journal's first line.

    Attributes:
        writer: the same.
        told: the results of each case by node id, one for each trial; the last time that a case was run counts.
        trouble: what went wrong with the run as a whole, a line each.
    """

    def __init__(self, writer: RunWriter, head: Callable[[], Run]) -> None:
        self.writer = writer
        self.told: dict[str, tuple[CaseResult, ...]] = {}
        self.trouble: list[str] = []
        self._head = head
        # attempts that are in the journal and of which no case was told yet, by node id and trial
        self._untold: dict[str, dict[int, CaseResult]] = {}
        self._journaled: set[tuple[str, int, str]] = set()

    def begin(self) -> None:
        """Begin the journal."""
        self.guard(lambda: self.writer.begin(self._head))

    def go_on(self) -> None:
        """Note that what is kept of the run is in its journal already; what is forgotten of it later is not."""
        if self.writer.resumed is not None:
            self._journaled.update(map(_identity, self.writer.resumed.all_entries()))

    def keep(self, result: CaseResult) -> None:
        """Append an attempt to the journal before its case is told: what was paid for is not lost."""
        self._journaled.add(_identity(result))
        self._untold.setdefault(result.nodeid, {})[result.trial] = result
        self._append(result)

    def take(self, trials: tuple[CaseResult, ...]) -> None:
        """Take the results of a case, one for each trial; those that are not in the journal yet are appended to it."""
        self.told[trials[0].nodeid] = trials
        self._untold.pop(trials[0].nodeid, None)
        for result in trials:
            identity = _identity(result)
            if identity in self._journaled:
                self._journaled.discard(identity)
            else:
                self._append(result)

    def untold(self, nodeid: str) -> Mapping[int, CaseResult]:
        """Give the attempts at a case that are in the journal, by trial, where the case was not told yet."""
        return self._untold.get(nodeid, {})

    def carry_over(self) -> list[str]:
        """Take what an earlier session of the run has of cases that this one was not asked for; give their node ids."""
        if self.writer.resumed is None:
            return []
        kept, broken = self.writer.resumed.entries, self.writer.resumed.broken
        ran = {trials[0].case_id for trials in self.told.values()}
        carried = []
        for case_id in {**kept, **broken}:
            if case_id not in ran:
                found = broken.get(case_id, {}) | kept.get(case_id, {})
                trials = tuple(found[number] for number in sorted(found))
                self.told[trials[0].nodeid] = trials
                carried.append(trials[0].nodeid)
        return carried

    def ordered(self) -> list[CaseResult]:
        """Give all results in the order in which every file shows them."""
        return sort_results(result for trials in self.told.values() for result in trials)

    def guard(self, write: Callable[[], object]) -> None:
        """Write to the run's folder; where that can't be done it is noted once, and the session goes on."""
        try:
            write()
        except OSError as error:
            trouble = f"reports can't be written to {self.writer.folder}: {error.strerror or error}"
            if trouble not in self.trouble:
                self.trouble.append(trouble)

    def _append(self, result: CaseResult) -> None:
        self.guard(lambda: self.writer.begin(self._head).append(result))


def _identity(result: CaseResult) -> tuple[str, int, str]:
    return result.nodeid, result.trial, result.timestamp
