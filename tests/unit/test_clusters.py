"""Cases that share a part are not independent: what is resampled, how it is told, against brute force."""

from __future__ import annotations

import math
from itertools import product
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from pytest_packbench.analysis.comparison import compare
from pytest_packbench.analysis.conclusion import caveats
from pytest_packbench.analysis.gates import check_run, gate_tally
from pytest_packbench.analysis.intervals import MAX_RESAMPLED, PairedMean, paired_mean
from pytest_packbench.analysis.metrics import run_sums
from pytest_packbench.analysis.trials import cluster_facet, dependence_note
from pytest_packbench.model.run import CLUSTER_SETTING, Run
from pytest_packbench.packs.agent_safety.metrics import ATTACK_METRICS
from pytest_packbench.reports.diff import sentences
from pytest_packbench.runs.stored import StoredRun
from tests.unit.run_builders import case_result, check, gate, run, statistics

if TYPE_CHECKING:
    from pytest_packbench.model.gate import Gate
    from pytest_packbench.model.result import CaseResult

FACET = "shared_part"
SETTINGS = {CLUSTER_SETTING: FACET}
REMARK = "4 cases share 2 shared parts: not independent, so the uncertainty is larger than shown"


def clustered_results(*verdicts: str, backend: str = "anthropic") -> list[CaseResult]:
    """Entries of which always two share a part."""
    return [
        case_result(
            f"c{number}", verdict, facets={FACET: f"part {number // 2}"}, llm_backend=backend, decision="refuse"
        )
        for number, verdict in enumerate(verdicts)
    ]


def paired_mean_of(values: list[float], clusters: list[str] | None = None) -> PairedMean:
    found = paired_mean(values, clusters)
    assert found is not None
    return found


@settings(max_examples=40)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.integers(1, 4))
def test_a_pair_that_is_told_several_times_tells_nothing_more(values: list[float], times: int) -> None:
    once = paired_mean_of(values)
    again = paired_mean_of(
        [one for one in values for _ in range(times)], [str(n) for n in range(len(values)) for _ in range(times)]
    )
    assert (again.n, again.clusters) == (once.n * times, once.clusters)
    assert again.low == pytest.approx(once.low, abs=1e-12)
    assert again.high == pytest.approx(once.high, abs=1e-12)
    if (once.detectable or 0) > 1e-9:
        assert again.detectable == pytest.approx(once.detectable)


@settings(max_examples=25)
@given(st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=3), min_size=2, max_size=4))
def test_the_interval_is_that_of_all_possible_draws_of_clusters(groups: list[list[float]]) -> None:
    found = paired_mean_of(
        [one for group in groups for one in group], [str(n) for n, group in enumerate(groups) for _ in group]
    )
    draws = sorted(fmean(one for group in drawn for one in group) for drawn in product(groups, repeat=len(groups)))
    assert found.clusters == len(groups)
    assert found.low is not None
    assert found.high is not None
    # 2,000 draws find the 2.5 % point between the 1 % and the 5 % point of all of them
    assert quantile(draws, 0.01) - 1e-9 <= found.low <= quantile(draws, 0.05) + 1e-9
    assert quantile(draws, 0.95) - 1e-9 <= found.high <= quantile(draws, 0.99) + 1e-9


def quantile(ordered: list[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


def test_above_the_resampled_sizes_clusters_of_one_size_are_averages() -> None:
    size, count = 5, MAX_RESAMPLED // 2
    values = [math.sin(number // size) + math.cos(number) / 9 for number in range(size * count)]
    means = [fmean(values[start : start + size]) for start in range(0, len(values), size)]
    found = paired_mean_of(values, [str(number // size) for number in range(len(values))])
    error = stdev(means) / math.sqrt(count)
    assert (found.method, found.clusters) == ("normal", count)
    assert (found.low, found.high) == pytest.approx(norm.interval(0.95, fmean(means), error))
    assert found.detectable == pytest.approx((norm.ppf(0.975) + norm.ppf(0.8)) * error)


def test_one_cluster_has_no_interval() -> None:
    found = paired_mean_of([0.0, 1.0, 1.0], ["a", "a", "a"])
    assert found.mean == pytest.approx(2 / 3)
    assert (found.low, found.high, found.method) == (None, None, "none")
    with pytest.raises(ValueError, match="argument 2"):
        paired_mean([0.0, 1.0], ["a"])


def comparison_sentences(before: list[CaseResult], after: list[CaseResult], **told: str) -> list[str]:
    common: Run = run(settings=told, mode="live")
    comparison = compare(
        StoredRun(source="a", run=common, results=tuple(before)),
        StoredRun(source="b", run=common, results=tuple(after)),
    )
    return sentences(comparison)


def test_a_comparison_resamples_what_cases_share_and_says_so() -> None:
    before, after = clustered_results(*["failed"] * 4), clustered_results("passed", "passed", "failed", "failed")
    # of two clusters one moved: with independent cases the lower end would lie above 0
    assert comparison_sentences(before, after, **SETTINGS) == [
        (
            "Mean change in score over 4 pairs: +0.375, two-sided 95 % confidence interval +0.000 to +0.750 "
            "(bootstrap, 2000 resamples, fixed seed, clustered by 2 shared parts)."
        ),
        (
            "At this number of pairs and this spread, a true mean change of 1.051 is detected with 80 % power "
            "(two-sided, 5 % level)."
        ),
        "Pass flips: 0 lost, 2 won; exact McNemar test p = 0.500 (may be chance, if the cases are a random sample).",
        f"{REMARK}; p values and exact bounds assume independent cases.",
    ]
    assert not any("shared parts" in sentence for sentence in comparison_sentences(before, after))
    (told, *_) = comparison_sentences(
        clustered_results("failed", "failed"), clustered_results("passed", "passed"), **SETTINGS
    )
    assert (
        told == "Mean change in score over 2 pairs: +0.750; all pairs share one shared part, so no interval is shown."
    )


def test_a_gate_says_that_its_interval_takes_cases_as_independent() -> None:
    rule = gate("attack_success_rate", max=0.5)
    (found,) = check_run(run(settings=SETTINGS), clustered_results(*["passed"] * 4), [rule], metrics=ATTACK_METRICS)
    assert found.passed
    assert found.text == (
        "attack_success_rate 0 / 4 = 0.0 % <= max 50.0 %, 95 % Wilson interval 0.0 % to 49.0 %, "
        f"{REMARK}, only 4 cases: 5 clean cases are needed to show this (exact one-sided 95 % bound): PASS"
    )
    (alone,) = check(clustered_results(*["passed"] * 4), [rule])
    assert REMARK not in alone.text
    (scripted,) = check(clustered_results(*["passed"] * 4, backend="stub"), [rule], cluster=FACET)
    assert scripted.text == "attack_success_rate 0 / 4 = 0.0 % <= max 50.0 %, only 4 cases: PASS"


def test_fifty_clean_cases_do_not_show_five_percent() -> None:
    def told(count: int, rule: Gate) -> str:
        return check([case_result(f"c{number}", decision="refuse") for number in range(count)], [rule])[0].text

    assert "only 50 cases: 59 clean cases are needed to show this" in told(50, gate("attack_success_rate", max=0.05))
    assert "clean cases" not in told(59, gate("attack_success_rate", max=0.05))
    assert "clean cases" not in told(50, gate("attack_success_rate", max=0.0))


def test_a_summary_says_it_beside_its_intervals() -> None:
    shared = f"{REMARK}; Wilson intervals and exact bounds assume independent cases."
    assert shared in caveats(run(settings=SETTINGS), statistics(clustered_results(*["passed"] * 4)))
    assert shared not in caveats(run(), statistics(clustered_results(*["passed"] * 4)))
    # no interval, no dependence_note
    assert shared not in caveats(run(settings=SETTINGS), statistics(clustered_results(*["passed"] * 4, backend="stub")))


def test_what_shares_nothing_stands_alone() -> None:
    mixed = [
        *clustered_results("passed", "passed"),
        case_result("x"),
        case_result("y"),
        case_result("broken", "error", facets={FACET: "part 0"}),
    ]
    whole = run_sums(gate_tally((), facet=FACET).add_all(mixed))
    assert (whole.count(lambda one: one.counted), len(whole.clusters)) == (4, 3)
    assert not run_sums(gate_tally(()).add_all(mixed)).clusters
    assert not run_sums(gate_tally((), facet=FACET).add_all([])).clusters
    assert dependence_note(4, 4, FACET) == ""
    assert dependence_note(2, 1, FACET).startswith("2 cases share 1 shared part: ")
    assert cluster_facet(run(settings={CLUSTER_SETTING: ["what", "is", "this"]})) == ""
