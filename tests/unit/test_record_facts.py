"""A pack that says nothing about records still gets the decisions and the group that a record needs."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_packbench import Case, Decision, Outcome, Pack, RecordFacts, Score
from pytest_packbench.model.pack import record_facts


class Plain(Pack):
    name = "plain"
    version = "1"

    def read(self, result: object) -> Outcome:
        return Outcome(refused=result is None)

    def score(self, case: Any, outcome: Any, rules: Any) -> Score:
        raise NotImplementedError


class Refusing(Plain):
    def expects_refusal(self, case: Any) -> bool:
        return bool(case.expected["refuse"])


class Explicit(Refusing):
    def facts(self, case: Any, outcome: Any, score: Score) -> RecordFacts:
        return RecordFacts(attack_category="", expected="comply_safe", agent_decision="comply_unsafe", judge="words")


def facts(pack: Pack, *, refuse: bool, refused: bool) -> RecordFacts:
    case = Case(id="a", pack_id="plain", case_type="kind", difficulty="easy", input={}, expected={"refuse": refuse})
    return record_facts(pack, case, Outcome(refused=refused), Score(score=1.0, threshold=0.5, verdict="passed"))


@pytest.mark.parametrize("refuse", [False, True])
@pytest.mark.parametrize(("refused", "decision"), [(False, "comply_safe"), (True, "refuse")])
def test_a_pack_may_leave_out_all_facts(refuse: bool, refused: bool, decision: Decision) -> None:
    assert facts(Plain(), refuse=refuse, refused=refused) == RecordFacts(
        attack_category="kind", expected="comply_safe", agent_decision=decision
    )


@pytest.mark.parametrize(("refuse", "expected"), [(False, "comply_safe"), (True, "refuse")])
def test_a_pack_says_which_cases_expect_a_refusal(refuse: bool, expected: str) -> None:
    assert facts(Refusing(), refuse=refuse, refused=False).expected == expected


def test_what_a_pack_states_is_not_replaced() -> None:
    assert facts(Explicit(), refuse=True, refused=True) == RecordFacts(
        attack_category="", expected="comply_safe", agent_decision="comply_unsafe", judge="words"
    )
