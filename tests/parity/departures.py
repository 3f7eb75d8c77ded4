"""The named differences from the original tariff scorer; applied to our terms they predict its score.

A reading is a value that the original converts and that we reject or read differently: it rewrites case and result into the
original's view of them. A rule is something that the original scores differently: it rewrites our terms.
`docs/scoring-departures.md` has the reasons.
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
"""Our terms by name: points, or None for a hard fail. The match has the key `match`."""

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
# any other term comes between these and the bonus, in any order
FIRST = ("match", "forbidden_code", "no_savings_violation", "gri_sequence", "citations_invalid", "duty_delta")
LAST = "process_bonus"
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
MISMATCH = "refusal_category_mismatch"


@dataclass(frozen=True, kw_only=True)
class RuleInput:
    """The input of the rules: expectations and result as they are, and our outcome and score of them after the readings.

    `is_compared` is true if an answer is expected and given, so that codes, duties and levers count.
    """

    expected: Json
    result: Json
    outcome: TariffOutcome
    ours: Score
    is_compared: bool
    final_code: str | None


READINGS: dict[str, Callable[[Json, Json], None]] = {}
RULES: dict[str, Callable[[RuleInput, Ledger], None]] = {}


def reading(rewrite: Callable[[Json, Json], None]) -> None:
    READINGS[rewrite.__name__] = rewrite


def rule(rewrite: Callable[[RuleInput, Ledger], None]) -> None:
    RULES[rewrite.__name__] = rewrite


def field(result: Json, key: str) -> Any:
    """Return a field from the top of a result or, if it is false there, from `proof`."""
    return result.get(key) or (result.get("proof") or {}).get(key)


def dossier(result: Json) -> Json:
    return field(result, "tariff_dossier") or {}


def parts(result: Json) -> tuple[Json, Json]:
    """Return baseline and optimised part, empty objects if they are missing."""
    return dossier(result).get("baseline") or {}, dossier(result).get("optimized") or {}


def last_iteration(result: Json) -> Any:
    iterations = field(result, "iterations")
    return iterations[-1] if iterations else None


def gate_parents(result: Json) -> list[Json]:
    """Return the objects that may contain a gate result, in the original's order."""
    parents = (result, result.get("proof"), last_iteration(result))
    return [parent for parent in parents if isinstance(parent, dict)]


def rates(result: Json) -> Iterator[tuple[Json, str]]:
    """Yield every rate of duty in a result, as an object and its key."""
    for part in parts(result):
        yield part, "duty_rate_pct"
        yield part.get("duty_breakdown") or {}, "total_rate_pct"
    for mutation in dossier(result).get("mutations") or []:
        yield mutation, "expected_duty_rate_pct"


@reading
def short_codes(case: Json, _: Json) -> None:
    expected = case["expected"]
    for key in CODES:
        if expected.get(key):
            expected[key] = [code for code in expected[key] if chapter(code) is not None]


@reading
def empty_iteration(_: Json, result: Json) -> None:
    if field(result, "iterations") and not last_iteration(result):
        for parent in gate_parents(result):
            parent.pop("iterations", None)


@reading
def silence_is_a_refusal(_: Json, result: Json) -> None:
    last = last_iteration(result)
    if last is not None and last.get("accepted") is None:
        last["accepted"] = False
    elif last is None and result.get("status") is None:
        result["status"] = "failed"


@reading
def unknown_status_is_a_refusal(_: Json, result: Json) -> None:
    if last_iteration(result) is None and result.get("status") not in {None, "verified"}:
        result["status"] = "failed"


@reading
def truth_of_anything(_: Json, result: Json) -> None:
    trace = dossier(result).get("gri_trace") or {}
    for parent, key in ((last_iteration(result) or {}, "accepted"), (trace, "sequence_ok")):
        if parent.get(key) is not None:
            parent[key] = bool(parent[key])
    for parent in gate_parents(result):
        gate = parent.get("citation_gate_result")
        if gate and isinstance(gate, dict):
            gate["ok"] = bool(gate.get("ok"))


@reading
def empty_gate_is_no_gate(_: Json, result: Json) -> None:
    for parent in gate_parents(result):
        if parent.get("citation_gate_result") == {}:
            del parent["citation_gate_result"]


@reading
def letters_of_a_word(_: Json, result: Json) -> None:
    last = last_iteration(result) or {}
    if isinstance(last.get("rejected_because"), str):
        last["rejected_because"] = list(last["rejected_because"])


@reading
def unreachable_model_is_out_of_scope(_: Json, result: Json) -> None:
    last = last_iteration(result)
    if last is not None and not last.get("accepted"):
        # another reason of the same category
        other = {"llm_unavailable": "illegal_evasion_suggestion"}
        last["rejected_because"] = [other.get(reason, reason) for reason in last.get("rejected_because") or []]


@reading
def mistakes_nobody_looked_at(_: Json, result: Json) -> None:
    if dossier(result).get("mutations"):
        mutations = [mutation for mutation in dossier(result)["mutations"] if isinstance(mutation, dict)]
        dossier(result)["mutations"] = mutations
    for parent, key in rates(result):
        if isinstance(parent.get(key), str) and not NUMBER.fullmatch(parent[key]):
            del parent[key]
    for part in parts(result):
        if not isinstance(part.get("hts_code", ""), (str, type(None))):
            del part["hts_code"]
    for lever in (field(result, "lever_proof") or {}).get("selected_levers") or []:
        checks = lever.get("gate_results") or {}
        if not isinstance(checks.get("plausibility", []), (list, dict, type(None))):
            checks["plausibility"] = []
    for parent in gate_parents(result):
        gate = parent.get("missing_evidence_gate_result")
        if gate is not None and not (isinstance(gate, dict) and isinstance(gate.get("ok"), bool)):
            del parent["missing_evidence_gate_result"]


@reading
def numbers_from_text(_: Json, result: Json) -> None:
    for parent, key in rates(result):
        if isinstance(parent.get(key), (str, bool)):
            parent[key] = float(parent[key])


@reading
def amounts_from_text(_: Json, result: Json) -> None:
    _, optimized = parts(result)
    if isinstance(optimized.get("estimated_savings_per_unit"), (str, bool)):
        del optimized["estimated_savings_per_unit"]


def set_term(ledger: Ledger, name: str, points: float | None, *, present: bool) -> None:
    if present:
        ledger[name] = points
    else:
        ledger.pop(name, None)


@rule
def codes_as_text(inputs: RuleInput, ledger: Ledger) -> None:
    if inputs.is_compared and spelling_matters(inputs):
        level = text_level(inputs)
        ledger["match"] = MATCH[level or "miss"]
        set_term(ledger, "forbidden_code", None, present=level is None)


def spelling_matters(inputs: RuleInput) -> bool:
    """Return whether a code is under an expected one of another spelling, or an expected one has no chapter."""
    code = inputs.final_code or ""
    return any(
        chapter(expected) is None or (expected != code and digits(code).startswith(digits(expected)))
        for key in CODES
        for expected in inputs.expected.get(key) or []
    )


def text_level(inputs: RuleInput) -> str | None:
    """Return the original's match level, by the spelling of codes; None for a forbidden one."""
    code, expected = inputs.final_code, inputs.expected
    if code and code in (expected.get("must_not_hts") or []):
        return None
    for level in ("preferred", "allowed"):
        if code in (expected.get(f"{level}_hts") or []):
            return level
    return "chapter" if code and chapter(code) in map(chapter, expected["preferred_hts"]) else "miss"


def digits(code: str) -> str:
    return re.sub(r"\D", "", code)


def chapter(code: str) -> str | None:
    """Return the first two digits; None for a code without them, which is a chapter of its own here."""
    return digits(code)[:2] if len(digits(code)) > 1 else None


@rule
def bonus_by_reasons(inputs: RuleInput, ledger: Ledger) -> None:
    gates = [ok for ok in (inputs.outcome.citations_ok, inputs.outcome.evidence_ok) if ok is not None]
    has_bonus = inputs.ours.terms[0].name != "no_match" and bool(gates) and all(gates)
    original_has_bonus = not CRITICAL & set(inputs.outcome.reasons)
    if inputs.is_compared and has_bonus != original_has_bonus:
        set_term(ledger, LAST, BONUS, present=original_has_bonus)


@rule
def savings_by_words(inputs: RuleInput, ledger: Ledger) -> None:
    if inputs.is_compared and inputs.expected.get("no_savings_expected"):
        counted = inputs.outcome.levers or inputs.outcome.what_ifs or inputs.outcome.savings_claims
        claimed = claims_savings(inputs.result)
        if bool(counted) != claimed:
            set_term(ledger, "no_savings_violation", None, present=claimed)


def claims_savings(result: Json) -> bool:
    """Return whether the original detects a saving, or finds no words that deny one."""
    baseline, optimized = parts(result)
    rate, amount = baseline.get("duty_rate_pct"), optimized.get("estimated_savings_per_unit")
    return bool(dossier(result)) and (
        bool(dossier(result).get("what_if_candidates"))
        or (amount is not None and amount != 0)
        or is_lower(optimized.get("duty_rate_pct"), rate)
        or not denies(optimized.get("rationale"))
        or any(
            is_lower(mutation.get("expected_duty_rate_pct"), rate) or promises(mutation.get("expected_savings_note"))
            for mutation in dossier(result).get("mutations") or []
        )
    )


def is_lower(rate: Any, than: Any) -> bool:
    return rate is not None and than is not None and float(rate) < float(than)


def denies(text: str | None) -> bool:
    return any(words in (text or "").lower() for words in ("cannot reduce", "no savings"))


def promises(text: str | None) -> bool:
    return not denies(text) and any(word in (text or "").lower() for word in ("savings", "reduce", "lower"))


@rule
def rate_of_either_code(inputs: RuleInput, ledger: Ledger) -> None:
    outcome, expected = inputs.outcome, inputs.expected.get("expected_duty_total_rate_pct")
    is_affected = not outcome.optimized_rate_pct or not outcome.optimized_code
    if inputs.is_compared and expected is not None and is_affected:
        rate = outcome.optimized_rate_pct or outcome.baseline_rate_pct
        is_right = rate is not None and math.isclose(rate, expected, rel_tol=0.0, abs_tol=0.0001)
        set_term(ledger, "duty_total_rate", None, present=not is_right)


@rule
def duty_limits_to_the_last_bit(inputs: RuleInput, ledger: Ledger) -> None:
    delta, limits = inputs.outcome.duty_delta, inputs.expected.get("duty_delta_range")
    if not inputs.is_compared or delta is None:
        return
    if limits and any(0 < abs(delta - limit) <= NOISE for limit in limits):
        set_term(ledger, "duty_delta", PENALTY, present=not limits[0] <= delta <= limits[1])
    direction = inputs.expected.get("expected_duty_delta_direction")
    if direction is not None and 0 < abs(delta) <= NOISE:
        is_right = direction == ("decrease" if delta < 0 else "increase")
        set_term(ledger, "duty_delta_direction", None, present=not is_right)


@rule
def a_minimum_of_zero_steps(inputs: RuleInput, ledger: Ledger) -> None:
    if inputs.is_compared and inputs.expected.get("min_lever_steps") == 0 and inputs.outcome.lever_steps is None:
        ledger["lever_steps"] = None


def correct_category(ledger: Ledger) -> None:
    if ledger.pop(MISMATCH, None) is not None:
        ledger["match"] = 1.0


@rule
def unknown_reason_is_insufficient_info(inputs: RuleInput, ledger: Ledger) -> None:
    is_unknown = inputs.outcome.refusal_category is None and bool(inputs.outcome.reasons)
    if is_unknown and inputs.expected.get("expected_refusal_category") == "insufficient_info":
        correct_category(ledger)


@rule
def prose_names_missing_evidence(inputs: RuleInput, ledger: Ledger) -> None:
    last, questions = last_iteration(inputs.result) or {}, dossier(inputs.result).get("questions_for_user")
    prose = " ".join([*(last.get("missing") or []), *(questions or []), last.get("feedback_text") or ""]).lower()
    is_expected = inputs.expected.get("expected_refusal_category") == "missing_evidence"
    if is_expected and any(phrase in prose for phrase in EVIDENCE_PHRASES):
        correct_category(ledger)


@rule
def wrong_category_is_nearly_right(_: RuleInput, ledger: Ledger) -> None:
    if MISMATCH in ledger:
        ledger[MISMATCH] = WRONG_CATEGORY


HARD_FAILS = "hard_fails_are_steps"
DEPARTURES = (*READINGS, *RULES, HARD_FAILS)


def ledger_of(ours: Score) -> Ledger:
    """Return our terms as a ledger, without notes and the clamp."""
    return {
        "match" if term.name == "refusal" or term.name.endswith("_match") else term.name: (
            None if term.effect == "zero" else term.value
        )
        for term in ours.terms
        if term.effect in {"zero", "add"}
    }


def ours_of(ledger: Ledger) -> float:
    """Sum a ledger as we do: a hard fail is 0, the rest is added and clamped."""
    points = [value for value in ledger.values() if value is not None]
    return max(0.0, min(1.0, math.fsum(points))) if len(points) == len(ledger) else 0.0


def original_of(ledger: Ledger) -> float:
    """Sum a ledger as the original does: each hard fail sets 0, what comes later counts, the bonus comes last."""
    rest = [name for name in ledger if name not in {*FIRST, LAST}]
    total = 0.0
    for name in (*FIRST, *rest, LAST):
        points = ledger.get(name, 0.0)
        total = 0.0 if points is None else total + points
    return max(0.0, min(1.0, total))


def as_original_reads(case: Json, result: object) -> tuple[Json, Json, list[str]]:
    """Apply every reading to copies of case and result; return them with the names of the readings that changed one."""
    case, payload = deepcopy(case), deepcopy(result) if isinstance(result, dict) else {}
    applied = []
    for name, rewrite in READINGS.items():
        # unlike values, their text distinguishes 1 from true
        before = repr((case, payload))
        rewrite(case, payload)
        if repr((case, payload)) != before:
            applied.append(name)
    return case, payload, applied


def predict(case: Json, result: object) -> tuple[Json, list[str]]:
    """Predict the original's answer to a result on which it does not raise, from our outcome, our terms and the differences.

    Returns:
        Its score, `passed`, match level and final code, and the names of the differences that lead to them.
    """
    readable_case, readable_result, applied = as_original_reads(case, result)
    outcome = read(readable_result)
    expected, plain = case["expected"], result if isinstance(result, dict) else {}
    baseline, optimized = parts(plain)
    inputs = RuleInput(
        expected=expected,
        result=plain,
        outcome=outcome,
        ours=score(TariffCase.model_validate(readable_case), outcome, TariffSuiteConfig(pack="tariff")),
        is_compared=expected["expected_accept"] and outcome.accepted,
        final_code=optimized.get("hts_code") or baseline.get("hts_code"),
    )
    ledger = ledger_of(inputs.ours)
    for name, rewrite in RULES.items():
        before = dict(ledger)
        rewrite(inputs, ledger)
        if ledger != before:
            applied.append(name)
    points = original_of(ledger)
    if abs(points - ours_of(ledger)) > NOISE:
        applied.append(HARD_FAILS)
    prediction = {
        "score": round(points, 4),
        "passed": points >= (ACCEPT if expected["expected_accept"] else REFUSE),
        "match_level": text_level(inputs) if inputs.is_compared else None,
        "final_hts": inputs.final_code,
    }
    return prediction, applied
