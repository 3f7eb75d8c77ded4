"""Comparing runs: what is counted, its symmetry, conditions, and the page that people read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.comparison import Change, ConditionError, RunComparison, compare, parse_conditions
from pytest_packbench.model.run import CLUSTER_SETTING
from pytest_packbench.reports.diff import comparison_headline, diff_markdown, sentences
from pytest_packbench.runs.report import OpenRun
from pytest_packbench.runs.stored import StoredRun
from tests.unit.run_builders import case_result, run

if TYPE_CHECKING:
    from random import Random

    from pytest_packbench.model.result import CaseResult
    from tests.conftest import ExpectedTexts


def scored(name: str, score: float | None, verdict: str = "", *, term: float = 0.0, **changes: Any) -> CaseResult:
    verdict = verdict or ("passed" if score is not None and score >= 0.8 else "failed")
    terms = ({"name": "match", "effect": "add", "value": term, "detail": ""},) if term else ()
    return case_result(
        name, verdict, **{"score": score, "case_sha256": "x", "terms": terms, "test_id": name, **changes}
    )


def stored_run(*results: CaseResult, **changes: Any) -> StoredRun:
    return StoredRun(source="f", run=run(**changes), results=results)


def comparison_of(before: list[CaseResult], after: list[CaseResult], **changes: Any) -> RunComparison:
    return compare(stored_run(*before, **changes), stored_run(*after, **changes))


A, B, WORSE = scored("a", 1.0), scored("b", 1.0), scored("a", 0.0)
BROKEN = scored("a", None, "error", kind="timeout", message="no answer in 5 s", llm_backend="stub")
QUARANTINED = scored("a", None, "not_run", kind="skip", case_sha256="y")
TWINS = [scored("a", 1.0, file=file) for file in ("one", "two")]
PARTS: list[dict[str, Any]] = [{"facets": {"shared_part": f"part {number // 2}"}} for number in range(4)]
CLUSTERED = {"mode": "live", "settings": {CLUSTER_SETTING: "shared_part"}}
COMPARISONS: dict[str, tuple[list[CaseResult], list[CaseResult], dict[str, Any]]] = {
    "no case in common": ([A], [B], {}),
    "no case now": ([A], [], {}),
    "nothing changed": ([A, B], [A, B], {}),
    "the threshold forgives float noise": (
        [scored(name, 0.30) for name in "abc"],
        [scored("a", 0.35), scored("b", 0.25), scored("c", 0.349)],
        {},
    ),
    "smaller changes": (
        [A, B, scored("c", 0.5)],
        [scored("a", 0.98), B, scored("c", 0.53)],
        {},
    ),
    "an edited case is excluded": ([A, B], [A, scored("b", 0.0, case_sha256="y")], {}),
    "only an edited case": ([WORSE], [scored("a", 1.0, case_sha256="y")], {}),
    "another judge is another case": ([scored("a", 1.0, judge="words")], [WORSE], {}),
    "a judged case with an error is the same case": ([scored("a", 1.0, judge="words")], [BROKEN], {}),
    "an error is a new failure": ([scored("a", 1.0, term=1.0)], [BROKEN], {}),
    "and its end a fix": ([BROKEN], [scored("a", 1.0, term=1.0)], {}),
    "an error that was one before": ([BROKEN], [BROKEN], {}),
    "a quarantined case has no score": ([scored("a", 0.2, "known_hole", kind="xfail")], [A], {}),
    "a case is quarantined now": ([A, B], [QUARANTINED, B], {}),
    "a case was removed, one edited, one quarantined": (
        [B, scored("gone", 0.0), scored("edited", 0.0), A],
        [B, scored("edited", 1.0, case_sha256="y"), QUARANTINED],
        {},
    ),
    "cases were added": ([A], [WORSE, B, scored("c", 1.0)], {}),
    "the mean of the trials of a case": ([A, scored("a", 0.0, trial=1)], [A, scored("a", 1.0, trial=1)], {}),
    "another number of trials": ([A], [A, scored("a", 1.0, trial=1)], {}),
    "the worse of two cases with one test id": (TWINS, [TWINS[0], scored("a", 0.0, file="two")], {}),
    "the other of two cases with one test id": (
        [TWINS[0], scored("a", 0.0, file="two")],
        [scored("a", 0.0, file="two"), TWINS[0]],
        {},
    ),
    "verdicts without scores": (
        [scored(f"c{n}", None, "passed") for n in range(20)],
        [scored(f"c{n}", None, "failed") for n in range(20)],
        {"mode": "live"},
    ),
    "authored answers": (
        [scored(f"c{n}", 1.0, llm_backend="stub") for n in range(9)],
        [scored(f"c{n}", 0.5, llm_backend="stub") for n in range(9)],
        {},
    ),
    "dependent cases": (
        [scored(f"c{n}", 0.25, **PARTS[n]) for n in range(4)],
        [scored(f"c{n}", 1.0 if n < 2 else 0.25, **PARTS[n]) for n in range(4)],
        CLUSTERED,
    ),
    "the same cases in a run that names no shared part": (
        [scored(f"c{n}", 0.25, **PARTS[n]) for n in range(4)],
        [scored(f"c{n}", 1.0 if n < 2 else 0.25, **PARTS[n]) for n in range(4)],
        {"mode": "live"},
    ),
    "one shared part": (
        [scored(f"c{n}", 0.25, **PARTS[n]) for n in range(2)],
        [scored(f"c{n}", 1.0, **PARTS[n]) for n in range(2)],
        CLUSTERED,
    ),
}


def test_what_changed_between_two_runs(expected: ExpectedTexts) -> None:
    texts = []
    for name, (before, after, changes) in COMPARISONS.items():
        comparison = comparison_of(before, after, **changes)
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
    before = [
        scored("a|<b>", 1.0, term=1.0),
        scored("fixed", 0.2),
        scored("gone", 1.0),
        scored("broke", 1.0),
        scored("edited", 1.0),
        scored("judged", 1.0, judge="words"),
        scored("little", 0.5),
        scored("tiny", 0.5),
    ]
    after = [
        scored("a|<b>", 0.3, term=0.3),
        scored("fixed", 0.9),
        scored("new", 1.0),
        scored("broke", None, "error", kind="timeout", message="no answer"),
        scored("edited", 0.0, case_sha256="y"),
        scored("judged", 0.0),
        scored("little", 0.52),
        scored("tiny", 0.5001),
    ]
    current = stored_run(
        *after,
        run_id="01NOW",
        mode="live",
        suite_sha256="cd" * 32,
        backend="openai",
        model="m|1",
        partial="half",
        settings={"guards": ["redact", "spotlight"]},
    )
    comparison = compare(stored_run(*before), current)
    conditions = parse_conditions("regressed>0", comparison.counts())
    expected.check(diff_markdown(comparison, conditions, ["a note | of ours"]), "md")


def test_a_long_page_names_the_first_cases_and_counts_all() -> None:
    names = [f"c{number:03}" for number in range(230)]
    good = [scored(name, 1.0) for name in names]
    worse = comparison_of(good, [scored(name, 0.0) for name in names])
    assert len(worse.changes["regressed"].first) == 200
    assert diff_markdown(worse).count("200 of 230 shown; each run's report.json lists all.") == 3
    removed = comparison_of([*good, A], [A])
    assert [case.test_id for case in removed.removed] == names[:200]
    assert diff_markdown(removed).count("200 of 230 shown") == 1
    smaller = comparison_of(good, [scored(name, 0.98) for name in names])
    assert "100 of 230 shown" in diff_markdown(smaller)


def test_trials_that_are_not_adjacent_are_one_case() -> None:
    results = [A, B, scored("a", 0.0, trial=1), scored("b", 1.0, trial=1)]
    metadata = run(settings={"trials": 2})
    comparison = compare(*(OpenRun(source="f", run=metadata, status="", results=iter(results)) for _ in range(2)))
    assert (comparison.cases, comparison.trials) == ((2, 2), (2, 2))


@st.composite
def any_case(draw: st.DrawFn) -> CaseResult:
    """Draw a trial of one of a few cases, judged or not, of one of two versions."""
    verdict = draw(st.sampled_from(["passed", "failed", "error", "vacuous", "not_run", "known_hole"]))
    points = draw(st.floats(0, 1)) if verdict in {"passed", "failed"} else None
    name, version, trial = draw(st.sampled_from([(n, v, t) for n in "abcd" for v in "xy" for t in range(3)]))
    return scored(name, points, verdict, case_sha256=version, trial=trial)


any_run = st.lists(any_case(), max_size=8, unique_by=lambda result: (result.test_id, result.trial))
rules = st.sampled_from([{"trials": 3, "trials_rule": rule} for rule in ("mean", "all", {"at_least": 2})])


def by_id(comparison: RunComparison, kind: str) -> list[Change]:
    return sorted(comparison.changes[kind].first, key=lambda change: change.test_id)


@settings(max_examples=60)
@given(any_run, any_run, rules)
def test_a_comparison_in_the_other_direction_is_its_mirror(
    before: list[CaseResult], after: list[CaseResult], settings: Any
) -> None:
    there, back = comparison_of(before, after, settings=settings), comparison_of(after, before, settings=settings)
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


@settings(max_examples=40)
@given(any_run, any_run, rules, st.randoms(use_true_random=False))
def test_the_order_of_results_makes_no_difference(
    before: list[CaseResult], after: list[CaseResult], settings: Any, random: Random
) -> None:
    comparison = comparison_of(before, after, settings=settings)
    shuffled = [random.sample(results, len(results)) for results in (before, after)]
    assert comparison_of(*shuffled, settings=settings) == comparison
    assert not any(comparison_of(before, shuffled[0], settings=settings).counts().values())


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("regressed>0", True),
        ("regressed>1", False),
        ("regressed>=1", True),
        ("regressed >= 1.5", False),
        ("mean<-0.02", True),
        ("mean < -0.5", False),
        ("mean<=-0.5", True),
    ],
)
def test_a_condition_is_compared_with_its_figure(text: str, is_met: bool) -> None:
    figures = comparison_of([A], [scored("a", 0.5)]).figures()
    (condition,) = parse_conditions(text, figures)
    assert condition.is_met(figures) is is_met


@pytest.mark.parametrize("text", ["", "regressed", "regressed>", "regresed>0", "mean<x", "regressed>0,"])
def test_an_invalid_condition_is_an_error(text: str) -> None:
    with pytest.raises(ConditionError, match="expected"):
        parse_conditions(text, ["regressed", "mean"])


CHANGES = {"regressed", "improved", "new_failures", "fixed", "verdict_changed", "smaller_changes"}


@pytest.mark.parametrize(
    ("after", "unknown"),
    [
        ([], {*CHANGES, "mean"}),
        ([B], {*CHANGES, "mean"}),
        ([scored("a", 0.0, case_sha256="y")], {*CHANGES, "mean"}),
        ([BROKEN], {"mean"}),
        ([WORSE], set()),
    ],
    ids=["nothing", "another case", "an edited case", "an error", "the case"],
)
def test_a_condition_on_an_unknown_figure_is_met(after: list[CaseResult], unknown: set[str]) -> None:
    comparison = comparison_of([A], after)
    figures = comparison.figures()
    assert {name for name, value in figures.items() if math.isnan(value)} == unknown
    for name in figures:
        (condition,) = parse_conditions(f"{name}>5", figures)
        assert condition.is_met(figures) is (name in unknown)
