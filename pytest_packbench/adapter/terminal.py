"""What the terminal shows: a line at the start, a score beside each item with -v, a table and the paths at the end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.adapter.live import caps_text, expected_calls, guard_name, spent_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.adapter.recorder import Recorder
    from pytest_packbench.adapter.suite_run import SuiteRun
    from pytest_packbench.cases.suite import Suite


class Terminal:
    """The terminal's hooks; they run in the process that the user started."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._summing_up = False

    def pytest_report_header(self) -> list[str]:
        """Say what runs, on what, before it runs."""
        benches, config = self._recorder.benches, self._recorder.config
        lines = [line for suite in benches.suites.values() for line in self._header(suite)]
        if benches.settings.mode != "fixture" and getattr(config.option, "dist", "no") != "no":
            lines.append("packbench: a worker runs two attempts at a time; for live runs one process (-n 0) is faster")
            lines.append(caps_text(benches.settings, shared=True))
        return lines

    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        """Say before a live run what it will ask for, and what stops it."""
        benches = self._recorder.benches
        if benches.settings.mode == "fixture" or self._recorder.config.option.collectonly:
            return []
        from pytest_packbench.adapter.collect import CaseItem
        from pytest_packbench.adapter.execute import place_of

        cases = [place_of(item) for item in items if isinstance(item, CaseItem)]
        return [expected_calls(benches, cases), caps_text(benches.settings, shared=False)] if cases else []

    def _header(self, suite: Suite) -> list[str]:
        benches = self._recorder.benches
        settings, target = benches.settings, benches.target_name(suite)
        bench = benches.known(suite)
        answered = f", {bench.backend} {bench.model}".rstrip() if bench is not None and bench.backend else ""
        guards = f", guards {', '.join(map(guard_name, bench.guards))}" if bench is not None and bench.guards else ""
        head = (
            f"packbench: suite {suite.name}{' (bundled)' if suite.bundled else ''}, pack {suite.config.pack}, "
            f"{settings.mode} mode, target {target}{answered}{guards}"
        )
        lines = [head]
        if self._recorder.resumed is not None:
            lines.append(self._recorder.resumed.told(suite.name))
        if bench is not None and bench.caller.opaque and settings.mode == "fixture":
            lines.append(f"packbench: suite {suite.name}: pipeline not run: scoring only")
        return lines

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
        from pytest_packbench.reports.terminal import table

        if run.run is None and not run.trouble:
            return
        reporter.section(f"packbench: {run.suite.name}")
        if run.run is not None and run.statistics is not None:
            for line in table(run.run, run.ordered, run.statistics, run.gates):
                reporter.line(line)
            if run.run.settings.get("spent"):
                reporter.line(spent_text(run.run.settings["spent"]))
            for line in run.baseline:
                reporter.line(f"baseline: {line}")
            here = self._recorder.config.invocation_params.dir
            reporter.line(f"reports: {os.path.relpath(run.folder, here)}")
        for trouble in run.trouble:
            reporter.line(f"packbench: {trouble}", red=True)
        if run.failed:
            reporter.line(f"packbench: {run.suite.name}: FAILED", red=True, bold=True)
