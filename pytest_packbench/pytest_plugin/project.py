"""A project's configuration as pytest reads it: what the commands of `packbench` need of it."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_packbench.plugin import setting_of
from pytest_packbench.pytest_plugin.suites import packs_of_hooks

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_packbench.model.pack import Pack


PLUGIN = "packbench"
"""The name of this plugin's entry point."""


class ProjectError(ValueError):
    """pytest can't read the project's configuration; one line says why."""


class Project(NamedTuple):
    """What pytest finds in the current folder.

    Attributes:
        rootdir: pytest's rootdir, absolute.
        root: the folder of suites, absolute, whether it exists or not.
        packs: the packs of hooks in conftest.py files and plugins; of one name the last counts.
    """

    rootdir: Path
    root: Path
    packs: tuple[Pack, ...]


def read_project() -> Project | None:
    """Let pytest read its configuration and the conftest.py files of the current folder; no test is collected.

    Returns:
        What it finds; None where pytest runs without this plugin.

    Raises:
        ProjectError: the configuration, a conftest.py or a hook fails.
    """
    reader = _ProjectReader()
    printed = io.StringIO()
    # plain asserts: modules of the command that are loaded already can't be rewritten, and pytest would warn of them
    arguments = ["--capture=no", "--assert=plain"]
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        arguments += ["-p", PLUGIN]
    with redirect_stdout(io.StringIO()), redirect_stderr(printed):
        status = pytest.main(arguments, plugins=[reader])
    if status != pytest.ExitCode.OK:
        raise ProjectError(_message_of(printed.getvalue()))
    return reader.project


class _ProjectReader:
    """Reads the configuration in the place of a test session."""

    def __init__(self) -> None:
        self.project: Project | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> Generator[None]:
        """Request no suite: the command looks for suites itself, and may be there to create the one in the ini file."""
        early_config.known_args_namespace.packbench_suite = []
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Read the settings, and return an exit code so that no session starts."""
        if config.pluginmanager.hasplugin(PLUGIN):
            root = setting_of("root", config.option, config.getini)[0]
            root = Path(os.path.normpath(config.rootpath / root))
            self.project = Project(config.rootpath, root, tuple(packs_of_hooks(config)))
        return int(pytest.ExitCode.OK)


def _message_of(printed: str) -> str:
    """Return the line of pytest's error output that names the error, with the exception of a conftest.py."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith(("ERROR:", "ImportError while"))), "".join(lines[:1]))
    raised = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    return " ".join([first.removeprefix("ERROR:").strip(), *raised[-1:]]) or "pytest did not start"
