"""The gate on duty: base rate and layers make the total, and a what-if promises the difference that it makes.

Rates are percent of value, deltas percentage points. A specific or compound rate has no such number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.gates.base import Violation, gate, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.tariff.dossier import Classification, Proposal, WhatIf
    from pytest_packbench.packs.tariff.gates.base import GateInput

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
    """Say what is wrong with the delta that a what-if promises; nothing where a rate is no percentage.

    Args:
        proposal: the proposal that holds the what-if.
        what_if: its `estimated_duty_delta` is in percentage points against the baseline.

    Yields:
        a violation where less than no duty would remain, or where the optimised duty tells another delta.
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
