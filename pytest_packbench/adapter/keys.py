"""What a session keeps in pytest's stash, and the attribute under which entries travel on reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_packbench.adapter.ahead import Ahead
    from pytest_packbench.adapter.suites import Benches

BENCHES: pytest.StashKey[Benches] = pytest.StashKey()
AHEAD: pytest.StashKey[Ahead] = pytest.StashKey()
RUN_ID = pytest.StashKey[str]()
ATTRIBUTE = "packbench_entries"
