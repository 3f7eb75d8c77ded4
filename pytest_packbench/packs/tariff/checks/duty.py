"""Gates on duty and on what-ifs.

Base rate and additional duties add up to the total, and a what-if's delta is the difference between the two duties. A
what-if must change the goods, lawfully and provably; a change of their description or value alone is not one. Rates are
percent of value, deltas percentage points; a specific or compound rate is not a percentage.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.checks.base import Violation, check, listed, quoted
from pytest_packbench.packs.tariff.notation import line_of
from pytest_packbench.packs.tariff.savings import UNLAWFUL, named_change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.tariff.checks.base import CheckInput
    from pytest_packbench.packs.tariff.dossier import Classification, Optimized, Proposal, WhatIf
    from pytest_packbench.packs.tariff.model import Change

MAX_WHAT_IFS = 5
TOLERANCE_PCT = 0.005
"""How far two rates may differ, percentage points."""


@check(
    8,
    *(
        "too_many_what_ifs",
        "what_if_id_repeated",
        "what_if_unlawful",
        "change_not_listed",
        "step_missing",
        "evidence_missing",
    ),
    *("what_if_not_listed", "optimized_code_differs"),
)
def lawful_what_ifs(inputs: CheckInput) -> list[Violation] | None:
    """Check that at most five what-ifs change the goods themselves, provably, and that the best is one of them."""
    what_ifs, optimized = inputs.proposal.what_if_candidates, inputs.proposal.optimized
    if not what_ifs and optimized is None:
        return None
    violations = list(_conflicting_what_ifs(what_ifs))
    for what_if in what_ifs:
        if not is_lawful(what_if):
            violations.append(
                Violation(
                    "what_if_unlawful",
                    f"the what-if {quoted(what_if.id)} changes only the {what_if.kind}, not the goods; "
                    "remove it, or change the goods",
                )
            )
        violations += undocumented(what_if)
        violations += _unlisted(what_if, inputs.request.options.changes)
    if optimized is not None:
        violations += _optimized_mismatch(optimized, what_ifs)
    return violations


def _unlisted(what_if: WhatIf, changes: tuple[Change, ...]) -> Iterator[Violation]:
    """Yield a violation if the importer lists the changes that are open, and the what-if is none of them."""
    if changes and named_change(what_if.change, changes) is None:
        ids = ", ".join(change.id for change in changes)
        yield Violation(
            "change_not_listed",
            f"the change {quoted(what_if.change)} of the what-if {quoted(what_if.id)} is none of the request's; "
            f"name one of {ids}",
        )


def is_lawful(what_if: WhatIf) -> bool:
    """Return whether a what-if changes the goods, not only what is declared about them (19 U.S.C. 1592)."""
    return what_if.kind not in UNLAWFUL


def undocumented(what_if: WhatIf) -> Iterator[Violation]:
    """Yield a violation for missing steps and one for missing evidence of a what-if."""
    if not any(step.strip() for step in what_if.steps):
        yield Violation("step_missing", f"the what-if {quoted(what_if.id)} has no step; list what has to be done")
    if not any(document.strip() for document in what_if.required_evidence):
        yield Violation(
            "evidence_missing",
            f"the what-if {quoted(what_if.id)} names no evidence; list what would prove the change",
        )


def _conflicting_what_ifs(what_ifs: tuple[WhatIf, ...]) -> Iterator[Violation]:
    if len(what_ifs) > MAX_WHAT_IFS:
        yield Violation(
            "too_many_what_ifs", f"the answer has {len(what_ifs)} what-ifs; keep at most the best {MAX_WHAT_IFS}"
        )
    ids = [what_if.id for what_if in what_ifs]
    duplicates = [what_if_id for what_if_id in ids if ids.count(what_if_id) > 1]
    if duplicates:
        yield Violation(
            "what_if_id_repeated", f"duplicate what-if id {listed(duplicates)}; give each what-if its own id"
        )


def _optimized_mismatch(optimized: Optimized, what_ifs: tuple[WhatIf, ...]) -> Iterator[Violation]:
    chosen = next((what_if for what_if in what_ifs if what_if.id == optimized.what_if_id), None)
    if chosen is None:
        yield Violation(
            "what_if_not_listed",
            f"optimized names the what-if {quoted(optimized.what_if_id)}, which is not in what_if_candidates; "
            "name one that is",
        )
    elif line_of(optimized.hts_code) != line_of(chosen.expected_hts):
        yield Violation(
            "optimized_code_differs",
            f"the code of optimized is {quoted(optimized.hts_code)}, but the what-if {quoted(chosen.id)} expects "
            f"{quoted(chosen.expected_hts)}; make them equal",
        )


@check(
    5,
    *("percentage_undue", "rate_missing", "free_with_a_rate", "wrong_sum", "duty_rate_differs"),
    *("saving_above_duty", "delta_differs"),
)
def duty_arithmetic(inputs: CheckInput) -> list[Violation] | None:
    """Check that the duty of a classification adds up, each comparison within 0.005 percentage points."""
    baseline = inputs.proposal.baseline
    if baseline is None:
        return None
    sums = (
        _misplaced_percentages(baseline) if baseline.duty_basis in {"specific", "compound"} else _wrong_sums(baseline)
    )
    deltas = (
        violation
        for what_if in inputs.proposal.what_if_candidates
        for violation in implausible_delta(inputs.proposal, what_if)
    )
    return [*sums, *deltas]


def same_rate(left: float, right: float) -> bool:
    """Return whether two rates, percent of value, are equal within 0.005 percentage points."""
    # 1e-9 absorbs the rounding error of sums
    return math.isclose(left, right, rel_tol=0, abs_tol=TOLERANCE_PCT + 1e-9)


def _misplaced_percentages(baseline: Classification) -> Iterator[Violation]:
    breakdown = baseline.duty_breakdown
    percentages = [
        name
        for name, rate in (
            ("base_rate_pct", breakdown.base_rate_pct),
            ("total_rate_pct", breakdown.total_rate_pct),
            ("duty_rate_pct", baseline.duty_rate_pct),
        )
        if rate is not None
    ]
    if percentages:
        yield Violation(
            "percentage_undue",
            f"a {baseline.duty_basis} rate is not a percentage; set {', '.join(percentages)} to null",
        )


def _wrong_sums(baseline: Classification) -> Iterator[Violation]:
    base = baseline.duty_breakdown.base_rate_pct
    total = baseline.duty_breakdown.total_rate_pct
    if base is None or total is None or baseline.duty_rate_pct is None:
        yield Violation(
            "rate_missing",
            f"the duty basis is {baseline.duty_basis}, but a rate is null; set base, total and duty rate",
        )
        return
    if baseline.duty_basis == "free" and not same_rate(base, 0):
        yield Violation(
            "free_with_a_rate",
            f"the duty basis is free, but the base rate is {base:g} %; set the rate to 0, or the basis to ad valorem",
        )
    layers = math.fsum(layer.pct for layer in baseline.duty_breakdown.applied_additional_duties)
    if not same_rate(base + layers, total):
        yield Violation(
            "wrong_sum",
            f"base {base:g} % and additional duties of {layers:g} % add up to {base + layers:g} %, "
            f"not to the total of {total:g} %; correct the sum",
        )
    if not same_rate(baseline.duty_rate_pct, total):
        yield Violation(
            "duty_rate_differs",
            f"the duty rate {baseline.duty_rate_pct:g} % is not the total of {total:g} %; make them equal",
        )


def implausible_delta(proposal: Proposal, what_if: WhatIf) -> Iterator[Violation]:
    """Yield a violation where a what-if saves more than the duty, or its delta differs from the optimised duty's.

    Deltas are percentage points; a rate that is not a percentage yields nothing.
    """
    if proposal.baseline is None or proposal.baseline.duty_rate_pct is None:
        return
    rate, delta = proposal.baseline.duty_rate_pct, what_if.estimated_duty_delta
    if rate + delta < 0 and not same_rate(rate + delta, 0):
        yield Violation(
            "saving_above_duty",
            f"the what-if {quoted(what_if.id)} would save {-delta:g} of {rate:g} percentage points; correct its delta",
        )
    optimized = proposal.optimized
    if optimized is None or optimized.what_if_id != what_if.id or optimized.duty_rate_pct is None:
        return
    actual = optimized.duty_rate_pct - rate
    if not same_rate(actual, delta):
        yield Violation(
            "delta_differs",
            f"optimized minus baseline is {actual:+g} percentage points, "
            f"but the what-if {quoted(what_if.id)} estimates {delta:+g}; make them equal",
        )
