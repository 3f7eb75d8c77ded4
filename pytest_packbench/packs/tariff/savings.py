"""Rates and savings: whether what an answer says of duty is true. Rates come from the schedule.

A saving is true if it leads to a code that the case accepts, by the change that this code needs, at the rate of the
schedule, and is large enough. An estimate may be smaller than the schedule's difference, never larger.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pytest_packbench.model.errors import format_value, pluralize
from pytest_packbench.model.result import TOLERANCE
from pytest_packbench.packs.tariff.judged import add, note, zero
from pytest_packbench.packs.tariff.notation import dotted, is_under, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.model.result import Term
    from pytest_packbench.packs.tariff.answer import Classification, Optimized, WhatIf
    from pytest_packbench.packs.tariff.edition import GeneralRate
    from pytest_packbench.packs.tariff.judged import Judged
    from pytest_packbench.packs.tariff.model import Savings

RATE_TOLERANCE = 0.005 + 1e-9
"""How far a stated rate may be from the schedule's, percentage points."""
DELTA_TOLERANCE = 0.05 + 1e-9
"""How far a stated difference of two rates may be from the schedule's, percentage points; one decimal is enough."""
TOTAL_TOLERANCE = 0.0001
"""How far a total rate may be from the one that the case names, percentage points (as in the original harness)."""
HIGHEST_PCT = 350.0
"""The highest percentage of the schedule; a specific rate does not come to more."""
WORDED = "text"
"""The text of a general rate that refers to something else."""
_AD_VALOREM = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_SEVERAL, _MAX_SHOWN = 2, 5


def _same(left: float, right: float | None) -> bool:
    return right is not None and abs(left - right) <= RATE_TOLERANCE


def duty(case: Judged) -> Iterator[Term]:
    """The total rate of the scored code, and the direction and range of the change, where the case names them."""
    expected, scored = case.expected, case.scored
    wanted, delta = expected.expected_duty_total_rate_pct, duty_delta(case)
    if wanted is not None:
        total = scored.total if scored else None
        rates = [] if total is None or scored is None else [total, total - scored.duty_breakdown.added]
        if not any(abs(rate - wanted) <= TOTAL_TOLERANCE for rate in rates):
            said = "no rate for the scored code" if total is None else f"{total:g} %"
            yield zero("duty_total_rate", f"{said}, expected {wanted:g} % and any additional duties listed")
    way = "not computable"
    if delta is not None:
        way = "flat" if abs(delta) <= TOLERANCE else "decrease" if delta < 0 else "increase"
    if expected.expected_duty_delta_direction not in {None, way}:
        yield zero("duty_delta_direction", f"{way}, expected {expected.expected_duty_delta_direction}")
    if expected.duty_delta_range is not None:
        low, high = expected.duty_delta_range
        is_within = delta is None or low - TOLERANCE <= delta <= high + TOLERANCE
        said = "not computable" if delta is None else f"{delta:+g} percentage points, expected {low:g} to {high:g}"
        yield note("duty_delta", said) if is_within else add("duty_delta", case.rules.scoring.duty_delta, said)


def duty_delta(case: Judged) -> float | None:
    """Return the optimised minus the baseline's total rate as stated, percentage points; None if either is missing."""
    before, after = (part.total if part else None for part in (case.dossier.baseline, case.dossier.optimized))
    return None if before is None or after is None else after - before


def base_rate(case: Judged) -> Iterator[Term]:
    """The base rate of a right code is the schedule's, and the additional duties add up to the total.

    It costs points; where a saving is asked for, which is counted from it, the score is 0.
    """
    for part in case.dossier.baselines if case.is_right else ():
        for fault in list(rate_faults(case, part))[:1]:
            if case.expected.savings is None:
                yield add("base_rate", case.rules.scoring.base_rate, fault)
                return
            yield zero("base_rate", fault)


def rate_faults(case: Judged, part: Classification) -> Iterator[str]:
    """Yield why the rates of a code are not those of the schedule, or do not add up; none without a schedule."""
    general, base, preference = case.general(part.hts_code), part.base, case.expected.expected_duty_total_rate_pct
    if case.edition is None:
        return
    if general is not None:
        shown = dotted(part.hts_code)
        if base is None and general.pct is not None:
            yield f"no rate of {shown}; the schedule has {general.text}"
        if base is not None and not _same(base, preference):
            yield from _against(general, base, f"the base rate of {shown}")
        yield from _called_free(part, general)
    yield from sum_faults(part, base, preference)


def sum_faults(part: Classification, *others: float | None) -> Iterator[str]:
    """Yield why the rates of a code do not add up: the total is the base rate and the additional duties.

    Args:
        part: the code with its rates.
        others: what else the total or the duty rate may be, percent of value; None for nothing.
    """
    base, total, stated = part.base, part.total, part.duty_rate_pct
    if base is None or total is None:
        return
    added = base + part.duty_breakdown.added
    if not any(_same(total, each) for each in (added, *others)):
        yield f"the total is {total:g} %, but base rate and additional duties are {added:g} %; correct the sum"
    if stated is not None and not any(_same(stated, each) for each in (total, *others)):
        yield f"the duty rate is {stated:g} %, but the total is {total:g} %; make them equal"


def _called_free(part: Classification, general: GeneralRate) -> Iterator[str]:
    if part.duty_basis == "free" and general.text != WORDED and general.pct != 0:
        yield f"{dotted(part.hts_code)} is called free; the schedule has {general.text}"


def _against(general: GeneralRate, claimed: float, what: str) -> Iterator[str]:
    """Yield why a claimed rate can't be a general rate of the schedule.

    A specific or compound rate is a percentage only for a known value, and then above its ad valorem part.
    """
    wrong = claimed > HIGHEST_PCT
    if general.pct is not None:
        wrong = not _same(claimed, general.pct)
    elif general.text != WORDED:
        least = max((float(pct) for pct in _AD_VALOREM.findall(general.text)), default=0.0)
        wrong = wrong or claimed <= 0 or claimed < least - TOLERANCE
    if wrong:
        known = f"no rate above {HIGHEST_PCT:g} %" if general.text == WORDED else general.text
        yield f"{what} is {claimed:g} %; the schedule has {known}"


def no_savings(case: Judged) -> Iterator[Term]:
    """Where no saving is expected, the answer offers none: no what-if, no optimised code, no rate below its own."""
    if not case.expected.no_savings_expected:
        return
    dossier = case.dossier
    found = [f"the what-if {format_value(each.id)}" for each in dossier.what_if_candidates]
    found += [f"the optimised code {dotted(dossier.optimized.hts_code)}"] if dossier.optimized else []
    for part in dossier.baselines:
        found += _too_low(case, part)
    if found:
        yield zero("no_savings_violation", "; ".join(found[:_SEVERAL]))


def _too_low(case: Judged, part: Classification) -> Iterator[str]:
    """Yield which rates of a code are below its own: that of the schedule or, where that is none, the base rate."""
    general, preference = case.general(part.hts_code), case.expected.expected_duty_total_rate_pct
    if general is not None and not _same(0.0, preference):
        yield from _called_free(part, general)
    least = part.base if general is None or general.pct is None else general.pct
    for rate in dict.fromkeys((part.duty_rate_pct, part.total, part.base)):
        if rate is None or _same(rate, preference):
            continue
        if least is not None and rate < least - RATE_TOLERANCE:
            yield f"a rate of {rate:g} % for {dotted(part.hts_code)}, which pays {least:g} %"
        elif general is not None and general.pct is None and rate <= HIGHEST_PCT:
            yield from _against(general, rate, f"a rate of {dotted(part.hts_code)}")


def what_ifs(case: Judged) -> Iterator[Term]:
    """Each change that would save is one of the request's, changes the goods, and saves what the schedule gives."""
    shown = Counter[str]()
    for fault in _what_if_faults(case):
        shown[fault.name] += 1
        if shown[fault.name] <= _MAX_SHOWN:
            yield fault


def _what_if_faults(case: Judged) -> Iterator[Term]:
    listed, chosen = {change.id for change in case.case.input.options.changes}, case.dossier.chosen
    for each in case.dossier.what_if_candidates if case.judges_changes else ():
        named, delta = f"the what-if {format_value(each.id)}", case.delta(each)
        if each.estimated_duty_delta < 0 or (delta or 0.0) < 0 or each is chosen:
            if not each.is_lawful:
                yield zero("savings_lever", f"{named} changes only the {each.kind}, not the goods")
            elif each.change not in listed:
                known = ", ".join(sorted(listed)) or "none"
                yield zero(
                    "savings_lever", f"{named}: {format_value(each.change)} is no change of the request ({known})"
                )
            elif case.targets and not case.target(each):
                reached = any(target.change == each.change for target in case.targets)
                detail = f"{named}: the change {each.change} does not lead to {dotted(each.expected_hts)}"
                yield zero("savings_target" if reached else "savings_lever", detail)
        if delta is not None and not is_estimate_of(each.estimated_duty_delta, delta):
            said = f"{each.estimated_duty_delta:+g} percentage points, by the schedule {delta:+g}"
            yield zero("optimized_rate", f"{named}: {said}")


def is_estimate_of(stated: float, delta: float) -> bool:
    """Return whether a stated difference is true: the schedule's or, of a saving, a smaller one; percentage points."""
    return delta - DELTA_TOLERANCE <= stated <= max(delta, 0.0) + DELTA_TOLERANCE


def saving(case: Judged) -> Iterator[Term]:
    """The optimised code is one that the case accepts, by its change, at the schedule's rate, and saves enough."""
    dossier, asked = case.dossier, case.expected.savings
    best = dossier.optimized
    if best is None:
        if asked:
            yield zero("savings_target", f"no optimised code; expected one under {targets(asked)}")
    elif case.judges_changes:
        code, chosen = dotted(best.hts_code), dossier.chosen
        if chosen is None or line_of(chosen.expected_hts) != line_of(best.hts_code):
            yield zero("savings_lever", f"no what-if {format_value(best.what_if_id)} leads to {code}")
        if case.edition and case.edition.existing(best.hts_code) != best.hts_code:
            yield zero("savings_target", f"{code} is not in the schedule")
        elif asked and not any(is_under(best.hts_code, each.code) for each in asked.targets):
            yield zero(
                "savings_target", f"no change of the goods leads to {code}; expected a code under {targets(asked)}"
            )
        elif chosen is not None:
            yield from _optimized_rate(case, best, chosen)
            yield from _size(case, asked, chosen) if asked and case.is_right else ()


def _optimized_rate(case: Judged, best: Optimized, chosen: WhatIf) -> Iterator[Term]:
    """Yield why the rate of the optimised code is not the schedule's; additional duties may apply to it or not."""
    general, listed, baseline = case.general(best.hts_code), case.rate_after(chosen), case.dossier.baseline
    shown = f"the rate of {dotted(best.hts_code)}"
    if listed is None:
        if general is not None and general.pct is None and best.total is not None:
            yield from (zero("optimized_rate", fault) for fault in _against(general, best.total, shown))
        return
    added = max(best.duty_breakdown.added, baseline.duty_breakdown.added if baseline else 0.0)
    stated = [rate for rate in (best.total, best.duty_rate_pct) if rate is not None]
    base = best.duty_breakdown.base_rate_pct
    is_true = all(listed - RATE_TOLERANCE <= rate <= listed + added + RATE_TOLERANCE for rate in stated)
    if not stated or not is_true or (base is not None and not _same(base, listed)):
        said = f"{stated[0]:g} %" if stated else "not stated"
        yield zero("optimized_rate", f"{shown} is {said}; the schedule has {listed:g} %")


def _size(case: Judged, asked: Savings, chosen: WhatIf) -> Iterator[Term]:
    by_schedule = case.delta(chosen)
    delta = duty_delta(case) if by_schedule is None else by_schedule
    if delta is None:
        yield note("savings_size", "not computable: a rate is missing or not ad valorem")
        return
    detail = f"saves {-delta:g} percentage points, expected at least {asked.least:g}"
    yield (zero if -delta < asked.least - RATE_TOLERANCE else note)("savings_size", detail)


def targets(asked: Savings) -> str:
    """Return the codes that a saving may lead to, in one line."""
    return ", ".join(dict.fromkeys(dotted(each.code) for each in asked.targets))


def levers(case: Judged) -> Iterator[Term]:
    """What the case asks of the savings levers: how many, each with steps and proof, the best of several steps."""
    expected, offered = case.expected, case.dossier.what_if_candidates
    found = [what_if for what_if in offered if what_if.is_lawful]
    best = case.dossier.chosen or next(iter(found), None)
    steps = len(best.steps) if best else 0
    least = max(expected.min_lever_steps or 0, _SEVERAL if expected.expected_best_is_multi_step else 0)
    counted = pluralize(len(found), "savings lever")
    are_complete = all(each.steps and each.required_evidence for each in found)
    rows = (
        ("lever_missing", expected.lever_found_expected and not found, f"{counted}, expected at least 1"),
        (
            "unexpected_lever",
            expected.lever_found_expected is False and offered,
            f"{pluralize(len(offered), 'savings lever')}, expected none",
        ),
        (
            "lever_count",
            len(found) < (expected.lever_count_min or 0),
            f"{counted}, expected at least {expected.lever_count_min}",
        ),
        (
            "lever_compliance",
            expected.lever_compliance_ok and not are_complete,
            "a savings lever has no steps, or nothing that would prove it",
        ),
        ("lever_steps", steps < least, f"{pluralize(steps, 'step')} in the best lever, expected at least {least}"),
    )
    yield from (zero(name, detail) for name, is_wrong, detail in rows if is_wrong)
