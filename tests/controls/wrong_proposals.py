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
from tests.controls.right_answers import summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.controls.right_answers import ControlSummary, Json, RightAnswer

    Variants = Callable[[RightAnswer, Json], Iterable[Json]]

_PROPOSAL_ROLES = frozenset({"propose", "revise"})
# rule 5 and the Additional US Rules may be used at any step
_UNORDERED_RULES = frozenset({"5a", "5b", "us_1a", "us_1b", "us_1c", "us_1d"})


@dataclass(frozen=True)
class Flaw:
    """A kind of flaw in the answer to a role, and the gate that must detect it."""

    name: str
    gate: str
    # returns the flawed answers for a right one; or the changed values of the only one, by path
    variants: Variants | Json
    # classifications by default
    when: Callable[[RightAnswer, Json], bool] = lambda right, _: right.accepts
    role: Literal["proposal", "critique"] = "proposal"


def run_controls(flaw: Flaw, answers: Sequence[RightAnswer]) -> ControlSummary:
    """Run the target on every cassette with a flaw."""
    return summary(flaw.name, f"gate {flaw.gate} refuses", _controls(flaw, answers))


def _controls(flaw: Flaw, answers: Sequence[RightAnswer]) -> Iterator[tuple[RightAnswer, str]]:
    for right in answers:
        index, answer = _last_exchange(right, flaw.role)
        if flaw.when(right, answer):
            change = flaw.variants
            variants = changed(answer, **change) if isinstance(change, dict) else change(right, answer)
            yield from ((right, _miss(flaw, right, index, flawed)) for flawed in variants)


def _last_exchange(right: RightAnswer, role: str) -> tuple[int, Json]:
    exchanges = right.cassette.exchanges
    index = max(
        index for index, exchange in enumerate(exchanges) if (exchange.role in _PROPOSAL_ROLES) == (role == "proposal")
    )
    answer: Json = exchanges[index].answer
    return index, answer


def _miss(flaw: Flaw, right: RightAnswer, index: int, flawed: Json) -> str:
    """Run the target with another answer in one exchange, and describe why the flaw was missed; empty if it was not."""
    exchanges = list(right.cassette.exchanges)
    exchanges[index] = exchanges[index].model_copy(update={"answer": flawed})
    llm = Replay(right.cassette.model_copy(update={"exchanges": tuple(exchanges)}), source=right.path.name)
    proposals = sum(exchange.role in _PROPOSAL_ROLES for exchange in exchanges)
    original = right.context.pack.request(right.case)
    options = {**original.options, "max_iters": proposals}
    request = VerifyRequest(input=original.input, options=options, evidence=original.evidence)
    suite = right.context.suite.name
    context = VerifyContext(llm=llm, suite=suite, case_id=right.case.id, mode="fixture")
    result: Json = right.context.caller(request, context)
    failed = result["iterations"][-1]["rejected_because"]
    if result["status"] != "rejected" or flaw.gate not in failed:
        return f"{result['status']}, failed gates: {failed or 'none'}"
    score = score_payload(right.context, right.loaded, result).score
    is_caught = not right.accepts or (score is not None and score.score == 0.0)
    return "" if is_caught else f"the gate refused it, but the score is {score}"


def changed(plain: Json, **changes: Any) -> list[Json]:
    """Return a copy with changed values; `part__key` names a key of the object `part`."""
    copy: Json = json.loads(json.dumps(plain))
    for path, value in changes.items():
        *parts, last = path.split("__")
        target = copy
        for part in parts:
            target = target[part]
        target[last] = value
    return [copy]


def with_items(plain: Json, key: str, replacements: Callable[[Json], Iterable[Json]]) -> Iterator[Json]:
    """Yield a copy for each replacement of each item of a list."""
    items = plain.get(key) or []
    for index, item in enumerate(items):
        for other in replacements(item):
            yield from changed(plain, **{key: [*items[:index], other, *items[index + 1 :]]})


def with_steps(change: Callable[[list[Json]], list[Json]]) -> Variants:
    return lambda _, plain: changed(plain, gri_trace__steps=change(plain["gri_trace"]["steps"]))


def swapped_steps(_: RightAnswer, plain: Json) -> Iterator[Json]:
    steps = plain["gri_trace"]["steps"]
    for index, (first, second) in enumerate(pairwise(steps)):
        if not {first["rule"], second["rule"]} & _UNORDERED_RULES:
            yield from changed(plain, gri_trace__steps=[*steps[:index], second, first, *steps[index + 2 :]])


def with_codes(plain: Json, codes: Iterable[str]) -> Iterator[Json]:
    for code in codes:
        yield from changed(plain, baseline__hts_code=code)


def two_codes(right: RightAnswer, plain: Json) -> Iterator[Json]:
    return with_codes(plain, [f"{right.preferred_code} or {(*right.forbidden, right.preferred_code)[0]}"])


def classified_and_refused(right: RightAnswer, plain: Json) -> list[Json]:
    refusal = {"category": "ambiguous", "reason": "several headings apply", "questions": ["Which?"]}
    return changed(plain, refusal=refusal) if right.accepts else changed(plain, decision="classify")


def wrong_sum(_: RightAnswer, plain: Json) -> list[Json]:
    total = plain["baseline"]["duty_breakdown"]["total_rate_pct"]
    return [] if total is None else changed(plain, baseline__duty_breakdown__total_rate_pct=total + 0.1)


def invented_quotes(_: RightAnswer, plain: Json) -> Iterator[Json]:
    def wrong(citation: Json) -> Iterator[Json]:
        yield {**citation, "quote": f"{citation['quote']} allegedly"}
        yield {**citation, "source_id": f"{citation['source_id']}_2"}

    return with_items(plain, "citations", wrong)


def quotes_of_other_documents(right: RightAnswer, plain: Json) -> Iterator[Json]:
    def wrong(citation: Json) -> Iterator[Json]:
        sources = [item.source_id for item in right.case.input.evidence]
        return ({**citation, "source_id": source} for source in sources if source != citation["source_id"])

    return with_items(plain, "citations", wrong)


def renamed_goods(_: RightAnswer, plain: Json) -> Iterator[Json]:
    kinds = ("description", "valuation")
    return with_items(plain, "what_if_candidates", lambda what_if: [{**what_if, "kind": kind} for kind in kinds])


def always(_: RightAnswer, __: Json) -> bool:
    return True


def with_evidence(right: RightAnswer, _: Json) -> bool:
    return right.accepts and bool(right.case.input.evidence)


def by_essential_character(right: RightAnswer, plain: Json) -> bool:
    return right.accepts and any(
        (step["rule"], step["outcome"]) == ("3b", "decided") for step in plain["gri_trace"]["steps"]
    )


def for_missing_evidence(right: RightAnswer, plain: Json) -> bool:
    return not right.accepts and bool(plain["refusal"]["category"] == "missing_evidence")


def with_a_question(right: RightAnswer, plain: Json) -> bool:
    return not right.accepts and bool(plain["refusal"]["category"] != "out_of_scope")


NO_DOCUMENT = {"document": "a laboratory report", "source_id": None}
NOT_HEADING = with_steps(lambda steps: [step for step in steps if step["level"] != "heading"])
FLAWS = (
    Flaw("GRI steps in reverse order", "gri_sequence", with_steps(lambda steps: steps[::-1])),
    Flaw("two neighbouring GRI steps swapped", "gri_sequence", swapped_steps),
    Flaw("no step decides the heading", "gri_sequence", NOT_HEADING),
    Flaw(
        "forbidden code with the trace of the right one",
        "gri_sequence",
        lambda right, plain: with_codes(plain, right.forbidden),
    ),
    Flaw("no GRI trace", "completeness", {"gri_trace__steps": []}),
    Flaw("both classifies and refuses, or neither", "completeness", classified_and_refused, always),
    Flaw(
        "one digit missing",
        "code_form",
        lambda _, plain: with_codes(plain, [digits(plain["baseline"]["hts_code"])[:-1]]),
    ),
    Flaw("two codes in one", "code_form", two_codes),
    Flaw(
        "rule 3(b) without essential character",
        "essential_character",
        {"essential_character": None},
        by_essential_character,
    ),
    Flaw("duty that doesn't add up", "duty_arithmetic", wrong_sum),
    Flaw("invented quote or source", "citations", invented_quotes, always),
    Flaw("quote under another document's name", "citations", quotes_of_other_documents, always),
    Flaw("evidence not cited", "citations", {"citations": []}, with_evidence),
    Flaw("reliance on a missing document", "missing_evidence", {"relies_on": [NO_DOCUMENT]}),
    Flaw("missing document not named", "missing_evidence", {"relies_on": []}, for_missing_evidence),
    Flaw("savings by description or value only", "lawful_what_ifs", renamed_goods, always),
    Flaw("refusal without a question", "refusal", {"refusal__questions": []}, with_a_question),
    Flaw("critic's objection", "critic", {"conflicts": ["The answer overlooks a note."]}, always, "critique"),
    Flaw("proposal with an unknown key", "form", {"certainty": "high"}, always),
    Flaw("critique with an unknown key", "form", {"certainty": "high"}, always, "critique"),
)
