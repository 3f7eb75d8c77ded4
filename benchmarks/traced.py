"""A pytest plugin that notes in the data of coverage which test runs a line, in child processes as well.

It also has hooks of `sys.addaudithook` traced, which Python does not by itself.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

CONFIG = "COVERAGE_PROCESS_CONFIG"
"""The variable by which coverage configures child processes: JSON in base64."""

_add_hook = sys.addaudithook


def _add_traced_hook(hook: Callable[[str, tuple[Any, ...]], Any]) -> None:
    # as the documentation of `sys.addaudithook` says; a method has no attributes of its own
    function: Any = getattr(hook, "__func__", hook)
    function.__cantrace__ = True
    _add_hook(hook)


sys.addaudithook = _add_traced_hook


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
