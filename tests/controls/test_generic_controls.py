"""Controls of the generic pack: what every criterion, what is forbidden, and every refusal gives, right and wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.model.errors import format_value
from tests.unit.generic_suites import load, score_of, suite

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

FOLDER = Path(__file__).parent
POINTS = yaml.safe_load((FOLDER / "generic_criteria.yaml").read_text("utf-8"))
VERDICTS = yaml.safe_load((FOLDER / "generic_verdicts.yaml").read_text("utf-8"))


def test_each_criterion_gives_the_points_and_the_reason_of_its_table(expected: ExpectedTexts) -> None:
    lines = []
    for criterion, rows in POINTS.items():
        rules = suite(f"criteria: [{{{criterion}}}]")
        lines.append(criterion)
        for wanted, value, points in rows:
            result = score_of(rules, {"a": wanted}, {"a": value})
            assert result.score == pytest.approx(points, abs=1e-9), (criterion, wanted, value)
            reason = f": {result.terms[0].detail}" if result.terms[0].detail else ""
            shown = rules.criteria[0].describe(wanted)
            lines.append(f"  {shown} | {format_value(value)} | {points:g}{reason}")
        assert {points == 1 for _, _, points in rows} == {True, False}, "rows that pass and rows that fail"
    expected.check("\n".join([*lines, ""]))


@pytest.mark.parametrize("value", [{}, {"a": None}, {"a": {"no": "such"}}], ids=["absent", "null", "another type"])
def test_no_criterion_accepts_a_value_of_another_kind(value: Any) -> None:
    for criterion, rows in POINTS.items():
        rules = suite(f"criteria: [{{{criterion}}}]")
        for wanted in [wanted for wanted, *_ in rows if wanted not in (None, {"required": ["a"]}, {"pattern": r"^\d"})]:
            result = score_of(rules, {"a": wanted}, value)
            assert (result.score, bool(result.terms[0].detail)) == (0, True), (criterion, wanted)


def any_number(value: Any, _expected: Any, _input: Any) -> Any:
    return value


@pytest.mark.parametrize("row", VERDICTS["forbidden"], ids=lambda row: row["rule"])
def test_what_is_forbidden_makes_the_score_0_and_nothing_else_does(row: dict[str, Any]) -> None:
    rules = suite(f"criteria: [{{exact: /b}}]\nforbidden: [{row['rule']}]")
    for kind, expected in (("bad", (0.0, ["forbidden"])), ("good", (1.0, []))):
        for more in row[kind]:
            result = score_of(rules, {"b": 2}, {"b": 2, **more})
            assert (result.score, [term.name for term in result.terms if term.effect == "zero"]) == expected, more


REFUSING = suite("criteria: [{exact: /a}]\nforbidden: [SECRET]")


@pytest.mark.parametrize(("wanted", "result", "points", "level", "decision"), VERDICTS["refusals"])
def test_refusals_and_answers(wanted: Any, result: Any, points: float, level: str | None, decision: str) -> None:
    pack, case = load(REFUSING, wanted)
    outcome = pack.read(result)
    score = pack.score(case, outcome, REFUSING)
    facts = pack.facts(case, outcome, score)
    assert (score.score, score.match_level, facts.agent_decision) == (points, level, decision)
    assert (facts.expected, facts.attack_category) == ("refuse" if wanted.get("refuse") else "comply_safe", "plain")
    assert level is None or score.terms[0].name == level
    # a refusal of the wrong category gets points and fails all the same
    assert (score.verdict == "passed") is (points == 1)


@pytest.mark.parametrize(("fields", "threshold", "verdict"), VERDICTS["thresholds"])
def test_the_threshold_of_the_case_its_type_or_its_kind_decides(
    fields: dict[str, Any], threshold: float, verdict: str
) -> None:
    limits = "thresholds: {accept: 0.6, refuse: 0.5, by_type: {lenient: 0.5, severe: 1.0}}"
    rules = suite(f"criteria: [{{exact: /a}}, {{exact: /b}}]\n{limits}")
    result = {"refusal": "y"} if "expected" in fields else {"a": 1, "b": 1}
    score = score_of(rules, **{"expected": {"a": 1, "b": 2}, **fields}, result=result)
    assert (score.score, score.threshold, score.verdict) == (0.5, threshold, verdict)
