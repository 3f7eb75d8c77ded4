"""From what was asked for to suites that can run: packs, rules and targets, every mistake a usage error."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cases.load import read_config, scoring_sha256
from pytest_packbench.engine.bench import Bench
from pytest_packbench.engine.targets import Caller, TargetError, as_target, find_target
from pytest_packbench.model.errors import SuiteError, said
from pytest_packbench.model.suite import CONFIG_NAME, Suite
from pytest_packbench.packs.registry import PackError, Packs
from pytest_packbench.pytest_plugin.clients import Answerers, find_guards, find_judges

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.request import Target
    from pytest_packbench.pytest_plugin.settings import Settings


REFERENCE = "reference"


def known_packs(config: pytest.Config) -> Packs:
    """Give all packs by name: those of `pytest_packbench_packs`, else the built-in ones, else the installed ones.

    Raises:
        pytest.UsageError: a hook raised, or gave something that is no pack.
    """
    try:
        return Packs(pack for given in reversed(config.hook.pytest_packbench_packs()) for pack in given)
    except Exception as error:
        raise pytest.UsageError(f"a hook pytest_packbench_packs failed: {said(error)}") from error


def shown_path(config: pytest.Config, path: Path) -> str:
    """Name a file as pytest's node ids do: from rootdir where it lies in it, else absolute."""
    if path.is_relative_to(config.rootpath):
        return path.relative_to(config.rootpath).as_posix()
    return str(path)


def make_importable(folder: Path) -> None:
    """Let Python find the user's modules in a folder, last: none of them may stand in for a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def read_suite(config: pytest.Config, name: str, folder: Path, packs: Packs, *, bundled: bool) -> Suite:
    """Read a suite's rules.

    Raises:
        pytest.UsageError: its `suite.yaml` can't be used.
    """
    make_importable(config.rootpath)
    try:
        rules = read_config(folder, packs.suite_models, source=shown_path(config, folder / CONFIG_NAME))
    except (SuiteError, PackError) as error:
        raise pytest.UsageError(str(error)) from None
    sha256 = scoring_sha256(rules)
    return Suite(name=name, path=folder, config=rules, sha256=sha256, bundled=bundled)


@dataclass(slots=True)
class Benches:
    """The suites of a session with what runs their cases; targets are found when first needed."""

    config: pytest.Config
    settings: Settings
    packs: Packs
    suites: dict[str, Suite]
    answerers: Answerers
    _ready: dict[str, Bench]

    def add(self, name: str, folder: Path, *, bundled: bool) -> Suite:
        """Give a suite, reading it where it was not asked for before.

        Raises:
            pytest.UsageError: it can't be used.
        """
        if name not in self.suites:
            suite = read_suite(self.config, name, folder, self.packs, bundled=bundled)
            _check_pack(self, suite)
            self.suites[name] = suite
        return self.suites[name]

    def pack_of(self, suite: Suite) -> Pack:
        """Give a suite's pack."""
        return self.packs[suite.config.pack].for_suite(suite.config)

    def bench(self, suite: Suite) -> Bench:
        """Give what runs a suite's cases.

        Raises:
            TargetError: there is no target, or it can't be called.
            pytest.UsageError: nobody can answer its model calls, or a guard can't be made.
        """
        if suite.name not in self._ready:
            target, name = self._target(suite)
            pack, caller, settings = self.pack_of(suite), Caller(target), self.settings
            answering = self.answerers.for_suite(suite, pack, caller)
            self._ready[suite.name] = Bench(
                suite=suite,
                pack=pack,
                caller=caller,
                target_name=name,
                mode=settings.mode,
                live=answering.live,
                backend=answering.backend,
                model=answering.model,
                roles=answering.roles,
                guards=find_guards(self.config, settings, suite, pack),
                judges=find_judges(self.config),
                allow_processes=settings.allow_processes,
                stale_is_error=settings.stale_is_error,
                debugged=settings.debugged,
                stops=(KeyboardInterrupt, pytest.exit.Exception),
                files=settings.files,
            )
        return self._ready[suite.name]

    def known(self, suite: Suite) -> Bench | None:
        """Give what runs a suite's cases where it was needed already."""
        return self._ready.get(suite.name)

    @property
    def opened(self) -> list[Bench]:
        """What was needed so far."""
        return list(self._ready.values())

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
            return self._found(self.settings.target)
        try:
            given = self.config.hook.pytest_packbench_target(config=self.config, suite=suite)
        except Exception as error:
            raise TargetError(f"the hook pytest_packbench_target raised {said(error)}") from error
        if given is not None:
            name = f"hook:{getattr(given, '__qualname__', None) or type(given).__qualname__}"
            return as_target(given, name), name
        if suite.config.target:
            return self._named_by(suite, suite.config.target)
        try:
            reference = self.pack_of(suite).target(suite.config)
        except Exception as error:
            raise TargetError(f'the pack "{suite.config.pack}" could not give its target: {said(error)}') from error
        if reference is None:
            raise TargetError(
                f'suite "{suite.name}": pack "{suite.config.pack}" has no target of its own; '
                "name yours with --packbench-target, target in suite.yaml, or the hook pytest_packbench_target"
            )
        return reference, REFERENCE

    def _named_by(self, suite: Suite, spec: str) -> tuple[Target, str]:
        try:
            return self._found(spec)
        except TargetError as error:
            place = shown_path(self.config, suite.path / CONFIG_NAME)
            told = f"{place}: /target: {str(error).removeprefix('target ')}"
            # what the import raised in the user's own code is shown from the cause
            raise TargetError(told) from error.__cause__

    def _found(self, spec: str) -> tuple[Target, str]:
        make_importable(self.config.rootpath)
        settings = self.settings
        return find_target(
            spec,
            replayed=settings.mode == "fixture",
            cwd=self.config.rootpath,
            timeout_s=settings.case_timeout_s or settings.call_timeout_s,
            concurrency=settings.concurrency,
        )


def open_benches(config: pytest.Config, settings: Settings, folders: dict[str, Path], *, bundled: bool) -> Benches:
    """Read all suites that were asked for, and open what they need where somebody is asked.

    Raises:
        pytest.UsageError: one of them can't be used, or what the command line names can't.
    """
    packs = known_packs(config)
    suites = {name: read_suite(config, name, path, packs, bundled=bundled) for name, path in folders.items()}
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    benches = Benches(config, settings, packs, suites, Answerers.of(settings, workers), {})
    for suite in suites.values():
        _check(benches, suite)
    return benches


def _check(benches: Benches, suite: Suite) -> None:
    settings, rules = benches.settings, suite.config
    _check_pack(benches, suite)
    if settings.mode == "record":
        _check_recordable(suite)
    if settings.trials > 1:
        _check_trials(suite, settings.trials)
    named = settings.target or settings.backend or settings.guards or rules.backend or rules.guards
    if settings.mode != "fixture" or named:
        try:
            benches.bench(suite)
        except TargetError as error:
            raise pytest.UsageError(str(error)) from None


def _check_pack(benches: Benches, suite: Suite) -> None:
    rules = suite.config
    try:
        why = benches.pack_of(suite).unusable(rules)
    except Exception as error:
        raise pytest.UsageError(f'suite "{suite.name}": the pack "{rules.pack}" raised {said(error)}') from error
    if why:
        raise pytest.UsageError(f'suite "{suite.name}": {why}')


def _check_trials(suite: Suite, trials: int) -> None:
    from pytest_packbench.analysis.trials import needed

    least = needed(suite.config.trials_rule(), trials)
    if least is not None and least > trials:
        raise pytest.UsageError(
            f'suite "{suite.name}": trials: at_least {least} can never be reached with --packbench-trials={trials}'
        )


def _check_recordable(suite: Suite) -> None:
    if suite.bundled:
        raise pytest.UsageError(
            f'suite "{suite.name}": it comes with the installed package, and nothing is recorded there; '
            "copy it into your project (packbench_root) to record"
        )
    folder = suite.cassette_path("x").parent
    existing = folder if folder.exists() else suite.path
    if not os.access(existing, os.W_OK):
        raise pytest.UsageError(f"--packbench-mode=record: {folder}: recordings can't be written there")
