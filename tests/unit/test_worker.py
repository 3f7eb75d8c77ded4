"""A worker of xdist ends: its journals are closed before it tells the controller, which reads them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pytest_packbench.pytest_plugin.xdist import TOLD, Worker
from pytest_packbench.runs.journal import Journal, is_locked, read_worker_journals
from tests.unit.run_builders import case_result

if TYPE_CHECKING:
    from pathlib import Path


def test_the_journals_of_a_worker_that_ends_are_closed(tmp_path: Path) -> None:
    folder = tmp_path / "toy" / "01RUN"
    folder.mkdir(parents=True)
    config: Any = SimpleNamespace(workerinput={"workerid": "gw0"}, workeroutput={})
    ended: list[bool] = []
    contexts: Any = SimpleNamespace(
        config=config,
        output=tmp_path,
        run_id="01RUN",
        clients=SimpleNamespace(ledger=SimpleNamespace(as_json=lambda: {"calls": 1})),
        suites={},
        prefetcher=None,
        collected={"toy": 1},
        close=lambda: ended.append(True),
    )
    session: Any = SimpleNamespace(config=config)
    worker = Worker(contexts)
    assert worker.journal(case_result("a"))
    (path,) = folder.iterdir()
    assert is_locked(path)
    worker.pytest_sessionfinish(session)
    assert not is_locked(path)
    told = json.loads(config.workeroutput[TOLD])
    assert (ended, told["collected"], told["spent"]) == ([True], {"toy": 1}, {"calls": 1})
    assert list(read_worker_journals(folder)) == [case_result("a").case.nodeid]
    with Journal(path) as journal:
        journal.append(case_result("b"))
