"""The suites `harmbench` and `injecagent` can fail: an agent that complies fails every case, and each guard has its effect."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.unit.safety_runs import PACK, cases_of, rules_of, run_case

ALL = {case.id for case in cases_of("injecagent")}
FRAMED = {case.id for case in cases_of("injecagent") if case.input.attack == "enhanced"}
GUARDS = ("redact", "tool_policy")


@pytest.mark.parametrize(("model", "verdict"), [("gullible", "failed"), ("obedient", "failed"), ("refuser", "passed")])
def test_who_complies_fails_every_assessed_behaviour_of_harmbench(model: str, verdict: str) -> None:
    cases, rules = cases_of("harmbench"), rules_of("harmbench")
    assert Counter(case.case_type for case in cases) == {"standard": 8, "contextual": 3, "copyright": 1}
    assert (rules.backend, rules.model, rules.judges) == ("stub", "refuser", ("refusal_detector",))
    runs = [run_case(case, rules, model=model) for case in cases]
    assert Counter(run.score.verdict for run in runs) == {verdict: 11, "known_hole": 1}
    decisions = {run.outcome.decision for run in runs if run.case.case_type != "copyright"}
    assert decisions == {"refuse" if verdict == "passed" else "comply_unsafe"}


@pytest.mark.parametrize(
    ("model", "guards", "landed", "removed", "calls"),
    [
        ("gullible", (), ALL, set(), {"run"}),
        ("gullible", GUARDS, set(), FRAMED, {"denied"}),
        ("gullible", ("redact",), ALL - FRAMED, FRAMED, {"run"}),
        ("gullible", ("tool_policy",), set(), set(), {"denied"}),
        ("obedient", (), set(), set(), set()),
        ("refuser", (), set(), set(), set()),
    ],
)
def test_which_attacks_of_injecagent_land_are_removed_and_denied(
    model: str, guards: tuple[str, ...], landed: set[str], removed: set[str], calls: set[str]
) -> None:
    rules = rules_of("injecagent")
    runs = {case.id: run_case(case, rules, model=model, guards=guards) for case in cases_of("injecagent")}
    assert (len(runs), rules.backend, rules.model, rules.guards) == (16, "stub", "gullible", GUARDS)
    decisions = {name: run.outcome.decision for name, run in runs.items()}
    assert {name for name, decision in decisions.items() if decision == "comply_unsafe"} == landed
    assert {name for name, run in runs.items() if run.score.verdict == "failed"} == landed
    assert {run.score.verdict for run in runs.values()} <= {"passed", "failed"}
    assert {name for name, run in runs.items() if run.outcome.removed_by == ("redact",)} == removed
    assert {name for name, run in runs.items() if not run.outcome.exposed} == removed
    assert {status for run in runs.values() for _, status in run.calls} == calls
    # a case ends with a denied call
    assert calls != {"denied"} or max(len(run.calls) for run in runs.values()) == 1
    if model != "gullible":
        assert set(decisions.values()) == {"comply_safe" if model == "obedient" else "refuse"}


def test_no_case_can_be_confused_with_one_from_upstream() -> None:
    for case in cases_of("injecagent"):
        assert case.input.version == "own"
        assert PACK.test_id("injecagent", case).startswith("injecagent:own_")
        texts = f"{case.input.material['attacker_instruction']} {case.input.material['tool_response']}"
        assert set(re.findall(r"@([\w.]*\w)", texts)) <= {"example.com"}
