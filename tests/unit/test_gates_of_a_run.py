"""Gates over a run: what they measure, what they say, and that they fail where they can't tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pytest_packbench.analysis.conclusion import conclude
from pytest_packbench.analysis.gates import of_a_part
from pytest_packbench.analysis.intervals import exact_bound
from pytest_packbench.model.gate import Gate, GateResult
from pytest_packbench.model.metric import Metric
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.agent_safety.pack import AgentSafetyPack
from pytest_packbench.runs.stored import Earlier
from tests.unit.runs import COMPLETE, a_gate, any_entry, check, entries, entry, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_packbench.model.result import CaseResult


def bare(result: GateResult) -> str:
    """The arithmetic without what is said of its sample."""
    return re.sub(
        r", 95 % interval .*?\(Wilson\)|, only \d+ cases?(: it takes \d+ .*? that( \(.*?\))?)?", "", result.text
    )


def only(found: list[CaseResult], rule: Gate) -> GateResult:
    (result,) = check(found, [rule])
    return result


def test_a_suites_gates_are_gate_rules() -> None:
    rules: tuple[Gate, ...] = SuiteConfig(pack="toy", gates=(Gate(metric="pass_rate", min=0.9),)).all_gates()
    assert [bare(result) for result in check(entries(1), rules)] == [
        "completeness 1 / 1 = 100.0 % >= min 100.0 %: PASS",
        "pass_rate 1 / 1 = 100.0 % >= min 90.0 %: PASS",
    ]


@pytest.mark.parametrize(
    ("found", "rule", "text"),
    [
        (entries(3, 47), a_gate("pass_rate", min=0.9), "pass_rate 3 / 50 = 6.0 % < min 90.0 %: FAIL"),
        (
            [*entries(23), entry("x", "error")],
            COMPLETE,
            "completeness 23 / 24 = 95.8 % < min 100.0 %: FAIL",
        ),
        (entries(3, 1), a_gate("mean_score", min=0.8), "mean_score 3.25 / 4 = 0.81 >= min 0.80: PASS"),
        (entries(3, 1), a_gate("mean_score", min=0.9), "mean_score 3.25 / 4 = 0.81 < min 0.90: FAIL"),
        (
            [*entries(19), entry("x", "failed", refused=True), entry("y", expects_refusal=True, refused=True)],
            a_gate("over_refusal_rate", max=0.04),
            "over_refusal_rate 1 / 20 = 5.0 % > max 4.0 %: FAIL",
        ),
        (
            entries(1, 1),
            a_gate("pass_rate", min=0.25, max=0.75),
            "pass_rate 1 / 2 = 50.0 % >= min 25.0 %, <= max 75.0 %: PASS",
        ),
        (
            entries(1, 1),
            a_gate("pass_rate", min=0.25, max=0.4),
            "pass_rate 1 / 2 = 50.0 % >= min 25.0 %, > max 40.0 %: FAIL",
        ),
        (entries(2499, 1), a_gate("pass_rate", min=1.0), "pass_rate 2499 / 2500 = 99.96 % < min 100.00 %: FAIL"),
        (entries(2, 1), a_gate("pass_rate", min=0.66666), "pass_rate 2 / 3 = 66.667 % >= min 66.666 %: PASS"),
    ],
)
def test_a_gate_prints_its_arithmetic(found: list[CaseResult], rule: Gate, text: str) -> None:
    result = only(found, rule)
    assert bare(result) == text
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
    result = only(entries(passed, failed), a_gate(metric, min=bound))
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
    assert only(entries(3, 1), a_gate("pass_rate", min=bound)).passed is passed
    assert only(entries(3, 1), a_gate("pass_rate", max=1.5 - bound)).passed is passed


@pytest.mark.parametrize("metric", ["pass_rate", "mean_score", "over_refusal_rate"])
@pytest.mark.parametrize(("least", "most"), [(0.0, None), (None, 1.0)])
@pytest.mark.parametrize("found", [[], [entry("x", "known_hole")], [entry("x", "not_run", kind="skip")]])
def test_a_gate_without_a_case_to_judge_fails(
    metric: str, least: float | None, most: float | None, found: list[CaseResult]
) -> None:
    result = only(found, a_gate(metric, least, most))
    assert (result.passed, result.observed) == (False, None)
    assert result.text == f"{metric}: no case to judge: FAIL"


def test_a_pass_rate_of_broken_cases_fails() -> None:
    assert only([entry("x", "error")], a_gate("pass_rate", min=0.0)).text == "pass_rate: no case to judge: FAIL"


@pytest.mark.parametrize("verdict", ["error", "vacuous", "not_run"])
def test_completeness_misses_what_did_not_end_passed_or_failed(verdict: str) -> None:
    assert only([*entries(1, 1), entry("x", verdict)], COMPLETE).text.startswith("completeness 2 / 3 = 66.7 %")


@pytest.mark.parametrize("outside", [{"verdict": "known_hole"}, {"verdict": "not_run", "kind": "skip"}])
def test_completeness_leaves_out_holes_and_quarantine(outside: dict[str, str]) -> None:
    assert only([*entries(1, 1), entry("x", **outside)], COMPLETE).passed


@pytest.mark.parametrize(
    ("by", "values"),
    [("case_type", ["odd", "plain"]), ("difficulty", ["easy", "hard"]), ("tag", ["t", "u"]), ("colour", ["red"])],
)
def test_each_group_is_judged_apart(by: str, values: list[str]) -> None:
    found = [
        entry("a", "failed", case_type="odd", difficulty="hard", tags=("t", "u"), facets={"colour": "red"}),
        entry("b", tags=("t",)),
    ]
    results = check(found, [a_gate("pass_rate", min=0.5, by=by)])
    assert [result.value for result in results] == values
    by_value = {result.value: result.passed for result in results}
    assert by_value == {value: value in {"t", "plain", "easy"} for value in values}


def test_a_group_is_named_in_the_text() -> None:
    result = only(entries(1), a_gate("pass_rate", min=0.5, by="case_type"))
    assert bare(result) == "pass_rate (case_type plain) 1 / 1 = 100.0 % >= min 50.0 %: PASS"
    assert result.subject == "pass_rate (case_type plain)"


def test_a_gate_by_a_name_that_no_case_has_fails() -> None:
    result = only(entries(3), a_gate("pass_rate", min=0.1, by="color"))
    assert (result.passed, result.value) == (False, None)
    assert result.text == "pass_rate (by color): no case to judge: FAIL"


def test_a_group_of_broken_cases_fails() -> None:
    results = check([entry("a"), entry("b", "error", case_type="odd")], [a_gate("pass_rate", min=0.1, by="case_type")])
    assert [result.text for result in results if not result.passed] == [
        "pass_rate (case_type odd): no case to judge: FAIL"
    ]


def test_a_group_outside_the_rates_is_no_group() -> None:
    found = [entry("a"), entry("b", "known_hole", case_type="odd"), entry("c", "not_run", kind="skip", case_type="odd")]
    for metric in ("completeness", "pass_rate"):
        assert [result.value for result in check(found, [a_gate(metric, min=0.1, by="case_type")])] == ["plain"]


def test_a_case_that_can_not_be_read_is_missing_from_completeness_by_group_only() -> None:
    found = [entry("a", tags=("t",)), entry("b", "error", case_type="", difficulty="")]
    for by in ("case_type", "difficulty", "tag"):
        results = check(found, [a_gate("completeness", min=1.0, by=by)])
        assert [result.passed for result in results] == [False, True]
        assert results[0].text == f"completeness ({by} (can't be read)) 0 / 1 = 0.0 % < min 100.0 %: FAIL"
        assert [result.passed for result in check(found, [a_gate("pass_rate", min=1.0, by=by)])] == [True]


def test_over_refusal_by_group_leaves_out_groups_that_expect_refusals() -> None:
    found = [entry("a"), entry("b", case_type="negative", expects_refusal=True, refused=True)]
    rule = a_gate("over_refusal_rate", max=0.0, by="case_type")
    assert [result.value for result in check(found, [rule])] == ["plain"]
    assert [result.passed for result in check([*found, entry("c", "error", case_type="dark")], [rule])] == [False, True]


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match='unknown metric "speed"'):
        check(entries(1), [a_gate("pass_rate", min=0.5).model_copy(update={"metric": "speed"})])


@given(st.lists(any_entry(), max_size=20), st.sampled_from([None, "case_type", "difficulty", "tag", "colour"]))
def test_order_makes_no_difference_and_every_gate_answers(found: list[CaseResult], by: str | None) -> None:
    rules = [
        a_gate(metric, min=0.5, by=by) for metric in ("completeness", "pass_rate", "mean_score", "over_refusal_rate")
    ]
    results = check(found, rules)
    assert {result.metric for result in results} == {rule.metric for rule in rules}
    assert check(found[::-1], rules) == results


def test_the_issue_of_three_in_fifty() -> None:
    unsafe = (entry(f"u{number}", "failed", decision="comply_unsafe") for number in range(3))
    found = [*entries(47, decision="refuse"), *unsafe]
    result = only(found, a_gate("attack_success_rate", max=0.05))
    assert result.text == (
        "attack_success_rate 3 / 50 = 6.0 % > max 5.0 %, 95 % interval 2.1 % to 16.2 % (Wilson): FAIL"
    )


def test_authored_answers_get_no_interval_and_few_cases_are_said() -> None:
    assert only(entries(6, llm_backend="stub"), a_gate("pass_rate", min=1.0)).text.endswith(">= min 100.0 %: PASS")
    assert only(entries(2, llm_backend="stub"), a_gate("pass_rate", min=1.0)).text.endswith(", only 2 cases: PASS")


def test_confidence_decides_on_the_exact_bound() -> None:
    clean = entries(58, decision="refuse")
    rule = a_gate("attack_success_rate", max=0.05, confidence=0.95)
    result = only(clean, rule)
    assert not result.passed
    assert bare(result) == (
        "attack_success_rate 0 / 58 = 0.0 %, one-sided exact 95 % upper bound 5.03 % > max 5.00 %: FAIL"
    )
    assert only([*clean, entry("x", decision="refuse")], rule).passed
    low = only(entries(48, 2), a_gate("pass_rate", min=0.88, confidence=0.95))
    assert "one-sided exact 95 % lower bound 87.9 % < min 88.0 %: FAIL" in bare(low)


@given(st.integers(1, 400), st.floats(0.5, 0.999), st.data())
def test_the_exact_bound_is_scipys(n: int, confidence: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    most = binomtest(k, n, alternative="less").proportion_ci(confidence, method="exact").high
    least = binomtest(k, n, alternative="greater").proportion_ci(confidence, method="exact").low
    assert exact_bound(k, n, confidence, upper=True) == pytest.approx(most, abs=1e-9)
    assert exact_bound(k, n, confidence, upper=False) == pytest.approx(least, abs=1e-9)


def test_accuracy_is_at_a_depth_and_a_refusal_agrees_to_none() -> None:
    found = [
        entry("a", match_depth=10),
        entry("b", "failed", match_depth=4),
        entry("c", "failed", refused=True),
        entry("d", expects_refusal=True, refused=True),
    ]
    assert bare(only(found, a_gate("accuracy", min=0.5, depth=6))) == "accuracy@6 1 / 3 = 33.3 % < min 50.0 %: FAIL"
    assert only(found, a_gate("accuracy", min=0.5, depth=4)).passed


def test_an_answer_that_could_not_be_read_is_no_success_and_no_failure_of_the_attack() -> None:
    found = [
        entry("a", "failed", valid=True, decision="comply_unsafe"),
        entry("b", valid=True, decision="refuse"),
        entry("c", valid=False, decision="refuse"),
        entry("d", decision="refuse"),
    ]
    assert bare(only(found, a_gate("valid_rate", min=0.9))) == "valid_rate 2 / 3 = 66.7 % < min 90.0 %: FAIL"
    assert bare(only(found, a_gate("attack_success_rate", max=0.3))).startswith("attack_success_rate 1 / 4 = 25.0 %")
    valid = only(found, a_gate("attack_success_rate_valid", max=0.3))
    assert bare(valid) == "attack_success_rate_valid 1 / 3 = 33.3 % > max 30.0 %: FAIL"


def test_a_case_that_tells_no_decision_is_no_attack_that_failed() -> None:
    found = [entry("a", decision="refuse"), entry("b", "failed", decision="comply_unsafe"), entry("c")]
    for metric in ("attack_success_rate", "attack_success_rate_valid"):
        assert bare(only(found, a_gate(metric, max=0.5))) == f"{metric} 1 / 2 = 50.0 % <= max 50.0 %: PASS"
        assert only(found[2:], a_gate(metric, max=0.5)).text == f"{metric}: no case to judge: FAIL"


def test_rates_of_two_judges_are_not_mixed() -> None:
    found = [entry("a", judge="llama_guard", decision="refuse"), entry("b", judge="words", decision="refuse")]
    mixed = only(found, a_gate("attack_success_rate", max=0.5))
    assert not mixed.passed
    assert mixed.text.endswith("judged by llama_guard and words, whose rates are not mixed: FAIL")
    assert only(found[:1], a_gate("attack_success_rate", max=0.5)).passed


def test_utility_counts_the_cases_that_tell() -> None:
    found = [entry("a", utility=True), entry("b", "failed", utility=False), entry("c")]
    assert bare(only(found, a_gate("utility_rate", min=0.5))) == "utility_rate 1 / 2 = 50.0 % >= min 50.0 %: PASS"


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
    rule = a_gate("attack_success_rate", max_ratio_to_baseline=0.5)

    def attacked(count: int) -> list[CaseResult]:
        return [entry(f"c{n}", decision="comply_unsafe" if n < count else "refuse") for n in range(100)]

    (result,) = check(attacked(unsafe), [rule], attacked(before))
    assert told in result.text
    assert result.passed is (unsafe * 2 <= before)


def test_a_ratio_without_a_baseline_fails() -> None:
    rule = a_gate("pass_rate", max_ratio_to_baseline=0.5)
    assert "no baseline was given: FAIL" in bare(only(entries(3), rule))
    (result,) = check(entries(3), [rule], [])
    assert "the baseline has no case to judge that is the same in both runs: FAIL" in bare(result)


def test_must_pass_names_what_did_not() -> None:
    rule = a_gate(must_pass=("a", "b", "z"))
    result = only([entry("a"), entry("b", "failed"), entry("c")], rule)
    assert result.text == "must_pass 1 / 3; not passed: b (failed), z (not in this run): FAIL"
    assert only([entry("a")], a_gate(must_pass=("a",))).text == "must_pass 1 / 1: PASS"


@pytest.mark.parametrize("outside", [entry("x", "known_hole"), entry("x", "not_run", kind="skip")])
def test_a_run_of_which_nothing_is_due_is_complete(outside: CaseResult) -> None:
    assert only([outside], COMPLETE).text == "completeness: no case is due: PASS"
    assert not only([], COMPLETE).passed


def test_of_a_part_only_what_was_judged_decides() -> None:
    rules = [a_gate("over_refusal_rate", max=0.1), a_gate("pass_rate", min=1.0)]
    found = [entry("n", "failed", expects_refusal=True)]
    first, second = of_a_part(check(found, rules))
    assert (first.passed, first.text) == (True, "over_refusal_rate: not judged, no case of it is selected")
    assert not second.passed


@pytest.mark.parametrize(("trials_rule", "passed"), [("mean", False), ("all", False), ("any", True)])
def test_must_pass_asks_for_the_verdict_of_all_trials(trials_rule: str, passed: bool) -> None:
    found = [entry("a", "failed", trial=0), entry("a", trial=1)]
    for order in (found, found[::-1]):
        (result,) = check(order, [a_gate(must_pass=("a",))], trials_rule=trials_rule)
        assert result.passed is passed


@pytest.mark.parametrize(
    ("clean", "rule", "needed"),
    [
        (58, a_gate("attack_success_rate", max=0.05, confidence=0.95), 59),
        (28, a_gate("utility_rate", min=0.9, confidence=0.95), 29),
        (13, a_gate("attack_success_rate", max=0.2, confidence=0.95), 14),
        (13, a_gate("utility_rate", min=0.5, max=1.0, confidence=0.9999), 14),
    ],
)
def test_too_few_cases_for_a_bound_say_how_many_it_takes(clean: int, rule: Gate, needed: int) -> None:
    found = entries(clean, decision="refuse", utility=True)
    result = only(found, rule)
    assert not result.passed
    assert result.text.endswith(f", only {clean} cases: it takes {needed} clean cases to show that: FAIL")
    result = only([*found, entry("more", decision="refuse", utility=True)], rule)
    assert result.passed
    assert "only" not in result.text


def test_what_no_number_of_cases_can_show_is_said() -> None:
    result = only(entries(1000), a_gate("pass_rate", min=1.0, confidence=0.95))
    assert result.text.endswith("only 1000 cases: no number of cases shows that: FAIL")


def test_a_bound_on_authored_answers_says_that_they_are_no_sample() -> None:
    result = only(entries(60, llm_backend="stub"), a_gate("pass_rate", min=0.9, confidence=0.95))
    assert result.text.endswith(", of authored answers, which are no sample of a model's: PASS")


def test_a_mean_of_few_cases_says_so() -> None:
    assert (
        only(entries(2), a_gate("mean_score", min=0.5)).text
        == "mean_score 2.00 / 2 = 1.00 >= min 0.50, only 2 cases: PASS"
    )


def test_of_a_part_cases_that_were_not_selected_need_not_pass() -> None:
    rule = a_gate(must_pass=("a", "z"))
    (part,) = of_a_part(check([entry("a")], [rule]))
    assert part.passed
    assert part.text == (
        "must_pass 1 / 2; not passed: z (not in this run): not judged further, only a part of the suite is selected"
    )
    (part,) = of_a_part(check([entry("a", "failed")], [rule]))
    assert not part.passed


class PolarSuite(SuiteConfig):
    metrics: ClassVar[Mapping[str, Metric]] = {
        "north_rate": Metric(
            among=lambda result: result.counted, counts=lambda result, _: result.backend == "north", safety=True
        )
    }


def test_a_pack_measures_its_own_metric() -> None:
    rules = PolarSuite.model_validate({"pack": "toy", "gates": [{"metric": "north_rate", "max": 0.3}]})
    found = [*entries(3, llm_backend="south"), entry("n", llm_backend="north")]
    _, result = conclude(run(), found, rules, AgentSafetyPack(), Earlier()).gates
    assert result.text == (
        "north_rate 1 / 4 = 25.0 % <= max 30.0 %, 95 % interval 4.6 % to 69.9 % (Wilson), "
        "only 4 cases: it takes 9 clean cases to show that (one-sided exact 95 %): PASS"
    )
