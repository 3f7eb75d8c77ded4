"""Clients that are lent: how many, to whom, and when."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from pytest_packbench.backends.client import ClientPool


def pool_of(most: int, closed: list[int]) -> ClientPool[int]:
    numbers = count(1)

    async def close(client: int) -> None:
        closed.append(client)

    return ClientPool(lambda: next(numbers), size=most, close=close)


def test_a_client_serves_one_call_at_a_time_and_then_the_next() -> None:
    closed: list[int] = []

    async def run() -> list[int]:
        lending = pool_of(3, closed)
        lent: list[int] = []

        async def call() -> int:
            async with lending.lend() as client:
                assert client not in lent
                lent.append(client)
                await asyncio.sleep(0.001)
                lent.remove(client)
                return client

        used = await asyncio.gather(*(call() for _ in range(20)))
        await lending.aclose()
        return used

    used = asyncio.run(run())
    assert set(used) == {1, 2, 3}
    assert sorted(closed) == [1, 2, 3]


def test_calls_one_after_another_need_one_client() -> None:
    async def run() -> list[int]:
        lending = pool_of(8, [])
        used = []
        for _ in range(5):
            async with lending.lend() as client:
                used.append(client)
        return used

    assert asyncio.run(run()) == [1] * 5


def test_a_failed_call_gives_its_client_back() -> None:
    async def run() -> int:
        lending = pool_of(1, [])
        with pytest.raises(LookupError):
            async with lending.lend():
                raise LookupError
        async with lending.lend() as client:
            return client

    assert asyncio.run(run()) == 1


def test_calls_that_come_together_start_one_after_another() -> None:
    async def run() -> tuple[list[int], list[int]]:
        loop = asyncio.get_running_loop()
        lending = pool_of(10, [])
        rounds = [0]
        started: list[int] = []
        order: list[int] = []

        def tick() -> None:
            rounds[0] += 1
            if len(started) < 10:
                loop.call_soon(tick)

        async def call(number: int) -> None:
            async with lending.lend():
                started.append(rounds[0])
                order.append(number)
                await asyncio.sleep(0)

        tick()
        await asyncio.gather(*(call(number) for number in range(10)))
        return started, order

    started, order = asyncio.run(run())
    assert len(set(started)) == 10
    assert order == list(range(10))
