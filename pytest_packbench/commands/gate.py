"""`packbench gate`: check stored runs against gates, and show the arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.analysis.conclusion import conclude
from pytest_packbench.cases.suites import find_suites
from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import (
    add_shared,
    packs_of,
    policy_project,
    say,
    suite_and_pack,
)
from pytest_packbench.model.policy import PolicyError
from pytest_packbench.reports.terminal import one_line, policy_lines
from pytest_packbench.runs.folder import OUTPUT, StoredRunError, find_run_source
from pytest_packbench.runs.reading import StoredRun, open_run
from pytest_packbench.runs.stored import BaselineLookup

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.suite import Suite


_MAX_LINE = 1600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    about = "runs: folders, SUITE/latest, report.json or records.jsonl; none with --policy-from"
    parser.add_argument("runs", type=Path, nargs="*", help=about)
    add_shared(parser, "--root", "--pack", "--trust")
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
    parser.add_argument(
        "--policy-from",
        metavar="BASE",
        help="fail if the acceptance policy of the suites is not as strict as in BASE: a commit or branch of the git "
        "repository, a run id, or the path of a run. The suites are those of RUNS, else --rules, else all",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print each gate with its arithmetic, and the changes of acceptance policies; return 1 if one of them fails.

    Raises:
        UsageError: nothing is named that could be checked, or it can't be read.
    """
    if not arguments.runs and (arguments.baseline or arguments.require or not arguments.policy_from):
        raise UsageError("gate: got no RUNS; expected some, or --policy-from without --baseline and --require")
    runs = [_load(path) for path in arguments.runs]
    passed = _check_runs(arguments, runs) if runs else True
    if arguments.policy_from:
        passed = _check_policies(arguments, runs) and passed
    return FINE if passed else FAILED


def _check_policies(arguments: argparse.Namespace, runs: Sequence[StoredRun]) -> bool:
    """Print in which points acceptance policies differ from those of the base, and return whether that is allowed."""
    from pytest_packbench.policy import compare_policy, open_base

    project = policy_project(arguments)
    try:
        base = open_base(arguments.policy_from, project, Path.cwd() / OUTPUT)
    except PolicyError as error:
        raise UsageError(f"--policy-from: {error}") from None
    passed = True
    for name in [arguments.rules] if arguments.rules else _suite_names(runs, project.root):
        suite, pack = suite_and_pack(name, arguments, by_name=not arguments.rules)
        if not_imported := packs_of(arguments).not_imported(suite.path):
            # their code is a part of the policy
            raise UsageError(f"--rules: {not_imported}")
        outcome = compare_policy(base, suite, pack, project)
        passed = passed and not outcome.failed
        say(one_line(suite.name), *(f"  {line}" for line in policy_lines(outcome)))
    say(f"acceptance policy: {'not loosened' if passed else 'FAILED'}")
    return passed


def _suite_names(runs: Sequence[StoredRun], root: Path) -> Sequence[str]:
    names = list(dict.fromkeys(stored.run.requested_suite for stored in runs) or find_suites(root))
    if not names:
        raise UsageError(f"--policy-from: no suite under {root}; pass --root, or run packbench in the project's folder")
    return names


def _check_runs(arguments: argparse.Namespace, runs: Sequence[StoredRun]) -> bool:
    """Print each gate with its arithmetic, and return whether all passed."""
    names = (arguments.rules or stored.run.requested_suite for stored in runs)
    suites = [suite_and_pack(name, arguments, by_name=not arguments.rules)[0] for name in names]
    baselines = _baselines(arguments.baseline, [stored.run.suite for stored in runs])
    # whatever is damaged is an error before anything is printed
    judged = [_gates(stored, suite, baselines) for stored, suite in zip(runs, suites, strict=True)]
    passed = True
    for suite, stored, gates in zip(suites, runs, judged, strict=True):
        partial = f" (partial: {one_line(stored.run.partial)})" if stored.run.partial else ""
        say(f"{one_line(stored.run.suite)} {one_line(stored.run.run_id)}{partial}")
        if stored.run.suite_sha256 != suite.sha256:
            say(f"  the run has other scoring rules than suite {suite.name} here, whose gates decide")
        say(*(f"  {one_line(gate.text, _MAX_LINE)}" for gate in gates))
        line, failed = _controls_of(stored)
        passed = passed and not failed and all(gate.passed for gate in gates)
        if line:
            say(f"  {one_line(line, _MAX_LINE)}{': FAIL' if failed else ''}")
    for name in arguments.require:
        if name not in {stored.run.suite for stored in runs}:
            passed = False
            say(f"{one_line(name)}: no run of this suite is among RUNS: FAIL")
    caution = ", but a run is partial: don't decide on it" if any(stored.run.partial for stored in runs) else ""
    say(f"all gates passed{caution}" if passed else "FAILED")
    return passed


def _gates(stored: StoredRun, suite: Suite, baselines: Mapping[str, tuple[Path, StoredRun]]) -> Sequence[GateResult]:
    """Judge a stored run by the gates of a suite.

    Raises:
        UsageError: the baseline of its suite can't be compared with it.
    """
    path, baseline = baselines.get(stored.run.suite, (None, None))
    earlier = BaselineLookup(stored=baseline)
    conclusion = conclude(stored.run, stored.results, suite.config, earlier=earlier, with_errors=stored.lists_all_cases)
    comparison = None if conclusion.baseline is None else conclusion.baseline.comparison
    if comparison is not None and comparison.unusable:
        raise UsageError(f"--baseline {path}: {comparison.unusable}")
    return conclusion.gates


def _controls_of(stored: StoredRun) -> tuple[str, bool]:
    """Return the line about the controls of a run, empty without any, and whether they fail it."""
    try:
        controls = stored.controls()
    except StoredRunError as error:
        return f"controls: unknown: {error}", True
    return (controls.line(), bool(controls.wrong)) if controls is not None else ("", False)


def _baselines(paths: Sequence[Path], suites: Sequence[str]) -> dict[str, tuple[Path, StoredRun]]:
    """Open the baselines, one per suite, and return them with their paths by suite.

    Raises:
        UsageError: a baseline belongs to no run here.
    """
    baselines: dict[str, tuple[Path, StoredRun]] = {}
    for path in paths:
        baseline = _load(path)
        suite = baseline.run.suite
        if suite in baselines or suite not in suites:
            expected = f"one run of each suite among {', '.join(sorted({*suites}))}"
            raise UsageError(f"--baseline {path}: got a run of suite {suite}; expected {expected}")
        # the results of one that several runs are compared with are needed again
        baselines[suite] = path, baseline if suites.count(suite) == 1 else baseline.read()
    return baselines


def _load(path: Path) -> StoredRun:
    return open_run(find_run_source(path))
