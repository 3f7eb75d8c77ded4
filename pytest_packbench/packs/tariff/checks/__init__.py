"""The gates that a proposal must pass: pure functions of `CheckInput`, each with a rule number and its objections."""

from __future__ import annotations

from dataclasses import replace
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
from pytest_packbench.packs.tariff.checks.base import (
    CheckInput,
    CheckResult,
    DossierCheck,
    Violation,
    check_result,
    quoted,
)
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

# what they check belongs to no single article
_OF_THE_WHOLE = (form, completeness, citations, missing_evidence, lawful_what_ifs, critic, refusal)


def run_checks(inputs: CheckInput, checks: Sequence[DossierCheck] = CHECKS) -> tuple[CheckResult, ...]:
    """Run every gate, whatever the others decide, so that one revision can correct all violations.

    A gate on a code, its rules or its duty checks each of several articles.
    """
    return tuple(_check_articles(check, inputs) if inputs.proposal.articles else check(inputs) for check in checks)


def _check_articles(check: DossierCheck, inputs: CheckInput) -> CheckResult:
    if check in _OF_THE_WHOLE:
        return check(inputs)
    found = [(article.article, check(inputs.of_article(article))) for article in inputs.proposal.articles]
    if all(result.decision == "skip" for _, result in found):
        return check_result(check.name, check.rule, None)
    violations = [
        replace(violation, text=f"article {quoted(name)}: {violation.text}")
        for name, result in found
        for violation in result.violations
    ]
    return check_result(check.name, check.rule, violations)
