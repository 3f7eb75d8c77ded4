"""How targets fail, what those outside this process are sent, and what must not be seen of them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_packbench.engine.secrets import HIDDEN, Secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_BYTES = 32 * 1024 * 1024
"""The longest result that is read, bytes."""
# shorter ones stand in any text
_SHORTEST = 4
_LONG_LINE = 16
_EXCERPT = 300


class TargetError(ValueError):
    """The target can't be found, or can't be called as one."""


class TargetFailure(RuntimeError):  # noqa: N818 - it tells of a failure elsewhere: in a server or in a process
    """A target outside this process gave no result.

    Attributes:
        kind: the reason's name, for `errors.jsonl`: `target_unreachable`, `target_timeout`, `target_died`,
            `target_error` or `result_unreadable`.
        details: what the target said, such as its standard error, a line each.
    """

    def __init__(self, kind: str, message: str, details: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.details = details
        super().__init__(message)


def request_json(value: object) -> bytes:
    """Write what is sent to a target: one line of ASCII without its end.

    Raises:
        TargetFailure: it holds something that JSON has no word for, such as infinity.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetFailure("target_error", f"the request can't be written as JSON: {error}") from None


class Veil:
    """Hides secrets in what a target outside answers: those of the environment, and those that it was given.

    Args:
        given: values that the target was given and that may not be shown; in messages hidden from 4 characters on.
    """

    def __init__(self, given: Iterable[str] = ()) -> None:
        forms = {form for value in given for form in (value, json.dumps(value)[1:-1], quote(value, safe=""))}
        # the end of a text may begin inside a secret of several lines
        lines = {
            f"{name}_{number}": line
            for name, value in os.environ.items()
            for number, line in enumerate(value.splitlines())
            if line != value and len(line) >= _LONG_LINE
        }
        self._secrets = Secrets({**os.environ, **lines}, forms)
        # a result may hold such short ones by chance; a message loses nothing
        self._given = sorted((form for form in forms if len(form) >= _SHORTEST), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Give a text, which is to be shown, without secrets."""
        for value in self._given:
            text = text.replace(value, HIDDEN)
        return self._secrets.hide(text)

    def excerpt(self, text: str, limit: int = _EXCERPT) -> str:
        """Give the beginning of a text without secrets, in one line of at most `limit` characters."""
        # hidden first: a secret cut in two is not found
        line = " ".join(self.text(text).split())
        return line if len(line) <= limit else f"{line[: limit - 1]}…"

    def result(self, value: Any) -> Any:
        """Give a result without secrets.

        Raises:
            TargetFailure: it is nested too deeply to be looked through.
        """
        try:
            return self._secrets.hide_in(value)
        except RecursionError:
            raise TargetFailure("result_unreadable", "the target's result is nested too deeply") from None
