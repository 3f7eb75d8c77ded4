"""What other plugins and tools get to know of a run, where they are in use.

Allure and pytest-html show cases by their own hooks. Each case is attempted once: cases opt out of
pytest-rerunfailures, and what repeats every test is refused. GitHub Actions shows the summary of a step, and
annotations.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.plugin import rootdir_of
from pytest_packbench.pytest_plugin.case_run import is_of_case, item_run, properties, run_of
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.pytest_plugin.recorder import Recorder
    from pytest_packbench.reports.github import Annotation, FinishedRun

_COLUMNS = {
    "suite": "Suite",
    "case_type": "Type",
    "difficulty": "Difficulty",
    "score": "Score",
    "threshold": "Threshold",
}
"""The heads of the columns of pytest-html, by property."""
_BEFORE = 2
"""The columns of pytest-html before ours: the result and the test."""


def register_integrations(config: pytest.Config, *, collecting: bool) -> None:
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
        duration_ms = sum(result.attempt.duration_ms for result in run.results)
        if test is not None and duration_ms and not run.test_function:
            # Allure has measured the call, which only compares numbers
            test.start = (test.stop or test.start) - duration_ms


class HtmlColumns:
    """Adds the columns of cases to the table of pytest-html."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        """Add the heads of the columns."""
        cells[_BEFORE:_BEFORE] = [
            f'<th class="sortable" data-column-type="{name}">{text}</th>' for name, text in _COLUMNS.items()
        ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        """Add the cells of a test, empty if it is no case."""
        # a hook of the user may have removed the row
        if not cells:
            return
        has_values = hasattr(report, "user_properties") and is_of_case(report)
        values = dict(report.user_properties) if has_values else {}
        cells[_BEFORE:_BEFORE] = [f'<td class="col-{name}">{_cell(values.get(name))}</td>' for name in _COLUMNS]


def _cell(value: object) -> str:
    if value is None:
        return ""
    from html import escape

    return f"{value:.2f}" if isinstance(value, float) else escape(printable(str(value)))


def refuse_repetition(config: pytest.Config) -> None:
    """Refuse options that repeat every test.

    Raises:
        pytest.UsageError: each case would be attempted several times.
    """
    if config.option.collectonly:
        return
    dist = getattr(config.option, "dist", "no")
    if hasattr(config, "workerinput"):
        from pytest_packbench.pytest_plugin.xdist import DIST

        dist = config.workerinput.get(DIST)
    if dist == "each":
        raise pytest.UsageError("--dist=each: each worker would attempt every case; use --dist=load")
    forced = getattr(config.option, "force_reruns", None)
    if forced:
        raise pytest.UsageError(
            f"--force-reruns={forced}: each case is attempted once; use --reruns, which cases opt out of"
        )


def opt_out_of_reruns(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Mark the items of cases and controls with the mark of pytest-rerunfailures, so that it does not repeat them.

    Args:
        config: the session's.
        items: the selected items: a mark of earlier would change what `-m flaky` selects.
    """
    if not hasattr(config.option, "force_reruns"):
        return
    general = config.option.reruns
    if general is None:
        # the plugin ignores what is no number, too
        with suppress(TypeError, ValueError):
            general = int(config.getini("reruns"))
    # in this mode the plugin adds up the numbers of option and mark
    own = -(general or 0) if getattr(config.option, "reruns_mode", "") == "append" else 0
    for item in items:
        if item_run(item) is not None and (general or item.get_closest_marker("flaky") is not None):
            item.add_marker(pytest.mark.flaky(reruns=own), append=False)


_SUMMARY = "GITHUB_STEP_SUMMARY"


class GitHub:
    """Writes the summary and the annotations; registered in the controller or the only process."""

    def __init__(self, recorder: Recorder, environ: Mapping[str, str]) -> None:
        self._recorder = recorder
        self._environ = environ
        self._summary = environ.get(_SUMMARY, "")
        self._annotates = environ.get("GITHUB_ACTIONS") == "true"
        self._workspace = environ.get("GITHUB_WORKSPACE") or str(rootdir_of(recorder.config))
        self._trouble = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Escape workflow commands in captured output, which the log shows."""
        if self._annotates and report.sections and is_of_case(report):
            from pytest_packbench.reports.terminal import escape_commands

            report.sections = [(name, escape_commands(text)) for name, text in report.sections]

    def pytest_sessionfinish(self) -> None:
        """Append the summaries; the recorder wraps this hook, so that its runs have a conclusion."""
        if self._summary:
            from pytest_packbench.reports.github import append_summaries

            try:
                append_summaries(Path(self._summary), self._judged())
            except OSError as error:
                self._trouble = f"{_SUMMARY}: {self._summary} can't be written: {error.strerror or error}"

    # last, so that pytest's summary is in one piece
    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write one annotation per line."""
        if self._trouble:
            terminalreporter.line(f"packbench: {self._trouble}", yellow=True)
        if self._annotates:
            from pytest_packbench.reports.github import annotation_commands

            terminalreporter.ensure_newline()
            root = rootdir_of(self._recorder.config)
            for command in annotation_commands(self._problem_annotations(), self._judged(), root, self._workspace):
                terminalreporter.line(command)

    def _judged(self) -> Iterator[FinishedRun]:
        from pytest_packbench.reports.github import FinishedRun, blob_root
        from pytest_packbench.reports.story import Place

        root = blob_root(self._environ, rootdir_of(self._recorder.config), self._workspace)
        for run in self._recorder.runs.values():
            if run.conclusion is not None:
                yield FinishedRun(
                    conclusion=run.conclusion,
                    rules="" if run.suite.bundled else str(run.suite.path / "suite.yaml"),
                    place=Place(root, run.rerun),
                )

    def _problem_annotations(self) -> list[Annotation]:
        from pytest_packbench.reports.github import Annotation

        return [
            Annotation(level="error", title=f"packbench: {run.suite.name}", message=problem)
            for run in self._recorder.runs.values()
            for problem in run.problems
        ]
