"""Render a comparison as one page of Markdown: the summary first, then the statistics, then the cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.analysis.comparison import SMALLER, THRESHOLD
from pytest_packbench.analysis.formatting import DASH, format_mean
from pytest_packbench.analysis.intervals import RESAMPLES, unseen_rate_bound
from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.analysis.trials import cluster_facet, dependence_note, facet_words
from pytest_packbench.model.score import TOLERANCE
from pytest_packbench.model.text import pluralize
from pytest_packbench.reports.tables import WIDE, escape_markdown, section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.analysis.comparison import Change, ComparedCase, FailCondition, RunComparison
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
_SIGNIFICANCE = 0.05


def diff_markdown(comparison: RunComparison, failed: Sequence[FailCondition] = (), notes: Sequence[str] = ()) -> str:
    """Render a comparison.

    Args:
        comparison: what was compared.
        failed: the conditions that are met and so fail it.
        notes: what a reader has to know about the runs, a sentence each.

    Returns:
        GitHub Flavored Markdown that ends with one line end.
    """
    parts = [
        f"# packbench: {escape_markdown(comparison.current.suite)} compared - {comparison_headline(comparison)}",
        *(f"**FAILED: the condition `{condition}` is met.**" for condition in failed),
        *(f"**Forced comparison: the runs differ in {escape_markdown(text)}.**" for text in comparison.differences),
        _runs(comparison),
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


def comparison_headline(comparison: RunComparison) -> str:
    """Return in a few words what got worse or better, and which cases are not compared."""
    return "; ".join(part for part in (_compared_cases(comparison), _other_cases(comparison)) if part)


def _compared_cases(comparison: RunComparison) -> str:
    counts = comparison.counts()
    worse, better, failing, fixed = (counts[name] for name in ("regressed", "improved", "new_failures", "fixed"))
    if not comparison.unchanged:
        return "no unchanged case in common" if comparison.common else "no case in common"
    if not (worse or better or failing or fixed):
        smaller = counts[SMALLER]
        return f"no score changed by {THRESHOLD:g} or more, {smaller} by less" if smaller else "no score changed"
    return f"{worse} regressed, {better} improved, {pluralize(failing, 'new failure')}, {fixed} fixed"


def _other_cases(comparison: RunComparison) -> str:
    """Count the cases that are not compared: a failing case may have been removed, or edited until it passed."""
    counts = comparison.counts()
    numbers = {
        "removed": counts["removed"],
        "added": counts["added"],
        "quarantined now": counts["quarantined"],
        "changed and excluded": comparison.left_out,
    }
    present = [(number, name) for name, number in numbers.items() if number]
    return ", ".join(
        f"{number if position else pluralize(number, 'case')} {name}" for position, (number, name) in enumerate(present)
    )


def sentences(comparison: RunComparison) -> list[str]:
    """Return sentences that explain the statistics."""
    texts = list(_trials(comparison))
    mean, facet = comparison.mean, cluster_facet(comparison.current)
    if mean is None:
        unknown = "No case has a score in both runs, so the change in score is unknown."
        return [*texts, unknown, *_flips(comparison)]
    change = f"Mean change in score over {pluralize(mean.n, 'pair')}: {mean.mean:+.3f}"
    if comparison.authored:
        # authored answers are no random sample, so that statistics do not apply
        flips = f"pass flips: {comparison.lost} lost, {comparison.won} won"
        return [*texts, f"{change}; {flips}. The answers were authored, so only counts are shown, no statistics."]
    if mean.n == 1:
        texts.append(f"Only one case has a score in both runs; its score changed by {mean.mean:+.3f}.")
    elif mean.low is None or mean.high is None:
        texts.append(f"{change}; all pairs share one {facet_words(facet)}, so no interval is shown.")
    else:
        how = f"bootstrap, {RESAMPLES} resamples, fixed seed" if mean.method == "bootstrap" else "normal approximation"
        how += f", clustered by {pluralize(mean.clusters, facet_words(facet))}" if mean.clusters < mean.n else ""
        texts.append(f"{change}, two-sided 95 % confidence interval {mean.low:+.3f} to {mean.high:+.3f} ({how}).")
    if mean.detectable is not None:
        texts.append(
            f"At this number of pairs and this spread, a true mean change of {mean.detectable:.3f} is detected with "
            "80 % power (two-sided, 5 % level)."
        )
    texts += _flips(comparison)
    if not comparison.lost + comparison.won:
        bound = unseen_rate_bound(mean.n)
        texts.append(
            f"No case flipped between passed and failed; exact one-sided 95 % upper bound on the flip rate: "
            f"{100 * (bound or 0):.1f} % ({pluralize(mean.n, 'case')})."
        )
    if mean.clusters < mean.n:
        note = dependence_note(mean.n, mean.clusters, facet)
        texts.append(f"{note}; p values and exact bounds assume independent cases.")
    if comparison.current.mode == "fixture":
        texts.append(
            "Fixture mode replays recorded answers: each change above comes from the pipeline, the scoring, a case "
            "or a recording, not from variation between the model's answers."
        )
    return texts


def _trials(comparison: RunComparison) -> Iterator[str]:
    before, now = comparison.trials
    if before == now == 1:
        return
    trials = f"{pluralize(now, 'trial')} per case"
    if before != now:
        trials = f"{pluralize(before, 'trial')} per case before, {now} now"
    text = f"{trials}: each case is one pair, with the mean score of its trials"
    advice = "" if before == now else "; pass flips depend on the number of trials, so compare means"
    yield f"{text}{advice}."


def _flips(comparison: RunComparison) -> list[str]:
    if not comparison.lost + comparison.won:
        return []
    chance = "unlikely to be chance" if comparison.p_flips < _SIGNIFICANCE else "may be chance"
    flips = f"Pass flips: {comparison.lost} lost, {comparison.won} won"
    return [f"{flips}; exact McNemar test p = {comparison.p_flips:.3f} ({chance}, if the cases are a random sample)."]


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
