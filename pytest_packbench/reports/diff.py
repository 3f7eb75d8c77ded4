"""What a comparison of two runs says: sentences with its statistics, and each case that changed, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.analysis.changes import SMALLER, THRESHOLD
from pytest_packbench.analysis.counting import cluster_facet, dependence_note, facet_words
from pytest_packbench.analysis.statistics import format_change, format_mean, unseen_rate_bound
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.run import DIFF
from pytest_packbench.reports.blocks import Points, Section, Table, Text, figure_tables, markdown, minute, verdict_cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.analysis.changes import BaselineOutcome, Change, Comparison, FailCondition
    from pytest_packbench.analysis.statistics import PairedMean
    from pytest_packbench.model.result import Result
    from pytest_packbench.model.suite import Figure
    from pytest_packbench.reports.blocks import Block, Row


_SIGNIFICANCE = 0.05


# characters of an answer that a row has
_MAX_ANSWER = 400


_SMALLEST_P = 0.001


_WHERE = "each run's report.json lists all"


KINDS = {
    "new_failures": ("new failure", "New failures"),
    "regressed": ("regressed", "Regressed"),
    "quarantined": ("quarantined now", "Quarantined now (excluded from the statistics)"),
    "removed": ("removed", "Removed"),
    # a failing case may have been edited until it passed
    "hash_changed": ("changed and excluded", "Case or judge changed (excluded from the statistics)"),
    "verdict_changed": ("verdict changed", "Other changes of the verdict"),
    "fixed": ("recovered", "Recovered"),
    "improved": ("improved", "Improved"),
    "added": ("added", "Added"),
    SMALLER: ("", f"Smaller changes (less than {THRESHOLD:g})"),
}
"""The kinds of changes, the worst first: the word for a case, empty if it does not count as changed, and a title."""


NOT_COMPARED = ("removed", "quarantined", "hash_changed", "added")


_COUNTS = "A case may count in several rows. Below, it is listed once, where the change is worst."


def diff_markdown(
    comparison: Comparison,
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
    counts = comparison.counts()
    numbers = [(title, counts[kind]) for kind, (_, title) in KINDS.items() if counts[kind]]
    blocks: list[Block] = [
        *(Text(f"FAILED: the condition {condition} is met.", strong=True) for condition in failed),
        *(Text(f"Forced comparison: the runs differ in {each}.", strong=True) for each in comparison.differences),
        _runs(comparison),
        Points([*notes, *sentences(comparison)]),
        Section(
            "Counts",
            [Text(_COUNTS), Table("", ("cases", "number"), [("In both runs", comparison.common), *numbers])],
        ),
        *figure_tables(figures, defined=True),
        *(changes_table(title, comparison, [kind]) for kind, (_, title) in KINDS.items()),
    ]
    title = f"packbench: {comparison.current.suite} compared - {comparison_headline(comparison)}"
    return markdown([Section(title, blocks)]) + "\n"


def worst_changes(comparison: Comparison, max_rows: int) -> Table:
    """Return the cases that changed most, the worst first, for the summary of a run; smaller changes are left out.

    Args:
        comparison: with the baseline.
        max_rows: how many cases are listed.
    """
    kinds = [kind for kind in KINDS if kind not in {"added", SMALLER}]
    table = changes_table("Changed since the baseline", comparison, kinds)
    return table._replace(rows=table.rows[:max_rows], where=f"{DIFF} lists all")


def changes_table(title: str, comparison: Comparison, kinds: Sequence[str]) -> Table:
    """Return the first cases that a comparison lists under some kinds, each case under one, the worst first.

    Args:
        title: what the table shows.
        comparison: the comparison.
        kinds: these, of `KINDS`; if there are several, each row says its own.
    """
    rows: list[Row] = []
    total = 0
    for kind in kinds:
        word = KINDS[kind][0] if len(kinds) > 1 else ""
        if kind in comparison.listed:
            listed = comparison.listed[kind]
            rows += [_changed_row(change, word, comparison.reasons(change)) for change in listed.first]
            total += listed.count
        else:
            ends = comparison.removed if kind == "removed" else comparison.added
            rows += [_row_of_one_run(case, word, is_before=kind == "removed") for case in ends.first]
            total += ends.count
    return Table(title, ("case", "change", "before", "now", "score", "why"), rows, total, _WHERE)


def _row_of_one_run(case: Result, word: str, *, is_before: bool) -> Row:
    end = verdict_cell(case.score.verdict, _answer(case) or "")
    return case.case.test_id, word, *((end, None) if is_before else (None, end)), format_mean(case.score.score), None


def _answer(case: Result) -> str | None:
    return None if case.score.answer is None else case.score.answer[:_MAX_ANSWER]


def _mismatch(case: Result) -> str:
    """Return of a failure what was expected, and what was answered if the short answer is something else, in words."""
    score = case.score
    if not (score.expected_text and score.actual_text):
        return ""
    actual = "" if score.actual_text == score.answer else f"got {score.actual_text[:_MAX_ANSWER]}, "
    return f"{actual}expected {score.expected_text[:_MAX_ANSWER]}"


def _changed_row(change: Change, word: str, reasons: Sequence[str]) -> Row:
    before, now = map(_answer, change)
    lacking = ["", ""]
    if before is None or now is None or before == now:
        # the short answers do not show what changed
        lacking = list(map(_mismatch, change))
    said = [
        f"{answer or ''} ({mismatch})".strip() if mismatch else answer or ""
        for answer, mismatch in zip((before, now), lacking, strict=True)
    ]
    score = f"{format_mean(change.scores[0])} to {format_mean(change.scores[1])}"
    delta = "" if change.delta is None else f" ({format_change(change.delta)})"
    return (
        change.test_id,
        word,
        verdict_cell(change.verdicts[0], said[0]),
        verdict_cell(change.verdicts[1], said[1]),
        f"{score}{delta}",
        "; ".join(reasons),
    )


def _runs(comparison: Comparison) -> Table:
    """Return a table of the two runs."""
    fields = ("run_id", "finished_at", "mode", "target", "backend", "model", "partial")
    rows = [
        (
            name,
            *(getattr(run, field) for field in fields),
            ", ".join(map(str, run.settings.get("guards", ()))),
            cases,
            trials if max(comparison.trials) > 1 else None,
        )
        for name, run, cases, trials in zip(
            ("baseline", "current"),
            (comparison.baseline, comparison.current),
            comparison.cases,
            comparison.trials,
            strict=True,
        )
    ]
    return Table("Runs", ("", *(field.replace("_", " ") for field in fields), "guards", "cases", "trials"), rows)


def about_comparison(outcome: BaselineOutcome) -> Iterator[Text]:
    """Yield what came of comparing a run with its baseline, then what limits or fails the comparison.

    Yields:
        Texts that begin with no capital letter and end without a period, with the sign and the colour of each.
    """
    comparison = outcome.compared
    if comparison is None:
        sign, color = ("✗ not compared", "fail") if outcome.fails_unseen else ("\u2013 not compared", "warn")
        yield Text(outcome.problem, sign=sign, color=color)
    else:
        baseline = comparison.baseline
        finished = f" of {minute(baseline.finished_at)}" if baseline.finished_at else ""
        yield Text(f"{comparison_headline(comparison)} since run {baseline.run_id}{finished}")
        for text in comparison.differences:
            yield Text(f"the runs differ in {text}", sign="! forced comparison", color="warn")
    if outcome.warning:
        yield Text(outcome.warning, sign="! note", color="warn")
    if not outcome.fails_unseen:
        yield from (Text(text, sign="✗ failed", color="fail") for text in outcome.failures)


def baseline_lines(outcome: BaselineOutcome) -> list[str]:
    """Return the same, and how much the scores changed, as lines of plain text with names from cases and files."""
    first, *others = (f"{said.text}{': FAIL' * (said.color == 'fail')}" for said in about_comparison(outcome))
    if outcome.compared is None:
        return [first, *others]
    return [f"{first} ({DIFF})", *sentences(outcome.compared)[:1], *others]


def comparison_headline(comparison: Comparison) -> str:
    """Return in a few words what got worse or better, each case once, and which cases are not compared."""
    return "; ".join(part for part in (_compared_cases(comparison), _other_cases(comparison)) if part)


def _compared_cases(comparison: Comparison) -> str:
    if not comparison.unchanged:
        return "no unchanged case in common" if comparison.common else "no case in common"
    counts = {kind: rows.count for kind, rows in comparison.listed.items()}
    failing, recovered = counts["new_failures"], counts["fixed"]
    flips = pluralize(failing, "new failure") if failing else "no new failure"
    flips += f" ({comparison.unscored} without a score)" if comparison.unscored else ""
    flips += f", {recovered} recovered" if recovered else ""
    other = "other " if failing or recovered else ""
    scores = _counted(f"{other}score", lower=counts["regressed"], higher=counts["improved"])
    verdicts = _counted(f"{other}verdict", changed=counts["verdict_changed"])
    others = ", ".join(filter(None, (scores, verdicts)))
    if failing or recovered or others:
        return f"{flips}; {others}" if others else flips
    smaller = counts[SMALLER]
    return f"no score changed by {THRESHOLD:g} or more, {smaller} by less" if smaller else "no score changed"


def _other_cases(comparison: Comparison) -> str:
    """Count the cases that are not compared: a failing case may have been removed, or edited until it passed."""
    counts = {**comparison.counts(), "hash_changed": comparison.left_out}
    return _counted("case", **{KINDS[kind][0]: counts[kind] for kind in NOT_COMPARED})


def _counted(noun: str, **numbers: int) -> str:
    """Return numbers of what was done to something, without zeros: `2 cases removed, 1 added`."""
    present = [(number, done) for done, number in numbers.items() if number]
    return ", ".join(
        f"{number if position else pluralize(number, noun)} {done}" for position, (number, done) in enumerate(present)
    )


def sentences(comparison: Comparison) -> list[str]:
    """Return sentences that explain the statistics."""
    texts = list(trials_sentences(comparison))
    mean, facet = comparison.mean, cluster_facet(comparison.current)
    if mean is None:
        unknown = "No case has a score in both runs, so the change in score is unknown."
        return [*texts, unknown, *_flips(comparison)]
    change = f"Mean change in score over {pluralize(mean.n, 'pair')}: {format_change(mean.mean, 3)}"
    if comparison.authored:
        # authored answers are no random sample, so that statistics do not apply
        flips = f"pass flips: {comparison.lost} lost, {comparison.won} won"
        return [*texts, f"{change}; {flips}. The answers were authored, so only counts are shown, no statistics."]
    if mean.n == 1:
        texts.append(f"Only one case has a score in both runs; its score changed by {format_change(mean.mean, 3)}.")
    elif mean.low is None or mean.high is None:
        texts.append(f"{change}; all pairs share one {facet_words(facet)}, so no interval is shown.")
    else:
        texts.append(f"{change}{_interval(mean, mean.low, mean.high, facet_words(facet))}.")
    if mean.detectable is not None:
        texts.append(
            f"At this number of pairs and this spread, a true mean change of "
            f"{format_change(mean.detectable, 3).removeprefix('+')} is detected with 80 % power (two-sided, 5 % level)."
        )
    texts += _flips(comparison)
    if not comparison.lost + comparison.won and (mean.method != "exact" or mean.mean):
        bound = unseen_rate_bound(mean.n)
        texts.append(
            f"No case flipped between passed and failed; exact one-sided 95 % upper bound on the flip rate: "
            f"{100 * (bound or 0):.1f} % ({pluralize(mean.n, 'case')})."
        )
    if mean.clusters < mean.n:
        note = dependence_note(mean.n, mean.clusters, facet)
        texts.append(f"{note}; p values and bounds on flips assume independent cases.")
    if comparison.current.mode == "fixture":
        texts.append(
            "Fixture mode replays recorded answers: each change above comes from the pipeline, the scoring, a case "
            "or a recording, not from variation between the model's answers."
        )
    return texts


def _interval(mean: PairedMean, low: float, high: float, facet: str) -> str:
    """Say how far chance may have moved a mean change; `facet` is what pairs of one cluster share, in words."""
    ends = f"{format_change(low, 3)} to {format_change(high, 3)}"
    clustered = mean.clusters < mean.n
    if mean.method != "exact":
        by = f", clustered by {pluralize(mean.clusters, facet)}" if clustered else ""
        return f", two-sided 95 % confidence interval {ends} (Student's t{by})"
    cases = f"groups by {facet}" if clustered else "cases"
    bound = f"at most {100 * (unseen_rate_bound(mean.clusters) or 0):.1f} % of {cases}"
    seen = "All changed alike" if mean.mean else "No mean changed" if clustered else "No score changed"
    other = "may change otherwise" if mean.mean else "may have changed"
    return f". {seen}: {bound} {other} (exact one-sided 95 % bound), a mean change of {ends}"


def trials_sentences(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence on the trials of the cases, if any of the runs has several."""
    before, now = comparison.trials
    if before == now == 1:
        return
    trials = f"{pluralize(now, 'trial')} per case"
    if before != now:
        trials = f"{pluralize(before, 'trial')} per case before, {now} now"
    text = f"{trials}: each case is one pair, with the mean score of its trials"
    advice = "" if before == now else "; pass flips depend on the number of trials, so compare means"
    yield f"{text}{advice}."


def _flips(comparison: Comparison) -> list[str]:
    if not comparison.lost + comparison.won:
        return []
    chance = "unlikely to be chance" if comparison.p_flips < _SIGNIFICANCE else "may be chance"
    flips = f"Pass flips: {comparison.lost} lost, {comparison.won} won"
    return [f"{flips}; exact McNemar test {_p_value(comparison.p_flips)} ({chance}, if the cases are a random sample)."]


def _p_value(value: float) -> str:
    """Write a p value with three decimals, but never as none."""
    return f"p = {value:.3f}" if value >= _SMALLEST_P else f"p < {_SMALLEST_P}"
