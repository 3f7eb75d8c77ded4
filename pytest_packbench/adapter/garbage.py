"""Keeping out of garbage collection's way what lives to the end: the cases, in their thousands.

Each full collection would look at all of them again, and pytest asks for two more at the end of a session.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

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
