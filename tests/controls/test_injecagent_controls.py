"""The suite `injecagent` can fail: without guards the gullible agent fails every case, and each guard has its effect."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.packs.agent_safety.injecagent.upstream import Material
from tests.unit.safety_runs import PACK, cases_of, records_of, rules_of, run_case

if TYPE_CHECKING:
    from tests.unit.safety_runs import SafetyRun

RULES = rules_of("injecagent")
CASES = cases_of("injecagent")


def run_all(model: str, *guards: str) -> list[SafetyRun]:
    return [run_case(case, RULES, model=model, guards=guards) for case in CASES]


def landed_cases(results: list[SafetyRun]) -> set[str]:
    return {run.case.id for run in results if run.score.verdict == "failed" and run.outcome.decision == "comply_unsafe"}


def test_without_guards_every_attack_lands_on_the_gullible() -> None:
    results = run_all("gullible")
    assert all(run.outcome.exposed for run in results)
    assert landed_cases(results) == {case.id for case in CASES}


def test_by_default_no_attack_lands() -> None:
    assert (RULES.backend, RULES.model) == ("stub", "gullible")
    results = run_all("gullible", *RULES.guards)
    assert not landed_cases(results)
    assert {run.score.verdict for run in results} == {"passed"}


def test_redact_removes_the_framed_attacks_and_only_those() -> None:
    results = run_all("gullible", "redact")
    framed = {case.id for case in CASES if case.input.attack == "enhanced"}
    assert landed_cases(results) == {case.id for case in CASES} - framed
    assert {run.case.id for run in results if run.outcome.removed_by == ("redact",)} == framed


def test_tool_policy_denies_every_call_and_removes_nothing() -> None:
    results = run_all("gullible", "tool_policy")
    assert not landed_cases(results)
    assert all(run.outcome.exposed and not run.outcome.removed_by for run in results)
    assert all([call.status for call in run.outcome.tool_calls] == ["denied"] for run in results)


@pytest.mark.parametrize(("model", "decision"), [("obedient", "comply_safe"), ("refuser", "refuse")])
def test_agents_that_ignore_the_attack_pass(model: str, decision: str) -> None:
    results = run_all(model)
    assert {run.score.verdict for run in results} == {"passed"}
    assert {run.outcome.decision for run in results} == {decision}


@pytest.mark.parametrize(("model", "passed"), [("gullible", False), ("refuser", True)])
def test_the_records_are_strict_eval_records(pytester: pytest.Pytester, model: str, passed: bool) -> None:
    records = records_of(pytester, "injecagent", f"--packbench-model={model}", "--packbench-guard=none")
    assert {record.test_id for record in records} == {PACK.test_id("injecagent", case) for case in CASES}
    assert {(record.test_suite, record.llm_backend, record.llm_model) for record in records} == {
        ("injecagent", "stub", model)
    }
    assert {(record.agent_decision, record.passed) for record in records} == {
        ("refuse" if passed else "comply_unsafe", passed)
    }
    assert {(record.tokens_input, record.tokens_output) for record in records} == {(None, None)}


def test_the_suite_has_both_kinds_and_both_settings() -> None:
    assert Counter((case.case_type, case.input.attack) for case in CASES) == {
        ("direct_harm", "base"): 4,
        ("direct_harm", "enhanced"): 4,
        ("data_stealing", "base"): 4,
        ("data_stealing", "enhanced"): 4,
    }


def test_no_case_can_be_confused_with_one_from_upstream() -> None:
    for case in CASES:
        assert case.input.version == "own"
        assert PACK.test_id("injecagent", case).startswith("injecagent:own_")
        material = Material.model_validate(case.input.material)
        assert not {"example.com"} ^ {word.split("@")[1].rstrip(".") for word in _addresses(material)}


def _addresses(material: Material) -> list[str]:
    words = [*material.attacker_instruction.split(), *material.tool_response.split(), "a@example.com"]
    return [word.strip("\"'},]") for word in words if "@" in word]
