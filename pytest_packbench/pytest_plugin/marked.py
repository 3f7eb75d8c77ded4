"""Marked tests: `packbench_cases` parametrizes a test with cases, `packbench_check` scores its result."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from pytest_packbench.cases.finder import unknown_suite_message
from pytest_packbench.cases.load import SuiteCase, suite_cases
from pytest_packbench.engine.attempt import AttemptState, Failure, Plain, settle
from pytest_packbench.engine.contexts import shown_path
from pytest_packbench.engine.time_limit import TimeLimit, Watchdog, timed_out
from pytest_packbench.engine.trial_results import Trial, build_trial, error_trial, not_run_trial
from pytest_packbench.model.errors import error_text, single_spaced, user_frames
from pytest_packbench.model.result import UNREADABLE, Score, UnreadAnswer
from pytest_packbench.plugin import CONTEXTS, MARK, SELECTION, rootdir_of
from pytest_packbench.pytest_plugin.case_run import (
    RUN,
    CaseBroken,
    CaseFailure,
    CaseRun,
    run_of,
    runs_of,
    uncollected_case_ref,
)
from pytest_packbench.pytest_plugin.collection import marks_of
from pytest_packbench.pytest_plugin.json_report import plugin_of
from pytest_packbench.pytest_plugin.session import register
from pytest_packbench.pytest_plugin.settings import Selection, SessionSuites, find_named
from pytest_packbench.pytest_plugin.terminal import suite_line
from pytest_packbench.pytest_plugin.xdist import decode_report

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from pytest_packbench.model.suite import Suite


FIXTURE = "packbench_case"
_NAME = "packbench-marked"
_REFUSED = pytest.StashKey[str]()
_FILTERS = ("case_type", "difficulty", "tag")


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Parametrize a marked function with its cases.

    Raises:
        pytest.Collector.CollectError: the mark is invalid; one line names the test.
    """
    try:
        metafunc.parametrize(FIXTURE, _parameters(_cases_for(metafunc)), indirect=True)
    except (MarkError, pytest.UsageError) as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {MARK}: {error}") from None


def add_marked_tests(config: pytest.Config, tests: str, reports: Iterable[pytest.TestReport]) -> None:
    """Add the marked tests that workers selected on xdist's controller, which collects nothing.

    Args:
        config: the controller's.
        tests: the tests that a worker sent, as JSON.
        reports: earlier reports, which the recorder has not seen.
    """
    is_first = CONTEXTS not in config.stash
    try:
        cases = [(_suite_of_mark(config, test["suite"]), test) for test in json.loads(tests)]
    except (MarkError, pytest.UsageError) as error:
        # the suite works in the worker, so that this process has loaded something else
        hint = "define hooks that return packs in the conftest.py of rootdir, or in a plugin"
        pytest.exit(f"packbench: xdist's controller can't use a suite that its workers use: {error}; {hint}", 4)
    recorder: Any = config.pluginmanager.getplugin("packbench-recorder")
    for suite, test in cases:
        nodeid, names = test["nodeid"], {"file": test["file"], "name": test["case_id"]}
        case_ref = partial(uncollected_case_ref, recorder.contexts, suite, nodeid, **names)
        recorder.select(suite, nodeid, case_ref, test["target"])
    # what is new has not seen them
    late = [plugin_of(config)] if is_first else []
    for report in reports:
        decode_report(report)
        for plugin in filter(None, (recorder, *late)):
            plugin.pytest_runtest_logreport(report=report)


class MarkError(ValueError):
    """A mark is invalid; one line with the reason and what to do."""


def _filters_of(mark: pytest.Mark) -> dict[str, Sequence[str]]:
    """Return the allowed values of a mark by `case_type`, `difficulty` and `tag`: a case has to match all of them.

    Raises:
        MarkError: it names no suite, or has an invalid argument.
    """
    values = {name: [value] if isinstance(value, str) else value for name, value in mark.kwargs.items()}
    are_texts = all(
        isinstance(texts, list | tuple) and texts and all(text and isinstance(text, str) for text in texts)
        for texts in (mark.args, *values.values())
    )
    if not are_texts or not values.keys() <= set(_FILTERS):
        arguments = [*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())]
        filters = f"{', '.join(_FILTERS[:-1])} or {_FILTERS[-1]}"
        expected = f"expected names of suites, and {filters} with a string or a list of strings"
        raise MarkError(f"got {MARK}({', '.join(arguments)}); {expected}")
    return values


def _matches(case: SuiteCase, filters: Mapping[str, Sequence[str]]) -> bool:
    """Whether a mark selects a case; an unreadable one is matched only by its folder, so that it is reported."""
    if case.loaded is None:
        return case.folder in filters.get("case_type", (case.folder,))
    model = case.loaded.case
    actual = {"case_type": (model.case_type,), "difficulty": (model.difficulty,), "tag": model.notes.tags}
    return all(any(text in allowed for text in actual[name]) for name, allowed in filters.items())


@dataclass(slots=True, kw_only=True, eq=False)
class MarkedRun(CaseRun):
    """A case in a marked test: the test makes the attempt, and `packbench_check` takes its result.

    Attributes:
        phase: of pytest's protocol: `setup`, `call`, or `over`.
        phase_started_ns: monotonic clock at the start of the phase, nanoseconds.
        calls: the number of calls of the check.
        stop: the exception that the check raised, or that the end of the test has to raise.
        limit: the time limit of the test.
    """

    phase: str = "setup"
    phase_started_ns: int = 0
    calls: int = 0
    stop: BaseException | None = None
    limit: TimeLimit | None = None

    def set_up(self) -> None:
        """Stop a case that must not run.

        Raises:
            CaseBroken: the case can't be run, or a plugin runs the test again.
            pytest.skip.Exception: the case is quarantined, or the run has reached a limit.
        """
        if self.result is not None:
            self.explanation = ""
            raise CaseBroken("the test was run again; each case is attempted once, so turn off what repeats tests")
        self.begin("setup")
        trial = self.unattempted_trial()
        limit, message = self.contexts.clients.ledger.reached_cap()
        if trial is None and limit:
            trial = not_run_trial(self.case_ref(), limit, message)
        if trial is not None:
            self.conclude([trial])

    def begin(self, phase: str) -> None:
        """Enter a phase."""
        self.phase, self.phase_started_ns = phase, time.perf_counter_ns()

    def check(self, result: object) -> Score:
        """Score a result, record it, and compare its score with the threshold.

        Raises:
            CaseFailure: the score is below the threshold.
            CaseBroken: there is no score, or the check was called before.
            pytest.xfail.Exception: the case is a known hole or quarantined, or only gates decide.
        """
        __tracebackhide__ = True
        if self.phase == "over":
            raise CaseBroken("packbench_check was called after the test; call it in the test")
        if self.limit is not None and self.limit.reached:
            self.time_out(None)
        self.calls += 1
        if self.calls > 1:
            message = "packbench_check was called twice; call it once per test"
            trial = error_trial(self.case_ref(), Failure(kind="checked_twice", message=message))
        else:
            trial = self.call_record_hooks(self._score(_attempt_of(result, self.phase_started_ns)))
            self.contexts.count_unreadable(trial.attempt)
        try:
            self.conclude([trial])
            self.decide()
        except (CaseFailure, CaseBroken, pytest.xfail.Exception) as stop:
            self.stop = stop
            # in a fixture pytest would report a failure as an error; `end` raises it after the test
            if self.phase != "setup" or isinstance(stop, CaseBroken):
                raise
        return trial.result.score

    def end(self) -> None:
        """Check that the test called the check, and raise an exception of it that the test has swallowed."""
        if self.calls == 0:
            message = "the test did not call packbench_check(result), so nothing was measured"
            self.conclude([error_trial(self.case_ref(), Failure(kind="never_checked", message=message))])
        if self.stop is not None:
            raise self.stop

    def time_out(self, raised: BaseException | None) -> None:
        """Stop a test whose time was up, whatever it made of that, and also where a result was checked before.

        Args:
            raised: the exception that ended the test; None where it caught that of the limit.

        Raises:
            CaseBroken: always.
        """
        message = str(timed_out("the test", self.contexts.settings.case_timeout_s or 0))
        frames = user_frames(raised) if raised is not None else ()
        # without pytest's own
        own = (number for number, frame in enumerate(frames) if frame.startswith(str(self.item.path)))
        failure = Failure(kind="timeout", message=message, details=frames[next(own, 0) :])
        self.conclude([self._score(AttemptState(started_ns=self.phase_started_ns, failure=failure))])
        raise CaseBroken(message)

    def new_results(self, when: str, error: BaseException | None) -> tuple[Any, ...]:
        """Return the results; an exception of the test or of a fixture, before the check, is one."""
        if error is not None and self.result is None:
            self._note_error(error)
        return CaseRun.new_results(self, when, error)

    def complete(self, report: pytest.TestReport, error: BaseException | None) -> None:
        """Complete the report of a phase: as for case files, everything up to the score is setup."""
        CaseRun.complete(self, report, error)
        if error is not None and report.failed and self.outcome == "error":
            report.when = "setup"

    def set_duration(self, report: pytest.TestReport) -> None:
        """Leave the durations as they are: the test itself makes the attempt."""

    def _note_error(self, error: BaseException) -> None:
        if isinstance(error, pytest.skip.Exception | pytest.xfail.Exception):
            trial = not_run_trial(self.case_ref(), "skipped_elsewhere", self._first_line(error))
        else:
            source = "a fixture" if self.phase == "setup" else "the test"
            message = f"{source} raised {type(error).__name__} before the check: {self._first_line(error)}"
            failure = Failure(kind="target_error", message=message, details=user_frames(error))
            trial = self._score(AttemptState(started_ns=self.phase_started_ns, failure=failure))
        self.note(trial.result)

    def explains(self, error: BaseException) -> bool:
        """Whether the explanation is that of an exception that ended a phase."""
        return error is self.stop or isinstance(error, CaseBroken)

    def _first_line(self, error: BaseException) -> str:
        # redacted first: a secret may have several lines
        return _first_line(self.contexts.redactor.text(_message(error)))

    def _score(self, attempt: AttemptState) -> Trial:
        if self.loaded is None:
            raise ValueError("an unreadable case has no result")
        attempt.stop_clock()
        context = self.contexts.of_results(self.suite, self.target)
        return build_trial(self.case_ref(), settle(context, self.loaded, attempt), context, self.contexts.run_id)


class MarkedTests:
    """The hooks of marked tests, registered in the processes that run them.

    Attributes:
        contexts: the session's suites.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.contexts: SessionSuites = config.stash[CONTEXTS]
        self._shown_path = partial(shown_path, root=rootdir_of(config))
        self._cases: dict[str, tuple[SuiteCase, ...]] = {}

    def cases_of(self, suite: Suite, filters: Mapping[str, Sequence[str]]) -> list[SuiteCase]:
        """Return the cases of a suite that a mark selects; each suite is read once per session.

        Raises:
            MarkError: the suite has no such case, or a rule that no case uses.
        """
        if suite.name not in self._cases:
            cases = suite_cases(suite, self.contexts.pack_of(suite), self._shown_path)
            if unused := self.contexts.unused_rules(suite, [case.loaded for case in cases]):
                raise MarkError("; ".join(unused))
            self._cases[suite.name] = cases
        matching = [case for case in self._cases[suite.name] if _matches(case, filters)]
        if not matching:
            listed = ", ".join(f"{key} {' or '.join(values)}" for key, values in filters.items())
            raise MarkError(f'suite "{suite.name}" has no case{f" with {listed}" if listed else ""}')
        shard = self.contexts.settings.shard
        return [case for case in matching if shard is None or case.at.written_id in shard]

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Attach the case to a marked test, which has it as a parameter."""
        case = getattr(getattr(item, "callspec", None), "params", {}).get(FIXTURE)
        if isinstance(case, SuiteCase):
            setattr(item, RUN, _run_for(item, case))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Turn a case that is selected twice into errors that name each other: a run measures each case once."""
        first: dict[tuple[Path, str], CaseRun] = {}
        # items of case files first: their own duplicates have an error already
        for run in sorted(runs_of(session.items), key=lambda run: bool(run.test_function)):
            other = first.setdefault((run.path, run.name), run)
            if other is run or not run.test_function:
                continue
            for duplicate, twin in ((run, other), (other, run)):
                if not duplicate.problem:
                    duplicate.problem = (
                        f"the case is run twice, by {duplicate.nodeid} and by {twin.nodeid}; "
                        "select one of them, or run pytest for each"
                    )
                    duplicate.kind = "case_twice" if duplicate.test_function else duplicate.kind

    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        """List the suites of marked tests, which were not known when the header was written."""
        mode, suites = self.contexts.settings.mode, self.contexts.suites
        counts = Counter(run.suite.name for item in items if isinstance(run := run_of(item), MarkedRun))
        return [f"{suite_line(suites[name], mode)}, run by {count} marked tests" for name, count in counts.items()]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Stop a case that must not run before any fixture is set up."""
        run = run_of(item)
        if isinstance(run, MarkedRun):
            run.set_up()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Let the test make the attempt."""
        run = run_of(item)
        if not isinstance(run, MarkedRun):
            return (yield)
        run.begin("call")
        run.limit = limit = TimeLimit(self.contexts.settings.case_timeout_s)
        result, raised = None, None
        try:
            with limit:
                result = yield
        except BaseException as error:
            raised = error
            if not limit.reached:
                raise
        finally:
            limit.stop()
            # fixtures may take as long as they like to end
            Watchdog.cancel()
            run.phase = "over"
        if limit.reached:
            run.time_out(raised)
        run.end()
        return result


def _run_for(item: pytest.Item, case: SuiteCase) -> MarkedRun:
    parent = item.parent.nodeid if item.parent is not None else ""
    return MarkedRun(
        item=item,
        nodeid=item.nodeid,
        contexts=item.config.stash[CONTEXTS],
        suite=case.suite,
        pack=case.pack,
        path=Path(case.at.path),
        file=case.file,
        line=case.at.line,
        name=case.at.name,
        loaded=case.loaded,
        problem=case.problem,
        test_function=f"{parent}::{getattr(item, 'originalname', item.name)}",
    )


def _cases_for(metafunc: pytest.Metafunc) -> list[SuiteCase]:
    """Return a function's cases, in the order of suites and files."""
    if FIXTURE not in metafunc.fixturenames:
        raise MarkError("the test does not use the fixture packbench_check, which scores its result; add it")
    cases: dict[tuple[str, str], SuiteCase] = {}
    for mark in metafunc.definition.iter_markers(MARK):
        filters = _filters_of(mark)
        suites = [_suite_of_mark(metafunc.config, name) for name in dict.fromkeys(mark.args)]
        _check_settings(metafunc.config)
        for suite in suites:
            for case in _tests_of(metafunc.config).cases_of(suite, filters):
                cases.setdefault((case.at.path, case.at.name), case)
    return sorted(cases.values(), key=lambda case: (case.suite.name, case.at.path, case.at.line))


def _parameters(cases: Sequence[SuiteCase]) -> list[object]:
    """Return pytest's parameters for cases, with ids and the marks for `-m`.

    The id of a parameter is that of the case, after the suite's name if there are several suites, and after the folder
    if the suite has the id twice.
    """
    several = len({case.suite.name for case in cases}) > 1
    times = Counter((case.suite.name, case.at.name) for case in cases)
    parameters: list[object] = []
    for case in cases:
        twice = times[case.suite.name, case.at.name] > 1
        parts = (case.suite.name if several else "", case.folder if twice else "", case.at.name)
        marks = list(marks_of(case.suite, case.loaded))
        parameters.append(pytest.param(case, id="-".join(part for part in parts if part), marks=marks))
    return parameters


def _suite_of_mark(config: pytest.Config, name: str) -> Suite:
    """Return a suite that a mark names, and register the session's plugins if it is the first.

    Raises:
        MarkError: the suite does not exist.
        pytest.UsageError: the suite or a setting can't be used.
    """
    if CONTEXTS in config.stash and name in config.stash[CONTEXTS].suites:
        return config.stash[CONTEXTS].suites[name]
    if SELECTION not in config.stash:
        config.stash[SELECTION] = Selection(named=(), suites=())
    root, known = find_named(config)
    if name not in known:
        raise MarkError(unknown_suite_message(name, known, root))
    if _REFUSED in config.stash:
        raise pytest.UsageError(config.stash[_REFUSED])
    if CONTEXTS not in config.stash:
        try:
            register(config, collecting=True)
        except pytest.UsageError as error:
            # a partial registration is not repeated: the next mark gets the same error
            config.stash[_REFUSED] = str(error)
            raise
    return config.stash[CONTEXTS].join(known[name])


def _tests_of(config: pytest.Config) -> MarkedTests:
    tests: MarkedTests | None = config.pluginmanager.getplugin(_NAME)
    if tests is None:
        tests = MarkedTests(config)
        config.pluginmanager.register(tests, _NAME)
    return tests


def _check_settings(config: pytest.Config) -> None:
    settings = config.stash[CONTEXTS].settings
    if settings.trials > 1:
        raise MarkError(f"--packbench-trials: got {settings.trials}; a marked test runs each case once")
    if settings.mode == "record":
        raise MarkError(
            "--packbench-mode=record: a marked test calls its model itself, so that nothing can be recorded; use live"
        )


def _attempt_of(result: object, started_ns: int) -> AttemptState:
    attempt = AttemptState(started_ns=started_ns)
    try:
        dumped = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
        attempt.payload, attempt.text, attempt.not_json = Plain.of(dumped)
    except ValueError as error:
        attempt.unread = UnreadAnswer(
            UNREADABLE, f"the result is not JSON: {_first_line(_message(error))}", by_form=True
        )
    return attempt


def _message(error: BaseException) -> str:
    return error_text(error).strip() or type(error).__name__


def _first_line(text: str) -> str:
    return single_spaced(text.splitlines()[0])
