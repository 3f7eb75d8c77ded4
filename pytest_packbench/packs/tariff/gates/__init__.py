"""The gates between a proposal and its acceptance: pure functions, in the order of their rule numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.gates.answer import (
    citations,
    code_form,
    completeness,
    composition,
    critic,
    essential_character,
    missing_evidence,
    refusal,
)
from pytest_packbench.packs.tariff.gates.base import Gate, GateInput, GateResult, Violation, judged
from pytest_packbench.packs.tariff.gates.duty import duty_arithmetic, lawful_what_ifs
from pytest_packbench.packs.tariff.gates.sequence import gri_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CRITICAL", "FORM", "GATES", "Gate", "GateInput", "GateResult", "Violation", "form", "judge"]

GATES: tuple[Gate, ...] = (
    completeness,
    code_form,
    gri_sequence,
    essential_character,
    duty_arithmetic,
    citations,
    missing_evidence,
    lawful_what_ifs,
    critic,
    refusal,
    composition,
)
FORM = "form"
CRITICAL: frozenset[str] = frozenset({FORM, *(gate.name for gate in GATES if gate.critical)})
"""Names of the gates whose failure sends a proposal back."""


def form(problems: Sequence[str]) -> GateResult:
    """Give the result of gate 0: whether the model's answers had the form asked for.

    Args:
        problems: what was wrong with an answer, a line each; empty where all were in form.
    """
    return judged(FORM, 0, [Violation(problem) for problem in problems])


def judge(given: GateInput) -> tuple[GateResult, ...]:
    """Ask every gate, in order; none stops the next, so that one revision can mend all."""
    return tuple(gate(given) for gate in GATES)
