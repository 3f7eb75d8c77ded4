"""The tariff schedule as its publisher exports it: which codes exist, what they say, which general rate they bear.

Three traps. A legal line is either a row of 8 digits or a row of 10 digits that ends in `00` and carries the rate
itself. Rates stand on one row of a branch and hold for all rows below it. Rows without a code carry text that belongs
to all rows below them.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from pytest_packbench.model.errors import InputError, Problem
from pytest_packbench.packs.tariff.codes import LEVELS, digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

Basis = Literal["free", "ad valorem", "specific", "compound"]

_GZIP = b"\x1f\x8b"
_FULL = 10
_LEGAL = 8
_BARE_SUFFIX = "00"
# chapters 98 and 99 hold provisions that stand beside a code, never in its place
_LAST_CHAPTER = "97"
_FIELDS = {
    "code": ("htsno", "HTS Number"),
    "indent": ("indent", "Indent"),
    "description": ("description", "Description"),
    "general": ("general", "General Rate of Duty"),
    "special": ("special", "Special Rate of Duty"),
}
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)(?: (\d+)/(\d+))? ?%(?: on the entire set)?")
# a preferential rate and the programmes that give it: "Free (A+,AU,BH) 2.8% (JP)"
_PREFERENCE = re.compile(r"([^()]+)\([^()]*\)")
_AMOUNT = re.compile(r"[$¢]|\bcents?\b")


class ScheduleError(InputError):
    """A schedule's file can't be used."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A general rate of duty.

    Attributes:
        text: as the schedule writes it.
        basis: its kind; None where the text points elsewhere or is no rate.
        pct: percent of value; None unless free or ad valorem.
    """

    text: str
    basis: Basis | None
    pct: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the schedule.

    Attributes:
        code: its digits; empty where the row only groups others.
        indent: its depth in the outline.
        description: its own text.
        general: the general rate as written; empty where it stands on a row above.
        special: the preferential rates as written; empty where they stand on a row above.
    """

    code: str
    indent: int
    description: str
    general: str
    special: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A code of ten digits with the descriptions from its heading down to its own row."""

    code: str
    texts: tuple[str, ...]


class Schedule:
    """One edition of the schedule, its rows in order."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        self._by_code = {row.code: row for row in self.rows if row.code}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a schedule's file: JSON, CSV or TSV with a header line, each also compressed by gzip.

        Raises:
            ScheduleError: the file is none of these; one line.
            OSError: the file can't be read.
        """
        try:
            raw = path.read_bytes()
            text = (gzip.decompress(raw) if raw.startswith(_GZIP) else raw).decode("utf-8-sig")
            return cls([_row(entry) for entry in _entries(text)])
        except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile, csv.Error) as error:
            wrong = f"not a tariff schedule: {type(error).__name__}: {error}"
            advice = "expected the publisher's JSON or CSV export, or a table with the columns of its JSON"
            raise ScheduleError(str(path), [Problem("", wrong, advice)]) from None

    def lookup(self, code: str) -> Row | None:
        """Give the row of a code; a line without suffixes is found by its 8 digits and by 10 digits that end in 00."""
        plain = digits(code)
        found = self._by_code.get(plain)
        if found is None and len(plain) == _LEGAL:
            return self._by_code.get(plain + _BARE_SUFFIX)
        if found is None and len(plain) == _FULL and plain.endswith(_BARE_SUFFIX):
            return self._by_code.get(plain[:_LEGAL]) if plain[:_LEGAL] not in self._with_suffixes else None
        return found

    def exists(self, code: str) -> bool:
        """Whether the schedule knows a code, as a row or as a branch above rows."""
        plain = digits(code)
        return bool(plain) and self.depth(plain) == len(plain)

    def depth(self, code: str) -> int:
        """Give the depth to which a code exists: 0, 2, 4, 6, 8 or 10 digits."""
        plain = digits(code)
        return max((level for level in LEVELS if level <= len(plain) and self._knows(plain[:level])), default=0)

    def rate(self, code: str) -> Rate | None:
        """Give the general rate that holds for a code: its own row's, else of the nearest row above that has one.

        Returns:
            None where no row above has a rate, as for a heading with several rates below it.
        """
        return next((parse_rate(row.general) for row in self._upwards(code) if row.general), None)

    def preferences(self, code: str) -> tuple[Rate, ...]:
        """Give the preferential rates of a code, for whichever programme, inherited as the general rate is."""
        special = next((row.special for row in self._upwards(code) if row.special), "")
        return tuple(parse_rate(text.strip()) for text in _PREFERENCE.findall(special))

    def lines(self) -> Iterator[Line]:
        """Give every code of chapters 1 to 97 that goods can be entered under, with its texts."""
        above: list[Row] = []
        for row in self.rows:
            while above and above[-1].indent >= row.indent:
                above.pop()
            above.append(row)
            code = self._ten_digits(row.code)
            if code and code[:2] <= _LAST_CHAPTER:
                yield Line(code=code, texts=tuple(one.description for one in above))

    def _upwards(self, code: str) -> Iterator[Row]:
        plain = digits(code)
        for length in range(len(plain), 1, -1):
            row = self.lookup(plain[:length])
            if row is not None:
                yield row

    def _ten_digits(self, code: str) -> str | None:
        if len(code) == _LEGAL and code not in self._with_suffixes:
            return code + _BARE_SUFFIX
        return code if len(code) == _FULL else None

    def _knows(self, plain: str) -> bool:
        return plain in self._branches or (len(plain) == _FULL and self.lookup(plain) is not None)

    @cached_property
    def _branches(self) -> frozenset[str]:
        return frozenset(code[:level] for code in self._by_code for level in LEVELS if level <= len(code))

    @cached_property
    def _with_suffixes(self) -> frozenset[str]:
        return frozenset(code[:_LEGAL] for code in self._by_code if len(code) == _FULL)


def parse_rate(text: str) -> Rate:
    """Read a rate as the schedule writes it: `Free`, `6.8%`, `1¢/kg`, `15.4¢/kg + 52%`."""
    plain = " ".join(text.split())
    if plain.casefold() == "free":
        return Rate(plain, "free", 0.0)
    share = _PERCENT.fullmatch(plain)
    if share is not None:
        whole, over, under = share.groups()
        return Rate(plain, "ad valorem", float(whole) + (int(over) / int(under) if over else 0.0))
    if "%" in plain:
        return Rate(plain, "compound", None)
    return Rate(plain, "specific" if _AMOUNT.search(plain) else None, None)


def _entries(text: str) -> Sequence[dict[str, Any]]:
    if text.lstrip().startswith("["):
        entries = json.loads(text)
        if not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("a list of other things than rows")
    else:
        header = text.partition("\n")[0]
        entries = list(csv.DictReader(text.splitlines(keepends=True), delimiter="\t" if "\t" in header else ","))
    if not entries:
        raise ValueError("no rows")
    return entries  # type: ignore[no-any-return]  # JSON values are looked at where they are used


def _row(entry: dict[str, Any]) -> Row:
    return Row(
        code=digits(_field(entry, "code")),
        indent=int(_field(entry, "indent") or 0),
        description=_field(entry, "description"),
        general=_field(entry, "general"),
        special=_field(entry, "special"),
    )


def _field(entry: dict[str, Any], name: str) -> str:
    names = _FIELDS[name]
    key = next((key for key in names if key in entry), None)
    if key is None and name == "special":
        return ""
    if key is None:
        raise ValueError(f'a row without the column "{names[0]}" or "{names[1]}"')
    value = entry[key]
    return "" if value is None else str(value).strip()
