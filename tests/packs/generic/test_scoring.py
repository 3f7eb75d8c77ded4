"""Generic suites: weights, hard fails, refusals, what is forbidden, functions of users, what `suite.yaml` may contain, and the errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.api import load_suite, score
from pytest_packbench.cases.load import check_case
from pytest_packbench.commands.validate import schema
from pytest_packbench.model.authoring import FiledCase
from pytest_packbench.model.errors import CaseError, SuiteError
from pytest_packbench.model.pack import record_facts
from pytest_packbench.model.result import Score, Term
from pytest_packbench.packs.generic.pack import GenericPack
from pytest_packbench.packs.generic.suite import GenericCase
from pytest_packbench.packs.generic.values import MISSING, CriterionError, compile_path
from pytest_packbench.testing import write_suite
from tests.packs.generic.suites import case, load, score_of, suite

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts


DATA = Path(__file__).parent / "data"
MISTAKES = (DATA / "mistakes.txt").read_text("utf-8").splitlines()[1:]
RULES = yaml.safe_load((DATA / "rules.yaml").read_text("utf-8"))


def test_the_score_is_the_weighted_mean_of_its_terms() -> None:
    rules = suite("criteria: [{exact: /a}, {numeric: /b, name: total, weight: 3}]")
    for result, detail in (({"a": 1, "b": 5}, "got 5, expected 2"), ({"a": 1}, "nothing at /b")):
        scored = score_of(rules, {"a": 1, "b": 2}, result)
        assert (scored.score, scored.threshold, scored.verdict) == (0.25, 0.8, "failed")
        terms = [(term.name, term.effect, term.value, term.detail) for term in scored.terms]
        assert terms == [("exact /a", "add", 0.25, ""), ("total", "add", 0.0, detail)]


@settings(max_examples=40, deadline=None)
@given(weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=5), data=st.data())
def test_any_weights_give_a_score_from_0_to_1(weights: list[float], data: st.DataObject) -> None:
    rules = suite(str({"criteria": [{"set": f"/{index}", "weight": weight} for index, weight in enumerate(weights)]}))
    lists = st.lists(st.integers(0, 4), max_size=4)
    expected, result = ({str(index): data.draw(lists) for index in range(len(weights))} for _ in "er")
    scored = score_of(rules, expected, result)
    assert 0 <= (scored.score or 0) <= 1
    assert scored.score == pytest.approx(sum(term.value for term in scored.terms), abs=1e-8)
    assert score_of(rules, expected, expected).score == 1


def test_points_below_the_minimum_of_a_hard_fail_make_the_score_0() -> None:
    rules = suite("criteria: [{exact: /a, hard_fail: true}, {set: /b, hard_fail: 0.5}]")
    for result, points, zero in RULES["hard_fails"]:
        scored = score_of(rules, {"a": 1, "b": [1, 2]}, result)
        assert (scored.score, [term.name for term in scored.terms if term.effect == "zero"]) == (points, zero)


def test_paths_of_a_suite_say_where_refusals_and_forbidden_values_are() -> None:
    paths = "{path: /status, value: [denied, never], category: /why, expected: /stop}"
    refusing = suite(f"criteria: [{{exact: /a}}]\nrefusal: {paths}")
    assert score_of(refusing, {"stop": True}, {"status": "never"}).match_level == "refusal"
    assert score_of(refusing, {"stop": True, "category": "x"}, {"status": "denied", "why": "x"}).score == 1
    assert score_of(refusing, {"a": 1}, {"status": "done", "a": 1}).score == 1
    assert score_of(suite("refusal: {path: /s, value: gone}"), {"refuse": True}, {"s": "gone"}).score == 1
    forbidding = suite("criteria: [{exact: /a}]\nforbidden: [{one_of: /label, expected: /never}]")
    wanted = ({"a": 1, "never": ["x"]}, {"a": 1, "never": ["y"]}, {"a": 1})
    assert [score_of(forbidding, one, {"a": 1, "label": "x"}).score for one in wanted] == [0, 1, 1]
    names = suite('criteria: [{set: "$.items[*].n", expected: /names}]')
    assert [score_of(names, {"names": wanted}, {"items": []}).score for wanted in ([], ["x"])] == [1, 0]


def points_of(value: Any, expected: Any, case_input: Any) -> Any:
    if expected == "change everything":
        value["a"] = case_input["q"] = "changed"
        return True
    return {"half": 0.5, "over": 1.5}[value["a"]]


PYTHON = suite(f'criteria: [{{python: "{__name__}:points_of", name: style}}]')


def test_a_function_that_fails_is_an_error_with_its_own_frames_and_none_changes_what_is_recorded() -> None:
    with pytest.raises(CriterionError, match=r"criterion \"style\" raised KeyError: 'unknown'") as caught:
        score_of(PYTHON, {}, {"a": "unknown"})
    assert "points_of" in [frame.name for frame in caught.traceback]
    with pytest.raises(
        CriterionError, match=r'criterion "style": .*points_of returned 1.5; expected a bool or a number from 0'
    ):
        score_of(PYTHON, {}, {"a": "over"})
    # and what is recorded stays as it was
    pack, loaded = load(PYTHON, "change everything")
    result = {"a": "half"}
    outcome = pack.read(result)
    pack.score(loaded, outcome, PYTHON)
    assert (result, outcome.document.result, loaded.input) == ({"a": "half"}, {"a": "half"}, {"q": 1})


def test_a_result_that_can_not_be_read() -> None:
    for result, message in (
        (None, "does the target return its result"),
        ({"a": float("nan")}, "is not JSON"),
        ({"a": {1, 2}}, "is not JSON"),
        ({"refusal": {"category": 5}}, "result/refusal/category: got 5"),
    ):
        unread = score_of(suite(""), {"a": 1}, result)
        (term,) = unread.terms
        assert (unread.score, unread.verdict, term.name) == (0.0, "failed", "unreadable_answer")
        assert message in term.detail


def test_the_answer_is_the_value_of_the_first_criterion_or_the_whole_result(tmp_path: Path) -> None:
    for criteria, result, answer in (
        ("{exact: ''}", {"a": 1}, '{"a": 1}'),
        ("{exact: /a}", {"a": "x" * 80}, "x" * 80),
        ("{exact: /a}", {"a": "x" * 81}, "x" * 79 + "…"),
        ("{exact: /a}", {"b": 1}, None),
    ):
        assert GenericPack().for_suite(suite(f"criteria: [{criteria}]")).read(result).answer == answer
    # which is also what is compared without criteria, and without a suite
    for one in (None, load_suite(write_suite(tmp_path, (), pack="generic"))):
        assert [score(case({"x": [1]}), {"x": [value]}, suite=one).passed for value in (1, 2)] == [True, False]


def test_a_case_without_an_expected_value_is_an_error() -> None:
    rules = suite("criteria: [{numeric: /sum}]")
    _, of_no_suite = load(suite(""), {})
    bound = GenericPack().for_suite(rules)
    with pytest.raises(CriterionError, match=r"no value at /sum"):
        bound.score(of_no_suite, bound.read({}), rules)
    with pytest.raises(RuntimeError, match="for_suite"):
        GenericPack().read({})


def test_the_explanation_has_a_row_for_each_criterion_and_what_is_forbidden() -> None:
    rules = suite(
        "criteria: [{numeric: /b, absolute: 0.5}, {one_of: /a, value: [x, y]}, {regex: /c, value: '^a'}]\n"
        f"forbidden: [SECRET, {{python: '{__name__}:points_of', path: '', value: 3}}]"
    )
    pack, loaded = load(rules, {"b": 2})
    outcome = pack.read({"b": 9, "a": "half"})
    rows = pack.explain(loaded, outcome, pack.score(loaded, outcome, pack.rules).terms)
    assert [(row.what, row.expected, row.actual) for row in rows] == [
        ("decision", "answer", "answer"),
        ("numeric /b", "2 ± 0.5", "9"),
        ("one_of /a", 'one of ["x", "y"]', '"half"'),
        ("regex /c", 'matches "^a"', "nothing at /c"),
        ("python", "never", f"{__name__}:points_of with 3"),
    ]
    pack, refusing = load(suite("forbidden: [SECRET]"), {"refuse": True, "category": "x"})
    refusal = pack.read({"refusal": "SECRET"})
    rows = pack.explain(refusing, refusal, pack.score(refusing, refusal, pack.rules).terms)
    assert [(row.what, row.expected, row.actual) for row in rows] == [
        ("decision", "refusal (x)", "refusal (no category)"),
        ("anywhere", "never", '"SECRET"'),
    ]


def test_lint_finds_rules_that_can_not_decide() -> None:
    rules = suite(
        "criteria: [{exact: /a}]\nforbidden: [SECRET, {one_of: /l, expected: /never}]\nrefusal: {wrong_category: 0.4}"
    )
    pack = GenericPack().for_suite(rules)

    def findings(*expected: Any) -> list[tuple[str, str]]:
        loaded = [check_case(case(one), pack.case_model, source="a.json", stem="a", pack="generic") for one in expected]
        filed = [FiledCase(file="a", folder="p", loaded=one, cassette=None, cassette_file="") for one in loaded]
        found = pack.tools().lint(filed, rules, {})
        return [(one.rule, one.pointer) for one in found if one.rule != "date_missing"]

    assert findings({"a": 1}, {"a": 2, "never": ["x"]}) == []
    assert findings({"refuse": True, "category": "x"}) == [
        ("criterion_unused", "/criteria/0"),
        ("forbidden_unused", "/forbidden/1"),
    ]
    assert findings({"refuse": True, "never": ["x"]}, {"a": 1}) == findings() == []


def suite_error(folder: Path, text: str) -> str:
    (folder / "suite.yaml").write_text(f"pack: generic\n{text}", encoding="utf-8")
    with pytest.raises(SuiteError) as caught:
        load_suite(folder)
    return str(caught.value).removeprefix(f"{folder / 'suite.yaml'}: ")


def test_each_mistake_is_one_line_with_its_location(tmp_path: Path, expected: ExpectedTexts) -> None:
    errors = [(text, suite_error(tmp_path, text)) for text in MISTAKES]
    assert not [error for _, error in errors if "\n" in error]
    expected.check("".join(f"{text}\n    {error}\n" for text, error in errors))


@pytest.mark.parametrize("text", RULES["valid"])
def test_a_suite_is_valid_under_its_schema_and_can_be_read_again(text: str) -> None:
    rules = {"pack": "generic", **(yaml.safe_load(text) or {})}
    jsonschema.Draft202012Validator(schema("suite", [GenericPack()])).validate(rules)
    read = suite(text)
    read_again = type(read).model_validate({name: getattr(read, name) for name in read.model_fields_set})
    assert read_again.model_dump(mode="json") == read.model_dump(mode="json")


@pytest.mark.parametrize(("other", "now"), RULES["other_forms"])
def test_another_form_of_a_criterion_is_told_the_one_form(other: str, now: str, tmp_path: Path) -> None:
    error = suite_error(tmp_path, f"criteria: [{other}]")
    assert error.startswith("/criteria/0: got ")
    assert "; expected one rule with its path, and its other keys next to it, such as {exact: /answer" in error
    assert suite(f"criteria: [{now}]").criteria
    rules = {"pack": "generic", "criteria": yaml.safe_load(f"[{other}]")}
    assert not jsonschema.Draft202012Validator(schema("suite", [GenericPack()])).is_valid(rules)


def test_a_key_that_a_rule_got_later_changes_no_hash_of_a_suite_without_it() -> None:
    plain, folded, timed = suite("criteria: [{exact: /a}, {exact: /b, ignore_case: true}, {regex: /c}]").criteria
    shared = {"name", "path", "expected", "value", "weight", "hard_fail", "rule"}
    keys = [set(criterion.model_dump(mode="json")) - shared for criterion in (plain, folded, timed)]
    assert keys == [set(), {"ignore_case"}, {"timeout"}]


def test_values_as_json_writes_them_texts_and_own_settings_are_read_as_before(tmp_path: Path) -> None:
    for row in RULES["as_written"]:
        (tmp_path / "suite.yaml").write_text(f"pack: generic\n{row}", encoding="utf-8")
        read = load_suite(tmp_path).config.model_dump(mode="json", exclude_unset=True)
        # a date stays text, and a number of JSON is one
        plain = row.replace("2026-01-01", "'2026-01-01'").replace("1e5", "1.0e+5")
        assert read == suite(plain).model_dump(mode="json", exclude_unset=True)


def test_a_term_says_that_a_result_spells_what_is_forbidden_in_another_way() -> None:
    for rule, value, is_other in RULES["spelled"]:
        (term,) = (
            term for term in score_of(suite(f"forbidden: [{rule}]"), {}, value).terms if term.name == "forbidden"
        )
        assert term.detail.endswith(", in another spelling") is is_other, rule


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, module, extra in RULES["extras"]:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            error = suite_error(tmp_path, text)
        assert f"requires the library {module.partition('.')[0]}, which is not installed" in error
        assert error.endswith(f'the extra "{extra}": pip install "pytest-packbench[{extra}]"')


def test_the_value_at_a_path() -> None:
    document = RULES["document"]
    values = [("", document), ("$", document), *RULES["paths"], *((path, MISSING) for path in RULES["no_values"])]
    assert [compile_path(path).find(document) for path, _ in values] == [value for _, value in values]


def test_a_case_has_to_have_what_is_compared_with(expected: ExpectedTexts) -> None:
    lines = []
    for text, plain in RULES["refused"]:
        with pytest.raises(CaseError) as caught:
            load(suite(text), plain)
        lines.append(f"{text or 'no rules'} and {json.dumps(plain)}\n    {caught.value}\n")
    expected.check("".join(lines))


def test_a_pack_is_prepared_once_per_suite() -> None:
    rules = suite("criteria: [{json_schema: /a, value: {type: string}}, {regex: /b}]")
    pack = GenericPack()
    prepared = pack.for_suite(rules)
    assert prepared is pack.for_suite(rules) is prepared.for_suite(rules)
    assert pack.for_suite(suite("criteria: [{exact: ''}]")) is not prepared
    assert prepared.case_model is pack.for_suite(rules).case_model


def value_itself(value: Any, _expected: Any, _input: Any) -> Any:
    return value


@pytest.mark.parametrize("row", RULES["forbidden"], ids=lambda row: row["rule"])
def test_what_is_forbidden_makes_the_score_0_and_nothing_else_does(row: dict[str, Any]) -> None:
    rules = suite(f"criteria: [{{exact: /b}}]\nforbidden: [{row['rule']}]")
    for kind, expected in (("bad", (0.0, ["forbidden"])), ("good", (1.0, []))):
        for more in row[kind]:
            result = score_of(rules, {"b": 2}, {"b": 2, **more})
            assert (result.score, [term.name for term in result.terms if term.effect == "zero"]) == expected, more


@pytest.mark.parametrize(("rule", "result", "wrong"), RULES["made_wrong"])
def test_a_result_with_what_is_forbidden_is_made_of_a_right_one(rule: str, result: Any, wrong: Any) -> None:
    rules = suite(f"criteria: [{{exact: /b}}]\nforbidden: [{rule}]")
    pack, loaded = load(rules, {"b": 2})
    ((title, made),) = pack.tools().wrong_results(loaded, result, rules)
    assert (title.startswith("forbidden: "), made) == (True, wrong)
    if made is not None:
        assert "forbidden" in [term.name for term in score_of(rules, {"b": 2}, made).terms]


REFUSING = suite("criteria: [{exact: /a}]\nforbidden: [SECRET]")


@pytest.mark.parametrize(("wanted", "result", "points", "level", "decision"), RULES["refusals"])
def test_refusals_and_answers(wanted: Any, result: Any, points: float, level: str | None, decision: str) -> None:
    pack, case = load(REFUSING, wanted)
    outcome = pack.read(result)
    score = pack.score(case, outcome, REFUSING)
    facts = record_facts(pack, case, outcome, score)
    assert (score.score, score.match_level, facts.agent_decision) == (points, level, decision)
    assert (facts.expected, facts.attack_category) == ("refuse" if wanted.get("refuse") else "comply_safe", "plain")
    assert level is None or score.terms[0].name == level
    # a refusal of the wrong category gets points and fails all the same
    assert (score.verdict == "passed") is (points == 1)


@pytest.mark.parametrize(("fields", "threshold", "verdict"), RULES["thresholds"])
def test_the_threshold_of_the_case_its_type_or_its_kind_decides(
    fields: dict[str, Any], threshold: float, verdict: str
) -> None:
    limits = (
        "refusal: {wrong_category: 0.45}\nthresholds: {accept: 0.6, refuse: 0.5, by_type: {lenient: 0.5, severe: 1.0}}"
    )
    rules = suite(f"criteria: [{{exact: /a}}, {{exact: /b}}]\n{limits}")
    result = {"refusal": "y"} if "expected" in fields else {"a": 1, "b": 1}
    score = score_of(rules, **{"expected": {"a": 1, "b": 2}, **fields}, result=result)
    assert (score.threshold, score.verdict) == (threshold, verdict)


@pytest.mark.parametrize(("text", "wanted"), RULES["read"])
def test_a_key_that_a_rule_reads_is_allowed(text: str, wanted: Any) -> None:
    assert load(suite(text), wanted)


def test_a_case_whose_threshold_a_wrong_category_reaches_is_refused() -> None:
    own: dict[str, Any] = {"notes": {"threshold": 0.5}}
    wanted = {"refuse": True, "category": "legal"}
    wrong = r"/expected/category: a refusal of the wrong category passes: 0\.[59] points, threshold 0\.[59]"
    for text, fields in (
        ("", own),
        ("thresholds: {by_type: {lenient: 0.5}}", {"case_type": "lenient"}),
        ("thresholds: {refuse: 0.5}", {}),
        ("refusal: {wrong_category: 0.9}", {}),
    ):
        rules = suite(text)
        with pytest.raises(CaseError, match=wrong):
            check_case({**case(wanted), **fields}, rules.narrowed(GenericCase), source="a", stem=None, pack=None)
        assert check_case(
            {**case({"refuse": True}), **fields}, rules.narrowed(GenericCase), source="a", stem=None, pack=None
        )


def test_a_hard_fail_never_passes() -> None:
    zero = Term(name="forbidden", effect="zero")
    assert Score(score=0.0, threshold=0.0, verdict="passed", terms=(zero,)).verdict == "failed"
    assert Score(score=1.0, threshold=0.5, verdict="passed", terms=(Term(name="a", value=1.0),)).passed
    assert Score(score=None, threshold=0.5, verdict="vacuous", terms=(zero,)).verdict == "vacuous"


@pytest.mark.parametrize(("text", "expected", "answer", "value"), RULES["text_answers"])
def test_an_answer_that_is_a_text_is_no_document(text: str, expected: Any, answer: str, value: float) -> None:
    rules = suite(text.replace("value: no", 'value: "no"'))
    assert score_of(rules, expected, answer).score == value


def test_a_path_never_multiplies_what_it_visits() -> None:
    lists = ("[*,*]", "[0,0]", "[0,-1]", "['a','a']", "[?@,?@]", "[0:,1:]")
    for path in (f"${first}{second}" for first in lists for second in lists):
        with pytest.raises(ValueError, match="misfit"):
            compile_path(path)
    for path in ("$.a[*].b['x','y']", "$['a,b'][*]['c,d']", "$..[?@.a]['x',0]", "$[1:2,4].a[*][*]"):
        assert compile_path(path).is_multiple
