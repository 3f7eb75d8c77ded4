"""What a person decided: `packbench review` and `packbench accept`.

`review` writes what reviewers marked on the page of a run into the cases, after showing it as a patch; `accept` takes
over recordings that change older ones, after showing what changes.
"""

from __future__ import annotations

import json
import os
from argparse import SUPPRESS
from contextlib import suppress
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.finder import LINES_SUFFIX, CaseIndex, CaseLocation, Kind, format_location, iter_cases
from pytest_packbench.cases.load import UNSTATED_ADVICE, check_case, load_case, parse_as, parse_case, parse_json
from pytest_packbench.commands import (
    FAILED,
    FINE,
    UsageError,
    add_run_options,
    add_shared,
    say,
    suite_and_pack,
    warn,
    write_file,
)
from pytest_packbench.files import LIMITS, read_regular
from pytest_packbench.model.errors import CaseError, format_value, pluralize
from pytest_packbench.model.report import ReviewMark

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_packbench.engine.attempt import AttemptState
    from pytest_packbench.engine.contexts import SuiteContext
    from pytest_packbench.model.case import Case
    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import Outcome, Score
    from pytest_packbench.model.suite import Suite


_TITLES = {"gold_is_wrong": "gold is wrong", "also_acceptable": "also acceptable", "quarantine": "quarantine"}
_MAX_LINES = 60
_MARK_KIND = Kind("mark", "case", LIMITS["review"], CaseError)
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


def add_review_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the review.jsonl that the page of a run made")
    parser.add_argument(
        "--write", action="store_true", help="change the case files; without it, the patch is only shown"
    )
    add_shared(parser, "--root", "--pack")
    # removed; its message says what replaces it
    parser.add_argument("--output", help=SUPPRESS)


def run_review(arguments: argparse.Namespace) -> int:
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
    say(*shown, *done, *notes)
    for problem in problems:
        warn(f"not applied: {problem}")
    is_final = arguments.write or not done
    verb = "written" if is_final else "would be written; add --write to change the files"
    say(f"{len(done)} of {pluralize(len(marks), 'mark')} {verb}")
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
    for number, raw in enumerate(read_regular(path, _MARK_KIND.limit).split(b"\n"), start=1):
        if raw.removeprefix(b"\xef\xbb\xbf").strip():
            source = format_location(str(path), number)
            mark = marks[source] = parse_as(ReviewMark, raw, _MARK_KIND, source, is_line=True)
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
    for keys, value in reviewed.pack.tools().also_acceptable(case, outcome.document, reviewed.suite.config):
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


# -- accept --


class Taken(NamedTuple):
    """What was found about one recording.

    Attributes:
        text: what is shown of it, one or more lines.
        problem: why it can't be taken over; empty if it can.
    """

    text: str
    problem: str = ""


def add_accept_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `accept`."""
    parser.add_argument("suite", help="the name of a suite of this project")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="the ids of cases; all that wait by default")
    # removed; its message says what replaces it
    parser.add_argument("--adopt", action="store_true", help=SUPPRESS)
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and write nothing")
    add_run_options(parser, "the recordings are for")


def run_accept(arguments: argparse.Namespace) -> int:
    """Show each recording's score before and after and its changed answers, and take it over."""
    from pytest_packbench.pytest_plugin.project import with_suite

    if arguments.adopt:
        raise UsageError(f"--adopt was removed: for a recording without conditions, {UNSTATED_ADVICE}")

    def use(context: SuiteContext) -> list[Taken]:
        if context.suite.bundled:
            raise UsageError(f'suite "{context.suite.name}": recordings of the installed package can\'t be changed')
        redact, found = context.redactor.text, _accepted(context, arguments.cases, write=not arguments.dry_run)
        return [Taken(redact(taken.text), redact(taken.problem)) for taken in found]

    # recordings are replayed whatever the suite, its scripted model, the environment or a copied option says
    found = with_suite(arguments.suite, [*arguments.options, "--packbench-backend=recorded"], use)
    say(*(taken.text for taken in found))
    problems = [taken.problem for taken in found if taken.problem]
    for problem in problems:
        warn(f"not taken over: {problem}")
    verb = "would be taken over" if arguments.dry_run else "taken over"
    counted = f"{len(found) - len(problems)} of {len(found)} {verb}"
    say(counted if found else f"suite {arguments.suite}: no recording waits for approval")
    return FAILED if problems else FINE


def _accepted(context: SuiteContext, names: Sequence[str], *, write: bool) -> Iterator[Taken]:
    """Replay each pending recording beside the older one; move it in the older one's place if it can be replayed."""
    from pytest_packbench.engine.attempt import attempt

    suite, pack = context.suite, context.pack
    folder = suite.pending_path("x").parent
    pending = {path.stem: path for path in sorted(folder.glob("*.json"))}
    unknown = [name for name in names if name not in pending]
    if unknown:
        raise UsageError(f"{unknown[0]}: no recording in {folder} waits for approval")
    cases = CaseIndex(iter_cases(suite.cases_path))
    now = replace(context, suite=replace(suite, fixtures=folder.relative_to(suite.path).as_posix()))
    for name in names or pending:
        location, loaded = cases.find(name), None
        if location is not None:
            with suppress(CaseError):
                loaded = load_case(location, pack.case_model, file=location.path, pack=pack.name)
        if loaded is None:
            yield Taken(f"{name}:", f"{pending[name]}: no case that can be read has this id; remove the recording")
            continue
        before, after = attempt(context, loaded), attempt(now, loaded)
        head = f"{name}: {_score_text(before)} -> {_score_text(after)}"
        if after.failure is not None:
            yield Taken(head, f"{pending[name]}: {after.failure.message}")
            continue
        yield Taken("\n".join([head, *_difference(before, after)]))
        if write:
            pending[name].replace(suite.cassette_path(name))


def _score_text(done: AttemptState) -> str:
    if done.failure is not None:
        return f"error {done.failure.kind}"
    score = done.score
    return "no score" if score is None or score.score is None else f"{score.score:.2f} {score.verdict}"


def _difference(before: AttemptState, after: AttemptState) -> list[str]:
    """Return what two recordings of a case differ in, as a diff of their answers."""
    old, new = _parts(before), _parts(after)
    lines: list[str] = []
    for title in old | new:
        one, other = (parts.get(title, "").splitlines() for parts in (old, new))
        if one != other:
            lines += [f"  {title}:", *(f"    {line}" for line in list(unified_diff(one, other, lineterm="", n=1))[3:])]
    rest = len(lines) - _MAX_LINES
    return lines if rest <= 0 else [*lines[:_MAX_LINES], f"  ... {rest} more lines"]


def _parts(done: AttemptState) -> dict[str, str]:
    """Return what is compared of the recording of an attempt: texts, each with a title."""
    from pytest_packbench.engine.gateway.exchanges import answer_of

    recording = done.cassette.model_dump(mode="json") if done.cassette is not None else {}
    parts = {"conditions": _text({key: recording.get(key) for key in ("llm_backend", "llm_model", "conditions")})}
    for number, exchange in enumerate(recording.get("exchanges", ()), 1):
        said = {key: exchange[key] for key in ("answer", "refusal", "tool_calls") if exchange[key]}
        only_answer = said.keys() == {"answer"}
        parts[f"answer {number} ({exchange['role']})"] = _text(said["answer"] if only_answer else said)
    for number, call in enumerate(recording.get("gateway", ()), 1):
        end = {key: call[key] for key in ("status", "end")}
        is_usual = end == {"status": 200, "end": "complete"}
        answer = answer_of(call)
        parts[f"answer {number} ({call['method']} {call['path']})"] = _text(
            answer if is_usual else {**end, "answer": answer}
        )
    return parts


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
