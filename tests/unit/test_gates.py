"""Gates over a run: what they measure, their arithmetic, and that they fail where they can't decide."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.conclusion import conclude
from pytest_packbench.analysis.gates import check_run, checked_baseline, skip_unselected
from pytest_packbench.analysis.tally import Tally
from pytest_packbench.model.gate import Gate, GateResult
from pytest_packbench.model.metric import GENERAL_METRICS, Metric
from pytest_packbench.model.suite import SuiteConfig
from pytest_packbench.packs.agent_safety.metrics import ATTACK_METRICS
from pytest_packbench.packs.agent_safety.pack import AgentSafetyPack
from pytest_packbench.runs.stored import BaselineLookup, StoredRun
from tests.unit.run_builders import any_of, case_result, case_results, data, gate, results_of, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from pytest_packbench.model.result import CaseResult

VECTORS: dict[str, dict[str, Any]] = data("gates.yaml")


def baseline_of(results: Iterable[CaseResult], **changes: Any) -> BaselineLookup:
    return BaselineLookup(stored=StoredRun(source="f", run=run(run_id="01OLD", **changes), results=tuple(results)))


def judge(
    results: Sequence[CaseResult],
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
        gate_results = skip_unselected(gate_results)
    assert [result.text for result in gate_results] == vector["lines"]
    assert [result.passed for result in gate_results] == [not line.endswith(": FAIL") for line in vector["lines"]]
    if not rule.must_pass:
        assert {(result.by, result.min, result.max) for result in gate_results} == {(rule.by, rule.min, rule.max)}
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
    with pytest.raises(ValueError, match=r'unknown metric "speed"; expected one of .*completeness, pass_rate'):
        judge(case_results(1), gate("pass_rate", min=0.5).model_copy(update={"metric": "speed"}))


class PolarSuite(SuiteConfig):
    metrics: ClassVar[Mapping[str, Metric]] = {
        "north": Metric(
            among=lambda result: result.counted, counts=lambda result, _: result.backend == "n", safety=True
        )
    }


def test_a_suite_has_a_gate_on_completeness_and_may_have_one_on_its_own_metric() -> None:
    rules = PolarSuite.model_validate({"pack": "toy", "gates": [{"metric": "north", "max": 0.3}]})
    results = [*case_results(3, llm_backend="s"), case_result("n", llm_backend="n")]
    gates = conclude(run(), results, rules, AgentSafetyPack(), BaselineLookup()).gates
    assert [result.text for result in gates] == [
        "completeness 4 / 4 = 100.0 % >= min 100.0 %: PASS",
        (
            "north 1 / 4 = 25.0 % <= max 30.0 %, 95 % Wilson interval 4.6 % to 69.9 %, "
            "only 4 cases: 9 clean cases are needed to show this (exact one-sided 95 % bound): PASS"
        ),
    ]
    # it replaces no general one
    tally = Tally(metrics={"pass_rate": PolarSuite.metrics["north"], **PolarSuite.metrics})
    assert tally.metrics["pass_rate"] == GENERAL_METRICS["pass_rate"]
    assert tally.metrics["north"] == PolarSuite.metrics["north"]


JUDGED = ("passed", "failed", "error", "not_run")
DECIDED = any_of(id="abcdefgh", verdict=JUDGED, case_sha256="xy", decision=("comply_unsafe", "refuse"))
ROWS = st.lists(DECIDED, unique_by=lambda row: row["id"], max_size=8).map(results_of)


@settings(max_examples=40)
@given(ROWS, ROWS, st.randoms(use_true_random=False), st.sampled_from([None, "case_type"]))
def test_the_order_of_either_run_makes_no_difference(
    now: list[CaseResult], before: list[CaseResult], random: Random, by: str | None
) -> None:
    rules = [gate("attack_success_rate", max_ratio_to_baseline=0.5, by=by), gate("mean_score", max_ratio_to_baseline=1)]
    shuffled = judge(random.sample(now, len(now)), *rules, baseline=baseline_of(random.sample(before, len(before))))
    assert shuffled == judge(now, *rules, baseline=baseline_of(before))


@given(ROWS)
def test_a_run_is_never_worse_than_itself(results: list[CaseResult]) -> None:
    (result,) = judge(results, gate("attack_success_rate", max_ratio_to_baseline=1.0), baseline=baseline_of(results))
    assert result.passed is any(each.counted for each in results)
    stored = baseline_of(results).stored
    assert stored is not None
    assert bool(checked_baseline(run(), results, stored).unusable) is (not results)
