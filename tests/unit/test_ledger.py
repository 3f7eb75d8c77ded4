"""What a run used, and the caps on it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.engine.metering import Ledger
from pytest_packbench.model.request import Usage
from pytest_packbench.model.run import Caps
from pytest_packbench.model.suite import Prices

counts = st.none() | st.integers(0, 10**9)
usages = st.builds(Usage, tokens_input=counts, tokens_output=counts)
amounts = st.floats(0, 1000, allow_nan=False)
PRICE = Prices(input_per_million=3.0, output_per_million=15.0)


@given(found=st.lists(st.none() | usages), told=st.lists(st.none() | usages))
def test_sums_are_those_of_what_was_booked(found: list[Usage | None], told: list[Usage | None]) -> None:
    ledger = Ledger(Caps())
    for usage in found:
        ledger.add_call(usage, PRICE)
    for usage in told:
        ledger.add_usage(usage, PRICE)
    known = [usage for usage in (*found, *told) if usage is not None and usage != Usage()]
    assert ledger.calls == len(found)
    assert ledger.uncounted == len(found) + len(told) - len(known)
    assert ledger.tokens == sum((usage.tokens_input or 0) + (usage.tokens_output or 0) for usage in known)
    millionths = sum((usage.tokens_input or 0) * 3 + (usage.tokens_output or 0) * 15 for usage in known)
    assert ledger.cost == pytest.approx(millionths / 1_000_000)


@given(tokens=st.none() | st.integers(1, 10**9), cost=st.none() | amounts, parts=st.integers(1, 64))
def test_shares_never_add_up_to_more_than_the_cap(tokens: int | None, cost: float | None, parts: int) -> None:
    share = Caps(tokens=tokens, cost=cost, seconds=7.0).split(parts)
    if tokens is None:
        assert share.tokens is None
    else:
        assert share.tokens is not None
        assert tokens - parts < share.tokens * parts <= tokens
    assert (share.cost is None) == (cost is None)
    if cost is not None and share.cost is not None:
        assert share.cost * parts == pytest.approx(cost)
    assert share.seconds == 7.0


def test_nothing_is_lost_between_threads() -> None:
    ledger = Ledger(Caps())
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2000):
            pool.submit(ledger.add_call, Usage(tokens_input=2, tokens_output=1), PRICE)
    assert (ledger.calls, ledger.tokens) == (2000, 6000)


@pytest.mark.parametrize(
    ("caps", "kind", "said"),
    [
        (Caps(tokens=100), "max_tokens", "100 tokens"),
        (Caps(tokens=101), "", ""),
        (Caps(cost=0.0009), "max_cost", "0.0009 USD"),
        (Caps(cost=0.00091), "", ""),
        (Caps(seconds=5.0), "max_seconds", "5 s"),
        (Caps(seconds=5.1), "", ""),
        (Caps(), "", ""),
    ],
)
def test_a_cap_is_reached_exactly_at_its_number(caps: Caps, kind: str, said: str) -> None:
    now = [0.0]
    ledger = Ledger(caps, clock=lambda: now[0])
    assert ledger.exhausted() == ("", "")
    now[0] = 5.0
    ledger.add_call(Usage(tokens_input=50, tokens_output=50), PRICE)
    assert ledger.exhausted()[0] == kind
    assert said in ledger.exhausted()[1]


@pytest.mark.parametrize(
    ("caps", "said"),
    [
        (Caps(tokens=200), "this worker's share (1/2) of the run's cap of 200 tokens is reached (100 used)"),
        (Caps(cost=0.0018), "this worker's share (1/2) of the run's cap of 0.0018 USD is reached (0.0009 USD spent)"),
        (Caps(seconds=5.0), "the run's cap of 5 s is reached"),
        (Caps(tokens=202, cost=0.002, seconds=6.0), ""),
    ],
)
def test_a_worker_stops_at_its_share_and_names_the_runs_cap(caps: Caps, said: str) -> None:
    now = [0.0]
    ledger = Ledger(caps, parts=2, clock=lambda: now[0])
    assert ledger.exhausted() == ("", "")
    now[0] = 5.0
    ledger.add_call(Usage(tokens_input=50, tokens_output=50), PRICE)
    assert ledger.exhausted()[1] == said


def test_the_clock_begins_with_the_first_attempt() -> None:
    now = [0.0]
    ledger = Ledger(Caps(seconds=5.0), clock=lambda: now[0])
    now[0] = 100.0
    assert ledger.exhausted()[0] == ""
    now[0] = 106.0
    assert ledger.exhausted()[0] == "max_seconds"


def test_a_cap_on_money_holds_where_a_price_turns_out_unknown() -> None:
    ledger = Ledger(Caps(cost=100.0))
    ledger.add_call(Usage(tokens_input=1, tokens_output=1), None)
    kind, message = ledger.exhausted()
    assert kind == "max_cost"
    assert "the price of a model is unknown" in message
