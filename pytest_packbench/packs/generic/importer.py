"""`packbench import csv` and `packbench import jsonl`: rows of tables as generic cases."""

from __future__ import annotations

import re
from abc import abstractmethod
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.cases.load import parse_json
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.authoring import CaseDraft, Importer, SourceDoubt, SourceFlaw, case_id
from pytest_packbench.model.errors import format_value, json_pointer
from pytest_packbench.packs.generic.tables import TAB, CsvFormat, TableRow, csv_header, csv_rows, jsonl_rows
from pytest_packbench.packs.generic.values import MISSING, compile_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence


PACK = "generic"
_TARGET = "\n# the pipeline under test\n# target: package.module:function\n"
_MAX_CASE_TYPE = 80
_CONTENT_HASH = 10
_TAG_SEPARATOR = re.compile(r"[,;]")
# what a case has beside input and expected: in the column of that name if there is one, else this value
_DEFAULTS = {"id": "", "case_type": "plain", "difficulty": "medium", "tags": "", "source": "", "date": ""}


class _Table(Importer):
    """Rows of a table, each a case."""

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceFlaw | SourceDoubt]:
        """Yield one draft per row.

        Raises:
            ValueError: the file isn't such a table, or a requested column is missing.
            OSError: it can't be read.
        """
        path = _file(arguments)
        columns = _columns(arguments, self.header(arguments))
        number = 0
        for row in self.rows(arguments, columns):
            number += not isinstance(row, SourceDoubt)
            yield _draft(row, number, columns) if isinstance(row, TableRow) else row
        if not number:
            yield SourceFlaw(place=str(path), message="contains no rows; expected at least one")

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Return the rules of a new suite: the expected columns, compared for equality."""
        _file(arguments)
        return {"suite.yaml": _suite_rules(arguments, _columns(arguments, self.header(arguments)))}

    @abstractmethod
    def header(self, arguments: argparse.Namespace) -> list[str] | None:
        """Return the names of the columns; None if rows may differ."""

    @abstractmethod
    def rows(self, arguments: argparse.Namespace, columns: _Columns) -> Iterator[TableRow | SourceFlaw | SourceDoubt]:
        """Yield the rows; see `tables`."""


class Csv(_Table):
    """Rows of a CSV file; cells are strings."""

    name = "csv"
    help = "rows of a CSV file, whose first line names the columns"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file, its format, and the columns."""
        _add_columns(parser, "COLUMN", "a column")
        what = "whose cells contain JSON: numbers, true, null, lists; other cells are strings"
        about = f"a column (or several, separated by commas) {what}"
        parser.add_argument("--json", dest="as_json", action="append", default=[], metavar="COLUMN", help=about)
        about = "leave empty cells out of input and expected"
        parser.add_argument("--omit-empty", action="store_true", help=about)
        about = f"the character between cells (default: a comma), or the word {TAB}"
        parser.add_argument("--delimiter", default=",", metavar="CHAR", help=about)
        parser.add_argument("--encoding", default="utf-8", help="the encoding of the file (default: utf-8)")

    def header(self, arguments: argparse.Namespace) -> list[str]:
        """Return the cells of the first line."""
        return csv_header(arguments.file, _csv_format(arguments))

    def rows(self, arguments: argparse.Namespace, columns: _Columns) -> Iterator[TableRow | SourceFlaw | SourceDoubt]:
        """Yield the rows, if the file has all columns that are asked for.

        Raises:
            ValueError: it lacks one.
        """
        header, used = self.header(arguments), {*columns.input.values(), *columns.expected.values()}
        others = {text for text in columns.others.values() if text and not text.startswith("=")}
        for name in sorted((used | others | columns.as_json).difference(header)):
            wrong = f'{arguments.file}: no column "{name}"; name another one in its option'
            raise ValueError(f"{wrong}; columns: {', '.join(header)}")
        return csv_rows(arguments.file, _csv_format(arguments), used - columns.as_json)


class Jsonl(_Table):
    """Objects of a JSON Lines file, or of a JSON list; values keep their types."""

    name = "jsonl"
    help = "objects of a JSON Lines file, one per line, or of a JSON list"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file and the keys."""
        _add_columns(parser, "KEY", "a key, or a JSON pointer such as /messages/0/text")
        parser.set_defaults(as_json=[], omit_empty=False)

    def header(self, arguments: argparse.Namespace) -> None:
        """Return None."""

    def rows(self, arguments: argparse.Namespace, columns: _Columns) -> Iterator[TableRow | SourceFlaw]:  # noqa: ARG002 - of any keys
        """Yield the objects."""
        return jsonl_rows(arguments.file)


def _add_columns(parser: argparse.ArgumentParser, word: str, about: str) -> None:
    parser.add_argument("file", type=Path, metavar="FILE")
    several, either = f"{word}[,{word}] or NAME={word}", f"{word} or =VALUE"
    what = "one is used as the value itself, several (or NAME=) become an object"
    for option, metavar, text in (
        ("--id", word, f"{about}; default: id if it exists, else the position and a hash of the content"),
        ("--input", several, f"{about}: {what}; default: input"),
        ("--expected", several, "same as --input; default: expected"),
        ("--case-type", either, f"{about}, or =VALUE for all cases; default: case_type if it exists, else =plain"),
        ("--difficulty", either, "easy, medium, hard or expert; default: difficulty if it exists, else =medium"),
        ("--tags", either, "a list, or a string with commas or semicolons; default: tags if it exists"),
        ("--source", either, "the source of the expected answer; default: the name of the file"),
        (
            "--date",
            either,
            "the day on which the expected answer was verified, YYYY-MM-DD; default: date if it exists",
        ),
    ):
        parser.add_argument(option, action="append" if metavar == several else "store", metavar=metavar, help=text)


def _file(arguments: argparse.Namespace) -> Path:
    path: Path = arguments.file
    # the file is read twice, which a pipe doesn't allow
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: expected a regular file")
    return path


def _csv_format(arguments: argparse.Namespace) -> CsvFormat:
    delimiter: str = arguments.delimiter
    if delimiter != TAB and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(f'--delimiter: got "{delimiter}"; expected one character, or the word {TAB}')
    return CsvFormat(delimiter=delimiter, encoding=arguments.encoding)


class _Columns(NamedTuple):
    """Which columns (keys, or JSON pointers) of a row become which parts of a case.

    Attributes:
        input: the column of each key of the input; that of an empty key is the input itself.
        expected: likewise.
        others: the options for what a case has besides: a column, `=VALUE` for all rows, or nothing.
        as_json: the columns whose strings are parsed as JSON.
        omit_empty: whether empty strings are left out of `input` and `expected`.
    """

    input: dict[str, str]
    expected: dict[str, str]
    others: dict[str, str]
    as_json: frozenset[str]
    omit_empty: bool


def _columns(arguments: argparse.Namespace, header: Sequence[str] | None) -> _Columns:
    others = {name: getattr(arguments, name) or "" for name in _DEFAULTS}
    return _Columns(
        input=_by_key(arguments.input or ["input"], header),
        expected=_by_key(arguments.expected or ["expected"], header),
        others={**others, "source": others["source"] or f"={arguments.file.name}"},
        as_json=frozenset(_by_key(arguments.as_json, header).values()),
        omit_empty=arguments.omit_empty,
    )


def _by_key(texts: Sequence[str], header: Sequence[str] | None) -> dict[str, str]:
    """Parse the values of `--input` and `--expected`: `COLUMN`, `COLUMN,COLUMN`, `KEY=COLUMN`.

    Args:
        texts: the option's values, in order.
        header: the names of the columns, which may contain commas and `=`; None if rows may differ.

    Returns:
        The columns by their keys. A single one without a key is the whole value; of several, the key is the name, or
        the last part of a JSON pointer.
    """
    names = frozenset(header or ())
    parts = [part.strip() for text in texts for part in ([text] if text in names else text.split(","))]
    pairs = [("", part) if part in names or "=" not in part else part.split("=", 1) for part in parts if part]
    columns = {key.strip(): name.strip() for key, name in pairs}
    if len(pairs) == 1:
        return columns
    return {key.strip() or name.rpartition("/")[2] or name: name.strip() for key, name in pairs}


def _suite_rules(arguments: argparse.Namespace, columns: _Columns) -> str:
    import yaml

    # the keys of refusals are compared by the rules of refusals
    compared = [json_pointer([key]) for key in columns.expected if key not in {"", "refuse", "category"}]
    criteria = [{"exact": pointer} for pointer in compared or [""]]
    rules = {"pack": PACK, "description": f"imported from {arguments.file.name}", "criteria": criteria}
    return yaml.safe_dump(rules, sort_keys=False, allow_unicode=True) + _TARGET


class _RowError(ValueError):
    """A row that is not a case."""


def _draft(row: TableRow, number: int, columns: _Columns) -> CaseDraft | SourceFlaw:
    """Return the draft of a row's case, or why it is not a case.

    Args:
        row: the row.
        number: its position in the table, from 1; ids that the table does not give begin with it.
        columns: what is in which column.
    """
    try:
        case = _case(row, columns)
    except _RowError as error:
        return SourceFlaw(place=row.location, message=str(error))
    content = "" if "id" in case else canonical_sha256([case["input"], case["expected"]])[:_CONTENT_HASH]
    named = {"id": f"row_{number:05}_{content}", **case} if content else case
    return CaseDraft(place=row.location, case=named, content=content)


def _case(row: TableRow, columns: _Columns) -> dict[str, Any]:
    text = {name: _text(row, columns, name) for name in _DEFAULTS if name != "tags"}
    if not text["id"] and (column := columns.others["id"] or ("id" if "id" in row.values else "")):
        raise _RowError(f'the id is empty; add a value in "{column}"')
    if not text["source"]:
        raise _RowError("the source is empty; add a value, or pass --source =TEXT")
    if text["date"] and not _is_date(text["date"]):
        raise _RowError(f"the date is {format_value(text['date'])}; expected a day of the calendar, YYYY-MM-DD")
    notes = {"source": text["source"], "date": text["date"], "tags": _tags(_given(row, columns, "tags"))}
    return {
        **({"id": case_id(text["id"])} if text["id"] else {}),
        "pack_id": PACK,
        "case_type": _case_type(text["case_type"]),
        "difficulty": text["difficulty"].lower(),
        "input": _combined(row, columns, columns.input, "input"),
        "expected": _combined(row, columns, columns.expected, "expected value"),
        "notes": {key: value for key, value in notes.items() if value},
    }


def _combined(row: TableRow, columns: _Columns, parts: Mapping[str, str], what: str) -> Any:
    """Return the value of a case's `input` or `expected`; empty strings are refused unless they are left out."""
    values = {key: _cell(row, columns, name) for key, name in parts.items()}
    for key, value in values.items():
        if isinstance(value, str) and not value.strip():
            advice = "add a value, or remove the row" if len(parts) == 1 else "add a value, or pass --omit-empty"
            raise _RowError(f'the {what} is empty at "{parts[key]}"; {advice}')
    present = {key: value for key, value in values.items() if value is not MISSING}
    combined = present.get("") if "" in parts else present
    if combined in (None, {}) or (combined == [] and what == "input"):
        raise _RowError(f"the {what} is empty: {format_value(combined)}; add a value, or remove the row")
    return combined


def _cell(row: TableRow, columns: _Columns, name: str) -> Any:
    """Return the value in a column; `MISSING` for an empty one that is left out."""
    is_pointer = name.startswith("/") and name not in row.values
    value = compile_path(name).find(row.values) if is_pointer else row.values.get(name, MISSING)
    if value is MISSING:
        raise _RowError(f'"{name}" is missing; keys in this row: {", ".join(row.values)}')
    if value == "" and columns.omit_empty:
        return MISSING
    return _parse_cell(name, value) if name in columns.as_json else value


def _given(row: TableRow, columns: _Columns, name: str) -> Any:
    """Return what a row, or an option, says of something that a case has beside input and expected."""
    text = columns.others[name]
    if text.startswith("="):
        return text[1:].strip()
    if not text and name not in row.values:
        return _DEFAULTS[name]
    value = _cell(row, columns, text or name)
    return "" if value is MISSING else value


def _text(row: TableRow, columns: _Columns, name: str) -> str:
    value = _given(row, columns, name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _RowError(f"the {name.replace('_', ' ')} is {format_value(value)}; expected a string or a number")
    return str(value).strip()


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _case_type(text: str) -> str:
    word = re.sub(r"[^a-z0-9_-]+", "_", text.lower()).strip("_-")[:_MAX_CASE_TYPE]
    if not word:
        raise _RowError(f"the case type is {format_value(text)}; expected a word of letters and digits")
    return word


def _tags(value: Any) -> Any:
    """Return tags as a list; another value than a text is checked with the case."""
    if not isinstance(value, str):
        return value
    return list(dict.fromkeys(filter(None, map(str.strip, _TAG_SEPARATOR.split(value)))))


def _parse_cell(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise _RowError(f'the column "{name}" is empty; expected JSON, such as null, or pass --omit-empty')
    try:
        return parse_json(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        raise _RowError(
            f'the column "{name}" is not JSON: {format_value(value)}; put strings in double quotes'
        ) from None
