"""Tariff answers for tests: a sound classification and a sound refusal, each with what a test changes.

Answers are JSON as a model returns them.
"""

from __future__ import annotations

from typing import Any

from pytest_packbench.packs.tariff.checks import CheckInput
from pytest_packbench.packs.tariff.dossier import Critique, Proposal
from pytest_packbench.packs.tariff.model import TariffInput

Json = dict[str, Any]
NORMAL_PATH = (
    ("1", "heading", "0712 0910", "0712"),
    ("6", "subheading", "0712.20 0712.90", "0712.90"),
    ("6", "line", "0712.90.40 0712.90.85", "0712.90.40"),
    ("6", "suffix", "0712.90.4020 0712.90.4040", "0712.90.4020"),
)


def step(rule: str, level: str, candidates: str, outcome: str, **changes: Any) -> Json:
    """One step; `candidates` separated by spaces, `outcome` is `tied`, `failed` or the code that was chosen."""
    decided = outcome not in {"tied", "failed"}
    return {
        "rule": rule,
        "level": level,
        "candidates": candidates.split(),
        "outcome": "decided" if decided else outcome,
        "chosen": outcome if decided else None,
        "reason": "dried, then ground",
        **changes,
    }


def trace(*steps: tuple[str, str, str, str]) -> Json:
    """A GRI trace; each step is a tuple of arguments of `step`."""
    return {"steps": [step(*one) for one in steps]}


def duty(base: float | None, *layers: float, total: float | None = None) -> Json:
    """A breakdown of base rate and layers, percent of value; the total defaults to their sum."""
    return {
        "base_rate_pct": base,
        "applied_additional_duties": [
            {"layer_id": f"layer_{number}", "pct": pct, "reason": "a duty on top"} for number, pct in enumerate(layers)
        ],
        "total_rate_pct": sum(layers, base) if base is not None and total is None else total,
    }


def classification(code: str = "0712.90.4020", rate: float | None = 29.8, **changes: Any) -> Json:
    """A baseline at an ad valorem rate, percent of value."""
    return {
        "hts_code": code,
        "duty_basis": "ad valorem",
        "duty_rate_pct": rate,
        "duty_breakdown": duty(rate),
        "rationale": "a dried vegetable, in powder",
        "confidence": 0.9,
        **changes,
    }


def what_if(name: str = "whole", **changes: Any) -> Json:
    """A lawful what-if with a delta of -9.8 percentage points."""
    return {
        "id": name,
        "kind": "process",
        "change": "import the cloves dried and whole",
        "steps": ["stop grinding before shipment"],
        "expected_hts": "0712.90.4040",
        "estimated_duty_delta": -9.8,
        "rationale": "not powdered",
        "required_evidence": ["production record"],
        **changes,
    }


def optimized(**changes: Any) -> Json:
    """The what-if as a classification, against the baseline of `classification`."""
    return {
        "what_if_id": "whole",
        "hts_code": "0712.90.4040",
        "duty_rate_pct": 20.0,
        "rationale": "not powdered",
        **changes,
    }


def refusal(category: str = "insufficient_info", **changes: Any) -> Json:
    """A refusal with a question."""
    return {"category": category, "reason": "the fibre is not told", "questions": ["Which fibre?"], **changes}


def answer(**changes: Any) -> Json:
    """A sound classification as a model answers it."""
    return {
        "decision": "classify",
        "product_summary": "garlic powder",
        "candidate_headings": ["0712", "0910"],
        "gri_trace": trace(*NORMAL_PATH),
        "baseline": classification(),
        **changes,
    }


def refusal_answer(**changes: Any) -> Json:
    """A sound refusal as a model answers it."""
    return {"decision": "refuse", "product_summary": "a powder", "refusal": refusal(), **changes}


def critique_answer(*conflicts: str, **changes: Any) -> Json:
    """A critique as a model answers it."""
    return {"conflicts": list(conflicts), "comment": "read against the schedule", **changes}


def evidence(text: str = "Dried cloves, ground to 80 mesh.", source: str = "lab_report") -> Json:
    """One document of the request."""
    return {"source_id": source, "title": "Report", "text": text}


def citation(quote: str, source: str = "lab_report") -> Json:
    """A claim with its quote."""
    return {"source_id": source, "claim": "it is a powder", "quote": quote}


def goods(*documents: Json, text: str = "garlic, dried and ground") -> TariffInput:
    """A verify request."""
    return TariffInput.model_validate({"input": text, "evidence": list(documents)})


def check_input(plain: Json, *documents: Json, critique: Json | None = None) -> CheckInput:
    """The input of the gates from a model's answers; the critique has no conflicts by default."""
    return CheckInput(
        request=goods(*documents),
        proposal=Proposal.model_validate(plain),
        critique=Critique.model_validate(critique or critique_answer()),
    )
