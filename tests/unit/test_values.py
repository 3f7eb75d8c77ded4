"""What passes from module to module: it can't be changed, has no other attributes, and is made with names."""

from __future__ import annotations

import dataclasses
import inspect
from importlib import import_module
from pkgutil import iter_modules

import pytest

import pytest_packbench.analysis
import pytest_packbench.model

# sums, rows and tables that are filled one by one
FILLED = {"GroupChanges", "RecordSums", "ResultSums", "SkippedLines", "TopRows"}
# with few fields, or many at a time
BY_POSITION = {
    "Confusion",
    "HookDecision",
    "PolicyChange",
    "PolicyOutcome",
    "Profile",
    "Refusals",
    "Shard",
    "UnreadAnswer",
    *FILLED,
}
# their properties are kept, or other classes add attributes
WITHOUT_SLOTS = {"Confusion", "EvalRecord", "GroupChanges", "HookDecision", "WatchedContext"}
CLASSES = [
    value
    for package in (pytest_packbench.model, pytest_packbench.analysis)
    for found in iter_modules(package.__path__, f"{package.__name__}.")
    for value in vars(import_module(found.name)).values()
    if inspect.isclass(value) and value.__module__ == found.name and dataclasses.is_dataclass(value)
]


def test_a_value_is_frozen_has_slots_and_takes_its_fields_by_name() -> None:
    assert len(CLASSES) > 30
    for made in CLASSES:
        name = made.__name__
        fields = dataclasses.fields(made)
        one = object.__new__(made)
        if name in FILLED:
            setattr(one, fields[0].name, 1)
        else:
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(one, fields[0].name, 1)
        long_name = f"{made.__module__.rpartition('.')[2]}.{name}"
        assert hasattr(one, "__dict__") is (not WITHOUT_SLOTS.isdisjoint({name, long_name})), name
        assert all(field.kw_only for field in fields) is (name not in BY_POSITION), name
