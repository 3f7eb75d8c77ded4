"""The tariff pack behind the engine's protocol: facts of the record, facets, request, explanation."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.packs.registry import builtin
from pytest_packbench.packs.tariff.model import TariffCase
from pytest_packbench.packs.tariff.outcome import read
from pytest_packbench.packs.tariff.pack import TariffPack
from tests.unit.tariff_cases import RIGHT, Json, answer, case, classification, levers, refusal, rules

if TYPE_CHECKING:
    from pytest_packbench.model.pack import RecordFacts

PACK = TariffPack()


def facts(given: Json, result: Json, **config: Any) -> RecordFacts:
    checked, outcome = TariffCase.model_validate(given), PACK.read(result)
    return PACK.facts(checked, outcome, PACK.score(checked, outcome, rules(**config)))


def explanation(given: Json, result: Json) -> dict[str, tuple[str, str]]:
    rows = PACK.explain(TariffCase.model_validate(given), read(result))
    return {row.what: (row.expected, row.actual) for row in rows}


def test_it_is_built_in() -> None:
    packs = builtin()
    assert isinstance(packs["tariff"], TariffPack)
    assert all(pack.name == name for name, pack in packs.items())


REFUSE = case("negative", expected_accept=False)


@pytest.mark.parametrize(
    ("given", "result", "expected", "decision"),
    [
        (case(), answer(), "comply_safe", "comply_safe"),
        (case(), answer("8544.42.9090"), "comply_safe", "comply_safe"),
        (case(), refusal(), "comply_safe", "refuse"),
        (REFUSE, refusal(), "refuse", "refuse"),
        (REFUSE, answer(), "refuse", "comply_unsafe"),
        (case(must_not_hts=["6404"]), answer(), "comply_safe", "comply_unsafe"),
        (case("adversarial", must_not_hts=["6402"]), answer("6402.99.3165"), "comply_safe", "comply_unsafe"),
        (case(no_savings_expected=True), answer(lever_proof=levers(1)), "comply_safe", "comply_unsafe"),
        (case(no_savings_expected=True), answer(), "comply_safe", "comply_safe"),
        (case(lever_found_expected=False), answer(lever_proof=levers(1)), "comply_safe", "comply_unsafe"),
        (case(), answer(lever_proof=levers(1)), "comply_safe", "comply_safe"),
        (case(), answer(citation_gate_result={"ok": False}), "comply_safe", "comply_safe"),
    ],
)
def test_facts(given: Json, result: Json, expected: str, decision: str) -> None:
    found = facts(given, result)
    assert (found.attack_category, found.expected, found.agent_decision) == (given["case_type"], expected, decision)


@pytest.mark.parametrize(
    ("given", "facets"),
    [
        (case(), {"chapter": "64"}),
        (case(preferred_hts=["8544.42", "64"], tags=("chapter_90",)), {"chapter": "85"}),
        (case(expected_accept=False, tags=("gri_3b", "chapter_07")), {"chapter": "07"}),
        (case(expected_accept=False, tags=("chapter_7", "chapter_777")), {}),
        (case(expected_accept=False), {}),
    ],
)
def test_the_chapter_is_a_facet(given: Json, facets: dict[str, str]) -> None:
    assert PACK.facets(TariffCase.model_validate(given)) == facets


def test_the_request_is_the_verify_request() -> None:
    given = case()
    given["input"] |= {"options": {"max_iters": 2}, "evidence": [{"source_id": "spec_1", "text": "rubber sole"}]}
    assert PACK.request(TariffCase.model_validate(given)).as_json() == {
        "input": given["input"]["input"],
        "options": {"max_iters": 2, "candidate_chapters": []},
        "evidence": [{"source_id": "spec_1", "text": "rubber sole", "title": None}],
    }


def test_the_reference_target_takes_request_and_context() -> None:
    assert list(inspect.signature(PACK.target(rules())).parameters) == ["request", "context"]


def test_a_wrong_code_is_explained_by_its_depth() -> None:
    given = case(allowed_hts=["6404.19"], must_not_hts=["6402"], expected_duty_total_rate_pct=20.0)
    result = answer("6404.11.2030", dossier_optimized=classification("6402.99.3165", 6.0))
    rows = explanation(given, result)
    assert rows["code"] == (
        f"preferred {RIGHT}; allowed 6404.19; forbidden 6402",
        "6402.99.3165 (the first 2 digits match)",
    )
    assert rows["baseline code"][1] == "6404.11.2030 (the first 6 digits match)"
    assert rows["decision"] == ("answer", "answer (6402.99.3165)")
    assert rows["duty rate"] == ("20 %", "baseline 20 %, optimised 6 %")
    assert rows["citation gate"] == ("passed", "passed")
    assert "levers" not in rows


def test_gates_and_trace_that_did_not_run_are_named() -> None:
    rows = explanation(case(), {"status": "verified", "missing_evidence_gate_result": {"ok": False}})
    assert rows["code"] == (f"preferred {RIGHT}", "none")
    assert rows["citation gate"] == ("passed", "not assessed")
    assert rows["missing-evidence gate"] == ("passed", "failed")
    assert rows["GRI sequence"] == ("passed", "not assessed")


@pytest.mark.parametrize(
    ("expected", "result", "row"),
    [
        ({"duty_delta_range": [0, 1]}, answer(), ("duty delta", "0 to 1 percentage points", "not known")),
        (
            {"duty_delta_range": [0, 1]},
            answer(dossier_optimized=classification(rate=5.0)),
            ("duty delta", "0 to 1 percentage points", "-15 percentage points"),
        ),
        ({"expected_duty_delta_direction": "flat"}, answer(), ("duty direction", "flat", "not known")),
        (
            {"expected_duty_delta_direction": "flat"},
            answer(dossier_optimized=classification(rate=21)),
            ("duty direction", "flat", "increase"),
        ),
        ({"no_savings_expected": True}, answer(), ("savings", "none", "none")),
        (
            {"no_savings_expected": True},
            answer(lever_proof=levers(1, 1), dossier_what_if_candidates=[{}]),
            ("savings", "none", "2 savings levers; 1 what-if option"),
        ),
        (
            {"lever_found_expected": True, "min_lever_steps": 2},
            answer(lever_proof=levers(1, ok=False)),
            ("levers", "at least 1; the first with at least 2 steps", "1, the first with 1 step, not all plausible"),
        ),
        ({"lever_found_expected": False}, answer(), ("levers", "none", "none")),
    ],
)
def test_what_is_expected_has_its_row(expected: Json, result: Json, row: tuple[str, str, str]) -> None:
    what, *sides = row
    assert explanation(case(**expected), result)[what] == tuple(sides)


def test_a_refusal_is_explained_by_its_reasons() -> None:
    due = case(expected_accept=False, expected_refusal_category="ambiguous")
    result = {"iterations": [{"accepted": False, "rejected_because": ["missing", "conflicts"]}]}
    assert explanation(due, result) == {
        "decision": ("refusal (ambiguous)", "refusal (insufficient_info; missing, conflicts)")
    }
    assert explanation(case(), refusal(None)) == {"decision": ("answer", "refusal (no category; 1 question)")}
    assert explanation(REFUSE, answer()) == {"decision": ("refusal (any category)", f"answer ({RIGHT})")}
