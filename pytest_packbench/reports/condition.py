"""Conditions on a comparison, as people write them: `regressed>0, mean<-0.02`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_packbench.reports.figures import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_FORM = re.compile(r"\s*(?P<name>[a-z_]+)\s*(?P<sign><=|>=|<|>)\s*(?P<bound>[+-]?(?:\d+\.?\d*|\.\d+))\s*")


class ConditionError(ValueError):
    """A condition can't be read: one line with what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; where it holds, the comparison fails.

    Attributes:
        name: a figure of the comparison.
        sign: `<`, `<=`, `>` or `>=`.
        bound: a count, or points of score for `mean`.
    """

    name: str
    sign: str
    bound: float

    def holds(self, figures: Mapping[str, float]) -> bool:
        """Whether the figure lies on the named side of the bound; float noise of 1e-9 decides nothing.

        It holds, and so fails the comparison, where there is no figure to judge.
        """
        value = figures[self.name]
        if math.isnan(value):
            return True
        if abs(value - self.bound) <= TOLERANCE:
            return "=" in self.sign
        return value < self.bound if self.sign.startswith("<") else value > self.bound

    def __str__(self) -> str:
        """Write it as it is read."""
        return f"{self.name}{self.sign}{self.bound:g}"


def parse_conditions(text: str, names: Collection[str]) -> tuple[Condition, ...]:
    """Read conditions that are separated by commas.

    Args:
        text: `name`, `<`, `<=`, `>` or `>=`, and a number, each.
        names: the figures that may be named.

    Raises:
        ConditionError: one is malformed or names no figure.
    """
    found = []
    for part in text.split(","):
        match = _FORM.fullmatch(part)
        if match is None:
            raise ConditionError(f"condition {part.strip()!r}: expected a form such as regressed>0 or mean<-0.02")
        if match["name"] not in names:
            raise ConditionError(f"condition {part.strip()!r}: expected one of: {', '.join(sorted(names))}")
        found.append(Condition(name=match["name"], sign=match["sign"], bound=float(match["bound"])))
    return tuple(found)
