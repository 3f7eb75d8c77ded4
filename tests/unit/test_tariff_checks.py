"""The gates: which proposals pass each of them, which fail with which violations, and which it does not apply to."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pytest_packbench.packs.tariff.checks import CHECKS, CRITICAL, CheckInput, CheckResult, check_form, run_checks
from pytest_packbench.packs.tariff.dossier import Critique, Proposal
from tests.unit.tariff_answers import TABLE, Json, check_input

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

GATES = {gate.name: gate for gate in CHECKS}
ROWS = [
    pytest.param(gate, decision, row, id=f"{gate}: {decision}: {name}")
    for gate, decisions in TABLE["gates"].items()
    for decision, rows in decisions.items()
    for name, row in rows.items()
]
# a busy machine is no failure
CALM = settings(deadline=None)


def decision_of(gate: str, **row: Any) -> str:
    return GATES[gate](check_input(row)).decision


def test_the_gates_have_their_numbers_and_only_composition_is_not_critical() -> None:
    assert [gate.rule for gate in CHECKS] == list(range(1, 12))
    assert list(GATES) == list(TABLE["gates"])
    assert {"form", *GATES} - CRITICAL == {"composition"}


@pytest.mark.parametrize(("gate", "decision", "row"), ROWS)
def test_the_decision_of_a_gate(gate: str, decision: str, row: Json) -> None:
    result = GATES[gate](check_input(row))
    assert (result.name, result.rule, result.decision) == (gate, GATES[gate].rule, decision), result.lines


def test_the_violations_of_each_gate(expected: ExpectedTexts) -> None:
    lines = []
    for gate, decisions in TABLE["gates"].items():
        lines += [f"{gate}", "=" * len(gate)]
        for name, row in decisions["fail"].items():
            lines += [f"{name}:", *(f"    {line}" for line in GATES[gate](check_input(row)).lines)]
        lines.append("")
    expected.check("\n".join(lines))


@pytest.mark.parametrize(
    ("row", "passed"),
    [
        ({}, "completeness code_form gri_sequence duty_arithmetic missing_evidence critic"),
        ({"base": "refuse", "evidence": ["Ground."]}, "completeness critic refusal"),
    ],
    ids=["classification", "refusal"],
)
def test_a_sound_answer_passes_every_gate_that_applies(row: Json, passed: str) -> None:
    results = run_checks(check_input(row))
    assert [result.name for result in results if result.decision == "pass"] == passed.split()
    assert {result.decision for result in results} == {"pass", "skip"}


def test_the_form_gate_fails_with_the_problems_of_the_answer() -> None:
    assert check_form([]) == CheckResult("form", 0, "pass")
    result = check_form(["/baseline: the key is missing"])
    assert (result.decision, result.lines) == ("fail", ["/baseline: the key is missing"])


def test_the_critic_gate_does_not_apply_without_a_critique() -> None:
    assert GATES["critic"](replace(check_input({}), critique=None)).decision == "skip"


RATES = st.floats(0, 100).map(lambda rate: round(rate, 3))


@CALM
@given(base=RATES, layers=st.lists(RATES, max_size=5), slip=st.floats(0.006, 50), up=st.booleans())
def test_a_sum_of_duties_passes_and_a_slip_fails(base: float, layers: list[float], slip: float, *, up: bool) -> None:
    total = sum(layers, base)
    assert decision_of("duty_arithmetic", duty={"base": base, "layers": layers}) == "pass"
    wrong = total + slip if up else max(total - slip, 0)
    if abs(wrong - total) > 0.0051:
        assert decision_of("duty_arithmetic", duty={"base": base, "layers": layers, "total": wrong}) == "fail"


WORDS = st.lists(st.text("abcäß中٣", min_size=1, max_size=4), min_size=1, max_size=8)
SPACES = st.text(" \t\n\r\u00a0\u2028\u3000", min_size=1, max_size=3)


@CALM
@given(words=WORDS, data=st.data())
def test_any_run_of_words_is_found_with_any_white_space(words: list[str], data: st.DataObject) -> None:
    text = words[0] + "".join(data.draw(SPACES) + word for word in words[1:])
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    quote = words[first] + "".join(data.draw(SPACES) + word for word in words[first + 1 : last + 1])
    assert decision_of("citations", quotes=[quote], evidence=[text]) == "pass"
    assert decision_of("citations", quotes=[f"{quote} x"], evidence=[text]) == "fail"


TEXT = st.sampled_from(["0712", "0712.90", "0712.90.40", "0712.90.4020", "6109", "6203", "a", "lab_report"]) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8
)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of the type of a field."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in {Union, types.UnionType}:
        return st.one_of(*map(values_of, arguments))
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=4)
    if arguments:
        return values_of(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {name: values_of(field.annotation) for name, field in annotation.model_fields.items()}
        return st.fixed_dictionaries(fields)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        bool: st.booleans(),
        type(None): st.none(),
        float: st.floats(0, 1),
    }
    return plain[annotation]


@settings(CALM, max_examples=150)
@given(proposal=values_of(Proposal), critique=values_of(Critique), text=TEXT)
def test_each_gate_decides_on_any_proposal_with_violations_of_one_line(
    proposal: Json, critique: Json, text: str
) -> None:
    inputs = CheckInput(
        request=check_input({"evidence": [text]}).request,
        proposal=Proposal.model_validate(proposal),
        critique=Critique.model_validate(critique),
    )
    results = run_checks(inputs)
    assert [(result.rule, result.name) for result in results] == [(gate.rule, gate.name) for gate in CHECKS]
    assert run_checks(inputs) == results
    for result in results:
        assert (result.decision == "fail") == bool(result.violations)
        assert all(len(line.splitlines()) == 1 for line in result.lines)
