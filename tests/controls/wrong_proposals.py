"""Flaws put into the proposals that the reference target accepts, each of which one of its gates has to see.

The target runs on a cassette changed in memory: the last proposal, or the last critique, is another; it gets no chance to
revise.
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
from tests.controls.wrong_answers import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.controls.wrong_answers import Answers, Json, Right

_PROPOSING = frozenset({"propose", "revise"})
# rule 5 and the Additional US Rules stand beside the others at any place
_FREE = frozenset({"5a", "5b", "us_1a", "us_1b", "us_1c", "us_1d"})


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """A kind of flaw.

    Attributes:
        name: in a few words.
        gate: the gate that has to see it.
        make: gives the flawed answers, from the right one; none where the flaw doesn't apply.
        role: whose answer is changed.
    """

    name: str
    gate: str
    make: Callable[[Right, Json], Iterator[Json]]
    role: Literal["proposal", "critique"] = "proposal"


def tally(flaw: Flaw, answers: Answers) -> Tally:
    """Run the target on every flawed cassette of a kind and see whether the gate refuses."""
    made, cases, slipped = 0, 0, []
    for right in answers.rights:
        place, plain = _last(right, flaw.role)
        found = [_slip(flaw, answers, right, place, wrong) for wrong in flaw.make(right, plain)]
        made += len(found)
        cases += bool(found)
        slipped += [f"{right.case.id}: {why}" for why in found if why]
    return Tally(name=flaw.name, must=f"gate {flaw.gate} refuses", made=made, cases=cases, slipped=tuple(slipped))


def _last(right: Right, role: str) -> tuple[int, Json]:
    assert right.attempt.cassette is not None, right.attempt.failure
    exchanges = right.attempt.cassette.exchanges
    place = max(at for at, exchange in enumerate(exchanges) if (exchange.role in _PROPOSING) == (role == "proposal"))
    answer: Json = exchanges[place].answer
    return place, answer


def _slip(flaw: Flaw, answers: Answers, right: Right, place: int, wrong: Json) -> str:
    result = rerun(answers, right, place, wrong)
    failed = result["iterations"][-1]["rejected_because"]
    if result["status"] != "rejected" or flaw.gate not in failed:
        return f"{result['status']}, failed gates: {failed or 'none'}"
    score = score_payload(answers.context, right.loaded, result).score
    if right.accepts and (score is None or score.score != 0.0):
        return f"refused by the gate, yet its score is {score}"
    return ""


def rerun(answers: Answers, right: Right, place: int, answer: Json) -> Json:
    """Run the target on the case's cassette with another answer at one place, and no room for a revision."""
    cassette = right.attempt.cassette
    assert cassette is not None
    exchanges = list(cassette.exchanges)
    exchanges[place] = exchanges[place].model_copy(update={"answer": answer})
    changed = cassette.model_copy(update={"exchanges": tuple(exchanges)})
    asked = answers.context.pack.request(right.case)
    proposals = sum(exchange.role in _PROPOSING for exchange in exchanges)
    request = VerifyRequest(
        input=asked.input, options={**asked.options, "max_iters": proposals}, evidence=asked.evidence
    )
    llm = Replay(changed, source=right.path.name)
    context = VerifyContext(llm=llm, suite=answers.context.suite.name, case_id=right.case.id, mode="fixture")
    result: Json = answers.context.caller(request, context)
    return result


def _with(plain: Json, **changes: Any) -> Json:
    """A copy with other values at the top; `part__key` goes one deeper, into an object."""
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


def reversed_order(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(plain, gri_trace__steps=_steps(plain)[::-1])


def swapped_steps(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts:
        steps = _steps(plain)
        for at, (one, other) in enumerate(pairwise(steps)):
            if not {one["rule"], other["rule"]} & _FREE:
                yield _with(plain, gri_trace__steps=[*steps[:at], other, one, *steps[at + 2 :]])


def no_heading_step(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(plain, gri_trace__steps=[step for step in _steps(plain) if step["level"] != "heading"])


def code_off_the_trace(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield from (_with(plain, baseline__hts_code=code) for code in right.forbidden)


def no_trace(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(plain, gri_trace__steps=[])


def classified_and_refused(right: Right, plain: Json) -> Iterator[Json]:
    refusal = {"category": "ambiguous", "reason": "one never knows", "questions": ["Which?"]}
    if right.accepts:
        yield _with(plain, refusal=refusal)
    else:
        yield _with(plain, decision="classify")


def missing_digit(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(plain, baseline__hts_code=digits(plain["baseline"]["hts_code"])[:-1])


def two_codes(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts:
        yield _with(plain, baseline__hts_code=f"{right.gold} or {(right.forbidden or [right.gold])[0]}")


def no_essential_character(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts and any(step["rule"] == "3b" and step["outcome"] == "decided" for step in _steps(plain)):
        yield _with(plain, essential_character=None)


def wrong_sum(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts and plain["baseline"]["duty_breakdown"]["total_rate_pct"] is not None:
        yield _with(
            plain,
            baseline__duty_breakdown__total_rate_pct=plain["baseline"]["duty_breakdown"]["total_rate_pct"] + 0.1,
        )


def invented_quote(right: Right, plain: Json) -> Iterator[Json]:
    """A word too many, or a source that nobody brought."""
    quotes = plain.get("citations") or []
    for at, citation in enumerate(quotes):
        for wrong in (
            {**citation, "quote": f"{citation['quote']} allegedly"},
            {**citation, "source_id": f"{citation['source_id']}_2"},
        ):
            yield _with(plain, citations=[*quotes[:at], wrong, *quotes[at + 1 :]])


def quote_of_another_document(right: Right, plain: Json) -> Iterator[Json]:
    """The right words under the name of another document of the same request."""
    quotes = plain.get("citations") or []
    for at, citation in enumerate(quotes):
        for item in right.case.input.evidence:
            if item.source_id != citation["source_id"]:
                wrong = {**citation, "source_id": item.source_id}
                yield _with(plain, citations=[*quotes[:at], wrong, *quotes[at + 1 :]])


def no_quote(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts and right.case.input.evidence:
        yield _with(plain, citations=[])


def absent_document(right: Right, plain: Json) -> Iterator[Json]:
    if right.accepts:
        reliance = {"document": "a laboratory report", "source_id": None}
        yield _with(plain, relies_on=[*(plain.get("relies_on") or ()), reliance])


def renamed_goods(right: Right, plain: Json) -> Iterator[Json]:
    what_ifs = plain.get("what_if_candidates") or []
    for at, what_if in enumerate(what_ifs):
        for kind in ("description", "valuation"):
            yield _with(plain, what_if_candidates=[*what_ifs[:at], {**what_if, "kind": kind}, *what_ifs[at + 1 :]])


def no_question(right: Right, plain: Json) -> Iterator[Json]:
    if not right.accepts and plain["refusal"]["category"] != "out_of_scope":
        yield _with(plain, refusal__questions=[])


def unnamed_document(right: Right, plain: Json) -> Iterator[Json]:
    if not right.accepts and plain["refusal"]["category"] == "missing_evidence":
        yield _with(plain, relies_on=[])


def unknown_key(_: Right, plain: Json) -> Iterator[Json]:
    yield _with(plain, certainty="high")


def conflict(_: Right, plain: Json) -> Iterator[Json]:
    yield _with(plain, conflicts=["The answer overlooks a note."])


FLAWS = (
    Flaw(name="GRI steps in reverse order", gate="gri_sequence", make=reversed_order),
    Flaw(name="two neighbouring GRI steps swapped", gate="gri_sequence", make=swapped_steps),
    Flaw(name="no step decides the heading", gate="gri_sequence", make=no_heading_step),
    Flaw(name="forbidden code under the trace of the right one", gate="gri_sequence", make=code_off_the_trace),
    Flaw(name="no GRI trace", gate="completeness", make=no_trace),
    Flaw(name="classifies and refuses at once, or neither", gate="completeness", make=classified_and_refused),
    Flaw(name="a digit short", gate="code_form", make=missing_digit),
    Flaw(name="two codes in one", gate="code_form", make=two_codes),
    Flaw(name="rule 3(b) without essential character", gate="essential_character", make=no_essential_character),
    Flaw(name="duty that doesn't add up", gate="duty_arithmetic", make=wrong_sum),
    Flaw(name="quote or source that doesn't exist", gate="citations", make=invented_quote),
    Flaw(name="quote under another document's name", gate="citations", make=quote_of_another_document),
    Flaw(name="evidence not cited", gate="citations", make=no_quote),
    Flaw(name="reliance on a document that nobody brought", gate="missing_evidence", make=absent_document),
    Flaw(name="missing document not named", gate="missing_evidence", make=unnamed_document),
    Flaw(name="savings by another name or value", gate="lawful_what_ifs", make=renamed_goods),
    Flaw(name="refusal without a question", gate="refusal", make=no_question),
    Flaw(name="critic's objection", gate="critic", make=conflict, role="critique"),
    Flaw(name="proposal with an unknown key", gate="form", make=unknown_key),
    Flaw(name="critique with an unknown key", gate="form", make=unknown_key, role="critique"),
)
