"""Each case is attempted once: cases opt out of pytest-rerunfailures, and what repeats every test is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.plugin import CONTROL
from pytest_packbench.pytest_plugin.case_run import run_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def refuse_repetition(config: pytest.Config) -> None:
    """Refuse options that repeat every test.

    Raises:
        pytest.UsageError: each case would be attempted several times.
    """
    if config.option.collectonly:
        return
    dist = getattr(config.option, "dist", "no")
    if hasattr(config, "workerinput"):
        from pytest_packbench.pytest_plugin.xdist_controller import DIST

        dist = config.workerinput.get(DIST)
    if dist == "each":
        raise pytest.UsageError("--dist=each: each worker would attempt every case; use --dist=load")
    forced = getattr(config.option, "force_reruns", None)
    if forced:
        raise pytest.UsageError(
            f"--force-reruns={forced}: each case is attempted once; use --reruns, which cases opt out of"
        )


def reruns(config: pytest.Config) -> int:
    """Return how often pytest-rerunfailures repeats a failed test by option or ini; 0 without the plugin."""
    if not hasattr(config.option, "reruns"):
        return 0
    if config.option.reruns is not None:
        return int(config.option.reruns)
    # the plugin ignores what is no number, too
    with suppress(TypeError, ValueError):
        return int(config.getini("reruns"))
    return 0


def opt_out_of_reruns(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Mark the items of cases and controls with the mark of pytest-rerunfailures, so that it does not repeat them.

    Args:
        config: the session's.
        items: the selected items: a mark of earlier would change what `-m flaky` selects.
    """
    if not hasattr(config.option, "force_reruns"):
        return
    general = reruns(config)
    # in this mode the plugin adds up the numbers of option and mark
    own = -general if getattr(config.option, "reruns_mode", "") == "append" else 0
    for item in items:
        is_own = run_of(item) is not None or hasattr(item, CONTROL)
        if is_own and (general or item.get_closest_marker("flaky") is not None):
            item.add_marker(pytest.mark.flaky(reruns=own), append=False)
