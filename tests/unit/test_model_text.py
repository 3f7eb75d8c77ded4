"""Counts in messages."""

from __future__ import annotations

import pytest

from pytest_packbench.model.text import pluralize


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 cases"), (1, "1 case"), (2, "2 cases"), (1_000, "1,000 cases"), (-1, "-1 cases")]
)
def test_a_count_agrees_with_its_noun(number: int, text: str) -> None:
    assert pluralize(number, "case") == text
