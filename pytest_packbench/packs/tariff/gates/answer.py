"""Gates on the answer as a whole: completeness, form of codes, composition, objections, refusals, evidence.

Quotes stand where they are said to, and nothing rests on a document that nobody has.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.codes import digits
from pytest_packbench.packs.tariff.gates.base import WIDTHS, Violation, gate, listed, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.packs.tariff.dossier import Citation, GriStep, Proposal
    from pytest_packbench.packs.tariff.gates.base import GateInput
    from pytest_packbench.packs.tariff.model import Evidence

WHOLE_PCT = 100.0
TOLERANCE_PCT = 1.0
_WRITTEN = re.compile(r"[\d. -]+", re.ASCII)
# the schedule writes legal lines without a statistical suffix with eight digits
_FULL = (8, 10)
_TARGET = (6, 8, 10)
# a place where a word or number runs on: "co|tton", "non-|woven", "99.|5"
_INSIDE_WORD = re.compile(
    r"(?<=\w)(?=\w) | (?<=\w-)(?=\w) | (?<=\w)(?=-\w) | (?<=\d[.,])(?=\d) | (?<=\d)(?=[.,]\d)", re.VERBOSE
)


@gate(4)
def essential_character(given: GateInput) -> list[Violation] | None:
    """Whether a decision by GRI 3(b) names its component out of the composition, and by which factors."""
    proposal = given.proposal
    if not any(step.rule == "3b" and step.outcome == "decided" for step in proposal.gri_trace.steps):
        return None
    character = proposal.essential_character
    if character is None:
        return [Violation("rule 3b decides without an essential character; name component, factors and rationale")]
    found = []
    known = [part.component for part in proposal.composition_table or ()]
    if _plain(character.component) not in {_plain(name) for name in known}:
        beside = f"name one of {listed(known)}" if known else "give the composition table"
        found.append(
            Violation(f"the component {quoted(character.component)} is not in the composition table; {beside}")
        )
    if not any(factor.strip() for factor in character.factors):
        found.append(
            Violation("the essential character has no factor; name at least one, such as weight, value or role")
        )
    return found


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


@gate(11, critical=False)
def composition(given: GateInput) -> list[Violation] | None:
    """Whether the shares by weight, percent of the whole, add up to 100 within 1, where all are given."""
    table = given.proposal.composition_table
    shares = [part.weight_pct for part in table or () if part.weight_pct is not None]
    if not table or len(shares) != len(table):
        return None
    total = math.fsum(shares)
    # a hair of float noise is not a percent
    if math.isclose(total, WHOLE_PCT, rel_tol=0, abs_tol=TOLERANCE_PCT + 1e-9):
        return []
    return [Violation(f"the weights add up to {total:g} %, not 100 %; correct them, or leave unknown ones null")]


@gate(1)
def completeness(given: GateInput) -> Iterator[Violation]:
    """Whether the answer holds what its decision needs, and nothing of the other decision."""
    proposal = given.proposal
    return _classified(proposal) if proposal.decision == "classify" else _refused(proposal)


def _classified(proposal: Proposal) -> Iterator[Violation]:
    if proposal.baseline is None:
        yield Violation("classifies without a baseline; give the code of the goods as they are")
    if not proposal.gri_trace.steps:
        yield Violation("classifies without a GRI trace; give the rules in the order used, rule 1 first")
    if not proposal.candidate_headings:
        yield Violation("classifies without candidate headings; name each heading considered")
    if proposal.refusal is not None:
        yield Violation("classifies and refuses at once; drop the refusal, or decide to refuse")


def _refused(proposal: Proposal) -> Iterator[Violation]:
    if proposal.refusal is None:
        yield Violation("refuses without a refusal; give category, reason and questions")
    surplus = [
        name
        for name, value in (
            ("baseline", proposal.baseline),
            ("optimized", proposal.optimized),
            ("what_if_candidates", proposal.what_if_candidates),
        )
        if value
    ]
    if surplus:
        yield Violation(f"refuses and still gives {', '.join(surplus)}; drop it, or decide to classify")


@gate(2)
def code_form(given: GateInput) -> Iterable[Violation] | None:
    """Whether every code has the digits of its place (reference 5: 2, 4, 6, 8 or 10, never between)."""
    proposal = given.proposal
    codes = list(_codes(proposal))
    steps = proposal.gri_trace.steps
    if not codes and not steps:
        return None
    wrong = [
        Violation(
            f"{place} {quoted(code)} is not a code of {' or '.join(map(str, widths))} digits; write it in full, alone"
        )
        for place, code, widths in codes
        if not _has_width(code, widths)
    ]
    return [*wrong, *(found for at, step in enumerate(steps, 1) for found in _step_form(at, step))]


def _codes(proposal: Proposal) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for heading in proposal.candidate_headings:
        yield "candidate heading", heading, (WIDTHS["heading"],)
    if proposal.baseline is not None:
        yield "baseline code", proposal.baseline.hts_code, _FULL
    if proposal.optimized is not None:
        yield "optimized code", proposal.optimized.hts_code, _FULL
    for what_if in proposal.what_if_candidates:
        yield f"expected code of what-if {quoted(what_if.id)}:", what_if.expected_hts, _TARGET


def _step_form(at: int, step: GriStep) -> Iterator[Violation]:
    width = WIDTHS[step.level]
    named = step.candidates if step.chosen is None else (*step.candidates, step.chosen)
    wrong = [code for code in named if not _has_width(code, (width,))]
    if wrong:
        yield Violation(f"{listed(wrong)} is not a {step.level} of {width} digits; write codes of that level", step=at)
    if step.outcome != "decided":
        if step.chosen is not None:
            yield Violation(f"is {step.outcome} and still chooses {quoted(step.chosen)}; decide, or drop it", step=at)
    elif step.chosen is None:
        yield Violation("is decided without a chosen code; name the candidate chosen", step=at)
    elif digits(step.chosen) not in {digits(code) for code in step.candidates}:
        yield Violation(f"chooses {quoted(step.chosen)}, which is not among its candidates; compare it too", step=at)


def _has_width(code: str, widths: tuple[int, ...]) -> bool:
    return _WRITTEN.fullmatch(code) is not None and len(digits(code)) in widths


@gate(9)
def critic(given: GateInput) -> list[Violation] | None:
    """Whether the critic saw a conflict between answer, facts and rules; other remarks don't send back."""
    if given.critique is None:
        return None
    return [Violation(" ".join(conflict.split())) for conflict in given.critique.conflicts]


@gate(10)
def refusal(given: GateInput) -> list[Violation] | None:
    """Whether a refusal tells why, and what to ask; goods out of scope need no question."""
    declined = given.proposal.refusal
    if given.proposal.decision != "refuse" or declined is None:
        return None
    found = []
    if not declined.reason.strip():
        found.append(Violation("refuses without a reason; say what stands in the way of a code"))
    if declined.category != "out_of_scope" and not any(question.strip() for question in declined.questions):
        found.append(
            Violation(f"refuses as {declined.category} without a question; ask for the fact that would decide")
        )
    return found


@gate(6)
def citations(given: GateInput) -> list[Violation] | None:
    """Whether each quote stands word for word in the evidence it names, and evidence at hand is cited.

    White space doesn't count. A quote begins and ends with whole words, or "60 %" would be found in "160 %".
    """
    proposal, evidence = given.proposal, given.request.evidence
    if not proposal.citations:
        if proposal.decision == "refuse" or not evidence:
            return None
        names = listed(item.source_id for item in evidence)
        return [Violation(f"classifies without citing the evidence; quote the words of {names} that decide")]
    texts: dict[str, list[str]] = {}
    for item in evidence:
        texts.setdefault(item.source_id, []).append(_spaced(item.text))
    return [found for citation in proposal.citations for found in _unfounded(citation, texts)]


def _unfounded(citation: Citation, texts: dict[str, list[str]]) -> Iterator[Violation]:
    source, quote = citation.source_id, _spaced(citation.quote)
    if source not in texts:
        known = f"cite {listed(texts)}" if texts else "the request brings no evidence, so cite none"
        yield Violation(f"cites {quoted(source)}, which is not in the request; {known}")
    elif not quote:
        yield Violation(f"cites {quoted(source)} with an empty quote; copy the words that bear out the claim")
    elif not any(_stands_in(quote, text) for text in texts[source]):
        yield Violation(
            f"quotes {quoted(citation.quote)}, which does not stand in {quoted(source)}; copy word for word"
        )


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _stands_in(quote: str, text: str) -> bool:
    at = text.find(quote)
    while at >= 0:
        if not (_INSIDE_WORD.match(text, at) or _INSIDE_WORD.match(text, at + len(quote))):
            return True
        at = text.find(quote, at + 1)
    return False


@gate(7)
def missing_evidence(given: GateInput) -> list[Violation] | None:
    """Whether an answer rests only on documents in the request; a refusal for want of one has to name it."""
    proposal = given.proposal
    absent = _absent(proposal, given.request.evidence)
    if proposal.decision == "classify":
        return [
            Violation(f"relies on {quoted(document)}, which the request does not bring; do without, or refuse")
            for document in absent
        ]
    if proposal.refusal is None or proposal.refusal.category != "missing_evidence":
        return None
    if absent:
        return []
    return [Violation("refuses for missing evidence but names no document; list it in relies_on with source_id null")]


def _absent(proposal: Proposal, evidence: Sequence[Evidence]) -> list[str]:
    known = {item.source_id for item in evidence}
    return [item.document for item in proposal.relies_on if item.source_id not in known]
