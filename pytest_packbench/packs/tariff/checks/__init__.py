"""The gates that a proposal must pass, in the order of their rule numbers: pure functions of `CheckInput`."""

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
    missing_evidence,
    refusal,
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
from pytest_packbench.packs.tariff.checks.sequence import gri_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CHECKS",
    "CRITICAL",
    "FORM",
    "CheckInput",
    "CheckResult",
    "DossierCheck",
    "Violation",
    "check_form",
    "run_checks",
]

CHECKS: tuple[DossierCheck, ...] = (
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
# what they check belongs to no single article
_OF_THE_WHOLE = (completeness, citations, missing_evidence, lawful_what_ifs, critic, refusal)
FORM = "form"
CRITICAL: frozenset[str] = frozenset({FORM, *(check.name for check in CHECKS if check.critical)})
"""Names of the gates that send a proposal back when they fail."""


def check_form(problems: Sequence[str]) -> CheckResult:
    """Return the result of gate 0, `form`: it fails with one violation for each problem of a model's answer."""
    return check_result(FORM, 0, [Violation(problem) for problem in problems])


def run_checks(inputs: CheckInput) -> tuple[CheckResult, ...]:
    """Run every gate, whatever the others decide, so that one revision can correct all violations.

    A gate on a code, its rules or its duty checks each of several articles.
    """
    return tuple(_check_articles(check, inputs) if inputs.proposal.articles else check(inputs) for check in CHECKS)


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
