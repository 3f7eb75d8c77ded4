"""Who is asked in this session: backends, models, guards, judges; a mistake is a usage error before the first case."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.backends import MODULES, RECORDED, STUB, open_backend
from pytest_packbench.backends.base import Backend, BackendOptions, BackendUnusable
from pytest_packbench.engine.cache import AnswerCache
from pytest_packbench.engine.metering import Asked, Ledger, Live, price_of
from pytest_packbench.engine.scheduler import Throttle
from pytest_packbench.engine.secrets import Secrets
from pytest_packbench.engine.targets import TargetError, import_object
from pytest_packbench.pytest_plugin.stash import RESUMED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_packbench.engine.results import Place
    from pytest_packbench.engine.targets import Caller
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.settings import Settings
    from pytest_packbench.pytest_plugin.suites import Benches


NONE_NAMED = (
    "the target asks a model, and nobody is named to answer; expected --packbench-backend={}, "
    "or a target that is marked with without_model"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """Who answers a suite's model calls.

    Attributes:
        backend: as asked for; empty where nobody is named.
        model: as asked for; empty where none is named.
        live: what is asked; None in fixture mode.
        roles: roles that the pack asks other models in.
    """

    backend: str
    model: str
    live: Live | None
    roles: frozenset[str] = frozenset()


@dataclass(slots=True)
class Answerers:
    """Opens each backend once for the session.

    Attributes:
        settings: the session's.
        ledger: books what the session uses.
        throttle: how many attempts may be under way.
    """

    settings: Settings
    ledger: Ledger
    throttle: Throttle
    _opened: dict[tuple[str, str], Backend] = field(default_factory=dict)
    _cache: AnswerCache | None = None

    @classmethod
    def of(cls, settings: Settings, workers: int) -> Answerers:
        """Make the answerers of a process, one of `workers` that share the caps."""
        # a worker of xdist knows its next case only
        most = settings.concurrency if workers == 1 else min(settings.concurrency, _WORKER_WINDOW)
        return cls(settings, Ledger(settings.caps, parts=workers), Throttle(most))

    @property
    def backends(self) -> list[Backend]:
        """The backends that were opened."""
        return list(self._opened.values())

    def for_suite(self, suite: Suite, pack: Pack, caller: Caller) -> Answering:
        """Find who answers a suite's calls.

        Raises:
            pytest.UsageError: nobody can, or who was named can't; says what to do.
        """
        settings, rules = self.settings, suite.config
        roles = pack.roles(rules)
        name, model = self._named(suite, pack)
        if settings.mode == "fixture":
            return Answering(backend=name, model=model, live=None, roles=frozenset(roles))
        asked = None
        if caller.asks_model and name != STUB:
            if not name:
                raise pytest.UsageError(f'suite "{suite.name}": {NONE_NAMED.format("|".join(MODULES))}')
            asked = self._asked(suite, name, model)
            model = asked.backend.model
        elif caller.opaque and settings.caps.cost is not None and price_of(rules, name, model) is None:
            raise pytest.UsageError(
                "--packbench-max-cost: nobody knows what the target outside this process costs; name its model with "
                "--packbench-backend and --packbench-model, and its prices in suite.yaml or pip install "
                "'pytest-packbench[prices]'"
            )
        aside = {role: self._asked(suite, *who, aside=True) for role, who in roles.items()}
        secrets = Secrets(os.environ)
        live = Live(asked=asked, aside=aside, ledger=self.ledger, secrets=secrets, cache=self._cache_of(secrets))
        return Answering(backend=name, model=model, live=live, roles=frozenset(roles))

    def _cache_of(self, secrets: Secrets) -> AnswerCache | None:
        settings = self.settings
        if settings.cache is None:
            return None
        if self._cache is None:
            how = {
                "base_url": settings.base_url,
                "temperature": settings.temperature,
                "max_output_tokens": settings.max_output_tokens,
            }
            self._cache = AnswerCache(settings.cache, how, secrets)
            _check_kept(self._cache, settings.cache)
        return self._cache

    def _named(self, suite: Suite, pack: Pack) -> tuple[str, str]:
        settings, rules = self.settings, suite.config
        name = settings.backend or rules.backend or ""
        # a model that the suite names belongs to the backend that it names
        model = settings.model or (rules.model if name == rules.backend else None) or ""
        if name == STUB:
            return name, self._scripted(suite, pack, model)
        if settings.mode != "fixture":
            return ("", "") if name == RECORDED else (name, model)
        if settings.backend not in {"", RECORDED}:
            raise pytest.UsageError(
                f"--packbench-backend: got {name} in fixture mode, where recordings answer; "
                "use --packbench-mode=live or record"
            )
        return "", ""

    def _asked(self, suite: Suite, name: str, model: str, *, aside: bool = False) -> Asked:
        backend = self._backend(name, model, aside=aside)
        price = price_of(suite.config, name, backend.model)
        if self.settings.caps.cost is not None and price is None:
            raise pytest.UsageError(
                f"--packbench-max-cost: nobody knows what {name} {backend.model} costs; expected prices in "
                "suite.yaml, or pip install 'pytest-packbench[prices]'"
            )
        return Asked(backend=backend, price=price)

    def _scripted(self, suite: Suite, pack: Pack, model: str) -> str:
        if not pack.scripted:
            raise pytest.UsageError(
                f'suite "{suite.name}": backend stub: the pack {pack.name} has no scripted models; '
                f"expected one of: {', '.join(MODULES)}"
            )
        if model not in pack.scripted:
            raise pytest.UsageError(
                f'suite "{suite.name}": --packbench-model: got {model!r}; the scripted models of the pack {pack.name} '
                f"are: {', '.join(pack.scripted)}"
            )
        return model

    def _backend(self, name: str, model: str, *, aside: bool) -> Backend:
        if (name, model) not in self._opened:
            settings = self.settings
            options = BackendOptions(
                model=model,
                # the address is that of the model under test; a judge of the same protocol is asked there too
                base_url=settings.base_url if not aside or name == settings.backend else "",
                timeout_s=settings.call_timeout_s,
                retries=settings.retries,
                temperature=settings.temperature,
                max_output_tokens=settings.max_output_tokens,
                connections=settings.concurrency,
                on_overload=self.throttle.overloaded,
            )
            try:
                self._opened[name, model] = open_backend(name, options)
            except BackendUnusable as error:
                raise pytest.UsageError(f"--packbench-backend={name}: {error}") from None
        return self._opened[name, model]


_WORKER_WINDOW = 2


def _check_kept(cache: AnswerCache, folder: Path) -> None:
    try:
        cache.check()
    except OSError as error:
        wrong = f"{folder} can't be written: {error.strerror or error}"
        raise pytest.UsageError(f"--packbench-cache: {wrong}; expected a folder to keep answers in") from None


def find_guards(config: pytest.Config, settings: Settings, suite: Suite, pack: Pack) -> tuple[Any, ...]:
    """Find a suite's guards: named ones, then those of the hook; none at all where that was asked for.

    Raises:
        pytest.UsageError: a guard is unknown or can't be made.
    """
    if settings.guards == ():
        return ()
    names = settings.guards if settings.guards is not None else suite.config.guards
    own = pack.guards()
    found = [_guard(name, own, suite) for name in names if name != "none"]
    for more in config.hook.pytest_packbench_guards(config=config, suite=suite):
        found.extend(more)
    return tuple(found)


def _guard(name: str, own: Mapping[str, Any], suite: Suite) -> Any:
    if name in own:
        return own[name]()
    if ":" not in name:
        raise pytest.UsageError(
            f'suite "{suite.name}": guard "{name}": expected module:attr, none, or one of the pack\'s: '
            f"{', '.join(own) or 'it has none'}"
        )
    try:
        guard = import_object(name, "guard")
        return guard() if isinstance(guard, type) else guard
    except TargetError as error:
        raise pytest.UsageError(str(error)) from None
    except Exception as error:
        raise pytest.UsageError(f'guard "{name}": making it raised {type(error).__name__}: {error}') from error


def guard_name(guard: Any) -> str:
    """Say how a guard is called: by its own `name`, else by its class or function."""
    named = getattr(guard, "name", None)
    if isinstance(named, str) and named:
        return named
    return getattr(guard, "__qualname__", None) or type(guard).__qualname__


def find_judges(config: pytest.Config) -> dict[str, Any]:
    """Give the judges of the hook, by name; the first of a name wins."""
    found: dict[str, Any] = {}
    for given in reversed(config.hook.pytest_packbench_judges(config=config)):
        found.update(given)
    return found


def expected_calls(benches: Benches, places: Iterable[Place]) -> str:
    """Say how many model calls a run is expected to make: as recorded, else at least one an attempt.

    Args:
        benches: the session's suites.
        places: the cases that were selected; those that are not to be run are left out.
    """
    trials, resumed = benches.settings.trials, benches.config.stash.get(RESUMED, None)
    cases, recorded, bare, own = 0, 0, 0, 0
    for place in places:
        if place.loaded is None or place.loaded.case.notes.skip is not None:
            continue
        due = trials - (len(resumed.trials(place.suite, place.case_id)) if resumed is not None else 0)
        cases += due > 0
        bench = benches.known(place.suite)
        if bench is not None and not bench.asks_model:
            own += due
            continue
        calls = _recorded_calls(place.suite.cassette_path(place.case_id)) if due > 0 else 0
        recorded, bare = recorded + due * (calls or 0), bare + due * (calls is None)
    attempts = _counted(cases, "case") + (f" x {trials} trials" if trials > 1 else "")
    about = f"about {_counted(recorded, 'model call')}, as recorded" if recorded else ""
    more = "more model call" if recorded else "model call"
    least = f"at least {_counted(bare, more)}, for cases without a recording" if bare else ""
    itself = f"{_counted(own, 'attempt')} whose target asks no model of ours" if own else ""
    parts = [part for part in (about, least, itself) if part]
    return f"packbench: {attempts} to be run in {benches.settings.mode} mode: {'; '.join(parts) or 'nothing to ask'}"


def _recorded_calls(path: Path) -> int | None:
    from pytest_packbench.cases.load import load_cassette
    from pytest_packbench.model.errors import CassetteError

    try:
        return len(load_cassette(path, source=path.name)[0].exchanges)
    except (CassetteError, OSError):
        return None


def caps_text(settings: Settings, *, shared: bool) -> str:
    """Say what bounds a live run; `shared`: workers of xdist run it."""
    caps = settings.caps
    named = (
        ("tokens", None if caps.tokens is None else f"{caps.tokens:,}"),
        ("cost", None if caps.cost is None else f"{caps.cost:g}"),
        ("seconds", None if caps.seconds is None else f"{caps.seconds:g}"),
    )
    told = ", ".join(f"{name} {cap}" for name, cap in named if cap is not None)
    if told and shared and (caps.tokens is not None or caps.cost is not None):
        told += " (workers share tokens and cost in equal parts)"
    told = told or "none (set one with --packbench-max-tokens, --packbench-max-cost or --packbench-max-seconds)"
    most = f"{min(settings.concurrency, _WORKER_WINDOW)} a worker" if shared else f"{settings.concurrency}"
    limit = f", {settings.case_timeout_s:g} s each" if settings.case_timeout_s is not None else ", no time limit"
    return f"packbench: caps: {told}; attempts at once: {most}{limit}; temperature {settings.temperature:g}"


def spent_text(spent: Mapping[str, Any]) -> str:
    """Say what a live run used."""
    if spent["uncounted"] and not spent["calls"] and not spent.get("cached"):
        # what a target asks by itself is known only as far as it tells
        others = f", others told of {spent['tokens']:,}" if spent["tokens"] else ""
        untold = f"{_counted(spent['uncounted'], 'answer')} of the target told no tokens{others}"
        return f"asked: no model call of ours; {untold}, cost unknown"
    cost = "cost unknown" if spent["cost"] is None else f"{spent['cost']:.4f} {spent['currency']}"
    uncounted = f" ({_counted(spent['uncounted'], 'call')} without a token count)" if spent["uncounted"] else ""
    cached = f", {spent['cached']:,} more answered from the cache" if spent.get("cached") else ""
    return f"asked: {_counted(spent['calls'], 'model call')}, {spent['tokens']:,} tokens{uncounted}, {cost}{cached}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
