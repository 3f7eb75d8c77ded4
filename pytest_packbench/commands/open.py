"""`packbench open`: open the page of a run in a browser; it is made from the stored files where it is missing.

What the report of a run decided is shown as it was stored.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.paths import add_output, add_packs, add_root, rootdir_of, suite_and_pack, write_file
from pytest_packbench.model.errors import describe_error, pluralize
from pytest_packbench.model.gate import GateResult
from pytest_packbench.model.run import HOOK_TARGET_PREFIX, RECORD_PROMPTS, TEST_TARGET_PREFIX, pytest_options
from pytest_packbench.model.score import FIXTURE, TOLERANCE
from pytest_packbench.model.suite import BASELINE_NAME
from pytest_packbench.runs.folder import (
    PAGE,
    REPORT,
    StoredRunError,
    find_run_folder,
    is_run_id,
    new_run_id,
    read_latest,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_packbench.analysis.baseline import BaselineOutcome
    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.model.control import ControlTally
    from pytest_packbench.model.metric import Figure, Panel
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.policy import PolicyOutcome
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.reports.page import RunPage
    from pytest_packbench.runs.report import OpenRun
    from pytest_packbench.runs.stored import StoredRun

_NEXT_TARGET = ", "
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, nargs="?", help="the run: its folder, or SUITE/latest (default: the newest)")
    parser.add_argument("--print", action="store_true", help="print the path of the page, and open no browser")
    add_output(parser)
    add_root(parser)
    add_packs(parser)


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
    for page in pages:
        sys.stdout.write(f"{page}\n")
    if arguments.print:
        return FINE
    sys.stdout.flush()
    if not all(map(_has_opened, pages)):
        sys.stderr.write("packbench: no browser could be started; open the file yourself\n")
    return FINE


def _newest(output: Path) -> Sequence[Path]:
    """Return the folders of the newest run that `latest` names, one for each suite.

    A later folder may be that of an incomplete run, or have come from elsewhere.
    """
    # run ids sort by time
    now = new_run_id()
    runs = [folder for pattern in ("*/*/", "*/*/*/") for folder in output.glob(pattern) if is_run_id(folder.name)]
    known = [folder for folder in runs if folder.name <= now and _is_latest(folder)]
    newest = max((folder.name for folder in known), default="")
    later = sorted(folder for folder in runs if folder.name > newest)
    if not known:
        advice = f"pass its folder to open {later[-1]}" if later else "run a suite, or pass the folder of a run"
        raise UsageError(f"no complete run under {output}; {advice}")
    if later:
        sys.stderr.write(f"packbench: not the latest complete run, so opened by its path only: {later[-1]}\n")
    same = (folder for folder in runs if folder.name == newest)
    return sorted(folder for folder in same if (folder / REPORT).is_file())


def _is_latest(folder: Path) -> bool:
    try:
        return (folder / REPORT).is_file() and read_latest(folder.parent) == folder.name
    except (StoredRunError, OSError):
        return False


def _page(folder: Path, arguments: argparse.Namespace) -> Path:
    """Return the page of a run; it is made from the run's files where it is missing."""
    page = folder / PAGE
    return page if page.is_file() else write_page(folder, arguments)


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


_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


class Compared(NamedTuple):
    """A baseline that the user names, in place of the one of the run.

    Attributes:
        outcome: what came of comparing the run with it.
        stored: the baseline.
    """

    outcome: BaselineOutcome
    stored: StoredRun


class ProjectOfRun(NamedTuple):
    """What the project has of a run.

    Attributes:
        rootdir: the project's folder.
        suite: the suite of the run; None if it can't be read.
        pack: its pack; None if it can't be loaded.
        is_same: whether both have the rules by which the run was scored.
    """

    rootdir: Path
    suite: Suite | None = None
    pack: Pack | None = None
    is_same: bool = False


def stored_page(folder: Path, page: Path, arguments: argparse.Namespace, compared: Compared | None = None) -> RunPage:
    """Return what a page shows of a stored run.

    Args:
        folder: the folder of the run.
        page: the file of the page, from which it links to the files of cases.
        arguments: of the command, with the options of `add_root` and `add_packs`.
        compared: the comparison to show; None for that of the run.

    Raises:
        StoredRunError: the run did not end, or a file of it can't be read.
        OSError: a file can't be read.
        UsageError: pytest can't read the project's configuration.
    """
    from pytest_packbench.runs.report import open_report
    from pytest_packbench.runs.stored import complete_results

    report = open_report(folder)
    results = tuple(complete_results(report.source))
    notes: list[str] = []
    project = _project(report.run, arguments, notes)
    conclusion, baseline = _conclusion(report, results, project, compared, notes)
    return conclusion_page(conclusion, lambda: results, baseline, project, page, folder=folder, notes=notes)


def conclusion_page(
    conclusion: Conclusion,
    results: Callable[[], Iterable[Result]],
    baseline: StoredRun | None,
    project: ProjectOfRun,
    page: Path,
    *,
    folder: Path | None = None,
    notes: Sequence[str] = (),
) -> RunPage:
    """Return what a page shows of a run outside of its session.

    Args:
        conclusion: what the run came to.
        results: returns one for each attempt, with records and payloads.
        baseline: the run that it is compared with; None if there is none.
        project: what the project has of it.
        page: the file of the page.
        folder: the folder of the run; that of the page by default.
        notes: what a reader has to know about the page, a sentence each.
    """
    from pytest_packbench.analysis.trend import like_runs, verdict_rows
    from pytest_packbench.analysis.trials import trials_rule_of
    from pytest_packbench.cases.recordings import hide_prompts, source_texts
    from pytest_packbench.model.pack import can_accept
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.reports.page import baseline_cases, missing_cases, run_page, shown_results, trend_of
    from pytest_packbench.reports.page.case_data import NO_SOURCES, CaseSources, case_blocks, root_link

    run, suite = conclusion.run, project.suite
    like = like_runs((folder or page.parent).parent, run, models=conclusion.statistics.models)
    cases_count = conclusion.statistics.totals.selected
    sources = NO_SOURCES
    if suite is not None and project.pack is not None:
        are_kept = run.settings.get(RECORD_PROMPTS) is not False
        texts = source_texts(suite, project.rootdir)
        sources = CaseSources(*hide_prompts(texts, project.pack, are_kept=are_kept))
    cases = case_blocks(
        shown_results(results, cases_count),
        sources,
        baseline=baseline_cases(conclusion.baseline, baseline),
        history=verdict_rows(like),
        redact=Redactor(os.environ).json,
        run=run.run_id,
        rule=trials_rule_of(run),
        root_link=root_link(project.rootdir.resolve(), page.parent.resolve()),
        options=_rerun_options(run, suite),
        can_accept=suite is None or project.pack is None or can_accept(project.pack, suite.config),
    )
    notes = [*notes, *missing_cases(cases_count)]
    panels = _panels(project.pack, results(), conclusion.figures, notes) if project.is_same else ()
    return run_page(conclusion, results(), cases=cases, trend=trend_of(like), notes=notes, panels=panels)


def write_page(folder: Path, arguments: argparse.Namespace) -> Path:
    """Write the page of a stored run to its folder, and return its path; otherwise as `stored_page`.

    Raises:
        UsageError: the page can't be written, or pytest can't read the project's configuration.
    """
    path = folder / PAGE
    page = stored_page(folder, path, arguments)
    write_file(path, pages_html([page], page.conclusion.run.suite))
    return path


def pages_html(pages: Sequence[RunPage], title: str) -> str:
    """Return runs as one page without secrets of the environment."""
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.reports.page import page_html

    return page_html(pages, title=title, redact=Redactor(os.environ).json)


def _project(run: Run, arguments: argparse.Namespace, notes: list[str]) -> ProjectOfRun:
    rootdir = rootdir_of(arguments)
    try:
        suite, pack = suite_and_pack(run.requested_suite, arguments, by_name=True)
    except (UsageError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        notes.append(f"The suite of this run can't be read, so the texts of its cases are missing: {reason}.")
        return ProjectOfRun(rootdir)
    is_same = (suite.sha256, pack.name, pack.version) == (run.suite_sha256, run.pack, run.pack_version)
    if not is_same:
        notes.append(
            "The scoring rules of the suite or its pack have changed since this run. "
            "Verdict, gates and scores are those of the run."
        )
    return ProjectOfRun(rootdir, suite, pack, is_same)


def _conclusion(
    report: OpenRun, results: Sequence[Result], project: ProjectOfRun, compared: Compared | None, notes: list[str]
) -> tuple[Conclusion, StoredRun | None]:
    """Return what a stored run came to, and the baseline that it is compared with."""
    from pytest_packbench.analysis.conclusion import Conclusion, times_of
    from pytest_packbench.analysis.gates import gate_tally
    from pytest_packbench.analysis.listing import Listing
    from pytest_packbench.analysis.statistics import statistics_of
    from pytest_packbench.analysis.trials import cluster_facet, trials_rule_of

    run, header = report.run, report.header
    listing = Listing()
    tally = gate_tally(
        (), trials_rule=trials_rule_of(run), facet=cluster_facet(run), mode=run.mode, each_case=(listing.add,)
    ).add_all(results)
    statistics = statistics_of(tally, levels=_levels(header))
    own = _stored_outcome(report, results, project, notes) if compared is None else None
    outcome, baseline = (compared.outcome, compared.stored) if compared is not None else own or (None, None)
    overall, counted = header.get("overall"), statistics.overall
    if isinstance(overall, dict) and (overall.get("n"), overall.get("passed")) != (counted.n, counted.passed):
        notes.append(
            f"The report counts {overall.get('passed')} of {overall.get('n')} judged cases as passed, its rows "
            f"{counted.passed} of {counted.n}. This page shows the rows."
        )
    conclusion = Conclusion(
        run=run,
        statistics=statistics,
        gates=_gates(header, report.source),
        page_cases=listing,
        baseline=outcome,
        policy=_policy(header, notes),
        stored_policy=report.policy,
        controls=_controls(report, notes),
        figures=_figures(report, notes),
        stored_status=report.status,
        times=None
        if run.mode == FIXTURE
        else times_of(each.attempt.duration_ms for each in results if each.score.counted),
    )
    if project.is_same and project.suite is not None:
        gates = _with_intervals(conclusion, results, project.suite, baseline)
        unknown = sum(then.judged and now is then for now, then in zip(gates, conclusion.gates, strict=True))
        if unknown:
            notes.append(f"{pluralize(unknown, 'gate')} can't be computed again: shown as decided when the run ended.")
        conclusion = replace(conclusion, gates=gates)
    return conclusion, baseline


def _figures(report: OpenRun, notes: list[str]) -> tuple[Figure, ...]:
    from pytest_packbench.model.metric import Figure

    try:
        return tuple(map(Figure.from_json, report.figures))
    except _MALFORMED:
        notes.append("The figures in the report of this run can't be read.")
        return ()


def _levels(header: Mapping[str, Any]) -> list[int] | None:
    """Return the depths that the report of a run has; None if they are not known."""
    depths = header.get("depth")
    try:
        return [int(depth["level"]) for depth in depths] if depths else None
    except _MALFORMED:
        return None


def _gates(header: Mapping[str, Any], file: str) -> tuple[GateResult, ...]:
    """Return the gates as they were decided.

    Raises:
        StoredRunError: they can't be read, so that it is not known whether they held.
    """
    names = ("metric", "by", "value", "passed", "observed", "min", "max", "text", "proven", "judged", "confidence")
    stored = header.get("gates")
    try:
        if all(_is_gate(gate) for gate in stored or ()):
            return tuple(GateResult(**{name: gate[name] for name in names if name in gate}) for gate in header["gates"])
    except _MALFORMED:
        pass
    raise StoredRunError(f"{file}: /packbench/gates: expected an array of gates, as a run writes them")


def _is_gate(gate: Mapping[str, Any]) -> bool:
    decided = type(gate["passed"]) is bool and type(gate.get("judged", True)) is bool
    decided = decided and type(gate.get("confidence")) in {float, type(None)}
    return decided and isinstance(gate["text"], str)


def _with_intervals(
    conclusion: Conclusion, results: Sequence[Result], suite: Suite, baseline: StoredRun | None
) -> tuple[GateResult, ...]:
    """Return the stored gates; those that the current rules decide alike with their counts and intervals."""
    from pytest_packbench.analysis.gates import check_run
    from pytest_packbench.runs.stored import BaselineLookup

    config = suite.config
    again = check_run(
        conclusion.run,
        results,
        config.all_gates(),
        BaselineLookup(stored=baseline),
        metrics=config.metrics,
        trials_rule=config.trials_rule(),
    )
    computed = {(gate.subject, gate.text, gate.passed): gate for gate in again}
    return tuple(
        computed.get((gate.subject, gate.text, gate.passed), gate) if gate.judged else gate for gate in conclusion.gates
    )


def _controls(report: OpenRun, notes: list[str]) -> ControlTally | None:
    from pytest_packbench.runs.lines import controls_of_report

    try:
        return controls_of_report(Path(report.source).parent, report.run.run_id, report.controls)
    except (StoredRunError, OSError) as error:
        notes.append(f"How the controls ended is not known: {error}.")
        return None


def _policy(header: Mapping[str, Any], notes: list[str]) -> PolicyOutcome | None:
    from pytest_packbench.model.policy import PolicyChange, PolicyOutcome

    stored = header.get("policy_changes")
    if stored is None:
        return None
    try:
        changes = [
            PolicyChange(**{name: change[name] for name in PolicyChange._fields if name in change})
            for change in stored["changes"]
        ]
        return PolicyOutcome(str(stored["base"]), tuple(changes), tuple(stored["problems"]), tuple(stored["notes"]))
    except _MALFORMED:
        notes.append("The changes of the acceptance policy in the report of this run can't be read.")
        return None


def _stored_outcome(
    report: OpenRun, results: Sequence[Result], project: ProjectOfRun, notes: list[str]
) -> tuple[BaselineOutcome, StoredRun | None] | None:
    """Return what came of the comparison when the run ended, and its baseline; None if none was requested."""
    from pytest_packbench.analysis.baseline import BaselineOutcome

    stored = report.header.get("comparison")
    if stored is None:
        return None
    try:
        requested, problem, failed = str(stored["requested"]), str(stored["problem"]), bool(stored["failed"])
        plain = BaselineOutcome(
            requested=requested, problem=problem, optional=bool(stored["optional"]), warning=str(stored["warning"])
        )
        if stored["baseline"] is None:
            return plain, None
        found = _baseline(report, str(stored["baseline"]), project)
        if found is not None:
            again = _compared_again(report, results, found, plain, stored)
            if again is not None:
                return again, found
        about = "has changed since" if found is not None else "is no longer here"
        met = [str(each["condition"]) for each in stored["conditions"] if each["met"]]
        reason = f"; then {', '.join(met)} was met" if met else ""
        problem = problem or f"compared when the run ended with {stored['baseline']}, which {about}{reason}"
    except _MALFORMED:
        notes.append("The comparison in the report of this run can't be read.")
        return None
    return plain._replace(problem=problem, optional=not failed), None


def _baseline(report: OpenRun, run_id: str, project: ProjectOfRun) -> StoredRun | None:
    """Return the baseline of a stored run, if it is beside it, or the committed one; None if it is not."""
    from pytest_packbench.runs.stored import read_run

    paths = [Path(report.source).parent.parent / run_id] if is_run_id(run_id) else []
    paths += [project.suite.path / BASELINE_NAME] if project.suite is not None else []
    for path in paths:
        if not path.exists():
            continue
        try:
            stored = read_run(path)
        except (StoredRunError, OSError):
            continue
        if stored.run.run_id == run_id:
            return stored
    return None


def _compared_again(
    report: OpenRun,
    results: Sequence[Result],
    baseline: StoredRun,
    outcome: BaselineOutcome,
    stored: Mapping[str, Any],
) -> BaselineOutcome | None:
    """Return the comparison with all its cases; None if it is not the one that the report has the figures of."""
    from pytest_packbench.analysis.baseline import baseline_outcome
    from pytest_packbench.analysis.comparison import ComparedRun
    from pytest_packbench.runs.lines import finite_json
    from pytest_packbench.runs.stored import BaselineLookup

    run = report.run
    lookup = BaselineLookup(
        stored=baseline,
        requested=outcome.requested,
        optional=outcome.optional,
        fail_on=", ".join(str(each["condition"]) for each in stored["conditions"]),
        warning=outcome.warning,
    )
    comparison = ComparedRun(run).add_all(results).since(baseline, run)
    scope = "shard" if "shard" in run.settings else "part" if run.partial else "whole"
    again = baseline_outcome(lookup, comparison, scope)
    if again is None or again.problem or outcome.problem:
        return outcome if outcome.problem else None
    figures = finite_json(comparison.figures() if again.comparison is None else again.comparison.figures())
    return again if _same_figures(figures, stored["figures"]) else None


def _same_figures(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    pairs = [(value, other.get(name)) for name, value in one.items()]
    return all(now == then or (None not in {now, then} and abs(now - then) <= TOLERANCE) for now, then in pairs)


def _panels(
    pack: Pack | None, results: Iterable[Result], figures: Sequence[Figure], notes: list[str]
) -> tuple[Panel, ...]:
    from pytest_packbench.model.pack import panels_of

    if pack is None:
        return ()
    try:
        return panels_of(pack, results, figures)
    except (StoredRunError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 - packs are the user's code
        notes.append(f"The pack {pack.name} raised in panels: {describe_error(error)}.")
        return ()


def _rerun_options(run: Run, suite: Suite | None) -> str:
    """Return the options of the command that runs a case again, as in the session, as far as the run has them.

    Args:
        run: the run.
        suite: its suite as it is now, whose own target, model and guards need no option; None if it can't be read.
    """
    mode = ("mode", "" if run.mode == FIXTURE else run.mode)
    if any(name.startswith(TEST_TARGET_PREFIX) for name in run.target.split(_NEXT_TARGET)):
        return pytest_options([mode])
    rules = None if suite is None else suite.config
    model = (run.backend or "", run.model or "")
    if rules is not None and model == (rules.backend or "", rules.model or ""):
        model = ("", "")
    stored = run.settings.get("guards")
    guards = [str(guard) for guard in stored] if isinstance(stored, list) else []
    trials = run.settings.get("trials")
    return pytest_options(
        [
            mode,
            ("target", "" if rules is not None and rules.target == run.target else _target_option(run.target)),
            ("backend", model[0]),
            ("model", model[1]),
            ("guard", _guards_option(guards, () if rules is None else rules.guards)),
            ("trials", str(trials) if isinstance(trials, int) and trials > 1 else ""),
        ]
    )


def _target_option(target: str) -> str:
    """Return a target as its option takes it; empty for one that no option names, and for several of merged runs."""
    names = target.split(_NEXT_TARGET)
    is_one = len(names) == 1 or not all(":" in name for name in names)
    return target if ":" in target and is_one and not target.startswith(HOOK_TARGET_PREFIX) else ""


def _guards_option(guards: Sequence[str], of_suite: Sequence[str]) -> str:
    return "" if guards == list(of_suite) else ",".join(guards) or "none"
