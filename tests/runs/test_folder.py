"""Ids of runs are ULIDs: they sort by time, and no two are alike."""

import time

from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.runs.folder import is_run_id, new_run_id


def test_a_seed_is_written_as_the_specification_says() -> None:
    assert new_run_id("0156c2f9d4bf9b4d7e2f0a6c1d3e5f70") == "01AV1FKN5ZKD6QWBRADGEKWQVG"
    assert new_run_id("f" * 32) == "7" + "Z" * 25
    assert new_run_id("0" * 32) == "0" * 26


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_ids_sort_as_their_seeds(one: bytes, other: bytes) -> None:
    ids = [new_run_id(seed.hex()) for seed in (one, other)]
    assert all(map(is_run_id, ids))
    assert (ids[0] < ids[1], ids[0] == ids[1]) == (one < other, one == other)


def test_a_new_id_is_of_now_and_of_no_other_run() -> None:
    before = new_run_id((time.time_ns() // 1_000_000).to_bytes(6).hex() + "0" * 20)
    ids = {new_run_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(before <= each for each in ids)
