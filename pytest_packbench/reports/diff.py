"""A comparison as one page of Markdown: the answer first, then the cases, then the statistics in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.reports.figures import average
from pytest_packbench.reports.judgement import count
from pytest_packbench.reports.markdown import cell, section
from pytest_packbench.reports.paired import RESAMPLES, unseen
from pytest_packbench.reports.statistics import AUTHORED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.records.entry import Entry
    from pytest_packbench.records.stored import StoredRun
    from pytest_packbench.reports.comparison import Change, Comparison
    from pytest_packbench.reports.condition import Condition

_HEAD = ("case", "before", "now", "score before", "score now", "change", "why")
_LISTS = (
    ("new_failures", "New failures"),
    ("regressed", "Regressed"),
    ("improved", "Improved"),
    ("fixed", "Fixed"),
    ("verdict_changed", "Verdict changed"),
)
_CHANCE = 0.05


def diff_markdown(comparison: Comparison, failed: Sequence[Condition] = ()) -> str:
    """Write a comparison.

    Args:
        comparison: what was compared.
        failed: the conditions that hold and so fail it.

    Returns:
        GitHub Flavored Markdown, ended by one line end.
    """
    parts = [
        f"# packbench: {cell(comparison.current.run.suite)} compared - {answer(comparison)}",
        *(f"**FAILED by the condition `{condition}`.**" for condition in failed),
        *(f"**Compared by force; the runs differ in {cell(text)}.**" for text in comparison.differences),
        section("Runs", ("", "run", "finished", "mode", "target", "cases", "partial"), _runs(comparison)),
        section("Counts", ("what", "cases"), _counts(comparison)),
        "\n".join(f"- {sentence}" for sentence in sentences(comparison)),
        *(section(title, _HEAD, map(_row, comparison.of(kind)), widths={6: 240}) for kind, title in _LISTS),
        section("Added", ("case", "verdict", "score"), map(_entry_row, comparison.added)),
        section("Removed", ("case", "verdict", "score"), map(_entry_row, comparison.removed)),
        section("Case changed: left out of the statistics", _HEAD, map(_row, comparison.of("hash_changed"))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def answer(comparison: Comparison) -> str:
    """Say in a few words whether the change made it worse."""
    figures = comparison.counts()
    worse, better = int(figures["regressed"]), int(figures["improved"])
    failing, fixed = int(figures["new_failures"]), int(figures["fixed"])
    if not comparison.changes:
        return "no case in common"
    if not (worse or better or failing or fixed):
        moved = any(change.delta for change in comparison.changes if not change.hash_changed)
        return f"no score moved by {comparison.threshold:g} or more" if moved else "no score changed"
    return f"{worse} regressed, {better} improved, {failing} new failures, {fixed} fixed"


def sentences(comparison: Comparison) -> list[str]:
    """Say what the figures mean, for somebody who knows no statistics."""
    found = []
    mean = comparison.mean
    if mean is None:
        return ["No case has a score in both runs: nothing can be said about a change of score.", *_flips(comparison)]
    if _authored(comparison):
        # what somebody wrote is no sample of anything (design 7)
        told = f"Mean change over {count(mean.n, 'pair')}: {mean.mean:+.3f} points of score"
        flips = f"{comparison.lost} lost, {comparison.won} won"
        return [f"{told}; {flips}. The answers were authored: counts, no statistics."]
    if mean.low is None or mean.high is None:
        found.append(f"One case has a score in both runs; it changed by {mean.mean:+.3f} points.")
    else:
        how = f"bootstrap, {RESAMPLES} resamples, fixed seed" if mean.method == "bootstrap" else "normal approximation"
        found.append(
            f"Mean change over {count(mean.n, 'pair')}: {mean.mean:+.3f} points of score, "
            f"two-sided 95 % interval {mean.low:+.3f} to {mean.high:+.3f} ({how})."
        )
    if mean.detectable is not None:
        found.append(
            f"With this many pairs and this spread a true mean change of {mean.detectable:.3f} points "
            "is seen four times out of five (two-sided, 5 %)."
        )
    found += _flips(comparison)
    if not comparison.lost + comparison.won:
        bound = unseen(mean.n)
        found.append(
            f"No case flipped between passed and failed; up to {100 * (bound or 0):.1f} % of such cases could, "
            f"and {count(mean.n, 'case')} would not show it (one-sided exact 95 % bound)."
        )
    if comparison.current.run.mode == "fixture":
        found.append(
            "Fixture mode replays recorded answers: each change above comes from the pipeline, the scoring, a case "
            "or a recording, never from a model's mood."
        )
    return found


def _authored(comparison: Comparison) -> bool:
    judged = [entry for entry in comparison.current.entries if entry.counted]
    return bool(judged) and all(entry.llm_backend == AUTHORED for entry in judged)


def _flips(comparison: Comparison) -> list[str]:
    if not comparison.lost + comparison.won:
        return []
    word = "hardly chance" if comparison.p_flips < _CHANCE else "may be chance"
    told = f"Pass flips: {comparison.lost} lost, {comparison.won} won; exact McNemar p = {comparison.p_flips:.3f}"
    return [f"{told} ({word}, if the cases are a sample of many)."]


def _runs(comparison: Comparison) -> Iterable[tuple[str, ...]]:
    for name, stored in (("baseline", comparison.baseline), ("current", comparison.current)):
        yield (name, *_run_row(stored))


def _run_row(stored: StoredRun) -> tuple[str, ...]:
    run = stored.run
    return run.run_id, run.finished_at, run.mode, run.target, str(len(stored.entries)), run.partial or "no"


def _counts(comparison: Comparison) -> Iterable[tuple[str, str]]:
    figures = comparison.counts()
    yield "in both runs", str(len(comparison.changes))
    for name in ("improved", "regressed", "new_failures", "fixed", "verdict_changed", "hash_changed"):
        yield name.replace("_", " "), str(int(figures[name]))
    yield "added", str(len(comparison.added))
    yield "removed", str(len(comparison.removed))


def _row(change: Change) -> tuple[str, ...]:
    delta = change.delta
    return (
        change.test_id,
        change.before,
        change.after,
        average(change.score_before),
        average(change.score_after),
        "-" if delta is None else f"{delta:+.2f}",
        "; ".join(change.reasons),
    )


def _entry_row(entry: Entry) -> tuple[str, ...]:
    return entry.test_id, entry.verdict, average(entry.score)
