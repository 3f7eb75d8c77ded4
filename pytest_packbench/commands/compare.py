"""`packbench compare`: two runs side by side, and whether the change made it worse."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.places import OUTPUT, run_place

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--baseline", required=True, type=Path, help="run folder, report.json or records.jsonl")
    parser.add_argument("--current", required=True, type=Path, help="the same, of the run that is judged")
    parser.add_argument("--out", type=Path, help="the Markdown file; - for standard output")
    parser.add_argument("--fail-on", metavar="CONDITIONS", help='such as "regressed>0, mean<-0.02" (points of score)')
    parser.add_argument(
        "--force", action="store_true", help="compare runs of another suite, mode or rules all the same"
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare, write the page, and say in the exit code whether a condition failed it."""
    from pytest_packbench.records.stored import load_run
    from pytest_packbench.reports.comparison import compare
    from pytest_packbench.reports.condition import parse_conditions
    from pytest_packbench.reports.diff import answer, diff_markdown

    comparison = compare(load_run(run_place(arguments.baseline)), load_run(run_place(arguments.current)))
    figures = comparison.counts()
    conditions = parse_conditions(arguments.fail_on, figures) if arguments.fail_on is not None else ()
    if comparison.differences and not arguments.force:
        raise UsageError(f"the runs can't be compared: {'; '.join(comparison.differences)}; --force compares them")
    failed = [condition for condition in conditions if condition.holds(figures)]
    page = diff_markdown(comparison, failed)
    if str(arguments.out) == "-":
        sys.stdout.write(page)
    else:
        place = write_page(page, arguments.out)
        sys.stdout.write(f"{comparison.current.run.suite}: {answer(comparison)}\nwrote {place}\n")
    for condition in failed:
        value = figures[condition.name]
        sys.stderr.write(f"packbench: {condition}: {'nothing to judge' if value != value else f'{value:g}'}: FAIL\n")  # noqa: PLR0124 - only NaN differs from itself
    return FAILED if failed else FINE


def write_page(page: str, out: Path | None) -> Path:
    """Write the page where it was asked for, else beside the runs under a name with the time.

    Raises:
        OSError: it can't be written.
    """
    from pytest_packbench.reports.files import ensure_gitignore, write_atomic

    if out is None:
        ensure_gitignore(OUTPUT)
        out = OUTPUT / f"benchmark_diff_{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, page)
    return out
