"""Hooks for users: write them in a `conftest.py` or an installed plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench import EvalRecord, Pack, Suite


@pytest.hookspec(firstresult=True)
def pytest_packbench_target(config: pytest.Config, suite: Suite) -> Any:
    """Return the target of a suite: a function, or an object with a method `verify`; plain or async.

    It is called with the verify request, and with the context if it takes two arguments, and returns a JSON object. The
    first result that is not None counts. `--packbench-target` takes precedence over this hook, and this hook over the
    `target` of the suite and the reference target of its pack.
    """


@pytest.hookspec
def pytest_packbench_packs() -> Iterable[Pack]:  # type: ignore[empty-body]  # a specification has none
    """Return packs: instances of `pytest_packbench.Pack`.

    A pack with the name of a built-in one replaces it.
    """


@pytest.hookspec
def pytest_packbench_guards(config: pytest.Config, suite: Suite) -> Iterable[Any]:  # type: ignore[empty-body]  # a specification has none
    """Return guards for a suite; they follow those of `--packbench-guard` or `suite.yaml`.

    The suite's pack defines what a guard is. `--packbench-guard=none` disables these as well.
    """


@pytest.hookspec
def pytest_packbench_judges(config: pytest.Config) -> Mapping[str, Any]:  # type: ignore[empty-body]  # see above
    """Return judges by name; the pack that uses a judge defines what it is."""


@pytest.hookspec
def pytest_packbench_record(item: pytest.Item, record: EvalRecord) -> None:
    """Receive the wire record of a case as soon as the case is scored, in the process that ran it."""
