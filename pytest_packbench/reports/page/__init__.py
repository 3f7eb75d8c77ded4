"""Render runs as one HTML page: a file that needs no network, and no script for what decides about a release."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.analysis.conclusion import run_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.reports.page.case_data import CaseBlocks


class TrendPoint(NamedTuple):
    """An earlier run of the same kind, as a point of the trend.

    Attributes:
        run_id: its id.
        finished_at: when it ended, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
        status: `passed`, `failed` or `partial`.
        passed: judged cases that passed.
        judged: judged cases.
        mean_score: 0 to 1; None if no case was judged.
        interval: two-sided Wilson interval of the pass rate, 0 to 1; None without one.
        suite_sha256: hash of the scoring rules, which break the trend where they change.
    """

    run_id: str
    finished_at: str
    status: str
    passed: int
    judged: int
    mean_score: float | None
    interval: tuple[float, float] | None
    suite_sha256: str


class RunPage(NamedTuple):
    """What the page shows of one run.

    Attributes:
        conclusion: what the run came to.
        cases: its cases, compressed; None if the page has only the failing ones, as text.
        trend: earlier runs of the same kind, oldest first.
        notes: what a reader has to know about the page, a sentence each.
    """

    conclusion: Conclusion
    cases: CaseBlocks | None = None
    trend: Sequence[TrendPoint] = ()
    notes: Sequence[str] = ()


def run_page(
    conclusion: Conclusion,
    results: Iterable[CaseResult],  # noqa: ARG001 - read by the sections on scores and effort
    *,
    cases: CaseBlocks | None = None,
    trend: Sequence[TrendPoint] = (),
    notes: Sequence[str] = (),
) -> RunPage:
    """Return what the page shows of a run.

    Args:
        conclusion: what it came to.
        results: one for each attempt, in any order; read once.
        cases: its cases, compressed.
        trend: earlier runs of the same kind, oldest first.
        notes: what a reader has to know about the page, a sentence each.
    """
    return RunPage(conclusion, cases, trend, notes)


def trend_of(earlier: Iterable[Any]) -> tuple[TrendPoint, ...]:
    """Return earlier runs as points of the trend."""
    return tuple(TrendPoint(*(getattr(run, name) for name in TrendPoint._fields)) for run in earlier)


def page_html(pages: Sequence[RunPage], *, title: str, refresh: int | None = None) -> str:
    """Render runs as one page.

    Args:
        pages: the runs, one or more, in the order of the page.
        title: the title of the page.
        refresh: after how many seconds a browser loads the page again; None for never.

    Returns:
        HTML in which all text of cases, models and files is escaped, and whose content security policy allows nothing
        but its own style and script.
    """
    css, script = _source("page.css") + _source("cases.css"), _source("page.js")
    has_script = bool(script) and any(page.cases is not None for page in pages)
    environment = _environment()
    return str(
        environment.render_template(
            "page.html",
            title=title,
            refresh=refresh,
            css=css,
            script=script if has_script else "",
            policy=_policy(css, script if has_script else ""),
            runs=[_view(page, number, several=len(pages) > 1) for number, page in enumerate(pages, 1)],
        )
    )


def _view(page: RunPage, number: int, *, several: bool) -> dict[str, Any]:
    verdict = run_verdict(page.conclusion)
    return {
        "number": number,
        "suffix": f"-{number}" if several and number > 1 else "",
        "status": verdict.status,
        "headline": verdict.headline,
        "sentence": verdict.sentence,
        "gates": [gate.text for gate in page.conclusion.gates],
        "blocks": [{"name": block.name, "text": block.text} for block in page.cases.blocks] if page.cases else [],
    }


@cache
def _source(name: str) -> str:
    path = Path(__file__).with_name(name)
    return path.read_text("utf-8") if path.is_file() else ""


def _policy(css: str, script: str) -> str:
    scripts = f"script-src {_digest(script)}; " if script else ""
    return f"default-src 'none'; {scripts}style-src {_digest(css)}; img-src data:; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Any:
    from minijinja import Environment

    return Environment(
        templates={"page.html": _source("page.html")}, trim_blocks=True, lstrip_blocks=True, undefined_behavior="strict"
    )
