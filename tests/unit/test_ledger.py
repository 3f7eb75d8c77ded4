"""What a run used, and its caps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.engine.metering import Ledger
from pytest_packbench.model.request import Usage
from pytest_packbench.model.run import Caps
from pytest_packbench.model.suite import Prices

token_counts = st.none() | st.integers(0, 10**9)
usages = st.lists(st.none() | st.builds(Usage, tokens_input=token_counts, tokens_output=token_counts))
amounts = st.none() | st.floats(0, 1000, allow_nan=False)
PRICE = Prices(input_per_million=3.0, output_per_million=15.0)


@given(calls=usages, reports=usages)
def test_the_sums_are_those_of_all_calls_and_reports(calls: list[Usage | None], reports: list[Usage | None]) -> None:
    ledger = Ledger(Caps())
    for usage in calls:
        ledger.add_call(usage, PRICE)
    for usage in reports:
        ledger.add_usage(usage, PRICE)
    known = [usage for usage in (*calls, *reports) if usage is not None and usage != Usage()]
    inputs, outputs = (sum(getattr(usage, name) or 0 for usage in known) for name in ("tokens_input", "tokens_output"))
    assert (ledger.calls, ledger.tokens) == (len(calls), inputs + outputs)
    assert ledger.uncounted == len(calls) + len(reports) - len(known)
    assert ledger.cost == pytest.approx((inputs * 3 + outputs * 15) / 1_000_000)
    names = "calls", "tokens", "uncounted", "cost"
    plain = {name: getattr(ledger, name) for name in names} | {"currency": "USD"}
    assert ledger.as_json() == plain
    ledger.add_cached_call()
    assert ledger.as_json() == plain | {"cached": 1}


@given(tokens=st.none() | st.integers(1, 10**9), cost=amounts, parts=st.integers(1, 64))
def test_the_shares_of_workers_never_add_up_to_more_than_the_cap(
    tokens: int | None, cost: float | None, parts: int
) -> None:
    share = Caps(tokens=tokens, cost=cost, seconds=7.0).split(parts)
    assert (share.tokens is None, share.cost is None, share.seconds) == (tokens is None, cost is None, 7.0)
    assert tokens is None or share.tokens is None or tokens - parts < share.tokens * parts <= tokens
    assert cost is None or share.cost is None or share.cost * parts == pytest.approx(cost)


SHARE = "this worker's share (1/2) of the run's cap of"
CAPS: list[tuple[dict[str, float], int, str, str]] = [
    ({}, 1, "", ""),
    ({"tokens": 101, "cost": 0.00091, "seconds": 5.1}, 1, "", ""),
    ({"tokens": 202, "cost": 0.002, "seconds": 6.0}, 2, "", ""),
    ({"tokens": 100}, 1, "max_tokens", "the run's cap of 100 tokens is reached (100 used)"),
    ({"cost": 0.0009}, 1, "max_cost", "the run's cap of 0.0009 USD is reached (0.0009 USD spent)"),
    ({"seconds": 5.0}, 1, "max_seconds", "the run's cap of 5 s is reached"),
    ({"tokens": 200}, 2, "max_tokens", f"{SHARE} 200 tokens is reached (100 used)"),
    ({"cost": 0.0018}, 2, "max_cost", f"{SHARE} 0.0018 USD is reached (0.0009 USD spent)"),
]


@pytest.mark.parametrize(("caps", "parts", "kind", "message"), CAPS)
def test_a_cap_is_reached_exactly_at_its_value(caps: dict[str, Any], parts: int, kind: str, message: str) -> None:
    now = 100.0
    ledger = Ledger(Caps(**caps), parts=parts, clock=lambda: now)
    # the time counts from the first attempt
    assert ledger.exhausted() == ("", "")
    now = 105.0
    ledger.add_call(Usage(tokens_input=50, tokens_output=50), PRICE)
    assert ledger.exhausted() == (kind, message)


def test_no_call_of_any_thread_is_lost_and_one_without_a_price_reaches_the_cap() -> None:
    ledger = Ledger(Caps(cost=100.0))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2000):
            pool.submit(ledger.add_call, Usage(tokens_input=2, tokens_output=1), PRICE)
    assert (ledger.calls, ledger.tokens, ledger.exhausted()) == (2000, 6000, ("", ""))
    ledger.add_call(Usage(tokens_input=1, tokens_output=1), None)
    kind, message = ledger.exhausted()
    assert (kind, ledger.as_json()["cost"]) == ("max_cost", None)
    assert "the price of a model is unknown" in message
