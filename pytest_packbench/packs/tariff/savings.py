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
from pytest_packbench.model.score import Term
from pytest_packbench.packs.tariff.edition import GeneralRate
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
_FREE = "Free"
_DENIALS = ("cannot reduce", "no savings", "no saving", "unchanged")
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W_]+")


class StatedRates(NamedTuple):
    """The code and the rates of one part of an answer, percent of value; None where they are missing.

    Attributes:
        code: the code as written.
        total: the total rate of the breakdown.
        stated: the rate beside the breakdown.
        base: the base rate of the breakdown.
        added: the sum of the additional duties that are listed; None if one of them has no readable rate.
        preferred: whether the breakdown names a preferential rate.
    """

    code: str | None = None
    total: float | None = None
    stated: float | None = None
    base: float | None = None
    added: float | None = 0.0
    preferred: bool = False

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
        elsewhere: other places with changes of the goods, each described briefly.
    """

    baseline: StatedRates = StatedRates()
    optimized: StatedRates | None = None
    best: str = ""
    what_ifs: tuple[Offer, ...] = ()
    levers: tuple[Offer, ...] = ()
    mutations: tuple[Offer, ...] = ()
    amounts: tuple[tuple[str, float], ...] = ()
    elsewhere: tuple[str, ...] = ()


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


def read_savings(dossier: object, levers: object, results: Sequence[object] = ()) -> StatedSavings:
    """Read what an answer says of rates and savings; whatever has another form than expected is no number and no text.

    Args:
        dossier: the dossier of the answer.
        levers: its selected levers.
        results: the objects in which changes may stand elsewhere: the answer and its `proof`.
    """
    plain = _object(dossier)
    optimized, estimate = _object(plain.get("optimized")), _object(plain.get("savings_estimate"))
    part = _rates(optimized)
    amounts = (
        ("estimated_savings_per_unit", _number(optimized.get("estimated_savings_per_unit"))),
        *((name, _number(estimate.get(name))) for name in ("per_unit", "annualized")),
    )
    return StatedSavings(
        baseline=_rates(_object(plain.get("baseline"))),
        optimized=part if part.code is not None or part.known else None,
        best=_text(optimized.get("what_if_id")),
        what_ifs=_offers(plain.get("what_if_candidates"), "what_if_candidates"),
        levers=_offers(levers, "selected_levers"),
        mutations=_offers(plain.get("mutations"), "mutations"),
        amounts=tuple((name, amount) for name, amount in amounts if amount is not None),
        elsewhere=tuple(
            dict.fromkeys(name for result in results for name in _elsewhere(_object(result), dossier, levers))
        ),
    )


def _elsewhere(result: dict[str, object], dossier: object, levers: object) -> Iterator[str]:
    """Yield the places with changes of the goods in an answer, or in its `proof`, that no other field has."""
    yield from (key for key in ("what_if_candidates", "mutations") if result.get(key))
    lever_proof, other = _object(result.get("lever_proof")), result.get("tariff_dossier")
    if lever_proof.get("mutation_candidates"):
        yield "lever_proof/mutation_candidates"
    if lever_proof.get("selected_levers") and lever_proof["selected_levers"] is not levers:
        yield "proof/lever_proof"
    if isinstance(other, dict) and other is not dossier:
        hidden = read_savings(other, None)
        if hidden.what_ifs or claims(hidden):
            yield "proof/tariff_dossier"


def _rates(part: dict[str, object]) -> StatedRates:
    breakdown = _object(part.get("duty_breakdown"))
    layers = breakdown.get("applied_additional_duties") or []
    added = [_number(_object(layer).get("pct")) for layer in layers] if isinstance(layers, list) else [None]
    return StatedRates(
        code=_text(part.get("hts_code")) or None,
        total=_number(breakdown.get("total_rate_pct")),
        stated=_number(part.get("duty_rate_pct")),
        base=_number(breakdown.get("base_rate_pct")),
        added=None if None in added else math.fsum(pct for pct in added if pct is not None),
        preferred=breakdown.get("preferential_rate_pct") is not None,
    )


def _offers(values: object, name: str) -> tuple[Offer, ...]:
    items = values if isinstance(values, (list, tuple)) else []
    return tuple(_offer(_object(item), f"{name}/{index}") for index, item in enumerate(items))


def _offer(plain: dict[str, object], place: str) -> Offer:
    codes = (_text(plain.get(key)) for key in ("expected_hts", "expected_hts_change", "hts_code"))
    rates = (_number(plain.get(key)) for key in ("expected_duty_rate_pct", "duty_rate_pct"))
    return Offer(
        place=place,
        id=_text(plain.get("id")) or _text(plain.get("what_if_id")),
        change=_text(plain.get("change")),
        code=next((code for code in codes if code), None),
        rate=next((rate for rate in rates if rate is not None), None),
        delta=_number(plain.get("estimated_duty_delta")),
        note=_text(plain.get("expected_savings_note")),
        kind=_text(plain.get("kind")),
    )


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
    breakdown = [rate for rate in (base.total, base.base) if rate is not None]
    if base.stated is not None and breakdown and _is_below(base.stated, min(breakdown)):
        found.append(f"rate {base.stated:g} %, but {min(breakdown):g} % in the breakdown")
    found += [f"mutation{at}" for offer in stated.mutations if (at := _mutation_claim(offer, base)) is not None]
    found += [f"{name} {amount:g}" for name, amount in stated.amounts if amount > 0]
    return [*found, *(f"changes in {name}" for name in stated.elsewhere)]


def _optimized_claims(base: StatedRates, best: StatedRates) -> Iterator[str]:
    lowest, highest = min(best.known, default=None), _total(base)
    if lowest is not None and highest is None:
        yield f"optimised rate {lowest:g} % without a rate of the baseline"
    elif lowest is not None and highest is not None:
        # the base rate of an optimised code with additional duties is lower than the baseline's total
        compared = _total(best) if best.base is not None else lowest
        if compared is not None and (_is_below(compared, highest) or _is_below(lowest, min(base.known))):
            yield f"optimised rate {min(compared, lowest):g} % below {highest:g} %"
    elif _differs(best.code, base.code):
        yield f"optimised code {_shown(best.code)} without its rate"


def _total(part: StatedRates) -> float | None:
    return max(part.known, default=None)


def _mutation_claim(offer: Offer, base: StatedRates) -> str | None:
    """Return what a mutation claims; None if it says itself that it saves nothing."""
    rate, total = offer.rate, _total(base)
    if rate is not None and total is not None:
        return f" at {rate:g} % below {total:g} %" if _is_below(rate, total) else None
    note = offer.note.casefold()
    if rate is None and any(words in note for words in _DENIALS) and not _DIGIT.search(note):
        return None
    return f" at {rate:g} %" if rate is not None else ""


def judge_savings(inputs: SavingsInput) -> Iterator[Term]:
    """Yield a hard fail for each kind of untruth about rates and savings, and notes on what can't be computed."""
    if inputs.is_right:
        yield from _terms(BASE_RATE, _base_faults(inputs))
        yield from _additions(inputs.stated.baseline)
    if inputs.expected.savings is not None:
        yield from _asked_saving(inputs)
    elif inputs.stated.optimized is not None:
        yield from _terms(TARGET, _code_faults(inputs))
        yield from _terms(LEVER, _unexplained(inputs))
        yield from _terms(OPTIMIZED_RATE, _optimized_faults(inputs, None, required=False))


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
    """Yield why the rates of the baseline are not those of the schedule, as far as they can be computed."""
    base = inputs.stated.baseline
    general = general_rate(inputs.edition, base.code)
    claimed = base.claimed_base
    if general is not None:
        if claimed is not None:
            yield from _against(general, claimed, f"the base rate of {_shown(base.code)}")
        elif general.pct is not None and inputs.expected.savings is not None and not base.known:
            yield f"no rate of the baseline; the schedule has {general.text}"
    if inputs.edition is not None and claimed is not None and not base.preferred:
        total = base.total if base.total is not None else claimed + (base.added or 0.0)
        if _is_below(total, claimed):
            yield f"the total of {total:g} % is below the base rate of {claimed:g} %"
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
    other_targets, other_levers, other_rates = _other_offers(inputs, targets)
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
    applies = inputs.of_baseline or bool(inputs.changes)
    if not applies or best is None:
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
    chosen = [offer for offer in stated.what_ifs if offer.id == stated.best]
    other = next((offer for offer in chosen if offer.code and _differs(offer.code, code)), None)
    if other is not None:
        return f"the what-if {_shown(stated.best)} leads to {_shown(other.code)}, not to {_shown(code)}"
    if not chosen:
        return f"the optimised code names the what-if {_shown(stated.best)}, which the answer does not have"
    return _naming_fault(inputs, chosen, needed)


def _naming_fault(inputs: SavingsInput, offers: Sequence[Offer], needed: set[str] | None) -> str:
    """Return why the offers that lead to the optimised code do not name its change; empty if they do."""
    unlawful = next((offer for offer in offers if offer.kind in UNLAWFUL), None)
    if unlawful is not None:
        return f"{unlawful.place} changes only the {unlawful.kind}, not the goods"
    if needed is None and not inputs.changes:
        return ""
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


def _other_offers(inputs: SavingsInput, targets: Sequence[SavingTarget]) -> tuple[list[str], list[str], list[str]]:
    """Return the faults of the other changes that an answer offers: of their codes, their changes and their rates."""
    stated = inputs.stated
    codes, levers, rates = [], [], []
    for offer in (*stated.what_ifs, *stated.levers):
        name = _named(offer, inputs)
        reached = [target for target in targets if target.change == name]
        delta = _delta(inputs, offer.code, reached)
        if delta is not None and offer.delta is not None and abs(delta - offer.delta) > DELTA_TOLERANCE:
            rates.append(f"{offer.place}: {offer.delta:+g} percentage points, by the schedule {delta:+g}")
        if (offer.delta is not None and offer.delta >= 0) or (stated.best and offer.id == stated.best and offer.code):
            continue
        if offer.kind in UNLAWFUL:
            levers.append(f"{offer.place} changes only the {offer.kind}, not the goods")
        elif name is None:
            levers.append(f"{offer.place} names {_shown(offer.change)}, no change of the request")
        elif not reached:
            levers.append(f"{offer.place}: the change {name} saves nothing")
        elif offer.code and not any(is_under(offer.code, target.code) for target in reached):
            codes.append(f"{offer.place}: the change {name} does not lead to {_shown(offer.code)}")
    return codes, levers, rates


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
    """Return the id of the change that a text names, by this id or by the whole of its text; None if it names none."""
    for change in changes:
        if _words(change.id) == _words(text) or (text and readable(change.text) == readable(text)):
            return change.id
    return None


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


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
        if claimed <= 0 or _is_below(claimed, least):
            yield f"{what} is {claimed:g} %; the schedule has {rate.text}"
    elif claimed < 0:
        yield f"{what} is {claimed:g} %; a rate is not negative"


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
