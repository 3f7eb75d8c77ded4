"""`packbench history`: list the runs of a suite over time."""

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

_COLUMNS = ("run", "finished", "mode", "target", "status", "cases", "passed", "failed", "broken", "mean score", "rules")
_KEYS = tuple(name.replace(" ", "_") for name in _COLUMNS)
_HistoryRow = tuple[str | int | float | None, ...]
_DEFAULT_LIMIT = 20
_UNREADABLE = "can't be read"
_UNFINISHED = "did not end"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the suite's name")
    add_output(parser)
    parser.add_argument(
        "--limit", type=int, default=_DEFAULT_LIMIT, metavar="N", help="show the latest N runs (default: 20)"
    )
    parser.add_argument("--format", choices=["md", "json"], default="md", help="Markdown (default) or JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print one row per run, the oldest first, and below them why a run can't be read.

    Raises:
        UsageError: there is no run, or none that can be read.
    """
    parent = arguments.output / arguments.suite
    # run ids sort by time; a name that begins with a dot is an unfinished merge
    folders = sorted(path for path in parent.glob("*/") if not path.name.startswith(".") and _is_run(path))
    folders = folders[-max(arguments.limit, 1) :]
    if not folders:
        raise UsageError(f"no runs under {parent}")
    rows = [_row(folder) for folder in folders]
    errors = [f"{folder.name}: {error}" for folder, (_, error) in zip(folders, rows, strict=True) if error]
    if len(errors) == len(folders):
        raise UsageError(f"no run under {parent} can be read; the latest: {errors[-1]}")
    if arguments.format == "json":
        objects = [{**dict(zip(_KEYS, row, strict=True)), "trouble": error} for row, error in rows]
        sys.stdout.write(json.dumps(objects, ensure_ascii=False) + "\n")
        return FINE
    from pytest_packbench.reports.tables import WIDE, escape_markdown, section

    parts = [
        section(f"Runs of {arguments.suite}", _COLUMNS, [tuple(map(_cell, row)) for row, _ in rows]),
        "\n".join(f"- {escape_markdown(error, WIDE)}" for error in errors),
    ]
    sys.stdout.write("\n\n".join(part for part in parts if part) + "\n")
    return FINE


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (REPORT, JOURNAL, RECORDS))


def _row(folder: Path) -> tuple[_HistoryRow, str]:
    """Return the row of a run, with None for unknown values, and why it can't be read (empty if it can)."""
    from pytest_packbench.runs.report import open_report

    try:
        return _figures(open_report(folder)), ""
    except (StoredRunError, OSError) as error:
        status = _UNREADABLE if (folder / REPORT).exists() else _UNFINISHED
        row = (folder.name, None, None, None, status, *(None for _ in _COLUMNS[5:]))
        return row, f"{folder / REPORT}: {error.strerror}" if isinstance(error, OSError) else str(error)


def _cell(value: str | float | None) -> str:
    from pytest_packbench.analysis.formatting import DASH, format_mean

    if value is None:
        return DASH
    return format_mean(value) if isinstance(value, float) else str(value)


def _figures(report: OpenRun) -> _HistoryRow:
    from pytest_packbench.analysis.statistics import statistics_of
    from pytest_packbench.analysis.tally import Tally
    from pytest_packbench.analysis.trials import trials_rule_of

    tally = Tally(trials_rule=trials_rule_of(report.run))
    for result in report.results:
        tally.add(result)
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
