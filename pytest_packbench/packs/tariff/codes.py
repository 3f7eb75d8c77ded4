"""Tariff codes as digits: normalisation, chapters, prefixes and depth of agreement."""

from __future__ import annotations

import unicodedata

LEVELS = (2, 4, 6, 8, 10)


def digits(code: str) -> str:
    """Reduce a code as people write it (`6404.11.90 20`, `HTS 6402.99`) to its ASCII digits."""
    text = unicodedata.normalize("NFKC", code)
    return "".join(char for char in text if char in "0123456789")


def chapter(code: str) -> str:
    """Give the two digits of a code's chapter; shorter where the code is."""
    return digits(code)[:2]


def depth(left: str, right: str) -> int:
    """Give the depth to which two codes agree: 0, 2, 4, 6, 8 or 10 digits."""
    one, other = digits(left), digits(right)
    agreed = 0
    for level in LEVELS:
        if len(one) < level or len(other) < level or one[:level] != other[:level]:
            break
        agreed = level
    return agreed


def stands_under(code: str, prefix: str) -> bool:
    """Whether `code` is `prefix` or a line below it; two codes in one string stand under none."""
    wanted, given = digits(prefix), digits(code)
    return bool(wanted) and len(given) <= LEVELS[-1] and given.startswith(wanted)


def dotted(code: str) -> str:
    """Write a code as the schedule does: `6404.11.90.20`."""
    plain = digits(code)
    return ".".join(part for part in (plain[:4], plain[4:6], plain[6:8], plain[8:]) if part)
