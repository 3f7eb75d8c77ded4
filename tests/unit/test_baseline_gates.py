"""Gates against a baseline: the same cases of comparable runs, or the reason why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.analysis.gates import check_run, checked_baseline
from pytest_packbench.packs.agent_safety.metrics import ATTACK_METRICS
from pytest_packbench.runs.stored import BaselineLookup, StoredRun
from tests.unit.run_builders import COMPLETE, case_result, gate, run

if TYPE_CHECKING:
    from random import Random

    from pytest_packbench.model.gate import Gate, GateResult
    from pytest_packbench.model.result import CaseResult

HALF = gate("attack_success_rate", max_ratio_to_baseline=0.5)


def attack_results(unsafe: int, safe: int, *, sha: str = "x", start: int = 0, **changes: Any) -> list[CaseResult]:
    """So many cases that were attacked with and without success."""
    decisions = ["comply_unsafe"] * unsafe + ["refuse"] * safe
    return [
        case_result(f"c{number}", decision=decision, case_sha256=sha, **changes)
        for number, decision in enumerate(decisions, start=start)
    ]


def earlier_run(entries: list[CaseResult], **changes: Any) -> StoredRun:
    return StoredRun(source="f", run=run(run_id="01OLD", **changes), results=tuple(entries))


def only_gate_result(
    found: list[CaseResult], earlier: StoredRun | None, rule: Gate = HALF, **changes: Any
) -> GateResult:
    (result,) = check_run(run(**changes), found, [rule], BaselineLookup(stored=earlier), metrics=ATTACK_METRICS)
    return result


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"suite": "other"}, "suite: 'other' before, 'toy' now"),
        ({"mode": "live"}, "mode: 'live' before, 'fixture' now"),
        ({"suite_sha256": "cd" * 32}, "scoring rules: 'cdcdcdcdcdcd' before, 'abababababab' now"),
        ({"pack_version": "2"}, "pack: 'toy 2' before, 'toy 1' now"),
    ],
)
def test_a_run_of_another_kind_is_no_baseline(changes: dict[str, Any], why: str) -> None:
    result = only_gate_result(attack_results(1, 9), earlier_run(attack_results(9, 1), **changes))
    assert not result.passed
    assert f"1 / 10 = 10.0 %, max 0.5 x baseline: run 01OLD can't be the baseline: {why}, 95 % " in result.text
    assert result.text.endswith(": FAIL")


def test_a_run_with_another_number_of_trials_is_no_baseline() -> None:
    result = only_gate_result(
        attack_results(1, 9), earlier_run([*attack_results(9, 1), *attack_results(9, 1, trial=1)])
    )
    assert "can't be the baseline: trials per case: 2 before, 1 now" in result.text


def test_changed_cases_and_those_of_one_run_do_not_count() -> None:
    now = [*attack_results(1, 9), *attack_results(30, 0, sha="new", start=10), *attack_results(10, 0, start=40)]
    old = [*attack_results(2, 8), *attack_results(0, 30, sha="old", start=10), *attack_results(0, 20, start=60)]
    result = only_gate_result(now, earlier_run(old))
    assert result.passed
    assert result.text.startswith(
        "attack_success_rate 41 / 50 = 82.0 %, 0.50 x the baseline's 2 / 10 = 20.0 % "
        "over the 10 cases in both runs, now 1 / 10 = 10.0 % <= max 0.50 x"
    )


def test_a_case_that_broke_in_one_run_is_no_pair() -> None:
    old = [*attack_results(4, 6), case_result("c10", "error", case_sha256="x")]
    now = [case_result("c0", "error", case_sha256="x"), *attack_results(1, 9, start=1)]
    result = only_gate_result(now, earlier_run(old))
    assert (
        "the baseline's 3 / 9 = 33.3 % over the 9 cases in both runs, now 1 / 9 = 11.1 % <= max 0.50 x" in result.text
    )


def test_nothing_in_common_is_said() -> None:
    for old in (attack_results(5, 5, start=50), attack_results(5, 5, sha="old"), []):
        earlier = earlier_run(old)
        result = only_gate_result(attack_results(0, 10), earlier)
        assert not result.passed
        assert "run 01OLD can't be the baseline: no case is unchanged in both runs" in result.text
        assert checked_baseline(run(), attack_results(0, 10), earlier).unusable


def test_each_group_is_held_against_its_own_cases() -> None:
    now = [
        *attack_results(1, 9, case_type="a"),
        *attack_results(5, 5, case_type="b", start=10),
        *attack_results(0, 5, start=20),
    ]
    old = [*attack_results(2, 8, case_type="a"), *attack_results(5, 5, case_type="b", start=10)]
    rule = gate("attack_success_rate", max_ratio_to_baseline=0.5, by="case_type")
    results = check_run(run(), now, [rule], BaselineLookup(stored=earlier_run(old)), metrics=ATTACK_METRICS)
    assert [(result.value, result.passed) for result in results] == [("a", True), ("b", False), ("plain", False)]
    assert "1.00 x the baseline's 5 / 10 = 50.0 % > max 0.50 x" in results[1].text
    assert "no judged case is unchanged in both runs" in results[2].text


def test_a_baseline_of_nothing_lets_only_nothing_pass() -> None:
    assert only_gate_result(attack_results(0, 10), earlier_run(attack_results(0, 10))).passed
    result = only_gate_result(attack_results(1, 9), earlier_run(attack_results(0, 10)))
    assert not result.passed
    assert "the baseline is 0, so only 0 passes (0 / 10 = 0.0 %)" in result.text


def test_a_limit_besides_counts_all_cases() -> None:
    rule = gate("attack_success_rate", max=0.3, max_ratio_to_baseline=0.5)
    result = only_gate_result(
        [*attack_results(1, 9), *attack_results(9, 1, start=10)], earlier_run(attack_results(2, 8)), rule
    )
    assert not result.passed
    assert "10 / 20 = 50.0 % > max 30.0 %, 0.50 x the baseline's 2 / 10 = 20.0 %" in result.text


def test_a_run_without_a_baseline_says_why() -> None:
    none = BaselineLookup(reason="there is no earlier complete run to compare with")
    (result,) = check_run(run(), attack_results(0, 10), [HALF], none, metrics=ATTACK_METRICS)
    assert "max 0.5 x baseline: there is no earlier complete run to compare with" in result.text
    assert (
        "max 0.5 x baseline: no baseline; pass an earlier run as the baseline"
        in only_gate_result(attack_results(0, 10), None).text
    )


def test_mean_scores_are_held_against_each_other() -> None:
    found = [case_result(f"c{n}", case_sha256="x") for n in range(6)]
    rule = gate("mean_score", max_ratio_to_baseline=1.1)
    result = only_gate_result(
        found, earlier_run([case_result(f"c{n}", "failed", case_sha256="x", score=0.5) for n in range(6)]), rule
    )
    assert result.text == "mean_score 6.00 / 6 = 1.00, 2.00 x the baseline's 3.00 / 6 = 0.50 > max 1.10 x: FAIL"


def test_completeness_of_records_alone_is_not_known() -> None:
    results = check_run(
        run(), attack_results(0, 10), [COMPLETE, gate("pass_rate", min=0.5)], with_errors=False, metrics=ATTACK_METRICS
    )
    assert [result.passed for result in results] == [False, True]
    assert results[0].text.startswith("completeness: unknown, because records alone")
    assert results[0].text.endswith(": FAIL")
    (grouped,) = check_run(
        run(),
        attack_results(0, 10),
        [gate("completeness", min=1.0, by="case_type")],
        with_errors=False,
        metrics=ATTACK_METRICS,
    )
    assert grouped.text.startswith("completeness (by case_type): unknown, because records alone")


ANY = st.lists(
    st.tuples(
        st.sampled_from("abcdefgh"),
        st.sampled_from(["passed", "failed", "error", "not_run"]),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["comply_unsafe", "refuse"]),
    ),
    unique_by=lambda one: one[0],
    max_size=8,
)


def results_of(cases: list[tuple[str, str, str, str]]) -> list[CaseResult]:
    return [case_result(name, verdict, case_sha256=sha, decision=decision) for name, verdict, sha, decision in cases]


@given(ANY, ANY, st.randoms(use_true_random=False), st.sampled_from([None, "case_type"]))
def test_the_order_of_either_run_makes_no_difference(
    now: list[tuple[str, str, str, str]], old: list[tuple[str, str, str, str]], random: Random, by: str | None
) -> None:
    rules = [
        gate("attack_success_rate", max_ratio_to_baseline=0.5, by=by),
        gate("mean_score", max_ratio_to_baseline=1),
    ]
    found = check_run(
        run(), results_of(now), rules, BaselineLookup(stored=earlier_run(results_of(old))), metrics=ATTACK_METRICS
    )
    shuffled = [random.sample(results_of(one), len(one)) for one in (now, old)]
    assert (
        check_run(run(), shuffled[0], rules, BaselineLookup(stored=earlier_run(shuffled[1])), metrics=ATTACK_METRICS)
        == found
    )


@given(ANY)
def test_a_run_is_never_worse_than_itself(now: list[tuple[str, str, str, str]]) -> None:
    found = results_of(now)
    result = only_gate_result(found, earlier_run(found), gate("attack_success_rate", max_ratio_to_baseline=1.0))
    assert result.passed is any(one.counted for one in found)
