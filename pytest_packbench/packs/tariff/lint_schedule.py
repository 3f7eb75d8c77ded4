"""Rules of case quality that need an edition of the schedule: codes that exist, rates that agree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pytest_packbench.model.finding import Finding
from pytest_packbench.packs.tariff.codes import LEVELS, digits
from pytest_packbench.packs.tariff.dossier import Proposal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.packs.tariff.dossier import Classification
    from pytest_packbench.packs.tariff.lint import Subject
    from pytest_packbench.packs.tariff.schedule import Rate, Schedule

_ANSWERS = frozenset({"propose", "revise"})
_TOLERANCE = 0.005


@dataclass(frozen=True, slots=True)
class _Final:
    """The last proposal of a cassette and where it stands."""

    file: str
    pointer: str
    proposal: Proposal


def look_up(subject: Subject, schedule: Schedule) -> Iterator[Finding]:
    """Compare the codes and rates of a case and of its cassette's last proposal with the schedule."""
    for pointer, code in subject.codes():
        # a code of an odd length is found by the rules without a schedule
        if len(digits(code)) in LEVELS and not schedule.exists(code):
            yield subject.found(pointer, "code_unknown", _unknown(code, schedule))
    final = _final(subject)
    yield from _expected_rate(subject, schedule, final)
    if final is not None:
        yield from _proposed_codes(final, schedule)
        yield from _proposed_rates(final, schedule)


def _unknown(code: str, schedule: Schedule) -> str:
    depth, count = schedule.depth(code), len(digits(code))
    if depth == 0:
        return f"{code} is not in the schedule, nor is its chapter"
    return f"{code} is not in the schedule: it exists to {depth} of {count} digits"


def _final(subject: Subject) -> _Final | None:
    """Give the last proposal; None without one that can be read, as in a recording that ends in a refusal."""
    cassette = subject.filed.cassette
    exchanges = [] if cassette is None else list(enumerate(cassette.exchanges))
    for index, exchange in reversed(exchanges):
        if exchange.role in _ANSWERS:
            try:
                proposal = Proposal.model_validate(exchange.answer)
            except ValidationError:
                return None
            return _Final(subject.filed.cassette_file, f"/exchanges/{index}/answer", proposal)
    return None


def _expected_rate(subject: Subject, schedule: Schedule, final: _Final | None) -> Iterator[Finding]:
    total, preferred = subject.expected.expected_duty_total_rate_pct, subject.expected.preferred_hts
    if total is None or not preferred:
        return
    rate = schedule.rate(preferred[0])
    pointer = "/expected/expected_duty_total_rate_pct"
    if rate is None or rate.pct is None:
        text = rate.text if rate else "no rate"
        message = f"got {total:g}; the schedule says {text}, which is no percentage of value: drop it"
        yield subject.found(pointer, "duty_rate", message)
        return
    layers = _layers(final)
    if not _agree(total, rate.pct + layers):
        more = f" and the cassette adds {layers:g}" if layers else ""
        yield subject.found(pointer, "duty_rate", f"got {total:g}; the schedule says {rate.text}{more}")


def _layers(final: _Final | None) -> float:
    baseline = None if final is None else final.proposal.baseline
    return sum(layer.pct for layer in baseline.duty_breakdown.applied_additional_duties) if baseline else 0.0


def _proposed_codes(final: _Final, schedule: Schedule) -> Iterator[Finding]:
    for pointer, code in _codes(final.proposal):
        if not schedule.exists(code):
            yield _found(final, pointer, "cassette_code", _unknown(code, schedule))


def _codes(proposal: Proposal) -> Iterator[tuple[str, str]]:
    if proposal.baseline is not None:
        yield "/baseline/hts_code", proposal.baseline.hts_code
    if proposal.optimized is not None:
        yield "/optimized/hts_code", proposal.optimized.hts_code
    for index, what_if in enumerate(proposal.what_if_candidates):
        yield f"/what_if_candidates/{index}/expected_hts", what_if.expected_hts


def _proposed_rates(final: _Final, schedule: Schedule) -> Iterator[Finding]:
    baseline, optimized = final.proposal.baseline, final.proposal.optimized
    if baseline is not None and (rate := schedule.rate(baseline.hts_code)) is not None:
        yield from _baseline_rate(final, baseline, rate)
    # a duty on top of the baseline may or may not hold for the changed goods
    if optimized is None or _layers(final) or (rate := schedule.rate(optimized.hts_code)) is None:
        return
    # the change may be what an agreement's rule of origin asks for
    possible = (rate, *schedule.preferences(optimized.hts_code))
    if not any(_agree(optimized.duty_rate_pct, one.pct) for one in possible):
        texts = " or ".join(dict.fromkeys(one.text for one in possible))
        message = f"got {_percent(optimized.duty_rate_pct)}; the schedule says {texts}"
        yield _found(final, "/optimized/duty_rate_pct", "cassette_duty", message)


def _baseline_rate(final: _Final, baseline: Classification, rate: Rate) -> Iterator[Finding]:
    if rate.basis is not None and baseline.duty_basis != rate.basis:
        message = f"got {baseline.duty_basis}; the schedule says {rate.text}, which is {rate.basis}"
        yield _found(final, "/baseline/duty_basis", "cassette_duty", message)
    base = baseline.duty_breakdown.base_rate_pct
    if not _agree(base, rate.pct):
        message = f"got {_percent(base)}; the schedule says {rate.text}"
        yield _found(final, "/baseline/duty_breakdown/base_rate_pct", "cassette_duty", message)


def _agree(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return math.isclose(left, right, rel_tol=0.0, abs_tol=_TOLERANCE)


def _percent(value: float | None) -> str:
    return "null" if value is None else f"{value:g}"


def _found(final: _Final, pointer: str, rule: str, message: str) -> Finding:
    return Finding(file=final.file, pointer=final.pointer + pointer, rule=rule, message=message)
