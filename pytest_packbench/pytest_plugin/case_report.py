"""A case on pytest's report: its results for the recorder, its properties, and its explanation for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.model.result import CaseResult
from pytest_packbench.pytest_plugin.case_run import run_of
from pytest_packbench.pytest_plugin.explain import explanation_at
from pytest_packbench.pytest_plugin.stash import AHEAD, ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_packbench.pytest_plugin.case_run import CaseRun


class Reporter:
    """Completes the reports of cases, in the process that runs them."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what a case tells to the report of a phase."""
        run = run_of(item)
        if run is None:
            return (yield)
        if call.when == "teardown":
            return _slim(run, (yield))
        error = call.excinfo.value if call.excinfo is not None else None
        if error is not None and run.result is None:
            run.note_trouble(error)
        result = run.result
        is_news = result is not None and result is not run.told
        if result is not None and is_news:
            run.told = result
            item.user_properties.extend(properties(result))
        report = _slim(run, (yield))
        if is_news:
            _attach(run, report)
        if error is not None and run.explanation and run.explains(error):
            _explain(run, report)
        if run.own_test and report.failed and result is not None and result.verdict in {"error", "vacuous"}:
            # as for cases from files: all up to the score is setup, and call compares
            report.when = "setup"
        return report


def properties(result: CaseResult) -> list[tuple[str, Any]]:
    """Give what JUnit and other reports show of a case beside its outcome."""
    found = {
        "suite": result.suite,
        "case_type": result.case_type,
        "difficulty": result.difficulty,
        "verdict": result.verdict,
        "score": result.score,
        "threshold": result.threshold,
        "match_depth": result.match_depth,
    }
    return [(name, value) for name, value in found.items() if value not in {None, ""}]


def is_of_case(report: pytest.TestReport) -> bool:
    """Whether a report is that of a case: then it bears a case's properties."""
    return "verdict" in dict(report.user_properties)


def pack_report(report: pytest.TestReport) -> None:
    """Make of a report's results what xdist can send: ASCII, for an answer may hold what it can't, a lone surrogate."""
    results = getattr(report, ATTRIBUTE, None)
    if results is not None:
        setattr(report, ATTRIBUTE, json.dumps([result.as_json() for result in results]))


def unpack_report(report: pytest.TestReport) -> None:
    """Make of what xdist has sent a report of this process again."""
    results: object = report.__dict__.get(ATTRIBUTE)
    if isinstance(results, str):
        setattr(report, ATTRIBUTE, tuple(CaseResult.from_json(one) for one in json.loads(results)))
    text = report.longrepr
    if report.failed and isinstance(text, str) and is_of_case(report):
        report.longrepr = explanation_at(report.location, text)  # type: ignore[assignment]  # pytest's own is private


def _attach(run: CaseRun, report: pytest.TestReport) -> None:
    setattr(report, ATTRIBUTE, run.results)
    if not run.own_test and AHEAD in run.item.config.stash:
        # the setup only waited for what ran beside other cases
        report.duration = sum(result.duration_ms for result in run.results) / 1000


def _explain(run: CaseRun, report: pytest.TestReport) -> None:
    text = run.explanation
    # what is no failure has no place to point to
    report.longrepr = explanation_at(report.location, text) if report.failed else text  # type: ignore[assignment]  # as above


def _slim(run: CaseRun, report: pytest.TestReport) -> pytest.TestReport:
    # pytest keeps every report to the end, each with the names of all folders above
    if run.keywords == report.keywords:
        report.keywords = run.keywords
    else:
        run.keywords = report.keywords
    return report
