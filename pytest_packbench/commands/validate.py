"""`packbench validate`: check any file of a suite or a run, and print its kind and version."""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.api import load_suite
from pytest_packbench.cases.files import CaseIndex, case_lines, format_location, iter_cases
from pytest_packbench.cases.load import (
    parse_case,
    parse_cassette,
    parse_control,
    read_changes,
)
from pytest_packbench.cases.recordings import case_of_control, check_target, control_file_problem, escaped_name
from pytest_packbench.cli import FINE, UNUSABLE
from pytest_packbench.commands.paths import add_packs, add_trust, bundled_folder, packs_of
from pytest_packbench.files import OpenFile, check_link, open_regular
from pytest_packbench.model.case import Case
from pytest_packbench.model.errors import (
    CaseError,
    ControlError,
    InputError,
    Problem,
    SuiteError,
    duplicate_id,
    pluralize,
    single_spaced,
    suggestion,
)
from pytest_packbench.model.pack import names_checks
from pytest_packbench.model.policy import CHANGES_NAME
from pytest_packbench.model.record import EVAL_SCHEMA_VERSION
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME, CONTROLS, FIXTURES, Suite
from pytest_packbench.reports.terminal import printable
from pytest_packbench.runs.folder import NoReportError
from pytest_packbench.runs.journal import ENDED_KEY, HEADER_KEY, JOURNAL_VERSION, read_journal
from pytest_packbench.runs.lines import error_lines, payload_lines, read_controls, read_records, record_lines
from pytest_packbench.runs.reading import open_run, read_baseline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from pytest_packbench.model.result import Result
    from pytest_packbench.packs.registry import Packs
    from pytest_packbench.runs.journal import Entry

    Reader = Callable[["Piece"], "Found"]


class Piece(NamedTuple):
    """A JSON object to recognize: a file, or a line of one.

    Attributes:
        packs: the available packs.
        path: its file.
        raw: its bytes.
        data: what it contains; empty if that is no JSON object.
        line: its number, from 1; 0 for a file.
    """

    packs: Packs
    path: Path
    raw: bytes
    data: dict[str, Any]
    line: int = 0

    @property
    def source(self) -> str:
        """Where it is, for error messages."""
        return format_location(str(self.path), self.line)


class Found(NamedTuple):
    """What a piece is.

    Attributes:
        kind: its kind, with the version of its format.
        about: what is said of a file beside that.
        id: what no other line of the file may have.
        key: the key of the id.
    """

    kind: str
    about: str
    id: str
    key: str = "id"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        help="a case, cassette, suite.yaml, report or .jsonl file, a folder of them, or bundled/NAME",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="read eval records as the Rust reader does: the suites, backends and values of the spec only",
    )
    add_packs(parser)
    add_trust(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line per file: its kind, or what is wrong with it and where."""
    packs, is_fine = packs_of(arguments), True
    for path in arguments.paths:
        files = list(_files(bundled_folder(path)))
        nothing = (f"{path}: contains no file of a suite or a run: NOT VALID", False)
        lines = (_checked(file, packs, strict=arguments.strict) for file in files)
        for line, is_valid in lines if files else [nothing]:
            is_fine &= is_valid
            sys.stdout.write(f"{printable(line)}\n")
    return FINE if is_fine else UNUSABLE


def _checked(file: Path, packs: Packs, *, strict: bool) -> tuple[str, bool]:
    """Return the line of a file, and whether it is valid."""
    shown = escaped_name(str(file))
    try:
        return f"{shown}: {kind_of(file, packs, strict=strict)}", True
    except (ValueError, OSError) as error:
        text = (error.strerror or str(error)) if isinstance(error, OSError) else single_spaced(str(error))
    # most errors begin with the file, some with its absolute path
    text = text.replace(str(file.absolute()), shown, 1)
    return f"{text if text.startswith(shown) else f'{shown}: {text}'}: NOT VALID", False


def kind_of(path: Path, packs: Packs, *, strict: bool = False) -> str:
    """Recognize and check a file of a suite or a run.

    Args:
        path: the file.
        packs: the available packs.
        strict: whether records are read exactly as Rust reads them.

    Returns:
        Its kind, with the version of its format.

    Raises:
        ValueError: the file is not valid; one line with the location.
        OSError: the file can't be read.
    """
    problem = control_file_problem(str(path)) if _is_in_controls(path) else None
    if problem is not None:
        raise ControlError(escaped_name(str(path)), [problem])
    if path.suffix in {".yaml", ".yml"}:
        return _yaml(path, packs)
    if path.suffix == ".jsonl":
        with open_regular(path, inside=True) as file:
            return _lines(OpenFile(path, file), packs, strict=strict)
    if path.name == BASELINE_NAME:
        baseline = read_baseline(path)
        return f"committed baseline, version {baseline.baseline_version}, {pluralize(len(baseline.cases), 'case')}"
    try:
        return f"report of a run, version {RUN_DOCUMENT_VERSION}, {_case_count(open_run(path, checked=False).results)}"
    except NoReportError as error:
        raw = error.raw
    # a report may be a link to anywhere, unlike a file of a suite
    if path.is_symlink():
        check_link(path)
    piece = Piece(packs, path, raw, _object(raw))
    found = (_reader(piece) or _case)(piece)
    return found.kind + found.about


def _reader(piece: Piece) -> Reader | None:
    """Return what reads a piece of a suite, by its keys or by the folder of its file; None where neither names it."""
    keys = piece.data.keys()
    if "run_id" in keys:
        return None
    if _is_in_controls(piece.path) and "pack_id" not in keys:
        return _control
    return next((read for needed, read in _OF_A_SUITE if needed <= keys), None)


def _yaml(path: Path, packs: Packs) -> str:
    if path.name == CHANGES_NAME:
        return pluralize(len(read_changes(path, source=str(path)).changes), "allowed change") + " of a policy"
    suite = load_suite(path.parent, packs=packs)
    return "; ".join(filter(None, [f"rules of a suite of pack {suite.config.pack}", packs.not_imported(suite.path)]))


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        is_in_controls = _is_in_controls(file)
        # a broken link and a pipe are files that can't be read
        is_read = file.suffix in {".json", ".jsonl", ".yaml"} and (is_in_controls or not file.is_dir())
        # there, what a run reads or refuses; hidden files are a finding of lint
        is_refused = is_in_controls and control_file_problem(str(file)) is not None
        if (is_read or is_refused) and not (is_in_controls and file.name.startswith(".")):
            yield file


def _case(piece: Piece) -> Found:
    packs, name, model = piece.packs, piece.data.get("pack_id"), Case
    if isinstance(name, str):
        if name not in packs:
            problem = Problem("/pack_id", f'unknown pack "{name:.60}"', suggestion(name, sorted(packs)))
            raise CaseError(piece.source, [problem])
        pack = packs[name]
        # a run reads it by the model of its suite; a mistake in the rules is reported with their own file
        folder = next((each.parent for each in piece.path.absolute().parents if each.name == "cases"), None)
        suite = None if folder is None else _suite_in(folder, packs)
        if isinstance(suite, Suite) and suite.config.pack == name:
            pack = pack.for_suite(suite.config)
        model = pack.case_model
    stem = None if piece.line else piece.path.stem
    case = parse_case(piece.raw, model, source=piece.source, stem=stem, pack=None).case
    return Found(f"case of pack {case.pack_id}", "", case.id)


@lru_cache(maxsize=4)
def _suite_in(folder: Path, packs: Packs) -> Suite | SuiteError | None:
    """Return the suite that a folder is, or what is wrong with its rules; None if it has none."""
    try:
        return load_suite(folder, packs=packs) if (folder / CONFIG_NAME).exists() else None
    except SuiteError as error:
        return error


def _cassette(piece: Piece) -> Found:
    cassette, _ = parse_cassette(piece.raw, source=piece.source, is_line=bool(piece.line))
    kind = f"cassette, version {cassette.cassette_version}"
    return Found(kind, f", {cassette.origin}", cassette.case_id, "case_id")


def _is_in_controls(path: Path) -> bool:
    return path.absolute().parent.parts[-2:] == (FIXTURES, CONTROLS)


def _control(piece: Piece) -> Found:
    """Read a control, and check that its suite has its case; of a file elsewhere nothing is known."""
    source = format_location(escaped_name(str(piece.path)), piece.line)
    name = None if piece.line else piece.path.stem
    is_in_controls, folder = _is_in_controls(piece.path), piece.path.absolute().parent.parent.parent
    suite = _suite_in(folder, piece.packs) if is_in_controls else None
    if isinstance(suite, SuiteError):
        raise suite
    if suite is None:
        control = parse_control(piece.raw, source=source, name=name)
    else:
        pack = piece.packs[suite.config.pack].for_suite(suite.config)
        control = parse_control(piece.raw, source=source, name=name, names_checks=names_checks(pack))
        case_of_control(control, _cases_in(suite.cases_path), source=source)
        check_target(control, pack, suite.config, source=source)
    about = f" of the case {control.case}, which has to end as {control.expected.verdict}"
    return Found("control", about, control.id)


@lru_cache(maxsize=4)
def _cases_in(folder: Path) -> CaseIndex:
    return CaseIndex(iter_cases(folder))


def _case_count(results: Iterable[Result]) -> str:
    trials = Counter((result.case.test_id, result.case.file) for result in results)
    total = trials.total()
    return pluralize(len(trials), "case") + (f", {total} trials" if total != len(trials) else "")


def _lines(opened: OpenFile, packs: Packs, *, strict: bool) -> str:
    """Read the lines of a file; those of a file of a run as commands read them, by the kind of the first one."""
    path, first = opened.path, next(case_lines(opened), None)
    if first is None:
        if path.name not in _OF_RUNS:
            raise ValueError(f"empty: its kind is not known; expected one of {', '.join(_OF_RUNS)}")
        return "empty"
    data = _object(first.raw)
    if _reader(Piece(packs, path, first.raw, data)) is not None or b'"pack_id"' in first.raw:
        return _lines_of_a_suite(opened, packs)
    kind, read = next(((kind, read) for needed, kind, read in _OF_A_RUN if needed <= data.keys()), _RECORDS)
    if strict and read is record_lines:
        kind += ", as the Rust reader reads it"
        read = partial(read_records, strict=True)
    return f"{pluralize(sum(1 for _ in read(opened)), 'line')}, each {kind}"


def _lines_of_a_suite(opened: OpenFile, packs: Packs) -> str:
    kinds: set[str] = set()
    ids: dict[str, int] = {}
    for line in case_lines(opened):
        piece = Piece(packs, opened.path, line.raw, _object(line.raw), line.number)
        found = (_reader(piece) or _case)(piece)
        kinds.add(found.kind)
        if ids.setdefault(found.id, line.number) != line.number:
            raise InputError(piece.source, [duplicate_id(found.id, f"line {ids[found.id]}", key=found.key)])
    if len(kinds) > 1:
        raise ValueError(f"contains lines of several kinds: {', '.join(sorted(kinds))}")
    return f"{pluralize(len(ids), 'line')}, each {kinds.pop()}"


def _entries(opened: OpenFile) -> list[Entry]:
    run, entries = read_journal(opened)
    if run is None and not entries:
        # a last line that was cut short is no mistake, but there is nothing else
        raise ValueError("no line of this journal can be read")
    return entries


_OF_A_SUITE: tuple[tuple[AbstractSet[str], Reader], ...] = (
    ({"pack_id"}, _case),
    ({"case", "expected"}, _control),
    ({"cassette_version"}, _cassette),
)
"""The kinds of objects of a suite: each has these keys, and the first one counts."""
_RECORDS = f"eval record, version {EVAL_SCHEMA_VERSION}", record_lines
_ENTRIES = f"entry of a journal, version {JOURNAL_VERSION}", _entries
_ERRORS = "error of a run, version 1", error_lines
_OF_A_RUN: tuple[tuple[AbstractSet[str], str, Callable[[OpenFile], Iterable[object]]], ...] = (
    ({"test_suite"}, *_RECORDS),
    ({"schema_version"}, *_RECORDS),
    ({"run_id", "control"}, "control of a run, version 1", read_controls),
    ({HEADER_KEY}, *_ENTRIES),
    ({ENDED_KEY}, *_ENTRIES),
    ({"suite", "nodeid"}, *_ENTRIES),
    ({"result"}, "result of a run, version 1", payload_lines),
    ({"kind"}, *_ERRORS),
    ({"message"}, *_ERRORS),
)
"""Likewise the kinds of lines of a run, with what reads such a file."""
_OF_RUNS = ("records.jsonl", "errors.jsonl", "payloads.jsonl", "controls.jsonl", "journal.jsonl")
"""The files of a run that may be empty."""


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    return data if isinstance(data, dict) else {}
