"""Results of the original harness as documents, for `packbench import white-box`: scoring never sees its words."""

from __future__ import annotations

from typing import Any

REASONS = {
    **dict.fromkeys(("missing_evidence", "missing_evidence_gate_failed"), "missing_evidence"),
    "gri_sequence_violation": "ambiguous",
    "conflicts": "ambiguous",
    "unsupported": "ambiguous",
    "illegal_evasion_suggestion": "out_of_scope",
}
"""The category that a reason of the original means; any other reason means a lack of information."""
KNOWN = (*REASONS, "hts_or_questions_missing", "baseline_duty_missing", "insufficient_mutations")
KNOWN = (*KNOWN, "missing_best_option", "mutation_missing_evidence", "missing")
"""The reasons that have a category of their own; the first of them in a list decides."""
UNREACHED = "llm_unavailable"
_GATES = ("citation_gate_result", "missing_evidence_gate_result")
_LEVER = "lever_{}"


def document(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result of the original as a document, with all of it in `notes`; one that can't be converted as it is.

    Its last iteration decides, else its status, as in the original.
    """
    try:
        return {**_document(result), "notes": {"original": result}}
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError):
        return result


def _document(result: dict[str, Any]) -> dict[str, Any]:
    proof = result.get("proof") or {}
    stated = {**proof, **{key: value for key, value in result.items() if value}}
    last = (stated.get("iterations") or [{}])[-1]
    reasons = last.get("rejected_because") or ()
    accepted = last.get("accepted") if last else stated.get("status") == "verified"
    if UNREACHED in reasons and not accepted:
        return {"error": {"kind": UNREACHED, "message": "the model could not be reached"}}
    gates = {name: next((part[name] for part in (result, proof, last) if part.get(name)), None) for name in _GATES}
    found = {name: gate and {"ok": bool(gate["ok"])} for name, gate in gates.items()}
    if not accepted:
        # a pipeline that only stopped has refused nothing
        is_refusal = bool(reasons) or stated.get("status") == "refused"
        first = next((reason for reason in reasons if reason in KNOWN), "")
        category = REASONS.get(first, "insufficient_info" if reasons else None)
        return {**found, "status": "refused", "refusal": {"category": category}} if is_refusal else {}
    dossier = stated.get("tariff_dossier") or {}
    trace = dossier.get("gri_trace") or {}
    stated_order = trace.get("sequence_ok")
    in_order = False if last.get("sequence_violations") else None if stated_order is None else bool(stated_order)
    base, best = (_part(dossier.get(name) or {}) for name in ("baseline", "optimized"))
    code, delta = (best or base or {}).get("hts_code"), _delta(base, best)
    # a lower rate is a lever, if none is listed
    levers = (stated.get("lever_proof") or {}).get("selected_levers") or ([{}] if delta < 0 else [])
    return {
        **found,
        "status": "verified",
        "tariff_dossier": {
            "gri_trace": {"sequence_ok": in_order},
            "baseline": base,
            "optimized": best and {**best, "what_if_id": _LEVER.format(1)},
            "what_if_candidates": [_lever(number, each, code, delta) for number, each in enumerate(levers, 1) if code],
        },
    }


def _part(plain: dict[str, Any]) -> dict[str, Any] | None:
    if not plain.get("hts_code"):
        return None
    total = (plain.get("duty_breakdown") or {}).get("total_rate_pct")
    rate = plain.get("duty_rate_pct") if total is None else total
    return {"hts_code": plain["hts_code"], "duty_rate_pct": None if rate is None else float(rate)}


def _delta(base: dict[str, Any] | None, best: dict[str, Any] | None) -> float:
    """Return the optimised rate minus the baseline's, percentage points; 0 where either is not stated."""
    before, after = (part["duty_rate_pct"] if part else None for part in (base, best))
    return 0.0 if before is None or after is None else after - before


def _lever(number: int, plain: dict[str, Any], code: str, delta: float) -> dict[str, Any]:
    """Return a selected lever as a what-if, with proof if each of its plausibility checks passed."""
    checks = (plain.get("gate_results") or {}).get("plausibility") or []
    listed = [checks] if isinstance(checks, dict) else checks
    is_proved = bool(listed) and all(check.get("ok") is True for check in listed)
    return {
        "id": _LEVER.format(number),
        "change": "lever",
        "steps": [step.get("label") or "step" for step in plain.get("sequence") or ()],
        "expected_hts": code,
        "estimated_duty_delta": delta,
        "required_evidence": ["plausibility"] if is_proved else [],
    }
