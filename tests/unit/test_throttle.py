"""How many attempts may be under way: bounds, halving once a second, recovery."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.engine.scheduler import Throttle


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    most=st.integers(1, 300),
    events=st.lists(st.one_of(st.just("busy"), st.just("well"), st.floats(0, 5, allow_nan=False)), max_size=200),
)
def test_the_limit_stays_between_one_and_the_most(most: int, events: list[str | float]) -> None:
    clock = Clock()
    throttle = Throttle(most, clock=clock)
    for event in events:
        before = throttle.limit
        if event == "busy":
            throttle.overloaded()
            assert throttle.limit <= before
        elif event == "well":
            throttle.succeeded()
            assert before <= throttle.limit <= before + 1
        else:
            clock.now += float(event)
        assert 1 <= throttle.limit <= most


def test_replies_of_one_burst_count_once() -> None:
    clock = Clock()
    throttle = Throttle(64, clock=clock)
    for _ in range(20):
        throttle.overloaded()
    assert throttle.limit == 32
    clock.now = 1.0
    throttle.overloaded()
    assert throttle.limit == 16


@given(most=st.integers(1, 64), bursts=st.integers(0, 10))
def test_it_recovers_wholly(most: int, bursts: int) -> None:
    clock = Clock()
    throttle = Throttle(most, clock=clock)
    for _ in range(bursts):
        throttle.overloaded()
        clock.now += 1
    for _ in range(most * most):
        throttle.succeeded()
    assert throttle.limit == most
