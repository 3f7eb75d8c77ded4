"""Right answers to the cases of a tariff suite in another, honest spelling: each must score in full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.attempt import score_payload
from pytest_packbench.packs.tariff.notation import digits
from tests.controls.wrong_answers import (
    articles_of,
    cited,
    quotes_of,
    steps_of,
    with_articles,
    with_codes,
    with_dossier,
    with_trace,
)
from tests.controls.wrong_savings import no_saving, odd_rates, odd_savings, other_targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controls.right_answers import RightAnswer
    from tests.controls.wrong_answers import Variants

FULL_WIDTH = {ord("0") + digit: 0xFF10 + digit for digit in range(10)} | {ord("."): 0xFF0E}
MARKS = (
    *("\u00b9", "\u00b9,\u00b2", "*", " 1/", " 1/ 2/", "[2]", " (a)", "\u2020", "*\u2020", " \u2460", "\uff081\uff09"),
    *("\u1d43", "\u00a01/", " 1/."),
)
NAMES = (
    *("HTS ", "HTS: ", "HTS-", "HTS no. ", "HTS Number ", "HTS Code: ", "HTSUS  ", "HTSUS code "),
    *("HTSUS subheading ", "HTS\t"),
)
WIDTH = 10
OF_TEN = {"\u00b9,\u00b2", " 1/ 2/"}
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
    dotted, spaced = ".".join(pairs), " ".join(pairs)
    marked = [f"{dotted}{mark}" for mark in MARKS if len(plain) == WIDTH or mark not in OF_TEN]
    # the schedule prints a footnote directly behind the digits; behind fewer than ten, "1/" could be the next ones
    attached = [f"{form}{mark}" for form in (plain, dotted) for mark in ("1/", "12/") if len(plain) == WIDTH]
    named = [f"{name}{dotted}" for name in NAMES]
    named += [f"HTSUS {plain}", f"htsus: {spaced}", f"hts{plain}"]
    around = [f"\u00a0{dotted}\n", f"\ufeff{dotted}", f"{dotted}\u200b", f"{dotted}.", f'"{dotted}"', f"`{dotted}`"]
    return [
        *(plain, dotted, spaced, "  ".join(pairs), dotted.translate(FULL_WIDTH)),
        *(*marked, *attached, *named, *around, f"\u201c{dotted}.\u201d"),
    ]


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
    for name in (str.upper, " {}\n".format):
        citations = [{**citation, "source_id": name(citation["source_id"])} for citation in quotes_of(right)]
        yield from cited(right, citations) if citations else []


def respelled_rules(right: RightAnswer) -> Iterator[Any]:
    for form in ("GRI {}", "gri_{}", "Rule {}", "GIR {}", "G.R.I. {}", "General Rule of Interpretation {}"):
        yield from with_trace(right, [{**step, "rule": form.format(step["rule"])} for step in steps_of(right)])
    numbers = (int(step["rule"]) if step["rule"].isdigit() else step["rule"] for step in steps_of(right))
    yield from with_trace(right, [{**step, "rule": rule} for step, rule in zip(steps_of(right), numbers, strict=True)])
    bracketed = [{**step, "rule": f"{step['rule'][:-1]}({step['rule'][-1]})"} for step in steps_of(right)]
    steps = [new if len(old["rule"]) == 2 else old for new, old in zip(bracketed, steps_of(right), strict=True)]
    yield from with_trace(right, steps)


EMPTY: tuple[Any, ...] = (None, "", " ", {}, [], False, 0, "none", "null", "n/a")


def with_empty_fields(right: RightAnswer) -> Iterator[Any]:
    """Yield a result with an empty error or, beside an answer, an empty refusal, in every usual form, some under `proof`."""
    nothing = [
        *EMPTY,
        {"kind": None, "message": ""},
        {"category": None, "reason": "", "questions": []},
        {"category": "none"},
    ]
    for key in ("error", "refusal") if right.accepts else ("error",):
        for index, value in enumerate(nothing):
            yield right.copy() | ({"proof": {key: value}} if index % 2 else {key: value})


def with_less_said(right: RightAnswer) -> Iterator[Any]:
    """Yield a result whose decision stands in some of its fields only, or under `proof`."""
    for keys in (("status",), ("accepted",), ("status", "accepted"), ("iterations",), ("iterations", "status")):
        yield {name: value for name, value in right.copy().items() if name not in keys}
    yield right.copy() | {"status": right.copy()["status"].title()}
    yield right.copy() | {"status": "completed"}
    for status in ("Verified", "accepted", "completed") if right.accepts else ("REFUSED", "declined", "completed"):
        yield {name: value for name, value in right.copy().items() if name != "iterations"} | {"status": status}
    yield {"proof": right.copy()}


def respelled_categories(right: RightAnswer) -> Iterator[Any]:
    """Yield a refusal whose category is written in another way, or stands where reasons stand."""
    category = right.outcome.refusal_category
    plain = category.replace("_", " ")
    joined, bound = plain.title().replace(" ", ""), category.replace("_", "\u2011")
    marked = (f"{category}.", f'"{plain}"', f"category: {category}")
    for word in (category.upper(), plain, category.title(), f" {category.replace('_', '-')}\n", joined, bound, *marked):
        yield right.copy() | {"refusal": {**right.copy()["refusal"], "category": word}}
        yield right.copy() | {"refusal": {"reason": word}}
        for status, refusal in (("failed", None), ("rejected", {}), ("refused", {"category": None})):
            iterations = [{"accepted": False, "rejected_because": [word]}]
            yield right.copy() | {"status": status, "refusal": refusal, "iterations": iterations}
        uncategorized = {"category": None, "reason": "two facts are open"}
        yield right.copy() | {"refusal": uncategorized, "rejected_because": [word]}
    nothing = {"baseline": {"hts_code": "open: one of 2 headings"}}
    yield right.copy() | {"tariff_dossier": {**(right.copy()["tariff_dossier"] or {}), **nothing}}


def respelled_articles(right: RightAnswer) -> Iterator[Any]:
    """Yield an answer about several articles in another order, under other names, with codes in another form."""
    articles = articles_of(right)
    for order in (articles[::-1], [*articles[1:], *articles[:1]], sorted(articles, key=lambda item: item["article"])):
        yield from with_articles(right, order) if articles else ()
    short = [{"name": "goods", "hts_code": f"HTS {digits(item['baseline']['hts_code'])} *"} for item in articles]
    unnamed = [{key: value for key, value in item.items() if key != "article"} for item in articles]
    doubled = [{**item, "hts_code": digits(item["baseline"]["hts_code"])} for item in articles]
    longer = [{**item, "article": f"The {item['article'].upper()} (one piece)"} for item in articles]
    if articles:
        yield {
            **right.copy(),
            "tariff_dossier": {**right.copy()["tariff_dossier"], "articles": None},
            "articles": articles,
        }
    for form in (short, unnamed, doubled, longer) if articles else ():
        yield from with_articles(right, form)
    if articles:
        yield from with_dossier(right, baseline=articles[-1]["baseline"])


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


def with_the_same_code(right: RightAnswer) -> Iterator[Any]:
    for code in (right.preferred_code, f"HTS {digits(right.preferred_code)}", right.preferred_code[:7]):
        yield from with_dossier(right, hts_code=code, articles=[{"hts_code": code}])
        yield right.copy() | {"hts_code": code}


ODD_ANSWERS = (
    OddAnswer("code in another spelling", with_codes(spellings)),
    OddAnswer("quotes in another spelling", respelled_quotes),
    OddAnswer("rules in another spelling", respelled_rules),
    OddAnswer("no verdict of the target on its citations", lambda right: [_without(right, "citation_gate_result")]),
    OddAnswer("no verdict of the target on the order of rules", _unjudged),
    OddAnswer("empty error or refusal", with_empty_fields, of_refusals=True, of_articles=True),
    OddAnswer("decision in some of its fields only", with_less_said, of_refusals=True, of_articles=True),
    OddAnswer(
        "category of a refusal in another spelling",
        lambda right: () if right.accepts else respelled_categories(right),
        of_refusals=True,
    ),
    OddAnswer("saving in another spelling", odd_savings),
    OddAnswer("another saving that the case accepts", other_targets),
    OddAnswer("rates in other places", odd_rates),
    OddAnswer("no saving, said in another way", no_saving),
    OddAnswer("several articles in another order or form", respelled_articles, of_articles=True),
    OddAnswer("a short quote as well", with_short_quotes),
    OddAnswer("the same code in another place", with_the_same_code),
    OddAnswer("more assumptions", lambda right: with_dossier(right, assumptions=["the goods are new"])),
)
