"""Starts the gateway of a session before any conftest.py or target is imported: clients read its address at import."""

from __future__ import annotations

import os

import pytest

from pytest_packbench.engine.serving import Serving
from pytest_packbench.plugin import setting_of
from pytest_packbench.pytest_plugin.stash import SERVING


def serve(config: pytest.Config) -> Serving:
    """Start the gateway, once, and stop it at the end of the session.

    Raises:
        pytest.UsageError: variables of one provider lead to different addresses.
    """
    if SERVING not in config.stash:
        mode = setting_of("mode", config.known_args_namespace, config.getini)[0]
        config.stash[SERVING] = serving = Serving(mode, here=not _is_controller(config))
        config.add_cleanup(serving.stop)
        try:
            serving.start()
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[SERVING]


def _is_controller(config: pytest.Config) -> bool:
    """Whether the session is that of the controller of xdist, which runs no case: each of its workers has a gateway."""
    # without xdist there are no such options
    options = vars(config.known_args_namespace)
    if options.get("numprocesses") == 0:
        return False
    distributes = options.get("numprocesses") or options.get("distload") or options.get("dist", "no") != "no"
    # xdist sets the variable in workers before it reads their options, which are those of the controller
    return bool(distributes) and not options.get("usepdb") and "PYTEST_XDIST_WORKER" not in os.environ
