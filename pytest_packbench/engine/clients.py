"""Who is asked in a run: backends and their models, each opened once; a mistake shows before the first case."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.backends import MODULES, RECORDED, STUB, Backend, BackendOptions, BackendUnusable, open_backend
from pytest_packbench.engine.cache import AnswerCache
from pytest_packbench.engine.metering import Asked, Ledger, Live, price_of
from pytest_packbench.engine.scheduler import Throttle
from pytest_packbench.engine.secrets import Secrets
from pytest_packbench.model.options import SetupError

if TYPE_CHECKING:
    from pytest_packbench.engine.targets import Caller
    from pytest_packbench.model.options import RunOptions
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import Suite


class Answering(NamedTuple):
    """Who answers a suite's model calls; the fields are those of `SuiteContext`."""

    backend: str
    model: str
    live: Live | None
    roles: frozenset[str]


class Clients:
    """Opens each backend once for the run.

    Attributes:
        ledger: books what the run uses.
        throttle: how many attempts may be under way.
    """

    def __init__(self, options: RunOptions) -> None:
        self.ledger = Ledger(options.caps, parts=options.workers)
        self.throttle = Throttle(options.window)
        self._options = options
        self._opened: dict[tuple[str, str], Backend] = {}
        self._cache: AnswerCache | None = None

    @property
    def backends(self) -> list[Backend]:
        """The backends that were opened."""
        return list(self._opened.values())

    def for_suite(self, suite: Suite, pack: Pack, caller: Caller) -> Answering:
        """Find who answers a suite's calls.

        Raises:
            SetupError: nobody can, or who was named can't; says what to do.
        """
        options, rules = self._options, suite.config
        roles = pack.roles(rules)
        name, model = self._named(suite, pack)
        if options.mode == "fixture":
            return Answering(backend=name, model=model, live=None, roles=frozenset(roles))
        asked = None
        if caller.asks_model and name != STUB:
            if not name:
                raise SetupError(
                    f'suite "{suite.name}": the target asks a model, and nobody is named to answer; expected '
                    f"--packbench-backend={'|'.join(MODULES)}, or a target that is marked with without_model"
                )
            asked = self._asked(suite, name, model)
            model = asked.backend.model
        elif caller.opaque and options.caps.cost is not None and price_of(rules, name, model) is None:
            raise SetupError(
                "--packbench-max-cost: nobody knows what the target outside this process costs; name its model with "
                "--packbench-backend and --packbench-model, and its prices in suite.yaml or pip install "
                "'pytest-packbench[prices]'"
            )
        aside = {role: self._asked(suite, *who, aside=True) for role, who in roles.items()}
        secrets = Secrets(os.environ)
        live = Live(asked=asked, aside=aside, ledger=self.ledger, secrets=secrets, cache=self._kept_answers(secrets))
        return Answering(backend=name, model=model, live=live, roles=frozenset(roles))

    def _named(self, suite: Suite, pack: Pack) -> tuple[str, str]:
        """Give the backend and the model as they were asked for, each empty where none was."""
        options, rules = self._options, suite.config
        name = options.backend or rules.backend or ""
        # a model that the suite names belongs to the backend that it names
        model = options.model or (rules.model if name == rules.backend else None) or ""
        if name == STUB:
            _check_scripted(suite, pack, model)
            return name, model
        if options.mode != "fixture":
            return ("", "") if name == RECORDED else (name, model)
        if options.backend not in {"", RECORDED}:
            raise SetupError(
                f"--packbench-backend: got {name} in fixture mode, where recordings answer; "
                "use --packbench-mode=live or record"
            )
        return "", ""

    def _asked(self, suite: Suite, name: str, model: str, *, aside: bool = False) -> Asked:
        backend = self._backend(name, model, aside=aside)
        price = price_of(suite.config, name, backend.model)
        if self._options.caps.cost is not None and price is None:
            raise SetupError(
                f"--packbench-max-cost: nobody knows what {name} {backend.model} costs; expected prices in "
                "suite.yaml, or pip install 'pytest-packbench[prices]'"
            )
        return Asked(backend=backend, price=price)

    def _backend(self, name: str, model: str, *, aside: bool) -> Backend:
        if (name, model) not in self._opened:
            run = self._options
            options = BackendOptions(
                model=model,
                # the address is that of the model under test; a judge of the same protocol is asked there too
                base_url=run.base_url if not aside or name == run.backend else "",
                timeout_s=run.call_timeout_s,
                retries=run.retries,
                temperature=run.temperature,
                max_output_tokens=run.max_output_tokens,
                connections=run.concurrency,
                on_overload=self.throttle.overloaded,
            )
            try:
                self._opened[name, model] = open_backend(name, options)
            except BackendUnusable as error:
                raise SetupError(f"--packbench-backend={name}: {error}") from None
        return self._opened[name, model]

    def _kept_answers(self, secrets: Secrets) -> AnswerCache | None:
        options = self._options
        if options.cache is not None and self._cache is None:
            how = {
                "base_url": options.base_url,
                "temperature": options.temperature,
                "max_output_tokens": options.max_output_tokens,
            }
            self._cache = AnswerCache(options.cache, how, secrets)
            try:
                self._cache.check()
            except OSError as error:
                wrong = f"{options.cache} can't be written: {error.strerror or error}"
                raise SetupError(f"--packbench-cache: {wrong}; expected a folder to keep answers in") from None
        return self._cache


def _check_scripted(suite: Suite, pack: Pack, model: str) -> None:
    if not pack.scripted:
        raise SetupError(
            f'suite "{suite.name}": backend stub: the pack {pack.name} has no scripted models; '
            f"expected one of: {', '.join(MODULES)}"
        )
    if model not in pack.scripted:
        raise SetupError(
            f'suite "{suite.name}": --packbench-model: got {model!r}; the scripted models of the pack {pack.name} '
            f"are: {', '.join(pack.scripted)}"
        )
