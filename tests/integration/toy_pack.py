"""A pack with a target that does what a case's input says; each project of these tests has it as its conftest.py.

Keys of an input: `points`, the score; `word`, a verdict, or `crash` for a scorer that raises; `down`, a timeout that the
target reports; `python`, statements that the target runs; `more`, an expression whose value is added to the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_packbench import Agreement, Answer, Breakdown, Comparison, Pack, RecordFacts, Term, Unscored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench import Case, Suite, SuiteConfig, Target, VerifyContext, VerifyRequest


class ToyAnswer(Answer, extra="ignore"):
    points: Any
    word: str = ""
    down: bool = False

    @property
    def shown(self) -> str:
        return str(self.points)

    @property
    def failure(self) -> Breakdown | None:
        return Breakdown(kind="timeout", message="after 5 s") if self.down else None


class Toy(Pack):
    name = "toy"
    version = "1"
    answer_model = ToyAnswer

    def terms(self, case: Case, answer: ToyAnswer, rules: SuiteConfig) -> Iterator[Term | Agreement]:
        if answer.word == "crash":
            raise ZeroDivisionError("scorer fell over")
        if answer.word in {"vacuous", "known_hole"}:
            raise Unscored(cast("Any", answer.word), f"said {answer.word}")
        yield Term(name="points", value=answer.points, detail="as the target says")
        yield Agreement(depth=2)

    def facts(self, case: Case, answer: ToyAnswer | None, terms: Any) -> RecordFacts:
        points = "none" if answer is None else str(answer.points)
        return RecordFacts(compared=[Comparison(what="points", expected="1.0", actual=points)])

    def facets(self, case: Case) -> dict[str, str]:
        return {"colour": case.expected["colour"]}


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
