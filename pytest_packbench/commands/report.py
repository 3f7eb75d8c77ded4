"""`packbench report`: summarize any number of records, in the layout of the Rust report and with our own figures.

With `--html` it writes the page of stored runs instead.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.analysis.listing import name_some
from pytest_packbench.analysis.records import Document, Records, overview
from pytest_packbench.cli import FAILED, FINE, UsageError, warn
from pytest_packbench.commands.paths import add_shared, json_text, write_report, write_stdout
from pytest_packbench.model.metric import Figure
from pytest_packbench.reports.overview_markdown import overview_markdown
from pytest_packbench.runs.folder import LATEST, NO_VERDICT, OUTPUT, REPORT, StoredRunError, find_run_folder
from pytest_packbench.runs.lines import (
    STDIN,
    RecordSource,
    SkippedLines,
    read_errors,
    read_records,
    record_source,
)
from pytest_packbench.runs.reading import StoredRun, open_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

_STDOUT = "-"
_MAX_WRONG = 10
# what does not apply to a page; the caps may be 0
_OF_RECORDS = ("run", "out", "format", "strict", "skip_bad", "max_tokens", "max_seconds", "max_cost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(arguments: argparse.Namespace) -> int:
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
    from pytest_packbench.commands.open import pages_html, stored_page

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
        tally = report.controls()
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
