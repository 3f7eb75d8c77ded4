"""Lines of the terminal report: what a failed case lost, what a live run used, and counts with their nouns."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_packbench.model.score import Score, Term
from pytest_packbench.model.text import pluralize
from pytest_packbench.reports.terminal import headline, spent_text

OWN_CALLS = "used: no model calls through packbench; "


@pytest.mark.parametrize(
    ("terms", "level", "named"),
    [
        ((Term(name="exact /queue", value=0.67), Term(name="exact /order")), None, " (exact /order)"),
        ((Term(name="exact /queue"), Term(name="forbidden", effect="zero")), None, " (forbidden)"),
        ((Term(name="near /price", value=0.3), Term(name="near /sum", value=0.3)), None, ""),
        ((Term(name="near /price", value=0.3),), None, " (near /price)"),
        ((Term(name="chapter_match", value=0.3), Term(name="bonus", value=0.05)), "chapter", " (chapter_match)"),
        ((Term(name="exact_match", value=1.0), Term(name="duty_delta", value=-0.1)), "exact", " (duty_delta)"),
        ((Term(name="note", effect="note"), Term(name="near /sum", value=0.3)), None, ""),
    ],
)
def test_the_headline_of_a_failed_case_names_the_terms_that_it_lost(
    terms: tuple[Term, ...], level: str | None, named: str
) -> None:
    score = Score(score=0.67, threshold=0.8, verdict="failed", terms=terms, match_level=level)
    assert headline(score) == f"score 0.67 < 0.80{named}"


@pytest.mark.parametrize(
    ("spent", "text"),
    [
        ({"uncounted": 1}, f"{OWN_CALLS}1 answer of the target without a token count, cost unknown"),
        (
            {"uncounted": 2, "tokens": 1200},
            f"{OWN_CALLS}2 answers of the target without a token count, 1,200 tokens reported with others, cost unknown",
        ),
        ({"calls": 2, "uncounted": 1}, "used: 2 model calls, 0 tokens (1 call without a token count), 0.0000 USD"),
    ],
)
def test_the_usage_of_a_run_tells_calls_of_packbench_from_the_targets_own(spent: dict[str, Any], text: str) -> None:
    nothing = {"calls": 0, "tokens": 0, "uncounted": 0, "cost": 0.0, "currency": "USD"}
    assert spent_text(nothing | spent) == text


def test_a_count_agrees_with_its_noun() -> None:
    texts = ["0 cases", "1 case", "2 cases", "1,000 cases", "-1 cases"]
    assert [pluralize(number, "case") for number in (0, 1, 2, 1_000, -1)] == texts
