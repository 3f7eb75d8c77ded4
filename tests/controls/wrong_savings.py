"""Wrong answers about rates and savings, each derived from the right answer by one change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pytest_packbench.packs.tariff.notation import digits, dotted, is_under
from tests.controls.right_answers import with_ten_digits
from tests.controls.wrong_answers import (
    WrongAnswer,
    changed,
    invented_under,
    no_codes_of,
    offer,
    unsaving,
    with_dossier,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.controls.right_answers import Json, RightAnswer
    from tests.controls.wrong_answers import Variants

HORSE = "0101.21.0010"
PICTURE = "print a picture of a horse on the carton, ship it on Tuesdays"
WORDS = {"kind": "packaging", "change": PICTURE, "steps": [PICTURE], "required_evidence": ["a photo of the horse"]}


def saving(variants: Variants) -> Variants:
    """Limit variants to cases that expect a saving."""
    return lambda right: variants(right) if right.expected.savings else ()


def general(right: RightAnswer, code: str) -> float | None:
    rate = right.edition.rate(digits(code))
    return None if rate is None else rate.pct


def changed_part(right: RightAnswer, part: str, **changes: Any) -> list[Json]:
    dossier = right.copy()["tariff_dossier"]
    return with_dossier(right, **{part: {**(dossier[part] or {}), **changes}})


def best_what_if(right: RightAnswer) -> Json:
    dossier = right.copy()["tariff_dossier"]
    found: Json = next(
        item for item in dossier["what_if_candidates"] if item["id"] == dossier["optimized"]["what_if_id"]
    )
    return found


def with_best(right: RightAnswer, **changes: Any) -> list[Json]:
    """Change the what-if of the optimised code."""
    best = best_what_if(right)
    result = right.copy()
    items = result["tariff_dossier"]["what_if_candidates"]
    result["tariff_dossier"]["what_if_candidates"] = [
        {**item, **changes} if item["id"] == best["id"] else item for item in items
    ]
    return [result]


def to_code(right: RightAnswer, code: str, rate: float | None, **changes: Any) -> Json:
    """The right answer, which recommends another code at a rate."""
    base = right.baseline_rate_pct or 0.0
    (result,) = with_best(right, expected_hts=code, estimated_duty_delta=(rate or 0.0) - base, **changes)
    result["tariff_dossier"]["optimized"] |= {"hts_code": code, "duty_rate_pct": rate}
    return result


def is_target(right: RightAnswer, code: str) -> bool:
    savings = right.expected.savings
    return savings is not None and any(is_under(code, target.code) for target in savings.targets)


def horses(right: RightAnswer) -> Iterator[Json]:
    """Yield the horse instead of the best lever."""
    yield to_code(right, HORSE, 0.0, **WORDS)
    yield to_code(right, HORSE, 0.0)


def other_lines(right: RightAnswer) -> Iterator[Json]:
    """Yield each other line under the heading of a target that is in the schedule, at its own rate."""
    edition = right.edition
    for target in right.expected.savings.targets if right.expected.savings else ():
        subheading = digits(target.code)[:6]
        lines = [f"{subheading}{number:02d}" for number in range(100)]
        for line in lines:
            code = next(
                (f"{line}{n:02d}" for n in range(100) if edition.existing(f"{line}{n:02d}") == f"{line}{n:02d}"), ""
            )
            rate = general(right, code) if code else None
            own = any(is_under(other, line) for other in right.expected.preferred_hts)
            forbidden = any(is_under(line, prefix) for prefix in right.expected.must_not_hts or ())
            if rate is not None and not own and not forbidden and not is_target(right, line):
                yield to_code(right, dotted(code), rate)


def forbidden_optimised(right: RightAnswer) -> Iterator[Json]:
    """Yield each forbidden code that is no target as the optimised one, with and without a lever."""
    baseline = right.copy()["tariff_dossier"]["baseline"]
    codes = [code for code in right.forbidden if not is_target(right, code)]
    for code in codes:
        part = {"what_if_id": "other", "hts_code": code, "duty_rate_pct": 0.0}
        yield from with_dossier(right, optimized=part)
        if code == codes[0]:
            yield from with_dossier(right, optimized={**part, "duty_rate_pct": None})
            yield from with_dossier(right, optimized={**part, "duty_rate_pct": baseline["duty_rate_pct"]})
            lever = offer(code, id="other")
            yield from with_dossier(right, optimized=part, what_if_candidates=[lever])


def unexplained(right: RightAnswer) -> Iterator[Json]:
    """Yield a code of the schedule that nothing explains as the optimised one, at its true rate."""
    for code in ("4901.99.0093", HORSE, "8471.30.0100"):
        is_forbidden = any(is_under(code, prefix) for prefix in right.expected.must_not_hts or ())
        is_own = any(is_under(code, own) for own in right.expected.preferred_hts)
        if not is_forbidden and not is_own and not right.expected.savings:
            part = {"hts_code": code, "duty_rate_pct": general(right, code)}
            yield from with_dossier(right, optimized={**part, "what_if_id": "none"})
            yield from with_dossier(right, optimized={**part, "what_if_id": "horse"})


def unnamed_levers(right: RightAnswer) -> Iterator[Json]:
    """Yield the true target by a lever that names no change of the request."""
    for change in (PICTURE, "", None, "all of them", best_what_if(right)["id"] + "_and_more"):
        yield from with_best(right, change=change)
    ids = [change.id for change in right.case.input.options.changes]
    yield from with_best(right, change=" or ".join(ids))


def other_changes(right: RightAnswer, *, useful: bool) -> Iterator[Json]:
    """Yield the true target by each other change of the request that leads to another target, or to none."""
    own, targets = best_what_if(right)["change"], right.expected.savings.targets if right.expected.savings else ()
    for change in right.case.input.options.changes:
        if change.id != own and (change.id in {target.change for target in targets}) == useful:
            yield from with_best(right, change=change.id)
            yield from with_best(right, change=change.id, estimated_duty_delta=0.0)


def missing_what_ifs(right: RightAnswer) -> Iterator[Json]:
    yield from with_dossier(right, what_if_candidates=[])
    yield from changed_part(right, "optimized", what_if_id="another")
    yield from with_best(right, id="renamed")
    yield from with_best(right, expected_hts=HORSE)


def foreign_levers(right: RightAnswer) -> Iterator[Json]:
    """Yield a lever or what-if more, and a lever instead of the right one, that names no change of the request."""
    other = {**best_what_if(right), **WORDS, "id": "horse", "expected_hts": HORSE}
    yield from with_dossier(right, what_if_candidates=[*right.copy()["tariff_dossier"]["what_if_candidates"], other])
    yield from changed(right, lever_proof={"selected_levers": [other]})


def breakdown(rate: object) -> Json:
    return {"duty_rate_pct": rate, "duty_breakdown": {"base_rate_pct": rate, "total_rate_pct": rate}}


def invented_base_rates(right: RightAnswer) -> Iterator[Json]:
    """Yield other base rates, with and without a breakdown; none where the schedule's can't be computed."""
    rate = general(right, right.preferred_code)
    if rate is None:
        return
    # where no savings are expected, a lower rate is a claim
    lower = [] if right.expected.no_savings_expected or not rate else [0.0, rate / 100]
    for invented in (rate + 0.1, *lower):
        yield from changed_part(right, "baseline", **breakdown(invented))
        yield from changed_part(right, "baseline", duty_rate_pct=invented, duty_breakdown={})
        yield from changed_part(right, "baseline", duty_rate_pct=None, duty_breakdown={"base_rate_pct": invented})
    total = {"base_rate_pct": rate, "total_rate_pct": rate + 5}
    yield from changed_part(right, "baseline", duty_rate_pct=rate + 5, duty_breakdown=total)
    yield from changed_part(right, "baseline", duty_rate_pct=rate + 5, duty_breakdown={"total_rate_pct": rate})
    yield from changed_part(right, "baseline", duty_rate_pct=None, duty_breakdown={})


def of_savings(variants: Variants, *, asked: bool) -> Variants:
    """Limit variants to cases that ask for a saving, or to those that do not."""
    return lambda right: variants(right) if (right.expected.savings is not None) == asked else ()


def negative_rates(right: RightAnswer) -> Iterator[Json]:
    """Yield rates and additional duties below 0."""
    if not right.accepts or right.expected.articles:
        return
    hidden = {"applied_additional_duties": [{"layer_id": "less", "pct": -10.0}]}
    yield from changed_part(right, "baseline", **breakdown(-1.0))
    yield from changed_part(right, "baseline", duty_breakdown=hidden)


def missing_base_rate(right: RightAnswer) -> list[Json]:
    code = right.copy()["tariff_dossier"]["baseline"]["hts_code"]
    return with_dossier(right, baseline={"hts_code": code})


def wrong_optimised_rates(right: RightAnswer) -> Iterator[Json]:
    rate = right.optimized_rate_pct
    if rate is None:
        return
    for wrong in (rate + 0.1, -rate - 1, None, *([0.0, rate / 100, rate / 2] if rate else [])):
        yield from changed_part(right, "optimized", duty_rate_pct=wrong, duty_breakdown={})
    yield from changed_part(right, "optimized", duty_rate_pct=rate, duty_breakdown={"total_rate_pct": rate / 2 - 1})


def wrong_deltas(right: RightAnswer) -> Iterator[Json]:
    delta = best_what_if(right)["estimated_duty_delta"]
    # a smaller saving is a cautious estimate
    for wrong in (delta - 5, delta - 0.1, delta * 2, -delta):
        yield from with_best(right, estimated_duty_delta=wrong)


def unreadable_rates(right: RightAnswer) -> Iterator[Json]:
    for part in ("baseline", "optimized") if right.accepts and not right.expected.articles else ():
        if right.copy()["tariff_dossier"][part] is not None:
            for wrong in ("Free", "4.8%", "0.048", "15.4\u00a2/kg + 52%", math.nan, -math.inf):
                yield from changed_part(right, part, duty_rate_pct=wrong)
            for wrong in ("4.8%", math.nan):
                yield from changed_part(right, part, duty_breakdown={"base_rate_pct": wrong, "total_rate_pct": 4.8})


def claims_by_form(right: RightAnswer) -> Iterator[Json]:
    """Yield every form of a claim that something can be saved."""
    baseline = right.copy()["tariff_dossier"]["baseline"]
    code, rate = baseline["hts_code"], right.baseline_rate_pct
    without = {"hts_code": code}
    lever, what_if = {"label": "declare it otherwise"}, {"id": "w", "expected_hts": HORSE}
    yield from with_dossier(right, what_if_candidates=[offer(HORSE)])
    yield from with_dossier(right, optimized={"what_if_id": "w", **without})
    yield from with_dossier(right, optimized={"what_if_id": "w", **without, "duty_rate_pct": rate})
    for mutation in (
        {"id": "m", "expected_savings_note": "saves 8 USD"},
        {"id": "m"},
        {"id": "m", "expected_savings_note": "no savings, but 8 USD"},
        {"id": "m", "expected_duty_rate_pct": -1.0},
    ):
        yield from with_dossier(right, mutations=[mutation])
        yield from changed(right, mutations=[mutation])
    yield from changed(right, lever_proof={"selected_levers": [], "mutation_candidates": [lever]})
    yield from changed(right, what_if_candidates=[what_if])
    yield from changed(right, proof={"what_if_candidates": [what_if]})
    for key in ("per_unit", "annualized"):
        yield from with_dossier(right, savings_estimate={key: 8})
    for part in ({"hts_code": HORSE, "duty_rate_pct": 0.0}, {"hts_code": code, "duty_rate_pct": 0.0}):
        yield from with_dossier(right, optimized=part, baseline=without)
    yield from with_dossier(right, optimized={"hts_code": HORSE})
    yield from with_dossier(right, optimized={"hts_code": HORSE, "duty_rate_pct": -1.0})
    if rate:
        for stated in (rate / 4, 0.0):
            yield from with_dossier(right, baseline={**baseline, **breakdown(stated)})
            yield from with_dossier(right, baseline={**baseline, "duty_rate_pct": stated, "duty_breakdown": {}})
        low = {"duty_rate_pct": rate / 4, "duty_breakdown": {"base_rate_pct": rate, "total_rate_pct": rate}}
        yield from with_dossier(right, optimized={"hts_code": code, **low})
        yield from with_dossier(right, baseline={**baseline, **low})
        base = {"duty_rate_pct": rate, "duty_breakdown": {"base_rate_pct": rate / 4, "total_rate_pct": rate}}
        yield from with_dossier(right, optimized={"hts_code": code, **base})
    yield from hidden_claims(right, baseline)


def hidden_claims(right: RightAnswer, baseline: Json) -> Iterator[Json]:
    """Yield claims in unusual places, and denials that claim."""
    horse = {**WORDS, "id": "horse", "expected_hts": HORSE, "estimated_duty_delta": -29.0}
    for names in ({"what_ifs": [horse]}, {"levers": [horse]}, {"selected_levers": [horse]}, {"savings": [horse]}):
        yield from with_dossier(right, **names)
        yield from changed(right, **names)
        yield from changed(right, proof=names)
    yield from with_dossier(right, lever_proof={"selected_levers": [horse]})
    yield from changed(right, lever_proof={"selected_levers": [], "best": horse})
    for part in ({"what_if_candidates": [horse]}, {"tariff_dossier": {"optimized": {"hts_code": HORSE}}}):
        yield from changed(right, iterations=[{"i": 1, "accepted": True, **part}])
    yield from changed(right, optimized={"hts_code": HORSE, "duty_rate_pct": 0.0})
    for estimate in ({"per_unit": 8}, {"total": 800}, {"pct": 50}):
        yield from changed(right, savings_estimate=estimate)
        yield from changed(right, proof={"savings_estimate": estimate})
    yield from with_dossier(right, savings_estimate={"total": 800})
    yield from changed_part(right, "baseline", what_if_candidates=[horse])
    yield from changed_part(right, "baseline", estimated_savings_per_unit=3)
    yield from with_dossier(right, optimized={"what_if_id": "rename"})
    layers = {"applied_additional_duties": [{"pct": -1.0}]}
    yield from with_dossier(right, optimized={"hts_code": baseline["hts_code"], "duty_breakdown": layers})
    if right.baseline_rate_pct:
        preferred = {"duty_breakdown": {**baseline["duty_breakdown"], "preferential_rate_pct": 0.0}}
        yield from changed_part(right, "baseline", **preferred)
        yield from with_dossier(right, optimized={"hts_code": baseline["hts_code"], **preferred})
    for note in ("no saving like this one: the rate falls to Free", "quality unchanged, duty falls by half"):
        yield from with_dossier(right, mutations=[{"id": "m", "expected_savings_note": note}])
    for claim in ({"estimated_duty_delta": -29.0}, {"hts_code": HORSE}):
        yield from with_dossier(right, mutations=[{"id": "m", "expected_savings_note": "no savings", **claim}])


def unasked(variants: Variants) -> Variants:
    """Limit variants to cases that say nothing of savings and whose request lists no change."""

    def limited(right: RightAnswer) -> Iterable[Json]:
        expected = right.expected
        says_nothing = not (expected.savings or expected.no_savings_expected or right.case.input.options.changes)
        return variants(right) if says_nothing else ()

    return limited


def invented_levers(right: RightAnswer) -> Iterator[Json]:
    """Yield a horse as the optimised code, or offered only, by a change that the request does not list."""
    part = {"hts_code": HORSE, "duty_rate_pct": 0.0}
    horse = {**WORDS, "id": "horse", "expected_hts": HORSE}
    yield from with_dossier(right, optimized={**part, "what_if_id": "horse"}, what_if_candidates=[horse])
    yield from with_dossier(right, optimized=part, mutations=[{"id": "m", "hts_code": HORSE}])
    (plain,) = with_dossier(right, optimized=part)
    yield plain | {"lever_proof": {"selected_levers": [{}]}}
    # without a difference, a what-if is none
    for offered in (horse, {**horse, "estimated_duty_delta": -99.0}, offer(HORSE, kind="description")):
        yield from with_dossier(right, what_if_candidates=[offered])
        yield from changed(right, lever_proof={"selected_levers": [offered]})
    yield from with_dossier(right, savings_estimate={"per_unit": 1e9})


def forbidden_offers(right: RightAnswer) -> Iterator[Json]:
    """Yield each forbidden code as one to which an offered change leads."""
    for code in right.forbidden:
        offered = {**WORDS, "id": "other", "expected_hts": code, "estimated_duty_delta": -99.0}
        yield from with_dossier(right, what_if_candidates=[{**offered, "estimated_duty_delta": 0.0}])
        yield from with_dossier(right, what_if_candidates=[offered])
        yield from changed(right, lever_proof={"selected_levers": [offered]})


def horses_elsewhere(right: RightAnswer) -> Iterator[Json]:
    """Yield the right saving beside a mutation, or a change in another place, that leads to a horse."""
    mutation = {"id": "m", "hts_code": HORSE, "expected_duty_rate_pct": 0.0}
    horse = {**WORDS, "id": "horse", "expected_hts": HORSE, "estimated_duty_delta": -99.0}
    yield from with_dossier(right, mutations=[mutation])
    yield from changed(right, mutations=[mutation])
    yield from changed(right, what_if_candidates=[horse])
    yield from changed(right, proof={"what_if_candidates": [horse]})
    useful = {target.change for target in right.expected.savings.targets} if right.expected.savings else set()
    useless = next(change.id for change in right.case.input.options.changes if change.id not in useful)
    free = offer(HORSE, -37.5, id="z", change=useless)
    yield from with_dossier(right, what_if_candidates=[*right.copy()["tariff_dossier"]["what_if_candidates"], free])


def wrong_offered_rates(right: RightAnswer) -> Iterator[Json]:
    """Yield the best what-if with a rate, or a difference as text, that is not the schedule's."""
    yield from with_best(right, expected_duty_rate_pct=-5.0)
    yield from with_best(right, duty_rate_pct=-5.0)
    yield from with_best(right, estimated_duty_delta="-99")


def hidden_base_rates(right: RightAnswer) -> Iterator[Json]:
    """Yield base rates that a preference, an additional duty or a larger total hides."""
    rate = general(right, right.preferred_code)
    if rate is None or right.expected.no_savings_expected:
        return
    yield from changed_part(
        right, "baseline", duty_rate_pct=None, duty_breakdown={"base_rate_pct": rate, "total_rate_pct": rate + 300}
    )
    if not rate:
        return
    layers = {"applied_additional_duties": [{"layer_id": "x", "pct": rate}], "total_rate_pct": rate}
    for hidden in (layers, {"base_rate_pct": rate, "total_rate_pct": 0.0}):
        yield from changed_part(right, "baseline", duty_rate_pct=hidden["total_rate_pct"], duty_breakdown=hidden)
    yield from changed_part(right, "baseline", duty_basis="free")


def unreadable_layers(right: RightAnswer) -> Iterator[Json]:
    for layers in ([{"pct": "25%"}], {"a": 1}) if right.accepts and not right.expected.articles else ():
        yield from changed_part(right, "baseline", duty_breakdown={"applied_additional_duties": layers})


def second_dossiers(right: RightAnswer) -> Iterator[Json]:
    """Yield the right answer beside a dossier, or levers, under `proof` that say something else."""
    dossier = right.copy()["tariff_dossier"]
    baseline = dossier["baseline"] or {}
    other = {"hts_code": HORSE, "duty_rate_pct": 0.0}
    for changes in (
        {"baseline": {**baseline, "hts_code": HORSE}},
        {"baseline": {**baseline, "duty_rate_pct": -1.0}},
        {"optimized": other},
        {"what_if_candidates": [{**WORDS, "id": "horse", "expected_hts": HORSE}]},
        {"savings_estimate": {"per_unit": 8}},
        {"citations": [{"source_id": "lab", "quote": "words that stand in no document at all"}]},
        {
            "gri_trace": {
                "steps": [{"rule": "4", "level": "heading", "candidates": [], "outcome": "decided", "chosen": "0101"}]
            }
        },
    ):
        yield from changed(right, proof={"tariff_dossier": {**dossier, **changes}})
        yield from changed(right, proof={"tariff_dossier": changes})
    if right.document.dossier.what_if_candidates:
        yield from changed(right, proof={"lever_proof": {"selected_levers": [{"id": "horse", **WORDS}]}})


def least(right: RightAnswer) -> Json:
    """Expectations of which no saving of the answer is enough."""
    savings = right.expected.savings
    if savings is None:
        return {}
    best = (right.baseline_rate_pct or 0.0) - (right.optimized_rate_pct or 0.0)
    return {"savings": savings.model_copy(update={"least": best + 0.1})}


def optimised(codes: Callable[[RightAnswer, str], Iterable[str]]) -> Variants:
    """Change the optimised code of a right answer into each of some texts, everywhere."""

    def variants(right: RightAnswer) -> Iterator[Json]:
        code, rate = right.optimized_code, right.optimized_rate_pct
        for other in codes(right, code) if code else ():
            yield to_code(right, other, rate)

    return variants


def too_short(right: RightAnswer, code: str) -> Iterator[str]:
    accepted = [target.code for target in right.expected.savings.targets] if right.expected.savings else []
    for width in (4, 6):
        shorter = dotted(digits(code)[:width])
        if not any(is_under(shorter, target) for target in accepted):
            yield shorter


KINDS: dict[str, dict[str, Variants]] = {
    "savings_target": {
        "horse on the carton": saving(horses),
        "another line than the change leads to": saving(other_lines),
        "true target by the change of another": saving(lambda right: other_changes(right, useful=True)),
        "no optimised code": saving(lambda right: with_dossier(right, optimized=None)),
        "optimised code that is not one code": saving(optimised(no_codes_of)),
        "optimised code of 4 or 6 digits": saving(optimised(too_short)),
        "optimised code with an invented suffix": saving(optimised(invented_under)),
    },
    "savings_lever": {
        "true target by a change that nobody offers": saving(unnamed_levers),
        "true target by a change that saves nothing": saving(lambda right: other_changes(right, useful=False)),
        "true target without its what-if": saving(missing_what_ifs),
        "true target beside a foreign lever": saving(foreign_levers),
        "optimised code that nothing explains": unexplained,
        "invented change where the request lists none": unasked(invented_levers),
        "true saving beside a horse in another place": saving(horses_elsewhere),
    },
    "optimized_rate": {
        "invented rate of the target": saving(wrong_optimised_rates),
        "invented difference": saving(wrong_deltas),
        "invented rate of a what-if": saving(wrong_offered_rates),
    },
    "forbidden_code": {
        "forbidden code as the optimised one": forbidden_optimised,
        "forbidden code as an offered one": unasked(forbidden_offers),
    },
    "contradictory_decision": {
        "second dossier that says something else": lambda right: second_dossiers(right) if right.accepts else ()
    },
    "no_savings_violation": {"claimed savings: any other form": unsaving(claims_by_form)},
    "unreadable_answer": {
        "rate that is no number": unreadable_rates,
        "additional duty that is no number": unreadable_layers,
    },
}


def of_each_article(**changes: Any) -> Variants:
    """Change every article of an answer about several."""
    return lambda right: with_dossier(
        right,
        articles=[
            {**item, **changes, "baseline": {**item["baseline"], **changes.get("baseline", {})}}
            for item in right.copy()["tariff_dossier"]["articles"]
        ],
    )


def _base_rates(right: RightAnswer) -> Iterator[Json]:
    yield from invented_base_rates(right)
    yield from hidden_base_rates(right)
    if right.expected.savings:
        yield from missing_base_rate(right)


ARTICLE_HORSE = {**WORDS, "id": "horse", "expected_hts": HORSE}
WRONG_SAVINGS = (
    WrongAnswer(
        "base_rate",
        "invented base rate of an article",
        of_each_article(baseline=breakdown(0.123)),
        of_articles=True,
    ),
    WrongAnswer("base_rate", "invented, hidden or missing base rate", of_savings(_base_rates, asked=False)),
    WrongAnswer("base_rate", "the same where a saving is asked for", of_savings(_base_rates, asked=True), is_zero=True),
    WrongAnswer("unreadable_answer", "rate below 0", negative_rates),
    WrongAnswer(
        "savings_lever",
        "invented change of an article",
        of_each_article(what_if_candidates=[ARTICLE_HORSE]),
        of_articles=True,
    ),
    *(WrongAnswer(term, name, variants) for term, kinds in KINDS.items() for name, variants in kinds.items()),
    WrongAnswer("savings_size", "saving less than the least", saving(changed), of_case=least),
)


def odd_savings(right: RightAnswer) -> Iterator[Json]:
    """Yield the right saving in other forms of the document, and with a cautious estimate."""
    if right.expected.savings is None:
        return
    best, base = best_what_if(right), right.copy()["tariff_dossier"]["baseline"]
    for spelling in (digits(best["expected_hts"]), f" {best['expected_hts']}\n"):
        yield from changed_part(right, "optimized", hts_code=spelling)
    for share in (0.8, 0.1, 0.0):
        yield from with_best(right, estimated_duty_delta=best["estimated_duty_delta"] * share)
    yield from changed_part(right, "baseline", duty_breakdown={})
    yield from changed_part(right, "baseline", duty_rate_pct=None)
    layers = [{"layer_id": "9903.88.15", "pct": 7.5}]
    total = {"base_rate_pct": base["duty_rate_pct"], "total_rate_pct": base["duty_rate_pct"] + 7.5}
    more = {**total, "applied_additional_duties": layers}
    yield from changed_part(right, "baseline", duty_rate_pct=total["total_rate_pct"], duty_breakdown=more)
    useful = {target.change for target in right.expected.savings.targets}
    useless = next(change.id for change in right.case.input.options.changes if change.id not in useful)
    yield from with_dossier(right, examined=[{"change": useless, "reason": "the same line"}])
    no_effect = offer(base["hts_code"], 0.0, id="other", change=useless)
    found = right.copy()["tariff_dossier"]["what_if_candidates"]
    yield from with_dossier(right, what_if_candidates=[*found, no_effect])


def other_targets(right: RightAnswer) -> Iterator[Json]:
    """Yield each accepted code, by its change and at its rate, where it is the general one."""
    edition = right.edition
    for target in right.expected.savings.targets if right.expected.savings else ():
        line = digits(target.code)
        codes = (f"{line}{number:02d}" for number in range(100))
        code = with_ten_digits(next(code for code in codes if edition.existing(code) == code))
        if target.rate_pct is None:
            yield to_code(right, code, general(right, code), change=target.change)
            yield to_code(right, dotted(line), general(right, code), change=target.change)


def odd_rates(right: RightAnswer) -> Iterator[Json]:
    """Yield the right rate in other places; none of it where savings or a total rate are asked for."""
    rate = general(right, right.preferred_code)
    expected = right.expected
    if rate is None or expected.savings or expected.expected_duty_total_rate_pct is not None:
        return
    yield from changed_part(right, "baseline", duty_rate_pct=rate, duty_breakdown={})
    yield from changed_part(right, "baseline", duty_rate_pct=None, duty_breakdown={"total_rate_pct": rate})
    layers = [{"layer_id": "9903.88.15", "pct": 25.0}]
    added = {"base_rate_pct": rate, "applied_additional_duties": layers, "total_rate_pct": rate + 25}
    yield from changed_part(right, "baseline", duty_rate_pct=rate + 25, duty_breakdown=added)


def no_saving(right: RightAnswer) -> Iterator[Json]:
    """Yield each change of the request as examined, where no savings are expected."""
    if right.expected.no_savings_expected:
        changes = [{"change": change.id, "reason": "it saves nothing"} for change in right.case.input.options.changes]
        yield from with_dossier(right, examined=changes)
