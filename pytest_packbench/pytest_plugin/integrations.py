"""What other plugins show of a case, by their own hooks, where they are in use: Allure and pytest-html."""

from __future__ import annotations

from html import escape
from typing import Any

import pytest

from pytest_packbench.pytest_plugin.case_run import is_of_case, properties, run_of
from pytest_packbench.reports.terminal import printable

_NUMBERS = ("score", "threshold")
_COLUMNS = ("Suite", "Type", "Difficulty", "Score", "Threshold")
_OF_COLUMNS = ("suite", "case_type", "difficulty", *_NUMBERS)
_BEFORE = 2
"""The columns of pytest-html before ours: the result and the test."""


def register(config: pytest.Config, *, collecting: bool) -> None:
    """Register what Allure and pytest-html need, if they write a report.

    Args:
        config: the session's.
        collecting: whether collection has started: then the table of pytest-html has its columns already.
    """
    if getattr(config.option, "allure_report_dir", None):
        config.pluginmanager.register(AllureResults(config), "packbench-allure")
    if getattr(config.option, "htmlpath", None) and not collecting:
        config.pluginmanager.register(HtmlColumns(), "packbench-html")


class AllureResults:
    """Adds the parameters of cases to the results of Allure, and the duration of their attempts."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Complete the result of a case, which Allure writes after the teardown."""
        run = run_of(item)
        if run is None or run.result is None:
            return
        import allure

        for name, value in properties(run.result):
            # a changed score or verdict is no other test: it does not count for the test's history
            allure.dynamic.parameter(name, value, excluded=name not in {"suite", "case_type"})
        listener: Any = self._config.pluginmanager.getplugin("allure_listener")
        test = getattr(getattr(listener, "allure_logger", None), "get_test", lambda _: None)(None)
        duration_ms = sum(result.duration_ms for result in run.results)
        if test is not None and duration_ms and not run.test_function:
            # Allure has measured the call, which only compares numbers
            test.start = (test.stop or test.start) - duration_ms


class HtmlColumns:
    """Adds the columns of cases to the table of pytest-html."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        """Add the heads of the columns."""
        heads = zip(_COLUMNS, _OF_COLUMNS, strict=True)
        cells[_BEFORE:_BEFORE] = [f'<th class="sortable" data-column-type="{name}">{text}</th>' for text, name in heads]

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        """Add the cells of a test, empty if it is no case."""
        # a hook of the user may have removed the row
        if not cells:
            return
        has_values = hasattr(report, "user_properties") and is_of_case(report)
        values = dict(report.user_properties) if has_values else {}
        cells[_BEFORE:_BEFORE] = [f'<td class="col-{name}">{_cell(values.get(name))}</td>' for name in _OF_COLUMNS]


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else escape(printable(str(value)))
