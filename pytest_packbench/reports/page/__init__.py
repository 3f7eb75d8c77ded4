"""Render runs as one HTML page: a file that needs no network, and no script for what decides about a release."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections import Counter
from functools import cache
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.reports.blocks import html_text
from pytest_packbench.reports.plots import BINS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_packbench.analysis.changes import BaselineOutcome
    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.analysis.trend import TrendPoint
    from pytest_packbench.model.metric import Panel
    from pytest_packbench.model.result import Result
    from pytest_packbench.reports.page.case_data import CaseBlocks, CaseSources

MAX_CASES = 10_000
"""How many cases a page contains at most, unless more did not pass."""
# written by the build of the wheel
_PACKED = "_sources.json"


class AttemptEffort(NamedTuple):
    """What one attempt took.

    Attributes:
        test_id: the case.
        trial: the number of the attempt, from 0.
        duration_ms: milliseconds.
        tokens: input and output tokens; None unless both are known.
        cost_usd: US dollars; None if it is not known.
    """

    test_id: str
    trial: int
    duration_ms: int
    tokens: tuple[int, int] | None
    cost_usd: float | None


class CaseNumbers(NamedTuple):
    """The numbers of a run's attempts that its statistics do not have.

    Attributes:
        passed: how many of the passed attempts have a score in each of `BINS` equal parts of 0 to 1.
        failed: the same of the failed attempts.
        thresholds: how many attempts have each threshold.
        efforts: what each attempt with a record took.
        case_hashes: the hash of each case's content by its test id; None for more than `MAX_CASES`.
    """

    passed: Sequence[int]
    failed: Sequence[int]
    thresholds: Mapping[float, int]
    efforts: Sequence[AttemptEffort]
    case_hashes: Mapping[str, str | None] | None

    @property
    def tokens(self) -> list[tuple[int, int]]:
        """Input and output tokens of the attempts where both are known."""
        return [each.tokens for each in self.efforts if each.tokens is not None]

    @property
    def costs(self) -> list[float]:
        """The costs of the attempts where they are known, US dollars."""
        return [each.cost_usd for each in self.efforts if each.cost_usd is not None]


class RunPage(NamedTuple):
    """What the page shows of one run.

    Attributes:
        conclusion: what the run came to.
        numbers: scores, times and tokens.
        cases: its cases, compressed; None if the page has only the failing ones, as text.
        trend: earlier runs of the same kind, oldest first.
        notes: what a reader has to know about the page, a sentence each.
        panels: what the pack adds.
    """

    conclusion: Conclusion
    numbers: CaseNumbers
    cases: CaseBlocks | None = None
    trend: Sequence[TrendPoint] = ()
    notes: Sequence[str] = ()
    panels: Sequence[Panel] = ()


def run_page(conclusion: Conclusion, results: Iterable[Result], **shown: Any) -> RunPage:
    """Return what the page shows of a run.

    Args:
        conclusion: what it came to.
        results: one for each attempt, in any order; read once.
        shown: the other fields of `RunPage`.
    """
    return RunPage(conclusion, case_numbers(results), **shown)


def page_of_run(
    conclusion: Conclusion,
    results: Callable[[], Iterable[Result]],
    *,
    folder: Path,
    sources: CaseSources,
    redact: Callable[[str], str],
    root_link: str | None,
    options: str,
    can_accept: bool,
    notes: Sequence[str] = (),
    panels: Sequence[Panel] = (),
) -> RunPage:
    """Return what the page shows of a run with its cases, those of its baseline, and earlier runs of the same kind.

    Args:
        conclusion: what the run came to.
        results: returns one for each attempt, with records and payloads, in the same order each time.
        folder: the folder of the run, which the suite's other runs are beside.
        sources: as in `case_blocks`, like the next four.
        redact: as there.
        root_link: as there.
        options: as there.
        can_accept: as there.
        notes: as in `run_page`, like the next one.
        panels: as there.
    """
    from pytest_packbench.analysis.counting import trials_rule_of
    from pytest_packbench.analysis.trend import like_runs, verdict_rows
    from pytest_packbench.reports.page.case_data import case_blocks

    run, number = conclusion.run, conclusion.statistics.totals.selected
    like = like_runs(folder.parent, run, conclusion.statistics.models)
    cases = case_blocks(
        shown_results(results, number),
        sources,
        baseline=baseline_cases(conclusion.baseline),
        history=verdict_rows(like),
        redact=redact,
        run=run.run_id,
        rule=trials_rule_of(run),
        root_link=root_link,
        options=options,
        can_accept=can_accept,
    )
    notes = [*notes, *missing_cases(number)]
    trend = [earlier.point for earlier in like]
    return run_page(conclusion, results(), cases=cases, trend=trend, notes=notes, panels=panels)


def shown_results(results: Callable[[], Iterable[Result]], number: int) -> tuple[Result, ...]:
    """Return the results of the cases that a page contains: all, or those that did not pass and the first others.

    Args:
        results: returns one for each attempt, in the same order each time.
        number: the number of cases.
    """
    if number <= MAX_CASES:
        return tuple(results())
    passed: dict[str, bool] = {}
    for result in results():
        passed[result.case.test_id] = passed.get(result.case.test_id, True) and result.score.verdict == "passed"
    failures_first = sorted(passed, key=passed.__getitem__)
    kept = set(failures_first[: max(MAX_CASES, len(passed) - sum(passed.values()))])
    return tuple([result for result in results() if result.case.test_id in kept])


def missing_cases(number: int) -> tuple[str, ...]:
    """Return what a page of this many cases says of those that it does not contain."""
    if number <= MAX_CASES:
        return ()
    shown = f"those that did not pass and the first others, {MAX_CASES:,} or more in all, of {number:,} cases"
    return (f"The table of cases has {shown}; report.json has all.",)


def baseline_cases(outcome: BaselineOutcome | None) -> dict[str, Result] | None:
    """Return the cases of a run's baseline by test id, with their payloads as far as they can be read.

    Args:
        outcome: what came of comparing the run with it.

    Returns:
        The cases; None where the runs are not compared.
    """
    if outcome is None or outcome.compared is None or outcome.stored is None:
        return None
    from pytest_packbench.analysis.changes import cases_of
    from pytest_packbench.runs.folder import StoredRunError

    stored = outcome.stored
    try:
        results = tuple(stored.complete_results()) or stored.results
    except (StoredRunError, OSError):
        results = stored.results
    return {case.case.test_id: case for case in cases_of(stored.run, results)}


def case_numbers(results: Iterable[Result]) -> CaseNumbers:
    """Return the numbers of a run's attempts, in any order."""
    bins = {"passed": [0] * BINS, "failed": [0] * BINS}
    thresholds: Counter[float] = Counter()
    efforts: list[AttemptEffort] = []
    hashes: dict[str, str | None] = {}
    for result in results:
        case, attempt, score, record = result.case, result.attempt, result.score, result.record
        if len(hashes) <= MAX_CASES:
            hashes[case.test_id] = case.case_sha256
        if score.counted and score.score is not None:
            bins[score.verdict][min(int(score.score * BINS + 1e-9), BINS - 1)] += 1
            if score.threshold is not None:
                thresholds[score.threshold] += 1
        if record is not None:
            given, returned = record.get("tokens_input"), record.get("tokens_output")
            tokens = (given, returned) if isinstance(given, int) and isinstance(returned, int) else None
            efforts.append(AttemptEffort(case.test_id, attempt.trial, attempt.duration_ms, tokens, attempt.cost_usd))
    known = hashes if len(hashes) <= MAX_CASES else None
    return CaseNumbers(bins["passed"], bins["failed"], dict(sorted(thresholds.items())), efforts, known)


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
        title=html_text(title, redact),
        policy=_policy(css, script),
        css=css,
        links="".join(f'<li><a href="#{name}">{name.capitalize()}</a></li>' for name in links),
        runs="".join([overview_html(pages, title, redact) if several else "", *runs]),
        data="".join([*blocks, f"<script>{script}</script>\n" if script else ""]),
    )


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
