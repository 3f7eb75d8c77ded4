"""What the scorer computes of an answer instead of believing the target: citations, the order of rules, the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.model.errors import format_value, pluralize
from pytest_packbench.packs.tariff.checks.base import WIDTHS
from pytest_packbench.packs.tariff.checks.sequence import order_violations
from pytest_packbench.packs.tariff.notation import (
    MIN_QUOTE,
    deciding_rules,
    digits,
    is_long_enough,
    is_under,
    rules_beside,
    stands_in,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.packs.tariff.model import Evidence, TariffExpected
    from pytest_packbench.packs.tariff.outcome import Quotation, TariffOutcome, TraceStep


class CitationProof(NamedTuple):
    """What the citations of an answer show.

    Attributes:
        checked: how many were looked up.
        faults: what is wrong with them, one line each.
        missing: the documents that had to be quoted and are not.
        forbidden: the documents that are cited and may not be.
    """

    checked: int = 0
    faults: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    @property
    def ok(self) -> bool | None:
        """Whether all that was looked up is right; None if nothing was."""
        return not self.faults if self.checked else None


def prove_citations(
    citations: Sequence[Quotation], evidence: Sequence[Evidence], expected: TariffExpected, *, only_request: bool
) -> CitationProof:
    """Look up the quotes of an answer in the documents that it names.

    Args:
        citations: the citations of the answer.
        evidence: the documents of the request.
        expected: what has to be cited.
        only_request: whether a citation is wrong where the request has no documents.
    """
    texts: dict[str, list[str]] = {}
    for document in evidence:
        texts.setdefault(document.source_id, []).append(document.text)
    citations = [citation._replace(source_id=_named(citation.source_id, texts)) for citation in citations]
    checked = citations if texts or only_request else ()
    faults = tuple(fault for citation in checked if (fault := _fault(citation, texts)))
    quoted = {
        source
        for source, quote in checked
        if any(stands_in(quote, text) and is_long_enough(quote, text) for text in texts.get(source, ()))
    }
    cited = {source for source, _ in citations}
    return CitationProof(
        checked=sum(_shows_something(citation, texts) for citation in checked),
        faults=faults,
        missing=tuple(source for source in expected.must_cite or () if source not in quoted),
        forbidden=tuple(source for source in expected.must_not_cite or () if source in cited),
    )


def _named(source: str, texts: dict[str, list[str]]) -> str:
    """Return the document that a source names in capitals or with spaces around; the source itself if none or two."""
    if source in texts:
        return source
    named = [name for name in texts if name.strip().casefold() == source.strip().casefold()]
    return named[0] if len(named) == 1 else source


def _fault(citation: Quotation, texts: dict[str, list[str]]) -> str:
    source, quote = citation
    if source not in texts:
        return f"the cited source {_shown(source)} is not in the request"
    if not quote.strip():
        return f"the citation of {_shown(source)} has no quote"
    if not any(stands_in(quote, text) for text in texts[source]):
        return f"the quote {_shown(quote)} does not occur in {_shown(source)}"
    return ""


def _shows_something(citation: Quotation, texts: dict[str, list[str]]) -> bool:
    """Return whether a citation counts: a short quote that stands in its document shows nothing, and is no fault."""
    source, quote = citation
    return bool(_fault(citation, texts)) or any(
        stands_in(quote, text) and is_long_enough(quote, text) for text in texts[source]
    )


def describe_missing(source: str) -> str:
    """Describe a document that had to be quoted."""
    return f"no quote of at least {MIN_QUOTE} characters from {_shown(source)}"


def prove_order(steps: Sequence[TraceStep], code: str | None) -> list[str] | None:
    """Return the violations of the order of rules, one line each; None if there are no steps that can be read.

    Args:
        steps: the steps of the trace.
        code: the code that they lead to.
    """
    return [str(violation) for violation in order_violations(steps, code)] if steps else None


def prove_orders(outcome: TariffOutcome, *, by_article: bool) -> list[str] | None:
    """Return the violations of the order of rules of an answer, as `prove_order` does.

    Args:
        outcome: the answer.
        by_article: whether the case expects several articles, each with steps of its own.
    """
    if not by_article:
        return prove_order(outcome.steps, outcome.baseline_code)
    proofs = [prove_order(article.steps, article.code) for article in outcome.all_articles]
    known = [proof for proof in proofs if proof is not None]
    return [violation for proof in known for violation in proof] if known else None


def rule_fault(expected: str, outcome: TariffOutcome, right_code: str | None) -> str:
    """Return why an answer is not decided by the expected rule; empty if it is.

    Args:
        expected: the rule.
        outcome: the answer.
        right_code: the code that the rule has to lead to; None where the answer has no right one.
    """
    if not outcome.steps:
        return outcome.unread_step or "no steps of the rules of interpretation"
    deciding = deciding_rules(outcome.steps)
    if expected not in deciding and expected not in rules_beside(outcome.steps):
        return f"decided by {_rules(deciding)}" if deciding else "no step decides"
    if expected in deciding and len(deciding) > 1:
        return f"decided by {_rules(deciding)} at once"
    return "" if right_code is None else _choice_fault(expected, outcome.steps, right_code)


def _choice_fault(expected: str, steps: Sequence[TraceStep], code: str) -> str:
    """Return why the steps do not lead to the code by the rule: each that decides chooses it, in full, when due."""
    decided = [step for step in steps if step.outcome == "decided"]
    for step in decided:
        chosen = step.chosen or ""
        if digits(chosen) and not (is_under(code, chosen) or is_under(chosen, code)):
            return f"rule {step.rule} chooses {_shown(chosen)}, the answer is {_shown(code)}"
    deciding = [step for step in decided if step.rule == expected]
    if not any(digits(step.chosen or "") for step in deciding):
        return f"rule {expected} chooses no code"
    # rules beside others may apply at any place
    due = () if expected in rules_beside(steps) else deciding
    return next((fault for step in due if (fault := _step_fault(step, steps))), "")


def _step_fault(step: TraceStep, steps: Sequence[TraceStep]) -> str:
    """Return why a step of a deciding rule decides nothing; empty if it does."""
    chosen, width, shown = digits(step.chosen or ""), WIDTHS[step.level], _shown(step.chosen or "")
    if len(chosen) < width:
        return f"rule {step.rule} chooses {shown} for a {step.level}"
    if not any(digits(candidate)[:width] == chosen[:width] for candidate in step.candidates):
        return f"rule {step.rule} chooses {shown}, which is no candidate"
    # the order has a term of its own
    openings = [other for other in steps if other.level == step.level and other.rule in {"1", "6"}]
    is_open = bool(openings) and all(other.outcome != "decided" for other in openings)
    if step.rule == "1" or is_open:
        return ""
    return f"rule {step.rule} is not due for the {step.level}: rule 1 or 6 does not leave it open"


def _rules(rules: Sequence[str]) -> str:
    return f"{pluralize(len(rules), 'rule').partition(' ')[2]} {' and '.join(rules)}"


def _shown(text: str) -> str:
    return " ".join(format_value(text).split()).encode("utf-8", "backslashreplace").decode()
