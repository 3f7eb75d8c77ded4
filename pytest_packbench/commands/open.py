"""`packbench open`: open the page of a run in a browser; it is made from the stored files where it is missing.

What the report of a run decided is shown as it was stored.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from pytest_packbench.cli import FINE, UsageError
from pytest_packbench.commands.paths import add_output, add_packs, add_root, rootdir_of, suite_and_pack, write_file
from pytest_packbench.model.errors import describe_error
from pytest_packbench.model.gate import GateResult
from pytest_packbench.model.result import adapter
from pytest_packbench.model.run import HOOK_TARGET_PREFIX, RECORD_PROMPTS, TEST_TARGET_PREFIX, pytest_options
from pytest_packbench.model.score import FIXTURE, TOLERANCE
from pytest_packbench.runs.folder import (
    COMMITTED,
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

    from pytest_packbench.analysis.changes import BaselineOutcome
    from pytest_packbench.analysis.conclusion import Conclusion, Scope
    from pytest_packbench.model.control import ControlTally
    from pytest_packbench.model.metric import Figure, Panel
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.policy import PolicyOutcome
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.run import Run
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.reports.page import RunPage
    from pytest_packbench.runs.reading import StoredRun
    from pytest_packbench.runs.stored import BaselineLookup

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
        arguments: of the command, with the options of `add_root` and `add_packs`.
        outcome: the comparison to show; None for that of the run.

    Raises:
        StoredRunError: a file of the run can't be read.
        OSError: a file can't be read.
        UsageError: pytest can't read the project's configuration.
    """
    from pytest_packbench.analysis.conclusion import conclude

    results = tuple(report.results)
    run, notes = report.run, list[str]()
    project = _project(run, arguments, notes)
    earlier = _earlier(report, project.suite, notes) if outcome is None else None
    scope: Scope = "shard" if "shard" in run.settings else "part" if run.partial else "whole"
    counted = conclude(run, results, levels=_levels(report.header), earlier=earlier, scope=scope)
    if earlier is not None:
        outcome = _as_stored(counted.baseline, report.header["comparison"])
    conclusion = replace(
        counted,
        gates=_gates(report.header, report.source),
        baseline=outcome,
        policy=_policy(report.header, notes),
        stored_policy=report.policy,
        controls=_controls(report, notes),
        figures=_figures(report, notes),
        stored_status=report.status,
    )
    overall, n, passed = report.header.get("overall"), counted.statistics.overall.n, counted.statistics.overall.passed
    if isinstance(overall, dict) and (overall.get("n"), overall.get("passed")) != (n, passed):
        notes.append(
            f"The report counts {overall.get('passed')} of {overall.get('n')} judged cases as passed, its rows "
            f"{passed} of {n}. This page shows the rows."
        )
    return project_page(conclusion, lambda: results, project, page, folder=Path(report.source).parent, notes=notes)


def project_page(
    conclusion: Conclusion,
    results: Callable[[], Iterable[Result]],
    project: ProjectOfRun,
    page: Path,
    *,
    folder: Path | None = None,
    notes: Sequence[str] = (),
) -> RunPage:
    """Return what a page shows of a run outside of its session.

    Args:
        conclusion: what the run came to.
        results: as in `page_of_run`.
        project: what the project has of it.
        page: the file of the page.
        folder: the folder of the run; that of the page by default.
        notes: what a reader has to know about the page, a sentence each.
    """
    from pytest_packbench.cases.recordings import hide_prompts, source_texts
    from pytest_packbench.model.pack import can_accept
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.reports.page import page_of_run
    from pytest_packbench.reports.page.case_data import NO_SOURCES, CaseSources, root_link

    (rootdir, suite, pack, is_same), run, sources = project, conclusion.run, NO_SOURCES
    if suite is not None and pack is not None:
        are_kept = run.settings.get(RECORD_PROMPTS) is not False
        sources = CaseSources(*hide_prompts(source_texts(suite, rootdir), pack, are_kept=are_kept))
    notes = [*notes]
    panels = _panels(pack, results(), conclusion.figures, notes) if is_same else ()
    return page_of_run(
        conclusion,
        results,
        folder=folder or page.parent,
        sources=sources,
        redact=Redactor(os.environ).json,
        root_link=root_link(rootdir.resolve(), page.parent.resolve()),
        options=_rerun_options(run, suite),
        can_accept=suite is None or pack is None or can_accept(pack, suite.config),
        notes=notes,
        panels=panels,
    )


def write_page(folder: Path, arguments: argparse.Namespace) -> Path:
    """Write the page of a stored run to its folder, and return its path; otherwise as `stored_page`.

    Raises:
        StoredRunError: the run did not end, or a file of it can't be read.
        UsageError: the page can't be written, or pytest can't read the project's configuration.
    """
    from pytest_packbench.runs.reading import open_run

    path = folder / PAGE
    page = stored_page(open_run(folder, complete=True), path, arguments)
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


def _figures(report: StoredRun, notes: list[str]) -> tuple[Figure, ...]:
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


def _gates(header: Mapping[str, Any], file: str) -> list[GateResult]:
    """Return the gates as they were decided.

    Raises:
        StoredRunError: they can't be read, so that it is not known whether they held.
    """
    try:
        # JSON has no tuples
        stored = json.dumps(header.get("gates"))
        gates: list[GateResult] = adapter(list[GateResult]).validate_json(stored, strict=True)
    except ValidationError:
        raise StoredRunError(f"{file}: /packbench/gates: expected an array of gates, as a run writes them") from None
    return gates


def _controls(report: StoredRun, notes: list[str]) -> ControlTally | None:
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


def _earlier(report: StoredRun, suite: Suite | None, notes: list[str]) -> BaselineLookup | None:
    """Return the baseline of a stored run, or why it can't be shown; None if none was requested."""
    from pytest_packbench.analysis.changes import FIGURES, parse_conditions
    from pytest_packbench.runs.stored import BaselineLookup

    stored = report.header.get("comparison")
    if stored is None:
        return None
    try:
        lookup = BaselineLookup(
            reason=str(stored["problem"]),
            requested=str(stored["requested"]),
            optional=bool(stored["optional"]),
            fail_on=", ".join(str(each["condition"]) for each in stored["conditions"]),
            warning=str(stored["warning"]),
        )
        if lookup.fail_on:
            parse_conditions(lookup.fail_on, FIGURES)
        if lookup.reason or stored["baseline"] is None:
            return lookup
        found = _baseline(report, str(stored["baseline"]), suite)
        if found is not None:
            return replace(lookup, stored=found)
        return replace(lookup, reason=_lost(stored, "is no longer here"), optional=not stored["failed"])
    except _MALFORMED:
        notes.append("The comparison in the report of this run can't be read.")
        return None


def _lost(stored: Mapping[str, Any], why: str) -> str:
    """Return why a comparison can't be shown, and what it came to when the run ended."""
    met = [str(each["condition"]) for each in stored["conditions"] if each["met"]]
    reason = f"; then {', '.join(met)} was met" if met else ""
    return f"compared when the run ended with {stored['baseline']}, which {why}{reason}"


def _as_stored(outcome: BaselineOutcome | None, stored: Mapping[str, Any]) -> BaselineOutcome | None:
    """Return a comparison, without its cases if it is not the one that the report has the figures of."""
    from pytest_packbench.runs.lines import finite_json

    if outcome is None or outcome.comparison is None:
        return outcome
    now, then = finite_json(outcome.comparison.figures()), stored["figures"]
    pairs = [(value, then.get(name)) for name, value in now.items()]
    if not outcome.problem and all(
        new == old or (None not in {new, old} and abs(new - old) <= TOLERANCE) for new, old in pairs
    ):
        return outcome
    problem = _lost(stored, "has changed since")
    return outcome._replace(comparison=None, problem=problem, optional=not stored["failed"])


def _baseline(report: StoredRun, run_id: str, suite: Suite | None) -> StoredRun | None:
    """Return the baseline of a stored run, if it is beside it, or the committed one; None if it is not."""
    from pytest_packbench.runs.stored import BaselineRequest, find_baseline

    committed = Path(report.source) if suite is None else suite.baseline_path
    request = BaselineRequest(name=COMMITTED, folder=Path(report.source).parent, run=report.run, committed=committed)
    names = [*[run_id] * is_run_id(run_id), *[COMMITTED] * (suite is not None)]
    found = (find_baseline(request._replace(name=name)).stored for name in names)
    return next((stored for stored in found if stored is not None and stored.run.run_id == run_id), None)


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
