"""Each rule of the generic pack: bounds, symmetry and monotony where promised, and a control that fails."""

from __future__ import annotations

import time
import urllib.request
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.packs.generic import rules
from pytest_packbench.packs.generic.values import key, same

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
NUMBERS = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6)
FEW = st.lists(st.sampled_from(["a", "b", "c", 1, True, None, [1], {"x": 1}]), max_size=6)
QUICK = settings(max_examples=60, deadline=None)

RULES: dict[str, rules.Rule] = {
    "exact": rules.Exact(),
    "one_of": rules.OneOf(),
    "numeric": rules.Numeric(0.5, 0.1),
    "contains": rules.Contains(ignore_case=False),
    "contains_any_case": rules.Contains(ignore_case=True),
    "regex": rules.Regex(0.1),
    "set": rules.SetOf(),
    "json_schema": rules.JsonSchema(0.1),
    "text": rules.Text.made(at_least=0.0, ignore_case=False),
    "text_alike": rules.Text.made(at_least=0.5, ignore_case=True),
    "anywhere": rules.Anywhere(ignore_case=True),
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


def grade(rule: rules.Rule, value: Any, expected: Any) -> float:
    assert rule.usable(expected)
    return rule.grade(value, expected, None).points


@pytest.mark.parametrize("name", RULES)
@QUICK
@given(data=st.data())
def test_points_are_from_0_to_1_and_less_than_all_has_a_reason(name: str, data: st.DataObject) -> None:
    rule = RULES[name]
    likely = EXPECTED[name if name in EXPECTED else name.partition("_")[0]]
    expected = data.draw(likely)
    assert rule.usable(expected)
    given_grade = rule.grade(data.draw(likely | JSON), expected, None)
    assert 0 <= given_grade.points <= 1
    assert given_grade.points == 1 or given_grade.detail or name == "anywhere"
    assert rule.wanted(expected)


@pytest.mark.parametrize(
    ("name", "value", "expected", "points"),
    [
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
    ],
)
def test_controls(name: str, value: Any, expected: Any, points: float) -> None:
    assert grade(RULES[name], value, expected) == pytest.approx(points)


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
    assert not RULES[name].usable(expected)
    assert RULES[name].wrong(expected)


@QUICK
@given(left=JSON, right=JSON)
def test_exact_is_symmetric_and_reflexive(left: Any, right: Any) -> None:
    rule = RULES["exact"]
    assert grade(rule, left, right) == grade(rule, right, left)
    assert grade(rule, left, left) == 1
    assert same(left, right) is (key(left) == key(right))


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


@QUICK
@given(value=NUMBERS, expected=NUMBERS, one=st.floats(0, 100), other=st.floats(0, 100))
def test_numeric_never_loses_by_a_wider_tolerance_or_a_nearer_value(
    value: float, expected: float, one: float, other: float
) -> None:
    narrow, wide = sorted((one, other))
    assert grade(rules.Numeric(narrow, 0.0), value, expected) <= grade(rules.Numeric(wide, 0.0), value, expected)
    assert grade(rules.Numeric(0.0, narrow), value, expected) <= grade(rules.Numeric(0.0, wide), value, expected)
    nearer = (value + expected) / 2
    assert grade(rules.Numeric(narrow, 0.0), value, expected) <= grade(rules.Numeric(narrow, 0.0), nearer, expected)
    assert grade(rules.Numeric(0.0, 0.0), expected, expected) == 1


@pytest.mark.parametrize(("value", "points"), [(1.01, 1), (0.99, 1), (1.0101, 0), (0.9899, 0)])
def test_the_ends_of_a_tolerance_belong_to_it(value: float, points: float) -> None:
    assert grade(rules.Numeric(0.01, 0.0), value, 1.0) == points


@QUICK
@given(value=st.text(max_size=10), wanted=st.lists(st.text(min_size=1, max_size=2), min_size=1, max_size=4))
def test_contains_gives_the_share(value: str, wanted: list[str]) -> None:
    share = sum(one in value for one in wanted) / len(wanted)
    assert grade(RULES["contains"], value, wanted) == pytest.approx(share)


@pytest.mark.parametrize(
    ("rule", "expected"), [(rules.Regex(0.05), "(a|aa)+$"), (rules.JsonSchema(0.05), {"pattern": "(a|aa)+$"})]
)
def test_a_pattern_that_explodes_is_an_error_in_time(rule: rules.Rule, expected: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(rules.CriterionError, match=r"ran longer than 0.05 s on 81 characters"):
        rule.grade("a" * 80 + "b", expected, None)
    assert time.monotonic() - begun < 3


def test_a_schema_reaches_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[Any] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *arguments, **_more: reached.append(arguments))
    with pytest.raises(Exception, match="Unresolvable"):
        RULES["json_schema"].grade({}, {"$ref": "http://localhost:9/x"}, None)
    assert reached == []
