"""What targets outside this process share: their errors and their requests."""

from __future__ import annotations

import json

MAX_RESULT_BYTES = 32 * 1024 * 1024
"""Size limit of a result, bytes."""


class TargetError(ValueError):
    """The target can't be found, or can't be called."""


class TargetFailure(RuntimeError):  # noqa: N818 - what failed is a server or a process
    """A target outside this process returned no result.

    Attributes:
        kind: the reason's name, for `errors.jsonl`: `target_unreachable`, `target_timeout`, `target_died`
            or `target_error`.
        details: the target's own output, such as its standard error, one entry per line.
    """

    def __init__(self, kind: str, message: str, details: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.details = details
        super().__init__(message)


def request_json(value: object) -> bytes:
    """Encode a request as one line of ASCII JSON, without a line end.

    Raises:
        TargetFailure: it contains something that JSON can't represent, such as infinity.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetFailure("target_error", f"the request can't be encoded as JSON: {error}") from None
