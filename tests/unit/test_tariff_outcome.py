"""Reading tariff results: every field, every shape of the original's, and nothing but `ResultError` for the rest."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.model.outcome import Breakdown, Firing, ResultError
from pytest_packbench.packs.tariff.outcome import TariffOutcome, read
from tests.unit.tariff_cases import RIGHT, Json, answer, classification, levers, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

UNDER_PROOF = ("iterations", "tariff_dossier", "citation_gate_result", "missing_evidence_gate_result", "lever_proof")


def iterations(**changes: Any) -> list[Json]:
    """Iterations of which only the last counts."""
    first = {"accepted": False, "rejected_because": ["out of the count"], "sequence_violations": ["S1"]}
    return [first, {"accepted": True, "rejected_because": [], **changes}]


def test_an_answer_is_read_flat() -> None:
    result = answer(
        dossier_optimized=classification("6402.99.3165", 6.0),
        dossier_what_if_candidates=[{"id": "one"}, {"id": "two"}],
        lever_proof=levers(2, 1),
        trace=[{"hook": "tariff.citations", "decision": "pass", "rule": 6, "iteration": 1}],
    )
    assert read(result) == TariffOutcome(
        accepted=True,
        answer=f"{RIGHT}, optimised 6402.99.3165",
        firings=(Firing(hook="tariff.citations", decision="pass", rule=6),),
        baseline_code=RIGHT,
        optimized_code="6402.99.3165",
        baseline_rate_pct=20.0,
        optimized_rate_pct=6.0,
        sequence_ok=True,
        citations_ok=True,
        evidence_ok=True,
        levers=2,
        lever_steps=2,
        levers_compliant=True,
        what_ifs=2,
        savings_claims=("optimised rate 6 % below 20 %",),
    )


def test_a_refusal_is_read_flat() -> None:
    assert read(refusal("ambiguous")) == TariffOutcome(
        refused=True, refusal_category="ambiguous", questions=("Which material?",)
    )


@pytest.mark.parametrize("rule", [None, 0, 2**32 - 1])
def test_the_trace_becomes_firings(rule: int | None) -> None:
    step = {"hook": "gate", "decision": "fail", "rule": rule}
    assert read(refusal(trace=[step, step])).firings == (Firing(hook="gate", decision="fail", rule=rule),) * 2
    down = read({"error": {"kind": "timeout", "message": "late"}, "trace": [step]})
    assert down.firings == (Firing(hook="gate", decision="fail", rule=rule),)


def test_what_is_missing_at_the_top_stands_under_proof() -> None:
    result = answer(lever_proof=levers(1))
    moved = {key: result.pop(key) for key in UNDER_PROOF}
    assert read({**result, "status": None, "proof": moved}) == read(answer(lever_proof=levers(1)))


def test_the_top_comes_before_proof_and_the_empty_gives_way() -> None:
    other = answer("8544.42.9090")
    assert read({**answer(), "proof": other}).answer == RIGHT
    assert read({**answer(), "tariff_dossier": {}, "proof": other}).answer == "8544.42.9090"
    assert read({**answer(), "iterations": [], "proof": refusal()}).refused


def test_only_the_last_iteration_counts() -> None:
    assert read(answer(iterations=iterations())).accepted
    assert read(answer(iterations=[*iterations(), {"accepted": False}])).refused


@pytest.mark.parametrize(
    ("status", "accepted"), [("verified", True), ("failed", False), ("refused", False), ("rejected", False)]
)
def test_without_iterations_the_status_decides(status: str, accepted: bool) -> None:
    found = read({"status": status})
    assert (found.accepted, found.refused) == (accepted, not accepted)


def test_an_explicit_refusal_is_a_decision() -> None:
    assert read({"refusal": {"category": "out_of_scope"}}).refusal_category == "out_of_scope"


@pytest.mark.parametrize(
    ("reasons", "category"),
    [
        ([], None),
        (["missing_evidence"], "missing_evidence"),
        (["missing_evidence_gate_failed", "missing"], "missing_evidence"),
        (["missing", "missing_evidence"], "insufficient_info"),
        (["no_lowering_option", "conflicts"], "ambiguous"),
        (["illegal_evasion_suggestion"], "out_of_scope"),
        (["something_new"], None),
        ([""], None),
    ],
)
def test_the_first_known_reason_names_the_category(reasons: list[str], category: str | None) -> None:
    found = read({"iterations": [{"accepted": False, "rejected_because": reasons}]})
    assert found.refusal_category == category
    assert found.reasons == tuple(reasons)


@pytest.mark.parametrize(
    ("category", "words"),
    [
        ("missing_evidence", "missing_evidence missing_evidence_gate_failed"),
        (
            "insufficient_info",
            "missing hts_or_questions_missing baseline_duty_missing insufficient_mutations missing_best_option",
        ),
        ("insufficient_info", "mutation_missing_evidence"),
        ("ambiguous", "gri_sequence_violation conflicts unsupported"),
        ("out_of_scope", "illegal_evasion_suggestion"),
    ],
)
def test_every_word_of_the_original_has_its_category(category: str, words: str) -> None:
    for word in words.split():
        assert read({"iterations": [{"accepted": False, "rejected_because": [word]}]}).refusal_category == category


def test_the_explicit_category_comes_before_the_reasons() -> None:
    reasons = [{"accepted": False, "rejected_because": ["conflicts"]}]
    assert read(refusal("out_of_scope", iterations=reasons)).refusal_category == "out_of_scope"
    assert read(refusal(None, iterations=reasons)).refusal_category is None


def test_an_accepted_answer_has_no_category() -> None:
    assert read(answer(iterations=iterations(rejected_because=["conflicts"]))).refusal_category is None


def test_an_infrastructure_failure_is_a_breakdown() -> None:
    found = read({"error": {"kind": "timeout", "message": "no answer\nafter 5 s"}, "iterations": "not looked at"})
    assert found.breakdown == Breakdown(kind="timeout", message="no answer after 5 s")
    assert not found.refused
    assert not found.accepted


@pytest.mark.parametrize("reasons", [["llm_unavailable"], ["missing", "llm_unavailable"]])
def test_a_model_out_of_reach_is_a_breakdown(reasons: list[str]) -> None:
    found = read({"iterations": [{"accepted": False, "rejected_because": reasons}]})
    assert found.breakdown is not None
    assert found.breakdown.kind == "llm_unavailable"
    assert not found.refused


def test_an_error_of_null_is_none() -> None:
    assert read(answer(error=None)).accepted


@pytest.mark.parametrize(
    ("violations", "trace", "ok"),
    [
        ([], {"sequence_ok": True}, True),
        (["S2"], {"sequence_ok": True}, False),
        ([], {"sequence_ok": False}, False),
        ([], {"sequence_ok": None}, None),
        ([], {}, None),
        (None, None, None),
    ],
)
def test_the_order_of_rules(violations: object, trace: object, ok: object) -> None:
    result = answer(iterations=iterations(sequence_violations=violations), dossier_gri_trace=trace)
    assert read(result).sequence_ok is ok


@pytest.mark.parametrize(("key", "field"), [("citation", "citations_ok"), ("missing_evidence", "evidence_ok")])
@pytest.mark.parametrize(
    ("gates", "ok"),
    [
        ((None, None, None), None),
        ((None, None, {"ok": False}), False),
        ((None, {"ok": True}, {"ok": False}), True),
        (({"ok": False}, {"ok": True}, {"ok": True}), False),
    ],
)
def test_a_gate_is_looked_up_in_order(key: str, field: str, gates: tuple[object, ...], ok: object) -> None:
    name = f"{key}_gate_result"
    top, proof, iteration = gates
    result = {**answer(iterations=iterations(**{name: iteration}), proof={name: proof}), name: top}
    assert getattr(read(result), field) is ok


@pytest.mark.parametrize(
    ("part", "rate"),
    [
        ({"duty_rate_pct": 5.0}, 5.0),
        ({"duty_rate_pct": 5, "duty_breakdown": {"total_rate_pct": 7.5}}, 7.5),
        ({"duty_rate_pct": 5.0, "duty_breakdown": {"total_rate_pct": 0.0}}, 0.0),
        ({"duty_rate_pct": None, "duty_breakdown": {"total_rate_pct": None}}, None),
        ({"duty_breakdown": None}, None),
        (None, None),
    ],
)
def test_the_total_rate_comes_before_the_stated_one(part: object, rate: float | None) -> None:
    assert read(answer(dossier_baseline=part)).baseline_rate_pct == rate


@pytest.mark.parametrize(
    ("base", "best", "delta"), [(20.0, 5.0, -15.0), (20.0, 0.0, -20.0), (None, 5.0, None), (20.0, None, None)]
)
def test_the_delta_is_optimised_minus_baseline(base: float | None, best: float | None, delta: float | None) -> None:
    result = answer(dossier_baseline=classification(rate=base), dossier_optimized=classification(rate=best))
    assert read(result).duty_delta == delta


@pytest.mark.parametrize(
    ("baseline", "optimized", "final", "shown"),
    [
        (RIGHT, None, RIGHT, RIGHT),
        (RIGHT, "", RIGHT, RIGHT),
        (RIGHT, "6404119020", "6404119020", "6404119020"),
        (RIGHT, "6402.99", "6402.99", f"{RIGHT}, optimised 6402.99"),
        (None, "6402.99", "6402.99", "6402.99"),
        ("", None, None, None),
    ],
)
def test_the_final_code_is_the_optimised_else_the_baseline(
    baseline: str | None, optimized: str | None, final: str | None, shown: str | None
) -> None:
    found = read(answer(baseline, dossier_optimized=classification(optimized)))
    assert found.final_code == final
    assert found.answer == shown


def test_a_refusal_has_no_answer_even_with_a_code() -> None:
    found = read({"status": "failed", "tariff_dossier": {"baseline": classification()}})
    assert found.answer is None
    assert found.baseline_code == RIGHT


@pytest.mark.parametrize(
    ("proof", "count", "steps", "compliant"),
    [
        (None, 0, None, None),
        ({"selected_levers": None}, 0, None, None),
        (levers(3, 1), 2, 3, True),
        (levers(1, ok=False), 1, 1, False),
        ({"selected_levers": [*levers(1)["selected_levers"], *levers(2, ok=False)["selected_levers"]]}, 2, 1, False),
        ({"selected_levers": [{"sequence": [], "gate_results": {"plausibility": []}}]}, 1, None, False),
        ({"selected_levers": [{"sequence": None, "gate_results": {"plausibility": {}}}]}, 1, None, False),
        ({"selected_levers": [{"gate_results": None}]}, 1, None, False),
        ({"selected_levers": [{"sequence": [1], "gate_results": {"plausibility": {"ok": True}}}]}, 1, 1, True),
        ({"selected_levers": [{"gate_results": {"plausibility": [{"ok": True}, {}]}}]}, 1, None, False),
    ],
)
def test_levers(proof: object, count: int, steps: int | None, compliant: object) -> None:
    found = read(answer(lever_proof=proof))
    assert (found.levers, found.lever_steps, found.levers_compliant) == (count, steps, compliant)


@pytest.mark.parametrize(
    ("dossier", "claims"),
    [
        ({}, ()),
        ({"optimized": classification(rate=20.0)}, ()),
        ({"optimized": classification(rate=25.0)}, ()),
        ({"optimized": classification(rate=5.0)}, ("optimised rate 5 % below 20 %",)),
        ({"optimized": {"estimated_savings_per_unit": 0}}, ()),
        ({"optimized": {"estimated_savings_per_unit": -1}}, ()),
        ({"optimized": {"estimated_savings_per_unit": 1.5}}, ("estimated_savings_per_unit 1.5",)),
        ({"savings_estimate": None}, ()),
        ({"savings_estimate": {"per_unit": 0, "annualized": 120000.0}}, ("annualized 120000",)),
        ({"savings_estimate": {"per_unit": 1.2}}, ("per_unit 1.2",)),
        ({"mutations": [{"expected_duty_rate_pct": 20.0}, {"expected_duty_rate_pct": None}]}, ()),
        ({"mutations": [{"expected_duty_rate_pct": 3}]}, ("mutation at 3 % below 20 %",)),
        ({"mutations": [{"expected_savings_note": "would reduce duty"}]}, ()),
    ],
)
def test_savings_claims_are_numbers_not_words(dossier: Json, claims: tuple[str, ...]) -> None:
    result = answer()
    result["tariff_dossier"].update(dossier)
    assert read(result).savings_claims == claims


def with_value(result: Json, pointer: str, value: object) -> Json:
    """Give a copy of a result with another value at a pointer."""
    changed = deepcopy(result)
    place: Any = changed
    *steps, name = pointer.split("/")[1:]
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    if isinstance(place, list):
        place[int(name)] = value
    else:
        place[name] = value
    return changed


MISTAKES: list[tuple[str, object]] = [
    ("/iterations", {"a": 1}),
    ("/iterations", ""),
    ("/iterations/0", None),
    ("/iterations/0", "x"),
    ("/iterations/0/accepted", None),
    ("/iterations/0/accepted", 1),
    ("/iterations/0/accepted", "yes"),
    ("/iterations/0/rejected_because", "missing_evidence"),
    ("/iterations/0/rejected_because", 5),
    ("/iterations/0/rejected_because/0", ["a"]),
    ("/iterations/0/rejected_because/0", None),
    ("/iterations/0/sequence_violations", "S1"),
    ("/citation_gate_result", "ok"),
    ("/citation_gate_result/ok", None),
    ("/citation_gate_result/ok", "true"),
    ("/missing_evidence_gate_result/ok", 1),
    ("/tariff_dossier", "text"),
    ("/tariff_dossier", 0),
    ("/tariff_dossier/gri_trace", []),
    ("/tariff_dossier/gri_trace/sequence_ok", 1),
    ("/tariff_dossier/baseline", ["6404"]),
    ("/tariff_dossier/baseline/hts_code", 640411),
    ("/tariff_dossier/baseline/hts_code", "\ud800"),
    ("/tariff_dossier/baseline/duty_rate_pct", "5.0"),
    ("/tariff_dossier/baseline/duty_rate_pct", True),
    ("/tariff_dossier/baseline/duty_rate_pct", float("nan")),
    ("/tariff_dossier/baseline/duty_rate_pct", float("inf")),
    ("/tariff_dossier/baseline/duty_rate_pct", 10**400),
    ("/tariff_dossier/baseline/duty_breakdown", 20.0),
    ("/tariff_dossier/baseline/duty_breakdown/total_rate_pct", "abc"),
    ("/tariff_dossier/optimized/estimated_savings_per_unit", "0"),
    ("/tariff_dossier/optimized/estimated_savings_per_unit", False),
    ("/tariff_dossier/savings_estimate", "much"),
    ("/tariff_dossier/mutations/0", None),
    ("/tariff_dossier/mutations/0/expected_duty_rate_pct", "5.0"),
    ("/tariff_dossier/what_if_candidates", {"id": 1}),
    ("/lever_proof", [1]),
    ("/lever_proof/selected_levers", "two"),
    ("/lever_proof/selected_levers/0", None),
    ("/lever_proof/selected_levers/0/sequence", 3),
    ("/lever_proof/selected_levers/0/gate_results", "passed"),
    ("/lever_proof/selected_levers/0/gate_results/plausibility", "yes"),
    ("/lever_proof/selected_levers/1/gate_results/plausibility/0/ok", 1),
    ("/proof", "x"),
    ("/trace", {}),
    ("/trace/0", None),
    ("/trace/0/hook", None),
    ("/trace/0/hook", ""),
    ("/trace/0/decision", 1),
    ("/trace/0/rule", -1),
    ("/trace/0/rule", 2**32),
    ("/trace/0/rule", True),
    ("/trace/0/rule", 1.0),
    ("/error", "down"),
    ("/error/kind", None),
    ("/error/message", ""),
]


@pytest.mark.parametrize(("pointer", "value"), MISTAKES)
def test_a_mistake_is_named_by_its_place(pointer: str, value: object) -> None:
    sound = answer(
        iterations=[{"accepted": True, "rejected_because": ["x"]}],
        dossier_optimized=classification(),
        dossier_mutations=[{}],
        lever_proof=levers(1, 1, ok=False),
        trace=[{"hook": "gate", "decision": "pass"}],
    )
    assert read(sound).accepted
    if pointer.startswith("/error/"):
        sound["error"] = {"kind": "timeout", "message": "late"}
    with pytest.raises(ResultError) as caught:
        read(with_value(sound, pointer, value))
    assert caught.value.pointer == pointer
    assert str(caught.value).startswith(f"result{pointer}: got ")


@pytest.mark.parametrize(
    ("result", "pointer"),
    [
        (None, ""),
        ([], ""),
        ("verified", ""),
        (True, ""),
        ({}, ""),
        ({"status": None, "iterations": []}, ""),
        ({"tariff_dossier": {"baseline": {"hts_code": RIGHT}}}, ""),
        ({"status": "VERIFIED"}, "/status"),
        ({"status": 1}, "/status"),
        ({"iterations": [{}]}, "/iterations/0/accepted"),
        ({"citation_gate_result": {}, "status": "verified"}, "/citation_gate_result/ok"),
        ({"status": "verified", "refusal": {"category": "ambiguous"}}, "/refusal"),
        ({"status": "failed", "refusal": "no"}, "/refusal"),
        ({"status": "failed", "refusal": {"category": 1}}, "/refusal/category"),
        ({"status": "failed", "refusal": {"questions": "why"}}, "/refusal/questions"),
        ({"status": "failed", "refusal": {"questions": [None]}}, "/refusal/questions/0"),
        ({"proof": {"iterations": [{"accepted": "no"}]}}, "/proof/iterations/0/accepted"),
    ],
)
def test_a_result_without_a_decision_is_no_refusal(result: object, pointer: str) -> None:
    with pytest.raises(ResultError) as caught:
        read(result)
    assert caught.value.pointer == pointer


def test_messages_stay_short_whatever_stands_there() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, {"a": deep}, "x" * 10_000, 10**5000, "\ud800" * 100):
        with pytest.raises(ResultError) as caught:
            read({"status": "verified", "tariff_dossier": {"baseline": {"duty_rate_pct": value}}})
        assert len(str(caught.value).encode()) < 800


NAMES = st.sampled_from(
    ["status", "iterations", "accepted", "proof", "tariff_dossier", "refusal", "error", "trace", "ok", "category", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["verified", "failed"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def is_read(result: object) -> bool:
    """Whether a result is read; any exception but `ResultError` gets through."""
    try:
        found = read(result)
    except ResultError:
        return False
    assert isinstance(found, TariffOutcome)
    assert (found.breakdown is not None) + found.accepted + found.refused == 1
    return True


@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    is_read(value)


def pointers(value: object, pointer: str = "") -> Iterator[str]:
    """Every place in a JSON value but its root."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield f"{pointer}/{key}"
            yield from pointers(inner, f"{pointer}/{key}")


WHOLE = answer(
    dossier_optimized=classification("6402.99.3165", 6.0, estimated_savings_per_unit=1.2),
    dossier_mutations=[{"expected_duty_rate_pct": 3.0}],
    dossier_savings_estimate={"per_unit": 1.2, "annualized": 12.0},
    lever_proof=levers(2, 1),
    trace=[{"hook": "gate", "decision": "pass", "rule": 1}],
)


@given(st.sampled_from(sorted(pointers(WHOLE))), JSON)
def test_any_value_in_any_place_is_read_or_refused(pointer: str, value: object) -> None:
    changed = with_value(WHOLE, pointer, value)
    assert is_read(changed) == is_read(json.loads(json.dumps(changed)))
