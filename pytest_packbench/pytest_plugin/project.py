"""A project as pytest reads it, for the commands of `packbench`: its configuration, and the contexts of a suite."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import pytest

from pytest_packbench.plugin import SELECTION, setting_of
from pytest_packbench.pytest_plugin.settings import hook_files, settings_of_policy
from pytest_packbench.pytest_plugin.suites import open_suites, packs_of_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.suites import SessionSuites

T = TypeVar("T")

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
        settings: the settings that decide what fails a run, as `settings_of_policy` returns them.
        hooks: the files with hooks that decide what is tested, as `hook_files` returns them.
    """

    rootdir: Path
    root: Path
    packs: tuple[Pack, ...]
    settings: Mapping[str, Any]
    hooks: tuple[str, ...] = ()


def read_project() -> Project | None:
    """Let pytest read its configuration and the conftest.py files of the current folder; no test is collected.

    Returns:
        What it finds; None where pytest runs without this plugin.

    Raises:
        ProjectError: the configuration, a conftest.py or a hook fails.
    """
    reader = _ProjectReader()
    _run_pytest([], reader)
    return reader.project


def with_suite(name: str, options: Sequence[str], use: Callable[[SessionSuites, Suite], T]) -> T:
    """Open a suite as a run in fixture mode does, with the project's hooks and settings, and use it.

    Args:
        name: the name of the suite.
        options: more options of pytest, such as `--packbench-guard=NAME`.
        use: called with the suites of the session and the suite; its output is that of the command.

    Returns:
        What `use` returns.

    Raises:
        ProjectError: pytest can't start, or the suite can't be opened.
    """
    user = _SuiteUser(use)
    _run_pytest([f"--packbench-suite={name}", "--packbench-mode=fixture", *options], user)
    if not user.results:
        raise ProjectError(f'suite "{name}" was not opened')
    return user.results[0]


def _run_pytest(options: Sequence[str], plugin: object) -> None:
    """Let pytest read the project with a plugin that takes the place of its session."""
    printed = io.StringIO()
    # plain asserts: modules of the command that are loaded already can't be rewritten, and pytest would warn of them
    arguments = ["--capture=no", "--assert=plain", *options]
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        arguments += ["-p", PLUGIN]
    with redirect_stdout(io.StringIO()), redirect_stderr(printed):
        status = pytest.main(arguments, plugins=[plugin, _OwnConftests()])
    if status != pytest.ExitCode.OK:
        raise ProjectError(_message_of(printed.getvalue()))


class _OwnConftests:
    """Lets pytest import the conftest.py of the project's root, and of its ini key `testpaths`; others may be data."""

    # after this plugin's own, which takes arguments for suites, and before that of pytest
    @pytest.hookimpl
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Name the files: below a folder, pytest would import those of `test*` as well."""
        folders = (early_config.rootpath / name for name in (".", *early_config.getini("testpaths")))
        paths = [str(path) for folder in folders if (path := folder / "conftest.py").is_file()]
        namespace = early_config.known_args_namespace
        namespace.file_or_dir = paths
        namespace.noconftest |= not paths


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
            packs = tuple(packs_of_hooks(config))
            self.project = Project(config.rootpath, root, packs, settings_of_policy(config), hook_files(config))
        return int(pytest.ExitCode.OK)


class _SuiteUser(Generic[T]):
    """Uses one suite in the place of a test session."""

    def __init__(self, use: Callable[[SessionSuites, Suite], T]) -> None:
        self._use = use
        self.results: list[T] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Open the requested suite, and return an exit code so that no session starts."""
        from pytest_packbench.pytest_plugin.settings import read_settings

        suites = open_suites(config, read_settings(config), config.stash[SELECTION].suites)
        try:
            self.results.append(self._use(suites, next(iter(suites.suites.values()))))
        finally:
            suites.close()
        return int(pytest.ExitCode.OK)


def _message_of(printed: str) -> str:
    """Return the line of pytest's error output that names the error, with the exception of a conftest.py."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith(("ERROR:", "ImportError while"))), "".join(lines[:1]))
    if first.startswith("ERROR: usage:"):
        # argparse says what is wrong behind it
        first = next((line.partition(": error: ")[2] for line in lines if ": error: " in line), first)
    raised = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    return " ".join([first.removeprefix("ERROR:").strip(), *raised[-1:]]) or "pytest did not start"
