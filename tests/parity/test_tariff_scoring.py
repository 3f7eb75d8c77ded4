"""The original tariff scorer's answers: ours, or predicted from ours by the named differences.

The vectors contain the original's answers, which the prediction does not use. Without vectors, an example of each
difference still shows its effect.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.api import score
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.outcome import ResultError
from tests.parity.departures import DEPARTURES, READINGS, ledger_of, ours_of, predict
from tests.parity.vectors import vectors
from tests.unit.tariff_cases import case, result_of

if TYPE_CHECKING:
    from pytest_packbench.model.score import Score

Json = dict[str, Any]
DOCUMENT = Path(__file__).parents[2] / "docs" / "scoring-departures.md"
EXAMPLES: dict[str, list[Json]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "departures.yaml").read_text("utf-8")
)


def our_score(plain: Json, result: Json) -> Score | None:
    """Score a result; None if the case or the result is rejected, with an error of one line."""
    try:
        return score(plain, result, pack="tariff")
    except (CaseError, ResultError) as error:
        assert "\n" not in str(error)
        return None


def disagreement(vector: Json) -> str:
    """Describe where the prediction, or our score without a difference, is not the original's; empty if nowhere."""
    (prediction, names), original = predict(vector["case"], vector["result"]), vector["score"]
    if any(original[key] != value for key, value in prediction.items()):
        return f"predicted {prediction}, the original has {original}"
    ours = our_score(vector["case"], vector["result"])
    if ours is None:
        return "" if READINGS.keys() & names else "rejected without a reading"
    if ours.score is None:
        return "" if "unreachable_model_is_out_of_scope" in names else f"an error: {ours.message}"
    if abs(ours.score - ours_of(ledger_of(ours))) > 1e-9:
        return f"{ours.score} is not the sum of our terms"
    is_same = (round(ours.score, 4), ours.passed) == (original["score"], original["passed"])
    return "" if names or is_same else f"{ours.score} without a difference"


def test_the_original_is_predicted_and_without_a_difference_ours_is_the_original() -> None:
    rows = vectors("tariff_scoring.jsonl.gz")
    assert {row["n"]: problem for row in rows if (problem := disagreement(row))} == {}


def test_a_result_on_which_the_original_raises_has_a_score_or_one_error() -> None:
    for vector in vectors("tariff_malformed.jsonl.gz"):
        ours = our_score(vector["case"], vector["result"])
        assert ours is None or (ours.score is None) == (ours.verdict == "error"), vector["n"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_difference_by_example(name: str) -> None:
    for row in EXAMPLES[name]:
        plain, result = case(**row.get("case", {})), result_of(row.get("result", {}))
        (prediction, names), ours = predict(plain, result), our_score(plain, result)
        assert name in names
        assert (ours and ours.score, prediction["score"]) == (row["ours"], row["original"])


def test_every_difference_has_an_example_and_a_row_in_the_documents() -> None:
    assert tuple(EXAMPLES) == DEPARTURES
    assert tuple(re.findall(r"^\| `([a-z_0-9]+)` \|", DOCUMENT.read_text("utf-8"), re.MULTILINE)) == DEPARTURES
