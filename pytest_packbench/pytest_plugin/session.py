"""The session: what is registered with pytest once suites were asked for."""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.model.run import TEST_TARGET_PREFIX
from pytest_packbench.plugin import ASKED
from pytest_packbench.pytest_plugin.case_run import Reporter
from pytest_packbench.pytest_plugin.collection import Collector
from pytest_packbench.pytest_plugin.github import register_github
from pytest_packbench.pytest_plugin.jsonreport import switch_on
from pytest_packbench.pytest_plugin.recorder import Recorder
from pytest_packbench.pytest_plugin.resume import Changes, resumed_run
from pytest_packbench.pytest_plugin.selection import check_asked
from pytest_packbench.pytest_plugin.settings import read_settings
from pytest_packbench.pytest_plugin.stash import AHEAD, CONTEXTS, RESUMED, RUN_ID
from pytest_packbench.pytest_plugin.suites import open_suites
from pytest_packbench.pytest_plugin.terminal import Progress, Terminal
from pytest_packbench.pytest_plugin.workers import RUN_SEED, SEED

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from pytest_packbench.pytest_plugin.prefetch import Ahead
    from pytest_packbench.pytest_plugin.suites import SessionSuites
    from pytest_packbench.runs.resume import ResumedRun


def register(config: pytest.Config, *, late: bool = False) -> None:
    """Register the plugins of a session that was asked for suites.

    Args:
        config: the session's.
        late: whether collection has begun, so that no case comes from a file.

    Raises:
        pytest.UsageError: a setting, a suite or the target can't be used.
    """
    if not late:
        _check_no_plan(config)
    asked = config.stash[ASKED]
    contexts = open_suites(config, read_settings(config), asked.folders, bundled=asked.bundled)
    config.stash[CONTEXTS] = contexts
    check_asked(contexts, asked)
    collector = Collector(contexts, asked)
    config.pluginmanager.register(collector, "packbench-collector")
    config.pluginmanager.register(Garbage(), "packbench-garbage")
    config.pluginmanager.register(Reporter(), "packbench-reporter")
    ahead = None if late else _work_ahead(config, contexts)
    config.stash[RUN_ID] = _run_id(config)
    _resume(config, contexts, late=late)
    if hasattr(config, "workerinput"):
        from pytest_packbench.pytest_plugin.xdist import Worker

        config.pluginmanager.register(Worker(collector, contexts, ahead), "packbench-worker")
        return
    recorder = Recorder(config, contexts, collector)
    recorder.check_resumed()
    switch_on(config)
    config.pluginmanager.register(recorder, "packbench-recorder")
    config.pluginmanager.register(Terminal(recorder), "packbench-terminal")
    register_github(config, recorder)
    if ahead is not None:
        ahead.keep = recorder.keep
        progress = Progress(config, ahead)
        ahead.tick, ahead.clear, ahead.again = progress.tick, progress.clear, progress.again
    # by its option: xdist may be loaded under any name
    if getattr(config.option, "dist", "no") != "no":
        from pytest_packbench.pytest_plugin.xdist import Controller

        config.pluginmanager.register(Controller(recorder), "packbench-controller")


def _check_no_plan(config: pytest.Config) -> None:
    """Refuse what runs the setup of tests alone: a case's setup is all there is of it, and asks its target."""
    for name in ("plan", "only"):
        if getattr(config.option, f"setup{name}", False):
            raise pytest.UsageError(
                f"--setup-{name}: benchmark cases have no setup to show; expected --collect-only, or no suite"
            )


def _resume(config: pytest.Config, contexts: SessionSuites, *, late: bool) -> None:
    resumed = resumed_run(config, contexts)
    if resumed is None:
        return
    if late:
        raise pytest.UsageError("--packbench-resume: tests of your own are run anew; it is for cases from files")
    _check_from_files(resumed)
    config.stash[RUN_ID], config.stash[RESUMED] = resumed.run_id, resumed
    config.pluginmanager.register(Changes(resumed), "packbench-changes")


def _check_from_files(resumed: ResumedRun) -> None:
    """Refuse a run with tests of the user's own by that name: told as another target it would look like a change."""
    for suite, kept in resumed.prior.items():
        named = kept.run.target.split(", ") if kept.run is not None else []
        if any(name.startswith(TEST_TARGET_PREFIX) for name in named) and not resumed.rerun_changed:
            raise pytest.UsageError(
                f'--packbench-resume: run {resumed.run_id} of suite "{suite}" has tests of your own, which are not '
                "resumed; start a new run"
            )


def _run_id(config: pytest.Config) -> str:
    from ulid import ULID

    seed = getattr(config, "workerinput", {}).get(SEED) or config.stash.get(RUN_SEED, "")
    return str(ULID.from_hex(seed) if seed else ULID())


def _work_ahead(config: pytest.Config, contexts: SessionSuites) -> Ahead | None:
    controls = getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput")
    if not contexts.settings.ahead or controls or config.option.collectonly:
        return None
    from pytest_packbench.pytest_plugin.prefetch import Ahead

    config.stash[AHEAD] = ahead = Ahead(config, contexts)
    config.pluginmanager.register(ahead, "packbench-ahead")
    return ahead


_FULL = 2
_WHILE_COLLECTING = 10_000
# what Python has from 3.13 on
_WHILE_RUNNING = 2_000
_NEVER = 1_000_000_000


class _SetAside:
    """What is set aside in this process, if anything; there may be several sessions in it."""

    def __init__(self) -> None:
        self._held = False
        self._due = False

    def take(self) -> None:
        """Set aside what there is."""
        self._held = True
        gc.freeze()

    def plan_return(self) -> None:
        """Give it back at the next full collection, if the process lives to see one."""
        self._due = self._held
        if self._due and self._give_back not in gc.callbacks:
            gc.callbacks.append(self._give_back)

    def _give_back(self, phase: str, info: dict[str, Any]) -> None:
        # when the interpreter ends the operating system takes all at once
        if self._due and phase == "start" and info["generation"] == _FULL and not sys.is_finalizing():
            self._due = self._held = False
            gc.unfreeze()


_SET_ASIDE = _SetAside()


class Garbage:
    """The session's hooks: what was collected is set aside and given back; young garbage is looked for less often."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()

    def pytest_configure(self, config: pytest.Config) -> None:
        """See that all is as it was before, after pytest has looked for garbage for the last time."""
        config.add_cleanup(_SET_ASIDE.plan_return)
        config.add_cleanup(partial(gc.set_threshold, *self._before))

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Make no full collection while cases are collected: they stay, and there are many."""
        _, old, full = self._before
        gc.set_threshold(self._at_least(_WHILE_COLLECTING), old, _NEVER)
        try:
            return (yield)
        finally:
            gc.set_threshold(self._at_least(_WHILE_RUNNING), old, full)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Set aside what there is."""
        _SET_ASIDE.take()

    def _at_least(self, young: int) -> int:
        # 0 is somebody's wish to have no collection at all
        return max(self._before[0], young) if self._before[0] else 0
