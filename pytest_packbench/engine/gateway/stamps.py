"""In-process attribution; a stand-in with the contract's names, which the module of that name replaces."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CASE_HEADER = "x-packbench-case"
CALLER_HEADER = "x-packbench-caller"
_TOKEN: ContextVar[str] = ContextVar("packbench_gateway_case", default="")


def install(base_url: str) -> Callable[[], None]:  # noqa: ARG001 - the contract's signature
    """Do nothing."""
    return lambda: None


@contextmanager
def stamped(token: str) -> Iterator[None]:
    """Set the stamp of this context."""
    before = _TOKEN.set(token)
    try:
        yield
    finally:
        _TOKEN.reset(before)


def running_work(token: str) -> list[str]:  # noqa: ARG001 - the contract's signature
    """Return nothing."""
    return []
