"""`packbench import csv` and `packbench import jsonl`: rows of tables as generic cases; which column becomes what."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pytest_packbench.cases.load import parse_json
from pytest_packbench.model.case import CASE_ID, Difficulty, canonical_sha256
from pytest_packbench.model.errors import format_value, json_pointer
from pytest_packbench.model.pack import CaseDraft, Importer, SourceFlaw
from pytest_packbench.packs.generic.tables import TAB, CsvForm, csv_header, csv_rows, jsonl_rows
from pytest_packbench.packs.generic.values import MISSING, compile_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.packs.generic.tables import Row

PACK = "generic"
_TARGET = "\n# the pipeline under test\n# target: package.module:function\n"
_LONGEST_ID = 120
_LONGEST_TYPE = 80
_HASH = 16
_SHORT_HASH = 8
_TAGS = re.compile(r"[,;]")
_DIFFICULTIES = get_args(Difficulty)


class Csv(Importer):
    """Rows of a CSV file; what stands in a cell is text."""

    name = "csv"
    help = "rows of a CSV file, whose first line names the columns"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file, its form, and the columns."""
        _add_columns(parser, "COLUMN", "a column")
        about = (
            "a column (or several, with commas) whose cells hold JSON: numbers, true, null, lists; else they are text"
        )
        parser.add_argument("--json", dest="as_json", action="append", default=[], metavar="COLUMN", help=about)
        about = "leave empty cells out of input and expected"
        parser.add_argument("--omit-empty", action="store_true", help=about)
        about = f"the character between cells (default a comma), or the word {TAB}"
        parser.add_argument("--delimiter", default=",", metavar="CHAR", help=about)
        parser.add_argument("--encoding", default="utf-8", help="the file's encoding (default utf-8)")

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceFlaw]:
        """Give a draft a row.

        Raises:
            ValueError: the file can't be read as CSV, or has no such columns.
            OSError: it can't be read.
        """
        form = _form(arguments)
        known = csv_header(_file(arguments), form)
        mapped = _mapped(arguments, known)
        for option, columns in _asked(mapped).items():
            for name in columns:
                if name not in known:
                    wrong = f'{arguments.file}: no column is called "{name}"; name another with {option}'
                    raise ValueError(f"{wrong}; columns: {', '.join(known)}")
        return _drafts(csv_rows(arguments.file, form), mapped)

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Give the rules of a new suite: the expected columns, compared exactly."""
        return {"suite.yaml": _rules(arguments, _mapped(arguments, csv_header(_file(arguments), _form(arguments))))}


class Jsonl(Importer):
    """Objects of a JSON Lines file; values stay what they are."""

    name = "jsonl"
    help = "objects of a JSON Lines file, one a line"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file and the keys."""
        _add_columns(parser, "KEY", "a key, or a JSON pointer such as /messages/0/text")
        parser.set_defaults(as_json=[], omit_empty=False)

    def read(self, arguments: argparse.Namespace) -> Iterator[CaseDraft | SourceFlaw]:
        """Give a draft a line.

        Raises:
            ValueError: the file can't be read as JSON Lines.
            OSError: it can't be read.
        """
        return _drafts(jsonl_rows(_file(arguments)), _mapped(arguments, None))

    def files(self, arguments: argparse.Namespace) -> Mapping[str, str]:
        """Give the rules of a new suite: the expected keys, compared exactly."""
        return {"suite.yaml": _rules(arguments, _mapped(arguments, None))}


def _add_columns(parser: argparse.ArgumentParser, word: str, about: str) -> None:
    several = f"{word}[,{word}] or NAME={word}"
    either = f"{word} or =VALUE"
    what = "alone it is the value, several (or NAME=) make an object"
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "--id", metavar=word, help=f"{about}; default: id where there is one, else a hash of the content"
    )
    parser.add_argument("--input", action="append", metavar=several, help=f"{about}: {what}; default: input")
    parser.add_argument("--expected", action="append", metavar=several, help="likewise; default: expected")
    default = "default: case_type where there is one, else =plain"
    parser.add_argument("--case-type", metavar=either, help=f"{about}, or a value for all; {default}")
    default = "default: difficulty where there is one, else =medium"
    parser.add_argument("--difficulty", metavar=either, help=f"easy, medium, hard or expert; {default}")
    default = "default: tags where there is one"
    parser.add_argument("--tags", metavar=either, help=f"a list, or a text with commas or semicolons; {default}")
    default = "default: the file's name"
    parser.add_argument("--source", metavar=either, help=f"where the expected answer comes from; {default}")
    default = "default: date where there is one"
    parser.add_argument("--date", metavar=either, help=f"the day on which the answer was true, YYYY-MM-DD; {default}")


def _file(arguments: argparse.Namespace) -> Path:
    path: Path = arguments.file
    # what can be read once only would be checked and then not be written
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: expected a file")
    return path


def _form(arguments: argparse.Namespace) -> CsvForm:
    delimiter: str = arguments.delimiter
    if delimiter != TAB and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(f'--delimiter: got "{delimiter}"; expected one character, or the word {TAB}')
    return CsvForm(delimiter=delimiter, encoding=arguments.encoding)


def _mapped(arguments: argparse.Namespace, known: Iterable[str] | None) -> Mapped:
    return Mapped(
        id=Column(arguments.id) if arguments.id else None,
        input=columns_of(arguments.input or ["input"], known),
        expected=columns_of(arguments.expected or ["expected"], known),
        case_type=_given(arguments.case_type),
        difficulty=_given(arguments.difficulty),
        tags=_given(arguments.tags),
        source=_given(arguments.source) or Fixed(arguments.file.name),
        date=_given(arguments.date),
        as_json=frozenset(one.name for one in columns_of(arguments.as_json, known)),
        omit_empty=arguments.omit_empty,
    )


def _given(text: str | None) -> Given | None:
    """Read what an option of a column or a value says: `COLUMN`, or `=VALUE`; None where it isn't given."""
    if not text:
        return None
    return Fixed(text[1:].strip()) if text.startswith("=") else Column(text)


def _asked(mapped: Mapped) -> dict[str, list[str]]:
    single = {
        "--id": mapped.id,
        "--case-type": mapped.case_type,
        "--difficulty": mapped.difficulty,
        "--tags": mapped.tags,
        "--source": mapped.source,
        "--date": mapped.date,
    }
    return {
        **{option: [one.name] for option, one in single.items() if isinstance(one, Column)},
        "--input": [one.name for one in mapped.input],
        "--expected": [one.name for one in mapped.expected],
        "--json": sorted(mapped.as_json),
    }


def _drafts(rows: Iterable[Row | SourceFlaw], mapped: Mapped) -> Iterator[CaseDraft | SourceFlaw]:
    for row in rows:
        yield row if isinstance(row, SourceFlaw) else mapped.draft(row)


def _rules(arguments: argparse.Namespace, mapped: Mapped) -> str:
    import yaml

    from pytest_packbench.packs.generic.model import Refusal

    # what tells of a due refusal is compared by the rules of refusals
    usual = Refusal()
    pointers = [json_pointer([one.key]) for one in mapped.expected if one.key is not None]
    compared = [one for one in pointers if one not in {usual.expected, usual.expected_category}]
    criteria: list[str | dict[str, str]] = [{"exact": one} for one in compared]
    rules = {"pack": PACK, "description": f"imported from {arguments.file.name}", "criteria": criteria or ["exact"]}
    return yaml.safe_dump(rules, sort_keys=False, allow_unicode=True) + _TARGET


class _RowError(ValueError):
    """What is wrong with one row."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column (or key, or JSON pointer), and the key of its value in the case; None where it stands for the whole."""

    name: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value that is the same for all rows."""

    text: str


Given = Column | Fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """How a row becomes a case.

    Attributes:
        id: where the id comes from; None for the column `id`, else the hash of input and expected.
        input: one column without a key for the value itself, else an object of keys.
        expected: likewise.
        case_type: the case type; None for the column `case_type`, else `plain`. What it can't hold becomes `_`.
        difficulty: None for the column `difficulty`, else `medium`.
        tags: a list, or a text with commas or semicolons; None for the column `tags`, else none.
        source: where the expected answer comes from.
        date: the day on which it was true; None for the column `date`, else none.
        as_json: columns of text that hold JSON.
        omit_empty: whether an empty text is left out of `input` and `expected`.
    """

    id: Column | None
    input: tuple[Column, ...]
    expected: tuple[Column, ...]
    case_type: Given | None
    difficulty: Given | None
    tags: Given | None
    source: Given
    date: Given | None
    as_json: frozenset[str]
    omit_empty: bool

    def draft(self, row: Row) -> CaseDraft | SourceFlaw:
        """Make the draft of a case of a row."""
        try:
            return CaseDraft(place=row.place, case=self._case(row))
        except _RowError as error:
            return SourceFlaw(place=row.place, message=str(error))

    def _case(self, row: Row) -> dict[str, Any]:
        given = self._of(self.input, row)
        expected = self._of(self.expected, row)
        case_type = self._text(self.case_type or _default("case_type", row, "plain"), row, "case type")
        difficulty = self._text(self.difficulty or _default("difficulty", row, "medium"), row, "difficulty")
        return {
            "id": self._id(row, given, expected),
            "pack_id": PACK,
            "case_type": _case_type(case_type),
            "difficulty": _difficulty(difficulty),
            "input": given,
            "expected": expected,
            "notes": self._notes(row),
        }

    def _notes(self, row: Row) -> dict[str, Any]:
        found = {
            "source": self._text(self.source, row, "source"),
            "date": self._text(self.date or _default("date", row, ""), row, "date"),
            "tags": _tags(self._one(self.tags or _default("tags", row, ""), row)),
        }
        return {key: value for key, value in found.items() if value}

    def _id(self, row: Row, given: Any, expected: Any) -> str:
        column = self.id or _default("id", row, "")
        if isinstance(column, Fixed):
            return f"case_{canonical_sha256([given, expected])[:_HASH]}"
        text = self._text(column, row, "id")
        if not text:
            raise _RowError(f'the id is empty; fill the column "{column.name}"')
        return case_id(text)

    def _of(self, columns: Sequence[Column], row: Row) -> Any:
        if len(columns) == 1 and columns[0].key is None:
            return self._one(columns[0], row)
        found = {one.key or one.name: self._value(one.name, row) for one in columns}
        return {key: value for key, value in found.items() if value is not MISSING}

    def _one(self, given: Given, row: Row) -> Any:
        if isinstance(given, Fixed):
            return given.text
        value = self._value(given.name, row)
        return "" if value is MISSING else value

    def _value(self, name: str, row: Row) -> Any:
        is_pointer = name.startswith("/") and name not in row.values
        value = compile_path(name).find(row.values) if is_pointer else row.values.get(name, MISSING)
        if value is MISSING:
            raise _RowError(f'has no "{name}"; keys here: {", ".join(row.values)}')
        if value == "" and self.omit_empty:
            return MISSING
        return _parsed(name, value) if name in self.as_json else value

    def _text(self, given: Given, row: Row, what: str) -> str:
        value = self._one(given, row)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _RowError(f"the {what} is {format_value(value)}; expected a text or a number")
        return str(value).strip()


def _default(name: str, row: Row, text: str) -> Given:
    return Column(name) if name in row.values else Fixed(text)


def columns_of(given: Sequence[str], known: Iterable[str] | None) -> tuple[Column, ...]:
    """Read what `--input` and `--expected` say: `COLUMN`, `COLUMN,COLUMN`, `KEY=COLUMN`.

    Args:
        given: the option's values, in order.
        known: the columns; None where rows may differ. A name that is one of them is taken whole, whatever is in it.

    Returns:
        The columns. One that is given alone and without a key stands for the whole; of several, and of a JSON pointer
        among several, the last name is the key.
    """
    names = frozenset(known or ())
    parts = [part for text in given for part in ([text] if text in names else text.split(","))]
    found = [_column(part.strip(), names) for part in parts if part.strip()]
    if len(found) == 1:
        return tuple(found)
    return tuple(Column(one.name, one.key or one.name.rpartition("/")[2] or one.name) for one in found)


def _column(text: str, names: frozenset[str]) -> Column:
    if text in names or "=" not in text:
        return Column(text)
    key, _, name = text.partition("=")
    return Column(name.strip(), key.strip())


def case_id(text: str) -> str:
    """Make an id of a case, which is also the name of its file, of any text that isn't empty.

    Returns:
        The text itself where it can be an id. Else what is left of it in ASCII, `_` for the rest; with a part of its
        hash where letters were lost or it was too long, so that different texts stay different.
    """
    if len(text) <= _LONGEST_ID and re.fullmatch(CASE_ID, text):
        return text
    plain = unicodedata.normalize("NFKD", text)
    kept = "".join(char for char in plain if not unicodedata.combining(char))
    word = re.sub(r"[^A-Za-z0-9_-]+", "_", kept).strip("_-")
    lost = any(char.isalnum() and not char.isascii() for char in kept)
    if word and not lost and len(word) <= _LONGEST_ID:
        return word
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT_HASH]
    return f"{word[: _LONGEST_ID - _SHORT_HASH - 1]}_{mark}" if word else f"case_{mark}"


def _case_type(text: str) -> str:
    word = re.sub(r"[^a-z0-9_-]+", "_", text.lower()).strip("_-")[:_LONGEST_TYPE]
    if not word:
        raise _RowError(f"the case type is {format_value(text)}; expected a word of letters and digits")
    return word


def _difficulty(text: str) -> str:
    if text.lower() not in _DIFFICULTIES:
        raise _RowError(f"the difficulty is {format_value(text)}; expected one of {', '.join(_DIFFICULTIES)}")
    return text.lower()


def _tags(value: Any) -> list[str]:
    tags = _TAGS.split(value) if isinstance(value, str) else [] if value is None else value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise _RowError(f"the tags are {format_value(value)}; expected a list of texts, or a text with commas")
    return list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))


def _parsed(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise _RowError(f'the column "{name}" is empty; expected JSON, such as null, or pass --omit-empty')
    try:
        return parse_json(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        raise _RowError(
            f'the column "{name}" is {format_value(value)}, no JSON; text stands in double quotes'
        ) from None
