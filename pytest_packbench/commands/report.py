"""`packbench report`: any number of records, as the original reports them and as we do."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FAILED, FINE, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_packbench.analysis.overview import Overview
    from pytest_packbench.runs.lines import RecordSource

STDIN = _STDOUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="JSONL of records, a run's folder or SUITE/latest (errors.jsonl is counted beside), - for standard input",
    )
    parser.add_argument("--run", dest="run_id", metavar="ID", help="only the records of this run")
    parser.add_argument(
        "--out", metavar="FILE", default=_STDOUT, help="write here, whole, instead of to standard output (-)"
    )
    parser.add_argument("--format", choices=("md", "json"), default="md", help="Markdown (default) or one JSON object")
    parser.add_argument("--strict", action="store_true", help="read as Rust does: suites of our own are refused")
    parser.add_argument("--max-tokens", type=_whole_cap, metavar="N", help="fail where a run took more tokens")
    parser.add_argument("--max-seconds", type=_cap, metavar="S", help="fail where a run's records took longer, summed")
    parser.add_argument("--max-cost", type=_cap, metavar="USD", help="fail where a run cost more")
    parser.add_argument("--skip-bad", action="store_true", help="count lines that can't be read instead of stopping")


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


# argparse says "invalid ... value" with these names
_cap.__name__ = "number of 0 or more"
_whole_cap.__name__ = "whole number of 0 or more"


def run(arguments: argparse.Namespace) -> int:
    """Report; 1 where a gate that the report prints fails.

    Raises:
        UsageError: there is no record, or the output can't be written.
        StreamError: a line can't be read.
        OSError: a file can't be read.
    """
    from pytest_packbench.runs.lines import record_source

    given = [record_source(_place(name)) for name in arguments.files]
    _keep_inputs(arguments.out, given)
    found = _count(given, arguments)
    _write(_text(found, arguments.format), arguments.out)
    return FINE if found.passed else FAILED


def _place(name: str) -> str:
    """Find the run that a name means; what it doesn't mean stays a file's name, for the error to say."""
    from pytest_packbench.runs.folder import LATEST, OUTPUT, find_run_folder

    path = Path(name)
    if name == STDIN or (path.exists() and path.name != LATEST):
        return name
    return str(find_run_folder(path)) if path.name == LATEST or (OUTPUT / path).exists() else name


def _count(given: Sequence[RecordSource], arguments: argparse.Namespace) -> Overview:
    from pytest_packbench.analysis.overview import ReportCaps, overview
    from pytest_packbench.analysis.tally import Tally
    from pytest_packbench.runs.lines import SkippedLines, read_errors, read_records

    tally, skipped, wanted, others = Tally(), SkippedLines() if arguments.skip_bad else None, arguments.run_id, 0
    for source in given:
        for record in read_records(source, strict=arguments.strict, skipped=skipped):
            if wanted is None or record.run_id == wanted:
                tally.add_record(record)
            else:
                others += 1
        for line in read_errors(source, skipped=skipped):
            if wanted is None or line.run_id == wanted:
                tally.add_error(line)
    if not tally.record_sums:
        of_run = "" if wanted is None else f" of run {wanted}"
        left_out = f": {skipped.count} can't be read, first {skipped.first[0]}" if skipped and skipped.count else ""
        broken = ", ".join(f"{number} {kind}" for kind, number in sorted(sum(tally.errors.values(), Counter()).items()))
        beside = f"; cases without a score: {broken}" if broken else ""
        raise UsageError(f"no records{of_run} in {', '.join(arguments.files)}{left_out}{beside}")
    with_errors = all(source.errors is not None for source in given)
    caps = ReportCaps(tokens=arguments.max_tokens, seconds=arguments.max_seconds, cost_usd=arguments.max_cost)
    return overview(tally, skipped=skipped, other_runs=others, with_errors=with_errors, caps=caps)


def _text(found: Overview, form: str) -> str:
    if form == "json":
        from pytest_packbench.reports.document import overview_document

        return json.dumps(overview_document(found), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    from pytest_packbench.reports.overview_markdown import overview_markdown

    return overview_markdown(found)


def _keep_inputs(out: str, given: Sequence[RecordSource]) -> None:
    path = Path(out)
    if out == _STDOUT or not path.exists():
        return
    for source in given:
        for name in (source.records, source.errors):
            if name is not None and Path(name).exists() and path.samefile(name):
                raise UsageError(f"{out} is read by this report: it can't be written too")


def _write(text: str, out: str) -> None:
    if out == _STDOUT:
        # as bytes: the original's lines may hold line ends and characters that a terminal's encoding would change
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
        return
    from pytest_packbench.commands.paths import write_asked

    write_asked(Path(out), text)
    sys.stderr.write(f"wrote report to {out}\n")
