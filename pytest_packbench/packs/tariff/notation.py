"""Codes of the tariff by their digits, and the names of the rules of interpretation."""

from __future__ import annotations

import re
from typing import Literal

LEVELS = (2, 4, 6, 8, 10)
"""The numbers of digits at which codes are compared: chapter, heading, subheading, line and suffix."""
Level = Literal["heading", "subheading", "line", "suffix"]
WIDTHS: dict[Level, int] = {"heading": 4, "subheading": 6, "line": 8, "suffix": 10}
"""The digits of a code that a step of a level compares."""
Rule = Literal["1", "2a", "2b", "3a", "3b", "3c", "4", "5a", "5b", "6", "us_1a", "us_1b", "us_1c", "us_1d"]
"""A General Rule of Interpretation, or an Additional US Rule."""
BESIDE = frozenset({"5a", "5b", "us_1a", "us_1b", "us_1c", "us_1d"})
"""Rules that apply beside the one that decides."""
CODE = r"^[0-9]{4}([. ]?[0-9]{2}){0,3}$"
"""One code of 4, 6, 8 or 10 digits, with a dot or a blank between its pairs or without."""

_LINE, _FULL, _BARE_SUFFIX = 8, 10, "00"


def digits(code: str) -> str:
    """Return the digits of a code: those of `6404.11.90 20` and `6404.11.9020` are `6404119020`."""
    return re.sub(r"[^0-9]", "", code)


def dotted(code: str) -> str:
    """Return a code as rulings print it: `6404.11.9020`."""
    plain = digits(code)
    return ".".join(part for part in (plain[:4], plain[4:6], plain[6:]) if part)


def chapter(code: str) -> str:
    """Return the first two digits of a code, its chapter."""
    return digits(code)[:2]


def line_of(code: str) -> str:
    """Return the digits of a code; eight for ten that end in 00: a line with this suffix has no other."""
    plain = digits(code)
    return plain[:_LINE] if len(plain) == _FULL and plain.endswith(_BARE_SUFFIX) else plain


def is_under(code: str, prefix: str) -> bool:
    """Return whether `code` is `prefix` or a line below it."""
    line = line_of(prefix)
    is_whole = line != digits(prefix)
    return line_of(code) == line if is_whole else bool(line) and digits(code).startswith(line)


def depth(left: str, right: str) -> int:
    """Return how many leading digits two codes share: 0, 2, 4, 6, 8 or 10."""
    one, other = digits(left), digits(right)
    return max((level for level in LEVELS if len(one) >= level and one[:level] == other[:level]), default=0)
