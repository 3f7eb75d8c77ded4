"""The run on one page of Markdown, for whoever decides about a release (design 5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_packbench.analysis.conclusion import judge, limits
from pytest_packbench.analysis.figures import aligned, average, count, interval, percent, score, terms_text
from pytest_packbench.analysis.intervals import CONFIDENCE
from pytest_packbench.analysis.listing import MOST_ROWS
from pytest_packbench.model.result import UNREADABLE_GROUP
from pytest_packbench.reports.tables import WIDE, cell, section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.analysis.listing import Listing, Row
    from pytest_packbench.analysis.statistics import Group, Statistics, Totals
    from pytest_packbench.analysis.trials import TrialFigures
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.run import Run
    from pytest_packbench.reports.tables import Rows

    _RowCells = Callable[[Row], tuple[str | None, ...]]

_WILSON = f"{100 * CONFIDENCE:g} % interval (Wilson, two-sided)"
_WHEN = {
    "mean": "the mean score of its trials reaches the threshold",
    "all": "all of its trials pass",
    "any": "one of its trials passes",
}
_COLUMNS = (
    "The columns are `pass@k` and `pass^k`, estimated without bias from all trials of a case and averaged over cases."
)
_UNJUDGED = {
    "error": "Errors: broken before a score",
    "vacuous": "Vacuous: could not have failed",
    "not_run": "Not run",
    "known_hole": "Known holes",
    "quarantined": "Quarantined by their notes",
}


def summary_markdown(told: Conclusion, *, most: int = MOST_ROWS, wrong_first: bool = False) -> str:
    """Write the summary of a run.

    Args:
        told: what it came to; its page has at least `most` of the cases of each table, in the order to show.
        most: how many rows of a table are shown, 1 or more.
        wrong_first: show what went wrong before the groups.

    Returns:
        GitHub Flavored Markdown, ended by one line end. A table that is cut says how many rows there are.
    """
    run, statistics, judgement = told.run, told.statistics, judge(told)
    groups = [*_group_sections(statistics, most), _depth_section(statistics)]
    groups.append(section("Refusals", ("due", "refused", "answered"), _refusal_rows(statistics)))
    wrong, everything = _case_sections(told.page, most)
    parts = [
        f"# packbench: {cell(run.suite)} - {judgement.headline}",
        f"**{cell(judgement.sentence, WIDE * 4)}**",
        "\n".join(f"- {cell(sentence, WIDE)}" for sentence in limits(run, statistics)),
        _about(run),
        section("Totals", *_totals(statistics.totals)),
        _trials_section(run, statistics.trials),
        section("Gates", ("result", "arithmetic"), _gate_rows(told.gates), widths={1: WIDE}, most=most),
        *((*wrong, *groups) if wrong_first else (*groups, *wrong)),
        *everything,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(run: Run) -> str:
    model = f", asked {run.backend} / {run.model}" if run.backend and run.model else ""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items()))
    told = [
        f"Run {run.run_id}: pack {run.pack} {run.pack_version}, target {run.target}, {run.mode} mode{model}",
        f"{run.started_at} to {run.finished_at}",
        f"rules {run.suite_sha256[:12]}",
        versions,
    ]
    return cell("; ".join(part for part in told if part), WIDE) + "."


def _totals(totals: Totals) -> tuple[tuple[str, ...], Rows]:
    outside = {f"quarantined: {kind}": number for kind, number in totals.quarantined.items()}
    counts = {"selected": totals.selected, **totals.verdicts, **outside, "stale recordings": totals.stale}
    return tuple(counts), [tuple(map(str, counts.values()))]


def _trials_section(run: Run, figures: TrialFigures | None) -> str:
    if figures is None:
        return ""
    temperature = run.settings.get("temperature")
    shown = "not set" if temperature is None else f"{temperature}"
    mean = f"mean score {average(figures.mean_score)}"
    if figures.standard_error is not None:
        mean += f", standard error {figures.standard_error:.3f} (clustered by case)"
    when = _WHEN.get(figures.rule, f"{figures.rule} of its trials pass")
    told = (
        f"{figures.trials} trials a case at temperature {shown}; a case passes when {when}. "
        f"{count(figures.cases, 'case')} with {count(figures.attempts, 'judged trial')}: {mean}. "
        "All rates, intervals and gates count cases, never trials; what a gate asks of a case with yes or no is "
        "answered by its worst trial."
    )
    head = ("k", "at least one of k trials passes", "all of k trials pass", "cases")
    rows = ((str(one.k), _share(one.at_k), _share(one.hat_k), str(one.cases)) for one in figures.passes)
    return "\n\n".join(part for part in (section("Trials", head, rows), cell(told, WIDE * 2), _COLUMNS) if part)


def _share(value: float) -> str:
    return aligned(value, as_percent=True)[0]


def _gate_rows(gate_results: Sequence[GateResult]) -> Rows:
    for result in gate_results:
        verdict = "PASS" if result.passed else "FAIL"
        yield verdict, result.text.removesuffix(f": {verdict}")


def _group_sections(statistics: Statistics, most: int) -> Iterator[str]:
    wilson = [_WILSON] if statistics.has_intervals else []
    for name, groups in statistics.grouped().items():
        head = (name, "passed", "judged", "pass rate", *wilson, "mean score", "not judged")
        rows = (_group_row(group.value or UNREADABLE_GROUP, group, statistics) for group in groups)
        whole = [_group_row("all cases", statistics.overall, statistics)]
        yield section(f"By {name.replace('_', ' ')}", head, rows, last=whole, most=most)


def _group_row(label: str, group: Group, statistics: Statistics) -> tuple[str, ...]:
    return (
        label,
        str(group.passed),
        str(group.n),
        percent(group.passed, group.n),
        *([interval(group.interval)] if statistics.has_intervals else ()),
        average(group.mean_score),
        str(group.selected - group.n),
    )


def _depth_section(statistics: Statistics) -> str:
    head = ("at least", "answers", "share", *([_WILSON] if statistics.has_intervals else []))
    rows = (
        (
            str(depth.level),
            f"{depth.agreeing} / {depth.n}",
            percent(depth.agreeing, depth.n),
            *([interval(depth.interval)] if statistics.has_intervals else ()),
        )
        for depth in statistics.depth
    )
    return section("Depth of agreement", head, rows)


def _refusal_rows(statistics: Statistics) -> Rows:
    found = statistics.refusals
    if found.due_refused or found.due_answered or found.undue_refused:
        yield "a refusal", str(found.due_refused), str(found.due_answered)
        yield "an answer", str(found.undue_refused), str(found.undue_answered)


def _case_sections(listing: Listing, most: int) -> tuple[list[str], list[str]]:
    """Give the sections of what went wrong, and those of all cases."""

    def shown(
        name: str, title: str, head: tuple[str, ...], row: _RowCells, widths: dict[int, int] | None = None
    ) -> str:
        rows = map(row, listing.first(name, most))
        return section(title, head, rows, widths=widths, most=most, total=listing.count(name))

    # the terms are those of a case's worst trial
    column, worst = (("trials passed",), " (worst trial)") if listing.repeated else ((), "")
    head = ("score", "threshold", "match", "depth", "answer", *column)
    failed, case = (partial(cells, trials=listing.repeated) for cells in (_failed_row, _case_row))
    reasons = ("case", "kind", "message", "file")
    stale = "Stale: the recording answered another prompt than today's"
    wrong = [
        shown("failed", "Failed", ("case", "type", *head, f"why{worst}"), failed, {len(head) + 2: WIDE}),
        *(shown(name, title, reasons, _reason_row, {2: WIDE}) for name, title in _UNJUDGED.items()),
    ]
    everything = [
        shown("all", "All cases", ("case", "verdict", *head, f"terms{worst}"), case),
        shown("stale", stale, ("case", "file"), lambda row: (row.case.case_id, row.case.file)),
    ]
    return wrong, everything


def _reason_row(row: Row) -> tuple[str | None, ...]:
    return row.case.case_id, row.case.kind, row.case.message, row.case.file


def _failed_row(row: Row, *, trials: bool) -> tuple[str | None, ...]:
    case = row.case
    return case.case_id, case.case_type, *_result(row, trials=trials), terms_text(case.terms, details=True)


def _case_row(row: Row, *, trials: bool) -> tuple[str | None, ...]:
    case = row.case
    verdict = f"quarantined: {case.kind}" if case.quarantined else case.verdict
    return case.case_id, verdict, *_result(row, trials=trials), terms_text(case.terms)


def _result(row: Row, *, trials: bool) -> tuple[str | None, ...]:
    case = row.case
    depth = None if case.match_depth is None else str(case.match_depth)
    passes = (f"{row.passed} / {row.trials}",) if trials else ()
    return *score(case.score, case.threshold), case.match_level, depth, case.answer, *passes
