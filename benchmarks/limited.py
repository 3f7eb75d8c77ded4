"""A pytest plugin that ends the process when a test takes too long, even in compiled code that never returns."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_SECONDS = float(os.environ.pop("PACKBENCH_LIMIT_S"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Limit the processor time of a test, which other programs don't change; nobody handles the signal."""
    signal.setitimer(signal.ITIMER_PROF, _SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
