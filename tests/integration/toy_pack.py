"""A pack with a target that does what a case's input says; each project of these tests has it as its conftest.py.

Keys of an input: `points`, the score; `word`, a verdict, or `crash` for a scorer that raises; `down`, a timeout that the
target reports; `python`, statements that the target runs; `more`, an expression whose value is added to the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import Breakdown, Comparison, Outcome, Pack, RecordFacts, ResultError, Score, Term, judged

if TYPE_CHECKING:
    from pytest_packbench import Case, Suite, SuiteConfig, Target, VerifyContext, VerifyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyOutcome(Outcome):
    points: float = 0.0
    word: Any = ""


class Toy(Pack):
    earlier_api = True
    name = "toy"
    version = "1"

    def read(self, result: object) -> ToyOutcome:
        if not isinstance(result, dict) or "points" not in result:
            raise ResultError("/points", "is missing")
        points = result["points"]
        down = Breakdown(kind="timeout", message="after 5 s") if result.get("down") else None
        return ToyOutcome(breakdown=down, answer=str(points), points=points, word=result.get("word", ""))

    def score(self, case: Case, outcome: ToyOutcome, rules: SuiteConfig) -> Score:
        threshold = rules.thresholds.accept
        if outcome.word in {"vacuous", "known_hole"}:
            return Score(score=None, threshold=threshold, verdict=outcome.word, message=f"said {outcome.word}")
        if outcome.word == "crash":
            raise ZeroDivisionError("scorer fell over")
        terms = (Term(name="points", value=outcome.points, detail="as the target says"),)
        verdict = judged(outcome.points, threshold)
        return Score(score=outcome.points, threshold=threshold, verdict=verdict, terms=terms, match_depth=2)

    def facts(self, case: Case, outcome: ToyOutcome, score: Score) -> RecordFacts:
        return RecordFacts(attack_category=case.case_type, expected="comply_safe", agent_decision="comply_safe")

    def facets(self, case: Case) -> dict[str, str]:
        return {"colour": case.expected["colour"]}

    def explain(self, case: Case, outcome: ToyOutcome) -> list[Comparison]:
        return [Comparison(what="points", expected="1.0", actual=str(outcome.points))]


def act(request: VerifyRequest, context: VerifyContext) -> dict[str, Any]:
    print("target says hello to", context.case_id)  # noqa: T201 - what a target prints is shown with its case
    order = request.input
    exec(order.get("python", ""))  # noqa: S102 - each test says what its target does
    more = eval(order.get("more", "None"))  # noqa: S307 - see above
    result = {"points": order.get("points", 1.0), "word": order.get("word", ""), "down": order.get("down", False)}
    return {**result, "more": more}


@pytest.hookimpl
def pytest_packbench_packs() -> list[Pack]:
    return [Toy()]


@pytest.hookimpl
def pytest_packbench_target(config: pytest.Config, suite: Suite) -> Target:
    return act
