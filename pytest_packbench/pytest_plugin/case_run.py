"""One case in one pytest item: held back or attempted, then concluded, then decided.

An item that a case file gives and a test of the user's own go the same way; they differ in who makes the attempt.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.files import located
from pytest_packbench.engine.attempt import attempt, frames
from pytest_packbench.engine.context import Failure
from pytest_packbench.engine.results import Place
from pytest_packbench.engine.targets import TargetError
from pytest_packbench.engine.trial import Trial, broken_trial, idle_trial, kept_trial, trial_of
from pytest_packbench.model.errors import said
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.run import OWN_TEST
from pytest_packbench.model.score import judged
from pytest_packbench.pytest_plugin.explain import explain_error, explain_failure
from pytest_packbench.pytest_plugin.stash import AHEAD, BENCHES, RESUMED, RUN_ID
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import CaseResult
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
        return located(self.file, self.line)

    @property
    def target(self) -> str:
        """How records name the target where the user's own test is one; empty where the suite has its own."""
        return f"{OWN_TEST}{self.own_test}" if self.own_test else ""

    def place(self) -> Place:
        """Say for records where the case stands."""
        file = shown_file(self.suite, self.path, self.file)
        return Place(
            suite=self.suite,
            pack=self.pack,
            case_id=self.name,
            nodeid=self.nodeid,
            file=located(file, self.line) if self.line else file,
            folder=self.path.parent.name,
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

    def held_back(self, place: Place) -> Trial | None:
        """Say why the case is not to be run: it can't be, or its notes say so; None where it is."""
        if self.problem or self.loaded is None:
            return broken_trial(place, Failure(kind=self.kind, message=self.problem))
        skip = self.loaded.case.notes.skip
        return None if skip is None else idle_trial(place, "skip", f"quarantined (skip): {skip}")

    def _attempted(self, place: Place) -> list[Trial]:
        stash = self.item.config.stash
        benches = stash[BENCHES]
        kept = {trial: kept_trial(result, place) for trial, result in self.kept().items()}
        if len(kept) == benches.settings.trials:
            return [kept[trial] for trial in sorted(kept)]
        try:
            bench = benches.context(self.suite)
        except TargetError as error:
            details = frames(error.__cause__) if error.__cause__ is not None else ()
            return [broken_trial(place, Failure(kind="target_missing", message=str(error), details=details))]
        ahead = stash.get(AHEAD, None)
        if ahead is not None:
            return ahead.take(self, kept)
        if self.loaded is None:
            raise ValueError("a case that can't be read is not attempted")
        return [trial_of(place, attempt(bench, self.loaded), bench, stash[RUN_ID])]

    def kept(self) -> Mapping[int, CaseResult]:
        """Give the results that a resumed run has of the case already, by trial."""
        resumed = self.item.config.stash.get(RESUMED, None)
        if resumed is None or self.problem or self.loaded is None:
            return {}
        return resumed.trials(self.suite, self.name)

    def shown_to_hooks(self, place: Place, one: Trial) -> Trial:
        """Show a trial's record to the users' hooks; one that raises makes the trial an error."""
        # all hooks first: those of the item's own folders take longer to find
        if one.result.record is None or not self.item.config.hook.pytest_packbench_record.get_hookimpls():
            return one
        # what a hook does to its copy changes no file
        shown = EvalRecord.from_json(deepcopy(one.result.record))
        try:
            self.item.ihook.pytest_packbench_record(item=self.item, record=shown)
        except Exception as error:  # noqa: BLE001 - a hook may be anybody's
            message = f"the hook pytest_packbench_record raised {said(error)}"
            failure = Failure(kind="hook_error", message=message, details=frames(error))
            return broken_trial(place, failure, trial=one.result.trial)
        return one

    def conclude(self, trials: list[Trial]) -> None:
        """Keep the results, and stop where there is nothing to compare.

        Raises:
            CaseBroken: there is no score, or the score means nothing.
            pytest.skip.Exception: the case was not run.
        """
        self.explanation = ""
        self.results = tuple(one.result for one in trials)
        self.result = result = self.results[0] if len(trials) == 1 else self._folded()
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
        if self.item.config.stash[BENCHES].settings.gate == "suite" and not strict:
            raise pytest.xfail.Exception(line)
        self.explanation = self.explanation or line
        raise CaseFailure(line)

    def note_trouble(self, error: BaseException) -> None:
        """Take what broke a phase before there was a result: an item leaves that to whoever reads its reports."""

    def explains(self, error: BaseException) -> bool:
        """Whether an exception that ended a phase is one that the explanation tells of."""
        return isinstance(error, CaseFailure | CaseBroken)

    def _folded(self) -> CaseResult:
        from pytest_packbench.analysis.trials import folded_case

        return folded_case(self.results, self.suite.config.trials_rule())

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


def shown_file(suite: Suite, path: Path, nodeid: str) -> str:
    """Name a case file in records: as its node id does, but a bundled one without the machine's own folders."""
    if not suite.bundled:
        return nodeid
    return f"bundled:{suite.name}/{path.relative_to(suite.path).as_posix()}"


def _reaches(result: CaseResult) -> bool:
    if result.score is None or result.threshold is None:
        return result.verdict == "passed"
    return judged(result.score, result.threshold) == "passed"
