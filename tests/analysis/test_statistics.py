"""The numbers of a run and of trials: their algebra, what they count, and their intervals, by scipy and brute force."""

from __future__ import annotations

import math
from collections import Counter, deque
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, combinations, product
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, hypergeom, norm, sem
from scipy.stats import t as student

from benchmarks.intervals import KINDS, coverage, ends_of
from pytest_packbench.analysis.changes import Comparison, compare
from pytest_packbench.analysis.counting import (
    ALL,
    Listing,
    Numbers,
    ResultSums,
    TrialsRuleError,
    by_case,
    cluster_facet,
    dependence_note,
    fold_case,
    pass_at_k,
    pass_hat_k,
    standard_error,
    trials_rule_of,
)
from pytest_packbench.analysis.gates import GateJudge
from pytest_packbench.analysis.statistics import (
    PairedMean,
    exact_bound,
    figure_interval,
    format_duration,
    mcnemar_p_value,
    paired_mean,
    unseen_rate_bound,
    wilson_interval,
)
from pytest_packbench.model.errors import StoredRunError
from pytest_packbench.model.report import Refusals, StoredRun
from pytest_packbench.model.run import CLUSTER_SETTING
from pytest_packbench.model.suite import Figure, Interval, Profile
from pytest_packbench.packs.agent_safety.metrics import GATES as ATTACK_METRICS
from pytest_packbench.reports.diff import diff_markdown
from pytest_packbench.reports.story import refusals_table
from pytest_packbench.runs.writing import sort_results
from tests.unit.run_builders import (
    COMPLETE,
    any_case_result,
    any_results,
    case_result,
    case_results,
    changed,
    check,
    fold_trials,
    gate,
    listing_of,
    numbers_of,
    run,
    statistics,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from random import Random

    from pytest_packbench.model.result import Result

RESULTS = st.lists(any_case_result(), max_size=20)


def tag_counts(results: list[Result]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (name, value), sums in numbers_of(results, [gate("completeness", min=1.0, by="tag")]).groups.items():
        if name == "tag":
            counts[value] += sums.count()
    return counts


@given(RESULTS, st.none() | st.lists(st.integers(-1, 12)), st.randoms(use_true_random=False))
def test_totals_groups_and_levels_of_depth_add_up_to_the_run_in_any_order(
    results: list[Result], levels: list[int] | None, random: Random
) -> None:
    numbers = statistics(results)
    totals, overall = numbers.totals, numbers.overall
    assert totals.selected == len(results)
    assert sum(totals.verdicts.values()) + sum(totals.quarantined.values()) == len(results)
    assert totals.stale == sum(result.attempt.stale for result in results)
    for name in ("case_type", "difficulty"):
        groups = numbers.grouped().get(name, [])
        for column in ("selected", "n", "passed"):
            assert sum(getattr(group, column) for group in groups) == getattr(overall, column)
    for group in numbers.groups:
        labels = [
            {**each.case.facets, "case_type": each.case.case_type, "difficulty": each.case.difficulty}
            for each in results
        ]
        assert group.selected == sum(group.value == each.get(group.name) for each in labels)
    tags = tag_counts(results)
    assert tags == Counter(tag for result in results for tag in set(result.case.tags))
    judged = [result for result in results if result.score.counted]
    alone = statistics(judged)
    assert overall._replace(selected=0) == alone.overall._replace(selected=0)
    assert (numbers.depth, numbers.refusals, overall.n) == (alone.depth, alone.refusals, len(judged))
    shuffled = random.sample(results, len(results))
    assert (statistics(shuffled), tag_counts(shuffled)) == (numbers, tags)
    # a level of depth counts what agrees at least so deep
    answers = [result.score.match_depth for result in judged if not result.case.expects_refusal]
    depths = [depth for depth in answers if depth is not None]
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
        # what nobody could read is neither a refusal nor an answer
        case_result(
            "f", "failed", expects_refusal=True, refused=False, terms=({"name": "truncated_answer", "effect": "zero"},)
        ),
        *[case_result("g", "failed", expects_refusal=False, refused=False, valid=False)] * 2,
    ]
    numbers = statistics(results)
    assert (numbers.refusals, numbers.unread_answers) == (Refusals(4, 4, 2, 3), (1, 2))
    assert refusals_table(numbers).rows == [("refusal", 4, 3, 1), ("answer", 2, 1, 2)]
    assert refusals_table(statistics(results[:-3])).rows == [("refusal", 4, 3), ("answer", 2, 1)]
    cached = [case_result("a", cached=2), case_result("b"), case_result("c", "error", cached=1)]
    assert statistics([*cached, case_result("d"), case_result("d", trial=1, cached=3)]).cached == 2


def test_the_mean_is_of_scores_the_rate_of_verdicts_and_authored_answers_have_no_interval() -> None:
    overall = statistics([*case_results(3, 1), case_result("x", "error")]).overall
    assert (overall.selected, overall.n, overall.passed) == (5, 4, 3)
    assert (overall.pass_rate, overall.mean_score, overall.interval) == (0.75, 0.8125, wilson_interval(3, 4))
    nothing = statistics([case_result("x", "error", llm_backend="stub")])
    assert (nothing.overall.n, nothing.overall.pass_rate, nothing.overall.mean_score) == (0, None, None)
    assert (nothing.overall.interval, nothing.all_authored) == (None, False)
    numbers = statistics(case_results(3, 1, llm_backend="stub", llm_model="authored", match_depth=4))
    assert (numbers.all_authored, numbers.has_intervals, numbers.overall.pass_rate) == (True, False, 0.75)
    assert (
        {row.interval for row in (numbers.overall, *numbers.groups)}
        == {row.interval for row in numbers.depth}
        == {None}
    )
    assert numbers.models == {}
    mixed = statistics([case_result("a"), case_result("b", llm_backend="stub", case_type="odd")])
    assert (mixed.all_authored, mixed.authored, mixed.models) == (False, 1, {"anthropic/m-1": 1})
    intervals = {group.value: group.interval for group in mixed.grouped()["case_type"]}
    assert (intervals, mixed.overall.interval) == ({"odd": None, "plain": wilson_interval(1, 1)}, None)


def test_groups_are_listed_in_the_order_of_a_reader_without_tags() -> None:
    labels = (("expert", "b"), ("easy", "a"), ("hard", "b"), ("medium", "a"), ("odd", "a"))
    common: dict[str, Any] = {"facets": {"colour": "red", "case_type": "false"}, "tags": ("t", "t")}
    results = [case_result(difficulty=level, case_type=case_type, **common) for level, case_type in labels]
    numbers = numbers_of(results, [gate("completeness", min=1.0, by="tag")])
    groups = {name: [row.value for row in rows] for name, rows in numbers.statistics().grouped().items()}
    levels = ["easy", "medium", "hard", "expert", "odd"]
    assert list(groups.items()) == [("case_type", ["a", "b"]), ("difficulty", levels), ("colour", ["red"])]


METRICS = ("pass_rate", "mean_score", "over_refusal_rate", "valid_rate")
KEYS = (None, "difficulty", "tag", "colour")
GATES = [COMPLETE, gate(must_pass=("a", "b"))]
GATES += [gate(metric, min=0.5, by=by, max_ratio_to_baseline=1.5) for metric, by in product(METRICS, KEYS)]
TABLES = ("passed", "failed", "error", "vacuous", "not_run", "known_hole", "quarantined", "broken", "stale")
RULES: list[Any] = ["mean", "all", "any", {"at_least": 2}]


@settings(max_examples=50)
@given(any_results(trials=True), any_results(trials=True), st.sampled_from(RULES), st.integers(1, 4))
def test_results_counted_one_by_one_are_as_a_run_in_memory_and_a_listing_keeps_the_first(
    results: list[Result], earlier: list[Result], rule: Any, most: int
) -> None:
    listing, numbers = Listing(), Numbers(GATES, metrics=ATTACK_METRICS, rule=rule)
    for attempts in by_case(iter(sort_results(results))):
        listing.add(numbers.add(attempts))
    assert numbers.statistics() == statistics(results, trials_rule=rule)
    assert GateJudge(numbers).results(GATES) == check(results, GATES, trials_rule=rule)
    cases = sorted(fold_trials(results, rule), key=lambda case: case.case.case_id)
    assert sum(listing.count(name) for name in TABLES[:-2]) == len(cases)
    assert [row.case.case_id for row in listing.first("passed", 100)] == [
        case.case.case_id for case in cases if case.score.verdict == "passed" and not case.score.quarantined
    ]
    first = listing_of(results, rule, max_rows=most)
    for name in TABLES:
        assert first.count(name) == listing.count(name)
        assert list(first.first(name, 100)) == list(listing.first(name, most))
    compared = check(results, GATES, earlier, trials_rule=rule)
    assert compared == check(sort_results(results), GATES, sort_results(earlier), trials_rule=rule)


def test_cases_that_share_a_part_form_clusters_and_others_are_their_own() -> None:
    shared = [case_result(name, facets={"part": "x"}) for name in "ab"]
    results = [*shared, case_result("c"), case_result("d"), case_result("e", "error", facets={"part": "x"})]
    sums = numbers_of(results, facet="part").groups[ALL]
    assert (sums.count(lambda result: result.counted), len(sums.clusters)) == (4, 3)
    assert not numbers_of(results).groups[ALL].clusters
    assert dependence_note(4, 4, "part") == ""
    assert dependence_note(2, 1, "shared_part").startswith("2 cases share 1 shared part: ")
    assert cluster_facet(run(settings={CLUSTER_SETTING: ["no", "name"]})) == ""
    (row,) = listing_of([case_result(record={"a": 1}, payload="long")]).first("passed", 1)
    assert (row.record, row.attempt.payload, row.trials) == (None, None, (1, 1))


SHARES = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n) | st.sampled_from([0, n]), st.just(n)))
# what is within the tolerance of a comparison is no change
CHANGES = st.floats(-1, 1).map(lambda change: change if abs(change) > 1e-8 else 0.0)


@given(SHARES, st.floats(0.5, 0.999))
def test_wilson_is_scipys_and_exact_at_the_ends(counts: tuple[int, int], confidence: float) -> None:
    k, n = counts
    scipys = binomtest(k, n).proportion_ci(confidence_level=confidence, method="wilson")
    ours = wilson_interval(k, n, confidence)
    assert ours is not None
    assert ours == pytest.approx((scipys.low, scipys.high), abs=1e-12)
    assert 0 <= ours[0] <= k / n <= ours[1] <= 1
    assert (ours[0] == 0, ours[1] == 1) == (k == 0, k == n)


@settings(max_examples=60)
@given(SHARES.filter(lambda counts: counts[1] <= 400), st.floats(0.5, 0.999), st.integers(1, 10_000))
def test_exact_bounds_are_scipys_and_59_clean_cases_show_five_percent(
    counts: tuple[int, int], confidence: float, n: int
) -> None:
    high = binomtest(*counts, alternative="less").proportion_ci(confidence, method="exact").high
    low = binomtest(*counts, alternative="greater").proportion_ci(confidence, method="exact").low
    assert exact_bound(*counts, confidence, upper=True) == pytest.approx(high, abs=1e-9)
    assert exact_bound(*counts, confidence, upper=False) == pytest.approx(low, abs=1e-9)
    assert unseen_rate_bound(n) == pytest.approx(exact_bound(0, n, 0.95, upper=True))
    assert [(unseen_rate_bound(clean) or 0) < 0.05 for clean in (58, 59)] == [False, True]


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_scipys_binomial_test(lost: int, won: int) -> None:
    expected = binomtest(min(lost, won), lost + won, 0.5).pvalue if lost + won else 1.0
    assert mcnemar_p_value(lost, won) == mcnemar_p_value(won, lost) == pytest.approx(expected)
    # very many flips do not overflow
    assert mcnemar_p_value(5_000, 5_200) == pytest.approx(2 * binom.cdf(5_000, 10_200, 0.5))


def mean_of(values: list[float], clusters: Collection[Sequence[float]] = ()) -> PairedMean:
    mean = paired_mean(values, clusters)
    assert mean is not None
    return mean


def ends(mean: PairedMean) -> tuple[float, float]:
    assert mean.low is not None
    assert mean.high is not None
    return mean.low, mean.high


@settings(max_examples=30)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=2, max_size=12))
def test_the_interval_is_students_with_one_more_cluster_of_each_extreme(groups: list[list[float]]) -> None:
    values = [value for group in groups for value in group]
    alone = [group[0] for group in groups if len(group) == 1]
    mean = mean_of(alone, [group for group in groups if len(group) > 1])
    assert mean == mean_of([], groups)
    assert mean.clusters == len(groups)
    assert mean.mean == pytest.approx(fmean(values))
    low, high = ends(mean)
    assert -1 <= low < high <= 1
    # as many groups of one size as have the same weight
    count = len(values) ** 2 / sum(len(group) ** 2 for group in groups)
    size = len(values) / count
    # what a cluster adds to the sum beyond its share of the mean
    beyond = [sum(group) - len(group) * fmean(values) for group in groups]
    if max(map(abs, beyond)) < 1e-9:
        unseen, method = 1 - 0.05 ** (1 / count), "exact"
        below, above = unseen * (1 + mean.mean), unseen * (1 - mean.mean)
    else:
        beyond += [size * (1 - fmean(values)), size * (-1 - fmean(values))]
        error = math.sqrt((count + 2) / (count + 1) * sum(each**2 for each in beyond)) / (len(values) + 2 * size)
        below, method = student.ppf(0.975, count - 1) * error, "t"
        above, reach = below, below + norm.ppf(0.8) * error
        assert mean.detectable == (pytest.approx(reach) if reach <= 1 else None)
    assert (low, high) == pytest.approx((max(-1, mean.mean - below), min(1, mean.mean + above)), abs=1e-9)
    assert mean.method == method


def test_many_pairs_get_the_normal_interval() -> None:
    values = [math.sin(number) + math.cos(number) / 9 for number in range(5_000)]
    error = stdev(values) / math.sqrt(len(values))
    assert ends(mean_of(values)) == pytest.approx(norm.interval(0.95, fmean(values), error), abs=1e-3)


@pytest.mark.parametrize("pairs", [8, 12, 24, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_covers_the_true_mean(kind: str, pairs: int) -> None:
    assert coverage(kind, ends_of(kind, pairs, draws=400)) >= 0.93


@pytest.mark.parametrize("n", [8, 12, 20, 50, 120])
def test_the_interval_covers_every_rate_of_flips(n: int) -> None:
    ends_of = [ends(mean_of([-1.0] * lost + [0.0] * (n - lost))) for lost in range(n + 1)]
    covered = {
        rate: sum(binom.pmf(lost, n, rate) for lost, (low, high) in enumerate(ends_of) if low <= -rate <= high)
        for rate in (number / 100 for number in range(1, 100))
    }
    assert min(covered.values()) >= 0.93, min(covered.items(), key=lambda item: item[1])


def test_impossible_counts_and_one_cluster_have_no_interval_and_no_estimate() -> None:
    assert wilson_interval(0, 0) is None
    for k, n, confidence in ((-1, 2, 0.95), (3, 2, 0.95), (0, -1, 0.95), (1, 2, 1.0), (1, 2, 0.0)):
        with pytest.raises(ValueError, match=r"expected 0 <= k <= n|expected a confidence between"):
            wilson_interval(k, n, confidence)
    mean = mean_of([], [[0.0, 1.0, 1.0]])
    assert mean.mean == pytest.approx(2 / 3)
    assert (mean.low, mean.high, mean.method) == (None, None, "none")
    equal = mean_of([0.25] * 3)
    assert (equal.mean, equal.method, equal.detectable) == (0.25, "exact", None)
    # a share of others up to this has a chance of 5 % that a sample of three shows none: all are lost, or all are won
    share = 1 - 0.05 ** (1 / 3)
    assert ends(equal) == pytest.approx(((1 - share) * 0.25 - share, (1 - share) * 0.25 + share))
    assert ends(mean_of([0.0] * 12)) == pytest.approx((-0.2209, 0.2209), abs=1e-4)
    assert ends(mean_of([-1.0] * 3)) == pytest.approx((-1.0, 0.2632), abs=1e-4)
    assert paired_mean([]) is None


POINTS = st.sampled_from([0.0, 0.25, 0.75, 0.8, 1.0])
COUNTS = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
CASES = st.integers(2, 5).flatmap(
    lambda n: st.dictionaries(st.sampled_from("abcdef"), st.lists(POINTS, min_size=n, max_size=n), min_size=1)
)


def trials(case_id: str, *points: float, first: int = 0, **changes: Any) -> list[Result]:
    """Return judged trials of a case, at a threshold of 0.8."""
    return [
        case_result(case_id, "passed" if score >= 0.8 else "failed", score=score, trial=number, **changes)
        for number, score in enumerate(points, first)
    ]


def trials_of(cases: dict[str, list[float]]) -> list[Result]:
    return [result for name, points in cases.items() for result in trials(name, *points)]


@given(COUNTS)
def test_the_estimates_count_every_choice_of_trials(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    passes = [number < c for number in range(n)]
    at_k, hat_k = pass_at_k(n, c, k), pass_hat_k(n, c, k)
    assert at_k == pytest.approx(fmean(any(choice) for choice in combinations(passes, k)))
    assert hat_k == pytest.approx(fmean(all(choice) for choice in combinations(passes, k)))
    drawn = hypergeom(n, c, k)
    assert (at_k, hat_k) == pytest.approx((1 - drawn.pmf(0), drawn.pmf(k)))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_scores_are_summed_exactly_and_the_standard_error_is_that_of_the_means_of_cases(means: list[float]) -> None:
    sums = ResultSums()
    for score in means:
        sums.add(Profile("passed", scored=True), score)
    assert sums.score == pytest.approx(math.fsum(means), abs=1e-15)
    assert standard_error(means) == pytest.approx(float(sem(means)), abs=1e-12)
    assert standard_error(means[:1]) is None


@given(st.lists(POINTS, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_a_rule_decides_on_a_case_in_any_order_of_its_trials(scores: list[float], random: Random) -> None:
    results = trials("a", *scores)
    shuffled = random.sample(results, len(results))
    for rule in RULES:
        case = fold_case(results, rule)
        assert (case, fold_trials(results, rule)) == (fold_case(shuffled, rule), fold_trials(shuffled, rule))
        assert (case.score.message, case.score.threshold) == ("", 0.8)
        assert case.score.score == pytest.approx(fmean(scores))
    passes = [score >= 0.8 for score in scores]
    verdicts = [fold_case(results, rule).score.verdict == "passed" for rule in RULES]
    assert verdicts == [fmean(scores) >= 0.8 - 1e-9, all(passes), any(passes), sum(passes) >= 2]
    assert fold_case(trials("a", 1.0, 0.7, 0.7), "mean").score.verdict == "passed"


def test_a_trial_without_a_score_decides_on_its_case_and_a_quarantine_before_all() -> None:
    good = [*trials("a", 1.0), *trials("a", 1.0, first=2)]
    for verdict, rule in product(("error", "vacuous", "not_run"), RULES):
        broken = case_result("a", verdict, trial=1, kind="timeout", message="after 5 s")
        case = fold_case([good[0], broken, good[1]], rule)
        assert (case.score.verdict, case.score.score, case.score.kind) == (verdict, None, "timeout")
        assert case.score.message == "trial 2 of 3: after 5 s"
        assert fold_case([good[1], good[0], broken], rule) == case
    results = [case_result("a", "not_run", trial=0), case_result("a", "error", trial=1), *trials("a", 1.0, first=2)]
    assert fold_case(results).score.verdict == "error"
    hole = case_result("a", "known_hole", trial=0, kind="xfail", score=0.2, threshold=0.8)
    (case,) = fold_trials([hole, case_result("a", "error", trial=1, kind="timeout")])
    assert (case.score.verdict, case.score.kind, case.score.quarantined, case.score.score) == (
        "known_hole",
        "xfail",
        True,
        None,
    )


def test_an_unknown_rule_is_an_error() -> None:
    rules: list[Any] = ["most", "", 3, {}, {"at_least": 0}, {"at_least": True}, {"at_least": 1, "x": 1}]
    for rule in rules:
        with pytest.raises(TrialsRuleError, match="expected mean, all, any, or at_least with a whole number of 1 or"):
            fold_case(trials("a", 1.0, 1.0), rule)
        with pytest.raises(TrialsRuleError):
            trials_rule_of(run(settings={"trials_rule": rule}))
    assert (trials_rule_of(run()), trials_rule_of(run(), "all")) == ("mean", "all")
    assert trials_rule_of(run(settings={"trials_rule": {"at_least": 2}}), "all") == {"at_least": 2}


def test_only_trials_of_one_file_and_of_different_numbers_are_folded() -> None:
    single = [case_result("a"), case_result("a", "failed"), case_result("b")]
    assert fold_trials(single) == single
    assert statistics(single).trials is None
    two_files = [*trials("a", 1.0, 1.0), *trials("a", 0.0, 0.0, file="other")]
    assert [case.score.verdict for case in fold_trials(two_files)] == ["passed", "failed"]
    assert len(fold_trials([*trials("a", 1.0, 1.0), *trials("a", 0.0, first=1)])) == 3


def test_the_worst_trial_decides_on_yes_or_no() -> None:
    refused = case_result(
        "a", trial=0, decision="refuse", refused=True, expects_refusal=True, utility=True, match_depth=10
    )
    unsafe = changed(refused, trial=1, decision="comply_unsafe", refused=False, utility=False, match_depth=4)
    results = [refused, unsafe]
    (case,) = fold_trials(results)
    assert (case.score.decision, case.score.refused, case.score.utility, case.score.match_depth) == (
        "comply_unsafe",
        False,
        False,
        4,
    )
    assert fold_trials([changed(results[0], decision="comply_safe"), results[1]])[0].score.decision == "comply_unsafe"
    needless = [changed(result, expects_refusal=False, refused=result.attempt.trial == 1) for result in results]
    assert fold_trials(needless)[0].score.refused is True
    good, bad = (changed(each, answer=str(each.score.score), duration_ms=2, cached=1) for each in trials("a", 1.0, 0.0))
    (case,) = fold_trials([changed(good, timestamp="2"), changed(bad, timestamp="1")])
    assert (case.score.answer, case.attempt.timestamp, case.attempt.duration_ms, case.attempt.cached) == (
        "0.0",
        "2",
        4,
        2,
    )


@given(CASES, st.sampled_from(RULES), st.randoms(use_true_random=False))
def test_rates_count_cases(cases: dict[str, list[float]], rule: Any, random: Random) -> None:
    results = trials_of(cases)
    passed = sum(fold_case(trials(name, *scores), rule).score.verdict == "passed" for name, scores in cases.items())
    numbers = statistics(random.sample(results, len(results)), trials_rule=rule)
    assert numbers == statistics(results, trials_rule=rule)
    assert (numbers.totals.selected, numbers.overall.n, numbers.overall.passed) == (len(cases), len(cases), passed)
    assert numbers.overall.interval == wilson_interval(passed, len(cases))
    assert numbers.overall.mean_score == pytest.approx(fmean(map(fmean, cases.values())))
    complete, rate = check(results, [COMPLETE, gate("pass_rate", min=0.5)], trials_rule=rule)
    assert complete.text.startswith(f"completeness {len(cases)} / {len(cases)}")
    assert rate.observed == passed / len(cases)
    figures = numbers.trials
    assert figures is not None
    assert (figures.attempts, figures.cases) == (len(results), len(cases))
    for row in figures.passes:
        counts = [(len(scores), sum(score >= 0.8 for score in scores)) for scores in cases.values()]
        assert row.at_k == pytest.approx(fmean(pass_at_k(n, c, row.k) for n, c in counts))
        assert row.hat_k == pytest.approx(fmean(pass_hat_k(n, c, row.k) for n, c in counts))


def test_figures_count_cases_without_errors_and_list_few_numbers_of_trials() -> None:
    results = [*trials("a", 1.0, 0.0), *trials("b", 1.0), case_result("b", "error", trial=1, message="down")]
    numbers = statistics(results)
    assert (numbers.totals.verdicts["error"], numbers.overall.n) == (1, 1)
    assert numbers.trials is not None
    assert (numbers.trials.cases, numbers.trials.attempts) == (1, 2)
    (result,) = check(results, [COMPLETE])
    assert result.text == "completeness 1 / 2 = 50.0 % < min 100.0 %: FAIL"
    results = [result for number in range(58) for result in trials(f"c{number}", 1.0, 1.0, decision="refuse")]
    (result,) = check(results, [gate("attack_success_rate", max=0.05, confidence=0.95)])
    assert "0 / 58 = 0.0 %, exact one-sided 95 % upper bound 5.03 %" in result.text
    many = statistics(trials("a", *[1.0] * 30)).trials
    assert many is not None
    assert [row.k for row in many.passes] == [1, 2, 3, 4, 5, 10, 20, 30]
    # scripted answers have no standard error
    scripted = statistics([result for name in "ab" for result in trials(name, 1.0, 0.0, llm_backend="stub")]).trials
    assert scripted is not None
    assert (scripted.standard_error, scripted.mean_score) == (None, 0.5)


def compare_runs(before: list[Result], after: list[Result], use: Any = iter, **changes: Any) -> Comparison:
    one, other = (StoredRun(source="f", run=run(**changes), results=tuple(each)) for each in (before, after))
    return compare(one, other, use)


@given(CASES, CASES)
def test_a_comparison_pairs_cases(before: dict[str, list[float]], after: dict[str, list[float]]) -> None:
    comparison = compare_runs(trials_of(before), trials_of(after), settings={"trials": 5})
    common = sorted(before.keys() & after.keys())
    deltas = {f"toy:plain:{name}": fmean(after[name]) - fmean(before[name]) for name in common}
    assert (comparison.common, comparison.mean.n if comparison.mean else 0) == (len(common), len(common))
    mean = comparison.mean.mean if comparison.mean else 0
    assert mean == pytest.approx(fmean(deltas.values()) if deltas else 0)
    assert comparison.lost + comparison.won <= len(common)
    listed = {one.test_id: one.delta for rows in comparison.listed.values() for one in rows.first}
    assert listed == pytest.approx({name: deltas[name] for name in listed})
    assert {name for name, delta in deltas.items() if abs(delta) > 1e-6} <= listed.keys()


def test_what_a_comparison_reads_is_given_away_in_turn_and_to_its_end() -> None:
    cases = [f"c{number:03}" for number in range(200)]
    before, after = (trials_of({name: [1.0, 0.0] for name in each}) for each in (cases[20:], cases[:-20]))
    read: list[Result] = []
    ahead, sides = list[int](), list[int]()

    def stream(results: list[Result]) -> Iterator[Result]:
        for result in results:
            read.append(result)
            yield result

    def take(results: Iterator[tuple[Result, bool]]) -> None:
        for number, (_, is_later) in enumerate(results, 1):
            ahead.append(len(read) - number)
            sides.append(1 if is_later else -1)

    one, other = (StoredRun(source="f", run=run(), results=stream(each)) for each in (before, after))
    whole = compare(one, other, take)
    assert (sides.count(-1), sides.count(1)) == (len(before), len(after))
    # what waits, for its use or for the other run, does not grow with the run
    assert max(*ahead, *map(abs, accumulate(sides))) <= 9
    ahead.clear()
    few, all_cases = (trials_of({name: [1.0, 0.0] for name in each}) for each in (cases[:5], cases))
    for before, after in (few, all_cases), (all_cases, few):
        read.clear()
        one, other = (StoredRun(source="f", run=run(), results=stream(each)) for each in (before, after))
        compare(one, other, take)
    assert max(ahead) <= 9
    before, after = (trials_of({name: [1.0, 0.0] for name in each}) for each in (cases[20:], cases[:-20]))
    for use in (next, iter, lambda results: list(zip(results, range(7), strict=False))):
        comparison = compare_runs(before, after, use=use)
        assert (comparison.cases, comparison.common) == (whole.cases, whole.common) == ((180, 180), 160)


@pytest.mark.parametrize("later", [False, True])
def test_no_use_of_a_comparison_hides_that_a_run_is_damaged(later: bool) -> None:
    def damaged() -> Iterator[Result]:
        yield from trials("a", 1.0)
        raise StoredRunError("f: damaged")

    def hide(results: Iterator[object]) -> None:
        with suppress(StoredRunError):
            deque(results, 0)

    def fail(results: Iterator[object]) -> None:
        hide(results)
        raise ZeroDivisionError

    for use in (hide, fail, iter):
        runs = {side: StoredRun(source="f", run=run(), results=trials("a", 1.0)) for side in (False, True)}
        runs[later] = replace(runs[later], results=damaged())
        with pytest.raises(StoredRunError, match="damaged"):
            compare(runs[False], runs[True], use)


OTHER_RULES = [
    ((1, None), (5, "mean"), False),
    ((3, "mean"), (5, "mean"), False),
    ((1, None), (5, "any"), True),
    ((3, "any"), (5, "any"), True),
    ((3, {"at_least": 2}), (3, {"at_least": 2}), False),
    ((1, "all"), (1, "any"), False),
]


def test_durations_and_intervals_have_the_unit_of_a_reader() -> None:
    assert [format_duration(milliseconds) for milliseconds in (750, 3200, 750_000)] == ["750 ms", "3.2 s", "12.5 min"]
    interval = Interval(0.25, 0.5, "95 % Wilson")
    shares: list[dict[str, Any]] = [{"count": 1, "total": 4}, {"number": 0.3}]
    figures = (Figure(name="n", definition="d", interval=interval, **value) for value in shares)
    assert list(map(figure_interval, figures)) == ["25.0 % to 50.0 % (95 % Wilson)", "0.25 to 0.5 (95 % Wilson)"]


def test_runs_by_other_rules_are_not_comparable() -> None:
    for *rules, differ in OTHER_RULES:
        settings = [{"trials": count, "trials_rule": rule} if rule else {} for count, rule in rules]
        one, other = (StoredRun(source="f", run=run(settings=each), results=()) for each in settings)
        assert bool(compare(one, other).differences) is differ, rules
    assert "| trials" in diff_markdown(compare_runs(trials("a", 1.0), trials("a", 1.0, 0.0, 0.0)))
