"""Savings: what an answer says of rates and of changes of the goods, and whether it is true.

Rates come from the schedule. A saving is true if it leads to a code that the case accepts, by the change that this code
needs, at the rate of the schedule, and is large enough.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.model.errors import format_value
from pytest_packbench.model.result import Term
from pytest_packbench.packs.tariff.edition import GeneralRate
from pytest_packbench.packs.tariff.model import FORBIDDEN_LEVEL
from pytest_packbench.packs.tariff.notation import dotted, is_under, parse_code, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_packbench.packs.tariff.edition import Edition
    from pytest_packbench.packs.tariff.model import Change, Savings, SavingTarget, TariffExpected

BASE_RATE = "base_rate"
OPTIMIZED_RATE = "optimized_rate"
TARGET = "savings_target"
LEVER = "savings_lever"
SIZE = "savings_size"

RATE_TOLERANCE = 0.005 + 1e-9
"""How far a stated rate may be from the schedule's, percentage points."""
DELTA_TOLERANCE = 0.05 + 1e-9
"""How far a stated difference of two rates may be from the schedule's, percentage points; one decimal is enough."""

UNLAWFUL = frozenset({"description", "valuation"})
"""Kinds of changes that do not change the goods (19 U.S.C. 1592)."""

_AD_VALOREM = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_WORDED = "text"
_HIGHEST_PCT = 350.0
"""The highest percentage of the schedule; a specific rate does not come to more."""
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_ARROW = re.compile(r"\s*(?:-+>|=+>|\u2192)\s*")
_SENTENCE = re.compile(r"[.;!\n]+")
_NAMED = re.compile(r"\s*:\s*")
_MARKS = " .\"'`"
_DUTY = r"(?:the\s)?(?:duty\srate|rate\sof\sduty|duty|rate)"
# the whole of a sentence by which a mutation says that it saves nothing
_DENIAL = re.compile(
    rf"""
    none | zero | nil | 0 | n/a | nothing | unchanged
    | (?: saves|gains|reduces ) \s nothing | (?:the\s)? same \s {_DUTY}
    | no \s (?: (?: further|additional|lawful|possible|duty ) \s )? (?: savings?|reduction|change|difference|effect )
      (?: \s (?: in|of|on|to ) \s {_DUTY} )? (?: \s (?: (?: is|are ) \s )? (?: expected|possible|available|found ) )?
    | (?: {_DUTY} \s )? (?: does\snot|doesn't|will\snot|won't|can\s?not|can't ) \s
      (?: be \s )? (?: reduced? | lower(?:ed)? | changed? ) (?: \s {_DUTY} )?
    | {_DUTY} \s (?: stays|remains|is ) \s (?: the\ssame | unchanged )
    """,
    re.VERBOSE,
)
_OFFERS = frozenset(
    {
        *("what_if_candidates", "what_ifs", "what_if", "mutations", "mutation_candidates", "selected_levers"),
        *("levers", "savings", "savings_opportunities"),
    }
)
"""The names under which an answer lists changes of the goods."""
_OFFER_FIELDS = frozenset(
    {
        *("expected_hts", "expected_hts_change", "hts_code", "change", "change_id"),
        *("estimated_duty_delta", "expected_duty_rate_pct", "duty_rate_pct"),
    }
)
_IN_DOSSIER = frozenset({"what_if_candidates", "mutations", "savings_estimate"})
"""The parts of the dossier that have fields of their own in `StatedSavings`."""
_PER_UNIT = "estimated_savings_per_unit"
_ESTIMATE = "savings_estimate"
# numbers of an estimate that are no amounts
_COUNTS = frozenset({"units", "annual_units", "annual_volume", "volume", "quantity", "confidence"})
_NO_OFFERS = frozenset({"trace", "gri_trace", "citations", "request"})


class StatedRates(NamedTuple):
    """The code and the rates of one part of an answer, percent of value; None where they are missing.

    Attributes:
        code: the code as written.
        total: the total rate of the breakdown.
        stated: the rate beside the breakdown.
        base: the base rate of the breakdown.
        added: the sum of the additional duties that are listed; None if one of them has no readable rate.
        preference: the preferential rate of the breakdown.
        lowered: whether an additional duty is negative.
        free: whether the part calls its duty free.
    """

    code: str | None = None
    total: float | None = None
    stated: float | None = None
    base: float | None = None
    added: float | None = 0.0
    preference: float | None = None
    lowered: bool = False
    free: bool = False

    @property
    def known(self) -> list[float]:
        """The rates that are stated, in whatever place."""
        return [rate for rate in (self.total, self.stated, self.base) if rate is not None]

    @property
    def claimed_base(self) -> float | None:
        """The base rate as stated, else the total without the additional duties that are listed."""
        total = self.stated if self.total is None else self.total
        if self.base is not None or total is None or self.added is None:
            return self.base
        return total - self.added


class Offer(NamedTuple):
    """A change of the goods that an answer offers: a what-if, a lever or a mutation.

    Attributes:
        place: where it stands, such as `what_if_candidates/0`.
        id: its short name; empty without one.
        change: the change of the request that it names; empty without one.
        code: the code after the change, as written.
        rate: the rate after the change, percent of value.
        delta: the difference to the rate of the baseline, percentage points.
        note: what a mutation says of its saving.
        kind: what changes; one of `UNLAWFUL` does not change the goods.
    """

    place: str
    id: str = ""
    change: str = ""
    code: str | None = None
    rate: float | None = None
    delta: float | None = None
    note: str = ""
    kind: str = ""


class StatedSavings(NamedTuple):
    """What an answer says of rates and savings.

    Attributes:
        baseline: the goods as they are.
        optimized: the goods after the best change; None without one.
        best: the what-if that the optimised code names; empty without one.
        what_ifs: the what-ifs of the dossier.
        levers: the selected levers.
        mutations: the mutations of the dossier.
        amounts: amounts of money that are saved, by name.
        elsewhere: changes of the goods in any other place.
        articles: the rates of the articles of an answer about several.
    """

    baseline: StatedRates = StatedRates()
    optimized: StatedRates | None = None
    best: str = ""
    what_ifs: tuple[Offer, ...] = ()
    levers: tuple[Offer, ...] = ()
    mutations: tuple[Offer, ...] = ()
    amounts: tuple[tuple[str, float], ...] = ()
    elsewhere: tuple[Offer, ...] = ()
    articles: tuple[StatedRates, ...] = ()

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Every change of the goods that the answer offers, wherever it stands."""
        return (*self.what_ifs, *self.levers, *self.mutations, *self.elsewhere)


NOTHING_STATED = StatedSavings()


class SavingsInput(NamedTuple):
    """What a saving is judged by.

    Attributes:
        expected: the expectations of the case.
        changes: the closed list of changes that the request carries.
        stated: what the answer says.
        edition: the schedule of the suite; without one no rate is computed.
        of_baseline: whether the suite scores the goods as they are.
        is_right: whether the scored code is a preferred or an allowed one.
    """

    expected: TariffExpected
    changes: Sequence[Change]
    stated: StatedSavings
    edition: Edition | None
    of_baseline: bool
    is_right: bool


def read_savings(dossier: object, levers: object, result: object = None) -> StatedSavings:
    """Read what an answer says of rates and savings; whatever has another form than expected is no number and no text.

    Args:
        dossier: the dossier of the answer.
        levers: its selected levers.
        result: the answer, in which changes may stand elsewhere.
    """
    plain = _object(dossier)
    optimized, estimate = _object(plain.get("optimized")), plain.get(_ESTIMATE)
    baseline, part = _rates(_object(plain.get("baseline"))), _rates(optimized)
    is_stated = part.code is not None or bool(part.known) or part.preference is not None or part.lowered
    articles = plain.get("articles")
    items = articles if isinstance(articles, list) else []
    stated = StatedSavings(
        baseline=baseline,
        optimized=part if is_stated else None,
        best=_text(optimized.get("what_if_id")),
        what_ifs=_offers(plain.get("what_if_candidates"), "what_if_candidates"),
        levers=_offers(levers, "selected_levers"),
        mutations=_offers(plain.get("mutations"), "mutations"),
        amounts=(*_amounts(_PER_UNIT, optimized.get(_PER_UNIT)), *_amounts(_ESTIMATE, estimate)),
        articles=tuple(_article_rates(_object(item)) for item in items),
    )
    offers: list[Offer] = []
    amounts = list(stated.amounts)
    for place, key, value in _elsewhere(result, dossier, levers):
        if key in {_PER_UNIT, _ESTIMATE}:
            amounts += _amounts(place, value)
        elif key != "optimized":
            offers += _offers(value, place)
        elif _is_new(_rates(_object(value)), stated):
            offers.append(_offer(_object(value), place))
    return stated._replace(amounts=tuple(amounts), elsewhere=tuple(offers))


def _article_rates(item: dict[str, object]) -> StatedRates:
    nested = _object(item.get("baseline"))
    part = _rates(nested or item)
    return part if part.code is not None else part._replace(code=_text(item.get("hts_code")) or None)


def _is_new(part: StatedRates, stated: StatedSavings) -> bool:
    """Return whether an optimised part in another place recommends more than the baseline and the dossier's own."""
    own = stated.optimized
    if own is not None and not _differs(part.code or own.code, own.code) and set(part.known) <= set(own.known):
        return False
    return _differs(part.code or stated.baseline.code, stated.baseline.code) or any(
        _optimized_claims(stated.baseline, part)
    )


def _amounts(name: str, value: object) -> Iterator[tuple[str, float]]:
    """Yield the amounts of an estimate: its numbers, except those that count something."""
    values = value.items() if isinstance(value, dict) else [("", value)]
    for key, number in values:
        amount = _number(number)
        if amount is not None and key not in _COUNTS:
            yield (key or name, amount)


def _elsewhere(result: object, dossier: object, levers: object) -> Iterator[tuple[str, str, object]]:
    """Yield the place, the name and the value of everything that is offered or saved in an unusual place of an answer.

    Of the iterations only the last counts, for the others were rejected. A second dossier under `proof` and its levers
    are compared with the first, not read.
    """
    top = _object(result)
    read = _OwnParts(top, dossier, levers)
    pending: list[tuple[str, object]] = [("", top)]
    while pending:
        place, value = pending.pop()
        if isinstance(value, list):
            pending += [(f"{place}/{index}", item) for index, item in enumerate(value)]
        for key, child in value.items() if isinstance(value, dict) else ():
            inner = f"{place}/{key}".lstrip("/")
            if not child or key in _NO_OFFERS or read.has(place, value, key, child):
                continue
            if _is_offered(place, key, child):
                yield inner, key, child
            elif key == "iterations" and isinstance(child, list):
                pending.append((f"{inner}/{len(child) - 1}", child[-1]))
            elif isinstance(child, (dict, list)):
                if key == "optimized" and isinstance(child, dict) and value is not dossier:
                    yield inner, key, child
                pending.append((inner, child))


class _OwnParts(NamedTuple):
    """The parts of an answer that have fields of their own in `StatedSavings`."""

    top: dict[str, object]
    dossier: object
    levers: object

    def has(self, place: str, parent: object, key: str, child: object) -> bool:
        """Return whether a child of an object is one of them, or belongs to a second dossier."""
        if key == "tariff_dossier":
            return child is not self.dossier and (parent is self.top or parent is self.top.get("proof"))
        if key == "selected_levers":
            return child is self.levers or place in {"lever_proof", "proof/lever_proof"}
        if key == _PER_UNIT:
            return parent is _object(self.dossier).get("optimized")
        return parent is self.dossier and key in _IN_DOSSIER


def _is_offered(place: str, key: str, value: object) -> bool:
    """Return whether a value has changes of the goods or amounts of money."""
    if key in {_PER_UNIT, _ESTIMATE} or (key in _OFFERS and isinstance(value, (list, dict))):
        return True
    return place.endswith("lever_proof") and _looks_offered(value)


def _looks_offered(value: object) -> bool:
    """Return whether a value is a change of the goods, or a list of some."""
    items = value if isinstance(value, list) else [value]
    return any(_OFFER_FIELDS & _object(item).keys() for item in items)


def _rates(part: dict[str, object]) -> StatedRates:
    breakdown = _object(part.get("duty_breakdown"))
    layers = breakdown.get("applied_additional_duties") or []
    added = [_layer(_object(layer)) for layer in layers] if isinstance(layers, list) else [None]
    base, total = (
        _number(breakdown.get(key)) if breakdown.get(key) is not None else _number(part.get(key))
        for key in ("base_rate_pct", "total_rate_pct")
    )
    return StatedRates(
        code=_text(part.get("hts_code")) or None,
        total=total,
        stated=_number(part.get("duty_rate_pct")),
        base=base,
        added=None if None in added else math.fsum(pct for pct in added if pct is not None),
        preference=_number(breakdown.get("preferential_rate_pct")),
        lowered=any(pct is not None and pct < 0 for pct in added),
        free=readable(_text(part.get("duty_basis"))).replace("-", " ") in {"free", "duty free"},
    )


def _layer(layer: dict[str, object]) -> float | None:
    pct = _number(layer.get("pct"))
    return _number(layer.get("rate_pct")) if pct is None else pct


def _offers(values: object, name: str) -> tuple[Offer, ...]:
    if isinstance(values, dict):
        return (_offer(values, name),)
    items = values if isinstance(values, (list, tuple)) else []
    return tuple(_offer(_object(item), f"{name}/{index}") for index, item in enumerate(items))


def _offer(plain: dict[str, object], place: str) -> Offer:
    codes = (_text(plain.get(key)) for key in ("expected_hts", "expected_hts_change", "hts_code"))
    rates = (_worded_number(plain.get(key)) for key in ("expected_duty_rate_pct", "duty_rate_pct"))
    code = next((code for code in codes if code), None)
    return Offer(
        place=place,
        id=_text(plain.get("id")) or _text(plain.get("what_if_id")),
        change=_text(plain.get("change")) or _text(plain.get("change_id")),
        # "A -> B" leads to B
        code=None if code is None else _ARROW.split(code)[-1],
        rate=next((rate for rate in rates if rate is not None), None),
        delta=_worded_number(plain.get("estimated_duty_delta")),
        note=_text(plain.get("expected_savings_note")),
        kind=_text(plain.get("kind")),
    )


def _worded_number(value: object) -> float | None:
    """Return a number, or the first one of a text such as `-5 percentage points`; a text claims as much as a number."""
    if not isinstance(value, str):
        return _number(value)
    text = unicodedata.normalize("NFKC", value).replace("\u2212", "-")
    found = _NUMBER.search(text)
    return _number(float(found[0])) if found else 0.0 if readable(text) == "free" else None


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def claims(stated: StatedSavings) -> list[str]:
    """Describe every claim of lower duty in an answer but for its levers and what-ifs, briefly.

    A lower rate is one, and so is a rate that is left out beside an optimised one: what is not said can't be compared.
    """
    base = stated.baseline
    found: list[str] = []
    if stated.optimized is not None:
        found += _optimized_claims(base, stated.optimized)
    if _WORD.search(stated.best) and _words(stated.best) not in (["none"], ["n", "a"]):
        found.append(f"optimised by the what-if {_shown(stated.best)}")
    breakdown = [rate for rate in (base.total, base.base) if rate is not None]
    if base.stated is not None and breakdown and _is_below(base.stated, min(breakdown)):
        found.append(f"rate {base.stated:g} %, but {min(breakdown):g} % in the breakdown")
    if base.preference is not None and (not base.known or _is_below(base.preference, max(base.known))):
        found.append(f"preferential rate {base.preference:g} %")
    if base.lowered:
        found.append("negative additional duty")
    found += [f"mutation{at}" for offer in stated.mutations if (at := _mutation_claim(offer, base)) is not None]
    found += [f"{name} {amount:g}" for name, amount in stated.amounts if amount > 0]
    return [*found, *dict.fromkeys(f"changes in {_list_of(offer)}" for offer in stated.elsewhere)]


def _list_of(offer: Offer) -> str:
    """Return where the list of an offer stands."""
    name, _, index = offer.place.rpartition("/")
    return name if index.isdigit() else offer.place


def _optimized_claims(base: StatedRates, best: StatedRates) -> Iterator[str]:
    stated = [*best.known, *([] if best.preference is None else [best.preference])]
    lowest, highest = min(stated, default=None), _total(base)
    if best.lowered:
        yield "negative additional duty on the optimised code"
    if lowest is not None and highest is None:
        yield f"optimised rate {lowest:g} % without a rate of the baseline"
    elif lowest is not None and highest is not None:
        # the base rate of an optimised code with additional duties is lower than the baseline's total
        compared = _total(best) if best.base is not None else lowest
        compared = lowest if compared is None else compared
        if _is_below(compared, highest) or _is_below(lowest, min(base.known)):
            yield f"optimised rate {min(compared, lowest):g} % below {highest:g} %"
    elif _differs(best.code, base.code):
        yield f"optimised code {_shown(best.code)} without its rate"


def _total(part: StatedRates) -> float | None:
    return max(part.known, default=None)


def _mutation_claim(offer: Offer, base: StatedRates) -> str | None:
    """Return what a mutation claims; None if it says itself that it saves nothing."""
    rate, total = offer.rate, _total(base)
    if offer.delta is not None and offer.delta < 0:
        return f" by {offer.delta:+g} percentage points"
    if rate is not None and (total is None or _is_below(rate, total)):
        return f" at {rate:g} %" if total is None else f" at {rate:g} % below {total:g} %"
    if offer.code is not None and base.code is not None and _differs(offer.code, base.code):
        return f" to {_shown(offer.code)}"
    has_number = rate is not None or offer.delta is not None
    return None if _denies(offer.note) or (has_number and not offer.note.strip()) else ""


def _denies(note: str) -> bool:
    """Return whether each sentence of a note says that nothing is saved, and no more."""
    sentences = [readable(sentence) for sentence in _SENTENCE.split(note)]
    said = [sentence for sentence in sentences if sentence]
    return bool(said) and all(_DENIAL.fullmatch(sentence) for sentence in said)


def judge_savings(inputs: SavingsInput) -> Iterator[Term]:
    """Yield a hard fail for each kind of untruth about rates and savings, and notes on what can't be computed."""
    if inputs.is_right:
        yield from _terms(BASE_RATE, _base_faults(inputs))
        yield from _additions(inputs.stated.baseline)
    if inputs.expected.savings is not None:
        yield from _asked_saving(inputs)
    else:
        yield from _unasked_saving(inputs)
    if _are_judged(inputs):
        yield from _terms(FORBIDDEN_LEVEL, _forbidden_offers(inputs))


def _are_judged(inputs: SavingsInput) -> bool:
    """Return whether changes that an answer offers are judged where the case asks for none."""
    return inputs.of_baseline or bool(inputs.changes)


def _unasked_saving(inputs: SavingsInput) -> Iterator[Term]:
    stated = inputs.stated
    # of several articles, an optimised code that none of them has counts as one more
    is_one = inputs.expected.articles is None
    faults, levers, rates = list(_unexplained(inputs)) if is_one else [], list[str](), list[str]()
    # with `no_savings_expected`, every claim fails as such
    if _are_judged(inputs) and not inputs.expected.no_savings_expected:
        _, levers, rates = _other_offers(inputs, None, checked=stated.best if faults else "")
        if stated.optimized is None:
            levers += [f"{name} {amount:g}, which no change explains" for name, amount in stated.amounts if amount > 0]
    if stated.optimized is not None and is_one:
        yield from _terms(TARGET, _code_faults(inputs))
    yield from _terms(LEVER, [*faults, *levers])
    if stated.optimized is not None:
        rates = [*_optimized_faults(inputs, None, required=False), *rates]
    yield from _terms(OPTIMIZED_RATE, rates)


def _forbidden_offers(inputs: SavingsInput) -> Iterator[str]:
    """Yield each forbidden code to which a change is said to lead, except the optimised one, which counts anyway."""
    stated, asked = inputs.stated, inputs.expected.savings
    best = stated.optimized.code if stated.optimized is not None else None
    for offer in stated.offers:
        code = offer.code or ""
        matched = next((prefix for prefix in inputs.expected.must_not_hts or () if is_under(code, prefix)), None)
        is_target = asked is not None and any(is_under(code, target.code) for target in asked.targets)
        if matched is not None and not is_target and _differs(code, best) and _is_claim(offer, stated.baseline):
            yield f"{offer.place} leads to {_shown(code)}, which is under the forbidden code {matched}"


def _terms(name: str, faults: Iterable[str]) -> Iterator[Term]:
    listed = list(faults)
    if listed:
        more = f", and {len(listed) - 1} more" if len(listed) > 1 else ""
        yield Term(name=name, effect="zero", detail=f"{listed[0]}{more}")


def _additions(base: StatedRates) -> Iterator[Term]:
    claimed = base.claimed_base
    more = 0.0 if claimed is None else max(base.known, default=claimed) - claimed
    if more > RATE_TOLERANCE:
        detail = f"additional duties of {more:g} percentage points are not judged"
        yield Term(name="additional_duties", effect="note", detail=detail)


def _base_faults(inputs: SavingsInput) -> Iterator[str]:
    """Yield why the rates of the goods as they are are not those of the schedule, as far as they can be computed."""
    stated = inputs.stated
    yield from _rate_faults(inputs, stated.baseline, required=inputs.expected.savings is not None)
    for article in stated.articles:
        yield from _rate_faults(inputs, article, required=False)


def _rate_faults(inputs: SavingsInput, base: StatedRates, *, required: bool) -> Iterator[str]:
    general = general_rate(inputs.edition, base.code)
    claimed = base.claimed_base
    wrong: list[str] = []
    if general is not None:
        if claimed is not None:
            wrong += _against(general, claimed, f"the base rate of {_shown(base.code)}")
        elif general.pct is not None and required and not base.known:
            wrong.append(f"no rate of the baseline; the schedule has {general.text}")
        if base.free and general.pct != 0.0 and general.text != _WORDED:
            wrong.append(f"{_shown(base.code)} is called free; the schedule has {general.text}")
        if not wrong:
            wrong += _low_rates(inputs, base, general)
    if inputs.edition is not None and not wrong:
        wrong += _sum_faults(inputs, base)
    yield from wrong


def _low_rates(inputs: SavingsInput, base: StatedRates, general: GeneralRate) -> Iterator[str]:
    """Yield the rates below the general one, which only a preference that the case lists may lower."""
    listed = inputs.expected.expected_duty_total_rate_pct
    for rate in (base.total, base.stated):
        is_listed = rate is not None and listed is not None and _same(rate, listed)
        if rate is not None and not is_listed and general.pct is not None and rate < general.pct - RATE_TOLERANCE:
            yield f"{_shown(base.code)} pays {rate:g} % in the answer; the schedule has {general.text}"


def _sum_faults(inputs: SavingsInput, base: StatedRates) -> Iterator[str]:
    """Yield why the rates of a part do not add up: the total is the base rate, or that and the additional duties."""
    claimed, listed = base.claimed_base, inputs.expected.expected_duty_total_rate_pct
    if base.lowered:
        yield "an additional duty is negative"
    if claimed is None:
        return
    total = base.total if base.total is not None else claimed + (base.added or 0.0)
    sums = [claimed, *([] if listed is None else [listed])]
    if base.added is None:
        # how much a duty without a rate adds is not known
        sums += [max(total, claimed)]
    else:
        sums += [claimed + base.added]
    if not any(_same(total, added) for added in sums):
        yield f"the total is {total:g} %, but base rate and additional duties are {max(sums):g} %"
    if base.stated is not None and not any(_same(base.stated, rate) for rate in (claimed, total)):
        yield f"the rate is {base.stated:g} %, but {total:g} % in the breakdown"


def _asked_saving(inputs: SavingsInput) -> Iterator[Term]:
    asked, best = inputs.expected.savings, inputs.stated.optimized
    targets = () if asked is None else asked.targets
    code = None if best is None else parse_code(best.code or "")
    accepted = [target for target in targets if code is not None and is_under(code, target.code)]
    if best is None or best.code is None:
        listed = ", ".join(dict.fromkeys(dotted(target.code) for target in targets))
        yield from _terms(TARGET, [f"no optimised code; expected one under {listed}"])
        return
    faults = list(_code_faults(inputs))
    if not faults and not accepted:
        listed = ", ".join(dict.fromkeys(dotted(target.code) for target in targets))
        faults = [f"no change of the goods leads to {_shown(best.code)}; expected a code under {listed}"]
    other_targets, other_levers, other_rates = _other_offers(inputs, targets, checked=inputs.stated.best)
    yield from _terms(TARGET, [*faults, *other_targets])
    unexplained = _lever_fault(inputs, {target.change for target in accepted}) if accepted and not faults else ""
    yield from _terms(LEVER, [*([unexplained] if unexplained else []), *other_levers])
    if accepted and not faults:
        rate_faults = _optimized_faults(inputs, accepted[0].rate_pct, required=True)
        # against the rate of a wrong code nothing is saved or lost
        yield from _terms(OPTIMIZED_RATE, [*rate_faults, *(other_rates if inputs.is_right else ())])
        yield from _size(inputs, accepted[0].rate_pct) if inputs.is_right else ()


def _size(inputs: SavingsInput, preference: float | None) -> Iterator[Term]:
    asked, stated = inputs.expected.savings, inputs.stated
    if asked is None or stated.optimized is None:
        return
    base, best = (general_rate(inputs.edition, part.code) for part in (stated.baseline, stated.optimized))
    before = base.pct if base is not None else stated.baseline.claimed_base
    after = preference if preference is not None else best.pct if best is not None else stated.optimized.claimed_base
    if before is None or after is None:
        yield Term(name=SIZE, effect="note", detail="not computable: a rate is missing or not ad valorem")
        return
    saving = before - after
    detail = f"saves {saving:g} of {before:g} percentage points, expected at least {asked.least:g}"
    yield Term(name=SIZE, effect="zero" if saving < asked.least - RATE_TOLERANCE else "note", detail=detail)


def _code_faults(inputs: SavingsInput) -> Iterator[str]:
    """Yield why the optimised code is no code of the schedule; where it is the scored one, its match says so."""
    best = inputs.stated.optimized
    if best is None or best.code is None or not (inputs.of_baseline or inputs.expected.savings is not None):
        return
    plain = parse_code(best.code)
    if plain is None:
        yield f"the optimised code {_shown(best.code)} is not one code"
    elif inputs.edition is not None and inputs.edition.existing(plain) != plain:
        yield f"the optimised code {_shown(best.code)} is not in the schedule"


def _unexplained(inputs: SavingsInput) -> Iterator[str]:
    """Yield why an optimised code that nobody asked for is unexplained."""
    stated = inputs.stated
    best = stated.optimized
    if not _are_judged(inputs) or best is None:
        return
    if (best.code is not None and _differs(best.code, stated.baseline.code)) or any(
        _optimized_claims(stated.baseline, best)
    ):
        fault = _lever_fault(inputs, None)
        if fault:
            yield fault


def _lever_fault(inputs: SavingsInput, needed: set[str] | None) -> str:
    """Return why no lever explains the optimised code; empty if one does.

    Args:
        inputs: what the answer says and the request allows.
        needed: the changes by which the code is reached, any of them; None for any change of the request.
    """
    stated = inputs.stated
    code = stated.optimized.code if stated.optimized is not None else None
    if not stated.best:
        offers = [
            offer
            for offer in (*stated.what_ifs, *stated.levers, *stated.mutations)
            if offer.code is None or code is None or not _differs(offer.code, code)
        ]
        return _naming_fault(inputs, offers, needed) if offers else f"no lever leads to {_shown(code)}"
    if not any(offer.id == stated.best for offer in stated.what_ifs):
        return f"the optimised code names the what-if {_shown(stated.best)}, which the answer does not have"
    chosen = [offer for offer in (*stated.what_ifs, *stated.levers) if offer.id == stated.best]
    other = next((offer for offer in chosen if offer.code and _differs(offer.code, code)), None)
    if other is not None:
        return f"{other.place} {_shown(stated.best)} leads to {_shown(other.code)}, not to {_shown(code)}"
    return _naming_fault(inputs, chosen, needed)


def _naming_fault(inputs: SavingsInput, offers: Sequence[Offer], needed: set[str] | None) -> str:
    """Return why the offers that lead to the optimised code do not name its change; empty if they do."""
    unlawful = next((offer for offer in offers if offer.kind in UNLAWFUL), None)
    if unlawful is not None:
        return f"{unlawful.place} changes only the {unlawful.kind}, not the goods"
    if not inputs.changes:
        return f"{offers[0].place} changes the goods, but the request lists no change"
    names = [_named(offer, inputs) for offer in offers]
    fits = [name is not None and (needed is None or name in needed) for name in names]
    if all(fits) if inputs.stated.best else any(fits):
        return ""
    wanted = f"; expected {' or '.join(sorted(needed))}" if needed else ""
    wrong = names[fits.index(False)]
    if wrong is not None:
        return f"{offers[fits.index(False)].place} names the change {wrong}{wanted}"
    first = offers[fits.index(False)]
    return f"{first.place} names {_shown(first.change)}, no change of the request{wanted}"


def _is_claim(offer: Offer, base: StatedRates) -> bool:
    """Return whether an offer claims a saving, by its rate, its difference or, without either, by standing there."""
    lowest = min(base.known, default=None)
    if offer.rate is not None and (lowest is None or _is_below(offer.rate, lowest)):
        return True
    if offer.delta is not None:
        return offer.delta < 0
    return offer.rate is None and not _denies(offer.note)


def _other_offers(
    inputs: SavingsInput, targets: Sequence[SavingTarget] | None, *, checked: str
) -> tuple[list[str], list[str], list[str]]:
    """Return the faults of the other changes that an answer offers: of their codes, their changes and their rates.

    Args:
        inputs: what the answer says and the request allows.
        targets: the savings that the case accepts; None where it asks for none, and any change of the request counts.
        checked: the id of the what-if that the optimised code names, whose change and code are judged with it.
    """
    stated = inputs.stated
    codes, levers, rates = list[str](), list[str](), list[str]()
    for offer in stated.offers:
        name = _named(offer, inputs)
        reached = [target for target in targets or () if target.change == name]
        rates += _offered_rates(inputs, offer, reached)
        is_checked = checked and offer.id == checked and offer.code and offer in (*stated.what_ifs, *stated.levers)
        if is_checked or not _is_claim(offer, stated.baseline):
            continue
        leads = offer.code and any(is_under(offer.code, target.code) for target in targets or ())
        if offer.kind in UNLAWFUL:
            levers.append(f"{offer.place} changes only the {offer.kind}, not the goods")
        elif offer in stated.mutations and leads and not offer.change:
            # a mutation has no field for its change
            continue
        elif name is None:
            levers.append(f"{offer.place} names {_shown(offer.change)}, no change of the request")
        elif targets is not None and not reached:
            levers.append(f"{offer.place}: the change {name} saves nothing")
        elif reached and offer.code and not any(is_under(offer.code, target.code) for target in reached):
            codes.append(f"{offer.place}: the change {name} does not lead to {_shown(offer.code)}")
    return codes, levers, rates


def _offered_rates(inputs: SavingsInput, offer: Offer, reached: Sequence[SavingTarget]) -> Iterator[str]:
    """Yield the rate and the difference of an offer that are not those of the schedule."""
    codes = [offer.code] if offer.code else [target.code for target in reached]
    deltas = [_delta(inputs, code, reached) for code in codes]
    known = [delta for delta in deltas if delta is not None]
    if not known or len(known) < len(deltas):
        return
    if offer.delta is not None and not any(abs(delta - offer.delta) <= DELTA_TOLERANCE for delta in known):
        yield f"{offer.place}: {offer.delta:+g} percentage points, by the schedule {known[0]:+g}"
    base = general_rate(inputs.edition, inputs.stated.baseline.code)
    before = 0.0 if base is None or base.pct is None else base.pct
    # additional duties of the baseline may apply to the changed goods too
    added = max(inputs.stated.baseline.added or 0.0, 0.0)
    if offer.rate is not None and not any(
        _same(offer.rate, before + delta) or before + delta < offer.rate <= before + delta + added + RATE_TOLERANCE
        for delta in known
    ):
        yield f"{offer.place}: {offer.rate:g} %, by the schedule {before + known[0]:g} %"


def _delta(inputs: SavingsInput, code: str | None, reached: Sequence[SavingTarget]) -> float | None:
    """Return the difference that a code makes by the schedule, percentage points; None if it can't be computed.

    Args:
        inputs: the answer and its schedule.
        code: the code after the change.
        reached: the targets of the change, of which one may have a preferential rate.
    """
    before, after = (general_rate(inputs.edition, part) for part in (inputs.stated.baseline.code, code))
    preferences = (target.rate_pct for target in reached if code and is_under(code, target.code))
    rate = next((pct for pct in preferences if pct is not None), after.pct if after is not None else None)
    return None if before is None or before.pct is None or rate is None else rate - before.pct


def _named(offer: Offer, inputs: SavingsInput) -> str | None:
    """Return the change of the request that an offer names, by its id or its whole text; None if it names none.

    A lever without a change of its own has that of the what-if whose id it has.
    """
    text = offer.change or next(
        (what_if.change for what_if in inputs.stated.what_ifs if offer.id and what_if.id == offer.id), ""
    )
    return named_change(text, inputs.changes)


def named_change(text: str, changes: Iterable[Change]) -> str | None:
    """Return the id of the change that a text names; None if it names none.

    It names one by this id, by the whole of its text, or by both: `id: text`.
    """
    name, *rest = _NAMED.split(text, maxsplit=1)
    for change in changes:
        whole = readable(change.text).strip(_MARKS)
        by_both = rest and _words(change.id) == _words(name) and readable(rest[0]).strip(_MARKS) == whole
        if _words(change.id) == _words(text) or by_both or (text and whole == readable(text).strip(_MARKS)):
            return change.id
    return None


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", _CAMEL.sub(" ", text)).casefold())


def _optimized_faults(inputs: SavingsInput, preference: float | None, *, required: bool) -> Iterator[str]:
    """Yield why the rates of the optimised code are not those of the schedule.

    Args:
        inputs: what the answer says.
        preference: the rate of the code in percent, where it is not the general one.
        required: whether a rate has to be stated.
    """
    best = inputs.stated.optimized
    # a rate without a code is one of the goods as they are
    code = None if best is None else best.code or inputs.stated.baseline.code
    general = general_rate(inputs.edition, code)
    rate = general if preference is None else GeneralRate(f"{preference:g}%", preference)
    if best is None or rate is None:
        return
    if not best.known and required and rate.pct is not None:
        yield f"no rate of the optimised code; the schedule has {rate.text}"
    what = f"the rate of {_shown(code)}"
    if best.base is not None and preference is None:
        yield from _against(rate, best.base, what)
    # additional duties of the baseline may or may not apply to the changed goods
    added = max(best.added or 0.0, inputs.stated.baseline.added or 0.0)
    for value in (best.total, best.stated):
        if value is not None and not (rate.pct is not None and rate.pct < value <= rate.pct + added + RATE_TOLERANCE):
            yield from _against(rate, value, what)


def _against(rate: GeneralRate, claimed: float, what: str) -> Iterator[str]:
    """Yield why a claimed rate can't be a rate of the schedule."""
    if rate.pct is not None:
        if not _same(claimed, rate.pct):
            yield f"{what} is {claimed:g} %; the schedule has {rate.text}"
    elif rate.text != _WORDED:
        # a specific or compound rate is a percentage only for a known value, and then above its ad valorem part
        least = max((float(pct) for pct in _AD_VALOREM.findall(rate.text)), default=0.0)
        if claimed <= 0 or _is_below(claimed, least) or claimed > _HIGHEST_PCT:
            yield f"{what} is {claimed:g} %; the schedule has {rate.text}"
    elif claimed < 0 or claimed > _HIGHEST_PCT:
        yield f"{what} is {claimed:g} %; a rate is neither negative nor above {_HIGHEST_PCT:g} %"


def describe_expected(savings: Savings) -> str:
    """Describe the savings that a case accepts, in one line."""
    targets = " or ".join(f"{target.code} by {target.change}" for target in savings.targets)
    return f"{targets}, at least {savings.least:g} percentage points"


def describe_stated(stated: StatedSavings) -> str:
    """Describe the saving that an answer offers, in one line."""
    best = stated.optimized
    if best is None or best.code is None:
        return "none"
    changes = [offer.change for offer in stated.what_ifs if offer.id == stated.best and offer.change]
    by = f" by {', '.join(map(_shown, changes))}" if changes else ", no change named"
    rates = (min(stated.baseline.known, default=None), min(best.known, default=None))
    before, after = ("not known" if rate is None else f"{rate:g} %" for rate in rates)
    return f"{_shown(best.code)}{by}, {before} to {after}"


def general_rate(edition: Edition | None, code: str | None) -> GeneralRate | None:
    """Return the general rate of a code as it was written; None without a schedule, or if it has none there."""
    plain = parse_code(code or "")
    return None if edition is None or plain is None else edition.rate(plain)


def _differs(code: str | None, other: str | None) -> bool:
    """Return whether two codes differ; a code does not differ from a longer one below it."""
    left, right = parse_code(code or ""), parse_code(other or "")
    if left is None or right is None:
        return code != other
    return not (left.startswith(right) or right.startswith(left))


def _same(left: float, right: float) -> bool:
    return abs(left - right) <= RATE_TOLERANCE


def _is_below(left: float, right: float) -> bool:
    return left < right - 1e-9


def _shown(text: str | None) -> str:
    shown = text if text and text.isascii() and text.isprintable() and parse_code(text) else format_value(text)
    return shown.encode("utf-8", "backslashreplace").decode()
