"""Under xdist: the controller collects nothing, so that only its workers know of marked tests."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

RUN_SEED = pytest.StashKey[str]()
SEED = "packbench_seed"
TOLD = "packbench_marked"


class Workers:
    """Listens on xdist's controller: gives workers the run's seed, and learns from them which tests are marked."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._learned: set[str] = set()
        self._crashed: list[pytest.TestReport] = []
        # what a ULID is made of: all workers need the run's id, and an unrelated run needs no ULID
        self._seed = (time.time_ns() // 1_000_000).to_bytes(6, "big").hex() + os.urandom(10).hex()
        config.stash[RUN_SEED] = self._seed

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give each worker what the run's id is made of."""
        node.workerinput[SEED] = self._seed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Learn from a worker's first report which tests are marked; keep reports of crashes until that is known."""
        told = report.__dict__.pop(TOLD, "")
        if told:
            self._learn(told, report)
        elif report.when not in {"setup", "call", "teardown"}:
            self._crashed.append(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Learn the same from a worker that had nothing to report."""
        told = getattr(node, "workeroutput", {}).get(TOLD, "")
        if told:
            self._learn(told)

    def _learn(self, told: str, *reports: pytest.TestReport) -> None:
        if told not in self._learned:
            self._learned.add(told)
            from pytest_packbench.pytest_plugin.marks import learn

            learn(self._config, told, [*self._crashed, *reports])
