"""Draw intervals, trends and distributions as SVG, in the colours of the page's style sheet.

Drawings have classes and presentation attributes only, since the page's content security policy forbids inline styles.
All numbers that a drawing shows are also in a table beside it.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from pytest_packbench.reports.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_packbench.analysis.trend import TrendPoint
    from pytest_packbench.model.metric import Interval

    Ends = tuple[float, float] | Interval

BINS = 20
"""How many bars a distribution of scores has."""
_UP_TO_MINUTE = len("2026-05-04T12:30")
_STEPS = (0.05, 0.1, 0.2, 0.25, 0.5, 1.0)
_CHANGE_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


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


def change_range(values: Sequence[float]) -> Range:
    """Return the axis for changes of a score, with 0 in the middle."""
    widest = max((abs(value) for value in values), default=0.0)
    step = next(step for step in _CHANGE_STEPS if widest <= 0.85 * step or step == 1)
    return Range(-step, step)


def interval_svg(
    value: float,
    axis: Range,
    *,
    interval: tuple[float, float] | None = None,
    low: float | None = None,
    high: float | None = None,
    status: str = "plain",
    ends: bool = False,
    decisive: Sequence[float] = (),
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
        decisive: what is compared with the limits instead of the value, and has the status; empty for the value.
    """
    width, left, right, middle = 220, 6, 214, 11

    def x(number: float) -> str:
        return _number(left + (right - left) * axis.share(number))

    parts = [f'<line class="axis" x1="{left}" y1="{middle}" x2="{right}" y2="{middle}"/>']
    if low is not None or high is not None:
        begin, end = x(axis.low if low is None else low), x(axis.high if high is None else high)
        extent = _number(float(end) - float(begin))
        parts.append(f'<rect class="allowed" x="{begin}" y="{middle - 7}" width="{extent}" height="14" rx="2"/>')
    if axis.low < 0 < axis.high:
        parts.append(f'<line class="zero" x1="{x(0)}" y1="{middle - 6}" x2="{x(0)}" y2="{middle + 6}"/>')
    if interval is not None:
        begin, end = x(interval[0]), x(interval[1])
        parts.append(f'<line class="interval" x1="{begin}" y1="{middle}" x2="{end}" y2="{middle}"/>')
        parts += [
            f'<line class="interval" x1="{each}" y1="{middle - 4}" x2="{each}" y2="{middle + 4}"/>'
            for each in (begin, end)
        ]
    parts += [
        f'<line class="limit" x1="{x(limit)}" y1="{middle - 9}" x2="{x(limit)}" y2="{middle + 9}"/>'
        for limit in (low, high)
        if limit is not None
    ]
    parts.append(_mark(float(x(value)), middle, "plain" if decisive else status))
    parts += [_mark(float(x(bound)), middle, status) for bound in decisive]
    if ends:
        texts = [_percent(end) if axis.low >= 0 else f"{end:+g}" for end in axis]
        parts += [_tick(left, 2 * middle + 9, texts[0], "start"), _tick(right, 2 * middle + 9, texts[1], "end")]
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


def bar_svg(share: float) -> str:
    """Draw a share of the largest value in a column as a bar."""
    width = 120
    length = _number(max(width * share, 1.0 if share else 0.0))
    return _svg("plot-bar", width, 8, [f'<rect class="bar" x="0" y="1" width="{length}" height="6" rx="1"/>'])


def swatch_svg(name: str) -> str:
    """Draw what a key explains: a sign of the drawings by its name, else a bar of this class."""
    shapes = {
        "allowed": '<rect class="allowed" x="0" y="0" width="18" height="12" rx="2"/>',
        "limit": '<line class="limit" x1="9" y1="0" x2="9" y2="12"/>',
        "interval": '<line class="interval" x1="0" y1="6" x2="18" y2="6"/>',
        "value": '<line class="line-value" x1="0" y1="6" x2="18" y2="6"/>',
        "mean": '<line class="line-mean" x1="0" y1="6" x2="18" y2="6"/>',
        **{status: _mark(9, 6, status) for status in ("pass", "fail", "plain")},
    }
    bar = f'<rect class="{name}" x="3" y="0" width="12" height="12"/>'
    return _svg("swatch", 18, 12, [shapes.get(name, bar)])


def trend_svg(points: Sequence[TrendPoint]) -> str:
    """Draw pass rates and mean scores of runs over time; the lines end where the rules changed.

    Where cases changed, a point has their number.
    """
    rates, means = [point.rate for point in points], [point.mean_score for point in points]
    ends = [end for point in points for end in point.interval or ()]
    axis = share_range([value for value in (*rates, *means, *ends) if value is not None])
    width, height, left, right, top, bottom = 720, 200, 44, 708, 12, 178

    def y(value: float) -> float:
        return bottom - (bottom - top) * axis.share(value)

    step = (right - left - 24) / max(len(points) - 1, 1)
    xs = [left + 12 + step * index for index in range(len(points))] if len(points) > 1 else [(left + right) / 2]
    breaks = [index for index in range(1, len(points)) if points[index].suite_sha256 != points[index - 1].suite_sha256]
    parts = []
    for value in (axis.low, (axis.low + axis.high) / 2, axis.high):
        at = _number(y(value))
        parts.append(f'<line class="grid" x1="{left}" y1="{at}" x2="{right}" y2="{at}"/>')
        parts.append(_tick(left - 6, y(value) + 4, _percent(value), anchor="end"))
    for index, point in enumerate(points):
        if index in breaks or point.changed:
            middle = (xs[index - 1] + xs[index]) / 2
            at = _number(middle)
            parts.append(f'<line class="break" x1="{at}" y1="{top}" x2="{at}" y2="{bottom}"/>')
            parts.append(_tick(middle, bottom + 16, "rules changed" if index in breaks else f"\u00b1{point.changed}"))
    for name, values in (("mean", means), ("value", rates)):
        for line in _lines(values, breaks):
            dots = " ".join(f"{_number(xs[index])},{_number(y(value))}" for index, value in line)
            parts.append(f'<polyline class="line-{name}" points="{dots}"/>')
    for x, rate, point in zip(xs, rates, points, strict=True):
        if rate is None:
            continue
        if point.interval is not None:
            low, high = (_number(y(end)) for end in point.interval)
            parts.append(f'<line class="interval" x1="{_number(x)}" y1="{low}" x2="{_number(x)}" y2="{high}"/>')
        label = f"{minute(point.finished_at)}: {point.passed} of {point.judged} passed, run {point.run_id}"
        mark = _mark(x, y(rate), _COLORS.get(point.status, "warn"))
        parts.append(f"<g><title>{_escaped(label)}</title>{mark}</g>")
    return _svg("plot-wide", width, height, parts, "Pass rate and mean score of each run, oldest first")


def _lines(values: Sequence[float | None], breaks: Sequence[int]) -> Iterator[list[tuple[int, float]]]:
    line: list[tuple[int, float]] = []
    for index, value in enumerate(values):
        if line and (value is None or index in breaks):
            yield line
            line = []
        if value is not None:
            line.append((index, value))
    if line:
        yield line


def minute(timestamp: str) -> str:
    """Return a time without seconds, such as `2026-05-04 12:30 UTC`."""
    return f"{timestamp[:10]} {timestamp[11:16]} UTC" if len(timestamp) > _UP_TO_MINUTE else timestamp


def histogram_svg(passed: Sequence[int], failed: Sequence[int], thresholds: Sequence[float]) -> str:
    """Draw how many scores are in each of `BINS` parts of 0 to 1, those that passed above those that failed."""
    width, height, left, right, top, bottom = 720, 180, 44, 708, 14, 150
    highest = max((a + b for a, b in zip(passed, failed, strict=True)), default=0) or 1
    step = (right - left) / BINS
    scale = (bottom - top) / highest
    parts = [
        f'<line class="grid" x1="{left}" y1="{top}" x2="{right}" y2="{top}"/>',
        _tick(left - 6, top + 4, str(highest), anchor="end"),
        f'<line class="axis" x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}"/>',
    ]
    for index, (good, bad) in enumerate(zip(passed, failed, strict=True)):
        x, y = left + index * step + 1.5, float(bottom)
        for number, name in ((bad, "fail"), (good, "pass")):
            if number:
                tall = max(number * scale, 1.5)
                y -= tall
                parts.append(
                    f'<rect class="bar-{name}" x="{_number(x)}" y="{_number(y)}" width="{_number(step - 3)}" '
                    f'height="{_number(tall)}"/>'
                )
    for threshold in thresholds:
        x = left + (right - left) * threshold
        parts.append(f'<line class="limit" x1="{_number(x)}" y1="{top - 6}" x2="{_number(x)}" y2="{bottom}"/>')
    for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        x = left + (right - left) * share
        parts.append(_tick(x, bottom + 18, f"{share:.1f}"))
    return _svg("plot-wide", width, height, parts, "How many scores there are from 0 to 1")


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
