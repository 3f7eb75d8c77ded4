"""Equal errors of several cases, shown once in pytest's terminal: the first case's, with the names of the others.

Only what the terminal shows changes: JUnit and JSON reports keep the error of each case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_packbench.pytest_plugin.explain import Explanation

_MAX_NAMED = 10


class ErrorGroups:
    """Shows equal errors once, in the process that the user started."""

    def __init__(self) -> None:
        self._all: list[pytest.TestReport | pytest.CollectReport] = []
        self._original: list[tuple[pytest.TestReport, Explanation]] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, object, object]:
        """Leave out repeated errors while pytest writes its sections, and name the first case in its short summary."""
        self._all = list(terminalreporter.stats.get("error", ()))
        repeated = _repeated(self._all) if len(self._all) > 1 else []
        for group in repeated:
            self._shorten(group)
        hidden = {id(report) for group in repeated for report, _ in group[1:]}
        if hidden:
            terminalreporter.stats["error"] = [report for report in self._all if id(report) not in hidden]
        result = yield
        for report, explanation in self._original:
            report.longrepr = explanation  # type: ignore[assignment]  # pytest's own is private
        return result

    def show_all(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show all errors again: pytest counts them, and lists them in its short summary."""
        if self._all:
            terminalreporter.stats["error"] = self._all

    def _shorten(self, group: list[tuple[pytest.TestReport, Explanation]]) -> None:
        from pytest_packbench.analysis.listing import name_some
        from pytest_packbench.model.errors import pluralize

        (first, explanation), *others = group
        self._original += group
        names = name_some([_name(report) for report, _ in others[:_MAX_NAMED]], len(others))
        text = f"{explanation.text}\nthe same error in {pluralize(len(others), 'more case')}: {names}"
        first.longrepr = replace(explanation, text=text)  # type: ignore[assignment]  # as above
        for report, other in others:
            crash = replace(other.reprcrash, message=f"the same error as {_name(first)}")
            report.longrepr = replace(other, reprcrash=crash)  # type: ignore[assignment]  # as above


def _repeated(
    reports: list[pytest.TestReport | pytest.CollectReport],
) -> list[list[tuple[pytest.TestReport, Explanation]]]:
    """Return the reports with equal errors, in groups of two or more, each with its explanation."""
    from pytest_packbench.analysis.listing import error_key
    from pytest_packbench.pytest_plugin.explain import RERUN, Explanation

    groups: dict[str, list[tuple[pytest.TestReport, Explanation]]] = {}
    for report in reports:
        # other reports are those of errors that no case has, and of collection
        explanation: object = report.longrepr
        if isinstance(report, pytest.TestReport) and isinstance(explanation, Explanation):
            lines = [line for line in explanation.text.splitlines() if not line.startswith(RERUN)]
            path, crash = report.location[0], explanation.reprcrash
            text = "\n".join(lines).replace(f"{path}:{crash.lineno}:", f"{path}:")
            key = error_key(text, report.location[2], path)
            groups.setdefault(key, []).append((report, explanation))
    return [group for group in groups.values() if len(group) > 1]


def _name(report: pytest.TestReport) -> str:
    return printable(report.location[2])
