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
    unsaving,
    with_dossier,
    with_lever,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.controls.right_answers import Json, RightAnswer
    from tests.controls.wrong_answers import Variants

HORSE = "0101.21.0010"
PICTURE = "print a picture of a horse on the carton, ship it on Tuesdays"
WORDS = {"change": PICTURE, "steps": [PICTURE], "required_evidence": ["a photo of the horse"]}


def saving(variants: Variants) -> Variants:
    """Limit variants to cases that expect a saving."""
    return lambda right: variants(right) if right.expected.savings else ()


def general(right: RightAnswer, code: str) -> float | None:
    rate = right.context.pack.edition.rate(digits(code))
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


def with_best(right: RightAnswer, *, levers: bool = True, **changes: Any) -> list[Json]:
    """Change the what-if of the optimised code, by default also in the levers."""
    best = best_what_if(right)
    result = right.copy()
    items = result["tariff_dossier"]["what_if_candidates"]
    result["tariff_dossier"]["what_if_candidates"] = [
        {**item, **changes} if item["id"] == best["id"] else item for item in items
    ]
    for lever in result["lever_proof"]["selected_levers"] if levers else ():
        if lever["id"] == best["id"]:
            lever |= {key: value for key, value in changes.items() if key in {"id", "change", "expected_hts"}}
    return [result]


def to_code(right: RightAnswer, code: str, rate: float | None, **changes: Any) -> Json:
    """The right answer, which recommends another code at a rate."""
    base = right.outcome.baseline_rate_pct or 0.0
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
    edition = right.context.pack.edition
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
        part = {"hts_code": code, "duty_rate_pct": 0.0}
        yield from with_dossier(right, optimized=part)
        if code == codes[0]:
            yield from with_dossier(right, optimized={**part, "duty_rate_pct": None})
            yield from with_dossier(right, optimized={**part, "duty_rate_pct": baseline["duty_rate_pct"]})
            with_one = with_dossier(right, optimized=part, baseline={"hts_code": baseline["hts_code"]})[0]
            yield with_one | {"lever_proof": with_lever(right)[0]["lever_proof"]}


def unexplained(right: RightAnswer) -> Iterator[Json]:
    """Yield a code of the schedule that nothing explains as the optimised one, at its true rate."""
    for code in ("4901.99.0093", HORSE, "8471.30.0100"):
        is_forbidden = any(is_under(code, prefix) for prefix in right.expected.must_not_hts or ())
        is_own = any(is_under(code, own) for own in right.expected.preferred_hts)
        if not is_forbidden and not is_own and not right.expected.savings:
            part = {"hts_code": code, "duty_rate_pct": general(right, code)}
            yield from with_dossier(right, optimized=part)
            yield from with_dossier(right, optimized={**part, "what_if_id": "horse"})


def unnamed_levers(right: RightAnswer) -> Iterator[Json]:
    """Yield the true target by a lever that names no change of the request."""
    for change in (PICTURE, "", None, "all of them", best_what_if(right)["id"] + "_and_more"):
        yield from with_best(right, change=change)
    ids = [change.id for change in right.case.input.options.changes]
    yield from with_best(right, change=" or ".join(ids))


def other_changes(right: RightAnswer) -> Iterator[Json]:
    """Yield the true target by each other change of the request."""
    own = best_what_if(right)["change"]
    for change in right.case.input.options.changes:
        if change.id != own:
            yield from with_best(right, change=change.id)
            yield from with_best(right, change=change.text)


def missing_what_ifs(right: RightAnswer) -> Iterator[Json]:
    yield from with_dossier(right, what_if_candidates=[])
    yield from changed_part(right, "optimized", what_if_id="another")
    yield from with_best(right, id="renamed", levers=False)
    yield from with_best(right, expected_hts=HORSE, levers=False)


def foreign_levers(right: RightAnswer) -> Iterator[Json]:
    """Yield a lever or what-if more, and a lever instead of the right one, that names no change of the request."""
    other = {**best_what_if(right), **WORDS, "id": "horse", "expected_hts": HORSE}
    yield from with_dossier(right, what_if_candidates=[*right.copy()["tariff_dossier"]["what_if_candidates"], other])
    levers = right.copy()["lever_proof"]["selected_levers"]
    horse = {**levers[0], **WORDS, "id": "horse", "sequence": [{"label": PICTURE}] * 2, "expected_hts": HORSE}
    yield from changed(right, lever_proof={"selected_levers": [*levers, horse]})
    yield from changed(right, lever_proof={"selected_levers": [horse, *levers[1:]]})
    plain = {key: value for key, value in horse.items() if key not in {"id", "change", "expected_hts"}}
    yield from changed(right, lever_proof={"selected_levers": [plain]})


def breakdown(rate: object) -> Json:
    return {"duty_rate_pct": rate, "duty_breakdown": {"base_rate_pct": rate, "total_rate_pct": rate}}


def invented_base_rates(right: RightAnswer) -> Iterator[Json]:
    """Yield other base rates, with and without a breakdown; none where the schedule's can't be computed."""
    rate = general(right, right.preferred_code)
    if rate is None:
        return
    wrong = [rate + 0.1, -1.0, *([0.0, rate / 100] if rate else [])]
    for invented in wrong:
        yield from changed_part(right, "baseline", **breakdown(invented))
        yield from changed_part(right, "baseline", duty_rate_pct=invented, duty_breakdown=None)
        yield from changed_part(right, "baseline", duty_rate_pct=None, duty_breakdown={"base_rate_pct": invented})
    hidden = {"base_rate_pct": rate + 10, "applied_additional_duties": [{"pct": -10.0}], "total_rate_pct": rate}
    yield from changed_part(right, "baseline", duty_breakdown=hidden)
    yield from changed_part(right, "baseline", duty_rate_pct=rate + 5, duty_breakdown={"total_rate_pct": rate})


def missing_base_rate(right: RightAnswer) -> list[Json]:
    code = right.copy()["tariff_dossier"]["baseline"]["hts_code"]
    return with_dossier(right, baseline={"hts_code": code})


def wrong_optimised_rates(right: RightAnswer) -> Iterator[Json]:
    rate = right.outcome.optimized_rate_pct
    if rate is None:
        return
    for wrong in (rate + 0.1, -rate - 1, None, *([0.0, rate / 100, rate / 2] if rate else [])):
        yield from changed_part(right, "optimized", duty_rate_pct=wrong, duty_breakdown=None)
    yield from changed_part(right, "optimized", duty_rate_pct=rate, duty_breakdown={"total_rate_pct": rate / 2 - 1})


def wrong_deltas(right: RightAnswer) -> Iterator[Json]:
    delta = best_what_if(right)["estimated_duty_delta"]
    for wrong in (delta - 5, delta / 2, delta / 100, 0.0, -delta):
        yield from with_best(right, estimated_duty_delta=wrong)


def unreadable_rates(right: RightAnswer) -> Iterator[Json]:
    for part in ("baseline", "optimized"):
        if right.copy()["tariff_dossier"][part] is not None:
            for wrong in ("Free", "4.8%", "0.048", "15.4\u00a2/kg + 52%", math.nan, -math.inf):
                yield from changed_part(right, part, duty_rate_pct=wrong)
            for wrong in ("4.8%", math.nan):
                yield from changed_part(right, part, duty_breakdown={"base_rate_pct": wrong, "total_rate_pct": 4.8})


def claims_by_form(right: RightAnswer) -> Iterator[Json]:
    """Yield every form of a claim that something can be saved."""
    baseline = right.copy()["tariff_dossier"]["baseline"]
    code, rate = baseline["hts_code"], right.outcome.baseline_rate_pct
    without = {"hts_code": code}
    lever, what_if = {"label": "declare it otherwise"}, {"id": "w", "expected_hts": HORSE}
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
    last = right.copy()["iterations"]
    for part in ({"what_if_candidates": [horse]}, {"tariff_dossier": {"optimized": {"hts_code": HORSE}}}):
        yield from changed(right, iterations=[*last[:-1], {**last[-1], **part}])
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
    if right.outcome.baseline_rate_pct:
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
    for offered in (horse, {**horse, "estimated_duty_delta": -99.0}, {**horse, "kind": "description"}):
        yield from with_dossier(right, what_if_candidates=[offered])
        yield from changed(right, lever_proof={"selected_levers": [{**offered, "sequence": [{"label": PICTURE}]}]})
    yield from with_dossier(right, savings_estimate={"per_unit": 1e9})


def forbidden_offers(right: RightAnswer) -> Iterator[Json]:
    """Yield each forbidden code as one to which an offered change leads."""
    for code in right.forbidden:
        offered = {**WORDS, "id": "other", "expected_hts": code, "estimated_duty_delta": -99.0}
        yield from with_dossier(right, what_if_candidates=[offered])
        yield from changed(right, lever_proof={"selected_levers": [offered]})


def contradicting_levers(right: RightAnswer) -> Iterator[Json]:
    """Yield the right what-if beside a selected lever of its name that says something else."""
    best = best_what_if(right)["id"]
    for wrong in ({"expected_hts": HORSE}, {"change": PICTURE}, {"kind": "description"}):
        levers = right.copy()["lever_proof"]["selected_levers"]
        yield from changed(
            right,
            lever_proof={"selected_levers": [{**lever, **wrong} if lever["id"] == best else lever for lever in levers]},
        )


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
    free = {"id": "z", "change": useless, "estimated_duty_delta": 0.0, "expected_duty_rate_pct": 0.0}
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
    unknown = {"applied_additional_duties": [{"layer_id": "x"}]}
    preferred = {"base_rate_pct": rate, "preferential_rate_pct": 0.0, "total_rate_pct": 0.0}
    for hidden in (unknown, {**unknown, "total_rate_pct": 0.0}, preferred):
        yield from changed_part(right, "baseline", duty_rate_pct=0.0, duty_breakdown=hidden)
    yield from changed_part(right, "baseline", duty_basis="free")


def unreadable_layers(right: RightAnswer) -> Iterator[Json]:
    for layers in ([{"pct": "25%"}], {"a": 1}):
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
    if right.outcome.levers:
        yield from changed(right, proof={"lever_proof": {"selected_levers": [{"id": "horse", **WORDS}]}})


def least(right: RightAnswer) -> Json:
    """Expectations of which no saving of the answer is enough."""
    savings = right.expected.savings
    if savings is None:
        return {}
    best = (right.outcome.baseline_rate_pct or 0.0) - (right.outcome.optimized_rate_pct or 0.0)
    return {"savings": savings.model_copy(update={"least": best + 0.1})}


def optimised(codes: Callable[[RightAnswer, str], Iterable[str]]) -> Variants:
    """Change the optimised code of a right answer into each of some texts, everywhere."""

    def variants(right: RightAnswer) -> Iterator[Json]:
        code, rate = right.outcome.optimized_code, right.outcome.optimized_rate_pct
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
        "no optimised code": saving(lambda right: with_dossier(right, optimized=None)),
        "optimised code that is not one code": saving(optimised(no_codes_of)),
        "optimised code of 4 or 6 digits": saving(optimised(too_short)),
        "optimised code with an invented suffix": saving(optimised(invented_under)),
    },
    "savings_lever": {
        "true target by a change that nobody offers": saving(unnamed_levers),
        "true target by another change": saving(other_changes),
        "true target without its what-if": saving(missing_what_ifs),
        "true target beside a foreign lever": saving(foreign_levers),
        "optimised code that nothing explains": unexplained,
        "invented change where the request lists none": unasked(invented_levers),
        "lever that contradicts its what-if": saving(contradicting_levers),
        "true saving beside a horse in another place": saving(horses_elsewhere),
    },
    "base_rate": {
        "invented base rate": invented_base_rates,
        "saving without a base rate": saving(missing_base_rate),
        "hidden base rate": hidden_base_rates,
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


ARTICLE_HORSE = {**WORDS, "id": "horse", "expected_hts": HORSE}
WRONG_SAVINGS = (
    WrongAnswer(
        "base_rate",
        "invented base rate of an article",
        of_each_article(baseline=breakdown(0.123)),
        of_articles=True,
    ),
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
    """Yield the right saving in other, honest spellings."""
    if right.expected.savings is None:
        return
    best, base = best_what_if(right), right.copy()["tariff_dossier"]["baseline"]
    text = next(change.text for change in right.case.input.options.changes if change.id == best["change"])
    for change in (best["change"].upper(), best["change"].replace("_", " "), best["change"].replace("_", "-"), text):
        yield from with_best(right, change=change)
    yield from with_best(right, change=f" {text.capitalize()} ")
    for spelling in (digits(best["expected_hts"]), f"HTS {best['expected_hts']}", f"{best['expected_hts']} 1/"):
        yield from changed_part(right, "optimized", hts_code=spelling)
    for change in (f"{best['change']}: {text}", f"'{text}.'", best["change"].title().replace("_", "")):
        yield from with_best(right, change=change)
    yield from with_best(right, expected_hts=None, expected_hts_change=f"{base['hts_code']} -> {best['expected_hts']}")
    yield right.copy() | {"proof": right.copy()}
    yield from changed_part(right, "optimized", what_if_id=None)
    yield from changed_part(right, "baseline", duty_breakdown=None)
    yield from changed_part(right, "baseline", duty_rate_pct=None)
    layers = [{"layer_id": "9903.88.15", "pct": 7.5, "reason": "a duty on top"}]
    more = {"base_rate_pct": base["duty_rate_pct"], "applied_additional_duties": layers}
    yield from changed_part(right, "baseline", duty_breakdown={**more, "total_rate_pct": base["duty_rate_pct"]})
    useful = {target.change for target in right.expected.savings.targets}
    useless = next(change.id for change in right.case.input.options.changes if change.id not in useful)
    no_effect = {"id": "other", "change": useless, "estimated_duty_delta": 0.0, "expected_hts": base["hts_code"]}
    said = {"id": "other", "change": useless, "expected_savings_note": "no savings"}
    for other in (no_effect, {**said, "expected_duty_rate_pct": base["duty_rate_pct"]}):
        yield from with_dossier(
            right, what_if_candidates=[*right.copy()["tariff_dossier"]["what_if_candidates"], other]
        )


def other_targets(right: RightAnswer) -> Iterator[Json]:
    """Yield each accepted code, by its change and at its rate, where it is the general one."""
    edition = right.context.pack.edition
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
    yield from changed_part(right, "baseline", duty_rate_pct=rate, duty_breakdown=None)
    yield from changed_part(right, "baseline", duty_rate_pct=None, duty_breakdown={"total_rate_pct": rate})
    yield from changed_part(right, "baseline", duty_rate_pct=None, duty_breakdown=None)
    layers = [{"layer_id": "9903.88.15", "pct": 25.0}]
    added = {"base_rate_pct": rate, "applied_additional_duties": layers, "total_rate_pct": rate + 25}
    yield from changed_part(right, "baseline", duty_rate_pct=rate + 25, duty_breakdown=added)


def no_saving(right: RightAnswer) -> Iterator[Json]:
    """Yield the goods as they are as the best, and mutations that say that they save nothing."""
    if right.expected.no_savings_expected:
        baseline = right.copy()["tariff_dossier"]["baseline"]
        yield from with_dossier(right, optimized=baseline)
        yield from with_dossier(right, optimized={"hts_code": baseline["hts_code"]})
        rate = right.outcome.baseline_rate_pct
        mutations = [{"id": "m1", "expected_savings_note": "No savings expected."}, {"expected_duty_rate_pct": rate}]
        yield from with_dossier(right, mutations=mutations, savings_estimate={"per_unit": 0, "annualized": None})
        words = (
            "No change in duty",
            "does not reduce duty",
            "None",
            "Zero",
            "rate stays the same",
            "cannot be reduced",
        )
        yield from with_dossier(right, mutations=[{"id": "m", "expected_savings_note": word} for word in words])
        yield from with_dossier(right, mutations=[{"estimated_duty_delta": 0.0, "hts_code": baseline["hts_code"]}])
