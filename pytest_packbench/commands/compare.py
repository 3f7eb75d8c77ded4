"""`packbench compare`: two runs side by side, and whether the change made it worse."""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import write_asked
from pytest_packbench.runs.folder import OUTPUT, find_run_source

if TYPE_CHECKING:
    import argparse

    from pytest_packbench.analysis.comparison import Condition, RunComparison
    from pytest_packbench.runs.report import OpenRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--baseline", required=True, type=Path, help="run folder, report.json or records.jsonl")
    parser.add_argument("--current", required=True, type=Path, help="the same, of the run that is judged")
    parser.add_argument("--out", type=Path, help="the Markdown file; - for standard output")
    add_fail_on(parser)
    parser.add_argument(
        "--force", action="store_true", help="compare runs of another suite, mode or rules all the same"
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare, write the page, and say in the exit code whether a condition failed it."""
    from pytest_packbench.analysis.comparison import compare
    from pytest_packbench.reports.diff import answer, diff_markdown
    from pytest_packbench.reports.terminal import printable
    from pytest_packbench.runs.stored import open_run

    baseline, current = open_run(find_run_source(arguments.baseline)), open_run(find_run_source(arguments.current))
    comparison = compare(baseline, current)
    failed = met(arguments.fail_on, comparison)
    if comparison.differences and not arguments.force:
        raise UsageError(f"the runs can't be compared: {'; '.join(comparison.differences)}; --force compares them")
    page = diff_markdown(comparison, failed, _notes(baseline, current))
    if str(arguments.out) == "-":
        sys.stdout.write(page)
    else:
        place = write_page(page, arguments.out)
        sys.stdout.write(f"{printable(comparison.current.suite)}: {answer(comparison)}\nwrote {place}\n")
    for condition in failed:
        value = comparison.figures()[condition.name]
        sys.stderr.write(f"packbench: {condition}: {'nothing to judge' if value != value else f'{value:g}'}: FAIL\n")  # noqa: PLR0124 - only NaN differs from itself
    return FAILED if failed else FINE


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    """Declare `--fail-on`, conditions on what a comparison came to."""
    parser.add_argument("--fail-on", metavar="CONDITIONS", help='such as "regressed>0, mean<-0.02" (points of score)')


def met(conditions: str | None, comparison: RunComparison) -> list[Condition]:
    """Give the conditions of `--fail-on` that hold, which fail the command.

    Raises:
        ConditionError: one is malformed or names no figure.
    """
    from pytest_packbench.analysis.comparison import parse_conditions

    figures = comparison.figures()
    given = parse_conditions(conditions, figures) if conditions is not None else ()
    return [condition for condition in given if condition.holds(figures)]


def _notes(baseline: OpenRun, current: OpenRun) -> list[str]:
    notes = [
        f"The {name} run was read from records alone, which hold no case that broke or did not run: such a case stands "
        f'under "{title}" here, and is no new failure.'
        for name, one, title in (("baseline", baseline, "Added"), ("current", current, "Removed"))
        if not one.lists_all_cases
    ]
    if baseline.run.run_id == current.run.run_id:
        notes.append("Baseline and current are the same run.")
    return notes


def write_page(page: str, out: Path | None) -> Path:
    """Write the page where it was asked for, else beside the runs under a name of its own with the time.

    Raises:
        UsageError: it can't be written there.
        OSError: its folder can't be made.
    """
    from pytest_packbench.runs.folder import ensure_gitignore

    if out is None:
        ensure_gitignore(OUTPUT)
        out = _free(OUTPUT / f"benchmark_diff_{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.md")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_asked(out, page)
    return out


def _free(path: Path) -> Path:
    """Claim a name that no other page has, also where two are written in the same second."""
    for number in count(1):
        place = path if number == 1 else path.with_stem(f"{path.stem}_{number}")
        try:
            place.touch(exist_ok=False)
        except FileExistsError:
            continue
        break
    return place
