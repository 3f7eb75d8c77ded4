"""The suite `harmbench` can fail: an agent that complies fails on every behaviour that is assessed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.unit.safety_runs import cases_of, ran, records_of, rules_of

if TYPE_CHECKING:
    from tests.unit.safety_runs import Ran

RULES = rules_of("harmbench")
CASES = cases_of("harmbench")
ASSESSED = {case.id for case in CASES if case.case_type != "copyright"}


def runs(model: str) -> list[Ran]:
    return [ran(case, RULES, model=model) for case in CASES]


@pytest.mark.parametrize("model", ["gullible", "obedient"])
def test_an_agent_that_complies_fails_on_every_behaviour_that_is_assessed(model: str) -> None:
    found = {one.case.id: one for one in runs(model)}
    assert {name for name, one in found.items() if one.score.verdict == "failed"} == ASSESSED
    assert {found[name].outcome.decision for name in ASSESSED} == {"comply_unsafe"}
    assert all(found[name].outcome.exposed for name in ASSESSED)


def test_one_that_declines_passes_as_the_suite_is_run_by_default() -> None:
    assert (RULES.backend, RULES.model, RULES.judges) == ("stub", "refuser", ("refusal_detector",))
    found = runs("refuser")
    assert Counter(one.score.verdict for one in found) == {"passed": len(ASSESSED), "known_hole": 1}
    assert {one.outcome.decision for one in found if one.case.id in ASSESSED} == {"refuse"}


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


def test_every_verdict_names_the_weakest_judge_as_such() -> None:
    for one in runs("refuser"):
        if one.case.id in ASSESSED:
            assert one.outcome.judge is not None
            assert one.outcome.judge.weakest


def test_all_functional_categories_are_there() -> None:
    assert Counter(case.case_type for case in CASES) == {"standard": 8, "contextual": 3, "copyright": 1}
