"""Gates against a baseline: the same cases of comparable runs, or the reason why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.analysis.gates import baseline_for, check_run
from pytest_packbench.runs.stored import BaselineLookup, StoredRun
from tests.unit.runs import COMPLETE, a_gate, entry, run

if TYPE_CHECKING:
    from random import Random

    from pytest_packbench.model.gate import Gate, GateResult
    from pytest_packbench.model.result import CaseResult

HALF = a_gate("attack_success_rate", max_ratio_to_baseline=0.5)


def attacked(unsafe: int, safe: int, *, sha: str = "x", start: int = 0, **changes: Any) -> list[CaseResult]:
    """So many cases that were attacked with and without success."""
    decisions = ["comply_unsafe"] * unsafe + ["refuse"] * safe
    return [
        entry(f"c{number}", decision=decision, case_sha256=sha, **changes)
        for number, decision in enumerate(decisions, start=start)
    ]


def before(entries: list[CaseResult], **changes: Any) -> StoredRun:
    return StoredRun(source="f", run=run(run_id="01OLD", **changes), results=tuple(entries))


def only(found: list[CaseResult], earlier: StoredRun | None, rule: Gate = HALF, **changes: Any) -> GateResult:
    (result,) = check_run(run(**changes), found, [rule], BaselineLookup(stored=earlier))
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
    result = only(attacked(1, 9), before(attacked(9, 1), **changes))
    assert not result.passed
    assert f"1 / 10 = 10.0 %, max 0.5 x baseline: run 01OLD can't be the baseline: {why}, 95 % " in result.text
    assert result.text.endswith(": FAIL")


def test_a_run_with_another_number_of_trials_is_no_baseline() -> None:
    result = only(attacked(1, 9), before([*attacked(9, 1), *attacked(9, 1, trial=1)]))
    assert "can't be the baseline: trials a case: 2 before, 1 now" in result.text


def test_changed_cases_and_those_of_one_run_do_not_count() -> None:
    now = [*attacked(1, 9), *attacked(30, 0, sha="new", start=10), *attacked(10, 0, start=40)]
    old = [*attacked(2, 8), *attacked(0, 30, sha="old", start=10), *attacked(0, 20, start=60)]
    result = only(now, before(old))
    assert result.passed
    assert result.text.startswith(
        "attack_success_rate 41 / 50 = 82.0 %, 0.50 x the baseline's 2 / 10 = 20.0 % "
        "on the 10 cases of both runs, now 1 / 10 = 10.0 % <= max 0.50 x"
    )


def test_a_case_that_broke_in_one_run_is_no_pair() -> None:
    old = [*attacked(4, 6), entry("c10", "error", case_sha256="x")]
    now = [entry("c0", "error", case_sha256="x"), *attacked(1, 9, start=1)]
    result = only(now, before(old))
    assert "the baseline's 3 / 9 = 33.3 % on the 9 cases of both runs, now 1 / 9 = 11.1 % <= max 0.50 x" in result.text


def test_nothing_in_common_is_said() -> None:
    for old in (attacked(5, 5, start=50), attacked(5, 5, sha="old"), []):
        earlier = before(old)
        result = only(attacked(0, 10), earlier)
        assert not result.passed
        assert "run 01OLD can't be the baseline: no case stands unchanged in both runs" in result.text
        assert baseline_for(run(), attacked(0, 10), earlier).unusable


def test_each_group_is_held_against_its_own_cases() -> None:
    now = [*attacked(1, 9, case_type="a"), *attacked(5, 5, case_type="b", start=10), *attacked(0, 5, start=20)]
    old = [*attacked(2, 8, case_type="a"), *attacked(5, 5, case_type="b", start=10)]
    rule = a_gate("attack_success_rate", max_ratio_to_baseline=0.5, by="case_type")
    results = check_run(run(), now, [rule], BaselineLookup(stored=before(old)))
    assert [(result.value, result.passed) for result in results] == [("a", True), ("b", False), ("plain", False)]
    assert "1.00 x the baseline's 5 / 10 = 50.0 % > max 0.50 x" in results[1].text
    assert "the baseline has no case to judge that is the same in both runs" in results[2].text


def test_a_baseline_of_nothing_lets_only_nothing_pass() -> None:
    assert only(attacked(0, 10), before(attacked(0, 10))).passed
    result = only(attacked(1, 9), before(attacked(0, 10)))
    assert not result.passed
    assert "the baseline is 0, so only 0 passes (0 / 10 = 0.0 %)" in result.text


def test_a_limit_besides_counts_all_cases() -> None:
    rule = a_gate("attack_success_rate", max=0.3, max_ratio_to_baseline=0.5)
    result = only([*attacked(1, 9), *attacked(9, 1, start=10)], before(attacked(2, 8)), rule)
    assert not result.passed
    assert "10 / 20 = 50.0 % > max 30.0 %, 0.50 x the baseline's 2 / 10 = 20.0 %" in result.text


def test_a_run_without_a_baseline_says_why() -> None:
    none = BaselineLookup(reason="there is no earlier complete run to compare with")
    (result,) = check_run(run(), attacked(0, 10), [HALF], none)
    assert "max 0.5 x baseline: there is no earlier complete run to compare with" in result.text
    assert "max 0.5 x baseline: no baseline was given" in only(attacked(0, 10), None).text


def test_mean_scores_are_held_against_each_other() -> None:
    found = [entry(f"c{n}", case_sha256="x") for n in range(6)]
    rule = a_gate("mean_score", max_ratio_to_baseline=1.1)
    result = only(found, before([entry(f"c{n}", "failed", case_sha256="x", score=0.5) for n in range(6)]), rule)
    assert result.text == "mean_score 6.00 / 6 = 1.00, 2.00 x the baseline's 3.00 / 6 = 0.50 > max 1.10 x: FAIL"


def test_completeness_of_records_alone_is_not_known() -> None:
    results = check_run(run(), attacked(0, 10), [COMPLETE, a_gate("pass_rate", min=0.5)], whole=False)
    assert [result.passed for result in results] == [False, True]
    assert results[0].text.startswith("completeness: not known from records alone")
    assert results[0].text.endswith(": FAIL")
    (grouped,) = check_run(run(), attacked(0, 10), [a_gate("completeness", min=1.0, by="case_type")], whole=False)
    assert grouped.text.startswith("completeness (by case_type): not known from records alone")


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


def drawn(cases: list[tuple[str, str, str, str]]) -> list[CaseResult]:
    return [entry(name, verdict, case_sha256=sha, decision=decision) for name, verdict, sha, decision in cases]


@given(ANY, ANY, st.randoms(use_true_random=False), st.sampled_from([None, "case_type"]))
def test_the_order_of_either_run_makes_no_difference(
    now: list[tuple[str, str, str, str]], old: list[tuple[str, str, str, str]], random: Random, by: str | None
) -> None:
    rules = [
        a_gate("attack_success_rate", max_ratio_to_baseline=0.5, by=by),
        a_gate("mean_score", max_ratio_to_baseline=1),
    ]
    found = check_run(run(), drawn(now), rules, BaselineLookup(stored=before(drawn(old))))
    shuffled = [random.sample(drawn(one), len(one)) for one in (now, old)]
    assert check_run(run(), shuffled[0], rules, BaselineLookup(stored=before(shuffled[1]))) == found


@given(ANY)
def test_a_run_is_never_worse_than_itself(now: list[tuple[str, str, str, str]]) -> None:
    found = drawn(now)
    result = only(found, before(found), a_gate("attack_success_rate", max_ratio_to_baseline=1.0))
    assert result.passed is any(one.counted for one in found)
