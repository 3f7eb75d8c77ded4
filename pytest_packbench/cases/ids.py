"""Ids of cases from texts of other programs."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from pytest_packbench.model.case import CASE_ID

MAX_ID = 120
"""The most characters of a converted id."""
_HASH = 8


def case_id(text: str) -> str:
    """Convert a text that isn't empty to a case id, which is also the name of its file.

    Returns:
        The text itself if it is a valid id. Otherwise its ASCII letters and digits, with `_` for the rest; and part of
        its hash if letters were lost or it was too long, so that different texts get different ids.
    """
    if len(text) <= MAX_ID and re.fullmatch(CASE_ID, text):
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    letters = "".join(char for char in decomposed if not unicodedata.combining(char))
    word = re.sub(r"[^A-Za-z0-9_-]+", "_", letters).strip("_-")
    is_lossy = any(char.isalnum() and not char.isascii() for char in letters)
    if word and not is_lossy and len(word) <= MAX_ID:
        return word
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{word[: MAX_ID - _HASH - 1]}_{digest}" if word else f"case_{digest}"
