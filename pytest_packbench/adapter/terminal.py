"""What the terminal shows: a line at the start, a score beside each item with -v, a table and the paths at the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_packbench.adapter.session import Recorder, SuiteRun


class Terminal:
    """The terminal's hooks; they run in the process that the user started."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._summing_up = False

    def pytest_report_header(self) -> list[str]:
        """Say what runs, on what, before it runs."""
        mode = self._recorder.benches.settings.mode
        return [
            f"packbench: suite {suite.name}{' (bundled)' if suite.bundled else ''}, pack {suite.config.pack}, "
            f"{mode} mode, target {self._recorder.benches.target_name(suite)}"
            for suite in self._recorder.benches.suites.values()
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Put the score beside the word that -v shows; categories, and the words of the summary, stay pytest's own."""
        if self._summing_up or report.when != "call" or hasattr(report, "wasxfail"):
            return None
        properties = dict(report.user_properties)
        score = properties.get("score")
        if score is None or "threshold" not in properties or report.outcome not in {"passed", "failed"}:
            return None
        letter = "." if report.passed else "F"
        return report.outcome, letter, f"{report.outcome.upper()} {score:.2f}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show each suite's table, its gates and where its reports are."""
        # people and tools look for `FAILED <node id>` in what pytest prints after this
        self._summing_up = True
        for run in self._recorder.runs.values():
            self._show(terminalreporter, run)

    def _show(self, reporter: pytest.TerminalReporter, run: SuiteRun) -> None:
        from pytest_packbench.reports.folder import in_order
        from pytest_packbench.reports.terminal import table

        if run.run is None and not run.trouble:
            return
        reporter.section(f"packbench: {run.suite.name}")
        if run.run is not None and run.statistics is not None:
            for line in table(run.run, in_order(run.entries.values()), run.statistics, run.gates):
                reporter.line(line)
            for line in run.baseline:
                reporter.line(f"baseline: {line}")
            here = self._recorder.config.invocation_params.dir
            reporter.line(f"reports: {os.path.relpath(run.folder, here)}")
        for trouble in run.trouble:
            reporter.line(f"packbench: {trouble}", red=True)
        if run.failed:
            reporter.line(f"packbench: {run.suite.name}: FAILED", red=True, bold=True)
