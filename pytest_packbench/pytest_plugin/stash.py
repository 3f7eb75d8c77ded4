"""Keys of pytest's stash, and the attribute by which results travel on reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from pytest_packbench.engine.serving import Serving
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.pytest_plugin.prefetch import Prefetcher
    from pytest_packbench.pytest_plugin.suites import SessionSuites
    from pytest_packbench.runs.resume import ResumedRun


CONTEXTS: pytest.StashKey[SessionSuites] = pytest.StashKey()
SERVING: pytest.StashKey[Serving] = pytest.StashKey()
"""The gateway of this process; without it, it must not serve."""
PREFETCHER: pytest.StashKey[Prefetcher] = pytest.StashKey()
RUN_ID = pytest.StashKey[str]()
RESUMED: pytest.StashKey[ResumedRun] = pytest.StashKey()
KEEP: pytest.StashKey[Callable[[CaseResult], object]] = pytest.StashKey()
"""Stores a result at once, before pytest reports its item."""
RESULTS_ATTRIBUTE = "packbench_entries"
CONTROL = "packbench_control"
"""The attribute of the item of a control: its suite."""
CONTROL_ATTRIBUTE = "packbench_control_result"
"""The attribute of a report with what a control came to, as JSON."""
JOURNALED_ATTRIBUTE = "packbench_journaled"
"""The attribute of a worker's report whose results are in the worker's journal."""


def ungrouped(nodeid: str, known: Container[str]) -> str:
    """Return a node id without the group that xdist appends, unless it is known with it."""
    return nodeid if nodeid in known else nodeid.rpartition("@")[0] or nodeid


def ungrouped_name(name: str, stem: str) -> str:
    """Return a case's name without the group that xdist appends; its file's name at its beginning may contain an @."""
    prefix = stem if name.startswith(stem) else ""
    rest = name[len(prefix) :]
    return prefix + (rest.rpartition("@")[0] if "@" in rest else rest)
