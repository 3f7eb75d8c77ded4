"""What targets outside this process share: their errors and their requests."""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what led to it: its parts, its cause and its context, each once, depth first."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop(0)
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            parts = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            pending[:0] = [*parts, each.__cause__, each.__context__]


def request_json(value: object) -> bytes:
    """Encode a request as one line of ASCII JSON, without a line end.

    Raises:
        TargetFailure: it contains something that JSON can't represent, such as infinity.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise TargetFailure("target_error", f"the request can't be encoded as JSON: {error}") from None


class GatewayRoute(NamedTuple):
    """How a target outside this process reaches the gateway for one attempt.

    Attributes:
        url: the address for this attempt.
        environment: the variables of a process that is started for this attempt alone; None where processes are
            reused.
        shared_environment: returns a token and the variables of a process that works for several attempts.
        assign: attributes the calls of such a process, by its token, to this attempt from now.
    """

    url: str
    environment: dict[str, str] | None
    shared_environment: Callable[[], tuple[str, dict[str, str]]]
    assign: Callable[[str], None]


ROUTE: ContextVar[GatewayRoute | None] = ContextVar("packbench_gateway_route", default=None)
"""The route of the attempt that runs in this context; None where the gateway does not serve."""
