"""HarmBench's files of behaviours as they are published, row by row: what a row holds, and what is wrong with it."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast, get_args

from pytest_packbench.model.case import CASE_ID
from pytest_packbench.model.errors import format_value
from pytest_packbench.packs.agent_safety.model import as_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Functional = Literal["standard", "contextual", "copyright"]

COLUMNS = ("Behavior", "FunctionalCategory", "SemanticCategory", "Tags", "ContextString", "BehaviorID")
_NEEDED = frozenset(COLUMNS) - {"ContextString", "Tags"}
_LONGEST_ID = 120
# upstream's own way of putting a context before a request
_JOINT = "\n\n---\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """One behaviour.

    Attributes:
        id: the `BehaviorID`.
        functional: `standard`, `contextual` (it comes with a context) or `copyright`.
        semantic: the kind of harm as a word, such as `illegal`.
        tags: upstream's tags.
        text: what is asked for.
        context: what it is asked about; empty without one.
    """

    id: str
    functional: Functional
    semantic: str
    tags: tuple[str, ...]
    text: str
    context: str

    @property
    def request(self) -> str:
        """What an agent is sent: the context, where there is one, and the request."""
        return f"{self.context}{_JOINT}{self.text}" if self.context else self.text

    @property
    def sha256(self) -> str:
        """Hash of what an agent is sent, of its UTF-8."""
        return hashlib.sha256(self.request.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One row.

    Attributes:
        line: the line of the file on which it begins, from 1.
        row: its position among the rows below the head, from 0.
        found: the behaviour; None where it makes none.
        problem: why not; empty otherwise.
    """

    line: int
    row: int
    found: Behavior | None = None
    problem: str = ""


class FileError(ValueError):
    """A file holds no behaviours, said in one line."""


def sha256_of(path: Path) -> str:
    """Hash a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read(path: Path) -> list[Read]:
    """Read a file of behaviours, all of its rows; a bad one hides no other.

    Raises:
        FileError: its first line does not name the columns.
        OSError: it can't be read.
    """
    # a byte that is no UTF-8 spoils its own row only
    text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    lines = list(io.StringIO(text, newline=""))
    rows = _rows(lines)
    head = next(rows, None)
    if head is None or isinstance(head[1], str):
        raise FileError(f"{path.name}: expected the columns {', '.join(COLUMNS)} in line 1")
    names = [cell.strip() for cell in head[1]]
    missing = [name for name in COLUMNS if name in _NEEDED and name not in names]
    if missing:
        known = ", ".join(names).encode("utf-8", "backslashreplace").decode()
        raise FileError(f"{path.name}:{head[0]}: the column {missing[0]} is missing; known here: {known}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise FileError(f'{path.name}:{head[0]}: the column "{twice[0]}" stands twice; keep one')
    return [_read(line, row, cells, names) for row, (line, cells) in enumerate(rows)]


def request_of(places: Sequence[Path], behavior: str, sha256: str) -> Behavior:
    """Find a case's text by its `BehaviorID` and hash, in files or folders of `.csv` files, the first that has it.

    Raises:
        FileError: no file has the behaviour, its text is another one, or a file can't be read.
    """
    other = None
    for path in _files(places):
        try:
            found = _known(path, path.stat().st_mtime_ns).get(behavior)
        except OSError as error:
            raise FileError(f"{path}: can't be read: {error.strerror}") from None
        if found is not None and found.sha256 == sha256:
            return found
        other = path.name if found is not None else other
    if other is not None:
        raise FileError(f"{behavior}: its text in {other} is not the one that was imported; import that file anew")
    searched = ", ".join(path.name for path in _files(places)) or "no file"
    raise FileError(f"{behavior}: not in {searched}; name your copy of HarmBench's CSV files as packbench_harmbench")


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_dir():
            yield from sorted(place.glob("*.csv"))
        else:
            yield place


@lru_cache(maxsize=8)
def _known(path: Path, _changed: int) -> Mapping[str, Behavior]:
    return {one.found.id: one.found for one in read(path) if one.found is not None}


def _rows(lines: Sequence[str]) -> Iterator[tuple[int, list[str] | str]]:
    """Give each row's first line with its cells, or with what is wrong.

    A quote that is never closed swallows the lines after it: reading goes on in the line after the one it stands in.
    """
    at = 0
    while at < len(lines):
        reader = csv.reader((lines[place] for place in range(at, len(lines))), strict=True)
        try:
            cells = next(reader)
        except csv.Error as error:
            yield at + 1, f"not CSV: {error}"
            at += 1
            continue
        if cells:
            yield at + 1, cells
        at += reader.line_num


def _read(line: int, row: int, cells: list[str] | str, names: Sequence[str]) -> Read:
    if isinstance(cells, str):
        return Read(line=line, row=row, problem=cells)
    if len(cells) != len(names):
        return Read(line=line, row=row, problem=f"got {len(cells)} cells, expected {len(names)}")
    found = dict(zip(names, cells, strict=True))
    problem = next(_problems(found), None)
    if problem is not None:
        return Read(line=line, row=row, problem=problem)
    return Read(
        line=line,
        row=row,
        found=Behavior(
            id=found["BehaviorID"].strip(),
            functional=cast("Functional", found["FunctionalCategory"].strip()),
            semantic=as_word(found["SemanticCategory"]),
            tags=tuple(tag for part in found.get("Tags", "").split(",") if (tag := as_word(part))),
            text=found["Behavior"],
            context=context if (context := found.get("ContextString", "")).strip() else "",
        ),
    )


def _problems(found: Mapping[str, str]) -> Iterator[str]:
    """Say what is wrong with a row, without its text."""
    name = found["BehaviorID"].strip()
    functional = found["FunctionalCategory"].strip()
    context = found.get("ContextString", "").strip()
    for column, cell in found.items():
        if any("\ud800" <= letter <= "\udfff" for letter in cell):
            yield f"{column}: not UTF-8; save the file as UTF-8"
    if not re.fullmatch(CASE_ID, name) or len(name) > _LONGEST_ID:
        yield f"BehaviorID: got {format_value(name)}, expected letters, digits, _ and -"
    if not found["Behavior"].strip():
        yield "Behavior: empty, expected a text"
    if functional not in get_args(Functional):
        yield f"FunctionalCategory: got {format_value(functional)}, expected {', '.join(get_args(Functional))}"
    if not as_word(found["SemanticCategory"]):
        yield f"SemanticCategory: got {format_value(found['SemanticCategory'])}, expected a word"
    if (functional == "contextual") is not bool(context):
        yield f"ContextString: {'given' if context else 'empty'}, where FunctionalCategory is {functional}"
