"""The score of a generic case: weights, terms, hard fails, refusals, what is forbidden, and what is an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.api import load_suite, score
from pytest_packbench.cases.load import check_case
from pytest_packbench.model.errors import CaseError
from pytest_packbench.model.finding import FiledCase
from pytest_packbench.model.outcome import ResultError
from pytest_packbench.packs.generic.criteria import CriterionError
from pytest_packbench.packs.generic.pack import GenericPack
from tests.unit.generic_suites import case, read, score_of, suite

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_packbench.model.finding import Finding
    from pytest_packbench.packs.generic.model import GenericSuiteConfig

TWO = suite("criteria: [{exact: /a}, {name: total, rule: numeric, path: /b, weight: 3}]")
GATED = suite("criteria: [{exact: /a, hard_fail: true}, {set: /b, hard_fail: 0.5}]")
REFUSING = suite("criteria: [{exact: /a}]\nforbidden: [SECRET]")
EXPECTED = {"a": 1, "b": 2}


def test_the_score_is_the_weighted_mean_and_its_terms_add_up() -> None:
    found = score_of(TWO, EXPECTED, {"a": 1, "b": 5})
    assert (found.score, found.verdict) == (0.25, "failed")
    assert [(term.name, term.effect, term.value) for term in found.terms] == [
        ("exact /a", "add", 0.25),
        ("total", "add", 0.0),
    ]
    assert found.terms[1].detail == "got 5, expected 2"


@settings(max_examples=60, deadline=None)
@given(weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=6), data=st.data())
def test_any_weights_give_a_score_from_0_to_1(weights: list[float], data: st.DataObject) -> None:
    criteria = [{"set": f"/{index}", "weight": weight} for index, weight in enumerate(weights)]
    lists = st.lists(st.integers(0, 4), max_size=4)
    expected, result = ({str(index): data.draw(lists) for index in range(len(weights))} for _ in "er")
    rules = suite(str({"criteria": criteria}))
    found = score_of(rules, expected, result)
    assert found.score is not None
    assert 0 <= found.score <= 1
    assert found.score == pytest.approx(sum(term.value for term in found.terms), abs=1e-8)
    assert score_of(rules, expected, expected).score == 1


def test_what_the_result_lacks_is_worth_nothing() -> None:
    found = score_of(TWO, EXPECTED, {"a": 1})
    assert found.score == 0.25
    assert found.terms[1].detail == "nothing at /b"


@pytest.mark.parametrize(
    ("result", "points", "zero"),
    [
        ({"a": 1, "b": [1, 2]}, 1.0, []),
        ({"a": 2, "b": [1, 2]}, 0.0, ["exact /a"]),
        ({"b": [1, 2]}, 0.0, ["exact /a"]),
        ({"a": 1, "b": [1, 3]}, 0.75, []),
        ({"a": 1, "b": [1, 3, 4]}, 0.0, ["set /b"]),
        ({"a": 1, "b": [3, 4]}, 0.0, ["set /b"]),
    ],
)
def test_a_hard_fail_makes_the_score_0(result: Any, points: float, zero: list[str]) -> None:
    found = score_of(GATED, {"a": 1, "b": [1, 2]}, result)
    assert found.score == points
    assert [term.name for term in found.terms if term.effect == "zero"] == zero


@pytest.mark.parametrize(
    ("expected", "result", "points", "level", "decision"),
    [
        ({"a": 1}, {"a": 1}, 1.0, None, "comply_safe"),
        ({"a": 1}, {"a": 2}, 0.0, None, "comply_safe"),
        ({"a": 1}, {"a": 1, "refusal": None}, 1.0, None, "comply_safe"),
        ({"a": 1}, {"refusal": {"category": "x"}}, 0.0, "unexpected_refusal", "refuse"),
        ({"refuse": True}, {"refusal": True}, 1.0, "refusal", "refuse"),
        ({"refuse": True}, {"a": 1}, 0.0, "unexpected_acceptance", "comply_unsafe"),
        ({"refuse": True, "category": "x"}, {"refusal": {"category": "x"}}, 1.0, "refusal", "refuse"),
        ({"refuse": True, "category": "x"}, {"refusal": {"category": "y"}}, 0.5, "refusal_category_mismatch", "refuse"),
        ({"refuse": True, "category": "x"}, {"refusal": True}, 0.5, "refusal_category_mismatch", "refuse"),
        ({"refuse": False, "a": 1}, {"a": 1}, 1.0, None, "comply_safe"),
        ({"a": 1}, {"a": 1, "b": ["the SECRET"]}, 0.0, None, "comply_unsafe"),
        ({"refuse": True}, {"refusal": "no SECRET for you"}, 0.0, "refusal", "refuse"),
    ],
)
def test_refusals_and_what_is_forbidden(
    expected: Any, result: Any, points: float, level: str | None, decision: str
) -> None:
    pack = GenericPack().for_suite(REFUSING)
    loaded = check_case(case(expected), pack.case_model, source="a.json", stem="a", pack="generic").case
    assert isinstance(loaded, pack.case_model)
    outcome = pack.read(result)
    found = pack.score(loaded, outcome, REFUSING)
    facts = pack.facts(loaded, outcome, found)
    assert (found.score, found.match_level, facts.agent_decision) == (points, level, decision)
    assert facts.expected == ("refuse" if expected.get("refuse") else "comply_safe")
    assert facts.attack_category == "plain"
    assert pack.explain(loaded, outcome)[0].what == "decision"


def test_a_suite_tells_where_refusals_stand() -> None:
    rules = suite(
        "criteria: [{exact: /a}]\nrefusal: {path: /status, value: [denied, never], category: /why, expected: /stop}"
    )
    assert score_of(rules, {"stop": True}, {"status": "never"}).match_level == "refusal"
    assert score_of(rules, {"stop": True, "category": "x"}, {"status": "denied", "why": "x"}).score == 1
    assert score_of(rules, {"a": 1}, {"status": "done", "a": 1}).score == 1


def test_a_case_lists_what_it_forbids() -> None:
    rules = suite("criteria: [{exact: /a}]\nforbidden: [{one_of: /label, expected: /never}]")
    result = {"a": 1, "label": "x"}
    assert score_of(rules, {"a": 1, "never": ["x"]}, result).score == 0
    assert score_of(rules, {"a": 1, "never": ["y"]}, result).score == 1
    assert score_of(rules, {"a": 1}, result).score == 1


@pytest.mark.parametrize(
    ("changes", "threshold"),
    [
        ({}, 0.8),
        ({"case_type": "hard"}, 0.3),
        ({"case_type": "hard", "notes": {"threshold": 0.4}}, 0.4),
        ({"expected": {"refuse": True}}, 0.9),
    ],
)
def test_thresholds(changes: dict[str, Any], threshold: float) -> None:
    rules = suite("criteria: [{exact: /a}]\nthresholds: {by_type: {hard: 0.3}}")
    expected = changes.pop("expected", {"a": 1})
    assert score_of(rules, expected, {"a": 1}, **changes).threshold == threshold


def test_an_empty_list_of_many_is_found_where_one_is_due() -> None:
    rules = suite('criteria: [{set: "$.items[*].n", expected: /names}]')
    assert score_of(rules, {"names": []}, {"items": []}).score == 1
    found = score_of(rules, {"names": ["x"]}, {"items": []})
    assert (found.score, found.terms[0].detail) == (0.0, "nothing at $.items[*].n")


def style(value: Any, expected: Any, given_input: Any) -> Any:
    if isinstance(expected, dict) and expected.get("spoil"):
        value["a"], given_input["q"] = "spoilt", "spoilt"
        return True
    return {"one": 1, "half": 0.5, "no": False, "over": 1.5, "text": "1", "nan": float("nan")}[value["a"]]


PYTHON = suite(f'criteria: [{{python: "{__name__}:style", name: style}}]')


@pytest.mark.parametrize(("word", "points"), [("one", 1.0), ("half", 0.5), ("no", 0.0)])
def test_a_function_of_the_users_gives_points(word: str, points: float) -> None:
    assert score_of(PYTHON, {}, {"a": word}).score == points


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("over", r'criterion "style": .*style returned 1.5, expected a number from 0 to 1'),
        ("nan", r"returned nan, expected a number from 0 to 1"),
        ("text", r"returned str, expected a bool or a number from 0 to 1"),
        ("nothing", r"criterion \"style\" raised KeyError: 'nothing'"),
    ],
)
def test_a_function_that_breaks_is_an_error(word: str, message: str) -> None:
    with pytest.raises(CriterionError, match=message) as caught:
        score_of(PYTHON, {}, {"a": word})
    names = [frame.name for frame in caught.traceback]
    assert ("style" in names) is (word == "nothing")


def test_a_function_can_not_spoil_what_is_recorded() -> None:
    pack = GenericPack().for_suite(PYTHON)
    loaded = check_case(case({"spoil": True}), pack.case_model, source="a.json", stem="a", pack="generic").case
    assert isinstance(loaded, pack.case_model)
    result = {"a": "one"}
    outcome = pack.read(result)
    pack.score(loaded, outcome, PYTHON)
    assert (result, outcome.result, loaded.input) == ({"a": "one"}, {"a": "one"}, {"q": 1})


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "does the target return its result"),
        ({"a": float("nan")}, "is not JSON"),
        ({"a": {1, 2}}, "is not JSON"),
        ({"refusal": {"category": 5}}, "result/refusal/category: got 5"),
    ],
)
def test_a_result_that_can_not_be_read(result: Any, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        score_of(REFUSING, {"a": 1}, result)


def test_without_criteria_the_whole_result_is_compared(tmp_path: Path) -> None:
    read(tmp_path, "")
    for rules in (None, load_suite(tmp_path)):
        assert score(case({"x": [1]}), {"x": [1]}, suite=rules).passed
        assert not score(case({"x": [1]}), {"x": [2]}, suite=rules).passed


def test_a_case_without_an_expected_value_is_a_case_error(tmp_path: Path) -> None:
    read(tmp_path, "criteria: [{numeric: /sum}]")
    with pytest.raises(CaseError, match=r"case a: /expected/sum: no value at /sum"):
        score(case({}), {"sum": 1}, suite=load_suite(tmp_path))
    pack = GenericPack()
    loose = check_case(case({}), pack.case_model, source="a.json", stem="a", pack="generic").case
    bound = pack.for_suite(suite("criteria: [{numeric: /sum}]"))
    with pytest.raises(CaseError, match=r"case a: /expected/sum: no value at /sum"):
        bound.score(loose, bound.read({}), suite("criteria: [{numeric: /sum}]"))  # type: ignore[arg-type]  # a case of no suite


def test_a_pack_of_no_suite_reads_nothing() -> None:
    with pytest.raises(RuntimeError, match="for_suite"):
        GenericPack().read({})


def test_rows_say_what_was_wanted() -> None:
    rules = suite(
        "criteria: [{numeric: /b, absolute: 0.5, relative: 0.1}, {one_of: /a, value: [x, y]}, {regex: /c, value: '^a'},"
        " {text: /d}]\nforbidden: [SECRET]"
    )
    pack = GenericPack().for_suite(rules)
    loaded = check_case(case({"b": 2, "d": "t"}), pack.case_model, source="a.json", stem="a", pack="generic").case
    rows = pack.explain(loaded, pack.read({"b": 9, "a": "SECRET"}))  # type: ignore[arg-type]  # a case of this suite
    assert [(row.what, row.expected, row.actual) for row in rows] == [
        ("decision", "answer", "answer"),
        ("numeric /b", "2 ± 0.5 ± 0.1 of it", "9"),
        ("one_of /a", 'one of ["x", "y"]', '"SECRET"'),
        ("regex /c", 'matches "^a"', "nothing at /c"),
        ("text /d", 'like "t"', "nothing at /d"),
        ("anywhere", "never", '"SECRET"'),
    ]


def _linted(rules: GenericSuiteConfig, *expected: Any) -> list[Finding]:
    pack = GenericPack().for_suite(rules)
    found = [check_case(case(one), pack.case_model, source="a.json", stem="a", pack="generic") for one in expected]
    filed = [
        FiledCase(file="a.json", folder="plain", loaded=loaded, cassette=None, cassette_file="") for loaded in found
    ]
    return list(pack.lint(filed, rules, SimpleNamespace()))  # type: ignore[arg-type]  # it takes no options


def test_lint_finds_what_can_not_decide() -> None:
    rules = suite(
        "criteria: [{exact: /a}]\nforbidden: [SECRET, {one_of: /l, expected: /never}]\nthresholds: {refuse: 0.5}"
    )
    assert [finding.rule for finding in _linted(rules, {"a": 1}, {"a": 2, "never": ["x"]})] == []
    assert [(finding.rule, finding.pointer) for finding in _linted(rules, {"refuse": True, "category": "x"})] == [
        ("forbidden_unused", "/forbidden/1"),
        ("category_undecided", "/expected"),
    ]
