"""What a run leaves in its folder (design 5), but for `report.json`, which pytest's own report goes into."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from pytest_packbench.atomic import write_atomic
from pytest_packbench.reports.document import row_line, run_document, write_report
from pytest_packbench.reports.markdown import summary_markdown
from pytest_packbench.runs.files import open_jsonl, write_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_packbench.analysis.statistics import Statistics
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run


def in_order(entries: Iterable[CaseResult]) -> list[CaseResult]:
    """Sort entries by case id, as every file shows them."""
    return sorted(entries, key=lambda entry: (entry.case_id, entry.test_id, entry.file, entry.trial))


def write_run(
    folder: Path, run: Run, entries: Sequence[CaseResult], statistics: Statistics, gate_results: Sequence[GateResult]
) -> None:
    """Write `records.jsonl`, `errors.jsonl` (only when there are any), `payloads.jsonl` and `summary.md`.

    Args:
        folder: the run's folder; made where it is missing.
        run: what is true of all entries.
        entries: one for each attempt, in order.
        statistics: their numbers.
        gate_results: how the gates decided.

    Raises:
        OSError: a file can't be written; the files of an earlier run in its place are whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "records.jsonl", (one.record for one in entries if one.record is not None))
    errors = [one.error_line(run.run_id) for one in entries if one.record is None]
    if errors:
        write_jsonl(folder / "errors.jsonl", errors)
    else:
        # a resumed run may have left some
        (folder / "errors.jsonl").unlink(missing_ok=True)
    write_jsonl(folder / "payloads.jsonl", _payloads(entries, run.run_id))
    write_atomic(folder / "summary.md", summary_markdown(run, entries, statistics, gate_results))


def _payloads(entries: Iterable[CaseResult], run_id: str) -> Iterable[dict[str, Any]]:
    for entry in entries:
        if entry.payload is not None:
            yield {
                "run_id": run_id,
                "test_id": entry.test_id,
                "case_id": entry.case_id,
                "trial": entry.trial,
                "result": entry.payload,
            }


class RunFolder:
    """Writes a run's folder entry by entry, so that a large run is never held; `with` gives it.

    All is written beside the folder's place first: the folder is there whole, with its `report.json`, or not at all.

    Args:
        folder: the run's folder, named after its id; not there yet.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._draft = folder.with_name(f".{folder.name}.tmp")
        self._open = ExitStack()
        self._errors = 0

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            OSError: nothing can be written there.
        """
        self._draft.mkdir(parents=True)
        opened = {name: self._open.enter_context(open_jsonl(self._draft / f"{name}.jsonl")) for name in _PARTS}
        self._records, self._payloads, self._error_lines = (opened[name] for name in _PARTS)
        self._rows = self._open.enter_context((self._draft / _ROWS).open("xb"))
        return self

    def add(self, entry: CaseResult, run_id: str) -> None:
        """Write what the files say of an entry.

        Args:
            entry: the next in order, with its record and payload.
            run_id: the run that they are now of.

        Raises:
            OSError: it can't be written.
        """
        if entry.record is None:
            self._errors += 1
            self._error_lines(entry.error_line(run_id))
        else:
            self._records({**entry.record, "run_id": run_id})
        for line in _payloads([entry], run_id):
            self._payloads(line)
        self._rows.write(row_line(entry) + b"\n")

    def finish(
        self, run: Run, entries: Sequence[CaseResult], statistics: Statistics, gate_results: Sequence[GateResult]
    ) -> None:
        """Write the page and the report, and put the folder in its place.

        Args:
            run: what is true of all entries.
            entries: those that were added, for the page.
            statistics: their numbers.
            gate_results: how the gates decided.

        Raises:
            OSError: it can't be written, or something stands in its place.
        """
        self._open.close()
        rows = self._draft / _ROWS
        write_atomic(self._draft / "summary.md", summary_markdown(run, entries, statistics, gate_results))
        document = run_document(run, (), statistics, gate_results)
        with rows.open("rb") as lines:
            write_report(self._draft / "report.json", {}, document, (line.rstrip(b"\n") for line in lines))
        rows.unlink()
        if not self._errors:
            (self._draft / "errors.jsonl").unlink()
        self._draft.rename(self._folder)

    def __exit__(self, *exception: object) -> None:
        """Close, and leave nothing beside a folder that was not finished."""
        try:
            # on a full disk what is left to write can't be
            self._open.close()
        finally:
            shutil.rmtree(self._draft, ignore_errors=True)


_ROWS = "rows.jsonl"
_PARTS = ("records", "payloads", "errors")
