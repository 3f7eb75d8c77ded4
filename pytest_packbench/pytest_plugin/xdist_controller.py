"""xdist's controller: it collects nothing, so that it learns from its workers what they selected and what they ran.

Every run under xdist imports this module, even without a suite. So at its top it imports only the standard library and
pytest, and the rest where a suite is requested.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from pytest_packbench.pytest_plugin.recorder import Recorder

RUN_SEED = pytest.StashKey[str]()
SEED = "packbench_seed"
MARKED = "packbench_marked"
COLLECTED = "packbench_collected"
SPENT = "packbench_spent"
LATE = "packbench_late"
PROGRESS = "packbench_progress"
"""The attribute of a worker's report with what the worker has in flight, retried and spent."""
DIST = "packbench_dist"
"""How tests are distributed, for workers: xdist takes the option from them."""


class Controller:
    """The hooks of the controller.

    Args:
        config: the controller's.
        add_marked: adds the marked tests that a worker selected, as JSON, and the reports that came before them.
    """

    def __init__(self, config: pytest.Config, add_marked: Callable[[str, list[pytest.TestReport]], None]) -> None:
        self._config = config
        self._add_marked = add_marked
        self._added: set[str] = set()
        self._crashed: list[pytest.TestReport] = []
        self._recorder: Recorder | None = None
        self._last_path: tuple[str, Path] | None = None
        self._has_announced = False
        # the parts of a ULID: all workers need the run's id, and a run without suites needs no ULID
        self._seed = (time.time_ns() // 1_000_000).to_bytes(6, "big").hex() + os.urandom(10).hex()
        config.stash[RUN_SEED] = self._seed

    def attach(self, recorder: Recorder) -> None:
        """Set the recorder, once a suite was requested."""
        self._recorder = recorder

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse missing cases: xdist does not report arguments that its workers do not find.

        Raises:
            pytest.UsageError: a case that the command line names does not exist.
        """
        if self._recorder is not None:
            from pytest_packbench.plugin import SELECTION
            from pytest_packbench.pytest_plugin.selection import check_cases_exist

            check_cases_exist(self._recorder.contexts, session.config.stash[SELECTION])
            # before the workers start, which read the journal
            self._recorder.begin_journals(resumed=True)

    def end_workers(self) -> None:
        """End the workers, if they are still there: what they finish after their journals are read would be lost."""
        plugin: Any = self._config.pluginmanager.get_plugin("dsession")
        manager = getattr(plugin, "nodemanager", None)
        if manager is not None:
            manager.teardown_nodes()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send each worker the parts of the run's id, how tests are distributed, and which run is resumed."""
        node.workerinput[SEED] = self._seed
        node.workerinput[DIST] = self._config.option.dist
        if self._recorder is not None and self._recorder.resumed is not None:
            from pytest_packbench.pytest_plugin.resume import OPTION

            node.workerinput[OPTION] = self._recorder.resumed.worker_input()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note which cases were selected, from node ids: only workers have items."""
        recorder = self._recorder
        if recorder is None:
            return
        from pytest_packbench.cases.files import SUFFIXES, file_stem
        from pytest_packbench.plugin import ungrouped_name

        selected = set()
        for nodeid in ids:
            file, separator, name = nodeid.rpartition("::")
            # a stray file is named after itself
            base = file.rpartition("/")[2]
            is_stray = base in {name, name.rpartition("@")[0]}
            if separator and (is_stray or file.endswith(SUFFIXES)):
                # xdist may append a group
                case_id = base if is_stray else ungrouped_name(name, file_stem(file)) if "@" in name else name
                selected.add(f"{file}::{case_id}")
                self._select(recorder, file, case_id)
        if not self._config.option.collectonly:
            recorder.begin_journals()
        if recorder.contexts.settings.mode != "fixture":
            self._announce(recorder, selected)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Any:
        """Decode a report before any other hook reads it; add the marked tests that a worker's first one carries."""
        if self._recorder is not None:
            from pytest_packbench.pytest_plugin.case_run import decode_report

            decode_report(report)
        told = report.__dict__.pop(PROGRESS, None)
        progress: Any = self._config.pluginmanager.get_plugin("packbench-progress") if told else None
        if progress is not None:
            progress.note_worker(told)
        marked = report.__dict__.pop(MARKED, "")
        if marked:
            self._add(marked, report)
        elif report.when not in {"setup", "call", "teardown"}:
            # a worker crashed: its tests may be marked
            self._crashed.append(report)
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add a worker's totals, and its marked tests if it had nothing to report; a crashed worker sends neither.

        Raises:
            pytest.UsageError: the worker refused the session.
        """
        output = getattr(node, "workeroutput", None) or {}
        if self._recorder is not None:
            from pytest_packbench.pytest_plugin.suites import REFUSED

            self._recorder.note_collected(output.get(COLLECTED, {}))
            if REFUSED in output:
                raise pytest.UsageError(output[REFUSED])
            if SPENT in output:
                self._recorder.note_spent(output[SPENT])
            for suite_name, late in json.loads(output.get(LATE, "{}")).items():
                self._recorder.note_late(suite_name, map(tuple, late))
        if output.get(MARKED):
            self._add(output[MARKED])

    def _add(self, marked: str, *reports: pytest.TestReport) -> None:
        if marked not in self._added:
            self._added.add(marked)
            self._add_marked(marked, [*self._crashed, *reports])

    def _announce(self, recorder: Recorder, selected: AbstractSet[str]) -> None:
        """Write once how many calls a live run expects to make, as a run in one process does."""
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if self._has_announced or reporter is None or self._config.option.collectonly:
            return
        self._has_announced = True
        lookups = [
            lookup for run in recorder.runs.values() for nodeid, lookup in run.selected.items() if nodeid in selected
        ]
        if lookups:
            writer = self._config.get_terminal_writer()
            # xdist's own line, which pytest's reporter does not know
            if writer.width_of_current_line:
                writer.line()
            reporter.write_line(recorder.contexts.expected_text(lookup() for lookup in lookups))

    def _select(self, recorder: Recorder, file: str, name: str) -> None:
        from pytest_packbench.pytest_plugin.case_run import uncollected_case_ref

        # the lines of one file share its path
        if self._last_path is None or self._last_path[0] != file:
            self._last_path = file, self._config.rootpath / file
        path = self._last_path[1]
        for suite in recorder.contexts.suites.values():
            if path.is_relative_to(suite.controls_path):
                recorder.select_control(suite.name, f"{file}::{name}", file)
                return
            if path.is_relative_to(suite.cases_path if name != path.name else suite.path):
                pack = recorder.contexts.pack_of(suite)
                nodeid = f"{file}::{name}"
                case_ref = partial(uncollected_case_ref, suite, pack, path, file=file, name=name, nodeid=nodeid)
                recorder.select(suite.name, nodeid, case_ref)
                return
