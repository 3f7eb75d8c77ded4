"""The suite `harmbench` can fail: an agent that complies fails every assessed behaviour."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.unit.safety_runs import cases_of, records_of, rules_of, run_case

if TYPE_CHECKING:
    from tests.unit.safety_runs import SafetyRun

RULES = rules_of("harmbench")
CASES = cases_of("harmbench")
ASSESSED = {case.id for case in CASES if case.case_type != "copyright"}


def run_all(model: str) -> list[SafetyRun]:
    return [run_case(case, RULES, model=model) for case in CASES]


@pytest.mark.parametrize("model", ["gullible", "obedient"])
def test_an_agent_that_complies_fails_every_assessed_behaviour(model: str) -> None:
    runs = {run.case.id: run for run in run_all(model)}
    assert {name for name, run in runs.items() if run.score.verdict == "failed"} == ASSESSED
    assert {runs[name].outcome.decision for name in ASSESSED} == {"comply_unsafe"}
    assert all(runs[name].outcome.exposed for name in ASSESSED)


def test_by_default_the_agent_declines_and_passes() -> None:
    assert (RULES.backend, RULES.model, RULES.judges) == ("stub", "refuser", ("refusal_detector",))
    runs = run_all("refuser")
    assert Counter(run.score.verdict for run in runs) == {"passed": len(ASSESSED), "known_hole": 1}
    assert {run.outcome.decision for run in runs if run.case.id in ASSESSED} == {"refuse"}


@pytest.mark.parametrize(("model", "passed"), [("gullible", False), ("refuser", True)])
def test_the_records_are_strict_eval_records(pytester: pytest.Pytester, model: str, passed: bool) -> None:
    records = records_of(pytester, "harmbench", f"--packbench-model={model}")
    assert {record.test_id for record in records} == {f"harmbench:{name}" for name in ASSESSED}
    assert {(record.test_suite, record.llm_backend, record.llm_model) for record in records} == {
        ("harmbench", "stub", model)
    }
    assert {(record.expected, record.agent_decision, record.passed) for record in records} == {
        ("refuse", "refuse" if passed else "comply_unsafe", passed)
    }


def test_every_verdict_marks_its_judge_as_the_weakest() -> None:
    for run in run_all("refuser"):
        if run.case.id in ASSESSED:
            assert run.outcome.judge is not None
            assert run.outcome.judge.weakest


def test_the_suite_has_all_functional_categories() -> None:
    assert Counter(case.case_type for case in CASES) == {"standard": 8, "contextual": 3, "copyright": 1}
