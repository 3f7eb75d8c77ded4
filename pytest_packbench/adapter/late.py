"""Joining a session whose collection has begun: a mark may name a suite that nobody asked for before."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.adapter.activation import Asked, own_root, suites_root, suites_under, unknown
from pytest_packbench.adapter.jsonreport import switch_on_late
from pytest_packbench.adapter.keys import BENCHES
from pytest_packbench.adapter.marks import MarkError
from pytest_packbench.adapter.session import register
from pytest_packbench.adapter.xdist import late_place
from pytest_packbench.plugin import ASKED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_packbench.adapter.recorder import Recorder
    from pytest_packbench.cases.suite import Suite

REFUSED = pytest.StashKey[str]()


def join(config: pytest.Config, name: str) -> Suite:
    """Give a suite that a mark names; register the session's plugins where that was not done yet.

    Raises:
        MarkError: no suite has such a name.
        pytest.UsageError: the suite or a setting can't be used.
    """
    if BENCHES in config.stash and name in config.stash[BENCHES].suites:
        return config.stash[BENCHES].suites[name]
    if ASKED not in config.stash:
        root, bundled = suites_root(config, config.option)
        config.stash[ASKED] = Asked(root=root, bundled=bundled, named=(), folders={})
    asked = config.stash[ASKED]
    known = suites_under(asked.root)
    if name not in known:
        raise MarkError(unknown(name, known, own_root(config, config.option)))
    if REFUSED in config.stash:
        raise pytest.UsageError(config.stash[REFUSED])
    if BENCHES not in config.stash:
        _begin(config)
    suite = config.stash[BENCHES].add(name, known[name], bundled=asked.bundled)
    recorder = recorder_of(config)
    if recorder is not None:
        recorder.add(suite)
    return suite


def _begin(config: pytest.Config) -> None:
    try:
        register(config, late=True)
    except pytest.UsageError as error:
        # what is half begun is not begun again: the next mark is told the same
        config.stash[REFUSED] = str(error)
        raise
    switch_on_late(config)


def recorder_of(config: pytest.Config) -> Recorder | None:
    """Give the session's recorder; None in a worker of xdist."""
    recorder: Recorder | None = config.pluginmanager.getplugin("packbench-recorder")
    return recorder


def learn(config: pytest.Config, told: str, reports: Iterable[pytest.TestReport]) -> None:
    """Learn on xdist's controller what only workers have collected.

    Args:
        config: the controller's.
        told: what a worker told of its marked tests; see `marked.told_of`.
        reports: those that came before anybody listened, to be looked at now.
    """
    unheard = BENCHES not in config.stash
    try:
        cases = [(join(config, one["suite"]), one) for one in json.loads(told)]
    except (MarkError, pytest.UsageError) as error:
        # a worker could use the suite, so what differs is what this process has loaded
        hint = "hooks that name packs have to stand in the conftest.py of rootdir, or in a plugin"
        pytest.exit(f"packbench: xdist's controller can't use a suite that its workers use: {error}; {hint}", 4)
    recorder = recorder_of(config)
    if recorder is None:
        raise RuntimeError("a controller keeps a recorder")
    for suite, one in cases:
        pack = recorder.benches.pack_of(suite)
        path = config.rootpath / one["file"]
        named = {"file": one["file"], "name": one["case_id"], "nodeid": one["nodeid"]}
        place = partial(late_place, suite, pack, path, **named)
        recorder.select(suite.name, one["nodeid"], place, one["target"])
    for report in reports:
        if unheard:
            for plugin in (recorder, getattr(config, "_json_report", None)):
                if plugin is not None:
                    plugin.pytest_runtest_logreport(report=report)
        else:
            recorder.pytest_runtest_logreport(report)
