"""What is read out of a result: whether it refused, and the result itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.model.errors import format_value
from pytest_packbench.model.outcome import Outcome, ResultError
from pytest_packbench.packs.generic.values import MISSING, brief, same

if TYPE_CHECKING:
    from pytest_packbench.packs.generic.model import Plan

# made once: `json.dumps` makes one each time
_ENCODER = json.JSONEncoder(allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericOutcome(Outcome):
    """What a result says.

    Attributes:
        result: the result as plain JSON, a copy.
        category: the kind of refusal that it names; None without one.
    """

    result: Any
    category: str | None = None


def read(result: object, plan: Plan) -> GenericOutcome:
    """Read a result where the suite's plan says.

    Raises:
        ResultError: it is null or no JSON, or names the kind of refusal by something that is no text.
    """
    if result is None:
        raise ResultError("", "got null, expected JSON; does the target return its result?")
    try:
        # criteria see what a stored result will hold when it is scored again
        plain = json.loads(_ENCODER.encode(result))
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError("", f"is not JSON: {error}") from None
    if not _refuses(plan, plain):
        return GenericOutcome(result=plain, answer=_answer(plan, plain))
    category = plan.category.find(plain)
    if category is MISSING or category is None:
        return GenericOutcome(result=plain, refused=True)
    if not isinstance(category, str):
        raise ResultError(plan.category.text, f"got {format_value(category)}, expected the kind of refusal, a text")
    return GenericOutcome(result=plain, refused=True, category=category)


def _refuses(plan: Plan, result: Any) -> bool:
    found = plan.refused.find(result)
    if found is MISSING:
        return False
    if plan.refused_by is None:
        return bool(found)
    return any(same(found, value) for value in plan.refused_by)


def _answer(plan: Plan, result: Any) -> str | None:
    found = plan.criteria[0].place.find(result)
    if found is MISSING:
        return None
    return brief(found) if isinstance(found, str) else format_value(found)
