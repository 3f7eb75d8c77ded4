"""The tariff pack as the engine uses it: facts of the record, facets, request and explanation."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.packs.registry import builtin
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.unit.tariff_cases import Json, answer, case, refusal, rules

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

PACK = TariffPack()
REFUSE = case("negative", expected_accept=False)
NO_SAVINGS = case(no_savings_expected=True)


def test_it_is_built_in_under_its_name() -> None:
    packs = builtin()
    assert isinstance(packs["tariff"], TariffPack)
    assert all(pack.name == name for name, pack in packs.items())


@pytest.mark.parametrize(
    ("plain", "facets"),
    [
        (case(), {"chapter": "64"}),
        (case(preferred_hts=["8544.42", "64"], tags=("chapter_90",)), {"chapter": "85"}),
        (case(expected_accept=False, tags=("gri_3b", "chapter_07")), {"chapter": "07"}),
        (case(expected_accept=False, tags=("chapter_7", "chapter_777")), {}),
        (case(expected_accept=False), {}),
    ],
)
def test_the_chapter_is_a_facet(plain: Json, facets: dict[str, str]) -> None:
    assert PACK.facets(TariffCase.model_validate(plain)) == facets


def test_the_request_is_the_verify_request_of_the_reference_target() -> None:
    plain = case()
    plain["input"] |= {"options": {"max_iters": 2}, "evidence": [{"source_id": "spec_1", "text": "rubber sole"}]}
    assert PACK.request(TariffCase.model_validate(plain)).as_json() == {
        "input": plain["input"]["input"],
        "options": {"max_iters": 2, "candidate_chapters": []},
        "evidence": [{"source_id": "spec_1", "text": "rubber sole", "title": None}],
    }
    assert list(inspect.signature(PACK.target(rules())).parameters) == ["request", "context"]


DUE = case(expected_accept=False, expected_refusal_category="ambiguous")
EXPLANATIONS: dict[str, tuple[Json, Json]] = {
    "a wrong code": (
        case(allowed_hts=["6404.19"], must_not_hts=["6402"], expected_duty_total_rate_pct=20.0),
        answer("6404.11.2030", optimized=("6402.99.3165", 6.0)),
    ),
    "gates that failed or did not run": (
        case(expected_duty_total_rate_pct=20.0),
        {"status": "verified", "missing_evidence_gate_result": {"ok": False}},
    ),
    "a duty delta": (case(duty_delta_range=[0, 1]), answer(optimized=("8544", 5.0))),
    "no duty delta": (case(duty_delta_range=[0, 1], expected_duty_delta_direction="flat"), answer()),
    "a direction": (case(expected_duty_delta_direction="flat"), answer(optimized=("8544", 21))),
    "no savings": (NO_SAVINGS, answer()),
    "savings": (NO_SAVINGS, answer(levers=(1, 1), dossier={"what_if_candidates": [{}]})),
    "levers": (
        case(lever_found_expected=True, min_lever_steps=2, lever_count_min=3, lever_compliance_ok=True),
        answer(levers=(1,), plausible=False),
    ),
    "several plausible levers": (case(expected_best_is_multi_step=True, min_lever_steps=1), answer(levers=(2, 1))),
    "no levers": (case(lever_found_expected=False), answer()),
    "reasons of a refusal": (DUE, {"iterations": [{"accepted": False, "rejected_because": ["missing", "conflicts"]}]}),
    "questions of a refusal": (case(), refusal(None)),
    "an answer instead of a refusal": (REFUSE, answer()),
    "an answer without a code": (DUE, answer(None)),
}


def test_expected_and_actual_values_are_explained(expected: ExpectedTexts) -> None:
    lines = []
    for name, (plain, result) in EXPLANATIONS.items():
        rows = PACK.explain(TariffCase.model_validate(plain), PACK.read(result))
        lines += [name, *(f"    {row.what}: {row.expected} | {row.actual}" for row in rows)]
    expected.check("\n".join(lines) + "\n")
