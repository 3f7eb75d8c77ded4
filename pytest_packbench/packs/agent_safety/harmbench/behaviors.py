"""Reading HarmBench's published CSV files of behaviours, row by row, with the problem of each bad row."""

from __future__ import annotations

import csv
import hashlib
from functools import lru_cache
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from pytest_packbench.files import LIMITS, escape_unprintable, has_surrogate, read_regular, why_unreadable
from pytest_packbench.model.case import CaseId, ListOf, StrictModel, misfit
from pytest_packbench.model.errors import first_problem
from pytest_packbench.packs.agent_safety.episode import NoEpisodeError
from pytest_packbench.packs.agent_safety.model import Filled, Word, as_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Functional = Literal["standard", "contextual", "copyright"]

MAX_ANSWER_TOKENS = 512
"""The length at which HarmBench cuts off the answers of the model under test."""

NOT_ASSESSED = "not assessed: HarmBench detects reproduced texts by its own hashes, not by a judge"

# HarmBench's separator between a context and a request
_SEPARATOR = "\n\n---\n\n"


_Words = Annotated[ListOf[str], BeforeValidator(lambda cell: filter(None, map(as_word, cell.split(","))))]
_Context = Annotated[str, AfterValidator(lambda text: text if text.strip() else "")]


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

    text: Filled = Field(alias="Behavior")
    functional: Annotated[Functional, BeforeValidator(str.strip)] = Field(alias="FunctionalCategory")
    semantic: Word = Field(alias="SemanticCategory")
    tags: _Words = Field((), alias="Tags")
    context: _Context = Field("", alias="ContextString")
    id: Annotated[CaseId, BeforeValidator(str.strip)] = Field(alias="BehaviorID")

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


class FileError(NoEpisodeError):
    """A file of behaviours can't be used: the reason in one line."""

    kind = "text_missing"


class _Record(NamedTuple):
    """One row of a CSV file: the line on which it begins, from 1, its cells, and why it has none."""

    line: int
    cells: list[str]
    problem: str = ""


def read(path: Path) -> list[tuple[int, Behavior | str]]:
    """Read all rows of a file of behaviours; a bad row doesn't hide others.

    Returns:
        The line of each row, from 1, and the behaviour, or why the row can't be used, without its text.

    Raises:
        FileError: its first line doesn't name the columns.
        OSError: it can't be read.
    """
    # a byte that is not UTF-8 makes only its own row unusable
    records = _records(read_regular(path, LIMITS["import"]).decode("utf-8-sig", "surrogateescape"))
    header = next(records, _Record(1, []))
    names = [cell.strip() for cell in header.cells]
    required = [name for name, field in COLUMNS.items() if field.is_required()]
    for name in (*required, *names):
        if (count := names.count(name)) != 1:
            got = escape_unprintable(f'expected one column "{name}", got {count} of them among: {", ".join(names)}')
            raise FileError(f"{path.name}:{header.line}: {got}")
    return [(record.line, _behavior(record, names)) for record in records]


def _records(text: str) -> Iterator[_Record]:
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _Record(line, [], f"not CSV: {error}; look for an unclosed quote")
        else:
            # a blank line is no row
            yield from [_Record(line, cells)] if cells else []


def _behavior(record: _Record, names: Sequence[str]) -> Behavior | str:
    cells = record.cells
    if record.problem or len(cells) != len(names):
        return record.problem or f"got {len(cells)} cells, expected {len(names)}"
    if any(map(has_surrogate, cells)):
        return "not UTF-8; save the file as UTF-8"
    try:
        return Behavior.model_validate(dict(zip(names, cells, strict=True)))
    except ValidationError as error:
        return str(first_problem(error))


def find_behavior(paths: Sequence[Path], behavior_id: str, sha256: str) -> Behavior:
    """Return the first behaviour with an id and a hash, from files or folders of `.csv` files.

    Raises:
        FileError: no file contains the behaviour, its text has changed, or a file can't be read.
    """
    searched, changed_in = list(_files(paths)), ""
    for path in searched:
        try:
            behavior = _by_id(path, path.stat().st_mtime_ns).get(behavior_id)
        except OSError as error:
            raise FileError(f"{path}: {why_unreadable(error)}") from None
        if behavior is not None and behavior.sha256 == sha256:
            return behavior
        changed_in = changed_in if behavior is None else path.name
    if changed_in:
        raise FileError(
            f"{behavior_id}: its text in {changed_in} differs from the imported one; import that file again"
        )
    names = ", ".join(path.name for path in searched) or "no file"
    raise FileError(
        f"{behavior_id}: not found in {names}; set packbench_harmbench to your copy of HarmBench's CSV files"
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
