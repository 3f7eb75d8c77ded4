"""A pytest plugin that keeps the calls of one test's run: `-p benchmarks.walked --walked-to=FILE`.

Of the tests that were collected the first three stay. From the third's protocol on (set-up, call, tear-down, with the
hooks that take its reports) until its end, each call of a Python function of `pytest_packbench` is kept, whatever
thread it is in; a generator or coroutine that goes on counts as called again. `benchmarks.architecture` reads the file.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

PACKAGE = "pytest_packbench"
TESTS = 3
"""The test that is looked at, counted from one: those before it do what is done once."""


class Walked:
    """The plugin: the profiler of all threads, switched on while the last test runs.

    Attributes:
        calls: the files of the functions called, each relative to the package's folder, in order.
    """

    def __init__(self, file: Path) -> None:
        self.calls: list[str] = []
        self._file = file
        self._begun = 0
        self._home = f"{Path(PACKAGE).resolve()}/"
        self._on = False

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Keep a call: what `sys.setprofile` asks for."""
        if self._on and event == "call" and frame.f_code.co_filename.startswith(self._home):
            self.calls.append(frame.f_code.co_filename.removeprefix(self._home))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Leave the first tests."""
        yield
        del items[TESTS:]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Look at the last test."""
        self._begun += 1
        self._on = self._begun == TESTS
        try:
            return (yield)
        finally:
            self._on = False

    def pytest_sessionfinish(self) -> None:
        """Write what was kept."""
        self._file.write_text(json.dumps(self.calls), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file's name."""
    parser.addoption("--walked-to", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Begin with the session, so that threads that begin before the test are profiled as well."""
    walked = Walked(config.getoption("walked_to"))
    config.pluginmanager.register(walked)
    threading.setprofile(walked.profile)
    sys.setprofile(walked.profile)


def pytest_unconfigure() -> None:
    """Leave no profiler behind."""
    sys.setprofile(None)
    threading.setprofile(None)
