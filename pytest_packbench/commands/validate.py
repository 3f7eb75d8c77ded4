"""`packbench validate`: check any file of a suite or a run, and print its kind and version."""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import lru_cache
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
from pytest_packbench.files import RECORDING, read_regular
from pytest_packbench.model.case import Case
from pytest_packbench.model.control import ControlResult
from pytest_packbench.model.errors import (
    CaseError,
    ControlError,
    InputError,
    Problem,
    SuiteError,
    duplicate_id,
    pluralize,
    suggestion,
)
from pytest_packbench.model.pack import names_checks
from pytest_packbench.model.policy import CHANGES_NAME
from pytest_packbench.model.record import EVAL_SCHEMA_VERSION, EvalRecord
from pytest_packbench.model.result import extension_problem
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.model.strict_json import parse_strict
from pytest_packbench.model.suite import BASELINE_NAME, CONFIG_NAME, CONTROLS, FIXTURES, Suite
from pytest_packbench.reports.terminal import printable
from pytest_packbench.runs.journal import ENDED_KEY, HEADER_KEY, JOURNAL_VERSION, parse_entry
from pytest_packbench.runs.lines import RecordSource, check_line, read_records
from pytest_packbench.runs.reading import is_report, open_run, read_baseline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from pytest_packbench.model.result import Result
    from pytest_packbench.packs.registry import Packs

    Reader = Callable[["Piece"], "Found"]
    Kinds = tuple[tuple[AbstractSet[str], Reader], ...]


# an empty file of a run is recognized by its name
_EMPTY = {
    "records.jsonl": "no eval record: no case of the run was scored",
    "errors.jsonl": "no error of a run",
    "payloads.jsonl": "no result of a run",
    "controls.jsonl": "no control",
    "journal.jsonl": "no entry of a journal: no case had ended",
}
_JOURNAL = f"entry of a journal, version {JOURNAL_VERSION}"
_HEAD = f"head of a journal, version {JOURNAL_VERSION}"


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
        kind: the kind of a line, with the version of its format.
        about: what is said of a file beside that.
        id: what no other line of the file may have; empty for none.
        key: the key of the id.
    """

    kind: str
    about: str = ""
    id: str = ""
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
        text = (error.strerror or str(error)) if isinstance(error, OSError) else " ".join(str(error).split())
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
        return _strict_records(path) if strict and _has_records(path) else _lines(path, packs)
    if path.name == BASELINE_NAME:
        baseline = read_baseline(path)
        return f"committed baseline, version {baseline.baseline_version}, {pluralize(len(baseline.cases), 'case')}"
    if is_report(path):
        return f"report of a run, version {RUN_DOCUMENT_VERSION}, {_case_count(open_run(path, checked=False).results)}"
    raw = read_regular(path, RECORDING)
    piece = Piece(packs, path, raw, _object(raw))
    found = (_reader(piece, _OF_A_SUITE) or _case)(piece)
    return found.kind + found.about


def _reader(piece: Piece, kinds: Kinds) -> Reader | None:
    """Return what reads a piece, by its keys or by the folder of its file; None where neither names a kind."""
    keys = piece.data.keys()
    if _is_in_controls(piece.path) and not keys & {"pack_id", "run_id"}:
        return _control
    return next((read for needed, read in kinds if needed <= keys), None)


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
    return Found(f"case of pack {case.pack_id}", id=case.id)


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


def _has_records(path: Path) -> bool:
    """Return whether the first line that is not blank is meant as an eval record, valid or not."""
    line = next(case_lines(path), None)
    return line is not None and bool({"test_suite", "schema_version"} & _object(line.raw).keys())


def _strict_records(path: Path) -> str:
    number = sum(1 for _ in read_records(RecordSource(str(path)), strict=True))
    return f"{pluralize(number, 'line')}, each eval record, version {EVAL_SCHEMA_VERSION}, as the Rust reader reads it"


def _lines(path: Path, packs: Packs) -> str:
    kinds: Counter[str] = Counter()
    ids: dict[str, int] = {}
    truncated, has_head = "", False
    for line in case_lines(path):
        piece = Piece(packs, path, line.raw, _object(line.raw), line.number)
        try:
            found = _line(piece, is_of_a_suite=bool(ids))
        except InputError:
            # its message begins with the location
            raise
        except ValueError as error:
            if kinds.keys() <= {_JOURNAL} and (kinds or has_head) and not line.raw.endswith(b"\n"):
                truncated = "; the last line is truncated and was skipped"
                break
            raise ValueError(f"{piece.source}: {error}") from None
        if found.id and ids.setdefault(found.id, line.number) != line.number:
            raise InputError(piece.source, [duplicate_id(found.id, f"line {ids[found.id]}", key=found.key)])
        if found.kind == _HEAD and not kinds:
            has_head = True
        else:
            kinds[found.kind] += 1
    return _kind_of_lines(path, kinds, has_head=has_head) + truncated


def _kind_of_lines(path: Path, kinds: Mapping[str, int], *, has_head: bool) -> str:
    if len(kinds) > 1:
        raise ValueError(f"contains lines of several kinds: {', '.join(sorted(kinds))}")
    for kind, number in kinds.items():
        return f"{pluralize(number, 'line')}, each {kind}"
    if has_head:
        return f"{_HEAD}, and no entry"
    if path.name not in _EMPTY:
        raise ValueError(f"empty: its kind is not known; expected one of {', '.join(_EMPTY)}")
    return f"empty: {_EMPTY[path.name]}"


def _line(piece: Piece, *, is_of_a_suite: bool) -> Found:
    """Recognize a line, and check it; a line that names no kind is a case where others are, else a record."""
    read = _reader(piece, _OF_A_RUN)
    if piece.data and read is not _record:
        _check_as_read(piece.raw)
    if read is None:
        is_case = not piece.data and (is_of_a_suite or b'"pack_id"' in piece.raw)
        read = _case if is_case else _record
    return read(piece)


def _record(piece: Piece) -> Found:
    record = EvalRecord.from_json_line(piece.raw, strict=False)
    problem = extension_problem(record.packbench) if record.packbench is not None else ""
    if problem:
        raise ValueError(problem)
    return Found(f"eval record, version {EVAL_SCHEMA_VERSION}")


def _journal_head(piece: Piece) -> Found:
    version = piece.data[HEADER_KEY]
    if type(version) is not int or version != JOURNAL_VERSION:
        raise ValueError(
            f"{HEADER_KEY}: got {version!r:.60}; expected {JOURNAL_VERSION}, the version that packbench reads"
        )
    if not isinstance(piece.data.get("run"), dict):
        raise ValueError("run: expected an object")  # noqa: TRY004 - a mistake in a file, reported like the others
    return Found(_HEAD)


def _plain(kind: str, check: Callable[[dict[str, Any]], object]) -> Reader:
    """Return what reads a line by a function that raises `ValueError`."""

    def read(piece: Piece) -> Found:
        check(piece.data)
        return Found(kind)

    return read


_OF_A_SUITE: Kinds = (
    ({"pack_id"}, _case),
    ({"case", "expected"}, _control),
    ({"cassette_version"}, _cassette),
)
_OF_A_RUN: Kinds = (
    ({"test_suite"}, _record),
    ({"schema_version"}, _record),
    ({"run_id", "control"}, _plain("control of a run, version 1", ControlResult.from_line)),
    *_OF_A_SUITE,
    ({HEADER_KEY}, _journal_head),
    ({ENDED_KEY}, _plain(_JOURNAL, parse_entry)),
    ({"suite", "nodeid"}, _plain(_JOURNAL, parse_entry)),
    ({"result"}, _plain("result of a run, version 1", check_line)),
    ({"kind"}, _plain("error of a run, version 1", check_line)),
    ({"message"}, _plain("error of a run, version 1", check_line)),
)
"""The kinds of pieces: each has these keys, and the first one counts. A file of lines may have any of them."""


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    return data if isinstance(data, dict) else {}


def _check_as_read(line: bytes) -> None:
    """Refuse bytes and keys of an object that other readers of JSON refuse, or read differently."""
    try:
        parse_strict(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
