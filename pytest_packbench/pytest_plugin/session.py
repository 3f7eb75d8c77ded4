"""The session: registers the plugins of a run once a suite is requested."""

from __future__ import annotations

import gc
import os
import signal
import threading
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.offline import keep_process
from pytest_packbench.engine.time_limit import TimeLimit, Watchdog
from pytest_packbench.model.run import CHECK_FOLDER
from pytest_packbench.plugin import (
    CONTEXTS,
    CONTROLLER,
    SELECTION,
    THRESHOLDS,
    collect_less_garbage,
)
from pytest_packbench.pytest_plugin.case_run import Reporter, Secrets
from pytest_packbench.pytest_plugin.collection import Collector
from pytest_packbench.pytest_plugin.explain import ErrorGroups
from pytest_packbench.pytest_plugin.integrations import refuse_repetition, register_integrations
from pytest_packbench.pytest_plugin.json_report import enable
from pytest_packbench.pytest_plugin.recorder import Recorder
from pytest_packbench.pytest_plugin.settings import SessionSuites, open_suites, read_settings
from pytest_packbench.pytest_plugin.terminal import Progress, Scores, Terminal

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_packbench.pytest_plugin.xdist import Worker


def register(config: pytest.Config, *, collecting: bool = False) -> None:
    """Register the plugins of a session with suites.

    Args:
        config: the session's.
        collecting: whether collection has started, so that cases come from marked tests only.

    Raises:
        pytest.UsageError: a setting, a suite or the target can't be used.
    """
    if not collecting:
        _check_no_plan(config)
    refuse_repetition(config)
    selection = config.stash[SELECTION]
    if pytest.version_tuple < (9,):
        # it drops an argument that contains another one, and all that only the first one selects
        config.args[:] = [argument for argument in config.args if argument not in selection.contained]
    # targets are imported next
    _add(config, LastResort())
    contexts = config.stash[CONTEXTS] = open_suites(config, read_settings(config), selection.suites)
    collector = Collector(contexts, selection)
    _add(config, collector, GarbageCollection(), Reporter(), Secrets(contexts.redactor))
    enable(config, late=collecting)
    register_integrations(config, collecting=collecting)
    contexts.run_id = _run_id(config)
    if not collecting:
        _start_prefetcher(contexts)
    if contexts.settings.resume:
        from pytest_packbench.pytest_plugin.recorder import resume

        resume(contexts, collecting=collecting)
    if hasattr(config, "workerinput"):
        from pytest_packbench.pytest_plugin.xdist import Worker

        keeper: Worker | Recorder = Worker(contexts)
    else:
        keeper = Recorder(contexts)
    _add(config, keeper)
    contexts.journal = keeper.journal
    if contexts.prefetcher is not None:
        contexts.prefetcher.on_ended = keeper.journal
    if isinstance(keeper, Recorder):
        _register_reporting(keeper)


def _register_reporting(recorder: Recorder) -> None:
    """Register what shows results, in the controller of xdist or the only process."""
    config, contexts, errors = recorder.config, recorder.contexts, ErrorGroups()
    if folder := os.environ.get(CHECK_FOLDER):
        from pytest_packbench.pytest_plugin.check import Check

        _add(config, Check(recorder, folder))
    _add(config, errors, Terminal(recorder, errors), Termination())
    # without -v there are no words
    if config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) > 0:
        _add(config, Scores())
    if os.environ.get("GITHUB_STEP_SUMMARY") or os.environ.get("GITHUB_ACTIONS") == "true":
        from pytest_packbench.pytest_plugin.integrations import GitHub

        _add(config, GitHub(recorder, os.environ))
    prefetcher = contexts.prefetcher
    if prefetcher is not None and contexts.settings.mode != "fixture":
        progress = Progress(config, contexts.clients.ledger, prefetcher)
        _add(config, progress)
        prefetcher.tick, prefetcher.clear = progress.tick, progress.clear
    controller = config.pluginmanager.getplugin(CONTROLLER)
    if controller is not None:
        controller.recorder = recorder


def _add(config: pytest.Config, *plugins: object) -> None:
    """Register plugins of the session, a `Recorder` as `packbench-recorder`."""
    for plugin in plugins:
        config.pluginmanager.register(plugin, f"packbench-{type(plugin).__name__.lower()}")


def _check_no_plan(config: pytest.Config) -> None:
    """Refuse to run only setups: the setup of a case calls its target."""
    for name in ("plan", "only"):
        if getattr(config.option, f"setup{name}", False):
            raise pytest.UsageError(
                f"--setup-{name}: benchmark cases have no fixtures to set up; use --collect-only, or select no suite"
            )


def _run_id(config: pytest.Config) -> str:
    from pytest_packbench.runs.folder import new_run_id

    controller = config.pluginmanager.getplugin(CONTROLLER)
    seed = controller.seed if controller is not None else ""
    if hasattr(config, "workerinput"):
        from pytest_packbench.pytest_plugin.xdist import SEED

        seed = config.workerinput.get(SEED, "")
    return new_run_id(seed)


def _start_prefetcher(contexts: SessionSuites) -> None:
    config = contexts.config
    is_controller = config.pluginmanager.hasplugin(CONTROLLER)
    if contexts.settings.prefetches and not is_controller and not config.option.collectonly:
        from pytest_packbench.pytest_plugin.prefetch import Prefetcher

        contexts.prefetcher = Prefetcher(contexts)
        _add(config, contexts.prefetcher)


# the default from Python 3.13 on
_YOUNG_WHILE_RUNNING = 2_000


class GarbageCollection:
    """Makes garbage collection cheaper while cases are collected and run, because items live to the end.

    Without it 5,000 generic cases take 20 % more CPU.
    """

    def pytest_configure(self, config: pytest.Config) -> None:
        """Return what an earlier session of the process froze: at its end, that would take 8 % more CPU."""
        gc.unfreeze()
        collect_less_garbage(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Freeze what was collected, if it is run, and collect garbage as Python 3.13 does."""
        if not session.config.option.collectonly:
            gc.freeze()
        # without, garbage collection is off, and stays so
        if THRESHOLDS in session.config.stash:
            young, old, full = session.config.stash[THRESHOLDS]
            gc.set_threshold(max(young, _YOUNG_WHILE_RUNNING), old, full)


class Termination:
    """Ends the session at SIGTERM as Ctrl-C does: what has run is reported as a part of the run."""

    def __init__(self) -> None:
        self._is_ending = False

    def pytest_configure(self, config: pytest.Config) -> None:
        """Handle the signal until the end of the session, unless the user's own code does."""
        # only the main thread may set handlers
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._end)
            config.add_cleanup(_restore_default)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Let the session end by itself from now on."""
        self._is_ending = True

    def _end(self, _number: int, _frame: object) -> None:
        # some programs send the signal twice, to the process and to its group
        if not self._is_ending:
            self._is_ending = True
            raise KeyboardInterrupt("SIGTERM")


def _restore_default() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


_STDERR = 2


class LastResort:
    """Says on the terminal why a process ends with a target that can't be ended, and keeps targets from ending it.

    All but cases may take as long as it likes: where they end, the plugins of collection and of marked tests say so.
    """

    # of a session that can't start
    _status = int(pytest.ExitCode.USAGE_ERROR)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Do so until the end of the session."""
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        # capturing replaces what this descriptor is; with marked tests, it has begun
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            TimeLimit.file = terminal = os.dup(_STDERR)
        config.add_cleanup(partial(_close, terminal))
        config.add_cleanup(partial(setattr, TimeLimit, "file", _STDERR))
        finish = keep_process(lambda line: os.write(terminal, f"\n{line}\n".encode()))
        config.add_cleanup(lambda: finish(self._status))
        if not _has_own_timeout(config):
            Watchdog.file = terminal
            config.add_cleanup(_stop_watching)

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        """Start the thread again with the next case: the plugin faulthandler of pytest has ended it."""
        Watchdog.cancel()

    @pytest.hookimpl(trylast=True)
    def pytest_enter_pdb(self) -> None:
        """Start it again with the next case, likewise, and remove the time limit of this one."""
        TimeLimit.remove()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Let the end of the session take as long as it likes, and remember its exit code."""
        Watchdog.cancel()
        try:
            return (yield)
        finally:
            self._status = int(session.exitstatus)


def _stop_watching() -> None:
    Watchdog.cancel()
    Watchdog.file = None


def _close(descriptor: int) -> None:
    # a target may have closed it
    with suppress(OSError):
        os.close(descriptor)


def _has_own_timeout(config: pytest.Config) -> bool:
    """Whether the user has set pytest's own time limit, which uses the same thread."""
    try:
        return float(config.getini("faulthandler_timeout") or 0) > 0
    except ValueError:
        # its plugin is off
        return False
