"""Every case of the tariff suite can fail: wrong answers, flawed proposals, changed inputs, case by case.

`python benchmarks/controls.py` prints the same controls with their numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_packbench.packs.tariff.checks import CRITICAL
from pytest_packbench.packs.tariff.scoring import UNSAFE_TERMS
from tests.conftest import SUITE
from tests.controls import changed_inputs, wrong_answers, wrong_proposals
from tests.controls.right_answers import right_answers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controls.changed_inputs import Change
    from tests.controls.right_answers import ControlSummary, RightAnswer
    from tests.controls.wrong_answers import WrongAnswer
    from tests.controls.wrong_proposals import Flaw

# kinds that no case needs: allowed codes can't pass, and `no_savings_expected` forbids more than levers
UNUSED = frozenset({"allowed code", "lever where none is expected"})


@pytest.fixture(scope="module")
def answers() -> Iterator[list[RightAnswer]]:
    with right_answers(SUITE) as suite_answers:
        yield suite_answers


def check(summary: ControlSummary) -> None:
    assert summary.total or summary.name in UNUSED, f"no case has a control: {summary.name}"
    assert summary.missed == ()


def test_every_right_answer_scores_in_full(answers: list[RightAnswer]) -> None:
    assert {right.case.id: right.score for right in answers if right.score.score != 1.0} == {}


@pytest.mark.parametrize("kind", wrong_answers.WRONG_ANSWERS, ids=lambda kind: kind.name)
def test_a_wrong_answer_is_caught(kind: WrongAnswer, answers: list[RightAnswer]) -> None:
    check(wrong_answers.run_controls(kind, answers))


@pytest.mark.parametrize("flaw", wrong_proposals.FLAWS, ids=lambda flaw: flaw.name)
def test_a_flawed_proposal_is_refused_by_its_gate(flaw: Flaw, answers: list[RightAnswer]) -> None:
    check(wrong_proposals.run_controls(flaw, answers))


@pytest.mark.parametrize("change", changed_inputs.CHANGES, ids=lambda change: change.name)
def test_a_changed_input_is_an_error(change: Change, answers: list[RightAnswer], tmp_path: Path) -> None:
    check(changed_inputs.run_controls(change, answers, tmp_path))


def test_every_case_has_at_least_ten_wrong_answers_or_six_if_it_expects_a_refusal(answers: list[RightAnswer]) -> None:
    totals = {
        right.case.id: (right.accepts, sum(len(kind.results(right)) for kind in wrong_answers.WRONG_ANSWERS))
        for right in answers
    }
    assert {case_id: total for case_id, (accepts, total) in totals.items() if total < (10 if accepts else 6)} == {}


def test_every_hard_fail_and_every_critical_gate_has_controls() -> None:
    hard_fails = {kind.term for kind in wrong_answers.WRONG_ANSWERS if kind.effect == "zero"}
    assert hard_fails >= UNSAFE_TERMS
    assert {flaw.gate for flaw in wrong_proposals.FLAWS} == CRITICAL
