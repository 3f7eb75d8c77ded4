"""One case in one pytest item: held back or attempted, then concluded, decided and reported.

An item that a case file gives and a test of the user's own go the same way; they differ in who makes the attempt.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.files import format_location
from pytest_packbench.engine.attempt import Failure, attempt, user_frames
from pytest_packbench.engine.external_io import TargetError
from pytest_packbench.engine.result_builder import (
    CaseRef,
    Trial,
    build_trial,
    carried_over_trial,
    error_trial,
    not_run_trial,
)
from pytest_packbench.model.errors import describe_error
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.run import TEST_TARGET_PREFIX
from pytest_packbench.model.score import judged
from pytest_packbench.pytest_plugin.explain import explain_error, explain_failure, explanation_at
from pytest_packbench.pytest_plugin.stash import AHEAD, ATTRIBUTE, CONTEXTS, RESUMED, RUN_ID
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import Suite


RUN = "packbench_run"
"""The attribute of an item that holds its case."""

_BROKEN = frozenset({"error", "vacuous"})
_Failed: Any = pytest.fail.Exception


class CaseFailure(Exception):  # noqa: N818 - pytest shows the name: a case failed, nothing broke
    """A case was scored and its score is under its threshold."""


class CaseBroken(_Failed):  # type: ignore[misc]  # pytest gives the class as an attribute of a function only
    """A case could not be scored.

    Without a traceback: it would be ours, and pytest would parse every file in it for each case.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, pytrace=False)


@dataclass(slots=True, kw_only=True, eq=False)
class CaseRun:
    """A case in an item: where it stands, and what its attempts left.

    Attributes:
        item: pytest's item.
        nodeid: what pytest calls the item, without the group that xdist may append.
        suite: the case's suite.
        pack: the suite's pack.
        path: the case file, absolute.
        file: the case file as node ids name it.
        line: the case's line in a file of many, from 1; 0 where the file is the case.
        name: the case's id; what stands in for it where there is none that can be used.
        loaded: the case; None where it can't be read.
        problem: why it can't be run, in one line; empty otherwise.
        kind: the name of that reason.
        own_test: node id of the user's own test function that runs the case; empty where the case's item does.
        results: what the attempts left, one for each trial, once they are over.
        result: the case's verdict over them: the one result where there is one trial.
        explanation: what to show for the verdict where it isn't `passed`.
        told: the result that a report has told of.
        keywords: those of the item's last report.
    """

    item: pytest.Item
    nodeid: str
    suite: Suite
    pack: Pack
    path: Path
    file: str
    line: int
    name: str
    loaded: LoadedCase | None
    problem: str
    kind: str = "case_unreadable"
    own_test: str = ""
    results: tuple[CaseResult, ...] = ()
    result: CaseResult | None = None
    explanation: str = ""
    told: CaseResult | None = None
    keywords: Mapping[str, Any] | None = None

    @property
    def where(self) -> str:
        """Where the case stands, for people: `FILE`, or `FILE:LINE`."""
        return format_location(self.file, self.line)

    @property
    def target(self) -> str:
        """How records name the target where the user's own test is one; empty where the suite has its own."""
        return f"{TEST_TARGET_PREFIX}{self.own_test}" if self.own_test else ""

    def place(self) -> CaseRef:
        """Say for records where the case stands."""
        return place_at(
            self.suite,
            self.pack,
            self.path,
            file=self.file,
            line=self.line,
            name=self.name,
            nodeid=self.nodeid,
            loaded=self.loaded,
        )

    def execute(self) -> None:
        """Attempt and score the case, unless it is held back.

        Raises:
            CaseBroken: there is no score, or the score means nothing.
            pytest.skip.Exception: the case's notes say so, or the run's caps were reached before.
        """
        place = self.place()
        held = self.held_back(place)
        trials = [held] if held is not None else self._attempted(place)
        self.conclude([self.shown_to_hooks(place, one) for one in trials])

    def held_back(self, place: CaseRef) -> Trial | None:
        """Say why the case is not to be run: it can't be, or its notes say so; None where it is."""
        if self.problem or self.loaded is None:
            return error_trial(place, Failure(kind=self.kind, message=self.problem))
        skip = self.loaded.case.notes.skip
        return None if skip is None else not_run_trial(place, "skip", f"quarantined (skip): {skip}")

    def _attempted(self, place: CaseRef) -> list[Trial]:
        stash = self.item.config.stash
        contexts = stash[CONTEXTS]
        kept = {trial: carried_over_trial(result, place) for trial, result in self.kept().items()}
        if len(kept) == contexts.settings.trials:
            return [kept[trial] for trial in sorted(kept)]
        try:
            context = contexts.context(self.suite)
        except TargetError as error:
            details = user_frames(error.__cause__) if error.__cause__ is not None else ()
            return [error_trial(place, Failure(kind="target_missing", message=str(error), details=details))]
        ahead = stash.get(AHEAD, None)
        if ahead is not None:
            return ahead.take(self, kept)
        if self.loaded is None:
            raise ValueError("a case that can't be read is not attempted")
        return [build_trial(place, attempt(context, self.loaded), context, stash[RUN_ID])]

    def kept(self) -> Mapping[int, CaseResult]:
        """Give the results that a resumed run has of the case already, by trial."""
        resumed = self.item.config.stash.get(RESUMED, None)
        if resumed is None or self.problem or self.loaded is None:
            return {}
        return resumed.trials(self.suite, self.name)

    def shown_to_hooks(self, place: CaseRef, one: Trial) -> Trial:
        """Show a trial's record to the users' hooks; one that raises makes the trial an error."""
        # all hooks first: those of the item's own folders take longer to find
        if one.result.record is None or not self.item.config.hook.pytest_packbench_record.get_hookimpls():
            return one
        # what a hook does to its copy changes no file
        shown = EvalRecord.from_json(deepcopy(one.result.record))
        try:
            self.item.ihook.pytest_packbench_record(item=self.item, record=shown)
        except Exception as error:  # noqa: BLE001 - a hook may be anybody's
            message = f"the hook pytest_packbench_record raised {describe_error(error)}"
            failure = Failure(kind="hook_error", message=message, details=user_frames(error))
            return error_trial(place, failure, trial=one.result.trial)
        return one

    def conclude(self, trials: list[Trial]) -> None:
        """Keep the results, and stop where there is nothing to compare.

        Raises:
            CaseBroken: there is no score, or the score means nothing.
            pytest.skip.Exception: the case was not run.
        """
        self.explanation = ""
        self.results = tuple(one.result for one in trials)
        result = self.results[0]
        if len(trials) > 1:
            from pytest_packbench.analysis.trials import fold_case

            result = fold_case(self.results, self.suite.config.trials_rule())
        self.result = result
        if result.verdict == "not_run":
            pytest.skip(printable(result.message))
        if result.verdict in _BROKEN:
            self._stop_broken(trials)
        elif result.verdict == "failed":
            self.explanation = explain_failure(self, trials)

    def decide(self) -> None:
        """Compare score and threshold: nothing where the case passed.

        Raises:
            CaseFailure: the score is under the threshold.
            pytest.xfail.Exception: the case names a hole or is quarantined, or gates alone decide.
        """
        result = self.result
        if result is None:
            raise CaseBroken("the case was not set up")
        # with --runxfail people want to see what xfail hides
        strict = bool(self.item.config.option.runxfail)
        if result.verdict == "known_hole" and not (strict and result.score is not None):
            raise pytest.xfail.Exception(printable(result.message))
        if result.verdict == "passed" if len(self.results) > 1 else _reaches(result):
            return
        line = self.explanation.partition("\n")[0] or printable(result.message)
        if self.item.config.stash[CONTEXTS].settings.gate == "suite" and not strict:
            raise pytest.xfail.Exception(line)
        self.explanation = self.explanation or line
        raise CaseFailure(line)

    def note_trouble(self, error: BaseException) -> None:
        """Take what broke a phase before there was a result: an item leaves that to whoever reads its reports."""

    def explains(self, error: BaseException) -> bool:
        """Whether an exception that ended a phase is one that the explanation tells of."""
        return isinstance(error, CaseFailure | CaseBroken)

    def _stop_broken(self, trials: list[Trial]) -> None:
        for one in trials:
            if one.attempt is not None and one.result.verdict in _BROKEN:
                break
        else:
            # an earlier session scored it
            return
        self.explanation = explain_error(self, one)
        failure = one.attempt.failure
        stop = CaseBroken(printable(one.result.message))
        # a debugger goes to where the user's own code raised
        raise stop.with_traceback(failure.raised.__traceback__) if failure is not None and failure.raised else stop


def run_of(item: pytest.Item) -> CaseRun | None:
    """Give the case of an item; None where the item has none."""
    # an attribute: of many cases, a stash each would take more than the cases
    run: CaseRun | None = getattr(item, RUN, None)
    return run


class Reporter:
    """Completes the reports of cases, in the process that runs them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what a case tells to the report of a phase."""
        run = run_of(item)
        if run is None:
            return (yield)
        error = call.excinfo.value if call.excinfo is not None else None
        is_news = call.when != "teardown" and _has_news(run, error)
        report = yield
        _complete(report, run, None if call.when == "teardown" else error, is_news=is_news)
        return report


def properties(result: CaseResult) -> list[tuple[str, Any]]:
    """Give what JUnit and other reports show of a case beside its outcome."""
    found = {
        "suite": result.suite,
        "case_type": result.case_type,
        "difficulty": result.difficulty,
        "verdict": result.verdict,
        "score": result.score,
        "threshold": result.threshold,
        "match_depth": result.match_depth,
    }
    return [(name, value) for name, value in found.items() if value not in {None, ""}]


def is_of_case(report: pytest.TestReport) -> bool:
    """Whether a report is that of a case: then it bears a case's properties."""
    return "verdict" in dict(report.user_properties)


def pack_report(report: pytest.TestReport) -> None:
    """Make of a report's results what xdist can send: ASCII, for an answer may hold what it can't, a lone surrogate."""
    results = getattr(report, ATTRIBUTE, None)
    if results is not None:
        setattr(report, ATTRIBUTE, json.dumps([result.as_json() for result in results]))


def unpack_report(report: pytest.TestReport) -> None:
    """Make of what xdist has sent a report of this process again."""
    results: object = report.__dict__.get(ATTRIBUTE)
    if isinstance(results, str):
        setattr(report, ATTRIBUTE, tuple(CaseResult.from_json(one) for one in json.loads(results)))
    text = report.longrepr
    if report.failed and isinstance(text, str) and is_of_case(report):
        report.longrepr = explanation_at(report.location, text)  # type: ignore[assignment]  # pytest's own is private


def place_at(
    suite: Suite, pack: Pack, path: Path, *, file: str, line: int, name: str, nodeid: str, loaded: LoadedCase | None
) -> CaseRef:
    """Say for records where a case stands; the arguments are as in `CaseRun`."""
    # as its node id names it, but a bundled one without the machine's own folders
    shown = f"bundled:{suite.name}/{path.relative_to(suite.path).as_posix()}" if suite.bundled else file
    return CaseRef(
        suite=suite,
        pack=pack,
        case_id=name,
        nodeid=nodeid,
        file=format_location(shown, line) if line else shown,
        folder=path.parent.name,
        loaded=loaded,
    )


def _reaches(result: CaseResult) -> bool:
    if result.score is None or result.threshold is None:
        return result.verdict == "passed"
    return judged(result.score, result.threshold) == "passed"


def _has_news(run: CaseRun, error: BaseException | None) -> bool:
    """See whether a phase has brought a result, and let reports show its properties."""
    if error is not None and run.result is None:
        run.note_trouble(error)
    if run.result is None or run.result is run.told:
        return False
    run.told = run.result
    run.item.user_properties.extend(properties(run.result))
    return True


def _complete(report: pytest.TestReport, run: CaseRun, error: BaseException | None, *, is_news: bool) -> None:
    # pytest keeps every report to the end, each with the names of all folders above
    if run.keywords == report.keywords:
        report.keywords = run.keywords
    run.keywords = report.keywords
    if is_news:
        setattr(report, ATTRIBUTE, run.results)
        if not run.own_test and AHEAD in run.item.config.stash:
            # the setup only waited for what ran beside other cases
            report.duration = sum(result.duration_ms for result in run.results) / 1000
    if error is None:
        return
    if run.explanation and run.explains(error):
        text = run.explanation
        # what is no failure has no place to point to
        report.longrepr = explanation_at(report.location, text) if report.failed else text  # type: ignore[assignment]  # as above
    if run.own_test and report.failed and run.result is not None and run.result.verdict in _BROKEN:
        # as for cases from files: all up to the score is setup, and call compares
        report.when = "setup"
