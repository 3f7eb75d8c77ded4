"""Which backends answer a suite's model calls; each is opened once per run, and mistakes show before the first case."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.pack import Pack, RoleModel
from pytest_packbench.model.run import RECORDED, STUB, RunOptions, SetupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.backends import Backend
    from pytest_packbench.engine.gateway import Serving
    from pytest_packbench.engine.metering import AnswerCache, Ledger, LiveModels, PricedBackend
    from pytest_packbench.engine.scheduler import Throttle
    from pytest_packbench.engine.targets import TargetCaller
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.model.suite import Prices, Suite

_OWN_CLIENT = "; one with a model client of its own needs no backend if its context has a default"


class SuiteBackends(NamedTuple):
    """What answers a suite's model calls; the fields are those of `SuiteContext`."""

    backend: str
    model: str
    live: LiveModels | None
    roles: frozenset[str]


@dataclass(eq=False)
class Clients:
    """Opens each backend once for the run; what only model calls need is imported when a suite asks for it.

    Attributes:
        options: how attempts are made.
        redactor: the run's.
        serves_gateway: whether calls of targets' own clients are seen.
        opened: the backends that were opened, by what they differ in.
    """

    options: RunOptions
    redactor: Redactor
    serves_gateway: bool = False
    opened: dict[tuple[str, str, str, float], Backend] = field(default_factory=dict)

    @cached_property
    def ledger(self) -> Ledger:
        """Counts what the run uses."""
        from pytest_packbench.engine.metering import Ledger

        return Ledger(self.options.caps, parts=self.options.workers)

    @cached_property
    def throttle(self) -> Throttle:
        """Limits the attempts in flight."""
        from pytest_packbench.engine.scheduler import Throttle

        return Throttle(self.options.window)

    def count_with(self, serving: Serving, price: Callable[[str, str], Prices | None]) -> None:
        """Have the gateway count calls in the ledger, obey the caps, and answer from the cache."""
        live: dict[str, Any] = {}
        if self.options.mode != "fixture":
            live = {"ledger": self.ledger, "price": price, "cache": self._cache}
            live["on_overload"] = self.throttle.overloaded
        serving.configure(redactor=self.redactor, **live)

    def for_suite(self, suite: Suite, pack: Pack, caller: TargetCaller) -> SuiteBackends:
        """Return what answers a suite's model calls.

        Raises:
            SetupError: no backend is set, or it can't be opened; says what to do.
        """
        options, rules = self.options, suite.config
        roles = pack.roles(rules)
        name, model = self._selected(suite, pack, caller)
        if options.mode == "fixture":
            return SuiteBackends(backend=name, model=model, live=None, roles=frozenset(roles))
        from pytest_packbench.engine.metering import LiveModels, price_of

        primary = None
        if name != STUB and not self.serves_gateway:
            _check_observable(suite, caller, options)
        # what an optional context does not record, the gateway does
        is_due = caller.requires_context or (options.mode == "record" and not self.serves_gateway)
        if caller.asks_model and name != STUB and (name or is_due):
            if not name:
                from pytest_packbench.backends import backend_names

                raise SetupError(
                    f'suite "{suite.name}": the target calls a model, and no backend is set; use '
                    f"--packbench-backend={'|'.join(backend_names())}, or mark the target with without_model"
                    f"{_OWN_CLIENT if self.serves_gateway else ''}"
                )
            primary = self._priced(suite, name, model)
            model = primary.backend.model
        elif (
            caller.opaque
            and options.caps.cost is not None
            # the gateway sees which models a program calls
            and not (self.serves_gateway and caller.runs_offline)
            and price_of(rules, name, model) is None
        ):
            raise SetupError(
                "--packbench-max-cost: the target runs outside this process and the price of its model is unknown; "
                "name the model with --packbench-backend and --packbench-model, and set its prices in suite.yaml or "
                "pip install 'pytest-packbench[prices]'"
            )
        by_role = {role: self._priced(suite, *names[:2], RoleModel(*names)) for role, names in roles.items()}
        live = LiveModels(
            primary=primary, by_role=by_role, ledger=self.ledger, redactor=self.redactor, cache=self._cache
        )
        return SuiteBackends(backend=name, model=model, live=live, roles=frozenset(roles))

    def _selected(self, suite: Suite, pack: Pack, caller: TargetCaller) -> tuple[str, str]:
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

    def _priced(self, suite: Suite, name: str, model: str, role: RoleModel | None = None) -> PricedBackend:
        from pytest_packbench.engine.metering import PricedBackend, price_of

        run = self.options
        # the address of the model under test; a judge with the same backend is asked there too, unless it has its own
        base_url = run.base_url if role is None or name == run.backend else ""
        base_url = base_url if role is None else role.base_url or base_url
        # the same answer must always get the same ruling
        temperature = run.temperature if role is None else 0.0
        key = (name, model, base_url, temperature)
        if key not in self.opened:
            self.opened[key] = self._open(suite, *key)
        backend = self.opened[key]
        price = price_of(suite.config, name, backend.model)
        if run.caps.cost is not None and price is None:
            raise SetupError(
                f"--packbench-max-cost: the price of {name} {backend.model} is unknown; set prices in "
                "suite.yaml, or pip install 'pytest-packbench[prices]'"
            )
        return PricedBackend(backend=backend, price=price)

    def _open(self, suite: Suite, name: str, model: str, base_url: str, temperature: float) -> Backend:
        from pytest_packbench.backends import BackendOptions, BackendUnusable, open_backend

        run = self.options
        options = BackendOptions(
            model=model,
            base_url=base_url,
            timeout_s=run.call_timeout_s,
            retries=run.retries,
            temperature=temperature,
            max_output_tokens=run.max_output_tokens,
            connections=run.concurrency,
            on_overload=self.throttle.overloaded,
            on_retry=self.ledger.add_retry,
            redactor=self.redactor,
        )
        try:
            return open_backend(name, options)
        except BackendUnusable as error:
            source = f"--packbench-backend={name}" if name == run.backend else f'suite "{suite.name}": backend {name}'
            raise SetupError(f"{source}: {error}") from None

    @cached_property
    def _cache(self) -> AnswerCache | None:
        options = self.options
        if options.cache is None:
            return None
        from pytest_packbench.engine.metering import AnswerCache

        parameters = {
            "base_url": options.base_url,
            "temperature": options.temperature,
            "max_output_tokens": options.max_output_tokens,
            # clients send these too
            **{name: value for name, value in os.environ.items() if name.endswith("_CUSTOM_HEADERS")},
        }
        cache = AnswerCache(options.cache, parameters, self.redactor)
        try:
            cache.check()
        except OSError as error:
            problem = f"{options.cache} can't be written to: {error.strerror or error}"
            raise SetupError(f"--packbench-cache: {problem}; expected a writable folder") from None
        return cache


def _check_observable(suite: Suite, caller: TargetCaller, options: RunOptions) -> None:
    """Check that the calls of a target can be recorded and limited, where that is requested."""
    if caller.opaque or caller.asks_model or caller.without_model:
        return
    if options.mode == "record":
        remedy = "let it call models through context.llm, run it as cmd: or http:, or mark it with without_model"
        raise SetupError(
            f'--packbench-mode=record: suite "{suite.name}": the target takes no context, so that none of its model '
            f"calls can be recorded; {remedy}"
        )
    caps = {"--packbench-max-tokens": options.caps.tokens, "--packbench-max-cost": options.caps.cost}
    option = next((name for name, cap in caps.items() if cap is not None), "")
    if option:
        raise SetupError(
            f'{option}: suite "{suite.name}": the target takes no context, so that its model calls are not counted; '
            "let it take a context and call models through context.llm or report usage in its results, or mark it "
            "with without_model"
        )


def _check_scripted(suite: Suite, pack: Pack, model: str) -> None:
    if not pack.scripted:
        from pytest_packbench.backends import backend_names

        raise SetupError(
            f'suite "{suite.name}": backend stub: the pack {pack.name} has no scripted models; '
            f"expected one of {', '.join(backend_names())}"
        )
    if model not in pack.scripted:
        raise SetupError(
            f'suite "{suite.name}": --packbench-model: got {model!r}; '
            f"expected one of {', '.join(pack.scripted)}, the scripted models of the pack {pack.name}"
        )
