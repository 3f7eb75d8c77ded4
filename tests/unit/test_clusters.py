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
from pytest_packbench.analysis.conclusion import limits
from pytest_packbench.analysis.gates import check_run, gate_tally
from pytest_packbench.analysis.intervals import MOST_RESAMPLED, PairedMean, paired_mean
from pytest_packbench.analysis.metrics import whole_of
from pytest_packbench.analysis.trials import facet_of, remark
from pytest_packbench.model.run import CLUSTER_SETTING, Run
from pytest_packbench.reports.diff import sentences
from pytest_packbench.runs.stored import StoredRun
from tests.unit.runs import a_gate, check, entry, run, statistics

if TYPE_CHECKING:
    from pytest_packbench.model.gate import Gate
    from pytest_packbench.model.result import CaseResult

FACET = "shared_part"
SETTINGS = {CLUSTER_SETTING: FACET}
REMARK = "4 cases share 2 shared parts: not independent, so less is certain than it seems"


def sharing(*verdicts: str, backend: str = "anthropic") -> list[CaseResult]:
    """Entries of which always two share a part."""
    return [
        entry(f"c{number}", verdict, facets={FACET: f"part {number // 2}"}, llm_backend=backend, decision="refuse")
        for number, verdict in enumerate(verdicts)
    ]


def averaged(values: list[float], clusters: list[str] | None = None) -> PairedMean:
    found = paired_mean(values, clusters)
    assert found is not None
    return found


@settings(max_examples=40)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.integers(1, 4))
def test_a_pair_that_is_told_several_times_tells_nothing_more(values: list[float], times: int) -> None:
    once = averaged(values)
    again = averaged(
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
    found = averaged(
        [one for group in groups for one in group], [str(n) for n, group in enumerate(groups) for _ in group]
    )
    draws = sorted(fmean(one for group in drawn for one in group) for drawn in product(groups, repeat=len(groups)))
    assert found.clusters == len(groups)
    assert found.low is not None
    assert found.high is not None
    # 2,000 draws find the 2.5 % point between the 1 % and the 5 % point of all of them
    assert at(draws, 0.01) - 1e-9 <= found.low <= at(draws, 0.05) + 1e-9
    assert at(draws, 0.95) - 1e-9 <= found.high <= at(draws, 0.99) + 1e-9


def at(ordered: list[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


def test_above_the_resampled_sizes_clusters_of_one_size_are_averages() -> None:
    size, count = 5, MOST_RESAMPLED // 2
    values = [math.sin(number // size) + math.cos(number) / 9 for number in range(size * count)]
    means = [fmean(values[start : start + size]) for start in range(0, len(values), size)]
    found = averaged(values, [str(number // size) for number in range(len(values))])
    error = stdev(means) / math.sqrt(count)
    assert (found.method, found.clusters) == ("normal", count)
    assert (found.low, found.high) == pytest.approx(norm.interval(0.95, fmean(means), error))
    assert found.detectable == pytest.approx((norm.ppf(0.975) + norm.ppf(0.8)) * error)


def test_one_cluster_has_no_interval() -> None:
    found = averaged([0.0, 1.0, 1.0], ["a", "a", "a"])
    assert found.mean == pytest.approx(2 / 3)
    assert (found.low, found.high, found.method) == (None, None, "none")
    with pytest.raises(ValueError, match="argument 2"):
        paired_mean([0.0, 1.0], ["a"])


def compared(before: list[CaseResult], after: list[CaseResult], **told: str) -> list[str]:
    common: Run = run(settings=told, mode="live")
    comparison = compare(
        StoredRun(source="a", run=common, results=tuple(before)),
        StoredRun(source="b", run=common, results=tuple(after)),
    )
    return sentences(comparison)


def test_a_comparison_resamples_what_cases_share_and_says_so() -> None:
    before, after = sharing(*["failed"] * 4), sharing("passed", "passed", "failed", "failed")
    # of two clusters one moved: with independent cases the lower end would lie above 0
    assert compared(before, after, **SETTINGS) == [
        (
            "Mean change over 4 pairs: +0.375 points of score, two-sided 95 % interval +0.000 to +0.750 "
            "(bootstrap, 2000 resamples, fixed seed, over 2 shared parts)."
        ),
        (
            "With this many pairs and this spread a true mean change of 1.051 points is seen four times out of five "
            "(two-sided, 5 %)."
        ),
        "Pass flips: 0 lost, 2 won; exact McNemar p = 0.500 (may be chance, if the cases are a sample of many).",
        f"{REMARK}; p values and exact bounds take them as independent.",
    ]
    assert not any("shared parts" in sentence for sentence in compared(before, after))
    (told, *_) = compared(sharing("failed", "failed"), sharing("passed", "passed"), **SETTINGS)
    assert told == "Mean change over 2 pairs: +0.750 points of score; all of one shared part, so no interval is given."


def test_a_gate_says_that_its_interval_takes_cases_as_independent() -> None:
    rule = a_gate("attack_success_rate", max=0.5)
    (found,) = check_run(run(settings=SETTINGS), sharing(*["passed"] * 4), [rule])
    assert found.passed
    assert found.text == (
        "attack_success_rate 0 / 4 = 0.0 % <= max 50.0 %, 95 % interval 0.0 % to 49.0 % (Wilson), "
        f"{REMARK}, only 4 cases: it takes 5 clean cases to show that (one-sided exact 95 %): PASS"
    )
    (alone,) = check(sharing(*["passed"] * 4), [rule])
    assert REMARK not in alone.text
    (scripted,) = check(sharing(*["passed"] * 4, backend="stub"), [rule], cluster=FACET)
    assert scripted.text == "attack_success_rate 0 / 4 = 0.0 % <= max 50.0 %, only 4 cases: PASS"


def test_fifty_clean_cases_do_not_show_five_percent() -> None:
    def told(count: int, rule: Gate) -> str:
        return check([entry(f"c{number}", decision="refuse") for number in range(count)], [rule])[0].text

    assert "only 50 cases: it takes 59 clean cases to show that" in told(50, a_gate("attack_success_rate", max=0.05))
    assert "clean cases" not in told(59, a_gate("attack_success_rate", max=0.05))
    assert "clean cases" not in told(50, a_gate("attack_success_rate", max=0.0))


def test_a_summary_says_it_beside_its_intervals() -> None:
    shared = f"{REMARK}; Wilson intervals and exact bounds take them as independent."
    assert shared in limits(run(settings=SETTINGS), statistics(sharing(*["passed"] * 4)))
    assert shared not in limits(run(), statistics(sharing(*["passed"] * 4)))
    # no interval, no remark
    assert shared not in limits(run(settings=SETTINGS), statistics(sharing(*["passed"] * 4, backend="stub")))


def test_what_shares_nothing_stands_alone() -> None:
    mixed = [*sharing("passed", "passed"), entry("x"), entry("y"), entry("broken", "error", facets={FACET: "part 0"})]
    whole = whole_of(gate_tally((), facet=FACET).take(mixed))
    assert (whole.count(lambda one: one.counted), len(whole.clusters)) == (4, 3)
    assert not whole_of(gate_tally(()).take(mixed)).clusters
    assert not whole_of(gate_tally((), facet=FACET).take([])).clusters
    assert remark(4, 4, FACET) == ""
    assert remark(2, 1, FACET).startswith("2 cases share 1 shared part: ")
    assert facet_of(run(settings={CLUSTER_SETTING: ["what", "is", "this"]})) == ""
