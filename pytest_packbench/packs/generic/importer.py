"""`packbench import csv` and `packbench import jsonl`: rows of tables as generic cases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pytest_packbench.cases.load import parse_json
from pytest_packbench.model.authoring import CaseDraft, Importer, SourceDoubt, SourceFlaw, case_id
from pytest_packbench.model.case import Difficulty, canonical_sha256
from pytest_packbench.model.errors import format_value, json_pointer
from pytest_packbench.packs.generic.tables import TAB, CsvFormat, TableRow, csv_header, csv_rows, jsonl_rows
from pytest_packbench.packs.generic.values import MISSING, compile_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence


PACK = "generic"
_TARGET = "\n# the pipeline under test\n# target: package.module:function\n"
_MAX_CASE_TYPE = 80
_CONTENT_HASH = 10
_TAG_SEPARATOR = re.compile(r"[,;]")
_DIFFICULTIES = get_args(Difficulty)


class Csv(Importer):
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

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceFlaw | SourceDoubt]:
        """Yield one draft per row.

        Raises:
            ValueError: the file isn't valid CSV, or a requested column is missing.
            OSError: it can't be read.
        """
        format_ = _csv_format(arguments)
        columns = csv_header(_file(arguments), format_)
        mapping = _mapping(arguments, columns)
        for option, names in mapping.columns_by_option().items():
            for name in names:
                if name not in columns:
                    wrong = f'{arguments.file}: no column "{name}"; set another one with {option}'
                    raise ValueError(f"{wrong}; columns: {', '.join(columns)}")
        used = (column.name for column in (*mapping.input, *mapping.expected))
        verbatim = [name for name in used if name not in mapping.as_json]
        return _drafts(csv_rows(arguments.file, format_, verbatim), mapping, arguments.file)

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Return the rules of a new suite: the expected columns, compared for equality."""
        columns = csv_header(_file(arguments), _csv_format(arguments))
        return {"suite.yaml": _suite_rules(arguments, _mapping(arguments, columns))}


class Jsonl(Importer):
    """Objects of a JSON Lines file, or of a JSON list; values keep their types."""

    name = "jsonl"
    help = "objects of a JSON Lines file, one per line, or of a JSON list"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file and the keys."""
        _add_columns(parser, "KEY", "a key, or a JSON pointer such as /messages/0/text")
        parser.set_defaults(as_json=[], omit_empty=False)

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceFlaw | SourceDoubt]:
        """Yield one draft per line, or per member of the list.

        Raises:
            ValueError: the file isn't JSON Lines, nor a JSON list.
            OSError: it can't be read.
        """
        return _drafts(jsonl_rows(_file(arguments)), _mapping(arguments, None), arguments.file)

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Return the rules of a new suite: the expected keys, compared for equality."""
        return {"suite.yaml": _suite_rules(arguments, _mapping(arguments, None))}


def _add_columns(parser: argparse.ArgumentParser, word: str, about: str) -> None:
    several = f"{word}[,{word}] or NAME={word}"
    either = f"{word} or =VALUE"
    parser.add_argument("file", type=Path, metavar="FILE")
    default = "default: id if it exists, else the position and a hash of the content"
    parser.add_argument("--id", metavar=word, help=f"{about}; {default}")
    what = "one is used as the value itself, several (or NAME=) become an object"
    parser.add_argument("--input", action="append", metavar=several, help=f"{about}: {what}; default: input")
    parser.add_argument("--expected", action="append", metavar=several, help="same as --input; default: expected")
    default = "default: case_type if it exists, else =plain"
    parser.add_argument("--case-type", metavar=either, help=f"{about}, or =VALUE for all cases; {default}")
    default = "default: difficulty if it exists, else =medium"
    parser.add_argument("--difficulty", metavar=either, help=f"easy, medium, hard or expert; {default}")
    about = "a list, or a string with commas or semicolons"
    parser.add_argument("--tags", metavar=either, help=f"{about}; default: tags if it exists")
    about = "the source of the expected answer"
    parser.add_argument("--source", metavar=either, help=f"{about}; default: the name of the file")
    about = "the date on which the expected answer was verified, YYYY-MM-DD"
    parser.add_argument("--date", metavar=either, help=f"{about}; default: date if it exists")


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


def _mapping(arguments: argparse.Namespace, columns: Iterable[str] | None) -> ColumnMapping:
    return ColumnMapping(
        id=Column(arguments.id) if arguments.id else None,
        input=parse_columns(arguments.input or ["input"], columns),
        expected=parse_columns(arguments.expected or ["expected"], columns),
        case_type=_column_or_constant(arguments.case_type),
        difficulty=_column_or_constant(arguments.difficulty),
        tags=_column_or_constant(arguments.tags),
        source=_column_or_constant(arguments.source) or Constant(arguments.file.name),
        date=_column_or_constant(arguments.date),
        as_json=frozenset(column.name for column in parse_columns(arguments.as_json, columns)),
        omit_empty=arguments.omit_empty,
    )


def _column_or_constant(text: str | None) -> Column | Constant | None:
    """Parse an option's `COLUMN` or `=VALUE`; None if it isn't set."""
    if not text:
        return None
    return Constant(text[1:].strip()) if text.startswith("=") else Column(text)


def _drafts(
    rows: Iterable[TableRow | SourceFlaw | SourceDoubt], mapping: ColumnMapping, file: Path
) -> Iterator[CaseDraft | SourceFlaw | SourceDoubt]:
    number = 0
    for row in rows:
        number += not isinstance(row, SourceDoubt)
        yield mapping.draft(row, number) if isinstance(row, TableRow) else row
    if not number:
        yield SourceFlaw(place=str(file), message="contains no rows; expected at least one")


def _suite_rules(arguments: argparse.Namespace, mapping: ColumnMapping) -> str:
    import yaml

    from pytest_packbench.packs.generic.suite import RefusalRules

    # keys about refusals are compared by the rules of refusals
    refusal = RefusalRules()
    pointers = [json_pointer([column.key]) for column in mapping.expected if column.key is not None]
    compared = [pointer for pointer in pointers if pointer not in {refusal.expected, refusal.expected_category}]
    criteria = [{"exact": pointer} for pointer in compared]
    rules = {
        "pack": PACK,
        "description": f"imported from {arguments.file.name}",
        "criteria": criteria or [{"exact": ""}],
    }
    return yaml.safe_dump(rules, sort_keys=False, allow_unicode=True) + _TARGET


class _RowError(ValueError):
    """A row that is not a case."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, key or JSON pointer of a table.

    Attributes:
        name: its name in the table.
        key: the key of its value in the case; None if it is the whole value.
    """

    name: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same for all rows."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """Which columns of a row become which parts of a case.

    Attributes:
        id: the column of the id; None: the column `id`, else the position and a hash of input and expected.
        input: one column without a key for the value itself, or the columns of an object.
        expected: likewise.
        case_type: None: the column `case_type`, else `plain`. Characters that a case type can't have become `_`.
        difficulty: None: the column `difficulty`, else `medium`.
        tags: a list, or a string with commas or semicolons; None: the column `tags`, else none.
        source: the source of the expected answer.
        date: the day on which it was true; None: the column `date`, else none.
        as_json: the names of columns whose strings are parsed as JSON.
        omit_empty: whether empty strings are left out of `input` and `expected`.
    """

    id: Column | None
    input: tuple[Column, ...]
    expected: tuple[Column, ...]
    case_type: Column | Constant | None
    difficulty: Column | Constant | None
    tags: Column | Constant | None
    source: Column | Constant
    date: Column | Constant | None
    as_json: frozenset[str]
    omit_empty: bool

    def columns_by_option(self) -> dict[str, list[str]]:
        """Return the names of the columns that each option requests."""
        options = {
            "--id": self.id,
            "--case-type": self.case_type,
            "--difficulty": self.difficulty,
            "--tags": self.tags,
            "--source": self.source,
            "--date": self.date,
        }
        return {
            **{option: [column.name] for option, column in options.items() if isinstance(column, Column)},
            "--input": [column.name for column in self.input],
            "--expected": [column.name for column in self.expected],
            "--json": sorted(self.as_json),
        }

    def draft(self, row: TableRow, number: int) -> CaseDraft | SourceFlaw:
        """Return the draft of a row's case, or why it is not a case.

        Args:
            row: the row.
            number: its position in the table, from 1; ids that the table does not give begin with it.
        """
        try:
            case = self._case(row)
            content = "" if "id" in case else canonical_sha256([case["input"], case["expected"]])[:_CONTENT_HASH]
            named = {"id": f"row_{number:05}_{content}", **case} if content else case
            return CaseDraft(place=row.location, case=named, content=content)
        except _RowError as error:
            return SourceFlaw(place=row.location, message=str(error))

    def _case(self, row: TableRow) -> dict[str, Any]:
        case_id = self._id(row)
        case_input = self._combined(self.input, row, "input")
        if case_input in (None, {}, []):
            raise _RowError(f"the input is empty: {format_value(case_input)}; add a value, or remove the row")
        expected = self._combined(self.expected, row, "expected value")
        if expected in (None, {}):
            raise _RowError(f"the expected value is empty: {format_value(expected)}; add a value, or remove the row")
        case_type = self._text(self.case_type or _default("case_type", row, "plain"), row, "case type")
        difficulty = self._text(self.difficulty or _default("difficulty", row, "medium"), row, "difficulty")
        return {
            **({"id": case_id} if case_id else {}),
            "pack_id": PACK,
            "case_type": _case_type(case_type),
            "difficulty": _difficulty(difficulty),
            "input": case_input,
            "expected": expected,
            "notes": self._notes(row),
        }

    def _notes(self, row: TableRow) -> dict[str, Any]:
        source = self._text(self.source, row, "source")
        if not source:
            raise _RowError("the source is empty; add a value, or pass --source =TEXT")
        day = self._text(self.date or _default("date", row, ""), row, "date")
        if day and not _is_date(day):
            raise _RowError(f"the date is {format_value(day)}; expected a day of the calendar, YYYY-MM-DD")
        notes = {
            "source": source,
            "date": day,
            "tags": _tags(self._value(self.tags or _default("tags", row, ""), row)),
        }
        return {key: value for key, value in notes.items() if value}

    def _id(self, row: TableRow) -> str:
        """Return the id that the table gives; empty if it has no ids."""
        column = self.id or _default("id", row, "")
        if isinstance(column, Constant):
            return ""
        text = self._text(column, row, "id")
        if not text:
            raise _RowError(f'the id is empty; add a value in "{column.name}"')
        return case_id(text)

    def _combined(self, columns: Sequence[Column], row: TableRow, what: str) -> Any:
        """Return the value of a case's `input` or `expected`; empty strings are refused unless they are left out."""
        values = {column.key or column.name: self._cell(column.name, row) for column in columns}
        for column, value in zip(columns, values.values(), strict=True):
            if isinstance(value, str) and not value.strip():
                advice = "add a value, or remove the row" if len(columns) == 1 else "add a value, or pass --omit-empty"
                raise _RowError(f'the {what} is empty at "{column.name}"; {advice}')
        present = {key: value for key, value in values.items() if value is not MISSING}
        if len(columns) == 1 and columns[0].key is None:
            return next(iter(present.values()), None)
        return present

    def _value(self, column: Column | Constant, row: TableRow) -> Any:
        if isinstance(column, Constant):
            return column.text
        value = self._cell(column.name, row)
        return "" if value is MISSING else value

    def _cell(self, name: str, row: TableRow) -> Any:
        is_pointer = name.startswith("/") and name not in row.values
        value = compile_path(name).find(row.values) if is_pointer else row.values.get(name, MISSING)
        if value is MISSING:
            raise _RowError(f'"{name}" is missing; keys in this row: {", ".join(row.values)}')
        if value == "" and self.omit_empty:
            return MISSING
        return _parse_cell(name, value) if name in self.as_json else value

    def _text(self, column: Column | Constant, row: TableRow, what: str) -> str:
        value = self._value(column, row)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _RowError(f"the {what} is {format_value(value)}; expected a string or a number")
        return str(value).strip()


def _default(name: str, row: TableRow, text: str) -> Column | Constant:
    return Column(name) if name in row.values else Constant(text)


def parse_columns(values: Sequence[str], columns: Iterable[str] | None) -> tuple[Column, ...]:
    """Parse the values of `--input` and `--expected`: `COLUMN`, `COLUMN,COLUMN`, `KEY=COLUMN`.

    Args:
        values: the option's values, in order.
        columns: the names of the columns, which may contain commas and `=`; None if rows may differ.

    Returns:
        The columns. A single one without a key is the whole value; of several, the key is the name, or the last part
        of a JSON pointer.
    """
    names = frozenset(columns or ())
    parts = [part for text in values for part in ([text] if text in names else text.split(","))]
    parsed = [_column(part.strip(), names) for part in parts if part.strip()]
    if len(parsed) == 1:
        return tuple(parsed)
    return tuple(Column(column.name, column.key or column.name.rpartition("/")[2] or column.name) for column in parsed)


def _column(text: str, names: frozenset[str]) -> Column:
    if text in names or "=" not in text:
        return Column(text)
    key, _, name = text.partition("=")
    return Column(name.strip(), key.strip())


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


def _difficulty(text: str) -> str:
    if text.lower() not in _DIFFICULTIES:
        raise _RowError(f"the difficulty is {format_value(text)}; expected one of {', '.join(_DIFFICULTIES)}")
    return text.lower()


def _tags(value: Any) -> list[str]:
    tags = _TAG_SEPARATOR.split(value) if isinstance(value, str) else [] if value is None else value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise _RowError(f"the tags are {format_value(value)}; expected a list of strings, or a string with commas")
    return list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))


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
