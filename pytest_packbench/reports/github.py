"""What GitHub shows of runs: annotations beside the files of a pull request, and a page in the summary of a step.

The forms are those of GitHub's workflow commands; its limits are 10 errors and 1 MiB of summary a step.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_packbench.analysis.conclusion import judge
from pytest_packbench.analysis.figures import count, score, terms_text
from pytest_packbench.analysis.listing import MOST_ROWS, Listing
from pytest_packbench.analysis.trials import folded, rule_of
from pytest_packbench.reports.markdown import summary_markdown
from pytest_packbench.reports.tables import cell
from pytest_packbench.reports.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.analysis.conclusion import Conclusion
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.model.run import Run

# of more, GitHub shows the first
MOST_ANNOTATIONS = 10
MOST_GATES = 3
STEP_BYTES = 1024 * 1024
_ROWS = (MOST_ROWS, 100, 30, 10, 3)
_WIDTH = 400
# the runner looks for the one at the beginning of a line, for the older one anywhere
_COMMAND = re.compile(r"^(\s*)::", re.MULTILINE)
_OLD_COMMAND = re.compile(r"##\[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A suite's run at its end.

    Attributes:
        told: what it came to.
        entries: one for each attempt.
        rules: the file of the suite's rules, as entries name files; empty where it is not to be shown.
        notes: further lines for the summary, such as the comparison with a baseline.
    """

    told: Conclusion
    entries: Sequence[CaseResult]
    rules: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A remark on a file.

    Attributes:
        level: `error`, or `warning` for what fails nothing.
        title: the first line, any text.
        message: the rest, any text.
        file: the file as entries name it, with its line where it holds many cases; empty for none.
    """

    level: Literal["error", "warning"]
    title: str
    message: str
    file: str = ""

    def command(self, file: str = "", line: int = 1) -> str:
        """Write it as a workflow command.

        Args:
            file: the file from the repository's root; empty for none.
            line: the line in it, from 1.

        Returns:
            One line without its end. Nothing in it begins another command.
        """
        place = {"file": file, "line": str(line)} if file else {}
        properties = ",".join(f"{name}={_property(text)}" for name, text in {**place, "title": self.title}.items())
        return f"::{self.level} {properties}::{_data(self.message)}"


def remarks(runs: Iterable[Judged], most: int = MOST_ANNOTATIONS) -> list[Annotation]:
    """Say what failed, worst first: gates, what broke, then cases by how far they are under their threshold.

    Args:
        runs: the suites of a session.
        most: how many to give at most, 2 or more; where there are more, the last one counts the rest.

    Returns:
        Nothing for quarantined cases, known holes and cases that did not run. Where the gates alone decide, a case
        under its threshold is a warning.
    """
    gates: list[Annotation] = []
    broken: list[Annotation] = []
    failed: list[tuple[float, Annotation]] = []
    for one in runs:
        gates += _of_gates(one)
        for entry in folded(one.entries, rule_of(one.told.run)):
            if entry.verdict in {"error", "vacuous"} and not entry.quarantined:
                broken.append(_of_broken(entry))
            elif entry.counted and entry.verdict == "failed":
                failed.append(((entry.score or 0.0) - (entry.threshold or 0.0), _of_failed(one.told.run, entry)))
    failed.sort(key=lambda each: each[0])
    found = [*gates, *broken, *(annotation for _, annotation in failed)]
    if len(found) <= most:
        return found
    rest = len(found) - most + 1
    fails = any(one.level == "error" for one in found[most - 1 :])
    told = f"and {count(rest, 'other')}: the summary and the job's log name them"
    return [*found[: most - 1], Annotation(level="error" if fails else "warning", title="packbench", message=told)]


def step_summary(one: Judged, limit: int = STEP_BYTES) -> str:
    """Write the summary of a run for a step's page, worst cases first.

    Args:
        one: the run.
        limit: bytes at most, in UTF-8.

    Returns:
        Markdown, with as many rows of each table as fit, and at least what decided; empty where not even that fits.
    """
    pages = chain(_pages(one), [_shortest(one)])
    return next((page for page in pages if len(page.encode("utf-8", "replace")) <= limit), "")


def append_summaries(path: Path, runs: Iterable[Judged]) -> None:
    """Append the summaries of runs to the file of a step's page, as far as the page has room.

    Raises:
        OSError: it can't be written.
    """
    with path.open("ab") as file:
        # other tools of the step write into the same file; a line end parts them
        left = STEP_BYTES - file.seek(0, os.SEEK_END) - 2
        for one in runs:
            page = f"\n{step_summary(one, left)}\n".encode("utf-8", "replace") if left > 0 else b""
            file.write(page)
            left -= len(page)


def commands(troubles: Sequence[Annotation], runs: Iterable[Judged], root: Path, workspace: str) -> Iterator[str]:
    """Give the workflow commands that annotate what went wrong.

    Args:
        troubles: what is to be said before what failed in the runs.
        runs: the suites of a session.
        root: the folder that files of results are named from.
        workspace: the folder of the repository.

    Returns:
        Commands, a line each without its end, at most `MOST_ANNOTATIONS`.
    """
    first = troubles[: MOST_ANNOTATIONS - 2]
    for annotation in (*first, *remarks(runs, MOST_ANNOTATIONS - len(first))):
        yield annotation.command(*_place_of(annotation.file, root, workspace))


def harmless(text: str) -> str:
    """Part what a runner would take for commands: what a pipeline prints may be a model's words."""
    return _OLD_COMMAND.sub("## [", _COMMAND.sub(r"\1: :", text))


def _pages(one: Judged) -> Iterator[str]:
    notes = "\n".join(f"- {cell(note, _WIDTH)}" for note in one.notes)
    told = replace(one.told, page=Listing("worst").take(one.entries, rule_of(one.told.run)))
    for rows in _ROWS:
        page = summary_markdown(told, most=rows, wrong_first=True)
        title, sentence, rest = page.split("\n\n", 2)
        yield "\n\n".join(part for part in (title, sentence, notes, rest) if part)


def _shortest(one: Judged) -> str:
    judgement = judge(one.told)
    return f"# packbench: {cell(one.told.run.suite)} - {judgement.headline}\n\n**{cell(judgement.sentence, _WIDTH)}**\n"


def _of_gates(one: Judged) -> list[Annotation]:
    suite, missed = one.told.run.suite, [gate for gate in one.told.gates if not gate.passed]
    found = [
        Annotation(
            level="error",
            title=f"{suite}: gate {one_line(gate.subject)}",
            message=one_line(gate.text, _WIDTH),
            file=one.rules,
        )
        for gate in missed[:MOST_GATES]
    ]
    if len(missed) > MOST_GATES:
        more = f"and {count(len(missed) - MOST_GATES, 'other gate')} of {suite}"
        found[-1] = replace(found[-1], message=f"{found[-1].message}\n{more}")
    return found


def _of_broken(entry: CaseResult) -> Annotation:
    return Annotation(
        level="error",
        title=f"{entry.suite}: {entry.case_id} broke ({entry.kind or entry.verdict})",
        message=one_line(entry.message or entry.verdict, _WIDTH),
        file=entry.file,
    )


def _of_failed(run: Run, entry: CaseResult) -> Annotation:
    reached, needed = score(entry.score, entry.threshold)
    answer = f"answer: {one_line(entry.answer)}\n" if entry.answer else ""
    return Annotation(
        level="warning" if run.settings.get("gate") == "suite" else "error",
        title=f"{entry.suite}: {entry.case_id} scored {reached} < {needed}",
        message=f"{answer}{one_line(terms_text(entry.terms, details=True), _WIDTH)}",
        file=entry.file,
    )


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _place_of(file: str, root: Path, workspace: str) -> tuple[str, int]:
    """Give a file from the repository's root and a line in it; no file where it stands in no repository."""
    name, line = _parted(file)
    path = root / name
    inside = Path(os.path.relpath(path, workspace)) if name else Path(os.pardir)
    # such as a bundled case
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
