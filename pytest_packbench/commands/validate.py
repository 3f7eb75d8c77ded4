"""`packbench validate`: whether any of our files can be read, and which version it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.analysis.figures import count
from pytest_packbench.api import load_suite
from pytest_packbench.cases.files import case_lines, format_location, parse_line
from pytest_packbench.cases.load import JsonError, check_case, load_cassette, parse_json
from pytest_packbench.cli import FINE, UNUSABLE
from pytest_packbench.commands.paths import add_packs, packs_of
from pytest_packbench.model.case import Case
from pytest_packbench.model.checks import extension_problem
from pytest_packbench.model.errors import CaseError, InputError, Problem, suggestion
from pytest_packbench.model.record import EVAL_SCHEMA_VERSION, EvalRecord, RecordError
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.reports.terminal import printable
from pytest_packbench.runs.journal import HEADER_KEY, JOURNAL_VERSION, parse_result
from pytest_packbench.runs.lines import check_line
from pytest_packbench.runs.report import is_report, open_report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from pytest_packbench.cases.files import CaseLine
    from pytest_packbench.model.result import CaseResult
    from pytest_packbench.packs.registry import Packs


# what a run leaves is known by its name where it has no line
_EMPTY = {
    "records.jsonl": "no eval record: no case of the run was scored",
    "errors.jsonl": "no error of a run",
    "payloads.jsonl": "no result of a run",
    "journal.jsonl": "no entry of a journal: no case had ended",
}
_JOURNAL = f"entry of a journal, version {JOURNAL_VERSION}"
_HEAD = f"head of a journal, version {JOURNAL_VERSION}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", nargs="+", type=Path, help="case, cassette, suite.yaml, report, .jsonl, or a folder")
    add_packs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line a file: what it is, or what is wrong with it and where."""
    bad = False
    packs = packs_of(arguments.packs)
    for path in arguments.paths:
        for file in _files(path):
            try:
                sys.stdout.write(printable(f"{file}: {kind_of(file, packs)}") + "\n")
            except (ValueError, OSError) as error:
                bad = True
                sys.stdout.write(printable(f"{_told_of(file, error)}: NOT VALID") + "\n")
    return UNUSABLE if bad else FINE


def kind_of(path: Path, packs: Packs) -> str:
    """Read any file of ours as what it is, which is given with the version of its form.

    Raises:
        ValueError: it can't be read as any; one line with the place.
        OSError: it can't be read at all.
    """
    if path.suffix in {".yaml", ".yml"}:
        return f"rules of a suite of pack {load_suite(path.parent, packs=packs).config.pack}"
    if path.suffix == ".jsonl":
        return _lines(path, packs)
    if is_report(path):
        return f"report of a run, version {RUN_DOCUMENT_VERSION}, {_cases(open_report(path).results)}"
    try:
        data = parse_json(path.read_bytes())
    except JsonError as error:
        raise CaseError(str(path), [error.problem]) from None
    if isinstance(data, dict) and "cassette_version" in data:
        cassette, _ = load_cassette(path, source=str(path))
        return f"cassette, version {cassette.cassette_version}, {cassette.origin}"
    return _case(path, data, packs)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    suffixes = {".json", ".jsonl", ".yaml"}
    # a link that leads nowhere is a file that can't be read
    found = (file for file in sorted(path.rglob("*")) if file.is_file() or not file.exists())
    yield from (file for file in found if file.suffix in suffixes)


def _told_of(file: Path, error: ValueError | OSError) -> str:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else " ".join(str(error).split())
    # most errors tell the file, some by its full name
    text = text.replace(str(file.absolute()), str(file), 1)
    return text if text.startswith(str(file)) else f"{file}: {text}"


def _case(path: Path, data: Any, packs: Packs) -> str:
    name = data.get("pack_id") if isinstance(data, dict) else None
    if isinstance(name, str) and name not in packs:
        problem = Problem("/pack_id", f'no pack is called "{name}"', suggestion(name, sorted(packs)))
        raise CaseError(str(path), [problem])
    model = packs[name].case_model if isinstance(name, str) else Case
    case = check_case(data, model, source=str(path), stem=path.stem, pack=None).case
    return f"case of pack {case.pack_id}"


def _cases(entries: Iterable[CaseResult]) -> str:
    cases: set[tuple[str, str]] = set()
    trials = 0
    for entry in entries:
        cases.add((entry.test_id, entry.file))
        trials += 1
    told = f", {trials} trials" if trials != len(cases) else ""
    return f"{count(len(cases), 'case')}{told}"


def _lines(path: Path, packs: Packs) -> str:
    kinds: dict[str, int] = {}
    ids: dict[str, int] = {}
    torn, headed = "", False
    for line in case_lines(path):
        try:
            kind = _line(line, path, packs, ids)
        except InputError:
            # it has its place already
            raise
        except ValueError as error:
            if kinds.keys() <= {_JOURNAL} and (kinds or headed) and not line.raw.endswith(b"\n"):
                torn = "; the last line was cut short and is left out"
                break
            raise ValueError(f"{path}:{line.number}: {error}") from None
        if kind == _HEAD and not kinds:
            headed = True
        else:
            kinds[kind] = kinds.get(kind, 0) + 1
    return _told(path, kinds, headed=headed) + torn


def _told(path: Path, kinds: dict[str, int], *, headed: bool) -> str:
    if len(kinds) > 1:
        raise ValueError(f"holds lines of several kinds: {', '.join(sorted(kinds))}")
    for kind, number in kinds.items():
        return f"{count(number, 'line')}, each {kind}"
    if headed:
        return f"{_HEAD}, and no entry"
    if path.name not in _EMPTY:
        raise ValueError(f"empty: nothing in it tells what it is; the files of a run are {', '.join(_EMPTY)}")
    return f"empty: {_EMPTY[path.name]}"


def _line(line: CaseLine, path: Path, packs: Packs, ids: dict[str, int]) -> str:
    """Tell what a line is by the keys that it has, then check it as that."""
    try:
        record = EvalRecord.from_json_line(line.raw, strict=False)
    except RecordError as error:
        found = _object(line.raw)
        if "test_suite" in found or "schema_version" in found:
            raise
        if "pack_id" in found and "case_type" in found:
            return _case_line(line, found["pack_id"], path, packs, ids)
        if not found and (ids or b'"pack_id"' in line.raw):
            # the reader of records speaks of records
            parse_line(line, Case, file=str(path), pack=None)
        if HEADER_KEY in found:
            return _journal_head(found)
        if "suite" in found and "nodeid" in found:
            parse_result(found)
            return _JOURNAL
        if found.keys() & {"result", "kind", "message"}:
            check_line(found)
            return f"{'result' if 'result' in found else 'error'} of a run, version 1"
        raise ValueError(str(error)) from None
    problem = extension_problem(record.packbench) if record.packbench is not None else None
    if problem is not None:
        raise ValueError(problem)
    return f"eval record, version {EVAL_SCHEMA_VERSION}"


def _case_line(line: CaseLine, name: Any, path: Path, packs: Packs, ids: dict[str, int]) -> str:
    if not isinstance(name, str) or name not in packs:
        problem = Problem("/pack_id", f'no pack is called "{name!s:.60}"', suggestion(str(name), sorted(packs)))
        raise CaseError(format_location(str(path), line.number), [problem])
    case_id = parse_line(line, packs[name].case_model, file=str(path), pack=None).case.id
    first = ids.setdefault(case_id, line.number)
    if first != line.number:
        problem = Problem("/id", f'"{case_id}" stands already in line {first}', "give it an id of its own")
        raise CaseError(format_location(str(path), line.number), [problem])
    return f"case of pack {name}"


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _journal_head(found: dict[str, Any]) -> str:
    if type(found[HEADER_KEY]) is not int or found[HEADER_KEY] != JOURNAL_VERSION:
        raise ValueError(f"{HEADER_KEY}: got {found[HEADER_KEY]!r:.60}; this program reads {JOURNAL_VERSION}")
    if not isinstance(found.get("run"), dict):
        raise ValueError("run: expected an object")  # noqa: TRY004 - a file's mistake, told as all others
    return _HEAD
