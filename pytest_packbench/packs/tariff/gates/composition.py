"""Gates on what the goods are made of: the component that decides under rule 3(b), and shares that add up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.gates.base import Violation, gate, listed, quoted

if TYPE_CHECKING:
    from pytest_packbench.packs.tariff.gates.base import GateInput

WHOLE_PCT = 100.0
TOLERANCE_PCT = 1.0


@gate(4)
def essential_character(given: GateInput) -> list[Violation] | None:
    """Whether a decision by GRI 3(b) names its component out of the composition, and by which factors."""
    proposal = given.proposal
    if not any(step.rule == "3b" and step.outcome == "decided" for step in proposal.gri_trace.steps):
        return None
    character = proposal.essential_character
    if character is None:
        return [Violation("rule 3b decides without an essential character; name component, factors and rationale")]
    found = []
    known = [part.component for part in proposal.composition_table or ()]
    if _plain(character.component) not in {_plain(name) for name in known}:
        beside = f"name one of {listed(known)}" if known else "give the composition table"
        found.append(
            Violation(f"the component {quoted(character.component)} is not in the composition table; {beside}")
        )
    if not any(factor.strip() for factor in character.factors):
        found.append(
            Violation("the essential character has no factor; name at least one, such as weight, value or role")
        )
    return found


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


@gate(11, critical=False)
def composition(given: GateInput) -> list[Violation] | None:
    """Whether the shares by weight, percent of the whole, add up to 100 within 1, where all are given."""
    table = given.proposal.composition_table
    shares = [part.weight_pct for part in table or () if part.weight_pct is not None]
    if not table or len(shares) != len(table):
        return None
    total = math.fsum(shares)
    # a hair of float noise is not a percent
    if math.isclose(total, WHOLE_PCT, rel_tol=0, abs_tol=TOLERANCE_PCT + 1e-9):
        return []
    return [Violation(f"the weights add up to {total:g} %, not 100 %; correct them, or leave unknown ones null")]
