"""Gates on duty and on what-ifs.

Base rate and layers make the total, and a what-if promises the difference that it makes: a change to the goods, lawful
and provable, never of words or of value alone. Rates are percent of value, deltas percentage points. A specific or
compound rate has no such number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.codes import digits
from pytest_packbench.packs.tariff.gates.base import Violation, gate, listed, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.tariff.dossier import Classification, Optimized, Proposal, WhatIf
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


TOLERANCE_PCT = 0.005


@gate(5)
def duty_arithmetic(given: GateInput) -> list[Violation] | None:
    """Whether the duty of a classification adds up, each comparison within 0.005 percentage points."""
    baseline = given.proposal.baseline
    if baseline is None:
        return None
    sums = _without_percent(baseline) if baseline.duty_basis in {"specific", "compound"} else _in_percent(baseline)
    deltas = (
        found for what_if in given.proposal.what_if_candidates for found in implausible_delta(given.proposal, what_if)
    )
    return [*sums, *deltas]


def same_rate(one: float, other: float) -> bool:
    """Whether two rates, percent of value, are the same within 0.005 points."""
    # a hair of float noise is not a point
    return math.isclose(one, other, rel_tol=0, abs_tol=TOLERANCE_PCT + 1e-9)


def _without_percent(baseline: Classification) -> Iterator[Violation]:
    breakdown = baseline.duty_breakdown
    given = [
        name
        for name, rate in (
            ("base_rate_pct", breakdown.base_rate_pct),
            ("total_rate_pct", breakdown.total_rate_pct),
            ("duty_rate_pct", baseline.duty_rate_pct),
        )
        if rate is not None
    ]
    if given:
        yield Violation(f"a {baseline.duty_basis} rate is not a percentage; set {', '.join(given)} to null")


def _in_percent(baseline: Classification) -> Iterator[Violation]:
    base = baseline.duty_breakdown.base_rate_pct
    total = baseline.duty_breakdown.total_rate_pct
    if base is None or total is None or baseline.duty_rate_pct is None:
        yield Violation(f"the duty basis is {baseline.duty_basis} but a rate is null; give base, total and duty rate")
        return
    if baseline.duty_basis == "free" and not same_rate(base, 0):
        yield Violation(f"the duty basis is free but the base rate {base:g} %; make it 0, or the basis to ad valorem")
    layers = math.fsum(layer.pct for layer in baseline.duty_breakdown.applied_additional_duties)
    if not same_rate(base + layers, total):
        yield Violation(
            f"base {base:g} % and additional duties of {layers:g} % make {base + layers:g} %, "
            f"not the total of {total:g} %; correct the sum"
        )
    if not same_rate(baseline.duty_rate_pct, total):
        yield Violation(f"the duty rate {baseline.duty_rate_pct:g} % is not the total of {total:g} %; make them one")


def implausible_delta(proposal: Proposal, what_if: WhatIf) -> Iterator[Violation]:
    """Say where a what-if leaves less than no duty, or the optimised duty tells another delta, percentage points.

    Nothing where a rate is no percentage.
    """
    if proposal.baseline is None or proposal.baseline.duty_rate_pct is None:
        return
    rate, delta = proposal.baseline.duty_rate_pct, what_if.estimated_duty_delta
    if rate + delta < 0 and not same_rate(rate + delta, 0):
        yield Violation(f"what-if {quoted(what_if.id)} would save {-delta:g} of {rate:g} points; correct the delta")
    optimized = proposal.optimized
    if optimized is None or optimized.what_if_id != what_if.id or optimized.duty_rate_pct is None:
        return
    told = optimized.duty_rate_pct - rate
    if not same_rate(told, delta):
        yield Violation(
            f"optimized minus baseline is {told:+g} points, but what-if {quoted(what_if.id)} estimates {delta:+g}; "
            "make them agree"
        )
