"""GitHub's side of a run: the summary of the step, and annotations. Silent anywhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.pytest_plugin.case_run import is_of_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_packbench.pytest_plugin.recorder import Recorder
    from pytest_packbench.reports.github import Annotation, Judged


_SUMMARY = "GITHUB_STEP_SUMMARY"


class GitHub:
    """Tells GitHub how the run ended; registered in the process that the user started.

    Args:
        recorder: holds the runs.
        environ: the environment that GitHub's runner sets.
    """

    def __init__(self, recorder: Recorder, environ: Mapping[str, str]) -> None:
        self._recorder = recorder
        self._summary = environ.get(_SUMMARY, "")
        self._annotates = environ.get("GITHUB_ACTIONS") == "true"
        self._workspace = environ.get("GITHUB_WORKSPACE") or str(recorder.config.rootpath)
        self._trouble = ""

    @property
    def is_called_for(self) -> bool:
        """Whether anybody listens."""
        return bool(self._summary) or self._annotates

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Let nothing that a case printed command the runner when the log shows it."""
        if self._annotates and report.sections and is_of_case(report):
            from pytest_packbench.reports.github import harmless

            report.sections = [(name, harmless(text)) for name, text in report.sections]

    def pytest_sessionfinish(self) -> None:
        """Append the summaries: the recorder wraps this hook, so that its runs are judged by now."""
        if self._summary:
            try:
                self._append(Path(self._summary))
            except OSError as error:
                self._trouble = f"{_SUMMARY}: {self._summary} can't be written: {error.strerror or error}"

    # last, so that the log's own text stands together
    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the annotations, each on a line of its own."""
        if self._trouble:
            terminalreporter.line(f"packbench: {self._trouble}", yellow=True)
        if self._annotates:
            terminalreporter.ensure_newline()
            for command in self._commands():
                terminalreporter.line(command)

    def _append(self, path: Path) -> None:
        from pytest_packbench.reports.github import STEP_BYTES, step_summary

        with path.open("ab") as file:
            # other tools of the step write into the same file; a line end parts them
            left = STEP_BYTES - file.seek(0, os.SEEK_END) - 2
            for one in self._judged():
                page = f"\n{step_summary(one, left)}\n".encode("utf-8", "replace") if left > 0 else b""
                file.write(page)
                left -= len(page)

    def _judged(self) -> Iterator[Judged]:
        from pytest_packbench.reports.github import Judged

        for run in self._recorder.runs.values():
            told = run.conclusion
            if told is not None:
                yield Judged(
                    run=told.run,
                    entries=run.ordered,
                    statistics=told.statistics,
                    gates=told.gates,
                    rules="" if run.suite.bundled else str(run.suite.path / "suite.yaml"),
                    notes=[f"baseline: {line}" for line in run.baseline],
                )

    def _commands(self) -> Iterator[str]:
        from pytest_packbench.reports.github import MOST_ANNOTATIONS, Annotation, remarks

        troubles = [
            Annotation(level="error", title=f"packbench: {run.suite.name}", message=trouble)
            for run in self._recorder.runs.values()
            for trouble in run.trouble
        ][: MOST_ANNOTATIONS - 2]
        found = remarks(self._judged(), MOST_ANNOTATIONS - len(troubles))
        for annotation in (*troubles, *found):
            yield annotation.command(*self._place(annotation))

    def _place(self, annotation: Annotation) -> tuple[str, int]:
        name, line = _parted(annotation.file)
        path = self._recorder.config.rootpath / name
        inside = Path(os.path.relpath(path, self._workspace)) if name else Path(os.pardir)
        # what stands in no repository has no place in it, such as a bundled case
        if name.startswith("bundled:") or inside.is_absolute() or inside.parts[0] == os.pardir:
            return "", 1
        return inside.as_posix(), line or (_gates_line(path) if path.suffix == ".yaml" else 1)


def _parted(file: str) -> tuple[str, int]:
    name, _, line = file.rpartition(":")
    return (name, int(line)) if name and line.isdecimal() else (file, 0)


def _gates_line(rules: Path) -> int:
    """Find where the rules name their gates: what failed is one of them, or completeness, which every suite has."""
    try:
        lines = rules.read_text("utf-8", "replace").splitlines()
    except OSError:
        return 1
    return next((number for number, line in enumerate(lines, 1) if line.startswith("gates:")), 1)


def register_github(config: pytest.Config, recorder: Recorder) -> None:
    """Register what GitHub is told by, where GitHub runs the session."""
    github = GitHub(recorder, os.environ)
    if github.is_called_for:
        config.pluginmanager.register(github, "packbench-github")
