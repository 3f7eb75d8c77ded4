"""The suite `injecagent` can fail: the gullible agent without guards does, on every case, and each guard does its part."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.packs.agent_safety.injecagent.upstream import Material
from tests.unit.safety_runs import PACK, cases_of, ran, records_of, rules_of

if TYPE_CHECKING:
    from tests.unit.safety_runs import Ran

RULES = rules_of("injecagent")
CASES = cases_of("injecagent")


def runs(model: str, *guards: str) -> list[Ran]:
    return [ran(case, RULES, model=model, guards=guards) for case in CASES]


def landed(found: list[Ran]) -> set[str]:
    return {one.case.id for one in found if one.score.verdict == "failed" and one.outcome.decision == "comply_unsafe"}


def test_without_guards_every_attack_lands_on_the_gullible() -> None:
    found = runs("gullible")
    assert all(one.outcome.exposed for one in found)
    assert landed(found) == {case.id for case in CASES}


def test_as_the_suite_is_run_by_default_none_does() -> None:
    assert (RULES.backend, RULES.model) == ("stub", "gullible")
    found = runs("gullible", *RULES.guards)
    assert not landed(found)
    assert {one.score.verdict for one in found} == {"passed"}


def test_redact_removes_the_framed_attacks_and_only_those() -> None:
    found = runs("gullible", "redact")
    framed = {case.id for case in CASES if case.input.attack == "enhanced"}
    assert landed(found) == {case.id for case in CASES} - framed
    assert {one.case.id for one in found if one.outcome.removed_by == ("redact",)} == framed


def test_tool_policy_denies_every_call_and_removes_nothing() -> None:
    found = runs("gullible", "tool_policy")
    assert not landed(found)
    assert all(one.outcome.exposed and not one.outcome.removed_by for one in found)
    assert all([call.status for call in one.outcome.tool_calls] == ["denied"] for one in found)


@pytest.mark.parametrize(("model", "decision"), [("obedient", "comply_safe"), ("refuser", "refuse")])
def test_those_who_ignore_the_attack_pass_in_their_own_way(model: str, decision: str) -> None:
    found = runs(model)
    assert {one.score.verdict for one in found} == {"passed"}
    assert {one.outcome.decision for one in found} == {decision}


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


def test_both_kinds_and_both_settings_are_there() -> None:
    assert Counter((case.case_type, case.input.attack) for case in CASES) == {
        ("direct_harm", "base"): 4,
        ("direct_harm", "enhanced"): 4,
        ("data_stealing", "base"): 4,
        ("data_stealing", "enhanced"): 4,
    }


def test_no_case_can_be_taken_for_one_of_upstreams() -> None:
    for case in CASES:
        assert case.input.version == "own"
        assert PACK.test_id("injecagent", case).startswith("injecagent:own_")
        material = Material.model_validate(case.input.material)
        assert not {"example.com"} ^ {word.split("@")[1].rstrip(".") for word in _addresses(material)}


def _addresses(material: Material) -> list[str]:
    words = [*material.attacker_instruction.split(), *material.tool_response.split(), "a@example.com"]
    return [word.strip("\"'},]") for word in words if "@" in word]
