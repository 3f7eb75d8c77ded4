"""Gates over a run fail where they can't decide; comparisons of two runs count, are symmetric, and have conditions."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.changes import (
    FIGURES,
    SMALLER,
    Change,
    Comparison,
    ConditionError,
    compare,
    parse_conditions,
)
from pytest_packbench.analysis.conclusion import Scope, conclude, run_document, run_verdict
from pytest_packbench.analysis.counting import Numbers
from pytest_packbench.analysis.gates import deferred
from pytest_packbench.model.report import BaselineLookup, StoredRun
from pytest_packbench.model.suite import GENERAL_METRICS, Gate, GateResult, Metric, SuiteConfig
from pytest_packbench.packs.agent_safety.metrics import GATES as ATTACK_METRICS
from pytest_packbench.reports.blocks import markdown
from pytest_packbench.reports.diff import comparison_headline, diff_markdown, sentences, worst_changes
from pytest_packbench.reports.page import RunPage, page_html, scores_of
from pytest_packbench.reports.story import summary_markdown
from tests.unit.run_builders import (
    case_result,
    case_results,
    changed,
    check_run,
    data,
    fold_trials,
    gate,
    results_of,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from pytest_packbench.model.result import Result
    from tests.conftest import ExpectedTexts

VECTORS: dict[str, dict[str, Any]] = data("gates.yaml")


def baseline_of(results: Iterable[Result], **changes: Any) -> BaselineLookup:
    return BaselineLookup(stored=stored_run(*results, run_id="01OLD", **changes))


def judge(
    results: Sequence[Result],
    *rules: Gate,
    baseline: BaselineLookup | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[GateResult, ...]:
    return check_run(run(settings=settings or {}), results, rules, baseline, metrics=ATTACK_METRICS, **options)


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_a_gate_decides_as_its_vector_says(vector: dict[str, Any]) -> None:
    rule = Gate.model_validate(vector["gate"])
    baseline = None
    if "baseline" in vector:
        baseline = baseline_of(results_of(vector["baseline"]), **vector.get("baseline_run", {}))
    elif "no_baseline" in vector:
        baseline = BaselineLookup(reason=vector["no_baseline"])
    gate_results = judge(
        results_of(vector["results"]),
        rule,
        baseline=baseline,
        settings=vector.get("settings"),
        trials_rule=vector.get("rule", "mean"),
        with_errors=not vector.get("records_only"),
    )
    if vector.get("part"):
        gate_results = deferred(gate_results, "part")
    assert [result.text for result in gate_results] == vector["lines"]
    assert [result.passed for result in gate_results] == [not line.endswith(": FAIL") for line in vector["lines"]]
    assert [result.proven is False for result in gate_results] == ["not proven" in line for line in vector["lines"]]
    assert [result.judged for result in gate_results] == [": not judged" not in line for line in vector["lines"]]
    assert not any(result.observed or result.counted for result in gate_results if not result.judged)
    if not rule.must_pass and not rule.change:
        assert {(result.by, result.min, result.max) for result in gate_results} == {(rule.by, rule.min, rule.max)}
    if rule.must_pass:
        assert {(result.by, result.min, result.max) for result in gate_results} == {(None, 1.0, None)}
    if "observed" in vector:
        assert [result.observed for result in gate_results] == vector["observed"]


NUMBER = re.compile(r"= ([\d.]+) %? ?(>=|<) min ([\d.]+)")


@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 10_000).map(lambda part: part / 10_000),
    st.sampled_from(["pass_rate", "mean_score"]),
)
def test_the_text_never_contradicts_the_verdict(passed: int, failed: int, bound: float, metric: str) -> None:
    (result,) = judge(case_results(passed, failed), gate(metric, min=bound))
    if result.observed is None:
        return
    match = NUMBER.search(result.text)
    assert match is not None
    left, sign, right = float(match[1]), match[2], float(match[3])
    assert (left >= right) is (sign == ">=") is result.passed is (result.observed >= bound - 1e-9)


def test_a_bound_may_be_missed_by_a_billionth_and_an_unknown_metric_is_an_error() -> None:
    for excess, passed in ((0.0, True), (5e-10, True), (2e-9, False), (-2e-9, True)):
        rules = gate("pass_rate", min=0.75 + excess), gate("pass_rate", max=0.75 - excess)
        assert [result.passed for result in judge(case_results(3, 1), *rules)] == [passed, passed]
    with pytest.raises(
        ValueError, match=r'unknown metric "speed"; expected one of .*completeness, exposure_rate, pass_rate'
    ):
        judge(case_results(1), gate("pass_rate", min=0.5).model_copy(update={"metric": "speed"}))


@given(st.integers(0, 30), st.integers(0, 200), st.sampled_from([0.05, 0.2, 0.5]))
def test_a_rate_is_proven_exactly_where_a_gate_with_confidence_passes(passed: int, failed: int, bound: float) -> None:
    results = case_results(passed, failed)
    for limits in ({"max": bound}, {"min": bound}):
        (plain,) = judge(results, gate("pass_rate", **limits))
        (strict,) = judge(results, gate("pass_rate", **limits, confidence=0.95))
        assert (plain.proven is True) is strict.passed
        assert (plain.proven, "not proven" in plain.text) == (strict.proven, "not proven" in strict.text)
        assert plain.passed or plain.proven is None


@pytest.mark.parametrize(
    ("scope", "rules", "shown", "why"),
    [
        ("shard", gate("pass_rate", min=0.9), "0 of 2 judged", "not judged in a shard; packbench merge judges it"),
        (
            "part",
            gate(must_pass=["gone"]),
            "1 of 2 passed, 1 not judged",
            "not judged, because only part of the suite is selected",
        ),
        ("part", gate("pass_rate", min=0.5), "2 of 2 passed", ""),
    ],
)
def test_a_gate_that_is_not_judged_has_passed_on_no_page(scope: Scope, rules: Gate, shown: str, why: str) -> None:
    settings = {"gate": "suite"} | ({"shard": "1/2"} if scope == "shard" else {})
    config = SuiteConfig(pack="generic", gates=(rules,))
    of = run(settings=settings)
    conclusion = conclude(of, case_results(2, 1), config, scope=scope)
    markdown, html = summary_markdown(conclusion), page_html([RunPage(conclusion, scores_of(()))], title="toy")
    assert f"<summary>Gates: {shown}</summary>" in markdown
    assert (why in markdown, why in html) == (True, True)
    passed = int(shown[0])
    assert (html.count(">PASS<") + html.count(">PASS,"), markdown.count("| PASS")) == (passed, passed)
    assert [stored["judged"] for stored in run_document(conclusion)["gates"]].count(True) == passed


class PolarSuite(SuiteConfig):
    metrics: ClassVar[Mapping[str, Metric]] = {
        "north": Metric(among=lambda result: result.counted, counts=lambda result, _: result.backend == "n")
    }


def test_a_suite_has_a_gate_on_completeness_and_may_have_one_on_its_own_metric() -> None:
    rules = PolarSuite.model_validate({"pack": "toy", "gates": [{"metric": "north", "max": 0.3}]})
    results = [*case_results(3, llm_backend="s"), case_result("n", llm_backend="n")]
    gates = conclude(run(), results, rules, (), BaselineLookup()).gates
    assert [result.text for result in gates] == [
        "completeness 4 / 4 = 100.0 % >= min 100.0 %: PASS",
        (
            "north 1 / 4 = 25.0 % <= max 30.0 %, 95 % Wilson interval 4.6 % to 69.9 %, "
            "not proven: exact one-sided 95 % upper bound 75.1 % > max 30.0 %, only 4 cases, "
            "at least 9 clean cases are needed: PASS"
        ),
    ]
    # it replaces no general one
    tally = Numbers(metrics={"pass_rate": PolarSuite.metrics["north"], **PolarSuite.metrics})
    assert tally.metrics["pass_rate"] == GENERAL_METRICS["pass_rate"]
    assert tally.metrics["north"] == PolarSuite.metrics["north"]


def stored_run(*results: Result, **changes: Any) -> StoredRun:
    return StoredRun(source="f", run=run(**changes), results=results)


def comparison_of(
    before: list[Result], after: list[Result], now: dict[str, Any] | None = None, **changes: Any
) -> Comparison:
    return compare(stored_run(*before, **changes), stored_run(*after, **changes, **(now or {})))


def changes_of(comparison: Comparison, kind: str) -> list[Change]:
    """Return the cases of a kind that a comparison lists, the worst first."""
    found = [change for rows in comparison.listed.values() for change in rows.first if kind in change.kinds]

    def rank(change: Change) -> tuple[float, str]:
        size = -2.0 if change.delta is None else change.delta
        return -abs(size) if kind == SMALLER else size, change.test_id

    return sorted(found, key=rank)


A, B, WORSE, BROKEN = results_of([{"id": "a"}, {"id": "b"}, {"id": "a", "score": 0.0}, {"id": "a", "verdict": "error"}])


def test_what_changed_between_two_runs(expected: ExpectedTexts) -> None:
    texts = []
    for name, vector in data("comparisons.yaml").items():
        before, after = results_of(vector["before"]), results_of(vector["after"])
        comparison = comparison_of(before, after, vector.get("now"), **vector.get("run", {}))
        figures = [f"{key} {value:g}" for key, value in comparison.figures().items() if value]
        flips = f"lost {comparison.lost}, won {comparison.won}, cases {comparison.cases}, trials {comparison.trials}"
        cases = [
            f"{kind}: {change.test_id} {' -> '.join(change.verdicts)} ({'; '.join(comparison.reasons(change))})"
            for kind in FIGURES[:-4]
            for change in changes_of(comparison, kind)[:2]
        ]
        lines = [name, comparison_headline(comparison), ", ".join(figures), flips, *cases, *sentences(comparison)]
        texts.append("\n  ".join(lines))
        if name == "one of each":
            conditions = parse_conditions("regressed>0", comparison.counts())
            page = diff_markdown(comparison, conditions, ["a note | of ours"])
            # each case stands there once
            named = re.findall(r"^\| toy:plain:(\S+) ", page, re.MULTILINE)
            assert len(named) == len({*named}) == 12
            worst = [markdown([worst_changes(comparison, most)], level=2) for most in (10, 2)]
            expected.check("\n----\n".join([page, *(f"{table}\n" for table in worst)]), "md")
    expected.check("\n\n".join(texts) + "\n")


def test_a_run_that_passes_says_that_a_case_is_a_new_failure() -> None:
    rules = SuiteConfig(pack="agent_safety", gates=(gate("pass_rate", min=0.3),))
    later = run(settings={"gate": "suite"})
    for after, more in (([WORSE, B], "; 1 new failure since the baseline"), ([A, B], "")):
        conclusion = conclude(later, after, rules, (), baseline_of([A, B], settings={"gate": "suite"}))
        verdict = run_verdict(conclusion)
        assert verdict.status == "passed"
        assert verdict.sentence.endswith(f" passed, not proven: pass_rate{more}.")


def test_a_long_page_names_the_first_cases_and_counts_all() -> None:
    good = results_of([{"n": 230}])
    worse = comparison_of(good, results_of([{"n": 230, "score": 0.0}]))
    assert (len(worse.listed["new_failures"].first), worse.kinds["regressed"]) == (200, 230)
    assert diff_markdown(worse).count("200 of 230 shown; each run's report.json lists all.") == 1
    removed = comparison_of([*good, A], [A])
    assert [case.case.test_id for case in removed.removed.first] == sorted(result.case.test_id for result in good)[:200]
    assert diff_markdown(removed).count("200 of 230 shown") == 1
    smaller = comparison_of(good, results_of([{"n": 230, "score": 0.98}]))
    assert "200 of 230 shown" in diff_markdown(smaller)


@st.composite
def any_case(draw: st.DrawFn) -> Result:
    """Draw a trial of one of a few cases, judged or not, of one of two versions."""
    verdict = draw(st.sampled_from(["passed", "failed", "error", "vacuous", "not_run", "known_hole"]))
    points = draw(st.floats(0, 1)) if verdict in {"passed", "failed"} else None
    name, version, trial = draw(st.sampled_from([(n, v, t) for n in "abcd" for v in "xy" for t in range(3)]))
    decision = draw(st.sampled_from(["comply_unsafe", "refuse"]))
    return case_result(name, verdict, score=points, case_sha256=version, trial=trial, decision=decision)


any_run = st.lists(any_case(), max_size=8, unique_by=lambda result: (result.case.test_id, result.attempt.trial))
rules = st.sampled_from([{"trials": 3, "trials_rule": rule} for rule in ("mean", "all", {"at_least": 2})])


def parts_of(comparison: Comparison) -> dict[str, Any]:
    """Return what a comparison says."""
    names = ("cases", "trials", "unchanged", "common", "left_out", "unscored", "kinds", "listed", "added", "removed")
    return {name: getattr(comparison, name) for name in (*names, "flips", "groups", "authored")}


@settings(max_examples=60)
@given(any_run, any_run, rules, st.randoms(use_true_random=False))
def test_a_comparison_is_the_same_in_any_order_and_its_mirror_in_the_other_direction(
    before: list[Result], after: list[Result], settings: Any, random: Random
) -> None:
    shuffled = [random.sample(results, len(results)) for results in (before, after)]
    assert not any(comparison_of(before, shuffled[0], settings=settings).counts().values())
    there, back = comparison_of(before, after, settings=settings), comparison_of(after, before, settings=settings)
    assert parts_of(comparison_of(shuffled[0], shuffled[1], settings=settings)) == parts_of(there)
    (itself,) = judge(before, gate("attack_success_rate", max_ratio_to_baseline=1.0), baseline=baseline_of(before))
    assert itself.passed is any(case.score.counted for case in fold_trials(before))

    def by_id(comparison: Comparison, kind: str) -> list[Change]:
        return sorted(changes_of(comparison, kind), key=lambda change: change.test_id)

    for kind in ("verdict_changed", "hash_changed"):
        for change, reverse in zip(by_id(there, kind), by_id(back, kind), strict=True):
            assert (change.before, change.after) == (reverse.after, reverse.before)
            assert change.edited is reverse.edited
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
CHANGES = {"regressed", "improved", "new_failures", "fixed", "verdict_changed", "smaller_changes"}
UNKNOWN: list[tuple[list[Result], set[str]]] = [
    ([], {*CHANGES, "mean"}),
    ([B], {*CHANGES, "mean"}),
    # edited
    ([changed(WORSE, case_sha256="y")], {*CHANGES, "mean"}),
    ([BROKEN], {"mean"}),
    ([WORSE], set()),
]


def test_a_condition_is_compared_with_its_figure_and_met_if_that_is_unknown() -> None:
    figures = comparison_of([A], results_of([{"id": "a", "score": 0.5}])).figures()
    assert {text: parse_conditions(text, figures)[0].is_met(figures) for text in MET} == MET
    for text in ("", "regressed", "regressed>", "regresed>0", "mean<x", "regressed>0,"):
        with pytest.raises(ConditionError, match="expected"):
            parse_conditions(text, ["regressed", "mean"])
    for after, unknown in UNKNOWN:
        figures = comparison_of([A], after).figures()
        assert {name for name, value in figures.items() if math.isnan(value)} == unknown
        assert {name for name in figures if parse_conditions(f"{name}>5", figures)[0].is_met(figures)} == unknown
