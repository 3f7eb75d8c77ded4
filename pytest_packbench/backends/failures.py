"""How a model call breaks, in one line without a secret."""

from __future__ import annotations

import json
import os
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends.base import BackendError

if TYPE_CHECKING:
    from pytest_packbench.model.request import Usage

OVERLOADED = frozenset({429, 503, 529})
"""Statuses by which a server says that it is asked too much."""
REDACTED = "[redacted]"
_KINDS = {401: "auth", 403: "auth", 408: "timeout", 429: "rate_limit", 503: "overloaded", 529: "overloaded"}
_MOST_SHOWN = 300
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


def kind_of(status: int) -> str:
    """Name the reason of an HTTP status that is no success."""
    return _KINDS.get(status) or ("server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "bad_request")


def status_error(name: str, status: int, body: str, secrets: tuple[str, ...]) -> BackendError:
    """Make an error of an HTTP answer that is no success.

    Args:
        name: the backend.
        status: the answer's status.
        body: its text: the words of an `error` object, if there is one, else shown as it is.
        secrets: values that must not be shown.
    """
    text = one_line(words_of(body), secrets)
    return BackendError(kind_of(status), f"{name}: HTTP {status}{': ' if text else ''}{text}")


def words_of(body: str) -> str:
    """Find what an error's body says."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return body
    for key in ("error", "message"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    return value if isinstance(value, str) else body


def network_error(name: str, error: BaseException, secrets: tuple[str, ...]) -> BackendError:
    """Make an error of a connection that failed."""
    reason = error.__cause__ or error
    text = one_line(str(reason), secrets)
    return BackendError("network", f"{name}: no answer: {type(reason).__name__}{': ' if text else ''}{text}")


def timeout_error(name: str, timeout_s: float) -> BackendError:
    """Make an error of a call that took too long."""
    return BackendError("timeout", f"{name}: no answer within {timeout_s:g} seconds")


def unsendable_error(name: str, error: UnicodeEncodeError) -> BackendError:
    """Make an error of a request that holds half a character, which no JSON in UTF-8 can carry."""
    return BackendError(
        "bad_request", f"{name}: the request can't be sent: {error.reason} (at character {error.start})"
    )


def unreadable_error(name: str, error: Exception, secrets: tuple[str, ...], usage: Usage | None = None) -> BackendError:
    """Make an error of an answer that isn't what was asked for."""
    return BackendError("answer_unreadable", f"{name}: {one_line(str(error), secrets)}", usage=usage)


def one_line(text: str, secrets: tuple[str, ...]) -> str:
    """Redact, fold and shorten a text from outside."""
    folded = " ".join(redacted(text, secrets).split())
    return folded if len(folded) <= _MOST_SHOWN else f"{folded[:_MOST_SHOWN]}..."


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
