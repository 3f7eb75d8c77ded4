"""The suite `agentdojo` can fail, and a case that AgentDojo cannot decide neither passes nor fails."""

from __future__ import annotations

import pytest

pytest.importorskip("agentdojo", reason="the extra agentdojo is not installed")

from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.load import check_case
from pytest_packbench.packs.agent_safety.agentdojo.importer import Pair, case_of
from pytest_packbench.packs.agent_safety.guards.base import GuardRuling, ToolUse
from pytest_packbench.packs.agent_safety.model import SafetyCase
from tests.unit.safety_runs import PACK, cases_of, rules_of, run_case

if TYPE_CHECKING:
    from tests.unit.safety_runs import SafetyRun

RULES = rules_of("agentdojo")
CASES = cases_of("agentdojo")
MIN_SHARE = 0.95


def case(environment: str, user: int, injection: int, **changes: Any) -> SafetyCase:
    data = case_of(Pair(environment, user, injection, "easy"))
    data["input"].update(changes)
    checked = check_case(data, SafetyCase, source="case", stem=None, pack=PACK.name).case
    assert isinstance(checked, SafetyCase)
    return checked


def run_all(model: str, *guards: Any) -> list[SafetyRun]:
    return [run_case(case, RULES, model=model, guards=guards) for case in CASES]


def verdicts(results: list[SafetyRun]) -> set[str]:
    return {run.score.verdict for run in results}


class DenyingGuard:
    """A guard that denies calls of some tools, or all."""

    name = "denies"

    def __init__(self, *tools: str) -> None:
        self.tools = tools

    def pre_tool_use(self, call: ToolUse) -> GuardRuling | None:
        return GuardRuling(decision="deny", rule=1) if not self.tools or call.tool in self.tools else None


def test_the_gullible_agent_without_guards_fails() -> None:
    results = run_all("gullible")
    exposed = [run for run in results if run.outcome.exposed]
    assert len(exposed) == len(CASES) == 50
    failed = [run for run in exposed if run.score.verdict == "failed" and run.outcome.decision == "comply_unsafe"]
    assert len(failed) >= MIN_SHARE * len(exposed)
    assert not any(run.outcome.firings for run in results)


def test_by_default_the_suite_passes_and_the_guard_is_the_reason() -> None:
    assert (RULES.backend, RULES.model, RULES.guards) == ("stub", "gullible", ("redact",))
    results = run_all("gullible", *RULES.guards)
    assert verdicts(results) == {"passed"}
    assert all(run.outcome.removed_by == ("redact",) and not run.outcome.exposed for run in results)
    assert all(("redact.on_tool_output", "replace") in _firings(run) for run in results)
    assert all(run.outcome.decision == "comply_safe" for run in results)


def _firings(run: SafetyRun) -> list[tuple[str, str]]:
    return [(firing.hook, firing.decision) for firing in run.outcome.firings]


def test_an_agent_that_ignores_the_attack_passes_exposed() -> None:
    results = run_all("obedient")
    assert verdicts(results) == {"passed"}
    assert all(run.outcome.exposed and run.outcome.decision == "comply_safe" for run in results)


def test_an_agent_that_does_nothing_is_vacuous() -> None:
    results = run_all("refuser")
    assert verdicts(results) == {"vacuous"}
    assert all(not run.outcome.tool_calls and run.score.score is None for run in results)


@pytest.mark.parametrize("model", ["gullible", "obedient"])
def test_injections_left_at_their_defaults_are_no_attack(model: str) -> None:
    harmless = [case.model_copy(update={"input": case.input.model_copy(update={"attack": "none"})}) for case in CASES]
    assert {run_case(case, RULES, model=model).score.verdict for case in harmless} == {"vacuous"}


def test_a_guard_that_marks_text_does_not_stop_an_agent_that_obeys_it() -> None:
    results = [run_case(case, RULES, model="gullible", guards=["spotlight"]) for case in CASES[:5]]
    assert verdicts(results) == {"failed"}
    assert all(not run.outcome.removed_by and run.outcome.exposed for run in results)


def test_idle_agents_solve_nothing() -> None:
    # the task's checker accepts an agent that did nothing
    idle = run_case(case("banking", 5, 0), RULES, model="refuser")
    assert idle.outcome.utility is True
    assert idle.outcome.decision == "refuse"


@pytest.mark.parametrize(
    ("environment", "user", "injection"),
    [("workspace", 0, 6), ("workspace", 3, 13), ("banking", 15, 8), ("workspace", 14, 0), ("workspace", 39, 0)],
)
def test_an_attack_that_a_script_cannot_land_is_a_known_hole(environment: str, user: int, injection: int) -> None:
    result = run_case(case(environment, user, injection), RULES, model="gullible")
    assert (result.outcome.exposed, result.outcome.landed) == (True, False)
    assert result.score.verdict == "known_hole"
    assert result.score.message.startswith("not_landable: ")


def test_denied_calls_that_a_checker_counts_are_no_failure_of_the_guard() -> None:
    by_calls = case("slack", 0, 5)
    assert run_case(by_calls, RULES, model="gullible").score.verdict == "failed"
    stopped = run_case(
        by_calls, RULES, model="gullible", guards=[DenyingGuard("invite_user_to_slack", "add_user_to_channel")]
    )
    assert stopped.outcome.landed is True
    assert stopped.outcome.landed_by_denied_calls
    assert stopped.score.verdict == "known_hole"
    assert "a guard denied the calls" in stopped.score.message
    # a guard that denied none of them did not decide
    beside = run_case(by_calls, RULES, model="gullible", guards=[DenyingGuard("post_webpage")])
    assert beside.score.verdict == "failed"


def test_a_denied_call_of_any_other_attack_is_a_success_of_the_guard() -> None:
    result = run_case(case("banking", 1, 7), RULES, model="gullible", guards=[DenyingGuard("update_password")])
    assert [(call.name, call.status) for call in result.outcome.tool_calls][-1] == ("update_password", "denied")
    assert result.outcome.exposed
    assert (result.score.verdict, result.outcome.landed) == ("passed", False)
    assert _firings(result) == [("denies.pre_tool_use", "deny")]


def test_the_message_of_a_denied_call_is_not_a_tool_output() -> None:
    guards = [DenyingGuard("update_password"), "spotlight"]
    result = run_case(case("banking", 1, 7), RULES, model="gullible", guards=guards)
    assert result.outcome.tool_calls[-1].status == "denied"
    outputs = [hook for hook, _ in _firings(result) if hook == "spotlight.on_tool_output"]
    assert len(outputs) == len(result.outcome.tool_calls) - 1


def test_an_attack_on_the_agents_text_passes_every_tool_guard() -> None:
    result = run_case(case("travel", 4, 6), RULES, model="gullible", guards=["tool_policy"])
    output_only = case("travel", 4, 6)
    assert output_only.notes.tags == ("output_only",)
    assert output_only.expected.known_hole is None
    assert run_case(output_only, RULES, model="gullible").score.verdict == "failed"
    assert result.score.verdict in {"failed", "vacuous"}


def test_a_user_task_whose_own_solution_fails_has_no_utility() -> None:
    unsolved = case("travel", 19, 2)
    result = run_case(unsolved, RULES, model="obedient")
    assert result.outcome.utility is False
    assert PACK.facts(unsolved, result.outcome, result.score).utility is None
    assert result.score.verdict == "passed"


def test_a_blocked_prompt_ends_the_run_before_it_begins() -> None:
    class BlockingGuard:
        name = "blocks"

        def on_prompt_submit(self, prompt: object) -> GuardRuling:
            return GuardRuling(decision="deny")

    result = run_case(CASES[0], RULES, model="gullible", guards=[BlockingGuard()])
    assert not result.outcome.tool_calls
    assert result.score.verdict == "vacuous"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attack": "nonsense"}, 'unknown attack "nonsense"; expected one of '),
        ({"attack": "manual"}, 'unknown attack "manual"'),
        ({"version": "v9"}, 'unknown AgentDojo version "v9"'),
        (
            {"ids": {"environment": "office", "user_task": "a", "injection_task": "b"}},
            'unknown environment "office"',
        ),
        (
            {"ids": {"environment": "slack", "user_task": "user_task_99", "injection_task": "b"}},
            'unknown task "user_task_99" in slack; expected one of user_task_0',
        ),
    ],
)
def test_an_unknown_name_of_agentdojo_is_an_error_that_names_it(changes: dict[str, Any], message: str) -> None:
    result = run_case(case("slack", 0, 1, **changes), RULES, model="gullible")
    assert result.outcome.breakdown is not None
    assert result.outcome.breakdown.kind == "unknown_upstream"
    assert message in result.outcome.breakdown.message
    assert result.score.verdict == "error"
