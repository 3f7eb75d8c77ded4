"""The worked example of docs/scoring.md is what the scorer gives, to the last term."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_packbench import score

PAGE = (Path(__file__).parents[2] / "docs" / "scoring.md").read_text("utf-8")
CASE = {
    "id": "example",
    "pack_id": "tariff",
    "case_type": "positive",
    "difficulty": "easy",
    "input": {"input": "goods"},
    "expected": {"preferred_hts": ["7013.99.9000"], "must_not_hts": ["7010.90"], "expected_accept": True},
    "notes": {"source": "synthetic"},
}


def answer(code: str) -> dict[str, Any]:
    passed = {"ok": True, "violations": []}
    iteration = {"i": 1, "accepted": True, "citation_gate_result": passed, "missing_evidence_gate_result": passed}
    baseline = {"hts_code": code, "duty_rate_pct": None}
    return {
        "status": "verified",
        "iterations": [iteration],
        "tariff_dossier": {"baseline": baseline, "gri_trace": {"sequence_ok": True, "steps": []}},
        "citation_gate_result": passed,
    }


def test_every_row_of_the_example() -> None:
    found = score(CASE, answer("7013.49.6090"))
    rows = re.findall(r"^\| `(\w+)` \| ([+-][\d.]+)? ?\| (.+) \|$", PAGE.partition("An example")[2], re.MULTILINE)
    assert [(term.name, term.points if term.effect == "add" else "") for term in found.terms] == [
        (name, points) for name, points, _ in rows
    ]
    assert found.score == pytest.approx(0.35)
    assert (found.verdict, found.match_depth) == ("failed", 4)


def test_the_forbidden_code_of_the_example() -> None:
    found = score(CASE, answer("7010.90.5055"))
    assert (found.score, found.verdict) == (0.0, "failed")
    assert "forbidden_code" in {term.name for term in found.terms}


def test_every_term_of_the_page_is_one_of_the_scorers() -> None:
    source = (Path(__file__).parents[2] / "pytest_packbench" / "packs" / "tariff" / "scoring.py").read_text("utf-8")
    named = re.findall(r"`([a-z_]+)`", PAGE.partition("Hard fails:")[0].partition("| step |")[2])
    terms = [name for name in named if name != "suite"]
    assert terms
    # a match term is made of the match's level
    assert [name for name in terms if f'"{name.removesuffix("_match")}' not in source] == []
