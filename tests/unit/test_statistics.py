"""The numbers of a run: Wilson against another implementation, and the algebra of counting."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pytest_packbench.analysis.intervals import wilson_interval
from pytest_packbench.analysis.statistics import Group, statistics_of
from pytest_packbench.analysis.tally import Tally
from tests.unit.run_builders import any_case_result, case_result, case_results, statistics

if TYPE_CHECKING:
    from random import Random

    from pytest_packbench.model.result import CaseResult

RUNS = st.lists(any_case_result(), max_size=30)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_is_scipys(counts: tuple[int, int], confidence: float) -> None:
    k, n = counts
    theirs = binomtest(k, n).proportion_ci(confidence_level=confidence, method="wilson")
    ours = wilson_interval(k, n, confidence)
    assert ours is not None
    assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert 0 <= ours[0] <= k / n <= ours[1] <= 1
    assert ours[0] > 0 or k == 0
    assert ours[1] < 1 or k == n


@given(st.integers(1, 5000), st.floats(0.5, 0.999))
def test_wilson_is_exact_at_the_ends(n: int, confidence: float) -> None:
    nothing, everything = wilson_interval(0, n, confidence), wilson_interval(n, n, confidence)
    assert nothing is not None
    assert everything is not None
    assert (nothing[0], everything[1]) == (0.0, 1.0)


def test_wilson_of_nothing_is_no_number() -> None:
    assert wilson_interval(0, 0) is None


@pytest.mark.parametrize(
    ("k", "n", "confidence"), [(-1, 2, 0.95), (3, 2, 0.95), (0, -1, 0.95), (1, 2, 1.0), (1, 2, 0.0)]
)
def test_wilson_refuses_what_is_no_proportion(k: int, n: int, confidence: float) -> None:
    with pytest.raises(ValueError, match=r"expected 0 <= k <= n|expected a confidence between"):
        wilson_interval(k, n, confidence)


def tagged(found: list[CaseResult]) -> Counter[str]:
    """Each tag to the number of its cases."""
    counts: Counter[str] = Counter()
    for key, sums in Tally(by_tag=True).add_all(found).groups.items():
        if key.name == "tag":
            counts[key.value] += sums.count()
    return counts


@given(RUNS)
def test_totals_add_up(found: list[CaseResult]) -> None:
    totals = statistics(found).totals
    assert totals.selected == len(found)
    assert sum(totals.verdicts.values()) + sum(totals.quarantined.values()) == len(found)
    assert totals.stale == sum(each.stale for each in found)


@given(RUNS)
def test_groups_sum_to_the_whole(found: list[CaseResult]) -> None:
    numbers = statistics(found)
    for name in ("case_type", "difficulty"):
        groups = numbers.grouped().get(name, [])
        assert sum(group.selected for group in groups) == numbers.overall.selected
        assert sum(group.n for group in groups) == numbers.overall.n
        assert sum(group.passed for group in groups) == numbers.overall.passed
    for group in numbers.groups:
        assert group.selected == sum(group.value in values_of(each, group.name) for each in found)
    for tag, selected in tagged(found).items():
        assert selected == sum(tag in each.tags for each in found)


def values_of(case: CaseResult, name: str) -> tuple[str, ...]:
    """What a case has of the name of a group."""
    if name == "tag":
        return case.tags
    ours = {"case_type": case.case_type, "difficulty": case.difficulty}
    return (({**case.facets, **ours})[name],) if name in {**case.facets, **ours} else ()


@given(RUNS)
def test_rates_are_over_judged_entries_alone(found: list[CaseResult]) -> None:
    judged = [each for each in found if each.counted]
    everything, alone = statistics(found), statistics(judged)
    assert replace(everything.overall, selected=0) == replace(alone.overall, selected=0)
    assert (everything.depth, everything.refusals) == (alone.depth, alone.refusals)
    assert everything.overall.n == len(judged)


@given(RUNS, st.randoms(use_true_random=False))
def test_order_makes_no_difference(found: list[CaseResult], random: Random) -> None:
    shuffled = random.sample(found, len(found))
    assert (statistics(shuffled), tagged(shuffled)) == (statistics(found), tagged(found))


@given(RUNS, st.none() | st.lists(st.integers(-1, 12)))
def test_depth_counts_what_agrees_at_least_so_deep(found: list[CaseResult], levels: list[int] | None) -> None:
    depths = [
        each.match_depth for each in found if each.counted and not each.expects_refusal and each.match_depth is not None
    ]
    wanted = {level for level in (depths if levels is None else levels) if level > 0}
    table = statistics(found, levels=levels).depth
    assert [row.level for row in table] == sorted(wanted)
    for row in table:
        assert (row.agreeing, row.n) == (sum(depth >= row.level for depth in depths), len(depths))
        assert row.share == (row.agreeing / row.n if row.n else None)


def test_a_level_holds_what_agrees_deeper_too() -> None:
    found = [
        case_result("a", match_depth=10),
        case_result("b", match_depth=4),
        case_result("c", match_depth=0),
        case_result("d"),
    ]
    by_level = {row.level: (row.agreeing, row.n) for row in statistics(found).depth}
    assert by_level == {4: (2, 3), 10: (1, 3)}
    assert [row.agreeing for row in statistics(found, levels=(2, 4, 6, 8, 10)).depth] == [2, 2, 1, 1, 1]


def test_the_refusal_table_is_over_judged_entries() -> None:
    found = [
        *(case_result("a", expects_refusal=True, refused=True) for _ in range(4)),
        *(case_result("b", "failed", expects_refusal=True, refused=False) for _ in range(3)),
        *(case_result("c", "failed", expects_refusal=False, refused=True) for _ in range(2)),
        case_result("d"),
        case_result("e", "known_hole", kind="xfail", expects_refusal=False, refused=True),
    ]
    refusals = statistics(found).refusals
    counts = (refusals.due_refused, refusals.due_answered, refusals.undue_refused, refusals.undue_answered)
    assert counts == (4, 3, 2, 1)


def test_a_group_of_nothing_judged_has_no_rate() -> None:
    overall = statistics([case_result("a", "error")]).overall
    assert overall == Group(
        name="", value="", selected=1, n=0, passed=0, pass_rate=None, mean_score=None, interval=None
    )


def test_the_mean_is_of_scores_and_the_rate_of_verdicts() -> None:
    overall = statistics(case_results(3, 1)).overall
    assert (overall.pass_rate, overall.mean_score) == (0.75, 0.8125)
    assert overall.interval == wilson_interval(3, 4)


def test_authored_answers_have_counts_and_no_interval() -> None:
    numbers = statistics(case_results(3, 1, llm_backend="stub", llm_model="authored", match_depth=4))
    assert numbers.all_authored
    assert not numbers.has_intervals
    assert numbers.overall.pass_rate == 0.75
    assert [each.interval for each in (numbers.overall, *numbers.groups)] == [None] * 3
    assert [each.interval for each in numbers.depth] == [None]
    assert numbers.models == {}


def test_one_authored_answer_takes_the_interval_from_its_groups_only() -> None:
    numbers = statistics([case_result("a"), case_result("b", llm_backend="stub", case_type="odd")])
    intervals = {group.value: group.interval for group in numbers.grouped()["case_type"]}
    assert (numbers.all_authored, numbers.authored) == (False, 1)
    assert intervals == {"odd": None, "plain": wilson_interval(1, 1)}
    assert numbers.overall.interval is None
    assert numbers.models == {"anthropic/m-1": 1}


def test_judged_cases_answered_from_kept_answers_are_counted() -> None:
    found = [
        case_result("a", cached=2),
        case_result("b"),
        case_result("c", "error", cached=1),
        case_result("d", trial=0),
        case_result("d", trial=1, score=1.0, cached=3),
    ]
    assert statistics(found).cached == 2


def test_a_run_without_a_judged_case_is_not_called_authored() -> None:
    assert not statistics([case_result("a", "error", llm_backend="stub")]).all_authored


def test_groups_stand_in_the_order_of_a_reader() -> None:
    found = [
        case_result(difficulty=difficulty, case_type=case_type, facets={"colour": "red"}, tags=("t", "t"))
        for difficulty, case_type in (("expert", "b"), ("easy", "a"), ("hard", "b"), ("medium", "a"), ("odd", "a"))
    ]
    groups = [(group.name, group.value) for group in statistics(found).groups]
    assert groups == [
        ("case_type", "a"),
        ("case_type", "b"),
        *(("difficulty", value) for value in ("easy", "medium", "hard", "expert", "odd")),
        ("colour", "red"),
    ]


def test_tags_are_grouped_for_gates_alone_and_count_once() -> None:
    found = [case_result(tags=("t", "t"))]
    assert "tag" not in statistics_of(Tally(by_tag=True).add_all(found)).grouped()
    assert tagged(found) == {"t": 1}


def test_a_facet_can_not_pose_as_a_group_of_ours() -> None:
    (group,) = statistics([case_result(facets={"case_type": "false"})]).grouped()["case_type"]
    assert group.value == "plain"
