"""The named differences from the original tariff scorer; applied to our terms they predict its score.

`original.py` makes a document of a result, as an import does. Where the document or the case can't be read, or says that
no model was reached, the original still has a number and ours does not depend on it. Elsewhere each rule rewrites our
terms. `docs/scoring-departures.md` has the reasons.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from pytest_packbench.api import score
from pytest_packbench.model.errors import CaseError
from pytest_packbench.packs.tariff.answer import TariffAnswer
from pytest_packbench.packs.tariff.white_box.original import document

if TYPE_CHECKING:
    from pytest_packbench.model.result import Score

Json = dict[str, Any]
Ledger = dict[str, float | None]
"""Our terms by name: points, or None for a hard fail. The match has the key `match`."""

MATCH = {"preferred": 1.0, "allowed": 0.7, "chapter": 0.3, "miss": 0.0}
BONUS, PENALTY, WRONG_CATEGORY = 0.05, -0.1, 0.8
NOISE = 1e-9
CRITICAL = {"gri_sequence_violation", "essential_character_mismatch", "ontology_mutex_conflict", "citation_gate_failed"}
CRITICAL |= {"too_many_what_if_candidates", "missing_what_if_candidates", "missing_evidence"}
EVIDENCE_PHRASES = ("missing evidence", "missing chapter evidence", "chapter notes", "attach missing chapter")
# any other term comes between these and the bonus, in any order
FIRST = ("match", "forbidden_code", "no_savings_violation", "gri_sequence", "citations_invalid", "duty_delta")
LAST = "process_bonus"
MISMATCH = "refusal_category_mismatch"
CASE, UNREADABLE, UNREACHED = "case_is_checked", "unreadable_answer", "unreachable_model_is_out_of_scope"


def ours_of(case: Json, result: object) -> Score | None:
    """Score a result of the original as an import does; None if the case is rejected, in one line."""
    try:
        return score(case, document(result) if isinstance(result, dict) else result, pack="tariff")
    except CaseError as error:
        assert "\n" not in str(error)
        return None


def field(result: Json, key: str) -> Any:
    """Return a field from the top of a result or, if it is false there, from `proof`."""
    return result.get(key) or (result.get("proof") or {}).get(key)


def dossier(result: Json) -> Json:
    return field(result, "tariff_dossier") or {}


def parts(result: Json) -> tuple[Json, Json]:
    """Return baseline and optimised part, empty objects if they are missing."""
    return dossier(result).get("baseline") or {}, dossier(result).get("optimized") or {}


def last_iteration(result: Json) -> Json:
    iterations = field(result, "iterations")
    last: Json = (iterations[-1] if iterations else None) or {}
    return last


def total_rate(part: Json) -> float | None:
    total = (part.get("duty_breakdown") or {}).get("total_rate_pct")
    rate = part.get("duty_rate_pct") if total is None else total
    return None if rate is None else float(rate)


class Rules:
    """The rules, each a method of its name that changes the ledger of our score.

    `is_compared` is true if an answer is expected and given, so that codes, duties and levers count.
    """

    def __init__(self, case: Json, result: Json, ours: Score) -> None:
        self.expected, self.result, self.ours = case["expected"], result, ours
        answer = TariffAnswer.model_validate(document(result))
        self.is_compared = self.expected["expected_accept"] and answer.status == "verified"
        baseline, optimized = parts(result)
        self.code = optimized.get("hts_code") or baseline.get("hts_code")
        self.before, self.after = total_rate(baseline), total_rate(optimized)
        self.ledger = ledger_of(ours)

    def codes_as_text(self) -> None:
        if self.is_compared:
            level = text_level(self.code, self.expected)
            ours = {name: value for name, value in self.ledger.items() if name in {"match", "forbidden_code"}}
            theirs: Ledger = {"match": MATCH[level or "miss"], **({} if level else {"forbidden_code": None})}
            if ours != theirs:
                self.ledger.pop("forbidden_code", None)
                self.ledger.update(theirs)

    def bonus_by_reasons(self) -> None:
        has_bonus = not CRITICAL & {*map(str, last_iteration(self.result).get("rejected_because") or ())}
        if self.is_compared:
            self._set(LAST, BONUS, present=has_bonus)

    def savings_by_words(self) -> None:
        if self.is_compared and self.expected.get("no_savings_expected"):
            self._set("no_savings_violation", None, present=claims_savings(self.result))

    def rate_of_either_code(self) -> None:
        expected = self.expected.get("expected_duty_total_rate_pct")
        if self.is_compared and expected is not None:
            rate = self.after or self.before
            is_right = rate is not None and math.isclose(rate, expected, rel_tol=0.0, abs_tol=0.0001)
            self._set("duty_total_rate", None, present=not is_right)

    def duty_limits_to_the_last_bit(self) -> None:
        if not self.is_compared or self.before is None or self.after is None:
            return
        delta, limits = self.after - self.before, self.expected.get("duty_delta_range")
        if limits and any(0 < abs(delta - limit) <= NOISE for limit in limits):
            self._set("duty_delta", PENALTY, present=not limits[0] <= delta <= limits[1])
        direction = self.expected.get("expected_duty_delta_direction")
        if direction is not None and 0 < abs(delta) <= NOISE:
            is_right = direction == ("decrease" if delta < 0 else "increase")
            self._set("duty_delta_direction", None, present=not is_right)

    def levers_are_what_is_selected(self) -> None:
        if not self.is_compared:
            return
        expected, levers = self.expected, (field(self.result, "lever_proof") or {}).get("selected_levers") or []
        steps = levers[0].get("sequence") if levers else None
        least = expected.get("min_lever_steps")
        wanted = expected.get("lever_found_expected")
        failing = {
            "lever_missing": bool(wanted) and not levers,
            "unexpected_lever": wanted is False and bool(levers),
            "lever_count": len(levers) < (expected.get("lever_count_min") or 0),
            "lever_steps": (least is not None and len(steps or ()) < max(least, 0 if steps else 1))
            or (bool(expected.get("expected_best_is_multi_step")) and len(steps or ()) < 2),
        }
        for name, fails in failing.items():
            self._set(name, None, present=fails)

    def prose_names_missing_evidence(self) -> None:
        if MISMATCH not in self.ledger or self.expected.get("expected_refusal_category") != "missing_evidence":
            return
        last, questions = last_iteration(self.result), dossier(self.result).get("questions_for_user")
        prose = " ".join([*(last.get("missing") or []), *(questions or []), last.get("feedback_text") or ""]).lower()
        if any(phrase in prose for phrase in EVIDENCE_PHRASES):
            del self.ledger[MISMATCH]
            self.ledger["match"] = 1.0

    def wrong_category_is_nearly_right(self) -> None:
        if MISMATCH in self.ledger:
            self.ledger[MISMATCH] = WRONG_CATEGORY

    def _set(self, name: str, points: float | None, *, present: bool) -> None:
        if present:
            self.ledger[name] = points
        else:
            self.ledger.pop(name, None)


RULES = [name for name in vars(Rules) if not name.startswith("_")]
HARD_FAILS = "hard_fails_are_steps"
DEPARTURES = (CASE, UNREADABLE, UNREACHED, *RULES, HARD_FAILS)


def text_level(code: str | None, expected: Json) -> str | None:
    """Return the original's match level, by the spelling of codes; None for a forbidden one."""
    if code and code in (expected.get("must_not_hts") or []):
        return None
    for level in ("preferred", "allowed"):
        if code in (expected.get(f"{level}_hts") or []):
            return level
    return "chapter" if code and chapter(code) in map(chapter, expected["preferred_hts"]) else "miss"


def chapter(code: str) -> str | None:
    """Return the first two digits; None for a code without them, which is a chapter of its own here."""
    plain = re.sub(r"\D", "", code)
    return plain[:2] if len(plain) > 1 else None


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


def sum_of(ledger: Ledger) -> float:
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


def predict(case: Json, result: object) -> tuple[float | None, list[str]]:
    """Predict the original's score of a result, from our terms and the differences.

    Returns:
        The score; None where ours does not depend on what the original reads. The names of the differences.
    """
    ours = ours_of(case, result)
    if ours is None:
        return None, [CASE]
    if ours.score is None:
        return None, [UNREACHED]
    if ours.terms and ours.terms[0].name == UNREADABLE:
        return None, [UNREADABLE]
    assert isinstance(result, dict)
    rules, applied = Rules(case, result, ours), []
    for name in RULES:
        ledger = dict(rules.ledger)
        getattr(rules, name)()
        if rules.ledger != ledger:
            applied.append(name)
    points = original_of(rules.ledger)
    if abs(points - sum_of(rules.ledger)) > NOISE:
        applied.append(HARD_FAILS)
    return round(points, 4), applied
