"""Results of the original harness as documents, for `packbench import white-box`: scoring never sees its words."""

from __future__ import annotations

from typing import Any

_INSUFFICIENT = ("hts_or_questions_missing", "baseline_duty_missing", "insufficient_mutations", "missing_best_option")
REASONS = {
    **dict.fromkeys((*_INSUFFICIENT, "mutation_missing_evidence", "missing"), "insufficient_info"),
    **dict.fromkeys(("missing_evidence", "missing_evidence_gate_failed"), "missing_evidence"),
    **dict.fromkeys(("gri_sequence_violation", "conflicts", "unsupported"), "ambiguous"),
    "illegal_evasion_suggestion": "out_of_scope",
}
"""The category that a reason of the original means; the first of these in a list decides.

Other reasons mean a lack of information.
"""
UNREACHED = "llm_unavailable"
_GATES = ("citation_gate_result", "missing_evidence_gate_result")


def document(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result of the original as a document, with all of it in `notes`; one that can't be converted as it is.

    Its last iteration decides, else its status, as in the original.
    """
    try:
        return {**_document(result), "notes": {"original": result}}
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, OverflowError):
        return result


def _document(result: dict[str, Any]) -> dict[str, Any]:
    stated = {**(result.get("proof") or {}), **{key: value for key, value in result.items() if value}}
    last = (stated.get("iterations") or [{}])[-1]
    reasons = last.get("rejected_because") or ()
    accepted = last.get("accepted") if last else stated.get("status") == "verified"
    if UNREACHED in reasons and not accepted:
        return {"error": {"kind": UNREACHED, "message": "the model could not be reached"}}
    gates = ((name, stated.get(name) or last.get(name)) for name in _GATES)
    found = {name: {"ok": bool(gate["ok"])} for name, gate in gates if gate}
    if not accepted:
        # a pipeline that only stopped has refused nothing
        is_refusal = bool(reasons) or stated.get("status") == "refused"
        known = (REASONS[reason] for reason in reasons if reason in REASONS)
        category = next(known, "insufficient_info" if reasons else None)
        return {**found, "status": "refused", "refusal": {"category": category}} if is_refusal else {}
    dossier = stated.get("tariff_dossier") or {}
    in_order = (dossier.get("gri_trace") or {}).get("sequence_ok")
    if last.get("sequence_violations"):
        in_order = False
    base, best = (_part(dossier.get(name) or {}) for name in ("baseline", "optimized"))
    code, delta = (best or base or {}).get("hts_code"), _delta(base, best)
    # a lower rate is a lever, if none is listed
    levers = (stated.get("lever_proof") or {}).get("selected_levers") or ([{}] if delta < 0 else [])
    return {
        **found,
        "status": "verified",
        "tariff_dossier": {
            "gri_trace": {"sequence_ok": None if in_order is None else bool(in_order)},
            "baseline": base,
            "optimized": best and {**best, "what_if_id": "lever_1"},
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
    passed = [check.get("ok") is True for check in ([checks] if isinstance(checks, dict) else checks)]
    return {
        "id": f"lever_{number}",
        "change": "lever",
        "steps": [step.get("label") or "step" for step in plain.get("sequence") or ()],
        "expected_hts": code,
        "estimated_duty_delta": delta,
        "required_evidence": ["plausibility"] if passed and all(passed) else [],
    }
