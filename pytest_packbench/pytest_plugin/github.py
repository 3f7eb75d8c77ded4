"""GitHub Actions: the summary of the step, and annotations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.pytest_plugin.case_run import is_of_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_packbench.pytest_plugin.recorder import Recorder
    from pytest_packbench.reports.github import Annotation, FinishedRun


_SUMMARY = "GITHUB_STEP_SUMMARY"


class GitHub:
    """Writes the summary and the annotations; registered in the controller or the only process."""

    def __init__(self, recorder: Recorder, environ: Mapping[str, str]) -> None:
        self._recorder = recorder
        self._environ = environ
        self._summary = environ.get(_SUMMARY, "")
        self._annotates = environ.get("GITHUB_ACTIONS") == "true"
        self._workspace = environ.get("GITHUB_WORKSPACE") or str(recorder.config.rootpath)
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
            root = self._recorder.config.rootpath
            for command in annotation_commands(self._problem_annotations(), self._judged(), root, self._workspace):
                terminalreporter.line(command)

    def _judged(self) -> Iterator[FinishedRun]:
        from pytest_packbench.reports.github import FinishedRun, blob_root

        root = blob_root(self._environ, self._recorder.config.rootpath, self._workspace)
        for run in self._recorder.runs.values():
            if run.conclusion is not None:
                yield FinishedRun(
                    conclusion=run.conclusion,
                    results=run.ordered,
                    rules="" if run.suite.bundled else str(run.suite.path / "suite.yaml"),
                    place=self._recorder.place(run, root),
                )

    def _problem_annotations(self) -> list[Annotation]:
        from pytest_packbench.reports.github import Annotation

        return [
            Annotation(level="error", title=f"packbench: {run.suite.name}", message=problem)
            for run in self._recorder.runs.values()
            for problem in run.problems
        ]
