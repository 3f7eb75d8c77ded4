"""`packbench baseline`: take a run as the committed baseline of its suite, or show what the baseline is and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.analysis.changes import committed_baseline, loosened
from pytest_packbench.cases.suites import SuiteCase, suite_cases
from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.paths import add_shared, say, suite_and_pack
from pytest_packbench.model.baseline import BaselineChange, CommittedBaseline
from pytest_packbench.model.errors import pluralize, single_spaced
from pytest_packbench.model.result import Result, timestamp_now
from pytest_packbench.model.run import BUNDLED, Run
from pytest_packbench.model.suite import BASELINE_NAME, Suite
from pytest_packbench.reports.terminal import one_line
from pytest_packbench.runs.folder import find_run_folder, new_run_id
from pytest_packbench.runs.reading import StoredRun, open_run, read_baseline
from pytest_packbench.runs.writer import write_baseline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pytest_packbench.engine.contexts import SuiteContext


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=["set", "show"], help="set: take a run as the baseline; show: describe it")
    parser.add_argument("name", metavar="NAME", help="set: a run, as its folder or SUITE/latest; show: a suite")
    parser.add_argument("--reason", help="set: why, in one line; it is kept in the file")
    add_shared(parser, "--root", "--pack", "--output")


def run(arguments: argparse.Namespace) -> int:
    """Set or show the committed baseline.

    Raises:
        UsageError: the run can't be a baseline, or the suite has none.
    """
    lines = _set(arguments) if arguments.action == "set" else _show(arguments)
    say(*(one_line(line, 400) for line in lines))
    return FINE


def _set(arguments: argparse.Namespace) -> Iterator[str]:
    reason = single_spaced(arguments.reason or "")
    if not reason:
        raise UsageError("baseline set: expected --reason TEXT: why this run is the new baseline")
    name = Path(arguments.name)
    if name.name == BASELINE_NAME:
        raise UsageError(f"{name}: is a baseline; expected the folder of a run, or SUITE/latest")
    stored = open_run(find_run_folder(name, arguments.output)).read()
    suite, _ = suite_and_pack(stored.run.requested_suite, arguments, by_name=True)
    _check(stored, suite)
    path = suite.baseline_path
    history: list[BaselineChange] = []
    lines: list[str] = []
    if path.is_file():
        before = open_run(path, checked=False)
        history += before.history
        lines += loosened(before, stored)
        yield f"{pluralize(len(lines), 'point')} looser than the baseline of {history[-1].run_id if history else path}"
        yield from (f"  {line}" for line in lines)
    now = timestamp_now()
    change = BaselineChange(set_at=now, run_id=stored.run.run_id, reason=reason, loosened=len(lines))
    baseline = committed_baseline(stored.run, stored.results, [*history, change])
    write_baseline(path, baseline)
    if stored.stated.status != "passed":
        yield f"note: the run {stored.run.run_id} {stored.stated.status}"
    yield f"wrote {path.as_posix()}: {_counts(baseline)}"


def _check(stored: StoredRun, suite: Suite) -> None:
    """Check that a run can be the baseline of its suite.

    Raises:
        UsageError: it can't.
    """
    run = stored.run
    if suite.bundled:
        raise UsageError(f'suite "{suite.name}" is bundled and can\'t be changed; copy it with packbench init --from')
    if run.partial:
        raise UsageError(f"run {run.run_id} is partial ({run.partial}); expected a complete run")
    if run.pack != suite.config.pack:
        raise UsageError(f"run {run.run_id} used the pack {run.pack}; expected one of pack {suite.config.pack}")
    if run.suite_sha256 != suite.sha256:
        raise UsageError(f"run {run.run_id} used other scoring rules than suite.yaml has now; run the suite again")


def _show(arguments: argparse.Namespace) -> Iterator[str]:
    suite, pack = suite_and_pack(arguments.name, arguments)
    path = suite.baseline_path
    if not path.is_file():
        advice = "run the suite, then packbench baseline set RUN --reason TEXT"
        raise UsageError(f"{path}: the suite has no committed baseline; {advice}")
    baseline = read_baseline(path)
    about = baseline.run
    yield f"{suite.name.removeprefix(BUNDLED)}: {_counts(baseline)}"
    models = f", answers of {', '.join(about.models)}" if about.models else ""
    answers = ", answers authored" if about.authored else models
    trials = f", {about.trials} trials" if about.trials > 1 else ""
    yield f"run {about.run_id}, {about.finished_at}: {about.mode} mode, target {about.target}{answers}{trials}"
    yield f"pack {about.pack} {about.pack_version}, rules {about.suite_sha256[:12]}"
    if about.suite_sha256 != suite.sha256:
        yield f"the scoring rules have changed since (now {suite.sha256[:12]}): runs can't be compared with it"
    if (about.pack, about.pack_version) != (pack.name, pack.version):
        yield f"the pack has changed since (now {pack.name} {pack.version}): runs can't be compared with it"
    yield "history, newest first:"
    for change in reversed(baseline.history):
        looser = f" ({pluralize(change.loosened, 'point')} looser)" if change.loosened else ""
        yield f"  {change.set_at}  run {change.run_id}{looser}: {change.reason}"


def _counts(baseline: CommittedBaseline) -> str:
    cases = baseline.cases.values()
    scores = [case.score for case in cases if case.score is not None and case.verdict in {"passed", "failed"}]
    mean = f", mean score {sum(scores) / len(scores):.2f}" if scores else ""
    passed = sum(case.verdict == "passed" for case in cases)
    return f"{pluralize(len(baseline.cases), 'case')}, {passed} passed{mean}"


_REASON = "first baseline, written by packbench init"


def write_first_baseline(name: str, root: Path) -> Path:
    """Run the cases of a suite, and write its baseline.

    Args:
        name: the name of the suite.
        root: the folder of suites.

    Returns:
        The file that was written.

    Raises:
        OSError: the file can't be written.
        Exception: the cases can't be run, or one ended without a score; packs and targets are the user's code.
    """
    from pytest_packbench.pytest_plugin.project import with_suite

    baseline = with_suite(name, [], _baseline, root=root)
    path = root / name / BASELINE_NAME
    write_baseline(path, baseline)
    return path


def _baseline(context: SuiteContext) -> CommittedBaseline:
    suite, run_id = context.suite, new_run_id()
    results = [_result(context, case, run_id) for case in suite_cases(suite, context.pack, str)]
    now = timestamp_now()
    run = Run(
        run_id=run_id,
        suite=suite.record_name,
        description="",
        pack=context.pack.name,
        pack_version=context.pack.version,
        suite_sha256=suite.sha256,
        bundled=False,
        mode="fixture",
        target=context.target_name,
        started_at=now,
        finished_at=now,
    )
    return committed_baseline(run, results, [BaselineChange(set_at=now, run_id=run_id, reason=_REASON)])


def _result(context: SuiteContext, case: SuiteCase, run_id: str) -> Result:
    """Make one attempt at a case.

    Raises:
        UsageError: it can't be read, or ended without a score.
    """
    from pytest_packbench.engine.attempt import attempt
    from pytest_packbench.engine.result_builder import CaseRef, build_result

    if case.problem or case.loaded is None:
        raise UsageError(case.problem)
    names = {"case_id": case.at.name, "nodeid": f"{case.file}::{case.at.name}", "file": case.file}
    case_ref = CaseRef.at(case.suite, case.pack, case.loaded, **names)
    result = build_result(case_ref, attempt(context, case.loaded), context, run_id)
    # a hole of the benchmark is no failure
    if not result.score.counted and result.score.verdict != "known_hole":
        raise UsageError(f"{case.at.name}: {result.score.message}")
    return result
