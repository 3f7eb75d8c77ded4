"""The streaming tally: one result at a time gives what a run at hand gives, and sums are exact."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.analysis.gates import gate_tally, judge_gates
from pytest_packbench.analysis.listing import Listing
from pytest_packbench.analysis.statistics import statistics_of
from pytest_packbench.analysis.sums import ResultSums, points_of
from pytest_packbench.analysis.trials import fold_trials
from pytest_packbench.model.metric import Profile
from pytest_packbench.packs.agent_safety.metrics import ATTACK_METRICS
from pytest_packbench.runs.writer import sort_results
from tests.unit.run_builders import COMPLETE, case_result, check, gate, statistics
from tests.unit.stored_runs import any_results

if TYPE_CHECKING:
    from random import Random

    from pytest_packbench.model.result import CaseResult

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


@given(st.lists(st.floats(0, 1)), st.randoms(use_true_random=False))
def test_scores_are_summed_as_fsum_does_in_any_order(scores: list[float], random: Random) -> None:
    found = ResultSums()
    for score in random.sample(scores, len(scores)):
        found.add(Profile("passed", scored=True), points_of(score))
    assert found.score == math.fsum(scores)


@given(any_results(trials=True), any_results(trials=True), st.sampled_from(RULES))
def test_results_one_by_one_give_what_a_run_at_hand_gives(
    found: list[CaseResult], earlier: list[CaseResult], rule: Any
) -> None:
    listing = Listing()
    tally = gate_tally(GATES, metrics=ATTACK_METRICS, trials_rule=rule, each_case=[listing.add])
    for result in sort_results(found):
        tally.add(result)
    assert statistics_of(tally) == statistics(found, trials_rule=rule)
    assert judge_gates(tally, GATES) == check(found, GATES, trials_rule=rule)
    assert [row.case.verdict for row in listing.first("all", 100)] == [
        case.verdict for case in sorted(fold_trials(found, rule), key=lambda case: case.case_id)
    ]
    assert check(found, GATES, earlier, trials_rule=rule) == check(
        sort_results(found), GATES, earlier, trials_rule=rule
    )


@given(any_results(), st.integers(1, 4))
def test_a_listing_keeps_the_first_of_each_table_and_counts_all(found: list[CaseResult], most: int) -> None:
    whole, first = Listing().add_all(found), Listing(max_rows=most).add_all(found)
    for name in ("all", "failed", "error", "vacuous", "not_run", "known_hole", "quarantined", "broken", "stale"):
        assert first.count(name) == whole.count(name)
        assert list(first.first(name, 100)) == list(whole.first(name, most))
    assert whole.count("all") == len(found)


def test_no_record_or_payload_is_kept_for_a_page() -> None:
    (row,) = Listing().add_all([case_result(record={"a": 1}, payload="long")]).first("all", 1)
    assert (row.case.record, row.case.payload, row.trials) == (None, None, 1)
