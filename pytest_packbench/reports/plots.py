"""Draw intervals, trends and distributions as SVG, in the colours of the page's style sheet.

Drawings have classes and presentation attributes only, since the page's content security policy forbids inline styles.
All numbers that a drawing shows are also in a table beside it.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.metric import Interval
    from pytest_packbench.model.report import Outline

    Ends = tuple[float, float] | Interval

BINS = 20
"""How many bars a distribution of scores has."""
_UP_TO_MINUTE = len("2026-05-04T12:30")
_STEPS = (0.05, 0.1, 0.2, 0.25, 0.5, 1.0)


_COLORS = {"passed": "pass", "failed": "fail"}


class Range(NamedTuple):
    """The values at the left and the right end of an axis."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """Return where a value is on the axis: 0 at its left end, 1 at its right end."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def share_range(values: Sequence[float]) -> Range:
    """Return the axis for shares: 0 to 1, or the part of it near 0 or near 1 in which all values are."""
    top, bottom = max(values, default=1.0), min(values, default=0.0)
    if top < 1 - bottom:
        return Range(0.0, next(step for step in _STEPS if top <= 0.8 * step or step == 1))
    return Range(1.0 - next(step for step in _STEPS if 1 - bottom <= 0.8 * step or step == 1), 1.0)


def interval_svg(
    value: float,
    axis: Range,
    *,
    interval: tuple[float, float] | None = None,
    low: float | None = None,
    high: float | None = None,
    status: str = "plain",
    ends: bool = False,
) -> str:
    """Draw a value with its interval on an axis, and the part of the axis that passes.

    Args:
        value: the value.
        axis: the axis.
        interval: the ends of its interval; None without one.
        low: the smallest value that passes; None without such a limit.
        high: the largest value that passes; None without such a limit.
        status: `pass`, `fail`, `warn` or `plain`, the colour of the value.
        ends: whether to write the ends of the axis below it, as shares.
    """
    width, left, right, middle = 220, 6, 214, 11

    def x(number: float) -> float:
        return left + (right - left) * axis.share(number)

    parts = [_line("axis", left, middle, right, middle)]
    if low is not None or high is not None:
        begin, end = x(axis.low if low is None else low), x(axis.high if high is None else high)
        extent = _number(end - begin)
        parts.append(
            f'<rect class="allowed" x="{_number(begin)}" y="{middle - 7}" width="{extent}" height="14" rx="2"/>'
        )
    if interval is not None:
        begin, end = map(x, interval)
        parts.append(_line("interval", begin, middle, end, middle))
        parts += [_line("interval", end, middle - 4, end, middle + 4) for end in (begin, end)]
    limits = [x(limit) for limit in (low, high) if limit is not None]
    parts += [_line("limit", limit, middle - 9, limit, middle + 9) for limit in limits]
    parts.append(_mark(x(value), middle, status))
    if ends:
        parts.append(_tick(left, 2 * middle + 9, _percent(axis.low), "start"))
        parts.append(_tick(right, 2 * middle + 9, _percent(axis.high), "end"))
    return _svg("plot-interval", width, 2 * middle + (12 if ends else 0), parts)


def interval_svgs(shares: Sequence[tuple[float | None, Ends | None]]) -> tuple[str, list[str]]:
    """Draw shares with the ends of their intervals on one scale, for a column of a table.

    Args:
        shares: each with its interval; None for those that are not known.

    Returns:
        The scale in words, and a drawing for each share; empty for one without an interval.
    """
    axis = share_range([end for share, ends in shares if share is not None and ends for end in ends[:2]])
    drawings = [
        interval_svg(share, axis, interval=(ends[0], ends[1])) if share is not None and ends else ""
        for share, ends in shares
    ]
    return f"{100 * axis.low:g} to {100 * axis.high:g} %", drawings


def bars_svg(passed: int, failed: int, highest: int) -> str:
    """Draw how many attempts passed and failed, beside each other, as parts of the highest number of both."""
    good, bad = (150 * number / highest for number in (passed, failed))
    parts = [
        f'<rect class="bar-{name}" x="{_number(x)}" y="1" width="{_number(max(width, 1.0))}" height="8"/>'
        for name, x, width in (("pass", 0.0, good), ("fail", good, bad))
        if width
    ]
    return _svg("plot-bar", 152, 10, parts)


def trend_svg(points: Sequence[Outline]) -> str:
    """Draw the pass rates of runs over time, of those that judged a case; the line ends where the rules changed."""
    rated = [(point, rate) for point in points if (rate := point.overall.pass_rate) is not None]
    axis = share_range([value for point, rate in rated for value in (rate, *(point.overall.interval or ()))])
    width, height, left, right, top, bottom = 720, 200, 44, 708, 12, 178
    step = (right - left - 24) / max(len(rated) - 1, 1)

    def y(value: float) -> float:
        return bottom - (bottom - top) * axis.share(value)

    places = [(left + 12 + step * index, y(rate)) for index, (_, rate) in enumerate(rated)]
    parts = []
    for value in (axis.low, (axis.low + axis.high) / 2, axis.high):
        parts.append(_line("grid", left, y(value), right, y(value)))
        parts.append(_tick(left - 6, y(value) + 4, _percent(value), anchor="end"))
    for (before, _), (point, _), start, end in zip(rated, rated[1:], places, places[1:], strict=False):
        middle = (start[0] + end[0]) / 2
        if before.run.suite_sha256 == point.run.suite_sha256:
            parts.append(_line("line-value", *start, *end))
        else:
            parts.append(_line("break", middle, top, middle, bottom))
            parts.append(_tick(middle, bottom + 16, "rules changed"))
    for (x, at), (point, _) in zip(places, rated, strict=True):
        run, overall = point.run, point.overall
        if overall.interval is not None:
            low, high = map(y, overall.interval)
            parts.append(_line("interval", x, low, x, high))
        label = f"{minute(run.finished_at)}: {overall.passed} of {overall.n} passed, run {run.run_id}"
        mark = _mark(x, at, _COLORS.get(point.status, "warn"))
        parts.append(f"<g><title>{_escaped(label)}</title>{mark}</g>")
    return _svg("plot-wide", width, height, parts, "Pass rate of each run, oldest first")


def minute(timestamp: str) -> str:
    """Return a time without seconds, such as `2026-05-04 12:30 UTC`."""
    return f"{timestamp[:10]} {timestamp[11:16]} UTC" if len(timestamp) > _UP_TO_MINUTE else timestamp


def _line(name: str, x1: float, y1: float, x2: float, y2: float) -> str:
    places = f'x1="{_number(x1)}" y1="{_number(y1)}" x2="{_number(x2)}" y2="{_number(y2)}"'
    return f'<line class="{name}" {places}/>'


def _mark(x: float, y: float, status: str) -> str:
    """Draw a value: a shape beside the colour says whether it passes."""
    if status == "fail":
        points = f"{_number(x)},{_number(y - 6)} {_number(x + 6)},{_number(y)} {_number(x)},{_number(y + 6)} "
        return f'<polygon class="mark-fail" points="{points}{_number(x - 6)},{_number(y)}"/>'
    return f'<circle class="mark-{status}" cx="{_number(x)}" cy="{_number(y)}" r="4.5"/>'


def _tick(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="tick" x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}">{_escaped(text)}</text>'


def _svg(name: str, width: int, height: int, parts: Sequence[str], title: str = "") -> str:
    about = f'role="img" aria-label="{_escaped(title)}"' if title else 'aria-hidden="true"'
    inside = "".join(parts)
    return (
        f'<svg class="{name}" viewBox="0,0,{width},{height}" width="{width}" height="{height}" {about}>{inside}</svg>'
    )


def _escaped(text: str) -> str:
    return escape(printable(text))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _percent(value: float) -> str:
    return f"{100 * value:g} %"
