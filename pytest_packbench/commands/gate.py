"""`packbench gate`: stored runs against gates, the arithmetic shown, the decision in the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import add_packs, add_root, find_suite, packs_of
from pytest_packbench.runs.folder import find_run_source

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_packbench.model.suite import SuiteConfig
    from pytest_packbench.runs.stored import StoredRun


_SENTENCE = 1600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, SUITE/latest, report.json or records.jsonl")
    add_root(parser)
    add_packs(parser)
    parser.add_argument("--rules", help="the suite whose gates apply, by name or folder; each run's own by default")
    parser.add_argument(
        "--baseline",
        type=Path,
        action="append",
        default=[],
        help="the run that max_ratio_to_baseline compares with; repeat it for runs of several suites",
    )
    parser.add_argument(
        "--require", action="append", default=[], metavar="SUITE", help="fail where no run of this suite is given"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print each gate's arithmetic, and say in the exit code whether all hold."""
    from pytest_packbench.analysis.gates import check_run
    from pytest_packbench.reports.terminal import one_line
    from pytest_packbench.runs.stored import BaselineLookup

    stored = [_load(path) for path in arguments.runs]
    rules = [_rules(arguments, one) for one in stored]
    earlier = _baselines(arguments.baseline, stored, rules)
    good = True
    for config, one in zip(rules, stored, strict=True):
        cut = f" (partial: {one_line(one.run.partial)})" if one.run.partial else ""
        sys.stdout.write(f"{one_line(one.run.suite)} {one_line(one.run.run_id)}{cut}\n")
        for result in check_run(
            one.run,
            one.results,
            config.all_gates(),
            BaselineLookup(stored=earlier.get(one.run.suite)),
            whole=one.lists_all_cases,
            trials_rule=config.trials_rule(),
        ):
            good = good and result.passed
            sys.stdout.write(f"  {one_line(result.text, _SENTENCE)}\n")
    for name in arguments.require:
        if name not in {one.run.suite for one in stored}:
            good = False
            sys.stdout.write(f"{one_line(name)}: no run of this suite was given: FAIL\n")
    partial = any(one.run.partial for one in stored)
    word = "all gates hold" + (", of a partial run: don't decide on it" if partial else "")
    sys.stdout.write(f"{word if good else 'FAILED'}\n")
    return FINE if good else FAILED


def _rules(arguments: argparse.Namespace, one: StoredRun) -> SuiteConfig:
    return find_suite(arguments.rules or one.run.suite, arguments.root, packs_of(arguments.packs)).config


def _baselines(
    paths: Sequence[Path], stored: Sequence[StoredRun], rules: Sequence[SuiteConfig]
) -> dict[str, StoredRun]:
    """Read the baselines, one a suite.

    Raises:
        UsageError: one of them is the baseline of no run here, or can't be compared with.
    """
    from pytest_packbench.analysis.gates import baseline_for

    found: dict[str, StoredRun] = {}
    for path in paths:
        earlier = _load(path)
        suite = earlier.run.suite
        if suite in found:
            raise UsageError(f"--baseline {path}: a second baseline of suite {suite}; give one")
        if suite not in {one.run.suite for one in stored}:
            judged = ", ".join(sorted({one.run.suite for one in stored}))
            raise UsageError(f"--baseline {path}: a run of suite {suite}; expected one of {judged}")
        for one, config in zip(stored, rules, strict=True):
            if one.run.suite == suite:
                wrong = baseline_for(one.run, one.results, earlier, config.trials_rule()).unusable
                if wrong:
                    raise UsageError(f"--baseline {path}: {wrong}")
        found[suite] = earlier
    return found


def _load(path: Path) -> StoredRun:
    from pytest_packbench.runs.stored import read_run

    return read_run(find_run_source(path))
