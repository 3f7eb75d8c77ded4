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
from tests.controls.wrong_answers import right_answers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controls.changed_inputs import Change
    from tests.controls.wrong_answers import ControlSummary, SuiteAnswers, WrongAnswer
    from tests.controls.wrong_proposals import Flaw

# kinds that no case needs: allowed codes can't pass, and `no_savings_expected` forbids more than levers
UNUSED = frozenset({"allowed code", "lever where none is expected"})


@pytest.fixture(scope="module")
def answers() -> Iterator[SuiteAnswers]:
    with right_answers(SUITE) as suite_answers:
        yield suite_answers


def check(summary: ControlSummary) -> None:
    assert summary.total or summary.name in UNUSED, f"no case has a control: {summary.name}"
    assert not summary.missed, str(summary)


def test_every_right_answer_scores_in_full(answers: SuiteAnswers) -> None:
    broken = {right.case.id: right.attempt.failure for right in answers.right_answers if right.attempt.failure}
    assert not broken
    assert {right.case.id: right.score for right in answers.right_answers if right.score.score != 1.0} == {}


@pytest.mark.parametrize("kind", wrong_answers.WRONG_ANSWERS, ids=lambda kind: kind.name)
def test_a_wrong_answer_is_caught(kind: WrongAnswer, answers: SuiteAnswers) -> None:
    check(wrong_answers.run_controls(kind, answers))


@pytest.mark.parametrize("flaw", wrong_proposals.FLAWS, ids=lambda flaw: flaw.name)
def test_a_flawed_proposal_is_refused_by_its_gate(flaw: Flaw, answers: SuiteAnswers) -> None:
    check(wrong_proposals.run_controls(flaw, answers))


@pytest.mark.parametrize("change", changed_inputs.CHANGES, ids=lambda change: change.name)
def test_a_changed_input_is_an_error(change: Change, answers: SuiteAnswers, tmp_path: Path) -> None:
    check(changed_inputs.run_controls(change, answers, tmp_path))


def test_every_case_has_controls_of_its_own(answers: SuiteAnswers) -> None:
    """At least ten wrong answers where an answer is expected, else the four other refusals and two answers."""
    too_few = {
        right.case.id: total
        for right in answers.right_answers
        if (total := sum(len(list(kind.variants(right, answers))) for kind in wrong_answers.WRONG_ANSWERS))
        < (10 if right.accepts else 6)
    }
    assert not too_few


def test_every_hard_fail_and_every_critical_gate_is_tested() -> None:
    hard = {kind.term for kind in wrong_answers.WRONG_ANSWERS if kind.effect == "zero"}
    assert hard >= UNSAFE_TERMS
    assert {flaw.gate for flaw in wrong_proposals.FLAWS} == CRITICAL
