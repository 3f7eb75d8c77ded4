"""What a session keeps in pytest's stash, and the attribute under which entries travel on reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Container

    from pytest_packbench.pytest_plugin.prefetch import Ahead
    from pytest_packbench.pytest_plugin.suites import SessionSuites
    from pytest_packbench.runs.resume import ResumedRun


CONTEXTS: pytest.StashKey[SessionSuites] = pytest.StashKey()
AHEAD: pytest.StashKey[Ahead] = pytest.StashKey()
RUN_ID = pytest.StashKey[str]()
RESUMED: pytest.StashKey[ResumedRun] = pytest.StashKey()
ATTRIBUTE = "packbench_entries"


def ungrouped(nodeid: str, known: Container[str]) -> str:
    """Give a node id without the group that xdist appends, where it is not known as it stands."""
    return nodeid if nodeid in known else nodeid.rpartition("@")[0] or nodeid


def ungrouped_name(name: str, stem: str) -> str:
    """Give a case's name without the group that xdist appends; where it begins with its file's, that may have an @."""
    own = stem if name.startswith(stem) else ""
    rest = name[len(own) :]
    return own + (rest.rpartition("@")[0] if "@" in rest else rest)
