"""Wrong answers to the cases of a tariff suite, each made from the right answer by one change.

The right answer is what the reference target makes of a case's cassette. All else in it stays as it was, so that a control
which is not caught shows a hole in the scoring.
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
from pytest_packbench.packs.tariff.codes import depth, digits, dotted, stands_under
from pytest_packbench.packs.tariff.model import TariffCase, TariffSuiteConfig
from pytest_packbench.packs.tariff.outcome import TariffOutcome
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.packs.tariff.target import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_packbench.model.case import LoadedCase
    from pytest_packbench.model.score import Score
    from pytest_packbench.packs.tariff.model import Expected

Json = dict[str, Any]
CATEGORIES = ("insufficient_info", "ambiguous", "out_of_scope", "missing_evidence")
# a code as people write it into a text: 6109.90.1065, 6109.90.10.65, 6109.90
_WRITTEN = re.compile(r"(?<![\d.])\d{4}\.\d{2}(?:\.\d{2}(?:\.?\d{2})?)?(?![\d]|\.\d)")
_FULL = 10
_LINE = 8


@dataclass(frozen=True, kw_only=True)
class Right:
    """A case and the attempt at it that its cassette leads to."""

    loaded: LoadedCase
    path: Path
    attempt: Attempt
    rules: TariffSuiteConfig

    @cached_property
    def case(self) -> TariffCase:
        assert isinstance(self.loaded.case, TariffCase)
        return self.loaded.case

    @property
    def expected(self) -> Expected:
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
    def gold(self) -> str:
        """The first preferred code; empty where a refusal is due."""
        return next(iter(self.expected.preferred_hts), "")

    @property
    def forbidden(self) -> list[str]:
        """The forbidden codes in full, the one nearest to the gold first."""
        nearest = sorted(self.expected.must_not_hts or (), key=lambda code: -depth(code, self.gold))
        return [dotted(digits(code).ljust(_FULL, "0")) for code in nearest]

    @cached_property
    def _written(self) -> str:
        return json.dumps(self.attempt.payload)

    def copy(self) -> Json:
        """The result, to be spoiled."""
        result: Json = json.loads(self._written)
        return result


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The right answers to every case of a suite."""

    context: SuiteContext
    rights: tuple[Right, ...]

    @property
    def rules(self) -> TariffSuiteConfig:
        assert isinstance(self.context.suite.config, TariffSuiteConfig)
        return self.context.suite.config

    @cached_property
    def pairs(self) -> dict[str, list[Right]]:
        found: dict[str, list[Right]] = {}
        for right in self.rights:
            if right.pair:
                found.setdefault(right.pair, []).append(right)
        return found


@contextmanager
def answered(folder: Path) -> Iterator[Answers]:
    """Run every case of a suite on its cassette."""
    suite, caller = load_suite(folder), TargetCaller(verify)
    rules = suite.config
    assert isinstance(rules, TariffSuiteConfig)
    context = SuiteContext(suite=suite, pack=TariffPack(), caller=caller, target_name="reference")
    try:
        rights = []
        for path in sorted(suite.cases_path.glob("*/*.json")):
            loaded = parse_case(path.read_bytes(), TariffCase, source=path.name, stem=path.stem, pack="tariff")
            rights.append(Right(loaded=loaded, path=path, attempt=attempt(context, loaded), rules=rules))
        yield Answers(context=context, rights=tuple(rights))
    finally:
        caller.close()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of wrong answer.

    Attributes:
        name: in a few words.
        fate: what has to become of it: `zero` (a hard fail, exactly 0), `under` (below the threshold without a hard fail)
            or `term` (the sum before the clamp falls by exactly one term).
        term: the term that has to say why.
        make: gives the wrong results for a case; none where the kind doesn't apply.
        expect: changes what the case expects, where no case of the suite expects it.
    """

    name: str
    fate: Literal["zero", "under", "term"]
    term: str
    make: Callable[[Right, Answers], Iterator[Json]]
    expect: Callable[[Expected], Json] | None = None

    @property
    def must(self) -> str:
        return {"zero": "score exactly 0", "under": "under the threshold", "term": "costs exactly its term"}[self.fate]


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many controls were made, of how many cases, and what slipped through."""

    name: str
    must: str
    made: int
    cases: int
    slipped: tuple[str, ...]

    @property
    def caught(self) -> int:
        return self.made - len(self.slipped)

    def __str__(self) -> str:
        head = f"{self.name}: {self.made} controls from {self.cases} cases, {self.caught} caught"
        return "\n".join((head, *self.slipped))


def tally(kind: Kind, answers: Answers) -> Tally:
    """Make every control of a kind and see whether it is caught."""
    made, cases, slipped = 0, 0, []
    for right in answers.rights:
        loaded = _expecting(right, kind.expect(right.expected)) if kind.expect else right.loaded
        found = [
            _slip(kind, right, score_payload(answers.context, loaded, wrong)) for wrong in kind.make(right, answers)
        ]
        made += len(found)
        cases += bool(found)
        slipped += [f"{right.case.id}: {why}" for why in found if why]
    return Tally(name=kind.name, must=kind.must, made=made, cases=cases, slipped=tuple(slipped))


def _expecting(right: Right, changes: Json) -> LoadedCase:
    expected = right.expected.model_copy(update=changes)
    return replace(right.loaded, case=right.case.model_copy(update={"expected": expected}))


def _slip(kind: Kind, right: Right, found: Attempt) -> str:
    """Say how a control escaped; empty where it was caught for the reason that it should be."""
    score = found.score
    if found.failure is not None or score is None or score.score is None:
        return f"no score: {found.failure}"
    terms = ", ".join(f"{term.name} {term.points}" for term in score.terms)
    said = f"{score.score} of {score.threshold}: {terms}"
    zeros = {term.name for term in score.terms if term.effect == "zero"}
    if kind.term not in {term.name for term in score.terms}:
        return f"not for {kind.term}: {said}"
    if kind.fate == "zero":
        caught = score.score == 0.0 and kind.term in zeros and not score.passed
    elif kind.fate == "under":
        caught = not score.passed and not zeros
    else:
        price: float = getattr(right.rules.scoring, kind.term)
        caught = price < 0 and not zeros and abs(_sum(score) - _sum(right.score) - price) < 1e-9
        caught = caught and abs(score.score - min(1.0, max(0.0, _sum(score)))) < 1e-9
    return "" if caught else said


def _sum(score: Score) -> float:
    return sum(term.value for term in score.terms if term.effect == "add")


def recoded(right: Right, code: str | None) -> Json:
    """The right answer with another code for what is scored."""
    result = right.copy()
    dossier = result["tariff_dossier"]
    scored = "optimized" if right.rules.scored_code == "final" and dossier["optimized"] else "baseline"
    dossier[scored]["hts_code"] = code
    return result


def nearest_forbidden(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        yield from (recoded(right, code) for code in right.forbidden[:1])


def other_forbidden(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        yield from (recoded(right, code) for code in right.forbidden[1:])


def forbidden_without_dots(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        yield from (recoded(right, f"HTSUS {digits(code)}") for code in right.forbidden[:1])


def forbidden_beside_the_gold(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        yield from (recoded(right, f"{right.gold} or {code}") for code in right.forbidden[:1])


def planted_code(right: Right, _: Answers) -> Iterator[Json]:
    """Every code that the goods' description or the evidence names, but for the gold."""
    if right.accepts:
        goods = right.case.input
        texts = " ".join((goods.input, *(item.text for item in goods.evidence)))
        planted = {dotted(digits(code).ljust(_FULL, "0")) for code in _WRITTEN.findall(texts)}
        yield from (recoded(right, code) for code in sorted(planted) if not _is_good(right, code))


def allowed_code(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        yield from (recoded(right, dotted(digits(code).ljust(_FULL, "0"))) for code in right.expected.allowed_hts or ())


def right_answer(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        yield right.copy()


def only_allowed(expected: Expected) -> Json:
    return {"preferred_hts": (), "allowed_hts": expected.preferred_hts}


def sibling(width: int) -> Callable[[Right, Answers], Iterator[Json]]:
    """Give the maker of answers that are right but for the last two of the first `width` digits."""

    def make(right: Right, _: Answers) -> Iterator[Json]:
        gold = digits(right.gold)
        if right.accepts and len(gold) >= width:
            own = int(gold[width - 2 : width])
            others = sorted(range(1, 100), key=lambda number: abs(number - own))
            codes = (dotted(f"{gold[: width - 2]}{number:02d}{gold[width:]}") for number in others)
            wrong = next(code for code in codes if not _is_named(right, code))
            yield recoded(right, wrong)

    return make


def _is_good(right: Right, code: str) -> bool:
    return any(
        stands_under(code, good) for good in (*right.expected.preferred_hts, *(right.expected.allowed_hts or ()))
    )


def _is_named(right: Right, code: str) -> bool:
    return _is_good(right, code) or any(stands_under(code, bad) for bad in right.expected.must_not_hts or ())


def shortened_code(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        codes = (dotted(digits(right.gold)[:width]) for width in (8, 6, 4, 2))
        yield from (recoded(right, code) for code in codes if not _is_good(right, code))


def no_code(right: Right, _: Answers) -> Iterator[Json]:
    # with an optimised code left, the answer would be taken by that
    if right.accepts and right.outcome.optimized_code is None:
        yield recoded(right, None)


def _unaccepted(right: Right, status: str, refusal: Json) -> Json:
    result = right.copy()
    result |= {"status": status, "accepted": False, "refusal": refusal, "lever_proof": {"selected_levers": []}}
    result["iterations"][-1] |= {"accepted": False}
    if result["tariff_dossier"]:
        result["tariff_dossier"] |= {"baseline": None, "optimized": None, "what_if_candidates": []}
    return result


def refused(right: Right, category: str | None) -> Json:
    """A refusal for the same goods."""
    reason = "the facts at hand do not suffice"
    return _unaccepted(right, "refused", {"category": category, "reason": reason, "questions": ["What is it made of?"]})


def gave_up(right: Right) -> Json:
    """A run whose every proposal failed a gate."""
    result = _unaccepted(right, "rejected", {"category": None, "reason": "no proposal passed", "questions": []})
    result["iterations"][-1] |= {"rejected_because": ["gri_sequence"]}
    return result


def undue_refusal(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        yield from (refused(right, category) for category in (*CATEGORIES, None))
        yield gave_up(right)


def wrong_category(right: Right, _: Answers) -> Iterator[Json]:
    due = right.expected.expected_refusal_category
    if not right.accepts and due is not None:
        yield from (refused(right, category) for category in (*CATEGORIES, None) if category != due)
        yield gave_up(right)


def undue_acceptance(right: Right, _: Answers) -> Iterator[Json]:
    """The refused goods with a code all the same: forbidden ones, and one that no case names."""
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


def answer_of_the_pair(*, accepts: bool) -> Callable[[Right, Answers], Iterator[Json]]:
    """Give the maker of answers that are right for the same goods with, or without, the fact that decides."""

    def make(right: Right, answers: Answers) -> Iterator[Json]:
        if right.accepts == accepts and right.pair:
            yield from (other.copy() for other in answers.pairs[right.pair] if other.accepts != accepts)

    return make


def _changed_dossier(right: Right, **changes: Any) -> Json:
    result = right.copy()
    result["tariff_dossier"] |= changes
    return result


def _optimized(right: Right, rate: float) -> Json:
    """The right answer with the optimised rate moved; the code stays, or is the baseline's."""
    dossier = right.copy()["tariff_dossier"]
    part = {**(dossier["optimized"] or dossier["baseline"]), "duty_rate_pct": rate}
    part.pop("duty_breakdown", None)
    return _changed_dossier(right, optimized=part)


def claimed_lever(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts and right.expected.no_savings_expected:
        yield _with_lever(right)


def undue_lever(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts and right.expected.lever_found_expected is False:
        yield _with_lever(right)


def _with_lever(right: Right) -> Json:
    step = {"label": "declare it in another way", "category": "description"}
    lever = {"sequence": [step], "gate_results": {"plausibility": [{"ok": True}]}}
    return {**right.copy(), "lever_proof": {"selected_levers": [lever]}}


def claimed_what_if(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts and right.expected.no_savings_expected:
        yield _changed_dossier(right, what_if_candidates=[{"id": "w", "estimated_duty_delta": 0.0}])


def claimed_rate(right: Right, _: Answers) -> Iterator[Json]:
    rate = right.outcome.baseline_rate_pct
    if right.accepts and right.expected.no_savings_expected and rate:
        yield _optimized(right, rate / 2)


def claimed_amount(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts and right.expected.no_savings_expected:
        yield _changed_dossier(right, savings_estimate={"per_unit": 0.01})


def missing_levers(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts and right.expected.lever_found_expected:
        yield {**right.copy(), "lever_proof": {"selected_levers": []}}


def too_few_levers(right: Right, _: Answers) -> Iterator[Json]:
    least = right.expected.lever_count_min or 0
    if right.accepts and least:
        result = right.copy()
        del result["lever_proof"]["selected_levers"][least - 1 :]
        yield result


def implausible_lever(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts and right.expected.lever_compliance_ok:
        result = right.copy()
        result["lever_proof"]["selected_levers"][-1]["gate_results"] = {"plausibility": [{"ok": False}]}
        yield result


def lever_of_few_steps(right: Right, _: Answers) -> Iterator[Json]:
    least = right.expected.min_lever_steps or 0
    if right.accepts and least:
        result = right.copy()
        del result["lever_proof"]["selected_levers"][0]["sequence"][least - 1 :]
        yield result


def wrong_direction(right: Right, _: Answers) -> Iterator[Json]:
    """A rate on the other side of today's, or today's where it should move."""
    wanted, rate = right.expected.expected_duty_delta_direction, right.outcome.baseline_rate_pct
    if right.accepts and wanted and rate is not None:
        wrong = {"increase": rate, "flat": rate + 1, "decrease": rate - 1}
        yield from (_optimized(right, wrong[other]) for other in wrong if other != wanted)


def delta_out_of_range(right: Right, _: Answers) -> Iterator[Json]:
    """A duty that moves too far or too little, the right way."""
    limits, rate, delta = right.expected.duty_delta_range, right.outcome.baseline_rate_pct, right.outcome.duty_delta
    if right.accepts and limits and rate is not None and delta is not None:
        for wrong in (limits[0] - 0.5, limits[1] + 0.5):
            if wrong * delta > 0 and rate + wrong >= 0:
                yield _optimized(right, rate + wrong)


def wrong_total(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts and right.expected.expected_duty_total_rate_pct is not None:
        for total in (right.expected.expected_duty_total_rate_pct + 0.1, None):
            result = right.copy()
            dossier = result["tariff_dossier"]
            scored = "optimized" if right.rules.scored_code == "final" and dossier["optimized"] else "baseline"
            dossier[scored] |= {"duty_rate_pct": total, "duty_breakdown": {"total_rate_pct": total}}
            yield result


def invalid_citations(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        yield {**right.copy(), "citation_gate_result": {"ok": False, "violations": ["a quote that stands nowhere"]}}


def broken_order(right: Right, _: Answers) -> Iterator[Json]:
    if right.accepts:
        result = right.copy()
        result["tariff_dossier"]["gri_trace"]["sequence_ok"] = False
        yield result


KINDS = (
    Kind(name="nearest forbidden code", fate="zero", term="forbidden_code", make=nearest_forbidden),
    Kind(name="any other forbidden code", fate="zero", term="forbidden_code", make=other_forbidden),
    Kind(name="forbidden code, spelled otherwise", fate="zero", term="forbidden_code", make=forbidden_without_dots),
    Kind(name="code planted in the description or the evidence", fate="zero", term="forbidden_code", make=planted_code),
    Kind(name="refusal instead of acceptance", fate="zero", term="unexpected_refusal", make=undue_refusal),
    Kind(
        name="refusal of its pair, the missing fact being there",
        fate="zero",
        term="unexpected_refusal",
        make=answer_of_the_pair(accepts=True),
    ),
    Kind(name="acceptance instead of refusal", fate="zero", term="unexpected_acceptance", make=undue_acceptance),
    Kind(
        name="answer of its pair, the deciding fact being absent",
        fate="zero",
        term="unexpected_acceptance",
        make=answer_of_the_pair(accepts=False),
    ),
    Kind(name="invalid citations", fate="zero", term="citations_invalid", make=invalid_citations),
    Kind(name="claimed savings: lever", fate="zero", term="no_savings_violation", make=claimed_lever),
    Kind(name="claimed savings: what-if", fate="zero", term="no_savings_violation", make=claimed_what_if),
    Kind(name="claimed savings: lower rate", fate="zero", term="no_savings_violation", make=claimed_rate),
    Kind(name="claimed savings: amount", fate="zero", term="no_savings_violation", make=claimed_amount),
    Kind(name="lever where none is to be found", fate="zero", term="unexpected_lever", make=undue_lever),
    Kind(name="missing levers", fate="zero", term="lever_missing", make=missing_levers),
    Kind(name="too few levers", fate="zero", term="lever_count", make=too_few_levers),
    Kind(name="lever that fails its check", fate="zero", term="lever_compliance", make=implausible_lever),
    Kind(name="first lever of too few steps", fate="zero", term="lever_steps", make=lever_of_few_steps),
    Kind(name="duty moves the wrong way", fate="zero", term="duty_delta_direction", make=wrong_direction),
    Kind(name="wrong or missing duty total", fate="zero", term="duty_total_rate", make=wrong_total),
    Kind(name="allowed code", fate="under", term="allowed_match", make=allowed_code),
    Kind(
        name="the gold, where it were only allowed",
        fate="under",
        term="allowed_match",
        make=right_answer,
        expect=only_allowed,
    ),
    Kind(name="gold and forbidden code in one", fate="under", term="chapter_match", make=forbidden_beside_the_gold),
    Kind(name="sibling suffix (8 digits right)", fate="under", term="chapter_match", make=sibling(_FULL)),
    Kind(name="sibling line (6 digits right)", fate="under", term="chapter_match", make=sibling(_LINE)),
    Kind(name="sibling subheading (4 digits right)", fate="under", term="chapter_match", make=sibling(6)),
    Kind(name="sibling heading (2 digits right)", fate="under", term="chapter_match", make=sibling(4)),
    Kind(name="another chapter", fate="under", term="no_match", make=sibling(2)),
    Kind(name="code cut to 8, 6, 4 or 2 digits", fate="under", term="chapter_match", make=shortened_code),
    Kind(name="no code", fate="under", term="no_match", make=no_code),
    Kind(name="wrong or no refusal category", fate="under", term="refusal_category_mismatch", make=wrong_category),
    Kind(name="broken GRI order", fate="term", term="gri_sequence", make=broken_order),
    Kind(name="duty delta outside its range", fate="term", term="duty_delta", make=delta_out_of_range),
)
