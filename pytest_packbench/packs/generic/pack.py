"""The generic pack: any pipeline that returns JSON, scored by the rules of its suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.model.errors import format_value
from pytest_packbench.model.pack import Comparison, Pack, RecordFacts
from pytest_packbench.packs.generic.scoring import GenericAnswer, compared, forbidden_matches, terms_of
from pytest_packbench.packs.generic.suite import GenericCase, GenericSuiteConfig
from pytest_packbench.packs.generic.values import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.answer import Agreement
    from pytest_packbench.model.authoring import Tools
    from pytest_packbench.model.pack import Decision
    from pytest_packbench.model.result import Term


class GenericPack(Pack):
    """Any pipeline that returns JSON, scored by the criteria in its suite."""

    name = "generic"
    version = "1"
    case_model = GenericCase
    answer_model = GenericAnswer
    suite_model = GenericSuiteConfig
    rules: GenericSuiteConfig

    def terms(self, case: GenericCase, answer: GenericAnswer, rules: GenericSuiteConfig) -> Iterator[Term | Agreement]:
        """Yield the terms of an answer; see `scoring.terms_of`."""
        return terms_of(case, answer, rules)

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
            for criterion, expected_value, value in compared(case, answer, self.rules):
                shown = criterion.nothing if value is MISSING else format_value(value)
                yield Comparison(what=criterion.title, expected=criterion.describe(expected_value), actual=shown)
        for name, match in forbidden_matches(case, answer, self.rules):
            yield Comparison(what=name, expected="never", actual=match)

    def tools(self) -> Tools:
        """Return lint rules, importers of tables, the starter, and what review and audit need."""
        from pytest_packbench.packs.generic.tools import GenericTools  # only commands need it

        return GenericTools()
