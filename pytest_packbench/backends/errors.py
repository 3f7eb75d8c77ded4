"""Errors of model calls: one line each, without secrets."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pytest_packbench.backends import BackendError, BackendUnusable
from pytest_packbench.model.request import AnswerProblem, ModelAnswer, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_packbench.backends.answers import UnreadableAnswer
    from pytest_packbench.model.redaction import Redactor

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

    def of_status(self, status: int, body: str) -> BackendError:
        """Return the error of an HTTP response that reports a failure, with the message in its body."""
        if status < HTTPStatus.BAD_REQUEST and status != HTTPStatus.NOT_MODIFIED:
            body = "a redirect, which is not followed; set the address to which it leads"
        return self._of_status(status, f"HTTP {status}", body)

    def of_stream(self, status: int, error: object) -> BackendError:
        """Return the error in a stream; `status` is that of an HTTP response that would say the same."""
        return self._of_status(status, "an error in the stream", json.dumps({"error": error}))

    def _of_status(self, status: int, label: str, body: str) -> BackendError:
        default = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "bad_request"
        text = self.redactor.excerpt(error_message(body))
        return self._error(_KINDS.get(status, default), f"{label}{': ' if text else ''}{text}")

    @contextmanager
    def sending(self, http: Any, limit_s: float) -> Iterator[None]:
        """Raise the error of a request that gets no answer in this block.

        Args:
            http: the HTTP library that sends it.
            limit_s: the time limit, seconds.
        """
        try:
            yield
        except http.TimeoutException:
            raise self._error("timeout", f"no answer within {limit_s:g} seconds") from None
        except http.RequestError as error:
            text = self.redactor.excerpt(str(error))
            raise self._error("network", f"no answer: {type(error).__name__}{': ' if text else ''}{text}") from None
        except UnicodeEncodeError as error:
            # half of a surrogate pair, which UTF-8 can't encode
            text = f"the request can't be sent: {error.reason} (at character {error.start})"
            raise self._error("bad_request", text) from None

    def no_completions(self) -> BackendError:
        """Return the error of a request that only OpenAI's completions API answers."""
        return self._error("bad_request", "it can't send a text without a chat template; use the backend openai")

    def bad_response(self, error: Exception, usage: Usage | None) -> BackendError:
        """Return the error of a response that is none of the provider's API."""
        return self._error("response_unreadable", self.redactor.excerpt(str(error)), usage)

    def unreadable(self, error: UnreadableAnswer, usage: Usage | None) -> ModelAnswer:
        """Return an answer that does not have the requested form."""
        problem = AnswerProblem("answer_unreadable", f"{self.name}: {self.redactor.excerpt(str(error))}")
        return ModelAnswer(content=error.text, usage=usage or Usage(), tool_calls=error.calls, problem=problem)

    def truncated(self, text: str, usage: Usage, limit: int | str) -> ModelAnswer:
        """Return an answer that was cut off: at its limit, tokens, or by a refusal, in words."""
        cause = f"by a refusal: {limit}" if isinstance(limit, str) else f"at its limit of {limit} output tokens"
        problem = AnswerProblem("truncated", f"{self.name}: the answer was cut off {self.redactor.excerpt(cause)}")
        return ModelAnswer(content=text, usage=usage, problem=problem)

    def unopened(self, error: Exception) -> BackendUnusable:
        """Return the error of a client that can't be created."""
        return BackendUnusable(f"the backend {self.name} can't be opened: {self.redactor.excerpt(str(error))}")

    def _error(self, kind: str, text: str, usage: Usage | None = None) -> BackendError:
        return BackendError(kind, f"{self.name}: {text}", usage=usage)


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
