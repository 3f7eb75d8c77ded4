"""xdist: what the controller knows only from its workers."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases.files import SUFFIXES, file_stem, find_case, load_case
from pytest_packbench.model.errors import CaseError
from pytest_packbench.plugin import ASKED
from pytest_packbench.pytest_plugin.case_run import pack_report, place_at, run_of, unpack_report
from pytest_packbench.pytest_plugin.resume import OPTION as RESUME
from pytest_packbench.pytest_plugin.resume import REFUSED
from pytest_packbench.pytest_plugin.selection import check_there
from pytest_packbench.pytest_plugin.stash import RESUMED, RUN_ID, ungrouped_name
from pytest_packbench.pytest_plugin.workers import TOLD
from pytest_packbench.runs.journal import WorkerJournals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from pytest_packbench.engine.result_builder import CaseRef
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.collection import Collector
    from pytest_packbench.pytest_plugin.prefetch import Ahead
    from pytest_packbench.pytest_plugin.recorder import Recorder
    from pytest_packbench.pytest_plugin.suites import SessionSuites


_OUTPUT = "packbench_collected"
_SPENT = "packbench_spent"


class Worker:
    """What a worker tells at its end."""

    def __init__(self, collector: Collector, contexts: SessionSuites, ahead: Ahead | None) -> None:
        self._collector = collector
        self._contexts = contexts
        self._ahead = ahead
        self._own_tests = ""
        self._is_told = False
        self._journals: WorkerJournals | None = None
        if ahead is not None and contexts.settings.mode != "fixture":
            config = contexts.config
            resumed = config.stash.get(RESUMED, None)
            base = resumed.base if resumed is not None else contexts.settings.output
            name: str = config.workerinput["workerid"]  # type: ignore[attr-defined]  # xdist sets it on workers
            self._journals = WorkerJournals(base, config.stash[RUN_ID], name)
            ahead.keep = self._journals.append

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which tests of the user's own were selected: the controller knows them from here only."""
        self._own_tests = _own_tests(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Make a report fit to be sent; tell with the first one which tests were selected."""
        pack_report(report)
        if self._own_tests and not self._is_told:
            self._is_told = True
            setattr(report, TOLD, self._own_tests)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell how many cases were found before any was deselected, and what was used; end what is under way."""
        if self._ahead is not None:
            self._ahead.close()
        if self._journals is not None:
            self._journals.close()
        self._contexts.close()
        output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]  # xdist sets it on workers
        output[_OUTPUT] = dict(self._collector.collected)
        output[_SPENT] = self._contexts.clients.ledger.as_json()
        output[TOLD] = self._own_tests


class Controller:
    """What the controller learns from the workers."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._last: tuple[str, Path] | None = None
        self._told = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse cases that are not there: xdist has no word for an argument that its workers do not find.

        Raises:
            pytest.UsageError: a case that the command line names is not there.
        """
        check_there(self._recorder.contexts, session.config.stash[ASKED])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a worker's report before anybody reads it."""
        unpack_report(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker which run is resumed."""
        if self._recorder.resumed is not None:
            node.workerinput[RESUME] = self._recorder.resumed.worker_input()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note what was selected, from node ids: only workers have items."""
        named = set()
        for nodeid in ids:
            path, mark, name = nodeid.rpartition("::")
            if mark and path.endswith(SUFFIXES):
                # xdist may append a group
                plain = ungrouped_name(name, file_stem(path)) if "@" in name else name
                named.add(f"{path}::{plain}")
                self._select(path, plain)
        if self._recorder.contexts.settings.mode != "fixture":
            self._recorder.begin_journals()
            self._tell_expected(named)

    def _tell_expected(self, named: AbstractSet[str]) -> None:
        """Say once what a live run will ask for, as a run in one process does."""
        recorder = self._recorder
        reporter: Any = recorder.config.pluginmanager.get_plugin("terminalreporter")
        if self._told or reporter is None or recorder.config.option.collectonly:
            return
        self._told = True
        due = [place for run in recorder.runs.values() for nodeid, place in run.selected.items() if nodeid in named]
        if due:
            reporter.ensure_newline()
            reporter.write_line(recorder.contexts.expected_text(place() for place in due))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Learn how many cases the worker had found; a crashed one tells nothing."""
        told = getattr(node, "workeroutput", None) or {}
        self._recorder.note_collected(told.get(_OUTPUT, {}))
        if REFUSED in told:
            raise pytest.UsageError(told[REFUSED])
        if _SPENT in told:
            self._recorder.note_spent(told[_SPENT])

    def _path(self, file: str) -> Path:
        # lines of one file share its path
        if self._last is None or self._last[0] != file:
            self._last = file, self._recorder.config.rootpath / file
        return self._last[1]

    def _select(self, file: str, name: str) -> None:
        recorder = self._recorder
        path = self._path(file)
        for suite in recorder.contexts.suites.values():
            if path.is_relative_to(suite.cases_path):
                pack = recorder.contexts.pack_of(suite)
                nodeid = f"{file}::{name}"
                place = partial(late_place, suite, pack, path, file=file, name=name, nodeid=nodeid)
                recorder.select(suite.name, nodeid, place)
                return


def _own_tests(session: pytest.Session) -> str:
    """Say for the controller which tests of the user's own were selected, as JSON; empty for none."""
    runs = [run for item in session.items if (run := run_of(item)) is not None and run.own_test]
    told = [
        {"suite": run.suite.name, "nodeid": run.nodeid, "file": run.file, "case_id": run.name, "target": run.target}
        for run in runs
    ]
    return json.dumps(told) if told else ""


def late_place(suite: Suite, pack: Pack, path: Path, *, file: str, name: str, nodeid: str) -> CaseRef:
    """Say where a case stands that only workers collected: it is read again, for its entry alone."""
    place = find_case(str(path), name)
    loaded = None
    if place is not None:
        with suppress(CaseError):
            loaded = load_case(place, pack.case_model, file=file, pack=pack.name)
    line = place.line if place is not None else 0
    return place_at(suite, pack, path, file=file, line=line, name=name, nodeid=nodeid, loaded=loaded)
