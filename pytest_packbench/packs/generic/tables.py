"""Reading tables row by row: CSV, and JSON Lines."""

from __future__ import annotations

import csv
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.load import parse_json
from pytest_packbench.model.errors import shown
from pytest_packbench.model.pack import SourceFlaw
from pytest_packbench.model.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TAB = "tab"
# whole documents stand in cells; csv's own limit is 128 KiB
_LARGEST_CELL = 64 * 1024 * 1024
_ONE_LIST = "a JSON list; expected one object a line, as jq -c '.[]' writes them"
_OTHER_DELIMITERS = {";": "';'", "\t": TAB, "|": "'|'"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: `FILE:LINE` of its first line, and what stands in it by column or key."""

    place: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How a CSV file is written; its delimiter is a character or the word `tab`."""

    delimiter: str = ","
    encoding: str = "utf-8"


def csv_header(path: Path, form: CsvForm) -> list[str]:
    """Read the names of the columns, without the spaces around them.

    Raises:
        ValueError: the file has none, or two of one name, or can't be read as it is said to be.
        OSError: it can't be read.
    """
    with _records(path, form) as records:
        found = next(records, None)
    if found is None:
        raise ValueError(f"{path}: is empty; expected a line with the names of the columns")
    if isinstance(found, SourceFlaw):
        raise ValueError(f"{found.place}: {found.message}")  # noqa: TRY004 - a flaw of the file, not of a caller
    names = [name.strip() for name in found[1]]
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise ValueError(f'{path}:{found[0]}: the column "{twice[0]}" stands twice; give one another name')
    for mark, word in _OTHER_DELIMITERS.items():
        if len(names) == 1 and mark in names[0]:
            raise ValueError(f'{path}:{found[0]}: one column, "{names[0]}"; if it is several, pass --delimiter {word}')
    return names


def csv_rows(path: Path, form: CsvForm) -> Iterator[Row | SourceFlaw]:
    """Read the rows under the header one by one; rows without any text are left out.

    As RFC 4180 has it: quoted cells may hold delimiters, quotes and line ends.

    Yields:
        Rows whose values are text, and what can't be read as a row of the header's columns.

    Raises:
        ValueError: see `csv_header`.
        OSError: it can't be read.
    """
    names = csv_header(path, form)
    with _records(path, form) as records:
        next(records)
        for record in records:
            if isinstance(record, SourceFlaw):
                yield record
                continue
            line, cells = record
            place = f"{path}:{line}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) == len(names):
                yield Row(place, {name: cell for name, cell in zip(names, cells, strict=True) if name})
            else:
                counts = f"{pluralize(len(cells), 'cell')}, the header has {len(names)}"
                yield SourceFlaw(place=place, message=f"{counts}; quote a cell that holds a delimiter or a line end")


@contextmanager
def _records(path: Path, form: CsvForm) -> Iterator[Iterator[tuple[int, list[str]] | SourceFlaw]]:
    delimiter = "\t" if form.delimiter == TAB else form.delimiter
    # a byte order mark is taken off
    encoding = "utf-8-sig" if form.encoding.lower().replace("_", "-") in {"utf-8", "utf8"} else form.encoding
    before = csv.field_size_limit(_LARGEST_CELL)
    try:
        with path.open(encoding=encoding, newline="") as file:
            yield _numbered(csv.reader(file, delimiter=delimiter, strict=True), path, encoding)
    except LookupError:
        raise ValueError(f'no encoding is called "{form.encoding}"; expected one such as utf-8 or cp1252') from None
    finally:
        csv.field_size_limit(before)


def _numbered(reader: Any, path: Path, encoding: str) -> Iterator[tuple[int, list[str]] | SourceFlaw]:
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield SourceFlaw(place=f"{path}:{line}", message=f"not CSV: {error}; look for a quote that is not closed")
        except UnicodeError:
            raise ValueError(_not_decodable(path, encoding)) from None
        else:
            yield line, record


def _not_decodable(path: Path, encoding: str) -> str:
    # the reader decodes ahead: which line it was has to be looked for
    place, wrong = str(path), f"is not {encoding.removesuffix('-sig').upper()}"
    if encoding == "utf-8-sig":
        with path.open("rb") as lines:
            place += next((f":{number}" for number, line in enumerate(lines, start=1) if not _is_utf8(line)), "")
    return f"{place}: {wrong}; save it as UTF-8, or pass --encoding, such as cp1252"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def jsonl_rows(path: Path) -> Iterator[Row | SourceFlaw]:
    """Read JSON Lines one by one; blank lines are left out.

    Yields:
        Rows of the objects, and lines that hold none.

    Raises:
        ValueError: the file is one JSON list.
        OSError: it can't be read.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.strip() == b"\xef\xbb\xbf":
                continue
            place = f"{path}:{number}"
            try:
                value = parse_json(line)
            except ValueError as error:
                if number == 1 and line.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
                    raise ValueError(f"{place}: {_ONE_LIST}") from None
                yield SourceFlaw(place=place, message=str(error).removeprefix("line 1 "))
                continue
            if isinstance(value, dict):
                yield Row(place, value)
            elif number == 1 and isinstance(value, list):
                raise ValueError(f"{place}: {_ONE_LIST}")
            else:
                yield SourceFlaw(place=place, message=f"got {shown(value)}; expected a JSON object")
