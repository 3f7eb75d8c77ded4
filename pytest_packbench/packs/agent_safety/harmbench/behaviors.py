"""Reading HarmBench's published CSV files of behaviours, row by row, with the problem of each bad row."""

from __future__ import annotations

import csv
import hashlib
import io
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from pytest_packbench.files import LIMITS, has_surrogate, read_regular, why_unreadable
from pytest_packbench.model.authoring import MAX_ID
from pytest_packbench.model.case import CASE_ID, Expected, ListOf, StrictModel, misfit
from pytest_packbench.model.errors import first_problem
from pytest_packbench.packs.agent_safety.episode import NoEpisodeError
from pytest_packbench.packs.agent_safety.model import as_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Functional = Literal["standard", "contextual", "copyright"]

MAX_ANSWER_TOKENS = 512
"""The length at which HarmBench cuts off the answers of the model under test."""

NOT_ASSESSED = "not assessed: HarmBench detects reproduced texts by its own hashes, not by a judge"

# HarmBench's separator between a context and a request
_SEPARATOR = "\n\n---\n\n"


_Filled = Annotated[str, StringConstraints(pattern=r"\S"), Expected("text")]
_Word = Annotated[str, AfterValidator(as_word), Field(min_length=1), Expected("a word")]
_Words = Annotated[ListOf[str], BeforeValidator(lambda cell: filter(None, map(as_word, cell.split(","))))]
_Context = Annotated[str, AfterValidator(lambda text: text if text.strip() else "")]
_Id = Annotated[
    str,
    StringConstraints(strip_whitespace=True, pattern=CASE_ID, max_length=MAX_ID),
    Expected(f"at most {MAX_ID} letters, digits, _ and -"),
]


class Behavior(StrictModel):
    """One behaviour: a row of a file, under the names of its columns; other columns are ignored.

    Attributes:
        text: the request.
        functional: `standard`, `contextual` (it comes with a context) or `copyright`.
        semantic: the kind of harm as a word, such as `illegal`.
        tags: upstream's tags.
        context: the text that the request is about; empty without one.
        id: the `BehaviorID`.
    """

    model_config = ConfigDict(extra="ignore")

    text: _Filled = Field(alias="Behavior")
    functional: Annotated[Functional, BeforeValidator(str.strip)] = Field(alias="FunctionalCategory")
    semantic: _Word = Field(alias="SemanticCategory")
    tags: _Words = Field((), alias="Tags")
    context: _Context = Field("", alias="ContextString")
    id: _Id = Field(alias="BehaviorID")

    @model_validator(mode="after")
    def _has_its_context(self) -> Self:
        if (self.functional == "contextual") is not bool(self.context):
            expected = "one for the category contextual, and for no other"
            raise misfit(f"{self.functional}, {'with a' if self.context else 'without a'} ContextString", expected)
        return self

    @property
    def request(self) -> str:
        """The prompt: the context, where there is one, and the request."""
        return f"{self.context}{_SEPARATOR}{self.text}" if self.context else self.text

    @property
    def sha256(self) -> str:
        """Hash of the prompt in UTF-8, hexadecimal."""
        return hashlib.sha256(self.request.encode()).hexdigest()


COLUMNS = {str(field.alias): field for field in Behavior.model_fields.values()}
"""The columns of a file."""


class BehaviorRow(NamedTuple):
    """One row of a file.

    Attributes:
        line: the line of the file on which it begins, from 1.
        behavior: the behaviour, or why the row can't be used, without its text.
    """

    line: int
    behavior: Behavior | str


class FileError(NoEpisodeError):
    """A file of behaviours can't be used: the reason in one line."""

    kind = "text_missing"


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
    missing = [name for name, field in COLUMNS.items() if field.is_required() and name not in names]
    if missing:
        present = ", ".join(names).encode("utf-8", "backslashreplace").decode()
        raise FileError(f"{path.name}:{header[0]}: the column {missing[0]} is missing; the file has {present}")
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise FileError(f'{path.name}:{header[0]}: duplicate column "{duplicates[0]}"; remove one')
    return [BehaviorRow(line, _behavior(cells, names)) for line, cells in rows]


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
        if behavior is None:
            continue
        if behavior.sha256 == sha256:
            return behavior
        changed_in = path.name
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
    return {found.id: found for _, found in read(path) if isinstance(found, Behavior)}


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


def _behavior(cells: list[str] | str, names: Sequence[str]) -> Behavior | str:
    if isinstance(cells, str):
        return cells
    if len(cells) != len(names):
        return f"got {len(cells)} cells, expected {len(names)}"
    if any(map(has_surrogate, cells)):
        return "not UTF-8; save the file as UTF-8"
    try:
        return Behavior.model_validate(dict(zip(names, cells, strict=True)))
    except ValidationError as error:
        return str(first_problem(error))
