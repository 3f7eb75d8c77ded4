"""Render runs as one HTML page: a file that needs no network, and no script for what decides about a release."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from pytest_packbench.analysis.conclusion import Conclusion, caveats, run_verdict, since
from pytest_packbench.analysis.counting import MAX_ROWS, cases_of
from pytest_packbench.analysis.statistics import (
    DASH,
    capitalized,
    format_duration,
    format_interval,
    format_mean,
    format_percent,
)
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.report import Outline
from pytest_packbench.model.result import FIXTURE, Result
from pytest_packbench.model.run import DIFF, PAGE, RUN_DOCUMENT_VERSION, SUMMARY, recorded_spending
from pytest_packbench.model.suite import CHANGE_METRICS, GateResult, gates_text
from pytest_packbench.reports.blocks import (
    BINS,
    Block,
    Cell,
    Markup,
    Points,
    Row,
    Section,
    Table,
    Text,
    bars_svg,
    figure_tables,
    html,
    html_text,
    interval_svg,
    minute,
    share_range,
    trend_svg,
    verdict_cell,
    with_texts,
)
from pytest_packbench.reports.story import (
    about,
    case_table,
    depth_table,
    gates_table,
    rate_tables,
    refusals_table,
    trend_table,
    wrong_controls,
)
from pytest_packbench.reports.terminal import spent_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.analysis.changes import BaselineOutcome, Comparison
    from pytest_packbench.analysis.counting import Statistics
    from pytest_packbench.model.report import StoredRun
    from pytest_packbench.model.suite import Panel
    from pytest_packbench.reports.page.case_data import CaseBlocks, CaseSources
    from pytest_packbench.reports.story import Place

    Link = Callable[[str], str]


_SAID = ("verdict", "score", "trials passed", "expected", "actual", "kind", "message", "terms in detail")
"""What the page says of each case that did not pass."""
_LIMITS = "What this run shows, and what it does not"
_TILES_OF_A_ROW = 7
_MAX_FLIPS = 50
_MAX_PRINTED = 10
_FEW_GROUPS = 10
_FAILING = ("failed", "error")
# the kinds of changes that are printed
_FLIPS = ("new_failures", "fixed")
_TENTH_OF_A_CENT = 0.001
_LINES = (
    "A step of the pass rate may come from cases that were added, removed or edited: packbench history counts them."
)


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
        ("policy", "Acceptance policy", "", _policy_block(conclusion)),
        ("controls", "Controls", "" if has_wrong else "screen", _controls(conclusion)),
        ("changes", "Since the baseline", "", _baseline(conclusion, link)),
        ("failing", failing.title, "printed", [failing] if failing.rows else ()),
        ("trend", "Trend", "screen", _trend(page)),
        ("scores", "Scores", "screen", _scores(page.scores)),
        ("rates", "Rates by group", "screen", _rates(statistics)),
        ("figures", "Figures of the pack", "screen", _figures(page)),
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
    run, conclusion = page.conclusion.run, page.conclusion
    suffix, level = (f"-{number + 1}", 2) if several else ("", 1)
    backend = f"{run.backend} / {run.model}" if run.backend and run.model else ""
    made = (run.suite, f"{run.mode} mode", run.target, backend, minute(run.finished_at), run.run_id)
    limits = Section(_LIMITS, [Points([*caveats(conclusion), *page.notes])])
    everything = run_verdict(conclusion), " · ".join(filter(None, made)), [*_tiles(page)], [limits], sections
    verdict, eyebrow, tiles, said, sections = with_texts(everything, redact)
    status = verdict_cell(verdict.status)
    first, rest = map(html_text, verdict.headline.split(", ", 1))
    written = html(sections, level=level + 1)
    name = f"verdict{suffix}"
    return (
        f'<article class="run" aria-labelledby="{name}-title">\n<section id="{name}" class="verdict">\n'
        f'<p class="eyebrow">{html_text(eyebrow)}</p>\n'
        f'<h{level} id="{name}-title" class="headline"><span class="is-{status.color}">'
        f'<span class="sign" aria-hidden="true">{status.sign}</span>{first}</span>, {rest}</h{level}>\n'
        f'<p class="lead">{html_text(verdict.sentence)}</p>\n{_tiles_html(tiles)}'
        f'<div class="limits">\n{html(said, level=level + 1)}</div>\n</section>\n{written}'
        '<div class="signoff" aria-hidden="true"><p>Decision</p><p>Name</p><p>Date</p></div>\n</article>\n'
    )


def _tiles_html(tiles: Sequence[Tile]) -> str:
    written = []
    for tile in tiles:
        name, value, note = map(html_text, tile[:3])
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
    return f'<section class="runs">\n{html(with_texts([Section(title, [table])], redact), level=1)}</section>\n'


def _tiles(page: RunPage) -> Iterator[Tile]:
    conclusion, comparison = page.conclusion, page.conclusion.compared
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
        yield Tile("Controls", f"{controls.counts.as_written} of {controls.counts.selected}", "ended as written", wrong)
    counts = {name: verdicts[name] for name in ("error", "vacuous", "known_hole", "not_run")}
    counts["quarantined"] = sum(statistics.totals.quarantined.values())
    unjudged = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    if unjudged:
        color = "broken" if verdicts["error"] else ""
        yield Tile("Not judged", str(statistics.totals.selected - overall.n), ", ".join(unjudged), color)
    if comparison is not None:
        from pytest_packbench.reports.diff import NOT_COMPARED, changes_table

        changed = comparison.counts()
        unseen = sum(map(_failed_before, changes_table("", comparison, NOT_COMPARED).rows))
        gone = f"; {unseen} that failed there not compared" if unseen else ""
        failing, note = changed["new_failures"], f"{changed['fixed']} recovered since the baseline{gone}"
        yield Tile("New failures", str(failing), note, "fail" if failing else "")
    if conclusion.run.mode != FIXTURE:
        yield from _effort_tiles(conclusion)


def _effort_tiles(conclusion: Conclusion) -> Iterator[Tile]:
    """Yield the time, the tokens and the cost of a live run; what is not known is not 0."""
    times, spent = conclusion.times, recorded_spending(conclusion.run)
    if times is not None:
        yield Tile("Time, median", format_duration(times.p50_ms), f"95 % within {format_duration(times.p95_ms)}")
    if spent is None:
        yield Tile("Cost", "not known")
        return
    # no call went through packbench, and some target ran
    is_unseen = spent["calls"] is None or bool(spent.get("unmetered") and not spent["calls"])
    tokens, cost = (spent[name] or (None if is_unseen else spent[name]) for name in ("tokens", "cost"))
    said = spent_text(spent).removeprefix("used: ")
    yield Tile("Tokens", "not known" if tokens is None else f"{tokens:,}")
    yield Tile("Cost", "not known" if cost is None else f"{_money(cost)} {spent['currency']}".rstrip(), said)


def _gates(gates: Sequence[GateResult]) -> Iterator[Block]:
    if not gates:
        yield Text("The suite has no gate.", css="muted")
        return
    yield gates_table(gates, f"Gates: {gates_text(gates)}", _gate_svg)._replace(css="gates")
    yield Text("The coloured band has the values that pass, the grey line is the 95 % interval.", css="key")


def _gate_svg(gate: GateResult) -> str:
    """Draw the share that a gate judged and its limits; empty if it judged nothing, or a change."""
    if gate.observed is None or gate.metric in CHANGE_METRICS.values() or not gate.judged:
        return ""
    limits = [limit for limit in (gate.min, gate.max) if limit is not None]
    axis = share_range([gate.observed, *(gate.interval or ()), *limits])
    status = "fail" if not gate.passed else "warn" if gate.proven is False else "pass"
    return interval_svg(
        gate.observed, axis, interval=gate.interval, low=gate.min, high=gate.max, status=status, ends=True
    )


def _judgement(text: str, *, failed: bool) -> Text:
    sign, color = ("✗ failed", "fail") if failed else ("✓ passed", "pass")
    return Text(f"{capitalized(text)}.", sign=sign, color=color)


def _policy_block(conclusion: Conclusion) -> Iterator[Block]:
    if conclusion.policy is not None:
        first, *others = conclusion.policy.lines()
        yield _judgement(first, failed=conclusion.policy.failed)
        yield Points(others, css="intro")


def _controls(conclusion: Conclusion) -> Iterator[Block]:
    tally = conclusion.controls
    if tally is None:
        return
    if tally.wrong or tally.counts.as_written:
        yield _judgement(tally.line(), failed=bool(tally.wrong))
    else:
        yield Text(f"{capitalized(tally.line())}.", sign="\u2013 not run", color="plain")
    yield Text("Controls are recordings of wrong answers, each with the end that it must have.", css="intro")
    yield wrong_controls(tally, _MAX_FLIPS)


def _baseline(conclusion: Conclusion, link: Link) -> Iterator[Block]:
    outcome, comparison = conclusion.baseline, conclusion.compared
    if outcome is not None:
        from pytest_packbench.reports.diff import about_comparison

        yield from (said._replace(text=f"{capitalized(said.text)}.") for said in about_comparison(outcome))
    if comparison is not None:
        if comparison.committed:
            yield Text("The baseline is the committed one; answers and terms are not stored in it.", css="intro")
        from pytest_packbench.analysis.changes import SMALLER
        from pytest_packbench.reports.diff import KINDS, NOT_COMPARED, sentences

        for kind, (_, title) in KINDS.items():
            if kind not in {*NOT_COMPARED, SMALLER}:
                yield _changed(title, comparison, [kind], link, "" if kind in _FLIPS else "screen")
        yield _changed("Cases that are not compared", comparison, NOT_COMPARED, link)
        yield Section("Mean change", [Points(sentences(comparison))], css="screen")


def _changed(title: str, comparison: Comparison, kinds: Sequence[str], link: Link, css: str = "") -> Section:
    """Return the cases that changed in some ways, with both answers; those first that failed before."""
    from pytest_packbench.reports.diff import changes_table

    table = changes_table("", comparison, kinds)
    first = sorted(table.rows, key=_failed_before, reverse=True)[:_MAX_FLIPS]
    # the run has no case that was removed
    rows = [(_case_cell(str(row[0]), link if row[3] else None), *row[1:]) for row in first]
    titled = f"{title}: {table.total}"
    return Section(titled, [table._replace(title=titled, rows=rows, numbers=(4,), quiet=True)], css=css)


def _case_cell(test_id: str, link: Link | None = None) -> Cell:
    """Return the name of a case without that of its suite, which all cases of a page share; with a link to it."""
    name = test_id.partition(":")[2] or test_id
    return Cell(name, href="" if link is None else link(test_id), css="case")


def _failed_before(row: Row) -> bool:
    before = row[2]
    return isinstance(before, Cell) and before.text in _FAILING


def _failing(conclusion: Conclusion, name: Callable[[Result], Cell], *more: str) -> Table:
    """Return the first cases without a score, then the first that failed; `more` are further columns."""
    table = case_table("", conclusion.page_cases, ("broken", "failed"), (*_SAID, *more), name=name)
    return table._replace(numbers=(2, 3))


def _printed_failures(conclusion: Conclusion) -> Table:
    """Return the first cases that did not pass, for print, which has no table of all cases."""
    table = _failing(conclusion, lambda case: _case_cell(case.case.test_id))
    return table._replace(title=f"Failing cases: {table.total}", rows=table.rows[:_MAX_PRINTED], quiet=True)


def _trend(page: RunPage) -> Iterator[Block]:
    if not page.trend:
        return
    # a part of a suite is no point of its trend
    points = [*page.trend, *([] if page.conclusion.run.partial else [_outline(page.conclusion)])]
    earlier = pluralize(len(page.trend), "earlier complete run")
    own = " and this one" if len(points) > len(page.trend) else "; this one has only a part of the suite"
    yield Text(f"{earlier} of this suite with the same mode, target and model{own}. {_LINES}", css="intro")
    yield Markup(trend_svg(points))
    table = trend_table(
        "Runs, oldest first", points, [{}, *({"change": since(old, now)} for old, now in pairwise(points))]
    )
    yield Section("The same as a table", [table], folded=True)


def _outline(conclusion: Conclusion) -> Outline:
    statistics = conclusion.statistics
    return Outline(
        version=RUN_DOCUMENT_VERSION,
        status=run_verdict(conclusion).status,
        complete=True,
        run=conclusion.run,
        totals=statistics.totals,
        overall=statistics.overall,
        models=statistics.models,
    )


def _scores(scores: Scores) -> Iterator[Block]:
    numbers = list(zip(scores.passed, scores.failed, strict=True))
    highest = max(map(sum, numbers))
    rows = [
        (f"{index / BINS:.2f} to {(index + 1) / BINS:.2f}", *of, Cell("", svg=bars_svg(*of, highest)))
        for index, of in enumerate(numbers)
        if any(of)
    ]
    if rows:
        yield Table("Scores of judged attempts", ("score", "passed", "failed", "attempts"), rows, numbers=(1, 2))
        limits = ", ".join(f"{value:g} ({pluralize(count, 'attempt')})" for value, count in scores.thresholds.items())
        yield Text(f"Thresholds: {limits}.", css="intro")


def _rates(statistics: Statistics) -> Iterator[Block]:
    if not statistics.overall.n:
        return
    tables = rate_tables(statistics)
    yield from (table for table in tables if len(table.rows) <= _FEW_GROUPS)
    yield depth_table(statistics)
    yield refusals_table(statistics)
    for table in tables:
        if len(table.rows) > _FEW_GROUPS:
            yield Section(f"{table.title}: {len(table.rows)} groups", [table], folded=True)


def _figures(page: RunPage) -> Iterator[Block]:
    for panel in page.panels:
        yield Section(panel.title, list(_panel(panel)))
    figures, shown = page.conclusion.all_figures, {id(figure) for panel in page.panels for figure in panel.figures}
    headlines = [figure for figure in figures if figure.headline and id(figure) not in shown]
    yield from figure_tables(headlines)
    if len(figures) > len(headlines):
        yield Section("All figures", figure_tables(figures), folded=True)


def _panel(panel: Panel) -> Iterator[Block]:
    yield Text(panel.intro, css="intro")
    yield from (table._replace(quiet=True) for table in figure_tables(panel.figures))
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


def _cases(page: RunPage, link: Link, number: int) -> Iterator[Block]:
    """Yield the tables of cases that did not pass, in whose place the script shows all cases of the first run."""
    anchors = set[str]()

    def name(case: Result) -> Cell:
        # what links lead to where no script runs; a case may be in the table twice
        cell = _case_cell(case.case.test_id, link)
        is_first = cell.href not in anchors
        anchors.add(cell.href)
        return cell._replace(id=cell.href[1:] if is_first else "")

    table = _failing(page.conclusion, name, "input", "file")._replace(title="Cases that did not pass")
    first = '<div id="packbench-cases"></div>\n<div id="cases-static" class="cases-static">\n'
    yield Markup('<div class="cases-static">\n' if number else first)
    yield table
    yield Text("" if table.rows else "No case failed.", css="muted")
    yield Markup("</div>\n")


def _money(amount: float) -> str:
    if amount >= 1 or not amount:
        return f"{amount:.2f}"
    return f"{amount:.4f}" if amount >= _TENTH_OF_A_CENT else f"{amount:.6f}"


MAX_CASES = 10_000
"""How many cases a page contains at most."""
# written by the build of the wheel
_PACKED = "_sources.json"


class Scores(NamedTuple):
    """The scores of a run's attempts.

    Attributes:
        passed: how many of the passed attempts have a score in each of `BINS` equal parts of 0 to 1.
        failed: the same of the failed attempts.
        thresholds: how many attempts have each threshold.
    """

    passed: Sequence[int]
    failed: Sequence[int]
    thresholds: Mapping[float, int]


class RunPage(NamedTuple):
    """What the page shows of one run.

    Attributes:
        conclusion: what the run came to.
        scores: those of its attempts.
        cases: its cases, compressed; None if the page has only the failing ones, as text.
        trend: earlier runs of the same kind, oldest first.
        notes: what a reader has to know about the page, a sentence each.
        panels: what the pack adds.
    """

    conclusion: Conclusion
    scores: Scores
    cases: CaseBlocks | None = None
    trend: Sequence[Outline] = ()
    notes: Sequence[str] = ()
    panels: Sequence[Panel] = ()


def page_of_run(
    conclusion: Conclusion,
    results: Callable[[], Iterable[Result]],
    sources: CaseSources,
    *,
    earlier: Iterable[StoredRun],
    notes: Sequence[str] = (),
    panels: Sequence[Panel] = (),
) -> RunPage:
    """Return what the page shows of a run with its cases, those of its baseline, and earlier runs of the same kind.

    Args:
        conclusion: what the run came to.
        results: returns one for each attempt, with records and payloads, in the same order each time.
        sources: what the project has of its cases.
        earlier: the complete runs of the suite before it, the latest first.
        notes: as in `RunPage`, like the next one.
        panels: as there.
    """
    from pytest_packbench.analysis.conclusion import like_runs, verdict_rows
    from pytest_packbench.reports.page.case_data import case_blocks

    run, number = conclusion.run, conclusion.statistics.totals.selected
    like = like_runs(run, conclusion.statistics.models, earlier)
    shown, baseline = shown_results(results, number), baseline_cases(conclusion.baseline)
    cases = case_blocks(shown, sources, run, baseline=baseline, history=verdict_rows(like))
    if number > MAX_CASES:
        shown_cases = f"at most {MAX_CASES:,} of {number:,} cases, those that did not pass first"
        notes = [*notes, f"The table of cases has {shown_cases}; report.json has all."]
    trend = [each.outline for each in like]
    return RunPage(conclusion, scores_of(results()), cases, trend, [*notes, *cases.notices], panels)


def shown_results(results: Callable[[], Iterable[Result]], number: int) -> tuple[Result, ...]:
    """Return the results of the cases that a page contains: all, or the first, those that did not pass before others.

    Args:
        results: returns one for each attempt, in the same order each time.
        number: the number of cases.
    """
    if number <= MAX_CASES:
        return tuple(results())
    passed: dict[str, bool] = {}
    for result in results():
        passed[result.case.test_id] = passed.get(result.case.test_id, True) and result.score.passed
    kept = set(sorted(passed, key=passed.__getitem__)[:MAX_CASES])
    return tuple([result for result in results() if result.case.test_id in kept])


def baseline_cases(outcome: BaselineOutcome | None) -> dict[str, Result] | None:
    """Return the cases of a run's baseline by test id, with their payloads as far as they can be read.

    Args:
        outcome: what came of comparing the run with it.

    Returns:
        The cases; None where the runs are not compared.
    """
    if outcome is None or outcome.compared is None or outcome.stored is None:
        return None
    from pytest_packbench.model.errors import StoredRunError

    stored = outcome.stored
    try:
        results = tuple(stored.complete_results()) or stored.results
    except (StoredRunError, OSError):
        results = stored.results
    return {case.case.test_id: case for case in cases_of(stored.run, results)}


def scores_of(results: Iterable[Result]) -> Scores:
    """Return the scores of a run's attempts, in any order."""
    bins = {"passed": [0] * BINS, "failed": [0] * BINS}
    thresholds: Counter[float] = Counter()
    for score in (result.score for result in results):
        if score.counted and score.score is not None:
            bins[score.verdict][min(int(score.score * BINS + 1e-9), BINS - 1)] += 1
            if score.threshold is not None:
                thresholds[score.threshold] += 1
    return Scores(bins["passed"], bins["failed"], dict(sorted(thresholds.items())))


def page_html(
    pages: Sequence[RunPage],
    *,
    title: str,
    redact: Callable[[str], str] = str,
) -> str:
    """Render runs as one page.

    Args:
        pages: the runs, one or more, in the order of the page.
        title: the title of the page.
        redact: replaces secrets in a text; not called for those of `RunPage.cases`.

    Returns:
        HTML in which all text of cases, models and files is escaped, and whose content security policy allows nothing
        but its own style and script.
    """
    several = len(pages) > 1
    every = [run_sections(page, number, several=several) for number, page in enumerate(pages)]
    links = [] if several else [section.name for section in every[0] if section.css != "printed"]
    runs = [
        run_html(page, sections, number, several=several, redact=redact)
        for number, (page, sections) in enumerate(zip(pages, every, strict=True))
    ]
    blocks = [
        f'<script type="text/plain" class="packbench-data" data-run="{number}" data-name="{block.name}">{block.text}'
        "</script>\n"
        for number, page in enumerate(pages)
        for block in (page.cases.blocks if page.cases is not None else ())
    ]
    css, script = page_source("page.css") + page_source("cases.css"), page_source("page.js") if blocks else ""
    return Template(page_source("page.html")).substitute(
        title=html_text(redact(title)),
        policy=_policy(css, script),
        css=css,
        links="".join(f'<li><a href="#{name}">{name.capitalize()}</a></li>' for name in links),
        runs="".join([overview_html(pages, title, redact) if several else "", *runs]),
        data="".join([*blocks, f"<script>{script}</script>\n" if script else ""]),
    )


def write_pages(write: Callable[[str, str], None], page: RunPage, place: Place, redact: Callable[[str], str]) -> None:
    """Write the pages of a run.

    Args:
        write: writes a file of the run: its name and its text.
        page: what its page shows.
        place: where `summary.md` is read.
        redact: replaces secrets in a text.

    Raises:
        OSError: a file can't be written.
    """
    from pytest_packbench.reports.story import summary_markdown

    conclusion, outcome = page.conclusion, page.conclusion.baseline
    write(SUMMARY, summary_markdown(conclusion, place=place))
    write(PAGE, page_html([page], title=conclusion.run.suite, redact=redact))
    if outcome is not None and outcome.compared is not None:
        from pytest_packbench.reports.diff import diff_markdown

        text = diff_markdown(outcome.compared, outcome.met, figures=conclusion.paired_figures)
        write(DIFF, redact(text))


@cache
def page_source(name: str) -> str:
    """Return a part of the page: from its file, or in a wheel from the file that has all of them."""
    path = Path(__file__).with_name(name)
    if path.is_file():
        return path.read_text("utf-8")
    text: str = _packed_sources()[name]
    return text


@cache
def _packed_sources() -> dict[str, str]:
    sources: dict[str, str] = json.loads(Path(__file__).with_name(_PACKED).read_text("utf-8"))
    return sources


def _policy(css: str, script: str) -> str:
    scripts = f"script-src {_digest(script)}; " if script else ""
    return f"default-src 'none'; {scripts}style-src {_digest(css)}; img-src data:; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
