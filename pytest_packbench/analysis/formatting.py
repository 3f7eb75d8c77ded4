"""Format numbers without hiding on which side of a bound they are."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_packbench.model.score import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_packbench.model.metric import Figure
    from pytest_packbench.model.score import Term


DASH = "-"
NOT_MEASURED = "not measured"
_MAX_DIGITS = 12
# milliseconds
_SECOND = 1000
_MINUTE = 60_000
_MANY_SECONDS = 120_000


def capitalized(text: str) -> str:
    """Return a text with a capital letter at its start; the others stay as they are."""
    return text[:1].upper() + text[1:]


def format_percent(part: int, whole: int) -> str:
    """Return a share such as `95.8 %`; `100.0 %` and `0.0 %` mean exactly all and none, a dash that `whole` is 0."""
    return format_with_bounds(part / whole, as_percent=True)[0] if whole else DASH


def format_score(value: float | None, threshold: float | None = None) -> tuple[str, str]:
    """Return a score and its threshold with two decimals, or as many as are needed to show which is larger.

    Args:
        value: 0 to 1; None becomes a dash.
        threshold: 0 to 1; None becomes a dash.
    """
    if value is None or threshold is None:
        return format_mean(value), format_mean(threshold)
    number, bound = format_with_bounds(value, threshold)
    return number, bound


def format_score_and_threshold(value: float | None, threshold: float | None) -> str:
    """Return `0.78 < 0.80` of a score that is too low; trials may fail a case whose mean is not."""
    number, bound = format_score(value, threshold)
    is_low = value is None or threshold is None or value < threshold - TOLERANCE
    return f"{number} < {bound}" if is_low else f"{number}, threshold {bound}"


def format_mean(value: float | None) -> str:
    """Return a score that has no threshold; a dash for None."""
    return DASH if value is None else format_with_bounds(value)[0]


def format_change(change: float, digits: int = 2) -> str:
    """Return a change of a score with its sign, and with as many decimals as are needed to show that it is not 0."""
    if abs(change) <= TOLERANCE:
        return f"{0:+.{digits}f}"
    text = f"{change:+.{digits}f}"
    return text if float(text) else f"{change:+.{1 - math.floor(math.log10(abs(change)))}f}".rstrip("0")


def format_interval(ends: tuple[float, float] | None) -> str:
    """Return an interval of shares, `62.1 % to 96.3 %`; a dash for None."""
    return DASH if ends is None else f"{100 * ends[0]:.1f} % to {100 * ends[1]:.1f} %"


def format_duration(milliseconds: int) -> str:
    """Return a duration in the unit that suits it: `750 ms`, `3.2 s` or `12.5 min`."""
    if milliseconds < _SECOND:
        return f"{milliseconds} ms"
    if milliseconds < _MANY_SECONDS:
        return f"{milliseconds / _SECOND:.1f} s"
    return f"{milliseconds / _MINUTE:.1f} min"


def format_terms(terms: Iterable[Term], *, details: bool = False) -> str:
    """Return the terms of a score in the order applied: `preferred_match +1.00; forbidden_code =0`.

    Args:
        terms: those of a `Score`.
        details: add the detail of each term in brackets.
    """
    return "; ".join(_format_term(term, details=details) for term in terms)


def _format_term(term: Term, *, details: bool) -> str:
    points = "" if term.effect == "note" else f" {term.points}"
    return f"{term.name}{points}{f' ({term.detail})' if details and term.detail else ''}"


@lru_cache(maxsize=4096)
def format_with_bounds(value: float, *bounds: float, as_percent: bool = False) -> tuple[str, ...]:
    """Return a number and its bounds with as many decimals as are needed to show how they compare.

    A difference of at most 1e-9 counts as none.

    Args:
        value: 0 to 1.
        bounds: 0 to 1 each.
        as_percent: `12.5 %` instead of `0.125`.

    Returns:
        The value, then the bounds, all with the same number of decimals.
    """
    scale, digits, unit = (100, 1, " %") if as_percent else (1, 2, "")
    marks = (*bounds, 0.0, 1.0)
    # values that count as equal are printed as equal
    value = next((mark for mark in marks if mark - TOLERANCE <= value <= mark + TOLERANCE), value)
    while digits < _MAX_DIGITS and not _keeps_order(value, marks, scale, digits):
        digits += 1
    return tuple(f"{number * scale:.{digits}f}{unit}" for number in (value, *bounds))


def _keeps_order(value: float, marks: tuple[float, ...], scale: int, digits: int) -> bool:
    rounded = round(value * scale, digits)
    return all(
        _compare(value, mark) == _compare(rounded, round(mark * scale, digits))
        and abs(round(mark * scale, digits) - mark * scale) <= TOLERANCE
        for mark in marks
    )


def _compare(left: float, right: float) -> int:
    return (left > right) - (left < right)


def figure_value(figure: Figure) -> str:
    """Return the value in words: `3 of 20 = 15.0 %`, `1.25 USD` or `not measured`."""
    if figure.number is not None:
        value = f"{figure.number:.6g} {figure.unit}".rstrip()
    elif figure.count is not None and figure.total:
        # without an interval it is no sample, and a percentage would look like the rate of a model
        share = f" = {format_percent(figure.count, figure.total)}" if figure.interval is not None else ""
        value = f"{figure.count} of {figure.total}{share}"
    else:
        value = NOT_MEASURED
    return f"{value}; {figure.note}" if figure.note else value


def figure_interval(figure: Figure) -> str:
    """Return the interval with its method: `5.2 % to 36.0 % (95 % Wilson)`; empty without one."""
    interval = figure.interval
    if interval is None:
        return ""
    if figure.number is None:
        return f"{format_interval((interval.low, interval.high))} ({interval.method})"
    return f"{interval.low:.6g} to {interval.high:.6g} ({interval.method})"


def grouped_figures(figures: Iterable[Figure]) -> Iterator[tuple[str, list[Figure]]]:
    """Yield the groups of figures in the order of their first members."""
    groups: dict[str, list[Figure]] = {}
    for figure in figures:
        groups.setdefault(figure.group, []).append(figure)
    yield from groups.items()
