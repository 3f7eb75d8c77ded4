"""Reading HarmBench's published CSV files of behaviours, row by row, with the problem of each bad row."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast, get_args

from pytest_packbench.files import LIMITS, read_regular, why_unreadable
from pytest_packbench.model.case import CASE_ID
from pytest_packbench.model.errors import format_value
from pytest_packbench.packs.agent_safety.episode import NoEpisodeError
from pytest_packbench.packs.agent_safety.model import as_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Functional = Literal["standard", "contextual", "copyright"]

MAX_ANSWER_TOKENS = 512
"""The length at which HarmBench cuts off the answers of the model under test."""

NOT_ASSESSED = "not assessed: HarmBench detects reproduced texts by its own hashes, not by a judge"

COLUMNS = ("Behavior", "FunctionalCategory", "SemanticCategory", "Tags", "ContextString", "BehaviorID")
_REQUIRED = frozenset(COLUMNS) - {"ContextString", "Tags"}
_LONGEST_ID = 120
# HarmBench's separator between a context and a request
_SEPARATOR = "\n\n---\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """One behaviour.

    Attributes:
        id: the `BehaviorID`.
        functional: `standard`, `contextual` (it comes with a context) or `copyright`.
        semantic: the kind of harm as a word, such as `illegal`.
        tags: upstream's tags.
        text: the request.
        context: the text that the request is about; empty without one.
    """

    id: str
    functional: Functional
    semantic: str
    tags: tuple[str, ...]
    text: str
    context: str

    @property
    def request(self) -> str:
        """The prompt: the context, where there is one, and the request."""
        return f"{self.context}{_SEPARATOR}{self.text}" if self.context else self.text

    @property
    def sha256(self) -> str:
        """Hash of the prompt in UTF-8, hexadecimal."""
        return hashlib.sha256(self.request.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorRow:
    """One row of a file.

    Attributes:
        line: the line of the file on which it begins, from 1.
        row: its position among the rows below the header, from 0.
        behavior: the behaviour; None where the row can't be used.
        problem: why it can't be used; empty otherwise.
    """

    line: int
    row: int
    behavior: Behavior | None = None
    problem: str = ""


class FileError(NoEpisodeError):
    """A file of behaviours can't be used: the reason in one line."""

    kind = "text_missing"


def file_sha256(path: Path) -> str:
    """Return the hash of a file's bytes, hexadecimal."""
    return hashlib.sha256(read_regular(path, LIMITS["import"])).hexdigest()


def read(path: Path) -> list[BehaviorRow]:
    """Read all rows of a file of behaviours; a bad row doesn't hide others.

    Raises:
        FileError: its first line doesn't name the columns.
        OSError: it can't be read.
    """
    # a byte that is not UTF-8 makes only its own row unusable
    text = read_regular(path, LIMITS["import"]).decode("utf-8-sig", "surrogateescape")
    lines = list(io.StringIO(text, newline=""))
    rows = _rows(lines)
    header = next(rows, None)
    if header is None or isinstance(header[1], str):
        raise FileError(f"{path.name}: expected the columns {', '.join(COLUMNS)} in line 1")
    names = [cell.strip() for cell in header[1]]
    missing = [name for name in COLUMNS if name in _REQUIRED and name not in names]
    if missing:
        present = ", ".join(names).encode("utf-8", "backslashreplace").decode()
        raise FileError(f"{path.name}:{header[0]}: the column {missing[0]} is missing; the file has {present}")
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise FileError(f'{path.name}:{header[0]}: duplicate column "{duplicates[0]}"; remove one')
    return [_behavior_row(line, row, cells, names) for row, (line, cells) in enumerate(rows)]


def find_behavior(paths: Sequence[Path], behavior_id: str, sha256: str) -> Behavior:
    """Return the first behaviour with an id and a hash, from files or folders of `.csv` files.

    Raises:
        FileError: no file contains the behaviour, its text has changed, or a file can't be read.
    """
    changed_in = None
    for path in _files(paths):
        try:
            behavior = _by_id(path, path.stat().st_mtime_ns).get(behavior_id)
        except OSError as error:
            raise FileError(f"{path}: {why_unreadable(error)}") from None
        if behavior is not None and behavior.sha256 == sha256:
            return behavior
        changed_in = path.name if behavior is not None else changed_in
    if changed_in is not None:
        raise FileError(
            f"{behavior_id}: its text in {changed_in} differs from the imported one; import that file again"
        )
    searched = ", ".join(path.name for path in _files(paths)) or "no file"
    raise FileError(
        f"{behavior_id}: not found in {searched}; set packbench_harmbench to your copy of HarmBench's CSV files"
    )


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            # in a copy of HarmBench's repository, where other files are about images
            upstream = path / "data" / "behavior_datasets"
            folder = upstream if upstream.is_dir() else path
            yield from sorted(folder.glob("harmbench_behaviors_text_*.csv")) or sorted(folder.glob("*.csv"))
        else:
            yield path


@lru_cache(maxsize=8)
def _by_id(path: Path, _mtime_ns: int) -> Mapping[str, Behavior]:
    return {row.behavior.id: row.behavior for row in read(path) if row.behavior is not None}


def _rows(lines: Sequence[str]) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the number of each row's first line, and its cells or its problem.

    A quote that is never closed would swallow all following lines: reading continues in the line after the quote.
    """
    start = 0
    while start < len(lines):
        reader = csv.reader((lines[number] for number in range(start, len(lines))), strict=True)
        try:
            cells = next(reader)
        except csv.Error as error:
            yield start + 1, f"not CSV: {error}"
            start += 1
            continue
        if cells:
            yield start + 1, cells
        start += reader.line_num


def _behavior_row(line: int, row: int, cells: list[str] | str, names: Sequence[str]) -> BehaviorRow:
    if isinstance(cells, str):
        return BehaviorRow(line=line, row=row, problem=cells)
    values = dict(zip(names, cells, strict=False))
    sizes = f"got {len(cells)} cells, expected {len(names)}" if len(cells) != len(names) else ""
    problem = sizes or next(_problems(values), "")
    return BehaviorRow(line=line, row=row, behavior=None if problem else _behavior(values), problem=problem)


def _behavior(values: Mapping[str, str]) -> Behavior:
    context = values.get("ContextString", "")
    return Behavior(
        id=values["BehaviorID"].strip(),
        functional=cast("Functional", values["FunctionalCategory"].strip()),
        semantic=as_word(values["SemanticCategory"]),
        tags=tuple(filter(None, map(as_word, values.get("Tags", "").split(",")))),
        text=values["Behavior"],
        context=context if context.strip() else "",
    )


def _problems(values: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with a row, without its text."""
    behavior_id = values["BehaviorID"].strip()
    functional = values["FunctionalCategory"].strip()
    context = values.get("ContextString", "").strip()
    for column, cell in values.items():
        if any("\ud800" <= letter <= "\udfff" for letter in cell):
            yield f"{column}: not UTF-8; save the file as UTF-8"
    if not re.fullmatch(CASE_ID, behavior_id) or len(behavior_id) > _LONGEST_ID:
        yield f"BehaviorID: got {format_value(behavior_id)}, expected letters, digits, _ and -"
    if not values["Behavior"].strip():
        yield "Behavior: empty, expected text"
    if functional not in get_args(Functional):
        yield f"FunctionalCategory: got {format_value(functional)}, expected one of {', '.join(get_args(Functional))}"
    if not as_word(values["SemanticCategory"]):
        yield f"SemanticCategory: got {format_value(values['SemanticCategory'])}, expected a word"
    if (functional == "contextual") is not bool(context):
        expected = "text" if functional == "contextual" else "none"
        yield f"ContextString: got {'text' if context else 'none'}, expected {expected} for the category {functional}"
