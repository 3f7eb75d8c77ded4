"""The numbers of a run and of trials: their algebra, what they count, and their intervals, by scipy and brute force."""

from __future__ import annotations

import math
import re
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
    exact_bound,
    figure_interval,
    format_duration,
    mcnemar_p_value,
    paired_mean,
    unseen_rate_bound,
    wilson_interval,
)
from pytest_packbench.model.errors import StoredRunError
from pytest_packbench.model.report import StoredRun
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
    check,
    data,
    fold_trials,
    gate,
    listing_of,
    numbers_of,
    results_of,
    run,
    statistics,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from pytest_packbench.model.result import Result
    from tests.conftest import ExpectedTexts

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
    labels = [
        {**each.case.facets, "case_type": each.case.case_type, "difficulty": each.case.difficulty} for each in results
    ]
    for group in numbers.groups:
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


def test_what_is_counted_of_a_run(expected: ExpectedTexts) -> None:
    texts = []
    for name, row in data("numbers.yaml").items():
        results, rule = results_of(row["results"]), row.get("rule", "mean")
        numbers = statistics(results, trials_rule=rule)
        assert statistics(results[::-1], trials_rule=rule) == numbers
        groups = [group for rows in numbers.grouped().values() for group in rows]
        lines: list[object] = [
            numbers.totals,
            numbers.overall,
            *groups,
            *numbers.depth,
            numbers.refusals,
            numbers.trials,
        ]
        lines += [f"unread answers {numbers.unread_answers}, cached {numbers.cached}, authored {numbers.authored}"]
        lines += [f"models {numbers.models}, intervals {numbers.has_intervals}", refusals_table(numbers).rows]
        if numbers.trials:
            lines += [(case.score, case.attempt) for case in fold_trials(results, rule)]
        texts.append("\n  ".join([f"{name}:", *map(str, lines)]))
    expected.check(re.sub(r"\d\.\d{7,}", lambda number: f"{float(number[0]):.6f}", "\n".join(texts)) + "\n")


def test_a_rule_of_trials_is_a_known_one() -> None:
    rules: list[Any] = ["most", "", 3, {}, {"at_least": 0}, {"at_least": True}, {"at_least": 1, "x": 1}]
    for rule in rules:
        with pytest.raises(TrialsRuleError, match="expected mean, all, any, or at_least with a whole number of 1 or"):
            fold_case(trials("a", 1.0, 1.0), rule)
        with pytest.raises(TrialsRuleError):
            trials_rule_of(run(settings={"trials_rule": rule}))
    assert (trials_rule_of(run()), trials_rule_of(run(), "all")) == ("mean", "all")
    assert trials_rule_of(run(settings={"trials_rule": {"at_least": 2}}), "all") == {"at_least": 2}


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


@settings(max_examples=30)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=2, max_size=12))
def test_the_interval_is_students_with_one_more_cluster_of_each_extreme(groups: list[list[float]]) -> None:
    values = [value for group in groups for value in group]
    alone = [group[0] for group in groups if len(group) == 1]
    mean = paired_mean(alone, [group for group in groups if len(group) > 1])
    assert mean == paired_mean([], groups)
    assert mean is not None
    assert mean.clusters == len(groups)
    assert mean.mean == pytest.approx(fmean(values))
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
    low, high = max(-1, mean.mean - below), min(1, mean.mean + above)
    assert (mean.low, mean.high) == pytest.approx((low, high), abs=1e-9)
    assert mean.method == method


@pytest.mark.parametrize("pairs", [8, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_covers_the_true_mean(kind: str, pairs: int) -> None:
    assert coverage(kind, ends_of(kind, pairs, draws=400)) >= 0.93


def test_impossible_counts_and_one_cluster_have_no_interval_and_many_pairs_the_normal_one() -> None:
    assert (wilson_interval(0, 0), paired_mean([])) == (None, None)
    for k, n, confidence in ((-1, 2, 0.95), (3, 2, 0.95), (0, -1, 0.95), (1, 2, 1.0), (1, 2, 0.0)):
        with pytest.raises(ValueError, match=r"expected 0 <= k <= n|expected a confidence between"):
            wilson_interval(k, n, confidence)
    mean = paired_mean([], [[0.0, 1.0, 1.0]])
    assert mean is not None
    assert mean.mean == pytest.approx(2 / 3)
    assert (mean.low, mean.high, mean.method) == (None, None, "none")
    values = [math.sin(number) + math.cos(number) / 9 for number in range(5_000)]
    many = paired_mean(values)
    assert many is not None
    expected = norm.interval(0.95, fmean(values), stdev(values) / math.sqrt(len(values)))
    assert (many.low, many.high) == pytest.approx(expected, abs=1e-3)


def test_durations_and_intervals_have_the_unit_of_a_reader() -> None:
    assert [format_duration(milliseconds) for milliseconds in (750, 3200, 750_000)] == ["750 ms", "3.2 s", "12.5 min"]
    interval = Interval(0.25, 0.5, "95 % Wilson")
    shares: list[dict[str, Any]] = [{"count": 1, "total": 4}, {"number": 0.3}]
    figures = (Figure(name="n", definition="d", interval=interval, **value) for value in shares)
    assert list(map(figure_interval, figures)) == ["25.0 % to 50.0 % (95 % Wilson)", "0.25 to 0.5 (95 % Wilson)"]


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
    few, early, late, whole = (
        trials_of({name: [1.0, 0.0] for name in each}) for each in (cases[:5], cases[:-20], cases[20:], cases)
    )
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

    for before, after in ((late, early), (few, whole), (whole, few)):
        read.clear()
        sides.clear()
        one, other = (StoredRun(source="f", run=run(), results=stream(each)) for each in (before, after))
        compare(one, other, take)
        assert (sides.count(-1), sides.count(1)) == (len(before), len(after))
        # what waits for its use does not grow with the run, nor what waits for the other run
        assert max(ahead) <= 9
        assert before is not late or max(map(abs, accumulate(sides))) <= 9
    for use in (take, next, iter, lambda results: list(zip(results, range(7), strict=False))):
        comparison = compare_runs(late, early, use=use)
        assert (comparison.cases, comparison.common) == ((180, 180), 160)


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

    sound = StoredRun(source="f", run=run(), results=trials("a", 1.0))
    for use in (hide, fail, iter):
        one, other = (replace(sound, results=damaged()) if later is side else sound for side in (False, True))
        with pytest.raises(StoredRunError, match="damaged"):
            compare(one, other, use)


# trials and their rule before and now, and whether the runs can't be compared
OTHER_RULES: list[tuple[Any, Any, bool]] = [
    ((1, None), (5, "mean"), False),
    ((3, "mean"), (5, "mean"), False),
    ((1, None), (5, "any"), True),
    ((3, "any"), (5, "any"), True),
    ((3, {"at_least": 2}), (3, {"at_least": 2}), False),
    ((1, "all"), (1, "any"), False),
]


def test_runs_by_other_rules_are_not_comparable() -> None:
    for *rules, differ in OTHER_RULES:
        settings = [{"trials": count, "trials_rule": rule} if rule else {} for count, rule in rules]
        one, other = (StoredRun(source="f", run=run(settings=each), results=()) for each in settings)
        assert bool(compare(one, other).differences) is differ, rules
    assert "| trials" in diff_markdown(compare_runs(trials("a", 1.0), trials("a", 1.0, 0.0, 0.0)))
