"""The gate that knows the schedule: the codes of a proposal exist in the suite's edition, at the rates that it names.

Rates are percent of value, deltas percentage points. A general rate that the schedule words, and the rate of goods of
another origin, are not judged; additional duties are added to a general rate, and never lower it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.checks.base import Violation, check, listed, quoted
from pytest_packbench.packs.tariff.checks.duty import is_lawful, same_rate
from pytest_packbench.packs.tariff.notation import dotted, parse_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.tariff.checks.base import CheckInput
    from pytest_packbench.packs.tariff.dossier import Classification, Optimized, Proposal, WhatIf
    from pytest_packbench.packs.tariff.edition import Edition, GeneralRate

_LINE = 8
_OTHER_RATES = "origin"
"""The kind of what-if by which a preferential rate may apply."""


@check(
    12,
    *("heading_not_in_schedule", "step_not_in_schedule", "baseline_not_in_schedule", "optimized_not_in_schedule"),
    *("what_if_not_in_schedule", "suffix_missing", "kind_of_rate", "base_rate", "optimized_rate", "what_if_delta"),
)
def schedule(inputs: CheckInput) -> list[Violation] | None:
    """Check codes and general rates against the suite's edition of the schedule; without one the gate does not apply.

    A code that is not written as one is left to the gate `code_form`.
    """
    edition, proposal = inputs.edition, inputs.proposal
    if edition is None:
        return None
    violations = [*_unknown_codes(proposal, edition), *_unknown_steps(proposal, edition)]
    if proposal.baseline is not None:
        violations += _wrong_rates(proposal, proposal.baseline, edition)
    return violations


def _unknown_codes(proposal: Proposal, edition: Edition) -> Iterator[Violation]:
    for heading in proposal.candidate_headings:
        if known := _known_part(heading, edition):
            yield Violation("heading_not_in_schedule", f"the candidate heading {quoted(heading)} is {known}; remove it")
    named = [
        ("optimized_not_in_schedule", "optimized code", part.hts_code) for part in (proposal.optimized,) if part
    ] + [
        ("what_if_not_in_schedule", f"expected code of what-if {quoted(what_if.id)}", what_if.expected_hts)
        for what_if in proposal.what_if_candidates
    ]
    if proposal.baseline is not None:
        code = proposal.baseline.hts_code
        named.insert(0, ("baseline_not_in_schedule", "baseline code", code))
        plain = parse_code(code) or ""
        if len(plain) == _LINE and edition.existing(plain) == plain and edition.existing(f"{plain}00") == plain:
            yield Violation(
                "suffix_missing",
                f"the baseline code {quoted(code)} ends with its line, which has suffixes; give the full ten digits",
            )
    for objection, field, code in named:
        if known := _known_part(code, edition):
            yield Violation(objection, f"the {field} {quoted(code)} is {known}; choose a code that is")


def _unknown_steps(proposal: Proposal, edition: Edition) -> Iterator[Violation]:
    for number, step in enumerate(proposal.gri_trace.steps, 1):
        unknown = [code for code in step.candidates if _known_part(code, edition)]
        if unknown:
            yield Violation(
                "step_not_in_schedule",
                f"{listed(unknown)} is not in the schedule {edition.name}; compare only codes that are",
                step=number,
            )


def _known_part(code: str, edition: Edition) -> str:
    """Describe how far a code is in the schedule; empty if all of it is, or if it is not one code."""
    plain = parse_code(code)
    existing = None if plain is None else edition.existing(plain)
    if existing is None or existing == plain:
        return ""
    return f"not in the schedule {edition.name}, {f'only {dotted(existing)} is' if existing else 'nor is its chapter'}"


def _wrong_rates(proposal: Proposal, baseline: Classification, edition: Edition) -> Iterator[Violation]:
    general = _general_rate(baseline.hts_code, edition)
    if general is None:
        return
    code, base = dotted(baseline.hts_code), baseline.duty_breakdown.base_rate_pct
    kind = _kind(general)
    # a rate that is called free at the general rate contradicts itself; the gate on the arithmetic objects to it
    calls_itself_free = baseline.duty_basis == "free" and bool(base) and general.pct is not None
    if baseline.duty_basis != kind and not (calls_itself_free and same_rate(base or 0.0, general.pct or 0.0)):
        yield Violation(
            "kind_of_rate",
            f"the general rate of {code} is {quoted(general.text)}, which is {kind}, not {baseline.duty_basis}; "
            "correct the duty",
        )
    elif general.pct is not None and base is not None and not same_rate(base, general.pct):
        yield Violation(
            "base_rate",
            f"the general rate of {code} is {quoted(general.text)}, not {base:g} %; correct it, or the code",
        )
    if proposal.optimized is not None:
        yield from _wrong_optimized_rate(proposal, baseline, proposal.optimized, edition)
    for what_if in filter(is_lawful, proposal.what_if_candidates):
        yield from _wrong_delta(what_if, baseline, general, edition)


def _wrong_optimized_rate(
    proposal: Proposal, baseline: Classification, optimized: Optimized, edition: Edition
) -> Iterator[Violation]:
    chosen = next((what_if for what_if in proposal.what_if_candidates if what_if.id == optimized.what_if_id), None)
    general, rate = _general_rate(optimized.hts_code, edition), optimized.duty_rate_pct
    if general is None or (chosen is not None and chosen.kind == _OTHER_RATES):
        return
    if general.pct is None or rate is None:
        is_right = general.pct is None and rate is None
    elif _has_layers(baseline):
        is_right = rate > general.pct or same_rate(rate, general.pct)
    else:
        is_right = same_rate(rate, general.pct)
    if not is_right:
        shown = "null" if rate is None else f"{rate:g} %"
        yield Violation(
            "optimized_rate",
            f"the general rate of {dotted(optimized.hts_code)} is {quoted(general.text)}, not {shown}; "
            "correct the optimized rate",
        )


def _wrong_delta(
    what_if: WhatIf, baseline: Classification, general: GeneralRate, edition: Edition
) -> Iterator[Violation]:
    after = _general_rate(what_if.expected_hts, edition)
    if after is None or after.pct is None or general.pct is None:
        return
    delta = after.pct - general.pct
    if (
        what_if.kind != _OTHER_RATES
        and not _has_layers(baseline)
        and not same_rate(delta, what_if.estimated_duty_delta)
    ):
        yield Violation(
            "what_if_delta",
            f"the general rates of {dotted(baseline.hts_code)} and {dotted(what_if.expected_hts)} differ by "
            f"{delta:+g} percentage points, but the what-if {quoted(what_if.id)} estimates "
            f"{what_if.estimated_duty_delta:+g}; correct it",
        )


def _has_layers(baseline: Classification) -> bool:
    return math.fsum(layer.pct for layer in baseline.duty_breakdown.applied_additional_duties) > 0


def _general_rate(code: str, edition: Edition) -> GeneralRate | None:
    """Return the general rate of a code; None if it is not in the schedule, or if the schedule words its rate."""
    plain = parse_code(code)
    rate = None if plain is None else edition.rate(plain)
    return None if rate is None or rate.text == "text" else rate


def _kind(rate: GeneralRate) -> str:
    """Return the duty basis of a general rate, as `dossier.Classification.duty_basis` names it."""
    if rate.pct is not None:
        return "free" if rate.text == "Free" else "ad valorem"
    return "compound" if "%" in rate.text else "specific"
