"""`packbench review`: write what reviewers marked on the page of a run into the cases, after showing it as a patch."""

from __future__ import annotations

import json
import os
import sys
from argparse import SUPPRESS
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.files import LINES_SUFFIX, format_location, iter_cases
from pytest_packbench.cases.load import check_case, parse_case, parse_json, parse_mark
from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import add_packs, add_root, suite_and_pack, write_file
from pytest_packbench.files import LIMITS, read_regular
from pytest_packbench.model.errors import format_value, pluralize
from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.model.case import Case
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.policy import ReviewMark
    from pytest_packbench.model.score import Outcome, Score
    from pytest_packbench.model.suite import Suite

_TITLES = {"gold_is_wrong": "gold is wrong", "also_acceptable": "also acceptable", "quarantine": "quarantine"}
_DISPUTED = "the expected answer is disputed: "


class ReviewedSuite(NamedTuple):
    """A suite with marked cases.

    Attributes:
        suite: the suite.
        pack: its pack.
        cases: where its cases are, by id; an invalid suite has an id twice.
    """

    suite: Suite
    pack: Pack
    cases: dict[str, list[CaseLocation]]


class NotAppliedError(ValueError):
    """A mark can't be written into its case; in one line why, and what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the review.jsonl that the page of a run made")
    parser.add_argument(
        "--write", action="store_true", help="change the case files; without it, the patch is only shown"
    )
    add_root(parser)
    add_packs(parser)
    # removed; its message says what replaces it
    parser.add_argument("--output", help=SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Print the patch of the case files, and write it if requested; return 1 if a mark can't be applied."""
    if arguments.output is not None:
        raise UsageError("--output was removed: the marked answer is taken from the mark")
    marks = read_marks(arguments.file)
    try:
        suites = {name: _open_suite(name, arguments) for name in dict.fromkeys(mark.suite for mark in marks.values())}
    except UsageError as error:
        raise UsageError(f"{arguments.file}: {error}") from None
    files: dict[str, CaseFile] = {}
    done, notes, problems = [], [], []
    for source, mark in marks.items():
        try:
            if _apply(mark, suites[mark.suite], files):
                done.append(f"{mark.case}: {_TITLES[mark.mark]}, by {mark.review['by']}: {mark.review['reason']}")
            else:
                notes.append(f"{mark.case}: already written")
        except (ValueError, OSError) as error:
            problems.append(f"{source}: case {mark.case}: {error}")
    changed = [file for file in files.values() if file.lines != file.before]
    if arguments.write:
        for file in changed:
            write_file(file.path, "\n".join(file.lines))
    shown = [line for file in changed for line in file.patch()]
    sys.stdout.write("".join(f"{printable(line)}\n" for line in [*shown, *done, *notes]))
    for problem in problems:
        sys.stderr.write(f"packbench: not applied: {printable(' '.join(problem.split()))}\n")
    total = pluralize(len(marks), "mark")
    if arguments.write or not done:
        sys.stdout.write(f"{len(done)} of {total} written\n")
    else:
        sys.stdout.write(f"{len(done)} of {total} would be written; add --write to change the files\n")
    return FAILED if problems else FINE


def read_marks(path: Path) -> dict[str, ReviewMark]:
    """Read the marks of a `review.jsonl`, each with its file and line; check that no case is marked twice.

    Raises:
        UsageError: it contains no mark, or two of a case.
        CaseError: a line is not a mark; one line with its place and the key.
        OSError: it can't be read.
    """
    marks: dict[str, ReviewMark] = {}
    sources: dict[tuple[str, str], str] = {}
    for number, raw in enumerate(read_regular(path, LIMITS["review"]).split(b"\n"), start=1):
        if raw.removeprefix(b"\xef\xbb\xbf").strip():
            source = format_location(str(path), number)
            mark = marks[source] = parse_mark(raw, source=source)
            first = sources.setdefault((mark.suite, mark.case), source)
            if first != source:
                raise UsageError(f"{source}: case {mark.case} is marked at {first} as well; keep one line per case")
    if not marks:
        raise UsageError(f"{path}: contains no mark; download it again from the page of the run")
    return marks


def _open_suite(name: str, arguments: argparse.Namespace) -> ReviewedSuite:
    suite, pack = suite_and_pack(name, arguments, by_name=True)
    if suite.bundled:
        own = suite.name.rpartition("/")[2]
        advice = f"copy the suite with packbench init --from {own}, run the copy, and mark its cases"
        raise UsageError(f'suite "{name}": cases of the installed package can\'t be changed; {advice}')
    cases: dict[str, list[CaseLocation]] = {}
    for location in iter_cases(suite.cases_path):
        cases.setdefault(location.written_id, []).append(location)
    return ReviewedSuite(suite, pack, cases)


def _apply(mark: ReviewMark, reviewed: ReviewedSuite, files: dict[str, CaseFile]) -> bool:
    """Change a marked case in its file, which is read once; return whether it did not have the mark yet.

    Raises:
        ValueError: it can't be changed; one line.
        OSError: its file can't be read.
    """
    location, *others = reviewed.cases.get(mark.case, [None])
    if location is None:
        raise NotAppliedError(f"suite {mark.suite} has no case with this id; run the suite again, and mark its cases")
    if others:
        raise NotAppliedError(f"{len(others) + 1} cases have this id; give each an id of its own")
    # suites may share a file by links
    real = os.path.realpath(location.path)
    file = files.get(real) or CaseFile(location.path)
    files[real], source = file, format_location(file.name, location.line)
    part = max(location.line - 1, 0)
    raw, config = file.lines[part].encode(), reviewed.suite.config
    loaded = parse_case(raw, reviewed.pack.case_model, source=source, stem=None, pack=config.pack)
    if loaded.sha256 != mark.case_sha256:
        if mark.review in [review.model_dump() for review in loaded.case.notes.reviews]:
            return False
        changed = f"{source} has changed since the run {mark.run_id}"
        raise NotAppliedError(f"{changed}; run the suite again, and mark the case again")
    data = parse_json(raw)
    notes = data.setdefault("notes", {})
    if mark.mark == "also_acceptable":
        _accept(data, mark, reviewed, source)
    else:
        _exclude(notes, mark, source)
    _append(notes, ("reviews",), mark.review)
    check_case(data, reviewed.pack.case_model, source=source, stem=None, pack=config.pack)
    file.replace(part, data)
    return True


def _exclude(notes: dict[str, Any], mark: ReviewMark, source: str) -> None:
    """Take a case out of the rates; one that is run and not counted can still be taken out of the run."""
    is_disputed = mark.mark == "gold_is_wrong"
    for name in ("skip", "xfail") if is_disputed else ("skip",):
        if notes.get(name) is not None:
            raise NotAppliedError(f"{source} is excluded already: notes.{name}: {format_value(notes[name])}")
    note, begin = ("xfail", _DISPUTED) if is_disputed else ("skip", "")
    notes[note] = f"{begin}{mark.review['reason']} ({mark.review['by']})"


def _accept(data: dict[str, Any], mark: ReviewMark, reviewed: ReviewedSuite, source: str) -> None:
    """Add the marked answer to those that are accepted, and check that it passes then.

    Raises:
        ValueError: there is none, it can't be read or added, or passes already; one line.
    """
    if mark.result is None:
        raise NotAppliedError("the mark has no result, which is too long for the page; change expected by hand")
    case, outcome, score = _scored(data, mark, reviewed, source)
    if mark.answer is not None and outcome.answer != mark.answer:
        said = format_value(mark.answer)
        raise NotAppliedError(f"its result has another answer than the page showed ({said}); mark the case again")
    if score.passed:
        raise NotAppliedError(f"{source} accepts this answer already, with the score {score.score:g}")
    for keys, value in reviewed.pack.also_acceptable(case, outcome, reviewed.suite.config):
        _append(data, ("expected", *keys), value)
    _, _, score = _scored(data, mark, reviewed, source)
    if not score.passed:
        lost = "; ".join(
            f"{term.name} {term.detail}".rstrip() for term in score.terms if term.effect == "zero" or term.value <= 0
        )
        raise NotAppliedError(
            f"{source}: with this answer added the case still fails, score {score.score or 0:g}, threshold "
            f"{score.threshold:g}{f' ({lost})' if lost else ''}; change expected by hand"
        )


def _scored(data: Any, mark: ReviewMark, reviewed: ReviewedSuite, source: str) -> tuple[Case, Outcome, Score]:
    """Score the marked answer against a case as it is, or as it becomes."""
    pack, config = reviewed.pack, reviewed.suite.config
    case = check_case(data, pack.case_model, source=source, stem=None, pack=config.pack).case
    outcome = pack.read(mark.result)
    if outcome.breakdown is not None:
        raise NotAppliedError("the target reported a failure instead of an answer; change expected by hand")
    return case, outcome, pack.score(case, outcome, config)


def _append(data: Any, keys: Sequence[str | int], value: Any) -> None:
    """Append a value to the list at a location, which is created with the objects around it where it is missing."""
    missing: list[Any] = [*({} for _ in keys[1:]), []]
    try:
        for key, empty in zip(keys, missing, strict=True):
            if isinstance(data, dict) and data.get(key) is None:
                data[key] = empty
            data = data[key]
        data.append(value)
    except (LookupError, TypeError, AttributeError):
        raise NotAppliedError(f"/{'/'.join(map(str, keys))}: expected a list; change it by hand") from None


class CaseFile:
    """The text of a file of cases, and what becomes of it.

    Args:
        path: where it is; of a link, the file that it names is changed.

    Attributes:
        path: the file.
        name: its name for users.
        before: its lines, as they are; a file of one case is one of them.
        lines: its lines, as they become.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(os.path.realpath(path))
        self.name = Path(os.path.relpath(path)).as_posix()
        try:
            text = self.path.read_bytes().decode()
        except UnicodeDecodeError:
            raise NotAppliedError(f"{self.name}: not UTF-8; save the file as UTF-8") from None
        self._of_lines = path.endswith(LINES_SUFFIX)
        self.before = text.split("\n") if self._of_lines else [text]
        self.lines = list(self.before)

    def replace(self, part: int, case: Any) -> None:
        """Write a case as `json` writes it: in a line, or in a file with two spaces for each level."""
        if self._of_lines:
            self.lines[part] = json.dumps(case, ensure_ascii=False) + "\r" * self.before[part].endswith("\r")
        else:
            self.lines[part] = json.dumps(case, ensure_ascii=False, indent=2) + "\n"

    def patch(self) -> Iterator[str]:
        """Return the lines of the unified diff."""
        before, after = ("\n".join(lines).split("\n") for lines in (self.before, self.lines))
        context = 0 if self._of_lines else 3
        return unified_diff(before, after, f"a/{self.name}", f"b/{self.name}", n=context, lineterm="")
