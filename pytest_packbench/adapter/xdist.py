"""xdist: one run id for all workers, and what the controller knows only from them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.adapter.collect import SUFFIX
from pytest_packbench.adapter.execute import shown_file
from pytest_packbench.cases.load import parse_case
from pytest_packbench.cases.problem import CaseError
from pytest_packbench.engine.entries import Place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_packbench.adapter.ahead import Ahead
    from pytest_packbench.adapter.collect import Collector
    from pytest_packbench.adapter.session import Recorder
    from pytest_packbench.adapter.suites import Benches
    from pytest_packbench.cases.suite import Suite
    from pytest_packbench.engine.protocols.pack import Pack

_OUTPUT = "packbench_collected"
_SPENT = "packbench_spent"


class Worker:
    """What a worker tells at its end."""

    def __init__(self, collector: Collector, benches: Benches, ahead: Ahead | None) -> None:
        self._collector = collector
        self._benches = benches
        self._ahead = ahead

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell how many cases were found before any was deselected, and what was used; end what is under way."""
        if self._ahead is not None:
            self._ahead.close()
        self._benches.close()
        output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]  # xdist sets it on workers
        output[_OUTPUT] = dict(self._collector.collected)
        output[_SPENT] = self._benches.answerers.ledger.as_json()


class Controller:
    """What the controller tells the workers and learns from them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give each worker the session's run id."""
        node.workerinput["packbench_run_id"] = self._recorder.run_id

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note what was selected, from node ids: only workers have items."""
        for nodeid in ids:
            path, mark, name = nodeid.rpartition("::")
            if mark and path.endswith(SUFFIX):
                self._select(path, name.partition("@")[0])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Learn how many cases the worker had found; a crashed one tells nothing."""
        told = getattr(node, "workeroutput", None) or {}
        self._recorder.note_collected(told.get(_OUTPUT, {}))
        if _SPENT in told:
            self._recorder.note_spent(told[_SPENT])

    def _select(self, file: str, name: str) -> None:
        recorder = self._recorder
        path = recorder.config.rootpath / file
        for suite in recorder.benches.suites.values():
            if path.is_relative_to(suite.cases_path):
                pack = recorder.benches.pack_of(suite)
                recorder.select(suite.name, f"{file}::{name}", partial(late_place, suite, pack, path, file, name))
                return


def late_place(suite: Suite, pack: Pack, path: Path, file: str, name: str) -> Place:
    """Say where a case stands that only workers collected: it is read again, for its entry alone.

    Args:
        suite: its suite.
        pack: the suite's pack.
        path: its file.
        file: the file as the node id names it.
        name: its id.
    """
    try:
        loaded = parse_case(path.read_bytes(), pack.case_model, source=file, stem=path.stem, pack=pack.name)
    except (CaseError, OSError):
        loaded = None
    return Place(
        suite=suite,
        pack=pack,
        case_id=name,
        nodeid=f"{file}::{name}",
        file=shown_file(suite, path, file),
        folder=path.parent.name,
        loaded=loaded,
    )
