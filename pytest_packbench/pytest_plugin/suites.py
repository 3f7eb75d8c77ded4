"""The session's suites: the settings and the user's hooks go into the engine, its errors come out as usage errors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.cases import load
from pytest_packbench.engine.contexts import SuiteContexts, UserHooks, shown_path
from pytest_packbench.engine.external import TargetError
from pytest_packbench.engine.targets import make_importable
from pytest_packbench.model.errors import SuiteError, said
from pytest_packbench.model.run import SetupError
from pytest_packbench.model.suite import CONFIG_NAME
from pytest_packbench.packs.registry import PackError, Packs
from pytest_packbench.pytest_plugin.stash import RESUMED
from pytest_packbench.reports.terminal import expected_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.results import Place
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.settings import Settings


@contextmanager
def usage_errors() -> Iterator[None]:
    """Make what the engine says of a wrong set-up the usage error that pytest shows in one line."""
    try:
        yield
    except (SetupError, SuiteError, PackError) as error:
        raise pytest.UsageError(str(error)) from error.__cause__


def packs_of_hooks(config: pytest.Config) -> list[Pack]:
    """Return the packs of the hooks `pytest_packbench_packs`: of one name the last comes from the hook that wins.

    Raises:
        pytest.UsageError: a hook raised, or returned something that is no pack.
    """
    try:
        packs = [pack for packs in reversed(config.hook.pytest_packbench_packs()) for pack in packs]
        Packs(packs)
    except Exception as error:
        raise pytest.UsageError(f"a hook pytest_packbench_packs failed: {said(error)}") from error
    return packs


def known_packs(config: pytest.Config) -> Packs:
    """Return all packs by name: those of `pytest_packbench_packs`, else the built-in ones, else the installed ones.

    Raises:
        pytest.UsageError: a hook raised, or returned something that is no pack.
    """
    return Packs(packs_of_hooks(config))


def read_suite(config: pytest.Config, name: str, folder: Path, packs: Packs, *, bundled: bool) -> Suite:
    """Read a suite's rules.

    Raises:
        pytest.UsageError: its `suite.yaml` can't be used.
    """
    make_importable(config.rootpath)
    source = shown_path(folder / CONFIG_NAME, config.rootpath)
    with usage_errors():
        return load.read_suite(folder, packs.suite_models, source=source, name=name, bundled=bundled)


class SessionSuites(SuiteContexts):
    """The suites of a session with what runs their cases."""

    def __init__(self, config: pytest.Config, settings: Settings, packs: Packs) -> None:
        super().__init__(settings, packs, _hooks_of(config))
        self.config = config
        self.settings = settings
        self._models = packs

    def open(self, suite: Suite) -> SuiteContext:
        """Find a suite's target, and who stands around it; raises as `SuiteContexts.open`, but usage errors."""
        with usage_errors():
            return super().open(suite)

    def join(self, name: str, folder: Path, *, bundled: bool) -> Suite:
        """Give a suite, reading it where it was not asked for before.

        Raises:
            pytest.UsageError: it can't be used.
        """
        if name not in self.suites:
            suite = read_suite(self.config, name, folder, self._models, bundled=bundled)
            with usage_errors():
                self.add(suite)
        return self.suites[name]

    def expected_text(self, places: Iterable[Place]) -> str:
        """Say how many model calls a live run of these cases is expected to make, without those of a resumed run."""
        resumed = self.config.stash.get(RESUMED, None)
        expected = self.expected_calls(
            places, lambda place: len(resumed.trials(place.suite, place.case_id)) if resumed is not None else 0
        )
        return expected_text(expected, self.settings.mode)


def open_suites(config: pytest.Config, settings: Settings, folders: dict[str, Path], *, bundled: bool) -> SessionSuites:
    """Read all suites that were asked for, and open what they need where somebody is asked.

    Raises:
        pytest.UsageError: one of them can't be used, or what the command line names can't.
    """
    packs = known_packs(config)
    read = [read_suite(config, name, path, packs, bundled=bundled) for name, path in folders.items()]
    suites = SessionSuites(config, settings, packs)
    with usage_errors():
        for suite in read:
            suites.prepare(suite)
    return suites


def _hooks_of(config: pytest.Config) -> UserHooks:
    def target(suite: Suite) -> object:
        try:
            return config.hook.pytest_packbench_target(config=config, suite=suite)
        except Exception as error:
            raise TargetError(f"the hook pytest_packbench_target raised {said(error)}") from error

    def guards(suite: Suite) -> list[Any]:
        given = config.hook.pytest_packbench_guards(config=config, suite=suite)
        return [guard for some in given for guard in some]

    def judges() -> dict[str, Any]:
        # the first of a name wins
        given = reversed(config.hook.pytest_packbench_judges(config=config))
        return {name: judge for some in given for name, judge in some.items()}

    return UserHooks(target=target, guards=guards, judges=judges)
