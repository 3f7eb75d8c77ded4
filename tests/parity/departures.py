"""The named differences from the original tariff scorer; applied to our terms they predict its score.

A reading is a value that the original converts and that we reject or read differently: it rewrites case and result into the
original's view of them. A rule is something that the original scores differently: it rewrites our terms.
`docs/scoring-departures.md` has the reasons.
"""

from __future__ import annotations

import math
import re
import unicodedata
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.result import ResultError
from pytest_packbench.packs.tariff.decision import BARE_FAILURE, CATEGORIES, STATUSES, word_of
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.notation import parse_code
from pytest_packbench.packs.tariff.outcome import read
from pytest_packbench.packs.tariff.scoring import score
from tests.parity import odd_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.model.result import Score

Json = dict[str, Any]
Ledger = dict[str, float | None]
"""Our terms by name: points, or None for a hard fail. The match has the key `match`."""

MATCH = {"preferred": 1.0, "allowed": 0.7, "chapter": 0.3, "miss": 0.0}
BONUS, PENALTY, WRONG_CATEGORY = 0.05, -0.1, 0.8
ACCEPT, REFUSE = 0.8, 0.9
NOISE = 1e-9
CRITICAL = {"gri_sequence_violation", "essential_character_mismatch", "ontology_mutex_conflict", "citation_gate_failed"}
CRITICAL |= {"too_many_what_if_candidates", "missing_what_if_candidates", "missing_evidence"}
EVIDENCE_PHRASES = ("missing evidence", "missing chapter evidence", "chapter notes", "attach missing chapter")
OTHER_FIELDS = ("accepted", "refusal", "refused", "error", "errors", "rejected_because", "hts_code", "final_code")
OF_AN_ITERATION = ("rejected_because", "conflicts", "status", "refusal", "error", "hts_code", "final_code")
CODES = ("preferred_hts", "allowed_hts", "must_not_hts")
# any other term comes between these and the bonus, in any order
FIRST = ("match", "forbidden_code", "no_savings_violation", "gri_sequence", "citations_invalid", "duty_delta")
LAST = "process_bonus"
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
MISMATCH = "refusal_category_mismatch"
FULL = 10


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


class Readings:
    """The readings, each a method of its name that changes case or result."""

    def __init__(self, case: Json, result: object) -> None:
        self.case, self.result = deepcopy(case), deepcopy(result) if isinstance(result, dict) else {}
        self.given = result
        self.reasons: tuple[str, ...] = ()

    def case_codes_by_grammar(self) -> None:
        expected = self.case["expected"]
        for key in CODES:
            if expected.get(key):
                expected[key] = list(filter(is_code, expected[key]))

    def limits_out_of_range(self) -> None:
        odd_values.soften_limits(self.case["expected"])

    def empty_is_missing(self) -> None:
        odd_values.drop_empty_values(self.result)

    def texts_where_lists_belong(self) -> None:
        odd_values.make_lists(self.result)

    def any_reason_is_unknown(self) -> None:
        odd_values.name_reasons(self.result)

    def numbers_without_end(self) -> None:
        odd_values.drop_endless_rates(self.result)

    def empty_iteration(self) -> None:
        if field(self.result, "iterations") and not last_iteration(self.result):
            for parent in gate_parents(self.result):
                parent.pop("iterations", None)

    def silence_is_a_refusal(self) -> None:
        last = last_iteration(self.result)
        if last is not None and last.get("accepted") is None:
            last["accepted"] = False
            self._let_the_last_iteration_decide()
        elif last is None and self.result.get("status") is None:
            self.result["status"] = "rejected"

    def unknown_status_is_a_refusal(self) -> None:
        if last_iteration(self.result) is None and self.result.get("status") not in (None, *STATUSES):
            self.result["status"] = "rejected"

    def truth_of_anything(self) -> None:
        trace = dossier(self.result).get("gri_trace") or {}
        for parent, key in ((last_iteration(self.result) or {}, "accepted"), (trace, "sequence_ok")):
            if parent.get(key) is not None and not isinstance(parent[key], bool):
                parent[key] = bool(parent[key])
                self._let_the_last_iteration_decide()
        for parent in gate_parents(self.result):
            gate = parent.get("citation_gate_result")
            if gate and isinstance(gate, dict):
                gate["ok"] = bool(gate.get("ok"))
        odd_values.read_flags(self.result)

    def empty_gate_is_no_gate(self) -> None:
        for parent in gate_parents(self.result):
            if parent.get("citation_gate_result") == {}:
                del parent["citation_gate_result"]

    def letters_of_a_word(self) -> None:
        last = last_iteration(self.result) or {}
        if isinstance(last.get("rejected_because"), str):
            last["rejected_because"] = list(last["rejected_because"])

    def unreachable_model_is_out_of_scope(self) -> None:
        last = last_iteration(self.result)
        if last is not None and not last.get("accepted"):
            # another reason of the same category
            other = {"llm_unavailable": "illegal_evasion_suggestion"}
            last["rejected_because"] = [other.get(reason, reason) for reason in last.get("rejected_because") or []]

    def mistakes_nobody_looked_at(self) -> None:
        if mutations := dossier(self.result).get("mutations"):
            dossier(self.result)["mutations"] = [mutation for mutation in mutations if isinstance(mutation, dict)]
        for parent, key in rates(self.result):
            if parent.get(key) is not None and odd_values.as_number(parent[key]) is None:
                del parent[key]
        for part in parts(self.result):
            drop_base_rate(part)
            if not isinstance(part.get("hts_code", ""), (str, type(None))):
                del part["hts_code"]
        for lever in (field(self.result, "lever_proof") or {}).get("selected_levers") or []:
            checks = lever.get("gate_results") or {}
            if not isinstance(checks.get("plausibility", []), (list, dict, type(None))):
                checks["plausibility"] = []
        for parent in gate_parents(self.result):
            gate = parent.get("missing_evidence_gate_result")
            if gate is not None and not (isinstance(gate, dict) and isinstance(gate.get("ok"), bool)):
                del parent["missing_evidence_gate_result"]

    def numbers_from_text(self) -> None:
        for parent, key in rates(self.result):
            if isinstance(parent.get(key), (str, bool)):
                parent[key] = float(parent[key])

    def amounts_from_text(self) -> None:
        _, optimized = parts(self.result)
        amount = optimized.get("estimated_savings_per_unit")
        if amount is not None and (isinstance(amount, bool) or not isinstance(amount, (int, float))):
            del optimized["estimated_savings_per_unit"]

    def keys_that_are_not_read(self) -> None:
        odd_values.drop_the_rest(self.result)

    def categories_are_unknown_reasons(self) -> None:
        last = last_iteration(self.result) or {}
        words = [reason for reason in last.get("rejected_because") or [] if isinstance(reason, str)]
        if any(reason != "missing_evidence" and word_of(reason) in CATEGORIES for reason in words):
            last["rejected_because"] = ["unknown" if word_of(word) in CATEGORIES else word for word in words]

    def other_fields_decide_nothing(self) -> None:
        for parent in (self.result, self.result.get("proof") or {}):
            for key in OTHER_FIELDS:
                parent.pop(key, None)

    def contradictory_decision(self) -> None:
        if any(map(is_contradictory, (self.given, self.result))):
            self._let_the_last_iteration_decide()
            last = last_iteration(self.result) or {}
            if last.get("accepted") is True:
                # the original accepts, and reads the reasons only
                self.reasons = tuple(last.get("rejected_because") or ())
                for key in OF_AN_ITERATION:
                    last.pop(key, None)
            # our reader stopped at the contradiction
            odd_values.drop_the_rest(self.result)
            self._keep_the_first_dossier()

    def caught_crash_is_a_refusal(self) -> None:
        if any(map(is_caught_crash, (self.given, self.result))):
            self.result["status"] = "rejected"
            odd_values.drop_the_rest(self.result)

    def _keep_the_first_dossier(self) -> None:
        """Remove what stands under `proof` where the top of the result has it too; the original does not read it."""
        proof = self.result.get("proof") or {}
        for key in ("tariff_dossier", "lever_proof"):
            if self.result.get(key):
                proof.pop(key, None)

    def _let_the_last_iteration_decide(self) -> None:
        """Have the status say what the last iteration says; without one, `refused` only that nothing was accepted."""
        last, proof = last_iteration(self.result), self.result.get("proof") or {}
        proof.pop("status", None)
        if self.result.get("iterations"):
            proof.pop("iterations", None)
        is_accepted = self.result.get("status") == "verified" if last is None else last["accepted"]
        self.result["status"] = "verified" if is_accepted else "rejected"


class Rules:
    """The rules, each a method of its name that changes the ledger of our score of the rewritten case and result.

    `is_compared` is true if an answer is expected and given, so that codes, duties and levers count.
    """

    def __init__(self, case: Json, result: object, readings: Readings) -> None:
        self.expected, self.result = case["expected"], result if isinstance(result, dict) else {}
        self.outcome, self.reasons = read(readings.result), readings.reasons
        self.ours = score(TariffCase.model_validate(readings.case), self.outcome, TariffSuiteConfig(pack="tariff"))
        self.is_compared = self.expected["expected_accept"] and self.outcome.accepted
        baseline, optimized = parts(self.result)
        self.code = optimized.get("hts_code") or baseline.get("hts_code")
        self.ledger = ledger_of(self.ours)
        self.duty = odd_values.duty_of(baseline, optimized) if self.is_compared else odd_values.Duty(None, None)
        self._count_endless_rates()

    def codes_as_text(self) -> None:
        is_one = not self.code or parse_code(self.code) is not None
        if self.is_compared and is_one and spelling_matters(self.code or "", self.expected):
            self._match_as_text()

    def bare_suffix(self) -> None:
        if self.is_compared and self.code and parse_code(self.code):
            longer = f"{ascii_digits(self.code)}00"
            others = [code for key in CODES for code in self.expected.get(key) or []]
            if len(longer) == FULL and longer in map(ascii_digits, others):
                self._match_as_text()

    def codes_by_grammar(self) -> None:
        if self.is_compared and self.code and parse_code(self.code) is None:
            self._match_as_text()

    def citations_are_looked_up(self) -> None:
        claimed_failure = self.is_compared and self.outcome.citations_ok is False
        self._set("citations_invalid", None, present=claimed_failure)
        for name in ("citation_missing", "citation_forbidden"):
            self._set(name, None, present=False)

    def order_is_computed(self) -> None:
        if self.is_compared:
            self._set("gri_sequence", PENALTY, present=self.outcome.sequence_ok is False)
        self._set("deciding_rule", None, present=False)

    def bonus_by_reasons(self) -> None:
        has_bonus = LAST in ledger_of(self.ours)
        original_has_bonus = not CRITICAL & {*self.outcome.reasons, *self.reasons}
        if self.is_compared and has_bonus != original_has_bonus:
            self._set(LAST, BONUS, present=original_has_bonus)

    def savings_by_words(self) -> None:
        if self.is_compared and self.expected.get("no_savings_expected"):
            counted = self.outcome.levers or self.outcome.what_ifs or self.outcome.savings_claims
            claimed = claims_savings(self.result)
            if bool(counted) != claimed:
                self._set("no_savings_violation", None, present=claimed)

    def rate_of_either_code(self) -> None:
        expected = self.expected.get("expected_duty_total_rate_pct")
        is_affected = not self.outcome.optimized_rate_pct or not self.outcome.optimized_code
        if self.is_compared and expected is not None and is_affected and self.duty.is_finite:
            rate = self.outcome.optimized_rate_pct or self.outcome.baseline_rate_pct
            is_right = rate is not None and math.isclose(rate, expected, rel_tol=0.0, abs_tol=0.0001)
            self._set("duty_total_rate", None, present=not is_right)

    def duty_limits_to_the_last_bit(self) -> None:
        delta, limits = self.outcome.duty_delta, self.expected.get("duty_delta_range")
        if not self.is_compared or delta is None:
            return
        if limits and any(0 < abs(delta - limit) <= NOISE for limit in limits):
            self._set("duty_delta", PENALTY, present=not limits[0] <= delta <= limits[1])
        direction = self.expected.get("expected_duty_delta_direction")
        if direction is not None and 0 < abs(delta) <= NOISE:
            is_right = direction == ("decrease" if delta < 0 else "increase")
            self._set("duty_delta_direction", None, present=not is_right)

    def a_minimum_of_zero_steps(self) -> None:
        least = self.expected.get("min_lever_steps")
        if self.is_compared and least is not None and least <= 0 and self.outcome.lever_steps is None:
            self.ledger["lever_steps"] = None

    def unknown_reason_is_insufficient_info(self) -> None:
        is_unknown = self.outcome.refusal_category is None and bool(self.outcome.reasons)
        self._set_category("insufficient_info", applies=is_unknown)

    def prose_names_missing_evidence(self) -> None:
        if MISMATCH not in self.ledger or self.expected.get("expected_refusal_category") != "missing_evidence":
            return
        last, questions = last_iteration(self.result) or {}, dossier(self.result).get("questions_for_user")
        prose = " ".join([*(last.get("missing") or []), *(questions or []), last.get("feedback_text") or ""]).lower()
        self._set_category("missing_evidence", applies=any(phrase in prose for phrase in EVIDENCE_PHRASES))

    def wrong_category_is_nearly_right(self) -> None:
        if MISMATCH in self.ledger:
            self.ledger[MISMATCH] = WRONG_CATEGORY

    def _count_endless_rates(self) -> None:
        """Set the terms of duties from rates that are infinite or no number, which our outcome does not have."""
        if self.duty.is_finite:
            return
        expected, total = self.expected, self.expected.get("expected_duty_total_rate_pct")
        direction = expected.get("expected_duty_delta_direction")
        self._set("duty_delta", PENALTY, present=self.duty.is_outside(expected.get("duty_delta_range")))
        self._set("duty_total_rate", None, present=total is not None and self.duty.misses(total))
        self._set("duty_delta_direction", None, present=direction not in {None, self.duty.direction})

    def _match_as_text(self) -> None:
        level = text_level(self.code, self.expected)
        self.ledger["match"] = MATCH[level or "miss"]
        self._set("forbidden_code", None, present=level is None)

    def _set(self, name: str, points: float | None, *, present: bool) -> None:
        if present:
            self.ledger[name] = points
        else:
            self.ledger.pop(name, None)

    def _set_category(self, category: str, *, applies: bool) -> None:
        is_expected = self.expected.get("expected_refusal_category") == category
        if applies and is_expected and self.ledger.pop(MISMATCH, None) is not None:
            self.ledger["match"] = 1.0


READINGS, RULES = ([name for name in vars(kind) if not name.startswith("_")] for kind in (Readings, Rules))
HARD_FAILS = "hard_fails_are_steps"
UNREADABLE = "unreadable_answer"
DEPARTURES = (*READINGS, UNREADABLE, *RULES, HARD_FAILS)


def drop_base_rate(part: Json) -> None:
    """Remove a base rate that is not a finite number."""
    breakdown = part.get("duty_breakdown") or {}
    rate = breakdown.get("base_rate_pct")
    if rate is not None and (isinstance(rate, (str, bool, list, dict)) or not math.isfinite(rate)):
        del breakdown["base_rate_pct"]
    drop_unread_rates(breakdown)


def drop_unread_rates(breakdown: Json) -> None:
    """Remove a preferential rate and additional duties that can't be read; the original reads neither."""
    try:
        read(
            {
                "status": "verified",
                "tariff_dossier": {"baseline": {"duty_breakdown": {**breakdown, "total_rate_pct": None}}},
            }
        )
    except ResultError:
        for key in ("preferential_rate_pct", "applied_additional_duties"):
            breakdown.pop(key, None)


def spelling_matters(code: str, expected: Json) -> bool:
    """Return whether a code is under an expected one of another spelling, or an expected one is no code."""
    return any(
        not is_code(other)
        or any(digits(each) != ascii_digits(each) for each in (code, other))
        or (other != code and ascii_digits(code).startswith(ascii_digits(other)))
        for key in CODES
        for other in expected.get(key) or []
    )


def text_level(code: str | None, expected: Json) -> str | None:
    """Return the original's match level, by the spelling of codes; None for a forbidden one."""
    if code and code in (expected.get("must_not_hts") or []):
        return None
    for level in ("preferred", "allowed"):
        if code in (expected.get(f"{level}_hts") or []):
            return level
    return "chapter" if code and chapter(code) in map(chapter, expected["preferred_hts"]) else "miss"


def is_code(text: str) -> bool:
    """Return whether a text may stand in a case of ours: one code, or a chapter."""
    return bool(parse_code(text) or re.fullmatch("[0-9]{2}", text))


def digits(code: str) -> str:
    return re.sub(r"\D", "", code)


def ascii_digits(code: str) -> str:
    """Return the digits of a code, full-width ones as ASCII."""
    return digits(unicodedata.normalize("NFKC", code))


def chapter(code: str) -> str | None:
    """Return the first two digits; None for a code without them, which is a chapter of its own here."""
    return digits(code)[:2] if len(digits(code)) > 1 else None


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


def read_or_none(result: object) -> Any:
    """Return our outcome of a result; None if our reader rejects it."""
    try:
        return read(result)
    except ResultError:
        return None


def is_contradictory(result: object) -> bool:
    outcome = read_or_none(result)
    return outcome is not None and bool(outcome.contradiction)


def is_caught_crash(result: object) -> bool:
    outcome = read_or_none(result)
    return outcome is not None and outcome.breakdown is not None and outcome.breakdown.kind == BARE_FAILURE


def is_unreadable(result: object) -> bool:
    """Return whether our reader rejects a result."""
    return read_or_none(result) is None


def predict(case: Json, result: object) -> tuple[Json, list[str]]:
    """Predict the original's answer to a result on which it does not raise, from our outcome, our terms and the differences.

    Returns:
        Its score, `passed`, match level and final code, and the names of the differences that lead to them.
    """
    applied = []
    readings = Readings(case, result)
    for name in READINGS:
        # unlike values, their text distinguishes 1 from true
        before = repr(vars(readings))
        getattr(readings, name)()
        if repr(vars(readings)) != before:
            applied.append(name)
    rules = Rules(case, result, readings)
    for name in RULES:
        ledger = dict(rules.ledger)
        getattr(rules, name)()
        if rules.ledger != ledger:
            applied.append(name)
    if is_unreadable(result):
        # ours is 0 whatever the readings lead to; the ledger is that of the result as the original reads it
        applied.append(UNREADABLE)
    points = original_of(rules.ledger)
    if abs(points - ours_of(rules.ledger)) > NOISE:
        applied.append(HARD_FAILS)
    prediction = {
        "score": round(points, 4),
        "passed": points >= (ACCEPT if rules.expected["expected_accept"] else REFUSE),
        "match_level": text_level(rules.code, rules.expected) if rules.is_compared else None,
        "final_hts": rules.code,
    }
    return prediction, applied
