"""Trials of a case: one verdict, and estimates that agree with counting every choice of trials."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
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
from pytest_packbench.reports.markdown import summary_markdown
from pytest_packbench.runs.stored import StoredRun
from tests.unit.run_builders import COMPLETE, case_result, check, conclusion_of, document, gate, run, statistics

if TYPE_CHECKING:
    from random import Random

    from pytest_packbench.model.result import CaseResult

RULES: list[Any] = ["mean", "all", "any", {"at_least": 2}]


def trial(case_id: str, number: int, points: float, **changes: Any) -> CaseResult:
    """One judged trial at a threshold of 0.8."""
    return case_result(case_id, "passed" if points >= 0.8 else "failed", score=points, trial=number, **changes)


def trials(case_id: str, *points: float, **changes: Any) -> list[CaseResult]:
    return [trial(case_id, number, one, **changes) for number, one in enumerate(points)]


def verdicts_of(cases: dict[str, list[float]]) -> list[CaseResult]:
    return [one for name, points in cases.items() for one in trials(name, *points)]


counts = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
points = st.sampled_from([0.0, 0.25, 0.75, 0.8, 1.0])
repeated = st.integers(2, 5).flatmap(
    lambda n: st.dictionaries(st.sampled_from("abcdef"), st.lists(points, min_size=n, max_size=n), min_size=1)
)


@given(counts, st.data())
def test_the_estimates_count_every_choice_of_trials(found: tuple[int, int], data: st.DataObject) -> None:
    n, c = found
    k = data.draw(st.integers(1, n))
    passes = [number < c for number in range(n)]
    assert pass_at_k(n, c, k) == pytest.approx(fmean(any(one) for one in combinations(passes, k)))
    assert pass_hat_k(n, c, k) == pytest.approx(fmean(all(one) for one in combinations(passes, k)))
    drawn = hypergeom(n, c, k)
    assert pass_at_k(n, c, k) == pytest.approx(1 - drawn.pmf(0))
    assert pass_hat_k(n, c, k) == pytest.approx(drawn.pmf(k))


@given(counts)
def test_more_tries_help_once_and_hurt_always(found: tuple[int, int]) -> None:
    n, c = found
    at, hat = ([estimate(n, c, k) for k in range(1, n + 1)] for estimate in (pass_at_k, pass_hat_k))
    assert at == sorted(at)
    assert hat == sorted(hat, reverse=True)
    assert at[0] == pytest.approx(c / n)
    assert hat[0] == pytest.approx(c / n)
    assert (at[-1], hat[-1]) == (float(c > 0), float(c == n))


@pytest.mark.parametrize(("n", "c", "k"), [(0, 0, 1), (3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_the_estimates_refuse_what_can_not_be(n: int, c: int, k: int) -> None:
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="expected 0 <= c <= n and 1 <= k <= n"):
            estimate(n, c, k)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_the_standard_error_is_scipys_over_cases(means: list[float]) -> None:
    assert standard_error(means) == pytest.approx(float(sem(means)), abs=1e-12)


@given(st.integers(2, 6), st.integers(2, 10), st.randoms(use_true_random=False))
def test_the_standard_error_is_the_cluster_robust_one(m: int, groups: int, random: Random) -> None:
    scores = np.array([[random.random() for _ in range(m)] for _ in range(groups)])
    # sums of residuals by cluster (Liang and Zeger 1986), with the factor G / (G - 1)
    sums = (scores - scores.mean()).sum(axis=1)
    robust = math.sqrt(groups / (groups - 1) * float((sums**2).sum())) / scores.size
    assert standard_error(scores.mean(axis=1).tolist()) == pytest.approx(robust)


def test_one_case_has_no_error() -> None:
    assert standard_error([0.5]) is None


@pytest.mark.parametrize(
    ("points_", "rule", "verdict"),
    [
        ((1.0, 0.7, 0.7), "mean", "passed"),
        ((1.0, 0.5, 0.5), "mean", "failed"),
        ((1.0, 1.0, 0.0), "all", "failed"),
        ((1.0, 0.0, 0.0), "any", "passed"),
        ((1.0, 1.0, 0.0), {"at_least": 2}, "passed"),
        ((1.0, 0.0, 0.0), {"at_least": 2}, "failed"),
    ],
)
def test_a_case_is_judged_by_its_rule(points_: tuple[float, ...], rule: Any, verdict: str) -> None:
    found = fold_case(trials("a", *points_), rule)
    assert (found.verdict, found.message, found.threshold) == (verdict, "", 0.8)
    assert found.score == pytest.approx(fmean(points_))


@given(st.lists(points, min_size=2, max_size=6), st.sampled_from(RULES), st.randoms(use_true_random=False))
def test_the_order_of_trials_makes_no_difference(scores: list[float], rule: Any, random: Random) -> None:
    found = trials("a", *scores)
    assert fold_case(random.sample(found, len(found)), rule) == fold_case(found, rule)
    assert fold_trials(random.sample(found, len(found)), rule) == fold_trials(found, rule)


@given(st.lists(points, min_size=2, max_size=6))
def test_the_rules_are_ordered(scores: list[float]) -> None:
    passed = [fold_case(trials("a", *scores), rule).verdict == "passed" for rule in ("all", {"at_least": 2}, "any")]
    assert passed == sorted(passed)
    mean = fold_case(trials("a", *scores), "mean").verdict == "passed"
    assert mean is (fmean(scores) >= 0.8 - 1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("verdict", ["error", "vacuous", "not_run"])
def test_a_broken_trial_is_never_averaged_away(rule: Any, verdict: str) -> None:
    broken = case_result("a", verdict, trial=1, kind="timeout", message="after 5 s")
    found = fold_case([trial("a", 0, 1.0), broken, trial("a", 2, 1.0)], rule)
    assert (found.verdict, found.score, found.kind) == (verdict, None, "timeout")
    assert found.message == "trial 2 of 3: after 5 s"
    assert fold_case([trial("a", 2, 1.0), trial("a", 0, 1.0), broken], rule) == found


def test_an_error_comes_before_what_did_not_run() -> None:
    found = [case_result("a", "not_run", trial=0), case_result("a", "error", trial=1), trial("a", 2, 1.0)]
    assert fold_case(found).verdict == "error"


def test_one_trial_is_judged_by_itself_whatever_the_rule() -> None:
    one = case_result("a", "failed", message="so")
    for rule in RULES:
        found = fold_case([one], rule)
        assert (found.verdict, found.score, found.message) == ("failed", 0.25, "so")


def test_a_quarantined_case_stays_quarantined() -> None:
    found = [
        case_result("a", "known_hole", trial=0, kind="xfail", score=0.2, threshold=0.8),
        case_result("a", "error", trial=1, kind="timeout"),
    ]
    (case,) = fold_trials(found)
    assert (case.verdict, case.kind, case.quarantined, case.score) == ("known_hole", "xfail", True, None)


@pytest.mark.parametrize("rule", ["most", "", 3, {}, {"at_least": 0}, {"at_least": True}, {"at_least": 1, "x": 1}])
def test_a_rule_that_is_none_is_one_line(rule: Any) -> None:
    with pytest.raises(TrialsRuleError, match="expected mean, all, any, or at_least with a whole number of 1 or more"):
        fold_case(trials("a", 1.0, 1.0), rule)
    with pytest.raises(TrialsRuleError):
        trials_rule_of(run(settings={"trials_rule": rule}))


def test_a_runs_rule_is_in_its_settings() -> None:
    assert trials_rule_of(run()) == "mean"
    assert trials_rule_of(run(), "all") == "all"
    assert trials_rule_of(run(settings={"trials_rule": {"at_least": 2}}), "all") == {"at_least": 2}


def test_what_has_no_trials_is_left_alone() -> None:
    found = [case_result("a"), case_result("a", "failed"), case_result("b")]
    assert fold_trials(found) is found
    assert (max_trial_count(found), statistics(found).trials) == (1, None)


def test_files_of_one_id_are_no_trials_of_each_other() -> None:
    found = [*trials("a", 1.0, 1.0), *(replace(one, file="other") for one in trials("a", 0.0, 0.0))]
    assert [case.verdict for case in fold_trials(found)] == ["passed", "failed"]
    assert len(fold_trials([*trials("a", 1.0, 1.0), trial("a", 1, 0.0)])) == 3


def test_the_worst_trial_answers_what_is_asked_with_yes_or_no() -> None:
    found = [
        trial("a", 0, 1.0, decision="refuse", refused=True, expects_refusal=True, utility=True, match_depth=10),
        trial("a", 1, 0.0, decision="comply_unsafe", refused=False, expects_refusal=True, utility=False, match_depth=4),
    ]
    (case,) = fold_trials(found)
    assert (case.decision, case.refused, case.utility, case.match_depth) == ("comply_unsafe", False, False, 4)
    mixed = [replace(found[0], decision="comply_safe"), found[1]]
    assert fold_trials(mixed)[0].decision == "comply_unsafe"
    undue = [replace(one, expects_refusal=False, refused=one.trial == 1) for one in found]
    assert fold_trials(undue)[0].refused is True


@given(repeated, st.sampled_from(RULES), st.randoms(use_true_random=False))
def test_rates_count_cases(cases: dict[str, list[float]], rule: Any, random: Random) -> None:
    found = verdicts_of(cases)
    verdicts = {name: fold_case(trials(name, *scores), rule).verdict for name, scores in cases.items()}
    passed = list(verdicts.values()).count("passed")
    numbers = statistics(random.sample(found, len(found)), trials_rule=rule)
    assert numbers == statistics(found, trials_rule=rule)
    assert (numbers.totals.selected, numbers.overall.n, numbers.overall.passed) == (len(cases), len(cases), passed)
    assert numbers.overall.interval == wilson_interval(passed, len(cases))
    assert numbers.overall.mean_score == pytest.approx(fmean(map(fmean, cases.values())))
    complete, rate = check(found, [COMPLETE, gate("pass_rate", min=0.5)], trials_rule=rule)
    assert complete.text.startswith(f"completeness {len(cases)} / {len(cases)}")
    assert rate.observed == passed / len(cases)
    figures = numbers.trials
    assert figures is not None
    ones = [sum(one >= 0.8 for one in scores) / len(scores) for scores in cases.values()]
    first = figures.passes[0]
    assert (first.k, first.cases) == (1, len(cases))
    assert first.at_k == pytest.approx(fmean(ones))
    assert first.hat_k == pytest.approx(fmean(ones))
    assert [one.at_k for one in figures.passes] == sorted(one.at_k for one in figures.passes)
    assert [one.hat_k for one in figures.passes] == sorted((one.hat_k for one in figures.passes), reverse=True)
    assert figures.attempts == len(found)


def test_a_case_with_a_broken_trial_is_missing_from_completeness_and_from_the_figures() -> None:
    found = [*trials("a", 1.0, 0.0), trial("b", 0, 1.0), case_result("b", "error", trial=1, message="down")]
    numbers = statistics(found)
    assert (numbers.totals.verdicts["error"], numbers.overall.n) == (1, 1)
    assert numbers.trials is not None
    assert (numbers.trials.cases, numbers.trials.attempts) == (1, 2)
    (result,) = check(found, [COMPLETE])
    assert result.text == "completeness 1 / 2 = 50.0 % < min 100.0 %: FAIL"


def test_an_exact_bound_counts_cases() -> None:
    found = [one for n in range(58) for one in trials(f"c{n}", 1.0, 1.0, decision="refuse")]
    rule = gate("attack_success_rate", max=0.05, confidence=0.95)
    (result,) = check(found, [rule])
    assert "0 / 58 = 0.0 %, exact one-sided 95 % upper bound 5.03 %" in result.text


def test_many_trials_are_looked_at_in_a_few_places() -> None:
    figures = statistics(trials("a", *[1.0] * 30)).trials
    assert figures is not None
    assert [one.k for one in figures.passes] == [1, 2, 3, 4, 5, 10, 20, 30]


def test_authored_answers_have_no_error() -> None:
    found = [one for name in "ab" for one in trials(name, 1.0, 0.0, llm_backend="stub")]
    figures = statistics(found).trials
    assert figures is not None
    assert (figures.standard_error, figures.mean_score) == (None, 0.5)


RAN = run(mode="live", settings={"gate": "case", "trials": 2, "trials_rule": "mean", "temperature": 0.7})


def markdown_of(found: list[CaseResult]) -> str:
    return summary_markdown(conclusion_of(RAN, found, COMPLETE))


def test_the_page_says_what_trials_showed_and_shows_a_case_once() -> None:
    found = [*trials("a", 1.0, 0.75), *trials("b", 0.0, 1.0)]
    page = markdown_of(found)
    assert (
        "2 trials per case at temperature 0.7; a case passes when the mean score of its trials is at or above" in page
    )
    assert "mean score 0.69, standard error 0.188 (clustered by case)" in page
    assert "`pass@k` and `pass^k`" in page
    table = page.partition("## Trials")[2].partition("## Gates")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith(("| 1 ", "| 2 "))]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["1", "50.0 %", "50.0 %", "2"],
        ["2", "100.0 %", "0.0 %", "2"],
    ]
    assert page.count("| b ") == 2
    assert "| 1 / 2" in page
    told = document(RAN, found)
    assert told["trials"]["temperature"] == 0.7
    assert [row["trial"] for row in told["cases"]] == [0, 1, 0, 1]
    assert told["overall"]["n"] == 2


def test_a_page_of_single_trials_says_nothing_of_trials() -> None:
    found = [case_result("a"), case_result("b", "failed")]
    page = markdown_of(found)
    assert "trial" not in page
    assert "trials" not in document(RAN, found)


@given(repeated, repeated)
def test_a_comparison_pairs_cases(before: dict[str, list[float]], after: dict[str, list[float]]) -> None:
    there = compare(
        StoredRun(source="f", run=run(settings={"trials": 5}), results=tuple(verdicts_of(before))),
        StoredRun(source="f", run=run(settings={"trials": 5}), results=tuple(verdicts_of(after))),
    )
    common = sorted(before.keys() & after.keys())
    deltas = {f"toy:plain:{name}": fmean(after[name]) - fmean(before[name]) for name in common}
    assert (there.common, there.mean.n if there.mean else 0) == (len(common), len(common))
    assert (there.mean.mean if there.mean else 0) == pytest.approx(fmean(deltas.values()) if deltas else 0)
    assert there.lost + there.won <= len(common)
    listed = {one.test_id: one.delta for kind in there.changes.values() for one in kind.first}
    assert listed == pytest.approx({name: deltas[name] for name in listed})
    assert {name for name, delta in deltas.items() if abs(delta) > 1e-6} <= listed.keys()


def test_a_comparison_says_that_trials_are_one_pair() -> None:
    before, after = (
        StoredRun(source="f", run=run(mode="live"), results=tuple(found))
        for found in (trials("a", 1.0), trials("a", 1.0, 0.0, 0.0))
    )
    found = compare(before, after)
    assert sentences(found)[0].startswith("1 trial per case before, 3 now: each case is one pair")
    assert found.changes["verdict_changed"].first[0].reasons == ("1 / 1 trials passed before, 1 / 3 now",)
    assert "| trials" in diff_markdown(found)


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ({}, {"trials": 5, "trials_rule": "mean"}, False),
        ({"trials": 3, "trials_rule": "mean"}, {"trials": 5, "trials_rule": "mean"}, False),
        ({}, {"trials": 5, "trials_rule": "any"}, True),
        ({"trials": 3, "trials_rule": "any"}, {"trials": 5, "trials_rule": "any"}, True),
        ({"trials": 3, "trials_rule": {"at_least": 2}}, {"trials": 3, "trials_rule": {"at_least": 2}}, False),
        ({"trials": 1, "trials_rule": "all"}, {"trials": 1, "trials_rule": "any"}, False),
    ],
)
def test_runs_judged_by_other_rules_are_not_comparable(
    before: dict[str, Any], after: dict[str, Any], differ: bool
) -> None:
    runs = [StoredRun(source="f", run=run(settings=settings), results=()) for settings in (before, after)]
    assert bool(compare(*runs).differences) is differ
