"""A part of each suite (`--packbench-shard I/N`): how large it is, what it is called; which cases may be asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.cases.files import MANY, count_cases, find_in, is_numbered, stem_of
from pytest_packbench.cases.shard import shard_of

if TYPE_CHECKING:
    from pytest_packbench.adapter.activation import Asked
    from pytest_packbench.adapter.suites import Benches
    from pytest_packbench.cases.shard import Shard
    from pytest_packbench.cases.suite import Suite


def sizes(suite: Suite, shard: Shard | None) -> tuple[int, int]:
    """Count a suite's cases, all of them and those of the shard."""
    present = count_cases(suite.cases_path)
    return present, present if shard is None else count_cases(suite.cases_path, shard)


def part_of(shard: Shard, missing: str, due: int, present: int) -> str:
    """Say what the run is a part of.

    Args:
        shard: the part.
        missing: what is missing of the part itself; empty where it is whole.
        due: cases of the part.
        present: cases of the suite.
    """
    return f"shard {shard}: {missing or f'{due} of {present} cases'}"


def check_asked(benches: Benches, asked: Asked) -> None:
    """Check that the cases that the command line names are in the shard.

    Raises:
        pytest.UsageError: one of them is in another.
    """
    shard = benches.settings.shard
    if shard is None:
        return
    folders = tuple(str(suite.cases_path) + os.sep for suite in benches.suites.values())
    for path, given in asked.files.items():
        if not path.startswith(folders):
            continue
        for name in sorted(given or ([] if path.endswith(MANY) else [stem_of(path)])):
            own = shard_of(name, shard.count)
            if own != shard.number and not is_numbered(name):
                raise pytest.UsageError(
                    f"--packbench-shard: {name} is in shard {own}/{shard.count}, not in {shard}; "
                    "run a case by its path without a shard"
                )


def check_there(benches: Benches, asked: Asked) -> None:
    """Check that the cases that the command line names are there.

    Raises:
        pytest.UsageError: one of them is not.
    """
    folders = tuple(str(suite.cases_path) + os.sep for suite in benches.suites.values())
    for path, names in asked.files.items():
        if not path.startswith(folders):
            continue
        shown = os.path.relpath(path)
        if not os.path.exists(path):  # noqa: PTH110 - as text it came
            raise pytest.UsageError(f"file not found: {shown}")
        for name in sorted(names):
            if find_in(path, name) is None or (not path.endswith(MANY) and name != stem_of(path)):
                raise pytest.UsageError(f"not found: {shown}::{name}: no case of the file has this id")
