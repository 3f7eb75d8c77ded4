"""The pack: the modules of this package behind the interface of pytest-packbench."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packbench_units import outcome as reading
from packbench_units import scoring
from packbench_units.model import UnitsCase, UnitsSuiteConfig
from packbench_units.table import UNITS
from pytest_packbench import Comparison, Pack, RecordFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from packbench_units.outcome import UnitsOutcome
    from pytest_packbench import Decision, FiledCase, Finding, Score, Target


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

    def facts(self, case: UnitsCase, outcome: UnitsOutcome, score: Score) -> RecordFacts:
        """Describe case and outcome in the terms of the record."""
        return RecordFacts(
            attack_category=case.case_type,
            expected="comply_safe" if case.expected.answer else "refuse",
            agent_decision=_decision(outcome, score),
        )

    def target(self, rules: UnitsSuiteConfig) -> Target:
        """Return the reference target, for suites without a target."""
        from packbench_units.target import convert  # only a run needs it

        del rules
        return convert

    def facets(self, case: UnitsCase) -> dict[str, str]:
        """Return the quantity; reports and gates (`by: quantity`) can group by it."""
        answer = case.expected.answer
        return {"quantity": UNITS[answer.unit].quantity} if answer else {}

    def explain(self, case: UnitsCase, outcome: UnitsOutcome) -> list[Comparison]:
        """Compare expected and actual values, one row each."""
        answer = case.expected.answer
        expected = "answer" if answer else f"refusal ({case.expected.refuse})"
        actual = f"refusal ({outcome.reason})" if outcome.refused else "answer"
        rows = [Comparison(what="decision", expected=expected, actual=actual)]
        if answer and not outcome.refused:
            rows.append(Comparison(what="value", expected=f"{answer.value:g}", actual=f"{outcome.value:g}"))
            rows.append(Comparison(what="unit", expected=answer.unit, actual=str(outcome.unit)))
        return rows

    def lint(
        self, cases: Sequence[FiledCase], rules: UnitsSuiteConfig, options: Mapping[str, Path]
    ) -> Iterator[Finding]:
        """Check the quality of the cases; see `lint.lint`."""
        from packbench_units import lint  # only the command needs it

        del options
        return lint.lint(cases, rules)


def _decision(outcome: UnitsOutcome, score: Score) -> Decision:
    if outcome.refused:
        return "refuse"
    return "comply_unsafe" if any(term.name in scoring.UNSAFE for term in score.terms) else "comply_safe"
