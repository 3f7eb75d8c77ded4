"""Results on which the original tariff scorer raises: ours gives a score, or says what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.api import score
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.outcome import ResultError
from pytest_packbench.model.score import Score
from tests.parity.test_tariff_scoring import vectors

if TYPE_CHECKING:
    from tests.unit.tariff_cases import Json


@pytest.mark.parametrize("vector", vectors("tariff_malformed.jsonl.gz"))
def test_no_other_exception(vector: Json) -> None:
    try:
        found = score(vector["case"], vector["result"], pack="tariff")
    except (CaseError, ResultError) as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(found, Score)
        assert (found.score is None) == (found.verdict == "error")
