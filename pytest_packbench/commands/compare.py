"""`packbench compare`: compare two runs, and decide by conditions whether a change made the score worse."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import add_packs, add_root, write_file
from pytest_packbench.model.errors import describe_error
from pytest_packbench.runs.folder import NO_VERDICT, OUTPUT, find_run_source

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pytest_packbench.analysis.changes import Comparison, FailCondition
    from pytest_packbench.model.metric import Figure
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run
    from pytest_packbench.runs.reading import StoredRun


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
    add_fail_on(parser)
    parser.add_argument("--force", action="store_true", help="compare even if suite, mode or rules differ")
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="also write a page of the later run, with the answers of both, to this file",
    )
    add_root(parser)
    add_packs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, write the page, and return 1 if a condition of `--fail-on` is true."""
    from pytest_packbench.analysis.changes import compare
    from pytest_packbench.analysis.counting import differences
    from pytest_packbench.reports.blocks import figure_tables, text
    from pytest_packbench.reports.diff import comparison_headline, diff_markdown
    from pytest_packbench.reports.terminal import printable
    from pytest_packbench.runs.reading import open_run

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
        sys.stdout.write(page)
    else:
        path = write_page(page, arguments.out)
        headlines = text(figure_tables(figure for figure in figures if figure.headline))
        lines = [f"{printable(comparison.current.suite)}: {comparison_headline(comparison)}", *headlines]
        sys.stdout.write("\n".join([*lines, f"wrote {path}", ""]))
    if arguments.html is not None:
        _write_html(arguments, baseline, current, comparison, failed)
    for condition in failed:
        value = comparison.figures()[condition.name]
        sys.stderr.write(f"packbench: {condition}: {'no value' if value != value else f'{value:g}'}: FAIL\n")  # noqa: PLR0124 - only NaN differs from itself
    return FAILED if failed else FINE


def _write_html(
    arguments: argparse.Namespace,
    baseline: StoredRun,
    current: StoredRun,
    comparison: Comparison,
    failed: Sequence[FailCondition],
) -> None:
    """Write a page of the current run, compared with the baseline."""
    from pytest_packbench.analysis.changes import BaselineOutcome
    from pytest_packbench.commands.open import stored_page, write_pages

    outcome = BaselineOutcome(str(arguments.baseline), comparison, conditions=tuple(failed), stored=baseline)
    page = stored_page(current, arguments.html, arguments, outcome)
    title = f"{comparison.current.suite} since {comparison.baseline.run_id}"
    write_pages(arguments.html, [page], title)


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    """Declare `--fail-on`, conditions on the figures of a comparison."""
    parser.add_argument(
        "--fail-on",
        metavar="CONDITIONS",
        help='fail if one of these conditions is met, such as "regressed>0, mean<-0.02" (scores go from 0 to 1)',
    )


def true_conditions(conditions: str | None, comparison: Comparison) -> list[FailCondition]:
    """Return the conditions of `--fail-on` that are true, which make the command fail.

    Raises:
        ConditionError: one is malformed or names no figure.
    """
    from pytest_packbench.analysis.changes import parse_conditions

    figures = comparison.figures()
    parsed = parse_conditions(conditions, figures) if conditions is not None else ()
    return [condition for condition in parsed if condition.is_met(figures)]


def _pack_of(run: Run) -> Pack | None:
    """Return the pack of a run, if it is installed and has figures of what changed."""
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.packs.registry import PackError, Packs

    with suppress(KeyError, PackError):
        pack = Packs()[run.pack]
        return None if type(pack).paired_figures is Pack.paired_figures else pack
    return None


def _figures(run: Run, results: Iterable[tuple[Result, bool]]) -> tuple[Figure, ...]:
    """Return the figures of what changed; none without a pack that has such.

    Raises:
        UsageError: the pack raises an exception.
    """
    from pytest_packbench.model.pack import paired_figures_of

    pack = _pack_of(run)
    if pack is None:
        return ()
    try:
        return paired_figures_of(pack, results)
    except Exception as error:
        raise UsageError(f"the pack {pack.name} raised in paired_figures: {describe_error(error)}") from error


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
    from pytest_packbench.runs.folder import ensure_gitignore

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
