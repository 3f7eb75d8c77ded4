"""`packbench history`: the runs of a suite over time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.runs.folder import OUTPUT

if TYPE_CHECKING:
    import argparse

    from pytest_packbench.runs.stored import StoredRun

_HEAD = ("run", "finished", "mode", "target", "status", "cases", "passed", "failed", "broken", "mean score", "rules")
_KEYS = tuple(name.replace(" ", "_") for name in _HEAD)
_Row = tuple[str | int | float | None, ...]
_MOST = 20
_UNREADABLE = "can't be read"
_UNFINISHED = "did not end"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the suite's name")
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, help="the folder of reports (default reports/benchmarks)"
    )
    parser.add_argument("--limit", type=int, default=_MOST, help="the latest so many runs (default 20)")
    parser.add_argument("--format", choices=["md", "json"], default="md")


def run(arguments: argparse.Namespace) -> int:
    """Print one row a run, the oldest first; of a run that can't be read the row says so and the reason stands below.

    Raises:
        UsageError: there is no run, or none that can be read.
    """
    place = arguments.output / arguments.suite
    # a run's id sorts by its time; a name with a dot is a merge under way
    folders = sorted(path for path in place.glob("*/") if not path.name.startswith(".") and _is_run(path))
    folders = folders[-max(arguments.limit, 1) :]
    if not folders:
        raise UsageError(f"no runs under {place}")
    read = [_row(folder) for folder in folders]
    troubles = [f"{folder.name}: {trouble}" for folder, (_, trouble) in zip(folders, read, strict=True) if trouble]
    if len(troubles) == len(folders):
        raise UsageError(f"no run under {place} can be read; the latest: {troubles[-1]}")
    if arguments.format == "json":
        rows = [{**dict(zip(_KEYS, row, strict=True)), "trouble": trouble} for row, trouble in read]
        sys.stdout.write(json.dumps(rows, ensure_ascii=False) + "\n")
        return FINE
    from pytest_packbench.reports.tables import WIDE, cell, section

    parts = [
        section(f"Runs of {arguments.suite}", _HEAD, [tuple(map(_shown, row)) for row, _ in read]),
        "\n".join(f"- {cell(trouble, WIDE)}" for trouble in troubles),
    ]
    sys.stdout.write("\n\n".join(part for part in parts if part) + "\n")
    return FINE


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("report.json", "journal.jsonl", "records.jsonl"))


def _row(folder: Path) -> tuple[_Row, str]:
    """Give the row of a run, None for what is not known, and why it can't be read; empty where it can."""
    from pytest_packbench.runs.folder import StoredRunError
    from pytest_packbench.runs.stored import load_run

    try:
        return _figures(load_run(folder)), ""
    except (StoredRunError, OSError) as error:
        word = _UNREADABLE if (folder / "report.json").exists() else _UNFINISHED
        row = (folder.name, None, None, None, word, *(None for _ in _HEAD[5:]))
        return row, f"{folder / 'report.json'}: {error.strerror}" if isinstance(error, OSError) else str(error)


def _shown(value: str | float | None) -> str:
    from pytest_packbench.analysis.figures import DASH, average

    if value is None:
        return DASH
    return average(value) if isinstance(value, float) else str(value)


def _figures(stored: StoredRun) -> _Row:
    from pytest_packbench.analysis.statistics import statistics
    from pytest_packbench.analysis.trials import rule_of

    figures = statistics(stored.entries, trials_rule=rule_of(stored.run))
    verdicts = figures.totals.verdicts
    return (
        stored.run.run_id,
        stored.run.finished_at,
        stored.run.mode,
        stored.run.target,
        stored.status,
        figures.totals.selected,
        verdicts["passed"],
        verdicts["failed"],
        verdicts["error"] + verdicts["vacuous"] + verdicts["not_run"],
        figures.overall.mean_score,
        stored.run.suite_sha256[:12],
    )
