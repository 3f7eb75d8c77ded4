"""What the page says of a run: the blocks of its other reports, with links and drawings, and what only a page has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from pytest_packbench.analysis.conclusion import caveats, run_verdict
from pytest_packbench.analysis.formatting import (
    DASH,
    format_duration,
    format_interval,
    format_mean,
    format_percent,
)
from pytest_packbench.analysis.intervals import exact_bound
from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.gate import CHANGE_METRICS, gates_text
from pytest_packbench.model.score import FIXTURE
from pytest_packbench.reports.blocks import (
    Cell,
    Markup,
    Points,
    Section,
    Table,
    Text,
    figure_tables,
    html,
    html_text,
    verdict_cell,
)
from pytest_packbench.reports.plots import (
    BINS,
    bar_svg,
    change_range,
    histogram_svg,
    interval_svg,
    minute,
    share_range,
    swatch_svg,
    trend_svg,
)
from pytest_packbench.reports.story import (
    about,
    case_table,
    depth_table,
    gates_table,
    rate_tables,
    refusals_table,
    used_sentence,
    wrong_controls,
)
from pytest_packbench.reports.terminal import spent_text
from pytest_packbench.runs.metadata import recorded_spending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.changes import BaselineOutcome, Comparison
    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.analysis.counting import Statistics
    from pytest_packbench.model.gate import GateResult
    from pytest_packbench.model.metric import Panel
    from pytest_packbench.model.result import Result
    from pytest_packbench.reports.blocks import Block, Row
    from pytest_packbench.reports.page import AttemptEffort, CaseNumbers, RunPage, TrendPoint

    Link = Callable[[str], str]

_NOT_COMPARED = {
    "removed": "removed",
    "hash_changed": "case or judge changed",
    "quarantined": "quarantined now",
    "added": "added",
}
_UNPRINTED = {
    "regressed": "Lower scores",
    "verdict_changed": "Other changes of the verdict",
    "improved": "Higher scores",
}
_SAID = ("verdict", "score", "trials passed", "expected", "actual", "kind", "message", "terms in detail")
"""What the page says of each case that did not pass."""
_LIMITS = "What this run shows, and what it does not"
_TILES_OF_A_ROW = 7
_MAX_FLIPS = 50
_MAX_SMALL = 20
_MAX_PRINTED = 10
_FEW_GROUPS = 10
_FAILING = ("failed", "error")
_TENTH_OF_A_CENT = 0.001
_WORST = 10


class Tile(NamedTuple):
    """A number that stands out: its name, its value, a note below it, and a colour of the page's style."""

    name: str
    value: str
    note: str = ""
    color: str = ""


def run_sections(page: RunPage, number: int, *, several: bool) -> list[Section]:
    """Return what the page says of one run below its verdict, without sections that have nothing to say.

    Args:
        page: the run.
        number: its number on the page, from 0.
        several: whether the page has other runs.
    """
    conclusion, statistics = page.conclusion, page.conclusion.statistics
    has_wrong = conclusion.controls is not None and bool(conclusion.controls.wrong)

    def link(test_id: str) -> str:
        return f"#case={quote(test_id, safe='')}" + (f"&run={number}" if several else "") if page.cases else ""

    failing = _printed_failures(conclusion)
    every: Sequence[tuple[str, str, str, Iterable[Block]]] = (
        ("gates", "Gates", "", _gates(conclusion.gates)),
        ("policy", "Acceptance policy", "", _policy(conclusion)),
        ("controls", "Controls", "" if has_wrong else "screen", _controls(conclusion)),
        ("changes", "Since the baseline", "", _baseline(conclusion, link)),
        ("failing", failing.title, "printed", [failing] if failing.rows else ()),
        ("trend", "Trend", "screen", _trend(page)),
        ("scores", "Scores", "screen", _scores(page.numbers)),
        ("rates", "Rates by group", "screen", _rates(statistics)),
        ("figures", "Figures of the pack", "screen", _figures(page)),
        ("effort", "Time, tokens and cost", "screen", _effort(page, link)),
        ("cases", "Cases", "screen", _cases(page, link, number)),
        ("about", "About this run", "screen", [about(conclusion.run, statistics)]),
    )
    return [
        Section(title, made, css=css, name=f"{name}-{number + 1}" if several else name)
        for name, title, css, blocks in every
        if (made := tuple(blocks))
    ]


def run_html(
    page: RunPage, sections: Sequence[Section], number: int, *, several: bool, redact: Callable[[str], str]
) -> str:
    """Write a run: its verdict, its numbers and its sections.

    Args:
        page: the run.
        sections: its sections, as `run_sections` returns them.
        number: its number on the page, from 0.
        several: whether the page has other runs.
        redact: replaces secrets in a text.

    Returns:
        HTML in which all text is escaped.
    """
    run, verdict = page.conclusion.run, run_verdict(page.conclusion)
    suffix, level = (f"-{number + 1}", 2) if several else ("", 1)
    status = verdict_cell(verdict.status)
    backend = f"{run.backend} / {run.model}" if run.backend and run.model else ""
    made = (run.suite, f"{run.mode} mode", run.target, backend, minute(run.finished_at), run.run_id)
    notes = page.cases.notices if page.cases is not None else ()
    limits = Section(_LIMITS, [Points([*caveats(run, page.conclusion.statistics), *page.notes, *notes])])
    eyebrow = html_text(" · ".join(filter(None, made)), redact)
    first, rest = (html_text(text, redact) for text in verdict.headline.split(", ", 1))
    written = html(sections, level=level + 1, redact=redact)
    name = f"verdict{suffix}"
    return (
        f'<article class="run" aria-labelledby="{name}-title">\n<section id="{name}" class="verdict">\n'
        f'<p class="eyebrow">{eyebrow}</p>\n'
        f'<h{level} id="{name}-title" class="headline"><span class="is-{status.color}">'
        f'<span class="sign" aria-hidden="true">{status.sign}</span>{first}</span>, {rest}</h{level}>\n'
        f'<p class="lead">{html_text(verdict.sentence, redact)}</p>\n{_tiles_html(list(_tiles(page)), redact)}'
        f'<div class="limits">\n{html([limits], level=level + 1, redact=redact)}</div>\n</section>\n{written}'
        '<div class="signoff" aria-hidden="true"><p>Decision</p><p>Name</p><p>Date</p></div>\n</article>\n'
    )


def _tiles_html(tiles: Sequence[Tile], redact: Callable[[str], str]) -> str:
    written = []
    for tile in tiles:
        name, value, note = (html_text(text, redact) for text in tile[:3])
        css, small = f' class="is-{tile.color}"' if tile.color else "", f"<small>{note}</small>" if note else ""
        written.append(f"<div><dt>{name}</dt><dd{css}>{value}{small}</dd></div>")
    return f'<dl class="tiles{" two-rows" if len(tiles) > _TILES_OF_A_ROW else ""}">{"".join(written)}</dl>\n'


def overview_html(pages: Sequence[RunPage], title: str, redact: Callable[[str], str]) -> str:
    """Write a table of all runs of a page, each with a link to its verdict; otherwise as `run_html`."""
    head = ("run", "suite", "mode", "target", "finished", "result", "passed", "mean score")
    rows = []
    for number, page in enumerate(pages, 1):
        run, overall = page.conclusion.run, page.conclusion.statistics.overall
        rows.append(
            (
                Cell(run.run_id, href=f"#verdict-{number}", css="mono"),
                run.suite,
                run.mode,
                run.target,
                minute(run.finished_at),
                verdict_cell(run_verdict(page.conclusion).status),
                f"{overall.passed} of {overall.n}",
                format_mean(overall.mean_score),
            )
        )
    table = Table(f"{len(pages)} runs", head, rows, numbers=(6, 7))
    return f'<section class="runs">\n{html([Section(title, [table])], level=1, redact=redact)}</section>\n'


def _tiles(page: RunPage) -> Iterator[Tile]:
    conclusion, comparison = page.conclusion, _compared(page.conclusion)
    statistics, gates, controls = conclusion.statistics, conclusion.gates, conclusion.controls
    overall, verdicts = statistics.overall, statistics.totals.verdicts
    interval = f"{format_percent(overall.passed, overall.n)} ({format_interval(overall.interval)})"
    some = "" if statistics.all_authored else f"{statistics.authored} of {overall.n} "
    authored = f"{some}answers authored: counts only" if overall.n else "nothing was judged"
    yield Tile("Passed", f"{overall.passed} of {overall.n}", interval if overall.interval else authored)
    yield Tile("Mean score", format_mean(overall.mean_score), f"of {pluralize(overall.n, 'judged case')}")
    if gates:
        passed, of, every, judged = gates_text(gates).split(" ", 3)
        yield Tile("Gates", f"{passed} {of} {every}", judged, "" if all(gate.passed for gate in gates) else "fail")
    if controls is not None and controls.results:
        wrong = "fail" if controls.wrong else ""
        yield Tile("Controls", f"{controls.as_written} of {len(controls.results)}", "ended as written", wrong)
    counts = {name: verdicts[name] for name in ("error", "vacuous", "known_hole", "not_run")}
    counts["quarantined"] = sum(statistics.totals.quarantined.values())
    unjudged = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    if unjudged:
        color = "broken" if verdicts["error"] else ""
        yield Tile("Not judged", str(statistics.totals.selected - overall.n), ", ".join(unjudged), color)
    if comparison is not None:
        changed = comparison.counts()
        unseen = sum(map(_failed_before, _not_compared(comparison).rows))
        gone = f"; {unseen} that failed there not compared" if unseen else ""
        failing, note = changed["new_failures"], f"{changed['fixed']} recovered since the baseline{gone}"
        yield Tile("New failures", str(failing), note, "fail" if failing else "")
    yield from _effort_tiles(page)


def _effort_tiles(page: RunPage) -> Iterator[Tile]:
    times = page.conclusion.times
    if page.conclusion.run.mode == FIXTURE:
        return
    if times is not None:
        yield Tile("Time, median", format_duration(times.p50_ms), f"95 % within {format_duration(times.p95_ms)}")
    tokens, cost, of = _used(page)
    yield Tile("Tokens", tokens)
    yield Tile("Cost", cost, of)


def _used(page: RunPage) -> tuple[str, str, str]:
    """Return the tokens and the cost of a run, and what they are of; what is not known is not 0."""
    spent, numbers = recorded_spending(page.conclusion.run), page.numbers
    if spent is None:
        all_tokens, costs, currency = numbers.tokens, numbers.costs, "USD"
        tokens, cost = sum(map(sum, all_tokens)) if all_tokens else None, sum(costs) if costs else None
        attempts = pluralize(len(numbers.efforts), "attempt")
        of = f"tokens of {len(all_tokens)}, cost of {len(costs)} of {attempts} with a record"
    else:
        # no call went through packbench, and some target ran
        is_unseen = spent["calls"] is None or bool(spent.get("unmetered") and not spent["calls"])
        tokens, cost = (spent[name] or (None if is_unseen else spent[name]) for name in ("tokens", "cost"))
        currency, of = spent["currency"], spent_text(spent).removeprefix("used: ")
        if cost is None and spent["calls"] and not spent["uncounted"]:
            of = f"{of}; no price is set for the model"
    return (
        "not known" if tokens is None else f"{tokens:,}",
        "not known" if cost is None else f"{_money(cost)} {currency}".rstrip(),
        of,
    )


def _key(*names: tuple[str, str]) -> Markup:
    """Return what the signs of a drawing mean, from words of this module."""
    return Markup(f'<ul class="key">{"".join(f"<li>{swatch_svg(name)}{text}</li>" for name, text in names)}</ul>\n')


def _gates(gates: Sequence[GateResult]) -> Iterator[Block]:
    if not gates:
        yield Text("The suite has no gate.", css="muted")
        return
    yield replace(gates_table(gates, f"Gates: {gates_text(gates)}", _gate_svg), css="gates")
    yield _key(
        ("allowed", "values that pass"),
        ("limit", "limit"),
        ("interval", "95 % interval"),
        ("pass", "passed"),
        ("fail", "failed"),
        *([("plain", "value, where its exact bound decides")] if any(map(_exact_bounds, gates)) else ()),
    )


def _gate_svg(gate: GateResult) -> str:
    """Draw the value of a gate and its limits; empty if it was not judged, and for a count, which has no scale."""
    is_count = gate.metric in {CHANGE_METRICS["max_regressions"], CHANGE_METRICS["max_new_failures"]}
    if gate.observed is None or is_count or not gate.judged:
        return ""
    limits = [limit for limit in (gate.min, gate.max) if limit is not None]
    shown = [gate.observed, *(gate.interval or ()), *_exact_bounds(gate), *limits]
    axis = change_range(shown) if gate.metric == CHANGE_METRICS["min_mean_change"] else share_range(shown)
    status = "fail" if not gate.passed else "warn" if gate.proven is False else "pass"
    return interval_svg(
        gate.observed,
        axis,
        interval=gate.interval,
        low=gate.min,
        high=gate.max,
        status=status,
        ends=True,
        decisive=_exact_bounds(gate),
    )


def _exact_bounds(gate: GateResult) -> tuple[float, ...]:
    """Return the one-sided exact bounds that a gate with confidence compares instead of its value."""
    if gate.confidence is None or gate.counted is None:
        return ()
    sides = ((gate.min, False), (gate.max, True))
    return tuple(
        exact_bound(*gate.counted, gate.confidence, upper=upper) for limit, upper in sides if limit is not None
    )


def _judgement(text: str, *, failed: bool) -> Text:
    sign, color = ("✗ failed", "fail") if failed else ("✓ passed", "pass")
    return Text(f"{_capitalized(text)}.", sign=sign, color=color)


def _policy(conclusion: Conclusion) -> Iterator[Block]:
    if conclusion.policy is not None:
        first, *others = conclusion.policy.lines()
        yield _judgement(first, failed=conclusion.policy.failed)
        yield Points(others, css="intro")


def _controls(conclusion: Conclusion) -> Iterator[Block]:
    tally = conclusion.controls
    if tally is None:
        return
    if tally.wrong or tally.as_written:
        yield _judgement(tally.line(), failed=bool(tally.wrong))
    else:
        yield Text(f"{_capitalized(tally.line())}.", sign="\u2013 not run", color="plain")
    yield Text("Controls are recordings of wrong answers, each with the end that it must have.", css="intro")
    yield wrong_controls(tally, _MAX_FLIPS)


def _compared(conclusion: Conclusion) -> Comparison | None:
    return None if conclusion.baseline is None else conclusion.baseline.compared


def _baseline(conclusion: Conclusion, link: Link) -> Iterator[Block]:
    outcome = conclusion.baseline
    if outcome is None:
        return
    comparison = outcome.compared
    if comparison is None:
        color, sign = ("fail", "✗ not compared") if outcome.fails_unseen else ("warn", "\u2013 not compared")
        yield Text(f"{_capitalized(outcome.problem)}.", sign=sign, color=color)
        return
    yield from _about_comparison(outcome, comparison)
    yield _changed("New failures", comparison, "new_failures", link)
    yield _changed("Recovered", comparison, "fixed", link)
    yield _mean_change(comparison)
    for kind, title in _UNPRINTED.items():
        yield _changed(title, comparison, kind, link, css="screen")
    table = _not_compared(comparison)
    rows = [_with_link(row, link) for row in table.rows[:_MAX_SMALL]]
    title = f"Cases that are not compared: {table.total}"
    yield replace(table, title=title, rows=rows, where="packbench compare lists more")


def _about_comparison(outcome: BaselineOutcome, comparison: Comparison) -> Iterator[Block]:
    """Yield what to know before the cases: what was compared, and what limits or fails the comparison."""
    from pytest_packbench.reports.diff import comparison_headline

    baseline = comparison.baseline
    compared = f"{_capitalized(comparison_headline(comparison))}, compared with run {baseline.run_id}"
    yield Text(f"{compared} of {minute(baseline.finished_at)}." if baseline.finished_at else f"{compared}.")
    for text in comparison.differences:
        yield Text(f"The runs differ in {text}.", sign="! forced comparison", color="warn")
    if outcome.warning:
        yield Text(f"{_capitalized(outcome.warning)}.", sign="! note", color="warn")
    if comparison.committed:
        yield Text("The baseline is the committed one; answers and terms are not stored in it.", css="intro")
    for text in outcome.failures:
        yield _judgement(text, failed=True)


def _changed(title: str, comparison: Comparison, kind: str, link: Link, *, css: str = "") -> Section:
    """Return the cases that changed in one way, with both answers."""
    from pytest_packbench.reports.diff import changes_table

    table = changes_table("", comparison, {kind: ""})
    titled, rows = f"{title}: {table.total}", [_with_link(row, link) for row in table.rows[:_MAX_FLIPS]]
    return Section(titled, [replace(table, title=titled, rows=rows, numbers=(4,), quiet=True)], css=css)


def _with_link(row: Row, link: Link) -> Row:
    """Return the row of a case that changed, with a link if the run has the case."""
    return _case_cell(str(row[0]), link if row[3] else None), *row[1:]


def _case_cell(test_id: str, link: Link | None = None, more: str = "") -> Cell:
    """Return the name of a case without that of its suite, which all cases of a page share; with a link to it."""
    name = test_id.partition(":")[2] or test_id
    return Cell(f"{name}{more}", href="" if link is None else link(test_id), css="case")


def _not_compared(comparison: Comparison) -> Table:
    """Return the cases that are not compared: one that failed may have been removed, quarantined or edited."""
    from pytest_packbench.reports.diff import changes_table

    table = changes_table("", comparison, _NOT_COMPARED)
    # what failed and is no longer compared first
    rows = sorted(table.rows, key=lambda row: (row[1] == _NOT_COMPARED["added"], not _failed_before(row)))
    return replace(table, rows=rows)


def _failed_before(row: Row) -> bool:
    before = row[2]
    return isinstance(before, Cell) and before.text in _FAILING


def _mean_change(comparison: Comparison) -> Section:
    """Return the mean change as a drawing, and what the numbers mean; not for print."""
    from pytest_packbench.reports.diff import sentences

    mean, drawing = comparison.mean, ""
    if mean is not None and mean.low is not None and mean.high is not None and not comparison.authored:
        ends = (mean.low, mean.high)
        drawing = interval_svg(mean.mean, change_range([mean.mean, *ends]), interval=ends, ends=True)
    return Section("Mean change", [Markup(drawing), Points(sentences(comparison))], css="screen")


def _failing(conclusion: Conclusion, name: Callable[[Result], Cell], *more: str) -> Table:
    """Return the first cases without a score, then the first that failed; `more` are further columns."""
    table = case_table("", conclusion.page_cases, ("broken", "failed"), (*_SAID, *more), name=name)
    return replace(table, numbers=(2, 3))


def _printed_failures(conclusion: Conclusion) -> Table:
    """Return the first cases that did not pass, for print, which has no table of all cases.

    New failures are in the section on the baseline.
    """
    table, compared = _failing(conclusion, lambda case: _case_cell(case.case.test_id)), _compared(conclusion)
    new = () if compared is None else compared.listed["new_failures"].first[:_MAX_FLIPS]
    said = {_case_cell(change.test_id) for change in new}
    rows, total = [row for row in table.rows if row[0] not in said], table.total - len(said)
    title = f"{'Other failing' if said else 'Failing'} cases: {total}"
    return replace(table, title=title, rows=rows[:_MAX_PRINTED], total=total, quiet=True)


def _trend(page: RunPage) -> Iterator[Block]:
    if not page.trend:
        return
    points = [*page.trend, *_own_point(page)]
    points = [
        point._replace(changed=_changed_cases(before.case_hashes, point.case_hashes))
        for before, point in zip([points[0], *points], points, strict=False)
    ]
    rows = [
        (
            Cell(point.run_id, css="mono"),
            minute(point.finished_at),
            verdict_cell(point.status),
            f"{point.passed} of {point.judged}",
            format_interval(point.interval),
            format_mean(point.mean_score),
            ", ".join(
                ["rules changed"] * (point.suite_sha256 != before.suite_sha256)
                + [f"{pluralize(point.changed, 'case')} changed"] * bool(point.changed)
            ),
        )
        for before, point in zip([points[0], *points], points, strict=False)
    ]
    earlier = pluralize(len(page.trend), "earlier complete run")
    own = " and this one" if len(points) > len(page.trend) else "; this one has only a part of the suite"
    changed = " \u00b1n: n cases were added, removed or edited." if any(point.changed for point in points) else ""
    yield Text(f"{earlier} of this suite with the same mode, target and model{own}.{changed}", css="intro")
    yield Markup(trend_svg(points))
    yield _key(("value", "pass rate"), ("mean", "mean score"), ("pass", "passed run"), ("fail", "failed run"))
    head = ("run", "finished", "result", "passed", "95 % interval", "mean score", "since the run before")
    yield Section("The same as a table", [Table("Runs, oldest first", head, rows, numbers=(3, 5))], folded=True)


def _own_point(page: RunPage) -> Iterator[TrendPoint]:
    """Yield the run as a point of its trend; a part of a suite is no such point."""
    run, overall, status = page.conclusion.run, page.conclusion.statistics.overall, run_verdict(page.conclusion).status
    if not run.partial:
        yield page.trend[-1]._replace(
            run_id=run.run_id,
            finished_at=run.finished_at,
            status=status,
            passed=overall.passed,
            judged=overall.n,
            mean_score=overall.mean_score,
            interval=overall.interval,
            suite_sha256=run.suite_sha256,
            case_hashes=page.numbers.case_hashes,
        )


def _changed_cases(before: Mapping[str, str | None] | None, now: Mapping[str, str | None] | None) -> int:
    """Return how many cases only one of two runs has, or in another content; 0 where they are not known."""
    if before is None or now is None:
        return 0
    # a case that could not be read has no hash
    return sum(before.get(test_id, "") != now.get(test_id, "") for test_id in before.keys() | now.keys())


def _scores(numbers: CaseNumbers) -> Iterator[Block]:
    rows = [
        (f"{index / BINS:.2f} to {(index + 1) / BINS:.2f}", passed, failed)
        for index, (passed, failed) in enumerate(zip(numbers.passed, numbers.failed, strict=True))
        if passed or failed
    ]
    if not rows:
        return
    if len(rows) == 1:
        yield Text(f"All scores are from {rows[0][0]}.")
    else:
        yield Markup(histogram_svg(numbers.passed, numbers.failed, tuple(numbers.thresholds)))
        yield _key(("bar-pass", "passed"), ("bar-fail", "failed"), ("limit", "threshold"))
    limits = ", ".join(f"{value:g} ({pluralize(count, 'attempt')})" for value, count in numbers.thresholds.items())
    table = Table("Scores of judged attempts", ("score", "passed", "failed"), rows, numbers=(1, 2))
    yield Section("The same as a table", [table, Text(f"Thresholds: {limits}.", css="intro")], folded=True)


def _rates(statistics: Statistics) -> Iterator[Block]:
    if not statistics.overall.n:
        return
    if not statistics.has_intervals:
        yield Text("Authored answers are no sample of a model's answers, so that only counts are shown.", css="intro")
    tables = list(map(_of_samples, rate_tables(statistics)))
    yield from (table for table in tables if len(table.rows) <= _FEW_GROUPS)
    yield _of_samples(depth_table(statistics))
    yield refusals_table(statistics)
    for table in tables:
        if len(table.rows) > _FEW_GROUPS:
            yield Section(f"{table.title}: {len(table.rows)} groups", [table], folded=True)


def _of_samples(table: Table) -> Table:
    """Return a table of counts, shares and intervals without the shares that have no interval."""

    def shown(row: Row) -> Row:
        return (*row[:2], None if row[3] == DASH else row[2], *row[3:])

    return replace(table, rows=list(map(shown, table.rows)), last=list(map(shown, table.last)))


def _figures(page: RunPage) -> Iterator[Block]:
    for panel in page.panels:
        yield Section(panel.title, list(_panel(panel)))
    figures, shown = page.conclusion.all_figures, {id(figure) for panel in page.panels for figure in panel.figures}
    headlines = [figure for figure in figures if figure.headline and id(figure) not in shown]
    yield from figure_tables(headlines)
    if len(figures) > len(headlines):
        title = f"All {len(figures)} figures" if len(figures) > 1 else "The figure"
        yield Section(title, figure_tables(figures), folded=True)


def _panel(panel: Panel) -> Iterator[Block]:
    yield Text(panel.intro, css="intro")
    yield from (replace(table, quiet=True) for table in figure_tables(panel.figures))
    numbers = [
        number
        for number, column in enumerate(zip(*panel.rows, strict=True))
        if number and all(isinstance(value, int | float | None) for value in column)
    ]
    rows = [[_panel_cell(panel, row, number) for number in range(len(row))] for row in panel.rows[:MAX_ROWS]]
    css = "matrix" if panel.matrix else ""
    yield Table(panel.title, panel.head, rows, len(panel.rows), numbers=numbers, css=css, quiet=True)


def _panel_cell(panel: Panel, row: Sequence[str | float | None], number: int) -> str | Cell:
    """Return a cell of a panel; a count of a matrix is right where row and column have the same name."""
    value = row[number]
    text = DASH if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    if not panel.matrix or not number:
        return text
    color = "heat-0" if not value else "heat-right" if panel.head[number] == row[0] else "heat-wrong"
    return Cell(text if value else "·", css=f"heat {color}")


def _effort(page: RunPage, link: Link) -> Iterator[Block]:
    efforts, known, costs = page.numbers.efforts, page.numbers.tokens, page.numbers.costs
    if page.conclusion.run.mode == FIXTURE or not efforts:
        return
    yield Text(used_sentence(page.conclusion))
    if known:
        given, returned = map(sum, zip(*known, strict=True))
        of = f"of {len(known)} of {pluralize(len(efforts), 'attempt')} with a record"
        yield Text(f"Tokens in records, also of cached answers: {given:,} input, {returned:,} output ({of}).")
    slowest = _attempts("The attempts that took longest", efforts, lambda each: each.duration_ms, link)
    yield replace(slowest, total=len(efforts))
    priced = [each for each in efforts if each.cost_usd]
    dearest = _attempts("The attempts that cost most", priced, lambda each: each.cost_usd or 0.0, link)
    yield replace(dearest, total=len(costs))


def _attempts(
    title: str, efforts: Sequence[AttemptEffort], amount: Callable[[AttemptEffort], float], link: Link
) -> Table:
    """Return the attempts with the largest amounts, each with its share of the largest; costs where one is known."""
    first = sorted(efforts, key=lambda each: (-amount(each), each.test_id, each.trial))[:_WORST]
    priced = any(each.cost_usd is not None for each in first)
    rows = []
    for each in first:
        name = _case_cell(each.test_id, link, f" (trial {each.trial + 1})" if each.trial else "")
        tokens = "not known" if each.tokens is None else f"{sum(each.tokens):,}"
        cost = "not known" if each.cost_usd is None else _money(each.cost_usd)
        drawn = Cell("", svg=bar_svg(amount(each) / (amount(first[0]) or 1)))
        rows.append((name, format_duration(each.duration_ms), tokens, cost if priced else None, drawn))
    head = ("case", "time", "tokens", "cost, USD", "against the first")
    return Table(title, head, rows, where="the table of cases has all", numbers=(1, 2, 3))


def _cases(page: RunPage, link: Link, number: int) -> Iterator[Block]:
    """Yield the tables of cases that did not pass, in whose place the script shows all cases of the first run."""
    anchors = set[str]()

    def name(case: Result) -> Cell:
        # what links lead to where no script runs; a case may be in the table twice
        cell = _case_cell(case.case.test_id, link)
        is_first = cell.href not in anchors
        anchors.add(cell.href)
        return cell._replace(id=cell.href[1:] if is_first else "")

    table = replace(_failing(page.conclusion, name, "input", "file"), title="Cases that did not pass")
    first = '<div id="packbench-cases"></div>\n<div id="cases-static" class="cases-static">\n'
    yield Markup('<div class="cases-static">\n' if number else first)
    yield table
    yield Text("" if table.rows else "No case failed.", css="muted")
    yield Markup("</div>\n")


def _money(amount: float) -> str:
    if amount >= 1 or not amount:
        return f"{amount:.2f}"
    return f"{amount:.4f}" if amount >= _TENTH_OF_A_CENT else f"{amount:.6f}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
