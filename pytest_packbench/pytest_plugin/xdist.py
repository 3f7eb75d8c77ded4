"""xdist: the controller learns from its workers what they selected and what they ran, and all run the same.

Every run under xdist imports this module, even without a suite. So at its top it imports only the standard library and
pytest, and the rest where a suite is requested.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_packbench import __version__
from pytest_packbench.plugin import (
    JOURNALED_ATTRIBUTE,
    RESULTS_ATTRIBUTE,
    SAME,
    SELECTION,
    rootdir_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.result import Result
    from pytest_packbench.pytest_plugin.recorder import Recorder
    from pytest_packbench.pytest_plugin.settings import SessionSuites
    from pytest_packbench.runs.journal import Entry

SEED = "packbench_seed"
DIST = "packbench_dist"
"""How tests are distributed, for workers: xdist takes the option from them."""
TOLD = "packbench_told"
"""The key of a worker's output with what only the worker knows, and the attribute of a report with its marked tests."""
_LOST = "HostNotFound"
"""The exception of execnet for a host that ssh does not reach, which is no `OSError`."""
_PHASES = ("setup", "call", "teardown")
_GRACE_S = 2.0
"""How long a worker without a controller may take to end by itself, seconds."""


def is_elsewhere(spec: Any) -> bool:
    """Whether a worker may run other code, other cases or other settings than this process: by its `--tx`."""
    is_process_here = "popen" in str(spec).split("//")
    return bool(not is_process_here or spec.chdir or spec.via or spec.python or spec.env)


def name_of_worker(node: Any) -> str:
    """Return the name of a worker elsewhere with its place, without its environment: `gw0 (bench1)`."""
    spec = node.gateway.spec
    return f"{node.gateway.id} ({spec.ssh or spec.socket or spec.chdir or spec.python or 'elsewhere'})"


class Controller:
    """The hooks of the controller, also of a run without a suite.

    Args:
        config: the controller's.
        add_marked: adds the marked tests that a worker selected, as JSON, and the reports that came before them.

    Attributes:
        seed: what the run's id is made of.
        recorder: the run's, once a suite is requested.
    """

    def __init__(self, config: pytest.Config, add_marked: Callable[[str, list[pytest.TestReport]], None]) -> None:
        self.recorder: Recorder | None = None
        self._config = config
        self._add_marked = add_marked
        self._added: set[str] = set()
        self._crashed: list[pytest.TestReport] = []
        self._started: set[str] = set()
        self._selected: set[str] = set()
        self._reported: dict[str, list[str]] = {}
        # the parts of a ULID: all workers need the run's id, and a run without suites needs no ULID
        self.seed = (time.time_ns() // 1_000_000).to_bytes(6, "big").hex() + os.urandom(10).hex()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None, object, object]:
        """Refuse missing cases, which xdist does not report, and workers that can't be started.

        Raises:
            pytest.UsageError: a case that the command line names does not exist, or a host of `--tx` is not reached.
        """
        if self.recorder is not None:
            from pytest_packbench.pytest_plugin.settings import check_cases_exist

            check_cases_exist(session.config.stash[SELECTION])
            # before the workers start, which read the journal: what no longer applies is not in it any more
            self.recorder.begin_journals(resumed=True)
        try:
            return (yield)
        except Exception as error:
            raise pytest.UsageError(self._describe_lost(error)) from error

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Interrupt the run, which keeps its results, where a lost machine can't be reached again."""
        try:
            return (yield)
        except Exception as error:
            raise session.Interrupted(f"{self._describe_lost(error)}; the results so far are kept") from error

    def _describe_lost(self, error: Exception) -> str:
        """Describe why a worker elsewhere can't be started; any other exception is raised again."""
        is_lost = isinstance(error, OSError | ValueError) or type(error).__name__ == _LOST
        is_local = all(spec.rpartition("*")[2] == "popen" for spec in self._config.option.tx)
        if self.recorder is None or is_local or not is_lost:
            raise error
        from pytest_packbench.model.errors import describe_error

        advice = "check each --tx by hand (ssh HOST PYTHON -V), and name suites by --packbench-suite, not by a path"
        return f"--tx: a worker can't be started: {describe_error(error)}; {advice}"

    def end_workers(self) -> None:
        """End the workers, if they are still there: what they finish after their journals are read would be lost."""
        plugin: Any = self._config.pluginmanager.get_plugin("dsession")
        manager = getattr(plugin, "nodemanager", None)
        if manager is not None:
            manager.teardown_nodes()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send each worker the parts of the run's id, which run is resumed, and what it must have in common.

        Raises:
            pytest.UsageError: the worker can't do what the run asks for.
        """
        is_other, recorder = is_elsewhere(node.gateway.spec), self.recorder
        node.workerinput |= {SEED: self.seed, DIST: self._config.option.dist}
        if is_other:
            # a suite of marked tests is not known yet
            node.workerinput[SAME] = "" if recorder is None else json.dumps(common_ground(recorder.contexts))
        if recorder is None:
            return
        if is_other and (recorder.contexts.resumed is not None or recorder.contexts.settings.mode == "record"):
            raise pytest.UsageError(
                f"worker {name_of_worker(node)} can't write into the folders of this machine; record and resume with "
                "workers on this machine (-n)"
            )
        if recorder.contexts.resumed is not None:
            from pytest_packbench.pytest_plugin.recorder import OPTION

            node.workerinput[OPTION] = str(recorder.contexts.resumed.folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Note which cases were selected, from node ids: only workers have items."""
        if self.recorder is None:
            return
        self._started.add(node.gateway.id)
        for nodeid in ids:
            if nodeid not in self._selected:
                self._selected.add(nodeid)
                self._select(self.recorder, nodeid)
        if not self._config.option.collectonly:
            self.recorder.begin_journals()

    def _select(self, recorder: Recorder, nodeid: str) -> None:
        from pytest_packbench.cases.finder import SUFFIXES, file_stem
        from pytest_packbench.pytest_plugin.case_run import uncollected_case_ref

        file, _, name = nodeid.rpartition("::")
        # xdist may append a group, and the name of a file may have an @ of its own
        _, at_sign, group = name.removeprefix(file_stem(file)).rpartition("@")
        if at_sign:
            name, nodeid = (text.removesuffix(f"@{group}") for text in (name, nodeid))
        path = rootdir_of(self._config) / file
        # a stray file is named after itself
        is_stray = name == path.name
        if not is_stray and not file.endswith(SUFFIXES):
            return
        for suite in recorder.contexts.suites.values():
            if path.is_relative_to(suite.controls_path):
                recorder.select(suite, nodeid)
            elif path.is_relative_to(suite.path if is_stray else suite.cases_path):
                case_ref = partial(uncollected_case_ref, recorder.contexts, suite, nodeid, file=file, name=name)
                recorder.select(suite, nodeid, case_ref)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Any:
        """Decode a report before any other hook reads it, and take the marked tests that a worker tells with it."""
        marked = report.__dict__.pop(TOLD, "")
        if marked:
            self._add(marked, report)
        elif report.when not in _PHASES:
            # a worker crashed: its tests may be marked
            self._crashed.append(report)
        if self.recorder is not None:
            decode_report(report)
        node = getattr(report, "node", None)
        if node is not None and report.when != "teardown" and is_elsewhere(node.gateway.spec):
            self._reported.setdefault(str(node.gateway.spec), []).append(report.nodeid)
        return (yield)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take what a worker tells at its end; a crashed one tells nothing.

        Raises:
            pytest.UsageError: the worker refused the session, or could not start it.
            pytest.Session.Interrupted: likewise, where there are results already, which are kept.
        """
        output = getattr(node, "workeroutput", None) or {}
        told = json.loads(output.get(TOLD, "{}"))
        # it had nothing to report
        if told.get("marked"):
            self._add(told["marked"])
        recorder = self.recorder
        if recorder is None:
            return
        from pytest_packbench.pytest_plugin.settings import REFUSED

        is_other = is_elsewhere(node.gateway.spec)
        recorder.note_worker(told)
        if REFUSED in output:
            self._end(recorder, f"worker {name_of_worker(node)}: {output[REFUSED]}" if is_other else output[REFUSED])
        if error and is_other and node.gateway.id not in self._started:
            # xdist would start it again and again
            reason = str(error).strip().splitlines()[-1]
            self._end(recorder, f"worker {name_of_worker(node)} ended before it had collected its cases: {reason}")
        if is_other and output:
            self._compare(recorder, node, told.get("same") or {})

    def _end(self, recorder: Recorder, message: str) -> NoReturn:
        """End the session because of a worker."""
        message = recorder.contexts.redactor.text(message)
        # a usage error writes no report
        if any(run.by_nodeid for run in recorder.runs.values()):
            raise pytest.Session.Interrupted(message)
        raise pytest.UsageError(message)

    def _compare(self, recorder: Recorder, node: Any, theirs: Mapping[str, str]) -> None:
        """Reject what a worker reported if it ran other code, cases or settings than this process has.

        Args:
            recorder: has the results.
            node: the worker.
            theirs: what it returned from `common_ground`; empty if its version does not know that.
        """
        own = common_ground(recorder.contexts, named=theirs)
        problem = difference(own, theirs, theirs or own)
        if problem:
            # earlier workers of the same place may have crashed before they were compared
            reported = self._reported.get(str(node.gateway.spec), ())
            recorder.reject(reported, f"not counted: worker {name_of_worker(node)}: {problem}")

    def _add(self, marked: str, *reports: pytest.TestReport) -> None:
        if marked not in self._added:
            self._added.add(marked)
            self._add_marked(marked, [*self._crashed, *reports])


class Worker:
    """The hooks of a worker."""

    def __init__(self, contexts: SessionSuites) -> None:
        self._contexts = contexts
        self._marked = ""
        self._is_ending = False
        self._kept: dict[int, Result] = {}
        from pytest_packbench.runs.journal import WorkerJournals

        given: dict[str, str] = contexts.config.workerinput  # type: ignore[attr-defined]  # xdist sets it on workers
        self._same = given.get(SAME)
        self._journals = WorkerJournals(contexts.output, contexts.run_id, given["workerid"])

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Watch the connection to the controller: its end must not leave a worker that goes on alone."""
        # only this plugin has the channel of execnet, which notices the end at once, on other machines too
        plugins = session.config.pluginmanager.get_plugins()
        channel = next((plugin.channel for plugin in plugins if hasattr(plugin, "channel")), None)
        if channel is not None:
            threading.Thread(target=self._watch, args=(channel, session), daemon=True).start()

    def _watch(self, channel: Any, session: pytest.Session) -> None:
        # an exception of the controller closes it too
        with suppress(Exception):
            channel.waitclose()
        if self._is_ending:
            return
        session.shouldstop = "the controller is gone"
        if self._contexts.prefetcher is not None:
            self._contexts.prefetcher.runner.stop()
        time.sleep(_GRACE_S)
        if not self._is_ending:
            # a target does not return
            os._exit(1)

    def journal(self, entry: Entry) -> bool:
        """Append an ended attempt, on any thread, or a result to this worker's journal; return whether it is there."""
        from pytest_packbench.model.result import Result

        is_kept = self._journals.append(entry)
        if is_kept and isinstance(entry, Result):
            self._kept[id(entry)] = entry
        if self._journals.problem:
            self._contexts.stop_unstored(self._journals.problem)
        return is_kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse to run something else than the controller has; note the marked tests, which it can't know."""
        from pytest_packbench.pytest_plugin.case_run import runs_of
        from pytest_packbench.pytest_plugin.settings import refuse

        if self._same:
            controllers = json.loads(self._same)
            problem = difference(controllers, common_ground(self._contexts, named=controllers), controllers)
            if problem:
                refuse(session.config, problem)
        runs = [run for run in runs_of(session.items) if run.test_function]
        tests = [
            {"suite": run.suite.name, "nodeid": run.nodeid, "file": run.file, "case_id": run.name, "target": run.target}
            for run in runs
        ]
        self._marked = json.dumps(tests) if tests else ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Encode a report for sending; the first one carries the marked tests."""
        results = getattr(report, RESULTS_ATTRIBUTE, ())
        if results and all(id(result) in self._kept for result in results):
            # the controller need not store them again
            setattr(report, JOURNALED_ATTRIBUTE, True)
        for result in results:
            self._kept.pop(id(result), None)
        encode_report(report)
        if self._marked:
            setattr(report, TOLD, self._marked)
            self._marked = ""

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End what is in flight, and send what only this process knows."""
        from pytest_packbench.engine.offline import take_late

        self._is_ending = True
        self._contexts.close()
        self._journals.close()
        told: dict[str, Any] = {
            "collected": self._contexts.collected,
            "spent": self._contexts.clients.ledger.as_json(),
            "marked": self._marked,
            "late": {name: take_late(suite) for name, suite in self._contexts.suites.items()},
        }
        if self._same is not None:
            # with suites of marked tests, and modules that cases imported
            told["same"] = common_ground(self._contexts)
        # as ASCII: execnet can't send lone surrogates
        session.config.workeroutput[TOLD] = json.dumps(told)  # type: ignore[attr-defined]  # xdist sets it on workers


def encode_report(report: pytest.TestReport) -> None:
    """Encode a report's results for xdist: as ASCII, because it can't send lone surrogates of answers."""
    results = getattr(report, RESULTS_ATTRIBUTE, None)
    if results is not None:
        lines = [result.as_json() for result in results]
        setattr(report, RESULTS_ATTRIBUTE, json.dumps(lines))


def decode_report(report: pytest.TestReport) -> None:
    """Decode a report that xdist has sent."""
    results: object = report.__dict__.get(RESULTS_ATTRIBUTE)
    if isinstance(results, str):
        from pydantic_core import from_json

        try:
            # keys and words that all results share are kept once
            decoded = from_json(results)
        except ValueError:
            # a lone surrogate, or nested deeply
            decoded = json.loads(results)
        setattr(report, RESULTS_ATTRIBUTE, tuple(map(_result_sent, decoded)))
    text = report.longrepr
    if report.failed and isinstance(text, str):
        from pytest_packbench.pytest_plugin.case_run import is_of_case
        from pytest_packbench.pytest_plugin.explain import explanation_at

        if is_of_case(report):
            report.longrepr = explanation_at(report.location, text)  # type: ignore[assignment]  # pytest's own is private


def _result_sent(line: Any) -> Any:
    from pytest_packbench.model.result import result_sent

    if "control" not in line:
        return result_sent(line)
    from pytest_packbench.model.recording import ControlResult

    return ControlResult.from_line(line)


# of the process that reports, or of one machine; files are compared by their content
_OWN_SETTINGS = frozenset(
    {"baseline", "baseline_optional", "cache", "concurrency", "debugged", "fail_on", "files", "home", "output"}
    | {"policy_from", "resume", "resume_changed", "root", "stops", "workers"}
)
# files of a suite that only the process that reports reads
_OWN_FILES = frozenset({"baseline.json", "policy_changes.yaml"})
# what xdist copies to other machines
_COPIED = frozenset({"pytest", "_pytest"})
# what an installed package lacks, and what it has instead of the suites
_NOT_INSTALLED = frozenset({"starter", "_suites"})


def common_ground(contexts: SessionSuites, *, named: Iterable[str] = ()) -> dict[str, str]:
    """Return what all processes of a run must have in common, each thing by its name.

    Args:
        contexts: the suites of the session.
        named: what another process returned: the files among it that this one did not import are added.
    """
    from pytest_packbench.engine.contexts import shown_path

    settings, root = contexts.settings, rootdir_of(contexts.config)
    selection = contexts.config.stash.get(SELECTION, None)
    ground = {
        "pytest-packbench": f"{__version__}, {_digest_below(Path(__file__).parents[1], '*.py', _is_not_installed)}",
        "the selection": ", ".join(sorted(suite.name for suite in selection.suites)) if selection is not None else "",
    }
    for each in fields(settings):
        if each.name not in _OWN_SETTINGS:
            ground[f"the setting {each.name}"] = str(getattr(settings, each.name))
    for name, path in settings.files.items():
        ground[f"the setting {name}"] = f"{shown_path(path, settings.home)}, {_digest(path)}"
    for suite in contexts.suites.values():
        pack, folder = contexts.pack_of(suite), shown_path(suite.path, root)
        files = _digest_below(suite.path, "*", lambda parts: "/".join(parts) in _OWN_FILES)
        ground[f"suite {suite.name}"] = f"{folder}, pack {pack.name} {pack.version}, {files}"
    modules = {*_project_modules(contexts), *(name for name in named if name.endswith(".py"))}
    return ground | {name: _digest(root / name) for name in sorted(modules)}


def difference(here: Mapping[str, str], there: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the first thing that controller and worker do not have in common, in one line; empty if there is none.

    Args:
        here: what the controller returned from `common_ground`.
        there: what the worker did.
        names: what is compared.
    """
    for name in names:
        one, other = (ground.get(name) or "missing" for ground in (here, there))
        if one != other:
            return (
                f"{name} differs: on this machine {one}, on the worker's {other}; use the same commit and packages, "
                "and options or the ini file, because workers elsewhere do not get the environment of this machine"
            )
    return ""


def _is_not_installed(parts: tuple[str, ...]) -> bool:
    return not _NOT_INSTALLED.isdisjoint(parts)


def _digest_below(folder: Path, pattern: str, is_left_out: Callable[[tuple[str, ...]], bool]) -> str:
    """Return a hash of the files below a folder, without notes, hidden ones, and some by the parts of their path."""
    digest = sha256()
    for path in sorted(folder.rglob(pattern)):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "__pycache__")) for part in parts)
        if not hidden and path.suffix != ".md" and not is_left_out(parts) and path.is_file():
            digest.update(f"{'/'.join(parts)} {_digest(path)}\n".encode())
    return digest.hexdigest()


def _project_modules(contexts: SessionSuites) -> Iterator[str]:
    """Yield the project's Python files that this process has imported, relative to rootdir."""
    root = rootdir_of(contexts.config)
    loaded = [*sys.modules.values(), *contexts.config.pluginmanager.get_plugins()]
    for file in {str(file) for module in loaded if (file := getattr(module, "__file__", None))}:
        path = Path(file)
        if path.suffix == ".py" and path.is_relative_to(root) and not path.is_relative_to(sys.prefix):
            name = path.relative_to(root)
            if name.parts[0] not in _COPIED and "site-packages" not in name.parts:
                yield name.as_posix()


def _digest(path: Path) -> str:
    """Return a hash of a file; empty where there is none, or it can't be read."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
