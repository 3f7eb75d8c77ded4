"""What the terminal shows: a line at the start, a score beside each item with -v, a table and the paths at the end."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.contexts import guard_name
from pytest_packbench.pytest_plugin.case_run import run_of
from pytest_packbench.reports.terminal import caps_text, spent_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.prefetch import Ahead
    from pytest_packbench.pytest_plugin.recorder import Recorder, SuiteRun


class Terminal:
    """The terminal's hooks; they run in the process that the user started."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._summing_up = False

    def pytest_report_header(self) -> list[str]:
        """Say what runs, on what, before it runs."""
        contexts, config = self._recorder.contexts, self._recorder.config
        lines = [line for suite in contexts.suites.values() for line in self._header(suite)]
        if contexts.settings.mode != "fixture" and getattr(config.option, "dist", "no") != "no":
            lines.append("packbench: a worker runs two attempts at a time; for live runs one process (-n 0) is faster")
            lines.append(caps_text(contexts.settings, shared=True))
        return lines

    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        """Say before a live run what it will ask for, and what stops it."""
        contexts = self._recorder.contexts
        if contexts.settings.mode == "fixture" or self._recorder.config.option.collectonly:
            return []
        runs = [run for item in items if (run := run_of(item)) is not None]
        cases = [run.place() for run in runs if not run.own_test]
        return [contexts.expected_text(cases), caps_text(contexts.settings, shared=False)] if cases else []

    def _header(self, suite: Suite) -> list[str]:
        contexts = self._recorder.contexts
        settings, target = contexts.settings, contexts.target_name(suite)
        context = contexts.opened(suite)
        answered = f", {context.backend} {context.model}".rstrip() if context is not None and context.backend else ""
        guards = (
            f", guards {', '.join(map(guard_name, context.guards))}" if context is not None and context.guards else ""
        )
        head = (
            f"packbench: suite {suite.name}{' (bundled)' if suite.bundled else ''}, pack {suite.config.pack}, "
            f"{settings.mode} mode, target {target}{answered}{guards}"
        )
        lines = [head]
        if self._recorder.resumed is not None:
            lines.append(self._recorder.resumed.header_line(suite.name))
        if context is not None and context.caller.opaque and settings.mode == "fixture":
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

        told = run.conclusion
        if told is None and not run.trouble:
            return
        reporter.section(f"packbench: {run.suite.name}")
        if told is not None:
            for line in table(told):
                reporter.line(line)
            if told.run.settings.get("spent"):
                reporter.line(spent_text(told.run.settings["spent"]))
            for line in run.baseline:
                reporter.line(f"baseline: {line}")
            here = self._recorder.config.invocation_params.dir
            reporter.line(f"reports: {os.path.relpath(run.results.writer.folder, here)}")
        for trouble in run.trouble:
            reporter.line(f"packbench: {trouble}", red=True)
        if run.failed:
            reporter.line(f"packbench: {run.suite.name}: FAILED", red=True, bold=True)


class Progress:
    """Says how far a run is while pytest waits for a case.

    Quiet where output is no terminal, with `-q`, and where pytest's terminal is switched off.
    """

    def __init__(self, config: pytest.Config, ahead: Ahead) -> None:
        self._config = config
        self._ahead = ahead
        self._shown = False
        self._wanted = False

    def tick(self) -> None:
        """Write the line anew."""
        self._below(self.text())
        self._shown = self._wanted = True

    def clear(self) -> None:
        """Take the line away before pytest writes."""
        if self._shown:
            self._below("")
            self._shown = False

    def again(self) -> None:
        """Write the line again after pytest wrote, where there was one."""
        if self._wanted and not self._shown:
            self.tick()

    def text(self) -> str:
        """Give the line: done and known attempts, mean score, tokens and cost so far, the oldest one's age."""
        progress, ledger = self._ahead.runner.progress(), self._ahead.runner.ledger
        count, total = self._ahead.scores
        parts = [
            f"packbench: {progress.done} of {progress.planned} done",
            f"mean score {total / count:.2f}" if count else "no score yet",
            f"{ledger.tokens:,} tokens",
        ]
        if ledger.cost:
            parts.append(f"{ledger.cost:.4f} {ledger.currency}")
        if progress.in_flight:
            parts.append(f"{progress.in_flight} in flight, the oldest for {progress.oldest_s:.0f} s")
        return ", ".join(parts)

    def _below(self, text: str) -> None:
        """Write on the line below, and come back to where pytest writes."""
        plugins = self._config.pluginmanager
        reporter: Any = plugins.getplugin("terminalreporter")
        out = sys.__stdout__
        if reporter is None or out is None or not reporter.isatty or self._config.get_verbosity() < 0:
            return
        writer = self._config.get_terminal_writer()
        line = text[: writer.fullwidth - 1]
        column = min(writer.width_of_current_line, writer.fullwidth - 1) + 1
        moved = f"\n\r\x1b[K{line}\x1b[1A\x1b[{column}G"
        capture: Any = plugins.getplugin("capturemanager")
        writer.flush()
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            out.write(moved)
            out.flush()
