"""What a failing case says first."""

from __future__ import annotations

import pytest

from pytest_packbench.model.score import Score, Term
from pytest_packbench.reports.terminal import headline


@pytest.mark.parametrize(
    ("terms", "level", "named"),
    [
        ((Term(name="exact /queue", value=0.67), Term(name="exact /order")), None, " (exact /order)"),
        ((Term(name="exact /queue"), Term(name="exact /order")), None, " (exact /queue, exact /order)"),
        ((Term(name="exact /queue"), Term(name="forbidden", effect="zero")), None, " (forbidden)"),
        ((Term(name="near /price", value=0.3), Term(name="near /sum", value=0.3)), None, ""),
        ((Term(name="near /price", value=0.3),), None, " (near /price)"),
        ((Term(name="chapter_match", value=0.3), Term(name="bonus", value=0.05)), "chapter", " (chapter_match)"),
        ((Term(name="exact_match", value=1.0), Term(name="duty_delta", value=-0.1)), "exact", " (duty_delta)"),
        ((Term(name="note", effect="note"), Term(name="near /sum", value=0.3)), None, ""),
    ],
)
def test_the_first_line_names_what_the_case_lost(terms: tuple[Term, ...], level: str | None, named: str) -> None:
    score = Score(score=0.67, threshold=0.8, verdict="failed", terms=terms, match_level=level)
    assert headline(score) == f"score 0.67 < 0.80{named}"
