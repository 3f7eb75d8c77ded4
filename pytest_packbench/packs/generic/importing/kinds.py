"""The kinds of `packbench import` for tables: `csv` and `jsonl`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_packbench.model.pack import Flaw, Importer
from pytest_packbench.packs.generic.importing.mapping import PACK, Column, Fixed, Mapped, columns_of, given_of, require
from pytest_packbench.packs.generic.importing.sources import TAB, CsvForm, csv_header, csv_rows, jsonl_rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_packbench.model.pack import Draft
    from pytest_packbench.packs.generic.importing.mapping import Given
    from pytest_packbench.packs.generic.importing.sources import Row

_TARGET = "\n# the pipeline under test\n# target: package.module:function\n"


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

    def read(self, arguments: argparse.Namespace) -> Iterator[Draft | Flaw]:
        """Give a draft a row.

        Raises:
            ValueError: the file can't be read as CSV, or has no such columns.
            OSError: it can't be read.
        """
        form = _form(arguments)
        known = csv_header(_file(arguments), form)
        mapped = _mapped(arguments, known)
        for option, columns in _asked(mapped).items():
            require(columns, known, arguments.file, option)
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

    def read(self, arguments: argparse.Namespace) -> Iterator[Draft | Flaw]:
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
    return given_of(text) if text else None


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


def _drafts(rows: Iterable[Row | Flaw], mapped: Mapped) -> Iterator[Draft | Flaw]:
    for row in rows:
        yield row if isinstance(row, Flaw) else mapped.draft(row)


def _rules(arguments: argparse.Namespace, mapped: Mapped) -> str:
    import yaml

    from pytest_packbench.model.errors import pointer_of
    from pytest_packbench.packs.generic.model import Refusal

    # what tells of a due refusal is compared by the rules of refusals
    usual = Refusal()
    pointers = [pointer_of([one.key]) for one in mapped.expected if one.key is not None]
    compared = [one for one in pointers if one not in {usual.expected, usual.expected_category}]
    criteria: list[str | dict[str, str]] = [{"exact": one} for one in compared]
    rules = {
        "pack": PACK,
        "description": f"imported from {arguments.file.name}",
        "criteria": criteria or ["exact"],
    }
    return yaml.safe_dump(rules, sort_keys=False, allow_unicode=True) + _TARGET
