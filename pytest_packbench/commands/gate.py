"""`packbench gate`: stored runs against gates, the arithmetic shown, the decision in the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FAILED, FINE
from pytest_packbench.commands.places import add_root, find_suite, run_place

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_packbench.cases.suite import Gate
    from pytest_packbench.records.stored import StoredRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, SUITE/latest, report.json or records.jsonl")
    add_root(parser)
    parser.add_argument("--rules", help="the suite whose gates apply, by name or folder; each run's own by default")
    parser.add_argument("--baseline", type=Path, help="the run that max_ratio_to_baseline compares with")
    parser.add_argument(
        "--require", action="append", default=[], metavar="SUITE", help="fail where no run of this suite is given"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print each gate's arithmetic, and say in the exit code whether all hold."""
    from pytest_packbench.reports.gates import check
    from pytest_packbench.reports.terminal import printable

    stored = [_load(path) for path in arguments.runs]
    baseline = _load(arguments.baseline).entries if arguments.baseline else None
    good = True
    for one in stored:
        gates = _gates(arguments, one)
        sys.stdout.write(f"{printable(one.run.suite)} {printable(one.run.run_id)}{_partial(one)}\n")
        for result in check(one.entries, gates, baseline):
            good = good and result.passed
            sys.stdout.write(f"  {printable(result.text)}\n")
    for name in arguments.require:
        if name not in {one.run.suite for one in stored}:
            good = False
            sys.stdout.write(f"{printable(name)}: no run of this suite was given: FAIL\n")
    partial = any(one.run.partial for one in stored)
    word = "all gates hold" + (", of a partial run: don't decide on it" if partial else "")
    sys.stdout.write(f"{word if good else 'FAILED'}\n")
    return FINE if good else FAILED


def _gates(arguments: argparse.Namespace, one: StoredRun) -> Sequence[Gate]:
    return find_suite(arguments.rules or one.run.suite, arguments.root).config.all_gates()


def _load(path: Path) -> StoredRun:
    from pytest_packbench.records.stored import load_run

    return load_run(run_place(path))


def _partial(one: StoredRun) -> str:
    return f" (partial: {one.run.partial})" if one.run.partial else ""
