"""`packbench import csv` and `packbench import jsonl`: rows of tables as generic cases."""

from __future__ import annotations

import csv
import re
from abc import abstractmethod
from io import StringIO
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pytest_packbench.cases.load import parse_json
from pytest_packbench.files import CASE, LIMITS, canonical_sha256, read_regular
from pytest_packbench.model.authoring import CaseDraft, Importer, SourceDoubt, SourceFlaw, SourceRemark, case_id
from pytest_packbench.model.errors import format_value, json_pointer, pluralize
from pytest_packbench.packs.generic.values import GENERIC, MISSING, compile_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

TAB = "tab"
_TARGET = "\n# the pipeline under test\n# target: package.module:function\n"
_BOM = "\ufeff"
_CONTENT_HASH = 10
_TAG_SEPARATOR = re.compile(r"[,;]")
# how a spreadsheet is told the delimiter, in a first line that is no row
_DELIMITER_LINE = "(?i)sep=.?"
_DOUBTS = {
    "the blanks around it are kept": r"(?s)\s.*|.*\s",
    "an error of a spreadsheet": r"#[A-Z/0]+[!?]|#N/A|#GETTING_DATA|#+|Err:[0-9]{3}",
    "a number that a spreadsheet shortened": r"[+-]?[0-9]+([.,][0-9]+)?E[+-][0-9]{2,}",
}
# what a case has beside input and expected: in the column of that name if there is one, else this value; the source is
# the name of the file, whatever its columns
_DEFAULTS = {"id": "", "case_type": "plain", "difficulty": "medium", "tags": "", "source": "", "date": ""}


class _Row(NamedTuple):
    """One row of a table.

    Attributes:
        place: `FILE:LINE` of its first line, or `FILE[INDEX]` of a member of a JSON list, from 0.
        values: its values by column or key; of a JSON list whatever stands there.
    """

    place: str
    values: Any


class _Table(Importer):
    """Rows of a table, each a case.

    Attributes:
        column: what a column is called in it, for the help of the options.
        columns: how one is named.
    """

    column: ClassVar[str]
    columns: ClassVar[str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file, and what is in which column."""
        parser.add_argument("file", type=Path, metavar="FILE")
        several, either = f"{self.column}[,{self.column}] or NAME={self.column}", f"{self.column} or =VALUE"
        for option, metavar, text in (
            (
                "--id",
                self.column,
                f"{self.columns}; default: id if it exists, else the position and a hash of the content",
            ),
            (
                "--input",
                several,
                f"{self.columns}: one is used as the value itself, several (or NAME=) become an object; default: input",
            ),
            ("--expected", several, "same as --input; default: expected"),
            (
                "--case-type",
                either,
                f"{self.columns}, or =VALUE for all cases; default: case_type if it exists, else =plain",
            ),
            ("--difficulty", either, "easy, medium, hard or expert; default: difficulty if it exists, else =medium"),
            ("--tags", either, "a list, or a string with commas or semicolons; default: tags if it exists"),
            ("--source", either, "the source of the expected answer; default: the name of the file"),
            (
                "--date",
                either,
                "the day on which the expected answer was verified, YYYY-MM-DD; default: date if it exists",
            ),
        ):
            several_times: Any = {"action": "extend", "type": _words} if metavar == several else {}
            parser.add_argument(option, metavar=metavar, help=text, **several_times)
        parser.set_defaults(as_json=[], omit_empty=False)

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceRemark]:
        """Yield one draft per row, and what is wrong or in doubt.

        Raises:
            ValueError: the file isn't such a table, or a requested column is missing.
            OSError: it can't be read.
        """
        number = 0
        for part in ("input", "expected"):
            _columns(arguments, part)
        for row in self.rows(arguments):
            number += not isinstance(row, SourceDoubt)
            if isinstance(row, SourceRemark):
                yield row
                continue
            try:
                yield _draft(row, number, arguments)
            except ValueError as error:
                yield SourceFlaw(place=row.place, message=str(error))
        if not number:
            yield SourceFlaw(place=str(arguments.file), message="contains no rows; expected at least one")

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Return the rules of a new suite: the expected columns, compared for equality."""
        import yaml

        # the keys of refusals are compared by the rules of refusals
        keys = [key for key in _columns(arguments, "expected") if key not in {"", "refuse", "category"}]
        criteria = [{"exact": json_pointer([key])} for key in keys] or [{"exact": ""}]
        rules = {"pack": GENERIC, "description": f"imported from {arguments.file.name}", "criteria": criteria}
        return {"suite.yaml": yaml.safe_dump(rules, sort_keys=False, allow_unicode=True) + _TARGET}

    @abstractmethod
    def rows(self, arguments: argparse.Namespace) -> Iterator[_Row | SourceRemark]:
        """Yield the rows, a flaw for what is none, and a doubt for what may not be what its author wrote."""


class Csv(_Table):
    """Rows of a CSV file; cells are strings."""

    name = "csv"
    help = "rows of a CSV file, whose first line names the columns"
    column = "COLUMN"
    columns = "a column"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file, its format, and the columns."""
        super().add_arguments(parser)
        parser.add_argument(
            "--json",
            dest="as_json",
            action="extend",
            type=_words,
            metavar="COLUMN",
            help="a column (or several, separated by commas) whose cells contain JSON: numbers, true, null, lists; "
            "other cells are strings",
        )
        parser.add_argument("--omit-empty", action="store_true", help="leave empty cells out of input and expected")
        parser.add_argument(
            "--delimiter",
            default=",",
            metavar="CHAR",
            help=f"the character between cells (default: a comma), or the word {TAB}",
        )
        parser.add_argument("--encoding", default="utf-8", help="the encoding of the file (default: utf-8)")

    def rows(self, arguments: argparse.Namespace) -> Iterator[_Row | SourceRemark]:
        """Yield the rows below the header, without those that have no text, and doubts about compared cells.

        Raises:
            ValueError: the file is empty, lacks a column, has one twice, or isn't in this format.
            OSError: it can't be read.
        """
        records = _records(arguments)
        empty = SourceFlaw(place=str(arguments.file), message="has no header; name the columns in its first line")
        header = next(records, empty)
        if isinstance(header, _Row) and re.fullmatch(_DELIMITER_LINE, "".join(header.values)):
            yield SourceDoubt(place=header.place, message="names the delimiter, for spreadsheets only; it is no row")
            header = next(records, empty)
        if isinstance(header, SourceFlaw):
            raise ValueError(f"{header.place}: {header.message}")  # noqa: TRY004 - what is wrong with the first line
        names = [cell.strip() for cell in header.values]
        others = {text for name in _DEFAULTS if (text := getattr(arguments, name)) and not text.startswith("=")}
        compared = [name for part in ("input", "expected") for name in _columns(arguments, part).values()]
        used = {*others, *arguments.as_json, *compared, *filter(None, names)}
        for name in sorted(used):
            if (count := names.count(name)) != 1:
                wrong = f'expected one column "{name}", got {count} of them among: {", ".join(names)}'
                raise ValueError(f"{header.place}: {wrong}; name another one in its option, or pass --delimiter")
        for record in records:
            if isinstance(record, SourceFlaw):
                yield record
            elif len(record.values) == len(names):
                cells = zip(names, record.values, strict=True)
                row = record._replace(values={name: cell for name, cell in cells if name})
                yield row
                yield from _doubts(row, compared, arguments.as_json)
            else:
                counts = f"{pluralize(len(record.values), 'cell')}, but {len(names)} in the header"
                hint = "quote cells that contain a delimiter or a line end"
                yield SourceFlaw(place=record.place, message=f"{counts}; {hint}")


class Jsonl(_Table):
    """Objects of a JSON Lines file, or of a JSON list; values keep their types."""

    name = "jsonl"
    help = "objects of a JSON Lines file, one per line, or of a JSON list"
    column = "KEY"
    columns = "a key, or a JSON pointer such as /messages/0/text"

    def rows(self, arguments: argparse.Namespace) -> Iterator[_Row | SourceRemark]:
        """Yield the objects: of the lines that are not blank, or the members of a JSON list.

        Raises:
            ValueError: the file begins like a JSON list and is neither that nor JSON Lines.
            OSError: it can't be read.
        """
        path, limit = arguments.file, LIMITS["import"]
        raw = read_regular(path, limit).removeprefix(_BOM.encode())
        if raw.lstrip().startswith(b"["):
            try:
                members = parse_json(raw, limit)
            except ValueError as error:
                # an odd first line, such as that of a log, must not hide the objects below it
                if not any(map(_is_json, list(filter(bytes.strip, raw.split(b"\n")))[:2])):
                    raise ValueError(f"{path}: {error}; expected a JSON list, or one object per line") from None
            else:
                yield from (_Row(f"{path}[{index}]", value) for index, value in enumerate(members))
                return
        for number, line in enumerate(raw.split(b"\n"), start=1):
            place = f"{path}:{number}"
            try:
                if line.strip():
                    yield _Row(place, parse_json(line))
            except ValueError as error:
                yield SourceFlaw(place=place, message=str(error).removeprefix("line 1 "))


def _records(arguments: argparse.Namespace) -> Iterator[_Row | SourceFlaw]:
    """Yield the cells of each record of a CSV file (RFC 4180) that has text, and a flaw for what is none."""
    path, delimiter = arguments.file, "\t" if arguments.delimiter == TAB else arguments.delimiter
    if len(delimiter) != 1:
        raise ValueError(f'--delimiter: got "{delimiter}"; expected one character, or the word {TAB}')
    raw = read_regular(path, LIMITS["import"])
    try:
        text = raw.decode(arguments.encoding).removeprefix(_BOM)
    except LookupError:
        raise ValueError(f'--encoding: got "{arguments.encoding}"; expected one such as utf-8 or cp1252') from None
    except UnicodeError as error:
        line = raw[: getattr(error, "start", 0)].count(b"\n") + 1
        wrong = f"not encoded in {arguments.encoding.upper()}"
        advice = "save the file as UTF-8, or pass --encoding, such as cp1252"
        raise ValueError(f"{path}:{line}: {wrong}; {advice}") from None
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    # a cell may contain a whole document; the limit is a setting of the process
    previous_limit = csv.field_size_limit(CASE.size)
    try:
        while True:
            place = f"{path}:{reader.line_num + 1}"
            try:
                cells = next(reader)
            except csv.Error as error:
                yield SourceFlaw(place=place, message=f"invalid CSV: {error}; look for an unclosed quote")
                continue
            if any(map(str.strip, cells)):
                yield _Row(place, cells)
    except StopIteration:
        return
    finally:
        csv.field_size_limit(previous_limit)


def _doubts(row: _Row, names: Sequence[str], as_json: Sequence[str]) -> Iterator[SourceDoubt]:
    """Yield why cells of a row may not be what their author wrote."""
    for name, (reason, pattern) in product(names, _DOUBTS.items()):
        cell = row.values[name]
        if re.fullmatch(pattern, cell.strip() if name in as_json else cell):
            yield SourceDoubt(place=row.place, message=f"{format_value(name)} is {format_value(cell)}: {reason}")


def _is_json(line: bytes) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _words(text: str) -> list[str]:
    """Divide the value of an option at its commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _columns(arguments: argparse.Namespace, part: str) -> dict[str, str]:
    """Return the columns of a case's `input` or `expected` by their keys: of `COLUMN`, `COLUMN,COLUMN`, `KEY=COLUMN`.

    A single one without a key is the whole value; of several, the key is the name, or the last part of a JSON pointer.

    Raises:
        ValueError: an entry has another form, or two have one key.
    """
    words = getattr(arguments, part) or [part]
    columns: dict[str, str] = {}
    for word in words:
        key, equals, name = map(str.strip, word.rpartition("="))
        if not name or (equals and not key):
            raise ValueError(f"--{part}: got {format_value(word)}; expected a column, or NAME=COLUMN")
        key = key or ("" if len(words) == 1 else name.rpartition("/")[2] or name)
        if key in columns:
            both = f"{format_value(columns[key])} and {format_value(name)}"
            raise ValueError(f"--{part}: {both} have the key {format_value(key)}; name one otherwise: NAME=COLUMN")
        columns[key] = name
    return columns


def _draft(row: _Row, number: int, arguments: argparse.Namespace) -> CaseDraft:
    """Return the draft of a row's case, whose parts are checked with the case.

    Args:
        row: the row.
        number: its position in the table, from 1; ids that the table does not give begin with it.
        arguments: what is in which column.

    Raises:
        ValueError: it is not a case.
    """
    if not isinstance(row.values, dict):
        raise ValueError(f"got {format_value(row.values)}; expected a JSON object")  # noqa: TRY004 - a mistake in a file
    given = {name: _given(row, arguments, name) for name in _DEFAULTS}
    given_id, tags = given["id"], given["tags"]
    if not given_id and (arguments.id or "id" in row.values):
        raise ValueError("the id is empty; add a value, or name another column in --id")
    if isinstance(tags, str):
        tags = list(dict.fromkeys(filter(None, map(str.strip, _TAG_SEPARATOR.split(tags)))))
    notes = {"source": given["source"], "date": given["date"] or None, "tags": tags or None}
    parts = {
        "input": _combined(row, arguments, "input"),
        "expected": _combined(row, arguments, "expected"),
    }
    content = "" if given_id else canonical_sha256([*parts.values()])[:_CONTENT_HASH]
    case = {
        "id": case_id(given_id or f"row_{number:05}_{content}"),
        "pack_id": GENERIC,
        "case_type": re.sub(r"[^a-z0-9_-]+", "_", given["case_type"].lower()).strip("_-"),
        "difficulty": given["difficulty"].lower(),
        **parts,
        "notes": {key: value for key, value in notes.items() if value is not None},
    }
    return CaseDraft(place=row.place, case=case, content=content)


def _given(row: _Row, arguments: argparse.Namespace, name: str) -> Any:
    """Return what an option, or a row, says of something that a case has beside input and expected."""
    column = getattr(arguments, name)
    if not column and name == "source":
        return arguments.file.name
    column = column or (name if name in row.values else f"={_DEFAULTS[name]}")
    value = column[1:] if column.startswith("=") else _cell(row, arguments, column)
    if name == "tags" and not isinstance(value, str):
        return value
    if type(value) not in {str, int, float}:
        raise ValueError(f"the {name} is {format_value(value)}; expected a string or a number")
    return str(value).strip()


def _combined(row: _Row, arguments: argparse.Namespace, part: str) -> Any:
    """Return the value of a case's `input` or `expected`; empty strings are refused unless they are left out."""
    columns = _columns(arguments, part)
    values = {key: _cell(row, arguments, name) for key, name in columns.items()}
    present = {key: value for key, value in values.items() if not (value == "" and arguments.omit_empty)}
    for key, value in present.items():
        if isinstance(value, str) and not value.strip():
            raise ValueError(f'the {part} value is empty at "{columns[key]}"; add one, remove the row, or leave it out')
    combined = present.get("") if "" in columns else present
    if combined in (None, {}) or (combined == [] and part == "input"):
        raise ValueError(f"the {part} value is empty: {format_value(combined)}; add a value, or remove the row")
    return combined


def _cell(row: _Row, arguments: argparse.Namespace, name: str) -> Any:
    """Return the value in a column, parsed if it is one of JSON."""
    is_pointer = name.startswith("/") and name not in row.values
    value = compile_path(name).find(row.values) if is_pointer else row.values.get(name, MISSING)
    if value is MISSING:
        raise ValueError(f'"{name}" is missing; keys in this row: {", ".join(row.values)}')
    if not isinstance(value, str) or name not in arguments.as_json or (value == "" and arguments.omit_empty):
        return value
    try:
        return parse_json(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        wrong = f'the column "{name}" is not JSON: {format_value(value)}'
        raise ValueError(f"{wrong}; put strings in double quotes, write null, or pass --omit-empty") from None
