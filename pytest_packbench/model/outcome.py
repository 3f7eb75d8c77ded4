"""The outcome: what a pack reads from the result of a target. Scorers see nothing else."""

from __future__ import annotations

from dataclasses import dataclass


class ResultError(ValueError):
    """The result of a target does not have the expected structure: an unreadable answer, with the score 0.

    Args:
        pointer: JSON pointer of the location in the result; empty for the whole result.
        message: what is wrong and what was expected, in one line.

    Attributes:
        pointer: see above.
    """

    def __init__(self, pointer: str, message: str) -> None:
        self.pointer = pointer
        super().__init__(f"result{pointer}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """An infrastructure failure that the target reports; it makes the case an error, not a refusal or a score.

    Attributes:
        kind: the name of the failure, such as `timeout`, `network`, `rate_limit`.
        message: a description in one line.
    """

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One decision of a gate or guard in the pipeline; it becomes a hook decision of the record.

    Attributes:
        hook: the name of the gate or guard.
        decision: its decision, such as `deny`.
        rule: the number of its rule, 0 to 2**32 - 1; None without one.
    """

    hook: str
    decision: str
    rule: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The fields that the outcomes of all packs share; a pack adds its own in a subclass.

    Attributes:
        breakdown: the infrastructure failure that the target reports; None without one.
        refused: whether the target declined to answer.
        answer: the answer as one short string for tables; None without one.
        firings: the decisions of gates and guards, in order.
    """

    breakdown: Breakdown | None = None
    refused: bool = False
    answer: str | None = None
    firings: tuple[Firing, ...] = ()
