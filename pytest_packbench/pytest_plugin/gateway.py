"""Starts the gateway of a session before any conftest.py or target is imported: clients read its address at import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.engine.serving import Serving
from pytest_packbench.plugin import PREFETCHER, SERVING, setting_of

if TYPE_CHECKING:
    from collections.abc import Generator


def serve(config: pytest.Config) -> Serving:
    """Start the gateway, once, and stop it at the end of the session.

    Raises:
        pytest.UsageError: variables of one provider lead to different addresses.
    """
    if SERVING not in config.stash:
        mode = setting_of("mode", config.known_args_namespace, config.getini)[0]
        # a controller imports targets too, which must find a key and no network
        config.stash[SERVING] = serving = Serving(mode, here=mode == "fixture" or not _is_controller(config))
        config.add_cleanup(serving.stop)
        try:
            serving.start()
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
        config.pluginmanager.register(OtherTests(serving), "packbench-other-tests")
    return config.stash[SERVING]


class OtherTests:
    """Runs tests that are no cases of files with the variables as the user has set them."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Restore the variables for another test, unless cases may run at the same time."""
        from pytest_packbench.pytest_plugin.case_run import run_of

        run = run_of(item)
        # a marked test calls its model itself, without the gateway
        if PREFETCHER in item.config.stash or (run is not None and not run.test_function):
            return (yield)
        with self._serving.restored():
            return (yield)


def _is_controller(config: pytest.Config) -> bool:
    """Whether the session is that of the controller of xdist, which runs no case: each of its workers has a gateway."""
    # without xdist there are no such options
    options = vars(config.known_args_namespace)
    if options.get("numprocesses") == 0:
        return False
    distributes = options.get("numprocesses") or options.get("distload") or options.get("dist", "no") != "no"
    # xdist sets the variable in workers before it reads their options, which are those of the controller
    return bool(distributes) and not options.get("usepdb") and "PYTEST_XDIST_WORKER" not in os.environ
