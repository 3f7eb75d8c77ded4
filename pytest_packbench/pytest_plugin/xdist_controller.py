"""xdist's controller: it collects nothing, so that it learns from its workers what they selected and what they ran.

Every run under xdist imports this module, even without a suite. So at its top it imports only the standard library and
pytest, and the rest where a suite is requested.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_packbench.plugin import SAME, rootdir_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
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
_LOST = "HostNotFound"
"""The exception of execnet for a host that ssh does not reach, which is no `OSError`."""


def is_elsewhere(spec: Any) -> bool:
    """Whether a worker may run other code, other cases or other settings than this process: by its `--tx`."""
    return is_in_other_folder(spec) or bool(spec.python or spec.env)


def is_in_other_folder(spec: Any) -> bool:
    """Whether a worker has other files than this process, because it is on another machine or in another folder."""
    return bool("popen" not in str(spec).split("//") or spec.chdir or spec.via)


def name_of_worker(node: Any) -> str:
    """Return a worker's name with where it is: `gw0 (ssh=bench1)`."""
    spec = node.gateway.spec
    places = ((name, getattr(spec, name)) for name in ("ssh", "vagrant_ssh", "socket", "via", "chdir", "python"))
    where = next((f" ({name}={value})" for name, value in places if value), "")
    return f"{node.gateway.id}{where}"


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
        self._collected: set[str] = set()
        self._reported: dict[str, list[str]] = {}
        # the parts of a ULID: all workers need the run's id, and a run without suites needs no ULID
        self._seed = (time.time_ns() // 1_000_000).to_bytes(6, "big").hex() + os.urandom(10).hex()
        config.stash[RUN_SEED] = self._seed

    def attach(self, recorder: Recorder) -> None:
        """Set the recorder, once a suite was requested."""
        self._recorder = recorder

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None, object, object]:
        """Refuse missing cases, which xdist does not report, and workers that can't be started.

        Raises:
            pytest.UsageError: a case that the command line names does not exist, or a host of `--tx` is not reached.
        """
        if self._recorder is not None:
            from pytest_packbench.plugin import SELECTION
            from pytest_packbench.pytest_plugin.selection import check_cases_exist

            check_cases_exist(self._recorder.contexts, session.config.stash[SELECTION])
            # before the workers start, which read the journal
            self._recorder.begin_journals(resumed=True)
        try:
            return (yield)
        except Exception as error:
            problem = self._start_problem(error)
            if not problem:
                raise
            raise pytest.UsageError(problem) from error

    def _start_problem(self, error: Exception) -> str:
        """Return in one line why xdist could not start a worker elsewhere; empty where an error has other reasons."""
        is_known = isinstance(error, OSError | ValueError) or type(error).__name__ == _LOST
        if self._recorder is None or not self._has_workers_elsewhere() or not is_known:
            return ""
        from pytest_packbench.model.errors import describe_error

        advice = "check the host, python and chdir of each --tx by hand: ssh HOST PYTHON -V"
        if isinstance(error, ValueError):
            # xdist turns paths into those of its copies
            advice = "workers elsewhere take no paths: name suites with --packbench-suite=NAME, and write --option=PATH"
        return f"--tx: a worker can't be started: {describe_error(error)}; {advice}"

    def _has_workers_elsewhere(self) -> bool:
        return any(spec.rpartition("*")[2] != "popen" for spec in self._config.option.tx)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Interrupt the run, which keeps its results, where a lost machine can't be reached again."""
        try:
            return (yield)
        except Exception as error:
            is_lost = isinstance(error, OSError) or type(error).__name__ == _LOST
            if self._recorder is None or not self._has_workers_elsewhere() or not is_lost:
                raise
            from pytest_packbench.model.errors import describe_error

            message = f"a worker was lost and can't be started again: {describe_error(error)}"
            raise session.Interrupted(f"{message}; the results so far are kept") from error

    def end_workers(self) -> None:
        """End the workers, if they are still there: what they finish after their journals are read would be lost."""
        plugin: Any = self._config.pluginmanager.get_plugin("dsession")
        manager = getattr(plugin, "nodemanager", None)
        if manager is not None:
            manager.teardown_nodes()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send each worker the parts of the run's id, how tests are distributed, and which run is resumed.

        One that may run something else also gets what it must have in common with this process.
        """
        node.workerinput[SEED] = self._seed
        node.workerinput[DIST] = self._config.option.dist
        if is_elsewhere(node.gateway.spec):
            node.workerinput[SAME] = self._expected(node)
        if self._recorder is not None and self._recorder.resumed is not None:
            from pytest_packbench.pytest_plugin.resume import OPTION

            node.workerinput[OPTION] = self._recorder.resumed.worker_input()

    def _expected(self, node: Any) -> str:
        """Return what a worker must have in common with this process, as JSON; empty if no suite is known yet.

        Raises:
            pytest.UsageError: the worker can't do what the run asks for.
        """
        recorder = self._recorder
        if recorder is None:
            return ""
        if is_in_other_folder(node.gateway.spec):
            settings, worker = recorder.contexts.settings, name_of_worker(node)
            if settings.mode == "record":
                raise pytest.UsageError(
                    f"--packbench-mode=record: worker {worker} would write its recordings into its own folder; record "
                    "with workers on this machine (-n), or run pytest on the other one"
                )
            if recorder.resumed is not None:
                raise pytest.UsageError(
                    f"--packbench-resume: worker {worker} can't read the run's folder; resume with workers on this "
                    "machine (-n)"
                )
        from pytest_packbench.pytest_plugin.suites import common_ground

        return json.dumps(common_ground(recorder.contexts))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Note which cases were selected, from node ids: only workers have items."""
        self._collected.add(node.gateway.id)
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
            node = getattr(report, "node", None)
            if node is not None and report.when != "teardown" and is_elsewhere(node.gateway.spec):
                self._reported.setdefault(str(node.gateway.spec), []).append(report.nodeid)
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

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Add a worker's totals, and its marked tests if it had nothing to report; a crashed worker sends neither.

        Raises:
            pytest.UsageError: the worker refused the session, or could not start it.
            pytest.Session.Interrupted: likewise, where there are results already, which are kept.
        """
        output = getattr(node, "workeroutput", None) or {}
        if self._recorder is not None:
            from pytest_packbench.pytest_plugin.suites import REFUSED

            self._recorder.note_collected(output.get(COLLECTED, {}))
            if REFUSED in output:
                name = f"worker {name_of_worker(node)}: " if is_elsewhere(node.gateway.spec) else ""
                self._end(name + output[REFUSED])
            if error and is_elsewhere(node.gateway.spec) and node.gateway.id not in self._collected:
                # xdist would start it again and again
                reason = str(error).strip().splitlines()[-1]
                self._end(f"worker {name_of_worker(node)} ended before it had collected its cases: {reason}")
            if SPENT in output:
                self._recorder.note_spent(output[SPENT])
            for suite_name, late in json.loads(output.get(LATE, "{}")).items():
                self._recorder.note_late(suite_name, map(tuple, late))
        if output.get(MARKED):
            self._add(output[MARKED])
        if self._recorder is not None and output and is_elsewhere(node.gateway.spec):
            self._compare(node, output.get(SAME, ""))

    def _end(self, message: str) -> NoReturn:
        """End the session because of a worker."""
        recorder = self._recorder
        if recorder is None:
            raise RuntimeError(message)
        message = recorder.contexts.redactor.text(message)
        # a usage error writes no report
        if any(run.results.by_nodeid for run in recorder.runs.values()):
            raise pytest.Session.Interrupted(message)
        raise pytest.UsageError(message)

    def _compare(self, node: Any, theirs: str) -> None:
        """Reject what a worker reported if it ran other code, cases or settings than this process has."""
        recorder = self._recorder
        if recorder is None:
            return
        problems = ["its version of pytest-packbench doesn't check that it runs the same suite; install the same one"]
        if theirs:
            from pytest_packbench.pytest_plugin.suites import CONTROLLERS, WORKERS, differences

            problems = differences(json.loads(theirs), recorder.contexts, there=WORKERS, here=CONTROLLERS)
        if problems:
            # earlier workers of the same place may have crashed before they were compared
            reported = self._reported.get(str(node.gateway.spec), ())
            recorder.reject(reported, f"not counted: worker {name_of_worker(node)}: {'; '.join(problems)}")

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
            self._last_path = file, rootdir_of(self._config) / file
        path = self._last_path[1]
        for suite in recorder.contexts.suites.values():
            if path.is_relative_to(suite.controls_path):
                recorder.select_control(suite.name, f"{file}::{name}")
                return
            if path.is_relative_to(suite.cases_path if name != path.name else suite.path):
                pack = recorder.contexts.pack_of(suite)
                nodeid = f"{file}::{name}"
                case_ref = partial(uncollected_case_ref, suite, pack, path, file=file, name=name, nodeid=nodeid)
                recorder.select(suite.name, nodeid, case_ref)
                return
