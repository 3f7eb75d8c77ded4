"""Each list of the vocabulary stands in one place; who has to repeat one says the same."""

from __future__ import annotations

from typing import get_args

from pytest_packbench.analysis.metrics import METRICS
from pytest_packbench.model.checks import extension_schema
from pytest_packbench.model.gate import Gate, Metric
from pytest_packbench.model.result import EXTENSION_KEYS, ROW_FIELDS, CaseResult
from pytest_packbench.model.run import MODES
from pytest_packbench.plugin import BY_NAME


def test_each_metric_that_a_gate_may_name_is_counted_and_described() -> None:
    assert tuple(METRICS) == get_args(Metric)
    assert Gate.__doc__ is not None
    assert [name for name in METRICS if f"`{name}`" not in Gate.__doc__] == []


def test_the_option_names_the_modes() -> None:
    assert BY_NAME["mode"].option == {"choices": list(MODES)}


def test_each_field_of_a_result_is_described() -> None:
    assert CaseResult.__doc__ is not None
    assert [name for name in CaseResult.__annotations__ if f"\n        {name}: " not in CaseResult.__doc__] == []


def test_a_result_stands_in_a_row_and_our_object_in_a_record() -> None:
    assert set(CaseResult.__annotations__) - set(ROW_FIELDS) == {"suite", "record", "payload"}
    assert set(extension_schema()["fields"]) == {*EXTENSION_KEYS, "judge"}
