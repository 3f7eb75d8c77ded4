"""Read the tariff schedule as its publisher exports it: codes, descriptions and duty rates.

Three properties of the export need care. A legal line is either a row of 8 digits, or a row of 10 digits that ends in
`00` and has the rate itself. A rate is given on one row of a branch and applies to all rows below it. The text of a row
without a code belongs to all rows below it.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, Self

from pytest_packbench.files import LIMITS, format_size, read_regular
from pytest_packbench.model.errors import InputError, Problem
from pytest_packbench.packs.tariff.edition import parse_percentage
from pytest_packbench.packs.tariff.notation import LEVELS, digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

Basis = Literal["free", "ad valorem", "specific", "compound"]

_LIMIT = LIMITS["schedule"]
_GZIP = b"\x1f\x8b"
_FULL = 10
_LEGAL = 8
_BARE_SUFFIX = "00"
# codes of chapters 98 and 99 are reported in addition to a code, never instead of one
_LAST_CHAPTER = "97"
_FIELDS = {
    "code": ("htsno", "HTS Number"),
    "indent": ("indent", "Indent"),
    "description": ("description", "Description"),
    "general": ("general", "General Rate of Duty"),
    "special": ("special", "Special Rate of Duty"),
}
# a preferential rate and the programmes that give it: "Free (A+,AU,BH) 2.8% (JP)"
_PREFERENCE = re.compile(r"([^()]+)\([^()]*\)")
_AMOUNT = re.compile(r"[$¢]|\bcents?\b")


class ScheduleError(InputError):
    """A file can't be read as a tariff schedule."""


@dataclass(frozen=True, slots=True)
class DutyRate:
    """A rate of duty.

    Attributes:
        text: the rate as the schedule prints it.
        basis: its kind; None where the text refers to another provision or is not a rate.
        pct: percent of value; None unless free or ad valorem.
    """

    text: str
    basis: Basis | None
    pct: float | None


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A row of the schedule.

    Attributes:
        code: its digits; empty where the row only groups the rows below it.
        indent: its depth in the outline.
        description: its own text.
        general: the general rate as printed; empty where it is inherited.
        special: the preferential rates as printed; empty where they are inherited.
    """

    code: str
    indent: int
    description: str
    general: str
    special: str = ""


@dataclass(frozen=True, slots=True)
class TariffLine:
    """A code of ten digits that goods can be entered under.

    Attributes:
        code: its digits.
        texts: the descriptions from its heading down to its own row.
    """

    code: str
    texts: tuple[str, ...]


class Schedule:
    """One edition of the schedule.

    Attributes:
        rows: its rows in their order.
    """

    def __init__(self, rows: Iterable[ScheduleRow]) -> None:
        self.rows = tuple(rows)
        self._by_code = {row.code: row for row in self.rows if row.code}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file: JSON, or CSV or TSV with a header line; each may be compressed by gzip.

        Raises:
            ScheduleError: the file is none of these, or a row lacks a column.
            OSError: the file can't be read.
        """
        try:
            raw = read_regular(path, _LIMIT)
            text = (_decompressed(raw) if raw.startswith(_GZIP) else raw).decode("utf-8-sig")
            return cls([_parse_row(record) for record in _records(text)])
        except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile, zlib.error, csv.Error) as error:
            wrong = f"not a tariff schedule: {type(error).__name__}: {error}"
            advice = "expected the publisher's JSON or CSV export, or a table with the same columns"
            raise ScheduleError(str(path), [Problem("", wrong, advice)]) from None

    def lookup(self, code: str) -> ScheduleRow | None:
        """Return the row of a code; a line without suffixes matches its 8 digits and its 10 digits ending in 00."""
        plain = digits(code)
        row = self._by_code.get(plain)
        if row is None and len(plain) == _LEGAL:
            return self._by_code.get(plain + _BARE_SUFFIX)
        if row is None and len(plain) == _FULL and plain.endswith(_BARE_SUFFIX):
            return self._by_code.get(plain[:_LEGAL]) if plain[:_LEGAL] not in self._with_suffixes else None
        return row

    def exists(self, code: str) -> bool:
        """Return whether a code is in the schedule, as a row or as the prefix of rows."""
        plain = digits(code)
        return bool(plain) and self.depth(plain) == len(plain)

    def depth(self, code: str) -> int:
        """Return how many leading digits of a code are in the schedule: 0, 2, 4, 6, 8 or 10."""
        plain = digits(code)
        return max((level for level in LEVELS if level <= len(plain) and self._contains(plain[:level])), default=0)

    def rate(self, code: str) -> DutyRate | None:
        """Return the general rate of a code: its own row's, or the nearest one above it.

        Returns:
            None where no row above has a rate, as for a heading with several rates below it.
        """
        return next((parse_rate(row.general) for row in self._row_and_ancestors(code) if row.general), None)

    def preferences(self, code: str) -> tuple[DutyRate, ...]:
        """Return the preferential rates of a code under all programmes, inherited as the general rate is."""
        special = next((row.special for row in self._row_and_ancestors(code) if row.special), "")
        return tuple(parse_rate(text.strip()) for text in _PREFERENCE.findall(special))

    def lines(self) -> Iterator[TariffLine]:
        """Yield every code of chapters 1 to 97 that goods can be entered under."""
        branch: list[ScheduleRow] = []
        for row in self.rows:
            while branch and branch[-1].indent >= row.indent:
                branch.pop()
            branch.append(row)
            code = self._ten_digits(row.code)
            if code and code[:2] <= _LAST_CHAPTER:
                yield TariffLine(code=code, texts=tuple(ancestor.description for ancestor in branch))

    def _row_and_ancestors(self, code: str) -> Iterator[ScheduleRow]:
        plain = digits(code)
        for length in range(len(plain), 1, -1):
            row = self.lookup(plain[:length])
            if row is not None:
                yield row

    def _ten_digits(self, code: str) -> str | None:
        if len(code) == _LEGAL and code not in self._with_suffixes:
            return code + _BARE_SUFFIX
        return code if len(code) == _FULL else None

    def _contains(self, plain: str) -> bool:
        return plain in self._prefixes or (len(plain) == _FULL and self.lookup(plain) is not None)

    @cached_property
    def _prefixes(self) -> frozenset[str]:
        return frozenset(code[:level] for code in self._by_code for level in LEVELS if level <= len(code))

    @cached_property
    def _with_suffixes(self) -> frozenset[str]:
        return frozenset(code[:_LEGAL] for code in self._by_code if len(code) == _FULL)


def parse_rate(text: str) -> DutyRate:
    """Parse a rate as the schedule prints it: `Free`, `6.8%`, `1¢/kg`, `15.4¢/kg + 52%`."""
    plain = " ".join(text.split())
    if plain.casefold() == "free":
        return DutyRate(plain, "free", 0.0)
    percentage = parse_percentage(plain)
    if percentage is not None:
        return DutyRate(plain, "ad valorem", percentage)
    if "%" in plain:
        return DutyRate(plain, "compound", None)
    return DutyRate(plain, "specific" if _AMOUNT.search(plain) else None, None)


def _decompressed(raw: bytes) -> bytes:
    with gzip.open(BytesIO(raw)) as file:
        data = file.read(_LIMIT.size + 1)
    if len(data) > _LIMIT.size:
        raise ValueError(f"it is larger than {format_size(_LIMIT.size)} when it is decompressed")
    return data


def _records(text: str) -> Sequence[dict[str, Any]]:
    if text.lstrip().startswith("["):
        records = json.loads(text)
        if not all(isinstance(record, dict) for record in records):
            raise ValueError("the list contains something other than objects")
    else:
        header = text.partition("\n")[0]
        records = list(csv.DictReader(text.splitlines(keepends=True), delimiter="\t" if "\t" in header else ","))
    if not records:
        raise ValueError("it has no rows")
    return records  # type: ignore[no-any-return]  # each value is checked where it is read


def _parse_row(record: dict[str, Any]) -> ScheduleRow:
    return ScheduleRow(
        code=digits(_field(record, "code")),
        indent=int(_field(record, "indent") or 0),
        description=_field(record, "description"),
        general=_field(record, "general"),
        special=_field(record, "special"),
    )


def _field(record: dict[str, Any], name: str) -> str:
    names = _FIELDS[name]
    key = next((key for key in names if key in record), None)
    if key is None and name == "special":
        return ""
    if key is None:
        raise ValueError(f'a row has no column "{names[0]}" or "{names[1]}"')
    value = record[key]
    return "" if value is None else str(value).strip()
