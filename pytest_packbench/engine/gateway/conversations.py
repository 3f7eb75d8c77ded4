"""What a running app asks its models: one conversation after the other, kept in memory for `packbench capture`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.gateway.exchanges import QUESTIONS, CaseTraffic

if TYPE_CHECKING:
    from pytest_packbench.engine.gateway.exchanges import RecordedCall
    from pytest_packbench.engine.gateway.service import Gateway

MOST, MOST_BYTES = 200, 64 * 1024 * 1024
"""So many conversations, and bytes of requests and answers, are kept; the calls of others are only forwarded."""


class Conversations(list[CaseTraffic]):
    """The calls of an app, by conversation.

    The `case_id` of each is what the app states of it: a token of `capture` with the input behind a question mark, only
    the latter for a header of its own, or nothing.

    Attributes:
        left_out: the number of calls that were not kept.
        asked: the bytes of the requests that are kept.
    """

    left_out = asked = 0

    def of(self, gateway: Gateway, call: RecordedCall, stated: str, size: int) -> CaseTraffic | None:
        """Return the conversation of a call, an earlier or a new one; None where nothing more is kept.

        Args:
            gateway: the gateway that forwards it.
            call: a call that has just come.
            stated: what the app states.
            size: of the request, bytes.
        """
        found = next((each for each in reversed(self) if each.case_id == stated and _goes_on(each, call)), None)
        answered = sum(len(piece) for each in self for other in each.calls for piece in other.pieces)
        if self.asked + answered + size > MOST_BYTES or (found is None and len(self) == MOST):
            self.left_out += 1
            return None
        self.asked += size
        if found is None:
            found = CaseTraffic(stated, gateway)
            self.append(found)
        return found


def _goes_on(traffic: CaseTraffic, call: RecordedCall) -> bool:
    """Whether a call belongs to a conversation of which the app states the same."""
    if not traffic.calls:
        return False
    last, stated = traffic.calls[-1], traffic.case_id
    if last.end and not last.succeeded and last.request_sha256 == call.request_sha256:
        # asked once more
        return True
    if stated:
        # without a token, the first call comes again with the same input
        return stated[0] != "?" or call.request_sha256 != traffic.calls[0].request_sha256
    before, now = _questions(last.body), _questions(call.body)
    return 0 < len(before) < len(now) and now[: len(before)] == before


def _questions(body: Any) -> list[Any]:
    """Return the messages of a request; nothing where it has no list of them."""
    get: Any = getattr(body, "get", {}.get)
    return next((value for value in map(get, QUESTIONS) if isinstance(value, list)), [])
