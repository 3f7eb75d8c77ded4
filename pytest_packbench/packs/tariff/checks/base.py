"""The common parts of the gates: their input, their result, and the decorator that declares one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_packbench.model.errors import format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_packbench.packs.tariff.dossier import ArticleAnswer, Critique, Proposal
    from pytest_packbench.packs.tariff.edition import Edition
    from pytest_packbench.packs.tariff.model import TariffInput
    from pytest_packbench.packs.tariff.notation import Level

Decision = Literal["pass", "fail", "skip"]
WIDTHS: dict[Level, int] = {"heading": 4, "subheading": 6, "line": 8, "suffix": 10}
"""Digits of a code at each level, in the order from heading to suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInput:
    """The input of every gate.

    Attributes:
        request: the goods, the options and the evidence.
        proposal: the answer to check.
        critique: the critic's answer; None if it could not be parsed.
        problems: why it could not be parsed, one line each; empty if it could.
        edition: the schedule in which codes and rates are looked up; None where the suite names none.
    """

    request: TariffInput
    proposal: Proposal
    critique: Critique | None
    problems: tuple[str, ...] = ()
    edition: Edition | None = None

    def of_article(self, article: ArticleAnswer) -> CheckInput:
        """Return the input for one of several articles: a proposal of its code alone."""
        alone = {name: getattr(article, name) for name in type(article).model_fields if name != "article"}
        return replace(self, proposal=self.proposal.model_copy(update={"articles": (), **alone}))


@dataclass(frozen=True, slots=True)
class Violation:
    """A fault of a proposal, as it is reported to the model that revises it.

    Attributes:
        objection: the name of the place in the gate that objects, one of `DossierCheck.objections`.
        text: what is wrong and how to correct it, in one line.
        code: `S1` to `S8` from the gate `gri_sequence`; None from all others.
        step: number of the step of the GRI trace, from 1; None if no single step is at fault.
    """

    objection: str
    text: str
    code: str | None = None
    step: int | None = None

    def __str__(self) -> str:
        """Render the violation in one line, code and step first."""
        step = f"step {self.step}" if self.step else None
        prefix = ", ".join(part for part in (self.code, step) if part)
        return f"{prefix}: {self.text}" if prefix else self.text


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a gate.

    Attributes:
        name: the gate's name.
        rule: its number.
        decision: `pass`, `fail`, or `skip` if the gate does not apply to this proposal.
        violations: the faults; empty unless the decision is `fail`.
    """

    name: str
    rule: int
    decision: Decision
    violations: tuple[Violation, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain JSON, each violation as a line of text, and the names of the objections."""
        return {
            "name": self.name,
            "rule": self.rule,
            "decision": self.decision,
            "violations": self.lines,
            "objections": list(dict.fromkeys(violation.objection for violation in self.violations)),
        }

    @property
    def lines(self) -> list[str]:
        """The violations as lines of text."""
        return [str(violation) for violation in self.violations]


@dataclass(frozen=True, slots=True)
class DossierCheck:
    """A gate; calling it checks a proposal.

    Attributes:
        name: its name in results and records.
        rule: its number, from 0.
        objections: the names of the places where it can object.
        find_violations: returns the violations, or None if the gate does not apply.
    """

    name: str
    rule: int
    objections: tuple[str, ...]
    find_violations: Callable[[CheckInput], Iterable[Violation] | None]

    def __call__(self, inputs: CheckInput) -> CheckResult:
        """Check a proposal."""
        return check_result(self.name, self.rule, self.find_violations(inputs))


def check_result(name: str, rule: int, found: Iterable[Violation] | None) -> CheckResult:
    """Return the result for the violations found: `skip` for None, `pass` for none of them, else `fail`."""
    if found is None:
        return CheckResult(name, rule, "skip")
    violations = tuple(found)
    return CheckResult(name, rule, "fail" if violations else "pass", violations)


def check(rule: int, *objections: str) -> Callable[[Callable[[CheckInput], Iterable[Violation] | None]], DossierCheck]:
    """Declare a function that finds violations as a gate of the same name, with the names of its objections."""

    def declare(find_violations: Callable[[CheckInput], Iterable[Violation] | None]) -> DossierCheck:
        return DossierCheck(find_violations.__name__, rule, objections, find_violations)

    return declare


def quoted(value: object) -> str:
    """Render a value of the proposal in one line of at most 60 characters."""
    return " ".join(format_value(value).split())


def listed(values: Iterable[str]) -> str:
    """Render several values in their order, without repeats."""
    return ", ".join(quoted(value) for value in dict.fromkeys(values))
