"""A pytest plugin that notes in the data of coverage which test runs a line, in child processes as well."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

CONFIG = "COVERAGE_PROCESS_CONFIG"
"""The variable by which coverage configures child processes: JSON in base64."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Name the test as the context of what runs in it."""
    measured, inherited = coverage.Coverage.current(), os.environ.get(CONFIG)
    if measured is not None:
        measured.switch_context(item.nodeid)
    if inherited is not None:
        config = {**json.loads(base64.b64decode(inherited)), "context": item.nodeid}
        os.environ[CONFIG] = base64.b64encode(json.dumps(config).encode()).decode()
    try:
        return (yield)
    finally:
        if inherited is not None:
            os.environ[CONFIG] = inherited
        if measured is not None:
            measured.switch_context("")
