"""`packbench gate`: check stored runs against gates, and show the arithmetic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import add_packs, add_root, find_suite, packs_of, root_of
from pytest_packbench.runs.folder import find_run_source

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_packbench.model.suite import SuiteConfig
    from pytest_packbench.runs.stored import StoredRun


_MAX_LINE = 1600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", type=Path, nargs="+", help="runs: folders, SUITE/latest, report.json or records.jsonl")
    add_root(parser)
    add_packs(parser)
    parser.add_argument(
        "--rules", help="the suite whose gates apply, by name or folder (default: the suite of each run)"
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        action="append",
        default=[],
        help="the run that gates compare with, or a baseline.json (repeat for runs of several suites)",
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="SUITE",
        help="fail if no run of this suite is among RUNS (repeat)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print each gate with its arithmetic, and return 1 if one of them fails."""
    from pytest_packbench.analysis.gates import check_run
    from pytest_packbench.reports.terminal import one_line
    from pytest_packbench.runs.stored import BaselineLookup

    runs = [_load(path) for path in arguments.runs]
    configs = [_rules(arguments, stored) for stored in runs]
    baselines = _baselines(arguments.baseline, runs, configs)
    passed = True
    for config, stored in zip(configs, runs, strict=True):
        partial = f" (partial: {one_line(stored.run.partial)})" if stored.run.partial else ""
        sys.stdout.write(f"{one_line(stored.run.suite)} {one_line(stored.run.run_id)}{partial}\n")
        for result in check_run(
            stored.run,
            stored.results,
            config.all_gates(),
            BaselineLookup(stored=baselines.get(stored.run.suite)),
            metrics=config.metrics,
            with_errors=stored.lists_all_cases,
            trials_rule=config.trials_rule(),
        ):
            passed = passed and result.passed
            sys.stdout.write(f"  {one_line(result.text, _MAX_LINE)}\n")
    for name in arguments.require:
        if name not in {stored.run.suite for stored in runs}:
            passed = False
            sys.stdout.write(f"{one_line(name)}: no run of this suite is among RUNS: FAIL\n")
    caution = ", but a run is partial: don't decide on it" if any(stored.run.partial for stored in runs) else ""
    sys.stdout.write(f"all gates passed{caution}\n" if passed else "FAILED\n")
    return FINE if passed else FAILED


def _rules(arguments: argparse.Namespace, stored: StoredRun) -> SuiteConfig:
    return find_suite(arguments.rules or stored.run.requested_suite, root_of(arguments), packs_of(arguments)).config


def _baselines(
    paths: Sequence[Path], runs: Sequence[StoredRun], configs: Sequence[SuiteConfig]
) -> dict[str, StoredRun]:
    """Read the baselines, one per suite, and return them by suite.

    Raises:
        UsageError: a baseline belongs to no run here, or can't be compared with it.
    """
    from pytest_packbench.analysis.gates import checked_baseline

    baselines: dict[str, StoredRun] = {}
    suites = {stored.run.suite for stored in runs}
    for path in paths:
        baseline = _load(path)
        suite = baseline.run.suite
        if suite in baselines:
            raise UsageError(f"--baseline {path}: second baseline for suite {suite}; expected one per suite")
        if suite not in suites:
            raise UsageError(
                f"--baseline {path}: got a run of suite {suite}; expected a run of {', '.join(sorted(suites))}"
            )
        for stored, config in zip(runs, configs, strict=True):
            if stored.run.suite == suite:
                unusable = checked_baseline(stored.run, stored.results, baseline, config.trials_rule()).unusable
                if unusable:
                    raise UsageError(f"--baseline {path}: {unusable}")
        baselines[suite] = baseline
    return baselines


def _load(path: Path) -> StoredRun:
    from pytest_packbench.runs.stored import read_run

    return read_run(find_run_source(path))
