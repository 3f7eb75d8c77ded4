"""Numbers as text that keeps its promise: rounding never hides which side of a bound a number lies on."""

from __future__ import annotations

from functools import lru_cache

TOLERANCE = 1e-9
DASH = "-"
_MOST_DIGITS = 12


def percent(part: int, whole: int) -> str:
    """Write a share: `95.8 %`; never `100.0 %` or `0.0 %` where it is not all or none.

    Args:
        part: cases, 0 to `whole`.
        whole: cases; a dash is given where there are none.
    """
    if not whole:
        return DASH
    (text,) = aligned(part / whole, as_percent=True)
    return text


def score(value: float | None, threshold: float | None = None) -> str:
    """Write a score of 0 to 1 with two decimals, or as many as tell it from 0, from 1 and from its threshold."""
    if value is None:
        return DASH
    return aligned(value, *(() if threshold is None else (threshold,)))[0]


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
    scale, least, unit = (100, 1, " %") if as_percent else (1, 2, "")
    digits = least
    while digits < _MOST_DIGITS and not _tells(value, bounds, scale, digits):
        digits += 1
    return tuple(f"{number * scale:.{digits}f}{unit}" for number in (value, *bounds))


def _tells(value: float, bounds: tuple[float, ...], scale: int, digits: int) -> bool:
    shown = round(value * scale, digits)
    return all(
        _order(value, mark) == _order(shown, round(mark * scale, digits)) and _is_exact(mark * scale, digits)
        for mark in (0.0, 1.0, *bounds)
    )


def _order(left: float, right: float) -> int:
    return (left > right + TOLERANCE) - (left < right - TOLERANCE)


def _is_exact(number: float, digits: int) -> bool:
    return abs(round(number, digits) - number) <= TOLERANCE
