"""Reading the results of tariff targets: `data/tariff_readings.yaml` has what is read, and what is a mistake."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.model.result import Breakdown, Firing, ResultError
from pytest_packbench.packs.tariff.outcome import TariffOutcome, read
from tests.unit.tariff_cases import RIGHT, Json, answer, refusal, result_of, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import ExpectedTexts

TABLE = table("tariff_readings")


def test_every_field_of_an_answer_and_of_a_refusal_is_read() -> None:
    result = answer(
        optimized=("6402.99.3165", 6.0),
        levers=(2, 1),
        dossier={"what_if_candidates": [{"id": "one"}, {"id": "two"}]},
        trace=[{"hook": "tariff.citations", "decision": "pass", "rule": 6, "iteration": 1}],
    )
    fields = ("iterations", "tariff_dossier", "citation_gate_result", "missing_evidence_gate_result", "lever_proof")
    outcome = TariffOutcome(
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
    )
    savings = read(result).savings
    assert (savings.best, [offer.id for offer in savings.what_ifs], len(savings.levers)) == ("", ["one", "two"], 2)
    outcome = replace(outcome, savings=savings)
    assert read(result) == outcome
    assert outcome.savings_claims == ("optimised rate 6 % below 20 %",)
    assert read({**result, "proof": {field: result.pop(field) for field in fields}}) == outcome
    refused = TariffOutcome(refused=True, refusal_category="ambiguous", questions=("Which material?",))
    assert read(refusal("ambiguous")) == refused


@pytest.mark.parametrize("sentence", TABLE["readings"])
def test_what_is_read(sentence: str) -> None:
    for row, fields in TABLE["readings"][sentence]:
        outcome = read(result_of(row))
        for name, value in fields.items():
            assert getattr(outcome, name) == (tuple(value) if isinstance(value, list) else value), (row, name)


def test_every_reason_of_the_original_has_its_category_and_the_trace_becomes_firings() -> None:
    for category, reason in [(category, reason) for category, names in TABLE["categories"].items() for reason in names]:
        result = {"iterations": [{"accepted": False, "rejected_because": [reason]}]}
        assert read(result).refusal_category == category
    for rule in (None, 0, 2**32 - 1):
        step = {"hook": "gate", "decision": "fail", "rule": rule}
        firing = Firing(hook="gate", decision="fail", rule=rule)
        assert read(refusal(trace=[step, step])).firings == (firing, firing)
        assert read({"error": {"kind": "timeout", "message": "late"}, "trace": [step]}).firings == (firing,)


def test_an_infrastructure_failure_is_a_breakdown_and_no_refusal() -> None:
    result = {"error": {"kind": "timeout", "message": "no answer\nafter 5 s"}, "iterations": "not looked at"}
    assert read(result) == TariffOutcome(breakdown=Breakdown(kind="timeout", message="no answer after 5 s"))
    for reasons in (["llm_unavailable"], ["missing", "llm_unavailable"]):
        outcome = read({"iterations": [{"accepted": False, "rejected_because": reasons}]})
        assert outcome.breakdown is not None
        assert (outcome.breakdown.kind, outcome.refused) == ("llm_unavailable", False)
        assert read({"iterations": [{"accepted": True, "rejected_because": reasons}]}).contradiction


def test_a_result_has_one_decision_or_none(expected: ExpectedTexts) -> None:
    lines = []
    for kind, rows in TABLE["decisions"].items():
        for row in rows:
            outcome = read(result_of(row))
            read_as = "contradictory" if outcome.contradiction else "failures" if outcome.breakdown else "sound"
            assert read_as == kind, row
            refused = f"refusal ({outcome.refusal_category})" if outcome.refused else f"answer ({outcome.answer})"
            lines += [json.dumps(row), f"    {outcome.contradiction or outcome.breakdown or refused}"]
    expected.check("\n".join(lines) + "\n")


def with_value(result: Json, pointer: str, value: Any) -> Any:
    """Return a copy of a result with another value at a pointer."""
    if not pointer:
        return value
    changed = deepcopy(result)
    parent: Any = changed
    *steps, name = pointer.split("/")[1:]
    for step in steps:
        parent = parent[int(step)] if isinstance(parent, list) else parent.setdefault(step, {})
    parent[int(name) if isinstance(parent, list) else name] = value
    return changed


def test_a_mistake_is_reported_with_its_location(expected: ExpectedTexts) -> None:
    sound = answer(
        optimized=(RIGHT, 20.0),
        levers=(1, 1),
        plausible=False,
        dossier={"mutations": [{}]},
        iterations=[{"accepted": True, "rejected_because": [""]}],
        trace=[{"hook": "gate", "decision": "pass"}],
    )
    assert read(sound).accepted
    mistakes = [(pointer, value) for pointer, values in TABLE["mistakes"].items() for value in values]
    mistakes.append(("/tariff_dossier/baseline/duty_rate_pct", 10**400))
    rows = [(with_value(sound, pointer, value), pointer) for pointer, value in mistakes]
    messages = []
    for result, pointer in [*rows, *TABLE["unreadable"]]:
        with pytest.raises(ResultError) as caught:
            read(result)
        assert caught.value.pointer == pointer
        messages.append(f"{caught.value}\n")
    expected.check("".join(messages))
    # a message is short whatever the value
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
    """Whether a result is read; any exception but `ResultError` is raised."""
    try:
        outcome = read(result)
    except ResultError:
        return False
    assert isinstance(outcome, TariffOutcome)
    assert (outcome.breakdown is not None) + bool(outcome.contradiction) + outcome.accepted + outcome.refused == 1
    return True


def pointers(value: object, pointer: str = "") -> Iterator[str]:
    """Every location in a JSON value, its root first."""
    yield pointer
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from pointers(inner, f"{pointer}/{key}")


WHOLE = answer(
    levers=(2, 1),
    dossier={
        "optimized": {"hts_code": "6402.99.3165", "duty_rate_pct": 6.0, "estimated_savings_per_unit": 1.2},
        "mutations": [{"expected_duty_rate_pct": 3.0}],
        "savings_estimate": {"per_unit": 1.2, "annualized": 12.0},
    },
    trace=[{"hook": "gate", "decision": "pass", "rule": 1}],
)


@given(st.sampled_from(sorted(pointers(WHOLE))), JSON)
def test_any_value_at_any_location_is_read_or_refused(pointer: str, value: object) -> None:
    changed = with_value(WHOLE, pointer, value)
    assert is_read(changed) == is_read(json.loads(json.dumps(changed)))
