"""GitHub Actions: annotations on the files of a pull request, and the job summary.

Annotations are workflow commands. GitHub's limits are 10 errors and 1 MiB of summary per step.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote

from pytest_packbench.analysis.conclusion import Conclusion, run_verdict
from pytest_packbench.analysis.counting import MAX_ROWS, how_far_below
from pytest_packbench.analysis.statistics import format_score, format_terms
from pytest_packbench.model.errors import first_of, pluralize
from pytest_packbench.model.result import Result, is_broken
from pytest_packbench.reports.blocks import Section, Text, markdown
from pytest_packbench.reports.story import NOWHERE, Place, summary_markdown
from pytest_packbench.reports.terminal import one_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.model.run import Run

# GitHub shows the first 10 of a step
MAX_ANNOTATIONS = 10
STEP_BYTES = 1024 * 1024
_ROWS = (MAX_ROWS, 100, 30, 10, 3)
_WIDTH = 400
_BROKEN = ("error", "vacuous")
# of an annotation
_MAX_LINES = 5


class FinishedRun(NamedTuple):
    """A suite's run at its end.

    Attributes:
        conclusion: what it came to.
        rules: the suite's `suite.yaml`, relative to the same folder as the files of results; empty for none.
        place: where the job summary is read.
    """

    conclusion: Conclusion
    rules: str = ""
    place: Place = NOWHERE


class Annotation(NamedTuple):
    """An annotation on a file.

    Attributes:
        level: `error`, or `warning` for what does not fail the run.
        title: the first line, any text.
        message: the other lines, any text.
        file: the file as results name it, with its line if it contains many cases; empty for none.
    """

    level: Literal["error", "warning"]
    title: str
    message: str
    file: str = ""

    def command(self, file: str = "", line: int = 1) -> str:
        """Return it as a workflow command.

        Args:
            file: the file, relative to the repository's root; empty for none.
            line: the line in it, from 1.

        Returns:
            One line without its end, in which title and message are escaped.
        """
        location = {"file": file, "line": str(line)} if file else {}
        properties = ",".join(
            f"{name}={_escape_property(text)}" for name, text in {**location, "title": self.title}.items()
        )
        return f"::{self.level} {properties}::{_escape_data(printable(self.message))}"


def run_annotations(runs: Iterable[FinishedRun], problems: Sequence[Annotation] = ()) -> list[Annotation]:
    """Return annotations of what failed: policy, baseline, gates, controls, errors, then failing cases, worst first.

    Args:
        runs: the suites of a session.
        problems: annotations that come before those of the runs.

    Returns:
        At most `MAX_ANNOTATIONS`, the last of which counts the others; none for quarantined cases, known holes and
        cases that did not run. If only gates decide, failing cases are warnings.
    """
    ordered = [*problems]
    errors: list[Annotation] = []
    failures: list[tuple[float, Annotation]] = []
    hidden = 0
    for run in runs:
        ordered += _decisions(run)
        about, listing = run.conclusion.run, run.conclusion.page_cases
        errors += [_error_annotation(about, case) for name in _BROKEN for case in listing.first(name, MAX_ROWS)]
        failed = listing.first("failed", MAX_ROWS)
        failures += [(how_far_below(case.score), _failure_annotation(about, case)) for case in failed]
        hidden += sum(max(listing.count(name) - MAX_ROWS, 0) for name in (*_BROKEN, "failed"))
    failures.sort(key=lambda failure: failure[0])
    ordered += [*errors, *(annotation for _, annotation in failures)]
    others = ordered[MAX_ANNOTATIONS - 1 :]
    if len(others) > 1:
        level: Literal["error", "warning"] = "error" if any(each.level == "error" for each in others) else "warning"
        message = f"and {len(others) + hidden} more; see the job summary and the log"
        ordered[MAX_ANNOTATIONS - 1 :] = [Annotation(level=level, title="packbench", message=message)]
    return ordered


def step_summary(run: FinishedRun, limit: int = STEP_BYTES) -> str:
    """Render the job summary of a run, worst cases first.

    Returns:
        Markdown of at most `limit` bytes of UTF-8, with as many rows per table as fit, and at least the verdict; empty
        if not even that fits.
    """
    return next((page for page in _pages(run) if len(page.encode("utf-8", "replace")) <= limit), "")


def append_summaries(path: Path, runs: Iterable[FinishedRun]) -> None:
    """Append the summaries of runs to the job summary's file, as far as GitHub's limit allows.

    Raises:
        OSError: the file can't be written.
    """
    with path.open("ab") as file:
        # other tools of the step may have written to the file; a line end separates the texts
        left = STEP_BYTES - file.seek(0, os.SEEK_END) - 2
        for run in runs:
            page = f"\n{step_summary(run, left)}\n".encode("utf-8", "replace") if left > 0 else b""
            file.write(page)
            left -= len(page)


def blob_root(environ: Mapping[str, str], root: Path, workspace: str) -> str | None:
    """Return the address of the folder of a project on GitHub, at the commit of this job; None if it is not known.

    Args:
        environ: GitHub's variables.
        root: the folder.
        workspace: the folder of the repository.
    """
    server, repository, commit = (environ.get(f"GITHUB_{name}") for name in ("SERVER_URL", "REPOSITORY", "SHA"))
    relative = Path(os.path.relpath(root, workspace)).as_posix()
    if not (server and repository and commit) or relative.startswith((os.pardir, "/")):
        return None
    folder = "" if relative == "." else f"/{quote(relative)}"
    return f"{server}/{quote(repository)}/blob/{quote(commit)}{folder}"


def annotation_commands(
    problems: Sequence[Annotation], runs: Iterable[FinishedRun], root: Path, workspace: str
) -> Iterator[str]:
    """Return the workflow commands that annotate what failed.

    Args:
        problems: annotations that come before those of the runs.
        runs: the suites of a session.
        root: the folder that the files of results are relative to.
        workspace: the folder of the repository.

    Returns:
        At most `MAX_ANNOTATIONS` commands, one line each without its end.
    """
    for annotation in run_annotations(runs, problems):
        yield annotation.command(*_location(annotation.file, root, workspace))


def _pages(run: FinishedRun) -> Iterator[str]:
    conclusion = run.conclusion
    for rows in _ROWS:
        yield summary_markdown(conclusion, max_rows=rows, place=run.place)
    verdict = run_verdict(conclusion)
    title = f"packbench: {conclusion.run.suite} - {verdict.headline}"
    yield markdown([Section(title, [Text(one_line(verdict.sentence, _WIDTH), strong=True)])]) + "\n"


def _decisions(run: FinishedRun) -> Iterator[Annotation]:
    """Yield what failed the run as a whole: policy, baseline, gates and controls."""
    conclusion, rules, suite = run.conclusion, run.rules, run.conclusion.run.suite
    policy, baseline, controls = conclusion.policy, conclusion.baseline, conclusion.controls
    if policy is not None and policy.failed:
        changes = (change.line for change in policy.loosened)
        yield _error(f"{suite}: acceptance policy", rules, policy.headline, *policy.problems, *changes)
    for text in baseline.failures if baseline is not None else ():
        yield _error(f"{suite}: baseline", rules, text)
    failed = [gate.text for gate in conclusion.gates if not gate.passed]
    if failed:
        yield _error(f"{suite}: {pluralize(len(failed), 'gate')} failed", rules, *failed)
    wrong = () if controls is None else controls.wrong
    if wrong:
        title = f"{suite}: {pluralize(len(wrong), 'control')} did not end as written"
        yield _error(title, wrong[0].file, *(f"{control.control}: {control.message}" for control in wrong))


def _error(title: str, file: str, *lines: str) -> Annotation:
    return Annotation("error", title, "\n".join(one_line(line, _WIDTH) for line in first_of(lines, _MAX_LINES)), file)


def _error_annotation(run: Run, result: Result) -> Annotation:
    verdict, kind = result.score.verdict, f" ({result.score.kind})" if result.score.kind else ""
    title = f"{result.case.suite}: {result.case.case_id}: {verdict}{kind}"
    annotation = _error(title, result.case.file, result.score.message or verdict)
    return (
        annotation if is_broken(verdict, run.mode, valid=result.score.valid) else annotation._replace(level="warning")
    )


def _failure_annotation(run: Run, result: Result) -> Annotation:
    score, threshold = format_score(result.score.score, result.score.threshold)
    answer = [f"answer: {one_line(result.score.answer)}"] if result.score.answer else []
    title = f"{result.case.suite}: {result.case.case_id} scored {score} < {threshold}"
    annotation = _error(title, result.case.file, *answer, format_terms(result.score.terms, details=True))
    return annotation._replace(level="warning") if run.settings.get("gate") == "suite" else annotation


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(printable(text)).replace(":", "%3A").replace(",", "%2C")


def _location(file: str, root: Path, workspace: str) -> tuple[str, int]:
    """Return a file relative to the repository's root and a line in it; no file if it is outside the repository."""
    name, _, line = file.rpartition(":")
    if not (name and line.isdecimal()):
        name, line = file, "1"
    relative = Path(os.path.relpath(root / name, workspace)) if name else Path(os.pardir)
    if name.startswith("bundled:") or relative.is_absolute() or relative.parts[0] == os.pardir:
        return "", 1
    return relative.as_posix(), int(line)
