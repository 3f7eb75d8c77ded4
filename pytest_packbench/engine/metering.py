"""What a run's model calls are and cost: each one kept and booked, secrets hidden, the caps of the run held."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import BackendError
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.model.errors import error_text
from pytest_packbench.model.request import Usage
from pytest_packbench.model.suite import Prices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from pytest_packbench.backends import Backend
    from pytest_packbench.engine.cache import AnswerCache
    from pytest_packbench.engine.secrets import Secrets
    from pytest_packbench.model.request import ModelAnswer, ModelRequest
    from pytest_packbench.model.run import Caps
    from pytest_packbench.model.suite import SuiteConfig

CAPS = ("max_tokens", "max_cost", "max_seconds")
"""The names of the caps, as options and as reasons."""
_MILLION = 1_000_000


def price_of(config: SuiteConfig, backend: str, model: str) -> Prices | None:
    """Find what a model's tokens cost.

    Args:
        config: what `suite.yaml` says; its `prices` come first.
        backend: who answers.
        model: which model.

    Returns:
        The price; None where nobody knows it. The library's list prices know no discounts and no caching.
    """
    own = config.prices.get(model)
    if own is not None:
        return own
    try:
        from genai_prices import Usage as Counts
        from genai_prices import calc_price
    except ImportError:
        return None
    try:
        # a token each: tiers that begin at many tokens are not looked at
        read = calc_price(Counts(input_tokens=1, output_tokens=0), model, provider_id=backend)
        written = calc_price(Counts(input_tokens=0, output_tokens=1), model, provider_id=backend)
    except LookupError:
        return None
    return Prices(
        input_per_million=float(read.total_price) * _MILLION,
        output_per_million=float(written.total_price) * _MILLION,
    )


class Ledger:
    """Counts what the run uses; safe to use from several threads.

    Args:
        caps: what the whole run may use.
        parts: how many processes share that in equal parts; this one holds one.

    Attributes:
        calls: model calls answered or broken.
        tokens: tokens that providers counted.
        uncounted: calls, and results of targets outside this process, of whose tokens nobody told.
        cached: calls answered from a folder of kept answers: they used nothing.
        cost: money, None while a call without a known price was made.
        currency: of the cost.
    """

    def __init__(self, caps: Caps, *, parts: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_caps = caps
        self._share = caps.split(parts)
        self._parts = parts
        self.calls = 0
        self.tokens = 0
        self.uncounted = 0
        self.cached = 0
        self.cost: float | None = 0.0
        self.currency = "USD"
        self._clock = clock
        self._begun: float | None = None
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Wall clock since the first attempt was to begin."""
        return 0.0 if self._begun is None else self._clock() - self._begun

    def add(self, usage: Usage | None, price: Prices | None) -> None:
        """Book one call: its tokens, and what its model costs; None for what is not known."""
        with self._lock:
            self.calls += 1
        self.tell(usage, price)

    def tell(self, usage: Usage | None, price: Prices | None) -> None:
        """Book what a target told of model calls that it made by itself; arguments as in `add`."""
        with self._lock:
            if usage is None or (usage.tokens_input is None and usage.tokens_output is None):
                self.uncounted += 1
                return
            # a count that the provider doesn't give costs nothing here
            tokens_in, tokens_out = usage.tokens_input or 0, usage.tokens_output or 0
            self.tokens += tokens_in + tokens_out
            if price is None:
                self.cost = None
            elif self.cost is not None:
                self.cost += (tokens_in * price.input_per_million + tokens_out * price.output_per_million) / _MILLION
                self.currency = price.currency

    def add_cached(self) -> None:
        """Note a call that nobody was asked for."""
        with self._lock:
            self.cached += 1

    def as_json(self) -> dict[str, Any]:
        """Give what was used as plain JSON; the cost is None where the price of a call is unknown."""
        return {
            "calls": self.calls,
            "tokens": self.tokens,
            "uncounted": self.uncounted,
            "cost": self.cost,
            "currency": self.currency,
            **({"cached": self.cached} if self.cached else {}),
        }

    def exhausted(self) -> tuple[str, str]:
        """Say why nothing new may begin: the reason's name and one line; both empty while all caps hold."""
        self._begun = self._clock() if self._begun is None else self._begun
        caps, share = self._run_caps, self._share
        cap = "the run's cap" if self._parts == 1 else f"this worker's share (1/{self._parts}) of the run's cap"
        if share.tokens is not None and self.tokens >= share.tokens:
            return "max_tokens", f"{cap} of {caps.tokens:,} tokens is reached ({self.tokens:,} used)"
        if share.cost is not None and self.cost is None:
            unknown = "can't be held: a model was used whose price nobody knows"
            return "max_cost", f"the run's cap of {caps.cost:g} {self.currency} {unknown}"
        if share.cost is not None and self.cost is not None and self.cost >= share.cost:
            spent = f"{self.cost:.4f} {self.currency}"
            return "max_cost", f"{cap} of {caps.cost:g} {self.currency} is reached ({spent} spent)"
        if share.seconds is not None and self.seconds >= share.seconds:
            return "max_seconds", f"the run's cap of {caps.seconds:g} s is reached"
        return "", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who is asked, and at what price.

    Attributes:
        backend: answers.
        price: what its model costs; None where that is unknown.
    """

    backend: Backend
    price: Prices | None = None


@dataclass(slots=True, eq=False)
class Said:
    """One exchange as it happened.

    Attributes:
        role: the step that asked.
        request_sha256: hash of the request.
        answer: what came; None while it is under way or where it broke.
        error: how it broke.
        aside: whether the pack asked it, not the model under test.
        cached: whether a folder of kept answers answered.
    """

    role: str
    request_sha256: str
    answer: ModelAnswer | None = None
    error: BackendError | None = None
    aside: bool = False
    cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What is asked instead of recordings.

    Attributes:
        asked: the model under test; None where nobody was named.
        aside: the models that the pack itself asks, by role.
        ledger: books what the run uses.
        cache: keeps answers for later runs; None for none.
        secrets: what is hidden wherever text is kept.
    """

    asked: Asked | None
    ledger: Ledger
    secrets: Secrets
    aside: Mapping[str, Asked] = field(default_factory=dict)
    cache: AnswerCache | None = None

    def meter(self, trial: int = 0) -> Meter | None:
        """Give what answers the calls of one attempt, None where nobody was named. Called on the event loop."""
        return Meter(self, trial) if self.asked is not None or self.aside else None


class Meter:
    """Answers one attempt's model calls: the model under test, and those that the pack asks beside it, by role.

    Attributes:
        said: the exchanges in the order in which they were asked.
    """

    def __init__(self, live: Live, trial: int) -> None:
        self.said: list[Said] = []
        self._live = live
        self._trial = trial
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._under_way: set[asyncio.Task[Any] | None] = set()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request.

        Raises:
            BackendError: the call broke.
            RuntimeError: the attempt is over: a target that was abandoned spends nothing more.
        """
        if _running() is self._loop:
            return await self._complete(request)
        # a target that isn't async may run a loop of its own; the backend's clients belong to the run's
        self._refuse_late()
        return await asyncio.wrap_future(self._on_loop(request))

    def complete_sync(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request of a target that runs on a thread.

        Raises:
            BackendError: the call broke.
            RuntimeError: the attempt is over, or an async target asks this way, which would hold up all others.
        """
        self._refuse_late()
        if _running() is self._loop:
            raise RuntimeError("an async target asks with `await context.llm.complete(...)`")
        return self._on_loop(request).result()

    def broken(self) -> BackendError | None:
        """Give the first call that broke and that the target didn't make again with success.

        A target may swallow what its model call raises, and go on with less.
        """
        answered = {one.request_sha256 for one in self.said if one.answer is not None}
        return next((one.error for one in self.said if one.error and one.request_sha256 not in answered), None)

    def close(self) -> None:
        """End the attempt, on the loop: no call is made any more, and those under way are cancelled."""
        self._closed = True
        for task in tuple(self._under_way):
            if task is not None:
                task.cancel()

    @property
    def asked_model(self) -> bool:
        """Whether the model under test was asked, not only those beside it."""
        return any(not one.aside for one in self.said)

    @property
    def cached(self) -> int:
        """Calls that a folder of kept answers answered."""
        return sum(one.cached for one in self.said)

    @property
    def usage(self) -> Usage:
        """Tokens of the model under test, all answered calls; None for a count that one of them doesn't have."""
        return Usage(tokens_input=self._sum("tokens_input"), tokens_output=self._sum("tokens_output"))

    def _sum(self, name: str) -> int | None:
        counts = [getattr(one.answer.usage, name) for one in self.said if one.answer is not None and not one.aside]
        return None if not counts or any(count is None for count in counts) else sum(counts)

    def _refuse_late(self) -> None:
        if self._closed:
            raise RuntimeError("the case is over: its time limit passed, or the run was stopped")

    def _on_loop(self, request: ModelRequest) -> Future[ModelAnswer]:
        return asyncio.run_coroutine_threadsafe(self._complete(request), self._loop)

    async def _complete(self, request: ModelRequest) -> ModelAnswer:
        self._refuse_late()
        said = Said(request.role, canonical_sha256(request.as_json()), aside=request.role in self._live.aside)
        self.said.append(said)
        asked = self._live.aside.get(request.role, self._live.asked)
        ledger, secrets = self._live.ledger, self._live.secrets
        if asked is None:
            said.error = BackendError("no_backend", f"nobody is named to answer the role {request.role}")
            raise said.error
        task = asyncio.current_task()
        self._under_way.add(task)
        try:
            answer = await self._answer(asked.backend, request, said)
        except BackendError as error:
            ledger.add(error.usage, asked.price)
            said.error = BackendError(error.kind, secrets.hide(str(error)), usage=error.usage)
            raise said.error from None
        except Exception as error:
            ledger.add(None, asked.price)
            said.error = BackendError("backend_error", secrets.hide(f"{type(error).__name__}: {error_text(error)}"))
            raise said.error from error
        except asyncio.CancelledError:
            # the provider may have counted it all the same
            ledger.add(None, asked.price)
            raise
        finally:
            self._under_way.discard(task)
        if said.cached:
            ledger.add_cached()
        else:
            ledger.add(answer.usage, asked.price)
        try:
            said.answer = secrets.hide_in_answer(answer)
        except RecursionError:
            said.error = BackendError("answer_unreadable", "the answer is nested too deep to be searched for secrets")
            raise said.error from None
        return said.answer

    async def _answer(self, backend: Backend, request: ModelRequest, said: Said) -> ModelAnswer:
        if self._live.cache is None:
            return await backend.complete(request)
        same = [one for one in self.said if one.request_sha256 == said.request_sha256 and one.error is None]
        answer, said.cached = await self._live.cache.complete(backend, request, trial=self._trial, again=len(same) - 1)
        return answer


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
