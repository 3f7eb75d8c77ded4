"""Gates on evidence: quotes stand where they are said to, and nothing rests on a document nobody has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_packbench.packs.tariff.gates.base import Violation, gate, listed, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.packs.tariff.dossier import Citation, Proposal
    from pytest_packbench.packs.tariff.gates.base import GateInput
    from pytest_packbench.packs.tariff.model import Evidence


# a place where a word or number runs on: "co|tton", "non-|woven", "99.|5"
_INSIDE_WORD = re.compile(
    r"(?<=\w)(?=\w) | (?<=\w-)(?=\w) | (?<=\w)(?=-\w) | (?<=\d[.,])(?=\d) | (?<=\d)(?=[.,]\d)", re.VERBOSE
)


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
    texts = _texts(evidence)
    return [found for citation in proposal.citations for found in _unfounded(citation, texts)]


def _texts(evidence: Sequence[Evidence]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for item in evidence:
        texts.setdefault(item.source_id, []).append(_plain(item.text))
    return texts


def _unfounded(citation: Citation, texts: dict[str, list[str]]) -> Iterator[Violation]:
    source, quote = citation.source_id, _plain(citation.quote)
    if source not in texts:
        known = f"cite {listed(texts)}" if texts else "the request brings no evidence, so cite none"
        yield Violation(f"cites {quoted(source)}, which is not in the request; {known}")
    elif not quote:
        yield Violation(f"cites {quoted(source)} with an empty quote; copy the words that bear out the claim")
    elif not any(_stands_in(quote, text) for text in texts[source]):
        yield Violation(
            f"quotes {quoted(citation.quote)}, which does not stand in {quoted(source)}; copy word for word"
        )


def _plain(text: str) -> str:
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
