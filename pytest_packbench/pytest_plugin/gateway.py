"""Starts the gateway of a session before any conftest.py or target is imported: clients read its address at import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_packbench.engine.serving import Serving, needs_gateway
from pytest_packbench.plugin import SELECTION, setting_of
from pytest_packbench.pytest_plugin.stash import SERVING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_packbench.pytest_plugin.selection import Selection

_FIXTURES = "fixtures"


def serve(config: pytest.Config) -> None:
    """Start the gateway if the requested suites may need it, and stop it at the end of the session."""
    namespace = config.known_args_namespace
    # an invalid value is an error when all settings are read
    wanted, mode = (setting_of(name, namespace, config.getini)[0] for name in ("gateway", "mode"))
    if wanted == "off" or mode not in {"fixture", "live", "record"} or SELECTION not in config.stash:
        return
    if getattr(namespace, "collectonly", False):
        return
    needed = mode != "fixture" or wanted == "on" or needs_gateway(_folders(config.stash[SELECTION]))
    config.stash[SERVING] = serving = Serving(mode, needed=needed, here=not _is_controller(config))
    config.add_cleanup(serving.stop)
    if needed:
        serving.start()


def _folders(selection: Selection) -> list[Path]:
    return [suite.path / _FIXTURES for suite in selection.suites]


def _is_controller(config: pytest.Config) -> bool:
    """Whether the session is that of the controller of xdist, which runs no case: each of its workers has a gateway."""
    # without xdist there are no such options
    options = vars(config.known_args_namespace)
    distributes = options.get("numprocesses") or options.get("distload") or options.get("dist", "no") != "no"
    # xdist sets the variable in workers before it reads their options, which are those of the controller
    return bool(distributes) and not options.get("usepdb") and "PYTEST_XDIST_WORKER" not in os.environ
