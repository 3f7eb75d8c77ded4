"""Flaws in the proposals that the reference target accepts, each of which a certain gate must detect.

The target runs on a cassette whose last proposal or last critique is changed in memory, without a further revision.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from pytest_packbench.engine.attempt import score_payload
from pytest_packbench.engine.recordings import Replay
from pytest_packbench.model.request import VerifyContext, VerifyRequest
from pytest_packbench.packs.tariff.codes import digits
from tests.controls.wrong_answers import ControlSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.controls.wrong_answers import Json, RightAnswer, SuiteAnswers

_PROPOSAL_ROLES = frozenset({"propose", "revise"})
# rule 5 and the Additional US Rules may be used at any step
_UNORDERED_RULES = frozenset({"5a", "5b", "us_1a", "us_1b", "us_1c", "us_1d"})


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """A kind of flaw.

    Attributes:
        name: a short description.
        gate: the gate that must detect it.
        variants: yields the flawed answers for a right one; none if the flaw doesn't apply.
        role: the answer that is changed.
    """

    name: str
    gate: str
    variants: Callable[[RightAnswer, Json], Iterator[Json]]
    role: Literal["proposal", "critique"] = "proposal"


def run_controls(flaw: Flaw, answers: SuiteAnswers) -> ControlSummary:
    """Run the target on every cassette with a flaw."""
    total, cases, missed = 0, 0, []
    for right in answers.right_answers:
        index, answer = _last_exchange(right, flaw.role)
        misses = [_miss(flaw, answers, right, index, flawed) for flawed in flaw.variants(right, answer)]
        total += len(misses)
        cases += bool(misses)
        missed += [f"{right.case.id}: {miss}" for miss in misses if miss]
    return ControlSummary(
        name=flaw.name, requirement=f"gate {flaw.gate} refuses", total=total, cases=cases, missed=tuple(missed)
    )


def _last_exchange(right: RightAnswer, role: str) -> tuple[int, Json]:
    assert right.attempt.cassette is not None, right.attempt.failure
    exchanges = right.attempt.cassette.exchanges
    index = max(
        index for index, exchange in enumerate(exchanges) if (exchange.role in _PROPOSAL_ROLES) == (role == "proposal")
    )
    answer: Json = exchanges[index].answer
    return index, answer


def _miss(flaw: Flaw, answers: SuiteAnswers, right: RightAnswer, index: int, flawed: Json) -> str:
    result = rerun(answers, right, index, flawed)
    failed = result["iterations"][-1]["rejected_because"]
    if result["status"] != "rejected" or flaw.gate not in failed:
        return f"{result['status']}, failed gates: {failed or 'none'}"
    score = score_payload(answers.context, right.loaded, result).score
    if right.accepts and (score is None or score.score != 0.0):
        return f"the gate refused it, but the score is {score}"
    return ""


def rerun(answers: SuiteAnswers, right: RightAnswer, index: int, answer: Json) -> Json:
    """Run the target on the case's cassette with another answer in one exchange, without a further revision."""
    cassette = right.attempt.cassette
    assert cassette is not None
    exchanges = list(cassette.exchanges)
    exchanges[index] = exchanges[index].model_copy(update={"answer": answer})
    changed = cassette.model_copy(update={"exchanges": tuple(exchanges)})
    original = answers.context.pack.request(right.case)
    proposals = sum(exchange.role in _PROPOSAL_ROLES for exchange in exchanges)
    request = VerifyRequest(
        input=original.input, options={**original.options, "max_iters": proposals}, evidence=original.evidence
    )
    llm = Replay(changed, source=right.path.name)
    context = VerifyContext(llm=llm, suite=answers.context.suite.name, case_id=right.case.id, mode="fixture")
    result: Json = answers.context.caller(request, context)
    return result


def _with(plain: Json, **changes: Any) -> Json:
    """Return a copy with changed values; `part__key` names a key of the object `part`."""
    copy: Json = json.loads(json.dumps(plain))
    for path, value in changes.items():
        *parts, last = path.split("__")
        target = copy
        for part in parts:
            target = target[part]
        target[last] = value
    return copy


def _steps(plain: Json) -> list[Json]:
    return list((plain.get("gri_trace") or {}).get("steps") or ())


def reversed_order(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(plain, gri_trace__steps=_steps(plain)[::-1])


def swapped_steps(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts:
        steps = _steps(plain)
        for index, (first, second) in enumerate(pairwise(steps)):
            if not {first["rule"], second["rule"]} & _UNORDERED_RULES:
                yield _with(plain, gri_trace__steps=[*steps[:index], second, first, *steps[index + 2 :]])


def no_heading_step(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(plain, gri_trace__steps=[step for step in _steps(plain) if step["level"] != "heading"])


def code_outside_trace(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield from (_with(plain, baseline__hts_code=code) for code in right.forbidden)


def no_trace(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(plain, gri_trace__steps=[])


def classified_and_refused(right: RightAnswer, plain: Json) -> Iterator[Json]:
    refusal = {"category": "ambiguous", "reason": "several headings apply", "questions": ["Which?"]}
    if right.accepts:
        yield _with(plain, refusal=refusal)
    else:
        yield _with(plain, decision="classify")


def missing_digit(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(plain, baseline__hts_code=digits(plain["baseline"]["hts_code"])[:-1])


def two_codes(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(
            plain, baseline__hts_code=f"{right.preferred_code} or {(right.forbidden or [right.preferred_code])[0]}"
        )


def no_essential_character(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts and any(step["rule"] == "3b" and step["outcome"] == "decided" for step in _steps(plain)):
        yield _with(plain, essential_character=None)


def wrong_sum(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts and plain["baseline"]["duty_breakdown"]["total_rate_pct"] is not None:
        yield _with(
            plain,
            baseline__duty_breakdown__total_rate_pct=plain["baseline"]["duty_breakdown"]["total_rate_pct"] + 0.1,
        )


def invented_quote(right: RightAnswer, plain: Json) -> Iterator[Json]:
    """A quote with an added word, and a source that is not in the request."""
    quotes = plain.get("citations") or []
    for index, citation in enumerate(quotes):
        for wrong in (
            {**citation, "quote": f"{citation['quote']} allegedly"},
            {**citation, "source_id": f"{citation['source_id']}_2"},
        ):
            yield _with(plain, citations=[*quotes[:index], wrong, *quotes[index + 1 :]])


def quote_of_another_document(right: RightAnswer, plain: Json) -> Iterator[Json]:
    """A right quote with the source_id of another document of the same request."""
    quotes = plain.get("citations") or []
    for index, citation in enumerate(quotes):
        for item in right.case.input.evidence:
            if item.source_id != citation["source_id"]:
                wrong = {**citation, "source_id": item.source_id}
                yield _with(plain, citations=[*quotes[:index], wrong, *quotes[index + 1 :]])


def no_quote(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts and right.case.input.evidence:
        yield _with(plain, citations=[])


def missing_document(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if right.accepts:
        reliance = {"document": "a laboratory report", "source_id": None}
        yield _with(plain, relies_on=[*(plain.get("relies_on") or ()), reliance])


def renamed_goods(right: RightAnswer, plain: Json) -> Iterator[Json]:
    what_ifs = plain.get("what_if_candidates") or []
    for index, what_if in enumerate(what_ifs):
        for kind in ("description", "valuation"):
            yield _with(
                plain, what_if_candidates=[*what_ifs[:index], {**what_if, "kind": kind}, *what_ifs[index + 1 :]]
            )


def no_question(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if not right.accepts and plain["refusal"]["category"] != "out_of_scope":
        yield _with(plain, refusal__questions=[])


def unnamed_document(right: RightAnswer, plain: Json) -> Iterator[Json]:
    if not right.accepts and plain["refusal"]["category"] == "missing_evidence":
        yield _with(plain, relies_on=[])


def unknown_key(_: RightAnswer, plain: Json) -> Iterator[Json]:
    yield _with(plain, certainty="high")


def conflict(_: RightAnswer, plain: Json) -> Iterator[Json]:
    yield _with(plain, conflicts=["The answer overlooks a note."])


FLAWS = (
    Flaw(name="GRI steps in reverse order", gate="gri_sequence", variants=reversed_order),
    Flaw(name="two neighbouring GRI steps swapped", gate="gri_sequence", variants=swapped_steps),
    Flaw(name="no step decides the heading", gate="gri_sequence", variants=no_heading_step),
    Flaw(name="forbidden code with the trace of the right one", gate="gri_sequence", variants=code_outside_trace),
    Flaw(name="no GRI trace", gate="completeness", variants=no_trace),
    Flaw(name="both classifies and refuses, or neither", gate="completeness", variants=classified_and_refused),
    Flaw(name="one digit missing", gate="code_form", variants=missing_digit),
    Flaw(name="two codes in one", gate="code_form", variants=two_codes),
    Flaw(name="rule 3(b) without essential character", gate="essential_character", variants=no_essential_character),
    Flaw(name="duty that doesn't add up", gate="duty_arithmetic", variants=wrong_sum),
    Flaw(name="invented quote or source", gate="citations", variants=invented_quote),
    Flaw(name="quote under another document's name", gate="citations", variants=quote_of_another_document),
    Flaw(name="evidence not cited", gate="citations", variants=no_quote),
    Flaw(name="reliance on a missing document", gate="missing_evidence", variants=missing_document),
    Flaw(name="missing document not named", gate="missing_evidence", variants=unnamed_document),
    Flaw(name="savings by description or value only", gate="lawful_what_ifs", variants=renamed_goods),
    Flaw(name="refusal without a question", gate="refusal", variants=no_question),
    Flaw(name="critic's objection", gate="critic", variants=conflict, role="critique"),
    Flaw(name="proposal with an unknown key", gate="form", variants=unknown_key),
    Flaw(name="critique with an unknown key", gate="form", variants=unknown_key, role="critique"),
)
