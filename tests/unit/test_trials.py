"""Trials of a case: one verdict, and estimates that agree with counting every choice of trials."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom, sem

from pytest_packbench.analysis.comparison import compare
from pytest_packbench.analysis.intervals import wilson_interval
from pytest_packbench.analysis.trials import (
    TrialsRuleError,
    fold_case,
    fold_trials,
    max_trial_count,
    pass_at_k,
    pass_hat_k,
    standard_error,
    trials_rule_of,
)
from pytest_packbench.reports.diff import diff_markdown, sentences
from pytest_packbench.runs.stored import StoredRun
from tests.unit.run_builders import COMPLETE, case_result, check, gate, run, statistics

if TYPE_CHECKING:
    from random import Random

    from pytest_packbench.analysis.comparison import RunComparison
    from pytest_packbench.model.result import CaseResult

RULES: list[Any] = ["mean", "all", "any", {"at_least": 2}]
POINTS = st.sampled_from([0.0, 0.25, 0.75, 0.8, 1.0])
COUNTS = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
CASES = st.integers(2, 5).flatmap(
    lambda n: st.dictionaries(st.sampled_from("abcdef"), st.lists(POINTS, min_size=n, max_size=n), min_size=1)
)


def trials(case_id: str, *points: float, first: int = 0, **changes: Any) -> list[CaseResult]:
    """Return judged trials of a case, at a threshold of 0.8."""
    return [
        case_result(case_id, "passed" if score >= 0.8 else "failed", score=score, trial=number, **changes)
        for number, score in enumerate(points, first)
    ]


def trials_of(cases: dict[str, list[float]]) -> list[CaseResult]:
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


def test_impossible_counts_have_no_estimate() -> None:
    for counts in ((0, 0, 1), (3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)):
        for estimate in (pass_at_k, pass_hat_k):
            with pytest.raises(ValueError, match="expected 0 <= c <= n and 1 <= k <= n"):
                estimate(*counts)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_the_standard_error_is_that_of_the_means_of_cases(means: list[float]) -> None:
    assert standard_error(means) == pytest.approx(float(sem(means)), abs=1e-12)
    assert standard_error(means[:1]) is None


@given(st.lists(POINTS, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_a_rule_decides_on_a_case_in_any_order_of_its_trials(scores: list[float], random: Random) -> None:
    results = trials("a", *scores)
    shuffled = random.sample(results, len(results))
    for rule in RULES:
        case = fold_case(results, rule)
        assert (case, fold_trials(results, rule)) == (fold_case(shuffled, rule), fold_trials(shuffled, rule))
        assert (case.message, case.threshold) == ("", 0.8)
        assert case.score == pytest.approx(fmean(scores))
    passes = [score >= 0.8 for score in scores]
    verdicts = [fold_case(results, rule).verdict == "passed" for rule in RULES]
    assert verdicts == [fmean(scores) >= 0.8 - 1e-9, all(passes), any(passes), sum(passes) >= 2]
    assert fold_case(trials("a", 1.0, 0.7, 0.7), "mean").verdict == "passed"


def test_a_trial_without_a_score_decides_on_its_case_and_a_quarantine_before_all() -> None:
    good = [*trials("a", 1.0), *trials("a", 1.0, first=2)]
    for verdict, rule in product(("error", "vacuous", "not_run"), RULES):
        broken = case_result("a", verdict, trial=1, kind="timeout", message="after 5 s")
        case = fold_case([good[0], broken, good[1]], rule)
        assert (case.verdict, case.score, case.kind) == (verdict, None, "timeout")
        assert case.message == "trial 2 of 3: after 5 s"
        assert fold_case([good[1], good[0], broken], rule) == case
    results = [case_result("a", "not_run", trial=0), case_result("a", "error", trial=1), *trials("a", 1.0, first=2)]
    assert fold_case(results).verdict == "error"
    hole = case_result("a", "known_hole", trial=0, kind="xfail", score=0.2, threshold=0.8)
    (case,) = fold_trials([hole, case_result("a", "error", trial=1, kind="timeout")])
    assert (case.verdict, case.kind, case.quarantined, case.score) == ("known_hole", "xfail", True, None)


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
    assert fold_trials(single) is single
    assert (max_trial_count(single), statistics(single).trials) == (1, None)
    two_files = [*trials("a", 1.0, 1.0), *trials("a", 0.0, 0.0, file="other")]
    assert [case.verdict for case in fold_trials(two_files)] == ["passed", "failed"]
    assert len(fold_trials([*trials("a", 1.0, 1.0), *trials("a", 0.0, first=1)])) == 3


def test_the_worst_trial_decides_on_yes_or_no() -> None:
    refused = case_result(
        "a", trial=0, decision="refuse", refused=True, expects_refusal=True, utility=True, match_depth=10
    )
    unsafe = replace(refused, trial=1, decision="comply_unsafe", refused=False, utility=False, match_depth=4)
    results = [refused, unsafe]
    (case,) = fold_trials(results)
    assert (case.decision, case.refused, case.utility, case.match_depth) == ("comply_unsafe", False, False, 4)
    assert fold_trials([replace(results[0], decision="comply_safe"), results[1]])[0].decision == "comply_unsafe"
    needless = [replace(result, expects_refusal=False, refused=result.trial == 1) for result in results]
    assert fold_trials(needless)[0].refused is True


@given(CASES, st.sampled_from(RULES), st.randoms(use_true_random=False))
def test_rates_count_cases(cases: dict[str, list[float]], rule: Any, random: Random) -> None:
    results = trials_of(cases)
    passed = sum(fold_case(trials(name, *scores), rule).verdict == "passed" for name, scores in cases.items())
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


def compare_runs(before: list[CaseResult], after: list[CaseResult], **changes: Any) -> RunComparison:
    return compare(*(StoredRun(source="f", run=run(**changes), results=tuple(each)) for each in (before, after)))


@given(CASES, CASES)
def test_a_comparison_pairs_cases(before: dict[str, list[float]], after: dict[str, list[float]]) -> None:
    comparison = compare_runs(trials_of(before), trials_of(after), settings={"trials": 5})
    common = sorted(before.keys() & after.keys())
    deltas = {f"toy:plain:{name}": fmean(after[name]) - fmean(before[name]) for name in common}
    assert (comparison.common, comparison.mean.n if comparison.mean else 0) == (len(common), len(common))
    mean = comparison.mean.mean if comparison.mean else 0
    assert mean == pytest.approx(fmean(deltas.values()) if deltas else 0)
    assert comparison.lost + comparison.won <= len(common)
    listed = {one.test_id: one.delta for kind in comparison.changes.values() for one in kind.first}
    assert listed == pytest.approx({name: deltas[name] for name in listed})
    assert {name for name, delta in deltas.items() if abs(delta) > 1e-6} <= listed.keys()


def test_a_comparison_states_the_numbers_of_trials() -> None:
    comparison = compare_runs(trials("a", 1.0), trials("a", 1.0, 0.0, 0.0), mode="live")
    assert sentences(comparison)[0].startswith("1 trial per case before, 3 now: each case is one pair")
    assert comparison.changes["verdict_changed"].first[0].reasons == ("1 / 1 trials passed before, 1 / 3 now",)
    assert "| trials" in diff_markdown(comparison)


def by_rule(trial_count: int = 1, rule: Any = None) -> dict[str, Any]:
    return {"trials": trial_count, "trials_rule": rule} if rule else {}


OTHER_RULES = [
    (by_rule(), by_rule(5, "mean"), False),
    (by_rule(3, "mean"), by_rule(5, "mean"), False),
    (by_rule(), by_rule(5, "any"), True),
    (by_rule(3, "any"), by_rule(5, "any"), True),
    (by_rule(3, {"at_least": 2}), by_rule(3, {"at_least": 2}), False),
    (by_rule(1, "all"), by_rule(1, "any"), False),
]


def test_runs_by_other_rules_are_not_comparable() -> None:
    for before, after, differ in OTHER_RULES:
        runs = [StoredRun(source="f", run=run(settings=settings), results=()) for settings in (before, after)]
        assert bool(compare(*runs).differences) is differ, (before, after)
