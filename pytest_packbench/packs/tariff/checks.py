"""The gates of the reference pipeline: the scorer's own computations without the gold, and what a model forgets.

A gate yields None where it examines something, then its objections, for the model that revises; it is skipped where it
yields nothing. An answer that is no `Proposal` fails the gate `form`, and no other sees it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_packbench.model.errors import format_value, single_spaced
from pytest_packbench.packs.tariff import citations as quotes
from pytest_packbench.packs.tariff import savings as duties
from pytest_packbench.packs.tariff.answer import Article, TariffAnswer
from pytest_packbench.packs.tariff.judged import Judged
from pytest_packbench.packs.tariff.model import TariffCase, TariffExpected, TariffSuiteConfig
from pytest_packbench.packs.tariff.notation import WIDTHS, dotted
from pytest_packbench.packs.tariff.order import order_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_packbench.packs.tariff.answer import Classification, Classified, Critique, Proposal, WhatIf
    from pytest_packbench.packs.tariff.edition import Edition
    from pytest_packbench.packs.tariff.model import TariffInput

    Found = Iterator["Objection | None"]
    Check = Callable[["CheckInput"], Found]

Decision = Literal["pass", "fail", "skip"]
TOTAL_PCT, SHARES_TOLERANCE = 100.0, 1.0 + 1e-9
MAX_WHAT_IFS = 5
_DIGITS = tuple(WIDTHS.values())
_BASELINE = "the baseline code"
_RULES = TariffSuiteConfig(pack="tariff", scored_code="baseline", cited_sources="request")
_NOTHING = TariffExpected(preferred_hts=(), expected_accept=True)
"""What a case expects that expects nothing of a code: a gate knows no gold."""


class Objection(NamedTuple):
    """A fault of a proposal, as it is told to the model that revises it.

    Attributes:
        name: the name of the objection.
        text: what is wrong and how to correct it, in one line.
    """

    name: str
    text: str


class CheckInput(NamedTuple):
    """The input of every gate.

    Attributes:
        request: the goods, the options and the evidence.
        proposal: the answer to check.
        critique: the critic's answer; None if it could not be read.
        problems: why it could not be read, one line each; empty if it could.
        edition: the schedule in which codes and rates are looked up; None where the suite names none.
    """

    request: TariffInput
    proposal: Proposal
    critique: Critique | None
    problems: Sequence[str] = ()
    edition: Edition | None = None

    @property
    def judged(self) -> Judged:
        """The proposal as the scorer sees an answer, to a case that expects nothing of it."""
        of_case: dict[str, Any] = {"input": self.request, "expected": _NOTHING}
        case = TariffCase.model_construct(**of_case)
        return Judged(case, TariffAnswer.model_construct(tariff_dossier=self.proposal), _RULES, self.edition)

    @property
    def classifies(self) -> bool:
        """Whether the proposal classifies, rather than refuses."""
        return self.proposal.decision == "classify"


class CheckResult(NamedTuple):
    """The result of a gate.

    Attributes:
        name: the gate's name.
        rule: its number.
        decision: `pass`, `fail`, or `skip` if the gate does not apply to this proposal.
        objections: the faults; empty unless the decision is `fail`.
    """

    name: str
    rule: int
    decision: Decision
    objections: tuple[Objection, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The objections as lines of text."""
        return [single_spaced(objection.text) for objection in self.objections]


def form(inputs: CheckInput) -> Found:
    """The critic's answer can be read; for the proposer's see `unread_proposal`."""
    yield None
    for problem in inputs.problems:
        yield Objection("critique_form", problem)


def completeness(inputs: CheckInput) -> Found:
    """The answer has the fields that its decision needs, and none of the other decision's."""
    yield None
    proposal, several = inputs.proposal, inputs.request.options.articles == "each"
    recommended = (proposal.baseline, proposal.optimized, proposal.what_if_candidates)
    if not inputs.classifies:
        if proposal.refusal is None:
            yield Objection("refusal_missing", "the answer refuses without a refusal; add category, reason, questions")
        if proposal.articles or any(recommended):
            text = "the answer refuses and recommends a code; remove it, or change the decision to classify"
            yield Objection("classification_beside_refusal", text)
        return
    if proposal.refusal is not None:
        text = "the answer both classifies and refuses; remove the refusal, or change the decision to refuse"
        yield Objection("refusal_beside_classification", text)
    if several != bool(proposal.articles):
        asked = "several codes; list a code for each article in articles"
        yield Objection(
            "number_of_articles",
            f"the request asks for {asked if several else 'one code; remove articles, or refuse'}",
        )
    else:
        for part in proposal.parts:
            given = (part.baseline, part.gri_trace.steps, part.candidate_headings)
            for name, value in zip(("baseline", "gri_trace", "candidate_headings"), given, strict=True):
                if not value:
                    yield Objection("field_missing", f"{_of(part)}the answer classifies without {name}; add it")
    if proposal.articles and any((*recommended, proposal.candidate_headings, proposal.gri_trace.steps)):
        yield Objection(
            "outside_of_articles", "the answer has codes outside of its articles; put them into the articles"
        )


def code_form(inputs: CheckInput) -> Found:
    """Codes have the digits that their field needs, and are in the schedule."""
    edition = inputs.edition
    for field, code, widths in _codes(inputs.proposal):
        yield None
        existing, shown = edition.existing(code) if edition else code, f"{field} {dotted(code)}"
        if len(code) not in widths:
            yield Objection("code_width", f"{shown} has {len(code)} digits; give {widths[0]} or its full code")
        elif existing != code:
            known = f"only {dotted(existing)} is" if existing else "nor is its chapter"
            yield Objection("not_in_schedule", f"{shown} is not in the schedule, {known}; choose one that is")
        elif (
            edition and field.endswith(_BASELINE) and len(code) == WIDTHS["line"] == len(edition.existing(f"{code}00"))
        ):
            yield Objection(
                "suffix_missing", f"{shown} ends with its line, which has suffixes; give the full ten digits"
            )


def _of(part: Classified) -> str:
    """Return which of several articles a line is about; nothing for the only one."""
    return f"article {format_value(part.article)}: " if isinstance(part, Article) else ""


def _codes(proposal: Proposal) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Yield each code with its field, and how many digits it may have there."""
    heading, line = _DIGITS[:1], _DIGITS[2:]
    for part in proposal.parts:
        of = _of(part)
        for code in part.candidate_headings:
            yield f"{of}the candidate heading", code, heading
        for number, step in enumerate(part.gri_trace.steps, 1):
            for code in step.candidates:
                yield f"{of}step {number}: the candidate", code, _DIGITS
        if part.code:
            yield f"{of}{_BASELINE}", part.code, line
    if proposal.optimized:
        yield "the optimized code", proposal.optimized.hts_code, line
    for what_if in proposal.what_if_candidates:
        yield f"the what-if {format_value(what_if.id)}: its code", what_if.expected_hts, _DIGITS[1:]


def gri_sequence(inputs: CheckInput) -> Found:
    """The interpretation rules are used in their legal order (S1 to S8)."""
    for part in inputs.proposal.parts:
        if steps := part.gri_trace.steps:
            yield None
            for fault in order_faults(steps, part.code):
                yield Objection(fault.objection, f"{_of(part)}{fault}")


def essential_character(inputs: CheckInput) -> Found:
    """A decision by rule 3(b) names a component of the composition table."""
    for part in inputs.proposal.parts:
        if any(step.rule == "3b" and step.chosen for step in part.gri_trace.steps):
            yield None
            character, listed = part.essential_character, [each.component for each in part.composition_table or ()]
            if character is None or not character.factors:
                text = "rule 3b decides, but essential_character is missing; give its component and factors"
                yield Objection("character_missing", text)
            elif _plain(character.component) not in map(_plain, listed):
                text = f"the component {format_value(character.component)} is not in the composition table"
                yield Objection("component_not_listed", f"{text}; name one that is")


def _plain(name: str) -> str:
    return single_spaced(name.casefold())


def duty(inputs: CheckInput) -> Found:
    """Rates add up, are of the kind that they are called, and are those of the schedule."""
    for part in inputs.proposal.parts:
        if part.baseline:
            yield None
            for name, text in _duty_faults(inputs, part.baseline):
                yield Objection(name, f"{_of(part)}{text}")


def _duty_faults(inputs: CheckInput, part: Classification) -> Iterator[Objection]:
    basis, general = part.duty_basis, inputs.judged.general(part.hts_code)
    rates = {part.duty_breakdown.base_rate_pct, part.duty_breakdown.total_rate_pct, part.duty_rate_pct}
    if basis in {"specific", "compound"} and rates != {None}:
        yield Objection("percentage_undue", f"a {basis} rate is not a percentage; set all three to null")
        return
    if basis in {"free", "ad valorem"} and None in rates:
        yield Objection("rate_missing", f"the duty basis is {basis}, but a rate is null; set all three")
        return
    if basis == "free" and part.base:
        text = f"the duty basis is free, but the base rate is {part.base:g} %; correct one"
        yield Objection("free_with_a_rate", text)
    elif general and general.text != duties.WORDED and basis != general.kind:
        text = f"the general rate of {dotted(part.hts_code)} is {general.text}, which is {general.kind}"
        yield Objection("kind_of_rate", f"{text}; correct the duty")
    else:
        for fault in duties.rate_faults(inputs.judged, part):
            yield Objection("base_rate", fault)
    for fault in duties.sum_faults(part):
        yield Objection("wrong_sum", fault)


def citations(inputs: CheckInput) -> Found:
    """Each quote stands in its document, and evidence that is there is cited."""
    names = ", ".join(format_value(document.source_id) for document in inputs.request.evidence)
    if inputs.proposal.citations:
        yield None
        for fault in quotes.quote_faults(inputs.judged):
            yield Objection("citations_invalid", fault)
    elif inputs.classifies and names:
        yield Objection(
            "evidence_not_cited", f"the answer does not cite the evidence; quote the deciding words of {names}"
        )


def missing_evidence(inputs: CheckInput) -> Found:
    """No answer relies on a document that the request does not bring; a refusal for a missing one names it."""
    known = {document.source_id for document in inputs.request.evidence}
    missing = [each.document for each in inputs.proposal.relies_on if each.source_id not in known]
    refusal = inputs.proposal.refusal
    if inputs.classifies:
        yield None
        for name in missing:
            text = f"the answer relies on {format_value(name)}, which is not in the request"
            yield Objection("document_not_given", f"{text}; classify without it, or refuse")
    elif refusal and refusal.category == "missing_evidence":
        yield None
        if not missing:
            text = "the refusal for missing evidence names no document; list it in relies_on with source_id null"
            yield Objection("document_not_named", text)


def savings(inputs: CheckInput) -> Found:
    """What-ifs are lawful changes of the request with steps and proof, at the schedule's rates; the best is named."""
    what_ifs, judged = inputs.proposal.what_if_candidates, inputs.judged
    if not what_ifs and inputs.proposal.optimized is None:
        return
    yield None
    for what_if in what_ifs:
        yield from _what_if_faults(inputs, what_if)
    if len(what_ifs) > MAX_WHAT_IFS or len({each.id for each in what_ifs}) < len(what_ifs):
        yield Objection("ids_of_what_ifs", f"keep at most {MAX_WHAT_IFS} what-ifs, each with an id of its own")
    # of the rest of the scorer's terms the gates know nothing, or say it themselves
    of_best = list(duties.saving(judged))
    for term in of_best:
        if term.name == "savings_lever":
            yield Objection("what_if_not_listed", f"{term.detail}; name the one that does")
    chosen, difference = inputs.proposal.chosen, duties.duty_delta(judged)
    # the scorer lets an estimate be smaller, but the pipeline knows both rates
    if chosen and difference is not None and abs(difference - chosen.estimated_duty_delta) > duties.RATE_TOLERANCE:
        text = f"optimized minus baseline is {difference:+g} percentage points; estimate the same"
        yield Objection("delta_differs", text)
    for term in (*duties.what_ifs(judged), *of_best):
        if term.name == "optimized_rate":
            yield Objection(term.name, term.detail)


def _what_if_faults(inputs: CheckInput, what_if: WhatIf) -> Iterator[Objection]:
    named, changes = f"the what-if {format_value(what_if.id)}", [change.id for change in inputs.request.options.changes]
    rate = inputs.proposal.baseline.duty_rate_pct if inputs.proposal.baseline else None
    if not what_if.is_lawful:
        yield Objection("what_if_unlawful", f"{named} changes only the {what_if.kind}, not the goods; remove it")
    if not what_if.steps or not what_if.required_evidence:
        yield Objection("undocumented", f"{named} lacks steps, or evidence that would prove it; list both")
    if changes and what_if.change not in changes:
        known = f"none of the request's changes; name one of {', '.join(changes)}"
        yield Objection("change_not_listed", f"{named}: {format_value(what_if.change)} is {known}")
    if rate is not None and rate + what_if.estimated_duty_delta < -duties.RATE_TOLERANCE:
        saved = f"{-what_if.estimated_duty_delta:g} of {rate:g} percentage points"
        yield Objection("saving_above_duty", f"{named} would save {saved}; correct it")


def critic(inputs: CheckInput) -> Found:
    """The critic reports no conflict; its other remarks do not fail the gate."""
    unnamed = "the critic reports a conflict without describing it; check each statement against goods and rules"
    if inputs.critique:
        yield None
        for conflict in inputs.critique.conflicts:
            yield Objection("conflict", single_spaced(conflict) or unnamed)


def refusal(inputs: CheckInput) -> Found:
    """A refusal has a reason and a question; one out of scope needs no question."""
    said = inputs.proposal.refusal
    if said and not inputs.classifies:
        yield None
        if not said.reason.strip():
            yield Objection("reason_missing", "the refusal has no reason; state what prevents a classification")
        if said.category != "out_of_scope" and not any(map(str.strip, said.questions)):
            yield Objection("question_missing", "the refusal has no question; ask for the fact that would decide")


def composition(inputs: CheckInput) -> Found:
    """Shares by weight, and those by value, add up to 100 percent, if all of them are known."""
    for part in inputs.proposal.parts:
        for name in ("weight", "value"):
            shares = [getattr(each, f"{name}_pct") for each in part.composition_table or ()]
            if shares and None not in shares:
                yield None
                total = math.fsum(shares)
                if abs(total - TOTAL_PCT) > SHARES_TOLERANCE:
                    text = f"the shares by {name} add up to {total:g} %, not 100 %; correct them, or set them to null"
                    yield Objection("shares", text)


CHECKS: Mapping[str, Check] = {
    "form": form,
    "completeness": completeness,
    "code_form": code_form,
    "gri_sequence": gri_sequence,
    "essential_character": essential_character,
    "duty": duty,
    "citations": citations,
    "missing_evidence": missing_evidence,
    "savings": savings,
    "critic": critic,
    "refusal": refusal,
    "composition": composition,
}
"""The gates by name, in the order of their numbers from 0; each sends a proposal back when it objects."""


def run_checks(inputs: CheckInput) -> tuple[CheckResult, ...]:
    """Run all gates, whatever the others decide, so that one revision can correct all faults."""
    return tuple(_result(rule, name, check(inputs)) for rule, (name, check) in enumerate(CHECKS.items()))


def unread_proposal(problems: Iterable[str]) -> CheckResult:
    """Return the result of the gate `form` for an answer that is no proposal: no other gate can check it."""
    return _result(0, "form", (Objection("proposal_form", problem) for problem in problems))


def _result(rule: int, name: str, found: Iterable[Objection | None]) -> CheckResult:
    examined = list(found)
    objections = tuple(filter(None, examined))
    decision: Decision = "fail" if objections else "pass" if examined else "skip"
    return CheckResult(name, rule, decision, objections)
