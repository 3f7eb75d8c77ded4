"""The pack: the modules of this package behind the protocol of pytest-packbench."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packbench_units import outcome as reading
from packbench_units import scoring
from packbench_units.model import UnitsCase, UnitsSuiteConfig
from packbench_units.table import UNITS
from pytest_packbench import Comparison, Pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from packbench_units.outcome import UnitsOutcome
    from pytest_packbench import FiledCase, Finding, Score, Target


class UnitsPack(Pack):
    """Conversions of units."""

    name = "units"
    version = "1"
    case_model = UnitsCase
    suite_model = UnitsSuiteConfig

    def read(self, result: object) -> UnitsOutcome:
        """Read a result; see `outcome.read`.

        Raises:
            ResultError: it can't be read.
        """
        return reading.read(result)

    def score(self, case: UnitsCase, outcome: UnitsOutcome, rules: UnitsSuiteConfig) -> Score:
        """Score an outcome; see `scoring.score`."""
        return scoring.score(case, outcome, rules)

    def expects_refusal(self, case: UnitsCase) -> bool:
        """Return whether the question has no answer."""
        return case.expected.answer is None

    def target(self, rules: UnitsSuiteConfig) -> Target:
        """Give the reference target, for suites that name none."""
        from packbench_units.target import convert  # only a run needs it

        del rules
        return convert

    def facets(self, case: UnitsCase) -> dict[str, str]:
        """Give the quantity, which reports and gates (`by: quantity`) group by."""
        answer = case.expected.answer
        return {"quantity": UNITS[answer.unit].quantity} if answer else {}

    def explain(self, case: UnitsCase, outcome: UnitsOutcome) -> list[Comparison]:
        """Give the rows expected against actual."""
        answer = case.expected.answer
        due = "answer" if answer else f"refusal ({case.expected.refuse})"
        done = f"refusal ({outcome.reason})" if outcome.refused else "answer"
        rows = [Comparison(what="decision", expected=due, actual=done)]
        if answer and not outcome.refused:
            rows.append(Comparison(what="value", expected=f"{answer.value:g}", actual=f"{outcome.value:g}"))
            rows.append(Comparison(what="unit", expected=answer.unit, actual=str(outcome.unit)))
        return rows

    def lint(
        self, cases: Sequence[FiledCase], rules: UnitsSuiteConfig, options: Mapping[str, Path]
    ) -> Iterator[Finding]:
        """Give what the rules of case quality find; see `lint.lint`."""
        from packbench_units import lint  # only the command needs it

        del options
        return lint.lint(cases, rules)
