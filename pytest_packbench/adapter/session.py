"""The session: what is registered with pytest once suites were asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.adapter.collect import Collector
from pytest_packbench.adapter.execute import Reporter
from pytest_packbench.adapter.garbage import Garbage
from pytest_packbench.adapter.github import register_github
from pytest_packbench.adapter.jsonreport import switch_on
from pytest_packbench.adapter.keys import AHEAD, BENCHES, RESUMED, RUN_ID
from pytest_packbench.adapter.progress import Progress
from pytest_packbench.adapter.recorder import Recorder
from pytest_packbench.adapter.resume import Changes, find_resumed
from pytest_packbench.adapter.settings import read_settings
from pytest_packbench.adapter.shards import check_asked
from pytest_packbench.adapter.shown import Shown
from pytest_packbench.adapter.suites import open_benches
from pytest_packbench.adapter.terminal import Terminal
from pytest_packbench.adapter.workers import RUN_SEED, SEED
from pytest_packbench.plugin import ASKED
from pytest_packbench.records.run import OWN_TEST

if TYPE_CHECKING:
    from pytest_packbench.adapter.ahead import Ahead
    from pytest_packbench.adapter.resume import Resumed
    from pytest_packbench.adapter.suites import Benches


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
    benches = open_benches(config, read_settings(config), asked.folders, bundled=asked.bundled)
    config.stash[BENCHES] = benches
    check_asked(benches, asked)
    collector = Collector(benches, asked)
    config.pluginmanager.register(collector, "packbench-collector")
    config.pluginmanager.register(Garbage(), "packbench-garbage")
    config.pluginmanager.register(Reporter(), "packbench-reporter")
    ahead = None if late else _work_ahead(config, benches)
    config.stash[RUN_ID] = _run_id(config)
    _resume(config, benches, late=late)
    if hasattr(config, "workerinput"):
        from pytest_packbench.adapter.xdist import Worker

        config.pluginmanager.register(Worker(collector, benches, ahead), "packbench-worker")
        return
    recorder = Recorder(config, benches, collector)
    recorder.check_resumed()
    switch_on(config)
    config.pluginmanager.register(recorder, "packbench-recorder")
    config.pluginmanager.register(Terminal(recorder), "packbench-terminal")
    config.pluginmanager.register(Shown(), "packbench-shown")
    register_github(config, recorder)
    if ahead is not None:
        ahead.keep = recorder.keep
        progress = Progress(config, ahead)
        ahead.tick, ahead.clear, ahead.again = progress.tick, progress.clear, progress.again
    # by its option: xdist may be loaded under any name
    if hasattr(config.option, "dist"):
        from pytest_packbench.adapter.xdist import Controller

        config.pluginmanager.register(Controller(recorder), "packbench-controller")


def _check_no_plan(config: pytest.Config) -> None:
    """Refuse what runs the setup of tests alone: a case's setup is all there is of it, and asks its target."""
    for name in ("plan", "only"):
        if getattr(config.option, f"setup{name}", False):
            raise pytest.UsageError(
                f"--setup-{name}: benchmark cases have no setup to show; expected --collect-only, or no suite"
            )


def _resume(config: pytest.Config, benches: Benches, *, late: bool) -> None:
    resumed = find_resumed(config, benches)
    if resumed is None:
        return
    if late:
        raise pytest.UsageError("--packbench-resume: tests of your own are run anew; it is for cases from files")
    _check_from_files(resumed)
    config.stash[RUN_ID], config.stash[RESUMED] = resumed.run_id, resumed
    config.pluginmanager.register(Changes(resumed), "packbench-changes")


def _check_from_files(resumed: Resumed) -> None:
    """Refuse a run with tests of the user's own by that name: told as another target it would look like a change."""
    for suite, kept in resumed.kept.items():
        named = kept.run.target.split(", ") if kept.run is not None else []
        if any(name.startswith(OWN_TEST) for name in named) and not resumed.anew:
            raise pytest.UsageError(
                f'--packbench-resume: run {resumed.run_id} of suite "{suite}" has tests of your own, which are not '
                "resumed; start a new run"
            )


def _run_id(config: pytest.Config) -> str:
    from ulid import ULID

    seed = getattr(config, "workerinput", {}).get(SEED) or config.stash.get(RUN_SEED, "")
    return str(ULID.from_hex(seed) if seed else ULID())


def _work_ahead(config: pytest.Config, benches: Benches) -> Ahead | None:
    controls = getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput")
    if not benches.settings.ahead or controls or config.option.collectonly:
        return None
    from pytest_packbench.adapter.ahead import Ahead

    config.stash[AHEAD] = ahead = Ahead(config, benches)
    config.pluginmanager.register(ahead, "packbench-ahead")
    return ahead
