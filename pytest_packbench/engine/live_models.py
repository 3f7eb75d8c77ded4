"""The models of a live run: opened, called, priced, limited by the run's caps, and answered from a cache.

Each backend is opened once for the run. Runs of recordings import nothing of this.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pytest_packbench.backends import (
    Backend,
    BackendError,
    BackendOptions,
    BackendUnusable,
    backend_names,
    open_backend,
)
from pytest_packbench.engine.offline import for_no_case
from pytest_packbench.files import LIMITS, NUMBERS, canonical_sha256, read_regular, write_atomic
from pytest_packbench.model.errors import describe_error, pluralize
from pytest_packbench.model.pack import Pack, RoleModel
from pytest_packbench.model.request import ModelAnswer, ModelRequest, Usage
from pytest_packbench.model.result import adapter
from pytest_packbench.model.run import MAX_UNREADABLE, STUB, RunOptions, SetupError
from pytest_packbench.model.suite import Prices, SuiteConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from pytest_packbench.engine.gateway import Serving
    from pytest_packbench.engine.scheduler import Throttle
    from pytest_packbench.engine.targets import TargetCaller
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.model.run import Caps
    from pytest_packbench.model.suite import Suite

_MILLION = 1_000_000
CACHE_VERSION = 1
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=1)
DOLLARS = "USD"
"""The currency in which the costs of attempts are stated."""
OWN_CLIENT = "let it call models through context.llm, report usage in its results, or be marked with without_model"
"""What to do about a target whose model calls are not seen."""
_DEFAULT_CONTEXT = "; one with a model client of its own needs no backend if its context has a default"


def price_of(config: SuiteConfig, backend: str, model: str) -> Prices | None:
    """Return the price of a model's tokens.

    Args:
        config: the suite's rules, whose `prices` come first.
        backend: the backend's name.
        model: the model's name.

    Returns:
        The price; None where it is unknown. List prices ignore discounts and caching.
    """
    suite_price = config.prices.get(model)
    if suite_price is not None:
        return suite_price
    try:
        from genai_prices import Usage as Counts
        from genai_prices import calc_price
    except ImportError:
        return None
    try:
        # one token: price tiers that begin at many tokens are ignored
        given, returned = (
            float(calc_price(counts, model, provider_id=backend).total_price) * _MILLION
            for counts in (Counts(input_tokens=1, output_tokens=0), Counts(input_tokens=0, output_tokens=1))
        )
    except LookupError:
        return None
    return Prices(input_per_million=given, output_per_million=returned)


UNWRITABLE = "output_unwritable"
"""The name of the reason for which no attempt starts once an answer could not be stored."""


@dataclass(slots=True, eq=False)
class Ledger:
    """Counts what the run uses; safe to use from several threads.

    Attributes:
        caps: limits of the whole run.
        parts: the number of processes that share the caps equally; this one has one share.
        clock: monotonic clock, seconds.
        calls: model calls, answered or failed.
        tokens: tokens that providers counted.
        uncounted: calls without a token count.
        unmetered: attempts whose model calls, if any, nobody here saw or reported: their usage is not known.
        is_blind: whether one of them had a way to call a model past what counts here.
        cached: calls that the cache answered; they used nothing.
        retries: repetitions of calls after temporary failures, as far as they are seen.
        cost: cost of all calls; None once a call had no known price.
        currency: the currency of the cost.
        unreadable: results that are unreadable for their form.
        started: when the first attempt was due, monotonic seconds; None before.
        stopped: why no further attempt starts: the reason's name and one line; both empty while one may.
    """

    caps: Caps
    parts: int = 1
    clock: Callable[[], float] = time.monotonic
    calls: int = 0
    tokens: int = 0
    uncounted: int = 0
    unmetered: int = 0
    is_blind: bool = False
    cached: int = 0
    retries: int = 0
    cost: float | None = 0.0
    currency: str = DOLLARS
    unreadable: int = 0
    started: float | None = None
    stopped: tuple[str, str] = ("", "")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self, name: str, reason: str) -> None:
        """Let no further attempt start: answers could not be kept. The first reason stays.

        Args:
            name: the reason's name, for `errors.jsonl`.
            reason: why, in one line.
        """
        self.stopped = self.stopped if self.stopped[0] else (name, reason)

    def add_unreadable(self, reason: str, most: int) -> None:
        """Count a result that is unreadable for its form; the last one that is allowed lets no further attempt start.

        Args:
            reason: why it is unreadable, in one line.
            most: how many are allowed; 0 for any number.
        """
        with self._lock:
            self.unreadable += 1
        if most and self.unreadable >= most:
            whose = "" if self.parts == 1 else " of this worker"
            advice = "correct the target and start a new run, or resume this one with --packbench-max-unreadable=0"
            counted = f"{pluralize(self.unreadable, 'unreadable result')}{whose}, as many as a run may have"
            self.stop(MAX_UNREADABLE, f"{counted} (the last one: {reason}); {advice}")

    @property
    def seconds(self) -> float:
        """Wall-clock time since the first attempt was due, seconds."""
        return 0.0 if self.started is None else self.clock() - self.started

    def add_call(self, usage: Usage | None, price: Prices | None) -> float | None:
        """Count one model call; usage and price are None where unknown.

        Returns:
            As `add_usage`.
        """
        with self._lock:
            self.calls += 1
        return self.add_usage(usage, price)

    def add_usage(self, usage: Usage | None, price: Prices | None) -> float | None:
        """Count the usage that a target reports of its own model calls; None where unknown.

        Returns:
            What it costs, US dollars; None if that is not known, or in another currency.
        """
        with self._lock:
            if usage is None or (usage.tokens_input is None and usage.tokens_output is None):
                self.uncounted += 1
                return None
            # the sums have what is known; a call without one of its counts has no known cost of its own
            tokens_in, tokens_out = usage.tokens_input or 0, usage.tokens_output or 0
            self.tokens += tokens_in + tokens_out
            if price is None:
                self.cost = None
                return None
            cost = (tokens_in * price.input_per_million + tokens_out * price.output_per_million) / _MILLION
            if self.cost is not None:
                self.cost += cost
                self.currency = price.currency
            is_known = None not in (usage.tokens_input, usage.tokens_output)
            return cost if is_known and price.currency == DOLLARS else None

    def add_cached_call(self) -> None:
        """Count a call that the cache answered."""
        with self._lock:
            self.cached += 1

    def add_retry(self) -> None:
        """Count a call that is made again."""
        with self._lock:
            self.retries += 1

    def add_unmetered_attempt(self, *, is_blind: bool) -> None:
        """Count an attempt that made no call through packbench, and whose result reports no usage."""
        with self._lock:
            self.unmetered += 1
            self.is_blind |= is_blind

    def as_json(self) -> dict[str, Any]:
        """Return the counts as plain JSON; None for what is not known, such as the cost without a price."""
        is_unseen = (self.unmetered > 0 or self.tokens > 0) and not self.calls and not self.cached
        is_uncounted = not self.tokens and (is_unseen or self.uncounted > 0)
        return {
            "calls": None if is_unseen else self.calls,
            "tokens": None if is_uncounted else self.tokens,
            "uncounted": self.uncounted,
            "cost": None if self.unmetered or is_uncounted else self.cost,
            "currency": self.currency,
            **({"cached": self.cached} if self.cached else {}),
            **({"unmetered": self.unmetered} if self.unmetered else {}),
        }

    def reached_cap(self) -> tuple[str, str]:
        """Return why no attempt may start: the cap's name and one line; both empty while one may."""
        self.started = self.clock() if self.started is None else self.started
        caps, share = self.caps, self.caps.split(self.parts)
        cap = "the run's cap" if self.parts == 1 else f"this worker's share (1/{self.parts}) of the run's cap"
        if self.is_blind and not self.calls and not (share.tokens is None and share.cost is None):
            name = "max_tokens" if share.tokens is not None else "max_cost"
            return (
                name,
                f"the run's cap can't be enforced: the target did not call a model through packbench; {OWN_CLIENT}",
            )
        if share.tokens is not None and self.tokens >= share.tokens:
            return "max_tokens", f"{cap} of {caps.tokens:,} tokens is reached ({self.tokens:,} used)"
        if share.cost is not None and self.cost is None:
            problem = "can't be enforced: the price of a model is unknown"
            return "max_cost", f"the run's cap of {caps.cost:g} {self.currency} {problem}"
        if share.cost is not None and self.cost is not None and self.cost >= share.cost:
            spent = f"{self.cost:.4f} {self.currency}"
            return "max_cost", f"{cap} of {caps.cost:g} {self.currency} is reached ({spent} spent)"
        if share.seconds is not None and self.seconds >= share.seconds:
            return "max_seconds", f"the run's cap of {caps.seconds:g} s is reached"
        return self.stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedBackend:
    """A backend and the price of its model.

    Attributes:
        backend: answers calls.
        price: the price of its model; None where it is unknown.
    """

    backend: Backend
    price: Prices | None = None


@dataclass(slots=True, eq=False)
class ModelCall:
    """One model call of an attempt.

    Attributes:
        request: the request.
        request_sha256: its hash.
        answer: the answer, even if it can't be read; None while the call is in flight or where it failed.
        error: why it failed.
        secondary: whether it went to a model that the pack asks beside the one under test, such as a judge.
        cached: whether the answer came from the cache.
        cost_usd: what it cost, US dollars; None while it is in flight, and where that is not known.
    """

    request: ModelRequest
    request_sha256: str
    answer: ModelAnswer | None = None
    error: BackendError | None = None
    secondary: bool = False
    cached: bool = False
    cost_usd: float | None = None


@dataclass(slots=True, eq=False)
class CallLimit:
    """Limits how often one attempt asks chat models, through `context.llm` and by clients of its own.

    Attributes:
        most: how often it may ask; None for no limit.
        refused: why a call was refused; None as long as none was.
        made: the number of calls.
    """

    most: int | None = None
    refused: BackendError | None = None
    made: int = 0

    def take(self) -> BackendError | None:
        """Count a call that is about to be made; return why it must not be made, None if it may."""
        if self.most is None or self.made < self.most:
            self.made += 1
            return None
        problem = f"the attempt asked for more than {self.most} model calls (--packbench-max-calls)"
        self.refused = BackendError("max_calls", f"{problem}; end its loop, or raise the limit")
        return self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveModels:
    """The models that answer in live mode.

    Attributes:
        primary: the model under test; None where no backend is set.
        by_role: the models that the pack asks beside it, by role.
        ledger: counts what the run uses.
        cache: stores answers for later runs; None for none.
        redactor: removes secrets from the messages of errors.
    """

    primary: PricedBackend | None
    ledger: Ledger
    redactor: Redactor
    by_role: Mapping[str, PricedBackend] = field(default_factory=dict)
    cache: AnswerCache | None = None

    def limit(self, most: int | None) -> CallLimit:
        """Return the limit of one attempt."""
        return CallLimit(most)

    def add_reported(self, usage: Usage, config: SuiteConfig, backend: str, model: str) -> float | None:
        """Count the usage that a result reports; return what it costs, as `Ledger.add_usage` does."""
        return self.ledger.add_usage(usage, price_of(config, backend, model))

    def meter(self, trial: int, limit: CallLimit) -> Meter | None:
        """Return the meter of one attempt, None where no model is set. Called on the event loop."""
        return Meter(self, trial, limit) if self.primary is not None or self.by_role else None


@dataclass(slots=True, eq=False)
class Meter:
    """Answers one attempt's model calls, chooses the model by the call's role, and counts usage.

    Attributes:
        live: the models.
        trial: the number of the attempt, from 0.
        limit: limits its calls.
        calls: the calls in the order in which they were made.
        closed: whether the attempt is over.
    """

    live: LiveModels
    trial: int
    limit: CallLimit
    calls: list[ModelCall] = field(default_factory=list)
    closed: bool = False
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _in_flight: set[asyncio.Task[Any] | None] = field(default_factory=set)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request.

        Raises:
            AnswerError: the answer can't be read.
            BackendError: the call failed.
            RuntimeError: the attempt is over: an abandoned target makes no more calls.
        """
        if _running_loop() is self._loop:
            return await self._complete(request)
        # a sync target may run a loop of its own, but the backend's clients belong to the run's loop
        self._check_open()
        return await asyncio.wrap_future(self._on_loop(request))

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request of a target that runs on a thread.

        Raises:
            BackendError: the call failed.
            RuntimeError: the attempt is over, or the caller is an async target, which would block the event loop.
        """
        self._check_open()
        if _running_loop() is self._loop:
            raise RuntimeError("async targets must use `await context.llm.complete(...)`")
        return self._on_loop(request).result()

    def unrecovered_error(self) -> BackendError | None:
        """Return the first error that no later equal call recovered from; an answer that can't be read is none.

        A target may ignore the exception that its model call raises.
        """
        answered = {call.request_sha256 for call in self.calls if call.answer is not None}
        return next((call.error for call in self.calls if call.error and call.request_sha256 not in answered), None)

    def close(self) -> None:
        """End the attempt, on the loop: cancel the calls in flight, and refuse later ones."""
        self.closed = True
        for task in tuple(self._in_flight):
            if task is not None:
                task.cancel()

    @property
    def primary_called(self) -> bool:
        """Whether the model under test was called, not only those beside it."""
        return any(not call.secondary for call in self.calls)

    @property
    def truncated(self) -> bool:
        """Whether an answer of the model under test was cut off."""
        problems = [call.answer.problem for call in self.calls if call.answer is not None and not call.secondary]
        return any(problem is not None and problem.kind == "truncated" for problem in problems)

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError("the attempt is over: its time limit passed, or the run was stopped")

    def _on_loop(self, request: ModelRequest) -> Future[ModelAnswer]:
        return asyncio.run_coroutine_threadsafe(self._complete(request), self._loop)

    async def _complete(self, request: ModelRequest) -> ModelAnswer:
        self._check_open()
        live = self.live
        call = ModelCall(request, canonical_sha256(request.as_json()), secondary=request.role in live.by_role)
        self.calls.append(call)
        model = live.by_role.get(request.role, live.primary)
        ledger, redactor = live.ledger, live.redactor
        if model is None:
            call.error = BackendError("no_backend", f"no backend is set for the role {request.role}")
            raise call.error
        # a guard's server is no model
        if model.backend.name != "json_server" and (refused := self.limit.take()) is not None:
            call.error = refused
            raise refused
        task, usage = asyncio.current_task(), None
        self._in_flight.add(task)
        try:
            with for_no_case():
                answer = await self._answer(model.backend, request, call)
            usage = answer.usage
        except BackendError as error:
            usage = error.usage
            call.error = BackendError(error.kind, redactor.text(str(error)), usage=usage)
            raise call.error from None
        except Exception as error:
            call.error = BackendError("backend_error", redactor.text(describe_error(error)))
            raise call.error from error
        finally:
            self._in_flight.discard(task)
            if call.cached:
                ledger.add_cached_call()
                call.cost_usd = 0.0
            else:
                # the provider may have counted one that was cancelled
                call.cost_usd = ledger.add_call(usage, model.price)
        if answer.problem is not None:
            problem = answer.problem._replace(message=redactor.text(answer.problem.message))
            answer = replace(answer, problem=problem)
            if call.secondary:
                # a judge that can't be read has not ruled, which says nothing of the answer under test
                call.error = BackendError(problem.kind, problem.message, usage=answer.usage)
                raise call.error
        call.answer = answer
        return answer.readable()

    async def _answer(self, backend: Backend, request: ModelRequest, call: ModelCall) -> ModelAnswer:
        if self.live.cache is None:
            return await backend.complete(request)
        equal = [other for other in self.calls if other.request_sha256 == call.request_sha256 and other.error is None]
        answer, call.cached = await self.live.cache.complete(
            backend, request, trial=self.trial, repetition=len(equal) - 1
        )
        return answer


class AnswerCache:
    """A folder of model answers: a call that was answered before, in any run, is answered from the folder.

    The key is everything that an answer depends on: the request, backend, model, address and parameters, and the number
    of the trial. Trials, and repeated identical calls of one attempt, have keys of their own: they would always agree
    otherwise. Several tasks and several processes may use a folder at once.

    Errors are not cached, nor answers that contain a secret; refusals are. A file that can't be read counts as missing
    and is replaced. Of equal requests that one process makes at the same time, the first is sent and the others wait
    for its answer.

    Args:
        folder: where answers are stored; created where it is missing.
        parameters: what answers depend on beside backend, model and request: address, temperature, token limit.
        redactor: finds secrets in answers, which are not written then.
    """

    def __init__(self, folder: Path, parameters: Mapping[str, Any], redactor: Redactor) -> None:
        self.folder = folder
        self.parameters = parameters
        self.redactor = redactor
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    def check(self) -> None:
        """Create the folder and check that it is writable; later write errors are ignored.

        Raises:
            OSError: it can't be written to.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=self.folder):
            pass

    async def complete(
        self, backend: Backend, request: ModelRequest, *, trial: int, repetition: int
    ) -> tuple[ModelAnswer, bool]:
        """Answer from the folder, else ask the backend and store the answer.

        Args:
            backend: answers what the folder does not contain.
            request: the request.
            trial: the number of the attempt at the case, from 0.
            repetition: how often the attempt made this very call before.

        Returns:
            The answer, and whether it is from the folder.

        Raises:
            BackendError: the call failed.
        """
        key = {
            "backend": backend.name,
            "model": backend.model,
            "temperature": backend.temperature,
            "how": self.parameters,
            "trial": trial,
            "again": repetition,
            "request": request.as_json(),
        }
        lock = self._locks.setdefault(self._path(key), asyncio.Lock())
        async with lock:
            stored = self.load(key)
            with suppress(TypeError, ValueError):
                # the tokens are beside the rest
                return adapter(ModelAnswer).validate_python({**stored, "usage": stored}), True
            answer = await backend.complete(request)
            data = asdict(answer)
            usage = data.pop("usage")
            self.store(key, data | usage)
            return answer, False

    def load(self, key: Mapping[str, Any]) -> Any:
        """Return what is stored under a key; None where there is nothing, or it can't be read."""
        try:
            data = json.loads(read_regular(self._path(key), LIMITS["cached answer"]), **NUMBERS)
            intact = data["cache_version"] == CACHE_VERSION and data["sha256"] == canonical_sha256(data["answer"])
            return data["answer"] if intact else None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def store(self, key: Mapping[str, Any], answer: dict[str, Any]) -> None:
        """Store an answer, plain JSON, under a key that states everything on which it depends."""
        path = self._path(key)
        # an answer that can't be stored is an answer all the same
        with suppress(OSError, ValueError, TypeError, RecursionError):
            sha256 = canonical_sha256(answer)
            text = _ENCODER.encode({"cache_version": CACHE_VERSION, "sha256": sha256, "answer": answer})
            # an answer without the secret would be another one
            if self.redactor.suspects(text) and self.redactor.find(answer):
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text + "\n")

    def _path(self, key: Mapping[str, Any]) -> Path:
        name = canonical_sha256({"version": CACHE_VERSION, **key})
        return self.folder / name[:2] / f"{name}.json"


@dataclass(eq=False)
class Clients:
    """Opens each backend once for the run, of which mistakes show before the first case, and counts what it uses.

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
        return Ledger(self.options.caps, parts=self.options.workers)

    @cached_property
    def throttle(self) -> Throttle:
        """Limits the attempts in flight."""
        from pytest_packbench.engine.scheduler import Throttle

        return Throttle(self.options.window)

    def count_with(self, serving: Serving, price: Callable[[str, str], Prices | None]) -> None:
        """Have the gateway count calls in the ledger, obey the caps, and answer from the cache."""
        serving.configure(
            redactor=self.redactor,
            ledger=self.ledger,
            price=price,
            cache=self._cache,
            on_overload=self.throttle.overloaded,
        )

    def for_suite(self, suite: Suite, pack: Pack, caller: TargetCaller, name: str, model: str) -> LiveModels:
        """Return what answers a suite's model calls, given the names of the selected backend and model.

        Raises:
            SetupError: no backend is set, or it can't be opened; says what to do.
        """
        options, rules = self.options, suite.config
        primary = None
        if name != STUB and not self.serves_gateway:
            _check_observable(suite, caller, options)
        # what an optional context does not record, the gateway does
        is_due = caller.requires_context or (options.mode == "record" and not self.serves_gateway)
        if caller.asks_model and name != STUB and (name or is_due):
            if not name:
                raise SetupError(
                    f'suite "{suite.name}": the target calls a model, and no backend is set; use '
                    f"--packbench-backend={'|'.join(backend_names())}, or mark the target with without_model"
                    f"{_DEFAULT_CONTEXT if self.serves_gateway else ''}"
                )
            primary = self._priced(suite, name, model)
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
        by_role = {
            role: self._priced(suite, *names[:2], RoleModel(*names)) for role, names in pack.judges(rules).roles.items()
        }
        return LiveModels(
            primary=primary, by_role=by_role, ledger=self.ledger, redactor=self.redactor, cache=self._cache
        )

    def _priced(self, suite: Suite, name: str, model: str, role: RoleModel | None = None) -> PricedBackend:
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


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
