"""What must never stand in an error message, and its removal from texts that came from outside."""

from __future__ import annotations

import os
import re

REDACTED = "[redacted]"

_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|HEADERS", re.IGNORECASE)
# shorter values are words that stand in ordinary text as well
_LEAST = 8

_PATTERNS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=*-]{6,}"), rf"\1 {REDACTED}"),
    (
        re.compile(r"(?i)\b((?:proxy-)?authorization|(?:x-)?api-key)(\W{1,4})(?!bearer|basic)[^\s\"',}]+"),
        rf"\1\2{REDACTED}",
    ),
    (re.compile(r"\bsk-[\w*-]{6,}"), REDACTED),
    (re.compile(r"(?<=://)[^/\s@]+@"), f"{REDACTED}@"),
)


def known_secrets() -> tuple[str, ...]:
    """Give the values of variables whose names speak of a secret, from 8 characters on, longest first.

    Where a value is a list of headers, as the clients take them from `*_CUSTOM_HEADERS`, each header's value counts.
    """
    values = [value for name, value in os.environ.items() if _NAMES.search(name)]
    parts = [line.partition(":")[2] for value in values for line in value.splitlines()]
    found = {text.strip() for text in (*values, *parts)}
    return tuple(sorted((text for text in found if len(text) >= _LEAST), key=len, reverse=True))


def redacted(text: str, secrets: tuple[str, ...]) -> str:
    """Take secrets out of a message: the values given, and what has the form of a key, a header or a URL's login."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
