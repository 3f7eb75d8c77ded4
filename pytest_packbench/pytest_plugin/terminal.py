"""The terminal: a line per suite at the start, the score beside each item with -v, tables and paths at the end.

How far a live run is: on a terminal one line that is rewritten, elsewhere a line every 30 seconds.
"""

from __future__ import annotations

import math
import os
import shlex
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_packbench.engine.conditions import guard_name
from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.result import format_timestamp
from pytest_packbench.model.run import BUNDLED
from pytest_packbench.pytest_plugin.case_run import file_run
from pytest_packbench.pytest_plugin.explain import VERBOSE, target_options
from pytest_packbench.pytest_plugin.integrations import reruns
from pytest_packbench.reports.terminal import caps_text, gateway_text, prompts_text, spent_text
from pytest_packbench.runs.metadata import sum_process_spending

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.suite import Suite
    from pytest_packbench.pytest_plugin.explain import ErrorGroups
    from pytest_packbench.pytest_plugin.prefetch import Prefetcher
    from pytest_packbench.pytest_plugin.recorder import Recorder, SuiteRun


FAILING = frozenset({"failed", "error"})
"""The verdicts that a progress line counts as failing."""
INTERVAL_S = 30.0
"""The time between two lines where the output is no terminal."""
_TICK_S = 0.5
_RENEWED_S = 0.2
_LEAST_DONE = 3
"""Attempts from which a rate is estimated."""
_QUIET = -2
_UNKNOWN = 2
"""How important it is what is not known of tokens and cost."""
_MINUTE, _HOUR = 60, 3600


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
        cases = [run.case_ref() for item in items if (run := file_run(item)) is not None]
        return [contexts.expected_text(cases), self._caps(shared=False)] if cases else []

    def _opened(self) -> list[SuiteContext]:
        contexts = self._recorder.contexts
        return [context for suite in contexts.suites.values() if (context := contexts.opened(suite)) is not None]

    def _caps(self, *, shared: bool) -> str:
        models = [context.live for context in self._opened() if context.live is not None]
        asks_backend = any(live.primary is not None or live.by_role for live in models)
        return caps_text(self._recorder.contexts.settings, shared=shared, asks_backend=asks_backend)

    def _header(self, suite: Suite) -> list[str]:
        contexts = self._recorder.contexts
        mode, target, context = contexts.settings.mode, contexts.target_name(suite), contexts.opened(suite)
        model = f", {context.backend} {context.model}".rstrip() if context is not None and context.backend else ""
        names = ", ".join(map(guard_name, context.guards)) if context is not None else ""
        guards = f", guards {names}" if names else ""
        lines = [f"{suite_line(suite, mode)}, target {target}{model}{guards}"]
        if self._recorder.resumed is not None:
            lines.append(self._recorder.resumed.header_line(suite.name))
        if context is not None and context.caller.opaque and mode == "fixture":
            is_run = context.runs_program
            what = "pipeline run; children are not walled in" if is_run else "pipeline not run: scoring only"
            lines.append(f"packbench: suite {suite.name}: {what}")
        return lines

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
        if conclusion is not None:
            self._show_files(reporter, run, conclusion)
        for problem in run.problems:
            reporter.line(f"packbench: {problem}", red=True)
        if run.failed:
            reporter.line(f"packbench: {run.suite.name}: FAILED", red=True, bold=True)

    def _show_files(self, reporter: pytest.TerminalReporter, run: SuiteRun, conclusion: Conclusion) -> None:
        from pytest_packbench.reports.terminal import recorded_text

        if conclusion.run.mode == "record":
            reporter.line(recorded_text(run.results))
        if conclusion.run.settings.get("spent"):
            reporter.line(spent_text(conclusion.run.settings["spent"]))
        if waiting := len(list(run.suite.pending_path("x").parent.glob("*.json"))):
            verb = "waits" if waiting == 1 else "wait"
            counted = f"{pluralize(waiting, 'recording')} {verb} for approval"
            # without them, it would replay with another target or other guards
            options = [each for each in target_options(self._recorder.contexts, run.suite) if each[1]]
            shown = "".join(f" --option={shlex.quote(f'--packbench-{name}={value}')}" for name, value in options)
            reporter.line(f"{counted}: packbench accept {run.suite.name}{shown}")
        folder = os.path.relpath(run.writer.folder, self._recorder.config.invocation_params.dir)
        reporter.line(f"reports: {folder}")


def _records_prompts(context: SuiteContext) -> bool:
    return not context.caller.opaque or (context.caller.runs_offline and context.serves_gateway)


def suite_line(suite: Suite, mode: str) -> str:
    """Return the beginning of a suite's line in pytest's header; it says so if the suite is bundled."""
    note = " (bundled)" if suite.bundled and not suite.name.startswith(BUNDLED) else ""
    return f"packbench: suite {suite.name}{note}, pack {suite.config.pack}, {mode} mode"


class Standing(NamedTuple):
    """How far a run is.

    Attributes:
        done: attempts that are over.
        planned: attempts in all, those included.
        failing: those that failed or ended in an error.
        under_way: attempts that have started and are not over; None if that is not known.
        oldest_s: the age of the oldest of them, seconds; 0 if that is not known.
        retries: model calls that were repeated.
        spent: the ledger as JSON (`Ledger.as_json`).
        made: attempts of this session that are over; a resumed run has others.
        elapsed_s: the time since the first of them was due, seconds.
    """

    done: int
    planned: int
    failing: int
    under_way: int | None
    oldest_s: float
    retries: int
    spent: Mapping[str, Any]
    made: int
    elapsed_s: float


def seconds_left(standing: Standing) -> float | None:
    """Return the time until the end at the rate so far, seconds; None while too few attempts are over."""
    if standing.made < max(_LEAST_DONE, standing.under_way or 0):
        return None
    return (standing.planned - standing.done) * standing.elapsed_s / standing.made


def progress_line(standing: Standing, width: int | None = None) -> str:
    """Return how far a run is, in one line.

    Args:
        standing: how far it is.
        width: the number of characters that there is space for: what matters least is left out; None for all.
    """
    spent = standing.spent
    oldest = f", the oldest for {standing.oldest_s:.0f} s" if standing.oldest_s >= 1 else ""
    under_way = f"{standing.under_way} under way" if standing.under_way else ""
    has_called = spent["calls"] is None or spent["calls"] > 0
    left = seconds_left(standing)
    # each with its importance
    parts = [
        (9, f"packbench: {standing.done:,} of {standing.planned:,} done"),
        (8, f"{standing.failing:,} failing"),
        (5, under_way),
        (1, oldest.removeprefix(", ") if under_way else ""),
        (4, _plural(standing.retries, "retry", "retries") if standing.retries else ""),
        (3, f"{spent['tokens']:,} tokens" if has_called and spent["tokens"] is not None else ""),
        (6, f"{spent['cost']:.4f} {spent['currency']}" if has_called and spent["cost"] is not None else ""),
        (2, " and ".join(name for name in ("tokens", "cost") if has_called and spent[name] is None)),
        (7, "time left not known" if left is None else f"{_duration(left)} left"),
    ]
    shown = [(rank, f"{text} not known" if rank == _UNKNOWN else text) for rank, text in parts if text]
    while width is not None and len(shown) > 1 and len(", ".join(text for _, text in shown)) > width:
        shown.remove(min(shown))
    line = ", ".join(text for _, text in shown)
    return line if width is None else line[:width]


def _plural(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _duration(seconds: float) -> str:
    """Return an estimate in words: in steps of 5 s, of minutes above 90 s, of 10 minutes above 90 minutes."""
    if seconds <= 1.5 * _MINUTE:
        return f"about {5 * max(1, math.ceil(seconds / 5))} s"
    if seconds <= 1.5 * _HOUR:
        return f"about {math.ceil(seconds / _MINUTE)} min"
    hours, minutes = divmod(math.ceil(seconds / 600) * 10, _MINUTE)
    return f"about {hours} h {minutes} min" if minutes else f"about {hours} h"


class Progress:
    """Shows how far a live or record run is, while pytest waits and between its own lines.

    It writes nothing with `-q -q` or without pytest's terminal reporter.

    Args:
        config: the session's.
        recorder: has the selected cases and the results.
        prefetcher: makes the attempts; None in xdist's controller, and where marked tests make them.
    """

    def __init__(self, config: pytest.Config, recorder: Recorder, prefetcher: Prefetcher | None) -> None:
        self._config = config
        self._recorder = recorder
        self._prefetcher = prefetcher
        self._workers: dict[str, dict[str, Any]] = {}
        self._started_s = time.monotonic()
        self._written_s = self._started_s
        self._is_visible = False
        self._text = ""
        self._is_over = False
        self._end = threading.Event()

    def note_worker(self, told: dict[str, Any]) -> None:
        """Take what a worker of xdist has in flight, retried and spent."""
        self._workers[told["worker"]] = told

    def tick(self) -> None:
        """Write the line, or the next one if it is time; called on the main thread about twice a second."""
        if self._is_over or self._reporter is None:
            return
        if not self._is_on_terminal:
            if time.monotonic() - self._written_s >= INTERVAL_S:
                self._written_s = time.monotonic()
                standing = self.standing()
                # workers of xdist may be collecting
                if standing.planned:
                    self._write_line(progress_line(standing))
        # before the first report, xdist rewrites lines of its own
        elif self._prefetcher is not None or self._workers:
            width = self._config.get_terminal_writer().fullwidth - 1
            if not self._text or time.monotonic() - self._written_s >= _RENEWED_S:
                self._written_s = time.monotonic()
                self._text = progress_line(self.standing(), width)
            self._write_below(self._text[:width])
            self._is_visible = True

    def clear(self) -> None:
        """Remove the line of a terminal before pytest writes."""
        if self._is_visible:
            self._write_below("")
            self._is_visible = False

    def standing(self) -> Standing:
        """Return how far the run is."""
        told = self._workers.values()
        ledger = self._recorder.contexts.clients.ledger
        under_way: int | None
        if self._prefetcher is not None:
            progress = self._prefetcher.runner.progress()
            done, planned, under_way, oldest_s = progress.done, progress.planned, progress.in_flight, progress.oldest_s
            failing, made = self._prefetcher.failing, done
        else:
            runs = self._recorder.runs.values()
            results = [result for run in runs for trials in run.by_nodeid.values() for result in trials]
            started = format_timestamp(self._recorder.started_ns)
            done = len(results)
            planned = sum(len(run.selected) for run in runs) * self._recorder.contexts.settings.trials
            under_way, oldest_s = sum(worker["in_flight"] for worker in told) if told else None, 0.0
            failing = sum(result.score.verdict in FAILING for result in results)
            made = sum(result.attempt.timestamp >= started for result in results)
        return Standing(
            done=done,
            planned=planned,
            failing=failing,
            under_way=under_way,
            oldest_s=oldest_s,
            retries=sum(worker["retries"] for worker in told) + ledger.retries,
            spent=sum_process_spending([worker["spent"] for worker in told]) if told else ledger.as_json(),
            made=made,
            elapsed_s=time.monotonic() - self._started_s,
        )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Show the progress from the first attempt to the last."""
        self._started_s = self._written_s = time.monotonic()
        controller: Any = session.config.pluginmanager.getplugin("dsession")
        if hasattr(controller, "queue"):
            # xdist's loop only returns for an event: this makes one on its thread
            controller.worker_packbench_tick = self.tick
            threading.Thread(target=self._tick_loop, args=(controller.queue,), daemon=True).start()
        try:
            return (yield)
        finally:
            self.close()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self) -> Generator[None, object, object]:
        """Let pytest write about an item that begins or has ended, or about a phase of it."""
        was_visible = self._is_visible
        self.clear()
        result = yield
        # answers may come so fast that pytest never waits
        if was_visible or time.monotonic() - self._written_s >= _TICK_S:
            self.tick()
        return result

    pytest_runtest_logstart = pytest_runtest_logfinish = pytest_runtest_logreport

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to a debugger."""
        self.close()

    def close(self) -> None:
        """Remove the line, and write no more."""
        self.clear()
        self._is_over = True
        self._end.set()

    def _tick_loop(self, queue: Any) -> None:
        while not self._end.wait(_TICK_S):
            queue.put(("packbench_tick", {}))

    @property
    def _reporter(self) -> Any:
        is_quiet = self._config.get_verbosity() <= _QUIET
        return None if is_quiet else self._config.pluginmanager.getplugin("terminalreporter")

    @property
    def _is_on_terminal(self) -> bool:
        return bool(getattr(self._reporter, "isatty", False)) and os.environ.get("TERM") != "dumb"

    def _write_line(self, line: str) -> None:
        reporter = self._reporter
        if reporter is not None:
            with self._uncaptured():
                # so that pytest repeats what its next result belongs to; with xdist it does not know its own line
                reporter.ensure_newline()
                writer = self._config.get_terminal_writer()
                if writer.width_of_current_line:
                    writer.line()
                writer.line(line)
                writer.flush()

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
