"""What a gate is: a pure question to a proposal, answered pass, fail or skip, with what to mend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_packbench.model.errors import format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_packbench.packs.tariff.dossier import Critique, Level, Proposal
    from pytest_packbench.packs.tariff.model import TariffInput

Decision = Literal["pass", "fail", "skip"]
WIDTHS: dict[Level, int] = {"heading": 4, "subheading": 6, "line": 8, "suffix": 10}
"""Digits of a code at each level, in the order from heading to suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInput:
    """What every gate looks at.

    Attributes:
        request: the goods, the options and the evidence.
        proposal: the answer to be judged.
        critique: what the critic said of it; None where the critic's answer could not be read.
    """

    request: TariffInput
    proposal: Proposal
    critique: Critique | None


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong with a proposal, said to whoever revises it.

    Attributes:
        text: what is wrong and what would mend it, in one line.
        code: `S1` to `S8` in the gate on the order of the rules; None elsewhere.
        step: position of the step of the GRI trace, from 1; None where no single step is at fault.
    """

    text: str
    code: str | None = None
    step: int | None = None

    def __str__(self) -> str:
        """Say it in one line, code and step first."""
        place = f"step {self.step}" if self.step else None
        head = ", ".join(part for part in (self.code, place) if part)
        return f"{head}: {self.text}" if head else self.text


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate decided.

    Attributes:
        name: the gate.
        rule: its number.
        decision: `pass`, `fail`, or `skip` where the gate has nothing to judge in this proposal.
        violations: what is wrong; empty unless the decision is `fail`.
    """

    name: str
    rule: int
    decision: Decision
    violations: tuple[Violation, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Give the result as plain JSON, each violation as a line of text."""
        return {"name": self.name, "rule": self.rule, "decision": self.decision, "violations": self.lines}

    @property
    def lines(self) -> list[str]:
        """The violations as lines of text."""
        return [str(violation) for violation in self.violations]


@dataclass(frozen=True, slots=True)
class Gate:
    """A named check; calling it judges a proposal.

    Attributes:
        name: the word in results and records.
        rule: its number, from 1; 0 is the gate `form`, which judges answers that are no proposal.
        critical: whether a failure sends the proposal back.
        find: gives the violations, or None where there is nothing to judge.
    """

    name: str
    rule: int
    critical: bool
    find: Callable[[GateInput], Iterable[Violation] | None]

    def __call__(self, given: GateInput) -> GateResult:
        """Judge a proposal."""
        return judged(self.name, self.rule, self.find(given))


def judged(name: str, rule: int, found: Iterable[Violation] | None) -> GateResult:
    """Turn what a check found into a result: None skips, nothing found passes, anything else fails."""
    if found is None:
        return GateResult(name, rule, "skip")
    violations = tuple(found)
    return GateResult(name, rule, "fail" if violations else "pass", violations)


def gate(rule: int, *, critical: bool = True) -> Callable[[Callable[[GateInput], Iterable[Violation] | None]], Gate]:
    """Make a gate of a function that finds violations; the function's name is the gate's."""

    def named(find: Callable[[GateInput], Iterable[Violation] | None]) -> Gate:
        return Gate(find.__name__, rule, critical, find)

    return named


def quoted(value: object) -> str:
    """Show a value of the proposal's in one line of at most 60 characters."""
    return " ".join(format_value(value).split())


def listed(values: Iterable[str]) -> str:
    """Show several values, each once, in the order given."""
    return ", ".join(quoted(value) for value in dict.fromkeys(values))
