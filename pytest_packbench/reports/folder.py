"""What a run leaves in its folder (design 5), but for `report.json`, which pytest's own report goes into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.reports.files import write_atomic, write_jsonl
from pytest_packbench.reports.markdown import summary_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.run import Run
    from pytest_packbench.reports.gates import GateResult
    from pytest_packbench.reports.statistics import Statistics


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Sort entries by case id, as every file shows them."""
    return sorted(entries, key=lambda entry: (entry.case_id, entry.test_id, entry.file, entry.trial))


def write_run(
    folder: Path, run: Run, entries: Sequence[Entry], statistics: Statistics, gate_results: Sequence[GateResult]
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
    write_jsonl(folder / "payloads.jsonl", _payloads(entries, run.run_id))
    write_atomic(folder / "summary.md", summary_markdown(run, entries, statistics, gate_results))


def _payloads(entries: Iterable[Entry], run_id: str) -> Iterable[dict[str, Any]]:
    for entry in entries:
        if entry.payload is not None:
            yield {
                "run_id": run_id,
                "test_id": entry.test_id,
                "case_id": entry.case_id,
                "trial": entry.trial,
                "result": entry.payload,
            }
