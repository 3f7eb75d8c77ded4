"""The tariff pack: this package behind the interface `Pack`."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pytest_packbench.model.errors import pluralize, validation_problems
from pytest_packbench.model.pack import Comparison, Pack, RecordFacts
from pytest_packbench.model.request import VerifyRequest
from pytest_packbench.model.result import Breakdown, Firing, Outcome, ResultError
from pytest_packbench.packs import read_starter
from pytest_packbench.packs.tariff import metrics, scoring
from pytest_packbench.packs.tariff.answer import OpenAnswer, TariffAnswer, one_line
from pytest_packbench.packs.tariff.edition import load_edition
from pytest_packbench.packs.tariff.judged import DEPTHS, Judged
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.notation import LEVELS, chapter, dotted, is_under
from pytest_packbench.packs.tariff.savings import duty_delta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from pytest_packbench.model.authoring import FiledCase, Finding, Importer, Starter
    from pytest_packbench.model.pack import Decision
    from pytest_packbench.model.request import Target
    from pytest_packbench.model.result import Score, Term
    from pytest_packbench.model.suite import Figure, Panel
    from pytest_packbench.packs.tariff.edition import Edition

_CHAPTER_TAG = re.compile(r"chapter_([0-9]{2})")
_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TariffOutcome(Outcome):
    """An answer as the core asks for it.

    Attributes:
        document: the answer.
    """

    document: TariffAnswer


class TariffPack(Pack):
    """Classification of goods: codes, refusals, forbidden codes, savings claims."""

    name = "tariff"
    version = "3"
    case_model = TariffCase
    answer_model: type[TariffAnswer] = TariffAnswer
    suite_model = TariffSuiteConfig
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
    depths = LEVELS
    edition: Edition | None = None
    rules: TariffSuiteConfig | None = None

    def for_suite(self, rules: TariffSuiteConfig) -> TariffPack:
        """Return the pack for one suite, whose cases have no threshold at which a wrong answer passes."""
        pack = copy(self)
        # a suite's model is built once
        pack.case_model = rules.case_model
        pack.answer_model = OpenAnswer if rules.unknown_keys == "ignore" else TariffAnswer
        pack.edition = None if rules.schedule is None else load_edition(rules.schedule)
        pack.rules = rules
        return pack

    def read(self, result: object) -> TariffOutcome:
        """Read a result as an answer; see `answer.TariffAnswer`.

        Raises:
            ResultError: a key that the document does not have, a value of another form, or no decision.
        """
        try:
            answer = self.answer_model.model_validate(result)
        except ValidationError as error:
            first, *more = validation_problems(error, TariffAnswer, result)
            others = f" (and {len(more)} more: {', '.join(each.pointer for each in more[:_MAX_SHOWN])})" if more else ""
            advice = "; what is said beside the document belongs in notes" if first.wrong.startswith("unknown") else ""
            message = one_line(f"{first.wrong}; {first.expected}{advice}{others}")
            raise ResultError(one_line(first.pointer), message) from None
        failure = answer.error
        return TariffOutcome(
            breakdown=Breakdown(kind=failure.kind, message=failure.message) if failure else None,
            refused=answer.status == "refused",
            answer=_answer(answer) if answer.status == "verified" else None,
            firings=tuple(Firing(hook=each.hook, decision=each.decision, rule=each.rule) for each in answer.trace),
            document=answer,
        )

    def terms(self, case: TariffCase, answer: TariffAnswer, rules: TariffSuiteConfig) -> Iterator[Term]:
        """Yield the terms of an answer; see `scoring.terms`."""
        return scoring.terms(Judged(case, answer, rules, self.edition))

    def score(self, case: TariffCase, outcome: TariffOutcome, rules: TariffSuiteConfig) -> Score:
        """Score an answer; see `scoring.score`."""
        return scoring.score(case, outcome.document, rules, self.edition)

    def decided_by(self, result: object) -> str:
        """Return the gates that failed the last rejected proposal, in their order; empty if none rejected one."""
        # also of an answer that can't be read
        trace = result.get("trace") if isinstance(result, dict) else None
        failed = [each for each in trace if _failed(each)] if isinstance(trace, list) else []
        last = max((each["iteration"] for each in failed), default=0)
        return ", ".join(each["hook"].removeprefix("tariff.") for each in failed if each["iteration"] == last)

    def expects_refusal(self, case: TariffCase) -> bool:
        """Return whether the case expects a refusal."""
        return not case.expected.expected_accept

    def threshold_of(self, case: TariffCase, rules: TariffSuiteConfig) -> float:
        """Return the lowest passing score; see `scoring.threshold_of`."""
        return scoring.threshold_of(case, rules)

    def facts(self, case: TariffCase, outcome: TariffOutcome, score: Score) -> RecordFacts:
        """Return the fields of the wire record that depend on the pack."""
        judged = self._judged(case, outcome)
        return RecordFacts(
            attack_category=case.case_type,
            expected="comply_safe" if case.expected.expected_accept else "refuse",
            agent_decision=_decision(outcome, score),
            valid=metrics.is_valid(judged),
            extra={metrics.KEY: metrics.case_facts(case) | metrics.answer_facts(judged)},
        )

    def _judged(self, case: TariffCase, outcome: TariffOutcome) -> Judged:
        return Judged(case, outcome.document, self.rules or TariffSuiteConfig(pack=self.name), self.edition)

    def unread_facts(self, case: TariffCase) -> RecordFacts:
        """Return what the figures of a run need of a case whose answer can't be read."""
        return RecordFacts(extra={metrics.KEY: metrics.case_facts(case)})

    def figures(self, records: Iterable[Mapping[str, Any]]) -> Sequence[Figure]:
        """Return the metrics of the field; see `metrics.figures`."""
        return metrics.figures(records)

    def panels(self, records: Iterable[Mapping[str, Any]], figures: Sequence[Figure]) -> Sequence[Panel]:  # noqa: ARG002 - the signature of all packs
        """Return the confusion of chapters and the invalid codes; see `metrics.panels`."""
        return metrics.panels(records)

    def target(self, rules: TariffSuiteConfig) -> Target:
        """Return the reference target: propose, critique, check by the suite's schedule and the other gates, revise."""
        from pytest_packbench.packs.tariff.target import reference_target  # needed in runs only

        return reference_target(None if rules.schedule is None else load_edition(rules.schedule))

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

    def explain(self, case: TariffCase, outcome: TariffOutcome) -> list[Comparison]:
        """Return expected and actual values: the decision; of an answer its codes, how deep they agree, and duty."""
        return [
            Comparison(what=what, expected=wanted, actual=given)
            for what, wanted, given in _rows(self._judged(case, outcome))
        ]

    def also_acceptable(
        self, case: TariffCase, outcome: TariffOutcome, rules: TariffSuiteConfig
    ) -> list[tuple[tuple[str, ...], str]]:
        """Return the scored code as an allowed one if an allowed code can pass in the suite, else as a preferred one.

        Raises:
            ValueError: the answer has no code, or is right by something else than its code.
        """
        expected, judged = case.expected, self._judged(case, outcome)
        if not (expected.expected_accept and outcome.document.status == "verified"):
            advice = "change expected_accept and expected_refusal_category by hand"
            raise ValueError(f"the case or the answer is a refusal, not a code; {advice}")
        if expected.articles or outcome.document.dossier.articles:
            raise ValueError("several articles: add the codes to preferred_hts of their articles by hand")
        if judged.scored is None:
            raise ValueError("the answer has no code to accept; change expected by hand")
        code = dotted(judged.scored.hts_code)
        if any(is_under(code, each) for each in expected.must_not_hts or ()):
            raise ValueError(f"{code} is forbidden by must_not_hts; remove it there by hand first")
        if judged.matches[0].level == "preferred":
            raise ValueError(f"{code} is a preferred code already, and the answer fails by another rule")
        allowed = expected.model_copy(update={"allowed_hts": (*(expected.allowed_hts or ()), code)})
        changed = case.model_copy(update={"expected": allowed})
        passes = scoring.score(changed, outcome.document, rules, self.edition).passed
        return [(("allowed_hts" if passes else "preferred_hts",), code)]

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


def _failed(ruling: object) -> bool:
    """Return whether a ruling is that of a gate which failed a proposal."""
    plain = ruling if isinstance(ruling, dict) else {}
    is_known = isinstance(plain.get("iteration"), int) and isinstance(plain.get("hook"), str)
    return is_known and plain.get("decision") == "fail"


def _decision(outcome: TariffOutcome, score: Score) -> Decision:
    if outcome.refused:
        return "refuse"
    unsafe = any(term.name in scoring.UNSAFE_TERMS for term in score.terms)
    return "comply_unsafe" if unsafe else "comply_safe"


def _answer(answer: TariffAnswer) -> str | None:
    """Describe the codes of an answer in one line; None without any."""
    dossier = answer.dossier
    if dossier.articles:
        shown = [f'"{each.article}": {dotted(each.baseline.hts_code)}' for each in dossier.articles[:_MAX_SHOWN]]
        hidden = len(dossier.articles) - len(shown)
        return "; ".join([*shown, *([f"and {hidden} more"] if hidden else [])])
    # the suite decides which of the two is scored, so tables show both
    parts = [part for part in (dossier.baseline, dossier.optimized) if part]
    codes = list(dict.fromkeys(dotted(part.hts_code) for part in parts))
    return ", optimised ".join(codes) or None


def _rows(judged: Judged) -> Iterator[tuple[str, str, str]]:
    """Yield what is compared, what was expected and what was given."""
    expected, answer = judged.expected, judged.answer
    refusal = f"refusal ({expected.expected_refusal_category or 'any category'})"
    yield "decision", "answer" if expected.expected_accept else refusal, _described(answer)
    if not expected.expected_accept or answer.status != "verified":
        return
    codes = [f"{article.name} {' or '.join(article.preferred_hts)}" for article in expected.articles or ()]
    for kind, listed in (("preferred", expected.preferred_hts), ("allowed", expected.allowed_hts)):
        codes += [f"{kind} {', '.join(listed)}"] if listed else []
    codes += [f"forbidden {', '.join(expected.must_not_hts)}"] if expected.must_not_hts else []
    yield "code", "; ".join(codes), _answer(answer) or "no code"
    yield "agreement", DEPTHS[LEVELS[-1]], ", ".join(DEPTHS[match.known_depth] for match in judged.matches)
    if expected.expected_duty_total_rate_pct is not None:
        yield (
            "duty rate",
            f"{expected.expected_duty_total_rate_pct:g} %",
            _percent(judged.scored.total if judged.scored else None),
        )
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


def _described(answer: TariffAnswer) -> str:
    """Describe a decision in one line."""
    if answer.status == "verified":
        return f"answer ({_answer(answer) or 'no code'})"
    said = answer.refusal
    questions = len(said.questions) if said else 0
    category = (said.category if said else None) or "no category"
    asked = f"; {pluralize(questions, 'question')}" if questions else ""
    return f"refusal ({category}{asked})"


def _percent(rate: float | None) -> str:
    return "not known" if rate is None else f"{rate:g} %"
