"""What a pack reads out of a target's result: flat and typed. Scorers see nothing else."""

from __future__ import annotations

from dataclasses import dataclass


class ResultError(ValueError):
    """A target's result can't be read.

    Attributes:
        pointer: JSON pointer of the place in the result.
    """

    def __init__(self, pointer: str, message: str) -> None:
        self.pointer = pointer
        super().__init__(f"result{pointer}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """An infrastructure failure that the target itself reports: never a refusal, never a number.

    Attributes:
        kind: a word such as `timeout`, `network`, `rate_limit`.
        message: one line.
    """

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One decision of a gate or guard, in order; becomes a record's hook decision.

    Attributes:
        hook: its name.
        decision: what it decided.
        rule: its rule number, 0 to 2**32 - 1.
    """

    hook: str
    decision: str
    rule: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What every pack's outcome tells; a pack adds its own fields in a subclass.

    Attributes:
        breakdown: set when the target reports an infrastructure failure.
        refused: whether the target declined to answer.
        answer: the answer in one short string, for tables; None without one.
        firings: decisions of gates and guards, in order.
    """

    breakdown: Breakdown | None = None
    refused: bool = False
    answer: str | None = None
    firings: tuple[Firing, ...] = ()
