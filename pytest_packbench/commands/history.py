"""`packbench history`: the runs of a suite over time."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.paths import add_output
from pytest_packbench.runs.folder import JOURNAL, RECORDS, REPORT, StoredRunError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from pytest_packbench.runs.report import OpenRun

_HEAD = ("run", "finished", "mode", "target", "status", "cases", "passed", "failed", "broken", "mean score", "rules")
_KEYS = tuple(name.replace(" ", "_") for name in _HEAD)
_Row = tuple[str | int | float | None, ...]
_MOST = 20
_UNREADABLE = "can't be read"
_UNFINISHED = "did not end"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the suite's name")
    add_output(parser)
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
    return any((folder / name).is_file() for name in (REPORT, JOURNAL, RECORDS))


def _row(folder: Path) -> tuple[_Row, str]:
    """Give the row of a run, None for what is not known, and why it can't be read; empty where it can."""
    from pytest_packbench.runs.report import open_report

    try:
        return _figures(open_report(folder)), ""
    except (StoredRunError, OSError) as error:
        word = _UNREADABLE if (folder / REPORT).exists() else _UNFINISHED
        row = (folder.name, None, None, None, word, *(None for _ in _HEAD[5:]))
        return row, f"{folder / REPORT}: {error.strerror}" if isinstance(error, OSError) else str(error)


def _shown(value: str | float | None) -> str:
    from pytest_packbench.analysis.figures import DASH, average

    if value is None:
        return DASH
    return average(value) if isinstance(value, float) else str(value)


def _figures(report: OpenRun) -> _Row:
    from pytest_packbench.analysis.statistics import statistics_of
    from pytest_packbench.analysis.tally import Tally
    from pytest_packbench.analysis.trials import rule_of

    tally = Tally(trials_rule=rule_of(report.run))
    for entry in report.results:
        tally.add(entry)
    figures = statistics_of(tally)
    verdicts = figures.totals.verdicts
    return (
        report.run.run_id,
        report.run.finished_at,
        report.run.mode,
        report.run.target,
        report.status,
        figures.totals.selected,
        verdicts["passed"],
        verdicts["failed"],
        verdicts["error"] + verdicts["vacuous"] + verdicts["not_run"],
        figures.overall.mean_score,
        report.run.suite_sha256[:12],
    )
