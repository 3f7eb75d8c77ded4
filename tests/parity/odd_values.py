"""Values of the wrong type in a result, and limits of a case that our models reject, as the original reads them.

Each function rewrites a result, or the expectations of a case, into a readable one with the same meaning for the original.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_packbench.model.result import ResultError
from pytest_packbench.packs.tariff.outcome import read

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

HUGE = 1e300
"""A finite number that no rate comes near to."""
_LISTS = {
    "top": ("iterations",),
    "iteration": ("rejected_because", "sequence_violations"),
    "dossier": ("what_if_candidates", "mutations"),
    "levers": ("selected_levers",),
}
_OBJECTS = {
    "top": ("tariff_dossier", "lever_proof", "citation_gate_result", "missing_evidence_gate_result"),
    "iteration": ("citation_gate_result", "missing_evidence_gate_result"),
    "dossier": ("baseline", "optimized", "gri_trace", "savings_estimate"),
    "part": ("duty_breakdown",),
}
_MOST_MISTAKES = 30


class Place(NamedTuple):
    """A value in a result: its object and key, and the type that belongs there."""

    parent: Json
    key: str
    type: type

    @property
    def value(self) -> Any:
        return self.parent.get(self.key)


def _objects(*values: object) -> list[Json]:
    return [value for value in values if isinstance(value, dict)]


def _places(result: Json) -> Iterator[Place]:
    yield Place(result, "proof", dict)
    tops = _objects(result, result.get("proof"))
    lists = [top.get("iterations") for top in tops]
    iterations = _objects(*(each[-1] for each in lists if isinstance(each, list) and each))
    dossiers = _objects(*(top.get("tariff_dossier") for top in tops))
    levers = _objects(*(top.get("lever_proof") for top in tops))
    parts = _objects(*(dossier.get(key) for dossier in dossiers for key in ("baseline", "optimized")))
    for name, parents in (
        ("top", tops),
        ("iteration", iterations),
        ("dossier", dossiers),
        ("part", parts),
        ("levers", levers),
    ):
        for parent in parents:
            yield from (Place(parent, key, list) for key in _LISTS.get(name, ()))
            yield from (Place(parent, key, dict) for key in _OBJECTS.get(name, ()))
    for lever in _selected(levers):
        yield Place(lever, "sequence", list)
        yield Place(lever, "gate_results", dict)


def _selected(proofs: list[Json]) -> list[Json]:
    selected = [proof.get("selected_levers") for proof in proofs]
    return _objects(*(lever for levers in selected if isinstance(levers, list) for lever in levers))


def drop_empty_values(result: Json) -> None:
    """Remove what is empty, 0 or false where a list, an object or a code belongs."""
    for place in list(_places(result)):
        if place.value is not None and not place.value and not isinstance(place.value, place.type):
            del place.parent[place.key]
    for part in _parts(result):
        if "hts_code" in part and not part["hts_code"] and not isinstance(part["hts_code"], str):
            del part["hts_code"]


def make_lists(result: Json) -> None:
    """Replace what is not empty by a list with as many entries, or by none where the original never opens it."""
    for place in list(_places(result)):
        value = place.value
        if not value or isinstance(value, place.type):
            continue
        if place.key == "what_if_candidates":
            place.parent[place.key] = [{}]
        elif place.key == "sequence_violations":
            place.parent[place.key] = ["some"]
        elif place.key == "sequence" and hasattr(value, "__len__"):
            place.parent[place.key] = [None] * len(value)
        elif place.key == "rejected_because" and isinstance(value, dict):
            place.parent[place.key] = list(value)
        elif place.key != "rejected_because":
            del place.parent[place.key]


def name_reasons(result: Json) -> None:
    """Replace reasons that are no text by an unknown one."""
    for place in list(_places(result)):
        if place.key == "rejected_because" and isinstance(place.value, list):
            place.parent[place.key] = [reason if isinstance(reason, str) else "unknown" for reason in place.value]


def read_flags(result: Json) -> None:
    """Convert the flags of plausibility checks to true or false."""
    for lever in _selected(_objects(*(top.get("lever_proof") for top in _objects(result, result.get("proof"))))):
        checks = lever.get("gate_results")
        found = checks.get("plausibility") if isinstance(checks, dict) else None
        if isinstance(checks, dict) and found is not None and not found:
            checks["plausibility"] = []
        for check in _objects(*found) if isinstance(found, list) else _objects(found):
            if "ok" in check:
                check["ok"] = bool(check["ok"])


def as_number(value: object) -> float | None:
    """Return the number that Python makes of a value; None if it makes none."""
    with suppress(TypeError, ValueError, OverflowError):
        return float(value)  # type: ignore[arg-type]
    return None


def drop_endless_rates(result: Json) -> None:
    """Remove rates that are not finite; `Duty` has what the original computes from them."""
    for parent, key in _rates(result):
        number = as_number(parent.get(key))
        if number is not None and not math.isfinite(number):
            del parent[key]
    for part in _parts(result):
        amount = part.get("estimated_savings_per_unit")
        if isinstance(amount, float) and not math.isfinite(amount):
            del part["estimated_savings_per_unit"]


def drop_the_rest(result: Json) -> None:
    """Remove what our reader still rejects: the original does not look at it."""
    for _ in range(_MOST_MISTAKES):
        try:
            read(result)
        except ResultError as error:
            if not _drop(result, error.pointer):
                return
        else:
            return


def _drop(result: Json, pointer: str) -> bool:
    *path, last = pointer.removeprefix("/").split("/")
    parent: Any = result
    for key in path:
        parent = parent[int(key)] if isinstance(parent, list) else parent[key]
    if isinstance(parent, list):
        del parent[int(last)]
        return True
    known = last in parent
    parent.pop(last, None)
    # what is missing has to be there in its object
    return known or bool(path and _drop(result, "/" + "/".join(path)))


def _parts(result: Json) -> list[Json]:
    dossiers = _objects(*(top.get("tariff_dossier") for top in _objects(result, result.get("proof"))))
    return _objects(*(dossier.get(key) for dossier in dossiers for key in ("baseline", "optimized")))


def _rates(result: Json) -> Iterator[tuple[Json, str]]:
    for part in _parts(result):
        yield part, "duty_rate_pct"
        yield from ((breakdown, "total_rate_pct") for breakdown in _objects(part.get("duty_breakdown")))
    for top in _objects(result, result.get("proof")):
        mutations = (top.get("tariff_dossier") or {}).get("mutations") if _objects(top.get("tariff_dossier")) else None
        for mutation in _objects(*mutations) if isinstance(mutations, list) else ():
            yield mutation, "expected_duty_rate_pct"


class Duty(NamedTuple):
    """What the original computes of the rates of an answer, which may be infinite or no number.

    Attributes:
        delta: optimised minus baseline; None if one is missing.
        total: the optimised rate unless it is 0 or missing, else the baseline's.
    """

    delta: float | None
    total: float | None

    @property
    def is_finite(self) -> bool:
        return all(value is None or math.isfinite(value) for value in self)

    @property
    def direction(self) -> str | None:
        if self.delta is None:
            return None
        # a delta that is no number is neither below nor above 0
        return "decrease" if self.delta < 0 else "increase" if self.delta > 0 else "flat"

    def is_outside(self, limits: list[float] | None) -> bool:
        return bool(limits and self.delta is not None and not limits[0] <= self.delta <= limits[1])

    def misses(self, total: float) -> bool:
        return self.total is None or not math.isclose(self.total, total, rel_tol=0.0, abs_tol=0.0001)


def duty_of(baseline: Json, optimized: Json) -> Duty:
    """Compute both from the parts of a dossier."""
    low, high = (_rate(part) for part in (baseline, optimized))
    numbers = [as_number(rate) for rate in (low, high)]
    delta = None if None in numbers else numbers[1] - numbers[0]  # type: ignore[operator]
    return Duty(delta, as_number(high or low))


def _rate(part: Json) -> Any:
    breakdown = part.get("duty_breakdown") or {}
    total = breakdown.get("total_rate_pct")
    return part.get("duty_rate_pct") if total is None else total


def soften_limits(expected: Json) -> None:
    """Replace limits that our models reject by ones that the same answers reach."""
    for key in ("lever_count_min", "min_lever_steps"):
        if (expected.get(key) or 0) < 0:
            expected[key] = 0
    limits = expected.get("duty_delta_range")
    if limits:
        low, high = limits
        expected["duty_delta_range"] = [_finite(low), _finite(high)] if low <= high else [HUGE, HUGE]
    rate = expected.get("expected_duty_total_rate_pct")
    if rate is not None and not 0 <= rate < math.inf:
        expected["expected_duty_total_rate_pct"] = HUGE


def _finite(limit: float) -> float:
    return limit if math.isfinite(limit) else math.copysign(HUGE, limit)
