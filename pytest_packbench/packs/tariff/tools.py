"""What commands need of the tariff pack, and no run: lint, the importer, a starter, accepted codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.model.answer import total_of
from pytest_packbench.model.authoring import Tools
from pytest_packbench.model.result import Term, judged
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.tariff.judged import Judged
from pytest_packbench.packs.tariff.notation import dotted, is_under
from pytest_packbench.packs.tariff.scoring import terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_packbench.model.authoring import FiledCase, Finding, Importer, Starter
    from pytest_packbench.packs.tariff.answer import TariffAnswer
    from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig


class TariffTools(Tools):
    """The tools of tariff suites."""

    own_lint_rules = frozenset(
        {
            # notes, tags and texts as the bundled suite has them
            *("chapter_tag", "citation_trap_evidence", "description_length", "edition_missing", "evidence_tag"),
            *("reason_missing", "source_form", "tag_unknown", "year_tag"),
            # codes of ten digits that exist, each case with a forbidden one
            *("code_form", "code_impossible", "forbidden_missing", "forbidden_unreachable", "preferred_length"),
            # the original requires codes in each case, and never passes an allowed one
            *("allowed_unreachable", "code_repeated", "preferred_undue"),
            # what its types and options mean
            *("leak_chapter", "refusal_category_missing", "savings_missing", "type_savings"),
        }
    )

    def lint(
        self,
        cases: Sequence[FiledCase],
        rules: TariffSuiteConfig,
        options: Mapping[str, Path],  # noqa: ARG002 - the signature of all packs
    ) -> Iterable[Finding]:
        """Return the findings of the lint rules; see `lint.lint`."""
        from pytest_packbench.packs.tariff import lint  # needed by `packbench lint` only

        return lint.lint(cases, rules)

    def importers(self) -> tuple[Importer, ...]:
        """Return the importer of suites of the original harness."""
        from pytest_packbench.packs.tariff.white_box.importer import WhiteBox  # needed by `packbench import` only

        return (WhiteBox(),)

    def starter(self) -> Starter:
        """Return a suite of two mugs with a target that classifies one of them right."""
        return read_starter(__package__)

    def also_acceptable(
        self, case: TariffCase, answer: TariffAnswer, rules: TariffSuiteConfig
    ) -> list[tuple[tuple[str, ...], str]]:
        """Return the scored code as an allowed one if an allowed code can pass in the suite, else as a preferred one.

        Raises:
            ValueError: the answer has no code, or is right by something else than its code.
        """
        expected, given = case.expected, Judged.of(case, answer, rules)
        if not (expected.expected_accept and answer.status == "verified"):
            advice = "change expected_accept and expected_refusal_category by hand"
            raise ValueError(f"the case or the answer is a refusal, not a code; {advice}")
        if expected.articles or answer.dossier.articles:
            raise ValueError("several articles: add the codes to preferred_hts of their articles by hand")
        if given.scored is None:
            raise ValueError("the answer has no code to accept; change expected by hand")
        code = dotted(given.scored.hts_code)
        if any(is_under(code, each) for each in expected.must_not_hts or ()):
            raise ValueError(f"{code} is forbidden by must_not_hts; remove it there by hand first")
        if given.matches[0].level == "preferred":
            raise ValueError(f"{code} is a preferred code already, and the answer fails by another rule")
        allowed = expected.model_copy(update={"allowed_hts": (*(expected.allowed_hts or ()), code)})
        changed = case.model_copy(update={"expected": allowed})
        points, _ = total_of([term for term in terms(Judged.of(changed, answer, rules)) if isinstance(term, Term)])
        passes = judged(points, rules.threshold_of(changed)) == "passed"
        return [(("allowed_hts" if passes else "preferred_hts",), code)]
