"""The gate on what-ifs: changes to the goods, lawful and provable, never of words or of value alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.codes import digits
from pytest_packbench.packs.tariff.gates.base import Violation, gate, listed, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.tariff.dossier import Optimized, WhatIf
    from pytest_packbench.packs.tariff.gates.base import GateInput

MOST = 5
UNLAWFUL = frozenset({"description", "valuation"})


@gate(8)
def lawful_what_ifs(given: GateInput) -> list[Violation] | None:
    """Whether at most five what-ifs change the goods themselves, provably, and the best is one of them."""
    what_ifs, optimized = given.proposal.what_if_candidates, given.proposal.optimized
    if not what_ifs and optimized is None:
        return None
    found = list(_together(what_ifs))
    for what_if in what_ifs:
        if not is_lawful(what_if):
            found.append(
                Violation(
                    f"what-if {quoted(what_if.id)} changes the {what_if.kind} only, not the goods; "
                    "drop it, or change what is imported"
                )
            )
        found += undocumented(what_if)
    if optimized is not None:
        found += _unfounded(optimized, what_ifs)
    return found


def is_lawful(what_if: WhatIf) -> bool:
    """Whether a what-if changes the goods instead of what is said of them (19 U.S.C. 1592)."""
    return what_if.kind not in UNLAWFUL


def undocumented(what_if: WhatIf) -> Iterator[Violation]:
    """Say what a what-if lacks to be carried out and proved: steps and evidence."""
    if not any(step.strip() for step in what_if.steps):
        yield Violation(f"what-if {quoted(what_if.id)} has no step; say what has to be done")
    if not any(document.strip() for document in what_if.required_evidence):
        yield Violation(f"what-if {quoted(what_if.id)} names no evidence; say what would prove the change")


def _together(what_ifs: tuple[WhatIf, ...]) -> Iterator[Violation]:
    if len(what_ifs) > MOST:
        yield Violation(f"gives {len(what_ifs)} what-ifs; keep the best {MOST} at most")
    names = [what_if.id for what_if in what_ifs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        yield Violation(f"the what-if id {listed(twice)} stands more than once; give each its own")


def _unfounded(optimized: Optimized, what_ifs: tuple[WhatIf, ...]) -> Iterator[Violation]:
    named = next((what_if for what_if in what_ifs if what_if.id == optimized.what_if_id), None)
    if named is None:
        yield Violation(
            f"optimized names the what-if {quoted(optimized.what_if_id)}, which is not among them; name one"
        )
    elif digits(optimized.hts_code) != digits(named.expected_hts):
        yield Violation(
            f"optimized gives {quoted(optimized.hts_code)}, but what-if {quoted(named.id)} expects "
            f"{quoted(named.expected_hts)}; make them one code"
        )
