"""The terminal: a line per suite at the start, the score beside each item with -v, tables and paths at the end."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.engine.conditions import guard_name
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.pytest_plugin.case_run import run_of
from pytest_packbench.pytest_plugin.explain import VERBOSE
from pytest_packbench.pytest_plugin.integrations import reruns
from pytest_packbench.reports.terminal import caps_text, gateway_text, prompts_text, spent_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.explain import ErrorGroups
    from pytest_packbench.pytest_plugin.recorder import Recorder, SuiteRun


class Terminal:
    """The terminal's hooks; they run in the process that the user started."""

    def __init__(self, recorder: Recorder, errors: ErrorGroups) -> None:
        self._recorder = recorder
        self._errors = errors
        self._in_summary = False

    def pytest_report_header(self) -> list[str]:
        """Describe each suite, its target and its mode."""
        contexts, config = self._recorder.contexts, self._recorder.config
        lines = [line for suite in contexts.suites.values() for line in self._header(suite)]
        if contexts.serving is not None:
            lines.insert(0, gateway_text(contexts.settings.mode, contexts.serving.upstreams))
        if reruns(config):
            lines.append("packbench: each case is attempted once: --reruns applies to other tests only")
        opened = [contexts.opened(suite) for suite in contexts.suites.values()]
        # of a server, only the result is recorded
        if contexts.settings.mode == "record" and any(context and _records_prompts(context) for context in opened):
            lines.insert(0, prompts_text(recorded=contexts.settings.record_prompts))
        if contexts.settings.mode != "fixture" and getattr(config.option, "dist", "no") != "no":
            lines.append(
                "packbench: each worker runs two attempts at a time; live runs are faster in one process (-n 0)"
            )
            lines.append(self._caps(shared=True))
        return [contexts.redactor.text(line) for line in lines]

    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        """Write before a live run how many calls it expects to make, and its limits."""
        contexts = self._recorder.contexts
        if contexts.settings.mode == "fixture" or self._recorder.config.option.collectonly:
            return []
        runs = [run for item in items if (run := run_of(item)) is not None]
        cases = [run.case_ref() for run in runs if not run.test_function]
        return [contexts.expected_text(cases), self._caps(shared=False)] if cases else []

    def _caps(self, *, shared: bool) -> str:
        contexts = self._recorder.contexts
        opened = [contexts.opened(suite) for suite in contexts.suites.values()]
        models = [context.live for context in opened if context is not None and context.live is not None]
        asks_backend = any(live.primary is not None or live.by_role for live in models)
        return caps_text(contexts.settings, shared=shared, asks_backend=asks_backend)

    def _header(self, suite: Suite) -> list[str]:
        contexts = self._recorder.contexts
        settings, target = contexts.settings, contexts.target_name(suite)
        context = contexts.opened(suite)
        model = f", {context.backend} {context.model}".rstrip() if context is not None and context.backend else ""
        guards = (
            f", guards {', '.join(map(guard_name, context.guards))}" if context is not None and context.guards else ""
        )
        head = (
            f"packbench: suite {shown_name(suite)}, pack {suite.config.pack}, "
            f"{settings.mode} mode, target {target}{model}{guards}"
        )
        lines = [head]
        if self._recorder.resumed is not None:
            lines.append(self._recorder.resumed.header_line(suite.name))
        if context is not None and context.caller.opaque and settings.mode == "fixture":
            is_run = context.runs_program
            what = "pipeline run; children are not walled in" if is_run else "pipeline not run: scoring only"
            lines.append(f"packbench: suite {suite.name}: {what}")
        return lines

    def _accept_options(self, suite: Suite) -> str:
        """Return the options without which `packbench accept` would replay with another target or other guards."""
        contexts = self._recorder.contexts
        settings, context = contexts.settings, contexts.opened(suite)
        # as in records: a URL or a command may contain a secret
        target = context.target_name if settings.target and context is not None else settings.target
        guards = "none" if settings.guards == () else ",".join(settings.guards or ())
        named = [(name, value) for name, value in (("target", target), ("guard", guards)) if value]
        return "".join(f" --option={shlex.quote(f'--packbench-{name}={value}')}" for name, value in named)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Add the score to the word that -v shows; the categories and the summary are pytest's."""
        if self._in_summary or report.when != "call" or hasattr(report, "wasxfail"):
            return None
        properties = dict(report.user_properties)
        score = properties.get("score")
        if score is None or "threshold" not in properties or report.outcome not in {"passed", "failed"}:
            return None
        letter = "." if report.passed else "F"
        return report.outcome, letter, f"{report.outcome.upper()} {score:.2f}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write each suite's table, its gates and the folder of its reports."""
        self._errors.show_all(terminalreporter)
        # in pytest's short summary people and tools look for `FAILED <node id>`
        self._in_summary = True
        for run in self._recorder.runs.values():
            self._show(terminalreporter, run)

    def _show(self, reporter: pytest.TerminalReporter, run: SuiteRun) -> None:
        from pytest_packbench.analysis.listing import MAX_ROWS
        from pytest_packbench.reports.story import MAX_CASES, control_lines, summary_lines

        conclusion = run.conclusion
        if conclusion is None and not run.problems and run.controls is None:
            return
        reporter.section(f"packbench: {run.suite.name}")
        if conclusion is not None:
            max_cases = MAX_ROWS if reporter.config.get_verbosity() >= VERBOSE else MAX_CASES
            for line in summary_lines(conclusion, max_cases=max_cases):
                reporter.line(line)
        for line in control_lines(run.controls):
            reporter.line(line, red=bool(run.controls and run.controls.wrong))
        if run.control_note:
            reporter.line(run.control_note)
        if conclusion is not None:
            self._show_files(reporter, run, conclusion)
        for problem in run.problems:
            reporter.line(f"packbench: {problem}", red=True)
        if run.failed:
            reporter.line(f"packbench: {run.suite.name}: FAILED", red=True, bold=True)

    def _show_files(self, reporter: pytest.TerminalReporter, run: SuiteRun, conclusion: Conclusion) -> None:
        from pytest_packbench.reports.terminal import recorded_text

        if conclusion.run.mode == "record":
            reporter.line(recorded_text(run.ordered))
        if conclusion.run.settings.get("spent"):
            reporter.line(spent_text(conclusion.run.settings["spent"]))
        if waiting := len(list(run.suite.pending_path("x").parent.glob("*.json"))):
            verb = "waits" if waiting == 1 else "wait"
            counted = f"{pluralize(waiting, 'recording')} {verb} for approval"
            reporter.line(f"{counted}: packbench accept {run.suite.name}{self._accept_options(run.suite)}")
        folder = os.path.relpath(run.results.writer.folder, self._recorder.config.invocation_params.dir)
        reporter.line(f"reports: {folder}")


def _records_prompts(context: SuiteContext) -> bool:
    return not context.caller.opaque or (context.caller.runs_offline and context.serves_gateway)


def shown_name(suite: Suite) -> str:
    """Return the name of a suite, with a note that it is bundled unless the name says so."""
    is_said = not suite.bundled or suite.name.startswith(BUNDLED)
    return suite.name if is_said else f"{suite.name} (bundled)"
