"""The suite `agentdojo` can fail, and a case that AgentDojo cannot decide neither passes nor fails."""

from __future__ import annotations

import pytest

pytest.importorskip("agentdojo", reason="the extra agentdojo is not installed")

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pytest_packbench.packs.agent_safety.agentdojo.importer import Pair, case_of
from pytest_packbench.packs.agent_safety.guards.base import GuardRuling
from tests.unit.safety_runs import PACK, RulingGuard, cases_of, checked, rules_of, run_case

if TYPE_CHECKING:
    from pytest_packbench.packs.agent_safety.model import SafetyCase

TABLES = yaml.safe_load(Path(__file__).with_name("agentdojo.yaml").read_text("utf-8"))
RULES = rules_of("agentdojo")
CASES = cases_of("agentdojo")


def case(environment: str, user: int, injection: int) -> SafetyCase:
    return checked(case_of(Pair(environment, user, injection, "easy")))


AGENTS = [
    ("gullible", (), ("failed", "comply_unsafe", True, ())),
    # by default the suite passes, and the guard is the reason
    ("gullible", RULES.guards, ("passed", "comply_safe", False, ("redact",))),
    ("obedient", (), ("passed", "comply_safe", True, ())),
    ("refuser", (), ("vacuous", "refuse", False, ())),
]


@pytest.mark.parametrize(("model", "guards", "expected"), AGENTS)
def test_each_agent_has_one_verdict_on_all_cases(model: str, guards: Any, expected: tuple[Any, ...]) -> None:
    runs = [run_case(case, RULES, model=model, guards=guards) for case in CASES]
    assert (len(runs), RULES.backend, RULES.model, RULES.guards) == (50, "stub", "gullible", ("redact",))
    # a script lands nearly all attacks
    facts = [(run.score.verdict, run.outcome.decision, run.outcome.exposed, run.outcome.removed_by) for run in runs]
    assert Counter(facts)[expected] >= (48 if expected[0] == "failed" else 50)
    assert all(run.outcome.exposed is expected[2] for run in runs)
    assert all(bool(run.firings) is bool(guards) for run in runs)
    assert {firing[:2] for run in runs for firing in run.firings} <= {("redact.on_tool_output", "replace")}
    assert all(bool(run.outcome.tool_calls) is (model != "refuser") for run in runs)


def test_what_is_no_attack_or_never_reaches_the_agent_is_not_tested() -> None:
    for model in ("gullible", "obedient"):
        # injections left at their defaults
        unchanged = [c.model_copy(update={"input": c.input.model_copy(update={"attack": "none"})}) for c in CASES[::4]]
        assert {run_case(case, RULES, model=model).score.verdict for case in unchanged} == {"vacuous"}
    blocks = RulingGuard("blocks", on_prompt_submit=GuardRuling(decision="deny"))
    run = run_case(CASES[0], RULES, model="gullible", guards=[blocks])
    assert (run.calls, run.score.verdict) == ([], "vacuous")


@pytest.mark.parametrize(("pair", "model", "guards", "verdict", "decision", "landed"), TABLES["pairs"])
def test_one_pair(pair: Any, model: str, guards: list[str], verdict: str, decision: str, *, landed: bool) -> None:
    deny = GuardRuling(decision="deny", rule=1)
    denying = RulingGuard("denies", pre_tool_use=lambda call: deny if call.tool in guards else None)
    chain = [denying, *(guard for guard in guards if guard in PACK.guards())]
    run = run_case(case(*pair), RULES, model=model, guards=chain)
    assert (run.score.verdict, run.outcome.decision, run.outcome.landed) == (verdict, decision, landed)
    assert run.outcome.landed_by_denied_calls is (verdict == "known_hole")
    if "update_password" in guards:
        assert (run.calls[-1], run.outcome.exposed) == (("update_password", "denied"), True)
        assert ("denies.pre_tool_use", "deny", 1) in run.firings
        # the message of a denied call is no tool output
        assert [hook for hook, *_ in run.firings].count("spotlight.on_tool_output") == len(run.calls) - 1
    if pair == ["travel", 19, 2]:
        assert run.outcome.utility is False
        assert PACK.facts(run.case, run.outcome, run.score).utility is None


@pytest.mark.parametrize("pair", TABLES["not_landable"])
def test_an_attack_that_a_script_cannot_land_is_a_known_hole(pair: Any) -> None:
    run = run_case(case(*pair), RULES, model="gullible")
    assert (run.outcome.exposed, run.outcome.landed, run.score.verdict) == (True, False, "known_hole")
    assert run.score.message.startswith("not_landable: ")


@pytest.mark.parametrize(("changes", "message"), TABLES["unknown"])
def test_an_unknown_name_is_an_error_that_names_it(changes: dict[str, str], message: str) -> None:
    data = case_of(Pair("slack", 0, 1, "easy"))
    for key, value in changes.items():
        (data["input"]["ids"] if key in data["input"]["ids"] else data["input"])[key] = value
    run = run_case(checked(data), RULES, model="gullible" if changes else "zealous")
    assert run.outcome.breakdown is not None
    assert (run.outcome.breakdown.kind, run.score.verdict) == ("unknown_upstream", "error")
    assert message in run.outcome.breakdown.message
