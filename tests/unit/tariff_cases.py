"""Tariff cases and results as plain JSON: a case, an answer and a refusal, each with what a test changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.outcome import read
from pytest_packbench.packs.tariff.scoring import score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.score import Score

Json = dict[str, Any]
RIGHT = "6404.11.9020"
BASE_RATE = 20.0


def table(name: str) -> Json:
    """Read `data/<name>.yaml`."""
    rows: Json = yaml.safe_load((Path(__file__).parent / "data" / f"{name}.yaml").read_text("utf-8"))
    return rows


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


def classification(code: str | None = RIGHT, rate: object = BASE_RATE, **changes: Any) -> Json:
    """A code with its rate, as baseline or optimised."""
    return {"hts_code": code, "duty_rate_pct": rate, "duty_breakdown": {"total_rate_pct": rate}, **changes}


def answer(
    code: str | None = RIGHT,
    rate: object = BASE_RATE,
    *,
    optimized: Sequence[Any] = (),
    levers: Sequence[int] = (),
    plausible: bool = True,
    citations: bool | None = True,
    evidence: bool | None = True,
    in_order: bool | None = True,
    dossier: Json | None = None,
    **changes: Any,
) -> Json:
    """An accepted result.

    `optimized` is a code and its rate, `levers` the steps of each savings lever, and `citations`, `evidence` and `in_order`
    are what the gates and the trace say. `dossier` and `changes` replace keys of the dossier and of the result.
    """
    return {
        "status": "verified",
        "iterations": [{"i": 1, "accepted": True, "rejected_because": [], "sequence_violations": []}],
        "citation_gate_result": None if citations is None else {"ok": citations},
        "missing_evidence_gate_result": None if evidence is None else {"ok": evidence},
        "tariff_dossier": {
            "gri_trace": {"sequence_ok": in_order},
            "baseline": classification(code, rate),
            "optimized": classification(*optimized) if optimized else None,
            "what_if_candidates": [],
            **(dossier or {}),
        },
        "lever_proof": {
            "selected_levers": [
                {"sequence": [{"label": "do it"}] * count, "gate_results": {"plausibility": [{"ok": plausible}]}}
                for count in levers
            ]
        },
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


def result_of(row: Json) -> Json:
    """The result that a row of a data file describes: the arguments of `answer`, a refusal's category, or all of it."""
    if "raw" in row:
        raw: Json = row["raw"]
        return raw
    return refusal(row["refusal"]) if "refusal" in row else answer(**row)


def rules(**config: Any) -> TariffSuiteConfig:
    """The rules of a suite."""
    return TariffSuiteConfig.model_validate({"pack": "tariff", **config})


def score_of(plain: Json, result: Json, **config: Any) -> Score:
    """Score a result by the rules of a suite."""
    return score(TariffCase.model_validate(plain), read(result), rules(**config))
