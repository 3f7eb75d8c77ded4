"""Wrong answers to the cases of a tariff suite, each derived from the right answer by one change.

Nothing else in the right answer is changed, so a control that is not caught shows a hole in the scoring.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_packbench.engine.attempt import score_payload
from pytest_packbench.packs.tariff.codes import digits, dotted, is_under
from tests.controls.right_answers import summary, with_ten_digits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_packbench.engine.attempt import Attempt
    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.score import Score
    from tests.controls.right_answers import ControlSummary, Json, RightAnswer

    Variants = Callable[[RightAnswer], Iterable[Json]]

# the terms of wrong answers to goods that must be refused
OF_REFUSALS = frozenset({"unexpected_acceptance", "refusal_category_mismatch"})
BELOW = frozenset({"allowed_match", "chapter_match", "no_match", "refusal_category_mismatch"})
PENALTIES = frozenset({"gri_sequence", "duty_delta"})
CATEGORIES = ("insufficient_info", "ambiguous", "out_of_scope", "missing_evidence", None)
# a code as it is written in texts: 6109.90.1065, 6109.90.10.65, 6109.90
_CODE = re.compile(r"(?<![\d.])\d{4}\.\d{2}(?:\.\d{2}(?:\.?\d{2})?)?(?![\d]|\.\d)")


@dataclass(frozen=True)
class WrongAnswer:
    """A kind of wrong answer: `variants` returns the wrong results for a right one, none if the kind doesn't apply."""

    name: str
    # the term that must be the cause
    term: str
    variants: Variants
    # change the case so that its preferred codes are allowed ones
    only_allowed: bool = False

    @property
    def effect(self) -> Literal["zero", "below", "penalty"]:
        """The required effect: a hard fail, a score below the threshold without one, or a sum lower by the term."""
        return "below" if self.term in BELOW else "penalty" if self.term in PENALTIES else "zero"

    def results(self, right: RightAnswer) -> list[Json]:
        return list(self.variants(right)) if right.accepts != (self.term in OF_REFUSALS) else []


def run_controls(kind: WrongAnswer, answers: Sequence[RightAnswer]) -> ControlSummary:
    """Run every control of a kind."""
    required = {"zero": "score exactly 0", "below": "below the threshold", "penalty": "costs exactly its term"}
    return summary(
        kind.name,
        required[kind.effect],
        (
            (right, _miss(kind, right, score_payload(right.context, _case(kind, right), wrong)))
            for right in answers
            for wrong in kind.results(right)
        ),
    )


def _case(kind: WrongAnswer, right: RightAnswer) -> LoadedCase:
    if not kind.only_allowed:
        return right.loaded
    expected = right.expected.model_copy(update={"preferred_hts": (), "allowed_hts": right.expected.preferred_hts})
    return right.loaded._replace(case=right.case.model_copy(update={"expected": expected}))


def _miss(kind: WrongAnswer, right: RightAnswer, outcome: Attempt) -> str:
    """Describe why a control was missed; empty if it was caught for the required reason."""
    score = outcome.score
    if outcome.failure is not None or score is None or score.score is None:
        return f"no score: {outcome.failure}"
    terms = ", ".join(f"{term.name} {term.points}" for term in score.terms)
    zeros = {term.name for term in score.terms if term.effect == "zero"}
    caught = not score.passed and not zeros
    if kind.effect == "zero":
        caught = score.score == 0.0 and kind.term in zeros and not score.passed
    elif kind.effect == "penalty":
        penalty: float = getattr(right.rules.scoring, kind.term)
        is_exact = abs(_sum(score) - _sum(right.score) - penalty) < 1e-9
        is_clamped = abs(score.score - min(1.0, max(0.0, _sum(score)))) < 1e-9
        caught = penalty < 0 and not zeros and is_exact and is_clamped
    caught = caught and kind.term in {term.name for term in score.terms}
    return "" if caught else f"{score.score} of {score.threshold}, not for {kind.term}: {terms}"


def _sum(score: Score) -> float:
    return sum(term.value for term in score.terms if term.effect == "add")


def with_codes(codes: Callable[[RightAnswer], Iterable[str | None]]) -> Variants:
    """Change the scored code of a right answer into each of some codes."""

    def variants(right: RightAnswer) -> Iterator[Json]:
        for code in codes(right):
            result = right.copy()
            _scored_part(right, result)["hts_code"] = code
            yield result

    return variants


def _scored_part(right: RightAnswer, result: Json) -> Json:
    dossier = result["tariff_dossier"]
    part: Json = dossier["optimized" if right.rules.scored_code == "final" and dossier["optimized"] else "baseline"]
    return part


def planted_codes(right: RightAnswer) -> list[str]:
    """Return every code in the description or the evidence, except accepted ones."""
    goods = right.case.input
    texts = " ".join((goods.input, *(item.text for item in goods.evidence)))
    planted = sorted({with_ten_digits(code) for code in _CODE.findall(texts)})
    return [code for code in planted if not _is_accepted(right, code)]


def sibling(right: RightAnswer, width: int) -> list[str]:
    """Return a code that differs from the preferred one in the last two of its first `width` digits."""
    preferred = digits(right.preferred_code)
    if len(preferred) < width:
        return []
    pair = int(preferred[width - 2 : width])
    others = sorted(range(1, 100), key=lambda number: abs(number - pair))
    codes = (dotted(f"{preferred[: width - 2]}{number:02d}{preferred[width:]}") for number in others)
    forbidden = right.expected.must_not_hts or ()
    return [
        next(code for code in codes if not _is_accepted(right, code) and not any(is_under(code, f) for f in forbidden))
    ]


def shortened_codes(right: RightAnswer) -> list[str]:
    codes = (dotted(digits(right.preferred_code)[:width]) for width in (8, 6, 4, 2))
    return [code for code in codes if not _is_accepted(right, code)]


def _is_accepted(right: RightAnswer, code: str) -> bool:
    accepted = (*right.expected.preferred_hts, *(right.expected.allowed_hts or ()))
    return any(is_under(code, prefix) for prefix in accepted)


def refusals(right: RightAnswer, categories: Iterable[str | None]) -> Iterator[Json]:
    """Yield a refusal of the same goods in each category, and the result of a run in which every proposal failed."""
    results: list[tuple[str | None, str, list[str]]] = [(category, "refused", []) for category in categories]
    for category, status, reasons in [*results, (None, "rejected", ["gri_sequence"])]:
        result = right.copy()
        result |= {"status": status, "accepted": False, "lever_proof": {"selected_levers": []}}
        result["refusal"] = {"category": category, "reason": "no", "questions": ["What is it made of?"]}
        result["iterations"][-1] |= {"accepted": False, "rejected_because": reasons}
        if result["tariff_dossier"]:
            result["tariff_dossier"] |= {"baseline": None, "optimized": None, "what_if_candidates": []}
        yield result


def acceptances(right: RightAnswer) -> Iterator[Json]:
    """Yield an answer to goods that must be refused, with each forbidden code and with one that no case lists."""
    for code in (*right.forbidden, "0101.21.0010"):
        result = right.copy()
        result |= {"status": "verified", "accepted": True, "refusal": None}
        result["iterations"][-1] |= {"accepted": True, "rejected_because": []}
        baseline = {"hts_code": code, "duty_rate_pct": 0.0, "duty_breakdown": {"total_rate_pct": 0.0}}
        dossier = {"gri_trace": {"sequence_ok": True}, "baseline": baseline}
        yield result | {"tariff_dossier": {**(result["tariff_dossier"] or {}), **dossier}}


def of_its_pair(right: RightAnswer) -> list[Json]:
    return [partner.copy() for partner in right.partners]


def changed(right: RightAnswer, **changes: Any) -> list[Json]:
    return [{**right.copy(), **changes}]


def with_dossier(right: RightAnswer, **changes: Any) -> list[Json]:
    result = right.copy()
    return [{**result, "tariff_dossier": {**result["tariff_dossier"], **changes}}]


def with_rates(right: RightAnswer, rates: Iterable[float]) -> Iterator[Json]:
    """Yield the right answer with each of some optimised rates; the code is unchanged, or the baseline's."""
    dossier = right.copy()["tariff_dossier"]
    part = dossier["optimized"] or dossier["baseline"]
    for rate in rates:
        yield from with_dossier(right, optimized={**part, "duty_rate_pct": rate, "duty_breakdown": None})


def unsaving(variants: Variants) -> Variants:
    """Limit variants to cases that expect no savings."""
    return lambda right: variants(right) if right.expected.no_savings_expected else ()


def with_lever(right: RightAnswer) -> list[Json]:
    lever = {"sequence": [{"label": "declare it"}], "gate_results": {"plausibility": [{"ok": True}]}}
    return changed(right, lever_proof={"selected_levers": [lever]})


def half_rate(right: RightAnswer) -> Iterator[Json]:
    rate = right.outcome.baseline_rate_pct
    return with_rates(right, [rate / 2] if rate else [])


def with_levers(requirement: str, change: Callable[[list[Json], Any], list[Json]]) -> Variants:
    """Change the levers of a right answer, by what the case requires of them."""

    def variants(right: RightAnswer) -> Iterator[Json]:
        required, proof = getattr(right.expected, requirement), right.copy()["lever_proof"]
        if required:
            yield from changed(right, lever_proof={"selected_levers": change(proof["selected_levers"], required)})

    return variants


def last_implausible(levers: list[Json], _: bool) -> list[Json]:
    return [*levers[:-1], {**levers[-1], "gate_results": {"plausibility": [{"ok": False}]}}]


def first_cut(levers: list[Json], steps: int) -> list[Json]:
    return [{**levers[0], "sequence": levers[0]["sequence"][: steps - 1]}, *levers[1:]]


def wrong_directions(right: RightAnswer) -> Iterator[Json]:
    """Yield a rate on the other side of the baseline's, or equal to it where it should differ."""
    direction, rate = right.expected.expected_duty_delta_direction, right.outcome.baseline_rate_pct
    if direction and rate is not None:
        wrong = {"increase": rate, "flat": rate + 1, "decrease": rate - 1}
        yield from with_rates(right, [wrong[other] for other in wrong if other != direction])


def deltas_out_of_range(right: RightAnswer) -> Iterator[Json]:
    """Yield a duty that changes too much or too little, in the right direction."""
    limits, rate, delta = right.expected.duty_delta_range, right.outcome.baseline_rate_pct, right.outcome.duty_delta
    if limits and rate is not None and delta is not None:
        wrong = (limits[0] - 0.5, limits[1] + 0.5)
        yield from with_rates(right, [rate + by for by in wrong if by * delta > 0 and rate + by >= 0])


def wrong_totals(right: RightAnswer) -> Iterator[Json]:
    if right.expected.expected_duty_total_rate_pct is not None:
        for total in (right.expected.expected_duty_total_rate_pct + 0.1, None):
            result = right.copy()
            rates = {"duty_rate_pct": total, "duty_breakdown": {"total_rate_pct": total}}
            _scored_part(right, result).update(rates)
            yield result


def wrong_categories(right: RightAnswer) -> Iterable[Json]:
    expected = right.expected.expected_refusal_category
    return refusals(right, [category for category in CATEGORIES if category != expected]) if expected else ()


CODES: dict[str, tuple[str, Callable[[RightAnswer], Iterable[str | None]]]] = {
    "nearest forbidden code": ("forbidden_code", lambda right: right.forbidden[:1]),
    "any other forbidden code": ("forbidden_code", lambda right: right.forbidden[1:]),
    "forbidden code in another spelling": (
        "forbidden_code",
        lambda right: [f"HTSUS {digits(code)}" for code in right.forbidden[:1]],
    ),
    "code planted in the description or the evidence": ("forbidden_code", planted_codes),
    "allowed code": ("allowed_match", lambda right: map(with_ten_digits, right.expected.allowed_hts or ())),
    "preferred and forbidden code in one": (
        "chapter_match",
        lambda right: [f"{right.preferred_code} or {code}" for code in right.forbidden[:1]],
    ),
    "sibling suffix (8 digits right)": ("chapter_match", lambda right: sibling(right, 10)),
    "sibling line (6 digits right)": ("chapter_match", lambda right: sibling(right, 8)),
    "sibling subheading (4 digits right)": ("chapter_match", lambda right: sibling(right, 6)),
    "sibling heading (2 digits right)": ("chapter_match", lambda right: sibling(right, 4)),
    "another chapter": ("no_match", lambda right: sibling(right, 2)),
    "code cut to 8, 6, 4 or 2 digits": ("chapter_match", shortened_codes),
    # an answer with an optimised code is scored by that code
    "no code": ("no_match", lambda right: [None] if right.outcome.optimized_code is None else []),
}
OTHERS: dict[str, tuple[str, Variants]] = {
    "refusal instead of acceptance": ("unexpected_refusal", lambda right: refusals(right, CATEGORIES)),
    "refusal of its pair, although the deciding fact is given": ("unexpected_refusal", of_its_pair),
    "acceptance instead of refusal": ("unexpected_acceptance", acceptances),
    "answer of its pair, although the deciding fact is missing": ("unexpected_acceptance", of_its_pair),
    "wrong or no refusal category": ("refusal_category_mismatch", wrong_categories),
    "invalid citations": ("citations_invalid", lambda right: changed(right, citation_gate_result={"ok": False})),
    "claimed savings: lever": ("no_savings_violation", unsaving(with_lever)),
    "claimed savings: what-if": (
        "no_savings_violation",
        unsaving(lambda right: with_dossier(right, what_if_candidates=[{"id": "w", "estimated_duty_delta": 0.0}])),
    ),
    "claimed savings: lower rate": ("no_savings_violation", unsaving(half_rate)),
    "claimed savings: amount": (
        "no_savings_violation",
        unsaving(lambda right: with_dossier(right, savings_estimate={"per_unit": 0.01})),
    ),
    "lever where none is expected": (
        "unexpected_lever",
        lambda right: with_lever(right) if right.expected.lever_found_expected is False else (),
    ),
    "missing levers": ("lever_missing", with_levers("lever_found_expected", lambda *_: [])),
    "too few levers": ("lever_count", with_levers("lever_count_min", lambda levers, least: levers[: least - 1])),
    "lever that fails its check": ("lever_compliance", with_levers("lever_compliance_ok", last_implausible)),
    "first lever of too few steps": ("lever_steps", with_levers("min_lever_steps", first_cut)),
    "duty moves the wrong way": ("duty_delta_direction", wrong_directions),
    "wrong or missing duty total": ("duty_total_rate", wrong_totals),
    "duty delta outside its range": ("duty_delta", deltas_out_of_range),
    "broken GRI order": ("gri_sequence", lambda right: with_dossier(right, gri_trace={"sequence_ok": False})),
}
WRONG_ANSWERS = (
    *(WrongAnswer(name, term, with_codes(codes)) for name, (term, codes) in CODES.items()),
    *(WrongAnswer(name, *row) for name, row in OTHERS.items()),
    WrongAnswer("preferred code, if only allowed", "allowed_match", changed, only_allowed=True),
)
