"""Lists of words that have to be repeated are the same everywhere; counts agree with their nouns."""

from __future__ import annotations

import pytest

from pytest_packbench.model.checks import extension_schema
from pytest_packbench.model.gate import Gate
from pytest_packbench.model.metric import GENERAL_METRICS
from pytest_packbench.model.result import EXTENSION_KEYS, ROW_FIELDS, CaseResult
from pytest_packbench.model.run import MODES
from pytest_packbench.model.text import pluralize
from pytest_packbench.plugin import BY_NAME


def test_every_metric_and_every_field_of_a_result_is_described() -> None:
    gate, result = Gate.__doc__ or "", CaseResult.__doc__ or ""
    assert [name for name in GENERAL_METRICS if f"`{name}`" not in gate] == []
    assert [name for name in CaseResult.__annotations__ if f"\n        {name}: " not in result] == []


def test_the_option_lists_the_modes() -> None:
    assert BY_NAME["mode"].option == {"choices": list(MODES)}


def test_a_result_is_in_a_row_and_its_extension_in_a_record() -> None:
    assert set(CaseResult.__annotations__) - set(ROW_FIELDS) == {"suite", "record", "payload"}
    assert set(extension_schema()["fields"]) == {*EXTENSION_KEYS, "judge"}


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 cases"), (1, "1 case"), (2, "2 cases"), (1_000, "1,000 cases"), (-1, "-1 cases")]
)
def test_a_count_agrees_with_its_noun(number: int, text: str) -> None:
    assert pluralize(number, "case") == text
