"""Under xdist: the controller collects nothing, so that only its workers know of marked tests.

Every run under xdist imports this module, also one that has no suite: it imports the standard library and pytest only.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

RUN_SEED = pytest.StashKey[str]()
SEED = "packbench_seed"
TOLD = "packbench_marked"


class Workers:
    """Listens on xdist's controller: gives workers the run's seed, and learns from them which tests are marked.

    Args:
        config: the controller's.
        learn: takes what a worker told, with the reports that came before anybody listened.
    """

    def __init__(self, config: pytest.Config, learn: Callable[[str, list[pytest.TestReport]], None]) -> None:
        self._learn_from = learn
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
            self._learn_from(told, [*self._crashed, *reports])
