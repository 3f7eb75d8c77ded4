"""The values and conditions that `answers.yaml` names, each a function of the right answer."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import yaml

from pytest_packbench.packs.tariff.model import RefusalCategory
from pytest_packbench.packs.tariff.notation import WIDTHS, digits, dotted, is_under
from tests.controls.right_answers import with_ten_digits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.controls.right_answers import Json, RightAnswer

    Values = Callable[[RightAnswer], Iterable[Any]]

CATEGORIES = get_args(RefusalCategory)
HORSE = "0101.21.0010"
RAISED = str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
TYPOGRAPHY = str.maketrans({"'": "\u2019", "-": "\u2011", '"': "\u201d"})
TEXTS = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text("utf-8"))["no_codes"]
# a code as it is written in texts: 6109.90.1065, 6109.90.10.65, 6109.90
_CODE = re.compile(r"(?<![\d.])\d{4}\.\d{2}(?:\.\d{2}(?:\.?\d{2})?)?(?![\d]|\.\d)")


def under(code: str, prefixes: Iterable[str] | None) -> bool:
    return any(is_under(code, prefix) for prefix in prefixes or ())


def accepted(right: RightAnswer) -> tuple[str, ...]:
    return (*right.expected.preferred_hts, *(right.expected.allowed_hts or ()))


def dossier(right: RightAnswer) -> Json:
    found: Json = right.copy()["tariff_dossier"] or {}
    return found


def part(right: RightAnswer, name: str) -> Json:
    found: Json = dossier(right).get(name) or {}
    return found


def levers(right: RightAnswer) -> list[Json]:
    """The what-ifs, that of the optimised code first."""
    best = part(right, "optimized").get("what_if_id")
    return sorted(dossier(right).get("what_if_candidates") or [], key=lambda lever: lever["id"] != best)


def schedule(right: RightAnswer, start: str, numbers: Iterable[int] = range(100)) -> Iterator[str]:
    """Yield the codes of the schedule that are a start and two digits more."""
    codes = (f"{start}{number:02d}" for number in numbers)
    return (code for code in codes if right.edition.existing(code) == code)


def invented(right: RightAnswer, start: str) -> str:
    """A start and two digits more, which are not in the schedule; empty where all are."""
    known = set(schedule(right, start))
    return next(
        (dotted(f"{start}{number:02d}") for number in range(99, -1, -1) if f"{start}{number:02d}" not in known), ""
    )


def general(right: RightAnswer, code: str) -> float | None:
    rate = right.edition.rate(digits(code))
    return None if rate is None else rate.pct


def price(right: RightAnswer) -> list[float]:
    """The general rate of the preferred code, if it can be computed."""
    rate = general(right, right.preferred_code) if right.preferred_code else None
    return [] if rate is None else [rate]


def planted(right: RightAnswer) -> list[str]:
    """Every code in the description or the evidence, except accepted ones."""
    texts = " ".join((right.case.input.input, *(item.text for item in right.case.input.evidence)))
    codes = sorted({with_ten_digits(code) for code in _CODE.findall(texts)})
    return [code for code in codes if not under(code, accepted(right))]


def sibling(width: int) -> Values:
    """A code that differs from the preferred one in the last two of its first `width` digits."""

    def codes(right: RightAnswer) -> list[str]:
        preferred = digits(right.preferred_code)
        if len(preferred) < width:
            return []
        others = sorted(range(1, 100), key=lambda number: abs(number - int(preferred[width - 2 : width])))
        found = (dotted(f"{preferred[: width - 2]}{number:02d}{preferred[width:]}") for number in others)
        other = (*accepted(right), *(right.expected.must_not_hts or ()))
        return [next(code for code in found if not under(code, other))]

    return codes


def cut(code: str, widths: Iterable[int], wanted: Iterable[str]) -> list[str]:
    codes = [dotted(digits(code)[:width]) for width in widths]
    return [short for short in codes if not under(short, wanted)]


def no_codes(right: RightAnswer, code: str) -> Iterator[str]:
    """Yield the texts of `answers.yaml`."""
    plain, other = digits(code), next(iter(right.forbidden), HORSE)
    pairs = [digits(other)[at : at + 2] for at in range(0, len(digits(other)), 2)]
    raised = digits(other).translate(RAISED)
    names = {"code": code, "other": other, "plain": plain, "two": plain[:2], "seven": plain[:7], "eight": plain[:8]}
    names |= {"line": dotted(plain[:8]), "suffix": plain[8:], "cut": plain[:-1], "spread": " ".join(plain)}
    names |= {"backwards": plain[::-1], "reversed": code[::-1], "struck": "\u0336".join(code)}
    names |= {"start": dotted(plain[:-2]), "end": plain[-2:], "raised_end": plain[-2:].translate(RAISED)}
    names |= {
        "raised": raised,
        "raised3": raised[:3],
        "tags": "".join(chr(0xE0000 + ord(char)) for char in f" or {other}"),
    }
    names |= {"pairs": ", ".join(plain[at : at + 2] for at in range(2, len(plain), 2))}
    for number, form in enumerate(("[{}]", " ({})", " {}/", "{}/"), 1):
        names[f"pairs{number}"] = "".join(map(form.format, pairs))
    for number, form in enumerate(("[{}]", " {}/", "({})"), 1):
        names[f"digits{number}"] = "".join(map(form.format, digits(other)))
    return (text.format(**names) for text in chain.from_iterable(TEXTS.values()))


def quotes(change: Callable[[RightAnswer, str, str], tuple[str, str]]) -> Values:
    """The citations with other documents and quotes."""

    def values(right: RightAnswer) -> list[list[Json]]:
        cites = dossier(right).get("citations") or []
        for cite in cites:
            cite["source_id"], cite["quote"] = change(right, cite["source_id"], cite["quote"])
        return [cites] if cites else []

    return values


def short(quote: str) -> str:
    words = quote.split()
    return next(" ".join(words[:count]) for count in (2, 1) if len(" ".join(words[:count])) < 20)


def another_document(right: RightAnswer, source: str) -> str:
    return next((item.source_id for item in right.case.input.evidence if item.source_id != source), "nowhere")


def quotes_but_one(right: RightAnswer) -> list[list[Json]]:
    cites = dossier(right).get("citations") or []
    return [[cite for cite in cites if cite["source_id"] != source] for source in right.expected.must_cite or ()]


SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda quote: quote.replace(" ", "\n  "),
    lambda quote: quote.translate(TYPOGRAPHY),
    lambda quote: quote[:1].upper() + quote[1:],
    lambda quote: f"{quote[:1]}\u00ad{quote[1:]}".replace(" ", " \u200b"),
    lambda quote: f"{quote.rstrip('.')},",
    lambda quote: f"{quote.rstrip('.')};",
    *(form.format for form in ("\u201c{}\u201d", "\u2026{}\u2026", "[...] {} [...]", "({})", "\u2039{}\u203a", "`{}`")),
)


def quotes_respelled(right: RightAnswer) -> Iterator[list[Json]]:
    for change in SPELLINGS:
        yield from quotes(lambda _, source, quote, change=change: (source, change(quote)))(right)  # type: ignore[misc]


def documents(right: RightAnswer) -> dict[str, str]:
    return {item.source_id: item.text for item in right.case.input.evidence}


def steps(right: RightAnswer) -> list[Json]:
    found: list[Json] = dossier(right)["gri_trace"]["steps"]
    return found


def steps_by_other_rules(right: RightAnswer) -> Iterator[list[Json]]:
    expected = right.expected.expected_rule
    for other in {"1", "2a", "3a", "3b", "3c", "4"} - {expected} if expected else ():
        yield [{**step, "rule": other} if step["rule"] == expected else step for step in steps(right)]


def steps_by_two_rules(right: RightAnswer) -> list[list[Json]]:
    """A trace in which another rule decides the same level as well."""
    expected = right.expected.expected_rule
    decided = [step for step in steps(right) if step["rule"] == expected and step["outcome"] == "decided"]
    return [[*steps(right), {**decided[0], "rule": "3a" if expected == "3c" else "3c"}]] if decided else []


def step(rule: str, level: str, code: str) -> Json:
    return {"rule": rule, "level": level, "candidates": [code], "outcome": "decided", "chosen": code}


def steps_to_another_heading(right: RightAnswer) -> Iterator[list[Json]]:
    if expected := right.expected.expected_rule:
        nines = {level: dotted("9999999999"[:width]) for level, width in WIDTHS.items()}
        yield [
            step(expected, each["level"], nines[each["level"]]) | {key: each[key] for key in each.keys() - STEP}
            if each["rule"] == expected
            else each
            for each in steps(right)
        ]


STEP = step("", "", "").keys()


def steps_not_due(right: RightAnswer) -> Iterator[list[Json]]:
    """Yield a trace with the expected rule in which it does not lead to the answer, or not when it is due."""
    if expected := right.expected.expected_rule:
        code = right.preferred_code
        yield [*steps(right), step(expected, "heading", "0101")]
        yield [*steps(right), step("6", "suffix", HORSE)]
        for level, chosen in (("suffix", with_ten_digits(code)), ("line", code[:10])) if expected[0] in "234" else ():
            yield [step("1", "heading", code[:4]), step(expected, level, chosen)]


def changes(right: RightAnswer, *, useful: bool) -> list[str]:
    """The changes of the request but that of the best lever, by whether they lead to another target."""
    savings, own = right.expected.savings, next((lever["change"] for lever in levers(right)), None)
    targets = {target.change for target in savings.targets} if savings else set()
    named = [change.id for change in right.case.input.options.changes] if savings else []
    return [name for name in named if name != own and (name in targets) == useful]


def to_code(right: RightAnswer, code: str, rate: float | None, **best: Any) -> Json:
    """The right answer, which recommends another code at a rate."""
    result = right.copy()
    optimised = result["tariff_dossier"]["optimized"]
    (lever,) = [
        item for item in result["tariff_dossier"]["what_if_candidates"] if item["id"] == optimised["what_if_id"]
    ]
    delta = (rate or 0.0) - (right.baseline_rate_pct or 0.0)
    lever |= {"expected_hts": code, "estimated_duty_delta": delta, **best}
    optimised |= {"hts_code": code, "duty_rate_pct": rate}
    return result


def targets(right: RightAnswer) -> list[Any]:
    return list(right.expected.savings.targets) if right.expected.savings else []


def target_codes(right: RightAnswer) -> list[str]:
    return [target.code for target in targets(right)]


def to_other_lines(right: RightAnswer) -> Iterator[Json]:
    """Yield each other line under the heading of a target that is in the schedule, at its own rate."""
    for target in targets(right):
        for line in (f"{digits(target.code)[:6]}{number:02d}" for number in range(100)):
            code = next(schedule(right, line), "")
            rate = general(right, code) if code else None
            own = any(is_under(other, line) for other in right.expected.preferred_hts)
            if (
                rate is not None
                and not own
                and not under(line, (*(right.expected.must_not_hts or ()), *target_codes(right)))
            ):
                yield to_code(right, dotted(code), rate)


def to_other_targets(right: RightAnswer) -> Iterator[Json]:
    """Yield each accepted code, by its change and at its rate, where it is the general one."""
    for target in targets(right):
        code = with_ten_digits(next(schedule(right, digits(target.code))))
        for spelling in (code, dotted(digits(target.code))) if target.rate_pct is None else ():
            yield to_code(right, spelling, general(right, code), change=target.change)


def optimised(codes: Callable[[RightAnswer, str], Iterable[str]]) -> Values:
    """Change the optimised code of a case that asks for a saving into each of some texts, everywhere."""

    def values(right: RightAnswer) -> Iterator[Json]:
        code, rate = right.optimized_code, right.optimized_rate_pct
        return (to_code(right, other, rate) for other in codes(right, code)) if code and targets(right) else iter(())

    return values


def unexplained(right: RightAnswer) -> Iterator[Json]:
    """Yield a code of the schedule that nothing explains as the optimised one, at its true rate."""
    for code in ("4901.99.0093", HORSE, "8471.30.0100") if not targets(right) else ():
        if not under(code, (*(right.expected.must_not_hts or ()), *right.expected.preferred_hts)):
            for name in ("none", "horse"):
                yield {"hts_code": code, "duty_rate_pct": general(right, code), "what_if_id": name}


def excluded(right: RightAnswer) -> list[str]:
    return [code for code in right.forbidden if not under(code, target_codes(right))]


def wrong_ways(right: RightAnswer) -> list[float]:
    """Rates on the other side of the baseline's, or equal to it where it should differ."""
    direction, rate = right.expected.expected_duty_delta_direction, right.baseline_rate_pct
    if not direction or rate is None:
        return []
    return [
        wrong for name, wrong in {"increase": rate, "flat": rate + 1, "decrease": rate - 1}.items() if name != direction
    ]


def invented_rates(right: RightAnswer) -> list[float]:
    # where no savings are expected, a lower rate is a claim
    return [
        other
        for rate in price(right)
        for other in (rate + 0.1, *([] if right.expected.no_savings_expected or not rate else [0.0, rate / 100]))
    ]


def articles(right: RightAnswer) -> list[Json]:
    return dossier(right).get("articles") or []


def coded(article: Json, code: str | None) -> Json:
    return {**article, "baseline": {**article["baseline"], "hts_code": code}, "gri_trace": {}}


def one_article(change: Callable[[RightAnswer, Json], Iterable[Json]]) -> Values:
    """Change each article in turn into each of some others."""

    def values(right: RightAnswer) -> Iterator[list[Json]]:
        found = articles(right)
        for index, article in enumerate(found):
            yield from ([*found[:index], other, *found[index + 1 :]] for other in change(right, article))

    return values


def recoded(codes: Callable[[RightAnswer, str], Iterable[str | None]]) -> Values:
    return one_article(
        lambda right, article: [coded(article, code) for code in codes(right, article["baseline"]["hts_code"])]
    )


def each_article(**new: Any) -> Values:
    return lambda right: (
        [[{**item, **new, "baseline": {**item["baseline"], **new.get("baseline", {})}} for item in articles(right)]]
    )


def neighbours(right: RightAnswer, code: str) -> Iterator[str]:
    """Yield codes of the schedule that share 2, 4 or 6 digits with a code, and that the case neither wants nor forbids."""
    named = [*right.expected.all_preferred, *right.forbidden, *(right.expected.must_not_hts or ())]
    for width in (2, 4, 6):
        known = map(dotted, schedule(right, digits(code)[:width], range(1, 100)))
        yield from [other for other in known if not any(is_under(other, n) or is_under(n, other) for n in named)][:1]


def own_forbidden(right: RightAnswer) -> list[tuple[int, str]]:
    """The forbidden codes of each article, by its number, and those of the case for each."""
    pairs = enumerate(right.expected.articles or ())
    of_case = right.expected.must_not_hts or ()
    return [(number, with_ten_digits(code)) for number, one in pairs for code in (*(one.must_not_hts or ()), *of_case)]


def articles_forbidden(right: RightAnswer) -> Iterator[list[Json]]:
    found = articles(right)
    for number, code in own_forbidden(right):
        yield [coded(found[number], code), *found[:number], *found[number + 1 :]]


def renamed(right: RightAnswer, *, forbidden: bool) -> Iterator[list[Json]]:
    """Yield the articles with the name of the next one each, by whether an article forbids another's code."""
    found, expected = articles(right), right.expected.articles or ()
    own = [code for article in expected for code in article.must_not_hts or ()]
    names = [article.name for article in expected]
    if found and any(under(article["baseline"]["hts_code"], own) for article in found) == forbidden:
        for form in ("{}", "the {} of the box"):
            pairs = zip(found, map(form.format, (*names[1:], *names[:1])), strict=True)
            yield [{**article, "article": name} for article, name in pairs]


def articles_of_one_code(right: RightAnswer) -> Iterator[list[Json]]:
    """Yield the code of each article for all of them, unless another article forbids it."""
    forbidden = [code for expected in right.expected.articles or () for code in expected.must_not_hts or ()]
    for code in (article["baseline"]["hts_code"] for article in articles(right)):
        if not under(code, forbidden):
            yield [coded(other, code) for other in articles(right)]


def articles_respelled(right: RightAnswer) -> Iterator[list[Json]]:
    if found := articles(right):
        yield from (found[::-1], [*found[1:], *found[:1]], sorted(found, key=lambda item: item["article"]))
        yield [{**item, "article": f"number {number}"} for number, item in enumerate(found)]
        yield [{**item, "article": f"The {item['article'].upper()} (one piece)"} for item in found]


def without_rationale(right: RightAnswer) -> list[Json]:
    result = right.copy()
    for item in (result["tariff_dossier"] or {}).get("what_if_candidates") or ():
        item.pop("rationale", None)
    return [result]


def spellings(right: RightAnswer) -> list[str]:
    plain = digits(right.preferred_code)
    pairs = [plain[:4], *(plain[at : at + 2] for at in range(4, len(plain), 2))]
    return [plain, ".".join(pairs), " ".join(pairs), f" {dotted(plain)}\n", dotted(plain)]


def of_refusal(values: Callable[[str], Iterable[Any]]) -> Values:
    return lambda right: values(expected) if (expected := right.expected.expected_refusal_category) else ()


def only_allowed(right: RightAnswer) -> Json:
    return {"preferred_hts": (), "allowed_hts": right.expected.preferred_hts}


def saving_below_the_least(right: RightAnswer) -> Json:
    """Expectations of which no saving of the answer is enough."""
    savings = right.expected.savings
    best = (right.baseline_rate_pct or 0.0) - (right.optimized_rate_pct or 0.0)
    return {"savings": savings.model_copy(update={"least": best + 0.1})} if savings else {}


def others_than(expected: str) -> list[str]:
    return [category for category in CATEGORIES if category != expected]


WHEN: dict[str, Callable[[RightAnswer], object]] = {
    "accepts": lambda right: right.accepts,
    "evidence": lambda right: right.case.input.evidence,
    "levers": lambda right: right.expected.lever_found_expected,
    "may_save": lambda right: not right.expected.no_savings_expected,
    "must_cite": lambda right: right.expected.must_cite,
    "offering": lambda right: right.document.dossier.what_if_candidates,
    "one": lambda right: not right.expected.articles,
    "optimised": lambda right: right.optimized_code,
    "priced": price,
    "refuses": lambda right: not right.accepts,
    "rule": lambda right: right.expected.expected_rule,
    "saving": lambda right: right.expected.savings,
    "several": lambda right: right.expected.articles,
    "unasked": lambda right: (
        not (targets(right) or right.expected.no_savings_expected or right.case.input.options.changes)
    ),
    "unoptimised": lambda right: right.optimized_code is None,
    "unpriced": lambda right: not targets(right) and right.expected.expected_duty_total_rate_pct is None,
    "unsaving": lambda right: right.expected.no_savings_expected,
}
VALUES: dict[str, Values] = {
    # decisions
    "category": lambda _: CATEGORIES,
    "denied": lambda right: [not right.accepts],
    "every_category": of_refusal(lambda expected: [[expected, *others_than(expected)]]),
    "other_category": of_refusal(others_than),
    "other_status": lambda right: ["refused" if right.accepts else "verified"],
    "OTHER_STATUS": lambda right: ["REFUSED" if right.accepts else "VERIFIED"],
    "partner": lambda right: [partner.copy() for partner in right.partners],
    "scored_alone": lambda right: [{key: right.copy()[key] for key in ("status", "refusal", "tariff_dossier")}],
    "without_rationale": without_rationale,
    # codes
    "arabic": lambda right: [
        code.translate({ord("0") + digit: 0x660 + digit for digit in range(10)})
        for code in (*right.forbidden[:1], HORSE)
    ],
    "best_code_plain": lambda right: [digits(right.optimized_code or "")],
    "best_code_spaced": lambda right: [f" {levers(right)[0]['expected_hts']}\n"],
    "code": lambda right: [right.preferred_code],
    "excluded": excluded,
    "excluded_first": lambda right: excluded(right)[:1],
    "forbidden": lambda right: right.forbidden,
    "no_code": lambda right: no_codes(right, right.preferred_code) if right.accepts else (),
    "offered": lambda right: (
        [right.preferred_code, HORSE] if right.expected.articles else [*right.forbidden[:1], HORSE]
    ),
    "own": lambda right: [(part(right, "optimized") or part(right, "baseline"))["hts_code"]],
    "planted": planted,
    "respelled": lambda right: [f"HTSUS {digits(code)}" for code in right.forbidden[:1]],
    "shortened": lambda right: cut(right.preferred_code, (8, 6, 4), accepted(right)),
    "spelling": spellings,
    "stated_code": lambda right: [part(right, "baseline")["hts_code"]],
    "unexplained": unexplained,
    **{f"sibling_{width}": sibling(width) for width in (2, 4, 6, 8, 10)},
    "invented_10": lambda right: [invented(right, digits(right.preferred_code)[:8])],
    "invented_8": lambda right: [invented(right, digits(right.preferred_code)[:6])],
    "invented_6": lambda right: [invented(right, digits(right.preferred_code)[:4])],
    # citations
    "forbidden_citation": lambda right: [
        {"source_id": source, "quote": documents(right)[source]} for source in right.expected.must_not_cite or ()
    ],
    "quotes_but_one": quotes_but_one,
    "quotes_empty": quotes(lambda _, source, __: (source, "")),
    "quotes_invented": quotes(
        lambda _, source, __: (source, "as the laboratory of the importer confirms without reserve")
    ),
    "quotes_padded": quotes(lambda _, source, quote: (source, f"{quote} surely")),
    "quotes_respelled": quotes_respelled,
    "quotes_short": quotes(lambda _, source, quote: (source, short(quote))),
    "quotes_swapped": quotes(lambda right, source, quote: (another_document(right, source), quote)),
    "short_citation": lambda right: [
        {"source_id": cite["source_id"], "quote": documents(right)[cite["source_id"]].split()[0]}
        for cite in (dossier(right).get("citations") or [])[:1]
    ],
    # rules
    "steps": lambda right: [steps(right)],
    "steps_by_other_rules": steps_by_other_rules,
    "steps_by_two_rules": steps_by_two_rules,
    "steps_not_due": steps_not_due,
    "steps_reversed": lambda right: [steps(right)[::-1]],
    "steps_to_another_heading": steps_to_another_heading,
    # rates
    "base": lambda right: [right.baseline_rate_pct],
    "best_rate": lambda right: [right.optimized_rate_pct],
    "best_rate_halved": lambda right: [(right.optimized_rate_pct or 0) / 2 - 1],
    "charged": lambda right: [right.baseline_rate_pct] if right.baseline_rate_pct else [],
    "delta": lambda right: [levers(right)[0]["estimated_duty_delta"]],
    "due": lambda right: [rate for rate in price(right) if rate],
    "due_basis": lambda right: ["free" for rate in price(right) if rate],
    "horse_baseline": lambda right: [part(right, "baseline") | {"hts_code": HORSE}],
    "invented_rate": invented_rates,
    "lower": lambda right: [right.baseline_rate_pct / 4, 0.0] if right.baseline_rate_pct else [],
    "negative_baseline": lambda right: [part(right, "baseline") | {"duty_rate_pct": -1.0}],
    "preferred_breakdown": lambda right: (
        [part(right, "baseline")["duty_breakdown"] | {"preferential_rate_pct": 0.0}] if right.baseline_rate_pct else []
    ),
    "rate": price,
    "stated": lambda right: [part(right, "baseline")["duty_rate_pct"]],
    "wrong_rate": lambda right: [
        wrong
        for rate in [right.optimized_rate_pct or 0.0]
        for wrong in (rate + 0.1, -rate - 1, None, *([0.0, rate / 100, rate / 2] if rate else []))
    ],
    "wrong_total": lambda right: (
        [] if (total := right.expected.expected_duty_total_rate_pct) is None else [total + 0.1, None]
    ),
    "wrong_way": wrong_ways,
    # savings
    "all_changes": lambda right: [" or ".join(change.id for change in right.case.input.options.changes)],
    "best_id_and_more": lambda right: [f"{levers(right)[0]['id']}_and_more"],
    "examined": lambda right: [
        [{"change": change.id, "reason": "it saves nothing"} for change in right.case.input.options.changes]
    ],
    "first_useless_change": lambda right: changes(right, useful=False)[:1],
    "short_levers": lambda right: [
        [first | {"steps": first["steps"][: least - 1]}, *rest]
        for least in [right.expected.min_lever_steps]
        for first, *rest in filter(None, [levers(right)])
        if least
    ],
    "too_few_levers": lambda right: [levers(right)[: least - 1]] if (least := right.expected.lever_count_min) else [],
    "to_invented_suffixes": optimised(lambda right, code: [invented(right, digits(code)[:8])]),
    "to_no_codes": optimised(no_codes),
    "to_other_lines": to_other_lines,
    "to_other_targets": to_other_targets,
    "to_short_codes": optimised(lambda right, code: cut(code, (4, 6), target_codes(right))),
    "undocumented_levers": lambda right: [
        [*others, last | {"required_evidence": []}]
        for *others, last in filter(None, [levers(right)])
        if right.expected.lever_compliance_ok
    ],
    "useful_change": lambda right: changes(right, useful=True),
    "useless_change": lambda right: changes(right, useful=False),
    # several articles
    "article": articles,
    "article_forbidden": lambda right: [
        {"article": "another", "baseline": {"hts_code": code}} for _, code in own_forbidden(right)
    ],
    "articles_and_one": lambda right: [
        [other, *articles(right)]
        for other in ({"article": "another", "baseline": {"hts_code": HORSE}}, *articles(right))
        if articles(right)
    ],
    "articles_but_one": lambda right: [[other for other in articles(right) if other != one] for one in articles(right)],
    "articles_disordered": one_article(
        lambda _, article: [{**article, "gri_trace": {"steps": article["gri_trace"]["steps"][::-1]}}]
    ),
    "articles_forbidden": articles_forbidden,
    "articles_invented": recoded(lambda _, code: [f"{code[:4]}.99.9999"]),
    "articles_nearby": recoded(neighbours),
    "articles_of_invented_rate": each_article(
        baseline={"duty_rate_pct": 0.123, "duty_breakdown": {"base_rate_pct": 0.123, "total_rate_pct": 0.123}}
    ),
    "articles_of_one_code": articles_of_one_code,
    "articles_renamed": lambda right: renamed(right, forbidden=False),
    "articles_renamed_forbidden": lambda right: renamed(right, forbidden=True),
    "articles_respelled": articles_respelled,
    "articles_with_horse": recoded(lambda *_: [HORSE]),
    "articles_with_lever": each_article(
        what_if_candidates=[{"id": "horse", "change": "a horse", "expected_hts": HORSE}]
    ),
    "articles_with_texts": recoded(lambda _, code: [f"{code} or 6402", f"not {code}", code[:-1]]),
    "articles_without_code": recoded(lambda *_: [None]),
}
