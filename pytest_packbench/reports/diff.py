"""A comparison as one page of Markdown: the answer first, then the cases, then the statistics in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.analysis.comparison import SMALLER, THRESHOLD
from pytest_packbench.analysis.figures import DASH, TOLERANCE, average, count
from pytest_packbench.analysis.intervals import RESAMPLES, unseen
from pytest_packbench.analysis.listing import MOST_ROWS
from pytest_packbench.analysis.trials import facet_of, name_of, remark
from pytest_packbench.reports.tables import WIDE, cell, section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.analysis.comparison import Change, Condition, Ending, RunComparison
    from pytest_packbench.model.run import Run

_HEAD = ("case", "before", "now", "score before", "score now", "change", "why")
_MOST_SMALLER = 100
_REST = "each run's report.json holds all"
_LISTS = (
    ("new_failures", "New failures"),
    ("regressed", "Regressed"),
    ("improved", "Improved"),
    ("fixed", "Fixed"),
    ("verdict_changed", "Verdict changed"),
)
_CHANCE = 0.05


def diff_markdown(comparison: RunComparison, failed: Sequence[Condition] = (), notes: Sequence[str] = ()) -> str:
    """Write a comparison.

    Args:
        comparison: what was compared.
        failed: the conditions that hold and so fail it.
        notes: what a reader has to know of the runs, a sentence each.

    Returns:
        GitHub Flavored Markdown, ended by one line end.
    """
    parts = [
        f"# packbench: {cell(comparison.current.suite)} compared - {answer(comparison)}",
        *(f"**FAILED by the condition `{condition}`.**" for condition in failed),
        *(f"**Compared by force; the runs differ in {cell(text)}.**" for text in comparison.differences),
        _runs(comparison),
        section("Counts", ("what", "cases"), _counts(comparison)),
        "\n".join(f"- {sentence}" for sentence in (*(cell(note, WIDE) for note in notes), *sentences(comparison))),
        *(_changes(title, comparison, kind) for kind, title in _LISTS),
        _changes(f"Smaller changes: by less than {THRESHOLD:g}", comparison, SMALLER, _MOST_SMALLER),
        _only_in_one("Added", comparison.added, comparison.counts()["added"]),
        _only_in_one("Removed", comparison.removed, comparison.counts()["removed"]),
        _changes("Case or judge changed: left out of the statistics", comparison, "hash_changed"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _changes(title: str, comparison: RunComparison, kind: str, most: int = MOST_ROWS) -> str:
    found = comparison.changes[kind]
    return section(title, _HEAD, map(_row, found.first), widths={6: 240}, most=most, total=found.count, rest=_REST)


def _only_in_one(title: str, cases: Iterable[Ending], total: int) -> str:
    rows = ((one.test_id, one.verdict, average(one.score)) for one in cases)
    return section(title, ("case", "verdict", "score"), rows, total=total, rest=_REST)


def answer(comparison: RunComparison) -> str:
    """Say in a few words whether the change made it worse, and which cases can't tell."""
    return "; ".join(part for part in (_told(comparison), _beside(comparison)) if part)


def _told(comparison: RunComparison) -> str:
    counts = comparison.counts()
    worse, better, failing, fixed = (counts[name] for name in ("regressed", "improved", "new_failures", "fixed"))
    if not comparison.unchanged:
        return "no unchanged case in common" if comparison.common else "no case in common"
    if not (worse or better or failing or fixed):
        moved = counts[SMALLER]
        return f"no score moved by {THRESHOLD:g} or more, {moved} by less" if moved else "no score changed"
    return f"{worse} regressed, {better} improved, {count(failing, 'new failure')}, {fixed} fixed"


def _beside(comparison: RunComparison) -> str:
    """Count the cases that nothing else is said of: one that failed may have gone, or been edited until it passed."""
    counts = comparison.counts()
    numbers = {
        "removed": counts["removed"],
        "added": counts["added"],
        "quarantined now": counts["quarantined"],
        "changed and left out": comparison.left_out,
    }
    found = [(number, name) for name, number in numbers.items() if number]
    return ", ".join(
        f"{number if place else count(number, 'case')} {name}" for place, (number, name) in enumerate(found)
    )


def sentences(comparison: RunComparison) -> list[str]:
    """Say what the figures mean, for somebody who knows no statistics."""
    found = list(_trials(comparison))
    mean, facet = comparison.mean, facet_of(comparison.current)
    if mean is None:
        nothing = "No case has a score in both runs: nothing can be said about a change of score."
        return [*found, nothing, *_flips(comparison)]
    told = f"Mean change over {count(mean.n, 'pair')}: {mean.mean:+.3f} points of score"
    if comparison.authored:
        # what somebody wrote is no sample of anything (design 7)
        flips = f"{comparison.lost} lost, {comparison.won} won"
        return [*found, f"{told}; {flips}. The answers were authored: counts, no statistics."]
    if mean.n == 1:
        found.append(f"One case has a score in both runs; it changed by {mean.mean:+.3f} points.")
    elif mean.low is None or mean.high is None:
        found.append(f"{told}; all of one {name_of(facet, many=False)}, so no interval is given.")
    else:
        how = f"bootstrap, {RESAMPLES} resamples, fixed seed" if mean.method == "bootstrap" else "normal approximation"
        how += f", over {mean.clusters} {name_of(facet)}" if mean.clusters < mean.n else ""
        found.append(f"{told}, two-sided 95 % interval {mean.low:+.3f} to {mean.high:+.3f} ({how}).")
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
    if mean.clusters < mean.n:
        found.append(f"{remark(mean.n, mean.clusters, facet)}; p values and exact bounds take them as independent.")
    if comparison.current.mode == "fixture":
        found.append(
            "Fixture mode replays recorded answers: each change above comes from the pipeline, the scoring, a case "
            "or a recording, never from a model's mood."
        )
    return found


def _trials(comparison: RunComparison) -> Iterator[str]:
    before, now = comparison.trials
    if before == now == 1:
        return
    each = f"{count(now, 'trial')} a case" if before == now else f"{count(before, 'trial')} a case before, {now} now"
    told = "each case is one pair, with the mean score of its trials"
    other = "" if before == now else "; how often cases pass depends on their number, so look at the mean, not at flips"
    yield f"{each}: {told}{other}."


def _flips(comparison: RunComparison) -> list[str]:
    if not comparison.lost + comparison.won:
        return []
    word = "hardly chance" if comparison.p_flips < _CHANCE else "may be chance"
    told = f"Pass flips: {comparison.lost} lost, {comparison.won} won; exact McNemar p = {comparison.p_flips:.3f}"
    return [f"{told} ({word}, if the cases are a sample of many)."]


def _runs(comparison: RunComparison) -> str:
    """Put the runs side by side: what they are, and what of it neither of them has is left out."""
    before, now = comparison.trials
    rows = [
        {"": "baseline", **_run_row(comparison.baseline, comparison.cases[0], before)},
        {"": "current", **_run_row(comparison.current, comparison.cases[1], now)},
    ]
    optional = {"model": DASH, "guards": DASH, "trials": "1"}
    shown = [name for name in rows[0] if any(row[name] != optional.get(name) for row in rows)]
    return section("Runs", tuple(shown), [tuple(row[name] for name in shown) for row in rows])


def _run_row(run: Run, cases: int, trials: int) -> dict[str, str]:
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
    for name, figure in (("quarantined now", "quarantined"), ("added", "added"), ("removed", "removed")):
        yield name, str(counts[figure])


def _row(change: Change) -> tuple[str, ...]:
    delta = change.delta
    return (
        change.test_id,
        change.before,
        change.after,
        average(change.score_before),
        average(change.score_after),
        "-" if delta is None else _points(delta),
        "; ".join(change.reasons),
    )


def _points(delta: float) -> str:
    """Write a change with as many decimals as it takes to see that it is one."""
    text = f"{delta:+.2f}"
    return text if abs(delta) <= TOLERANCE or float(text) else f"{delta:+.2g}"
