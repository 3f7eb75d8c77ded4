"""Wrong answers to the cases of a tariff suite, each derived from the right answer by one change.

Nothing else in the right answer is changed, so a control that is not caught shows a hole in the scoring.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_packbench.engine.attempt import score_payload
from pytest_packbench.packs.tariff.notation import WIDTHS, digits, dotted, is_under
from tests.controls.right_answers import with_ten_digits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_packbench.engine.attempt import AttemptState
    from tests.controls.right_answers import Json, RightAnswer

    Variants = Callable[[RightAnswer], Iterable[Json]]

# the terms of wrong answers to goods that must be refused
OF_REFUSALS = frozenset({"unexpected_acceptance", "refusal_category_mismatch"})
OF_ALL = frozenset({"contradictory_decision", "unreadable_answer"})
# the terms of wrong answers to cases of one article and of several
OF_ANY_NUMBER = frozenset({"contradictory_decision", "unreadable_answer", "unexpected_refusal"})
BELOW = frozenset(
    {
        *("allowed_match", "chapter_match", "no_match", "invalid_code", "refusal_category_mismatch"),
        *("article_match", "article_missing", "article_extra"),
    }
)
PENALTIES = frozenset({"gri_sequence", "duty_delta", "base_rate", "deciding_rule"})
UNREADABLE = "unreadable_answer"
CATEGORIES = ("insufficient_info", "ambiguous", "out_of_scope", "missing_evidence", None)
RAISED = str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
# a code as it is written in texts: 6109.90.1065, 6109.90.10.65, 6109.90
_CODE = re.compile(r"(?<![\d.])\d{4}\.\d{2}(?:\.\d{2}(?:\.?\d{2})?)?(?![\d]|\.\d)")


@dataclass(frozen=True)
class WrongAnswer:
    """A kind of wrong answer: `variants` returns the wrong results for a right one, none if the kind doesn't apply."""

    # the term that must be the cause
    term: str
    name: str
    variants: Variants
    # expectations of the case that are changed
    of_case: Callable[[RightAnswer], Json] | None = None
    # of cases with several articles
    of_articles: bool = False
    # a penalty that is a hard fail in these cases
    is_zero: bool = False

    @property
    def requirement(self) -> str:
        """A hard fail, a score below the threshold without one, or a sum lower by exactly the term."""
        if self.term in BELOW:
            return "below the threshold"
        return "costs exactly its term" if self.term in PENALTIES and not self.is_zero else "score exactly 0"

    def results(self, right: RightAnswer) -> list[Json]:
        applies = self.term in OF_ALL or right.accepts != (self.term in OF_REFUSALS)
        of_its_number = self.term in OF_ANY_NUMBER or bool(right.expected.articles) == self.of_articles
        return list(self.variants(right)) if applies and of_its_number else []

    def misses(self, right: RightAnswer, _: RightAnswer) -> Iterator[str]:
        """Run the controls; a claim under a key, or in a form, that the document does not have is unreadable."""
        loaded = right.loaded
        if self.of_case is not None:
            expected = right.expected.model_copy(update=self.of_case(right))
            loaded = loaded._replace(case=right.case.model_copy(update={"expected": expected}))
        return (self._miss(right, score_payload(right.context, loaded, wrong)) for wrong in self.results(right))

    @staticmethod
    def _notes(score: Any) -> set[str]:
        return {term.name for term in score.terms if term.effect == "note"}

    def _miss(self, right: RightAnswer, outcome: AttemptState) -> str:
        """Describe why a control was missed; empty if it was caught for the required reason."""
        score = outcome.score
        if outcome.failure is not None or score is None or score.score is None:
            return f"no score: {outcome.failure}"
        zeros = {term.name for term in score.terms if term.effect == "zero"}
        names = {term.name for term in score.terms}
        if self.term in BELOW:
            caught = not score.passed and not zeros and self.term in names
        elif self.term in PENALTIES and not self.is_zero:
            costs = sum(
                getattr(right.context.suite.config.scoring, name) for name in PENALTIES & names - self._notes(score)
            )
            points, right_points = (sum(t.value for t in s.terms if t.effect == "add") for s in (score, right.score))
            is_exact = abs(points - right_points - costs) < 1e-9
            is_clamped = abs(score.score - min(1.0, max(0.0, points))) < 1e-9
            caught = costs < 0 and not zeros and is_exact and is_clamped and self.term in names - self._notes(score)
        else:
            caught = score.score == 0.0 and not zeros.isdisjoint({self.term, UNREADABLE}) and not score.passed
        if caught:
            return ""
        terms = ", ".join(f"{term.name} {term.points}" for term in score.terms)
        return f"{score.score} of {score.threshold}, not for {self.term}: {terms}"


def with_codes(codes: Callable[[RightAnswer], Iterable[str | None]]) -> Variants:
    """Change the scored code of a right answer into each of some codes."""
    return lambda right: [with_scored_part(right, hts_code=code) for code in codes(right)]


def with_scored_part(right: RightAnswer, **changes: Any) -> Json:
    result = right.copy()
    dossier = result["tariff_dossier"]
    is_final = right.context.suite.config.scored_code == "final" and dossier["optimized"]
    dossier["optimized" if is_final else "baseline"].update(changes)
    return result


def planted_codes(right: RightAnswer) -> list[str]:
    """Return every code in the description or the evidence, except accepted ones."""
    goods = right.case.input
    texts = " ".join((goods.input, *(item.text for item in goods.evidence)))
    planted = sorted({with_ten_digits(code) for code in _CODE.findall(texts)})
    return [code for code in planted if not _is_under(code, _accepted(right))]


def sibling(right: RightAnswer, width: int) -> list[str]:
    """Return a code that differs from the preferred one in the last two of its first `width` digits."""
    preferred = digits(right.preferred_code)
    if len(preferred) < width:
        return []
    pair = int(preferred[width - 2 : width])
    others = sorted(range(1, 100), key=lambda number: abs(number - pair))
    codes = (dotted(f"{preferred[: width - 2]}{number:02d}{preferred[width:]}") for number in others)
    forbidden = right.expected.must_not_hts or ()
    return [next(code for code in codes if not _is_under(code, (*_accepted(right), *forbidden)))]


def shortened_codes(right: RightAnswer) -> list[str]:
    codes = (dotted(digits(right.preferred_code)[:width]) for width in (8, 6, 4))
    return [code for code in codes if not _is_under(code, _accepted(right))]


def _accepted(right: RightAnswer) -> tuple[str, ...]:
    return (*right.expected.preferred_hts, *(right.expected.allowed_hts or ()))


def _is_under(code: str, prefixes: Iterable[str]) -> bool:
    return any(is_under(code, prefix) for prefix in prefixes)


def refusals(right: RightAnswer, categories: Iterable[str | None]) -> Iterator[Json]:
    """Yield a refusal of the same goods in each category."""
    for category in categories:
        refusal = {"category": category, "reason": "no", "questions": ["What is it made of?"]}
        result = right.copy() | {"status": "refused", "refusal": refusal}
        if result["tariff_dossier"]:
            nothing: Json = {"baseline": None, "optimized": None, "what_if_candidates": [], "articles": []}
            result["tariff_dossier"] |= nothing
        yield result


def acceptances(right: RightAnswer) -> Iterator[Json]:
    """Yield an answer to goods that must be refused, with each forbidden code and with one that no case lists."""
    for code in (*right.forbidden, "0101.21.0010"):
        result = right.copy()
        result |= {"status": "verified", "refusal": None}
        baseline = {"hts_code": code, "duty_rate_pct": 0.0, "duty_breakdown": {"total_rate_pct": 0.0}}
        dossier = {"gri_trace": {"sequence_ok": True}, "baseline": baseline}
        yield result | {"tariff_dossier": {**(result["tariff_dossier"] or {}), **dossier}}


def of_its_pair(right: RightAnswer) -> list[Json]:
    return [partner.copy() for partner in right.partners]


def changed(right: RightAnswer, **changes: Any) -> list[Json]:
    return [right.copy() | changes]


def with_dossier(right: RightAnswer, **changes: Any) -> list[Json]:
    return changed(right, tariff_dossier=right.copy()["tariff_dossier"] | changes)


def with_rates(right: RightAnswer, rates: Iterable[float]) -> Iterator[Json]:
    """Yield the right answer with each of some optimised rates; the code is unchanged, or the baseline's."""
    dossier = right.copy()["tariff_dossier"]
    part = dossier["optimized"] or dossier["baseline"]
    for rate in rates:
        best = {"what_if_id": "other", "hts_code": part["hts_code"], "duty_rate_pct": rate}
        yield from with_dossier(right, optimized=best)


def respelled(right: RightAnswer) -> list[str]:
    return [f"HTSUS {digits(code)}" for code in right.forbidden[:1]]


def no_codes(right: RightAnswer) -> list[str]:
    """Return texts with the preferred code in them that are no code, where one is asked for."""
    return no_codes_of(right, right.preferred_code) if right.accepts and not right.expected.articles else []


def no_codes_of(right: RightAnswer, code: str) -> list[str]:
    """Return texts with a code in them that are no code."""
    plain = digits(code)
    other = next(iter(right.forbidden), "0101.21.0010")
    two = [f"{code} or {other}", f"{code} / {other}", f"{code}, {other}", f"{other} {code}", f"{code}-{other}"]
    words = [f"anything but {code}", f"not {code}", f"{code}?", f"see {code}", f"{code} (not {other})", f"<{code}>"]
    figures = [f"{dotted(plain[:8])} {plain[8:]}%", plain[:-1], plain[:7], f"{plain}0", f"{plain[:8]}-{plain[8:]}"]
    scattered = f"in {plain[:2]} cases out of {', '.join(plain[at : at + 2] for at in range(2, len(plain), 2))}"
    numbers = [*two, *words, *figures, scattered, plain[:2], " ".join(plain), plain[::-1] + "x"]
    return [*numbers, *smuggled(code, other), *continued(plain)]


def smuggled(code: str, other: str) -> list[str]:
    """Return a code with another one, or with words, in the disguise of footnote marks or of characters not shown."""
    pairs = [digits(other)[at : at + 2] for at in range(0, len(digits(other)), 2)]
    raised, tags = digits(other).translate(RAISED), "".join(chr(0xE0000 + ord(char)) for char in f" or {other}")
    pieces = ["".join(form.format(pair) for pair in pairs) for form in ("[{}]", " ({})", " {}/", "{}/")]
    single = ["".join(form.format(digit) for digit in digits(other)) for form in ("[{}]", " {}/", "({})")]
    notes = (
        " (64)",
        " 64/ 02/",
        " (n)(o)(t)",
        " (x)",
        "[n][o]",
        "\u207f\u1d52",
        "\u1d43\u1d47",
        " 1/ 2/ 3/",
        "***" * 2,
    )
    signs = ("\u00bd", " \u2163", "\u0336", "\u20e0", "\u2460\u2461\u2462", "\u00b9%", "...", ", *", "/", " /", '"')
    around = [f"\u202e{code[::-1]}", f"\u2067{code}", f"{code}\u200b{other}", f"{code}\n{other}", "\u0336".join(code)]
    negated = [
        f"HTS no {code}",
        f"HTS: not {code}",
        f"HTS -{code}",
        f"-{code}",
        f"\u00ac{code}",
        f"\uff4e\uff4f {code}",
    ]
    marks = [raised, raised[:3], *pieces, *single, tags, *notes, *signs]
    return [*(f"{code}{mark}" for mark in marks), *around, *negated]


def continued(plain: str) -> list[str]:
    """Return a code whose last two digits look like a mark or stand in another line."""
    start, end = dotted(plain[:-2]), plain[-2:]
    forms = ("[{}]", "({})", " {}/", "{}/", "\n{}")
    return [*(f"{start}{form.format(end)}" for form in forms), f"{start}{end.translate(RAISED)}"]


def invented(right: RightAnswer, width: int) -> list[str]:
    """Return a code whose last two of its first `width` digits are not in the schedule; none where all of them are."""
    edition, preferred = right.edition, digits(right.preferred_code)
    codes = (f"{preferred[: width - 2]}{number:02d}" for number in range(99, -1, -1))
    return [next((dotted(code) for code in codes if edition.existing(code) != code), "")] if preferred else []


def invented_under(right: RightAnswer, code: str) -> Iterator[str]:
    """Yield the same line with a suffix that is not in the schedule."""
    edition, line = right.edition, digits(code)[:8]
    codes = (f"{line}{number:02d}" for number in range(99, -1, -1))
    yield next(dotted(other) for other in codes if edition.existing(other) != other)


def unsaving(variants: Variants) -> Variants:
    """Limit variants to cases that expect no savings."""
    return lambda right: variants(right) if right.expected.no_savings_expected else ()


def offer(code: str, delta: float = -5.0, **changes: Any) -> Json:
    """A what-if of the document."""
    steps, proof = ["declare it"], ["a photo"]
    plain = {"id": "w", "kind": "process", "change": "w", "steps": steps, "required_evidence": proof}
    return {**plain, "expected_hts": code, "estimated_duty_delta": delta, **changes}


def with_lever(right: RightAnswer) -> list[Json]:
    """Yield the answer with a what-if, with one that is said to save nothing, and with a lever under a key of its own."""
    code = right.preferred_code
    found = [result for delta in (-5.0, 0.0) for result in with_dossier(right, what_if_candidates=[offer(code, delta)])]
    return [*found, *changed(right, lever_proof={"selected_levers": [{"change": "w"}]})]


def with_unexpected_lever(right: RightAnswer) -> list[Json]:
    return with_lever(right) if right.expected.lever_found_expected is False else []


def half_rate(right: RightAnswer) -> Iterator[Json]:
    return with_rates(right, [right.baseline_rate_pct / 2] if right.baseline_rate_pct else [])


def with_levers(requirement: str, change: Callable[[list[Json], Any], list[Json]]) -> Variants:
    """Change the what-ifs of a right answer, the best first, by what the case requires of them."""

    def variants(right: RightAnswer) -> list[Json]:
        required, dossier = getattr(right.expected, requirement), right.copy()["tariff_dossier"]
        best = (dossier["optimized"] or {}).get("what_if_id")
        levers = sorted(dossier["what_if_candidates"], key=lambda lever: lever["id"] != best)
        return with_dossier(right, what_if_candidates=change(levers, required)) if required else []

    return variants


def last_undocumented(levers: list[Json], _: bool) -> list[Json]:
    return [*levers[:-1], {**levers[-1], "required_evidence": []}]


def first_cut(levers: list[Json], steps: int) -> list[Json]:
    return [{**levers[0], "steps": levers[0]["steps"][: steps - 1]}, *levers[1:]]


def wrong_directions(right: RightAnswer) -> Iterator[Json]:
    """Yield a rate on the other side of the baseline's, or equal to it where it should differ."""
    direction, rate = right.expected.expected_duty_delta_direction, right.baseline_rate_pct
    if direction and rate is not None:
        wrong = {"increase": rate, "flat": rate + 1, "decrease": rate - 1}
        yield from with_rates(right, [wrong[other] for other in wrong if other != direction])


def deltas_out_of_range(right: RightAnswer) -> Iterator[Json]:
    """Yield a duty that changes too much or too little, in the right direction."""
    limits, rate, best = right.expected.duty_delta_range, right.baseline_rate_pct, right.optimized_rate_pct
    delta = None if rate is None or best is None else best - rate
    if limits and rate is not None and delta is not None:
        wrong = (limits[0] - 0.5, limits[1] + 0.5)
        yield from with_rates(right, [rate + by for by in wrong if by * delta > 0 and rate + by >= 0])


def wrong_totals(right: RightAnswer) -> Iterator[Json]:
    total = right.expected.expected_duty_total_rate_pct
    for wrong in () if total is None else (total + 0.1, None):
        yield with_scored_part(right, duty_rate_pct=wrong, duty_breakdown={"total_rate_pct": wrong})


def wrong_categories(right: RightAnswer) -> Iterable[Json]:
    expected = right.expected.expected_refusal_category
    return refusals(right, [category for category in CATEGORIES if category != expected]) if expected else ()


FAILURE = {"kind": "timeout", "message": "no answer after 30 s"}


def contradictions(right: RightAnswer) -> Iterator[Json]:
    """Yield a right answer with a field, or several, that state another decision, in the document or beside it."""
    other = "refused" if right.accepts else "verified"
    refusal = {"category": "ambiguous", "reason": "two headings fit", "questions": ["Which one is it?"]}
    fields: list[Json] = [
        {"status": other},
        {"status": other.upper()},
        {"status": other, "accepted": not right.accepts},
    ]
    fields += [{"accepted": not right.accepts}, {"iterations": [{"accepted": not right.accepts}]}]
    if right.accepts:
        fields += [{"status": "failed"}, {"status": "rejected", "accepted": False}, {"error": FAILURE}]
        fields += [{"refusal": refusal | {"category": category}} for category in CATEGORIES]
        fields += [{"refusal": {"category": "legal"}}, {"refusal": refusal, "status": "refused", "accepted": False}]
    for change in fields:
        yield from changed(right, **change)
        yield from changed(right, proof=change)


# words of other programs, by whether they deny an answer
OTHER_STATUSES = {
    True: (
        "error",
        "timeout",
        "Not verified",
        "unverified",
        "denied",
        "cannot_classify",
        "refuse",
        "abstained",
        "fail",
    ),
    False: ("ok", "success", "classified", "approved"),
}


def other_statuses(right: RightAnswer) -> Iterator[Json]:
    for status in OTHER_STATUSES[right.accepts]:
        yield from changed(right, status=status)
        yield from changed(right, proof={"status": status})


def unreadable_statuses(right: RightAnswer) -> Iterator[Json]:
    for status in (False, 0, ["refused"], {"state": "refused"}):
        yield from changed(right, status=status)
        yield from changed(right, proof={"status": status})


def objections(right: RightAnswer) -> Iterator[Json]:
    """Yield an answer with reasons against it, at the top, under `proof`, or in the iteration that is accepted."""
    if not right.accepts:
        return
    for reason in (*CATEGORIES[:-1], "critic", "llm_unavailable", "illegal_evasion_suggestion"):
        yield from changed(right, rejected_because=[reason])
        yield from changed(right, proof={"rejected_because": [reason]})
        yield from with_last(right, rejected_because=[reason])
    yield from changed(right, refused=True)
    yield from changed(right, errors=[FAILURE])
    yield from with_last(right, conflicts=["two headings fit"])
    yield from with_last(right, status="refused")
    yield from with_last(right, refusal={"category": "ambiguous"})
    yield from with_last(right, error=FAILURE)


def with_last(right: RightAnswer, **changes: Any) -> list[Json]:
    """Return a right answer with an iteration, as results of the earlier reference target had them."""
    iteration = {"i": 1, "accepted": right.accepts, "rejected_because": []}
    return changed(right, iterations=[{**iteration, **changes}])


def recommendations(right: RightAnswer) -> Iterator[Json]:
    """Yield a refusal that recommends a code or a rate all the same, in other places than its parts."""
    if right.accepts:
        return
    for code in (*right.forbidden[:1], "0101.21.0010"):
        offer = {"id": "w", "expected_hts": code, "estimated_duty_delta": -5.0}
        arabic = code.translate({ord("0") + digit: 0x660 + digit for digit in range(10)})
        for part in (
            {"what_if_candidates": [offer]},
            {"mutations": [{"id": "m", "hts_code": code}]},
            {"articles": [{"optimized": {"hts_code": code}}]},
            {"baseline": {"hts_code": arabic}},
            {"baseline": {"duty_rate_pct": 3.2}},
            {"optimized": {"duty_rate_pct": 0.0}},
            {"hts_code": code},
        ):
            yield from changed(right, tariff_dossier={**(right.copy()["tariff_dossier"] or {}), **part})
        yield from changed(right, lever_proof={"selected_levers": [offer]})
        yield from changed(right, hts_code=code)


def several_categories(right: RightAnswer) -> Iterator[Json]:
    """Yield a refusal that names another category as well."""
    expected = right.expected.expected_refusal_category
    others = [category for category in CATEGORIES if category not in {expected, None}] if expected else []
    for other in others:
        yield from changed(right, proof={"refusal": {"category": other}})
        yield from with_last(right, rejected_because=[other])
    if others:
        iterations = [{"accepted": False, "rejected_because": [expected, *others]}]
        yield from changed(right, refusal=None, iterations=iterations)


def codes_beside_a_refusal(right: RightAnswer) -> Iterator[Json]:
    """Yield a refusal with a code: every forbidden one, one that no case lists, and a text with two."""
    for code in (*right.forbidden, "0101.21.0010", "6404.11 or 6402") if not right.accepts else ():
        for part in ("baseline", "optimized"):
            dossier = (right.copy()["tariff_dossier"] or {}) | {part: {"hts_code": code}}
            yield from changed(right, tariff_dossier=dossier)
            yield from changed(right, tariff_dossier=None, proof={"tariff_dossier": dossier})


def forbidden_beside_a_decision(right: RightAnswer) -> Iterator[Json]:
    """Yield an answer with each forbidden code that says that it is no answer, at the top or under `proof`."""
    for result in with_codes(lambda right: right.forbidden)(right):
        for said in ({"refusal": {"category": "ambiguous", "questions": ["Which?"]}}, {"status": "failed"}):
            yield result | said
            yield result | {"proof": said}


def forbidden_articles(right: RightAnswer) -> Iterator[Json]:
    """Yield the answer with each forbidden code as one of several articles, where one code is asked for."""
    code = right.preferred_code
    for forbidden in right.forbidden:
        goods = (("the goods", code), ("another", forbidden))
        articles = [{"article": name, "baseline": {"hts_code": each}} for name, each in goods]
        yield from with_dossier(right, articles=articles)
        yield from with_dossier(right, articles=articles[::-1], baseline=None, optimized=None)


INVENTED = "as the laboratory of the importer confirms without reserve"
FOREIGN = {"source_id": "letter_of_counsel", "claim": "the code", "quote": INVENTED}


def invented_quote(_: RightAnswer, source: str, __: str) -> tuple[str, str]:
    return source, INVENTED


def padded_quote(_: RightAnswer, source: str, quote: str) -> tuple[str, str]:
    return source, f"{quote} surely"


def short_quote(_: RightAnswer, source: str, quote: str) -> tuple[str, str]:
    words = quote.split()
    return source, next(" ".join(words[:count]) for count in (2, 1) if len(" ".join(words[:count])) < 20)


def swapped_quote(right: RightAnswer, source: str, quote: str) -> tuple[str, str]:
    others = [item.source_id for item in right.case.input.evidence if item.source_id != source]
    return next(iter(others), "nowhere"), quote


def quotes_of(right: RightAnswer) -> list[Json]:
    return (right.copy()["tariff_dossier"] or {}).get("citations") or []


def cited(right: RightAnswer, citations: list[Json]) -> list[Json]:
    """Return the right answer with other citations, which its own gate calls valid."""
    return changed(
        right,
        citation_gate_result={"ok": True},
        tariff_dossier={**right.copy()["tariff_dossier"], "citations": citations},
    )


def quoting(right: RightAnswer, change: Callable[[RightAnswer, str, str], tuple[str, str]]) -> list[Json]:
    citations = quotes_of(right)
    for citation in citations:
        citation["source_id"], citation["quote"] = change(right, citation["source_id"], citation["quote"])
    return cited(right, citations) if citations else []


def cited_elsewhere(right: RightAnswer) -> Iterator[Json]:
    """Yield the answer with a citation of an unknown document in another place, or without a list."""
    if right.case.input.evidence:
        dossier = right.copy()["tariff_dossier"]
        yield from with_dossier(right, baseline={**(dossier["baseline"] or {}), "citations": [FOREIGN]})
        yield from with_last(right, citations=[FOREIGN])
        yield from changed(right, citations=FOREIGN)
        article = {"hts_code": right.preferred_code, "citations": [FOREIGN]}
        yield from with_dossier(right, articles=[article])


def forbidden_documents(right: RightAnswer) -> Iterator[Json]:
    texts = {item.source_id: item.text for item in right.case.input.evidence}
    for source in right.expected.must_not_cite or ():
        yield from cited(right, [*quotes_of(right), {"source_id": source, "quote": texts[source]}])


def steps_of(right: RightAnswer) -> list[Json]:
    steps: list[Json] = right.copy()["tariff_dossier"]["gri_trace"]["steps"]
    return steps


def with_trace(right: RightAnswer, steps: list[Json], *, ok: bool = True) -> list[Json]:
    return with_dossier(right, gri_trace={"sequence_ok": ok, "steps": steps})


def other_rules(right: RightAnswer) -> Iterator[Json]:
    expected = right.expected.expected_rule
    for other in ("1", "2a", "3a", "3b", "3c", "4") if expected else ():
        if other != expected:
            swapped = [{**step, "rule": other} if step["rule"] == expected else step for step in steps_of(right)]
            yield from with_trace(right, swapped)


def several_rules(right: RightAnswer) -> list[Json]:
    """Return a trace in which another rule decides the same level as well."""
    expected = right.expected.expected_rule
    decided = [step for step in steps_of(right) if step["rule"] == expected and step["outcome"] == "decided"]
    other = "3a" if expected == "3c" else "3c"
    return with_trace(right, [*steps_of(right), {**decided[0], "rule": other}]) if decided else []


def other_headings(right: RightAnswer) -> list[Json]:
    expected = right.expected.expected_rule
    if not expected:
        return []
    steps = steps_of(right)
    for step in steps:
        if step["rule"] == expected:
            code = dotted("9999999999"[: WIDTHS[step["level"]]])
            step |= {"candidates": [code], "outcome": "decided", "chosen": code}
    return with_trace(right, steps)


def undue_rules(right: RightAnswer) -> Iterator[Json]:
    """Yield a trace with the expected rule in which it does not lead to the answer, or not when it is due."""
    expected, code = right.expected.expected_rule, right.preferred_code
    if not expected:
        return
    steps, horse = steps_of(right), "0101.21.0010"
    single = {"rule": expected, "level": "heading", "candidates": [code[:4]], "outcome": "decided", "chosen": code[:4]}
    yield from with_trace(right, [*steps, {**single, "candidates": ["0101"], "chosen": "0101"}])
    last = {"rule": "6", "level": "suffix", "candidates": [horse], "outcome": "decided", "chosen": horse}
    yield from with_trace(right, [*steps, last])
    if expected[0] in "234":
        first = {**single, "rule": "1", "candidates": [code[:4]]}
        for level, chosen in (("suffix", with_ten_digits(code)), ("line", code[:10])):
            yield from with_trace(right, [first, {**single, "level": level, "candidates": [chosen], "chosen": chosen}])


def with_other_codes(right: RightAnswer, codes: Iterable[str]) -> Iterator[Json]:
    """Yield an answer about one article with each of some codes in another place than its own."""
    for code in () if right.expected.articles or not right.accepts else codes:
        own = {"article": "goods", "baseline": {"hts_code": right.preferred_code}}
        other = {"article": "another", "baseline": {"hts_code": code}}
        for articles in ([other], [own, other], [{**own, "optimized": {"hts_code": code}}]):
            yield from with_dossier(right, articles=articles)
            yield from changed(right, articles=articles)
        yield from with_dossier(right, hts_code=code)
        yield from with_dossier(right, final={"hts_code": code})
        yield from changed(right, final_code=code)
        yield from changed(right, proof={"tariff_dossier": {"baseline": {"hts_code": code}}})
        yield from with_last(right, hts_code=code)


def targets_excluded(right: RightAnswer) -> list[str]:
    savings = right.expected.savings
    return [
        code for code in right.forbidden if not _is_under(code, [t.code for t in savings.targets] if savings else [])
    ]


def only_allowed(right: RightAnswer) -> Json:
    return {"preferred_hts": (), "allowed_hts": right.expected.preferred_hts}


KINDS: dict[str, dict[str, Variants]] = {
    "contradictory_decision": {
        "fields that state another decision": contradictions,
        "reasons beside an answer": objections,
        "code beside a refusal": codes_beside_a_refusal,
        "another code in another place": lambda right: with_other_codes(right, ["0101.21.0010"]),
        "refusal that recommends a code or a rate": recommendations,
    },
    "forbidden_code": {
        "nearest forbidden code": with_codes(lambda right: right.forbidden[:1]),
        "any other forbidden code": with_codes(lambda right: right.forbidden[1:]),
        "forbidden code in another spelling": with_codes(respelled),
        "forbidden code in another place": lambda right: with_other_codes(right, targets_excluded(right)[:1]),
        "code planted in the description or the evidence": with_codes(planted_codes),
        "forbidden code in an answer that contradicts itself": forbidden_beside_a_decision,
        "forbidden code of an article where one code is asked for": forbidden_articles,
    },
    "allowed_match": {"allowed code": with_codes(lambda right: map(with_ten_digits, right.expected.allowed_hts or ()))},
    "chapter_match": {
        "sibling suffix (8 digits right)": with_codes(lambda right: sibling(right, 10)),
        "sibling line (6 digits right)": with_codes(lambda right: sibling(right, 8)),
        "sibling subheading (4 digits right)": with_codes(lambda right: sibling(right, 6)),
        "sibling heading (2 digits right)": with_codes(lambda right: sibling(right, 4)),
        "code cut to 8, 6 or 4 digits": with_codes(shortened_codes),
    },
    "invalid_code": {
        "invented suffix": with_codes(lambda right: invented(right, 10)),
        "invented line": with_codes(lambda right: invented(right, 8)),
        "invented subheading": with_codes(lambda right: invented(right, 6)),
    },
    "no_match": {
        "another chapter": with_codes(lambda right: sibling(right, 2)),
        # an answer with an optimised code is scored by that code
        "no code": lambda right: with_dossier(right, baseline=None) if right.optimized_code is None else [],
    },
    "unexpected_refusal": {
        "refusal instead of acceptance": lambda right: refusals(right, CATEGORIES),
        "refusal of its pair, although the deciding fact is given": of_its_pair,
    },
    "unexpected_acceptance": {
        "acceptance instead of refusal": acceptances,
        "answer of its pair, although the deciding fact is missing": of_its_pair,
    },
    "refusal_category_mismatch": {
        "wrong or no refusal category": wrong_categories,
    },
    "unreadable_answer": {
        "status that is no text": unreadable_statuses,
        "a text with the preferred code that is no code": with_codes(no_codes),
        "a decision in words of another program": other_statuses,
        "several refusal categories": several_categories,
    },
    "citations_invalid": {
        "invalid citations": lambda right: changed(right, citation_gate_result={"ok": False}),
        "quote that stands nowhere": lambda right: quoting(right, invented_quote),
        "quote with a word too many": lambda right: quoting(right, padded_quote),
        "quote of one document under the name of another": lambda right: quoting(right, swapped_quote),
        "citation without a quote": lambda right: quoting(right, lambda _, source, __: (source, "")),
        "citation in another place": cited_elsewhere,
        "document that is not in the request": lambda right: cited(right, [*quotes_of(right), FOREIGN]),
    },
    "citation_missing": {
        "no citations": lambda right: cited(right, []) if right.expected.must_cite else [],
        "quotes of less than 20 characters": lambda right: quoting(right, short_quote),
        "one document of several": lambda right: [
            result
            for source in (right.expected.must_cite or ())
            for result in cited(right, [cite for cite in quotes_of(right) if cite["source_id"] != source])
        ],
    },
    "citation_forbidden": {"superseded or foreign document": forbidden_documents},
    "deciding_rule": {
        "no trace": lambda right: with_trace(right, []) if right.expected.expected_rule else [],
        "another rule": other_rules,
        "several rules at once": several_rules,
        "right rule for another heading": other_headings,
        "right rule that leads nowhere, or is not due": undue_rules,
    },
    "no_savings_violation": {
        "claimed savings: lever": unsaving(with_lever),
        "claimed savings: what-if": unsaving(
            lambda right: with_dossier(right, what_if_candidates=[{"id": "w"}], optimized=None)
        ),
        "claimed savings: lower rate": unsaving(half_rate),
        "claimed savings: amount": unsaving(lambda right: with_dossier(right, savings_estimate={"per_unit": 0.01})),
    },
    "unexpected_lever": {"lever where none is expected": with_unexpected_lever},
    "lever_missing": {"missing levers": with_levers("lever_found_expected", lambda *_: [])},
    "lever_count": {"too few levers": with_levers("lever_count_min", lambda levers, least: levers[: least - 1])},
    "lever_compliance": {"lever without proof": with_levers("lever_compliance_ok", last_undocumented)},
    "lever_steps": {"first lever of too few steps": with_levers("min_lever_steps", first_cut)},
    "duty_delta_direction": {"duty moves the wrong way": wrong_directions},
    "duty_total_rate": {"wrong or missing duty total": wrong_totals},
    "duty_delta": {"duty delta outside its range": deltas_out_of_range},
    "gri_sequence": {
        "broken GRI order, as the target says": lambda right: with_trace(right, steps_of(right), ok=False),
        "broken GRI order, whatever the target says": lambda right: with_trace(right, steps_of(right)[::-1]),
    },
}


def articles_of(right: RightAnswer) -> list[Json]:
    articles: list[Json] = right.copy()["tariff_dossier"].get("articles") or []
    return articles


def with_articles(right: RightAnswer, articles: list[Json], **changes: Any) -> list[Json]:
    return with_dossier(right, articles=articles, **changes)


def coded(article: Json, code: str | None) -> Json:
    return {**article, "baseline": {**article["baseline"], "hts_code": code}, "gri_trace": {}}


def recoded(codes: Callable[[RightAnswer, str], Iterable[str | None]]) -> Variants:
    """Change the code of each article in turn into each of some codes."""

    def variants(right: RightAnswer) -> Iterator[Json]:
        articles = articles_of(right)
        for index, article in enumerate(articles):
            for code in codes(right, article["baseline"]["hts_code"]):
                yield from with_articles(right, [*articles[:index], coded(article, code), *articles[index + 1 :]])

    return variants


def neighbours(right: RightAnswer, code: str) -> Iterator[str]:
    """Yield codes of the schedule that share 2, 4 or 6 digits with a code, and that the case neither wants nor forbids."""
    expected, plain = right.expected, digits(code)
    named = [*expected.all_preferred, *right.forbidden, *(expected.must_not_hts or ())]
    edition = right.edition
    for width in (2, 4, 6):
        siblings = (f"{plain[:width]}{number:02d}" for number in range(1, 100))
        known = (sibling for sibling in siblings if edition.existing(sibling) == sibling)
        yield from [dotted(sibling) for sibling in known if not _touches(sibling, named)][:1]


def _touches(code: str, others: Iterable[str]) -> bool:
    return any(is_under(code, other) or is_under(other, code) for other in others)


def own_forbidden(right: RightAnswer) -> Iterator[Json]:
    """Yield the answer with the forbidden codes of each article given for it and beside all, those of the case for each."""
    articles, expected = articles_of(right), right.expected
    pairs = [
        (article, codes.must_not_hts or ()) for article, codes in zip(articles, expected.articles or (), strict=True)
    ]
    for index, (article, own) in enumerate(pairs):
        others = [*articles[:index], *articles[index + 1 :]]
        for code in map(with_ten_digits, (*own, *(expected.must_not_hts or ()))):
            yield from with_articles(right, [coded(article, code), *others])
            yield from with_articles(right, [*articles, {"article": "another", "baseline": {"hts_code": code}}])


def left_out(right: RightAnswer) -> Iterator[Json]:
    """Yield the answer without each article, with each alone, as a list or as the code of the whole."""
    articles = articles_of(right)
    for index, article in enumerate(articles):
        yield from with_articles(right, [*articles[:index], *articles[index + 1 :]])
        yield from with_articles(right, [article])


def renamed(right: RightAnswer, *, forbidden: bool) -> Iterator[Json]:
    """Yield the answer in which each article has the name of the next one, by whether an article forbids another's code."""
    own = [code for article in right.expected.articles or () for code in article.must_not_hts or ()]
    articles = articles_of(right)
    if any(_is_under(article["baseline"]["hts_code"], own) for article in articles) != forbidden:
        return
    names = [article.name for article in right.expected.articles or ()]
    for form in ("{}", "the {} of the box"):
        shifted = [form.format(name) for name in (*names[1:], *names[:1])]
        if articles:
            pairs = zip(articles, shifted, strict=True)
            yield from with_articles(right, [{**article, "article": name} for article, name in pairs])


def one_for_all(right: RightAnswer) -> Iterator[Json]:
    """Yield the answer with the code of each article for all of them, unless another article forbids it."""
    articles = articles_of(right)
    forbidden = [code for expected in right.expected.articles or () for code in expected.must_not_hts or ()]
    for article in articles:
        is_forbidden = _is_under(article["baseline"]["hts_code"], forbidden)
        yield from (
            with_articles(right, [coded(other, article["baseline"]["hts_code"]) for other in articles])
            if not is_forbidden
            else ()
        )


def one_more(right: RightAnswer) -> Iterator[Json]:
    articles = articles_of(right)
    horse = {"article": "another", "baseline": {"hts_code": "0101.21.0010"}}
    for extra in (horse, *articles) if articles else ():
        yield from with_articles(right, [extra, *articles])


def outside_of_them(right: RightAnswer) -> Iterator[Json]:
    """Yield the answer with the code of an article, or of a horse, for the whole, beside the articles or alone."""
    articles = articles_of(right)
    for code in ("0101.21.0010", right.preferred_code) if articles else ():
        yield from with_dossier(right, baseline={"hts_code": code})
        yield from with_dossier(right, baseline={"hts_code": code}, articles=[])
        yield from with_dossier(right, optimized={"hts_code": code, "what_if_id": "w"})


def disordered(right: RightAnswer) -> Iterator[Json]:
    articles = articles_of(right)
    for index, article in enumerate(articles):
        trace = {"steps": article["gri_trace"]["steps"][::-1]}
        yield from with_articles(right, [*articles[:index], {**article, "gri_trace": trace}, *articles[index + 1 :]])


KINDS_OF_ARTICLES: dict[str, dict[str, Variants]] = {
    "article_match": {"one article right to 2, 4 or 6 digits": recoded(neighbours)},
    "article_missing": {
        "article left out": left_out,
        "one code for all articles": one_for_all,
        "another chapter for one article": recoded(lambda *_: ["0101.21.0010"]),
        "names of the articles exchanged": lambda right: renamed(right, forbidden=False),
    },
    "article_extra": {"one article too many": one_more},
    "forbidden_code": {
        "forbidden code of one article": own_forbidden,
        "forbidden code by the name of its article": lambda right: renamed(right, forbidden=True),
    },
    "unreadable_answer": {
        "no code for one article": recoded(lambda *_: [None]),
        "no code, but a text with it": recoded(lambda _, code: [f"{code} or 6402", f"not {code}", code[:-1]]),
    },
    "contradictory_decision": {"a code outside of the articles": outside_of_them},
    "invalid_code": {"invented subheading of one article": recoded(lambda _, code: [f"{code[:4]}.99.9999"])},
    "gri_sequence": {"broken order of one article": disordered},
}
WRONG_ANSWERS = (
    *(
        WrongAnswer(term, name, variants, of_articles=True)
        for term, kinds in KINDS_OF_ARTICLES.items()
        for name, variants in kinds.items()
    ),
    *(WrongAnswer(term, name, variants) for term, kinds in KINDS.items() for name, variants in kinds.items()),
    WrongAnswer("allowed_match", "preferred code, if only allowed", changed, of_case=only_allowed),
)
