"""Citations: whether the quotes of an answer stand in the documents that they name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_packbench.model.errors import first_of, fold, format_value, single_spaced
from pytest_packbench.packs.tariff.judged import note, zero

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.model.result import Term
    from pytest_packbench.packs.tariff.answer import Citation
    from pytest_packbench.packs.tariff.judged import Judged

MIN_QUOTE = 20
"""The fewest characters of a quote that shows anything; a shorter document may be quoted as a whole."""
# quotation marks and brackets around a quote, and punctuation that a sentence adds to it
_ENDS = " \"'.,;:()[]"
# a position inside a word or number: "co|tton", "non-|woven", "99.|5"
_INSIDE_WORD = r"(?<=\w)(?=\w)|(?<=\w-)(?=\w)|(?<=\w)(?=-\w)|(?<=\d[.,])(?=\d)|(?<=\d)(?=[.,]\d)"


def citations(case: Judged) -> Iterator[Term]:
    """Each quote stands in the document that it names; the documents that must be quoted are, and no other may be."""
    faults = [*quote_faults(case)]
    gate = case.answer.citation_gate_result
    if not faults and gate and not gate.ok and case.answer.status == "verified":
        faults = ["the pipeline's own check of citations failed"]
    if faults:
        yield zero("citations_invalid", ", ".join(first_of(faults, 1)))
    elif count := len(_looked_up(case)):
        yield note("citations", f"{count} looked up in their documents")
    yield from document_faults(case)


def quote_faults(case: Judged) -> Iterator[str]:
    """Yield why citations are wrong, one line each."""
    if case.answer.reading.is_unquoted:
        yield "a citation whose source or quote can't be read"
    known = {document.source_id for document in case.case.input.evidence}
    for each in _looked_up(case):
        source = format_value(each.source_id)
        if each.source_id not in known:
            yield f"the cited source {source} is not in the request"
        elif not is_quoted(case, each):
            yield f"the quote {format_value(each.quote)} does not occur in {source}; copy one piece of it exactly"


def document_faults(case: Judged) -> Iterator[Term]:
    """Yield a hard fail for a document that had to be quoted and is not, and for one that is and may not be."""
    cited = case.dossier.citations
    quoted = {each.source_id for each in cited if is_quoted(case, each, MIN_QUOTE)}
    for source in case.expected.must_cite or ():
        if source not in quoted:
            detail = f"no quote of at least {MIN_QUOTE} characters from {format_value(source)}"
            yield zero("citation_missing", detail)
    for source in case.expected.must_not_cite or ():
        if source in {each.source_id for each in cited}:
            yield zero("citation_forbidden", f"cites {format_value(source)}")


def quotes_hold(case: Judged) -> bool | None:
    """Return whether all quotes are right; None if there is none that shows anything."""
    if any(quote_faults(case)):
        return False
    return any(is_quoted(case, each, MIN_QUOTE) for each in _looked_up(case)) or None


def _looked_up(case: Judged) -> Sequence[Citation]:
    """Return the citations that are looked up: a pipeline may have sources of its own where the case has none."""
    is_closed = bool(case.case.input.evidence) or case.rules.cited_sources == "request"
    return case.dossier.citations if is_closed else ()


def is_quoted(case: Judged, citation: Citation, least: int = 1) -> bool:
    """Return whether a quote stands in the document that it names, with at least so many characters.

    Marks, brackets and punctuation around it, white space, typography and case do not matter; half a word or half a
    number does.
    """
    quote = _readable(citation.quote).strip(_ENDS)
    texts = (_readable(each.text) for each in case.case.input.evidence if each.source_id == citation.source_id)
    return bool(quote) and any(
        occurs_in(quote, text) and len(quote) >= min(least, len(text.strip(_ENDS))) for text in texts
    )


def occurs_in(quote: str, text: str) -> bool:
    """Return whether a quote stands in a text, from one word boundary to another: "60 %" does not occur in "160 %"."""
    # a text that it is not in needs no pattern, which takes time for a long quote
    return quote in text and re.search(f"(?!{_INSIDE_WORD}){re.escape(quote)}(?!{_INSIDE_WORD})", text) is not None


# a document is read once for all its quotes
@lru_cache(maxsize=64)
def _readable(text: str) -> str:
    return single_spaced(fold(text).replace("`", "'")).casefold()
