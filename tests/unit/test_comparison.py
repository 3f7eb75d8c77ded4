"""Comparing runs: counts, paired statistics against scipy, conditions, and the page that people read."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm

from pytest_packbench.analysis.comparison import Change, ConditionError, RunComparison, compare, parse_conditions
from pytest_packbench.analysis.intervals import MAX_RESAMPLED, mcnemar_p_value, paired_mean, unseen_rate_bound
from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.run import Run
from pytest_packbench.reports.diff import comparison_headline, diff_markdown, sentences
from pytest_packbench.runs.report import OpenRun
from pytest_packbench.runs.stored import StoredRun

if TYPE_CHECKING:
    from random import Random

RUN = Run(
    run_id="01A",
    suite="s",
    description="",
    pack="p",
    pack_version="1",
    suite_sha256="a" * 64,
    bundled=False,
    mode="fixture",
    target="reference",
    started_at="2026-01-01T00:00:00.000Z",
    finished_at="2026-01-01T00:00:01.000Z",
)


def case_result(
    name: str, score: float | None, *, verdict: str = "", sha: str = "x", trial: int = 0, term: float = 0.0
) -> CaseResult:
    verdict = verdict or ("passed" if score is not None and score >= 0.8 else "failed")
    terms = ({"name": "match", "effect": "add", "value": term, "detail": ""},) if term else ()
    return CaseResult(
        suite="s",
        test_id=name,
        case_id=name,
        nodeid=name,
        file=name,
        verdict=verdict,
        score=score,
        threshold=0.8,
        case_sha256=sha,
        trial=trial,
        terms=terms,
    )


def stored_run(*entries: CaseResult, **run: Any) -> StoredRun:
    return StoredRun(source="f", run=replace(RUN, **run), results=entries)


def comparison_of(before: dict[str, float], after: dict[str, float]) -> RunComparison:
    return compare(
        stored_run(*(case_result(*one) for one in before.items())),
        stored_run(*(case_result(*one) for one in after.items())),
    )


def test_the_threshold_forgives_float_noise() -> None:
    found = comparison_of({"a": 0.30, "b": 0.30, "c": 0.30}, {"a": 0.35, "b": 0.25, "c": 0.349})
    assert [one.test_id for one in found.changes["improved"].first] == ["a"]
    assert [one.test_id for one in found.changes["regressed"].first] == ["b"]


def test_every_kind_of_change_is_counted() -> None:
    before = stored_run(
        case_result("fails", 1.0),
        case_result("fixed", 0.2),
        case_result("gone", 1.0),
        case_result("broke", 1.0),
        case_result("other", 1.0),
    )
    after = stored_run(
        case_result("fails", 0.0),
        case_result("fixed", 0.9),
        case_result("new", 1.0),
        case_result("broke", None, verdict="error"),
        case_result("other", 0.0, sha="y"),
    )
    found = compare(before, after)
    assert found.figures() == {
        "improved": 1,
        "regressed": 1,
        "smaller_changes": 0,
        "new_failures": 2,
        "fixed": 1,
        "verdict_changed": 3,
        "hash_changed": 1,
        "quarantined": 0,
        "added": 1,
        "removed": 1,
        "mean": pytest.approx((-1.0 + 0.7) / 2),
    }
    assert (found.lost, found.won) == (1, 1)


def test_a_changed_case_is_left_out_of_the_statistics() -> None:
    found = compare(
        stored_run(case_result("a", 1.0), case_result("b", 1.0)),
        stored_run(case_result("a", 1.0), case_result("b", 0.0, sha="y")),
    )
    assert found.mean is not None
    assert (found.mean.n, found.mean.mean, found.lost) == (1, 0.0, 0)


def test_trials_of_a_case_are_one_pair() -> None:
    before = stored_run(case_result("a", 1.0), case_result("a", 0.0, trial=1))
    after = stored_run(case_result("a", 1.0), case_result("a", 1.0, trial=1))
    found = compare(before, after)
    assert found.mean is not None
    assert (found.mean.n, found.mean.mean) == (1, 0.5)
    assert found.changes["improved"].first[0].before == "failed"


def test_cases_of_one_test_id_are_one_and_the_worse_one_counts() -> None:
    twins = [replace(case_result("a", 1.0), file=file) for file in ("one", "two")]
    worse = [twins[0], replace(case_result("a", 0.0), file="two")]
    assert not any(compare(stored_run(*worse), stored_run(*reversed(worse))).counts().values())
    found = compare(stored_run(*twins), stored_run(*worse))
    assert (found.cases, found.counts()["new_failures"], found.lost) == ((1, 1), 1, 1)
    assert found.trials == (2, 2)


def test_trials_that_do_not_come_together_are_one_case_all_the_same() -> None:
    mixed = [
        case_result("a", 1.0),
        case_result("b", 1.0),
        case_result("a", 0.0, trial=1),
        case_result("b", 1.0, trial=1),
    ]
    run = replace(RUN, settings={"trials": 2})
    found = compare(*(OpenRun(source="f", run=run, status="", results=iter(mixed)) for _ in range(2)))
    assert (found.cases, found.trials) == ((2, 2), (2, 2))


def test_terms_say_why() -> None:
    found = compare(stored_run(case_result("a", 1.0, term=1.0)), stored_run(case_result("a", 0.3, term=0.3)))
    assert found.changes["regressed"].first[0].reasons == ("match +1.00 to +0.30",)


def test_runs_that_differ_in_what_a_score_means_are_named() -> None:
    found = compare(stored_run(), stored_run(mode="live", suite_sha256="b" * 64))
    assert found.differences == (
        "mode: 'fixture' before, 'live' now",
        f"scoring rules: '{'a' * 12}' before, '{'b' * 12}' now",
    )


scores = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1), max_size=8)


@given(scores, scores)
def test_turning_a_comparison_round_turns_its_figures(before: dict[str, float], after: dict[str, float]) -> None:
    there, back = comparison_of(before, after), comparison_of(after, before)
    assert there.counts()["improved"] == back.counts()["regressed"]
    assert there.counts()["added"] == back.counts()["removed"]
    assert there.figures()["mean"] == pytest.approx(-back.figures()["mean"], nan_ok=True)
    assert comparison_headline(comparison_of(before, before)) == ("no score changed" if before else "no case in common")


@st.composite
def any_case(draw: st.DrawFn) -> CaseResult:
    """A trial of one of a few cases, judged or broken, of one of two versions."""
    verdict = draw(st.sampled_from(["passed", "failed", "error", "vacuous", "not_run", "known_hole"]))
    points = draw(st.floats(0, 1)) if verdict in {"passed", "failed"} else None
    found = case_result(draw(st.sampled_from("abcd")), points, verdict=verdict, sha=draw(st.sampled_from("xy")))
    return replace(found, trial=draw(st.integers(0, 2)))


any_run = st.lists(any_case(), max_size=10, unique_by=lambda one: (one.test_id, one.trial))
rules = st.sampled_from([{"trials": 3, "trials_rule": rule} for rule in ("mean", "all", {"at_least": 2})])


def by_id(found: RunComparison, kind: str) -> list[Change]:
    """The changes of a kind by test id."""
    return sorted(found.changes[kind].first, key=lambda one: one.test_id)


@given(any_run, any_run, rules)
def test_a_comparison_turned_round_is_its_mirror(
    before: list[CaseResult], after: list[CaseResult], settings: Any
) -> None:
    runs = stored_run(*before, settings=settings), stored_run(*after, settings=settings)
    there, back = compare(*runs), compare(*reversed(runs))
    assert there.changes.keys() == back.changes.keys()
    for kind in ("verdict_changed", "hash_changed"):
        pairs = zip(by_id(there, kind), by_id(back, kind), strict=True)
        for one, other in pairs:
            assert (one.test_id, one.before, one.after) == (other.test_id, other.after, other.before)
            assert one.hash_changed is other.hash_changed
            assert one.delta == (None if other.delta is None else -other.delta)
    assert {one.test_id for one in there.changes["improved"].first} == {
        one.test_id for one in back.changes["regressed"].first
    }
    assert {one.test_id for one in there.changes["smaller_changes"].first} == {
        one.test_id for one in back.changes["smaller_changes"].first
    }
    assert (there.added, there.removed) == (back.removed, back.added)
    assert (there.lost, there.won, there.p_flips) == (back.won, back.lost, back.p_flips)
    assert (there.mean is None) is (back.mean is None)
    if there.mean is not None and back.mean is not None:
        assert there.mean.mean == -back.mean.mean
        assert there.mean.detectable == back.mean.detectable
        if there.mean.low is not None and there.mean.high is not None:
            assert (there.mean.low, there.mean.high) == pytest.approx((-(back.mean.high or 0), -(back.mean.low or 0)))


@given(any_run, any_run, rules, st.randoms(use_true_random=False))
def test_the_order_of_entries_makes_no_difference(
    before: list[CaseResult], after: list[CaseResult], settings: Any, random: Random
) -> None:
    runs = [stored_run(*found, settings=settings) for found in (before, after)]
    mixed = [stored_run(*random.sample(found, len(found)), settings=settings) for found in (before, after)]
    there, again = compare(*runs), compare(*mixed)
    assert diff_markdown(there) == diff_markdown(again)
    assert there == again


@given(any_run)
def test_a_run_beside_itself_has_not_changed(found: list[CaseResult]) -> None:
    assert not any(compare(stored_run(*found), stored_run(*found)).counts().values())


def test_smaller_changes_are_bounded_on_the_page() -> None:
    names = [f"c{number}" for number in range(130)]
    page = diff_markdown(comparison_of(dict.fromkeys(names, 0.5), dict.fromkeys(names, 0.52)))
    assert "100 of 130 shown; each run's report.json lists all." in page
    assert "smaller changes | 130" in " ".join(page.split())


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_scipys_binomial_test(lost: int, won: int) -> None:
    expected = binomtest(min(lost, won), lost + won, 0.5).pvalue if lost + won else 1.0
    assert mcnemar_p_value(lost, won) == pytest.approx(expected)
    assert mcnemar_p_value(lost, won) == mcnemar_p_value(won, lost)


def test_mcnemar_of_very_many_flips() -> None:
    assert mcnemar_p_value(5_000, 5_200) == pytest.approx(2 * binom.cdf(5_000, 10_200, 0.5))


@given(st.integers(1, 10_000))
def test_what_stays_unseen_is_the_exact_bound(n: int) -> None:
    expected = binomtest(0, n, alternative="less").proportion_ci(0.95, method="exact").high
    assert unseen_rate_bound(n) == pytest.approx(expected)


def test_fifty_nine_clean_cases_show_five_percent() -> None:
    assert (unseen_rate_bound(58) or 0) > 0.05 > (unseen_rate_bound(59) or 1)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30))
def test_the_interval_holds_its_mean_and_stays_in_range(values: list[float]) -> None:
    found = paired_mean(values)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    assert found.mean == pytest.approx(fmean(values))
    assert found == paired_mean(values)


def test_bootstrap_and_normal_interval_agree_on_many_pairs() -> None:
    values = [math.sin(number) / 3 for number in range(MAX_RESAMPLED)]
    resampled, normal = paired_mean(values), paired_mean([*values, 0.0])
    assert resampled is not None
    assert normal is not None
    assert (resampled.method, normal.method) == ("bootstrap", "normal")
    assert resampled.low == pytest.approx(normal.low, abs=0.002)
    assert normal.high == pytest.approx(
        norm.interval(0.95, fmean(values), stdev(values) / math.sqrt(len(values)))[1], abs=1e-4
    )


def test_what_this_many_pairs_could_have_seen() -> None:
    values = [0.1, -0.1] * 50
    found = paired_mean(values)
    assert found is not None
    assert found.detectable == pytest.approx((norm.ppf(0.975) + norm.ppf(0.8)) * stdev(values) / 10)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("regressed>0", True),
        ("regressed>1", False),
        ("regressed>=1", True),
        ("mean<-0.02", True),
        ("mean < -0.5", False),
        ("mean<=-0.5", True),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    figures = comparison_of({"a": 1.0}, {"a": 0.5}).figures()
    (condition,) = parse_conditions(text, figures)
    assert condition.is_met(figures) is holds


@pytest.mark.parametrize("text", ["", "regressed", "regressed>", "regresed>0", "mean<x", "regressed>0,"])
def test_a_wrong_condition_says_what_was_expected(text: str) -> None:
    with pytest.raises(ConditionError, match="expected"):
        parse_conditions(text, ["regressed", "mean"])


def test_the_page_answers_first_and_escapes() -> None:
    found = compare(
        stored_run(case_result("a|<b>", 1.0, term=1.0), case_result("c", 1.0)),
        stored_run(case_result("a|<b>", 0.3, term=0.3), case_result("c", 1.0)),
    )
    page = diff_markdown(found, parse_conditions("regressed>0", found.counts()))
    lines = page.splitlines()
    assert lines[0] == "# packbench: s compared - 1 regressed, 0 improved, 1 new failure, 0 fixed"
    assert lines[2] == "**FAILED: the condition `regressed>0` is met.**"
    assert "a\\|&lt;b&gt;" in page
    assert "match +1.00 to +0.30" in page


def test_the_sentences_say_what_nothing_shows() -> None:
    text = " ".join(sentences(comparison_of({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0})))
    assert "upper bound on the flip rate: 77.6 % (2 cases)" in text
    assert sentences(comparison_of({"a": 1.0}, {"b": 1.0})) == [
        "No case has a score in both runs, so the change in score is unknown."
    ]


def test_a_case_that_broke_is_a_new_failure_and_no_fix() -> None:
    there = compare(stored_run(case_result("a", 1.0)), stored_run(case_result("a", None, verdict="error")))
    assert (there.counts()["new_failures"], comparison_headline(there)) == (
        1,
        "0 regressed, 0 improved, 1 new failure, 0 fixed",
    )
    back = compare(stored_run(case_result("a", None, verdict="error")), stored_run(case_result("a", 1.0)))
    assert back.counts()["fixed"] == 1


def test_the_answer_tells_of_cases_that_cannot_be_compared() -> None:
    kept = [case_result("a", 1.0)]
    before = [*kept, case_result("gone", 0.0), case_result("edited", 0.0), case_result("off", 1.0)]
    quarantined = replace(case_result("off", None, verdict="not_run", sha="y"), kind="skip")
    after = [*kept, case_result("edited", 1.0, sha="y"), quarantined]
    found = compare(stored_run(*before), stored_run(*after))
    assert comparison_headline(found) == "no score changed; 1 case removed, 1 quarantined now, 1 changed and excluded"
    assert found.counts()["quarantined"] == 1
    assert "| quarantined now | 1 " in diff_markdown(found)
    worse = compare(
        stored_run(*kept), stored_run(case_result("a", 0.0), case_result("new", 1.0), case_result("newer", 1.0))
    )
    assert comparison_headline(worse) == "1 regressed, 0 improved, 1 new failure, 0 fixed; 2 cases added"
    other = compare(stored_run(case_result("a", 0.0)), stored_run(case_result("a", 1.0, sha="y")))
    assert comparison_headline(other) == "no unchanged case in common; 1 case changed and excluded"


def test_flips_are_told_where_no_record_has_a_score() -> None:
    before = stored_run(*(case_result(f"c{n}", None, verdict="passed") for n in range(20)))
    after = stored_run(*(case_result(f"c{n}", None, verdict="failed") for n in range(20)))
    found = compare(before, after)
    assert any("20 lost, 0 won" in sentence for sentence in sentences(found))
    assert comparison_headline(found) == "0 regressed, 0 improved, 20 new failures, 0 fixed"


def test_a_condition_on_what_is_not_there_holds_and_so_fails() -> None:
    figures = comparison_of({"a": 1.0}, {"b": 1.0}).figures()
    (condition,) = parse_conditions("mean<-0.02", figures)
    assert condition.is_met(figures)


def test_smaller_changes_are_not_called_none() -> None:
    found = comparison_of({"a": 1.0, "b": 1.0, "c": 0.5}, {"a": 0.98, "b": 1.0, "c": 0.53})
    assert comparison_headline(found) == "no score changed by 0.05 or more, 2 by less"
    assert [one.test_id for one in found.changes["smaller_changes"].first] == ["c", "a"]
    assert "## Smaller changes (less than 0.05)" in diff_markdown(found)


def test_authored_answers_get_counts_and_no_statistics() -> None:
    runs = [
        stored_run(*(replace(case_result(f"c{n}", points), llm_backend="stub") for n in range(9)))
        for points in (1.0, 0.5)
    ]
    (sentence,) = sentences(compare(*runs))
    assert "interval" not in sentence
    assert "-0.500; pass flips: 9 lost, 0 won" in sentence


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([], {"regressed", "improved", "new_failures", "fixed", "verdict_changed", "smaller_changes", "mean"}),
        (
            [case_result("b", 1.0)],
            {"regressed", "improved", "new_failures", "fixed", "verdict_changed", "smaller_changes"},
        ),
        ([case_result("a", 0.0, sha="y")], {"regressed", "new_failures", "mean"}),
    ],
)
def test_without_a_case_to_compare_a_condition_on_changes_cannot_be_judged(
    after: list[CaseResult], said: set[str]
) -> None:
    found = compare(stored_run(case_result("a", 1.0)), stored_run(*after))
    figures = found.figures()
    for name in said:
        (condition,) = parse_conditions(f"{name}>5", figures)
        assert condition.is_met(figures), name
    told = {name: figures[name] for name in ("added", "removed", "hash_changed")}
    assert told == {name: found.counts()[name] for name in told}
    assert comparison_of({"a": 1.0}, {"a": 0.5}).figures() == {
        **comparison_of({"a": 1.0}, {"a": 0.5}).counts(),
        "mean": -0.5,
    }


def test_what_broke_says_why_instead_of_the_terms_that_it_has_not() -> None:
    broken = replace(case_result("a", None, verdict="error"), kind="timeout", message="no answer in 5 s")
    (there,) = compare(stored_run(case_result("a", 1.0, term=1.0)), stored_run(broken)).changes["new_failures"].first
    assert there.reasons == ("now: timeout: no answer in 5 s",)
    (back,) = compare(stored_run(broken), stored_run(case_result("a", 1.0, term=1.0))).changes["fixed"].first
    assert back.reasons == ("before: timeout: no answer in 5 s",)


def test_a_judged_case_that_broke_is_a_new_failure() -> None:
    before = stored_run(replace(case_result("a", 1.0), judge="words"))
    found = compare(before, stored_run(case_result("a", None, verdict="error")))
    assert (found.counts()["new_failures"], found.counts()["hash_changed"]) == (1, 0)


def test_another_judge_makes_another_case_and_is_named() -> None:
    runs = [
        stored_run(replace(case_result("a", points), judge=judge)) for points, judge in ((1.0, "words"), (0.0, None))
    ]
    found = compare(*runs)
    assert (found.counts()["new_failures"], found.counts()["hash_changed"]) == (0, 1)
    assert found.changes["hash_changed"].first[0].reasons == ("judged by words before, by rules only now",)
    assert "## Case or judge changed (excluded from the statistics)" in diff_markdown(found)


def test_the_runs_are_told_apart_by_who_was_asked_behind_which_guards() -> None:
    before, after = stored_run(case_result("a", 1.0)), stored_run(case_result("a", 1.0), backend="openai", model="m|1")
    plain = diff_markdown(compare(before, before)).split("## Runs")[1].splitlines()[2]
    assert plain.split() == [
        "|",
        "|",
        "run",
        "|",
        "finished",
        "|",
        "mode",
        "|",
        "target",
        "|",
        "cases",
        "|",
        "partial",
        "|",
    ]
    guarded = replace(after, run=replace(after.run, settings={"guards": ["redact", "spotlight"]}))
    (first, second) = diff_markdown(compare(before, guarded)).split("## Runs")[1].splitlines()[4:6]
    assert [cell.strip() for cell in first.split(" | ")][5:7] == ["-", "-"]
    assert "openai / m\\|1" in second
    assert "redact, spotlight" in second


def test_a_page_names_the_first_cases_and_counts_all() -> None:
    names = [f"c{number:03}" for number in range(230)]
    found = compare(
        stored_run(*(case_result(name, 1.0) for name in names)), stored_run(*(case_result(name, 0.0) for name in names))
    )
    assert len(found.changes["regressed"].first) == 200
    assert diff_markdown(found).count("200 of 230 shown") == 3
    gone = compare(
        stored_run(*(case_result(name, 1.0) for name in names), case_result("a", 1.0)),
        stored_run(case_result("a", 1.0)),
    )
    assert [one.test_id for one in gone.removed] == names[:200]
    assert diff_markdown(gone).count("200 of 230 shown") == 1


def test_a_case_that_was_quarantined_has_no_score_to_compare() -> None:
    outside = replace(case_result("a", 0.2), kind="xfail")
    found = compare(stored_run(outside), stored_run(case_result("a", 1.0)))
    assert (found.mean, found.counts()["improved"], found.unchanged) == (None, 0, 1)


def test_a_run_without_a_judged_answer_is_not_authored() -> None:
    broken = replace(case_result("a", None, verdict="error"), llm_backend="stub")
    assert not compare(stored_run(broken), stored_run(broken)).authored
