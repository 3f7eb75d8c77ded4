"""A pytest plugin that notes in the data of coverage which test runs a line, in child processes as well."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

VARIABLE = "PACKBENCH_TRACED_TEST"
"""Read by the configuration of coverage in `pyproject.toml`: the context of a process that a test starts."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Name the test as the context of what runs in it."""
    measured = coverage.Coverage.current()
    os.environ[VARIABLE] = item.nodeid
    if measured is not None:
        measured.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        del os.environ[VARIABLE]
        if measured is not None:
            measured.switch_context("")
