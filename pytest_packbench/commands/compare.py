"""`packbench compare`: compare two runs, and decide by conditions whether a change made the score worse."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.analysis.changes import BaselineOutcome, Comparison, FailCondition, compare, parse_conditions
from pytest_packbench.analysis.counting import differences
from pytest_packbench.cli import FAILED, FINE, UsageError, warn
from pytest_packbench.commands.paths import (
    add_shared,
    code_of,
    say,
    write_file,
    write_report,
    write_stdout,
)
from pytest_packbench.model.pack import Pack, paired_figures_of
from pytest_packbench.packs.registry import PackError, Packs
from pytest_packbench.reports.blocks import figure_tables, text
from pytest_packbench.reports.diff import comparison_headline, diff_markdown
from pytest_packbench.runs.folder import NO_VERDICT, OUTPUT, ensure_gitignore, find_run_source
from pytest_packbench.runs.reading import StoredRun, open_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pytest_packbench.model.metric import Figure
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--baseline",
        required=True,
        type=Path,
        help="the earlier run: its folder, report.json or records.jsonl, or a baseline.json",
    )
    parser.add_argument("--current", required=True, type=Path, help="the later run, in the same forms")
    parser.add_argument("--out", type=Path, help="the Markdown file to write; - for standard output")
    add_shared(parser, "--fail-on")
    parser.add_argument("--force", action="store_true", help="compare even if suite, mode or rules differ")
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="also write a page of the later run, with the answers of both, to this file",
    )
    add_shared(parser, "--root", "--pack")


def run(arguments: argparse.Namespace) -> int:
    """Compare, write the page, and return 1 if a condition of `--fail-on` is true."""
    paths = find_run_source(arguments.baseline), find_run_source(arguments.current)
    # first, since its pack tells whether records are needed
    current = open_run(paths[1], complete=lambda run: arguments.html is not None or _pack_of(run) is not None)
    baseline = open_run(paths[0], complete=current.complete)
    if arguments.html is not None:
        if paths[1].suffix == ".jsonl":
            raise UsageError(f"--html: {paths[1]}: {NO_VERDICT}")
        baseline, current = baseline.read(), current.read()
    different = "; ".join(differences(baseline.run, current.run))
    if different and not arguments.force:
        raise UsageError(f"the runs can't be compared: {different}; pass --force to compare them")
    figures: list[Figure] = []
    comparison = compare(
        baseline, current, lambda results: figures.extend(_figures(current.run, results if baseline.complete else ()))
    )
    failed = true_conditions(arguments.fail_on, comparison)
    page = diff_markdown(comparison, failed, _notes(baseline, current), figures)
    if str(arguments.out) == "-":
        write_stdout(page)
    else:
        path = write_page(page, arguments.out)
        headlines = text(figure_tables(figure for figure in figures if figure.headline))
        say(f"{comparison.current.suite}: {comparison_headline(comparison)}", *headlines, f"wrote {path}")
    if arguments.html is not None:
        _write_html(arguments, baseline, current, comparison, failed)
    for condition in failed:
        value = comparison.figures()[condition.name]
        warn(f"{condition}: {'no value' if value != value else f'{value:g}'}: FAIL")  # noqa: PLR0124 - only NaN differs from itself
    return FAILED if failed else FINE


def _write_html(
    arguments: argparse.Namespace,
    baseline: StoredRun,
    current: StoredRun,
    comparison: Comparison,
    failed: Sequence[FailCondition],
) -> None:
    """Write a page of the current run, compared with the baseline."""
    from pytest_packbench.commands.open import pages_html, stored_page

    outcome = BaselineOutcome(str(arguments.baseline), comparison, conditions=tuple(failed), stored=baseline)
    page = stored_page(current, arguments.html, arguments, outcome)
    title = f"{comparison.current.suite} since {comparison.baseline.run_id}"
    write_report(arguments.html, pages_html([page], title))


def true_conditions(conditions: str | None, comparison: Comparison) -> list[FailCondition]:
    """Return the conditions of `--fail-on` that are true, which make the command fail.

    Raises:
        ConditionError: one is malformed or names no figure.
    """
    figures = comparison.figures()
    parsed = parse_conditions(conditions, figures) if conditions is not None else ()
    return [condition for condition in parsed if condition.is_met(figures)]


def _pack_of(run: Run) -> Pack | None:
    """Return the pack of a run, if it is installed and has figures of what changed."""
    with suppress(KeyError, PackError):
        pack = Packs()[run.pack]
        return None if type(pack).paired_figures is Pack.paired_figures else pack
    return None


def _figures(run: Run, results: Iterable[tuple[Result, bool]]) -> tuple[Figure, ...]:
    """Return the figures of what changed; none without a pack that has such.

    Raises:
        UsageError: the pack raises an exception.
    """
    pack = _pack_of(run)
    if pack is None:
        return ()
    with code_of(pack, "paired_figures"):
        return paired_figures_of(pack, results)


def _notes(baseline: StoredRun, current: StoredRun) -> list[str]:
    notes = [
        f"The {name} run was read from records only, which don't include cases that ended in an error or did not run: "
        f'such cases are listed under "{title}" and are not new failures.'
        for name, run, title in (("baseline", baseline, "Added"), ("current", current, "Removed"))
        if not run.lists_all_cases
    ]
    if baseline.run.run_id == current.run.run_id:
        notes.append("Baseline and current are the same run.")
    return notes


def write_page(page: str, out: Path | None) -> Path:
    """Write the page to a file, by default to a new one beside the runs, named after the time.

    Returns:
        Its path.

    Raises:
        UsageError: it can't be written.
        OSError: its folder can't be created.
    """
    if out is None:
        ensure_gitignore(OUTPUT)
        out = _create_unique(OUTPUT / f"benchmark_diff_{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.md")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, page)
    return out


def _create_unique(path: Path) -> Path:
    """Create an empty file under this name, or with a number: two pages may be written in the same second."""
    for number in count(1):
        candidate = path if number == 1 else path.with_stem(f"{path.stem}_{number}")
        try:
            candidate.touch(exist_ok=False)
        except FileExistsError:
            continue
        break
    return candidate
