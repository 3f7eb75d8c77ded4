"""How a model call breaks, in one line without a secret."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import BackendError, BackendUnusable

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


@dataclass(frozen=True, slots=True)
class Failures:
    """Makes the errors of one backend.

    Attributes:
        name: the backend.
        secrets: values that no message may hold.
    """

    name: str
    secrets: tuple[str, ...]

    def of_status(self, status: int, body: str) -> BackendError:
        """Make an error of an HTTP answer that is no success, with the words of its text."""
        other = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "bad_request"
        text = one_line(words_of(body), self.secrets)
        return self._broken(_KINDS.get(status, other), f"HTTP {status}{': ' if text else ''}{text}")

    def network(self, error: BaseException) -> BackendError:
        """Make an error of a connection that failed."""
        reason = error.__cause__ or error
        text = one_line(str(reason), self.secrets)
        return self._broken("network", f"no answer: {type(reason).__name__}{': ' if text else ''}{text}")

    def timeout(self, limit_s: float) -> BackendError:
        """Make an error of a call that took longer than its limit, seconds."""
        return self._broken("timeout", f"no answer within {limit_s:g} seconds")

    def unsendable(self, error: UnicodeEncodeError) -> BackendError:
        """Make an error of a request that holds half a character, which no JSON in UTF-8 can carry."""
        reason = f"{error.reason} (at character {error.start})"
        return self._broken("bad_request", f"the request can't be sent: {reason}")

    def unreadable(self, error: Exception, usage: Usage | None = None) -> BackendError:
        """Make an error of an answer that isn't what was asked for."""
        return self._broken("answer_unreadable", one_line(str(error), self.secrets), usage)

    def truncated(self, usage: Usage, limit: int) -> BackendError:
        """Make an error of an answer that was cut off at its limit, tokens."""
        text = f"the answer was cut off at its token limit (at most {limit} asked for)"
        return self._broken("truncated", text, usage)

    def unopened(self, error: Exception) -> BackendUnusable:
        """Make an error of a client that can't be made."""
        return BackendUnusable(f"the backend {self.name} can't be opened: {one_line(str(error), self.secrets)}")

    def _broken(self, kind: str, text: str, usage: Usage | None = None) -> BackendError:
        return BackendError(kind, f"{self.name}: {text}", usage=usage)


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
