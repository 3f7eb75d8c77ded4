"""Render a comparison as one page of Markdown: the summary first, then the statistics, then the cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.analysis.comparison import SMALLER, THRESHOLD
from pytest_packbench.analysis.formatting import DASH, format_mean
from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.model.score import TOLERANCE
from pytest_packbench.reports.comparison_text import comparison_headline, sentences
from pytest_packbench.reports.tables import WIDE, escape_markdown, figure_sections, section

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.analysis.comparison import Change, ComparedCase, FailCondition, RunComparison
    from pytest_packbench.model.figure import Figure
    from pytest_packbench.model.run import Run

_HEAD = ("case", "before", "now", "score before", "score now", "change", "reason")
_REASON_COLUMN = 6
_REASON_WIDTH = 240
_MAX_SMALLER = 100
_WHERE = "each run's report.json lists all"
_KINDS = (
    ("new_failures", "New failures"),
    ("regressed", "Regressed"),
    ("improved", "Improved"),
    ("fixed", "Fixed"),
    ("verdict_changed", "Verdict changed"),
)


def diff_markdown(
    comparison: RunComparison,
    failed: Sequence[FailCondition] = (),
    notes: Sequence[str] = (),
    figures: Sequence[Figure] = (),
) -> str:
    """Render a comparison.

    Args:
        comparison: what was compared.
        failed: the conditions that are met and so fail it.
        notes: what a reader has to know about the runs, a sentence each.
        figures: what changed in the words of the pack.

    Returns:
        GitHub Flavored Markdown that ends with one line end.
    """
    parts = [
        f"# packbench: {escape_markdown(comparison.current.suite)} compared - {comparison_headline(comparison)}",
        *(f"**FAILED: the condition `{condition}` is met.**" for condition in failed),
        *(f"**Forced comparison: the runs differ in {escape_markdown(text)}.**" for text in comparison.differences),
        _runs(comparison),
        *figure_sections(figures),
        section("Counts", ("cases", "number"), _counts(comparison)),
        "\n".join(f"- {text}" for text in (*(escape_markdown(note, WIDE) for note in notes), *sentences(comparison))),
        *(_changes(title, comparison, kind) for kind, title in _KINDS),
        _changes(f"Smaller changes (less than {THRESHOLD:g})", comparison, SMALLER, _MAX_SMALLER),
        _only_in_one("Added", comparison.added, comparison.counts()["added"]),
        _only_in_one("Removed", comparison.removed, comparison.counts()["removed"]),
        _changes("Case or judge changed (excluded from the statistics)", comparison, "hash_changed"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _changes(title: str, comparison: RunComparison, kind: str, max_rows: int = MAX_ROWS) -> str:
    rows = comparison.changes[kind]
    widths = {_REASON_COLUMN: _REASON_WIDTH}
    cells = map(_change_cells, rows.first)
    return section(title, _HEAD, cells, widths=widths, max_rows=max_rows, total=rows.count, where=_WHERE)


def _only_in_one(title: str, cases: Iterable[ComparedCase], total: int) -> str:
    rows = ((case.test_id, case.verdict, format_mean(case.score)) for case in cases)
    return section(title, ("case", "verdict", "score"), rows, total=total, where=_WHERE)


def _runs(comparison: RunComparison) -> str:
    """Render a table of the two runs, without columns in which both have the default."""
    before, now = comparison.trials
    rows = [
        {"": "baseline", **_run_cells(comparison.baseline, comparison.cases[0], before)},
        {"": "current", **_run_cells(comparison.current, comparison.cases[1], now)},
    ]
    defaults = {"model": DASH, "guards": DASH, "trials": "1"}
    columns = [name for name in rows[0] if any(row[name] != defaults.get(name) for row in rows)]
    return section("Runs", columns, [tuple(row[name] for name in columns) for row in rows])


def _run_cells(run: Run, cases: int, trials: int) -> dict[str, str]:
    guards = run.settings.get("guards")
    return {
        "run": run.run_id,
        "finished": run.finished_at,
        "mode": run.mode,
        "target": run.target,
        "model": " / ".join(part for part in (run.backend, run.model) if part) or DASH,
        "guards": ", ".join(map(str, guards)) if isinstance(guards, list) and guards else DASH,
        "cases": str(cases),
        "trials": str(trials),
        "partial": run.partial or "no",
    }


def _counts(comparison: RunComparison) -> Iterable[tuple[str, str]]:
    counts = comparison.counts()
    yield "in both runs", str(comparison.common)
    for name in ("improved", "regressed", SMALLER, "new_failures", "fixed", "verdict_changed", "hash_changed"):
        yield name.replace("_", " "), str(counts[name])
    for label, name in (("quarantined now", "quarantined"), ("added", "added"), ("removed", "removed")):
        yield label, str(counts[name])


def _change_cells(change: Change) -> tuple[str, ...]:
    delta = change.delta
    return (
        change.test_id,
        change.before,
        change.after,
        format_mean(change.score_before),
        format_mean(change.score_after),
        DASH if delta is None else _format_delta(delta),
        "; ".join(change.reasons),
    )


def _format_delta(delta: float) -> str:
    """Return a change with as many decimals as are needed to show that it is not 0."""
    text = f"{delta:+.2f}"
    return text if abs(delta) <= TOLERANCE or float(text) else f"{delta:+.2g}"
