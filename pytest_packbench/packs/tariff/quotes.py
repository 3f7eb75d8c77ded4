"""Whether a quote stands in a document."""

from __future__ import annotations

import re
import unicodedata

MIN_QUOTE = 20
"""The fewest characters of a quote that shows anything; a shorter document may be quoted as a whole."""

# typographic quotation marks, dashes and the minus sign, as a copy of a text may have them
_TYPOGRAPHY = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")
)
_ENDS = " \"'."
# a position inside a word or number: "co|tton", "non-|woven", "99.|5"
_INSIDE_WORD = re.compile(
    r"(?<=\w)(?=\w) | (?<=\w-)(?=\w) | (?<=\w)(?=-\w) | (?<=\d[.,])(?=\d) | (?<=\d)(?=[.,]\d)", re.VERBOSE
)


def single_spaced(text: str) -> str:
    """Return a text with one space for each run of white space."""
    return " ".join(text.split())


def occurs_in(quote: str, text: str) -> bool:
    """Return whether a quote stands in a text, from one word boundary to another: "60 %" does not occur in "160 %"."""
    start = text.find(quote)
    while start >= 0:
        if not (_INSIDE_WORD.match(text, start) or _INSIDE_WORD.match(text, start + len(quote))):
            return True
        start = text.find(quote, start + 1)
    return False


def readable(text: str) -> str:
    """Return a text as quotes are compared: without differences of white space, typography and case."""
    return single_spaced(unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY)).casefold()


def stands_in(quote: str, text: str) -> bool:
    """Return whether a quote stands in a document; marks around it and an ellipsis at its ends are ignored."""
    plain = readable(quote).strip(_ENDS)
    return bool(plain) and occurs_in(plain, readable(text))


def is_long_enough(quote: str, text: str) -> bool:
    """Return whether a quote that stands in a document is long enough to show anything."""
    plain = readable(quote).strip(_ENDS)
    return len(plain) >= min(MIN_QUOTE, len(readable(text).strip(_ENDS)))
