"""From what was asked for to suites that can run: a context for each, with its pack, target, clients and guards."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import STUB
from pytest_packbench.engine.clients import Clients
from pytest_packbench.engine.external import TargetError
from pytest_packbench.engine.metering import Live
from pytest_packbench.engine.recordings import recorded_calls
from pytest_packbench.engine.secrets import Secrets
from pytest_packbench.engine.targets import Caller, as_target, find_target, import_object
from pytest_packbench.model.errors import describe_error
from pytest_packbench.model.run import ExpectedCalls, RunOptions, SetupError
from pytest_packbench.model.suite import CONFIG_NAME, AtLeast

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from pathlib import Path

    from pytest_packbench.engine.results import Place
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.request import Target
    from pytest_packbench.model.suite import Suite


REFERENCE = "reference"
"""What a pack's own target is called in records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteContext:
    """What all cases of a suite share in a run.

    Attributes:
        suite: the suite.
        pack: its pack.
        caller: calls the target.
        target_name: how the target is called in records.
        options: how attempts are to be made.
        live: what is asked instead of recordings; None in fixture mode.
        backend: who answers, as asked for: a backend's name, `stub` for a scripted model, empty where nobody is named.
        model: which model answers; empty where none is named.
        guards: what stands between an agent and untrusted text.
        judges: judges of the user's own, by name.
        roles: roles that the pack asks other models in, beside the one under test.
        asks_model: whether model calls are answered by somebody; see `__post_init__`.
    """

    suite: Suite
    pack: Pack
    caller: Caller
    target_name: str
    options: RunOptions = field(default_factory=RunOptions)
    live: Live | None = None
    backend: str = ""
    model: str = ""
    guards: tuple[Any, ...] = ()
    judges: Mapping[str, Any] = field(default_factory=dict)
    roles: frozenset[str] = frozenset()
    asks_model: bool = field(init=False)

    def __post_init__(self) -> None:
        """Find out whether model calls are answered by somebody: a scripted model plays inside the target."""
        asks = self.caller.asks_model and (self.backend != STUB or bool(self.roles))
        object.__setattr__(self, "asks_model", asks)

    @classmethod
    def of_results(cls, suite: Suite, pack: Pack, target_name: str, **given: Any) -> SuiteContext:
        """Give the context of results that come from elsewhere: its target is never called."""
        return cls(suite=suite, pack=pack, caller=Caller(_uncalled), target_name=target_name, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserHooks:
    """What the user's own code gives, each asked when it is needed.

    Attributes:
        target: gives a suite's target; None where it has none. May raise `TargetError`.
        guards: gives a suite's guards beside those named, in order.
        judges: gives judges by name.
    """

    target: Callable[[Suite], object] = lambda _: None
    guards: Callable[[Suite], Iterable[Any]] = lambda _: ()
    judges: Callable[[], Mapping[str, Any]] = dict


class SuiteContexts:
    """The suites of a run with what runs their cases; targets are found when first needed.

    Args:
        options: how attempts are to be made.
        packs: all packs by name.
        hooks: what the user's own code gives.

    Attributes:
        suites: the suites that were added, by name.
        clients: opens the backends.
    """

    def __init__(self, options: RunOptions, packs: Mapping[str, Pack], hooks: UserHooks) -> None:
        self.options = options
        self.packs = packs
        self.suites: dict[str, Suite] = {}
        self.clients = Clients(options)
        self._hooks = hooks
        self._packs: dict[str, Pack] = {}
        self._opened: dict[str, SuiteContext] = {}

    def add(self, suite: Suite) -> None:
        """Take a suite in.

        Raises:
            SetupError: its pack can't use its rules.
        """
        rules = suite.config
        try:
            why = self.pack_of(suite).unusable(rules)
        except Exception as error:
            raise SetupError(f'suite "{suite.name}": the pack "{rules.pack}" raised {describe_error(error)}') from error
        if why:
            raise SetupError(f'suite "{suite.name}": {why}')
        self.suites[suite.name] = suite

    def prepare(self, suite: Suite) -> None:
        """Take in a suite that was asked for, and open what it needs where somebody is asked or was named.

        Raises:
            SetupError: it can't be run as it was asked for.
        """
        options, rules = self.options, suite.config
        self.add(suite)
        if options.mode == "record":
            _check_recordable(suite)
        if isinstance(rules.trials, AtLeast) and 1 < options.trials < rules.trials.at_least:
            raise SetupError(
                f'suite "{suite.name}": trials: at_least {rules.trials.at_least} can never be reached with '
                f"--packbench-trials={options.trials}"
            )
        named = options.target or options.backend or options.guards or rules.backend or rules.guards
        if options.mode != "fixture" or named:
            try:
                self.context(suite)
            except TargetError as error:
                raise SetupError(str(error)) from None

    def pack_of(self, suite: Suite) -> Pack:
        """Give a suite's pack, as the suite's rules make it."""
        if suite.name not in self._packs:
            self._packs[suite.name] = self.packs[suite.config.pack].for_suite(suite.config)
        return self._packs[suite.name]

    def context(self, suite: Suite) -> SuiteContext:
        """Give what runs a suite's cases; raises as `open` where it is needed for the first time."""
        return self._opened.get(suite.name) or self.open(suite)

    def open(self, suite: Suite) -> SuiteContext:
        """Find a suite's target, and who stands around it.

        Raises:
            TargetError: there is no target, or it can't be called.
            SetupError: nobody can answer its model calls, or a guard can't be made.
        """
        target, name = self._target(suite)
        pack, caller, options = self.pack_of(suite), Caller(target), self.options
        self._opened[suite.name] = context = SuiteContext(
            suite=suite,
            pack=pack,
            caller=caller,
            target_name=name,
            options=options,
            **self.clients.for_suite(suite, pack, caller)._asdict(),
            guards=self._guards(suite, pack),
            judges=self._hooks.judges(),
        )
        return context

    def of_results(self, suite: Suite, target_name: str) -> SuiteContext:
        """Give what scores results of a suite's cases that the user's own code brings, called `target_name`."""
        mode, live = self.options.mode, None
        if mode != "fixture":
            live = Live(asked=None, ledger=self.clients.ledger, secrets=Secrets(os.environ))
        options = RunOptions(mode=mode)
        return SuiteContext.of_results(suite, self.pack_of(suite), target_name, options=options, live=live)

    def known(self, suite: Suite) -> SuiteContext | None:
        """Give what runs a suite's cases where it was needed already."""
        return self._opened.get(suite.name)

    def target_name(self, suite: Suite) -> str:
        """Say how a suite's target is called, as far as it is known before a case needs it."""
        try:
            return self.context(suite).target_name
        except TargetError as error:
            return f"unknown ({error})"

    def expected_calls(self, places: Iterable[Place], made: Callable[[Place], int]) -> ExpectedCalls:
        """Count the model calls that are expected: as recorded, else at least one an attempt.

        Args:
            places: the cases that were selected; those that are not to be run are left out.
            made: says how many attempts at a case were made before, in a run that goes on.
        """
        trials = self.options.trials
        cases, recorded, unrecorded, own = 0, 0, 0, 0
        for place in places:
            if place.loaded is None or place.loaded.case.notes.skip is not None:
                continue
            due = trials - made(place)
            cases += due > 0
            context = self.known(place.suite)
            if context is not None and not context.asks_model:
                own += due
            elif due > 0:
                calls = recorded_calls(place.suite.cassette_path(place.case_id))
                recorded += due * (calls or 0)
                unrecorded += due * (calls is None)
        return ExpectedCalls(cases=cases, trials=trials, recorded=recorded, unrecorded=unrecorded, own=own)

    def closing(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Give what closes targets and backends, to be run on the event loop on which they were used."""
        targets = [context.caller.aclose for context in self._opened.values()]
        return [*targets, *(backend.aclose for backend in self.clients.backends)]

    def close(self) -> None:
        """Let go of the event loops of targets that were called directly."""
        for context in self._opened.values():
            context.caller.close()

    def _target(self, suite: Suite) -> tuple[Target, str]:
        """Find a suite's target: the one named by option, the hook's, the suite's own, the pack's."""
        if self.options.target:
            return self._found(self.options.target)
        given = self._hooks.target(suite)
        if given is not None:
            name = f"hook:{getattr(given, '__qualname__', None) or type(given).__qualname__}"
            return as_target(given, name), name
        if suite.config.target:
            try:
                return self._found(suite.config.target)
            except TargetError as error:
                place = shown_path(suite.path / CONFIG_NAME, self.options.root)
                told = f"{place}: /target: {str(error).removeprefix('target ')}"
                # what the import raised in the user's own code is shown from the cause
                raise TargetError(told) from error.__cause__
        try:
            reference = self.pack_of(suite).target(suite.config)
        except Exception as error:
            raise TargetError(
                f'the pack "{suite.config.pack}" could not give its target: {describe_error(error)}'
            ) from error
        if reference is None:
            raise TargetError(
                f'suite "{suite.name}": pack "{suite.config.pack}" has no target of its own; '
                "name yours with --packbench-target, target in suite.yaml, or the hook pytest_packbench_target"
            )
        return reference, REFERENCE

    def _found(self, spec: str) -> tuple[Target, str]:
        options = self.options
        return find_target(
            spec,
            replayed=options.mode == "fixture",
            cwd=options.root,
            timeout_s=options.case_timeout_s or options.call_timeout_s,
            concurrency=options.concurrency,
        )

    def _guards(self, suite: Suite, pack: Pack) -> tuple[Any, ...]:
        """Find a suite's guards: named ones, then those of the hook; none at all where that was asked for."""
        if self.options.guards == ():
            return ()
        names = self.options.guards if self.options.guards is not None else suite.config.guards
        own = pack.guards()
        named = [_guard(name, own, suite) for name in names if name != "none"]
        return (*named, *self._hooks.guards(suite))


def guard_name(guard: Any) -> str:
    """Say how a guard is called: by its own `name`, else by its class or function."""
    named = getattr(guard, "name", None)
    if isinstance(named, str) and named:
        return named
    return getattr(guard, "__qualname__", None) or type(guard).__qualname__


def shown_path(path: Path, root: Path) -> str:
    """Name a file as pytest's node ids do: from the project's folder where it lies in it, else absolute."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _uncalled(request: object) -> None:
    raise RuntimeError(f"the result comes from elsewhere, and no target is asked: {request!r}")


def _guard(name: str, own: Mapping[str, Any], suite: Suite) -> Any:
    if name in own:
        return own[name]()
    if ":" not in name:
        raise SetupError(
            f'suite "{suite.name}": guard "{name}": expected module:attr, none, or one of the pack\'s: '
            f"{', '.join(own) or 'it has none'}"
        )
    try:
        guard = import_object(name, "guard")
        return guard() if isinstance(guard, type) else guard
    except TargetError as error:
        raise SetupError(str(error)) from None
    except Exception as error:
        raise SetupError(f'guard "{name}": making it raised {type(error).__name__}: {error}') from error


def _check_recordable(suite: Suite) -> None:
    if suite.bundled:
        raise SetupError(
            f'suite "{suite.name}": it comes with the installed package, and nothing is recorded there; '
            "copy it into your project (packbench_root) to record"
        )
    folder = suite.cassette_path("x").parent
    existing = folder if folder.exists() else suite.path
    if not os.access(existing, os.W_OK):
        raise SetupError(f"--packbench-mode=record: {folder}: recordings can't be written there")
