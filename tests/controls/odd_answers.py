"""Right answers to the cases of a tariff suite in another form of the document: each must score in full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.attempt import score_payload
from pytest_packbench.packs.tariff.notation import digits, dotted
from tests.controls.wrong_answers import (
    articles_of,
    cited,
    quotes_of,
    steps_of,
    with_articles,
    with_codes,
    with_dossier,
)
from tests.controls.wrong_savings import no_saving, odd_rates, odd_savings, other_targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controls.right_answers import RightAnswer
    from tests.controls.wrong_answers import Variants

TYPOGRAPHY = str.maketrans({"'": "\u2019", "-": "\u2011", '"': "\u201d"})


@dataclass(frozen=True)
class OddAnswer:
    """A kind of right answer: `variants` returns right results in another spelling."""

    name: str
    variants: Variants
    of_refusals: bool = False
    of_articles: bool = False
    requirement: str = "score 1"

    def misses(self, right: RightAnswer, _: RightAnswer) -> Iterator[str]:
        applies = (right.accepts or self.of_refusals) and (self.of_articles or not right.expected.articles)
        for result in self.variants(right) if applies else ():
            outcome: Any = score_payload(right.context, right.loaded, result)
            terms = [(term.name, term.points, term.detail) for term in outcome.score.terms] if outcome.score else []
            yield "" if outcome.score and outcome.score.score == 1.0 else f"{outcome.failure}: {terms}"


def spellings(right: RightAnswer) -> list[str]:
    plain = digits(right.preferred_code)
    pairs = [plain[:4], *(plain[at : at + 2] for at in range(4, len(plain), 2))]
    return [plain, ".".join(pairs), " ".join(pairs), f" {dotted(plain)}\n", dotted(plain)]


def respelled_quotes(right: RightAnswer) -> Iterator[Any]:
    for change in (
        lambda quote: f"\u201c{quote}\u201d",
        lambda quote: f"\u2026{quote}\u2026",
        lambda quote: quote.replace(" ", "\n  "),
        lambda quote: quote.translate(TYPOGRAPHY),
        lambda quote: quote[:1].upper() + quote[1:],
        lambda quote: f"[...] {quote} [...]",
        lambda quote: f"({quote})",
        lambda quote: f"\u2039{quote}\u203a",
        lambda quote: f"`{quote}`",
        lambda quote: f"{quote[:1]}\u00ad{quote[1:]}".replace(" ", " \u200b"),
        lambda quote: f"{quote.rstrip('.')},",
        lambda quote: f"{quote.rstrip('.')};",
    ):
        citations = [{**citation, "quote": change(citation["quote"])} for citation in quotes_of(right)]
        yield from cited(right, citations) if citations else []


def with_less_said(right: RightAnswer) -> Iterator[Any]:
    """Yield a result without what is only for people, and with notes of any kind."""
    result = right.copy()
    yield {key: result[key] for key in ("status", "refusal", "tariff_dossier")}
    yield result | {"notes": {"hts_code": "0101.21.0010", "accepted": not right.accepts}}
    for part in (result["tariff_dossier"] or {}).get("what_if_candidates") or ():
        part.pop("rationale", None)
    yield result


def respelled_articles(right: RightAnswer) -> Iterator[Any]:
    """Yield an answer about several articles in another order, or under other names."""
    articles = articles_of(right)
    for order in (articles[::-1], [*articles[1:], *articles[:1]], sorted(articles, key=lambda item: item["article"])):
        yield from with_articles(right, order) if articles else ()
    unnamed = [{**item, "article": f"number {number}"} for number, item in enumerate(articles)]
    longer = [{**item, "article": f"The {item['article'].upper()} (one piece)"} for item in articles]
    for form in (unnamed, longer) if articles else ():
        yield from with_articles(right, form)


def _without(right: RightAnswer, key: str) -> Any:
    return {name: value for name, value in right.copy().items() if name != key}


def _unjudged(right: RightAnswer) -> list[Any]:
    return with_dossier(right, gri_trace={"steps": steps_of(right)})


def with_short_quotes(right: RightAnswer) -> Iterator[Any]:
    """Yield the answer with another quote of one word, which stands in its document."""
    texts = {item.source_id: item.text for item in right.case.input.evidence}
    for citation in quotes_of(right)[:1]:
        short = {"source_id": citation["source_id"], "quote": texts[citation["source_id"]].split()[0]}
        yield from cited(right, [*quotes_of(right), short])


ODD_ANSWERS = (
    OddAnswer("code in another spelling", with_codes(spellings)),
    OddAnswer("quotes in another spelling", respelled_quotes),
    OddAnswer("no verdict of the target on its citations", lambda right: [_without(right, "citation_gate_result")]),
    OddAnswer("no verdict of the target on the order of rules", _unjudged),
    OddAnswer("no more than is scored, and notes", with_less_said, of_refusals=True, of_articles=True),
    OddAnswer("saving in another form", odd_savings),
    OddAnswer("another saving that the case accepts", other_targets),
    OddAnswer("rates in another form", odd_rates),
    OddAnswer("no saving, with the changes that were examined", no_saving),
    OddAnswer("several articles in another order or form", respelled_articles, of_articles=True),
    OddAnswer("a short quote as well", with_short_quotes),
    OddAnswer("more assumptions", lambda right: with_dossier(right, assumptions=["the goods are new"])),
)
