"""`report.json`: the run as one document, written row by row and read entry by entry, for it may be large.

pytest's own report, where there is one, stands around it; ours is the value of the key `packbench`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.atomic import encode_utf8, replace_atomic
from pytest_packbench.model.result import CaseResult
from pytest_packbench.model.run import RUN_DOCUMENT_VERSION
from pytest_packbench.model.strict_json import printable
from pytest_packbench.runs.folder import JOURNAL, RECORDS, REPORT, StoredRunError
from pytest_packbench.runs.json_stream import JsonStream, JsonStreamError
from pytest_packbench.runs.lines import compact_json, finite_json
from pytest_packbench.runs.metadata import RunFieldError, parse_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_packbench.model.run import Run

_HEAD = frozenset({"version", "status", "run"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A run whose entries are read one by one, in the order of its file.

    Attributes:
        source: the file.
        run: what is true of all its entries.
        status: `passed`, `failed` or `partial`, as the run was judged when it ended.
        entries: to be gone through once; raises `StoredRunError` where the file can't be read on.
        whole: whether cases that broke or did not run stand in it; False where it was read from records alone, so
            that nobody can say how many there were.
    """

    source: str
    run: Run
    status: str
    entries: Iterator[CaseResult]
    whole: bool = True


def write_report(path: Path, report: Mapping[str, Any], document: dict[str, Any], rows: Iterable[bytes]) -> None:
    """Write a report, row by row: those of a large run are never held as text.

    Args:
        path: the file; its folder exists.
        report: what other keys the file holds.
        document: all that the run's object holds, with `cases` last and empty.
        rows: what `row_line` gives for each result, in order.

    Raises:
        OSError: it can't be written; an older file is untouched.
        ValueError: the document has rows already.
    """
    if list(document)[-1] != "cases" or document["cases"]:
        raise ValueError("the rows of a run document stand last, and come one by one")
    # last, whatever somebody's hook put there
    whole = {**{key: value for key, value in report.items() if key != "packbench"}, "packbench": document}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"), default=str)
    at = len(text) - len("]}}")
    with replace_atomic(path) as file:
        file.write(encode_utf8(text[:at]))
        for number, line in enumerate(rows):
            file.write(b"," + line if number else line)
        file.write(encode_utf8(text[at:]) + b"\n")


def row_line(result: CaseResult) -> bytes:
    """Write the row of one result as compact JSON; a number that is not finite as null."""
    found = result.row()
    try:
        return compact_json(found)
    except ValueError:
        return compact_json(finite_json(found))


def open_report(path: Path) -> OpenRun:
    """Open the report of a run, to read its entries without holding them.

    Args:
        path: a run folder, or its `report.json`.

    Raises:
        StoredRunError: it is no report, or one of a version that this program doesn't know.
        OSError: it can't be read.
    """
    place = path / REPORT if path.is_dir() else path
    if not place.exists() and (path / JOURNAL).exists():
        raise StoredRunError(f"{path}: holds no {REPORT}: the run did not end; its {JOURNAL} has what it got to")
    if not place.exists() and path.is_dir():
        has_records = (path / RECORDS).exists()
        instead = f"give {path / RECORDS}, for what records tell" if has_records else "give a run's folder"
        raise StoredRunError(f"{path}: holds no {REPORT}; {instead}")
    parts = _document(place)
    head = next(parts)
    if type(head.get("version")) is not int or head["version"] != RUN_DOCUMENT_VERSION:
        raise StoredRunError(
            f"{place}: /packbench/version: got {printable(repr(head.get('version')))}; "
            f"this program reads {RUN_DOCUMENT_VERSION}"
        )
    run = _run(head.get("run"), place)
    return OpenRun(
        source=str(place),
        run=run,
        status=str(head.get("status", "")),
        entries=(_entry(found, run, f"{place}: /packbench/cases/{number}") for number, found in enumerate(parts)),
    )


def is_report(path: Path) -> bool:
    """Whether a file is a report: our key stands in it. The document may be too large to hold."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            walk = JsonStream(file)
            for key in walk.members() if walk.begins("{") else ():
                if key == "packbench":
                    return True
                walk.skip()
    except (JsonStreamError, UnicodeDecodeError, RecursionError):
        # whoever reads it whole says where it is wrong
        return False
    return False


def _document(path: Path) -> Iterator[Any]:
    """Give what is true of all cases of a report, then the row of each; the rest of the file is read over."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            walk = JsonStream(file)
            found = False
            for key in walk.members() if walk.begins("{") else ():
                if key == "packbench" and walk.begins("{"):
                    found = True
                    yield from _run_document(walk, path)
                else:
                    walk.skip()
            if not found:
                raise StoredRunError(f'{path}: no key "packbench"; expected the report.json of a run')
            walk.end()
    except (JsonStreamError, UnicodeDecodeError, RecursionError) as error:
        raise StoredRunError(f"{path}: not JSON: {error}") from None


def _run_document(walk: JsonStream, path: Path) -> Iterator[Any]:
    head: dict[str, Any] = {}
    told = False
    for key in walk.members():
        if key in _HEAD:
            head[key] = walk.value()
        elif key == "cases" and not told and walk.begins("["):
            # another program may have sorted the keys
            yield head if head.keys() >= _HEAD else _head(path)
            told = True
            for _ in walk.items():
                yield walk.value()
        else:
            walk.skip()
    if not told:
        yield head
        raise StoredRunError(f"{path}: /packbench/cases: not a run document: expected an array")


def _head(path: Path) -> dict[str, Any]:
    with path.open(encoding="utf-8", newline="") as file:
        walk = JsonStream(file)
        head: dict[str, Any] = {}
        for key in walk.members():
            for inner in walk.members() if key == "packbench" else ():
                if inner in _HEAD:
                    head[inner] = walk.value()
                else:
                    walk.skip()
            if key != "packbench":
                walk.skip()
        return head


def _run(found: object, path: Path) -> Run:
    where = f"{path}: /packbench/run"
    if not isinstance(found, dict):
        raise StoredRunError(f"{where}: not a run document: expected an object")
    try:
        return parse_run(found)
    except RunFieldError as error:
        if not error.name:
            raise StoredRunError(f"{where}: not a run document: {_missing(error.value)}") from None
        told = printable(repr(error.value))
        raise StoredRunError(f"{where}/{error.name}: not a run document: got {told}") from None


def _missing(told: str) -> str:
    """Take the names out of Python's own words about missing arguments."""
    return f"missing: {told.rpartition(': ')[2]}" if "missing" in told else told


def _entry(found: Any, run: Run, where: str) -> CaseResult:
    # a report of records is made without these models
    from pytest_packbench.model.checks import result_problem

    if not isinstance(found, dict):
        raise StoredRunError(f"{where}: not a run document: expected an object")
    try:
        entry = CaseResult.from_row(found, run.suite)
    except TypeError as error:
        raise StoredRunError(f"{where}: not a run document: {_missing(str(error))}") from None
    problem = result_problem(entry)
    if problem is not None:
        name, wrong = problem
        raise StoredRunError(f"{where}/{name}: not a run document: {wrong}")
    return entry
