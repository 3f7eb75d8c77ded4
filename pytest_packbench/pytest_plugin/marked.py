"""Tests of the user's own on cases: the mark `packbench_cases` brings the cases, `packbench_check` scores a result."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from pytest_packbench.cases.suites import SuiteCase, find_suites, suite_cases
from pytest_packbench.engine.attempt import Attempt, Failure, settle, user_frames
from pytest_packbench.engine.contexts import SuiteContext, shown_path
from pytest_packbench.engine.result_builder import Trial, build_trial, error_trial, not_run_trial
from pytest_packbench.model.errors import error_text
from pytest_packbench.plugin import ASKED, MARK
from pytest_packbench.pytest_plugin.case_run import RUN, CaseBroken, CaseFailure, CaseRun, run_of, unpack_report
from pytest_packbench.pytest_plugin.collection import marks_of
from pytest_packbench.pytest_plugin.jsonreport import switch_on_late
from pytest_packbench.pytest_plugin.selection import Asked, suites_root, unknown
from pytest_packbench.pytest_plugin.session import register
from pytest_packbench.pytest_plugin.stash import CONTEXTS, RUN_ID
from pytest_packbench.pytest_plugin.xdist import late_place

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.request import VerifyRequest
    from pytest_packbench.model.score import Score
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.recorder import Recorder
    from pytest_packbench.pytest_plugin.suites import SessionSuites


FIXTURE = "packbench_case"
_TESTS: pytest.StashKey[MarkedTests] = pytest.StashKey()
_REFUSED = pytest.StashKey[str]()
_FILTERS = ("case_type", "difficulty", "tag")


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a marked function its cases.

    Raises:
        pytest.Collector.CollectError: the mark can't be used; one line names the test.
    """
    try:
        cases, several = _cases_for(metafunc)
        metafunc.parametrize(FIXTURE, _parameters(cases, several=several), indirect=True)
    except (MarkError, pytest.UsageError) as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {MARK}: {error}") from None


def learn(config: pytest.Config, told: str, reports: Iterable[pytest.TestReport]) -> None:
    """Learn on xdist's controller what only workers have collected.

    Args:
        config: the controller's.
        told: what a worker told of its marked tests.
        reports: those that came before anybody listened, to be looked at now.
    """
    unheard = CONTEXTS not in config.stash
    try:
        cases = [(_join(config, one["suite"]), one) for one in json.loads(told)]
    except (MarkError, pytest.UsageError) as error:
        # a worker could use the suite, so what differs is what this process has loaded
        hint = "hooks that name packs have to stand in the conftest.py of rootdir, or in a plugin"
        pytest.exit(f"packbench: xdist's controller can't use a suite that its workers use: {error}; {hint}", 4)
    recorder = _recorder_of(config)
    if recorder is None:
        raise RuntimeError("a controller keeps a recorder")
    for suite, one in cases:
        pack = recorder.contexts.pack_of(suite)
        path = config.rootpath / one["file"]
        named = {"file": one["file"], "name": one["case_id"], "nodeid": one["nodeid"]}
        place = partial(late_place, suite, pack, path, **named)
        recorder.select(suite.name, one["nodeid"], place, one["target"])
    for report in reports:
        if unheard:
            unpack_report(report)
            for plugin in (recorder, getattr(config, "_json_report", None)):
                if plugin is not None:
                    plugin.pytest_runtest_logreport(report=report)
        else:
            recorder.pytest_runtest_logreport(report)


def check_of(item: pytest.Item) -> Callable[[object], Score]:
    """Give the check of a marked test."""
    run = _marked(item)

    def packbench_check(result: object) -> Score:
        __tracebackhide__ = True
        return run.check(result)

    return packbench_check


def request_of(item: pytest.Item) -> VerifyRequest:
    """Give what the pack would ask a target for a marked test's case."""
    run = _marked(item)
    if run.loaded is None:
        raise CaseBroken(run.problem)
    return run.pack.request(run.loaded.case)


class MarkError(ValueError):
    """A mark can't be used; one line says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What one mark asks for.

    Attributes:
        suites: names of suites, in the mark's order.
        wanted: allowed values by `case_type`, `difficulty` and `tag`; a case has to fit all that are named.
    """

    suites: tuple[str, ...]
    wanted: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, mark: pytest.Mark) -> Asking:
        """Read a mark.

        Raises:
            MarkError: it names no suite, or says something that no mark can.
        """
        if not mark.args or not all(isinstance(name, str) and name for name in mark.args):
            raise MarkError(f"got {_called(mark)}; expected names of suites, each a text")
        wanted = {}
        for name, value in mark.kwargs.items():
            values = (value,) if isinstance(value, str) else value
            if name not in _FILTERS:
                raise MarkError(f'got {_called(mark)}; "{name}" is no filter: expected {", ".join(_FILTERS)}')
            if not isinstance(values, list | tuple) or not values or not all(isinstance(one, str) for one in values):
                raise MarkError(f"got {_called(mark)}; expected a text for {name}, or a list of texts")
            wanted[name] = tuple(values)
        return cls(suites=tuple(dict.fromkeys(mark.args)), wanted=wanted)

    def fits(self, case: SuiteCase) -> bool:
        """Whether a case is asked for; one that can't be read is judged by its folder alone, so that it is not lost."""
        if case.loaded is None:
            return case.folder in self.wanted.get("case_type", (case.folder,))
        model = case.loaded.case
        has = {"case_type": (model.case_type,), "difficulty": (model.difficulty,), "tag": model.notes.tags}
        return all(any(one in values for one in has[name]) for name, values in self.wanted.items())


@dataclass(slots=True, kw_only=True, eq=False)
class MarkedRun(CaseRun):
    """A case in a test of the user's own: the test makes the attempt, the check takes its result.

    Attributes:
        tests: the session's.
        phase: of pytest's protocol: `setup`, `call`, or `over`.
        begun: monotonic clock at the start of the phase, nanoseconds.
        calls: how often the check was called.
        stop: what the check raised or has still to raise.
    """

    tests: MarkedTests
    phase: str = "setup"
    begun: int = 0
    calls: int = 0
    stop: BaseException | None = None

    def set_up(self) -> None:
        """Forget what an earlier run of the item left; stop a case that can't be run, or is not to be.

        Raises:
            CaseBroken: it can't be.
            pytest.skip.Exception: the case's notes say so, or the run's caps were reached before.
        """
        self.results, self.result, self.explanation = (), None, ""
        self.calls, self.stop = 0, None
        self.begin("setup")
        place = self.place()
        held = self.held_back(place)
        capped, message = self.tests.contexts.clients.ledger.exhausted()
        if held is None and capped:
            held = not_run_trial(place, capped, message)
        if held is not None:
            self.conclude([held])

    def begin(self, phase: str) -> None:
        """Enter a phase."""
        self.phase, self.begun = phase, time.perf_counter_ns()

    def check(self, result: object) -> Score:
        """Score a result, record it, and assert.

        Raises:
            CaseFailure: the score is under the threshold.
            CaseBroken: there is no score, or the check was called before.
            pytest.xfail.Exception: the case names a hole or is quarantined, or gates alone decide.
        """
        __tracebackhide__ = True
        if self.phase == "over":
            raise CaseBroken("packbench_check was called after its test had ended; call it in the test")
        self.calls += 1
        place = self.place()
        if self.calls > 1:
            message = "packbench_check was called twice; a test checks its case once"
            one = error_trial(place, Failure(kind="checked_twice", message=message))
        else:
            one = self.shown_to_hooks(place, self._settled(_state_of(result, self.begun)))
        try:
            self.conclude([one])
            self.decide()
        except (CaseFailure, CaseBroken, pytest.xfail.Exception) as stop:
            self.stop = stop
            # in a fixture it would be an error in pytest's words; the call raises it as what it is, after the test
            if self.phase != "setup" or isinstance(stop, CaseBroken):
                raise
        if one.attempt is None or one.attempt.score is None:
            raise RuntimeError("a check without a score raises")
        return one.attempt.score

    def end(self) -> None:
        """See that the test checked, and that what the check raised was not swallowed."""
        if self.calls == 0:
            message = "the test never called packbench_check(result), so nothing was measured"
            self.conclude([error_trial(self.place(), Failure(kind="never_checked", message=message))])
        if self.stop is not None:
            raise self.stop

    def note_trouble(self, error: BaseException) -> None:
        """Make a result of what the test or a fixture raised before the check."""
        if isinstance(error, pytest.skip.Exception | pytest.xfail.Exception):
            one = not_run_trial(self.place(), "skipped_elsewhere", _line(error))
        else:
            who = "a fixture" if self.phase == "setup" else "the test"
            said = f"{who} raised {type(error).__name__} before the check: {_line(error)}"
            failure = Failure(kind="target_error", message=said, details=user_frames(error))
            one = self._settled(Attempt(started_ns=self.begun, failure=failure))
        self.results, self.result = (one.result,), one.result

    def explains(self, error: BaseException) -> bool:
        """Whether an exception that ended a phase is one that the explanation tells of."""
        return error is self.stop or isinstance(error, CaseBroken)

    def _settled(self, attempt: Attempt) -> Trial:
        if self.loaded is None:
            raise ValueError("a case that can't be read has no result")
        attempt.stop_clock()
        context = self.tests.context(self)
        return build_trial(self.place(), settle(context, self.loaded, attempt), context, self.item.config.stash[RUN_ID])


class MarkedTests:
    """The hooks of marked tests, registered in the processes that run them.

    Attributes:
        contexts: the session's suites.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.contexts: SessionSuites = config.stash[CONTEXTS]
        self._shown_path = partial(shown_path, root=config.rootpath)
        self._cases: dict[str, tuple[SuiteCase, ...]] = {}
        self._contexts: dict[tuple[str, str], SuiteContext] = {}
        self._selected: list[MarkedRun] = []

    def asked_for(self, suites: Sequence[Suite], asking: Asking) -> list[SuiteCase]:
        """Give the cases that a mark asks for; each suite is read once in a session.

        Raises:
            MarkError: a suite has no such case.
        """
        found = []
        for suite in suites:
            if suite.name not in self._cases:
                self._cases[suite.name] = suite_cases(suite, self.contexts.pack_of(suite), self._shown_path)
            fitting = [case for case in self._cases[suite.name] if asking.fits(case)]
            if not fitting:
                named = ", ".join(f"{key} {' or '.join(values)}" for key, values in asking.wanted.items())
                raise MarkError(f'suite "{suite.name}" has no case{f" of {named}" if named else ""}')
            shard = self.contexts.settings.shard
            found += [case for case in fitting if shard is None or case.written_id in shard]
        return found

    def context(self, run: MarkedRun) -> SuiteContext:
        """Give what the cases of a suite share in one test function."""
        key = (run.suite.name, run.own_test)
        if key not in self._contexts:
            self._contexts[key] = self.contexts.of_results(run.suite, run.target)
        return self._contexts[key]

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Know a marked test by its parameter."""
        case = getattr(getattr(item, "callspec", None), "params", {}).get(FIXTURE)
        if isinstance(case, SuiteCase):
            setattr(item, RUN, _run_for(self, item, case))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what was selected, and refuse a case that is run twice."""
        runs = [run for item in session.items if (run := run_of(item)) is not None]
        self._selected = [run for run in runs if isinstance(run, MarkedRun)]
        _refuse_doubles(runs)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say which suites marked tests run; the header was written before that was known."""
        counts: dict[str, int] = {}
        for run in self._selected:
            counts[run.suite.name] = counts.get(run.suite.name, 0) + 1
        mode = self.contexts.settings.mode
        return [
            f"packbench: suite {name}{' (bundled)' if suite.bundled else ''}, pack {suite.config.pack}, {mode} mode, "
            f"run by {counts[name]} marked tests"
            for name, suite in self.contexts.suites.items()
            if name in counts
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Stop a case that can't be run before any fixture is made for it."""
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
        try:
            result = yield
        finally:
            run.phase = "over"
        run.end()
        return result


class Unsupported:
    """Stops tests that bear the mark and can't be parametrized, so that none passes unmeasured."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._items = set(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Say what to do."""
        if item in self._items:
            raise CaseBroken(f"{MARK}: a unittest.TestCase gets no fixtures; write the test as a function")


def _marked(item: pytest.Item) -> MarkedRun:
    run = run_of(item)
    if not isinstance(run, MarkedRun):
        raise TypeError(f"{item.nodeid} has no case")
    return run


def _run_for(tests: MarkedTests, item: pytest.Item, case: SuiteCase) -> MarkedRun:
    parent = item.parent.nodeid if item.parent is not None else ""
    return MarkedRun(
        item=item,
        nodeid=item.nodeid,
        suite=case.suite,
        pack=case.pack,
        path=case.path,
        file=case.file,
        line=case.line,
        name=case.case_id,
        loaded=case.loaded,
        problem=case.problem,
        own_test=f"{parent}::{getattr(item, 'originalname', item.name)}",
        tests=tests,
    )


def _cases_for(metafunc: pytest.Metafunc) -> tuple[list[SuiteCase], bool]:
    """Give a function's cases, and whether its marks name several suites."""
    if FIXTURE not in metafunc.fixturenames:
        raise MarkError("the test takes no packbench_check, so it could never check anything; add it")
    found: dict[tuple[Path, str], SuiteCase] = {}
    askings = [Asking.of(mark) for mark in metafunc.definition.iter_markers(MARK)]
    for asking in askings:
        suites = [_join(metafunc.config, name) for name in asking.suites]
        _check_settings(metafunc.config)
        for case in _tests_of(metafunc.config).asked_for(suites, asking):
            found.setdefault((case.path, case.case_id), case)
    named = {name for asking in askings for name in asking.suites}
    return sorted(found.values(), key=lambda case: (case.suite.name, str(case.path), case.line)), len(named) > 1


def _parameters(cases: Sequence[SuiteCase], *, several: bool) -> list[object]:
    """Make pytest's parameters of cases: their ids, and the marks that `-m` selects by.

    A case's id is the parameter's; the suite comes before it where there are several, its folder where a suite has
    the id twice.
    """
    times = Counter((case.suite.name, case.case_id) for case in cases)
    made: list[object] = []
    for case in cases:
        twice = times[case.suite.name, case.case_id] > 1
        parts = (case.suite.name if several else "", case.folder if twice else "", case.case_id)
        marks = list(marks_of(case.suite, case.loaded))
        made.append(pytest.param(case, id="-".join(part for part in parts if part), marks=marks))
    return made


def _called(mark: pytest.Mark) -> str:
    said = [*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())]
    return f"{MARK}({', '.join(said)})"


def _join(config: pytest.Config, name: str) -> Suite:
    """Give a suite that a mark names; register the session's plugins where that was not done yet.

    Raises:
        MarkError: no suite has such a name.
        pytest.UsageError: the suite or a setting can't be used.
    """
    if CONTEXTS in config.stash and name in config.stash[CONTEXTS].suites:
        return config.stash[CONTEXTS].suites[name]
    if ASKED not in config.stash:
        root, bundled = suites_root(config, config.option)
        config.stash[ASKED] = Asked(root=root, bundled=bundled, named=(), folders={})
    asked = config.stash[ASKED]
    known = find_suites(asked.root)
    if name not in known:
        raise MarkError(unknown(name, known, config, config.option))
    if _REFUSED in config.stash:
        raise pytest.UsageError(config.stash[_REFUSED])
    if CONTEXTS not in config.stash:
        _begin(config)
    suite = config.stash[CONTEXTS].join(name, known[name], bundled=asked.bundled)
    recorder = _recorder_of(config)
    if recorder is not None:
        recorder.add(suite)
    return suite


def _begin(config: pytest.Config) -> None:
    try:
        register(config, late=True)
    except pytest.UsageError as error:
        # what is half begun is not begun again: the next mark is told the same
        config.stash[_REFUSED] = str(error)
        raise
    switch_on_late(config)


def _recorder_of(config: pytest.Config) -> Recorder | None:
    """Give the session's recorder; None in a worker of xdist."""
    recorder: Recorder | None = config.pluginmanager.getplugin("packbench-recorder")
    return recorder


def _tests_of(config: pytest.Config) -> MarkedTests:
    if _TESTS not in config.stash:
        config.stash[_TESTS] = MarkedTests(config)
        config.pluginmanager.register(config.stash[_TESTS], "packbench-marked")
    return config.stash[_TESTS]


def _check_settings(config: pytest.Config) -> None:
    settings = config.stash[CONTEXTS].settings
    if settings.trials > 1:
        raise MarkError(f"--packbench-trials: got {settings.trials}; a test of your own tries each case once")
    if settings.mode == "record":
        raise MarkError("--packbench-mode=record: a test of your own asks its model itself; use live")


def _refuse_doubles(runs: Sequence[CaseRun]) -> None:
    """Turn a case that stands twice into errors that name each other: a run measures each case once."""
    first: dict[tuple[Path, str], CaseRun] = {(run.path, run.name): run for run in runs if not run.own_test}
    for run in runs:
        other = first.setdefault((run.path, run.name), run)
        if other is run or not run.own_test:
            continue
        for one, twin in ((run, other), (other, run)):
            if not one.problem:
                where = f"the case is run twice, by {one.nodeid} and by {twin.nodeid}"
                one.problem = f"{where}; a run measures each case once: select one of them, or run pytest for each"
                if one.own_test:
                    one.kind = "case_twice"


def _state_of(result: object, begun: int) -> Attempt:
    state = Attempt(started_ns=begun)
    try:
        state.payload = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
    except ValueError as error:
        state.failure = Failure(kind="result_unreadable", message=f"the result is not JSON: {_line(error)}")
    return state


def _line(error: BaseException) -> str:
    return " ".join((error_text(error).strip() or type(error).__name__).splitlines()[0].split())
