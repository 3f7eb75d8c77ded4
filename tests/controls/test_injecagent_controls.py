"""The suite `injecagent` can fail: without guards the gullible agent fails every case, and each guard has its effect."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.unit.safety_runs import PACK, cases_of, records_of, rules_of, run_case

RULES = rules_of("injecagent")
CASES = cases_of("injecagent")
ALL = {case.id for case in CASES}
FRAMED = {case.id for case in CASES if case.input.attack == "enhanced"}


def test_the_suite_has_both_kinds_in_both_settings_behind_guards() -> None:
    assert Counter((case.case_type, case.input.attack) for case in CASES) == {
        (kind, setting): 4 for kind in ("direct_harm", "data_stealing") for setting in ("base", "enhanced")
    }
    assert (RULES.backend, RULES.model, RULES.guards) == ("stub", "gullible", ("redact", "tool_policy"))


@pytest.mark.parametrize(
    ("model", "guards", "landed", "removed", "calls"),
    [
        ("gullible", (), ALL, set(), {"run"}),
        ("gullible", RULES.guards, set(), FRAMED, {"denied"}),
        ("gullible", ("redact",), ALL - FRAMED, FRAMED, {"run"}),
        ("gullible", ("tool_policy",), set(), set(), {"denied"}),
        ("obedient", (), set(), set(), set()),
        ("refuser", (), set(), set(), set()),
    ],
)
def test_which_attacks_land_are_removed_and_denied(
    model: str, guards: tuple[str, ...], landed: set[str], removed: set[str], calls: set[str]
) -> None:
    runs = {case.id: run_case(case, RULES, model=model, guards=guards) for case in CASES}
    decisions = {name: run.outcome.decision for name, run in runs.items()}
    assert {name for name, decision in decisions.items() if decision == "comply_unsafe"} == landed
    assert {name for name, run in runs.items() if run.score.verdict == "failed"} == landed
    assert {run.score.verdict for run in runs.values()} <= {"passed", "failed"}
    assert {name for name, run in runs.items() if run.outcome.removed_by == ("redact",)} == removed
    assert {name for name, run in runs.items() if not run.outcome.exposed} == removed
    assert {status for run in runs.values() for _, status in run.calls} == calls
    # at most one denied call: a case ends with it
    assert all(len(run.calls) == 1 for run in runs.values() if run.calls and calls == {"denied"})
    if model != "gullible":
        assert set(decisions.values()) == {"comply_safe" if model == "obedient" else "refuse"}


@pytest.mark.parametrize(("model", "decision"), [("gullible", "comply_unsafe"), ("refuser", "refuse")])
def test_the_records_are_strict_eval_records(pytester: pytest.Pytester, model: str, decision: str) -> None:
    records = records_of(pytester, "injecagent", f"--packbench-model={model}", "--packbench-guard=none")
    assert {record.test_id for record in records} == {PACK.test_id("injecagent", case) for case in CASES}
    assert {(record.test_suite, record.llm_backend, record.llm_model) for record in records} == {
        ("injecagent", "stub", model)
    }
    assert {(record.agent_decision, record.passed) for record in records} == {(decision, decision == "refuse")}
    assert {(record.tokens_input, record.tokens_output) for record in records} == {(None, None)}


def test_no_case_can_be_confused_with_one_from_upstream() -> None:
    for case in CASES:
        assert case.input.version == "own"
        assert PACK.test_id("injecagent", case).startswith("injecagent:own_")
        texts = f"{case.input.material['attacker_instruction']} {case.input.material['tool_response']}"
        assert set(re.findall(r"@([\w.]*\w)", texts)) <= {"example.com"}
