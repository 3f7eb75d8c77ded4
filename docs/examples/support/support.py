"""Two versions of a pipeline that sorts the messages of customers: the last release, and the next one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_packbench import VerifyRequest

QUEUES = {
    "refunds": ("refund",),
    "delivery": ("parcel", "arrive", "courier"),
    "invoices": ("invoice", "vat"),
}


def answer(request: VerifyRequest) -> dict[str, Any]:
    """Answer as the last release does."""
    return _sort(request.input, QUEUES, r"order (\d+)")


def answer_next(request: VerifyRequest) -> dict[str, Any]:
    """Answer as the next release does: it knows more words, and the first number in the message is the order."""
    return _sort(request.input, QUEUES | {"refunds": ("refund", "money back")}, r"(\d+)")


def _sort(text: str, queues: dict[str, tuple[str, ...]], order: str) -> dict[str, Any]:
    text = text.lower()
    if "another customer" in text:
        return {"refusal": {"category": "personal_data"}}
    queue = next((name for name, words in queues.items() if any(word in text for word in words)), "other")
    number = re.search(order, text)
    return {"queue": queue, "order": int(number[1]) if number else None}
