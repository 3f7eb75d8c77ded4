"""The terminal: a line per suite at the start, the score beside each item with -v, tables and paths at the end.

How far a live run in one process is: on a terminal one line that is rewritten, elsewhere a line every 30 seconds.
"""

from __future__ import annotations

import math
import os
import shlex
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.engine.offline import take_refused
from pytest_packbench.engine.recordings import guard_name
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.pytest_plugin.case_run import file_runs
from pytest_packbench.pytest_plugin.explain import VERBOSE, ErrorGroups, target_options
from pytest_packbench.reports.terminal import caps_text, expected_text, gateway_text, prompts_text, spent_text

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.engine.live_models import Ledger
    from pytest_packbench.engine.scheduler import RunProgress
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.prefetch import Prefetcher
    from pytest_packbench.pytest_plugin.recorder import Recorder, SuiteRun


FAILING = frozenset({"failed", "error"})
"""The verdicts that a progress line counts as failing."""
INTERVAL_S = 30.0
"""The time between two lines where the output is no terminal."""
_LEAST_DONE = 3
"""Attempts from which a rate is estimated."""
_QUIET = -2
_MINUTE = 60


class Terminal:
    """The terminal's hooks; they run in the process that the user started."""

    def __init__(self, recorder: Recorder, errors: ErrorGroups) -> None:
        self._recorder = recorder
        self._errors = errors

    def pytest_report_header(self) -> list[str]:
        """Describe each suite, its target and its mode."""
        contexts, config = self._recorder.contexts, self._recorder.config
        lines = [line for suite in contexts.suites.values() for line in self._header(suite)]
        if contexts.serving is not None:
            lines.insert(0, gateway_text(contexts.settings.mode, contexts.serving.upstreams))
            if off := contexts.serving.off:
                names = ", ".join(f"{name}={value}" for name, value in off.items())
                lines.insert(1, f"packbench: fixture mode switches tracing off: {names}")
        # of a server, only the result is recorded
        if contexts.settings.mode == "record" and any(map(_records_prompts, self._opened())):
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
        cases = [(run.case_ref(), len(run.earlier())) for run in file_runs(items)]
        expected = expected_text(contexts.expected_calls(cases), contexts.settings.mode)
        return [expected, self._caps(shared=False)] if cases else []

    def _opened(self) -> list[SuiteContext]:
        contexts = self._recorder.contexts
        return list(map(contexts.opened, contexts.suites.values()))

    def _caps(self, *, shared: bool) -> str:
        models = [context.live for context in self._opened() if context.live is not None]
        asks_backend = any(live.primary is not None or live.by_role for live in models)
        return caps_text(self._recorder.contexts.settings, shared=shared, asks_backend=asks_backend)

    def _header(self, suite: Suite) -> list[str]:
        contexts = self._recorder.contexts
        mode, target, context = contexts.settings.mode, contexts.target_name(suite), contexts.opened(suite)
        model = f", {context.backend} {context.model}".rstrip() if context.backend else ""
        names = ", ".join(map(guard_name, context.guards))
        guards = f", guards {names}" if names else ""
        lines = [f"{suite_line(suite, mode)}, target {target}{model}{guards}"]
        if unseen := suite.config.recording.unseen:
            goals = ", ".join(unseen)
            lines.append(f"packbench: suite {suite.name}: not needed offline (suite.yaml, recording: unseen): {goals}")
        if contexts.resumed is not None:
            lines.append(contexts.resumed.header_line(suite.name))
        if context.caller.opaque and mode == "fixture":
            is_run = context.runs_program
            what = "pipeline run; children are not walled in" if is_run else "pipeline not run: scoring only"
            lines.append(f"packbench: suite {suite.name}: {what}")
        return lines

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, object, object]:
        """Write each suite's table, its gates and the folder of its reports, before other plugins write."""
        self._errors.show_all(terminalreporter)
        for run in self._recorder.runs.values():
            self._show(terminalreporter, run)
        for line in take_refused():
            terminalreporter.line(f"packbench: refused, and no case's: {self._recorder.contexts.redactor.text(line)}")
        result = yield
        self._errors.shorten_list(terminalreporter)
        return result

    def _show(self, reporter: pytest.TerminalReporter, run: SuiteRun) -> None:
        from pytest_packbench.analysis.counting import MAX_ROWS
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
            reporter.line(", ".join(filter(None, [recorded_text(run.results), run.checked])))
        if conclusion.run.settings.get("spent"):
            reporter.line(spent_text(conclusion.run.settings["spent"]))
        if waiting := len(list(run.suite.pending_path("x").parent.glob("*.json"))):
            verb = "waits" if waiting == 1 else "wait"
            counted = f"{pluralize(waiting, 'recording')} {verb} for approval"
            # without them, it would replay with another target or other guards
            options = [each for each in target_options(self._recorder.contexts.opened(run.suite)) if each[1]]
            shown = "".join(f" --option={shlex.quote(f'--packbench-{name}={value}')}" for name, value in options)
            reporter.line(f"{counted}: packbench accept {run.suite.name}{shown}")
        folder = os.path.relpath(run.writer.folder, self._recorder.config.invocation_params.dir)
        reporter.line(f"reports: {folder}")


class Scores:
    """Adds the score of a case to the word that -v shows; the categories and the summary are pytest's."""

    def __init__(self) -> None:
        self._in_summary = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Return outcome, letter and word of a case with a score."""
        if self._in_summary or report.when != "call" or hasattr(report, "wasxfail"):
            return None
        properties = dict(report.user_properties)
        score = properties.get("score")
        if score is None or "threshold" not in properties or report.outcome not in {"passed", "failed"}:
            return None
        letter = "." if report.passed else "F"
        return report.outcome, letter, f"{report.outcome.upper()} {score:.2f}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self) -> None:
        """Leave the words as they are: in the short summary people and tools look for `FAILED <node id>`."""
        self._in_summary = True


def _records_prompts(context: SuiteContext) -> bool:
    return not context.caller.opaque or (context.caller.runs_offline and context.serves_gateway)


def suite_line(suite: Suite, mode: str) -> str:
    """Return the beginning of a suite's line in pytest's header; it says so if the suite is bundled."""
    note = " (bundled)" if suite.bundled and not suite.name.startswith(BUNDLED) else ""
    return f"packbench: suite {suite.name}{note}, pack {suite.config.pack}, {mode} mode"


def progress_line(
    progress: RunProgress,
    spent: Mapping[str, Any],
    *,
    failing: int = 0,
    retries: int = 0,
    elapsed_s: float = 0.0,
    width: int | None = None,
) -> str:
    """Return how far a run is, in one line, what matters most first.

    Args:
        progress: the attempts.
        spent: the ledger as JSON (`Ledger.as_json`).
        failing: attempts that failed or ended in an error.
        retries: model calls that were repeated.
        elapsed_s: the time since the first attempt was due, seconds.
        width: the number of characters that there is space for; None for all.
    """
    done, planned, in_flight = progress.done, progress.planned, progress.in_flight
    parts = [f"packbench: {done:,} of {planned:,} done", f"{failing:,} failing"]
    if done >= max(_LEAST_DONE, in_flight):
        parts.append(f"{_duration((planned - done) * elapsed_s / done)} left")
    if spent["cost"]:
        parts.append(f"{spent['cost']:.4f} {spent['currency']}")
    if in_flight:
        parts.append(f"{in_flight} under way")
    if progress.oldest_s >= 1:
        parts.append(f"the oldest for {progress.oldest_s:.0f} s")
    if retries:
        parts.append(pluralize(retries, "repeated call"))
    if spent["tokens"]:
        parts.append(f"{spent['tokens']:,} tokens")
    while width is not None and len(parts) > 1 and len(", ".join(parts)) > width:
        parts.pop()
    return ", ".join(parts)[:width]


def _duration(seconds: float) -> str:
    """Return an estimate in words: in steps of 5 s, of minutes above 90 s."""
    if seconds <= 1.5 * _MINUTE:
        return f"about {5 * max(1, math.ceil(seconds / 5))} s"
    return f"about {math.ceil(seconds / _MINUTE):,} min"


class Progress:
    """Shows how far a live or record run in one process is, while pytest waits and between its own lines.

    It writes nothing with `-q -q` or without pytest's terminal reporter.

    Args:
        config: the session's.
        ledger: what the run has spent.
        prefetcher: makes the attempts.
    """

    def __init__(self, config: pytest.Config, ledger: Ledger, prefetcher: Prefetcher) -> None:
        self._config = config
        self._ledger = ledger
        self._prefetcher = prefetcher
        self._started_s = self._written_s = time.monotonic()
        self._is_visible = False
        self._is_over = False

    def tick(self) -> None:
        """Write the line, or the next one if it is time; called on the main thread about twice a second."""
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if self._is_over or reporter is None or self._config.get_verbosity() <= _QUIET:
            return
        if reporter.isatty and os.environ.get("TERM") != "dumb":
            self._write_below(self._line(self._config.get_terminal_writer().fullwidth - 1))
            self._is_visible = True
        elif time.monotonic() - self._written_s >= INTERVAL_S:
            self._written_s = time.monotonic()
            with self._uncaptured():
                # pytest knows of it, and repeats what its next result belongs to
                reporter.write_line(self._line(None))
                reporter.flush()

    def clear(self) -> None:
        """Remove the line of a terminal before pytest writes."""
        if self._is_visible:
            self._write_below("")
            self._is_visible = False

    def _line(self, width: int | None) -> str:
        ledger = self._ledger
        counts = {"failing": self._prefetcher.failing, "retries": ledger.retries}
        elapsed_s = time.monotonic() - self._started_s
        progress = self._prefetcher.runner.progress()
        return progress_line(progress, ledger.as_json(), **counts, elapsed_s=elapsed_s, width=width)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Show the progress from the first attempt to the last."""
        self._started_s = self._written_s = time.monotonic()
        try:
            return (yield)
        finally:
            self.pytest_enter_pdb()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self) -> Generator[None, object, object]:
        """Let pytest write about an item that begins or has ended, or about a phase of it."""
        self.clear()
        result = yield
        # answers may come so fast that pytest never waits
        self.tick()
        return result

    pytest_runtest_logstart = pytest_runtest_logfinish = pytest_runtest_logreport

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to a debugger: remove the line, and write no more."""
        self.clear()
        self._is_over = True

    def _write_below(self, text: str) -> None:
        """Write on the line below the cursor, and move the cursor back."""
        writer: Any = self._config.get_terminal_writer()
        column = min(writer.width_of_current_line, writer.fullwidth - 1) + 1
        with self._uncaptured():
            # past the writer, which counts what is on pytest's own line
            file = writer._file  # noqa: SLF001 - it has no public name
            file.write(f"\n\r\x1b[K{text}\x1b[1A\x1b[{column}G")
            file.flush()

    def _uncaptured(self) -> Any:
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        return capture.global_and_fixture_disabled() if capture is not None else nullcontext()
