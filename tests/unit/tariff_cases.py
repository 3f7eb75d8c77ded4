"""Tariff cases and results for tests: a sound answer and a sound refusal, each with what a test changes."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.outcome import read
from pytest_packbench.packs.tariff.scoring import score

if TYPE_CHECKING:
    from pytest_packbench.model.score import Score, Term

Json = dict[str, Any]
RIGHT = "6404.11.9020"
BASE_RATE = 20.0


def case(case_type: str = "positive", *, tags: tuple[str, ...] = (), **expected: Any) -> Json:
    """A case that expects the answer `RIGHT`, or a refusal where `expected_accept` is false."""
    preferred = [RIGHT] if expected.get("expected_accept", True) else []
    return {
        "id": "case_of_a_test",
        "pack_id": "tariff",
        "case_type": case_type,
        "difficulty": "easy",
        "input": {"input": "A running shoe with a textile upper and a rubber sole."},
        "expected": {"preferred_hts": preferred, "expected_accept": True, **expected},
        "notes": {"source": "synthetic", "tags": list(tags)},
    }


def classification(code: str | None = RIGHT, rate: float | None = BASE_RATE, **changes: Any) -> Json:
    """A code with its rate, as baseline or optimised."""
    return {"hts_code": code, "duty_rate_pct": rate, "duty_breakdown": {"total_rate_pct": rate}, **changes}


def answer(code: str | None = RIGHT, **changes: Any) -> Json:
    """An accepted result whose gates passed, without any saving; keys with the prefix `dossier_` are set in its dossier."""
    inside = {key.removeprefix("dossier_"): changes.pop(key) for key in list(changes) if key.startswith("dossier_")}
    return {
        "status": "verified",
        "iterations": [{"i": 1, "accepted": True, "rejected_because": [], "sequence_violations": []}],
        "citation_gate_result": {"ok": True},
        "missing_evidence_gate_result": {"ok": True},
        "tariff_dossier": {
            "gri_trace": {"sequence_ok": True},
            "baseline": classification(code),
            "optimized": None,
            "what_if_candidates": [],
            **inside,
        },
        "lever_proof": {"selected_levers": []},
        **changes,
    }


def refusal(category: str | None = "insufficient_info", **changes: Any) -> Json:
    """A refusal with its category in the explicit field."""
    return {
        "status": "refused",
        "refusal": {"category": category, "reason": "a fact is missing", "questions": ["Which material?"]},
        "iterations": [{"i": 1, "accepted": False, "rejected_because": []}],
        "tariff_dossier": None,
        **changes,
    }


def levers(*steps: int, ok: bool = True) -> Json:
    """Savings levers of so many steps each, every step with its plausibility check."""
    one = {"gate_results": {"plausibility": [{"ok": ok}]}}
    return {"selected_levers": [{**deepcopy(one), "sequence": [{"label": "do it"}] * count} for count in steps]}


def rules(**config: Any) -> TariffSuiteConfig:
    """The rules of a suite."""
    return TariffSuiteConfig.model_validate({"pack": "tariff", **config})


def score_of(given: Json, result: Json, **config: Any) -> Score:
    """Score a result by the rules of a suite."""
    return score(TariffCase.model_validate(given), read(result), rules(**config))


def term(found: Score, name: str) -> Term:
    """Return the term with this name."""
    return next(term for term in found.terms if term.name == name)
