"""Results on which the original tariff scorer raises: ours returns a score or one error in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.api import score
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.outcome import ResultError
from pytest_packbench.model.score import Score
from tests.parity.vectors import vectors

if TYPE_CHECKING:
    from tests.unit.tariff_cases import Json


@pytest.mark.parametrize("vector", vectors("tariff_malformed.jsonl.gz"))
def test_no_other_exception(vector: Json) -> None:
    try:
        result = score(vector["case"], vector["result"], pack="tariff")
    except (CaseError, ResultError) as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(result, Score)
        assert (result.score is None) == (result.verdict == "error")
