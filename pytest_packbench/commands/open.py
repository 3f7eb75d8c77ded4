"""`packbench open`: open the page of a run in a browser; it is made from the stored files where it is missing.

What the report of a run decided is shown as it was stored.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.analysis.changes import BaselineOutcome
from pytest_packbench.analysis.conclusion import Conclusion, conclude
from pytest_packbench.cases.recordings import shown_texts
from pytest_packbench.cli import FINE, UsageError, warn
from pytest_packbench.commands.paths import (
    add_shared,
    code_of,
    project_of,
    say,
    suite_and_pack,
    write_file,
)
from pytest_packbench.model.errors import single_spaced
from pytest_packbench.model.pack import Pack, can_accept, panels_of
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.reports.page import RunPage, page_html, page_of_run
from pytest_packbench.reports.page.case_data import NO_SOURCES, root_link
from pytest_packbench.reports.story import Place
from pytest_packbench.runs.folder import LATEST, PAGE, REPORT, find_run_folder, is_run_id, new_run_id, read_latest
from pytest_packbench.runs.reading import StoredRun, earlier_runs, open_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from pytest_packbench.model.header import StatedComparison
    from pytest_packbench.model.metric import Panel
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, nargs="?", help="the run: its folder, or SUITE/latest (default: the newest)")
    parser.add_argument("--print", action="store_true", help="print the path of the page, and open no browser")
    add_shared(parser, "--output", "--root", "--pack")


def run(arguments: argparse.Namespace) -> int:
    """Open the page of a run, one for each suite of the newest, and print its path; make it where it is missing.

    Raises:
        UsageError: there is no run, or the page can't be written.
        StoredRunError: the run did not end, or can't be read.
        OSError: a file can't be read.
    """
    if arguments.run is not None:
        pages = [_page(find_run_folder(arguments.run, arguments.output), arguments)]
    else:
        pages = [_page(folder, arguments) for folder in _newest(arguments.output)]
    say(*map(str, pages))
    if arguments.print:
        return FINE
    sys.stdout.flush()
    if not all(map(_has_opened, pages)):
        warn("no browser could be started; open the file yourself")
    return FINE


def _newest(output: Path) -> Sequence[Path]:
    """Return the folders of the newest run that `latest` names, one for each suite.

    A later folder may be that of an incomplete run, or have come from elsewhere.
    """
    now, suites = new_run_id(), ("", "*/")
    runs = [folder for suite in suites for folder in output.glob(f"{suite}*/*/") if is_run_id(folder.name)]
    latest = [read_latest(file.parent) for suite in suites for file in output.glob(f"{suite}*/{LATEST}")]
    # run ids sort by time
    newest = max((run_id for run_id in latest if run_id <= now), default="")
    found = sorted(folder for folder in runs if folder.name == newest and (folder / REPORT).is_file())
    later = sorted(folder for folder in runs if folder.name > newest)
    if not found:
        advice = f"pass its folder to open {later[-1]}" if later else "run a suite, or pass the folder of a run"
        raise UsageError(f"no complete run under {output}; {advice}")
    if later:
        warn(f"not the latest complete run, so opened by its path only: {later[-1]}")
    return found


def _page(folder: Path, arguments: argparse.Namespace) -> Path:
    """Return the page of a run; it is made from the run's files where it is missing."""
    page = folder / PAGE
    if not page.is_file():
        shown = stored_page(open_run(folder, complete=True), page, arguments)
        write_file(page, pages_html([shown], shown.conclusion.run.suite))
    return page


def _has_opened(page: Path) -> bool:
    """Open a page in a browser with windows; return whether one was started."""
    import webbrowser

    # without a display, a browser for terminals would take this one over
    if sys.platform not in {"win32", "darwin"} and not any(os.environ.get(name) for name in _DISPLAYS):
        return False
    try:
        return webbrowser.open(page.resolve().as_uri())
    except (webbrowser.Error, OSError):
        return False


def stored_page(
    report: StoredRun,
    page: Path,
    arguments: argparse.Namespace,
    outcome: BaselineOutcome | None = None,
) -> RunPage:
    """Return what a page shows of a stored run: what its report decided, and its results, which are counted again.

    Args:
        report: the run, opened with its records and payloads.
        page: the file of the page, from which it links to the files of cases.
        arguments: of the command, with the options `--root` and `--pack`.
        outcome: the comparison to show; None for what the report states of that of the run.

    Raises:
        StoredRunError: a file of the run can't be read.
        OSError: a file can't be read.
        UsageError: pytest can't read the project's configuration.
    """
    results = tuple(report.results)
    run, folder, notes = report.run, Path(report.source).parent, list[str]()
    project = _project(run, arguments, notes)
    counted = conclude(run, results, levels=None if project is None else project[1].depths)
    stated = report.stated
    if outcome is None and stated.comparison is not None:
        outcome = _compared(stated.comparison)
    conclusion = replace(
        counted,
        gates=stated.gates,
        figures=stated.figures,
        policy=stated.policy_changes,
        baseline=outcome,
        controls=report.controls(),
        stored_status=stated.status,
    )
    then, now = stated.overall, counted.statistics.overall
    if (then.n, then.passed) != (now.n, now.passed):
        notes.append(
            f"The report counts {then.passed} of {then.n} judged cases as passed, its rows "
            f"{now.passed} of {now.n}. This page shows the rows."
        )
    return project_page(
        conclusion, lambda: results, project, page, arguments, folder=folder, options=stated.rerun, notes=notes
    )


def project_page(
    conclusion: Conclusion,
    results: Callable[[], Iterable[Result]],
    project: tuple[Suite, Pack] | None,
    page: Path,
    arguments: argparse.Namespace,
    *,
    folder: Path,
    options: str,
    notes: Sequence[str] = (),
) -> RunPage:
    """Return what a page shows of a run outside of its session.

    Args:
        conclusion: what the run came to.
        results: as in `page_of_run`.
        project: its suite and pack; None if they can't be read.
        page: the file of the page.
        arguments: as in `stored_page`.
        folder: the folder of the run.
        options: as in `Place`.
        notes: what a reader has to know about the page, a sentence each.
    """
    rootdir, notes = project_of(arguments).rootdir, [*notes]
    panels: tuple[Panel, ...] = ()
    place = Place(root_link(rootdir.resolve(), page.parent.resolve()), options)
    sources = NO_SOURCES._replace(redact=Redactor(os.environ).json, place=place)
    if project is not None:
        suite, pack = project
        texts = shown_texts(suite, pack, rootdir, conclusion.run)
        sources = sources._replace(can_accept=can_accept(pack, suite.config), **texts._asdict())
        try:
            with code_of(pack, "panels"):
                panels = panels_of(pack, results(), conclusion.figures)
        except UsageError as error:
            notes.append(f"{error}.".replace("the", "The", 1))
    earlier = earlier_runs(folder.parent, conclusion.run, conclusion.baseline and conclusion.baseline.stored)
    return page_of_run(conclusion, results, sources, earlier=earlier, notes=notes, panels=panels)


def pages_html(pages: Sequence[RunPage], title: str) -> str:
    """Return runs as one page without secrets of the environment."""
    return page_html(pages, title=title, redact=Redactor(os.environ).json)


def _project(run: Run, arguments: argparse.Namespace, notes: list[str]) -> tuple[Suite, Pack] | None:
    """Return the suite of a run and its pack as they are now; None, with a note, if they can't be read."""
    try:
        suite, pack = suite_and_pack(run.requested_suite, arguments, by_name=True)
    except (UsageError, ValueError, OSError) as error:
        reason = single_spaced(str(error))
        notes.append(f"The suite of this run can't be read, so the texts of its cases are missing: {reason}.")
        return None
    if (suite.sha256, pack.name, pack.version) != (run.suite_sha256, run.pack, run.pack_version):
        notes.append(
            "The scoring rules of the suite or its pack have changed since this run. "
            "Verdict, gates and scores are those of the run."
        )
    return suite, pack


def _compared(stored: StatedComparison) -> BaselineOutcome:
    """Return what a report states of a comparison, whose cases only a comparison of both runs shows."""
    if stored.problem or stored.baseline is None:
        return BaselineOutcome(stored.requested, problem=stored.problem, optional=not stored.failed)
    changed = ", ".join(f"{name} {value:g}" for name, value in stored.figures.items() if value)
    then = f"when the run ended, it was compared with run {stored.baseline} ({changed or 'nothing changed'})"
    return BaselineOutcome(
        stored.requested,
        problem=f"not compared again: {then}; packbench compare --html shows the cases",
        optional=True,
        warning=stored.warning,
        stored_failures=tuple(f"condition {each.condition} was met" for each in stored.conditions if each.met),
    )
