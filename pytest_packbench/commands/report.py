"""Showing stored runs: `packbench report`, `packbench compare`, `packbench open` and `packbench history`.

`report` summarizes any number of records: first the Rust report, byte for byte that of the original harness (spec,
`eval_record.rs`), which escapes nothing; then packbench's own figures, in which text from records is escaped. `compare`
compares two runs, and decides by conditions whether a change made the score worse. `open` opens the page of a run in a
browser, as its report decided; the page is made from the stored files where it is missing. `history` shows the runs of
a suite over time, its flaky cases, and what one case came to in each run.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import count, pairwise, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.changes import (
    BaselineOutcome,
    Change,
    Comparison,
    FailCondition,
    compare,
    parse_conditions,
)
from pytest_packbench.analysis.conclusion import (
    Conclusion,
    EarlierRun,
    Kind,
    conclude,
    kind_of,
    since,
    verdict_of,
    with_cases,
)
from pytest_packbench.analysis.counting import differences, name_some
from pytest_packbench.analysis.records import RUST_CONDITIONS, Document, Records, overview
from pytest_packbench.analysis.statistics import (
    CONFIDENCE,
    format_interval,
    format_mean,
    format_percent,
    format_score_and_threshold,
)
from pytest_packbench.cases.texts import shown_texts
from pytest_packbench.commands import (
    FAILED,
    FINE,
    UsageError,
    add_shared,
    code_of,
    json_text,
    project_of,
    say,
    suite_and_pack,
    warn,
    write_file,
    write_report,
    write_stdout,
)
from pytest_packbench.files import U64_MAX
from pytest_packbench.model.errors import SkippedLines, StoredRunError, pluralize, single_spaced, suggestion
from pytest_packbench.model.pack import Pack, has_paired_figures, paired_figures_of, panels_of
from pytest_packbench.model.record import EVAL_DECISIONS
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.result import FIXTURE, Result, values_of
from pytest_packbench.model.run import PAGE
from pytest_packbench.model.suite import AUTHORED, Figure, Panel
from pytest_packbench.packs.registry import PackError, Packs
from pytest_packbench.reports.blocks import (
    SIGNS,
    Block,
    Facts,
    Points,
    Row,
    Section,
    Table,
    Text,
    figure_tables,
    markdown,
    minute,
    text,
)
from pytest_packbench.reports.diff import comparison_headline, diff_markdown
from pytest_packbench.reports.page import RunPage, page_html, page_of_run
from pytest_packbench.reports.page.case_data import NO_SOURCES, root_link
from pytest_packbench.reports.story import Place, trend_table
from pytest_packbench.reports.terminal import printable_json
from pytest_packbench.runs.folder import (
    LATEST,
    NO_VERDICT,
    OUTPUT,
    REPORT,
    STDIN,
    RecordSource,
    ensure_gitignore,
    find_run_folder,
    find_run_source,
    is_run_id,
    new_run_id,
    read_errors,
    read_latest,
    read_records,
    record_source,
)
from pytest_packbench.runs.reading import controls_of, earlier_runs, open_complete, open_run, run_folders

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.report import StoredRun
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.stored import StatedComparison
    from pytest_packbench.model.suite import Suite

    # like runs with their cases, oldest first
    Trends = Mapping[Kind, Sequence[EarlierRun]]


_STDOUT = "-"
_MAX_WRONG = 10
# what does not apply to a page; the caps may be 0
_OF_RECORDS = ("run", "out", "format", "strict", "skip_bad", "max_tokens", "max_seconds", "max_cost")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a JSONL file of records, a run's folder or SUITE/latest (with its errors.jsonl), - for standard input",
    )
    parser.add_argument("--run", metavar="ID", help="only the records of this run")
    parser.add_argument("--out", metavar="FILE", help="the file to write, instead of standard output (-)")
    parser.add_argument("--format", choices=("md", "json"), help="Markdown (default) or one JSON object")
    parser.add_argument(
        "--strict",
        action="store_true",
        default=None,
        help="read as the Rust reader does: only the suites of the spec are accepted",
    )
    parser.add_argument("--max-tokens", type=_whole_cap, metavar="N", help="fail if a run used more than N tokens")
    parser.add_argument(
        "--max-seconds",
        type=_cap,
        metavar="S",
        help="fail if the durations of a run's records add up to more than S seconds",
    )
    parser.add_argument("--max-cost", type=_cap, metavar="USD", help="fail if a run cost more than this")
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        default=None,
        help="skip and count lines that can't be read, instead of stopping",
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write a page of these runs, given by their folders or SUITE/latest, to this file instead",
    )
    add_shared(parser, "--root", "--pack")


def _cap(text: str) -> float:
    cap = float(text)
    if not 0 <= cap < math.inf:
        raise ValueError(text)
    return cap


def _whole_cap(text: str) -> int:
    cap = int(text)
    if cap < 0:
        raise ValueError(text)
    return cap


# argparse writes "invalid ... value" with these names
_cap.__name__ = "number of 0 or more"
_whole_cap.__name__ = "whole number of 0 or more"


def run_report(arguments: argparse.Namespace) -> int:
    """Write the report; return 1 if a gate in it fails, or a run of the page failed.

    Raises:
        UsageError: there is no record, an option does not apply, or the output can't be written.
        StreamError: a line can't be read.
        StoredRunError: a run of a page can't be read.
        OSError: a file can't be read.
    """
    if arguments.html is not None:
        return _write_html(arguments)
    sources = [record_source(_resolve(name)) for name in arguments.files]
    out = _STDOUT if arguments.out is None else arguments.out
    _check_output(out, sources)
    document = _count(sources, arguments)
    text = json_text(document, Figure.as_json) if arguments.format == "json" else overview_markdown(document)
    if out == _STDOUT:
        write_stdout(text)
    else:
        write_report(Path(out), text)
    return FINE if document["passed"] else FAILED


def _write_html(arguments: argparse.Namespace) -> int:
    """Write a page of all runs, and return 1 if one of them failed."""
    from pytest_packbench.analysis.conclusion import run_verdict

    for name in _OF_RECORDS:
        if getattr(arguments, name) is not None:
            option = name.replace("_", "-")
            raise UsageError(f"--{option}: does not apply to a page; leave it out, or leave out --html")
    for name in arguments.files:
        if name == STDIN or name.endswith(".jsonl"):
            source = "standard input" if name == STDIN else name
            raise UsageError(f"--html: {source}: {NO_VERDICT}")
    folders = {folder.resolve(): folder for folder in map(find_run_folder, map(Path, arguments.files))}
    opened = (open_run(folder, complete=True) for folder in folders.values())
    pages = [stored_page(each, arguments.html, arguments) for each in opened]
    title = ", ".join(dict.fromkeys(page.conclusion.run.suite for page in pages))
    write_report(arguments.html, pages_html(pages, title))
    return FAILED if any(run_verdict(page.conclusion).status == "failed" for page in pages) else FINE


def _resolve(name: str) -> str:
    """Return the folder of the run that an argument names; the argument itself, as a file's name, if it names none."""
    path = Path(name)
    if name == STDIN or (path.exists() and path.name != LATEST):
        return name
    return str(find_run_folder(path)) if path.name == LATEST or (OUTPUT / path).exists() else name


def _count(sources: Sequence[RecordSource], arguments: argparse.Namespace) -> Document:
    records, run_id, others = Records(), arguments.run, 0
    skipped = SkippedLines() if arguments.skip_bad else None
    for source in sources:
        for record in read_records(source.records, strict=bool(arguments.strict), skipped=skipped):
            if run_id is None or record.run_id == run_id:
                records.add(record)
            else:
                others += 1
        for line in read_errors(source, skipped=skipped):
            if run_id is None or line.run_id == run_id:
                records.add_error(line)
    if not records.sums:
        of_run = "" if run_id is None else f" of run {run_id}"
        bad = f": {skipped.count} lines can't be read, first {skipped.first[0]}" if skipped and skipped.count else ""
        counts = sorted(sum(records.errors.values(), Counter()).items())
        kinds = ", ".join(f"{number} {kind}" for kind, number in counts)
        without_score = f"; cases without a score: {kinds}" if kinds else ""
        raise UsageError(f"no records{of_run} in {', '.join(arguments.files)}{bad}{without_score}")
    return overview(
        records,
        skipped=skipped,
        other_runs=others,
        with_errors=all(source.errors is not None for source in sources),
        caps={"tokens": arguments.max_tokens, "seconds": arguments.max_seconds, "cost_usd": arguments.max_cost},
        reports=list(_stored_reports(sources)),
    )


def _stored_reports(sources: Iterable[RecordSource]) -> Iterator[Document]:
    """Yield what the reports of runs say in addition to records, as for `overview`; only folders of runs have one."""
    for source in sources:
        report = Path(source.records).with_name(REPORT)
        if source.errors is None or not report.exists():
            continue
        try:
            opened = open_run(report, checked=False)
            yield {
                "run_id": opened.run.run_id,
                "suite": opened.run.suite,
                "figures": list(opened.stated.figures),
                "controls": _controls_line(opened),
            }
        except (StoredRunError, ValueError) as error:
            # the records are read all the same
            warn(f"no figures of packs: {error}")


def _controls_line(report: StoredRun) -> str:
    """Return how the controls of a run ended, with the ids of those that did not end as written."""
    try:
        tally = controls_of(report)
    except (StoredRunError, OSError) as error:
        return f"unknown: {error}"
    if tally is None:
        return ""
    wrong = name_some([result.control for result in tally.wrong], limit=_MAX_WRONG)
    return f"{tally.line()}; otherwise: {wrong}" if wrong else tally.line()


def _check_output(out: str, sources: Sequence[RecordSource]) -> None:
    path = Path(out)
    if out == _STDOUT or not path.exists():
        return
    for source in sources:
        for name in (source.records, source.errors):
            if name is not None and Path(name).exists() and path.samefile(name):
                raise UsageError(f"--out: {out} is an input of this report; choose another file")


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_compare(arguments: argparse.Namespace) -> int:
    """Compare, write the page, and return 1 if a condition of `--fail-on` is true."""
    paths = find_run_source(arguments.baseline), find_run_source(arguments.current)
    # first, since its pack tells whether records are needed
    current = open_run(paths[1], complete=lambda run: arguments.html is not None or _pack_of(run) is not None)
    baseline = open_run(paths[0], complete=current.reopen is None)
    if arguments.html is not None:
        if paths[1].suffix == ".jsonl":
            raise UsageError(f"--html: {paths[1]}: {NO_VERDICT}")
        baseline, current = baseline.read(), current.read()
    different = "; ".join(differences(baseline.run, current.run))
    if different and not arguments.force:
        raise UsageError(f"the runs can't be compared: {different}; pass --force to compare them")
    figures: list[Figure] = []
    comparison = compare(
        baseline,
        current,
        lambda results: figures.extend(_figures(current.run, results if baseline.reopen is None else ())),
    )
    failed = true_conditions(arguments.fail_on, comparison)
    page = diff_markdown(comparison, failed, _run_notes(baseline, current), figures)
    if str(arguments.out) == "-":
        write_stdout(page)
    else:
        path = write_page(page, arguments.out)
        headlines = text(figure_tables(figure for figure in figures if figure.headline))
        say(f"{comparison.current.suite}: {comparison_headline(comparison)}", *headlines, f"wrote {path}")
    if arguments.html is not None:
        _write_comparison_page(arguments, baseline, current, comparison, failed)
    for condition in failed:
        value = comparison.figures()[condition.name]
        warn(f"{condition}: {'no value' if value != value else f'{value:g}'}: FAIL")  # noqa: PLR0124 - only NaN differs from itself
    return FAILED if failed else FINE


def _write_comparison_page(
    arguments: argparse.Namespace,
    baseline: StoredRun,
    current: StoredRun,
    comparison: Comparison,
    failed: Sequence[FailCondition],
) -> None:
    """Write a page of the current run, compared with the baseline."""
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
        return pack if has_paired_figures(pack) else None
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


def _run_notes(baseline: StoredRun, current: StoredRun) -> list[str]:
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


_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def add_open_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, nargs="?", help="the run: its folder, or SUITE/latest (default: the newest)")
    parser.add_argument("--print", action="store_true", help="print the path of the page, and open no browser")
    add_shared(parser, "--output", "--root", "--pack")


def run_open(arguments: argparse.Namespace) -> int:
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
    counted = conclude(run, results, levels=None if project is None else project[1].metrics.depths)
    stated = report.stated
    if outcome is None and stated.comparison is not None:
        outcome = _compared(stated.comparison)
    conclusion = replace(
        counted,
        gates=stated.gates,
        figures=stated.figures,
        policy=stated.policy_changes,
        baseline=outcome,
        controls=controls_of(report),
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
        sources = sources._replace(can_accept=suite.config.accepts_more, **texts._asdict())
        try:
            with code_of(pack, "panels"):
                of_labels = conclusion.labels.panels(pack.metrics.label)
                panels = (*of_labels, *panels_of(pack, results(), conclusion.figures))
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


_HOOKS_INTRO = (
    "Every check of the pipeline is counted, also checks of drafts: a case can pass after a check rejected a draft."
)
_NAMES = ("category", "mode", "backend", "model", "judge")
_RATES = (*_NAMES, "passed", f"{100 * CONFIDENCE:g} % Wilson interval", *EVAL_DECISIONS, "mean score")
_FAILING = ("test", "trial", "category", "expected", "decision", "score", "backend", "model")
_WHERE = "records.jsonl has all"
_FENCE = re.compile(r"`{3,}|~{3,}")


def overview_markdown(overview: Document) -> str:
    """Render an overview, as `analysis.records.overview` returns it.

    Returns:
        The Rust report if there is one, unchanged; then packbench's figures in GitHub Flavored Markdown, ended by one
        line end. Tables are limited to `MAX_ROWS` rows.
    """
    original, records, cases = overview["original"], overview["records"], overview["cases"]
    rust = "" if original is None else _closed(rust_report_markdown(original), original)
    runs = pluralize(len(overview["runs"]), "run")
    trials = "" if cases == records else f" ({pluralize(cases, 'case')}, {pluralize(records, 'trial')})"
    blocks: list[Block] = [
        Points(list(_record_notes(overview))),
        Table("Gates", ("suite", "result", "records", "arithmetic"), list(map(_gate_row, overview["gates"]))),
        *map(_run, overview["runs"]),
    ]
    title = f"packbench report: {runs}, {pluralize(records, 'record')}{trials}"
    return f"{rust}{markdown([Section(title, blocks)])}\n"


def rust_report_markdown(original: Document) -> str:
    """Render the figures as the Rust harness does. Nothing is escaped, so a category can break the table."""
    lines = [f"# B0 eval — run {original['run_id']}", ""]
    for suite in original["suites"]:
        condition = RUST_CONDITIONS[suite["suite"]]
        lines += [condition.heading, "", "| Category | passed | failed | rate |", "|---|---|---|---|"]
        for category, (passed, total) in suite["categories"].items():
            lines.append(f"| {category} | {passed}/{total} | {total - passed} | {_whole_percent(passed, total)} |")
        passed, total, verdict = suite["passed"], suite["total"], "PASS" if suite["is_met"] else "FAIL"
        rate = f"{passed} / {total} = {_whole_percent(passed, total)}"
        lines += ["", f"**Aggregate: {rate} — {verdict} ({condition.wording})**", ""]
    given, returned = original["tokens_input"], original["tokens_output"]
    # Rust's sum of both wraps too
    if (given + returned) & U64_MAX:
        lines += ["## Cost audit", "", f"Total tokens: {given} input + {returned} output"]
    return "".join(f"{line}\n" for line in lines)


def _whole_percent(passed: int, total: int) -> str:
    # dividing first, as Rust does: 23 / 40 is 57 %, not 58 %
    return f"{passed / total * 100:.0f}%"


def _closed(lines: str, original: Document) -> str:
    """Return the Rust report with lines that close what unescaped names with line ends may have opened.

    These are HTML, comments and code fences. A fence is opened by a line with words and closed by one without: the
    first of the two does not close anything, and the second closes whichever is open.
    """
    names = [original["run_id"], *(name for suite in original["suites"] for name in suite["categories"])]
    if any("\n" in name or "\r" in name for name in names):
        longest = max((len(fence) for fence in _FENCE.findall(lines)), default=3)
        fences = "".join(f"{char * longest} end of the Rust report\n{char * longest}\n\n" for char in "`~")
        lines += f"\n</details></pre></script></style></textarea> --> ?> ]]>\n\n{fences}"
    return lines if lines.endswith("\n\n") else f"{lines}\n"


def _record_notes(overview: Document) -> Iterator[str]:
    skipped, duplicates = overview["skipped"], overview["duplicates"]
    suites = [suite for run in overview["runs"] for suite in run["suites"]]
    rows = [row for suite in suites for row in suite["rows"]]
    if duplicates["count"]:
        names = ["run {run_id}, {test_id}, trial {trial}".format(**each) for each in duplicates["first"]]
        yield (
            f"{pluralize(duplicates['count'], 'duplicate')} (same run, test id and trial; the first record counts), of "
            f"which {duplicates['conflicting']} ended differently: {_some(names, duplicates['names'])}."
        )
    if skipped is not None:
        problems = f": {_some(skipped['first'], skipped['count'])}" if skipped["count"] else ""
        yield f"{pluralize(skipped['count'], 'unreadable line')} skipped{problems}."
    if overview["other_runs"]:
        yield f"{pluralize(overview['other_runs'], 'record')} of other runs ignored."
    notes = {
        "The lines above are the Rust report. It merges runs, counts duplicates and covers "
        f"{' and '.join(RUST_CONDITIONS)} only; the figures below do not.": overview["original"],
        "Errors and cases that did not run are not included: they are in errors.jsonl, which is read if you pass the "
        "run's folder.": not overview["with_errors"],
        f"Intervals are two-sided {100 * CONFIDENCE:g} % Wilson intervals. They assume independent cases: if cases "
        "share parts, the uncertainty is larger than shown.": any(row["passed"]["interval"] for row in rows),
        f"Answers of the backend {AUTHORED} were authored or scripted: counts only, without intervals. They say "
        "nothing about a model.": any(row["backend"] == AUTHORED for row in rows),
        "Trials of the same case are not independent: rates over several trials have no interval.": any(
            suite["cases"] != suite["effort"]["records"] for suite in suites
        ),
        "No gate is judged here; packbench gate RUN judges a run by the gates of its suite.": not overview["gates"],
        "Figures of fixture mode show whether the pipeline or the scoring changed, not how good a model is.": any(
            row["mode"] == FIXTURE for row in rows
        ),
    }
    yield from (note for note, applies in notes.items() if applies)


def _some(first: Sequence[str], number: int) -> str:
    """Return the first of a number of texts, and how many more there are."""
    return "; ".join([*first, *[f"{number - len(first)} more"] * (number > len(first))])


def _gate_row(gate: Document) -> Row:
    arithmetic, _, verdict = gate["text"].rpartition(": ")
    records = "as in the Rust report" if gate["run_id"] is None else f"run {gate['run_id']}, without duplicates"
    return gate["suite"], verdict, records, arithmetic


def _run(run: Document) -> Section:
    blocks: list[Block] = [Text(_effort(run["effort"]))] if len(run["suites"]) > 1 else []
    blocks += map(_suite, run["suites"])
    for report in run["reports"]:
        name, controls = report["suite"], report["controls"]
        blocks += [Text(f"Controls of {name}: {controls}.")] if controls else []
        blocks += figure_tables(report["figures"], f"Figures of {name}", defined=True)
    return Section(f"Run {run['run_id'] or '(empty)'}", blocks)


def _suite(suite: Document) -> Section:
    cases, records = suite["cases"], suite["effort"]["records"]
    trials = f"{pluralize(cases, 'case')}, {pluralize(records, 'trial')}. " if cases != records else ""
    counts = ", ".join(f"{number} {name}" for name, number in suite["verdicts"].items())
    hooks = Table("", ("rule", "hook", "decision", "count"), [tuple(each.values()) for each in suite["hooks"]])
    return Section(
        suite["suite"],
        [
            Text(f"{trials}Verdicts{' of trials' if trials else ''}: {counts}."),
            Table("", _RATES, list(map(_rate_row, suite["rows"]))),
            Table("By category", _RATES, list(map(_rate_row, suite["categories"]))),
            Section("Hook decisions by rule", [Text(_HOOKS_INTRO), hooks] if hooks.rows else []),
            Text(_effort(suite["effort"])),
            Table("Failing cases", _FAILING, list(map(_failing_row, suite["failing_first"])), suite["failing"], _WHERE),
        ],
    )


def _rate_row(row: Document) -> Row:
    passed, of, interval = (row["passed"][name] for name in ("count", "of", "interval"))
    return (
        # only the rows by category have one
        row["category"] or "(empty)" if "category" in row else None,
        *(row[name] for name in _NAMES[1:]),
        f"{passed} / {of} = {format_percent(passed, of)}",
        format_interval(interval),
        *(row[decision] for decision in EVAL_DECISIONS),
        format_mean(row["mean_score"]),
    )


def _effort(effort: Document) -> str:
    def coverage(known: int) -> str:
        records = effort["records"]
        return "" if known == records else f" (reported by {known} of {pluralize(records, 'record')})"

    tokens = "Tokens: not known."
    if effort["tokens_known"]:
        amounts = f"{effort['tokens_input']} input + {effort['tokens_output']} output"
        tokens = f"Tokens: {amounts}{coverage(effort['tokens_known'])}."
    used = f"{tokens} Wall clock: {effort['wall_clock_ms'] / 1000:.1f} s summed over the records."
    if effort["cost_usd"] is None:
        return used
    return f"{used} Cost: {effort['cost_usd']:.4f} USD{coverage(effort['cost_known'])}."


def _failing_row(case: dict[str, Any]) -> Row:
    return (
        case["test_id"],
        case["trial"] or None,
        case["attack_category"] or "(empty)",
        case["expected"],
        case["agent_decision"],
        format_score_and_threshold(case["score"], case["threshold"]),
        case["llm_backend"],
        case["llm_model"],
    )


_DEFAULT_LIMIT = 20
_VERSION = 3
_SIGNS = {**SIGNS, "not in the run": "·", "rules changed": "/"}
_LEGEND = ", ".join(f"{sign} {word.replace('_', ' ')}" for word, sign in _SIGNS.items())
_CHANGED = (
    "The case, its recording and the rules are the same. A verdict that changed and changed back is that of a flaky "
    "case: what differs is the target, the model or the connection to it. Where it changed once, the target or the "
    f"model may have changed. {_LEGEND}."
)
_MAX_CHANGED = 50
_MAX_NAMED = 3
_CASE_COLUMNS = ("run", "finished", "verdict", "score", "answer", "trials passed", "changed since the run before")
_CASE_KEYS = ("kind", "answer", "case_sha256", "cassette_sha256", "judge")


class Step(NamedTuple):
    """What changed from one run to the next.

    Attributes:
        before: the earlier run.
        now: the later one.
        change: what changed of the rules and the figures, as `since` returns it.
        causes: of each case in both runs what changed of the case itself: `case`, `judge` or `recording`, else nothing.
        flipped: the cases whose verdict changed although nothing else did.
    """

    before: EarlierRun
    now: EarlierRun
    change: Mapping[str, Any]
    causes: Mapping[str, str]
    flipped: Collection[str]


def add_history_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("suite", help="the suite's name")
    parser.add_argument("case", nargs="?", help="the id of a case: show its verdict in each run")
    add_shared(parser, "--output")
    parser.add_argument(
        "--all",
        action="store_true",
        help="show all runs, each kind in a table of its own; by default only those like the latest complete run: "
        "of the same mode, target, backend, model and guards",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=_DEFAULT_LIMIT,
        metavar="N",
        help="show the latest N runs of each kind (default: 20)",
    )
    parser.add_argument("--format", choices=["md", "json"], default="md", help="Markdown (default) or JSON")


def run_history(arguments: argparse.Namespace) -> int:
    """Print like runs in a table, the oldest first, then the cases whose verdict changed without a cause.

    Raises:
        UsageError: there is no run to show, or none with the case.
    """
    parent, suite = arguments.output / arguments.suite, arguments.suite
    trends, hidden, others = _trends(parent, max(arguments.limit, 1), all_kinds=arguments.all)
    if not trends and (not others or not arguments.all or arguments.case is not None):
        reasons = "; ".join(f"{other['run']}: {other['trouble']}" for other in others[:_MAX_NAMED])
        latest = f"; the latest: {reasons}" if others else ""
        raise UsageError(f"no complete run under {parent}{latest}")
    blocks: list[Block]
    if arguments.case is None:
        listed = others[::-1] if arguments.all else []
        objects = [_trend_object(*trend) for trend in trends.items()]
        document: dict[str, Any] = {"trends": objects, "others": listed}
        blocks = [_trend_section(suite, *trend, each) for trend, each in zip(trends.items(), objects, strict=True)]
        blocks.append(Section("Runs in no trend", [Facts([(other["run"], other["trouble"]) for other in listed])]))
    else:
        test_id = _test_id(arguments.case, trends, parent)
        trends = {kind: having for kind, runs in trends.items() if (having := [e for e in runs if test_id in e.cases])}
        objects = [_case_object(test_id, *trend) for trend in trends.items()]
        document = {"case": test_id, "trends": objects}
        blocks = [_case_section(suite, test_id, *each) for each in zip(trends, objects, strict=True)]
    if not arguments.all:
        blocks.append(Text(_not_shown(hidden, [other["run"] for other in others])))
    # each table is as long as was asked for
    text = markdown(blocks, level=2, max_rows=sys.maxsize, padded=True)
    if arguments.format == "json":
        text = printable_json(json.dumps({"version": _VERSION, "suite": suite, **document}, ensure_ascii=False))
    write_stdout(f"{text}\n")
    return FINE


def _trends(
    parent: Path, limit: int, *, all_kinds: bool
) -> tuple[Trends, Mapping[Kind, int], Sequence[Mapping[str, str]]]:
    """Read the latest complete runs with their cases, of all kinds or of that of the latest.

    Returns:
        The runs by kind; how many there are of the kinds that are not read; and the runs in no trend, the latest first.
    """
    trends: dict[Kind, list[EarlierRun]] = {}
    hidden: Counter[Kind] = Counter()
    others: list[Mapping[str, str]] = []
    for folder in run_folders(parent):
        try:
            stored = open_complete(folder)
            kind = kind_of(stored.run, stored.outline.models)
            if not all_kinds and kind != next(iter(trends), kind):
                hidden[kind] += 1
            elif len(trends.get(kind, ())) < limit:
                earlier = with_cases(stored)
                trends.setdefault(kind, []).insert(0, earlier)
        except (ValueError, OSError) as error:
            others.append({"run": folder.name, "trouble": str(error)})
    return trends, hidden, others


def _not_shown(hidden: Mapping[Kind, int], others: Sequence[str]) -> str:
    parts = [f"{pluralize(number, 'run')} in {kind}" for kind, number in hidden.items()]
    if others:
        parts.append(f"{pluralize(len(others), 'run')} in no trend ({name_some(others)})")
    return f"Not shown: {'; '.join(parts)}. --all shows all runs." if parts else ""


def _step(before: EarlierRun, now: EarlierRun) -> Step:
    change = since(before.outline, now.outline)
    changes = [Change(case, now.cases[test_id]) for test_id, case in before.cases.items() if test_id in now.cases]
    causes = {each.test_id: _cause(*each) for each in changes}
    flipped = [
        each.test_id
        for each in changes
        if verdict_of(each.before) != verdict_of(each.after)
        and each.before.case.case_sha256 is not None
        and not (change["rules"] or causes[each.test_id])
    ]
    return Step(before, now, change, causes, flipped)


def _cause(before: Result, now: Result) -> str:
    if before.case.case_sha256 != now.case.case_sha256:
        return "case"
    if before.score.judge != now.score.judge:
        return "judge"
    # an error may come before the recording is read
    recordings = {before.attempt.cassette_sha256, now.attempt.cassette_sha256} - {None}
    return "recording" if len(recordings) > 1 else ""


def _kind_object(kind: Kind) -> dict[str, Any]:
    return {name: value or None for name, value in kind._asdict().items()}


def _trend_object(kind: Kind, runs: Sequence[EarlierRun]) -> dict[str, Any]:
    steps = list(starmap(_step, pairwise(runs)))
    counts = Counter(test_id for step in steps for test_id in step.flipped)
    changed: list[dict[str, Any]] = [
        {"test_id": test_id, "changes": count, "verdicts": _verdicts(test_id, runs)}
        for test_id, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]
    return {
        **_kind_object(kind),
        "runs": [_run_object(*each) for each in zip(runs, [None, *steps], strict=True)],
        # one change may be that of the target
        "flaky": [each for each in changed if each["changes"] > 1],
        "changed_once": [each for each in changed if each["changes"] == 1],
    }


def _verdicts(test_id: str, runs: Iterable[EarlierRun]) -> list[str | None]:
    return [verdict_of(each.cases[test_id]) if test_id in each.cases else None for each in runs]


def _run_object(now: EarlierRun, step: Step | None) -> dict[str, Any]:
    run, overall, totals = now.outline.run, now.outline.overall, now.outline.totals
    return {
        "run": run.run_id,
        "finished": run.finished_at,
        "status": now.outline.status,
        "cases": totals.selected,
        "judged": overall.n,
        "passed": overall.passed,
        "failed": overall.n - overall.passed,
        "broken": sum(totals.verdicts.get(name, 0) for name in ("error", "vacuous", "not_run")),
        "pass_rate": overall.pass_rate,
        "interval": overall.interval,
        "mean_score": overall.mean_score,
        "rules": run.suite_sha256[:12],
        "change": None if step is None else _change_object(step),
    }


def _change_object(step: Step) -> dict[str, Any]:
    before, now, causes = step.before, step.now, Counter(step.causes.values())
    return {
        **step.change,
        "cases": {
            "added": len(now.cases.keys() - before.cases.keys()),
            "removed": len(before.cases.keys() - now.cases.keys()),
            "edited": causes["case"] + causes["judge"],
            "recorded_again": causes["recording"],
        },
    }


def _trend_section(suite: str, kind: Kind, of: Sequence[EarlierRun], trend: Mapping[str, Any]) -> Section:
    changed = [*trend["flaky"], *trend["changed_once"]]
    breaks = [f"{_SIGNS['rules changed']} " if (run["change"] or {}).get("rules") else "" for run in trend["runs"]]
    rows = []
    for each in changed[:_MAX_CHANGED]:
        signs = [_SIGNS[verdict or "not in the run"] for verdict in each["verdicts"]]
        rows.append((each["test_id"], each["changes"], " ".join(map("".join, zip(breaks, signs, strict=True)))))
    head = ("case", "changes", "verdicts, oldest first")
    table = Table("", head, rows, len(changed), "--format json names all")
    runs = trend_table("", [run.outline for run in of], trend["runs"])
    unexplained = Section("Verdicts that changed without a cause", [Text(_CHANGED if rows else ""), table])
    return Section(f"Runs of {suite}", [Text(f"Like runs: {kind}."), runs, unexplained])


def _test_id(name: str, trends: Trends, parent: Path) -> str:
    """Return the test id of a case that a user names by its id, or by that."""
    known = {
        test_id: case.case.case_id for runs in trends.values() for each in runs for test_id, case in each.cases.items()
    }
    found = [test_id for test_id, case_id in known.items() if name in {test_id, case_id}]
    if len(found) > 1:
        raise UsageError(f"{name}: the id of several cases; expected one of the test ids {', '.join(sorted(found))}")
    if not found:
        raise UsageError(f'{parent}: no case "{name}" in these runs; {suggestion(name, sorted(known.values()))}')
    return found[0]


def _case_object(test_id: str, kind: Kind, runs: Sequence[EarlierRun]) -> dict[str, Any]:
    steps = list(starmap(_step, pairwise(runs)))
    return {
        **_kind_object(kind),
        "changes": sum(test_id in step.flipped for step in steps),
        "runs": [_case_run(test_id, *each) for each in zip(runs, [None, *steps], strict=True)],
    }


def _case_run(test_id: str, now: EarlierRun, step: Step | None) -> dict[str, Any]:
    """Return what a case came to in a run, and what changed since the run before that has it."""
    case = now.cases[test_id]
    passed, trials = case.trials
    return {
        "run": now.outline.run.run_id,
        "finished": now.outline.run.finished_at,
        "verdict": verdict_of(case),
        "score": case.score.score if case.score.counted else None,
        **dict(zip(_CASE_KEYS, values_of(*_CASE_KEYS)(case), strict=True)),
        "passed": passed,
        "trials": trials,
        "changed": [] if step is None else [*step.change["rules"], *filter(None, [step.causes[test_id]])],
    }


def _case_section(suite: str, test_id: str, kind: Kind, trend: Mapping[str, Any]) -> Section:
    times = pluralize(trend["changes"], "time")
    remark = f"Its verdict changed {times} although the case, its recording and the rules are the same."
    rows = list(map(_case_row, trend["runs"]))
    said = [Text(f"Like runs: {kind}."), Text(remark if trend["changes"] else "")]
    return Section(f"{test_id} in runs of {suite}", [*said, Table("", _CASE_COLUMNS, rows)])


def _case_row(now: Mapping[str, Any]) -> Row:
    return (
        now["run"],
        minute(now["finished"]),
        f"{now['verdict']} ({now['kind']})" if now["kind"] else now["verdict"],
        format_mean(now["score"]),
        now["answer"],
        f"{now['passed']} of {now['trials']}" if now["trials"] > 1 else None,
        ", ".join(now["changed"]),
    )
