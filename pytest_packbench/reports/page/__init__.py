"""Render runs as one HTML page: a file that needs no network, and no script for what decides about a release."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections import Counter
from functools import cache
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.analysis.counting import cases_of
from pytest_packbench.reports.blocks import html_text
from pytest_packbench.reports.plots import BINS
from pytest_packbench.runs.folder import DIFF, PAGE, SUMMARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_packbench.analysis.changes import BaselineOutcome
    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.model.metric import Panel
    from pytest_packbench.model.report import Outline
    from pytest_packbench.model.result import Result
    from pytest_packbench.reports.page.case_data import CaseBlocks, CaseSources
    from pytest_packbench.reports.story import Place
    from pytest_packbench.runs.reading import StoredRun
    from pytest_packbench.runs.writer import RunWriter

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
    from pytest_packbench.analysis.trend import like_runs, verdict_rows
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
    from pytest_packbench.runs.folder import StoredRunError

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
    from pytest_packbench.reports.page.sections import overview_html, run_html, run_sections

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


def write_pages(writer: RunWriter, page: RunPage, place: Place, redact: Callable[[str], str]) -> None:
    """Write the pages of a run, and its controls, into its folder.

    Args:
        writer: writes the files of the run.
        page: what its page shows.
        place: where `summary.md` is read.
        redact: replaces secrets in a text.

    Raises:
        OSError: a file can't be written.
    """
    from pytest_packbench.reports.story import summary_markdown

    conclusion, outcome = page.conclusion, page.conclusion.baseline
    writer.write_controls(conclusion.controls)
    writer.write_page(SUMMARY, summary_markdown(conclusion, place=place))
    writer.write_page(PAGE, page_html([page], title=conclusion.run.suite, redact=redact))
    if outcome is not None and outcome.compared is not None:
        from pytest_packbench.reports.diff import diff_markdown

        text = diff_markdown(outcome.compared, outcome.met, figures=conclusion.paired_figures)
        writer.write_page(DIFF, redact(text))


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
