"""The original tariff scorer's answers: ours, or predicted from ours by the named departures.

The vectors contain the original's answers, which the prediction does not use. Without vectors, an example of each
departure still shows its effect.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_packbench.api import score
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.outcome import ResultError
from tests.parity.departures import DEPARTURES, READINGS, RULES, ledger_of, ours_of, predict
from tests.parity.vectors import vectors
from tests.unit.tariff_cases import RIGHT, Json, answer, case, classification

DOCUMENT = Path(__file__).parents[2] / "docs" / "scoring-departures.md"


SCORED = vectors("tariff_scoring.jsonl.gz")


@pytest.mark.parametrize("vector", SCORED)
def test_the_original_is_predicted(vector: Json) -> None:
    prediction, original = predict(vector["case"], vector["result"]), vector["score"]
    assert (prediction.score, prediction.passed) == (original["score"], original["passed"])
    assert (prediction.match_level, prediction.final_hts) == (original["match_level"], original["final_hts"])


@pytest.mark.parametrize("vector", SCORED)
def test_without_a_departure_ours_is_the_original(vector: Json) -> None:
    departures = predict(vector["case"], vector["result"]).departures
    try:
        ours = score(vector["case"], vector["result"], pack="tariff")
    except (CaseError, ResultError):
        assert {reading.name for reading in READINGS} & set(departures)
        return
    if ours.score is None:
        assert "unreachable_model_is_out_of_scope" in departures
    else:
        assert ours.score == pytest.approx(ours_of(ledger_of(ours)), abs=1e-9)
        assert departures or (round(ours.score, 4), ours.passed) == (
            vector["score"]["score"],
            vector["score"]["passed"],
        )


def accepted_iterations(**changes: Any) -> list[Json]:
    return [{"accepted": True, "rejected_because": [], **changes}]


def refused_result(*reasons: str, **changes: Any) -> Json:
    return {"status": "failed", "iterations": [{"accepted": False, "rejected_because": list(reasons), **changes}]}


def refusal_case(category: str | None) -> Json:
    return case("negative", expected_accept=False, expected_refusal_category=category)


# departure, case, result, our score (None: refused or an error), the original's
EXAMPLES: list[tuple[str, Json, Json, float | None, float]] = [
    ("short_codes", case(preferred_hts=["6"]), answer("6"), None, 1.0),
    ("empty_iteration", case(), answer(iterations=[{}]), None, 1.0),
    ("silence_is_a_refusal", refusal_case(None), {}, None, 1.0),
    ("silence_is_a_refusal", refusal_case(None), {"iterations": [{"i": 1}]}, None, 1.0),
    ("unknown_status_is_a_refusal", refusal_case(None), {"status": "VERIFIED"}, None, 1.0),
    ("truth_of_anything", case(), answer(iterations=accepted_iterations(accepted="no")), None, 1.0),
    ("truth_of_anything", case(), answer(citation_gate_result={"ok": None}), None, 0.05),
    ("empty_gate_is_no_gate", case(), answer(citation_gate_result={}), None, 1.0),
    ("letters_of_a_word", refusal_case("ambiguous"), {"iterations": [{"rejected_because": "conflicts"}]}, None, 0.8),
    ("unreachable_model_is_out_of_scope", refusal_case("out_of_scope"), refused_result("llm_unavailable"), None, 1.0),
    ("mistakes_nobody_looked_at", case(), answer(dossier_mutations=[None], dossier_what_if_candidates=[1]), None, 1.0),
    (
        "numbers_from_text",
        case(expected_duty_total_rate_pct=5.0),
        answer(dossier_baseline=classification(rate="5.0")),  # type: ignore[arg-type]  # the mistake of the example
        None,
        1.0,
    ),
    (
        "amounts_from_text",
        case(no_savings_expected=True),
        answer(dossier_optimized={"estimated_savings_per_unit": "0", "rationale": "no savings"}),
        None,
        0.05,
    ),
    ("codes_as_text", case(), answer("6404119020"), 1.0, 0.35),
    ("codes_as_text", case(preferred_hts=["6404.11"]), answer(), 1.0, 0.35),
    ("codes_as_text", case(must_not_hts=["64"]), answer(), 0.0, 1.0),
    ("bonus_by_reasons", case(), answer("8544.42.9090"), 0.0, 0.05),
    (
        "bonus_by_reasons",
        case(),
        answer("64", iterations=accepted_iterations(rejected_because=["missing_evidence"])),
        0.35,
        0.3,
    ),
    ("savings_by_words", case(no_savings_expected=True), answer(), 1.0, 0.05),
    (
        "savings_by_words",
        case(no_savings_expected=True),
        answer(dossier_optimized={"rationale": "no savings"}, lever_proof={"selected_levers": [{}]}),
        0.0,
        1.0,
    ),
    (
        "rate_of_either_code",
        case(expected_duty_total_rate_pct=0.0),
        answer(dossier_optimized=classification(rate=0.0)),
        1.0,
        0.05,
    ),
    (
        "duty_limits_to_the_last_bit",
        case(duty_delta_range=[-0.01, 0.01]),
        answer(dossier_optimized=classification(rate=20.01), citation_gate_result={"ok": True}),
        1.0,
        0.95,
    ),
    ("a_minimum_of_zero_steps", case(min_lever_steps=0), answer(), 1.0, 0.05),
    (
        "unknown_reason_is_insufficient_info",
        refusal_case("insufficient_info"),
        refused_result("something_new"),
        0.5,
        1.0,
    ),
    (
        "prose_names_missing_evidence",
        refusal_case("missing_evidence"),
        refused_result("missing", feedback_text="Attach missing chapter notes"),
        0.5,
        1.0,
    ),
    ("wrong_category_is_nearly_right", refusal_case("ambiguous"), refused_result("missing"), 0.5, 0.8),
    ("hard_fails_are_steps", case(must_not_hts=[RIGHT]), answer(), 0.0, 0.05),
]


@pytest.mark.parametrize(
    ("name", "example_case", "result", "ours", "original"),
    EXAMPLES,
    ids=[f"{example[0]} {number}" for number, example in enumerate(EXAMPLES)],
)
def test_a_departure_by_example(
    name: str, example_case: Json, result: Json, ours: float | None, original: float
) -> None:
    prediction = predict(example_case, result)
    assert name in prediction.departures
    assert prediction.score == original
    try:
        scored = score(example_case, result).score
    except (CaseError, ResultError):
        scored = None
    assert scored == ours


def test_every_departure_has_an_example_and_a_row_in_the_documents() -> None:
    names = [departure.name for departure in DEPARTURES]
    assert {example[0] for example in EXAMPLES} == set(names)
    assert re.findall(r"^\| `([a-z_0-9]+)` \|", DOCUMENT.read_text("utf-8"), re.MULTILINE) == names
    assert all(departure.why for departure in (*READINGS, *RULES))
