"""Suite contexts: the pack, target, backends and guards that the cases of a suite share in a run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.offline import watch
from pytest_packbench.engine.recordings import REFERENCE, Part, guard_name, judges_of, parts_of
from pytest_packbench.engine.targets import TargetCaller, as_target, find_target, import_object
from pytest_packbench.model.errors import describe_error
from pytest_packbench.model.redaction import Redactor, secrets_of_target, secrets_of_url
from pytest_packbench.model.request import Target, TargetError
from pytest_packbench.model.run import RECORDED, STUB, ExpectedCalls, RunOptions, SetupError
from pytest_packbench.model.suite import CONFIG_NAME, AtLeast, Prices, Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from pathlib import Path

    from pytest_packbench.engine.gateway import Serving
    from pytest_packbench.engine.live_models import Clients, LiveModels
    from pytest_packbench.engine.trial_results import CaseRef
    from pytest_packbench.model.pack import Pack


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteContext:
    """What all cases of a suite share in a run.

    Attributes:
        suite: the suite.
        pack: its pack.
        caller: calls the target.
        target_name: the target's name in records.
        options: how attempts are made.
        live: the models that replace recordings; None in fixture mode.
        backend: the selected backend, `stub` for a scripted model; empty where none is set.
        model: the selected model; empty where none is set.
        guards: guards between an agent and untrusted text.
        judges: the user's own judges, by name.
        guard_parts: the guards as recordings state them.
        judge_parts: the judges likewise.
        roles: the roles in which the pack calls other models than the one under test.
        redactor: the run's; removes secrets from all that is stored or shown.
        serving: the gateway of this process; None where it does not serve.
        start_gateway: starts it for a recording that needs it; None where it must not serve.
        asks_model: whether a backend or a recording answers model calls; a scripted model runs inside the target.
    """

    suite: Suite
    pack: Pack
    caller: TargetCaller
    target_name: str
    options: RunOptions = field(default_factory=RunOptions)
    live: LiveModels | None = None
    backend: str = ""
    model: str = ""
    guards: tuple[Any, ...] = ()
    judges: Mapping[str, Any] = field(default_factory=dict)
    guard_parts: tuple[Part, ...] = ()
    judge_parts: tuple[Part, ...] = ()
    roles: frozenset[str] = frozenset()
    redactor: Redactor = field(default_factory=Redactor)
    serving: Serving | None = None
    start_gateway: Callable[[], Serving] | None = None
    asks_model: bool = field(init=False)

    def __post_init__(self) -> None:
        """State whether the target asks a model."""
        # a world may ask its judge, whatever the target takes
        through_target = self.caller.asks_model and self.backend != STUB
        of_role = bool(self.roles) and (self.caller.asks_model or self.caller.worlds is not None)
        object.__setattr__(self, "asks_model", through_target or of_role)

    @property
    def serves_gateway(self) -> bool:
        """Whether calls of the target's own model client are recorded or replayed."""
        return self.serving is not None

    @property
    def is_recorded(self) -> bool:
        """Whether a run that records expects a call of each case."""
        own = self.serves_gateway and self.backend != STUB and not self.caller.without_model
        return self.asks_model or (own and not self.caller.opaque)

    @property
    def runs_program(self) -> bool:
        """Whether a program runs in fixture mode, for the cases whose model calls are recorded."""
        from pytest_packbench.cases.finder import needs_gateway

        if self.live is not None or not (self.caller.opaque and self.caller.runs_offline and self.serves_gateway):
            return False
        return needs_gateway([self.suite.path / self.suite.fixtures])

    @classmethod
    def of_results(cls, suite: Suite, pack: Pack, target_name: str, **fields: Any) -> SuiteContext:
        """Return the context of results that come from elsewhere: its target is never called."""
        return cls(suite=suite, pack=pack, caller=TargetCaller(_never_called), target_name=target_name, **fields)


class SuiteContexts:
    """The suites of a run and their contexts; targets are imported when they are first needed.

    A session has the hooks of its user in a subclass.

    Args:
        options: how attempts are made.
        packs: all packs by name.
        secrets: secret values that neither the environment nor the options contain.
        secret_names: names of further variables with secrets, separated by commas.
        serving: the gateway of this process; None where it does not serve.
        serve_late: starts it for a recording that needs it; None where it must not serve.

    Attributes:
        suites: the suites that were added, by name.
        redactor: removes secrets from all that the run stores or shows.
    """

    def __init__(
        self,
        options: RunOptions,
        packs: Mapping[str, Pack],
        secrets: Iterable[str] = (),
        *,
        secret_names: str = "",
        serving: Serving | None = None,
        serve_late: Callable[[], Serving] | None = None,
    ) -> None:
        self.options = options
        self.packs = packs
        self.suites: dict[str, Suite] = {}
        self.redactor = Redactor(os.environ, (*secrets, *secrets_of_target(options.target)), secret_names)
        self.redactor.add(secrets_of_url(options.base_url))
        self.serving = serving
        self._serve_late = serve_late
        self._packs: dict[str, Pack] = {}
        self._opened: dict[tuple[str, bool], SuiteContext] = {}
        if options.mode != "live":
            watch()

    @cached_property
    def clients(self) -> Clients:
        """Opens the backends, and counts what they use."""
        from pytest_packbench.engine.live_models import Clients  # runs of recordings need none

        return Clients(self.options, self.redactor, serves_gateway=self.serving is not None)

    def hooked_target(self, suite: Suite) -> object:  # noqa: ARG002 - for sessions
        """Return a suite's target from the user's hooks; None where they have none."""
        return None

    def hooked_guards(self, suite: Suite) -> Iterable[Any]:  # noqa: ARG002 - for sessions
        """Return a suite's guards from the user's hooks, in order."""
        return ()

    def hooked_judges(self) -> Mapping[str, Any]:
        """Return the judges of the user's hooks by name."""
        return {}

    def add(self, suite: Suite) -> None:
        """Add a suite.

        Raises:
            SetupError: its pack refuses its rules.
        """
        rules = suite.config
        try:
            # the model of its cases is that of the rules
            self.pack_of(suite)
            problem = rules.unusable
        except Exception as error:
            raise SetupError(f'suite "{suite.name}": the pack "{rules.pack}" raised {describe_error(error)}') from error
        if problem:
            raise SetupError(f'suite "{suite.name}": {problem}')
        self.redactor.add(secrets_of_target(rules.target or ""))
        self.suites[suite.name] = suite

    def prepare(self, suite: Suite) -> None:
        """Add a selected suite; open its context in live mode, and where a target, backend or guard is set.

        Raises:
            SetupError: it can't be run as requested.
        """
        options, rules = self.options, suite.config
        if self.serving is not None and not self.suites:
            self._configure(self.serving)
        self.add(suite)
        if options.mode == "record" and suite.bundled:
            raise SetupError(
                f'suite "{suite.name}": recordings can\'t be written into the installed package; '
                f"copy the suite into your project: packbench init --from {suite.record_name}"
            )
        if isinstance(rules.trials, AtLeast) and 1 < options.trials < rules.trials.at_least:
            raise SetupError(
                f'suite "{suite.name}": trials: at_least {rules.trials.at_least} is not reachable with '
                f"--packbench-trials={options.trials}; lower at_least, or run more trials"
            )
        configured = options.target or options.backend or options.guards or rules.backend or rules.guards
        if options.mode != "fixture" or configured:
            try:
                self.context(suite)
            except TargetError as error:
                raise SetupError(str(error)) from None

    def pack_of(self, suite: Suite) -> Pack:
        """Return a suite's pack, configured by the suite's rules."""
        if suite.name not in self._packs:
            self._packs[suite.name] = self.packs[suite.config.pack].for_suite(suite.config)
        return self._packs[suite.name]

    def context(self, suite: Suite) -> SuiteContext:
        """Return a suite's context; opened at the first call, which raises as `open` does."""
        return self._opened.get((suite.name, False)) or self.open(suite)

    def open(self, suite: Suite) -> SuiteContext:
        """Create a suite's context: find its target, open its backends, create its guards.

        Raises:
            TargetError: there is no target, or it can't be called.
            SetupError: no backend can answer its model calls, or a guard can't be created.
        """
        target, name = self._target(suite)
        # importing the target may have loaded keys
        self.redactor.refresh()
        pack = self.pack_of(suite)
        worlds = None if name == REFERENCE else pack.world(suite.config, self.redactor.text(name))
        caller = TargetCaller(target, worlds)
        guards = self._guards(suite, pack)
        if guards and not caller.meets_guards:
            reason = "runs outside this process" if caller.opaque else "takes no context"
            remedy = "" if caller.opaque else "let it take a context, or "
            raise SetupError(
                f'suite "{suite.name}": the target {name} {reason}, so that its results would meet no guard '
                f"({', '.join(map(guard_name, guards))}); {remedy}use --packbench-guard=none"
            )
        backend, model = self._model(suite, pack, caller)
        live = None
        if self.options.mode != "fixture":
            live = self.clients.for_suite(suite, pack, caller, backend, model)
            model = live.primary.backend.model if live.primary is not None else model
        return self._open(
            suite,
            caller,
            name,
            backend=backend,
            model=model,
            live=live,
            serving=self.serving,
            start_gateway=None if self._serve_late is None else self._start_gateway,
            guards=guards,
            guard_parts=parts_of((guard_name(guard), guard) for guard in guards),
        )

    def _open(
        self, suite: Suite, caller: TargetCaller, name: str, *, of_pack: bool = False, **fields: Any
    ) -> SuiteContext:
        pack, judges = self.pack_of(suite), self.hooked_judges()
        self._opened[suite.name, of_pack] = context = SuiteContext(
            suite=suite,
            pack=pack,
            caller=caller,
            target_name=self.redactor.text(name),
            options=self.options,
            redactor=self.redactor,
            judges=judges,
            judge_parts=judges_of(pack, suite.config, judges),
            roles=frozenset(pack.judges(suite.config).roles),
            **fields,
        )
        return context

    def of_results(self, suite: Suite, target_name: str) -> SuiteContext:
        """Return the context of results that the user's own code supplies as those of the target `target_name`."""
        mode, live = self.options.mode, None
        if mode != "fixture":
            from pytest_packbench.engine.live_models import LiveModels

            live = LiveModels(primary=None, ledger=self.clients.ledger, redactor=self.redactor)
        options = RunOptions(mode=mode)
        fields = {"options": options, "live": live, "redactor": self.redactor}
        return SuiteContext.of_results(suite, self.pack_of(suite), target_name, **fields)

    def of_pack(self, suite: Suite) -> SuiteContext:
        """Return a suite's context with the pack's own target and no guard, in fixture mode, whatever the options say.

        Raises:
            TargetError: the pack has no target.
        """
        opened = self._opened.get((suite.name, True))
        if opened is not None:
            return opened
        pack, reference = self.pack_of(suite), self._reference(suite)
        if reference is None:
            raise TargetError(f'the pack "{pack.name}" has no target of its own')
        return self._open(suite, TargetCaller(reference), REFERENCE, of_pack=True)

    def opened(self, suite: Suite) -> SuiteContext:
        """Return a suite's context; before it is opened, one without a name of the target, models and guards."""
        fields = {"options": self.options, "redactor": self.redactor}
        opened = self._opened.get((suite.name, False))
        return opened or SuiteContext.of_results(suite, self.pack_of(suite), "", **fields)

    def target_name(self, suite: Suite) -> str:
        """Return the name of a suite's target; why it is unknown where the target can't be found."""
        try:
            return self.context(suite).target_name
        except TargetError as error:
            return f"unknown ({self.redactor.text(str(error))})"

    def expected_calls(self, cases: Iterable[tuple[CaseRef, int]]) -> ExpectedCalls:
        """Estimate the number of model calls: as many as recorded, else at least one per attempt.

        Args:
            cases: the selected cases, each with its number of earlier attempts, in a resumed run; those that will not
                be run are ignored.
        """
        from pytest_packbench.engine.recordings import recorded_calls

        trials = self.options.trials
        cases_due = external = recorded = unrecorded = 0
        for case, made in cases:
            due = trials - made
            if case.loaded is None or case.loaded.case.notes.skip is not None or due <= 0:
                continue
            cases_due += 1
            if not self.context(case.suite).is_recorded:
                external += due
            elif (calls := recorded_calls(case.suite, case.case.case_id)) is None:
                unrecorded += due
            else:
                recorded += due * calls
        return ExpectedCalls(cases_due, trials, recorded, unrecorded, external)

    def closers(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Return the functions that close targets and backends, to be run on the event loop that used them."""
        targets = [context.caller.aclose for context in self._opened.values()]
        return [*targets, *(backend.aclose for backend in self.clients.opened.values())]

    def close(self) -> None:
        """Close the event loops of targets that were called directly."""
        for context in self._opened.values():
            context.caller.close()

    def _start_gateway(self) -> Serving:
        if self.serving is None:
            if self._serve_late is None:
                raise RuntimeError("the gateway must not serve")
            self.serving = self._serve_late()
            self._configure(self.serving)
        return self.serving

    def _configure(self, serving: Serving) -> None:
        if self.options.mode == "fixture":
            serving.configure(redactor=self.redactor)
        else:
            self.clients.count_with(serving, self._price)

    def _price(self, provider: str, model: str) -> Prices | None:
        """Return the price of a model that a target called with a client of its own."""
        from pytest_packbench.engine.live_models import price_of

        prices = (price_of(suite.config, provider, model) for suite in self.suites.values())
        return next(filter(None, prices), None)

    def _target(self, suite: Suite) -> tuple[Target, str]:
        """Return a suite's target and its name: from the option, else the hook, the suite's rules, the pack."""
        adapt = self.pack_of(suite).adapt_target
        if self.options.target:
            return find_target(self.options.target, self.options, self.redactor, adapt)
        from_hook = self.hooked_target(suite)
        if from_hook is not None:
            name = f"hook:{getattr(from_hook, '__qualname__', None) or type(from_hook).__qualname__}"
            return as_target(from_hook, name, adapt), name
        if suite.config.target:
            try:
                return find_target(suite.config.target, self.options, self.redactor, adapt)
            except TargetError as error:
                file = shown_path(suite.path / CONFIG_NAME, self.options.root)
                message = f"{file}: /target: {str(error).removeprefix('target ')}"
                # the traceback of the user's own code is that of the cause
                raise TargetError(message) from error.__cause__
        reference = self._reference(suite)
        if reference is None:
            raise TargetError(
                f'suite "{suite.name}": pack "{suite.config.pack}" has no target of its own; '
                "set --packbench-target, target in suite.yaml, or the hook pytest_packbench_target"
            )
        return reference, REFERENCE

    def _model(self, suite: Suite, pack: Pack, caller: TargetCaller) -> tuple[str, str]:
        """Return the names of the selected backend and model, each empty where none is set."""
        options, rules = self.options, suite.config
        name = options.backend or rules.backend or ""
        if name == STUB and caller.worlds is not None:
            if options.backend:
                raise SetupError(
                    f'suite "{suite.name}": --packbench-backend=stub: a scripted model plays in the target of the pack '
                    f"{pack.name} only, and another target is set; leave out --packbench-backend or the target"
                )
            # the suite's script does not play, so that nothing is attributed to it
            name = ""
        # the suite's model belongs to the suite's backend
        model = options.model or (rules.model if name == rules.backend else None) or ""
        if name == STUB:
            _check_scripted(suite, pack, model)
            return name, model
        if options.mode != "fixture":
            return ("", "") if name == RECORDED else (name, model)
        if options.backend not in {"", RECORDED}:
            raise SetupError(
                f"--packbench-backend: got {name} in fixture mode, which replays recordings; "
                "use --packbench-mode=live or record"
            )
        return "", ""

    def _reference(self, suite: Suite) -> Target | None:
        """Return the target of a suite's pack; None if it has none."""
        try:
            return self.pack_of(suite).target(suite.config)
        except Exception as error:
            raise TargetError(f'the pack "{suite.config.pack}" raised in target(): {describe_error(error)}') from error

    def _guards(self, suite: Suite, pack: Pack) -> tuple[Any, ...]:
        """Return a suite's guards: the selected ones, then those of the hook; none where the option says none."""
        if self.options.guards == ():
            return ()
        names = self.options.guards if self.options.guards is not None else suite.config.guards
        pack_guards = pack.guards()
        selected = [_guard(name, pack_guards, suite) for name in names if name != "none"]
        return (*selected, *self.hooked_guards(suite))


def shown_path(path: Path, root: Path) -> str:
    """Return a path as pytest's node ids show it: relative to the project's folder if it is inside, else absolute."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _never_called(request: object) -> None:
    raise RuntimeError(f"results come from elsewhere, and no target is called: {request!r}")


def _guard(name: str, pack_guards: Mapping[str, Any], suite: Suite) -> Any:
    if name not in pack_guards and ":" not in name:
        raise SetupError(
            f'suite "{suite.name}": unknown guard "{name}"; expected one of '
            f"{', '.join([*pack_guards, 'none', 'module:attr'])}"
        )
    try:
        guard = pack_guards[name] if name in pack_guards else import_object(name, "guard")
        return guard() if name in pack_guards or isinstance(guard, type) else guard
    except Exception as error:
        # such as a library that it needs and is missing
        prefix = f'guard "{name}": '
        raise SetupError(prefix + str(error).removeprefix(prefix)) from error


def _check_scripted(suite: Suite, pack: Pack, model: str) -> None:
    if not suite.config.scripted:
        from pytest_packbench.backends import backend_names

        raise SetupError(
            f'suite "{suite.name}": backend stub: the pack {pack.name} has no scripted models; '
            f"expected one of {', '.join(backend_names())}"
        )
    if model not in suite.config.scripted:
        raise SetupError(
            f'suite "{suite.name}": --packbench-model: got {model!r}; '
            f"expected one of {', '.join(suite.config.scripted)}, the scripted models of the pack {pack.name}"
        )
