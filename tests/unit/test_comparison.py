"""Comparing runs: what is counted, its symmetry, conditions, and the page that people read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.comparison import Change, ConditionError, RunComparison, compare, parse_conditions
from pytest_packbench.reports.diff import comparison_headline, diff_markdown, sentences
from pytest_packbench.runs.report import OpenRun
from pytest_packbench.runs.stored import StoredRun
from tests.unit.run_builders import case_result, data, results_of, run

if TYPE_CHECKING:
    from random import Random

    from pytest_packbench.model.result import CaseResult
    from tests.conftest import ExpectedTexts


def stored_run(*results: CaseResult, **changes: Any) -> StoredRun:
    return StoredRun(source="f", run=run(**changes), results=results)


def comparison_of(before: list[CaseResult], after: list[CaseResult], **changes: Any) -> RunComparison:
    return compare(stored_run(*before, **changes), stored_run(*after, **changes))


A, B, WORSE, BROKEN = results_of([{"id": "a"}, {"id": "b"}, {"id": "a", "score": 0.0}, {"id": "a", "verdict": "error"}])


def test_what_changed_between_two_runs(expected: ExpectedTexts) -> None:
    texts = []
    for name, vector in data("comparisons.yaml").items():
        before, after = results_of(vector["before"]), results_of(vector["after"])
        comparison = comparison_of(before, after, **vector.get("run", {}))
        figures = [f"{key} {value:g}" for key, value in comparison.figures().items() if value]
        flips = f"lost {comparison.lost}, won {comparison.won}, cases {comparison.cases}, trials {comparison.trials}"
        cases = [
            f"{kind}: {change.test_id} {change.before} -> {change.after} ({'; '.join(change.reasons)})"
            for kind, changed in comparison.changes.items()
            for change in changed.first[:2]
        ]
        lines = [name, comparison_headline(comparison), ", ".join(figures), flips, *cases, *sentences(comparison)]
        texts.append("\n  ".join(lines))
    expected.check("\n\n".join(texts) + "\n")


def test_the_page_of_a_comparison(expected: ExpectedTexts) -> None:
    match = {"name": "match", "effect": "add", "detail": ""}
    scores = {"gone": 1.0, "broke": 1.0, "edited": 1.0, "fixed": 0.2, "little": 0.5, "tiny": 0.5}
    scores_now = {"judged": 0.0, "fixed": 0.9, "new": 1.0, "little": 0.52, "tiny": 0.5001}
    before: list[dict[str, Any]] = [
        {"id": "a|<b>", "terms": [{**match, "value": 1.0}]},
        {"id": "judged", "judge": "words"},
        *({"id": name, "score": score} for name, score in scores.items()),
    ]
    after: list[dict[str, Any]] = [
        {"id": "a|<b>", "score": 0.3, "terms": [{**match, "value": 0.3}]},
        {"id": "broke", "verdict": "error", "kind": "timeout", "message": "no answer"},
        {"id": "edited", "score": 0.0, "case_sha256": "y"},
        *({"id": name, "score": score} for name, score in scores_now.items()),
    ]
    now: dict[str, Any] = {"run_id": "01NOW", "mode": "live", "suite_sha256": "cd" * 32, "backend": "openai"}
    now |= {"model": "m|1", "partial": "half", "settings": {"guards": ["redact", "spotlight"]}}
    comparison = compare(stored_run(*results_of(before)), stored_run(*results_of(after), **now))
    conditions = parse_conditions("regressed>0", comparison.counts())
    expected.check(diff_markdown(comparison, conditions, ["a note | of ours"]), "md")


def test_a_long_page_names_the_first_cases_and_counts_all() -> None:
    good = results_of([{"n": 230}])
    worse = comparison_of(good, results_of([{"n": 230, "score": 0.0}]))
    assert len(worse.changes["regressed"].first) == 200
    assert diff_markdown(worse).count("200 of 230 shown; each run's report.json lists all.") == 3
    removed = comparison_of([*good, A], [A])
    assert [case.test_id for case in removed.removed] == sorted(result.test_id for result in good)[:200]
    assert diff_markdown(removed).count("200 of 230 shown") == 1
    smaller = comparison_of(good, results_of([{"n": 230, "score": 0.98}]))
    assert "100 of 230 shown" in diff_markdown(smaller)


def test_trials_that_are_not_adjacent_are_one_case() -> None:
    results = [A, B, replace(WORSE, trial=1), replace(B, trial=1)]
    metadata = run(settings={"trials": 2})
    comparison = compare(*(OpenRun(source="f", run=metadata, status="", results=iter(results)) for _ in range(2)))
    assert (comparison.cases, comparison.trials) == ((2, 2), (2, 2))


@st.composite
def any_case(draw: st.DrawFn) -> CaseResult:
    """Draw a trial of one of a few cases, judged or not, of one of two versions."""
    verdict = draw(st.sampled_from(["passed", "failed", "error", "vacuous", "not_run", "known_hole"]))
    points = draw(st.floats(0, 1)) if verdict in {"passed", "failed"} else None
    name, version, trial = draw(st.sampled_from([(n, v, t) for n in "abcd" for v in "xy" for t in range(3)]))
    return case_result(name, verdict, score=points, case_sha256=version, trial=trial)


any_run = st.lists(any_case(), max_size=8, unique_by=lambda result: (result.test_id, result.trial))
rules = st.sampled_from([{"trials": 3, "trials_rule": rule} for rule in ("mean", "all", {"at_least": 2})])


def by_id(comparison: RunComparison, kind: str) -> list[Change]:
    return sorted(comparison.changes[kind].first, key=lambda change: change.test_id)


@settings(max_examples=60)
@given(any_run, any_run, rules, st.randoms(use_true_random=False))
def test_a_comparison_is_the_same_in_any_order_and_its_mirror_in_the_other_direction(
    before: list[CaseResult], after: list[CaseResult], settings: Any, random: Random
) -> None:
    shuffled = [random.sample(results, len(results)) for results in (before, after)]
    assert not any(comparison_of(before, shuffled[0], settings=settings).counts().values())
    there, back = comparison_of(before, after, settings=settings), comparison_of(after, before, settings=settings)
    assert comparison_of(*shuffled, settings=settings) == there
    for kind in ("verdict_changed", "hash_changed"):
        for change, reverse in zip(by_id(there, kind), by_id(back, kind), strict=True):
            assert (change.test_id, change.before, change.after) == (reverse.test_id, reverse.after, reverse.before)
            assert change.hash_changed is reverse.hash_changed
            assert change.delta == (None if reverse.delta is None else -reverse.delta)
    for kind, opposite in (("improved", "regressed"), ("smaller_changes", "smaller_changes")):
        assert [change.test_id for change in by_id(there, kind)] == [change.test_id for change in by_id(back, opposite)]
    assert (there.added, there.removed) == (back.removed, back.added)
    assert (there.lost, there.won, there.p_flips) == (back.won, back.lost, back.p_flips)
    assert (there.mean is None) is (back.mean is None)
    if there.mean is not None and back.mean is not None:
        assert (there.mean.mean, there.mean.detectable) == (-back.mean.mean, back.mean.detectable)
        if there.mean.low is not None and there.mean.high is not None:
            assert (there.mean.low, there.mean.high) == pytest.approx((-(back.mean.high or 0), -(back.mean.low or 0)))


MET = {"regressed>0": True, "regressed>1": False, "regressed>=1": True, "regressed >= 1.5": False}
MET |= {"mean<-0.02": True, "mean < -0.5": False, "mean<=-0.5": True}


def test_a_condition_is_compared_with_its_figure_and_an_invalid_one_is_an_error() -> None:
    figures = comparison_of([A], results_of([{"id": "a", "score": 0.5}])).figures()
    assert {text: parse_conditions(text, figures)[0].is_met(figures) for text in MET} == MET
    for text in ("", "regressed", "regressed>", "regresed>0", "mean<x", "regressed>0,"):
        with pytest.raises(ConditionError, match="expected"):
            parse_conditions(text, ["regressed", "mean"])


CHANGES = {"regressed", "improved", "new_failures", "fixed", "verdict_changed", "smaller_changes"}
UNKNOWN: dict[str, tuple[list[CaseResult], set[str]]] = {
    "nothing": ([], {*CHANGES, "mean"}),
    "another case": ([B], {*CHANGES, "mean"}),
    "an edited case": ([replace(WORSE, case_sha256="y")], {*CHANGES, "mean"}),
    "an error": ([BROKEN], {"mean"}),
    "the case": ([WORSE], set()),
}


@pytest.mark.parametrize(("after", "unknown"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_condition_on_an_unknown_figure_is_met(after: list[CaseResult], unknown: set[str]) -> None:
    figures = comparison_of([A], after).figures()
    assert {name for name, value in figures.items() if math.isnan(value)} == unknown
    met = {name: parse_conditions(f"{name}>5", figures)[0].is_met(figures) for name in figures}
    assert {name for name, is_met in met.items() if is_met} == unknown
