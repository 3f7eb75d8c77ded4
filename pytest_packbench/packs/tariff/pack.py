"""The tariff pack: classification of goods, with their duty."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_packbench.model.pack import Comparison, Pack, RecordFacts
from pytest_packbench.model.request import VerifyRequest
from pytest_packbench.packs.tariff import metrics, savings, scoring
from pytest_packbench.packs.tariff.answer import TariffAnswer
from pytest_packbench.packs.tariff.judged import DEPTHS, Judged, edition_of
from pytest_packbench.packs.tariff.model import CODE_LISTS, TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.notation import LEVELS, chapter, dotted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.answer import Agreement
    from pytest_packbench.model.authoring import Tools
    from pytest_packbench.model.request import Target
    from pytest_packbench.model.result import Term

_CHAPTER_TAG = re.compile(r"chapter_[0-9]{2}")


class TariffPack(Pack):
    """Classification of goods: codes, refusals, forbidden codes, savings claims."""

    name = "tariff"
    version = "3"
    case_model = TariffCase
    answer_model = TariffAnswer
    suite_model = TariffSuiteConfig
    metrics = metrics.TariffMetrics()
    rules: TariffSuiteConfig | None = None

    def terms(self, case: TariffCase, answer: TariffAnswer, rules: TariffSuiteConfig) -> Iterator[Term | Agreement]:
        """Yield the terms of an answer; see `scoring.terms`."""
        return scoring.terms(Judged.of(case, answer, rules))

    def expects_refusal(self, case: TariffCase) -> bool:
        """Return whether the case expects a refusal."""
        return not case.expected.expected_accept

    def request(self, case: TariffCase) -> VerifyRequest:
        """Return the verify request of the spec."""
        plain = case.input.model_dump(mode="json")
        asked = plain["options"] | {"articles": "each" if case.expected.articles else None}
        # recorded requests have an empty list of chapters, and no other empty value
        plain["options"] = {key: value for key, value in asked.items() if value or key == "candidate_chapters"}
        return VerifyRequest(**plain)

    def facets(self, case: TariffCase) -> dict[str, str]:
        """Return `chapter`: from the first preferred code or the first tag `chapter_NN`; empty without either."""
        tagged = [tag.removeprefix("chapter_") for tag in case.notes.tags if _CHAPTER_TAG.fullmatch(tag)]
        chapters = [*map(chapter, case.expected.all_preferred), *tagged]
        return {"chapter": chapters[0]} if chapters else {}

    def facts(self, case: TariffCase, answer: TariffAnswer | None, terms: Sequence[Term]) -> RecordFacts:
        """Describe case and answer: what the figures of a run need, and codes, rates and savings for a failing case."""
        known = metrics.case_facts(case)
        if answer is None:
            return RecordFacts(extra={metrics.KEY: known}, labels=metrics.labels(case, known))
        judged = Judged.of(case, answer, self.rules or TariffSuiteConfig(pack=self.name))
        known |= metrics.answer_facts(judged)
        is_unsafe = not answer.refused and any(term.name in scoring.UNSAFE_TERMS for term in terms)
        return RecordFacts(
            agent_decision="comply_unsafe" if is_unsafe else None,
            valid=metrics.is_valid(judged),
            extra={metrics.KEY: known},
            labels=metrics.labels(case, known),
            compared=_compared(judged),
        )

    def target(self, rules: TariffSuiteConfig) -> Target:
        """Return the reference target: propose, critique, check by the suite's schedule and the other gates, revise."""
        from pytest_packbench.packs.tariff.target import reference_target  # needed in runs only

        return reference_target(edition_of(rules.schedule))

    def tools(self) -> Tools:
        """Return lint rules, the importer of the original harness, the starter, and what review adds to cases."""
        from pytest_packbench.packs.tariff.tools import TariffTools  # only commands need it

        return TariffTools()


def _compared(judged: Judged) -> Iterator[Comparison]:
    """Yield the rows of a failing case: the decision; of an answer its codes, how deep they agree, rate and saving."""
    expected, answer, dossier = judged.expected, judged.answer, judged.dossier
    due = "answer" if expected.expected_accept else f"refusal ({expected.expected_refusal_category or 'any category'})"
    yield Comparison(what="decision", expected=due, actual=_decision(answer))
    if not expected.expected_accept or answer.status != "verified":
        return
    codes = [f"{article.name} {' or '.join(article.preferred_hts)}" for article in expected.articles or ()]
    for kind, key in zip(("preferred", "allowed", "forbidden"), CODE_LISTS, strict=True):
        codes += [f"{kind} {', '.join(listed)}"] if (listed := getattr(expected, key)) else []
    yield Comparison(what="code", expected="; ".join(codes), actual=answer.shown or "no code")
    depths = ", ".join(DEPTHS[match.known_depth] for match in judged.matches)
    yield Comparison(what="agreement", expected=DEPTHS[LEVELS[-1]], actual=depths)
    if (rate := expected.expected_duty_total_rate_pct) is not None:
        total = judged.scored and judged.scored.total
        yield Comparison(what="total rate", expected=f"{rate:g} %", actual="none" if total is None else f"{total:g} %")
    if asked := expected.savings:
        delta = savings.duty_delta(judged)
        offered = "no optimised code" if dossier.optimized is None else dotted(dossier.optimized.hts_code)
        yield Comparison(
            what="saving",
            expected=f"{asked.least:g} percentage points or more, by {savings.targets(asked)}",
            actual=offered if delta is None else f"{-delta:g} percentage points, by {offered}",
        )


def _decision(answer: TariffAnswer) -> str:
    """Describe a decision in one line."""
    if answer.status != "refused":
        return f"answer ({answer.shown or 'no code'})"
    return f"refusal ({(answer.refusal and answer.refusal.category) or 'no category'})"
