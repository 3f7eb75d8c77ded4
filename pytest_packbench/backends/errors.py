"""Errors of model calls: one line each, without secrets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import BackendError

if TYPE_CHECKING:
    from pytest_packbench.model.redaction import Redactor
    from pytest_packbench.model.request import Usage

OVERLOADED = frozenset({429, 503, 529})
"""HTTP statuses by which a server reports overload."""
_KINDS = {401: "auth", 403: "auth", 408: "timeout", 429: "rate_limit", 503: "overloaded", 529: "overloaded"}


@dataclass(frozen=True, slots=True)
class ErrorFactory:
    """Creates the errors of one backend.

    Attributes:
        name: the backend.
        redactor: removes secrets from messages.
    """

    name: str
    redactor: Redactor

    def of_status(self, status: int, body: str, label: str = "") -> BackendError:
        """Return the error of an HTTP response that reports a failure, with the message in its body.

        Args:
            status: its status.
            body: its body.
            label: what reports the failure, where it is no response; empty for the status.
        """
        if status < HTTPStatus.BAD_REQUEST and status != HTTPStatus.NOT_MODIFIED:
            body = "a redirect, which is not followed; set the address to which it leads"
        default = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "bad_request"
        return self.error(_KINDS.get(status, default), label or f"HTTP {status}", error_message(body))

    def of_stream(self, status: int, error: object) -> BackendError:
        """Return the error in a stream; `status` is that of an HTTP response that would say the same."""
        return self.of_status(status, json.dumps({"error": error}), "an error in the stream")

    def error(self, kind: str, text: str, cause: str = "", usage: Usage | None = None) -> BackendError:
        """Return an error with the cause in the words of a server or a library."""
        cause = self.redactor.excerpt(cause)
        return BackendError(kind, f"{self.name}: {text}{': ' if text and cause else ''}{cause}", usage=usage)


def error_message(body: str) -> str:
    """Return the message in the body of an error response; the whole body where it has another form."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return body
    for key in ("error", "message"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    return value if isinstance(value, str) else body
