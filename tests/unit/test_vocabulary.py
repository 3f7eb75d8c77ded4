"""Lists of words that have to be repeated are the same everywhere; counts agree with their nouns."""

from __future__ import annotations

from pytest_packbench.model.checks import extension_schema
from pytest_packbench.model.gate import Gate
from pytest_packbench.model.metric import GENERAL_METRICS
from pytest_packbench.model.result import EXTENSION_KEYS, ROW_FIELDS, CaseResult
from pytest_packbench.model.run import MODES
from pytest_packbench.model.text import pluralize
from pytest_packbench.plugin import BY_NAME


def test_lists_of_words_are_the_same_everywhere() -> None:
    gate, result = Gate.__doc__ or "", CaseResult.__doc__ or ""
    assert [name for name in GENERAL_METRICS if f"`{name}`" not in gate] == []
    assert [name for name in CaseResult.__annotations__ if f"\n        {name}: " not in result] == []
    assert BY_NAME["mode"].option == {"choices": list(MODES)}
    assert set(CaseResult.__annotations__) - set(ROW_FIELDS) == {"suite", "record", "payload"}
    assert set(extension_schema()["fields"]) == {*EXTENSION_KEYS, "judge"}


def test_a_count_agrees_with_its_noun() -> None:
    texts = ["0 cases", "1 case", "2 cases", "1,000 cases", "-1 cases"]
    assert [pluralize(number, "case") for number in (0, 1, 2, 1_000, -1)] == texts
