"""Render a run as one page of Markdown, for those who decide about a release."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_packbench.analysis.conclusion import caveats, run_verdict
from pytest_packbench.analysis.formatting import (
    format_interval,
    format_mean,
    format_percent,
    format_score,
    format_terms,
    format_with_bounds,
)
from pytest_packbench.analysis.intervals import CONFIDENCE
from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.result import UNREADABLE_GROUP
from pytest_packbench.reports.tables import WIDE, escape_markdown, figure_sections, section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.analysis.listing import CaseRow, Listing
    from pytest_packbench.analysis.statistics import Group, Statistics, Totals
    from pytest_packbench.analysis.trials import TrialFigures
    from pytest_packbench.model.control import ControlTally
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.reports.tables import Rows

    _RowCells = Callable[[CaseRow], tuple[str | None, ...]]

_WILSON = f"{100 * CONFIDENCE:g} % Wilson interval (two-sided)"
_WHERE = "report.json lists all"
_WHEN = {
    "mean": "the mean score of its trials is at or above the threshold",
    "all": "all of its trials pass",
    "any": "any of its trials passes",
}
_COLUMNS = "The columns are `pass@k` and `pass^k`: unbiased estimates from all trials of a case, averaged over cases."
_UNJUDGED = {
    "error": "Errors (no score)",
    "vacuous": "Vacuous (could not have failed)",
    "not_run": "Not run",
    "known_hole": "Known holes",
    "quarantined": "Quarantined (by the notes of the case)",
}


def summary_markdown(conclusion: Conclusion, *, max_rows: int = MAX_ROWS, failures_first: bool = False) -> str:
    """Render the summary of a run.

    Args:
        conclusion: what it came to.
        max_rows: how many rows of a table are rendered, 1 to `MAX_ROWS`.
        failures_first: put the cases that did not pass before the groups.

    Returns:
        GitHub Flavored Markdown that ends with one line end.
    """
    run, statistics, verdict = conclusion.run, conclusion.statistics, run_verdict(conclusion)
    groups = [
        *_group_sections(statistics, max_rows),
        _depth_section(statistics),
        section("Refusals", ("expected", "refused", "answered"), _refusal_rows(statistics)),
    ]
    failures, all_cases = _case_sections(conclusion.page_cases, max_rows)
    parts = [
        f"# packbench: {escape_markdown(run.suite)} - {verdict.headline}",
        f"**{escape_markdown(verdict.sentence, WIDE * 4)}**",
        "\n".join(f"- baseline: {escape_markdown(text, WIDE)}" for text in _baseline_lines(conclusion)),
        "\n".join(f"- policy: {escape_markdown(text, WIDE)}" for text in _policy_lines(conclusion)),
        "\n".join(f"- {escape_markdown(sentence, WIDE)}" for sentence in caveats(run, statistics)),
        _controls(conclusion.controls),
        *figure_sections(conclusion.all_figures),
        _about(run),
        section("Totals", *_totals(statistics.totals)),
        _trials_section(run, statistics.trials),
        section("Gates", ("result", "arithmetic"), _gate_rows(conclusion.gates), widths={1: WIDE}, max_rows=max_rows),
        *((*failures, *groups) if failures_first else (*groups, *failures)),
        *all_cases,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _baseline_lines(conclusion: Conclusion) -> list[str]:
    if conclusion.baseline is None:
        return []
    from pytest_packbench.reports.comparison_text import baseline_lines

    return baseline_lines(conclusion.baseline)


def _policy_lines(conclusion: Conclusion) -> list[str]:
    return [] if conclusion.policy is None else conclusion.policy.lines()


def _controls(tally: ControlTally | None) -> str:
    """Return the line about the controls, and a table of those that did not end as written."""
    if tally is None:
        return ""
    line = f"Controls, recordings of wrong answers with the end that they must have: {escape_markdown(tally.text)}."
    rows = ((result.control, result.case, result.description, result.message) for result in tally.wrong)
    head = ("control", "case", "what is wrong with the answer", "how it ended instead")
    return "\n\n".join(
        part for part in (line, section("Controls that did not end as written", head, rows, widths={3: WIDE})) if part
    )


def _about(run: Run) -> str:
    backend = f", backend {run.backend} / {run.model}" if run.backend and run.model else ""
    parts = [
        f"Run {run.run_id}: pack {run.pack} {run.pack_version}, target {run.target}, {run.mode} mode{backend}",
        f"{run.started_at} to {run.finished_at}",
        f"rules {run.suite_sha256[:12]}",
        ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items())),
    ]
    return escape_markdown("; ".join(part for part in parts if part), WIDE) + "."


def _totals(totals: Totals) -> tuple[tuple[str, ...], Rows]:
    quarantined = {f"quarantined: {kind}": number for kind, number in totals.quarantined.items()}
    counts = {"selected": totals.selected, **totals.verdicts, **quarantined, "stale recordings": totals.stale}
    return tuple(counts), [tuple(map(str, counts.values()))]


def _trials_section(run: Run, figures: TrialFigures | None) -> str:
    if figures is None:
        return ""
    temperature = run.settings.get("temperature")
    mean = f"mean score {format_mean(figures.mean_score)}"
    if figures.standard_error is not None:
        mean += f", standard error {figures.standard_error:.3f} (clustered by case)"
    when = _WHEN.get(figures.rule, f"{figures.rule} of its trials pass")
    text = (
        f"{figures.trials} trials per case at temperature {'not set' if temperature is None else temperature}; "
        f"a case passes when {when}. "
        f"{pluralize(figures.cases, 'case')} with {pluralize(figures.attempts, 'judged trial')}: {mean}. "
        "Rates, intervals and gates count cases, not trials; yes-or-no metrics of a case are those of its worst trial."
    )
    head = ("k", "at least one of k trials passes", "all of k trials pass", "cases")
    rows = ((str(each.k), _share(each.at_k), _share(each.hat_k), str(each.cases)) for each in figures.passes)
    parts = (section("Trials", head, rows), escape_markdown(text, WIDE * 2), _COLUMNS)
    return "\n\n".join(part for part in parts if part)


def _share(value: float) -> str:
    return format_with_bounds(value, as_percent=True)[0]


def _gate_rows(gate_results: Sequence[GateResult]) -> Rows:
    for result in gate_results:
        verdict = "PASS" if result.passed else "FAIL"
        yield f"{verdict}, not proven" if result.proven is False else verdict, result.text.removesuffix(f": {verdict}")


def _group_sections(statistics: Statistics, max_rows: int) -> Iterator[str]:
    interval = [_WILSON] if statistics.has_intervals else []
    for name, groups in statistics.grouped().items():
        head = (name, "passed", "judged", "pass rate", *interval, "mean score", "not judged")
        rows = (_group_row(group.value or UNREADABLE_GROUP, group, statistics) for group in groups)
        overall = [_group_row("all cases", statistics.overall, statistics)]
        yield section(f"By {name.replace('_', ' ')}", head, rows, last=overall, max_rows=max_rows)


def _group_row(label: str, group: Group, statistics: Statistics) -> tuple[str, ...]:
    return (
        label,
        str(group.passed),
        str(group.n),
        format_percent(group.passed, group.n),
        *([format_interval(group.interval)] if statistics.has_intervals else ()),
        format_mean(group.mean_score),
        str(group.selected - group.n),
    )


def _depth_section(statistics: Statistics) -> str:
    head = ("at least", "answers", "share", *([_WILSON] if statistics.has_intervals else []))
    rows = (
        (
            str(depth.level),
            f"{depth.agreeing} / {depth.n}",
            format_percent(depth.agreeing, depth.n),
            *([format_interval(depth.interval)] if statistics.has_intervals else ()),
        )
        for depth in statistics.depth
    )
    return section("Depth of agreement", head, rows)


def _refusal_rows(statistics: Statistics) -> Rows:
    refusals = statistics.refusals
    if refusals.due_refused or refusals.due_answered or refusals.undue_refused:
        yield "refusal", str(refusals.due_refused), str(refusals.due_answered)
        yield "answer", str(refusals.undue_refused), str(refusals.undue_answered)


def _case_sections(listing: Listing, max_rows: int) -> tuple[list[str], list[str]]:
    """Return the sections of cases that did not pass, and those of all cases."""

    def case_section(
        name: str, title: str, head: tuple[str, ...], cells: _RowCells, widths: dict[int, int] | None = None
    ) -> str:
        rows = map(cells, listing.first(name, max_rows))
        return section(title, head, rows, widths=widths, max_rows=max_rows, total=listing.count(name), where=_WHERE)

    trials_column, worst = (("trials passed",), " (worst trial)") if listing.repeated else ((), "")
    head = ("score", "threshold", "match", "depth", "answer", *trials_column)
    failed, case = (partial(cells, trials=listing.repeated) for cells in (_failed_row, _case_row))
    reasons = ("case", "kind", "message", "file")
    stale = "Stale recordings (the prompt has changed since the recording)"
    failures = [
        case_section("failed", "Failed", ("case", "type", *head, f"terms{worst}"), failed, {len(head) + 2: WIDE}),
        *(case_section(name, title, reasons, _reason_row, {2: WIDE}) for name, title in _UNJUDGED.items()),
    ]
    all_cases = [
        case_section("all", "All cases", ("case", "verdict", *head, f"terms{worst}"), case),
        case_section("stale", stale, ("case", "file"), lambda row: (row.case.case_id, row.case.file)),
    ]
    return failures, all_cases


def _reason_row(row: CaseRow) -> tuple[str | None, ...]:
    return row.case.case_id, row.case.kind, row.case.message, row.case.file


def _failed_row(row: CaseRow, *, trials: bool) -> tuple[str | None, ...]:
    case = row.case
    return case.case_id, case.case_type, *_result_cells(row, trials=trials), format_terms(case.terms, details=True)


def _case_row(row: CaseRow, *, trials: bool) -> tuple[str | None, ...]:
    case = row.case
    verdict = f"quarantined: {case.kind}" if case.quarantined else case.verdict
    return case.case_id, verdict, *_result_cells(row, trials=trials), format_terms(case.terms)


def _result_cells(row: CaseRow, *, trials: bool) -> tuple[str | None, ...]:
    case = row.case
    depth = None if case.match_depth is None else str(case.match_depth)
    passes = (f"{row.passed} / {row.trials}",) if trials else ()
    return *format_score(case.score, case.threshold), case.match_level, depth, case.answer, *passes
