"""Read a result: the outcome is all that the scorer sees of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pytest_packbench import Firing, Outcome, ResultError


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsOutcome(Outcome):
    """A conversion.

    Attributes:
        value: the value answered; None in a refusal.
        unit: its unit; None in a refusal.
        working: the calculation shown; empty without one.
        reason: why it refused; None in an answer.
    """

    value: float | None = None
    unit: str | None = None
    working: str = ""
    reason: str | None = None


def read(result: object) -> UnitsOutcome:
    """Read `{"value": 3.2, "unit": "km", "working": "...", "checks": [...]}`, or `{"refusal": "unknown_unit"}`.

    Raises:
        ResultError: it is neither: an unreadable answer, with the score 0.
    """
    if not isinstance(result, dict):
        raise ResultError("", f"expected an object, got {type(result).__name__}")
    firings = tuple(_firing(check, index) for index, check in enumerate(result.get("checks", ())))
    refusal = result.get("refusal")
    if refusal is not None:
        return UnitsOutcome(refused=True, reason=_text(result, "refusal"), firings=firings)
    value, unit = _number(result, "value"), _text(result, "unit")
    working = result.get("working") or ""
    return UnitsOutcome(value=value, unit=unit, working=str(working), answer=f"{value:g} {unit}", firings=firings)


def _number(result: dict[str, Any], key: str) -> float:
    found = result.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise ResultError(f"/{key}", f"expected a number, got {found!r}")
    return float(found)


def _text(result: dict[str, Any], key: str) -> str:
    found = result.get(key)
    if not isinstance(found, str) or not found:
        raise ResultError(f"/{key}", f"expected a string, got {found!r}")
    return found


def _firing(check: object, index: int) -> Firing:
    if not isinstance(check, dict) or not isinstance(check.get("name"), str):
        raise ResultError(f"/checks/{index}", f"expected an object with a name, got {check!r}")
    return Firing(hook=check["name"], decision="allow" if check.get("passed") else "deny")
