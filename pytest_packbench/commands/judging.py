"""Judging stored runs: `packbench gate`, `packbench merge`, `packbench baseline` and `packbench rescore`.

`gate` checks runs against gates, and shows the arithmetic; `merge` joins runs of the same kind, or the shards of one
run, and applies the suite's gates; `baseline` takes a run as the committed baseline of its suite, or shows what the
baseline is and why; `rescore` scores the stored results of a run by the current rules, without running anything.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.changes import Comparison, committed_baseline, compare, loosened
from pytest_packbench.analysis.conclusion import conclude, run_document, run_verdict, with_figures
from pytest_packbench.analysis.unknown_keys import UnknownKeyCounter, unknown_key_sentences
from pytest_packbench.cases.finder import (
    CaseIndex,
    find_controls,
    find_recording,
    find_suites,
    suite_locations,
)
from pytest_packbench.cases.load import (
    SuiteCase,
    case_file_sha256,
    is_same_control,
    load_case,
    load_recording,
    suite_cases,
)
from pytest_packbench.commands import (
    FAILED,
    FINE,
    UsageError,
    add_shared,
    code_of,
    packs_of,
    policy_project,
    say,
    suite_and_pack,
    warn,
    write_file,
    write_stdout,
)
from pytest_packbench.commands.report import project_page, true_conditions
from pytest_packbench.engine.attempt import score_payload
from pytest_packbench.engine.contexts import SuiteContext
from pytest_packbench.engine.trial_results import CaseRef, build_result, read_case_ref, unscored_result
from pytest_packbench.model.errors import (
    CaseError,
    CassetteError,
    StoredRunError,
    describe_error,
    pluralize,
    single_spaced,
)
from pytest_packbench.model.recording import ControlTally, tally_of
from pytest_packbench.model.redaction import Redactor
from pytest_packbench.model.report import BaselineLookup, PolicyError, StoredRun
from pytest_packbench.model.result import FIXTURE, TRUNCATED, UNREAD, Attempt, Result, timestamp_now
from pytest_packbench.model.run import BUNDLED, PAGE, Run
from pytest_packbench.model.stored import BaselineChange, CommittedBaseline
from pytest_packbench.model.suite import BASELINE_NAME, GateResult, Suite
from pytest_packbench.reports.diff import diff_markdown
from pytest_packbench.reports.page import write_pages
from pytest_packbench.reports.story import NOWHERE, control_lines, summary_lines
from pytest_packbench.reports.terminal import one_line, policy_lines
from pytest_packbench.runs.folder import LACKED, OUTPUT, PAYLOADS, find_run_folder, find_run_source, new_run_id
from pytest_packbench.runs.merging import Merge
from pytest_packbench.runs.reading import controls_of, open_run, read_baseline
from pytest_packbench.runs.writing import RunWriter, write_baseline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack


_MAX_GATE_LINE = 1600


def add_gate_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_gate(arguments: argparse.Namespace) -> int:
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
        say(*(f"  {one_line(gate.text, _MAX_GATE_LINE)}" for gate in gates))
        line, failed = _controls_of(stored)
        passed = passed and not failed and all(gate.passed for gate in gates)
        if line:
            say(f"  {one_line(line, _MAX_GATE_LINE)}{': FAIL' if failed else ''}")
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
        controls = controls_of(stored)
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


_ONE_COMMIT = "merge the runs of one commit, where that commit is checked out"


def add_merge_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", type=Path, nargs="+", help="the folders of the runs, or of all shards of a run")
    add_shared(parser, "--root", "--pack", "--output")
    parser.add_argument("--baseline", type=Path, help="the run to compare with")
    add_shared(parser, "--fail-on")
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="merge even if shards are missing: the merged run is partial and fails",
    )


def run_merge(arguments: argparse.Namespace) -> int:
    """Merge, write the merged run, and return 1 if it fails.

    Raises:
        UsageError: the runs can't be merged, or a file of the merged run can't be written.
    """
    folders = [find_run_folder(path, arguments.output) for path in arguments.runs]
    merge = Merge(folders, new_run_id())
    merged = merge.run
    if merge.missing_shards and not arguments.allow_missing:
        raise UsageError(f"{merge.shards_text}; add them, or pass --allow-missing")
    suite, pack = suite_and_pack(merged.requested_suite, arguments, by_name=True)
    _check_rules(merged, suite, pack)
    if arguments.fail_on and not arguments.baseline:
        raise UsageError(f"--fail-on: got {arguments.fail_on!r} without a baseline; expected --baseline as well")
    earlier = BaselineLookup()
    if arguments.baseline:
        stored = open_run(find_run_source(arguments.baseline), complete=True).read()
        earlier = BaselineLookup(stored=stored, requested=str(arguments.baseline), fail_on=arguments.fail_on or "")
    index = CaseIndex(suite_locations(suite))
    # shards together cover the suite: a case in none of them did not run
    absent = partial(_absent, merged, suite, pack, index)
    writer = RunWriter(arguments.output, merged.suite, merged.run_id, atomic=True)
    try:
        with writer:
            changed = partial(_changed, suite, index, merged.mode)
            results = writer.writing(merge.results(sorted(index), absent, changed))
            conclusion = conclude(merged, results, suite.config, pack.metrics.depths, earlier)
            # results are read one by one, so once more; a pack without figures reads none
            again = partial(writer.written_results, merged.suite)
            with code_of(pack, "figures"):
                conclusion = with_figures(conclusion, pack, again)
            # what is missing is known once all is read
            run = replace(merged, partial=merge.partial())
            conclusion = replace(conclusion, run=run, controls=_controls(merge, suite))
            of, path, folder = (suite, pack), writer.folder / PAGE, writer.folder
            page = project_page(conclusion, again, of, path, arguments, folder=folder, options=merge.rerun)
            writer.write_controls(conclusion.controls)
            write_pages(writer.write_page, page, NOWHERE, Redactor(os.environ).json)
            writer.complete(run_document(conclusion, merge.rerun))
    except OSError as error:
        raise UsageError(f"the merged run can't be written to {writer.folder.parent}: {error}") from None
    say(*summary_lines(conclusion), *control_lines(conclusion.controls), f"reports: {writer.folder}")
    # as in the summary: a failing or missing case fails a merge as it fails a run
    return FINE if run_verdict(conclusion).status == "passed" else FAILED


def _check_rules(merged: Run, suite: Suite, pack: Pack) -> None:
    of_runs = {"rules": merged.suite_sha256, "pack": merged.pack, "version of the pack": merged.pack_version}
    here = {"rules": suite.sha256, "pack": pack.name, "version of the pack": pack.version}
    changed = [f"{what} {here[what]}, not {used}" for what, used in of_runs.items() if used != here[what]]
    if changed:
        raise UsageError(f"suite {merged.suite} is not that of the runs: {', '.join(changed)}; {_ONE_COMMIT}")


def _changed(suite: Suite, index: CaseIndex, mode: str, result: Result) -> str:
    """Return why the case of a result, or its recording, is not the one of the suite here; empty if it is."""
    case = result.case
    location = index.find(case.case_id)
    if location is None or case.case_sha256 not in {None, case_file_sha256(location)}:
        return f"case {case.case_id} is not the one of the suite here; {_ONE_COMMIT}"
    if mode == FIXTURE and result.attempt.cassette_sha256 is not None:
        with suppress(OSError, CassetteError):
            if load_recording(find_recording(suite, case.case_id))[1] == result.attempt.cassette_sha256:
                return ""
        return f"the recording of case {case.case_id} is not the one of the suite here; {_ONE_COMMIT}"
    return ""


def _controls(merge: Merge, suite: Suite) -> ControlTally | None:
    """Return the controls of the merged runs, which are in fixture mode; None if there are none.

    Raises:
        UsageError: they are not those of the suite here.
    """
    if merge.run.mode != FIXTURE:
        return None
    present = {found.name: found for found in find_controls(suite.controls_path)}
    results, count = merge.controls()
    changed = [result.control for result in results if not is_same_control(result, present.get(result.control))]
    if changed:
        raise UsageError(f"the control {changed[0]} is not the one of the suite here; {_ONE_COMMIT}")
    if merge.missing_shards == [] and count != len(present):
        had = pluralize(count, "control")
        raise UsageError(f"the suite of the runs had {had}, the suite here has {len(present)}; {_ONE_COMMIT}")
    return tally_of(results, len(present))


def _absent(run: Run, suite: Suite, pack: Pack, index: CaseIndex, case_id: str) -> Result:
    """Return the result of a case that is in none of the shards."""
    case = index[case_id]
    file = Path(os.path.relpath(case.path)).as_posix()
    # a case that can't be read did not run either
    case_ref = read_case_ref(suite, pack, case, file=file, nodeid=f"{file}::{case.name}")
    message = "in none of the merged shards"
    return unscored_result(case_ref, "not_run", "in_no_shard", message, Attempt(timestamp=run.finished_at))


def add_baseline_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("action", choices=["set", "show"], help="set: take a run as the baseline; show: describe it")
    parser.add_argument("name", metavar="NAME", help="set: a run, as its folder or SUITE/latest; show: a suite")
    parser.add_argument("--reason", help="set: why, in one line; it is kept in the file")
    add_shared(parser, "--root", "--pack", "--output")


def run_baseline(arguments: argparse.Namespace) -> int:
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

    if case.problem or case.loaded is None:
        raise UsageError(case.problem)
    names = {"case_id": case.at.name, "nodeid": f"{case.file}::{case.at.name}", "file": case.file}
    case_ref = CaseRef.at(case.suite, case.pack, case.loaded, **names)
    result = build_result(case_ref, attempt(context, case.loaded), context, run_id)
    # a hole of the benchmark is no failure
    if not result.score.counted and result.score.verdict != "known_hole":
        raise UsageError(f"{case.at.name}: {result.score.message}")
    return result


def add_rescore_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, help="the run: its folder, or SUITE/latest")
    add_shared(parser, "--root", "--pack")
    parser.add_argument("--out", type=Path, help="the Markdown file to write, instead of standard output")
    add_shared(parser, "--fail-on")


def run_rescore(arguments: argparse.Namespace) -> int:
    """Score the stored results again and write how the scores change."""
    folder = find_run_folder(arguments.run)
    stored = open_run(folder, complete=True)
    suite, pack = suite_and_pack(stored.run.requested_suite, arguments, by_name=True)
    if not (folder / PAYLOADS).exists():
        raise StoredRunError(f"{folder / PAYLOADS}: not found: the run stored no results to score again")
    before: list[Result] = []
    problems: list[str] = []
    now = replace(stored.run, suite_sha256=suite.sha256, pack=pack.name, pack_version=pack.version)
    after = replace(stored, run=now, results=tuple(rescored(stored, suite, pack, before, problems)))
    comparison = compare(replace(stored, results=before), after)
    for problem in problems:
        warn(f"not rescored: {problem}")
    failed = true_conditions(arguments.fail_on, comparison)
    note = _note(comparison, stored)
    comparison.differences = ()
    unknown = UnknownKeyCounter()
    for result in after.results:
        unknown.add(result)
    page = diff_markdown(comparison, failed, [note, *unknown_key_sentences(unknown.counts(), pack.name)])
    if arguments.out is None:
        write_stdout(page)
    else:
        write_file(arguments.out, page)
    return FAILED if failed else FINE


def rescored(
    stored: StoredRun, suite: Suite, pack: Pack, before: list[Result], problems: list[str]
) -> Iterator[Result]:
    """Score each stored result of a target by the suite's current rules, against the current case.

    Args:
        stored: the run, opened with payloads.
        suite: the suite.
        pack: its pack, as the suite configures it.
        before: gets the stored results, with only what a comparison reads.
        problems: gets why a case can't be scored again.

    Yields:
        One result per result of the run. It is scored again if its payload was stored and its case still exists;
        otherwise it is the stored result.

    Raises:
        StoredRunError: a file of the run can't be read, or a result is missing.
    """
    context = SuiteContext.of_results(suite, pack, stored.run.target, redactor=Redactor(os.environ))
    load = _case_loader(suite, pack, problems)
    for result in stored.results:
        payload, was = result.attempt.payload, _reduced(result)
        before.append(was)
        # an answer that could not be read is no result, and its score depends on no rule
        is_read = result.score.counted and not any(term.name in UNREAD for term in result.score.terms)
        loaded = load(was.case.case_id) if is_read or payload is not None else None
        again = was if loaded is None else _rescore(was, payload, loaded, context)
        # a target that returned nothing has no line; any other result must have one
        if payload is None and (again.score.verdict, again.score.score) != (was.score.verdict, was.score.score):
            path = Path(stored.source).with_name(PAYLOADS)
            raise StoredRunError(f"{path}: the result of {was.case.test_id} {LACKED}")
        yield again


def _note(comparison: Comparison, stored: StoredRun) -> str:
    changed = f": {'; '.join(comparison.differences)}" if comparison.differences else ", which are those of the run"
    return (
        f"Current is the same run, its stored results scored with the current rules{changed}. The target was not run."
        f"{' Controls are not scored again.' if stored.header and stored.stated.controls else ''}"
    )


def _reduced(result: Result) -> Result:
    """Return a result with only what a comparison reads."""
    return replace(result, attempt=replace(result.attempt, payload=None), record=None)


def _rescore(stored: Result, payload: Any, loaded: LoadedCase, context: SuiteContext) -> Result:
    case = replace(stored.case, expects_refusal=None, case_sha256=loaded.sha256)
    case_ref = CaseRef(context.suite, context.pack, case, loaded)
    truncated = stored.score.kind == TRUNCATED or any(term.name == TRUNCATED for term in stored.score.terms)
    try:
        attempt = score_payload(context, loaded, payload, truncated=truncated)
        result = build_result(case_ref, attempt, context, "rescored")
    except Exception as error:  # noqa: BLE001 - an error of any pack is an error of this case, as in a run
        message = f"the pack {context.pack.name} raised {describe_error(error)}"
        result = unscored_result(case_ref, "error", "pack_error", message, stored.attempt)
    # the model, the duration and the cost are those of the stored run
    return replace(result, attempt=stored.attempt)


def _case_loader(suite: Suite, pack: Pack, problems: list[str]) -> Callable[[str], LoadedCase | None]:
    """Return a function that reads a current case by its id; it returns None if the case is gone or can't be read."""
    index = CaseIndex(suite_locations(suite))

    # the trials of a case are consecutive
    @lru_cache(maxsize=1)
    def load(case_id: str) -> LoadedCase | None:
        problem = f"{case_id}: the suite no longer has this case"
        try:
            if (location := index.find(case_id)) is not None:
                return load_case(location, pack.case_model, file=location.path, pack=pack.name)
        except CaseError as error:
            problem = str(error)
        problems.append(problem)
        return None

    return load
