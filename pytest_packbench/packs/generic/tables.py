"""Reading tables row by row: CSV, and JSON Lines."""

from __future__ import annotations

import csv
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from pytest_packbench.cases.load import parse_json
from pytest_packbench.files import CASE, LIMITS, format_size, lines_of, open_regular, read_regular
from pytest_packbench.model.authoring import SourceDoubt, SourceFlaw
from pytest_packbench.model.errors import format_value, pluralize

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

TAB = "tab"
# cells may contain whole documents; the limit of csv is 128 KiB
_MAX_CELL = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
# how a spreadsheet is told the delimiter
_DELIMITER_LINE = re.compile("sep=.?", re.IGNORECASE)
_DOUBTS = {
    "the blanks around it are kept": re.compile(r"\s.*|.*\s", re.DOTALL),
    "an error of a spreadsheet": re.compile(r"#[A-Z/0]+[!?]|#N/A|#GETTING_DATA|#+|Err:[0-9]{3}"),
    "a number that a spreadsheet shortened": re.compile(r"[+-]?[0-9]+([.,][0-9]+)?E[+-][0-9]{2,}"),
}
_OTHER_DELIMITERS = {";": "';'", "\t": TAB, "|": "'|'"}


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table.

    Attributes:
        location: `FILE:LINE` of its first line, or `FILE[INDEX]` of a member of a JSON list, from 0.
        values: its values by column or key.
    """

    location: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """The format of a CSV file.

    Attributes:
        delimiter: a character, or the word `tab`.
        encoding: the name of an encoding.
    """

    delimiter: str = ","
    encoding: str = "utf-8"


def csv_header(path: Path, format_: CsvFormat) -> list[str]:
    """Read the names of the columns, without the spaces around them.

    Raises:
        ValueError: the file is empty, has duplicate columns, or isn't in this format.
        OSError: it can't be read.
    """
    with _open_records(path, format_) as records:
        header = next(records, None)
    if header is None:
        raise ValueError(f"{path}: the file is empty; expected a first line with the names of the columns")
    if isinstance(header, SourceFlaw):
        raise ValueError(f"{header.place}: {header.message}")  # noqa: TRY004 - a flaw of the file, not of a caller
    line, cells = header
    names = [cell.strip() for cell in cells]
    duplicates = [name for name, count in Counter(names).items() if name and count > 1]
    if duplicates:
        raise ValueError(f'{path}:{line}: duplicate column "{duplicates[0]}"; rename one of them')
    for delimiter, word in _OTHER_DELIMITERS.items():
        if len(names) == 1 and delimiter in names[0]:
            raise ValueError(f'{path}:{line}: a single column, "{names[0]}"; to split it, pass --delimiter {word}')
    return names


def csv_rows(
    path: Path, format_: CsvFormat, verbatim: Container[str] = ()
) -> Iterator[TableRow | SourceFlaw | SourceDoubt]:
    """Read the rows below the header one by one, without those that have no text.

    As in RFC 4180, quoted cells may contain delimiters, quotes and line ends.

    Args:
        path: the file.
        format_: its format.
        verbatim: the columns whose blanks count.

    Yields:
        Rows whose values are strings, flaws for what is not a row of the header's columns, and doubts about cells that
        a spreadsheet may have changed.

    Raises:
        ValueError: see `csv_header`.
        OSError: it can't be read.
    """
    names = csv_header(path, format_)
    with _open_records(path, format_) as records:
        header = next(records)
        if not isinstance(header, SourceFlaw) and header[0] > 1:
            yield SourceDoubt(place=f"{path}:1", message="names the delimiter, for spreadsheets only; it is no row")
        for record in records:
            if isinstance(record, SourceFlaw):
                yield record
                continue
            line, cells = record
            location = f"{path}:{line}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) == len(names):
                row = TableRow(location, {name: cell for name, cell in zip(names, cells, strict=True) if name})
                yield row
                if doubts := "; ".join(_doubts(row, verbatim)):
                    yield SourceDoubt(place=location, message=doubts)
            else:
                counts = f"{pluralize(len(cells), 'cell')}, but {len(names)} in the header"
                hint = "quote cells that contain a delimiter or a line end"
                yield SourceFlaw(place=location, message=f"{counts}; {hint}")


def _doubts(row: TableRow, verbatim: Container[str]) -> Iterator[str]:
    """Yield why cells of a row may not be what its author wrote."""
    for name, cell in row.values.items():
        read = cell if name in verbatim else cell.strip()
        reasons = (what for what, pattern in _DOUBTS.items() if pattern.fullmatch(read))
        yield from (f"{format_value(name)} is {format_value(cell)}: {what}" for what in reasons)


@contextmanager
def _open_records(path: Path, format_: CsvFormat) -> Iterator[Iterator[tuple[int, list[str]] | SourceFlaw]]:
    delimiter = "\t" if format_.delimiter == TAB else format_.delimiter
    # utf-8-sig skips a byte order mark
    encoding = "utf-8-sig" if format_.encoding.lower().replace("_", "-") in {"utf-8", "utf8"} else format_.encoding
    previous_limit = csv.field_size_limit(_MAX_CELL)
    try:
        with open_regular(path) as source, TextIOWrapper(source, encoding=encoding, newline="") as file:
            yield _records(csv.reader(_lines(file), delimiter=delimiter, strict=True), path, encoding)
    except LookupError:
        raise ValueError(f'unknown encoding "{format_.encoding}"; expected a name such as utf-8 or cp1252') from None
    finally:
        csv.field_size_limit(previous_limit)


def _lines(file: TextIOWrapper) -> Iterator[str]:
    while line := file.readline(_MAX_CELL):
        if len(line) == _MAX_CELL:
            raise csv.Error(f"a line of more than {format_size(_MAX_CELL)}")
        yield line


def _records(reader: Any, path: Path, encoding: str) -> Iterator[tuple[int, list[str]] | SourceFlaw]:
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield SourceFlaw(place=f"{path}:{line}", message=f"invalid CSV: {error}; look for an unclosed quote")
        except UnicodeError:
            raise ValueError(_decoding_error(path, encoding)) from None
        else:
            if line > 1 or not _DELIMITER_LINE.fullmatch(reader.dialect.delimiter.join(cells)):
                yield line, cells


def _decoding_error(path: Path, encoding: str) -> str:
    # the reader decodes in blocks, so the line has to be searched for
    location = str(path)
    if encoding == "utf-8-sig":
        with path.open("rb") as lines:
            wrong = (
                f":{number}" for number, line in enumerate(lines, 1) if line.decode(errors="ignore").encode() != line
            )
            location += next(wrong, "")
    name = encoding.removesuffix("-sig").upper()
    return f"{location}: not encoded in {name}; save the file as UTF-8, or pass --encoding, such as cp1252"


def jsonl_rows(path: Path) -> Iterator[TableRow | SourceFlaw]:
    """Read JSON Lines one by one, without blank lines; or the members of a JSON list.

    Yields:
        Rows for the objects, and flaws for all other lines or members.

    Raises:
        ValueError: the file begins like a JSON list and is neither that nor JSON Lines.
        OSError: it can't be read.
    """
    members = _json_list(path)
    if members is not None:
        for index, value in enumerate(members):
            yield _object_row(value, f"{path}[{index}]")
        return
    with open_regular(path) as lines:
        for number, line in enumerate(lines_of(lines, CASE), start=1):
            if not line.strip() or line.strip() == _BOM:
                continue
            location = f"{path}:{number}"
            try:
                value = parse_json(line)
            except ValueError as error:
                yield SourceFlaw(place=location, message=str(error).removeprefix("line 1 "))
                continue
            yield _object_row(value, location)


def _object_row(value: Any, location: str) -> TableRow | SourceFlaw:
    if isinstance(value, dict):
        return TableRow(location, value)
    return SourceFlaw(place=location, message=f"got {format_value(value)}; expected a JSON object")


def _json_list(path: Path) -> list[Any] | None:
    """Return the members of a file that is one JSON list; None if it is JSON Lines."""
    limit = LIMITS["import"]
    with open_regular(path) as file:
        start = next((line for line in lines_of(file, limit) if line.removeprefix(_BOM).strip()), b"")
    if not start.removeprefix(_BOM).lstrip().startswith(b"["):
        return None
    try:
        members: list[Any] = parse_json(read_regular(path, limit), limit)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; expected a JSON list, or one object per line") from None
    return members
