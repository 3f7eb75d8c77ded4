"""A project as pytest reads it, for the commands of `packbench`: its configuration, and the contexts of a suite."""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from pytest_packbench.plugin import SELECTION
from pytest_packbench.pytest_plugin.settings import open_suites, packs_of_hooks, project_of, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from pytest_packbench.cases.finder import Project
    from pytest_packbench.engine.contexts import SuiteContext

T = TypeVar("T")

PLUGIN = "packbench"
"""The name of this plugin's entry point."""


# behind a line with the usage of pytest, argparse says what is wrong
_ERROR = re.compile(r"^[ \t]*(?:ERROR:(?! usage:)|.*?: error: |(?=ImportError while))(.*)", re.MULTILINE)
_RAISED = re.compile(r"^[ \t]*E[ \t]+(.*)", re.MULTILINE)


class ProjectError(ValueError):
    """pytest can't read the project's configuration; one line says why."""


def read_project() -> Project | None:
    """Let pytest read its configuration and the conftest.py files of the current folder; no test is collected.

    Returns:
        What it finds; None where pytest runs without this plugin.

    Raises:
        ProjectError: the configuration, a conftest.py or a hook fails.
    """
    return _in_pytest([], _read, has_suites=False)


def with_suite(name: str, options: Sequence[str], use: Callable[[SuiteContext], T], *, root: Path | None = None) -> T:
    """Open a suite as a run in fixture mode does, with the project's hooks and settings, and use it.

    Args:
        name: the name of the suite.
        options: more options of pytest, such as `--packbench-guard=NAME`.
        use: called with the context of the suite; its output is that of the command.
        root: the folder of suites; None for the project's.

    Returns:
        What `use` returns.

    Raises:
        ProjectError: pytest can't start, or the suite can't be opened.
    """

    def opened(config: pytest.Config) -> T:
        suites = open_suites(config, read_settings(config), config.stash[SELECTION].suites)
        try:
            return use(suites.context(next(iter(suites.suites.values()))))
        finally:
            suites.close()

    always = [] if root is None else [f"--override-ini=packbench_root={root.resolve()}"]
    # the last ones count
    always += ["--packbench-mode=fixture", "-pno:cacheprovider"]
    with _without_traces():
        return _in_pytest([f"--packbench-suite={name}", *options, *always], opened)


@contextmanager
def _without_traces() -> Iterator[None]:
    """Import modules of the project without keeping them, and without files that the command does not name."""
    writes_bytecode, path, modules = sys.dont_write_bytecode, sys.path[:], set(sys.modules)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode, sys.path[:] = writes_bytecode, path
        project = f"{Path.cwd()}{os.sep}"
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(project):
                del sys.modules[name]


def _read(config: pytest.Config) -> Project | None:
    if not config.pluginmanager.hasplugin(PLUGIN):
        return None
    return project_of(config)._replace(packs=tuple(packs_of_hooks(config)))


def _in_pytest(options: Sequence[str], use: Callable[[pytest.Config], T], *, has_suites: bool = True) -> T:
    """Let pytest read the project, and return what a function makes of it in the place of the session."""
    results: list[T] = []
    plugins = [_Session(lambda config: results.append(use(config))), *([] if has_suites else [_NoSuites()])]
    # plain asserts: modules of the command that are loaded already can't be rewritten, and pytest would warn of them
    arguments = ["--capture=no", "--assert=plain", *options]
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        arguments += ["-p", PLUGIN]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as printed:
        status = pytest.main(arguments, plugins=plugins)
    if status != pytest.ExitCode.OK or not results:
        raise ProjectError(_message_of(printed.getvalue()))
    return results[0]


class _Session:
    """Lets pytest import the project's own conftest.py, and calls a function in the place of a test session."""

    def __init__(self, use: Callable[[pytest.Config], None]) -> None:
        self._use = use

    # after this plugin's own, which takes arguments for suites, and before that of pytest
    @pytest.hookimpl
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Name the conftest.py of the root, and of the ini key `testpaths`; others may be data.

        Below a folder, pytest would import those of `test*` as well.
        """
        folders = (early_config.rootpath / name for name in (".", *early_config.getini("testpaths")))
        paths = [str(path) for folder in folders if (path := folder / "conftest.py").is_file()]
        namespace = early_config.known_args_namespace
        namespace.file_or_dir = paths
        namespace.noconftest |= not paths

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Call the function, and return an exit code so that no session starts."""
        self._use(config)
        return int(pytest.ExitCode.OK)


class _NoSuites:
    """Requests no suite: the command may be there to create the one in the ini file."""

    @pytest.hookimpl(wrapper=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> Generator[None]:
        """Take the place of the option before this plugin reads it."""
        early_config.known_args_namespace.packbench_suite = []
        return (yield)


def _message_of(printed: str) -> str:
    """Return the line of pytest's error output that names the error, with the exception of a conftest.py."""
    named, raised = _ERROR.search(printed), _RAISED.findall(printed)
    first = named[1] if named is not None else next(filter(str.strip, printed.splitlines()), "pytest did not start")
    return " ".join([first.strip(), *raised[-1:]])
