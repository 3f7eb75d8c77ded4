"""A pytest plugin that records the calls of one test: `-p benchmarks.walked --walked-to=FILE`.

Only the first three of the collected tests run. During the protocol of the third one (setup, call, teardown, with the
hooks that receive its reports), each call of a Python function of `pytest_packbench` is recorded, in any thread; a
generator or coroutine that resumes counts as called again. `benchmarks.architecture` reads the file.
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
"""The number of the recorded test, from one: the tests before it do all work that is done once."""


class Walked:
    """The plugin: a profiler of all threads, enabled while the last test runs.

    Attributes:
        calls: the files of the called functions, relative to the package's folder, in order.
    """

    def __init__(self, file: Path) -> None:
        self.calls: list[str] = []
        self._file = file
        self._begun = 0
        self._home = f"{Path(PACKAGE).resolve()}/"
        self._on = False

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; the callback of `sys.setprofile`."""
        if self._on and event == "call" and frame.f_code.co_filename.startswith(self._home):
            self.calls.append(frame.f_code.co_filename.removeprefix(self._home))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Keep only the first tests."""
        yield
        del items[TESTS:]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Profile the last test."""
        self._begun += 1
        self._on = self._begun == TESTS
        try:
            return (yield)
        finally:
            self._on = False

    def pytest_sessionfinish(self) -> None:
        """Write the recorded calls."""
        self._file.write_text(json.dumps(self.calls), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file's name."""
    parser.addoption("--walked-to", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Start with the session, so that threads started before the test are profiled as well."""
    walked = Walked(config.getoption("walked_to"))
    config.pluginmanager.register(walked)
    threading.setprofile(walked.profile)
    sys.setprofile(walked.profile)


def pytest_unconfigure() -> None:
    """Remove the profiler."""
    sys.setprofile(None)
    threading.setprofile(None)
