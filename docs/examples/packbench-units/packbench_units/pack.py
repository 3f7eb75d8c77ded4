"""The pack: what an answer looks like, and what it earns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from packbench_units.model import Reason, UnitsCase, UnitsSuiteConfig
from packbench_units.table import UNITS, converted
from pytest_packbench import Agreement, Answer, Firing, ListOf, Pack, StrictModel, Term, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packbench_units.model import Amount
    from pytest_packbench import Target, Tools


class Check(StrictModel):
    """A check that the pipeline made of its answer."""

    name: Text
    passed: bool


class Conversion(Answer):
    """An amount, or a refusal.

    Attributes:
        value: the value answered.
        unit: its unit.
        working: the calculation shown.
        refusal: why there is no answer.
        checks: the checks of the answer, in order.
    """

    value: float | None = None
    unit: Text | None = None
    working: str | None = None
    refusal: Reason | None = None
    checks: ListOf[Check] = ()

    @property
    def shown(self) -> str | None:
        """The amount."""
        return None if self.value is None or self.refused else f"{self.value:g} {self.unit}"

    @property
    def firings(self) -> tuple[Firing, ...]:
        """The checks, as decisions of the record."""
        return tuple(Firing(hook=each.name, decision="allow" if each.passed else "deny") for each in self.checks)


class UnitsPack(Pack):
    """Conversions of units."""

    name = "units"
    version = "1"
    case_model = UnitsCase
    answer_model = Conversion
    suite_model = UnitsSuiteConfig

    def terms(self, case: UnitsCase, answer: Conversion, rules: UnitsSuiteConfig) -> Iterator[Term | Agreement]:
        """Yield the points of value, unit and working, or of a refusal, and what makes the score exactly 0."""
        due, points = case.expected.answer, rules.points
        if answer.refused and answer.value is not None:
            yield Term(name="amount_beside_a_refusal", effect="zero")
        if due is None and answer.refused:
            is_right = answer.refusal == case.expected.refuse
            detail = f"{answer.refusal}, expected {case.expected.refuse}"
            yield Agreement(level="refusal")
            yield Term(name="refusal", value=1.0 if is_right else points.wrong_reason, detail=detail)
        elif due is None or answer.refused:
            yield Term(name="unexpected_refusal" if due else "unexpected_answer", effect="zero")
        elif answer.value is None or answer.unit is None:
            yield Term(name="no_amount", effect="zero", detail="neither an amount nor a refusal")
        else:
            found = converted(answer.value, answer.unit, due.unit)
            level = _level(found, due.value, rules)
            yield Agreement(level=level)
            value = {"value": points.value, "near": points.near}.get(level, 0.0)
            yield Term(name="value", value=value, detail=f"{answer.shown}, expected {due.value:g}")
            yield Term(name="unit", value=points.unit * (answer.unit == due.unit), detail=f"expected {due.unit}")
            yield Term(name="working", value=points.working * bool(answer.working))
            yield from _hard_fails(case, due, answer.unit, found, rules)

    def expects_refusal(self, case: UnitsCase) -> bool:
        """Return whether the question has no answer."""
        return case.expected.answer is None

    def facets(self, case: UnitsCase) -> dict[str, str]:
        """Return the quantity; reports and gates (`by: quantity`) can group by it."""
        answer = case.expected.answer
        return {"quantity": UNITS[answer.unit].quantity} if answer else {}

    def target(self, rules: UnitsSuiteConfig) -> Target:
        """Return the reference target, for suites without a target."""
        from packbench_units.target import convert  # only a run needs it

        del rules
        return convert

    def tools(self) -> Tools:
        """Return the lint rules; see `lint`."""
        from packbench_units.lint import UnitsTools  # only a command needs them

        return UnitsTools()


def _level(found: float | None, wanted: float, rules: UnitsSuiteConfig) -> str:
    if found is not None and math.isclose(found, wanted, rel_tol=rules.tolerance):
        return "value"
    if found is not None and math.isclose(found, wanted, rel_tol=rules.near_tolerance):
        return "near"
    return "none"


def _hard_fails(
    case: UnitsCase, due: Amount, unit: str, found: float | None, rules: UnitsSuiteConfig
) -> Iterator[Term]:
    if unit in UNITS and UNITS[unit].quantity != UNITS[due.unit].quantity:
        yield Term(name="wrong_quantity", effect="zero", detail=f"{unit} measures {UNITS[unit].quantity}")
    for never in case.expected.never:
        if found is not None and math.isclose(found, never, rel_tol=rules.tolerance):
            yield Term(name="forbidden_value", effect="zero", detail=f"{never:g} {due.unit}")
