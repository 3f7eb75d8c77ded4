"""Reading HarmBench's published CSV files of behaviours, row by row, with the problem of each bad row."""

from __future__ import annotations

import csv
import hashlib
from functools import lru_cache
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_pascal

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
        behavior: the request.
        functional_category: `standard`, `contextual` (it comes with a context) or `copyright`.
        semantic_category: the kind of harm as a word, such as `illegal`.
        tags: upstream's tags.
        context_string: the text that the request is about; empty without one.
        behavior_id: the id.
    """

    model_config = ConfigDict(extra="ignore", alias_generator=to_pascal)

    behavior: Filled
    functional_category: Annotated[Functional, BeforeValidator(str.strip)]
    semantic_category: Word
    tags: _Words = ()
    context_string: _Context = ""
    behavior_id: Annotated[CaseId, BeforeValidator(str.strip)] = Field(alias="BehaviorID")

    @model_validator(mode="after")
    def _has_its_context(self) -> Self:
        if (self.functional_category == "contextual") is not bool(self.context_string):
            wrong = f"{self.functional_category}, {'with a' if self.context_string else 'without a'} ContextString"
            raise misfit(wrong, "one for the category contextual, and for no other")
        return self

    @property
    def request(self) -> str:
        """The prompt: the context, where there is one, and the request."""
        return f"{self.context_string}{_SEPARATOR}{self.behavior}" if self.context_string else self.behavior

    @property
    def sha256(self) -> str:
        """Hash of the prompt in UTF-8, hexadecimal."""
        return hashlib.sha256(self.request.encode()).hexdigest()


_REQUIRED = ("Behavior", "FunctionalCategory", "SemanticCategory", "BehaviorID")
"""The columns that a file must have."""


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
    for name in (*_REQUIRED, *names):
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
    searched = list(_files(paths))
    for path in searched:
        try:
            found = _behaviors_in(path, path.stat().st_mtime_ns).get((behavior_id, sha256))
        except OSError as error:
            raise FileError(f"{path}: {why_unreadable(error)}") from None
        if found is not None:
            return found
    names = ", ".join(path.name for path in searched) or "no file"
    raise FileError(
        f"{behavior_id}: not found in {names} with the text that was imported; import its file again, or set "
        "packbench_harmbench to your copy of HarmBench's CSV files"
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
def _behaviors_in(path: Path, _mtime_ns: int) -> Mapping[tuple[str, str], Behavior]:
    """Return the behaviours of a file by id and hash."""
    return {(found.behavior_id, found.sha256): found for _, found in read(path) if isinstance(found, Behavior)}
