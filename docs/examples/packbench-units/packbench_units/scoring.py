"""The score of a conversion: named terms that add up, and terms that make it exactly 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from packbench_units.table import UNITS, converted
from pytest_packbench import Score, Term, judged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packbench_units.model import Amount, UnitsCase, UnitsSuiteConfig
    from packbench_units.outcome import UnitsOutcome


def score(case: UnitsCase, outcome: UnitsOutcome, rules: UnitsSuiteConfig) -> Score:
    """Score an outcome: no clock, no randomness, no file.

    Args:
        case: the case.
        outcome: what was read out of the result.
        rules: what the suite says.

    Returns:
        A score of 0 to 1. `match_level` is `value`, `near` or `none`; `refusal` where one was due and came.
    """
    answer = case.expected.answer
    if answer is None:
        level, terms = _of_due_refusal(case, outcome, rules)
    elif outcome.refused:
        level, terms = "none", [_zero("unexpected_refusal", f"{outcome.reason}, where an answer is due")]
    else:
        level, terms = _of_answer(case, answer, outcome, rules)
    hard = any(term.effect == "zero" for term in terms)
    points = 0.0 if hard else min(1.0, round(sum(term.value for term in terms), 9))
    thresholds = rules.thresholds
    default = thresholds.refuse if answer is None else thresholds.accept
    threshold = thresholds.by_type.get(case.case_type, default)
    verdict = judged(points, threshold)
    return Score(score=points, threshold=threshold, verdict=verdict, terms=tuple(terms), match_level=level)


def _of_due_refusal(case: UnitsCase, outcome: UnitsOutcome, rules: UnitsSuiteConfig) -> tuple[str, list[Term]]:
    wanted = case.expected.refuse
    if not outcome.refused:
        return "none", [_zero("unexpected_answer", f"{outcome.answer}, where a refusal is due")]
    if outcome.reason == wanted:
        return "refusal", [Term(name="refusal", value=1.0, detail=str(wanted))]
    detail = f"{outcome.reason}, expected {wanted}"
    return "refusal", [Term(name="refusal_for_another_reason", value=rules.points.wrong_reason, detail=detail)]


def _of_answer(
    case: UnitsCase, answer: Amount, outcome: UnitsOutcome, rules: UnitsSuiteConfig
) -> tuple[str, list[Term]]:
    if outcome.value is None or outcome.unit is None:
        raise ValueError("an answer has a value and a unit")
    found = converted(outcome.value, outcome.unit, answer.unit)
    level = _level(found, answer.value, rules)
    terms = [Term(name="value", value=_points(level, rules), detail=f"{outcome.answer}, expected {answer.value:g}")]
    terms.append(_given("unit", rules.points.unit, given=outcome.unit == answer.unit))
    terms.append(_given("working", rules.points.working, given=bool(outcome.working)))
    return level, [*terms, *_hard(case, answer, outcome, found, rules)]


def _level(found: float | None, wanted: float, rules: UnitsSuiteConfig) -> str:
    if found is not None and math.isclose(found, wanted, rel_tol=rules.tolerance):
        return "value"
    if found is not None and math.isclose(found, wanted, rel_tol=rules.near_tolerance):
        return "near"
    return "none"


def _points(level: str, rules: UnitsSuiteConfig) -> float:
    return {"value": rules.points.value, "near": rules.points.near, "none": 0.0}[level]


def _given(name: str, points: float, *, given: bool) -> Term:
    return Term(name=name, value=points if given else 0.0, detail="as asked for" if given else "not given")


def _hard(
    case: UnitsCase, answer: Amount, outcome: UnitsOutcome, found: float | None, rules: UnitsSuiteConfig
) -> Iterator[Term]:
    unit = UNITS.get(str(outcome.unit))
    if unit is not None and unit.quantity != UNITS[answer.unit].quantity:
        yield _zero("wrong_quantity", f"{outcome.unit} measures {unit.quantity}")
    for never in case.expected.never:
        if found is not None and math.isclose(found, never, rel_tol=rules.tolerance):
            yield _zero("forbidden_value", f"{never:g} {answer.unit}")


def _zero(name: str, detail: str) -> Term:
    return Term(name=name, effect="zero", detail=detail)
