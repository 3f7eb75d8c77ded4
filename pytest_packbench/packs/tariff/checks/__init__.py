"""The gates that a proposal must pass: pure functions of `CheckInput`, each with a rule number and its objections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.checks.answer import (
    citations,
    code_form,
    completeness,
    composition,
    critic,
    essential_character,
    form,
    missing_evidence,
    refusal,
    unparsed_proposal,
)
from pytest_packbench.packs.tariff.checks.base import CheckInput, CheckResult, DossierCheck, Violation
from pytest_packbench.packs.tariff.checks.duty import duty_arithmetic, lawful_what_ifs
from pytest_packbench.packs.tariff.checks.schedule import schedule
from pytest_packbench.packs.tariff.checks.sequence import gri_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CHECKS",
    "CheckInput",
    "CheckResult",
    "DossierCheck",
    "Violation",
    "run_checks",
    "unparsed_proposal",
]

CHECKS: tuple[DossierCheck, ...] = (
    form,
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
    schedule,
)
"""The gates in the order of their rule numbers; each sends a proposal back when it fails."""


def run_checks(inputs: CheckInput, checks: Sequence[DossierCheck] = CHECKS) -> tuple[CheckResult, ...]:
    """Run every gate, whatever the others decide, so that one revision can correct all violations."""
    return tuple(check(inputs) for check in checks)
