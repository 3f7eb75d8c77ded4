"""The criteria of the generic pack: the table of points, bounds, symmetry and monotony."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.model.errors import format_value
from pytest_packbench.packs.generic.rules import hashable, json_equal
from pytest_packbench.packs.generic.suite import Comparing, Criterion, Forbidden
from pytest_packbench.packs.generic.values import CriterionError
from tests.packs.generic.suites import score_of, suite

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)
NUMBERS = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6)
FEW = st.lists(st.sampled_from(["a", "b", "c", 1, True, None, [1], {"x": 1}]), max_size=6)
SOME = FEW.filter(bool)
WORDS = st.lists(st.text(min_size=1, max_size=2), min_size=1, max_size=4)
SHORT = st.text(max_size=10)
QUICK = settings(max_examples=40, deadline=None)


def of(rule: str, **keys: Any) -> Comparing:
    """A criterion on the whole result."""
    return Criterion.model_validate({rule: "", **keys})


EXACT = of("exact")
CONTAINS = of("contains")
ANY_CASE = of("contains", ignore_case=True)
SET = of("set")
SCHEMA = of("json_schema")
TEXT = of("text")
ANYWHERE = Forbidden.model_validate({"anywhere": "", "expected": "/never", "ignore_case": True})
SEQUENCE = of("sequence")
SUBSET = of("subset")


TABLE = yaml.safe_load((Path(__file__).parent / "data" / "criteria.yaml").read_text("utf-8"))


def test_each_criterion_gives_the_points_and_the_reason_of_its_table(expected: ExpectedTexts) -> None:
    lines = []
    for criterion, rows in TABLE.items():
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
    for criterion, rows in TABLE.items():
        rules = suite(f"criteria: [{{{criterion}}}]")
        for wanted in [wanted for wanted, *_ in rows if wanted not in (None, {"required": ["a"]}, {"pattern": r"^\d"})]:
            result = score_of(rules, {"a": wanted}, value)
            assert (result.score, bool(result.terms[0].detail)) == (0, True), (criterion, wanted)


def numeric(absolute: float = 0.0, relative: float = 0.0) -> Comparing:
    return of("numeric", absolute=absolute, relative=relative)


def points(rule: Comparing, value: Any, expected: Any) -> float:
    assert not rule.flaw(expected)
    return rule.grade(value, expected, None).points


ACCEPTED: list[tuple[Comparing, st.SearchStrategy[Any]]] = [
    (EXACT, JSON),
    (of("one_of"), st.lists(JSON, min_size=1, max_size=3)),
    (numeric(0.5, 0.1), NUMBERS),
    (CONTAINS, st.text(min_size=1, max_size=2) | st.lists(JSON.filter(lambda value: value != ""), min_size=1)),
    (ANY_CASE, JSON.filter(bool).filter(lambda value: not isinstance(value, list))),
    (of("regex"), st.sampled_from(["a", "^b+$", r"\d", "(?i)x"])),
    (SET, st.lists(JSON, max_size=3)),
    (SCHEMA, st.sampled_from([{"type": "string"}, {"pattern": "a"}, {"minItems": 1}])),
    (of("text", at_least=0.5, ignore_case=True), st.text()),
    (SUBSET, st.dictionaries(st.sampled_from("ab"), JSON, min_size=1)),
    (SEQUENCE, st.lists(JSON, max_size=3)),
    (of("ranked", k=2, reciprocal=True), JSON.filter(lambda value: value not in (None, []))),
    (of("exact", ignore_case=True), JSON),
    (ANYWHERE, st.text(min_size=1, max_size=2) | NUMBERS),
]


@pytest.mark.parametrize(("rule", "accepted"), ACCEPTED, ids=[rule.rule for rule, _ in ACCEPTED])
@QUICK
@given(data=st.data())
def test_points_are_from_0_to_1_and_less_than_all_has_a_reason(
    rule: Comparing, accepted: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    expected, value = data.draw(accepted), data.draw(accepted | JSON)
    assert 0 <= points(rule, value, expected) <= 1
    assert points(rule, value, expected) == 1 or rule.grade(value, expected, None).detail
    assert rule.describe(expected)


@QUICK
@given(left=JSON, right=JSON)
def test_equality_is_symmetric_and_reflexive(left: Any, right: Any) -> None:
    assert points(EXACT, left, right) == points(EXACT, right, left)
    assert points(EXACT, left, left) == 1
    assert json_equal(left, right) is (hashable(left) == hashable(right))


@QUICK
@given(value=NUMBERS, expected=NUMBERS, tolerances=st.tuples(st.floats(0, 100), st.floats(0, 100)))
def test_a_number_never_loses_by_a_wider_tolerance_or_a_nearer_value(
    value: float, expected: float, tolerances: tuple[float, float]
) -> None:
    narrow, wide = sorted(tolerances)
    assert points(numeric(narrow), value, expected) <= points(numeric(wide), value, expected)
    assert points(numeric(relative=narrow), value, expected) <= points(numeric(relative=wide), value, expected)
    assert points(numeric(narrow), value, expected) <= points(numeric(narrow), (value + expected) / 2, expected)
    assert points(numeric(), expected, expected) == 1
    # integers beyond floats are compared without a tolerance
    assert [points(numeric(0.5, 0.1), 10**400, other) for other in (10, 10**400)] == [0, 1]


@QUICK
@given(value=SHORT, wanted=WORDS, more=st.text(st.characters(max_codepoint=126)))
def test_contains_gives_the_share_of_the_words(value: str, wanted: list[str], more: str) -> None:
    share = points(CONTAINS, value, wanted)
    # at least those that are written so, as the table has other spellings
    assert share >= sum(word in value for word in wanted) / len(wanted) - 1e-9
    assert share == points(CONTAINS, value, wanted[::-1])
    assert points(CONTAINS, "".join(wanted), wanted) == 1
    assert share <= min(points(CONTAINS, value + more, wanted), points(ANY_CASE, value, wanted))


@QUICK
@given(members=FEW, wanted=SOME)
def test_a_set_has_no_order_and_rises_with_right_members_only(members: list[Any], wanted: list[Any]) -> None:
    share = points(SET, members, wanted)
    assert share == points(SET, wanted, members) == points(SET, members[::-1] + members, wanted)
    assert points(SET, [*members, wanted[0]], wanted) >= share
    assert points(SET, [*members, "another"], wanted) <= share


def test_a_schema_reaches_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Any] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *arguments, **_more: requests.append(arguments))
    # such a reference is an error of the comparison, and no schema that accepts everything
    assert SCHEMA.flaw({"$ref": "http://localhost:9/x"}) == ""
    with pytest.raises(Exception, match="Unresolvable"):
        SCHEMA.grade({}, {"$ref": "http://localhost:9/x"}, None)
    assert requests == []


@QUICK
@given(expected=st.dictionaries(st.sampled_from("abc"), JSON, min_size=1), more=JSON)
def test_a_subset_has_every_leaf_whatever_else_its_objects_have(expected: dict[str, Any], more: Any) -> None:
    assert points(SUBSET, expected, expected) == points(SUBSET, {**expected, "more": more}, expected) == 1
    assert points(SUBSET, [expected, more], {"a": [expected, more]}) == 0
    lacking = {key: value for key, value in expected.items() if key != min(expected)}
    assert points(SUBSET, lacking, expected) < 1


@QUICK
@given(calls=FEW, wanted=SOME, at=st.integers(0, 6))
def test_a_sequence_loses_by_each_call_that_lacks_or_is_too_much(calls: list[Any], wanted: list[Any], at: int) -> None:
    share = points(SEQUENCE, calls, wanted)
    assert share == points(SEQUENCE, wanted, calls) == points(SEQUENCE, calls[::-1], wanted[::-1])
    assert (share == 1) is (len(calls) == len(wanted) and all(map(json_equal, calls, wanted)))
    assert points(SEQUENCE, [*wanted[:at], "another", *wanted[at:]], wanted) == len(wanted) / (len(wanted) + 1)


def test_long_lists_are_compared_where_they_differ_and_else_are_no_match() -> None:
    calls = [*range(20_000)]
    assert points(SEQUENCE, [*calls[:9_000], "x", *calls[9_001:]], calls) == 19_999 / 20_000
    assert points(SEQUENCE, [*calls, "x"], calls) == 20_000 / 20_001
    assert points(SEQUENCE, calls, calls[::-1]) == 0


@QUICK
@given(left=SHORT, right=SHORT, floors=st.tuples(st.floats(0, 1), st.floats(0, 1)), data=st.data())
def test_similar_texts(left: str, right: str, floors: tuple[float, float], data: st.DataObject) -> None:
    assert points(TEXT, left, right) == points(TEXT, right, left)
    assert (points(TEXT, left, right) == 1) is (left == right)
    low, high = (points(of("text", at_least=at), left, right) for at in sorted(floors))
    assert low >= high
    assert high == 0 or high >= max(floors)
    length = data.draw(st.integers(0, len(left)))
    assert points(TEXT, left[:length], left) == pytest.approx(length / len(left) if left else 1)


def test_a_pattern_that_explodes_is_an_error_in_time() -> None:
    for rule, expected in (
        (of("regex", timeout=0.05), "(a|aa)+$"),
        (of("json_schema", timeout=0.05), {"pattern": "(a|aa)+$"}),
    ):
        start = time.monotonic()
        with pytest.raises(CriterionError, match=r"ran longer than 0.05 s on 81 characters"):
            rule.grade("a" * 80 + "b", expected, None)
        assert time.monotonic() - start < 3


def value_itself(value: Any, _expected: Any, _input: Any) -> Any:
    return value


@QUICK
@given(value=st.floats(-2, 2) | st.booleans() | st.integers(-2, 2) | st.just(float("nan")) | st.text() | st.none())
def test_a_function_gives_points_from_0_to_1_or_is_an_error(value: Any) -> None:
    rule = Criterion.model_validate({"python": f"{__name__}:value_itself"})
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        grade = rule.grade(value, None, None)
        assert (grade.points, type(grade.points)) == (float(value), float)
        assert value == 1 or grade.detail
    else:
        with pytest.raises(CriterionError, match=r"expected a bool or a number from 0 to 1"):
            rule.grade(value, None, None)
