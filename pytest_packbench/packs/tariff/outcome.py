"""Reading a tariff result: the original's payload and our explicit fields, flat and typed (reference S4 to S13).

A place is looked up at the top of the result first, then under `proof`. What is read is checked; what no rule needs
is not looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

from pytest_packbench.model.errors import format_value, json_pointer
from pytest_packbench.model.outcome import Breakdown, Firing, Outcome, ResultError
from pytest_packbench.packs.tariff.codes import digits

_STATUSES = {"verified": True, "failed": False, "refused": False, "rejected": False}
_UNREACHABLE = "llm_unavailable"
# reference S5, without `llm_unavailable`, which is a breakdown here
_CATEGORIES = {
    "missing_evidence": "missing_evidence",
    "missing_evidence_gate_failed": "missing_evidence",
    "hts_or_questions_missing": "insufficient_info",
    "baseline_duty_missing": "insufficient_info",
    "insufficient_mutations": "insufficient_info",
    "missing_best_option": "insufficient_info",
    "mutation_missing_evidence": "insufficient_info",
    "missing": "insufficient_info",
    "gri_sequence_violation": "ambiguous",
    "conflicts": "ambiguous",
    "unsupported": "ambiguous",
    "illegal_evasion_suggestion": "out_of_scope",
}
_OBJECT = "an object"
_RULES = 2**32
_SHOWN_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TariffOutcome(Outcome):
    """What a tariff pipeline answered; rates are percent of value.

    Attributes:
        accepted: whether the pipeline stands by a classification; false for a refusal and for a breakdown.
        refusal_category: why it refused: an explicit category as it stands, else one of the original's words
            translated; None where nothing known is said, and for an accepted answer.
        questions: what a refusal asks the importer.
        reasons: the last iteration's `rejected_because`.
        baseline_code: the code of the goods as they are, as written.
        optimized_code: the code after the best change, as written.
        baseline_rate_pct: the total duty rate of the baseline; None where it isn't ad valorem or isn't given.
        optimized_rate_pct: likewise after the best change.
        sequence_ok: whether the interpretation rules were used in order; None where nobody assessed it.
        citations_ok: what the gate on citations decided; None where it did not run.
        evidence_ok: what the gate on missing evidence decided; None where it did not run.
        levers: how many savings levers were selected.
        lever_steps: how many steps the first lever takes; None without one.
        levers_compliant: whether every lever passed its plausibility check; None without levers.
        what_ifs: how many what-if options the dossier holds.
        savings_claims: other claims of lower duty, a few words each.
    """

    accepted: bool = False
    refusal_category: str | None = None
    questions: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    baseline_code: str | None = None
    optimized_code: str | None = None
    baseline_rate_pct: float | None = None
    optimized_rate_pct: float | None = None
    sequence_ok: bool | None = None
    citations_ok: bool | None = None
    evidence_ok: bool | None = None
    levers: int = 0
    lever_steps: int | None = None
    levers_compliant: bool | None = None
    what_ifs: int = 0
    savings_claims: tuple[str, ...] = ()

    @property
    def final_code(self) -> str | None:
        """The optimised code, else the baseline's."""
        return self.optimized_code or self.baseline_code

    @property
    def duty_delta(self) -> float | None:
        """Optimised minus baseline rate, percentage points; None where either isn't known."""
        if self.baseline_rate_pct is None or self.optimized_rate_pct is None:
            return None
        return self.optimized_rate_pct - self.baseline_rate_pct


def read(result: object) -> TariffOutcome:
    """Read a tariff target's result.

    Accepts the original's payload (`status`, `iterations`, `tariff_dossier`, `citation_gate_result`,
    `missing_evidence_gate_result`, `lever_proof`; each at the top or under `proof`) and ours: `refusal`
    (`{category, questions}`), `error` (`{kind, message}`) and `trace` (a list of `{hook, decision, rule}`).

    Returns:
        The outcome. An `error`, or an answer that was rejected because no model could be reached, is a breakdown: an
        infrastructure failure is never a refusal (design 4).

    Raises:
        ResultError: with the pointer of a value that is missing, of the wrong type, not finite or contradictory;
            also for a result that holds no decision at all (reference S4: a dead pipeline).
    """
    top = _Place(result)
    top.require_object()
    firings = tuple(_firing(step) for step in _find(top, "trace").items(_OBJECT))
    down = _breakdown(top)
    return TariffOutcome(breakdown=down, firings=firings) if down else _decided(top, firings)


def _breakdown(top: _Place) -> Breakdown | None:
    error = _find(top, "error")
    if error.value is not None:
        message = " ".join(error.at("message").required_text().split())
        return Breakdown(kind=error.at("kind").required_text(), message=message)
    last = _last_iteration(top)
    if _UNREACHABLE in _texts(last.at("rejected_because")) and not _accepted(top, last):
        return Breakdown(kind=_UNREACHABLE, message="the pipeline says that it could not reach its model")
    return None


def _decided(top: _Place, firings: tuple[Firing, ...]) -> TariffOutcome:
    last = _last_iteration(top)
    accepted = _accepted(top, last)
    refusal, reasons = _find(top, "refusal"), _texts(last.at("rejected_because"))
    dossier = _find(top, "tariff_dossier")
    baseline, optimized = dossier.at("baseline"), dossier.at("optimized")
    baseline_code, optimized_code = (part.at("hts_code").text() or None for part in (baseline, optimized))
    baseline_rate, optimized_rate = _rate(baseline), _rate(optimized)
    levers = _find(top, "lever_proof").at("selected_levers").items(_OBJECT)
    compliant = [_is_compliant(lever) for lever in levers]
    return TariffOutcome(
        refused=not accepted,
        answer=_answer(baseline_code, optimized_code) if accepted else None,
        firings=firings,
        accepted=accepted,
        refusal_category=None if accepted else _category(refusal, reasons),
        questions=_texts(refusal.at("questions")),
        reasons=reasons,
        baseline_code=baseline_code,
        optimized_code=optimized_code,
        baseline_rate_pct=baseline_rate,
        optimized_rate_pct=optimized_rate,
        sequence_ok=_sequence_ok(last, dossier),
        citations_ok=_gate_ok(top, last, "citation_gate_result"),
        evidence_ok=_gate_ok(top, last, "missing_evidence_gate_result"),
        levers=len(levers),
        lever_steps=(len(levers[0].at("sequence").items()) or None) if levers else None,
        levers_compliant=all(compliant) if compliant else None,
        what_ifs=len(dossier.at("what_if_candidates").items()),
        savings_claims=tuple(_claims(dossier, baseline_rate, optimized_rate)),
    )


@dataclass(slots=True)
class _Place:
    """A value in the result with the way to it; null stands for whatever is absent."""

    value: object
    path: tuple[str | int, ...] = ()

    def refuse(self, expected: str) -> NoReturn:
        raise ResultError(json_pointer(self.path), f"got {_said(self.value)}; expected {expected}")

    def require_object(self) -> None:
        if not isinstance(self.value, dict) and (self.value is not None or not self.path):
            self.refuse(_OBJECT)

    def at(self, key: str) -> _Place:
        self.require_object()
        inside = self.value.get(key) if isinstance(self.value, dict) else None
        return _Place(inside, (*self.path, key))

    def items(self, expected: str = "") -> list[_Place]:
        """Give the items of a list, none for null; where each has to be something, null is not."""
        if self.value is None:
            return []
        if not isinstance(self.value, (list, tuple)):
            self.refuse("a list")
        items = [_Place(item, (*self.path, index)) for index, item in enumerate(self.value)]
        if expected:
            for item in items:
                if item.value is None:
                    item.refuse(expected)
        return items

    def text(self) -> str | None:
        if self.value is None:
            return None
        if not isinstance(self.value, str):
            self.refuse("a string")
        if not _is_unicode(self.value):
            self.refuse("Unicode text without lone surrogates")
        return self.value

    def required_text(self) -> str:
        return self.text() or self.refuse("a string that isn't empty")

    def number(self) -> float | None:
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            self.refuse("a number")
        try:
            number = float(self.value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.refuse("a finite number")
        return number

    def flag(self) -> bool | None:
        if self.value is not None and not isinstance(self.value, bool):
            self.refuse("true or false")
        return self.value

    def required_flag(self) -> bool:
        found = self.flag()
        return self.refuse("true or false") if found is None else found


def _find(top: _Place, key: str) -> _Place:
    """Look at the top, then under `proof`; an empty list or object at the top gives way (reference S12)."""
    here, under = top.at(key), top.at("proof").at(key)
    is_given = here.value is not None and here.value not in ([], {})
    return here if is_given or under.value is None else under


def _last_iteration(top: _Place) -> _Place:
    iterations = _find(top, "iterations")
    items = iterations.items()
    if not items:
        return _Place(None, iterations.path)
    if items[-1].value is None:
        items[-1].refuse(_OBJECT)
    return items[-1]


def _accepted(top: _Place, last: _Place) -> bool:
    status, refusal = _find(top, "status"), _find(top, "refusal")
    if last.value is not None:
        accepted = last.at("accepted").required_flag()
    elif status.value is not None:
        word = status.text()
        accepted = _STATUSES[word] if word in _STATUSES else status.refuse(f"one of {', '.join(_STATUSES)}")
    elif refusal.value is not None:
        accepted = False
    else:
        raise ResultError("", "neither an iteration nor a status; expected a decision")
    if accepted and refusal.value is not None:
        raise ResultError(json_pointer(refusal.path), "a refusal beside an accepted answer; expected one of them")
    return accepted


def _category(refusal: _Place, reasons: tuple[str, ...]) -> str | None:
    if refusal.value is not None:
        return refusal.at("category").text()
    return next((_CATEGORIES[reason] for reason in reasons if reason in _CATEGORIES), None)


def _answer(baseline: str | None, optimized: str | None) -> str | None:
    # which of the two is scored is the suite's business; a table has to show both
    if baseline is None or optimized is None or digits(baseline) == digits(optimized):
        return optimized or baseline
    return f"{baseline}, optimised {optimized}"


def _sequence_ok(last: _Place, dossier: _Place) -> bool | None:
    if last.at("sequence_violations").items():
        return False
    return dossier.at("gri_trace").at("sequence_ok").flag()


def _gate_ok(top: _Place, last: _Place, key: str) -> bool | None:
    """What a gate decided; an object that doesn't say `ok` is no gate that passed (reference S8)."""
    places = (top.at(key), top.at("proof").at(key), last.at(key))
    gate = next((place for place in places if place.value is not None), None)
    return None if gate is None else gate.at("ok").required_flag()


def _rate(part: _Place) -> float | None:
    total = part.at("duty_breakdown").at("total_rate_pct").number()
    stated = part.at("duty_rate_pct").number()
    return stated if total is None else total


def _is_compliant(lever: _Place) -> bool:
    """Whether a lever's plausibility check ran and passed in every step (reference S10)."""
    check = lever.at("gate_results").at("plausibility")
    steps = [check] if isinstance(check.value, dict) else check.items(_OBJECT)
    passed = [step.at("ok").flag() is True for step in steps]
    return bool(passed) and all(passed)


def _claims(dossier: _Place, baseline: float | None, optimized: float | None) -> list[str]:
    found = []
    if _is_lower(optimized, baseline):
        found.append(f"optimised rate {optimized:g} % under {baseline:g} %")
    for mutation in dossier.at("mutations").items(_OBJECT):
        rate = mutation.at("expected_duty_rate_pct").number()
        if _is_lower(rate, baseline):
            found.append(f"mutation at {rate:g} % under {baseline:g} %")
    saved = dossier.at("savings_estimate")
    for place in (
        dossier.at("optimized").at("estimated_savings_per_unit"),
        saved.at("per_unit"),
        saved.at("annualized"),
    ):
        amount = place.number()
        if amount is not None and amount > 0:
            found.append(f"{place.path[-1]} {amount:g}")
    return found


def _is_lower(rate: float | None, than: float | None) -> bool:
    return rate is not None and than is not None and rate < than


def _firing(step: _Place) -> Firing:
    rule = step.at("rule")
    number = rule.value
    if number is not None and (type(number) is not int or not 0 <= number < _RULES):
        rule.refuse("an integer from 0 to 4294967295")
    return Firing(
        hook=step.at("hook").required_text(),
        decision=step.at("decision").required_text(),
        rule=number if isinstance(number, int) else None,
    )


def _texts(place: _Place) -> tuple[str, ...]:
    return tuple(item.text() or "" for item in place.items("a string"))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _said(value: object) -> str:
    """Say a value in a few words, however deep or large it is."""
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return "an integer of many digits"
    return format_value(value).encode("utf-8", "backslashreplace").decode()
