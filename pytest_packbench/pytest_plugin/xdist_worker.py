"""A worker of xdist: what it stores and sends to the controller, and its end when the controller is gone."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.plugin import JOURNALED_ATTRIBUTE, KEEP, RESULTS_ATTRIBUTE, RESUMED, RUN_ID, SAME
from pytest_packbench.pytest_plugin.case_run import encode_report, run_of
from pytest_packbench.pytest_plugin.suites import CONTROLLERS, NOT_SENT, WORKERS, common_ground, differences, refuse
from pytest_packbench.pytest_plugin.xdist_controller import COLLECTED, LATE, MARKED, PROGRESS, SPENT
from pytest_packbench.runs.journal import WorkerJournals

if TYPE_CHECKING:
    from pytest_packbench.model.result import EndedAttempt, Result
    from pytest_packbench.pytest_plugin.collection import Collector
    from pytest_packbench.pytest_plugin.prefetch import Prefetcher
    from pytest_packbench.pytest_plugin.suites import SessionSuites


_GRACE_S = 2.0
"""How long a worker without a controller may take to end by itself, seconds."""


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
        if self._journals.problem and self._contexts.settings.mode != "fixture":
            from pytest_packbench.engine.metering import UNWRITABLE  # fixture mode does not count

            self._contexts.clients.ledger.stop(UNWRITABLE, f"{self._journals.problem}; answers would be lost")
        return is_kept

    def _keep(self, result: Result) -> None:
        if self._journals.append(result):
            self._kept[id(result)] = result

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse to run something else than the controller has; note the marked tests, which it can't know."""
        expected = self._same
        if expected:
            problems = differences(json.loads(expected), self._contexts, there=CONTROLLERS, here=WORKERS)
            if problems:
                refuse(session.config, "; ".join(problems))
        self._marked = _marked_tests(session)

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
        if report.when == "teardown" and self._contexts.settings.mode != "fixture":
            setattr(report, PROGRESS, self._progress())
        if self._marked and not self._has_sent_marked:
            self._has_sent_marked = True
            setattr(report, MARKED, self._marked)

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
        output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]  # xdist sets it on workers
        output[COLLECTED] = dict(self._collector.collected)
        output[SPENT] = self._contexts.clients.ledger.as_json()
        output[MARKED] = self._marked
        if self._same is not None:
            # suites of marked tests, and modules that cases imported
            checked = json.loads(self._same)["suites"] if self._same else {}
            output[SAME] = json.dumps(common_ground(self._contexts, known=checked))
        output[LATE] = json.dumps(
            {name: self._contexts.take_late(suite) for name, suite in self._contexts.suites.items()}
        )


def _marked_tests(session: pytest.Session) -> str:
    """Return the selected marked tests as JSON; empty if there is none."""
    runs = [run for item in session.items if (run := run_of(item)) is not None and run.test_function]
    tests = [
        {"suite": run.suite.name, "nodeid": run.nodeid, "file": run.file, "case_id": run.name, "target": run.target}
        for run in runs
    ]
    return json.dumps(tests) if tests else ""


class Unselected:
    """Ends a worker that was asked for no suite, where the controller was: it would run other tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """End the session."""
        message = "no suite is selected there; name it by --packbench-suite"
        refuse(self._config, f"{message}, because {NOT_SENT}")
