"""The facts of a dated edition of the tariff schedule: its codes, their general rates and units, without descriptions.

The table of an edition has one line for each code of eight digits, in number order:
`code<TAB>general rate<TAB>unit:suffix suffix;unit:suffix`. The rate is as the schedule prints it where it is free, ad
valorem, specific or compound; `text` where it refers to something else, empty where the line has none.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from bisect import bisect_left
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytest_packbench.files import LIMITS, format_size, read_regular
from pytest_packbench.model.errors import InputError, Problem
from pytest_packbench.packs.tariff.notation import LEVELS, digits, dotted

EditionName = Literal["us_2026_revision_10"]
"""The editions that come with the package, as `schedule` in `suite.yaml` names them."""

_GZIP = 31
_LINE = 8
_FULL = 10
_BARE = "00"
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)(?: (\d+)/(\d+))? ?%(?: on the entire set)?", re.ASCII)


class GeneralRate(NamedTuple):
    """A general rate of duty.

    Attributes:
        text: the rate as printed, such as `Free`, `6.8%` or `15.4¢/kg + 52%`; `text` where the schedule words it.
        pct: percent of value; None unless it is free or ad valorem.
    """

    text: str
    pct: float | None

    @property
    def kind(self) -> str:
        """The kind of rate, as `duty_basis` of an answer names it."""
        if self.pct is not None:
            return "free" if self.text == "Free" else "ad valorem"
        return "compound" if "%" in self.text else "specific"


def parse_percentage(text: str) -> float | None:
    """Return an ad valorem rate as the schedule prints it, `6.8%` or `6.5% on the entire set`; None for any other."""
    percentage = _PERCENT.fullmatch(text)
    if percentage is None:
        return None
    whole, numerator, denominator = percentage.groups()
    return float(whole) + (int(numerator) / int(denominator) if numerator else 0.0)


class Edition:
    """An edition of the schedule, looked up by the digits of a code.

    Args:
        name: its name, an `EditionName`.
        table: the text of its table.
    """

    def __init__(self, name: str, table: str) -> None:
        self.name = name
        self._lines = table.split("\n")

    def existing(self, code: str) -> str:
        """Return the longest prefix of 2, 4, 6, 8 or 10 digits of a code that is in the schedule; empty if none is."""
        for level in reversed(LEVELS):
            if len(code) >= level and self._has(code[:level]):
                return code[:level]
        return ""

    def rate(self, code: str) -> GeneralRate | None:
        """Return the general rate of a code of 8 or 10 digits; None if it is not in the schedule or has none."""
        fields = self._fields(code[:_LINE]) if self.existing(code) == code else None
        if fields is None or not fields[1]:
            return None
        text = fields[1]
        return GeneralRate(text, 0.0 if text == "Free" else parse_percentage(text))

    def units(self, code: str) -> str:
        """Return the units of quantity of a code, such as `doz.,kg`; empty where the schedule names none."""
        fields = self._fields(code[:_LINE])
        if fields is None:
            return ""
        suffix = code[_LINE:] or _BARE
        return next((unit for unit, suffixes in _suffixes(fields[2]) if suffix in suffixes), "")

    def _has(self, prefix: str) -> bool:
        if len(prefix) < _FULL:
            return self._line(prefix) is not None
        fields = self._fields(prefix[:_LINE])
        if fields is None:
            return False
        listed = [suffix for _, suffixes in _suffixes(fields[2]) for suffix in suffixes]
        return prefix[_LINE:] in (listed or [_BARE])

    def _fields(self, code: str) -> list[str] | None:
        line = self._line(f"{code}\t")
        return None if line is None else line.split("\t")

    def _line(self, prefix: str) -> str | None:
        """Return the first line that begins with a prefix."""
        index = bisect_left(self._lines, prefix)
        found = index < len(self._lines) and self._lines[index].startswith(prefix)
        return self._lines[index] if found else None


def describe_unlisted(code: str, existing: str) -> str:
    """Describe a code that is not in the schedule, of which only `existing` is."""
    known = f"only {dotted(existing)} is" if existing else "neither is its chapter"
    return f"{code} is not in the schedule; {known}"


def _suffixes(field: str) -> list[tuple[str, list[str]]]:
    groups = [group.rpartition(":") for group in field.split(";") if group]
    return [(unit, suffixes.split()) for unit, _, suffixes in groups]


@cache
def load_edition(name: str) -> Edition:
    """Load an edition that comes with the package.

    Args:
        name: an `EditionName`.
    """
    data = Path(__file__).with_name("editions").joinpath(f"{name}.gz").read_bytes()
    return Edition(name, zlib.decompress(data, _GZIP).decode())


class ScheduleError(InputError):
    """A file can't be read as a tariff schedule."""


_LIMIT = LIMITS["schedule"]
_COMPRESSED = b"\x1f\x8b"
_CODE, _GENERAL = ("htsno", "HTS Number"), ("general", "General Rate of Duty")


def read_edition(path: Path) -> Edition:
    """Read a schedule as its publisher exports it: JSON, or CSV or TSV with a header line, compressed by gzip or not.

    A rate is given on one row of a branch and applies to all rows below it.

    Raises:
        ScheduleError: the file is none of these, or a row lacks a column.
        OSError: the file can't be read.
    """
    try:
        raw = read_regular(path, _LIMIT)
        text = (_decompressed(raw) if raw.startswith(_COMPRESSED) else raw).decode("utf-8-sig")
        rows = [(digits(_field(record, _CODE)), _field(record, _GENERAL)) for record in _records(text)]
    except (ValueError, KeyError, TypeError, EOFError, gzip.BadGzipFile, zlib.error, csv.Error) as error:
        wrong = f"not a tariff schedule: {type(error).__name__}: {error}"
        advice = "expected the publisher's JSON or CSV export, or a table with the same columns"
        raise ScheduleError(str(path), [Problem("", wrong, advice)]) from None
    rates = {code: rate for code, rate in rows if rate}
    suffixes: dict[str, list[str]] = {}
    for code in (code for code, _ in rows if len(code) >= _LINE):
        suffixes.setdefault(code[:_LINE], []).extend([code[_LINE:]] if code[_LINE:] else [])
    lines = (f"{line}\t{_inherited(line, rates)}\t:{' '.join(listed)}" for line, listed in sorted(suffixes.items()))
    return Edition(path.name, "\n".join(lines))


def _inherited(line: str, rates: dict[str, str]) -> str:
    prefixes = (line + _BARE, *(line[:length] for length in range(_LINE, 1, -1)))
    return next((rates[prefix] for prefix in prefixes if prefix in rates), "")


def _decompressed(raw: bytes) -> bytes:
    with gzip.open(BytesIO(raw)) as file:
        data = file.read(_LIMIT.size + 1)
    if len(data) > _LIMIT.size:
        raise ValueError(f"it is larger than {format_size(_LIMIT.size)} when it is decompressed")
    return data


def _records(text: str) -> list[dict[str, Any]]:
    if text.lstrip().startswith("["):
        records = json.loads(text)
    else:
        header = text.partition("\n")[0]
        records = list(csv.DictReader(text.splitlines(keepends=True), delimiter="\t" if "\t" in header else ","))
    if not records or not all(isinstance(record, dict) for record in records):
        raise ValueError("it has no rows, or something other than rows")
    return list(records)


def _field(record: dict[str, Any], names: tuple[str, str]) -> str:
    key = next((name for name in names if name in record), None)
    if key is None:
        raise ValueError(f'a row has no column "{names[0]}" or "{names[1]}"')
    return str(record[key] or "").strip()
