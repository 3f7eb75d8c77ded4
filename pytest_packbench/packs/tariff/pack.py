"""The tariff pack: classification of goods, with their duty."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from pytest_packbench.model.errors import pluralize
from pytest_packbench.model.pack import Comparison, Pack, RecordFacts
from pytest_packbench.model.request import VerifyRequest
from pytest_packbench.packs.tariff import metrics, scoring
from pytest_packbench.packs.tariff.answer import TariffAnswer
from pytest_packbench.packs.tariff.judged import DEPTHS, Judged, edition_of
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.notation import LEVELS, chapter, dotted
from pytest_packbench.packs.tariff.savings import duty_delta

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.answer import Agreement
    from pytest_packbench.model.authoring import Tools
    from pytest_packbench.model.request import Target
    from pytest_packbench.model.result import Term

_CHAPTER_TAG = re.compile(r"chapter_([0-9]{2})")


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
        if not case.input.options.changes:
            del plain["options"]["changes"]
        if case.expected.articles:
            plain["options"]["articles"] = "each"
        else:
            del plain["options"]["articles"]
        return VerifyRequest(input=plain["input"], options=plain["options"], evidence=plain["evidence"])

    def facets(self, case: TariffCase) -> dict[str, str]:
        """Return `chapter`: from the first preferred code or the first tag `chapter_NN`; empty without either."""
        preferred = map(chapter, case.expected.all_preferred)
        tagged = (match[1] for tag in case.notes.tags if (match := _CHAPTER_TAG.fullmatch(tag)))
        first = next(chain(preferred, tagged), None)
        return {"chapter": first} if first else {}

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
    """Yield the rows of a failing case: the decision; of an answer its codes, how deep they agree, duty and saving."""
    for what, wanted, given in _rows(judged):
        yield Comparison(what=what, expected=wanted, actual=given)


def _rows(judged: Judged) -> Iterator[tuple[str, str, str]]:
    """Yield what is compared, what was expected and what was given."""
    expected, answer = judged.expected, judged.answer
    refusal = f"refusal ({expected.expected_refusal_category or 'any category'})"
    yield "decision", "answer" if expected.expected_accept else refusal, _decision(answer)
    if not expected.expected_accept or answer.status != "verified":
        return
    codes = [f"{article.name} {' or '.join(article.preferred_hts)}" for article in expected.articles or ()]
    for kind, listed in (("preferred", expected.preferred_hts), ("allowed", expected.allowed_hts)):
        codes += [f"{kind} {', '.join(listed)}"] if listed else []
    codes += [f"forbidden {', '.join(expected.must_not_hts)}"] if expected.must_not_hts else []
    yield "code", "; ".join(codes), answer.shown or "no code"
    yield "agreement", DEPTHS[LEVELS[-1]], ", ".join(DEPTHS[match.known_depth] for match in judged.matches)
    total = expected.expected_duty_total_rate_pct
    if total is not None:
        yield "duty rate", _percent(total), _percent(judged.scored.total if judged.scored else None)
    if expected.duty_delta_range or expected.expected_duty_delta_direction:
        low, high = expected.duty_delta_range or (None, None)
        wanted = [f"{low:g} to {high:g} percentage points"] if low is not None else []
        wanted += [expected.expected_duty_delta_direction] if expected.expected_duty_delta_direction else []
        delta = duty_delta(judged)
        yield "duty delta", ", ".join(wanted), "not known" if delta is None else f"{delta:+g} percentage points"
    if expected.savings:
        targets = " or ".join(f"{target.code} by {target.change}" for target in expected.savings.targets)
        best, chosen = answer.dossier.optimized, answer.dossier.chosen
        by = f" by {chosen.change}" if chosen else ""
        given = f"{dotted(best.hts_code)}{by}, {_percent(best.total)}" if best else "none"
        yield "saving", f"{targets}, at least {expected.savings.least:g} percentage points", given


def _decision(answer: TariffAnswer) -> str:
    """Describe a decision in one line."""
    if answer.status != "refused":
        return f"answer ({answer.shown or 'no code'})"
    said = answer.refusal
    questions = len(said.questions) if said else 0
    category = (said.category if said else None) or "no category"
    asked = f"; {pluralize(questions, 'question')}" if questions else ""
    return f"refusal ({category}{asked})"


def _percent(rate: float | None) -> str:
    return "not known" if rate is None else f"{rate:g} %"
