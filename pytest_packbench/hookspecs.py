"""Hooks for users: write them in a `conftest.py` or an installed plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.record import EvalRecord
    from pytest_packbench.model.suite import Suite


@pytest.hookspec(firstresult=True)
def pytest_packbench_target(config: pytest.Config, suite: Suite) -> Any:
    """Give the target of a suite: a function, or an object with a method `verify`; plain or async.

    It is called with the verify request, and with the context if it takes two arguments, and gives a
    JSON object. The first hook that doesn't give None decides. `--packbench-target` comes before this
    hook, the suite's own `target` and the pack's reference target after it.
    """


@pytest.hookspec
def pytest_packbench_packs() -> Iterable[Pack]:  # type: ignore[empty-body]  # a specification has none
    """Give packs of your own: instances of `pytest_packbench.model.pack.Pack`.

    A pack with a built-in's name takes its place.
    """


@pytest.hookspec
def pytest_packbench_guards(config: pytest.Config, suite: Suite) -> Iterable[Any]:  # type: ignore[empty-body]  # a specification has none
    """Give guards of your own for a suite, after those named by `--packbench-guard` or in `suite.yaml`.

    What a guard is, the suite's pack says. `--packbench-guard=none` leaves these out as well.
    """


@pytest.hookspec
def pytest_packbench_judges(config: pytest.Config) -> Mapping[str, Any]:  # type: ignore[empty-body]  # see above
    """Give judges of your own, by name; what a judge is, the pack that uses it says."""


@pytest.hookspec
def pytest_packbench_record(item: pytest.Item, record: EvalRecord) -> None:
    """See the wire record of a case as soon as the case was scored, in the process that ran it."""
