"""`packbench import csv` and `packbench import jsonl`: rows of tables as generic cases."""

from __future__ import annotations

import csv
import re
from abc import abstractmethod
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pytest_packbench.cases.load import parse_json
from pytest_packbench.files import CASE, LIMITS, canonical_sha256, read_regular
from pytest_packbench.model.authoring import CaseDraft, Importer, SourceDoubt, SourceFlaw, case_id
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
_DELIMITER_LINE = re.compile("sep=.?", re.IGNORECASE)
_DOUBTS = {
    "the blanks around it are kept": re.compile(r"\s.*|.*\s", re.DOTALL),
    "an error of a spreadsheet": re.compile(r"#[A-Z/0]+[!?]|#N/A|#GETTING_DATA|#+|Err:[0-9]{3}"),
    "a number that a spreadsheet shortened": re.compile(r"[+-]?[0-9]+([.,][0-9]+)?E[+-][0-9]{2,}"),
}
# what a case has beside input and expected: in the column of that name if there is one, else this value
_DEFAULTS = {"id": "", "case_type": "plain", "difficulty": "medium", "tags": "", "source": "", "date": ""}


class _Row(NamedTuple):
    """One row of a table.

    Attributes:
        place: `FILE:LINE` of its first line, or `FILE[INDEX]` of a member of a JSON list, from 0.
        values: its values by column or key; of a JSON list whatever stands there.
    """

    place: str
    values: Any


class _RowError(ValueError):
    """A row that is not a case."""


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
    as_json: tuple[str, ...]
    omit_empty: bool


class _Table(Importer):
    """Rows of a table, each a case.

    Attributes:
        is_doubted: whether a spreadsheet may have changed its values.
        column: what a column is called in it, for the help of the options.
        columns: how one is named.
    """

    is_doubted: ClassVar[bool]
    column: ClassVar[str]
    columns: ClassVar[str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file, and what is in which column."""
        word, about = self.column, self.columns
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
        parser.set_defaults(as_json=[], omit_empty=False)

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceFlaw | SourceDoubt]:
        """Yield one draft per row, and a doubt after a row with values that may not be what its author wrote.

        Raises:
            ValueError: the file isn't such a table, or a requested column is missing.
            OSError: it can't be read.
        """
        columns, number = _columns(arguments), 0
        for number, row in enumerate(self.rows(arguments, columns), start=1):
            if isinstance(row, SourceFlaw):
                yield row
                continue
            try:
                yield _draft(row, number, columns)
            except _RowError as error:
                yield SourceFlaw(place=row.place, message=str(error))
            else:
                yield from _doubts(row, columns) if self.is_doubted else ()
        if not number:
            yield SourceFlaw(place=str(arguments.file), message="contains no rows; expected at least one")

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Return the rules of a new suite: the expected columns, compared for equality."""
        import yaml

        # the keys of refusals are compared by the rules of refusals
        keys = [key for key in _columns(arguments).expected if key not in {"", "refuse", "category"}]
        criteria = [{"exact": json_pointer([key])} for key in keys] or [{"exact": ""}]
        rules = {"pack": GENERIC, "description": f"imported from {arguments.file.name}", "criteria": criteria}
        return {"suite.yaml": yaml.safe_dump(rules, sort_keys=False, allow_unicode=True) + _TARGET}

    @abstractmethod
    def rows(self, arguments: argparse.Namespace, columns: _Columns) -> Iterator[_Row | SourceFlaw]:
        """Yield the rows, and a flaw for what is none."""


class Csv(_Table):
    """Rows of a CSV file; cells are strings."""

    name = "csv"
    help = "rows of a CSV file, whose first line names the columns"
    is_doubted = True
    column = "COLUMN"
    columns = "a column"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file, its format, and the columns."""
        super().add_arguments(parser)
        what = "whose cells contain JSON: numbers, true, null, lists; other cells are strings"
        about = f"a column (or several, separated by commas) {what}"
        parser.add_argument("--json", dest="as_json", action="append", default=[], metavar="COLUMN", help=about)
        about = "leave empty cells out of input and expected"
        parser.add_argument("--omit-empty", action="store_true", help=about)
        about = f"the character between cells (default: a comma), or the word {TAB}"
        parser.add_argument("--delimiter", default=",", metavar="CHAR", help=about)
        parser.add_argument("--encoding", default="utf-8", help="the encoding of the file (default: utf-8)")

    def rows(self, arguments: argparse.Namespace, columns: _Columns) -> Iterator[_Row | SourceFlaw]:
        """Yield the rows below the header, without those that have no text.

        Raises:
            ValueError: the file is empty, lacks a column, has one twice, or isn't in this format.
            OSError: it can't be read.
        """
        records = _records(arguments)
        place, cells = next(records, (str(arguments.file), []))
        if isinstance(cells, str):
            raise ValueError(f"{place}: {cells}")  # noqa: TRY004 - what is wrong with the first line
        names = [cell.strip() for cell in cells]
        others = {text for text in columns.others.values() if text and not text.startswith("=")}
        used = {*columns.input.values(), *columns.expected.values(), *columns.as_json, *others}
        for name in sorted(used.union(filter(None, names))):
            if (count := names.count(name)) != 1:
                wrong = f'expected one column "{name}", got {count} of them among: {", ".join(names)}'
                raise ValueError(f"{place}: {wrong}; name another one in its option, or pass --delimiter")
        for place, cells in records:
            if isinstance(cells, str):
                yield SourceFlaw(place=place, message=cells)
            elif len(cells) == len(names):
                yield _Row(place, {name: cell for name, cell in zip(names, cells, strict=True) if name})
            else:
                counts = f"{pluralize(len(cells), 'cell')}, but {len(names)} in the header"
                hint = "quote cells that contain a delimiter or a line end"
                yield SourceFlaw(place=place, message=f"{counts}; {hint}")


class Jsonl(_Table):
    """Objects of a JSON Lines file, or of a JSON list; values keep their types."""

    name = "jsonl"
    help = "objects of a JSON Lines file, one per line, or of a JSON list"
    is_doubted = False
    column = "KEY"
    columns = "a key, or a JSON pointer such as /messages/0/text"

    def rows(self, arguments: argparse.Namespace, columns: _Columns) -> Iterator[_Row | SourceFlaw]:  # noqa: ARG002 - of any keys
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
                raise ValueError(f"{path}: {error}; expected a JSON list, or one object per line") from None
            yield from (_Row(f"{path}[{index}]", value) for index, value in enumerate(members))
            return
        for number, line in enumerate(raw.split(b"\n"), start=1):
            place = f"{path}:{number}"
            try:
                if line.strip():
                    yield _Row(place, parse_json(line))
            except ValueError as error:
                yield SourceFlaw(place=place, message=str(error).removeprefix("line 1 "))


def _records(arguments: argparse.Namespace) -> Iterator[tuple[str, list[str] | str]]:
    """Yield the place of each record of a CSV file (RFC 4180) that has text, and its cells, or why it is none."""
    path, delimiter = arguments.file, "\t" if arguments.delimiter == TAB else arguments.delimiter
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ValueError(f'--delimiter: got "{delimiter}"; expected one character, or the word {TAB}')
    raw = read_regular(path, LIMITS["import"])
    try:
        text = raw.decode(arguments.encoding).removeprefix(_BOM)
    except LookupError:
        raise ValueError(f'unknown encoding "{arguments.encoding}"; expected a name such as utf-8 or cp1252') from None
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
                yield place, f"invalid CSV: {error}; look for an unclosed quote"
                continue
            is_first = reader.line_num == 1
            if any(map(str.strip, cells)) and not (is_first and _DELIMITER_LINE.fullmatch(delimiter.join(cells))):
                yield place, cells
    except StopIteration:
        return
    finally:
        csv.field_size_limit(previous_limit)


def _columns(arguments: argparse.Namespace) -> _Columns:
    others = {name: getattr(arguments, name) or "" for name in _DEFAULTS}
    return _Columns(
        input=_by_key(arguments.input or ["input"]),
        expected=_by_key(arguments.expected or ["expected"]),
        others={**others, "source": others["source"] or f"={arguments.file.name}"},
        as_json=tuple(_by_key(arguments.as_json).values()),
        omit_empty=arguments.omit_empty,
    )


def _by_key(texts: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--input` and `--expected`: `COLUMN`, `COLUMN,COLUMN`, `KEY=COLUMN`.

    Returns:
        The columns by their keys. A single one without a key is the whole value; of several, the key is the name, or
        the last part of a JSON pointer.
    """
    parts = [part.rpartition("=") for part in ",".join(texts).split(",") if part.strip()]
    pairs = [(key.strip(), name.strip()) for key, _, name in parts]
    return dict(pairs) if len(pairs) == 1 else {key or name.rpartition("/")[2] or name: name for key, name in pairs}


def _draft(row: _Row, number: int, columns: _Columns) -> CaseDraft:
    """Return the draft of a row's case, whose parts are checked with the case.

    Args:
        row: the row.
        number: its position in the table, from 1; ids that the table does not give begin with it.
        columns: what is in which column.

    Raises:
        _RowError: it is not a case.
    """
    if not isinstance(row.values, dict):
        raise _RowError(f"got {format_value(row.values)}; expected a JSON object")
    given = {name: _given(row, columns, name) for name in _DEFAULTS}
    given_id, tags = given["id"], given["tags"]
    if not given_id and (columns.others["id"] or "id" in row.values):
        raise _RowError("the id is empty; add a value, or name another column in --id")
    if isinstance(tags, str):
        tags = list(dict.fromkeys(filter(None, map(str.strip, _TAG_SEPARATOR.split(tags)))))
    notes = {"source": given["source"], "date": given["date"] or None, "tags": tags or None}
    parts = {
        "input": _combined(row, columns, columns.input, "input"),
        "expected": _combined(row, columns, columns.expected, "expected value"),
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


def _given(row: _Row, columns: _Columns, name: str) -> Any:
    """Return what a row, or an option, says of something that a case has beside input and expected."""
    text = columns.others[name]
    if text.startswith("="):
        value: Any = text[1:]
    elif text or name in row.values:
        value = _cell(row, columns, text or name)
    else:
        value = _DEFAULTS[name]
    if name == "tags" and not isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _RowError(f"the {name} is {format_value(value)}; expected a string or a number")
    return str(value).strip()


def _combined(row: _Row, columns: _Columns, parts: Mapping[str, str], what: str) -> Any:
    """Return the value of a case's `input` or `expected`; empty strings are refused unless they are left out."""
    values = {key: _cell(row, columns, name) for key, name in parts.items()}
    present = {key: value for key, value in values.items() if not (value == "" and columns.omit_empty)}
    for key, value in present.items():
        if isinstance(value, str) and not value.strip():
            raise _RowError(f'the {what} is empty at "{parts[key]}"; add a value, remove the row, or leave it out')
    combined = present.get("") if "" in parts else present
    if combined in (None, {}) or (combined == [] and what == "input"):
        raise _RowError(f"the {what} is empty: {format_value(combined)}; add a value, or remove the row")
    return combined


def _cell(row: _Row, columns: _Columns, name: str) -> Any:
    """Return the value in a column, parsed if it is one of JSON."""
    is_pointer = name.startswith("/") and name not in row.values
    value = compile_path(name).find(row.values) if is_pointer else row.values.get(name, MISSING)
    if value is MISSING:
        raise _RowError(f'"{name}" is missing; keys in this row: {", ".join(row.values)}')
    if not isinstance(value, str) or name not in columns.as_json or (value == "" and columns.omit_empty):
        return value
    try:
        return parse_json(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        wrong = f'the column "{name}" is not JSON: {format_value(value)}'
        raise _RowError(f"{wrong}; put strings in double quotes, write null, or pass --omit-empty") from None


def _doubts(row: _Row, columns: _Columns) -> Iterator[SourceDoubt]:
    """Yield why cells of input and expected may not be what their author wrote."""
    for name in (*columns.input.values(), *columns.expected.values()):
        cell = row.values[name]
        read = cell.strip() if name in columns.as_json else cell
        for reason, pattern in _DOUBTS.items():
            if pattern.fullmatch(read):
                message = f"{format_value(name)} is {format_value(cell)}: {reason}"
                yield SourceDoubt(place=row.place, message=message)
