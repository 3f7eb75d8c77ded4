"""The named departures from the original tariff scorer: applied to our reading and our terms, they give its number.

A reading is a value that the original coerces and that our reader or schema refuses, or takes for something else: it
rewrites case and result into what the original saw. A rule is something that the original scores otherwise: it rewrites
our terms. `docs/scoring-departures.md` gives the reasons.
"""

from __future__ import annotations

import math
import re
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.outcome import TariffOutcome, read
from pytest_packbench.packs.tariff.scoring import score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_packbench.model.score import Score

Json = dict[str, Any]
Ledger = dict[str, float | None]
"""Our terms by name: points, or None for a hard fail. Whatever matched stands under `match`."""

MATCH = {"preferred": 1.0, "allowed": 0.7, "chapter": 0.3, "miss": 0.0}
BONUS, PENALTY, WRONG_CATEGORY = 0.05, -0.1, 0.8
ACCEPT, REFUSE = 0.8, 0.9
NOISE = 1e-9
CRITICAL = frozenset(
    {
        "gri_sequence_violation",
        "essential_character_mismatch",
        "ontology_mutex_conflict",
        "too_many_what_if_candidates",
        "missing_what_if_candidates",
        "citation_gate_failed",
        "missing_evidence",
    }
)
EVIDENCE_PHRASES = ("missing evidence", "missing chapter evidence", "chapter notes", "attach missing chapter")
CODES = ("preferred_hts", "allowed_hts", "must_not_hts")
# S1; whatever isn't named here comes between the matches and the bonus, in any order
FIRST = ("match", "forbidden_code", "no_savings_violation", "gri_sequence", "citations_invalid", "duty_delta")
LAST = "process_bonus"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the rules look at: case and result as given, what we read in them once the original's readings apply."""

    expected: Json
    payload: Json
    outcome: TariffOutcome
    ours: Score

    @property
    def is_compared(self) -> bool:
        """Whether an answer is due and given, so that codes, duties and levers count."""
        return bool(self.expected["expected_accept"]) and self.outcome.accepted

    @property
    def dossier(self) -> Json:
        return of(self.payload, "tariff_dossier") or {}

    @property
    def last(self) -> Json:
        return last_iteration(self.payload) or {}

    @property
    def final_code(self) -> str | None:
        parts = (self.dossier.get("optimized") or {}, self.dossier.get("baseline") or {})
        code: str | None = parts[0].get("hts_code") or parts[1].get("hts_code")
        return code


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the original has to say, and by which departures."""

    score: float
    passed: bool
    match_level: str | None
    final_hts: str | None
    departures: tuple[str, ...]


@dataclass(frozen=True)
class Departure:
    """A named difference with its reason, in a line."""

    name: str
    why: str


READINGS: dict[Departure, Callable[[Json, Json], None]] = {}
RULES: dict[Departure, Callable[[Seen, Ledger], Ledger]] = {}


def reading(why: str) -> Callable[[Callable[[Json, Json], None]], Callable[[Json, Json], None]]:
    def register(rewrite: Callable[[Json, Json], None]) -> Callable[[Json, Json], None]:
        READINGS[Departure(rewrite.__name__, why)] = rewrite
        return rewrite

    return register


def rule(why: str) -> Callable[[Callable[[Seen, Ledger], Ledger]], Callable[[Seen, Ledger], Ledger]]:
    def register(rewrite: Callable[[Seen, Ledger], Ledger]) -> Callable[[Seen, Ledger], Ledger]:
        RULES[Departure(rewrite.__name__, why)] = rewrite
        return rewrite

    return register


def of(payload: Json, key: str) -> Any:
    """Give what stands under a key at the top, else under `proof`, where anything false gives way (S8, S12)."""
    return payload.get(key) or (payload.get("proof") or {}).get(key)


def last_iteration(payload: Json) -> Any:
    iterations = of(payload, "iterations")
    return iterations[-1] if iterations else None


def holders(payload: Json) -> list[Json]:
    """The objects in which a gate result may stand, in the original's order."""
    places = (payload, payload.get("proof"), last_iteration(payload))
    return [place for place in places if isinstance(place, dict)]


@reading("a code under two digits names no chapter, so nothing can be compared with it (S14)")
def short_codes(case: Json, _: Json) -> None:
    expected = case["expected"]
    for key in CODES:
        if expected.get(key):
            expected[key] = [code for code in expected[key] if chapter(code) is not None]


@reading("an iteration that says nothing is a broken result, no missing one (S12)")
def empty_iteration(_: Json, result: Json) -> None:
    if of(result, "iterations") and not last_iteration(result):
        for place in holders(result):
            place.pop("iterations", None)


@reading("a dead pipeline has refused nothing (S4)")
def silence_is_a_refusal(_: Json, result: Json) -> None:
    last = last_iteration(result)
    if last is not None and last.get("accepted") is None:
        last["accepted"] = False
    elif last is None and result.get("status") is None:
        result["status"] = "failed"


@reading("a status in another spelling is another program's word")
def unknown_status_is_a_refusal(_: Json, result: Json) -> None:
    if last_iteration(result) is None and result.get("status") not in {None, "verified"}:
        result["status"] = "failed"


@reading("only true and false are verdicts; 1, 0 and text are mistakes of the target")
def truth_of_anything(_: Json, result: Json) -> None:
    last = last_iteration(result)
    if last is not None and last.get("accepted") is not None:
        last["accepted"] = bool(last["accepted"])
    trace = (of(result, "tariff_dossier") or {}).get("gri_trace") or {}
    if trace.get("sequence_ok") is not None:
        trace["sequence_ok"] = bool(trace["sequence_ok"])
    for place in holders(result):
        gate = place.get("citation_gate_result")
        if gate and isinstance(gate, dict):
            gate["ok"] = bool(gate.get("ok"))


@reading("a gate that ran and says nothing did not pass; the original fails open (S8)")
def empty_gate_is_no_gate(_: Json, result: Json) -> None:
    for place in holders(result):
        if place.get("citation_gate_result") == {}:
            del place["citation_gate_result"]


@reading("reasons are a list; a word would count as its letters (S13)")
def letters_of_a_word(_: Json, result: Json) -> None:
    last = last_iteration(result)
    if last is not None and isinstance(last.get("rejected_because"), str):
        last["rejected_because"] = list(last["rejected_because"])


@reading("a model that could not be reached is an infrastructure failure, never a refusal")
def unreachable_model_is_out_of_scope(_: Json, result: Json) -> None:
    last = last_iteration(result)
    if last is not None and not last.get("accepted"):
        reasons = last.get("rejected_because") or []
        # the other word of the same category
        last["rejected_because"] = [
            "illegal_evasion_suggestion" if reason == "llm_unavailable" else reason for reason in reasons
        ]


@reading("a mistake is one wherever it stands, not only where a rule happens to look")
def mistakes_nobody_looked_at(_: Json, result: Json) -> None:
    dossier = of(result, "tariff_dossier") or {}
    if dossier.get("mutations"):
        dossier["mutations"] = [mutation for mutation in dossier["mutations"] if isinstance(mutation, dict)]
    for place, key in rates(result):
        if isinstance(place.get(key), str) and not is_number(place[key]):
            del place[key]
    for part in (dossier.get("baseline") or {}, dossier.get("optimized") or {}):
        if not isinstance(part.get("hts_code", ""), (str, type(None))):
            del part["hts_code"]
    for lever in (of(result, "lever_proof") or {}).get("selected_levers") or []:
        checks = lever.get("gate_results") or {}
        if not isinstance(checks.get("plausibility", []), (list, dict, type(None))):
            checks["plausibility"] = []
    for place in holders(result):
        gate = place.get("missing_evidence_gate_result")
        if gate is not None and not (isinstance(gate, dict) and isinstance(gate.get("ok"), bool)):
            del place["missing_evidence_gate_result"]


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


@reading("a rate is a number; text that looks like one is a mistake of the target (S7)")
def numbers_from_text(_: Json, result: Json) -> None:
    for place, key in rates(result):
        if isinstance(place.get(key), (str, bool)):
            place[key] = float(place[key])


@reading("an amount of savings is a number; what its text means is settled by `savings_by_words` (S9)")
def amounts_from_text(_: Json, result: Json) -> None:
    optimized = (of(result, "tariff_dossier") or {}).get("optimized") or {}
    if isinstance(optimized.get("estimated_savings_per_unit"), (str, bool)):
        del optimized["estimated_savings_per_unit"]


def rates(result: Json) -> Iterator[tuple[Json, str]]:
    """Every rate of duty in a result, as an object and its key."""
    dossier = of(result, "tariff_dossier") or {}
    for part in (dossier.get("baseline") or {}, dossier.get("optimized") or {}):
        yield part, "duty_rate_pct"
        yield part.get("duty_breakdown") or {}, "total_rate_pct"
    for mutation in dossier.get("mutations") or []:
        yield mutation, "expected_duty_rate_pct"


@rule("spelling is not the answer; a shorter code that is wanted or forbidden speaks for its lines")
def codes_as_text(seen: Seen, ledger: Ledger) -> Ledger:
    if not seen.is_compared or not is_spelling_at_stake(seen):
        return ledger
    level = text_level(seen)
    changed = {**ledger, "match": MATCH[level or "miss"]}
    return {**changed, "forbidden_code": None} if level is None else without(changed, "forbidden_code")


def is_spelling_at_stake(seen: Seen) -> bool:
    """Whether a code stands under an expected one that isn't the same text, or a code has no chapter."""
    code = seen.final_code or ""
    wanted = [one for key in CODES for one in seen.expected.get(key) or []]
    return any(
        chapter(one) is None or (one != code and re.sub(r"\D", "", code).startswith(re.sub(r"\D", "", one)))
        for one in wanted
    )


def without(ledger: Ledger, *names: str) -> Ledger:
    return {name: points for name, points in ledger.items() if name not in names}


def text_level(seen: Seen) -> str | None:
    """Give the original's match: codes as they are spelled; None for a forbidden one."""
    code, expected = seen.final_code, seen.expected
    if code and code in (expected.get("must_not_hts") or []):
        return None
    for level in ("preferred", "allowed"):
        if code in (expected.get(f"{level}_hts") or []):
            return level
    chapters = {chapter(one) for one in expected["preferred_hts"]}
    return "chapter" if code and chapter(code) in chapters else "miss"


def chapter(code: str) -> str | None:
    """Give the first two digits; None for a code without them, which is a chapter of its own here (S14)."""
    plain = re.sub(r"\D", "", code)
    return plain[:2] if len(plain) > 1 else None


@rule("gates that ran decide, and only where the answer matches; reasons beside an accepted answer decide nothing")
def bonus_by_reasons(seen: Seen, ledger: Ledger) -> Ledger:
    gates = [ok for ok in (seen.outcome.citations_ok, seen.outcome.evidence_ok) if ok is not None]
    is_matched = seen.ours.terms[0].name != "no_match"
    is_due = is_matched and bool(gates) and all(gates)
    is_given = not CRITICAL & set(seen.outcome.reasons)
    if not seen.is_compared or is_due == is_given:
        return ledger
    return {**ledger, LAST: BONUS} if is_given else without(ledger, LAST)


@rule("levers, options and rates are counted; prose is neither asked for nor searched (S9)")
def savings_by_words(seen: Seen, ledger: Ledger) -> Ledger:
    if not seen.is_compared or not seen.expected.get("no_savings_expected"):
        return ledger
    found, name = seen.outcome, "no_savings_violation"
    is_counted = bool(found.levers or found.what_ifs or found.savings_claims)
    is_claimed = claims_savings(seen.dossier)
    if is_counted == is_claimed:
        return ledger
    return {**ledger, name: None} if is_claimed else without(ledger, name)


def claims_savings(dossier: Json) -> bool:
    """Whether the original sees a saving, or misses the words that deny one."""
    optimized = dossier.get("optimized") or {}
    if not dossier:
        return False
    rate = (dossier.get("baseline") or {}).get("duty_rate_pct")
    amount = optimized.get("estimated_savings_per_unit")
    return (
        bool(dossier.get("what_if_candidates"))
        or (amount is not None and amount != 0)
        or is_under(optimized.get("duty_rate_pct"), rate)
        or not denies((optimized.get("rationale") or "").lower())
        or any(
            is_under(mutation.get("expected_duty_rate_pct"), rate)
            or promises((mutation.get("expected_savings_note") or "").lower())
            for mutation in dossier.get("mutations") or []
        )
    )


def is_under(rate: Any, than: Any) -> bool:
    return rate is not None and than is not None and float(rate) < float(than)


def denies(text: str) -> bool:
    return "cannot reduce" in text or "no savings" in text


def promises(text: str) -> bool:
    return not denies(text) and any(word in text for word in ("savings", "reduce", "lower"))


@rule("0 % is a rate, and a rate belongs to its code (S6)")
def rate_of_either_code(seen: Seen, ledger: Ledger) -> Ledger:
    found, wanted = seen.outcome, seen.expected.get("expected_duty_total_rate_pct")
    is_at_stake = not found.optimized_rate_pct or not found.optimized_code
    if not seen.is_compared or wanted is None or not is_at_stake:
        return ledger
    rate = found.optimized_rate_pct or found.baseline_rate_pct
    is_right = rate is not None and math.isclose(rate, wanted, rel_tol=0.0, abs_tol=0.0001)
    return without(ledger, "duty_total_rate") if is_right else {**ledger, "duty_total_rate": None}


@rule("the ends of a range belong to it, whatever binary fractions make of them; so with an unchanged rate")
def duty_limits_to_the_last_bit(seen: Seen, ledger: Ledger) -> Ledger:
    delta, limits = seen.outcome.duty_delta, seen.expected.get("duty_delta_range")
    if not seen.is_compared or delta is None:
        return ledger
    if limits and any(0 < abs(delta - limit) <= NOISE for limit in limits):
        is_inside = limits[0] <= delta <= limits[1]
        ledger = without(ledger, "duty_delta") if is_inside else {**ledger, "duty_delta": PENALTY}
    direction = seen.expected.get("expected_duty_delta_direction")
    if direction is not None and 0 < abs(delta) <= NOISE:
        is_right = direction == ("decrease" if delta < 0 else "increase")
        name = "duty_delta_direction"
        ledger = without(ledger, name) if is_right else {**ledger, name: None}
    return ledger


@rule("where no step is asked for, none is enough")
def a_minimum_of_zero_steps(seen: Seen, ledger: Ledger) -> Ledger:
    if seen.is_compared and seen.expected.get("min_lever_steps") == 0 and seen.outcome.lever_steps is None:
        return {**ledger, "lever_steps": None}
    return ledger


@rule("a reason nobody knows names no category (S5)")
def unknown_reason_is_insufficient_info(seen: Seen, ledger: Ledger) -> Ledger:
    is_unknown = seen.outcome.refusal_category is None and bool(seen.outcome.reasons)
    if is_unknown and seen.expected.get("expected_refusal_category") == "insufficient_info":
        return right_category(ledger)
    return ledger


@rule("a category is given as one; words in a feedback text are not searched (S5)")
def prose_names_missing_evidence(seen: Seen, ledger: Ledger) -> Ledger:
    if seen.expected.get("expected_refusal_category") != "missing_evidence":
        return ledger
    texts = [
        *(seen.last.get("missing") or []),
        *(seen.dossier.get("questions_for_user") or []),
        seen.last.get("feedback_text") or "",
    ]
    prose = " ".join(texts).lower()
    return right_category(ledger) if any(phrase in prose for phrase in EVIDENCE_PHRASES) else ledger


def right_category(ledger: Ledger) -> Ledger:
    return {"match": 1.0} if "refusal_category_mismatch" in ledger else ledger


@rule("0.8 for a failure would flatter the mean (S4)")
def wrong_category_is_nearly_right(_: Seen, ledger: Ledger) -> Ledger:
    name = "refusal_category_mismatch"
    return {name: WRONG_CATEGORY} if name in ledger else ledger


HARD_FAILS = Departure("hard_fails_are_steps", "a hard fail is exactly 0; nothing that comes later lifts it (S1)")
DEPARTURES = (*READINGS, *RULES, HARD_FAILS)


def ledger_of(ours: Score) -> Ledger:
    """Put our terms into a ledger; notes and the clamp leave no number."""
    found: Ledger = {}
    for term in ours.terms:
        name = "match" if term.name == "refusal" or term.name.endswith("_match") else term.name
        if term.effect == "zero":
            found[name] = None
        elif term.effect == "add":
            found[name] = term.value
    return found


def ours_of(ledger: Ledger) -> float:
    """Sum a ledger as we do: a hard fail is 0, the rest is added and clamped."""
    points = [each for each in ledger.values() if each is not None]
    return clamped(math.fsum(points)) if len(points) == len(ledger) else 0.0


def original_of(ledger: Ledger) -> float:
    """Sum a ledger as the original does: each hard fail sets 0, what comes later counts, the bonus comes last (S1)."""
    rest = [name for name in ledger if name not in {*FIRST, LAST}]
    total = 0.0
    for name in (*FIRST, *rest, LAST):
        if name in ledger:
            points = ledger[name]
            total = 0.0 if points is None else total + points
    return clamped(total)


def clamped(points: float) -> float:
    return max(0.0, min(1.0, points))


def as_original_reads(case: Json, result: object) -> tuple[Json, Json, list[str]]:
    """Rewrite copies of case and result by every reading; with the names of those that changed something."""
    case, payload = deepcopy(case), deepcopy(result) if isinstance(result, dict) else {}
    applied = []
    for departure, rewrite in READINGS.items():
        # unlike values, texts tell 1 from true
        before = repr((case, payload))
        rewrite(case, payload)
        if repr((case, payload)) != before:
            applied.append(departure.name)
    return case, payload, applied


def predict(case: Json, result: object) -> Prediction:
    """Give the original's answer from our reading, our terms and the departures.

    Args:
        case: a case as plain JSON.
        result: a result as plain JSON, one on which the original does not raise.
    """
    readable_case, readable, applied = as_original_reads(case, result)
    checked = TariffCase.model_validate(readable_case)
    outcome = read(readable)
    ours = score(checked, outcome, TariffSuiteConfig(pack="tariff"))
    seen = Seen(
        expected=case["expected"], payload=result if isinstance(result, dict) else {}, outcome=outcome, ours=ours
    )
    ledger = ledger_of(ours)
    for departure, rewrite in RULES.items():
        changed = rewrite(seen, ledger)
        if changed != ledger:
            applied.append(departure.name)
        ledger = changed
    points = original_of(ledger)
    if abs(points - ours_of(ledger)) > NOISE:
        applied.append(HARD_FAILS.name)
    threshold = ACCEPT if case["expected"]["expected_accept"] else REFUSE
    return Prediction(
        score=round(points, 4),
        passed=points >= threshold,
        match_level=text_level(seen) if seen.is_compared else None,
        final_hts=seen.final_code,
        departures=tuple(applied),
    )
