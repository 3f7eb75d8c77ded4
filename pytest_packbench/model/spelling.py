"""One form for a text that can be written in several ways, to find it however a model writes it."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# In this order. What has no width goes first, so that a letter and its accent become neighbours; so do the signs of a
# run behind the 30th, because the time to sort accents grows with their number squared.
_PLAIN = {
    "": "[\u00ad\u034f\u061c\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e0fff]|[^\\w\\s\x00-\x7f](?<=[^\\w\\s\x00-\x7f]{31})[^\\w\\s\x00-\x7f]*",
    "'": "[\u00b4\u02bc\u2018-\u201b\u2032\u2039\u203a]",
    '"': "[\u00ab\u00bb\u201c-\u201f\u2033\u301d-\u301f]",
    "-": "[\u2010-\u2015\u2212\u2e3a\u2e3b\u30a0\ufe58]",
    # a single space stays as it is, which is faster
    " ": r"\s{2,}|[^\S ]",
}


def fold(value: Any, gap: str = "") -> Any:
    """Return a JSON value with its texts in one form, keys of objects included.

    The form is NFKC with one space for white space, plain quotes and hyphens, and nothing that has no width. Upper and
    lower case stay. A text without letters and digits stays as it is: whoever looks for a dash means it.

    Args:
        value: the value.
        gap: what a zero-width space stands for.
    """
    if isinstance(value, dict):
        folded: dict[str, Any] = {}
        for name, member in value.items():
            plain = fold(name, gap)
            # none hides another
            folded[name if plain in folded else plain] = fold(member, gap)
        return folded
    if isinstance(value, list):
        return [fold(element, gap) for element in value]
    if not isinstance(value, str) or not any(map(str.isalnum, value)):
        return value
    value = value.replace("\u200b", gap)
    for plain, pattern in _PLAIN.items():
        value = re.sub(pattern, plain, value)
    return unicodedata.normalize("NFKC", value)


def spellings(value: Any) -> Iterator[Any]:
    """Yield a JSON value as it is, then folded: with each zero-width space as nothing, and as a space."""
    yield value
    yield fold(value)
    yield fold(value, " ")
