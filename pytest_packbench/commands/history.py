"""`packbench history`: the runs of a suite over time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.places import OUTPUT

if TYPE_CHECKING:
    import argparse

    from pytest_packbench.records.stored import StoredRun

_HEAD = ("run", "finished", "mode", "target", "status", "cases", "passed", "failed", "broken", "mean score", "rules")
_MOST = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the suite's name")
    parser.add_argument(
        "--output", type=Path, default=OUTPUT, help="the folder of reports (default reports/benchmarks)"
    )
    parser.add_argument("--limit", type=int, default=_MOST, help="the latest so many runs (default 20)")
    parser.add_argument("--format", choices=["md", "json"], default="md")


def run(arguments: argparse.Namespace) -> int:
    """Print one row a run, the oldest first; a folder that can't be read is said and left out."""
    from pytest_packbench.records.stored import StoredRunError, load_run

    place = arguments.output / arguments.suite
    # a run's id sorts by its time
    folders = sorted(path for path in place.glob("*/") if (path / "report.json").is_file())[-max(arguments.limit, 1) :]
    if not folders:
        raise UsageError(f"no runs under {place}")
    rows = []
    for folder in folders:
        try:
            rows.append(_row(load_run(folder), folder))
        except StoredRunError as error:
            sys.stderr.write(f"packbench: left out: {error}\n")
    if arguments.format == "json":
        sys.stdout.write(json.dumps([dict(zip(_HEAD, row, strict=True)) for row in rows], ensure_ascii=False) + "\n")
    else:
        from pytest_packbench.reports.markdown import section

        sys.stdout.write(section(f"Runs of {arguments.suite}", _HEAD, rows) + "\n")
    return FINE


def _row(stored: StoredRun, folder: Path) -> tuple[str, ...]:
    from pytest_packbench.reports.figures import average
    from pytest_packbench.reports.statistics import statistics

    document = json.loads((folder / "report.json").read_bytes())["packbench"]
    figures = statistics(stored.entries)
    verdicts = figures.totals.verdicts
    return (
        stored.run.run_id,
        stored.run.finished_at,
        stored.run.mode,
        stored.run.target,
        str(document.get("status", "")),
        str(len(stored.entries)),
        str(verdicts["passed"]),
        str(verdicts["failed"]),
        str(verdicts["error"] + verdicts["vacuous"] + verdicts["not_run"]),
        average(figures.overall.mean_score),
        stored.run.suite_sha256[:12],
    )
