"""Tests in the pytest way: a user's own function runs a case, and the fixture `packbench_check` scores it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from pytest_packbench.engine.attempt import AttemptState, frames, settle
from pytest_packbench.engine.context import Failure
from pytest_packbench.model.errors import text_of
from pytest_packbench.model.run import OWN_TEST
from pytest_packbench.plugin import MARK
from pytest_packbench.pytest_plugin.case_run import (
    attach,
    broke,
    conclude,
    decide,
    held_back,
    not_run,
    place_of,
    properties,
    shown_to_hooks,
    tried,
)
from pytest_packbench.pytest_plugin.collection import CaseBroken, CaseFailure, CaseItem
from pytest_packbench.pytest_plugin.marks import (
    Asking,
    FiledCase,
    MarkError,
    join,
    parameters,
    recorder_of,
    suite_cases,
)
from pytest_packbench.pytest_plugin.stash import BENCHES, RUN_ID
from pytest_packbench.pytest_plugin.workers import TOLD

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from pytest_packbench.engine.context import SuiteContext
    from pytest_packbench.engine.results import Place
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.request import VerifyRequest
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.score import Score
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.case_run import Tried


FIXTURE = "packbench_case"


@dataclass(slots=True, kw_only=True, eq=False)
class MarkedTest:
    """A test of the user's own on one case.

    Attributes:
        item: pytest's item.
        case: the case as the mark found it.
        suite: the case's suite.
        loaded: the case; None where its file can't be read.
        case_nodeid: what pytest calls the item, without the group that xdist may append.
        own_test: node id of the test function.
        problem: why it can't be run, in one line; empty otherwise.
        kind: the reason's name.
        entries: what the check left; one entry, or none before.
        entry: the same entry.
        explanation: what to show for it when it doesn't pass.
        phase: of pytest's protocol: `setup`, `call`, or `over`.
        calls: how often the check was called.
        stop: what the check raised or has still to raise.
        score: what the check found.
        begun: monotonic clock at the start of the phase, nanoseconds.
        shown: the entry whose properties pytest's item has.
    """

    item: pytest.Item
    case: FiledCase
    suite: Suite
    loaded: LoadedCase | None
    case_nodeid: str
    own_test: str
    problem: str
    kind: str = "case_unreadable"
    entries: tuple[CaseResult, ...] = ()
    entry: CaseResult | None = None
    explanation: str = ""
    phase: str = "setup"
    calls: int = 0
    stop: BaseException | None = None
    score: Score | None = None
    begun: int = 0
    shown: CaseResult | None = None

    @classmethod
    def of(cls, item: pytest.Item, case: FiledCase) -> MarkedTest:
        """Make it for an item as it was collected."""
        parent = item.parent.nodeid if item.parent is not None else ""
        return cls(
            item=item,
            case=case,
            suite=case.suite,
            loaded=case.loaded,
            case_nodeid=item.nodeid,
            own_test=f"{parent}::{getattr(item, 'originalname', item.name)}",
            problem=case.problem,
        )

    @property
    def config(self) -> pytest.Config:
        """The session's configuration."""
        return self.item.config

    @property
    def path(self) -> Path:
        """The case file, absolute."""
        return self.case.path

    @property
    def name(self) -> str:
        """The case's id."""
        return self.case.case_id

    @property
    def file_id(self) -> str:
        """The case file as node ids name it."""
        return self.case.file

    @property
    def line(self) -> int:
        """The case's line in a file of many, from 1; 0 where the file is the case."""
        return self.case.line

    def begin(self, phase: str) -> None:
        """Enter a phase; setup forgets what an earlier run of the item left."""
        self.phase, self.begun = phase, time.perf_counter_ns()
        if phase == "setup":
            self.entries, self.entry, self.explanation = (), None, ""
            self.calls, self.stop, self.score = 0, None, None


TEST = pytest.StashKey[MarkedTest]()
TESTS: pytest.StashKey[MarkedTests] = pytest.StashKey()


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a marked function its cases.

    Raises:
        pytest.Collector.CollectError: the mark can't be used; one line names the test.
    """
    try:
        cases, several = _cases_for(metafunc)
        metafunc.parametrize(FIXTURE, parameters(cases, several=several), indirect=True)
    except (MarkError, pytest.UsageError) as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {MARK}: {error}") from None


def check_of(item: pytest.Item) -> Callable[[object], Score]:
    """Give the check of a marked test."""
    tests, test = item.config.stash[TESTS], item.stash[TEST]

    def packbench_check(result: object) -> Score:
        __tracebackhide__ = True
        return tests.check(test, result)

    return packbench_check


def request_of(item: pytest.Item) -> VerifyRequest:
    """Give what the pack would ask a target for a marked test's case."""
    test = item.stash[TEST]
    if test.loaded is None:
        raise CaseBroken(test.problem)
    return item.config.stash[BENCHES].pack_of(test.suite).request(test.loaded.case)


class MarkedTests:
    """The hooks of marked tests, registered in the processes that run them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._benches = config.stash[BENCHES]
        self._cases: dict[str, tuple[FiledCase, ...]] = {}
        self._ready: dict[tuple[str, str], SuiteContext] = {}
        self._selected: list[MarkedTest] = []
        self._untold = ""

    def asked_for(self, suites: Sequence[Suite], asking: Asking) -> list[FiledCase]:
        """Give the cases that a mark asks for; each suite is read once in a session.

        Raises:
            MarkError: a suite has no such case.
        """
        found = []
        for suite in suites:
            if suite.name not in self._cases:
                self._cases[suite.name] = suite_cases(self._config, suite, self._benches.pack_of(suite))
            fitting = [case for case in self._cases[suite.name] if asking.fits(case)]
            if not fitting:
                named = ", ".join(f"{key} {' or '.join(values)}" for key, values in asking.wanted.items())
                raise MarkError(f'suite "{suite.name}" has no case{f" of {named}" if named else ""}')
            shard = self._benches.settings.shard
            found += [case for case in fitting if shard is None or case.claimed in shard]
        return found

    def check(self, test: MarkedTest, result: object) -> Score:
        """Score a result, record it, and assert.

        Raises:
            CaseFailure: the score is under the threshold.
            CaseBroken: there is no score, or the check was called before.
            pytest.xfail.Exception: the case names a hole or is quarantined, or gates alone decide.
        """
        __tracebackhide__ = True
        if test.phase == "over":
            raise CaseBroken("packbench_check was called after its test had ended; call it in the test")
        test.calls += 1
        place = place_of(test)
        if test.calls > 1:
            message = "packbench_check was called twice; a test checks its case once"
            one = broke(place, Failure(kind="checked_twice", message=message))
        else:
            one = shown_to_hooks(test.item, place, self._judged(test, place, result))
        try:
            conclude(test, [one])
            decide(test)
        except (CaseFailure, CaseBroken, pytest.xfail.Exception) as stop:
            test.stop = stop
            # in a fixture it would be an error in pytest's words; the call raises it as what it is, after the test
            if test.phase != "setup" or isinstance(stop, CaseBroken):
                raise
        if one.attempt is None or one.attempt.score is None:
            raise RuntimeError("a check without a score raises")
        return one.attempt.score

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Know a marked test by its parameter."""
        case = getattr(getattr(item, "callspec", None), "params", {}).get(FIXTURE)
        if isinstance(case, FiledCase):
            item.stash[TEST] = MarkedTest.of(item, case)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what was selected; a worker of xdist tells it with its first report."""
        self._selected = [test for item in session.items if (test := item.stash.get(TEST, None)) is not None]
        _refuse_doubles(self._selected, [item for item in session.items if isinstance(item, CaseItem)])
        recorder = recorder_of(self._config)
        if recorder is None:
            self._untold = told_of(self._selected)
            return
        for test in self._selected:
            recorder.select(test.suite.name, test.case_nodeid, partial(place_of, test), _target(test))

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say which suites marked tests run; the header was written before that was known."""
        counts: dict[str, int] = {}
        for test in self._selected:
            counts[test.suite.name] = counts.get(test.suite.name, 0) + 1
        mode = self._benches.settings.mode
        return [
            f"packbench: suite {name}{' (bundled)' if suite.bundled else ''}, pack {suite.config.pack}, {mode} mode, "
            f"run by {counts[name]} marked tests"
            for name, suite in self._benches.suites.items()
            if name in counts
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Stop a case that can't be run, or is not to be, before any fixture is made for it."""
        test = item.stash.get(TEST, None)
        if test is None:
            return
        test.begin("setup")
        place = place_of(test)
        held = held_back(test, place)
        if test.problem and held is not None:
            held = broke(place, Failure(kind=test.kind, message=test.problem))
        capped, message = self._benches.clients.ledger.exhausted()
        if held is None and capped:
            held = not_run(place, capped, message)
        if held is not None:
            conclude(test, [held])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """See that the test checked, and that what the check raised was not swallowed."""
        test = item.stash.get(TEST, None)
        if test is None:
            return (yield)
        test.begin("call")
        try:
            result = yield
        finally:
            test.phase = "over"
        if test.calls == 0:
            message = "the test never called packbench_check(result), so nothing was measured"
            conclude(test, [broke(place_of(test), Failure(kind="never_checked", message=message))])
        if test.stop is not None:
            raise test.stop
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the entry, and show the explanation; what broke is an error in pytest's words, wherever it broke."""
        test = item.stash.get(TEST, None)
        if test is None or call.when == "teardown":
            return self._telling((yield))
        if call.excinfo is not None and test.entry is None:
            self._note_trouble(test, call.excinfo.value)
        entry = test.entry
        if entry is None:
            return self._telling((yield))
        if entry is not test.shown:
            test.shown = entry
            item.user_properties.extend(properties(entry))
        report = yield
        attach(report, test.entries)
        if call.excinfo is not None and call.excinfo.value is test.stop and test.explanation:
            report.longrepr = test.explanation
        if report.failed and entry.verdict in {"error", "vacuous"}:
            if isinstance(call.excinfo.value if call.excinfo is not None else None, CaseBroken):
                report.longrepr = test.explanation
            # as for cases from files: all up to the score is setup, and call compares (design 4)
            report.when = "setup"
        return self._telling(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell what a worker has collected where no report could."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None and self._selected:
            output[TOLD] = told_of(self._selected)

    def _telling(self, report: pytest.TestReport) -> pytest.TestReport:
        if self._untold:
            setattr(report, TOLD, self._untold)
            self._untold = ""
        return report

    def _judged(self, test: MarkedTest, place: Place, result: object) -> Tried:
        draft = AttemptState(begun=test.begun)
        try:
            draft.payload = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
        except ValueError as error:
            draft.failure = Failure(kind="result_unreadable", message=f"the result is not JSON: {_line(error)}")
        draft.end()
        return self._settled(test, place, draft)

    def _note_trouble(self, test: MarkedTest, error: BaseException) -> None:
        place = place_of(test)
        if isinstance(error, pytest.skip.Exception | pytest.xfail.Exception):
            one = not_run(place, "skipped_elsewhere", _line(error))
        else:
            who = "a fixture" if test.phase == "setup" else "the test"
            said = f"{who} raised {type(error).__name__} before the check: {_line(error)}"
            draft = AttemptState(
                begun=test.begun, failure=Failure(kind="target_error", message=said, details=frames(error))
            )
            draft.end()
            one = self._settled(test, place, draft)
        test.entries, test.entry = (one.entry,), one.entry

    def _settled(self, test: MarkedTest, place: Place, draft: AttemptState) -> Tried:
        if test.loaded is None:
            raise ValueError("a case that can't be read has no result")
        bench = self._bench(test)
        return tried(place, settle(bench, test.loaded, draft), bench, self._config.stash[RUN_ID])

    def _bench(self, test: MarkedTest) -> SuiteContext:
        key = (test.suite.name, test.own_test)
        if key not in self._ready:
            self._ready[key] = self._benches.of_results(test.suite, _target(test))
        return self._ready[key]


class Unsupported:
    """Stops tests that bear the mark and can't be parametrized, so that none passes unmeasured."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._items = set(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Say what to do."""
        if item in self._items:
            raise CaseBroken(f"{MARK}: a unittest.TestCase gets no fixtures; write the test as a function")


def told_of(tests: Sequence[MarkedTest]) -> str:
    """Say for xdist's controller which marked tests were selected, as JSON; empty for none."""
    told = [
        {
            "suite": test.suite.name,
            "nodeid": test.case_nodeid,
            "file": test.file_id,
            "case_id": test.name,
            "target": _target(test),
        }
        for test in tests
    ]
    return json.dumps(told) if told else ""


def _cases_for(metafunc: pytest.Metafunc) -> tuple[list[FiledCase], bool]:
    """Give a function's cases, and whether its marks name several suites."""
    if FIXTURE not in metafunc.fixturenames:
        raise MarkError("the test takes no packbench_check, so it could never check anything; add it")
    found: dict[tuple[Path, str], FiledCase] = {}
    askings = [Asking.of(mark) for mark in metafunc.definition.iter_markers(MARK)]
    for asking in askings:
        suites = [join(metafunc.config, name) for name in asking.suites]
        _check_settings(metafunc.config)
        for case in _tests_of(metafunc.config).asked_for(suites, asking):
            found.setdefault((case.path, case.case_id), case)
    named = {name for asking in askings for name in asking.suites}
    return sorted(found.values(), key=_in_order), len(named) > 1


def _tests_of(config: pytest.Config) -> MarkedTests:
    if TESTS not in config.stash:
        config.stash[TESTS] = MarkedTests(config)
        config.pluginmanager.register(config.stash[TESTS], "packbench-marked")
    return config.stash[TESTS]


def _in_order(case: FiledCase) -> tuple[str, str, int]:
    return case.suite.name, str(case.path), case.line


def _check_settings(config: pytest.Config) -> None:
    settings = config.stash[BENCHES].settings
    if settings.trials > 1:
        raise MarkError(f"--packbench-trials: got {settings.trials}; a test of your own tries each case once")
    if settings.mode == "record":
        raise MarkError("--packbench-mode=record: a test of your own asks its model itself; use live")


def _refuse_doubles(tests: Sequence[MarkedTest], files: Sequence[CaseItem]) -> None:
    """Turn a case that stands twice into errors that name each other: a run measures each case once."""
    first: dict[tuple[Path, str], MarkedTest | CaseItem] = {(item.path, item.name): item for item in files}
    for test in tests:
        other = first.setdefault((test.path, test.name), test)
        if other is test:
            continue
        for one, twin in ((test, other), (other, test)):
            if not one.problem:
                where = f"the case is run twice, by {one.case_nodeid} and by {twin.case_nodeid}"
                one.problem = f"{where}; a run measures each case once: select one of them, or run pytest for each"
                if isinstance(one, MarkedTest):
                    one.kind = "case_twice"


def _target(test: MarkedTest) -> str:
    return f"{OWN_TEST}{test.own_test}"


def _line(error: BaseException) -> str:
    return " ".join((text_of(error).strip() or type(error).__name__).splitlines()[0].split())
