"""Tariff codes as digits: normalisation, chapters, prefixes and depth of agreement."""

from __future__ import annotations

import unicodedata

LEVELS = (2, 4, 6, 8, 10)


def digits(code: str) -> str:
    """Reduce a code as people write it (`6404.11.90 20`, `HTS 6402.99`) to its ASCII digits."""
    text = unicodedata.normalize("NFKC", code)
    return "".join(char for char in text if char in "0123456789")


def chapter(code: str) -> str:
    """Return the first two digits of a code, its chapter; fewer where the code is shorter."""
    return digits(code)[:2]


def depth(left: str, right: str) -> int:
    """Return how many leading digits two codes share: 0, 2, 4, 6, 8 or 10."""
    left_digits, right_digits = digits(left), digits(right)
    agreed = 0
    for level in LEVELS:
        if min(len(left_digits), len(right_digits)) < level or left_digits[:level] != right_digits[:level]:
            break
        agreed = level
    return agreed


def is_under(code: str, prefix: str) -> bool:
    """Return whether `code` is `prefix` or a line below it; two codes in one string are under none."""
    code_digits, prefix_digits = digits(code), digits(prefix)
    return bool(prefix_digits) and len(code_digits) <= LEVELS[-1] and code_digits.startswith(prefix_digits)


def dotted(code: str) -> str:
    """Format a code as the schedule prints it: `6404.11.90.20`."""
    plain = digits(code)
    return ".".join(part for part in (plain[:4], plain[4:6], plain[6:8], plain[8:]) if part)
