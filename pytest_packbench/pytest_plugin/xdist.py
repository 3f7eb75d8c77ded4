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
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_packbench import __version__
from pytest_packbench.plugin import (
    JOURNALED_ATTRIBUTE,
    KEEP,
    RESULTS_ATTRIBUTE,
    RESUMED,
    RUN_ID,
    SAME,
    SELECTION,
    rootdir_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.result import EndedAttempt, Result
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.collection import Collector
    from pytest_packbench.pytest_plugin.prefetch import Prefetcher
    from pytest_packbench.pytest_plugin.recorder import Recorder
    from pytest_packbench.pytest_plugin.settings import Settings
    from pytest_packbench.pytest_plugin.suites import SessionSuites

SEED = "packbench_seed"
DIST = "packbench_dist"
"""How tests are distributed, for workers: xdist takes the option from them."""
TOLD = "packbench_told"
"""The attribute of a worker's report, and the key of its output, with what only the worker knows."""
CONTROLLERS, WORKERS = "on this machine", "on the worker's"
"""Where a process is, in messages that the controller shows."""
_LOST = "HostNotFound"
"""The exception of execnet for a host that ssh does not reach, which is no `OSError`."""
_PHASES = ("setup", "call", "teardown")
_GRACE_S = 2.0
"""How long a worker without a controller may take to end by itself, seconds."""
_NOT_SENT = "workers elsewhere do not get the environment of this machine"


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
    """The hooks of the controller, also of a run without a suite.

    Args:
        config: the controller's.
        add_marked: adds the marked tests that a worker selected, as JSON, and the reports that came before them.

    Attributes:
        seed: what the run's id is made of.
    """

    def __init__(self, config: pytest.Config, add_marked: Callable[[str, list[pytest.TestReport]], None]) -> None:
        self._config = config
        self._add_marked = add_marked
        self._added: set[str] = set()
        self._crashed: list[pytest.TestReport] = []
        self._workers: Workers | None = None
        # the parts of a ULID: all workers need the run's id, and a run without suites needs no ULID
        self.seed = (time.time_ns() // 1_000_000).to_bytes(6, "big").hex() + os.urandom(10).hex()

    def attach(self, recorder: Recorder) -> None:
        """Set the recorder, once a suite was requested."""
        self._workers = Workers(recorder)
        self._config.pluginmanager.register(self._workers, "packbench-workers")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Interrupt the run, which keeps its results, where a lost machine can't be reached again."""
        try:
            return (yield)
        except Exception as error:
            if self._workers is None or not _may_be_lost(self._config, error):
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

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send each worker the parts of the run's id, and how tests are distributed."""
        node.workerinput |= {SEED: self.seed, DIST: self._config.option.dist}
        if is_elsewhere(node.gateway.spec):
            # no suite is known yet
            node.workerinput.setdefault(SAME, "")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Any:
        """Take what a worker tells with a report before any other hook reads it: marked tests, and its progress."""
        told = report.__dict__.pop(TOLD, {})
        progress: Any = self._config.pluginmanager.get_plugin("packbench-progress")
        if progress is not None and "progress" in told:
            progress.note_worker(told["progress"])
        if "marked" in told:
            self._add(told["marked"], report)
        elif report.when not in _PHASES:
            # a worker crashed: its tests may be marked
            self._crashed.append(report)
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
        if self._workers is not None:
            from pytest_packbench.pytest_plugin.suites import REFUSED

            self._workers.note_end(node, error, told, output.get(REFUSED, ""))
        # it had nothing to report
        if told.get("marked"):
            self._add(told["marked"])
        if self._workers is not None and output and is_elsewhere(node.gateway.spec):
            self._workers.compare(node, told.get("same", ""))

    def _add(self, marked: str, *reports: pytest.TestReport) -> None:
        if marked not in self._added:
            self._added.add(marked)
            self._add_marked(marked, [*self._crashed, *reports])


class Workers:
    """The hooks of the controller of a run with a suite.

    Args:
        recorder: the run's.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._contexts = recorder.contexts
        self._config = recorder.config
        self._last_path: tuple[str, Path] | None = None
        self._has_announced = False
        self._collected: set[str] = set()
        self._reported: dict[str, list[str]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None, object, object]:
        """Refuse missing cases, which xdist does not report, and workers that can't be started.

        Raises:
            pytest.UsageError: a case that the command line names does not exist, or a host of `--tx` is not reached.
        """
        from pytest_packbench.pytest_plugin.settings import check_cases_exist

        check_cases_exist(self._contexts, session.config.stash[SELECTION])
        # before the workers start, which read the journal
        self._recorder.begin_journals(resumed=True)
        try:
            return (yield)
        except Exception as error:
            # xdist turns paths into those of its copies
            has_path = isinstance(error, ValueError)
            if not _may_be_lost(self._config, error) and not (has_path and _has_workers_elsewhere(self._config)):
                raise
            from pytest_packbench.model.errors import describe_error

            advice = "check the host, python and chdir of each --tx by hand: ssh HOST PYTHON -V"
            if has_path:
                advice = (
                    "workers elsewhere take no paths: name suites with --packbench-suite=NAME, and write --option=PATH"
                )
            problem = f"--tx: a worker can't be started: {describe_error(error)}; {advice}"
            raise pytest.UsageError(problem) from error

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send each worker which run is resumed, and one that may run something else what it must have in common.

        Raises:
            pytest.UsageError: the worker can't do what the run asks for.
        """
        resumed, spec = self._recorder.resumed, node.gateway.spec
        if is_in_other_folder(spec):
            worker = name_of_worker(node)
            if self._contexts.settings.mode == "record":
                raise pytest.UsageError(
                    f"--packbench-mode=record: worker {worker} would write its recordings into its own folder; record "
                    "with workers on this machine (-n), or run pytest on the other one"
                )
            if resumed is not None:
                raise pytest.UsageError(
                    f"--packbench-resume: worker {worker} can't read the run's folder; resume with workers on this "
                    "machine (-n)"
                )
        if is_elsewhere(spec):
            node.workerinput[SAME] = json.dumps(common_ground(self._contexts))
        if resumed is not None:
            from pytest_packbench.pytest_plugin.resume import OPTION

            node.workerinput[OPTION] = resumed.worker_input()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Note which cases were selected, from node ids: only workers have items."""
        self._collected.add(node.gateway.id)
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
                self._select(file, case_id)
        if not self._config.option.collectonly:
            self._recorder.begin_journals()
            if self._contexts.settings.mode != "fixture":
                self._announce(selected)

    def _select(self, file: str, name: str) -> None:
        from pytest_packbench.pytest_plugin.case_run import uncollected_case_ref

        # the lines of one file share its path
        if self._last_path is None or self._last_path[0] != file:
            self._last_path = file, rootdir_of(self._config) / file
        path, nodeid = self._last_path[1], f"{file}::{name}"
        for suite in self._contexts.suites.values():
            if path.is_relative_to(suite.controls_path):
                self._recorder.select_control(suite.name, nodeid)
                return
            if path.is_relative_to(suite.cases_path if name != path.name else suite.path):
                case_ref = partial(uncollected_case_ref, self._contexts, suite, nodeid, file=file, name=name)
                self._recorder.select(suite.name, nodeid, case_ref)
                return

    def _announce(self, selected: set[str]) -> None:
        """Write once how many calls a live run expects to make, as a run in one process does."""
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if self._has_announced or reporter is None:
            return
        self._has_announced = True
        runs = self._recorder.runs.values()
        lookups = [lookup for run in runs for nodeid, lookup in run.selected.items() if nodeid in selected]
        if lookups:
            writer = self._config.get_terminal_writer()
            # xdist's own line, which pytest's reporter does not know
            if writer.width_of_current_line:
                writer.line()
            reporter.write_line(self._contexts.expected_text(lookup() for lookup in lookups))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Any:
        """Decode a report before any other hook reads it."""
        from pytest_packbench.pytest_plugin.case_run import decode_report

        decode_report(report)
        node = getattr(report, "node", None)
        if node is not None and report.when != "teardown" and is_elsewhere(node.gateway.spec):
            self._reported.setdefault(str(node.gateway.spec), []).append(report.nodeid)
        return (yield)

    def note_end(self, node: Any, error: object, told: Mapping[str, Any], refusal: str) -> None:
        """Add what a worker tells at its end to the totals.

        Args:
            node: the worker.
            error: why it has ended early; None if it has not.
            told: what it tells.
            refusal: why it refused the session; empty if it did not.

        Raises:
            pytest.UsageError: it refused the session, or could not start it.
            pytest.Session.Interrupted: likewise, where there are results already, which are kept.
        """
        is_other, name = is_elsewhere(node.gateway.spec), name_of_worker(node)
        self._recorder.note_worker(told)
        if refusal:
            self._end(f"worker {name}: {refusal}" if is_other else refusal)
        if error and is_other and node.gateway.id not in self._collected:
            # xdist would start it again and again
            reason = str(error).strip().splitlines()[-1]
            self._end(f"worker {name} ended before it had collected its cases: {reason}")

    def _end(self, message: str) -> NoReturn:
        """End the session because of a worker."""
        message = self._contexts.redactor.text(message)
        # a usage error writes no report
        if any(run.by_nodeid for run in self._recorder.runs.values()):
            raise pytest.Session.Interrupted(message)
        raise pytest.UsageError(message)

    def compare(self, node: Any, theirs: str) -> None:
        """Reject what a worker reported if it ran other code, cases or settings than this process has.

        Args:
            node: the worker.
            theirs: what it returned from `common_ground`, as JSON; empty if its version does not know that.
        """
        problems = ["its version of pytest-packbench doesn't check that it runs the same suite; install the same one"]
        if theirs:
            problems = differences(json.loads(theirs), self._contexts, there=WORKERS, here=CONTROLLERS)
        if problems:
            # earlier workers of the same place may have crashed before they were compared
            reported = self._reported.get(str(node.gateway.spec), ())
            self._recorder.reject(reported, f"not counted: worker {name_of_worker(node)}: {'; '.join(problems)}")


def _has_workers_elsewhere(config: pytest.Config) -> bool:
    return any(spec.rpartition("*")[2] != "popen" for spec in config.option.tx)


def _may_be_lost(config: pytest.Config, error: Exception) -> bool:
    """Whether an exception is that of a machine that can't be reached."""
    return _has_workers_elsewhere(config) and (isinstance(error, OSError) or type(error).__name__ == _LOST)


class Worker:
    """The hooks of a worker."""

    def __init__(self, collector: Collector, contexts: SessionSuites, prefetcher: Prefetcher | None) -> None:
        self._collector = collector
        self._contexts = contexts
        self._prefetcher = prefetcher
        self._marked = ""
        self._has_sent_marked = False
        self._is_ending = False
        self._kept: dict[int, Result] = {}
        from pytest_packbench.runs.journal import WorkerJournals

        config = contexts.config
        resumed = config.stash.get(RESUMED, None)
        base = resumed.base if resumed is not None else contexts.settings.output
        name: str = config.workerinput["workerid"]  # type: ignore[attr-defined]  # xdist sets it on workers
        self._name = name
        self._same: str | None = config.workerinput.get(SAME)  # type: ignore[attr-defined]  # as above
        self._journals = WorkerJournals(base, config.stash[RUN_ID], name)
        config.stash[KEEP] = self._keep
        if prefetcher is not None:
            prefetcher.on_ended = self._keep_ended

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
        if self._prefetcher is not None:
            self._prefetcher.runner.stop()
        time.sleep(_GRACE_S)
        if not self._is_ending:
            # a target does not return
            os._exit(1)

    def _keep_ended(self, ended: EndedAttempt) -> bool:
        is_kept = self._journals.append(ended)
        if self._journals.problem:
            self._contexts.stop_unstored(self._journals.problem)
        return is_kept

    def _keep(self, result: Result) -> None:
        if self._journals.append(result):
            self._kept[id(result)] = result

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse to run something else than the controller has; note the marked tests, which it can't know."""
        from pytest_packbench.pytest_plugin.case_run import run_of
        from pytest_packbench.pytest_plugin.suites import refuse

        if self._same:
            problems = differences(json.loads(self._same), self._contexts, there=CONTROLLERS, here=WORKERS)
            if problems:
                refuse(session.config, "; ".join(problems))
        runs = [run for item in session.items if (run := run_of(item)) is not None and run.test_function]
        tests = [
            {"suite": run.suite.name, "nodeid": run.nodeid, "file": run.file, "case_id": run.name, "target": run.target}
            for run in runs
        ]
        self._marked = json.dumps(tests) if tests else ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Encode a report for sending; the first one carries the marked tests."""
        from pytest_packbench.pytest_plugin.case_run import encode_report

        results = getattr(report, RESULTS_ATTRIBUTE, ())
        if results and all(id(result) in self._kept for result in results):
            # the controller need not store them again
            setattr(report, JOURNALED_ATTRIBUTE, True)
        for result in results:
            self._kept.pop(id(result), None)
        encode_report(report)
        told: dict[str, Any] = {}
        if report.when == "teardown" and self._contexts.settings.mode != "fixture":
            told["progress"] = self._progress()
        if self._marked and not self._has_sent_marked:
            self._has_sent_marked = True
            told["marked"] = self._marked
        if told:
            setattr(report, TOLD, told)

    def _progress(self) -> dict[str, Any]:
        """Return what the controller can't know, for its progress line."""
        ledger = self._contexts.clients.ledger
        in_flight = 0 if self._prefetcher is None else self._prefetcher.runner.progress().in_flight
        return {"worker": self._name, "in_flight": in_flight, "retries": ledger.retries, "spent": ledger.as_json()}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End what is in flight, and send what only this process knows."""
        self._is_ending = True
        if self._prefetcher is not None:
            self._prefetcher.close()
        self._journals.close()
        self._contexts.close()
        told: dict[str, Any] = {
            "collected": self._collector.collected,
            "spent": self._contexts.clients.ledger.as_json(),
            "marked": self._marked,
            "late": {name: self._contexts.take_late(suite) for name, suite in self._contexts.suites.items()},
        }
        if self._same is not None:
            # suites of marked tests, and modules that cases imported
            checked = json.loads(self._same)["suites"] if self._same else {}
            told["same"] = json.dumps(common_ground(self._contexts, known=checked))
        # as ASCII: execnet can't send lone surrogates
        session.config.workeroutput[TOLD] = json.dumps(told)  # type: ignore[attr-defined]  # xdist sets it on workers


class Unselected:
    """Ends a worker that was asked for no suite, where the controller was: it would run other tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """End the session."""
        from pytest_packbench.pytest_plugin.suites import refuse

        message = "no suite is selected there; name it by --packbench-suite"
        refuse(self._config, f"{message}, because {_NOT_SENT}")


_MAX_NAMED = 5
# of the process that reports, or of one machine
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


def common_ground(contexts: SessionSuites, *, known: Iterable[str] = ()) -> dict[str, Any]:
    """Return what all processes of a run must have in common, as plain JSON.

    Args:
        contexts: the suites of the session.
        known: the names of suites that were compared already.
    """
    selection = contexts.config.stash.get(SELECTION, None)
    root = rootdir_of(contexts.config)
    return {
        "package": _package(),
        "settings": _settings(contexts.settings),
        "selected": sorted(suite.name for suite in selection.suites) if selection is not None else [],
        "suites": {
            name: _suite(contexts, contexts.suites[name]) for name in sorted(contexts.suites.keys() - set(known))
        },
        "modules": {name: _digest(root / name) for name in _project_modules(contexts)},
    }


def differences(theirs: Mapping[str, Any], contexts: SessionSuites, *, there: str, here: str) -> list[str]:
    """Return what another process of the run does not have in common with this one, one phrase each.

    Args:
        theirs: what the other process returned from `common_ground`.
        contexts: the suites of this one.
        there: where the other process is, in the words of the message.
        here: where this one is.
    """

    def phrase(what: str, one: str, other: str) -> str:
        return f"{what} {one} {there}, {other} {here}"

    own = common_ground(contexts, known=contexts.suites.keys() - theirs["suites"].keys())
    if theirs["package"] != own["package"]:
        version = theirs["package"][0]
        if version != __version__:
            return [f"{phrase('pytest-packbench is', version, __version__)}; install the same version"]
        return [f"the code of pytest-packbench {version} is not the same; install the same one"]
    found = []
    for name in _differing(theirs["settings"], own["settings"]):
        values = (settings.get(name, "not known") or "not set" for settings in (theirs["settings"], own["settings"]))
        found.append(phrase(f"{name} is", *values))
    if found:
        found[-1] += f"; use options or the ini file, because {_NOT_SENT}"
    if theirs["selected"] != own["selected"]:
        found.append(phrase("the suites are", ", ".join(theirs["selected"]), ", ".join(own["selected"])))
    for name, suite in own["suites"].items():
        other = theirs["suites"][name]
        if other["path"] != suite["path"]:
            hint = "; a bundled suite runs on other machines as a copy: packbench init --from NAME, and commit it"
            found.append(phrase(f"suite {name} is", other["path"], suite["path"]) + (hint if suite["bundled"] else ""))
            continue
        if other["pack"] != suite["pack"]:
            found.append(phrase(f"the pack of suite {name} is", other["pack"], suite["pack"]))
        found += _listed(_differing(other["files"], suite["files"]), f"suite {name}: ")
    root = rootdir_of(contexts.config)
    modules = {name: _digest(root / name) for name in theirs["modules"]}
    return [*found, *_listed(_differing(theirs["modules"], modules), "")]


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _listed(files: list[str], start: str) -> Iterator[str]:
    if files:
        more = f" and {len(files) - _MAX_NAMED} more" if len(files) > _MAX_NAMED else ""
        verb = "differs or is missing" if len(files) == 1 else "differ or are missing"
        yield f"{start}{', '.join(files[:_MAX_NAMED])}{more} {verb}; check out the same commit on both machines"


@cache
def _package() -> list[str]:
    """Return the version of this package, and a hash of its code."""
    folder = Path(__file__).parents[1]
    code = sha256()
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if _NOT_INSTALLED.isdisjoint(name.parts):
            code.update(f"{name.as_posix()} {_digest(path)}\n".encode())
    return [__version__, code.hexdigest()]


def _settings(settings: Settings) -> dict[str, str]:
    """Return the settings that decide what a case is asked and how it is judged, as text."""
    values = {each.name: getattr(settings, each.name) for each in fields(settings) if each.name not in _OWN_SETTINGS}
    texts = {name: "" if value is None else str(value) for name, value in values.items()}
    from pytest_packbench.engine.contexts import shown_path

    files = {name: shown_path(path, settings.home) for name, path in settings.files.items()}
    return texts | {name: f"{path} {_digest(settings.home / path)}".strip() for name, path in files.items()}


def _suite(contexts: SessionSuites, suite: Suite) -> dict[str, Any]:
    pack = contexts.pack_of(suite)
    files: dict[str, str] = {}
    for path in suite.path.rglob("*"):
        name = path.relative_to(suite.path)
        hidden = any(part.startswith((".", "__pycache__")) for part in name.parts)
        if not hidden and path.suffix != ".md" and name.as_posix() not in _OWN_FILES:
            digest = _digest(path)
            files |= {name.as_posix(): digest} if digest else {}
    from pytest_packbench.engine.contexts import shown_path

    folder = shown_path(suite.path, rootdir_of(contexts.config))
    return {"path": folder, "bundled": suite.bundled, "pack": f"{pack.name} {pack.version}", "files": files}


def _project_modules(contexts: SessionSuites) -> list[str]:
    """Return the project's Python files that this process has imported, relative to rootdir."""
    root = rootdir_of(contexts.config)
    loaded = [*sys.modules.values(), *contexts.config.pluginmanager.get_plugins()]
    files = {str(file) for module in loaded if (file := getattr(module, "__file__", None))}
    names = set()
    for file in files:
        path = Path(file)
        if path.suffix == ".py" and path.is_relative_to(root) and not path.is_relative_to(sys.prefix):
            name = path.relative_to(root)
            if name.parts[0] not in _COPIED and "site-packages" not in name.parts:
                names.add(name.as_posix())
    return sorted(names)


def _digest(path: Path) -> str:
    """Return a hash of a file; empty where there is none, or it can't be read."""
    try:
        return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    except OSError:
        return ""
