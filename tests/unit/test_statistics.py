"""The numbers of a run: their algebra, also counted one by one, and what they are counted over."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.gates import gate_tally, judge_gates
from pytest_packbench.analysis.intervals import wilson_interval
from pytest_packbench.analysis.listing import Listing
from pytest_packbench.analysis.metrics import run_sums
from pytest_packbench.analysis.statistics import Group, statistics_of
from pytest_packbench.analysis.sums import ResultSums, points_of
from pytest_packbench.analysis.tally import Tally
from pytest_packbench.analysis.trials import cluster_facet, dependence_note, fold_trials
from pytest_packbench.model.metric import Profile
from pytest_packbench.model.run import CLUSTER_SETTING
from pytest_packbench.packs.agent_safety.metrics import ATTACK_METRICS
from pytest_packbench.runs.writer import sort_results
from tests.unit.run_builders import (
    COMPLETE,
    any_case_result,
    any_results,
    case_result,
    case_results,
    check,
    gate,
    run,
    statistics,
)

if TYPE_CHECKING:
    from random import Random

    from pytest_packbench.model.result import CaseResult

RESULTS = st.lists(any_case_result(), max_size=20)


def tag_counts(results: list[CaseResult]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for key, sums in Tally(by_tag=True).add_all(results).groups.items():
        if key.name == "tag":
            counts[key.value] += sums.count()
    return counts


@given(RESULTS, st.randoms(use_true_random=False))
def test_totals_and_groups_add_up_to_the_run_in_any_order(results: list[CaseResult], random: Random) -> None:
    numbers = statistics(results)
    totals, overall = numbers.totals, numbers.overall
    assert totals.selected == len(results)
    assert sum(totals.verdicts.values()) + sum(totals.quarantined.values()) == len(results)
    assert totals.stale == sum(result.stale for result in results)
    for name in ("case_type", "difficulty"):
        groups = numbers.grouped().get(name, [])
        for column in ("selected", "n", "passed"):
            assert sum(getattr(group, column) for group in groups) == getattr(overall, column)
    for group in numbers.groups:
        labels = [{**each.facets, "case_type": each.case_type, "difficulty": each.difficulty} for each in results]
        assert group.selected == sum(group.value == each.get(group.name) for each in labels)
    tags = tag_counts(results)
    assert tags == Counter(tag for result in results for tag in set(result.tags))
    judged = [result for result in results if result.counted]
    alone = statistics(judged)
    assert overall._replace(selected=0) == alone.overall._replace(selected=0)
    assert (numbers.depth, numbers.refusals, overall.n) == (alone.depth, alone.refusals, len(judged))
    shuffled = random.sample(results, len(results))
    assert (statistics(shuffled), tag_counts(shuffled)) == (numbers, tags)


@settings(max_examples=50)
@given(RESULTS, st.none() | st.lists(st.integers(-1, 12)))
def test_a_level_of_depth_counts_what_agrees_at_least_so_deep(
    results: list[CaseResult], levels: list[int] | None
) -> None:
    answers = [result for result in results if result.counted and not result.expects_refusal]
    depths = [result.match_depth for result in answers if result.match_depth is not None]
    table = statistics(results, levels=levels).depth
    assert [row.level for row in table] == sorted(
        {level for level in (depths if levels is None else levels) if level > 0}
    )
    for row in table:
        assert (row.agreeing, row.n) == (sum(depth >= row.level for depth in depths), len(depths))
        assert row.share == (row.agreeing / row.n if row.n else None)


def test_refusals_and_cached_answers_are_counted_among_judged_cases() -> None:
    results = [
        *[case_result("a", expects_refusal=True, refused=True)] * 4,
        *[case_result("b", "failed", expects_refusal=True, refused=False)] * 3,
        *[case_result("c", "failed", expects_refusal=False, refused=True)] * 2,
        case_result("d"),
        case_result("e", "known_hole", kind="xfail", expects_refusal=False, refused=True),
    ]
    refusals = statistics(results).refusals
    counts = (refusals.due_refused, refusals.due_answered, refusals.undue_refused, refusals.undue_answered)
    assert counts == (4, 3, 2, 1)
    cached = [case_result("a", cached=2), case_result("b"), case_result("c", "error", cached=1)]
    assert statistics([*cached, case_result("d"), case_result("d", trial=1, cached=3)]).cached == 2


def test_the_mean_is_of_scores_and_the_rate_of_verdicts() -> None:
    overall = statistics([*case_results(3, 1), case_result("x", "error")]).overall
    assert overall == Group(
        name="", value="", selected=5, n=4, passed=3, pass_rate=0.75, mean_score=0.8125, interval=wilson_interval(3, 4)
    )
    nothing = statistics([case_result("x", "error", llm_backend="stub")])
    assert (nothing.overall.n, nothing.overall.pass_rate, nothing.overall.mean_score) == (0, None, None)
    assert (nothing.overall.interval, nothing.all_authored) == (None, False)


def test_authored_answers_have_counts_and_no_interval() -> None:
    numbers = statistics(case_results(3, 1, llm_backend="stub", llm_model="authored", match_depth=4))
    assert (numbers.all_authored, numbers.has_intervals, numbers.overall.pass_rate) == (True, False, 0.75)
    assert [group.interval for group in (numbers.overall, *numbers.groups)] == [None] * 3
    assert [level.interval for level in numbers.depth] == [None]
    assert numbers.models == {}
    mixed = statistics([case_result("a"), case_result("b", llm_backend="stub", case_type="odd")])
    assert (mixed.all_authored, mixed.authored, mixed.models) == (False, 1, {"anthropic/m-1": 1})
    intervals = {group.value: group.interval for group in mixed.grouped()["case_type"]}
    assert (intervals, mixed.overall.interval) == ({"odd": None, "plain": wilson_interval(1, 1)}, None)


def test_groups_are_listed_in_the_order_of_a_reader_without_tags() -> None:
    labels = (("expert", "b"), ("easy", "a"), ("hard", "b"), ("medium", "a"), ("odd", "a"))
    common: dict[str, Any] = {"facets": {"colour": "red", "case_type": "false"}, "tags": ("t", "t")}
    results = [case_result(difficulty=level, case_type=case_type, **common) for level, case_type in labels]
    tally = Tally(by_tag=True).add_all(results)
    groups = {name: [row.value for row in rows] for name, rows in statistics_of(tally).grouped().items()}
    levels = ["easy", "medium", "hard", "expert", "odd"]
    assert list(groups.items()) == [("case_type", ["a", "b"]), ("difficulty", levels), ("colour", ["red"])]


METRICS = ("pass_rate", "mean_score", "over_refusal_rate", "valid_rate")
GATES = [
    COMPLETE,
    gate(must_pass=("a", "b")),
    *(
        gate(metric, min=0.5, by=by, max_ratio_to_baseline=1.5)
        for metric in METRICS
        for by in (None, "difficulty", "tag", "colour")
    ),
]
RULES: list[Any] = ["mean", "all", {"at_least": 2}]


@settings(max_examples=50)
@given(any_results(trials=True), any_results(trials=True), st.sampled_from(RULES))
def test_results_counted_one_by_one_are_as_a_run_in_memory(
    results: list[CaseResult], earlier: list[CaseResult], rule: Any
) -> None:
    listing = Listing()
    tally = gate_tally(GATES, metrics=ATTACK_METRICS, trials_rule=rule, each_case=[listing.add])
    for result in sort_results(results):
        tally.add(result)
    assert statistics_of(tally) == statistics(results, trials_rule=rule)
    assert judge_gates(tally, GATES) == check(results, GATES, trials_rule=rule)
    assert [row.case.verdict for row in listing.first("all", 100)] == [
        case.verdict for case in sorted(fold_trials(results, rule), key=lambda case: case.case_id)
    ]
    compared = check(results, GATES, earlier, trials_rule=rule)
    assert compared == check(sort_results(results), GATES, earlier, trials_rule=rule)


@given(st.lists(st.floats(0, 1)))
def test_scores_are_summed_exactly(scores: list[float]) -> None:
    sums = ResultSums()
    for score in scores:
        sums.add(Profile("passed", scored=True), points_of(score))
    assert sums.score == math.fsum(scores)


TABLES = ("all", "failed", "error", "vacuous", "not_run", "known_hole", "quarantined", "broken", "stale")


@settings(max_examples=50)
@given(any_results(), st.integers(1, 4))
def test_a_listing_keeps_the_first_of_each_table_and_counts_all(results: list[CaseResult], most: int) -> None:
    whole, first = Listing().add_all(results), Listing(max_rows=most).add_all(results)
    assert whole.count("all") == len(results)
    for name in TABLES:
        assert first.count(name) == whole.count(name)
        assert list(first.first(name, 100)) == list(whole.first(name, most))
    (row,) = Listing().add_all([case_result(record={"a": 1}, payload="long")]).first("all", 1)
    assert (row.case.record, row.case.payload, row.trials) == (None, None, 1)


def test_cases_that_share_a_part_form_clusters_and_others_are_their_own() -> None:
    shared = [case_result(name, facets={"part": "x"}) for name in "ab"]
    results = [*shared, case_result("c"), case_result("d"), case_result("e", "error", facets={"part": "x"})]
    sums = run_sums(gate_tally((), facet="part").add_all(results))
    assert (sums.count(lambda result: result.counted), len(sums.clusters)) == (4, 3)
    assert not run_sums(gate_tally(()).add_all(results)).clusters
    assert dependence_note(4, 4, "part") == ""
    assert dependence_note(2, 1, "shared_part").startswith("2 cases share 1 shared part: ")
    assert cluster_facet(run(settings={CLUSTER_SETTING: ["no", "name"]})) == ""
