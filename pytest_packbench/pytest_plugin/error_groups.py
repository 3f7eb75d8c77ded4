"""What pytest's terminal shows of many cases that do not pass.

Equal errors of several cases are shown once: the first case's, with the names of the others. The first failing cases
are explained in full, the others are named in a line each. Only what the terminal shows changes: JUnit and JSON reports
keep the error and the explanation of each case.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from pytest_packbench.pytest_plugin.explain import Explanation

_MAX_NAMED = 10
# with -vv, all are explained
_MAX_EXPLAINED = 20
_VERBOSE = 2


class ErrorGroups:
    """Shows equal errors once, and explains the first failing cases, in the process that the user started."""

    def __init__(self) -> None:
        self._all: list[pytest.TestReport | pytest.CollectReport] = []
        self._failed: list[pytest.TestReport] = []
        self._unexplained: list[pytest.TestReport] = []
        self._original: list[tuple[pytest.TestReport, Explanation]] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, object, object]:
        """Leave out repeated errors and further failures in pytest's sections, but not in its short summary."""
        self._failed = list(terminalreporter.stats.get("failed", ()))
        if len(self._failed) > _MAX_EXPLAINED and terminalreporter.config.option.tbstyle not in {"no", "line"}:
            self._unexplained = _unexplained(terminalreporter, filter(_is_failing_case, self._failed))
            hidden_failures = set(map(id, self._unexplained))
            shown = [report for report in self._failed if id(report) not in hidden_failures]
            terminalreporter.stats["failed"] = shown
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
        """Show all errors and failures again: pytest counts them, and lists them in its short summary.

        It does not list the cases that fail only a gate. They are explained here.
        """
        if self._all:
            terminalreporter.stats["error"] = self._all
        if self._failed:
            terminalreporter.stats["failed"] = self._failed
        if self._unexplained:
            is_listed = "f" in terminalreporter.reportchars
            _name_others(terminalreporter, self._unexplained, is_listed=is_listed)
        self._explain_gated(terminalreporter)

    def _explain_gated(self, reporter: pytest.TerminalReporter) -> None:
        """Explain the failing cases where only gates decide, whose reports pytest does not show."""
        gated = [report for report in reporter.stats.get("xfailed", ()) if _is_failing_case(report)]
        if not gated or reporter.config.option.tbstyle in {"no", "line"}:
            return
        others = _unexplained(reporter, gated)
        reporter.section("FAILING CASES, judged by the gates", yellow=True)
        for report in gated[: len(gated) - len(others)]:
            reporter.write_sep("_", _name(report), yellow=True)
            for line in str(report.longrepr).splitlines():
                reporter.line(line)
        if others:
            _name_others(reporter, others, is_listed=False)

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
    from pytest_packbench.pytest_plugin.explain import INPUT, RERUN, Explanation

    groups: dict[str, list[tuple[pytest.TestReport, Explanation]]] = {}
    for report in reports:
        # other reports are those of errors that no case has, and of collection
        explanation: object = report.longrepr
        if isinstance(report, pytest.TestReport) and isinstance(explanation, Explanation):
            lines = [line for line in explanation.text.splitlines() if not line.startswith((RERUN, INPUT))]
            path, crash = report.location[0], explanation.reprcrash
            text = "\n".join(lines).replace(f"{path}:{crash.lineno}:", f"{path}:")
            key = error_key(text, report.location[2], path)
            groups.setdefault(key, []).append((report, explanation))
    return [group for group in groups.values() if len(group) > 1]


def _is_failing_case(report: pytest.TestReport) -> bool:
    # the report of another phase has the properties of the case as well
    return report.when == "call" and dict(report.user_properties).get("verdict") == "failed"


def _unexplained(reporter: pytest.TerminalReporter, failing: Iterable[pytest.TestReport]) -> list[pytest.TestReport]:
    """Return the failing cases that are only named."""
    verbose = reporter.config.get_verbosity() >= _VERBOSE
    return [] if verbose else list(islice(failing, _MAX_EXPLAINED, None))


def _name_others(reporter: pytest.TerminalReporter, others: list[pytest.TestReport], *, is_listed: bool) -> None:
    """Name further failing cases; with `is_listed`, say where pytest does so."""
    from pytest_packbench.model.errors import pluralize

    where = "in the short test summary below" if is_listed else "in a line each"
    reporter.write_sep("_", f"{pluralize(len(others), 'more failing case')} {where}; -vv explains all")
    for report in () if is_listed else others:
        reporter.line(f"{_name(report)}: {str(report.longrepr).partition(chr(10))[0]}")


def _name(report: pytest.TestReport) -> str:
    return printable(report.location[2])
