"""The facts of a dated edition of the tariff schedule: its codes, their general rates and units, without descriptions.

The table of an edition has one line for each code of eight digits, in number order:
`code<TAB>general rate<TAB>unit:suffix suffix;unit:suffix`. The rate is as the schedule prints it where it is free, ad
valorem, specific or compound; `text` where it refers to something else, empty where the line has none.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_packbench.packs.tariff.notation import LEVELS, dotted

EditionName = Literal["us_2026_revision_10"]
"""The editions that come with the package, as `schedule` in `suite.yaml` names them."""

_LINE = 8
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
        table: the text of its table.
    """

    def __init__(self, table: str) -> None:
        self._rates: dict[str, str] = {}
        self._codes: set[str] = set()
        for line in table.splitlines():
            code, self._rates[code], units = line.split("\t")
            suffixes = [suffix for group in units.split(";") for suffix in group.rpartition(":")[2].split()]
            self._codes.update(code[:level] for level in LEVELS)
            self._codes.update(code + suffix for suffix in suffixes or [_BARE])

    def existing(self, code: str) -> str:
        """Return the longest prefix of 2, 4, 6, 8 or 10 digits of a code that is in the schedule; empty if none is."""
        return next((code[:level] for level in reversed(LEVELS) if code[:level] in self._codes), "")

    def rate(self, code: str) -> GeneralRate | None:
        """Return the general rate of a code of 8 or 10 digits; None if it is not in the schedule or has none."""
        text = self._rates.get(code[:_LINE]) if code in self._codes else None
        return GeneralRate(text, 0.0 if text == "Free" else parse_percentage(text)) if text else None


def describe_unlisted(code: str, existing: str) -> str:
    """Describe a code that is not in the schedule, of which only `existing` is."""
    known = f"only {dotted(existing)} is" if existing else "neither is its chapter"
    return f"{code} is not in the schedule; {known}"


@cache
def load_edition(name: str) -> Edition:
    """Load an edition that comes with the package.

    Args:
        name: an `EditionName`.
    """
    data = Path(__file__).with_name("editions").joinpath(f"{name}.gz").read_bytes()
    return Edition(gzip.decompress(data).decode())
