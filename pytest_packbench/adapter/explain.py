"""What a case that doesn't pass says for itself: plain text, fit for any terminal and for JUnit."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from pytest_packbench.engine.entries import scored
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.adapter.collect import CaseItem
    from pytest_packbench.engine.attempt import Attempt, Failure
    from pytest_packbench.engine.protocols.pack import Comparison
    from pytest_packbench.engine.protocols.score import Score


def headline(score: Score) -> str:
    """Say in one line how the case did: the first line of a failure is what summaries show."""
    costs = [term.name for term in score.terms if term.effect == "zero" or (term.effect == "add" and term.value < 0)]
    names = costs or [term.name for term in score.terms[:1]]
    why = f" ({', '.join(names)})" if names else ""
    return f"{scored(score)}{why}"


def failure_text(item: CaseItem, attempt: Attempt, comparisons: Sequence[Comparison], target: str) -> str:
    """Explain a case whose score is under its threshold: expected, actual, terms, where to look, how to re-run."""
    score = attempt.score
    if score is None:
        raise ValueError("a failing case has a score")
    return printable(
        "\n".join(
            [
                headline(score),
                "",
                *_table(("", "expected", "actual"), [(row.what, row.expected, row.actual) for row in comparisons]),
                "",
                *_table(("points", "term", ""), [(term.points, term.name, term.detail) for term in score.terms]),
                f"{score.score:.2f}  score (threshold {score.threshold:.2f})",
                "",
                *_whereabouts(item, attempt, target),
            ]
        )
    )


def error_text(item: CaseItem, failure: Failure, target: str) -> str:
    """Explain a case that broke: one line, the user's own frames, how to re-run."""
    frames = ["", "in the code under test:", *(f"  {frame}" for frame in failure.details)] if failure.details else []
    return printable("\n".join([failure.message, *frames, "", f"re-run: {rerun_command(item, target)}"]))


def rerun_command(item: CaseItem, target: str) -> str:
    """Give the command that runs this case alone, from where pytest was called."""
    where = os.path.relpath(item.path, item.config.invocation_params.dir)
    if where.startswith(os.pardir) and item.suite.bundled:
        where = str(item.path)
    option = f" --packbench-target={shlex.quote(target)}" if target else ""
    return f"pytest {shlex.quote(f'{where}::{item.name}')}{option}"


def _whereabouts(item: CaseItem, attempt: Attempt, target: str) -> list[str]:
    cassette = item.suite.cassette_path(item.name)
    played = f"{attempt.calls} of its exchanges replayed" if attempt.cassette is not None else "none"
    shown = os.path.relpath(cassette, item.config.invocation_params.dir) if attempt.cassette is not None else ""
    return [
        f"case:     {item.file_id}",
        f"cassette: {shown} ({played})" if shown else f"cassette: {played}",
        f"re-run:   {rerun_command(item, target)}",
    ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    everything = [head, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in everything
        if any(row)
    ]
