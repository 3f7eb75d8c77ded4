"""A worker of xdist: what it sends to the controller."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.offline import take_late
from pytest_packbench.pytest_plugin.case_run import encode_report, run_of
from pytest_packbench.pytest_plugin.stash import RESUMED, RUN_ID
from pytest_packbench.pytest_plugin.xdist_controller import COLLECTED, LATE, MARKED, SPENT
from pytest_packbench.runs.journal import WorkerJournals

if TYPE_CHECKING:
    from pytest_packbench.pytest_plugin.collection import Collector
    from pytest_packbench.pytest_plugin.prefetch import Prefetcher
    from pytest_packbench.pytest_plugin.suites import SessionSuites


class Worker:
    """The hooks of a worker."""

    def __init__(self, collector: Collector, contexts: SessionSuites, prefetcher: Prefetcher | None) -> None:
        self._collector = collector
        self._contexts = contexts
        self._prefetcher = prefetcher
        self._marked = ""
        self._has_sent_marked = False
        self._journals: WorkerJournals | None = None
        if prefetcher is not None and contexts.settings.mode != "fixture":
            config = contexts.config
            resumed = config.stash.get(RESUMED, None)
            base = resumed.base if resumed is not None else contexts.settings.output
            name: str = config.workerinput["workerid"]  # type: ignore[attr-defined]  # xdist sets it on workers
            self._journals = WorkerJournals(base, config.stash[RUN_ID], name)
            prefetcher.on_result = self._journals.append

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which marked tests were selected: the controller can't know them."""
        self._marked = _marked_tests(session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Encode a report for sending; the first one carries the marked tests."""
        encode_report(report)
        if self._marked and not self._has_sent_marked:
            self._has_sent_marked = True
            setattr(report, MARKED, self._marked)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End what is in flight, and send what only this process knows."""
        if self._prefetcher is not None:
            self._prefetcher.close()
        if self._journals is not None:
            self._journals.close()
        self._contexts.close()
        output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]  # xdist sets it on workers
        output[COLLECTED] = dict(self._collector.collected)
        output[SPENT] = self._contexts.clients.ledger.as_json()
        output[MARKED] = self._marked
        output[LATE] = json.dumps({name: take_late(suite) for name, suite in self._contexts.suites.items()})


def _marked_tests(session: pytest.Session) -> str:
    """Return the selected marked tests as JSON; empty if there is none."""
    runs = [run for item in session.items if (run := run_of(item)) is not None and run.test_function]
    tests = [
        {"suite": run.suite.name, "nodeid": run.nodeid, "file": run.file, "case_id": run.name, "target": run.target}
        for run in runs
    ]
    return json.dumps(tests) if tests else ""
