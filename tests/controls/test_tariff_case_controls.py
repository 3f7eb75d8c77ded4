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
from tests.controls.wrong_answers import answered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controls.changed_inputs import Change
    from tests.controls.wrong_answers import Answers, Kind, Tally
    from tests.controls.wrong_proposals import Flaw

# what the suite may do without: allowed codes can't pass, and `no_savings_expected` forbids more than levers
UNUSED = frozenset({"allowed code", "lever where none is to be found"})


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    with answered(SUITE) as found:
        yield found


def check(tally: Tally) -> None:
    assert tally.made or tally.name in UNUSED, f"no case has a control: {tally.name}"
    assert not tally.slipped, str(tally)


def test_every_right_answer_scores_in_full(answers: Answers) -> None:
    broken = {right.case.id: right.attempt.failure for right in answers.rights if right.attempt.failure}
    assert not broken
    assert {right.case.id: right.score for right in answers.rights if right.score.score != 1.0} == {}


@pytest.mark.parametrize("kind", wrong_answers.KINDS, ids=lambda kind: kind.name)
def test_a_wrong_answer_is_caught(kind: Kind, answers: Answers) -> None:
    check(wrong_answers.tally(kind, answers))


@pytest.mark.parametrize("flaw", wrong_proposals.FLAWS, ids=lambda flaw: flaw.name)
def test_a_flawed_proposal_is_refused_by_its_gate(flaw: Flaw, answers: Answers) -> None:
    check(wrong_proposals.tally(flaw, answers))


@pytest.mark.parametrize("change", changed_inputs.CHANGES, ids=lambda change: change.name)
def test_a_changed_input_is_an_error(change: Change, answers: Answers, tmp_path: Path) -> None:
    check(changed_inputs.tally(change, answers, tmp_path))


def test_every_case_has_controls_of_its_own(answers: Answers) -> None:
    """Ten wrong answers or more where an answer is due, the four other refusals and two answers where none is."""
    few = {
        right.case.id: made
        for right in answers.rights
        if (made := sum(len(list(kind.make(right, answers))) for kind in wrong_answers.KINDS))
        < (10 if right.accepts else 6)
    }
    assert not few


def test_every_hard_fail_and_every_critical_gate_is_tried() -> None:
    hard = {kind.term for kind in wrong_answers.KINDS if kind.fate == "zero"}
    assert hard >= UNSAFE_TERMS
    assert {flaw.gate for flaw in wrong_proposals.FLAWS} == CRITICAL
