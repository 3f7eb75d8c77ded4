"""Tariff codes: the grammar by which one is read, chapters, prefixes and depth of agreement."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

LEVELS = (2, 4, 6, 8, 10)
_LONGEST = 40

# full-width forms and their ASCII characters; other compatibility characters, such as footnote marks, stay as they are
_FULL_WIDTH = {0xFF01 + offset: 0x21 + offset for offset in range(0x5E)}
_CODE = re.compile(
    r"""
    \s*
    (?: HTS(?:US)? (?: \s* : \s* | \s* \b (?:code|no\.) \s* | \s+ | (?=\d) ) )?
    (?P<heading> [0-9]{4} )
    (?: [.\s]? (?P<subheading> [0-9]{2} ) (?: [.\s]? (?P<line> [0-9]{2} ) (?: [.\s]? (?P<suffix> [0-9]{2} ) )? )? )?
    # footnote marks: an asterisk or dagger, a superscript number, [1], (a), or 1/ after a space
    (?: \s* (?: [*\u2020\u2021\u00a7\u00b6] | [\u00b9\u00b2\u00b3\u2070\u2074-\u2079]
              | \[ (?:[0-9]{1,2}|[a-z]) \] | \( (?:[0-9]{1,2}|[a-z]) \) ) | \s+ [0-9]{1,2} / )*
    \s*
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


def parse_code(text: str) -> str | None:
    """Return the digits of a text that is one code; None if it is anything else.

    A code has 4, 6, 8 or 10 digits, with a dot or a space between its pairs or without. `HTS` or `HTSUS` may stand
    before it, footnote marks behind it. Two codes, a range, a negation or a percentage are no code.
    """
    # the steps of an answer name a few codes again and again; a longer text is kept nowhere
    return _known_codes(text) if len(text) <= _LONGEST else _parse(text)


def _parse(text: str) -> str | None:
    match = _CODE.fullmatch(_spaced(text))
    return "".join(part for part in match.groups() if part) if match else None


_known_codes = lru_cache(maxsize=4096)(_parse)


def _spaced(text: str) -> str:
    plain = text.translate(_FULL_WIDTH)
    return plain if plain.isascii() else "".join(" " if char.isspace() else char for char in plain)


def digits(code: str) -> str:
    """Return the digits of a code (`6404.11.90 20`, `HTS 6402.99`), and of any other text all ASCII digits."""
    parsed = parse_code(code)
    if parsed is not None:
        return parsed
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
