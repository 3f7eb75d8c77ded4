"""One case or control in one pytest item: attempted, scored, compared with its threshold, redacted and reported.

Items of case files, marked tests and controls share this; in a marked test the test itself makes the attempt.
"""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_packbench.cases.finder import CaseLocation, find_case, format_location
from pytest_packbench.cases.load import case_of_control, load_case, load_control
from pytest_packbench.engine.attempt import AttemptState, Failure, attempt, settle_stored
from pytest_packbench.engine.time_limit import timed_out
from pytest_packbench.engine.trial_results import (
    CaseRef,
    Trial,
    build_trial,
    carried_over_trial,
    end_of_control,
    error_trial,
    not_run_trial,
    read_case_ref,
    redacted_trial,
)
from pytest_packbench.files import escape_unprintable
from pytest_packbench.model.errors import CaseError, ControlError, Problem, describe_error, single_spaced, user_frames
from pytest_packbench.model.pack import names_checks
from pytest_packbench.model.record import EvalRecord
from pytest_packbench.model.request import TargetError
from pytest_packbench.model.result import Result, is_broken, judged, reported, timestamp_now, values_of
from pytest_packbench.model.run import TEST_TARGET_PREFIX
from pytest_packbench.plugin import RESULTS_ATTRIBUTE, rootdir_of
from pytest_packbench.pytest_plugin.explain import (
    RERUN,
    Explanation,
    explain_error,
    explain_failure,
    explanation_at,
    path_argument,
    show_difference,
    worst_trial,
)
from pytest_packbench.pytest_plugin.json_report import EXTRA, redact_extra
from pytest_packbench.reports.terminal import control_text, printable

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.pack import Comparison, Pack
    from pytest_packbench.model.recording import Control, ControlResult
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.model.result import Reported, Score
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.collection import ControlFolder
    from pytest_packbench.pytest_plugin.settings import SessionSuites
    from pytest_packbench.runs.journal import Entry


# attributes of every report that contain no text of a case, or are redacted by themselves
_KNOWN = frozenset(
    f"nodeid location keywords outcome longrepr when user_properties sections duration start stop wasxfail "
    f"item_index worker_id testrun_uid node _id {RESULTS_ATTRIBUTE} {EXTRA}".split()
)
_LOG_HANDLERS = ("log_cli_handler", "log_file_handler")


class Secrets:
    """Redacts the reports of cases, in the process that runs them, before any other plugin reads them.

    Args:
        redactor: the run's.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        # what was captured in earlier phases of an item is in its later reports too
        self._section = lru_cache(redactor.text)

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Redact what is logged to the terminal or to a file at once."""
        # later than the constructor, when the plugin exists
        logs = session.config.pluginmanager.getplugin("logging-plugin")
        for handler in [getattr(logs, name) for name in _LOG_HANDLERS if hasattr(logs, name)]:
            handler.addFilter(partial(_redact_log_record, redactor=self._redactor))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Redact a report that all plugins have completed."""
        report = yield
        run = item_run(item)
        if run is None:
            return report
        if report.when == "setup":
            # a target may have loaded keys since
            self._section.cache_clear()
        if report.sections:
            report.sections = [(name, self._section(text)) for name, text in report.sections]
        if report.longrepr is not None:
            report.longrepr = self._redacted(report.longrepr)
        if len(report.user_properties) > run.own_properties:
            report.user_properties = self._redacted(report.user_properties)
        attributes = vars(report)
        if not attributes.keys() <= _KNOWN:
            for name in attributes.keys() - _KNOWN:
                setattr(report, name, self._redacted(attributes[name]))
        extra = getattr(report, EXTRA, None)
        if extra and any(extra.values()):
            redact_extra(extra, report.when, self._redacted)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Redact the report of a collector that failed."""
        report = yield
        if report.failed:
            report.longrepr = self._redacted(report.longrepr)
            report.sections = self._redacted(report.sections)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: Any) -> None:
        """Redact the text of a warning."""
        text = str(warning_message.message)
        redacted = self._redactor.text(text)
        if redacted != text:
            warning_message.message = UserWarning(redacted)

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_json_modifyreport(self, json_report: dict[str, Any]) -> None:
        """Redact what pytest-json-report adds to the reports of cases, such as the environment."""
        for name, value in json_report.items():
            if name != "tests":
                json_report[name] = self._redacted(value)

    def _redacted(self, value: Any) -> Any:
        return _map_texts(value, self._redactor.text)


def _redact_log_record(record: logging.LogRecord, redactor: Redactor) -> bool:
    from pytest_packbench.model.redaction import redact_log_record

    return redact_log_record(record, redactor)


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value with changed texts; pytest's own objects, such as tracebacks, are changed in place."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_map_texts(key, change): _map_texts(item, change) for key, item in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_map_texts(item, change) for item in value)
    if isinstance(value, Explanation):
        return Explanation(change(value.text), replace(value.reprcrash, message=change(value.reprcrash.message)))
    if type(value).__module__.startswith("_pytest._code"):
        for name, item in vars(value).items():
            if name == "lines" and all(isinstance(line, str) for line in item):
                # together: a line break may cut a secret
                changed: Any = change("\n".join(item)).split("\n") if item else item
            else:
                changed = _map_texts(item, change)
            # some are frozen
            object.__setattr__(value, name, changed)
        return value
    if value is not None and not isinstance(value, int | float):
        # reports contain others as text; what their methods raise is no error of the report
        with suppress(Exception, pytest.fail.Exception, pytest.skip.Exception):
            said = str(value)
            if (text := change(said)) != said:
                value = text
    return value


RUN = "packbench_run"
"""The attribute of an item for its case or control."""
CONTROL_KIND = "control"
"""The value of `kind` in the mark of a control, and in its properties."""
_PROPERTIES = ("suite", "case_type", "difficulty", "verdict", "score", "threshold", "match_depth")
_VALUES = values_of(*_PROPERTIES)


class CaseFailure(AssertionError):  # noqa: N818 - tools show the name, and a failed case is not an error
    """The score of a case is below its threshold: an assertion that failed, for tools that read the type."""


class CaseBroken(Exception):  # noqa: N818 - likewise
    """A case could not be scored. It is no assertion: tools such as Allure tell what is broken from what failed."""


# tools show the whole name
CaseFailure.__module__ = CaseBroken.__module__ = "builtins"


@dataclass(slots=True, kw_only=True, eq=False)
class ItemRun:
    """What an item runs, a case or a control, and what its reports show of it.

    Attributes:
        item: pytest's item.
        nodeid: the item's node id, without the group that xdist may append.
        contexts: the session's suites.
        suite: the suite.
        pack: its pack.
        file: the file as in node ids.
        line: the line in a file of many, from 1; 0 if the file has one case or control.
        explanation: the text to show if the item does not pass.
        keywords: the keywords of the item's last report.
        own_properties: the number of properties in its reports that are not the user's.
        attempt_s: the duration of its attempts, seconds, which is reported as that of the test.
    """

    item: pytest.Item
    nodeid: str
    contexts: SessionSuites
    suite: Suite
    pack: Pack
    file: str
    line: int
    explanation: str = ""
    keywords: Mapping[str, Any] | None = None
    own_properties: int = 0
    attempt_s: float = 0.0

    def execute(self) -> None:
        """Make the attempt, in the setup of the item; a problem here is an error."""
        raise NotImplementedError

    def decide(self) -> None:
        """Decide whether the item passes, in its call; a problem here is a failure."""
        raise NotImplementedError

    def new_results(self, when: str, error: BaseException | None) -> tuple[Any, ...]:
        """Return the results that the report of a phase has to carry to the recorder, each once.

        Args:
            when: the phase, `setup` or `call`.
            error: the exception that has ended it.
        """
        raise NotImplementedError

    def explains(self, error: BaseException) -> bool:
        """Whether the explanation is that of an exception that ended a phase."""
        return isinstance(error, CaseFailure | CaseBroken)

    def complete(self, report: pytest.TestReport, error: BaseException | None) -> None:
        """Complete the report of a phase, which `error` has ended: its duration and its explanation."""
        # share equal keywords: pytest keeps all reports, each with the names of all parent folders
        if self.keywords == report.keywords:
            report.keywords = self.keywords
        self.keywords = report.keywords
        self.set_duration(report)
        if error is not None:
            self.explain(report, error)

    def explain(self, report: pytest.TestReport, error: BaseException) -> None:
        """Add the explanation to the report of a phase that an exception has ended."""
        if not self.explains(error) or not (self.explanation or isinstance(error, CaseBroken)):
            return
        text = self.explanation or str(error)
        # only a failure has a location
        report.longrepr = explanation_at(report.location, text) if report.failed else text  # type: ignore[assignment]  # pytest's own is private

    def set_duration(self, report: pytest.TestReport) -> None:
        """Report the attempts as the duration of the test: editors show that of its call only."""
        if report.when == "setup":
            self.attempt_s = self.time_attempts(report.duration)
            report.duration = 0.0 if report.passed else self.attempt_s
        elif report.when == "call":
            report.duration += self.attempt_s

    def time_attempts(self, setup_s: float) -> float:
        """Return how long the attempts took, given how long the setup did, seconds."""
        return setup_s


@dataclass(slots=True, kw_only=True, eq=False)
class CaseRun(ItemRun):
    """A case in an item, and the results of its attempts.

    Attributes:
        path: the case file, absolute.
        name: the case's id, or a substitute if it has no valid one.
        loaded: the case; None if it can't be read.
        problem: why it can't be run, in one line; empty otherwise.
        kind: the kind of that problem.
        test_function: node id of the marked test function that runs the case; empty for the item of a case file.
        context: what the cases of its suite share; collection sets it at its end, but for a marked test.
        results: the results of the attempts, one for each trial, once all have ended.
        result: the result of the case: of its only trial, or of all of them.
        outcome: how pytest has to report that; empty before.
        reported: the result that is in a report already.
        rows: expected against actual values of a failed case.
    """

    path: Path
    name: str
    loaded: LoadedCase | None
    problem: str
    kind: str = "case_unreadable"
    test_function: str = ""
    context: SuiteContext | None = None
    results: tuple[Result, ...] = ()
    result: Result | None = None
    outcome: Reported | Literal[""] = ""
    reported: Result | None = None
    rows: Sequence[Comparison] = ()

    @property
    def where(self) -> str:
        """The case's location for people: `FILE`, or `FILE:LINE`."""
        return format_location(self.file, self.line)

    @property
    def target(self) -> str:
        """The target's name in records if a marked test is the target; empty otherwise."""
        return f"{TEST_TARGET_PREFIX}{self.test_function}" if self.test_function else ""

    def case_ref(self) -> CaseRef:
        """Return the case's identity and location for records."""
        file = record_file(self.suite, self.path, self.file, self.line)
        return CaseRef.at(self.suite, self.pack, self.loaded, case_id=self.name, nodeid=self.nodeid, file=file)

    def execute(self) -> None:
        """Attempt and score the case, once, unless it must not run.

        A plugin may run the item again: then the verdict is the same again.

        Raises:
            CaseBroken: there is no score, or no valid one.
            pytest.skip.Exception: the case is quarantined, or the run has reached a limit.
        """
        if self.result is not None:
            # the plugin may have dropped the report with the result
            self.reported = None
            self._stop_unscored(self.result)
            return
        unattempted = self.unattempted_trial()
        trials = [unattempted] if unattempted is not None else self._attempt()
        self.conclude([self.call_record_hooks(trial) for trial in trials])

    def unattempted_trial(self) -> Trial | None:
        """Return the trial of a case that must not run, with the reason: it is unreadable, or quarantined."""
        if self.problem or self.loaded is None:
            return error_trial(self.case_ref(), Failure(kind=self.kind, message=self.problem))
        skip = self.loaded.case.notes.skip
        return None if skip is None else not_run_trial(self.case_ref(), "skip", f"quarantined (skip): {skip}")

    def _attempt(self) -> list[Trial]:
        contexts, earlier, case_ref = self.contexts, self.earlier(), self.case_ref()
        trials: dict[int, Trial] = {}
        for number, entry in earlier.items():
            if isinstance(entry, Result):
                trials[number] = carried_over_trial(entry, case_ref)
        if len(trials) == contexts.settings.trials:
            return list(trials.values())
        try:
            context = self.open_context()
        except TargetError as error:
            return [error_trial(case_ref, Failure(kind="target_missing", message=str(error)))]
        if self.loaded is None:
            raise ValueError("an unreadable case is not attempted")
        for number in earlier.keys() - trials.keys():
            ended = settle_stored(context, self.loaded, earlier[number])
            trials[number] = journaled_trial(contexts, case_ref, ended, context)
        if contexts.prefetcher is not None:
            return contexts.prefetcher.wait_for_trials(self, trials)
        if not trials:

            def keep() -> None:
                message = str(timed_out("the target", contexts.settings.case_timeout_s or 0))
                contexts.journal(error_trial(case_ref, Failure(kind="timeout", message=message)).result)

            trials[0] = journaled_trial(contexts, case_ref, attempt(context, self.loaded, keep=keep), context)
        return list(trials.values())

    def open_context(self) -> SuiteContext:
        """Return what the cases of the suite share: since collection, but for an item that a plugin adds later.

        Raises:
            TargetError: the target can't be found.
        """
        if self.context is None:
            self.context = self.contexts.context(self.suite)
        return self.context

    def earlier(self) -> dict[int, Entry]:
        """Return what the run that is resumed has of the case by trial, in order: results, and those not scored yet."""
        resumed = self.contexts.resumed
        if resumed is None or self.problem or self.loaded is None:
            return {}
        return dict(sorted(resumed.kept(self.suite, self.name, self.loaded.sha256).items()))

    def call_record_hooks(self, trial: Trial) -> Trial:
        """Call `pytest_packbench_record` with a trial's record; the trial is an error if a hook raises."""
        # `ihook` takes longer than to see that there is no such hook at all
        if trial.result.record is None or not self.item.config.hook.pytest_packbench_record.get_hookimpls():
            return trial
        # a copy: a hook can't change what is written
        record = EvalRecord.from_json(deepcopy(trial.result.record))
        try:
            self.item.ihook.pytest_packbench_record(item=self.item, record=record)
        except Exception as error:  # noqa: BLE001 - hooks are the user's code
            message = f"the hook pytest_packbench_record raised {describe_error(error)}"
            failure = Failure(kind="hook_error", message=message, details=user_frames(error))
            return error_trial(self.case_ref(), failure, trial=trial.result.attempt.trial)
        return trial

    def conclude(self, trials: list[Trial]) -> None:
        """Store the results, and stop if there is no score.

        Raises:
            CaseBroken: there is no score, or no valid one.
            pytest.skip.Exception: the case was not run.
        """
        self.explanation, redactor = "", self.contexts.redactor
        # what has a record has no error
        trials = [trial if trial.result.record is not None else redacted_trial(trial, redactor) for trial in trials]
        result = self.note(*[trial.result for trial in trials])
        if self.outcome == "error":
            mode = self.contexts.settings.mode
            scores = (trial.result.score for trial in trials)
            broken = [is_broken(score.verdict, mode, valid=score.valid) for score in scores]
            trial = trials[broken.index(True)]
            self.explanation = explain_error(self, trial)
            # an earlier session made an attempt that is kept
            self._stop_unscored(trial.result, None if trial.failure is None else trial.failure.raised)
        self._stop_unscored(result)
        if result.score.verdict == "failed":
            self.rows = worst_trial(trials).rows
            self.explanation = explain_failure(self, trials)

    def note(self, *results: Result) -> Result:
        """Note the results of the attempts, what they come to, and how pytest has to report it; return their result."""
        result = results[0]
        if len(results) > 1:
            from pytest_packbench.analysis.counting import fold_case

            result = fold_case(results, self.suite.config.trials_rule())
        reaches = len(results) > 1 or _reaches_threshold(result.score)
        outcome = reported(result.score.verdict, self.contexts.settings.mode, valid=result.score.valid)
        self.outcome = "failed" if outcome == "passed" and not reaches else outcome
        self.results, self.result = results, result
        return result

    def _stop_unscored(self, result: Result, raised: BaseException | None = None) -> None:
        """Stop if a result has no score, where the user's code `raised`: there a debugger stops."""
        if self.outcome == "skipped":
            pytest.skip(_reason(result))
        if self.outcome == "error":
            stop = CaseBroken(printable(result.score.message))
            raise stop.with_traceback(raised.__traceback__) if raised is not None else stop

    def decide(self) -> None:
        """Compare score and threshold.

        Raises:
            CaseFailure: the score is below the threshold.
            pytest.xfail.Exception: the case is a known hole or quarantined, or vacuous in a live run, or only gates
                decide.
        """
        result, outcome = self.result, self.outcome
        if result is None:
            raise CaseBroken("the case was not set up")
        if outcome == "passed":
            return
        # --runxfail shows what xfail hides
        strict = bool(getattr(self.item.config.option, "runxfail", False))
        if outcome == "xfailed":
            if not (strict and result.score.score is not None):
                raise pytest.xfail.Exception(_reason(result))
            if len(self.results) == 1 and _reaches_threshold(result.score):
                return
        line = self.explanation.partition("\n")[0] or _reason(result)
        if self.contexts.settings.gate == "suite" and not strict:
            raise pytest.xfail.Exception(line)
        self.explanation = self.explanation or line
        raise CaseFailure(line)

    def new_results(self, when: str, error: BaseException | None) -> tuple[Any, ...]:  # noqa: ARG002 - others need them
        """Return the results once they are known, and add the properties of the case to its item."""
        if self.result is None or self.result is self.reported:
            return ()
        self.reported = self.result
        added = properties(self.result)
        # those of the user may have no hash
        if any(each not in self.item.user_properties for each in added):
            self.own_properties += len(added)
            self.item.user_properties.extend(added)
        return self.results

    def explain(self, report: pytest.TestReport, error: BaseException) -> None:
        """Add the explanation, for PyCharm and TeamCity as well."""
        ItemRun.explain(self, report, error)
        if self.rows and report.failed and hasattr(self.item.config, "_teamcityReporting"):
            show_difference(self.item, self.rows)

    def time_attempts(self, setup_s: float) -> float:
        """Return how long the attempts took."""
        attempt_s = sum(result.attempt.duration_ms for result in self.results) / 1000
        # with prefetching the setup only waited: the attempts ran in parallel to other cases
        return attempt_s if self.results and self.contexts.prefetcher is not None else max(attempt_s, setup_s)


def _reason(result: Result) -> str:
    """Return the message of a result as one line: pytest's summary has a line for each test."""
    return printable(single_spaced(result.score.message))


def run_of(item: pytest.Item) -> CaseRun | None:
    """Return the case of an item; None if it has none."""
    run = item_run(item)
    return run if isinstance(run, CaseRun) else None


def file_run(item: pytest.Item) -> CaseRun | None:
    """Return the case of an item of a case file; None for others, and for marked tests, which make their attempt."""
    run = run_of(item)
    return run if run is not None and not run.test_function else None


def runs_of(items: Iterable[pytest.Item]) -> list[CaseRun]:
    """Return the cases of items, without those that have none."""
    return [run for item in items if (run := run_of(item)) is not None]


def file_runs(items: Iterable[pytest.Item]) -> list[CaseRun]:
    """Return the cases of items of case files, as `file_run` does."""
    return [run for run in runs_of(items) if not run.test_function]


def item_run(item: pytest.Item) -> ItemRun | None:
    """Return the case or the control of an item; None if it is another test."""
    # an attribute, because a stash per item would take more memory than its case
    run: ItemRun | None = getattr(item, RUN, None)
    return run


class Reporter:
    """Completes the reports of cases and controls, in the process that runs them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the results and the explanation of a case to the report of a phase."""
        run = item_run(item)
        if run is None:
            return (yield)
        is_over = call.when == "teardown"
        error = None if is_over or call.excinfo is None else call.excinfo.value
        results = () if is_over else run.new_results(call.when, error)
        report = yield
        if results:
            setattr(report, RESULTS_ATTRIBUTE, results)
        run.complete(report, error)
        return report


def properties(result: Result) -> list[tuple[str, Any]]:
    """Return the properties of a case for JUnit and other reports."""
    values = zip(_PROPERTIES, _VALUES(result), strict=True)
    return [_property(name, value) for name, value in values if value not in {None, ""}]


# pytest keeps those of each case in three reports
@lru_cache(maxsize=1024, typed=True)
def _property(name: str, value: object) -> tuple[str, Any]:
    return name, value


def is_of_case(report: pytest.TestReport) -> bool:
    """Whether a report is that of a case, by its properties."""
    return "verdict" in dict(report.user_properties)


def journaled_trial(contexts: SessionSuites, case_ref: CaseRef, made: AttemptState, context: SuiteContext) -> Trial:
    """Return the trial of an attempt that was made, whose result is stored at once."""
    trial = build_trial(case_ref, made, context, contexts.run_id)
    contexts.journal(trial.result)
    return trial


def record_file(suite: Suite, path: Path, file: str, line: int) -> str:
    """Return the location of a case for records; the arguments are as in `CaseRun`."""
    # a bundled suite is named without this machine's folders
    location = f"bundled:{suite.record_name}/{path.relative_to(suite.path).as_posix()}" if suite.bundled else file
    # most files have one case
    return format_location(location, line) if line else location


def uncollected_case_ref(contexts: SessionSuites, suite: Suite, nodeid: str, *, file: str, name: str) -> CaseRef:
    """Return the identity and location of a case that this process has not collected; the case is read for it."""
    path = rootdir_of(contexts.config) / file
    location = find_case(str(path), name) or CaseLocation(str(path), name)
    file = record_file(suite, path, file, 0)
    return read_case_ref(suite, contexts.pack_of(suite), location, file=file, nodeid=nodeid)


def _reaches_threshold(score: Score) -> bool:
    if score.score is None or score.threshold is None or score.verdict == "failed":
        return score.verdict == "passed"
    return judged(score.score, score.threshold) == "passed"


class ControlDeviation(CaseFailure):
    """A control did not end as written."""


# tools show the whole name
ControlDeviation.__module__ = "builtins"


@dataclass(slots=True, kw_only=True, eq=False)
class ControlRun(ItemRun):
    """A control in an item.

    Attributes:
        folder: the folder of the suite's controls.
        found: its location.
        result: what it came to; None before it was replayed.
    """

    folder: ControlFolder
    found: CaseLocation
    result: ControlResult | None = None

    def execute(self) -> None:
        """Replay the control, once: a plugin may run the item again.

        Raises:
            CaseBroken: it can't be replayed.
        """
        if self.result is None:
            result, redactor = self._replay(), self.contexts.redactor
            line = result.as_json()
            if redactor.suspects(json.dumps(line)):
                # its file may quote a secret
                result = result.from_line(redactor.json(line))
            self.result = result
            self.item.user_properties += (
                ("suite", self.suite.name),
                ("kind", CONTROL_KIND),
                ("verdict", result.outcome),
            )
            if result.outcome != "as_written":
                path = escape_unprintable(path_argument(self.item.config, self.item.path, self.suite))
                self.explanation = control_text(result, f"{RERUN} pytest {path}::{self.item.name}")
        if self.result.outcome == "broken":
            raise CaseBroken(printable(self.result.message))

    def decide(self) -> None:
        """Compare how the control ended with what its file expects.

        Raises:
            ControlDeviation: it ended otherwise.
        """
        if self.result is not None and self.result.outcome != "as_written":
            raise ControlDeviation(printable(self.result.message))

    def new_results(self, when: str, error: BaseException | None) -> tuple[Any, ...]:
        """Return what the control came to, on the report that tells whether it passes."""
        is_decided = self.result is not None and (when == "call" or error is not None)
        return (self.result,) if is_decided else ()

    def _replay(self) -> ControlResult:
        """Replay the control, and compare its end with what it expects. Never raises for what a file or a pack does."""
        # most suites have no controls
        from pytest_packbench.model.recording import ControlResult

        source = record_file(self.suite, self.item.path, self.file, self.line)
        result = ControlResult(self.suite.name, self.found.name, self.nodeid, source, "broken")
        try:
            control = load_control(self.found, source=source, names_checks=names_checks(self.pack))
            result = result._replace(case=control.case, description=control.description, expected=control.expected)
            case_ref = self._case_of(control, source)
            context = self._context_of(control, source)
            ended = end_of_control(case_ref, control, context, self.contexts.run_id)
            result = result.ended(control.expected, ended.score)
        except ControlError as error:
            result = result._replace(message=single_spaced(self.contexts.redactor.text(str(error))))
        return result._replace(timestamp=timestamp_now())

    def _context_of(self, control: Control, source: str) -> SuiteContext:
        """Return the context that replays a control.

        Raises:
            ControlError: the pack has no target of its own, or none that can be prepared.
        """
        if control.cassette is None:
            return self.contexts.of_results(self.suite, CONTROL_KIND)
        try:
            return self.contexts.of_pack(self.suite)
        except TargetError as error:
            problem = Problem("/cassette", str(error), "give the result as payload instead")
        except Exception as error:  # noqa: BLE001 - a pack, or a hook of the user, may raise anything
            wrong = f"the pack's own target can't be prepared: {describe_error(error)}"
            problem = Problem("/cassette", wrong, "correct the pack or the hook")
        raise ControlError(source, [problem])

    def _case_of(self, control: Control, source: str) -> CaseRef:
        """Return the case of a control.

        Raises:
            ControlError: there is none, or it can't be read.
        """
        location = case_of_control(control, self.folder.cases, source=source)
        try:
            loaded = load_case(location, self.pack.case_model, file=location.path, pack=self.pack.name)
        except CaseError as error:
            wrong = f'the case "{control.case}" can\'t be read: {error.problems[0]}'
            raise ControlError(source, [Problem("/case", wrong, "correct the case")]) from None
        return CaseRef.at(self.suite, self.pack, loaded, case_id=control.case, nodeid=self.nodeid, file=source)
