"""Flaws in the proposals that the reference target accepts, each of which a certain gate must detect.

The target runs on a cassette whose last proposal or last critique is changed in memory, without a further revision.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from pytest_packbench.engine.attempt import at_once, score_payload
from pytest_packbench.engine.recordings import Replay
from pytest_packbench.model.request import VerifyContext
from pytest_packbench.packs.tariff.notation import digits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.controls.right_answers import Json, RightAnswer

    Variants = Callable[[RightAnswer, Json], Iterable[Json]]

_PROPOSAL_ROLES = frozenset({"propose", "revise"})
# rule 5 and the Additional US Rules may be used at any step
_UNORDERED_RULES = frozenset({"5a", "5b", "us_1a", "us_1b", "us_1c", "us_1d"})


@dataclass(frozen=True)
class Flaw:
    """A kind of flaw in the answer to a role, and the gate that must detect it."""

    gate: str
    name: str
    # returns the flawed answers for a right one; or the changed values of the only one, by path
    variants: Variants | Json
    # classifications by default
    when: Callable[[RightAnswer, Json], bool] = lambda right, _: right.accepts
    role: Literal["proposal", "critique"] = "proposal"

    @property
    def requirement(self) -> str:
        return f"gate {self.gate} refuses"

    def misses(self, right: RightAnswer, _: RightAnswer) -> Iterator[str]:
        """Run the target with each flaw in the last answer to the role."""
        of_role = [(at, exchange) for at, exchange in enumerate(right.cassette.exchanges) if self._is_to_role(exchange)]
        index, exchange = of_role[-1]
        for flawed in self._flawed(right, exchange.answer):
            exchanges = list(right.cassette.exchanges)
            exchanges[index] = exchange.model_copy(update={"answer": flawed})
            yield self._miss(right, exchanges)

    def _flawed(self, right: RightAnswer, plain: Json) -> Iterator[Json]:
        """Yield the flawed answers for a right one; of several articles, each has the flaw once."""
        articles = plain.get("articles") or [{}]
        for number, article in enumerate(articles):
            alone = {**plain, **article}
            if self.when(right, alone):
                change = self.variants
                for flawed in changed(alone, **change) if isinstance(change, dict) else change(right, alone):
                    own = {key: flawed[key] for key in article}
                    rest = {key: value for key, value in flawed.items() if key not in article}
                    several = [*articles[:number], own, *articles[number + 1 :]]
                    yield {**rest, "articles": several} if article else flawed

    def _is_to_role(self, exchange: Any) -> bool:
        return (exchange.role in _PROPOSAL_ROLES) == (self.role == "proposal")

    def _miss(self, right: RightAnswer, exchanges: list[Any]) -> str:
        """Run the target on other exchanges, and describe why the flaw was missed; empty if it was not."""
        llm = Replay(right.cassette.model_copy(update={"exchanges": tuple(exchanges)}), source=right.path.name)
        proposals = sum(exchange.role in _PROPOSAL_ROLES for exchange in exchanges)
        original, suite = right.context.pack.request(right.case), right.context.suite.name
        request = original.model_copy(update={"options": {**original.options, "max_iters": proposals}})
        context = VerifyContext(llm=llm, suite=suite, case_id=right.case.id, mode="fixture")
        result: Json = at_once(right.context.caller.call(request, context))
        failed = right.context.pack.decided_by(result).split(", ")
        if result.get("status") == "verified" or self.gate not in failed:
            return f"{result.get('status')}, failed gates: {failed}"
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


def with_items(plain: Json, name: str, key: str, values: Callable[[Json], Iterable[str]]) -> Iterator[Json]:
    """Yield a copy for each of some values of a key in each item of a list."""
    items = plain.get(name) or []
    for index, item in enumerate(items):
        for value in values(item):
            yield from changed(plain, **{name: [*items[:index], {**item, key: value}, *items[index + 1 :]]})


def reversed_steps(_: RightAnswer, plain: Json) -> list[Json]:
    return changed(plain, gri_trace__steps=plain["gri_trace"]["steps"][::-1])


def swapped_steps(_: RightAnswer, plain: Json) -> Iterator[Json]:
    steps = plain["gri_trace"]["steps"]
    for index, (first, second) in enumerate(pairwise(steps)):
        if not {first["rule"], second["rule"]} & _UNORDERED_RULES:
            yield from changed(plain, gri_trace__steps=[*steps[:index], second, first, *steps[index + 2 :]])


def without_heading(_: RightAnswer, plain: Json) -> list[Json]:
    return changed(plain, gri_trace__steps=[step for step in plain["gri_trace"]["steps"] if step["level"] != "heading"])


def with_codes(plain: Json, codes: Iterable[str]) -> Iterator[Json]:
    for code in codes:
        yield from changed(plain, baseline__hts_code=code)


def with_forbidden_codes(right: RightAnswer, plain: Json) -> Iterator[Json]:
    return with_codes(plain, right.forbidden)


def one_digit_missing(_: RightAnswer, plain: Json) -> Iterator[Json]:
    return with_codes(plain, [digits(plain["baseline"]["hts_code"])[:-1]])


def two_codes(right: RightAnswer, plain: Json) -> Iterator[Json]:
    return with_codes(plain, [f"{right.preferred_code} or {(*right.forbidden, right.preferred_code)[0]}"])


def classified_and_refused(right: RightAnswer, plain: Json) -> list[Json]:
    refusal = {"category": "ambiguous", "reason": "several headings apply", "questions": ["Which?"]}
    return changed(plain, refusal=refusal) if right.accepts else changed(plain, decision="classify")


def wrong_sum(_: RightAnswer, plain: Json) -> list[Json]:
    total = plain["baseline"]["duty_breakdown"]["total_rate_pct"]
    return [] if total is None else changed(plain, baseline__duty_breakdown__total_rate_pct=total + 0.1)


def unknown_suffix(_: RightAnswer, plain: Json) -> Iterator[Json]:
    return with_codes(plain, [f"{digits(plain['baseline']['hts_code'])[:8]}99"])


def rate_of_another_edition(right: RightAnswer, plain: Json) -> Iterator[Json]:
    """The base rate one point higher, where the schedule has a percentage rather than a text."""
    rate = right.edition.rate(digits(plain["baseline"]["hts_code"]))
    if rate.pct:
        changes = ("rate", "breakdown__base_rate", "breakdown__total_rate")
        yield from changed(plain, **{f"baseline__duty_{change}_pct": rate.pct + 1 for change in changes})


def invented_quotes(_: RightAnswer, plain: Json) -> Iterator[Json]:
    yield from with_items(plain, "citations", "quote", lambda citation: [f"{citation['quote']} allegedly"])
    yield from with_items(plain, "citations", "source_id", lambda citation: [f"{citation['source_id']}_2"])


def quotes_of_other_documents(right: RightAnswer, plain: Json) -> Iterator[Json]:
    sources = {item.source_id for item in right.case.input.evidence}
    return with_items(plain, "citations", "source_id", lambda citation: sorted(sources - {citation["source_id"]}))


def renamed_goods(_: RightAnswer, plain: Json) -> Iterator[Json]:
    return with_items(plain, "what_if_candidates", "kind", lambda _: ["description", "valuation"])


def unlisted_changes(_: RightAnswer, plain: Json) -> Iterator[Json]:
    return with_items(plain, "what_if_candidates", "change", lambda item: ["a horse", f"{item['change']} and more"])


def always(_: RightAnswer, __: Json) -> bool:
    return True


def of_one_code(right: RightAnswer, _: Json) -> bool:
    return right.accepts and not right.expected.articles


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
UNKNOWN_KEY = {"certainty": "high"}
TOO_MUCH = [{"component": name, "material": name, "weight_pct": 60.0} for name in ("glass", "steel")]
FLAWS = (
    Flaw("gri_sequence", "GRI steps in reverse order", reversed_steps),
    Flaw("gri_sequence", "two neighbouring GRI steps swapped", swapped_steps),
    Flaw("gri_sequence", "no step decides the heading", without_heading),
    Flaw("gri_sequence", "forbidden code with the trace of the right one", with_forbidden_codes),
    Flaw("completeness", "no GRI trace", {"gri_trace__steps": []}),
    Flaw("completeness", "both classifies and refuses, or neither", classified_and_refused, always),
    Flaw("form", "one digit missing", one_digit_missing),
    Flaw("form", "two codes in one", two_codes),
    Flaw("essential_character", "rule 3(b) without it", {"essential_character": None}, by_essential_character),
    Flaw("duty", "duty that doesn't add up", wrong_sum),
    Flaw("citations", "invented quote or source", invented_quotes, always),
    Flaw("citations", "quote under another document's name", quotes_of_other_documents, always),
    Flaw("citations", "evidence not cited", {"citations": []}, with_evidence),
    Flaw("missing_evidence", "reliance on a missing document", {"relies_on": [NO_DOCUMENT]}),
    Flaw("missing_evidence", "missing document not named", {"relies_on": []}, for_missing_evidence),
    Flaw("savings", "savings by description or value only", renamed_goods, always),
    Flaw("composition", "shares of more than the whole", {"composition_table": TOO_MUCH}, of_one_code),
    Flaw("code_form", "a suffix that the schedule does not have", unknown_suffix),
    Flaw("duty", "a rate of another edition", rate_of_another_edition),
    Flaw("savings", "change that is none of the request's", unlisted_changes, always),
    Flaw("refusal", "refusal without a question", {"refusal__questions": []}, with_a_question),
    Flaw("critic", "critic's objection", {"conflicts": ["The answer overlooks a note."]}, always, "critique"),
    Flaw("form", "proposal with an unknown key", UNKNOWN_KEY, always),
    Flaw("form", "critique with an unknown key", UNKNOWN_KEY, always, "critique"),
)
