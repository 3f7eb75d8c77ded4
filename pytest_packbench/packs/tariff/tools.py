"""What commands need of the tariff pack, and no run: lint, the importer, a starter, accepted codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_packbench.model.authoring import Tools
from pytest_packbench.model.result import TOLERANCE
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.tariff.judged import Judged
from pytest_packbench.packs.tariff.notation import dotted

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
            ValueError: the answer has no code of the goods as a whole.
        """
        scored, points = Judged.of(case, answer, rules).scored, rules.scoring.allowed + rules.scoring.bonus
        if scored is None:
            raise ValueError("the answer has no code to accept, or one for each of several articles")
        threshold = rules.thresholds.of(case, refuses=not case.expected.expected_accept)
        key = "allowed_hts" if points >= threshold - TOLERANCE else "preferred_hts"
        return [((key,), dotted(scored.hts_code))]
