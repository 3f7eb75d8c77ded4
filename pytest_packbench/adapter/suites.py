"""From what was asked for to suites that can run: packs, rules and targets, every mistake a usage error."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cases.load import canonical_sha256, read_config
from pytest_packbench.cases.problem import SuiteError
from pytest_packbench.cases.suite import CONFIG_NAME, Suite
from pytest_packbench.engine.attempt import Bench
from pytest_packbench.engine.targets import Caller, TargetError, as_target, import_target
from pytest_packbench.packs import builtin

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.adapter.settings import Settings
    from pytest_packbench.engine.protocols.pack import Pack
    from pytest_packbench.engine.protocols.request import Target

REFERENCE = "reference"


def known_packs(config: pytest.Config) -> dict[str, Pack]:
    """Give all packs by name: the built-in ones, then those of `pytest_packbench_packs`.

    Raises:
        pytest.UsageError: a hook raised, or gave something that is no pack.
    """
    packs = builtin()
    try:
        for given in reversed(config.hook.pytest_packbench_packs()):
            packs.update({pack.name: pack for pack in given})
    except Exception as error:
        raise pytest.UsageError(f"a hook pytest_packbench_packs failed: {type(error).__name__}: {error}") from error
    return packs


def shown_path(config: pytest.Config, path: Path) -> str:
    """Name a file as pytest's node ids do: from rootdir where it lies in it, else absolute."""
    if path.is_relative_to(config.rootpath):
        return path.relative_to(config.rootpath).as_posix()
    return str(path)


def make_importable(folder: Path) -> None:
    """Let Python find the user's modules in a folder, last: none of them may stand in for a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def read_suite(config: pytest.Config, name: str, folder: Path, packs: dict[str, Pack], *, bundled: bool) -> Suite:
    """Read a suite's rules.

    Raises:
        pytest.UsageError: its `suite.yaml` can't be used.
    """
    make_importable(config.rootpath)
    models = {pack.name: pack.suite_model for pack in packs.values()}
    try:
        rules = read_config(folder, models, source=shown_path(config, folder / CONFIG_NAME))
    except SuiteError as error:
        raise pytest.UsageError(str(error)) from None
    sha256 = canonical_sha256(rules.model_dump(mode="json"))
    return Suite(name=name, path=folder, config=rules, sha256=sha256, bundled=bundled)


@dataclass(slots=True)
class Benches:
    """The suites of a session with what runs their cases; targets are found when first needed."""

    config: pytest.Config
    settings: Settings
    packs: dict[str, Pack]
    suites: dict[str, Suite]
    _ready: dict[str, Bench]

    def pack_of(self, suite: Suite) -> Pack:
        """Give a suite's pack."""
        return self.packs[suite.config.pack].for_suite(suite.config)

    def bench(self, suite: Suite) -> Bench:
        """Give what runs a suite's cases.

        Raises:
            TargetError: there is no target, or it can't be called.
        """
        if suite.name not in self._ready:
            target, name = self._target(suite)
            self._ready[suite.name] = Bench(
                suite=suite,
                pack=self.pack_of(suite),
                caller=Caller(target),
                target_name=name,
                allow_processes=self.settings.allow_processes,
                stale_is_error=self.settings.stale_is_error,
                files=self.settings.files,
            )
        return self._ready[suite.name]

    def target_name(self, suite: Suite) -> str:
        """Say how a suite's target is called, as far as it is known before a case needs it."""
        try:
            return self.bench(suite).target_name
        except TargetError as error:
            return f"unknown ({error})"

    def close(self) -> None:
        """Let go of event loops."""
        for bench in self._ready.values():
            bench.caller.close()

    def _target(self, suite: Suite) -> tuple[Target, str]:
        if self.settings.target:
            return self._imported(self.settings.target), self.settings.target
        try:
            given = self.config.hook.pytest_packbench_target(config=self.config, suite=suite)
        except Exception as error:
            raise TargetError(f"the hook pytest_packbench_target raised {type(error).__name__}: {error}") from error
        if given is not None:
            name = f"hook:{getattr(given, '__qualname__', None) or type(given).__qualname__}"
            return as_target(given, name), name
        if suite.config.target:
            return self._imported(suite.config.target), suite.config.target
        reference = self.pack_of(suite).target(suite.config)
        if reference is None:
            raise TargetError(
                f'suite "{suite.name}": pack "{suite.config.pack}" has no target of its own; '
                "name yours with --packbench-target, target in suite.yaml, or the hook pytest_packbench_target"
            )
        return reference, REFERENCE

    def _imported(self, spec: str) -> Target:
        make_importable(self.config.rootpath)
        return import_target(spec)


def open_benches(config: pytest.Config, settings: Settings, folders: dict[str, Path], *, bundled: bool) -> Benches:
    """Read all suites that were asked for.

    Raises:
        pytest.UsageError: one of them can't be used, or the target named on the command line can't.
    """
    packs = known_packs(config)
    suites = {name: read_suite(config, name, path, packs, bundled=bundled) for name, path in folders.items()}
    benches = Benches(config, settings, packs, suites, {})
    if settings.target:
        try:
            for suite in suites.values():
                benches.bench(suite)
        except TargetError as error:
            raise pytest.UsageError(str(error)) from None
    return benches
