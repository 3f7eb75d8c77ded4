"""The run's ledger: tokens, money and time spent so far, and the caps on them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.backends.base import Usage

_MILLION = 1_000_000
CAPS = ("max_tokens", "max_cost", "max_seconds")
"""The names of the caps, as options and as reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a whole run may use; None: no cap.

    Attributes:
        tokens: read and written together.
        cost: in the currency of the prices.
        seconds: wall clock from the first attempt on.
    """

    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def split(self, parts: int) -> Caps:
        """Give the share of one of several processes; the clock is the same for all."""
        return Caps(
            tokens=None if self.tokens is None else self.tokens // parts,
            cost=None if self.cost is None else self.cost / parts,
            seconds=self.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model's tokens cost.

    Attributes:
        input_per_million: for a million tokens that the model reads.
        output_per_million: for a million tokens that it writes.
        currency: the sign or code shown beside costs.
        source: who says so.
    """

    input_per_million: float
    output_per_million: float
    currency: str = "USD"
    source: str = "suite.yaml"

    def of(self, usage: Usage) -> float:
        """Give what a call costs; a count that the provider doesn't give costs nothing here."""
        tokens_in, tokens_out = usage.tokens_input or 0, usage.tokens_output or 0
        return (tokens_in * self.input_per_million + tokens_out * self.output_per_million) / _MILLION


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

    def add(self, usage: Usage | None, price: Price | None) -> None:
        """Book one call.

        Args:
            usage: its tokens; None where the call told nothing.
            price: what its model costs; None where that is unknown.
        """
        with self._lock:
            self.calls += 1
            self._count(usage, price)

    def tell(self, usage: Usage | None, price: Price | None) -> None:
        """Book what a target told of model calls that it made by itself; arguments as in `add`."""
        with self._lock:
            self._count(usage, price)

    def _count(self, usage: Usage | None, price: Price | None) -> None:
        if usage is None or (usage.tokens_input is None and usage.tokens_output is None):
            self.uncounted += 1
            return
        self.tokens += (usage.tokens_input or 0) + (usage.tokens_output or 0)
        if price is None:
            self.cost = None
        elif self.cost is not None:
            self.cost += price.of(usage)
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
