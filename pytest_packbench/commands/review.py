"""`packbench review`: write what reviewers marked on the page of a run into the cases, after showing it as a patch."""

from __future__ import annotations

import json
import os
import re
import sys
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from pytest_packbench.cases.files import format_location, iter_cases
from pytest_packbench.cases.load import JsonError, case_sha256, check_case, parse_json
from pytest_packbench.cli import FAILED, FINE, UsageError
from pytest_packbench.commands.paths import add_output, add_packs, add_root, suite_and_pack, write_file
from pytest_packbench.files import LIMITS, read_regular
from pytest_packbench.model.errors import CaseError, format_value, pluralize, validation_problems
from pytest_packbench.model.policy import ReviewMark
from pytest_packbench.model.score import ResultError
from pytest_packbench.reports.terminal import printable
from pytest_packbench.runs.folder import PAYLOADS, StoredRunError
from pytest_packbench.runs.lines import payload_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.cases.files import CaseLocation
    from pytest_packbench.model.case import Case
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.score import Outcome, Score
    from pytest_packbench.model.suite import Suite

MAX_LINE = 2**20
"""The size of a `review.jsonl`, and of a line of it, above which it is refused, in bytes."""
_MAX_EXACT = 2**53 - 1
"""The largest whole number that JavaScript keeps exactly."""
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_TITLES = {"gold_is_wrong": "gold is wrong", "also_acceptable": "also acceptable", "quarantine": "quarantine"}
_NOTE_OF_MARK = {"gold_is_wrong": "xfail", "quarantine": "skip"}
_DISPUTED = "the expected answer is disputed: "
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()

Key = str | int
Edit = tuple[tuple[Key, ...], Any, bool]
"""A location in a case, a value, and whether it is appended to the list there."""


class ReviewedSuite(NamedTuple):
    """A suite with marked cases.

    Attributes:
        suite: the suite.
        pack: its pack.
        locations: where the marked cases are, by id.
        output: the folder of its runs.
        stored: the results of the marked cases, by run id and case; read when they are needed.
    """

    suite: Suite
    pack: Pack
    locations: dict[str, list[CaseLocation]]
    output: Path
    stored: dict[str, dict[str, list[Any]]]


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
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the patch of the case files, and write it if requested; return 1 if a mark can't be applied."""
    marks = read_marks(arguments.file)
    suites: dict[str, ReviewedSuite] = {}
    for source, mark in marks.items():
        try:
            suites[mark.suite] = suites.get(mark.suite) or _open_suite(mark.suite, marks.values(), arguments)
        except UsageError as error:
            raise UsageError(f"{source}: {error}") from None
    files: dict[str, CaseFile] = {}
    done, notes, problems = [], [], []
    for source, mark in marks.items():
        try:
            if _apply(mark, suites[mark.suite], files):
                reason = f"by {_one_line(mark.by)}: {_one_line(mark.reason)}"
                done.append(f"{mark.case}: {_TITLES[mark.mark]}, {reason}")
            else:
                notes.append(f"{mark.case}: already written")
        except NotAppliedError as error:
            problems.append(f"{source}: case {mark.case}: {error}")
    changed = [file for file in files.values() if file.lines != file.before]
    if arguments.write:
        for file in changed:
            write_file(file.path, "".join(file.lines))
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
        UsageError: it can't be read, or a line is not a mark; one line with the line and the key.
    """
    marks: dict[str, ReviewMark] = {}
    lines: dict[tuple[str, str], tuple[int, str]] = {}
    for number, raw in enumerate(read_regular(path, LIMITS["review"]).split(b"\n"), start=1):
        if not raw.removeprefix(b"\xef\xbb\xbf").strip():
            continue
        source = format_location(str(path), number)
        mark = marks[source] = _parse_mark(raw, source)
        line, earlier = lines.setdefault((mark.suite, mark.case), (number, mark.mark))
        if line != number:
            wrong = "is marked twice" if earlier == mark.mark else f"contradicts {_TITLES[earlier]}"
            where = f"{source}: case {mark.case}: {_TITLES[mark.mark]}"
            raise UsageError(f"{where}: {wrong}, see line {line}; keep one line per case")
    if not marks:
        raise UsageError(f"{path}: contains no mark; download it again from the page of the run")
    return marks


def _parse_mark(raw: bytes, source: str) -> ReviewMark:
    if len(raw) > MAX_LINE:
        raise UsageError(f"{source}: longer than {MAX_LINE // 2**20} MB; expected a mark")
    try:
        data = parse_json(raw)
    except JsonError as error:
        raise UsageError(f"{source}: {str(error).removeprefix('line 1 ')}") from None
    try:
        return ReviewMark.model_validate(data)
    except ValidationError as error:
        raise UsageError(str(CaseError(source, validation_problems(error, ReviewMark, data)))) from None


def _open_suite(name: str, marks: Iterable[ReviewMark], arguments: argparse.Namespace) -> ReviewedSuite:
    suite, pack = suite_and_pack(name, arguments, by_name=True)
    if suite.bundled:
        own = suite.name.rpartition("/")[2]
        advice = f"copy the suite with packbench init --from {own}, run the copy, and mark its cases"
        raise UsageError(f'suite "{name}": cases of the installed package can\'t be changed; {advice}')
    wanted = {mark.case for mark in marks if mark.suite == name}
    locations: dict[str, list[CaseLocation]] = {}
    for location in iter_cases(suite.cases_path):
        if location.written_id in wanted:
            locations.setdefault(location.written_id, []).append(location)
    return ReviewedSuite(suite, pack, locations, arguments.output / suite.name, {})


def _apply(mark: ReviewMark, reviewed: ReviewedSuite, files: dict[str, CaseFile]) -> bool:
    """Change the text of a marked case in its file, which is read once; return whether it did not have the mark yet.

    Raises:
        NotAppliedError: it can't be changed.
    """
    locations = reviewed.locations.get(mark.case, [])
    if not locations:
        raise NotAppliedError(f"suite {mark.suite} has no case with this id; run the suite again, and mark its cases")
    if len(locations) > 1:
        raise NotAppliedError(f"{len(locations)} cases have this id; give each an id of its own")
    location = locations[0]
    try:
        # a link stays a link: the file that it names is changed
        path = os.path.realpath(location.path)
        if path not in files:
            files[path] = CaseFile(Path(path), Path(os.path.relpath(location.path)))
        file, part = files[path], max(location.line - 1, 0)
        text = file.before[part]
        data = parse_json(text.encode())
    except (OSError, ValueError) as error:
        raise NotAppliedError(f"{os.path.relpath(location.path)}: can't be read: {error}") from None
    source = format_location(str(file.name), location.line)
    if case_sha256(data) != mark.case_sha256:
        if _is_reviewed(data, mark):
            return False
        changed = f"{source} has changed since the run {mark.run_id}"
        raise NotAppliedError(f"{changed}; run the suite again, and mark the case again")
    if not isinstance(data, dict) or not isinstance(data.get("notes") or {}, dict):
        raise NotAppliedError(f"{source}: expected a case, whose notes are an object")
    result = _marked_result(mark, reviewed) if mark.mark == "also_acceptable" else None
    for keys, value, is_appended in _edits(data, mark, result, reviewed, source):
        text = edited(text, keys, value, append=is_appended)
    _check_result(parse_json(text.encode()), mark, result, reviewed, source)
    file.lines[part] = text
    return True


def _is_reviewed(data: Any, mark: ReviewMark) -> bool:
    """Return whether a case, as any JSON, has a mark."""
    notes = data.get("notes") if isinstance(data, dict) else None
    reviews = notes.get("reviews") if isinstance(notes, dict) else None
    return isinstance(reviews, list) and mark.review in reviews


def _edits(data: dict[str, Any], mark: ReviewMark, result: Any, reviewed: ReviewedSuite, source: str) -> Iterator[Edit]:
    note = _NOTE_OF_MARK.get(mark.mark)
    notes = data.get("notes") or {}
    if note is None:
        yield from ((("expected", *keys), value, True) for keys, value in _accepted(data, result, reviewed, source))
    else:
        given = {name: notes[name] for name in ("skip", "xfail") if notes.get(name) is not None}
        # a case that is run and not counted can still be taken out
        if given.keys() & ({"skip"} if note == "skip" else {"skip", "xfail"}):
            name, why = next(iter(given.items()))
            raise NotAppliedError(f"{source} is excluded already: notes.{name}: {format_value(why)}")
        begin = _DISPUTED if mark.mark == "gold_is_wrong" else ""
        yield ("notes", note), f"{begin}{_one_line(mark.reason)} ({_one_line(mark.by)})", False
    yield ("notes", "reviews"), mark.review, True


def _accepted(
    data: dict[str, Any], result: Any, reviewed: ReviewedSuite, source: str
) -> Sequence[tuple[tuple[Key, ...], Any]]:
    """Return what to add to `expected`, so that the marked answer passes."""
    try:
        case, outcome, score = _scored(data, result, reviewed, source)
    except ResultError as error:
        raise NotAppliedError(f"the marked answer can't be read: {error}") from None
    except CaseError as error:
        raise NotAppliedError(str(error)) from None
    if score.passed:
        raise NotAppliedError(f"{source} accepts this answer already, with the score {score.score:g}")
    try:
        return reviewed.pack.also_acceptable(case, outcome, reviewed.suite.config)
    except ValueError as error:
        raise NotAppliedError(f"{source}: {error}") from None


def _scored(data: Any, result: Any, reviewed: ReviewedSuite, source: str) -> tuple[Case, Outcome, Score]:
    """Score an answer against a case as it is, or as it becomes.

    Raises:
        CaseError: the suite does not accept the case.
        ResultError: the answer can't be read.
        NotAppliedError: it is no answer.
    """
    pack, rules = reviewed.pack, reviewed.suite.config
    case = check_case(data, pack.case_model, source=source, stem=None, pack=rules.pack).case
    outcome = pack.read(result)
    if outcome.breakdown is not None:
        raise NotAppliedError("the target reported a failure instead of an answer; change expected by hand")
    return case, outcome, pack.score(case, outcome, rules)


def _marked_result(mark: ReviewMark, reviewed: ReviewedSuite) -> Any:
    """Return the result of the marked answer: from the files of its run, where numbers are exact, else of the mark.

    Raises:
        NotAppliedError: there is none with this answer, or it may have lost digits in the browser.
    """
    path = reviewed.output / mark.run_id / PAYLOADS
    stored = _stored_results(mark.run_id, path, reviewed).get(mark.case, [])
    found = [each for each in stored if _is_marked(each, mark, reviewed) or (mark.answer is None and len(stored) == 1)]
    if found:
        # several trials may have the answer, and differ in the rest
        return mark.result if mark.result in found else found[0]
    if mark.result is None:
        none = "none of this case with this answer" if stored else "none of this case"
        raise NotAppliedError(
            f"the mark has no result, and {path} has {none}; mark the case again on a page of a new run"
        )
    if mark.answer is not None and not _is_marked(mark.result, mark, reviewed):
        said = format_value(mark.answer)
        raise NotAppliedError(f"its result has another answer than the page showed ({said}); mark the case again")
    if _has_inexact(mark.result):
        raise NotAppliedError(
            f"its result has a number that a browser does not keep exactly, and {path} does not have the result; "
            "bring the files of the run, or change expected by hand"
        )
    return mark.result


def _is_marked(result: Any, mark: ReviewMark, reviewed: ReviewedSuite) -> bool:
    """Return whether a result has the answer that the page showed; one that can't be read is judged by its scoring."""
    try:
        return reviewed.pack.read(result).answer == mark.answer
    except ResultError:
        return mark.answer is None


def _stored_results(run_id: str, path: Path, reviewed: ReviewedSuite) -> dict[str, list[Any]]:
    """Return what a run stored of the marked cases, in the order of trials; nothing if it can't be read."""
    if run_id not in reviewed.stored:
        found = reviewed.stored[run_id] = {}
        try:
            for line in payload_lines(path):
                case_id = line.test_id.rpartition(":")[2]
                if case_id in reviewed.locations:
                    found.setdefault(case_id, []).append(line.content)
        except (StoredRunError, OSError):
            found.clear()
    return reviewed.stored[run_id]


def _has_inexact(value: Any) -> bool:
    """Return whether JSON from a browser has a number beyond those that it keeps exactly."""
    if isinstance(value, dict | list):
        return any(map(_has_inexact, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and abs(value) > _MAX_EXACT


def _check_result(data: Any, mark: ReviewMark, result: Any, reviewed: ReviewedSuite, source: str) -> None:
    """Refuse a changed case that its suite does not accept, or by which the accepted answer still fails."""
    try:
        if mark.mark != "also_acceptable":
            check_case(data, reviewed.pack.case_model, source=source, stem=None, pack=reviewed.suite.config.pack)
            return
        _, _, score = _scored(data, result, reviewed, source)
    except CaseError as error:
        raise NotAppliedError(f"the changed case would not be valid: {error}") from None
    if not score.passed:
        lost = "; ".join(
            f"{term.name} {term.detail}".rstrip() for term in score.terms if term.effect == "zero" or term.value <= 0
        )
        raise NotAppliedError(
            f"{source}: with this answer added the case still fails, score {score.score or 0:g}, threshold "
            f"{score.threshold:g}{f' ({lost})' if lost else ''}; change expected by hand"
        )


class CaseFile:
    """The text of a file of cases, and what becomes of it.

    Attributes:
        path: the file.
        name: its name for users.
        before: its lines with their ends, as they are; a file of one case is one of them.
        lines: its lines, as they become.
    """

    def __init__(self, path: Path, name: Path) -> None:
        text = path.read_bytes().decode()
        self.path = path
        self.name = name
        self.before = _LINES.findall(text) if name.suffix == ".jsonl" else [text]
        self.lines = list(self.before)

    def patch(self) -> Iterator[str]:
        """Yield the lines of the unified diff."""
        before, after = (_LINES.findall("".join(lines)) for lines in (self.before, self.lines))
        name = self.name.as_posix()
        context = 0 if name.endswith(".jsonl") else 3
        for line in unified_diff(before, after, f"a/{name}", f"b/{name}", n=context):
            yield line.rstrip("\r\n")
            if not line.endswith("\n"):
                yield "\\ No newline at end of file"


class _Member(NamedTuple):
    """A member of an object or a list: its key or index, and where it, its value and its end are in the text."""

    key: Key
    start: int
    value: int
    end: int


class _Container(NamedTuple):
    """An object or a list: where its brackets are in the text, and its members."""

    start: int
    end: int
    members: list[_Member]


class _Style(NamedTuple):
    """How a JSON text is written: one level of indentation, line end, what follows a comma, and escapes."""

    unit: str
    newline: str
    space: str
    ascii_only: bool

    def inline(self, value: Any) -> str:
        """Write a value in one line."""
        return json.dumps(value, ensure_ascii=self.ascii_only, separators=("," + self.space, ":" + self.space))

    def written(self, value: Any, indentation: str | None) -> str:
        """Write a value in lines with an indentation, a list of plain values in one; without any, all of it in one."""
        if indentation is None or not isinstance(value, dict | list):
            return self.inline(value)
        inner = indentation + self.unit
        if isinstance(value, dict):
            ends = "{}"
            members = [f"{self.member(key)}{self.written(member, inner)}" for key, member in value.items()]
        else:
            ends, is_plain = "[]", not any(isinstance(member, dict | list) for member in value)
            members = [] if is_plain else [self.written(member, inner) for member in value]
        if not members:
            return self.inline(value)
        lines = f",{self.newline}{inner}".join(members)
        return f"{ends[0]}{self.newline}{inner}{lines}{self.newline}{indentation}{ends[1]}"

    def member(self, key: str) -> str:
        """Write what precedes the value of a key."""
        return f"{self.inline(key)}:{self.space}"


def edited(text: str, keys: tuple[Key, ...], value: Any, *, append: bool) -> str:
    """Return a JSON object with a value set, or appended to a list; the rest of the text stays as it is.

    Args:
        text: the text of the object.
        keys: the location; objects that are missing, or null, are created.
        value: the value, plain JSON.
        append: whether it is appended to the list at the location, which is created if it is missing.

    Raises:
        NotAppliedError: something else than an object or a list is in the way.
    """
    start = text.index("{")
    style = _style_of(text, start)
    leaf = [value] if append else value
    for depth, key in enumerate(keys):
        nested = leaf
        for inner in reversed(keys[depth + 1 :]):
            nested = {inner: nested}
        container = _container(text, start)
        member = next((each for each in container.members if each.key == key), None)
        if member is None:
            if text[start] == "[":
                raise NotAppliedError(f"expected an element {key} in the list at /{'/'.join(map(str, keys[:depth]))}")
            return _inserted(text, container, style, style.member(str(key)), nested)
        is_last = depth == len(keys) - 1
        if text.startswith("null", member.value) or (is_last and not append):
            return text[: member.value] + style.written(nested, _indentation(text, start)) + text[member.end :]
        start = member.value
        if text[start] not in ("[" if is_last else "{["):
            where = "/".join(map(str, keys[: depth + 1]))
            raise NotAppliedError(f"/{where}: got {format_value(_DECODER.raw_decode(text, start)[0])}, expected a list")
    return _inserted(text, _container(text, start), style, "", value)


def _container(text: str, start: int) -> _Container:
    """Return the object or list that begins at `start`."""
    members: list[_Member] = []
    position = _skip(text, start + 1)
    while text[position] not in "}]":
        first, key = position, len(members)
        if text[start] == "{":
            key, position = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)
        _, end = _DECODER.raw_decode(text, position)
        members.append(_Member(key, first, position, end))
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return _Container(start, position, members)


def _skip(text: str, position: int) -> int:
    matched = _SPACE.match(text, position)
    return position if matched is None else matched.end()


def _inserted(text: str, container: _Container, style: _Style, begin: str, value: Any) -> str:
    """Add a member behind the last one of an object, with its key at its beginning, or of a list, as the others are."""
    start, end, members = container
    if not members:
        outer = _line_indentation(text, start)
        if not begin or outer is None:
            return f"{text[: start + 1]}{begin}{style.inline(value)}{text[end:]}"
        inner = outer + style.unit
        new = f"{style.newline}{inner}{begin}{style.written(value, inner)}{style.newline}{outer}"
        return text[: start + 1] + new + text[end:]
    last = members[-1]
    space = text[len(text[: last.start].rstrip(" \t\r\n")) : last.start]
    if len(members) == 1 and "\n" not in space:
        space = style.space
    new = style.written(value, _indentation(text, start))
    return f"{text[: last.end]},{space}{begin}{new}{text[last.end :]}"


def _indentation(text: str, start: int) -> str | None:
    """Return the indentation of the members of an object or list; None if the first one has no line of its own."""
    _, newline, indentation = text[start + 1 : _skip(text, start + 1)].rpartition("\n")
    return indentation if newline else None


def _line_indentation(text: str, position: int) -> str | None:
    """Return the indentation of the line of a position; None if its text has only one line."""
    if "\n" not in text.strip():
        return None
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _style_of(text: str, start: int) -> _Style:
    first = _container(text, start).members[0]
    _, end_of_key = _DECODER.raw_decode(text, first.start)
    indentation = _indentation(text, start)
    return _Style(
        unit="  " if indentation is None else indentation,
        newline="\r\n" if "\r\n" in text else "\n",
        space=" " if text[first.value - 1].isspace() and first.value > end_of_key + 1 else "",
        ascii_only=text.isascii() and "\\u" in text,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
