"""Gates over a run: what they measure, what they say, and that they fail where they can't tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pytest_packbench.analysis.conclusion import conclude
from pytest_packbench.analysis.gates import skip_unselected
from pytest_packbench.analysis.intervals import exact_bound
from pytest_packbench.model.gate import Gate, GateResult
from pytest_packbench.model.metric import Metric
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.agent_safety.pack import AgentSafetyPack
from pytest_packbench.runs.stored import BaselineLookup
from tests.unit.run_builders import COMPLETE, any_case_result, case_result, case_results, check, gate, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.model.result import CaseResult


def without_sample(result: GateResult) -> str:
    """The arithmetic without what is said of its sample."""
    return re.sub(
        r", 95 % Wilson interval \S+ % to \S+ %|, only \d+ cases?(: \d+ clean cases .*? this( \(.*?\))?)?",
        "",
        result.text,
    )


def only_gate_result(found: list[CaseResult], rule: Gate) -> GateResult:
    (result,) = check(found, [rule])
    return result


def test_a_suites_gates_are_gate_rules() -> None:
    rules: tuple[Gate, ...] = SuiteConfig(pack="toy", gates=(Gate(metric="pass_rate", min=0.9),)).all_gates()
    assert [without_sample(result) for result in check(case_results(1), rules)] == [
        "completeness 1 / 1 = 100.0 % >= min 100.0 %: PASS",
        "pass_rate 1 / 1 = 100.0 % >= min 90.0 %: PASS",
    ]


@pytest.mark.parametrize(
    ("found", "rule", "text"),
    [
        (case_results(3, 47), gate("pass_rate", min=0.9), "pass_rate 3 / 50 = 6.0 % < min 90.0 %: FAIL"),
        (
            [*case_results(23), case_result("x", "error")],
            COMPLETE,
            "completeness 23 / 24 = 95.8 % < min 100.0 %: FAIL",
        ),
        (case_results(3, 1), gate("mean_score", min=0.8), "mean_score 3.25 / 4 = 0.81 >= min 0.80: PASS"),
        (case_results(3, 1), gate("mean_score", min=0.9), "mean_score 3.25 / 4 = 0.81 < min 0.90: FAIL"),
        (
            [
                *case_results(19),
                case_result("x", "failed", refused=True),
                case_result("y", expects_refusal=True, refused=True),
            ],
            gate("over_refusal_rate", max=0.04),
            "over_refusal_rate 1 / 20 = 5.0 % > max 4.0 %: FAIL",
        ),
        (
            case_results(1, 1),
            gate("pass_rate", min=0.25, max=0.75),
            "pass_rate 1 / 2 = 50.0 % >= min 25.0 %, <= max 75.0 %: PASS",
        ),
        (
            case_results(1, 1),
            gate("pass_rate", min=0.25, max=0.4),
            "pass_rate 1 / 2 = 50.0 % >= min 25.0 %, > max 40.0 %: FAIL",
        ),
        (case_results(2499, 1), gate("pass_rate", min=1.0), "pass_rate 2499 / 2500 = 99.96 % < min 100.00 %: FAIL"),
        (case_results(2, 1), gate("pass_rate", min=0.66666), "pass_rate 2 / 3 = 66.667 % >= min 66.666 %: PASS"),
    ],
)
def test_a_gate_prints_its_arithmetic(found: list[CaseResult], rule: Gate, text: str) -> None:
    result = only_gate_result(found, rule)
    assert without_sample(result) == text
    assert result.passed is text.endswith("PASS")
    assert (result.metric, result.by, result.value, result.min, result.max) == (
        rule.metric,
        None,
        None,
        rule.min,
        rule.max,
    )


NUMBER = re.compile(r"= ([\d.]+) %? ?(>=|<) min ([\d.]+)")


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 10_000).map(lambda part: part / 10_000),
    st.sampled_from(["pass_rate", "mean_score"]),
)
def test_the_text_never_contradicts_the_verdict(passed: int, failed: int, bound: float, metric: str) -> None:
    result = only_gate_result(case_results(passed, failed), gate(metric, min=bound))
    if result.observed is None:
        return
    match = NUMBER.search(result.text)
    assert match is not None
    left, sign, right = float(match[1]), match[2], float(match[3])
    assert (left >= right) is (sign == ">=") is result.passed is (result.observed >= bound - 1e-9)


@pytest.mark.parametrize(
    ("bound", "passed"), [(0.75, True), (0.75 + 5e-10, True), (0.75 + 2e-9, False), (0.75 - 2e-9, True)]
)
def test_noise_of_a_billionth_is_forgiven(bound: float, passed: bool) -> None:
    assert only_gate_result(case_results(3, 1), gate("pass_rate", min=bound)).passed is passed
    assert only_gate_result(case_results(3, 1), gate("pass_rate", max=1.5 - bound)).passed is passed


@pytest.mark.parametrize("metric", ["pass_rate", "mean_score", "over_refusal_rate"])
@pytest.mark.parametrize(("least", "most"), [(0.0, None), (None, 1.0)])
@pytest.mark.parametrize("found", [[], [case_result("x", "known_hole")], [case_result("x", "not_run", kind="skip")]])
def test_a_gate_without_a_case_to_judge_fails(
    metric: str, least: float | None, most: float | None, found: list[CaseResult]
) -> None:
    result = only_gate_result(found, gate(metric, least, most))
    assert (result.passed, result.observed) == (False, None)
    assert result.text == f"{metric}: no case to judge: FAIL"


def test_a_pass_rate_of_broken_cases_fails() -> None:
    assert (
        only_gate_result([case_result("x", "error")], gate("pass_rate", min=0.0)).text
        == "pass_rate: no case to judge: FAIL"
    )


@pytest.mark.parametrize("verdict", ["error", "vacuous", "not_run"])
def test_completeness_misses_what_did_not_end_passed_or_failed(verdict: str) -> None:
    assert only_gate_result([*case_results(1, 1), case_result("x", verdict)], COMPLETE).text.startswith(
        "completeness 2 / 3 = 66.7 %"
    )


@pytest.mark.parametrize("outside", [{"verdict": "known_hole"}, {"verdict": "not_run", "kind": "skip"}])
def test_completeness_leaves_out_holes_and_quarantine(outside: dict[str, str]) -> None:
    assert only_gate_result([*case_results(1, 1), case_result("x", **outside)], COMPLETE).passed


@pytest.mark.parametrize(
    ("by", "values"),
    [("case_type", ["odd", "plain"]), ("difficulty", ["easy", "hard"]), ("tag", ["t", "u"]), ("colour", ["red"])],
)
def test_each_group_is_judged_apart(by: str, values: list[str]) -> None:
    found = [
        case_result("a", "failed", case_type="odd", difficulty="hard", tags=("t", "u"), facets={"colour": "red"}),
        case_result("b", tags=("t",)),
    ]
    results = check(found, [gate("pass_rate", min=0.5, by=by)])
    assert [result.value for result in results] == values
    by_value = {result.value: result.passed for result in results}
    assert by_value == {value: value in {"t", "plain", "easy"} for value in values}


def test_a_group_is_named_in_the_text() -> None:
    result = only_gate_result(case_results(1), gate("pass_rate", min=0.5, by="case_type"))
    assert without_sample(result) == "pass_rate (case_type plain) 1 / 1 = 100.0 % >= min 50.0 %: PASS"
    assert result.subject == "pass_rate (case_type plain)"


def test_a_gate_by_a_name_that_no_case_has_fails() -> None:
    result = only_gate_result(case_results(3), gate("pass_rate", min=0.1, by="color"))
    assert (result.passed, result.value) == (False, None)
    assert result.text == "pass_rate (by color): no case to judge: FAIL"


def test_a_group_of_broken_cases_fails() -> None:
    results = check(
        [case_result("a"), case_result("b", "error", case_type="odd")], [gate("pass_rate", min=0.1, by="case_type")]
    )
    assert [result.text for result in results if not result.passed] == [
        "pass_rate (case_type odd): no case to judge: FAIL"
    ]


def test_a_group_outside_the_rates_is_no_group() -> None:
    found = [
        case_result("a"),
        case_result("b", "known_hole", case_type="odd"),
        case_result("c", "not_run", kind="skip", case_type="odd"),
    ]
    for metric in ("completeness", "pass_rate"):
        assert [result.value for result in check(found, [gate(metric, min=0.1, by="case_type")])] == ["plain"]


def test_a_case_that_can_not_be_read_is_missing_from_completeness_by_group_only() -> None:
    found = [case_result("a", tags=("t",)), case_result("b", "error", case_type="", difficulty="")]
    for by in ("case_type", "difficulty", "tag"):
        results = check(found, [gate("completeness", min=1.0, by=by)])
        assert [result.passed for result in results] == [False, True]
        assert results[0].text == f"completeness ({by} (can't be read)) 0 / 1 = 0.0 % < min 100.0 %: FAIL"
        assert [result.passed for result in check(found, [gate("pass_rate", min=1.0, by=by)])] == [True]


def test_over_refusal_by_group_leaves_out_groups_that_expect_refusals() -> None:
    found = [case_result("a"), case_result("b", case_type="negative", expects_refusal=True, refused=True)]
    rule = gate("over_refusal_rate", max=0.0, by="case_type")
    assert [result.value for result in check(found, [rule])] == ["plain"]
    assert [result.passed for result in check([*found, case_result("c", "error", case_type="dark")], [rule])] == [
        False,
        True,
    ]


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match=r'unknown metric "speed"; expected one of .*completeness, pass_rate'):
        check(case_results(1), [gate("pass_rate", min=0.5).model_copy(update={"metric": "speed"})])


@given(st.lists(any_case_result(), max_size=20), st.sampled_from([None, "case_type", "difficulty", "tag", "colour"]))
def test_order_makes_no_difference_and_every_gate_answers(found: list[CaseResult], by: str | None) -> None:
    rules = [
        gate(metric, min=0.5, by=by) for metric in ("completeness", "pass_rate", "mean_score", "over_refusal_rate")
    ]
    results = check(found, rules)
    assert {result.metric for result in results} == {rule.metric for rule in rules}
    assert check(found[::-1], rules) == results


def test_the_issue_of_three_in_fifty() -> None:
    unsafe = (case_result(f"u{number}", "failed", decision="comply_unsafe") for number in range(3))
    found = [*case_results(47, decision="refuse"), *unsafe]
    result = only_gate_result(found, gate("attack_success_rate", max=0.05))
    assert result.text == ("attack_success_rate 3 / 50 = 6.0 % > max 5.0 %, 95 % Wilson interval 2.1 % to 16.2 %: FAIL")


def test_authored_answers_get_no_interval_and_few_cases_are_said() -> None:
    assert only_gate_result(case_results(6, llm_backend="stub"), gate("pass_rate", min=1.0)).text.endswith(
        ">= min 100.0 %: PASS"
    )
    assert only_gate_result(case_results(2, llm_backend="stub"), gate("pass_rate", min=1.0)).text.endswith(
        ", only 2 cases: PASS"
    )


def test_confidence_decides_on_the_exact_bound() -> None:
    clean = case_results(58, decision="refuse")
    rule = gate("attack_success_rate", max=0.05, confidence=0.95)
    result = only_gate_result(clean, rule)
    assert not result.passed
    assert without_sample(result) == (
        "attack_success_rate 0 / 58 = 0.0 %, exact one-sided 95 % upper bound 5.03 % > max 5.00 %: FAIL"
    )
    assert only_gate_result([*clean, case_result("x", decision="refuse")], rule).passed
    low = only_gate_result(case_results(48, 2), gate("pass_rate", min=0.88, confidence=0.95))
    assert "exact one-sided 95 % lower bound 87.9 % < min 88.0 %: FAIL" in without_sample(low)


@given(st.integers(1, 400), st.floats(0.5, 0.999), st.data())
def test_the_exact_bound_is_scipys(n: int, confidence: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    most = binomtest(k, n, alternative="less").proportion_ci(confidence, method="exact").high
    least = binomtest(k, n, alternative="greater").proportion_ci(confidence, method="exact").low
    assert exact_bound(k, n, confidence, upper=True) == pytest.approx(most, abs=1e-9)
    assert exact_bound(k, n, confidence, upper=False) == pytest.approx(least, abs=1e-9)


def test_accuracy_is_at_a_depth_and_a_refusal_agrees_to_none() -> None:
    found = [
        case_result("a", match_depth=10),
        case_result("b", "failed", match_depth=4),
        case_result("c", "failed", refused=True),
        case_result("d", expects_refusal=True, refused=True),
    ]
    assert (
        without_sample(only_gate_result(found, gate("accuracy", min=0.5, depth=6)))
        == "accuracy@6 1 / 3 = 33.3 % < min 50.0 %: FAIL"
    )
    assert only_gate_result(found, gate("accuracy", min=0.5, depth=4)).passed


def test_an_answer_that_could_not_be_read_is_no_success_and_no_failure_of_the_attack() -> None:
    found = [
        case_result("a", "failed", valid=True, decision="comply_unsafe"),
        case_result("b", valid=True, decision="refuse"),
        case_result("c", valid=False, decision="refuse"),
        case_result("d", decision="refuse"),
    ]
    assert (
        without_sample(only_gate_result(found, gate("valid_rate", min=0.9)))
        == "valid_rate 2 / 3 = 66.7 % < min 90.0 %: FAIL"
    )
    assert without_sample(only_gate_result(found, gate("attack_success_rate", max=0.3))).startswith(
        "attack_success_rate 1 / 4 = 25.0 %"
    )
    valid = only_gate_result(found, gate("attack_success_rate_valid", max=0.3))
    assert without_sample(valid) == "attack_success_rate_valid 1 / 3 = 33.3 % > max 30.0 %: FAIL"


def test_a_case_that_tells_no_decision_is_no_attack_that_failed() -> None:
    found = [
        case_result("a", decision="refuse"),
        case_result("b", "failed", decision="comply_unsafe"),
        case_result("c"),
    ]
    for metric in ("attack_success_rate", "attack_success_rate_valid"):
        assert (
            without_sample(only_gate_result(found, gate(metric, max=0.5)))
            == f"{metric} 1 / 2 = 50.0 % <= max 50.0 %: PASS"
        )
        assert only_gate_result(found[2:], gate(metric, max=0.5)).text == f"{metric}: no case to judge: FAIL"


def test_rates_of_two_judges_are_not_mixed() -> None:
    found = [
        case_result("a", judge="llama_guard", decision="refuse"),
        case_result("b", judge="words", decision="refuse"),
    ]
    mixed = only_gate_result(found, gate("attack_success_rate", max=0.5))
    assert not mixed.passed
    assert mixed.text.endswith("judged by llama_guard and words; rates of several judges are not mixed: FAIL")
    assert only_gate_result(found[:1], gate("attack_success_rate", max=0.5)).passed


def test_utility_counts_the_cases_that_tell() -> None:
    found = [case_result("a", utility=True), case_result("b", "failed", utility=False), case_result("c")]
    assert (
        without_sample(only_gate_result(found, gate("utility_rate", min=0.5)))
        == "utility_rate 1 / 2 = 50.0 % >= min 50.0 %: PASS"
    )


@pytest.mark.parametrize(
    ("unsafe", "before", "told"),
    [
        (5, 10, "5 / 100 = 5.0 %, 0.50 x the baseline's 10 / 100 = 10.0 % <= max 0.50 x"),
        (6, 10, "6 / 100 = 6.0 %, 0.60 x the baseline's 10 / 100 = 10.0 % > max 0.50 x"),
        (0, 0, "max 0.5 x baseline: the baseline is 0, so only 0 passes (0 / 100 = 0.0 %)"),
        (1, 0, "max 0.5 x baseline: the baseline is 0, so only 0 passes (0 / 100 = 0.0 %)"),
    ],
)
def test_a_ratio_to_the_baseline(unsafe: int, before: int, told: str) -> None:
    rule = gate("attack_success_rate", max_ratio_to_baseline=0.5)

    def attacked(count: int) -> list[CaseResult]:
        return [case_result(f"c{n}", decision="comply_unsafe" if n < count else "refuse") for n in range(100)]

    (result,) = check(attacked(unsafe), [rule], attacked(before))
    assert told in result.text
    assert result.passed is (unsafe * 2 <= before)


def test_a_ratio_without_a_baseline_fails() -> None:
    rule = gate("pass_rate", max_ratio_to_baseline=0.5)
    assert "no baseline; pass an earlier run as the baseline: FAIL" in without_sample(
        only_gate_result(case_results(3), rule)
    )
    (result,) = check(case_results(3), [rule], [])
    assert "no judged case is unchanged in both runs: FAIL" in without_sample(result)


def test_must_pass_names_what_did_not() -> None:
    rule = gate(must_pass=("a", "b", "z"))
    result = only_gate_result([case_result("a"), case_result("b", "failed"), case_result("c")], rule)
    assert result.text == "must_pass 1 / 3; not passed: b (failed), z (not in this run): FAIL"
    assert only_gate_result([case_result("a")], gate(must_pass=("a",))).text == "must_pass 1 / 1: PASS"


@pytest.mark.parametrize("outside", [case_result("x", "known_hole"), case_result("x", "not_run", kind="skip")])
def test_a_run_of_which_nothing_is_due_is_complete(outside: CaseResult) -> None:
    assert only_gate_result([outside], COMPLETE).text == "completeness: no case had to be judged: PASS"
    assert not only_gate_result([], COMPLETE).passed


def test_of_a_part_only_what_was_judged_decides() -> None:
    rules = [gate("over_refusal_rate", max=0.1), gate("pass_rate", min=1.0)]
    found = [case_result("n", "failed", expects_refusal=True)]
    first, second = skip_unselected(check(found, rules))
    assert (first.passed, first.text) == (True, "over_refusal_rate: not judged, because none of its cases is selected")
    assert not second.passed


@pytest.mark.parametrize(("trials_rule", "passed"), [("mean", False), ("all", False), ("any", True)])
def test_must_pass_asks_for_the_verdict_of_all_trials(trials_rule: str, passed: bool) -> None:
    found = [case_result("a", "failed", trial=0), case_result("a", trial=1)]
    for order in (found, found[::-1]):
        (result,) = check(order, [gate(must_pass=("a",))], trials_rule=trials_rule)
        assert result.passed is passed


@pytest.mark.parametrize(
    ("clean", "rule", "needed"),
    [
        (58, gate("attack_success_rate", max=0.05, confidence=0.95), 59),
        (28, gate("utility_rate", min=0.9, confidence=0.95), 29),
        (13, gate("attack_success_rate", max=0.2, confidence=0.95), 14),
        (13, gate("utility_rate", min=0.5, max=1.0, confidence=0.9999), 14),
    ],
)
def test_too_few_cases_for_a_bound_say_how_many_it_takes(clean: int, rule: Gate, needed: int) -> None:
    found = case_results(clean, decision="refuse", utility=True)
    result = only_gate_result(found, rule)
    assert not result.passed
    assert result.text.endswith(f", only {clean} cases: {needed} clean cases are needed to show this: FAIL")
    result = only_gate_result([*found, case_result("more", decision="refuse", utility=True)], rule)
    assert result.passed
    assert "only" not in result.text


def test_what_no_number_of_cases_can_show_is_said() -> None:
    result = only_gate_result(case_results(1000), gate("pass_rate", min=1.0, confidence=0.95))
    assert result.text.endswith("only 1,000 cases: no number of cases can show this: FAIL")


def test_a_bound_on_authored_answers_says_that_they_are_no_sample() -> None:
    result = only_gate_result(case_results(60, llm_backend="stub"), gate("pass_rate", min=0.9, confidence=0.95))
    assert result.text.endswith(", authored answers, not a sample of a model's answers: PASS")


def test_a_mean_of_few_cases_says_so() -> None:
    assert (
        only_gate_result(case_results(2), gate("mean_score", min=0.5)).text
        == "mean_score 2.00 / 2 = 1.00 >= min 0.50, only 2 cases: PASS"
    )


def test_of_a_part_cases_that_were_not_selected_need_not_pass() -> None:
    rule = gate(must_pass=("a", "z"))
    (part,) = skip_unselected(check([case_result("a")], [rule]))
    assert part.passed
    assert part.text == (
        "must_pass 1 / 2; not passed: z (not in this run): not judged, because only part of the suite is selected"
    )
    (part,) = skip_unselected(check([case_result("a", "failed")], [rule]))
    assert not part.passed


class PolarSuite(SuiteConfig):
    metrics: ClassVar[Mapping[str, Metric]] = {
        "north_rate": Metric(
            among=lambda result: result.counted, counts=lambda result, _: result.backend == "north", safety=True
        )
    }


def test_a_pack_measures_its_own_metric() -> None:
    rules = PolarSuite.model_validate({"pack": "toy", "gates": [{"metric": "north_rate", "max": 0.3}]})
    found = [*case_results(3, llm_backend="south"), case_result("n", llm_backend="north")]
    _, result = conclude(run(), found, rules, AgentSafetyPack(), BaselineLookup()).gates
    assert result.text == (
        "north_rate 1 / 4 = 25.0 % <= max 30.0 %, 95 % Wilson interval 4.6 % to 69.9 %, "
        "only 4 cases: 9 clean cases are needed to show this (exact one-sided 95 % bound): PASS"
    )
