"""Render a run as one page of Markdown: a screen for those who decide about a release, then details."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from pytest_packbench.analysis.conclusion import caveats, run_verdict
from pytest_packbench.analysis.formatting import (
    figure_interval,
    figure_value,
    format_duration,
    format_interval,
    format_mean,
    format_percent,
    format_score,
    format_score_and_threshold,
    format_terms,
    format_with_bounds,
)
from pytest_packbench.analysis.intervals import CONFIDENCE
from pytest_packbench.analysis.listing import MAX_ROWS, name_some
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.gate import gates_text
from pytest_packbench.model.result import UNREADABLE_GROUP
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.reports.tables import WIDE, Markdown, escape_markdown, figure_sections, folded, section
from pytest_packbench.reports.terminal import costs, quoted, spent_text, totals_line
from pytest_packbench.runs.metadata import recorded_spending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.analysis.listing import CaseRow, Listing
    from pytest_packbench.analysis.statistics import Group, Statistics
    from pytest_packbench.analysis.trials import TrialFigures
    from pytest_packbench.model.control import ControlTally
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.metric import Figure
    from pytest_packbench.model.run import Run
    from pytest_packbench.reports.tables import Rows

    _RowCells = Callable[[CaseRow], tuple[str | None, ...]]

_WILSON = f"{100 * CONFIDENCE:g} % Wilson interval (two-sided)"
_WHERE = "report.json lists all"
_IN_PAGE = "more are in the table below"
# rows of a table on the first screen, and cases in a command
_FIRST = 10
_TICKS = re.compile("`+")
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


class Place(NamedTuple):
    """What links and commands of a page depend on.

    Attributes:
        root: the path or address from the page to the folder that the files of results are relative to; None if a
            reader of the page can't open them.
        options: the options of pytest that make the same run, quoted for a shell.
    """

    root: str | None = None
    options: str = ""

    def file_link(self, text: str, file: str) -> str:
        """Return Markdown of a text that leads to the file of a case, or of the text alone."""
        path, colon, line = file.rpartition(":")
        path, anchor = (path, f"#L{line}") if colon and line.isdecimal() else (file, "")
        outside = not path or path.startswith(("bundled:", "/")) or ".." in path.split("/")
        shown = escape_markdown(text)
        if self.root is None or outside or "\\" in path or not path.isprintable():
            return shown
        return f"[{shown}]({self.root}/{quote(path)}{anchor})"


NOWHERE = Place()


def summary_markdown(conclusion: Conclusion, *, max_rows: int = MAX_ROWS, place: Place = NOWHERE) -> str:
    """Render the summary of a run: one screen that decides, then the details, folded.

    Args:
        conclusion: what it came to.
        max_rows: how many rows of a table are rendered, 1 to `MAX_ROWS`.
        place: where the page is read.

    Returns:
        GitHub Flavored Markdown that ends with one line end.
    """
    run, verdict, listing = conclusion.run, run_verdict(conclusion), conclusion.page_cases
    parts = [
        f"# packbench: {escape_markdown(run.suite)} - {verdict.headline}",
        f"**{escape_markdown(verdict.sentence, WIDE * 4)}**",
        "\n".join(f"- {escape_markdown(text, WIDE)}" for text in _first_lines(conclusion)),
        _wrong_controls(conclusion.controls),
        _failed_gates(conclusion.gates, max_rows),
        _changes(conclusion, min(max_rows, _FIRST)),
        _first_failed(listing, min(max_rows, _FIRST), place),
        _first_errors(listing, min(max_rows, _FIRST)),
        _headlines(conclusion.figures),
        _used(conclusion),
        _command(listing, run, place),
        _about(run),
        *_details(conclusion, max_rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _first_lines(conclusion: Conclusion) -> Iterator[str]:
    """Yield what a reader has to know before the numbers."""
    yield from (f"baseline: {text}" for text in _baseline_lines(conclusion))
    yield from (f"policy: {text}" for text in _policy_lines(conclusion))
    yield totals_line(conclusion.statistics.totals)
    yield from caveats(conclusion.run, conclusion.statistics)
    if conclusion.controls is not None:
        yield f"Controls, recordings of wrong answers with the end that they must have: {conclusion.controls.text}."


def _baseline_lines(conclusion: Conclusion) -> list[str]:
    if conclusion.baseline is None:
        return []
    from pytest_packbench.reports.comparison_text import baseline_lines

    return baseline_lines(conclusion.baseline)


def _policy_lines(conclusion: Conclusion) -> list[str]:
    return [] if conclusion.policy is None else conclusion.policy.lines()


def _wrong_controls(tally: ControlTally | None) -> str:
    """Return a table of the controls that did not end as written."""
    wrong = () if tally is None else tally.wrong
    rows = ((result.control, result.case, result.description, result.message) for result in wrong)
    head = ("control", "case", "what is wrong with the answer", "how it ended instead")
    return section("Controls that did not end as written", head, rows, widths={3: WIDE})


def _failed_gates(gates: Sequence[GateResult], max_rows: int) -> str:
    failed = [gate for gate in gates if not gate.passed]
    rows = ((gate.subject, gate.text.removeprefix(gate.subject).removesuffix(": FAIL").lstrip(": ")) for gate in failed)
    return section("Failed gates", ("gate", "arithmetic"), rows, widths={1: WIDE}, max_rows=max_rows)


def _changes(conclusion: Conclusion, max_rows: int) -> str:
    """Return the cases that changed most since the baseline, each with both answers."""
    compared = None if conclusion.baseline is None else conclusion.baseline.compared
    if compared is None:
        return ""
    from pytest_packbench.reports.diff import worst_changes

    return worst_changes(compared, max_rows)


def _first_failed(listing: Listing, max_rows: int, place: Place) -> str:
    """Return the worst failing cases with what was asked, expected and answered."""
    trials, worst = (("trials passed",), " (worst trial)") if listing.repeated else ((), "")
    head = ("case", "score", *trials, "input", "expected", f"actual{worst}", f"points lost by{worst}")
    rows = (
        (
            Markdown(place.file_link(row.case.case_id, row.case.file)),
            format_score_and_threshold(row.case.score, row.case.threshold),
            *((f"{row.passed} / {row.trials}",) if listing.repeated else ()),
            row.case.input_text or None,
            row.case.expected_text or None,
            row.case.actual_text or row.case.answer,
            ", ".join(costs(row.case.terms)) or None,
        )
        for row in listing.first("failed", max_rows)
    )
    total = listing.count("failed")
    return section("Failed", head, rows, max_rows=max_rows, total=total, where=_IN_PAGE, drop_empty=True)


def _first_errors(listing: Listing, max_rows: int) -> str:
    """Return the errors of most cases, equal ones together."""
    groups = listing.error_groups(max_rows)
    rows = []
    for group in groups:
        first = group.first[0].case
        names = name_some([row.case.case_id for row in group.first], group.count)
        count = str(group.count) if group.count > 1 else None
        rows.append((names, count, first.kind or first.verdict, first.message))
    head, shown = ("case", "cases", "kind", "message"), sum(group.count for group in groups)
    hidden = listing.count("broken") - shown
    more = f"\n\n{pluralize(hidden, 'more case')} below." if hidden else ""
    table = section("Errors and vacuous cases", head, rows, widths={3: WIDE}, drop_empty=True)
    return table and f"{table}{more}"


def _headlines(figures: Sequence[Figure]) -> str:
    """Return the headlines among the figures of the pack; the details define them."""
    rows = [
        (each.group, each.name, figure_value(each), figure_interval(each) or None) for each in figures if each.headline
    ]
    one_group = len({group for group, *_ in rows}) == 1
    title = f"Figures: {rows[0][0]}" if one_group and rows[0][0] else "Figures"
    cells = ((None if one_group else group, *others) for group, *others in rows)
    return section(title, ("group", "figure", "value", "interval"), cells, widths={2: WIDE}, drop_empty=True)


def _used(conclusion: Conclusion) -> str:
    """Return what a live run used, and how long its attempts took."""
    run, times = conclusion.run, conclusion.times
    if run.mode == FIXTURE:
        return ""
    spent = recorded_spending(run)
    used = "used: calls, tokens and cost not known" if spent is None else spent_text(spent)
    took = ""
    if times is not None:
        p50, p95 = (format_duration(value) for value in (times.p50_ms, times.p95_ms))
        took = f"; {pluralize(times.attempts, 'attempt')}: p50 {p50}, p95 {p95}"
    return escape_markdown(f"{used[:1].upper()}{used[1:]}{took}.", WIDE)


def _command(listing: Listing, run: Run, place: Place) -> str:
    """Return the command that runs the cases again that did not pass."""
    cases = [row.case for name in ("failed", "broken") for row in listing.first(name, _FIRST)][:_FIRST]
    if not cases:
        return ""
    total = listing.count("failed") + listing.count("broken")
    if run.bundled:
        names = f"--packbench-suite={quoted(run.requested_suite)} -k {quoted(' or '.join(c.case_id for c in cases))}"
    else:
        names = " ".join(quoted(case.nodeid) for case in cases)
    which = f"the {total} cases" if total > 1 else "the case"
    if total > len(cases):
        which = f"the first {len(cases)} of {total} cases"
    command = f"pytest {names} {place.options}".rstrip()
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in _TICKS.findall(command) or ("",)))
    return f"To re-run {which} that did not pass:\n\n{fence}sh\n{command}\n{fence}"


def _details(conclusion: Conclusion, max_rows: int) -> Iterator[str]:
    """Yield the folded parts of the page."""
    run, statistics, gates = conclusion.run, conclusion.statistics, conclusion.gates
    head = ("result", "arithmetic")
    yield folded(
        f"Gates: {gates_text(gates)}",
        section("", head, _gate_rows(gates), widths={1: WIDE}, max_rows=max_rows),
    )
    yield folded("Figures and what they mean", *figure_sections(conclusion.all_figures, level=3))
    yield folded(
        "Rates by group",
        _trials_section(run, statistics.trials),
        *_group_sections(statistics, max_rows),
        _depth_section(statistics),
        section("Refusals", ("expected", "refused", "answered"), _refusal_rows(statistics), level=3),
    )
    yield from _case_details(conclusion.page_cases, max_rows)


def _about(run: Run) -> str:
    backend = f", backend {run.backend} / {run.model}" if run.backend and run.model else ""
    parts = [
        f"Run {run.run_id}: pack {run.pack} {run.pack_version}, target {run.target}, {run.mode} mode{backend}",
        f"{run.started_at} to {run.finished_at}",
        f"rules {run.suite_sha256[:12]}",
        ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items())),
    ]
    return escape_markdown("; ".join(part for part in parts if part), WIDE) + "."


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
    parts = (section("Trials", head, rows, level=3), escape_markdown(text, WIDE * 2), _COLUMNS)
    return "\n\n".join(part for part in parts if part)


def _share(value: float) -> str:
    return format_with_bounds(value, as_percent=True)[0]


def _gate_rows(gate_results: Sequence[GateResult]) -> Rows:
    for result in gate_results:
        if not result.judged:
            yield "not judged", result.text
            continue
        verdict = "PASS" if result.passed else "FAIL"
        yield f"{verdict}, not proven" if result.proven is False else verdict, result.text.removesuffix(f": {verdict}")


def _group_sections(statistics: Statistics, max_rows: int) -> Iterator[str]:
    interval = [_WILSON] if statistics.has_intervals else []
    for name, groups in statistics.grouped().items():
        head = (name, "passed", "judged", "pass rate", *interval, "mean score", "not judged")
        rows = (_group_row(group.value or UNREADABLE_GROUP, group, statistics) for group in groups)
        overall = [_group_row("all cases", statistics.overall, statistics)]
        title = f"By {name.replace('_', ' ')}"
        yield section(title, head, rows, level=3, last=overall, max_rows=max_rows, drop_empty=True)


def _group_row(label: str, group: Group, statistics: Statistics) -> tuple[str | None, ...]:
    return (
        label,
        str(group.passed),
        str(group.n),
        format_percent(group.passed, group.n),
        *([format_interval(group.interval)] if statistics.has_intervals else ()),
        format_mean(group.mean_score),
        str(group.selected - group.n) if group.selected > group.n else None,
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
    return section("Depth of agreement", head, rows, level=3)


def _refusal_rows(statistics: Statistics) -> Rows:
    refusals = statistics.refusals
    if refusals.due_refused or refusals.due_answered or refusals.undue_refused:
        yield "refusal", str(refusals.due_refused), str(refusals.due_answered)
        yield "answer", str(refusals.undue_refused), str(refusals.undue_answered)


def _case_details(listing: Listing, max_rows: int) -> Iterator[str]:
    """Yield the folded tables of cases: those that failed, those without a verdict that counts, those that passed."""

    def table(name: str, title: str, head: tuple[str, ...], cells: _RowCells, widths: dict[int, int]) -> str:
        rows, total = map(cells, listing.first(name, max_rows)), listing.count(name)
        return section(
            title, head, rows, level=3, widths=widths, max_rows=max_rows, total=total, where=_WHERE, drop_empty=True
        )

    trials, worst = (("trials passed",), " (worst trial)") if listing.repeated else ((), "")
    judged = ("case", "type", "score", "threshold", "match", "depth", "answer", *trials, f"terms{worst}")
    failed, passed = (partial(_judged_row, trials=listing.repeated, details=details) for details in (True, False))
    unjudged = ("case", "kind", "message", "file")
    yield folded(
        f"Failed: {listing.count('failed')}, with the terms of their scores",
        table("failed", "", judged, failed, {len(judged) - 1: WIDE}),
    )
    without = sum(listing.count(name) for name in _UNJUDGED)
    yield folded(
        f"Without a verdict that counts: {without}",
        *(table(name, title, unjudged, _reason_row, {2: WIDE}) for name, title in _UNJUDGED.items()),
    )
    yield folded(f"Passed: {listing.count('passed')}", table("passed", "", judged, passed, {}))
    yield folded(
        f"Stale recordings: {listing.count('stale')}",
        table("stale", "", ("case", "file"), lambda row: (row.case.case_id, row.case.file), {}),
    )


def _reason_row(row: CaseRow) -> tuple[str | None, ...]:
    return row.case.case_id, row.case.kind, row.case.message, row.case.file


def _judged_row(row: CaseRow, *, trials: bool, details: bool) -> tuple[str | None, ...]:
    case = row.case
    depth = None if case.match_depth is None else str(case.match_depth)
    passes = (f"{row.passed} / {row.trials}",) if trials else ()
    score = format_score(case.score, case.threshold)
    terms = format_terms(case.terms, details=details) or None
    return case.case_id, case.case_type, *score, case.match_level, depth, case.answer, *passes, terms
