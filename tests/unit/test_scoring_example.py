"""The worked example of docs/scoring.md is what the scorer returns, to the last term."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.tariff_cases import answer, case, score_of

PAGE = (Path(__file__).parents[2] / "docs" / "scoring.md").read_text("utf-8")
SCORER = Path(__file__).parents[2] / "pytest_packbench" / "packs" / "tariff" / "scoring.py"
CASE = case(preferred_hts=["7013.99.9000"], must_not_hts=["7010.90"])


def test_the_example_has_the_terms_of_the_page() -> None:
    result = score_of(CASE, answer("7013.49.6090", None))
    rows = re.findall(r"^\| `(\w+)` \| ([+-][\d.]+)? ?\| (.+) \|$", PAGE.partition("An example")[2], re.MULTILINE)
    assert [(term.name, term.points if term.effect == "add" else "") for term in result.terms] == [
        (name, points) for name, points, _ in rows
    ]
    assert (result.score, result.verdict, result.match_depth) == (0.35, "failed", 4)


def test_the_forbidden_code_of_the_example_scores_zero() -> None:
    result = score_of(CASE, answer("7010.90.5055"))
    assert (result.score, result.verdict, result.terms[-1].name) == (0.0, "failed", "forbidden_code")


def test_every_term_of_the_page_is_one_of_the_scorers() -> None:
    source = SCORER.read_text("utf-8")
    named = re.findall(r"`([a-z_]+)`", PAGE.partition("Hard fails:")[0].partition("| step |")[2])
    terms = [name for name in named if name != "suite"]
    assert terms
    # a match term is made of the match's level
    assert [name for name in terms if f'"{name.removesuffix("_match")}' not in source] == []
