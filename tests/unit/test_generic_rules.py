"""Each criterion of the generic pack: bounds, symmetry and monotony where promised, and a control that fails."""

from __future__ import annotations

import time
import urllib.request
from typing import Any

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.packs.generic import criteria
from pytest_packbench.packs.generic.values import hashable, json_equal

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
NUMBERS = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6)
FEW = st.lists(st.sampled_from(["a", "b", "c", 1, True, None, [1], {"x": 1}]), max_size=6)
QUICK = settings(max_examples=60, deadline=None)

RULES: dict[str, criteria.Criterion] = {
    "exact": criteria.Exact(rule="exact"),
    "one_of": criteria.OneOf(rule="one_of"),
    "numeric": criteria.Numeric(rule="numeric", absolute=0.5, relative=0.1),
    "contains": criteria.Contains(rule="contains"),
    "contains_any_case": criteria.Contains(rule="contains", ignore_case=True),
    "regex": criteria.Regex(rule="regex"),
    "set": criteria.SetOf(rule="set"),
    "json_schema": criteria.JsonSchema(rule="json_schema"),
    "text": criteria.TextSimilarity(rule="text"),
    "text_alike": criteria.TextSimilarity(rule="text", at_least=0.5, ignore_case=True),
    "anywhere": criteria.ContainsAnywhere(rule="anywhere", ignore_case=True),
}
EXPECTED: dict[str, st.SearchStrategy[Any]] = {
    "exact": JSON,
    "one_of": st.lists(JSON, min_size=1, max_size=3),
    "numeric": NUMBERS,
    "contains": st.text(min_size=1, max_size=2) | st.lists(JSON.filter(lambda one: one != ""), min_size=1, max_size=3),
    "set": st.lists(JSON, max_size=3),
    "text": st.text(),
    "anywhere": st.text(min_size=1, max_size=2) | NUMBERS,
    "regex": st.sampled_from(["a", "^b+$", r"\d", "(?i)x"]),
    "json_schema": st.sampled_from([{"type": "string"}, {"pattern": "a"}, {"minItems": 1}, {}]),
}


def grade(rule: criteria.Criterion, value: Any, expected: Any) -> float:
    assert not rule.expected_problem(expected)
    return rule.grade(value, expected, None).points


@pytest.mark.parametrize("name", RULES)
@QUICK
@given(data=st.data())
def test_points_are_from_0_to_1_and_less_than_all_has_a_reason(name: str, data: st.DataObject) -> None:
    rule = RULES[name]
    likely = EXPECTED[name if name in EXPECTED else name.partition("_")[0]]
    expected = data.draw(likely)
    assert not rule.expected_problem(expected)
    given_grade = rule.grade(data.draw(likely | JSON), expected, None)
    assert 0 <= given_grade.points <= 1
    assert given_grade.points == 1 or given_grade.detail or name == "anywhere"
    assert rule.describe(expected)


CONTROLS: list[tuple[str, Any, Any, float]] = [
    ("exact", {"a": [1, 2]}, {"a": [1.0, 2]}, 1),
    ("exact", 1, True, 0),
    ("exact", [0], [False], 0),
    ("exact", "1", 1, 0),
    ("exact", None, None, 1),
    ("one_of", "b", ["a", "b"], 1),
    ("one_of", 1, [True, "1"], 0),
    ("numeric", 10.5, 10, 1),
    ("numeric", 11.0, 10, 1),
    ("numeric", 11.01, 10, 0),
    ("numeric", "10", 10, 0),
    ("numeric", True, 1, 0),
    ("numeric", 10**400, 10, 0),
    ("numeric", 10**400, 10**400, 1),
    ("contains", "the cat sat", ["cat", "dog"], 0.5),
    ("contains", "the cat sat", "Cat", 0),
    ("contains_any_case", "the cat sat", "CAT", 1),
    ("contains_any_case", "the cat sat", "DOG", 0),
    ("contains_any_case", ["A", ["B"]], ["a", ["B"]], 1),
    ("contains", ["x", {"a": 1}], {"a": 1}, 1),
    ("contains", ["x", 1], True, 0),
    ("contains", {"cat": 1}, "cat", 0),
    ("contains", "12", 1, 0),
    ("regex", "ab12", r"^[a-z]+\d+$", 1),
    ("regex", "12ab", "ab", 1),
    ("regex", "12ab", r"^[a-z]+\d+$", 0),
    ("regex", 12, r"\d", 0),
    ("set", ["a", "b"], ["b", "c"], 0.5),
    ("set", [], [], 1),
    ("set", [], ["a"], 0),
    ("set", ["a", "a"], ["a"], 1),
    ("set", [1], [True], 0),
    ("set", "a", ["a"], 0),
    ("json_schema", {"a": 1}, {"required": ["a"]}, 1),
    ("json_schema", {"b": 1}, {"required": ["a"]}, 0),
    ("json_schema", "x1", {"pattern": r"^\d"}, 0),
    ("text", "kitten", "sitting", 1 - 3 / 7),
    ("text", "", "", 1),
    ("text", 5, "5", 0),
    ("text_alike", "KITTEN", "kitten", 1),
    ("text_alike", "dog", "kitten", 0),
    ("text_alike", "abcd", "axyz", 0),
    ("text", "abcd", "axyz", 0.25),
    ("anywhere", {"a": [{"b": "my SECRET"}]}, "secret", 1),
    ("anywhere", {"secret": 1}, "secret", 0),
    ("anywhere", {"a": [4711]}, [4711, "x"], 1),
    ("anywhere", {"a": True}, 1, 0),
]


@pytest.mark.parametrize(
    ("name", "value", "expected", "points"),
    CONTROLS,
)
def test_controls(name: str, value: Any, expected: Any, points: float) -> None:
    assert grade(RULES[name], value, expected) == pytest.approx(points)


@pytest.mark.parametrize("name", RULES)
def test_each_rule_has_a_control_that_fails_and_one_that_does_not(name: str) -> None:
    points = {points for rule, _, _, points in CONTROLS if rule == name}
    assert min(points) < 1
    assert max(points) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("one_of", []),
        ("one_of", "a"),
        ("numeric", "1"),
        ("numeric", True),
        ("contains", ""),
        ("contains", []),
        ("contains", ["a", ""]),
        ("regex", ""),
        ("regex", "("),
        ("regex", 1),
        ("set", "a"),
        ("json_schema", {"type": "strin"}),
        ("json_schema", {"properties": {"a": {"patternProperties": {"a": {}}}}}),
        ("json_schema", 1),
        ("text", None),
        ("anywhere", ""),
        ("anywhere", [None]),
    ],
)
def test_what_a_rule_can_not_compare_with(name: str, expected: Any) -> None:
    assert RULES[name].expected_problem(expected)


@QUICK
@given(left=JSON, right=JSON)
def test_exact_is_symmetric_and_reflexive(left: Any, right: Any) -> None:
    rule = RULES["exact"]
    assert grade(rule, left, right) == grade(rule, right, left)
    assert grade(rule, left, left) == 1
    assert json_equal(left, right) is (hashable(left) == hashable(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [({"is": True}, {"is": 1}), ({"list": [0, False]}, {"list": [0, 0]}), ({"a": {"b": 1.0}}, {"a": {"b": True}})],
    ids=["in an object", "in a list", "in an object's object"],
)
def test_a_boolean_is_no_number_wherever_it_stands(left: Any, right: Any) -> None:
    assert left == right
    assert not json_equal(left, right)
    assert not json_equal(right, left)
    assert json_equal(left, left)


@QUICK
@given(left=st.text(max_size=20), right=st.text(max_size=20))
def test_text_is_symmetric(left: str, right: str) -> None:
    rule = RULES["text"]
    assert grade(rule, left, right) == grade(rule, right, left)
    assert (grade(rule, left, right) == 1) is (left == right)


@QUICK
@given(left=FEW, right=FEW)
def test_set_is_symmetric_and_knows_no_order(left: list[Any], right: list[Any]) -> None:
    rule = RULES["set"]
    assert grade(rule, left, right) == grade(rule, right, left) == grade(rule, left[::-1] + left, right)


@QUICK
@given(found=FEW, wanted=FEW.filter(bool))
def test_set_rises_with_right_members_and_falls_with_wrong_ones(found: list[Any], wanted: list[Any]) -> None:
    rule = RULES["set"]
    before = grade(rule, found, wanted)
    assert grade(rule, [*found, wanted[0]], wanted) >= before
    assert grade(rule, [*found, "nobody's"], wanted) <= before


def _numeric(absolute: float, relative: float) -> criteria.Numeric:
    return criteria.Numeric(rule="numeric", absolute=absolute, relative=relative)


@QUICK
@given(value=NUMBERS, expected=NUMBERS, one=st.floats(0, 100), other=st.floats(0, 100))
def test_numeric_never_loses_by_a_wider_tolerance_or_a_nearer_value(
    value: float, expected: float, one: float, other: float
) -> None:
    narrow, wide = sorted((one, other))
    assert grade(_numeric(narrow, 0.0), value, expected) <= grade(_numeric(wide, 0.0), value, expected)
    assert grade(_numeric(0.0, narrow), value, expected) <= grade(_numeric(0.0, wide), value, expected)
    nearer = (value + expected) / 2
    assert grade(_numeric(narrow, 0.0), value, expected) <= grade(_numeric(narrow, 0.0), nearer, expected)
    assert grade(_numeric(0.0, 0.0), expected, expected) == 1


@pytest.mark.parametrize(("value", "points"), [(1.01, 1), (0.99, 1), (1.0101, 0), (0.9899, 0)])
def test_the_ends_of_a_tolerance_belong_to_it(value: float, points: float) -> None:
    assert grade(_numeric(0.01, 0.0), value, 1.0) == points


@QUICK
@given(value=st.text(max_size=10), wanted=st.lists(st.text(min_size=1, max_size=2), min_size=1, max_size=4))
def test_contains_gives_the_share(value: str, wanted: list[str]) -> None:
    share = sum(one in value for one in wanted) / len(wanted)
    assert grade(RULES["contains"], value, wanted) == pytest.approx(share)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (criteria.Regex(rule="regex", timeout=0.05), "(a|aa)+$"),
        (criteria.JsonSchema(rule="json_schema", timeout=0.05), {"pattern": "(a|aa)+$"}),
    ],
)
def test_a_pattern_that_explodes_is_an_error_in_time(rule: criteria.Criterion, expected: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(criteria.CriterionError, match=r"ran longer than 0.05 s on 81 characters"):
        rule.grade("a" * 80 + "b", expected, None)
    assert time.monotonic() - begun < 3


def test_a_schema_reaches_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[Any] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *arguments, **_more: reached.append(arguments))
    with pytest.raises(Exception, match="Unresolvable"):
        RULES["json_schema"].grade({}, {"$ref": "http://localhost:9/x"}, None)
    assert reached == []


@QUICK
@given(value=JSON, others=st.lists(JSON, min_size=1, max_size=3), more=JSON)
def test_one_of_never_loses_by_a_longer_list_and_knows_no_order(value: Any, others: list[Any], more: Any) -> None:
    rule = RULES["one_of"]
    assert grade(rule, value, others) <= grade(rule, value, [*others, more])
    assert grade(rule, value, others) == grade(rule, value, others[::-1])
    assert grade(rule, value, [*others, value]) == 1


@QUICK
@given(
    value=st.text(max_size=10), wanted=st.lists(st.text(min_size=1, max_size=2), min_size=1, max_size=4), more=st.text()
)
def test_contains_never_loses_by_more_text_or_by_folding_case(value: str, wanted: list[str], more: str) -> None:
    strict = RULES["contains"]
    before = grade(strict, value, wanted)
    assert before <= grade(strict, value + more, wanted)
    assert before <= grade(RULES["contains_any_case"], value, wanted)
    assert grade(strict, "".join(wanted), wanted) == 1
    assert grade(strict, value, wanted) == grade(strict, value, wanted[::-1])


@QUICK
@given(found=FEW, wanted=FEW.filter(bool), more=FEW)
def test_contains_in_a_list_never_loses_by_more_members(found: list[Any], wanted: list[Any], more: list[Any]) -> None:
    rule = RULES["contains"]
    assert grade(rule, found, wanted) <= grade(rule, found + more, wanted)
    assert grade(rule, found + wanted, wanted) == 1


@QUICK
@given(text=st.text(), before=st.text(), after=st.text())
def test_a_pattern_is_found_wherever_it_stands(text: str, before: str, after: str) -> None:
    quoted = regex.escape(text) or "^"
    assert grade(RULES["regex"], before + text + after, quoted) == 1
    assert grade(RULES["regex"], before + after, f"(?:{quoted})(?!)") == 0


@QUICK
@given(
    value=JSON,
    one=st.sampled_from([{"type": "string"}, {"minItems": 1}, {"minLength": 2}, {}]),
    other=st.sampled_from([{"type": "array"}, {"maximum": 0}, {"required": ["a"]}, {}]),
)
def test_a_schema_never_gains_by_another_condition(value: Any, one: dict[str, Any], other: dict[str, Any]) -> None:
    rule = RULES["json_schema"]
    both = grade(rule, value, {"allOf": [one, other]})
    assert both == min(grade(rule, value, one), grade(rule, value, other))
    assert grade(rule, value, {"const": value}) == 1
    assert grade(rule, value, {"not": {}}) == 0


@QUICK
@given(left=st.text(max_size=20), right=st.text(max_size=20), one=st.floats(0, 1), other=st.floats(0, 1))
def test_text_never_gains_by_a_higher_floor(left: str, right: str, one: float, other: float) -> None:
    low, high = (
        grade(criteria.TextSimilarity(rule="text", at_least=floor), left, right) for floor in sorted((one, other))
    )
    assert low >= high
    assert high == 0 or high >= max(one, other)


@QUICK
@given(text=st.text(min_size=1, max_size=20), data=st.data())
def test_text_rises_with_each_right_character(text: str, data: st.DataObject) -> None:
    shorter, longer = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    rule = RULES["text"]
    assert grade(rule, text[:shorter], text) <= grade(rule, text[:longer], text)
    assert grade(rule, text[:shorter], text) == pytest.approx(shorter / len(text))


@QUICK
@given(value=JSON, more=JSON, wanted=st.text(min_size=1, max_size=3) | NUMBERS)
def test_anywhere_never_loses_what_stands_deeper(value: Any, more: Any, wanted: Any) -> None:
    rule = RULES["anywhere"]
    assert grade(rule, value, wanted) <= grade(rule, {"a": [value, more]}, wanted)
    assert grade(rule, {"a": [more, {"b": wanted}]}, wanted) == 1
    assert grade(rule, value, wanted) <= grade(rule, value, [wanted, "more"])


def given_points(value: Any, expected: Any, given_input: Any) -> Any:
    del expected, given_input
    return value


@QUICK
@given(points=st.floats(-2, 2) | st.booleans() | st.integers(-2, 2) | st.just(float("nan")) | st.text() | st.none())
def test_a_function_gives_points_from_0_to_1_or_breaks(points: Any) -> None:
    rule = criteria.PythonFunction(rule="python", call=f"{__name__}:given_points")
    if isinstance(points, bool | int | float) and 0 <= points <= 1:
        found = rule.grade(points, None, None)
        assert (found.points, type(found.points)) == (float(points), float)
        assert points == 1 or found.detail
    else:
        with pytest.raises(criteria.CriterionError, match=r"expected a bool or a number|expected a number from 0 to 1"):
            rule.grade(points, None, None)
