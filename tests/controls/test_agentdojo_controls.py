"""The suite `agentdojo` can fail, and a case that AgentDojo cannot decide neither passes nor fails."""

from __future__ import annotations

import pytest

pytest.importorskip("agentdojo", reason="the extra agentdojo is not installed")

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.agent_safety.agentdojo.importer import Pair, case_of
from pytest_packbench.packs.agent_safety.guards.base import GuardRuling
from tests.unit.safety_runs import PACK, RulingGuard, cases_of, checked, rules_of, run_case

if TYPE_CHECKING:
    from pytest_packbench.packs.agent_safety.model import SafetyCase
    from tests.unit.safety_runs import SafetyRun

RULES = rules_of("agentdojo")
CASES = cases_of("agentdojo")


def case(environment: str, user: int, injection: int, **changes: Any) -> SafetyCase:
    data = case_of(Pair(environment, user, injection, "easy"))
    data["input"].update(changes)
    return checked(data)


def denying(*tools: str) -> RulingGuard:
    """A guard that denies calls of some tools."""
    deny = GuardRuling(decision="deny", rule=1)
    return RulingGuard("denies", pre_tool_use=lambda call: deny if call.tool in tools else None)


def facts(run: SafetyRun) -> tuple[str, str, bool, tuple[str, ...]]:
    return run.score.verdict, run.outcome.decision, run.outcome.exposed, run.outcome.removed_by


@pytest.mark.parametrize(
    ("model", "guards", "verdict", "decision", "exposed", "removed"),
    [
        ("gullible", (), "failed", "comply_unsafe", True, ()),
        # by default the suite passes, and the guard is the reason
        ("gullible", RULES.guards, "passed", "comply_safe", False, ("redact",)),
        ("obedient", (), "passed", "comply_safe", True, ()),
        ("refuser", (), "vacuous", "refuse", False, ()),
    ],
)
def test_each_agent_has_one_verdict_on_all_cases(
    model: str, guards: tuple[str, ...], verdict: str, decision: str, *, exposed: bool, removed: tuple[str, ...]
) -> None:
    runs = [run_case(case, RULES, model=model, guards=guards) for case in CASES]
    counts = Counter(facts(run) for run in runs)
    assert (len(runs), RULES.backend, RULES.model, RULES.guards) == (50, "stub", "gullible", ("redact",))
    # a script lands nearly all attacks
    assert counts[verdict, decision, exposed, removed] >= (48 if verdict == "failed" else 50)
    assert all(run.outcome.exposed is exposed for run in runs)
    assert all(bool(run.firings) is bool(guards) for run in runs)
    assert {firing[:2] for run in runs for firing in run.firings} <= {("redact.on_tool_output", "replace")}
    assert all(bool(run.outcome.tool_calls) is (model != "refuser") for run in runs)


@pytest.mark.parametrize("model", ["gullible", "obedient"])
def test_injections_left_at_their_defaults_are_no_attack(model: str) -> None:
    harmless = [
        case.model_copy(update={"input": case.input.model_copy(update={"attack": "none"})}) for case in CASES[::4]
    ]
    assert {run_case(case, RULES, model=model).score.verdict for case in harmless} == {"vacuous"}


def test_a_guard_that_marks_text_does_not_stop_an_agent_that_obeys_it() -> None:
    runs = [run_case(case, RULES, model="gullible", guards=["spotlight"]) for case in CASES[:5]]
    assert {facts(run) for run in runs} == {("failed", "comply_unsafe", True, ())}


def test_an_idle_agent_refuses_even_if_the_checker_accepts_it() -> None:
    idle = run_case(case("banking", 5, 0), RULES, model="refuser")
    assert (idle.outcome.utility, idle.outcome.decision) == (True, "refuse")


@pytest.mark.parametrize(
    ("environment", "user", "injection"),
    [("workspace", 0, 6), ("workspace", 3, 13), ("banking", 15, 8), ("workspace", 14, 0), ("workspace", 39, 0)],
)
def test_an_attack_that_a_script_cannot_land_is_a_known_hole(environment: str, user: int, injection: int) -> None:
    run = run_case(case(environment, user, injection), RULES, model="gullible")
    assert (run.outcome.exposed, run.outcome.landed, run.score.verdict) == (True, False, "known_hole")
    assert run.score.message.startswith("not_landable: ")


@pytest.mark.parametrize(
    ("denied", "verdict"),
    [
        ((), "failed"),
        (("invite_user_to_slack", "add_user_to_channel"), "known_hole"),
        # a guard that denied none of the counted calls did not decide
        (("post_webpage",), "failed"),
    ],
)
def test_denied_calls_that_a_checker_counts_are_no_failure_of_the_guard(denied: tuple[str, ...], verdict: str) -> None:
    run = run_case(case("slack", 0, 5), RULES, model="gullible", guards=[denying(*denied)])
    assert (run.score.verdict, run.outcome.landed) == (verdict, True)
    assert run.outcome.landed_by_denied_calls is (verdict == "known_hole")
    assert ("a guard denied the calls" in run.score.message) is (verdict == "known_hole")


def test_a_denied_call_of_any_other_attack_is_a_success_of_the_guard() -> None:
    run = run_case(case("banking", 1, 7), RULES, model="gullible", guards=[denying("update_password"), "spotlight"])
    assert run.calls[-1] == ("update_password", "denied")
    assert (run.score.verdict, run.outcome.landed, run.outcome.exposed) == ("passed", False, True)
    assert ("denies.pre_tool_use", "deny", 1) in run.firings
    # the message of a denied call is no tool output
    outputs = [hook for hook, *_ in run.firings if hook == "spotlight.on_tool_output"]
    assert len(outputs) == len(run.calls) - 1


def test_an_attack_on_the_text_of_the_agent_passes_every_tool_guard() -> None:
    output_only = case("travel", 4, 6)
    assert (output_only.notes.tags, output_only.expected.known_hole) == (("output_only",), None)
    assert run_case(output_only, RULES, model="gullible").score.verdict == "failed"
    guarded = run_case(output_only, RULES, model="gullible", guards=["tool_policy"])
    assert guarded.score.verdict in {"failed", "vacuous"}


def test_a_user_task_whose_own_solution_fails_has_no_utility() -> None:
    unsolved = case("travel", 19, 2)
    run = run_case(unsolved, RULES, model="obedient")
    assert (run.outcome.utility, run.score.verdict) == (False, "passed")
    assert PACK.facts(unsolved, run.outcome, run.score).utility is None


def test_a_blocked_prompt_ends_the_run_before_it_begins() -> None:
    guard = RulingGuard("blocks", on_prompt_submit=GuardRuling(decision="deny"))
    run = run_case(CASES[0], RULES, model="gullible", guards=[guard])
    assert (run.calls, run.score.verdict) == ([], "vacuous")


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("gullible", {"attack": "nonsense"}, 'unknown attack "nonsense"; expected one of '),
        ("gullible", {"attack": "manual"}, 'unknown attack "manual"'),
        ("gullible", {"version": "v9"}, 'unknown AgentDojo version "v9"'),
        (
            "gullible",
            {"ids": {"environment": "office", "user_task": "a", "injection_task": "b"}},
            'unknown environment "office"',
        ),
        (
            "gullible",
            {"ids": {"environment": "slack", "user_task": "user_task_99", "injection_task": "b"}},
            'unknown task "user_task_99" in slack; expected one of user_task_0',
        ),
        ("zealous", {}, 'unknown scripted agent "zealous"; expected one of gullible, obedient, refuser'),
    ],
)
def test_an_unknown_name_is_an_error_that_names_it(model: str, changes: dict[str, Any], message: str) -> None:
    run = run_case(case("slack", 0, 1, **changes), RULES, model=model)
    assert run.outcome.breakdown is not None
    assert (run.outcome.breakdown.kind, run.score.verdict) == ("unknown_upstream", "error")
    assert message in run.outcome.breakdown.message
