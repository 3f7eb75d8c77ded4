"""Intervals and exact tests: against scipy, and clusters against brute force."""

from __future__ import annotations

import math
from itertools import product
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm

from pytest_packbench.analysis.intervals import (
    MAX_RESAMPLED,
    PairedMean,
    exact_bound,
    mcnemar_p_value,
    paired_mean,
    unseen_rate_bound,
    wilson_interval,
)

SHARES = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n) | st.sampled_from([0, n]), st.just(n)))
CHANGES = st.floats(-1, 1)


@given(SHARES, st.floats(0.5, 0.999))
def test_wilson_is_scipys_and_exact_at_the_ends(counts: tuple[int, int], confidence: float) -> None:
    k, n = counts
    scipys = binomtest(k, n).proportion_ci(confidence_level=confidence, method="wilson")
    ours = wilson_interval(k, n, confidence)
    assert ours is not None
    assert ours == pytest.approx((scipys.low, scipys.high), abs=1e-12)
    assert 0 <= ours[0] <= k / n <= ours[1] <= 1
    assert (ours[0] == 0, ours[1] == 1) == (k == 0, k == n)


def test_where_there_is_no_proportion_is_no_interval() -> None:
    assert wilson_interval(0, 0) is None
    for k, n, confidence in ((-1, 2, 0.95), (3, 2, 0.95), (0, -1, 0.95), (1, 2, 1.0), (1, 2, 0.0)):
        with pytest.raises(ValueError, match=r"expected 0 <= k <= n|expected a confidence between"):
            wilson_interval(k, n, confidence)


@settings(max_examples=60)
@given(SHARES.filter(lambda counts: counts[1] <= 400), st.floats(0.5, 0.999))
def test_the_exact_bound_is_scipys(counts: tuple[int, int], confidence: float) -> None:
    high = binomtest(*counts, alternative="less").proportion_ci(confidence, method="exact").high
    low = binomtest(*counts, alternative="greater").proportion_ci(confidence, method="exact").low
    assert exact_bound(*counts, confidence, upper=True) == pytest.approx(high, abs=1e-9)
    assert exact_bound(*counts, confidence, upper=False) == pytest.approx(low, abs=1e-9)


@given(st.integers(1, 10_000) | st.sampled_from([58, 59]))
def test_the_bound_on_an_unseen_rate_is_exact_and_59_clean_cases_show_five_percent(n: int) -> None:
    bound = binomtest(0, n, alternative="less").proportion_ci(0.95, method="exact").high
    assert unseen_rate_bound(n) == pytest.approx(bound)
    assert (bound < 0.05) == (n >= 59)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_scipys_binomial_test(lost: int, won: int) -> None:
    expected = binomtest(min(lost, won), lost + won, 0.5).pvalue if lost + won else 1.0
    assert mcnemar_p_value(lost, won) == mcnemar_p_value(won, lost) == pytest.approx(expected)
    # very many flips do not overflow
    assert mcnemar_p_value(5_000, 5_200) == pytest.approx(2 * binom.cdf(5_000, 10_200, 0.5))


def mean_of(values: list[float], clusters: list[str] | None = None) -> PairedMean:
    mean = paired_mean(values, clusters)
    assert mean is not None
    return mean


def ends(mean: PairedMean) -> tuple[float, float]:
    assert mean.low is not None
    assert mean.high is not None
    return mean.low, mean.high


@settings(max_examples=40)
@given(st.lists(CHANGES, min_size=2, max_size=30))
def test_the_interval_contains_the_mean_and_stays_within_the_values(values: list[float]) -> None:
    mean = mean_of(values)
    low, high = ends(mean)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert mean.mean == pytest.approx(fmean(values))
    assert mean == paired_mean(values)


def test_many_pairs_get_the_normal_interval_which_agrees_with_the_bootstrap() -> None:
    values = [math.sin(number) / 3 for number in range(MAX_RESAMPLED)]
    resampled, normal = mean_of(values), mean_of([*values, 0.0])
    assert (resampled.method, normal.method) == ("bootstrap", "normal")
    expected = norm.interval(0.95, fmean(values), stdev(values) / math.sqrt(len(values)))
    assert ends(normal) == pytest.approx(expected, abs=1e-4)
    assert ends(resampled) == pytest.approx(expected, abs=0.002)
    # 80 % power at the 5 % level
    assert resampled.detectable == pytest.approx((norm.ppf(0.975) + norm.ppf(0.8)) * stdev(values) / len(values) ** 0.5)


@settings(max_examples=15)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=2, max_size=4))
def test_the_interval_is_that_of_all_possible_draws_of_clusters(groups: list[list[float]]) -> None:
    clusters = [str(number) for number, group in enumerate(groups) for _ in group]
    mean = mean_of([value for group in groups for value in group], clusters)
    draws = sorted(fmean(value for group in drawn for value in group) for drawn in product(groups, repeat=len(groups)))
    assert mean.clusters == len(groups)
    low, high = ends(mean)
    # 2,000 draws find the 2.5 % point between the 1 % and the 5 % point of all of them
    one, five, ninety_five, ninety_nine = (draws[round(share * (len(draws) - 1))] for share in (0.01, 0.05, 0.95, 0.99))
    assert one - 1e-9 <= low <= five + 1e-9
    assert ninety_five - 1e-9 <= high <= ninety_nine + 1e-9


def test_many_clusters_of_one_size_are_as_their_averages() -> None:
    size, count = 5, MAX_RESAMPLED // 2
    values = [math.sin(number // size) + math.cos(number) / 9 for number in range(size * count)]
    averages = [fmean(values[start : start + size]) for start in range(0, len(values), size)]
    mean = mean_of(values, [str(number // size) for number in range(len(values))])
    error = stdev(averages) / math.sqrt(count)
    assert (mean.method, mean.clusters) == ("normal", count)
    assert ends(mean) == pytest.approx(norm.interval(0.95, fmean(averages), error))
    assert mean.detectable == pytest.approx((norm.ppf(0.975) + norm.ppf(0.8)) * error)


def test_one_cluster_has_no_interval() -> None:
    mean = mean_of([0.0, 1.0, 1.0], ["a", "a", "a"])
    assert mean.mean == pytest.approx(2 / 3)
    assert (mean.low, mean.high, mean.method) == (None, None, "none")
    with pytest.raises(ValueError, match="argument 2"):
        paired_mean([0.0, 1.0], ["a"])
