"""Results of the original harness as documents: scoring never sees its words.

`packbench import white-box` makes a document of each stored result; a target that calls the original does it with
`document`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from pytest_packbench.model.errors import first_problem
from pytest_packbench.packs.tariff.answer import TariffAnswer

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


class _Original(BaseModel):
    """What is read of the original, in the types that it writes; null is the same as an absent key."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Gate(_Original):
    ok: bool | None


_GateOrNone = Annotated[_Gate | None, BeforeValidator(lambda value: None if value == {} else value)]
"""A check of the original; an empty one did not run."""


class _Iteration(_Original):
    accepted: bool | None = None
    rejected_because: list[str] | None = None
    sequence_violations: list[str] | None = None
    citation_gate_result: _GateOrNone = None
    missing_evidence_gate_result: _GateOrNone = None


class _Breakdown(_Original):
    total_rate_pct: float | None = None


class _Part(_Original):
    hts_code: str | None = None
    duty_rate_pct: float | None = None
    duty_breakdown: _Breakdown | None = None
    # an amount in any form is a claim
    estimated_savings_per_unit: Any = None

    @property
    def rate(self) -> float | None:
        """The total rate, percent of value."""
        total = self.duty_breakdown.total_rate_pct if self.duty_breakdown else None
        return self.duty_rate_pct if total is None else total

    @property
    def document(self) -> dict[str, Any] | None:
        return {"hts_code": self.hts_code, "duty_rate_pct": self.rate} if self.hts_code else None


class _Order(_Original):
    sequence_ok: bool | None = None


class _Mutation(_Original):
    expected_duty_rate_pct: float | None = None


class _Dossier(_Original):
    gri_trace: _Order | None = None
    baseline: _Part | None = None
    optimized: _Part | None = None
    what_if_candidates: list[dict[str, Any]] | None = None
    mutations: list[_Mutation] | None = None
    savings_estimate: dict[str, Any] | None = None

    @property
    def parts(self) -> tuple[_Part, _Part]:
        """The goods as they are, and after the best change."""
        return self.baseline or _Part(), self.optimized or _Part()

    @property
    def delta(self) -> float:
        """The change of the rate by the best change, percentage points; 0 if either rate is missing."""
        before, after = (part.rate for part in self.parts)
        return 0.0 if before is None or after is None else after - before

    @property
    def claims_saving(self) -> bool:
        """Whether a saving is claimed, in any of the places that the original has for one."""
        before, best = self.parts
        rates = [each.expected_duty_rate_pct for each in self.mutations or ()]
        estimate = {**(self.savings_estimate or {}), "formula": None}
        return (
            bool(self.what_if_candidates)
            or self.delta < 0
            or any(rate is not None and before.rate is not None and rate < before.rate for rate in rates)
            or any(amount not in (None, 0) for amount in (best.estimated_savings_per_unit, *estimate.values()))
        )


class _LeverStep(_Original):
    label: str | None = None


class _Check(_Original):
    ok: bool | None = None


class _LeverGates(_Original):
    plausibility: list[_Check] | _Check | None = None


class _Lever(_Original):
    sequence: list[_LeverStep] | None = None
    gate_results: _LeverGates | None = None


class _Levers(_Original):
    selected_levers: list[_Lever] | None = None


class _Failure(_Original):
    kind: str
    message: str = ""


class _Result(_Original):
    """A result; one with a `refusal`, which only a document has, is none of the original."""

    status: str | None = None
    error: _Failure | None = None
    refusal: None = None
    # only the last one is read
    iterations: Annotated[
        list[_Iteration] | None, BeforeValidator(lambda value: value[-1:] if isinstance(value, list) else value)
    ] = None
    citation_gate_result: _GateOrNone = None
    missing_evidence_gate_result: _GateOrNone = None
    tariff_dossier: _Dossier | None = None
    lever_proof: _Levers | None = None


def document(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result of the original harness as a document of the tariff pack.

    Its last iteration decides, else its status, as in the original. A dossier that an iteration rejected is a proposal,
    and is left out of the refusal.

    Args:
        result: as the original writes it, `model_dump(mode="json")` of its result.

    Returns:
        The document, with the whole result in its `notes`; an `unreadable` one, which scores 0, if a value has another
        type than the original writes. What is a document already is returned as it is.
    """
    if _is_document(result):
        return result
    proof = result.get("proof") or {}
    # what is empty at the top stands in the proof
    filled = {key: value for key, value in result.items() if value not in (None, {}, [])}
    try:
        original = _Result.model_validate({**proof, **filled} if isinstance(proof, dict) else proof)
    except ValidationError as error:
        why = f"no result of the original harness: {first_problem(error, result)}"
        return {"unreadable": why, "notes": {"original": result}}
    return {**_document(original), "notes": {"original": result}}


def _is_document(result: dict[str, Any]) -> bool:
    try:
        return result.keys() <= TariffAnswer.model_fields.keys() and bool(TariffAnswer.model_validate(result))
    except ValidationError:
        return False


def _document(stated: _Result) -> dict[str, Any]:
    last = stated.iterations[-1] if stated.iterations else _Iteration(accepted=stated.status == "verified")
    reasons = last.rejected_because or ()
    if stated.error:
        return {"error": {"kind": stated.error.kind, "message": stated.error.message}}
    if UNREACHED in reasons and not last.accepted:
        return {"error": {"kind": UNREACHED, "message": "the model could not be reached"}}
    gates = {name: getattr(stated, name) or getattr(last, name) for name in _GATES}
    found = {name: {"ok": bool(gate.ok)} for name, gate in gates.items() if gate}
    dossier = stated.tariff_dossier or _Dossier()
    if not last.accepted:
        # a pipeline that only stopped has refused nothing
        is_refusal = bool(reasons) or stated.status == "refused"
        known = (REASONS[reason] for reason in reasons if reason in REASONS)
        category = next(known, "insufficient_info" if reasons else None)
        # what no iteration rejected is recommended
        beside = {} if stated.iterations else {"tariff_dossier": _dossier(dossier, [])}
        return {**found, "status": "refused", "refusal": {"category": category}, **beside} if is_refusal else {}
    in_order = False if last.sequence_violations else (dossier.gri_trace or _Order()).sequence_ok
    # a claimed saving is a lever, if none is listed
    levers = (stated.lever_proof and stated.lever_proof.selected_levers) or [_Lever()] * dossier.claims_saving
    return {
        **found,
        "status": "verified",
        "tariff_dossier": {"gri_trace": {"sequence_ok": in_order}, **_dossier(dossier, levers)},
    }


def _dossier(plain: _Dossier, levers: list[_Lever]) -> dict[str, Any]:
    base, best = (part.document for part in plain.parts)
    code = (best or base or {}).get("hts_code")
    return {
        "baseline": base,
        "optimized": best and {**best, "what_if_id": "lever_1"},
        "what_if_candidates": [
            _lever(number, each, code, plain.delta) for number, each in enumerate(levers, 1) if code
        ],
    }


def _lever(number: int, plain: _Lever, code: str, delta: float) -> dict[str, Any]:
    """Return a selected lever as a what-if, with proof if each of its plausibility checks passed."""
    checks = (plain.gate_results and plain.gate_results.plausibility) or []
    passed = [check.ok is True for check in ([checks] if isinstance(checks, _Check) else checks)]
    return {
        "id": f"lever_{number}",
        "change": "lever",
        "steps": [step.label or "step" for step in plain.sequence or ()],
        "expected_hts": code,
        "estimated_duty_delta": delta,
        "required_evidence": ["plausibility"] if passed and all(passed) else [],
    }
