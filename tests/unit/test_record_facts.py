"""The facts of a record: what a pack states, and else what follows from the case and the outcome."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_packbench import Case, Outcome, Pack, RecordFacts, Score
from pytest_packbench.model.pack import record_facts


class Plain(Pack):
    name = "plain"
    version = "1"

    def read(self, result: object) -> Outcome:
        raise NotImplementedError

    def score(self, case: Any, outcome: Any, rules: Any) -> Score:
        raise NotImplementedError


class Refusing(Plain):
    def expects_refusal(self, case: Any) -> bool:
        return bool(case.expected["refuse"])


class Explicit(Refusing):
    def facts(self, case: Any, outcome: Any, score: Score) -> RecordFacts:
        return RecordFacts(attack_category="", expected="comply_safe", agent_decision="comply_unsafe", judge="words")


@pytest.mark.parametrize(
    ("pack", "refuse", "refused", "facts"),
    [
        (Plain(), False, False, ("kind", "comply_safe", "comply_safe", None)),
        (Plain(), True, False, ("kind", "comply_safe", "comply_safe", None)),
        (Plain(), True, True, ("kind", "comply_safe", "refuse", None)),
        (Refusing(), False, False, ("kind", "comply_safe", "comply_safe", None)),
        (Refusing(), True, False, ("kind", "refuse", "comply_safe", None)),
        (Refusing(), True, True, ("kind", "refuse", "refuse", None)),
        (Explicit(), True, True, ("", "comply_safe", "comply_unsafe", "words")),
    ],
)
def test_a_pack_may_state_all_facts_or_which_cases_expect_a_refusal_or_nothing(
    pack: Pack, refuse: bool, refused: bool, facts: tuple[str, ...]
) -> None:
    case = Case(id="a", pack_id="plain", case_type="kind", difficulty="easy", input={}, expected={"refuse": refuse})
    result = record_facts(pack, case, Outcome(refused=refused), Score(score=1.0, threshold=0.5, verdict="passed"))
    assert (result.attack_category, result.expected, result.agent_decision, result.judge) == facts
