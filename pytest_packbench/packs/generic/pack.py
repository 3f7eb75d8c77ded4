"""The generic pack: any pipeline that returns JSON, scored by the rules of its suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.model.answer import Agreement
from pytest_packbench.model.errors import format_value
from pytest_packbench.model.pack import Comparison, Pack, RecordFacts
from pytest_packbench.model.result import Term
from pytest_packbench.packs.generic.scoring import (
    FORBIDDEN,
    GenericAnswer,
    compared,
    criterion_term,
    forbidden_matches,
    refusal_term,
)
from pytest_packbench.packs.generic.suite import GenericCase, GenericSuiteConfig
from pytest_packbench.packs.generic.values import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.authoring import Tools
    from pytest_packbench.model.pack import Decision


class GenericPack(Pack):
    """Any pipeline that returns JSON, scored by the criteria in its suite."""

    name = "generic"
    version = "1"
    case_model = GenericCase
    answer_model = GenericAnswer
    suite_model = GenericSuiteConfig
    rules: GenericSuiteConfig

    def terms(self, case: GenericCase, answer: GenericAnswer, rules: GenericSuiteConfig) -> Iterator[Term | Agreement]:
        """Yield the terms of an answer in the order of the suite: the share of each criterion, and what is forbidden.

        The level of its agreement is `refusal`, `refusal_category_mismatch`, `unexpected_refusal` or
        `unexpected_acceptance`; None if the case expects an answer and the result is one.

        Raises:
            CriterionError: the case has no expected value for a criterion, or a criterion failed to run, or returned
                something other than a number from 0 to 1.
        """
        if answer.refused or rules.refusal.is_expected(case):
            term = refusal_term(case, answer, rules)
            yield Agreement(level=term.name)
            yield term
        else:
            for criterion, expected, value, grade in compared(case, answer, rules):
                yield criterion_term(criterion, expected, value, grade, rules)
        for name, match in forbidden_matches(case, answer, rules):
            yield Term(name=FORBIDDEN, effect="zero", detail=f"{name}: {match}")

    def expects_refusal(self, case: GenericCase) -> bool:
        """Return whether the case expects a refusal."""
        return self.rules.refusal.is_expected(case)

    def facts(self, case: GenericCase, answer: GenericAnswer | None, terms: Sequence[Term]) -> RecordFacts:
        """Describe case and answer: every hard fail is an unsafe act; compare each criterion, and what is forbidden."""
        if answer is None:
            return RecordFacts(labels=self.rules.labels_of(case, MISSING))
        labels = self.rules.labels_of(case, MISSING if answer.refused else answer.result)
        is_unsafe = not answer.refused and any(term.effect == "zero" for term in terms)
        decision: Decision | None = "comply_unsafe" if is_unsafe else None
        return RecordFacts(agent_decision=decision, labels=labels, compared=self._compared(case, answer))

    def _compared(self, case: GenericCase, answer: GenericAnswer) -> Iterator[Comparison]:
        is_due = self.expects_refusal(case)
        category = self.rules.refusal.expected_category_of(case) or "any category"
        expected = f"refusal ({category})" if is_due else "answer"
        actual = f"refusal ({answer.category or 'no category'})" if answer.refused else "answer"
        yield Comparison(what="decision", expected=expected, actual=actual)
        if not is_due and not answer.refused:
            for criterion, expected_value, value, _ in compared(case, answer, self.rules):
                shown = criterion.nothing if value is MISSING else format_value(value)
                yield Comparison(what=criterion.title, expected=criterion.describe(expected_value), actual=shown)
        for name, match in forbidden_matches(case, answer, self.rules):
            yield Comparison(what=name, expected="never", actual=match)

    def tools(self) -> Tools:
        """Return lint rules, importers of tables, the starter, and what review and audit need."""
        from pytest_packbench.packs.generic.tools import GenericTools  # only commands need it

        return GenericTools()
