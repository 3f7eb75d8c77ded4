"""What a case that doesn't pass says for itself: plain text, fit for any terminal and for JUnit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.model.score import scored
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.model.pack import Comparison
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.score import Score


def headline(score: Score) -> str:
    """Say in one line how the case did: the first line of a failure is what summaries show.

    It names the terms that cost points, else those that gave none. Else the first term tells only where it is how the
    answer matched, or stands alone: of several criteria any may be the one that gave too little.
    """
    terms = score.terms
    costs = [term.name for term in terms if term.effect == "zero" or (term.effect == "add" and term.value < 0)]
    names = costs or [term.name for term in terms if term.effect == "add" and not term.value]
    if not names and (score.match_level is not None or len(terms) == 1):
        names = [term.name for term in terms[:1]]
    why = f" ({', '.join(names)})" if names else ""
    return f"{scored(score)}{why}"


def trials_lines(trials: Sequence[CaseResult], verdict: CaseResult, rule: str | dict[str, int]) -> list[str]:
    """Say how several trials of a case did, before the worst of them is shown.

    Args:
        trials: their results.
        verdict: the case's over them.
        rule: how that is made of them.
    """
    passed = sum(one.verdict == "passed" for one in trials)
    named = rule if isinstance(rule, str) else f"at least {rule['at_least']}"
    mean = "no mean"
    if verdict.score is not None:
        mean = f"mean score {verdict.score:.2f}, threshold {verdict.threshold:.2f}"
    return [
        f"{passed} of {len(trials)} trials passed, {mean} (rule: {named})",
        "scores: " + ", ".join("-" if one.score is None else f"{one.score:.2f}" for one in trials),
        "",
        "the worst trial:",
    ]


def failure_text(head: Sequence[str], score: Score, rows: Iterable[Comparison], where: Sequence[str]) -> str:
    """Explain a case under its threshold: expected, actual, terms, where to look, how to re-run.

    Args:
        head: the first lines.
        score: the score that is too low.
        rows: expected against actual.
        where: the last lines.
    """
    return printable(
        "\n".join(
            [
                *head,
                "",
                *_table(("", "expected", "actual"), [(row.what, row.expected, row.actual) for row in rows]),
                "",
                *_table(("points", "term", ""), [(term.points, term.name, term.detail) for term in score.terms]),
                f"{score.score:.2f}  score (threshold {score.threshold:.2f})",
                "",
                *where,
            ]
        )
    )


def error_text(message: str, frames: Sequence[str], where: Sequence[str]) -> str:
    """Explain a case that broke: one line, the user's own frames of the traceback, how to re-run."""
    shown = ["", "in the code under test:", *(f"  {frame}" for frame in frames)] if frames else []
    return printable("\n".join([message, *shown, "", *where]))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    everything = [head, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in everything
        if any(row)
    ]
