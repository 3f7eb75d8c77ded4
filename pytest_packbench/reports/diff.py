"""Render a comparison as one page of Markdown: the summary first, then each case that changed, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.analysis.comparison import SMALLER, THRESHOLD
from pytest_packbench.analysis.formatting import DASH, format_change, format_mean
from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.reports.comparison_text import comparison_headline, sentences
from pytest_packbench.reports.tables import WIDE, escape_markdown, figure_sections, section
from pytest_packbench.runs.folder import DIFF

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.analysis.comparison import Change, ComparedCase, FailCondition, RunComparison
    from pytest_packbench.model.metric import Figure
    from pytest_packbench.model.run import Run

_HEAD = ("case", "before", "now", "score before", "score now", "change", "reason")
_WIDTHS = {1: 160, 2: 160, 6: 240}
_MAX_SMALLER = 100
_WHERE = "each run's report.json lists all"
_WORSE = {
    "new_failures": "New failures",
    "regressed": "Regressed",
    "quarantined": "Quarantined now (excluded from the statistics)",
}
_OTHER = {
    "verdict_changed": "Other changes of the verdict",
    "fixed": "Recovered",
    "improved": "Improved",
    SMALLER: f"Smaller changes (less than {THRESHOLD:g})",
    "hash_changed": "Case or judge changed (excluded from the statistics)",
}
_COUNTS = "A case may count in several rows. Below, it is listed once, where the change is worst."
# the kinds in the order of a summary, each in a word
_WORDS = {
    "new_failures": "new failure",
    "regressed": "regressed",
    "quarantined": "quarantined",
    "removed": "removed",
    # a failing case may have been edited until it passed
    "hash_changed": "changed and excluded",
    "verdict_changed": "verdict changed",
    "fixed": "recovered",
    "improved": "improved",
}


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
        "\n".join(f"- {text}" for text in (*(escape_markdown(note, WIDE) for note in notes), *sentences(comparison))),
        section("Counts", ("cases", "number"), _counts(comparison), intro=_COUNTS),
        *figure_sections(figures),
        *(_changes(title, comparison, kind) for kind, title in _WORSE.items()),
        _only_in_one("Removed", comparison.removed, comparison.counts()["removed"]),
        *(_changes(title, comparison, kind) for kind, title in _OTHER.items()),
        _only_in_one("Added", comparison.added, comparison.counts()["added"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def worst_changes(comparison: RunComparison, max_rows: int) -> str:
    """Return the cases that changed most, the worst first, for the summary of a run; smaller changes are left out.

    Args:
        comparison: with the baseline.
        max_rows: how many cases are rendered.
    """
    counts, rows = comparison.counts(), []
    for kind, word in _WORDS.items():
        if kind == "removed":
            rows += [
                (case.test_id, word, _answer(case.verdict, case.answer), DASH, DASH) for case in comparison.removed
            ]
        else:
            first = comparison.listed[kind].first[:max_rows]
            rows += [(change.test_id, word, *_both_answers(change), _score_change(change)) for change in first]
    total = sum(counts["removed"] if kind == "removed" else comparison.listed[kind].count for kind in _WORDS)
    head = ("case", "change", "before", "now", "score")
    return section(
        "Changed since the baseline", head, rows[:max_rows], widths=_WIDTHS, total=total, where=f"{DIFF} lists all"
    )


def _changes(title: str, comparison: RunComparison, kind: str) -> str:
    rows, max_rows = comparison.listed[kind], _MAX_SMALLER if kind == SMALLER else MAX_ROWS
    cells = map(_change_cells, rows.first)
    return section(
        title, _HEAD, cells, widths=_WIDTHS, max_rows=max_rows, total=rows.count, where=_WHERE, drop_empty=True
    )


def _only_in_one(title: str, cases: Iterable[ComparedCase], total: int) -> str:
    rows = ((case.test_id, _answer(case.verdict, case.answer), format_mean(case.score)) for case in cases)
    return section(title, ("case", "answer", "score"), rows, widths={1: 160}, total=total, where=_WHERE)


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
    """Yield the counts that are not 0."""
    counts = comparison.counts()
    yield "in both runs", str(comparison.common)
    names = {
        **{name: name.replace("_", " ") for name in ("new_failures", "regressed")},
        "fixed": "recovered",
        **{name: name.replace("_", " ") for name in ("improved", SMALLER)},
        "verdict_changed": "verdict changed",
        "hash_changed": "case or judge changed",
        "quarantined": "quarantined now",
        "removed": "removed",
        "added": "added",
    }
    yield from ((label, str(counts[name])) for name, label in names.items() if counts[name])


def _change_cells(change: Change) -> tuple[str, ...]:
    delta = change.delta
    return (
        change.test_id,
        *_both_answers(change),
        format_mean(change.score_before),
        format_mean(change.score_after),
        DASH if delta is None else format_change(delta),
        "; ".join(change.reasons) or DASH,
    )


def _both_answers(change: Change) -> tuple[str, str]:
    before, after = _answer(change.before, change.answer_before), _answer(change.after, change.answer_after)
    if None not in (change.answer_before, change.answer_after) and change.answer_before != change.answer_after:
        return before, after
    # the short answers do not show what changed
    return _with_mismatch(before, change.mismatch_before), _with_mismatch(after, change.mismatch_after)


def _with_mismatch(text: str, mismatch: str) -> str:
    return f"{text} ({mismatch})" if mismatch else text


def _answer(verdict: str, answer: str | None) -> str:
    return f"{verdict}: {answer}" if answer else verdict


def _score_change(change: Change) -> str:
    return f"{format_mean(change.score_before)} to {format_mean(change.score_after)}"
