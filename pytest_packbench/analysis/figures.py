"""Numbers as text that keeps its promise: rounding never hides which side of a bound a number lies on."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


TOLERANCE = 1e-9
DASH = "-"
_MOST_DIGITS = 12


def count(number: int, noun: str) -> str:
    """Write a number of things, in the plural where due: `1 case`, `2 cases`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def percent(part: int, whole: int) -> str:
    """Write a share: `95.8 %`; never `100.0 %` or `0.0 %` where it is not all or none; a dash where `whole` is 0."""
    return aligned(part / whole, as_percent=True)[0] if whole else DASH


def score(value: float | None, threshold: float | None = None) -> tuple[str, str]:
    """Write a score and its threshold with two decimals, or as many as it takes to see how they compare.

    Both are 0 to 1; for None a dash is given.
    """
    if value is None or threshold is None:
        return average(value), average(threshold)
    shown, bound = aligned(value, threshold)
    return shown, bound


def average(value: float | None) -> str:
    """Write a score that has no threshold; a dash for None."""
    return DASH if value is None else aligned(value)[0]


def interval(ends: tuple[float, float] | None) -> str:
    """Write an interval of shares, `62.1 % to 96.3 %`; a dash where there is none."""
    return DASH if ends is None else f"{100 * ends[0]:.1f} % to {100 * ends[1]:.1f} %"


def terms_text(terms: Iterable[Mapping[str, Any]], *, details: bool = False) -> str:
    """Write the terms of a score in the order applied: `preferred_match +1.00; forbidden_code =0`.

    Args:
        terms: as an entry has them: `name`, `effect`, `value`, `detail`.
        details: say why in brackets after each.
    """
    return "; ".join(_term_text(term, details=details) for term in terms)


def _term_text(term: Mapping[str, Any], *, details: bool) -> str:
    effect, value, detail = term.get("effect", "add"), term.get("value"), term.get("detail")
    points = ""
    if effect == "zero":
        points = " =0"
    elif effect != "note" and isinstance(value, int | float):
        points = f" {value:+.2f}"
    return f"{term.get('name', '')}{points}{f' ({detail})' if details and detail else ''}"


@lru_cache(maxsize=4096)
def aligned(value: float, *bounds: float, as_percent: bool = False) -> tuple[str, ...]:
    """Write a number and its bounds with as many decimals as it takes to see how they compare.

    A difference of at most 1e-9 counts as none.

    Args:
        value: 0 to 1.
        bounds: 0 to 1 each.
        as_percent: write `12.5 %` instead of `0.125`.

    Returns:
        The value, then the bounds, all with the same number of decimals.
    """
    scale, digits, unit = (100, 1, " %") if as_percent else (1, 2, "")
    marks = (*bounds, 0.0, 1.0)
    # what counts as equal is shown as equal
    value = next((mark for mark in marks if mark - TOLERANCE <= value <= mark + TOLERANCE), value)
    while digits < _MOST_DIGITS and not _tells(value, marks, scale, digits):
        digits += 1
    return tuple(f"{number * scale:.{digits}f}{unit}" for number in (value, *bounds))


def _tells(value: float, marks: tuple[float, ...], scale: int, digits: int) -> bool:
    shown = round(value * scale, digits)
    return all(
        _order(value, mark) == _order(shown, round(mark * scale, digits))
        and abs(round(mark * scale, digits) - mark * scale) <= TOLERANCE
        for mark in marks
    )


def _order(left: float, right: float) -> int:
    return (left > right) - (left < right)
