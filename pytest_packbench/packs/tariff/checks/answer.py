"""Gates on the answer as a whole: completeness, form of codes, composition, critic, refusal, citations, evidence."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_packbench.model.errors import single_spaced
from pytest_packbench.packs.tariff.checks.base import WIDTHS, Violation, check, check_result, listed, quoted
from pytest_packbench.packs.tariff.notation import digits, line_of, occurs_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.packs.tariff.checks.base import CheckInput, CheckResult
    from pytest_packbench.packs.tariff.dossier import Citation, GriStep, Proposal
    from pytest_packbench.packs.tariff.model import Evidence

TOTAL_PCT = 100.0
TOLERANCE_PCT = 1.0
_CODE_CHARACTERS = re.compile(r"[\d. -]+", re.ASCII)
# a legal line without a statistical suffix has eight digits in the schedule
_FULL_WIDTHS = (8, 10)
_WHAT_IF_WIDTHS = (6, 8, 10)


@check(0, "proposal_form", "critique_form")
def form(inputs: CheckInput) -> list[Violation]:
    """Check that the critic's answer could be parsed; see `unparsed_proposal` for the proposer's."""
    return [Violation("critique_form", problem) for problem in inputs.problems]


def unparsed_proposal(problems: Iterable[str]) -> CheckResult:
    """Return the result of the gate `form` for an answer that is not a proposal: no other gate can check it."""
    return check_result(form.name, form.rule, [Violation("proposal_form", problem) for problem in problems])


@check(4, "character_missing", "component_not_listed", "factor_missing")
def essential_character(inputs: CheckInput) -> list[Violation] | None:
    """Check that a decision by GRI 3(b) names a component of the composition table and the deciding factors."""
    proposal = inputs.proposal
    if not any(step.rule == "3b" and step.outcome == "decided" for step in proposal.gri_trace.steps):
        return None
    character = proposal.essential_character
    if character is None:
        return [
            Violation(
                "character_missing",
                "rule 3b decides, but essential_character is missing; give its component, factors and rationale",
            )
        ]
    violations = []
    components = [part.component for part in proposal.composition_table or ()]
    if _normalized(character.component) not in {_normalized(name) for name in components}:
        advice = f"name one of {listed(components)}" if components else "add the composition table"
        violations.append(
            Violation(
                "component_not_listed",
                f"the component {quoted(character.component)} is not in the composition table; {advice}",
            )
        )
    if not any(factor.strip() for factor in character.factors):
        violations.append(
            Violation(
                "factor_missing",
                "the essential character has no factor; name at least one, such as weight, value or role",
            )
        )
    return violations


def _normalized(name: str) -> str:
    return " ".join(name.casefold().split())


@check(11, "shares_by_weight", "shares_by_value")
def composition(inputs: CheckInput) -> list[Violation] | None:
    """Check that the shares by weight, and those by value, add up to 100 percent within 1, if all of them are known."""
    table = inputs.proposal.composition_table or ()
    columns = (
        ("shares_by_weight", "weights", [part.weight_pct for part in table]),
        ("shares_by_value", "values", [part.value_pct for part in table]),
    )
    sums = [
        (objection, name, math.fsum(share for share in shares if share is not None))
        for objection, name, shares in columns
        if shares and None not in shares
    ]
    if not sums:
        return None
    return [
        Violation(objection, f"the {name} add up to {total:g} %, not 100 %; correct them, or set unknown ones to null")
        for objection, name, total in sums
        # 1e-9 absorbs the rounding error of the sum
        if not math.isclose(total, TOTAL_PCT, rel_tol=0, abs_tol=TOLERANCE_PCT + 1e-9)
    ]


@check(
    1,
    *("baseline_missing", "trace_missing", "headings_missing", "refusal_beside_classification"),
    *("refusal_missing", "classification_beside_refusal", "articles_undue", "articles_missing", "outside_of_articles"),
)
def completeness(inputs: CheckInput) -> Iterator[Violation]:
    """Check that the answer has the fields that its decision needs, and none of the other decision's."""
    proposal = inputs.proposal
    if proposal.decision != "classify":
        yield from _incomplete_refusal(proposal)
    elif inputs.request.options.articles == "each":
        yield from _incomplete_articles(inputs)
    else:
        yield from _incomplete_classification(proposal)
        if proposal.articles:
            yield Violation(
                "articles_undue",
                "the request asks for one code; remove articles, or refuse where one code can't be right",
            )


def _incomplete_articles(inputs: CheckInput) -> Iterator[Violation]:
    proposal = inputs.proposal
    if not proposal.articles:
        yield Violation("articles_missing", "the request asks for a code for each article; list them in articles")
    for article in proposal.articles:
        for violation in _incomplete_classification(inputs.of_article(article).proposal):
            yield replace(violation, text=f"article {quoted(article.article)}: {violation.text}")
    surplus = [
        name
        for name in (
            *("baseline", "optimized", "what_if_candidates", "candidate_headings"),
            *("composition_table", "essential_character"),
        )
        if getattr(proposal, name)
    ]
    if proposal.gri_trace.steps:
        surplus.append("gri_trace")
    if surplus:
        yield Violation(
            "outside_of_articles",
            f"the answer has {', '.join(surplus)} outside of its articles; put them into the articles",
        )


def _incomplete_classification(proposal: Proposal) -> Iterator[Violation]:
    if proposal.baseline is None:
        yield Violation(
            "baseline_missing", "the answer classifies without a baseline; add the code of the goods as they are"
        )
    if not proposal.gri_trace.steps:
        yield Violation(
            "trace_missing",
            "the answer classifies without a GRI trace; list the rules in the order used, rule 1 first",
        )
    if not proposal.candidate_headings:
        yield Violation(
            "headings_missing", "the answer classifies without candidate headings; list each heading considered"
        )
    if proposal.refusal is not None:
        yield Violation(
            "refusal_beside_classification",
            "the answer both classifies and refuses; remove the refusal, or change the decision to refuse",
        )


def _incomplete_refusal(proposal: Proposal) -> Iterator[Violation]:
    if proposal.refusal is None:
        yield Violation(
            "refusal_missing", "the answer refuses without a refusal; add its category, reason and questions"
        )
    surplus = [
        name
        for name, value in (
            ("baseline", proposal.baseline),
            ("articles", proposal.articles),
            ("optimized", proposal.optimized),
            ("what_if_candidates", proposal.what_if_candidates),
        )
        if value
    ]
    if surplus:
        yield Violation(
            "classification_beside_refusal",
            f"the answer refuses but also has {', '.join(surplus)}; remove it, or change the decision to classify",
        )


@check(
    2,
    *("heading_form", "baseline_form", "optimized_form", "what_if_form"),
    *("step_form", "choice_undue", "choice_missing", "choice_not_a_candidate"),
)
def code_form(inputs: CheckInput) -> Iterable[Violation] | None:
    """Check that every code has the number of digits that its field requires."""
    proposal = inputs.proposal
    codes = list(_codes(proposal))
    steps = proposal.gri_trace.steps
    if not codes and not steps:
        return None
    wrong = [
        Violation(
            objection,
            f"the {field} {quoted(code)} does not have {' or '.join(map(str, widths))} digits; "
            "write one full code and nothing else",
        )
        for objection, field, code, widths in codes
        if not _has_width(code, widths)
    ]
    return [*wrong, *(fault for number, step in enumerate(steps, 1) for fault in _malformed_step(number, step))]


def _codes(proposal: Proposal) -> Iterator[tuple[str, str, str, tuple[int, ...]]]:
    for heading in proposal.candidate_headings:
        yield "heading_form", "candidate heading", heading, (WIDTHS["heading"],)
    if proposal.baseline is not None:
        yield "baseline_form", "baseline code", proposal.baseline.hts_code, _FULL_WIDTHS
    if proposal.optimized is not None:
        yield "optimized_form", "optimized code", proposal.optimized.hts_code, _FULL_WIDTHS
    for what_if in proposal.what_if_candidates:
        yield "what_if_form", f"expected code of what-if {quoted(what_if.id)}", what_if.expected_hts, _WHAT_IF_WIDTHS


def _malformed_step(number: int, step: GriStep) -> Iterator[Violation]:
    width = WIDTHS[step.level]
    named = step.candidates if step.chosen is None else (*step.candidates, step.chosen)
    wrong = [code for code in named if not _has_width(code, (width,))]
    if wrong:
        yield Violation(
            "step_form",
            f"{listed(wrong)} is not a {step.level} of {width} digits; use codes of that level",
            step=number,
        )
    if step.outcome != "decided":
        if step.chosen is not None:
            yield Violation(
                "choice_undue",
                f"the step is {step.outcome} but chooses {quoted(step.chosen)}; set chosen to null, "
                "or the outcome to decided",
                step=number,
            )
    elif step.chosen is None:
        yield Violation(
            "choice_missing", "the step is decided without a chosen code; name the chosen candidate", step=number
        )
    elif line_of(step.chosen) not in map(line_of, step.candidates):
        yield Violation(
            "choice_not_a_candidate",
            f"the step chooses {quoted(step.chosen)}, which is not among its candidates; add it to them",
            step=number,
        )


def _has_width(code: str, widths: tuple[int, ...]) -> bool:
    return _CODE_CHARACTERS.fullmatch(code) is not None and len(digits(code)) in widths


@check(9, "conflict", "conflict_without_description")
def critic(inputs: CheckInput) -> list[Violation] | None:
    """Check that the critic reports no conflict; its other remarks do not fail the gate."""
    if inputs.critique is None:
        return None
    return [_conflict(single_spaced(conflict)) for conflict in inputs.critique.conflicts]


def _conflict(text: str) -> Violation:
    if text:
        return Violation("conflict", text)
    return Violation(
        "conflict_without_description",
        "the critic reports a conflict without describing it; check each statement against goods, rules and evidence",
    )


@check(10, "reason_missing", "question_missing")
def refusal(inputs: CheckInput) -> list[Violation] | None:
    """Check that a refusal has a reason and a question; one out of scope needs no question."""
    proposed = inputs.proposal.refusal
    if inputs.proposal.decision != "refuse" or proposed is None:
        return None
    violations = []
    if not proposed.reason.strip():
        violations.append(
            Violation("reason_missing", "the refusal has no reason; state what prevents a classification")
        )
    if proposed.category != "out_of_scope" and not any(question.strip() for question in proposed.questions):
        violations.append(
            Violation(
                "question_missing",
                f"the {proposed.category} refusal has no question; ask for the fact that would decide",
            )
        )
    return violations


@check(6, "evidence_not_cited", "source_unknown", "quote_empty", "quote_not_found")
def citations(inputs: CheckInput) -> list[Violation] | None:
    """Check that each quote occurs word for word in the source it names, and that available evidence is cited.

    White space is ignored. A quote must begin and end at a word boundary: "60 %" does not occur in "160 %".
    """
    proposal, evidence = inputs.proposal, inputs.request.evidence
    if not proposal.citations:
        if proposal.decision == "refuse" or not evidence:
            return None
        names = listed(item.source_id for item in evidence)
        return [
            Violation(
                "evidence_not_cited",
                f"the answer classifies without citing the evidence; quote the deciding words of {names}",
            )
        ]
    texts: dict[str, list[str]] = {}
    for item in evidence:
        texts.setdefault(item.source_id, []).append(single_spaced(item.text))
    return [fault for citation in proposal.citations for fault in _invalid_citation(citation, texts)]


def _invalid_citation(citation: Citation, texts: dict[str, list[str]]) -> Iterator[Violation]:
    source, quote = citation.source_id, single_spaced(citation.quote)
    if source not in texts:
        advice = f"cite {listed(texts)}" if texts else "the request has no evidence, so remove the citation"
        yield Violation("source_unknown", f"the cited source {quoted(source)} is not in the request; {advice}")
    elif not quote:
        yield Violation(
            "quote_empty", f"the quote from {quoted(source)} is empty; copy the words that support the claim"
        )
    elif not any(occurs_in(quote, text) for text in texts[source]):
        yield Violation(
            "quote_not_found",
            f"the quote {quoted(citation.quote)} does not occur in {quoted(source)}; copy it word for word",
        )


@check(7, "document_not_given", "document_not_named")
def missing_evidence(inputs: CheckInput) -> list[Violation] | None:
    """Check that an answer relies only on documents in the request; a refusal for a missing one must name it."""
    proposal = inputs.proposal
    missing = _missing_documents(proposal, inputs.request.evidence)
    if proposal.decision == "classify":
        return [
            Violation(
                "document_not_given",
                f"the answer relies on {quoted(document)}, which is not in the request; classify without it, or refuse",
            )
            for document in missing
        ]
    if proposal.refusal is None or proposal.refusal.category != "missing_evidence":
        return None
    if missing:
        return []
    return [
        Violation(
            "document_not_named",
            "the refusal for missing evidence names no document; list it in relies_on with source_id null",
        )
    ]


def _missing_documents(proposal: Proposal, evidence: Sequence[Evidence]) -> list[str]:
    source_ids = {item.source_id for item in evidence}
    return [item.document for item in proposal.relies_on if item.source_id not in source_ids]
