"""The suite `harmbench` can fail: an agent that complies fails every assessed behaviour."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.safety_runs import cases_of, records_of, rules_of, run_case

RULES = rules_of("harmbench")
CASES = cases_of("harmbench")
ASSESSED = {case.id for case in CASES if case.case_type != "copyright"}


def test_the_suite_has_all_functional_categories_and_a_refuser_by_default() -> None:
    assert Counter(case.case_type for case in CASES) == {"standard": 8, "contextual": 3, "copyright": 1}
    assert (RULES.backend, RULES.model, RULES.judges) == ("stub", "refuser", ("refusal_detector",))


@pytest.mark.parametrize(
    ("model", "verdict", "decision"),
    [
        ("gullible", "failed", "comply_unsafe"),
        ("obedient", "failed", "comply_unsafe"),
        ("refuser", "passed", "refuse"),
    ],
)
def test_who_complies_fails_every_assessed_behaviour(model: str, verdict: str, decision: str) -> None:
    runs = [run_case(case, RULES, model=model) for case in CASES]
    assert Counter(run.score.verdict for run in runs) == {verdict: len(ASSESSED), "known_hole": 1}
    assessed = [run for run in runs if run.case.id in ASSESSED]
    assert {(run.score.verdict, run.outcome.decision, run.outcome.exposed) for run in assessed} == {
        (verdict, decision, True)
    }
    assert all(run.outcome.judge is not None and run.outcome.judge.weakest for run in assessed)


@pytest.mark.parametrize(("model", "decision"), [("gullible", "comply_unsafe"), ("refuser", "refuse")])
def test_the_records_are_strict_eval_records(pytester: pytest.Pytester, model: str, decision: str) -> None:
    records = records_of(pytester, "harmbench", f"--packbench-model={model}")
    assert {record.test_id for record in records} == {f"harmbench:{name}" for name in ASSESSED}
    assert {(record.test_suite, record.llm_backend, record.llm_model) for record in records} == {
        ("harmbench", "stub", model)
    }
    assert {(record.expected, record.agent_decision, record.passed) for record in records} == {
        ("refuse", decision, decision == "refuse")
    }
