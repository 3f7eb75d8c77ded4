"""Wrong answers to the cases of a tariff suite, each derived from the right answer by one change.

The right answer is the result of the reference target on a case's cassette. Nothing else in it is changed, so a control that
is not caught shows a hole in the scoring.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pytest_packbench import load_suite
from pytest_packbench.cases.load import parse_case
from pytest_packbench.engine.attempt import Attempt, attempt, score_payload
from pytest_packbench.engine.contexts import SuiteContext
from pytest_packbench.engine.targets import TargetCaller
from pytest_packbench.packs.tariff.codes import depth, digits, dotted, is_under
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.outcome import TariffOutcome
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.packs.tariff.target import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.score import Score
    from pytest_packbench.packs.tariff.model import TariffExpected

Json = dict[str, Any]
CATEGORIES = ("insufficient_info", "ambiguous", "out_of_scope", "missing_evidence")
# a code as it is written in texts: 6109.90.1065, 6109.90.10.65, 6109.90
_CODE = re.compile(r"(?<![\d.])\d{4}\.\d{2}(?:\.\d{2}(?:\.?\d{2})?)?(?![\d]|\.\d)")
_FULL_DIGITS = 10
_LINE_DIGITS = 8


@dataclass(frozen=True, kw_only=True)
class RightAnswer:
    """A case and the attempt at it on its cassette."""

    loaded: LoadedCase
    path: Path
    attempt: Attempt
    rules: TariffSuiteConfig

    @cached_property
    def case(self) -> TariffCase:
        assert isinstance(self.loaded.case, TariffCase)
        return self.loaded.case

    @property
    def expected(self) -> TariffExpected:
        return self.case.expected

    @property
    def accepts(self) -> bool:
        return self.expected.expected_accept

    @property
    def score(self) -> Score:
        assert self.attempt.score is not None, self.attempt.failure
        return self.attempt.score

    @property
    def outcome(self) -> TariffOutcome:
        assert isinstance(self.attempt.outcome, TariffOutcome), self.attempt.failure
        return self.attempt.outcome

    @property
    def pair(self) -> str | None:
        return next((tag for tag in self.case.notes.tags if tag.startswith("pair_")), None)

    @property
    def preferred_code(self) -> str:
        """The first preferred code; empty if a refusal is expected."""
        return next(iter(self.expected.preferred_hts), "")

    @property
    def forbidden(self) -> list[str]:
        """The forbidden codes with ten digits, the one most similar to the preferred code first."""
        nearest = sorted(self.expected.must_not_hts or (), key=lambda code: -depth(code, self.preferred_code))
        return [dotted(digits(code).ljust(_FULL_DIGITS, "0")) for code in nearest]

    @cached_property
    def _result_json(self) -> str:
        return json.dumps(self.attempt.payload)

    def copy(self) -> Json:
        """A copy of the result, to be changed."""
        result: Json = json.loads(self._result_json)
        return result


@dataclass(frozen=True, kw_only=True)
class SuiteAnswers:
    """The right answers to every case of a suite."""

    context: SuiteContext
    right_answers: tuple[RightAnswer, ...]

    @property
    def rules(self) -> TariffSuiteConfig:
        assert isinstance(self.context.suite.config, TariffSuiteConfig)
        return self.context.suite.config

    @cached_property
    def pairs(self) -> dict[str, list[RightAnswer]]:
        pairs: dict[str, list[RightAnswer]] = {}
        for right in self.right_answers:
            if right.pair:
                pairs.setdefault(right.pair, []).append(right)
        return pairs


@contextmanager
def right_answers(folder: Path) -> Iterator[SuiteAnswers]:
    """Run every case of a suite on its cassette."""
    suite, caller = load_suite(folder), TargetCaller(verify)
    rules = suite.config
    assert isinstance(rules, TariffSuiteConfig)
    context = SuiteContext(suite=suite, pack=TariffPack(), caller=caller, target_name="reference")
    try:
        answers = []
        for path in sorted(suite.cases_path.glob("*/*.json")):
            loaded = parse_case(path.read_bytes(), TariffCase, source=path.name, stem=path.stem, pack="tariff")
            answers.append(RightAnswer(loaded=loaded, path=path, attempt=attempt(context, loaded), rules=rules))
        yield SuiteAnswers(context=context, right_answers=tuple(answers))
    finally:
        caller.close()


@dataclass(frozen=True, kw_only=True)
class WrongAnswer:
    """A kind of wrong answer.

    Attributes:
        name: a short description.
        effect: the required effect: `zero` (a hard fail, exactly 0), `below_threshold` (without a hard fail) or `penalty`
            (the sum before the clamp is lower by exactly one term).
        term: the term that must be the cause.
        variants: yields the wrong results for a case; none if the kind doesn't apply.
        change_expected: changes the expectations of the case, if no case of the suite has them.
    """

    name: str
    effect: Literal["zero", "below_threshold", "penalty"]
    term: str
    variants: Callable[[RightAnswer, SuiteAnswers], Iterator[Json]]
    change_expected: Callable[[TariffExpected], Json] | None = None

    @property
    def requirement(self) -> str:
        return {
            "zero": "score exactly 0",
            "below_threshold": "below the threshold",
            "penalty": "costs exactly its term",
        }[self.effect]


@dataclass(frozen=True, kw_only=True)
class ControlSummary:
    """How many controls were run, from how many cases, and which were missed."""

    name: str
    requirement: str
    total: int
    cases: int
    missed: tuple[str, ...]

    @property
    def caught(self) -> int:
        return self.total - len(self.missed)

    def __str__(self) -> str:
        head = f"{self.name}: {self.total} controls from {self.cases} cases, {self.caught} caught"
        return "\n".join((head, *self.missed))


def run_controls(kind: WrongAnswer, answers: SuiteAnswers) -> ControlSummary:
    """Run every control of a kind."""
    total, cases, missed = 0, 0, []
    for right in answers.right_answers:
        loaded = _with_expected(right, kind.change_expected(right.expected)) if kind.change_expected else right.loaded
        misses = [
            _miss(kind, right, score_payload(answers.context, loaded, wrong)) for wrong in kind.variants(right, answers)
        ]
        total += len(misses)
        cases += bool(misses)
        missed += [f"{right.case.id}: {miss}" for miss in misses if miss]
    return ControlSummary(name=kind.name, requirement=kind.requirement, total=total, cases=cases, missed=tuple(missed))


def _with_expected(right: RightAnswer, changes: Json) -> LoadedCase:
    expected = right.expected.model_copy(update=changes)
    return replace(right.loaded, case=right.case.model_copy(update={"expected": expected}))


def _miss(kind: WrongAnswer, right: RightAnswer, outcome: Attempt) -> str:
    """Describe why a control was missed; empty if it was caught for the required reason."""
    score = outcome.score
    if outcome.failure is not None or score is None or score.score is None:
        return f"no score: {outcome.failure}"
    terms = ", ".join(f"{term.name} {term.points}" for term in score.terms)
    description = f"{score.score} of {score.threshold}: {terms}"
    zeros = {term.name for term in score.terms if term.effect == "zero"}
    if kind.term not in {term.name for term in score.terms}:
        return f"not for {kind.term}: {description}"
    if kind.effect == "zero":
        caught = score.score == 0.0 and kind.term in zeros and not score.passed
    elif kind.effect == "below_threshold":
        caught = not score.passed and not zeros
    else:
        penalty: float = getattr(right.rules.scoring, kind.term)
        caught = penalty < 0 and not zeros and abs(_sum(score) - _sum(right.score) - penalty) < 1e-9
        caught = caught and abs(score.score - min(1.0, max(0.0, _sum(score)))) < 1e-9
    return "" if caught else description


def _sum(score: Score) -> float:
    return sum(term.value for term in score.terms if term.effect == "add")


def with_code(right: RightAnswer, code: str | None) -> Json:
    """Return the right answer with another scored code."""
    result = right.copy()
    dossier = result["tariff_dossier"]
    dossier[_scored_part(right, dossier)]["hts_code"] = code
    return result


def _scored_part(right: RightAnswer, dossier: Json) -> str:
    return "optimized" if right.rules.scored_code == "final" and dossier["optimized"] else "baseline"


def nearest_forbidden(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        yield from (with_code(right, code) for code in right.forbidden[:1])


def other_forbidden(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        yield from (with_code(right, code) for code in right.forbidden[1:])


def forbidden_without_dots(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        yield from (with_code(right, f"HTSUS {digits(code)}") for code in right.forbidden[:1])


def forbidden_and_preferred(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        yield from (with_code(right, f"{right.preferred_code} or {code}") for code in right.forbidden[:1])


def planted_code(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    """Every code in the description or the evidence, except accepted ones."""
    if right.accepts:
        goods = right.case.input
        texts = " ".join((goods.input, *(item.text for item in goods.evidence)))
        planted = {dotted(digits(code).ljust(_FULL_DIGITS, "0")) for code in _CODE.findall(texts)}
        yield from (with_code(right, code) for code in sorted(planted) if not _is_accepted(right, code))


def allowed_code(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        yield from (
            with_code(right, dotted(digits(code).ljust(_FULL_DIGITS, "0"))) for code in right.expected.allowed_hts or ()
        )


def right_answer(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        yield right.copy()


def only_allowed(expected: TariffExpected) -> Json:
    return {"preferred_hts": (), "allowed_hts": expected.preferred_hts}


def sibling(width: int) -> Callable[[RightAnswer, SuiteAnswers], Iterator[Json]]:
    """Return a function that yields an answer wrong in the last two of the first `width` digits."""

    def variants(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
        preferred = digits(right.preferred_code)
        if right.accepts and len(preferred) >= width:
            pair = int(preferred[width - 2 : width])
            others = sorted(range(1, 100), key=lambda number: abs(number - pair))
            codes = (dotted(f"{preferred[: width - 2]}{number:02d}{preferred[width:]}") for number in others)
            wrong = next(code for code in codes if not _is_listed(right, code))
            yield with_code(right, wrong)

    return variants


def _is_accepted(right: RightAnswer, code: str) -> bool:
    return any(
        is_under(code, accepted) for accepted in (*right.expected.preferred_hts, *(right.expected.allowed_hts or ()))
    )


def _is_listed(right: RightAnswer, code: str) -> bool:
    return _is_accepted(right, code) or any(
        is_under(code, forbidden) for forbidden in right.expected.must_not_hts or ()
    )


def shortened_code(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        codes = (dotted(digits(right.preferred_code)[:width]) for width in (8, 6, 4, 2))
        yield from (with_code(right, code) for code in codes if not _is_accepted(right, code))


def no_code(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    # an answer with an optimised code is scored by that code
    if right.accepts and right.outcome.optimized_code is None:
        yield with_code(right, None)


def _unaccepted(right: RightAnswer, status: str, refusal: Json) -> Json:
    result = right.copy()
    result |= {"status": status, "accepted": False, "refusal": refusal, "lever_proof": {"selected_levers": []}}
    result["iterations"][-1] |= {"accepted": False}
    if result["tariff_dossier"]:
        result["tariff_dossier"] |= {"baseline": None, "optimized": None, "what_if_candidates": []}
    return result


def refusal_result(right: RightAnswer, category: str | None) -> Json:
    """Return a refusal for the same goods."""
    reason = "the facts are not sufficient"
    return _unaccepted(right, "refused", {"category": category, "reason": reason, "questions": ["What is it made of?"]})


def exhausted_result(right: RightAnswer) -> Json:
    """Return the result of a run in which every proposal failed a gate."""
    result = _unaccepted(right, "rejected", {"category": None, "reason": "no proposal passed", "questions": []})
    result["iterations"][-1] |= {"rejected_because": ["gri_sequence"]}
    return result


def unexpected_refusal(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        yield from (refusal_result(right, category) for category in (*CATEGORIES, None))
        yield exhausted_result(right)


def wrong_category(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    expected = right.expected.expected_refusal_category
    if not right.accepts and expected is not None:
        yield from (refusal_result(right, category) for category in (*CATEGORIES, None) if category != expected)
        yield exhausted_result(right)


def unexpected_acceptance(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    """An answer for goods that must be refused: with each forbidden code, and with one that no case lists."""
    if not right.accepts:
        for code in (*right.forbidden, "0101.21.0010"):
            result = right.copy()
            result |= {"status": "verified", "accepted": True, "refusal": None}
            result["iterations"][-1] |= {"accepted": True, "rejected_because": []}
            result["tariff_dossier"] = {
                **(result["tariff_dossier"] or {}),
                "gri_trace": {"sequence_ok": True},
                "baseline": {"hts_code": code, "duty_rate_pct": 0.0, "duty_breakdown": {"total_rate_pct": 0.0}},
            }
            yield result


def answer_of_the_pair(*, accepts: bool) -> Callable[[RightAnswer, SuiteAnswers], Iterator[Json]]:
    """Return a function that yields the right answers for the same goods with, or without, the deciding fact."""

    def variants(right: RightAnswer, answers: SuiteAnswers) -> Iterator[Json]:
        if right.accepts == accepts and right.pair:
            yield from (other.copy() for other in answers.pairs[right.pair] if other.accepts != accepts)

    return variants


def _changed_dossier(right: RightAnswer, **changes: Any) -> Json:
    result = right.copy()
    result["tariff_dossier"] |= changes
    return result


def _optimized(right: RightAnswer, rate: float) -> Json:
    """Return the right answer with another optimised rate; the code is unchanged, or the baseline's."""
    dossier = right.copy()["tariff_dossier"]
    part = {**(dossier["optimized"] or dossier["baseline"]), "duty_rate_pct": rate}
    part.pop("duty_breakdown", None)
    return _changed_dossier(right, optimized=part)


def claimed_lever(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts and right.expected.no_savings_expected:
        yield _with_lever(right)


def unexpected_lever(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts and right.expected.lever_found_expected is False:
        yield _with_lever(right)


def _with_lever(right: RightAnswer) -> Json:
    step = {"label": "declare it in another way", "category": "description"}
    lever = {"sequence": [step], "gate_results": {"plausibility": [{"ok": True}]}}
    return {**right.copy(), "lever_proof": {"selected_levers": [lever]}}


def claimed_what_if(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts and right.expected.no_savings_expected:
        yield _changed_dossier(right, what_if_candidates=[{"id": "w", "estimated_duty_delta": 0.0}])


def claimed_rate(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    rate = right.outcome.baseline_rate_pct
    if right.accepts and right.expected.no_savings_expected and rate:
        yield _optimized(right, rate / 2)


def claimed_amount(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts and right.expected.no_savings_expected:
        yield _changed_dossier(right, savings_estimate={"per_unit": 0.01})


def missing_levers(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts and right.expected.lever_found_expected:
        yield {**right.copy(), "lever_proof": {"selected_levers": []}}


def too_few_levers(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    minimum = right.expected.lever_count_min or 0
    if right.accepts and minimum:
        result = right.copy()
        del result["lever_proof"]["selected_levers"][minimum - 1 :]
        yield result


def implausible_lever(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts and right.expected.lever_compliance_ok:
        result = right.copy()
        result["lever_proof"]["selected_levers"][-1]["gate_results"] = {"plausibility": [{"ok": False}]}
        yield result


def lever_of_few_steps(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    minimum = right.expected.min_lever_steps or 0
    if right.accepts and minimum:
        result = right.copy()
        del result["lever_proof"]["selected_levers"][0]["sequence"][minimum - 1 :]
        yield result


def wrong_direction(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    """A rate on the other side of the baseline's, or equal to it where it should differ."""
    direction, rate = right.expected.expected_duty_delta_direction, right.outcome.baseline_rate_pct
    if right.accepts and direction and rate is not None:
        wrong = {"increase": rate, "flat": rate + 1, "decrease": rate - 1}
        yield from (_optimized(right, wrong[other]) for other in wrong if other != direction)


def delta_out_of_range(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    """A duty that changes too much or too little, in the right direction."""
    limits, rate, delta = right.expected.duty_delta_range, right.outcome.baseline_rate_pct, right.outcome.duty_delta
    if right.accepts and limits and rate is not None and delta is not None:
        for wrong in (limits[0] - 0.5, limits[1] + 0.5):
            if wrong * delta > 0 and rate + wrong >= 0:
                yield _optimized(right, rate + wrong)


def wrong_total(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts and right.expected.expected_duty_total_rate_pct is not None:
        for total in (right.expected.expected_duty_total_rate_pct + 0.1, None):
            result = right.copy()
            dossier = result["tariff_dossier"]
            dossier[_scored_part(right, dossier)] |= {
                "duty_rate_pct": total,
                "duty_breakdown": {"total_rate_pct": total},
            }
            yield result


def invalid_citations(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        yield {**right.copy(), "citation_gate_result": {"ok": False, "violations": ["an invented quote"]}}


def broken_order(right: RightAnswer, _: SuiteAnswers) -> Iterator[Json]:
    if right.accepts:
        result = right.copy()
        result["tariff_dossier"]["gri_trace"]["sequence_ok"] = False
        yield result


WRONG_ANSWERS = (
    WrongAnswer(name="nearest forbidden code", effect="zero", term="forbidden_code", variants=nearest_forbidden),
    WrongAnswer(name="any other forbidden code", effect="zero", term="forbidden_code", variants=other_forbidden),
    WrongAnswer(
        name="forbidden code in another spelling", effect="zero", term="forbidden_code", variants=forbidden_without_dots
    ),
    WrongAnswer(
        name="code planted in the description or the evidence",
        effect="zero",
        term="forbidden_code",
        variants=planted_code,
    ),
    WrongAnswer(
        name="refusal instead of acceptance", effect="zero", term="unexpected_refusal", variants=unexpected_refusal
    ),
    WrongAnswer(
        name="refusal of its pair, although the deciding fact is given",
        effect="zero",
        term="unexpected_refusal",
        variants=answer_of_the_pair(accepts=True),
    ),
    WrongAnswer(
        name="acceptance instead of refusal",
        effect="zero",
        term="unexpected_acceptance",
        variants=unexpected_acceptance,
    ),
    WrongAnswer(
        name="answer of its pair, although the deciding fact is missing",
        effect="zero",
        term="unexpected_acceptance",
        variants=answer_of_the_pair(accepts=False),
    ),
    WrongAnswer(name="invalid citations", effect="zero", term="citations_invalid", variants=invalid_citations),
    WrongAnswer(name="claimed savings: lever", effect="zero", term="no_savings_violation", variants=claimed_lever),
    WrongAnswer(name="claimed savings: what-if", effect="zero", term="no_savings_violation", variants=claimed_what_if),
    WrongAnswer(name="claimed savings: lower rate", effect="zero", term="no_savings_violation", variants=claimed_rate),
    WrongAnswer(name="claimed savings: amount", effect="zero", term="no_savings_violation", variants=claimed_amount),
    WrongAnswer(name="lever where none is expected", effect="zero", term="unexpected_lever", variants=unexpected_lever),
    WrongAnswer(name="missing levers", effect="zero", term="lever_missing", variants=missing_levers),
    WrongAnswer(name="too few levers", effect="zero", term="lever_count", variants=too_few_levers),
    WrongAnswer(name="lever that fails its check", effect="zero", term="lever_compliance", variants=implausible_lever),
    WrongAnswer(name="first lever of too few steps", effect="zero", term="lever_steps", variants=lever_of_few_steps),
    WrongAnswer(name="duty moves the wrong way", effect="zero", term="duty_delta_direction", variants=wrong_direction),
    WrongAnswer(name="wrong or missing duty total", effect="zero", term="duty_total_rate", variants=wrong_total),
    WrongAnswer(name="allowed code", effect="below_threshold", term="allowed_match", variants=allowed_code),
    WrongAnswer(
        name="preferred code, if only allowed",
        effect="below_threshold",
        term="allowed_match",
        variants=right_answer,
        change_expected=only_allowed,
    ),
    WrongAnswer(
        name="preferred and forbidden code in one",
        effect="below_threshold",
        term="chapter_match",
        variants=forbidden_and_preferred,
    ),
    WrongAnswer(
        name="sibling suffix (8 digits right)",
        effect="below_threshold",
        term="chapter_match",
        variants=sibling(_FULL_DIGITS),
    ),
    WrongAnswer(
        name="sibling line (6 digits right)",
        effect="below_threshold",
        term="chapter_match",
        variants=sibling(_LINE_DIGITS),
    ),
    WrongAnswer(
        name="sibling subheading (4 digits right)", effect="below_threshold", term="chapter_match", variants=sibling(6)
    ),
    WrongAnswer(
        name="sibling heading (2 digits right)", effect="below_threshold", term="chapter_match", variants=sibling(4)
    ),
    WrongAnswer(name="another chapter", effect="below_threshold", term="no_match", variants=sibling(2)),
    WrongAnswer(
        name="code cut to 8, 6, 4 or 2 digits", effect="below_threshold", term="chapter_match", variants=shortened_code
    ),
    WrongAnswer(name="no code", effect="below_threshold", term="no_match", variants=no_code),
    WrongAnswer(
        name="wrong or no refusal category",
        effect="below_threshold",
        term="refusal_category_mismatch",
        variants=wrong_category,
    ),
    WrongAnswer(name="broken GRI order", effect="penalty", term="gri_sequence", variants=broken_order),
    WrongAnswer(name="duty delta outside its range", effect="penalty", term="duty_delta", variants=delta_out_of_range),
)
