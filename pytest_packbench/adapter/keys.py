"""What a session keeps in pytest's stash, and the attribute under which entries travel on reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Container

    from pytest_packbench.adapter.ahead import Ahead
    from pytest_packbench.adapter.resume import Resumed
    from pytest_packbench.adapter.suites import Benches

BENCHES: pytest.StashKey[Benches] = pytest.StashKey()
AHEAD: pytest.StashKey[Ahead] = pytest.StashKey()
RUN_ID = pytest.StashKey[str]()
RESUMED: pytest.StashKey[Resumed] = pytest.StashKey()
ATTRIBUTE = "packbench_entries"


def ungrouped(nodeid: str, known: Container[str]) -> str:
    """Give a node id without the group that xdist appends, where it is not known as it stands."""
    return nodeid if nodeid in known else nodeid.rpartition("@")[0] or nodeid
