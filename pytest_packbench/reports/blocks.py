"""What a report shows, in blocks: sentences, facts, tables and drawings, written as text, Markdown and HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from pytest_packbench.analysis.counting import MAX_ROWS
from pytest_packbench.analysis.statistics import DASH, figure_interval, figure_value, grouped_figures
from pytest_packbench.reports.terminal import one_line, printable, text_table

if TYPE_CHECKING:
    from pytest_packbench.model.report import Outline
    from pytest_packbench.model.suite import Figure, Interval

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


WHERE = "report.json lists all"
_CELL = 400
_SENTENCE = 1600
_ANSWER = 160
_TICKS = re.compile("`+")
_SPECIAL = str.maketrans(
    {
        **{char: f"\\{char}" for char in "\\|`*~[]$"},
        "<": "&lt;",
        ">": "&gt;",
        "&": "&amp;",
    }
)
# bare addresses become links; in mail addresses and references an escape does not prevent that, only a hair space does
_LINKS = (
    (re.compile("//"), r"/\\/"),
    (re.compile(r"(www)\.", re.IGNORECASE), r"\1\\."),
    (re.compile(r"@(?=\S)"), "@\u200a"),
    # references to issues, which notify their readers where a page becomes a comment
    (re.compile(r"#(?=\d)"), "#\u200a"),
    (re.compile(r"(?<![^\W_])(GH)-(?=\d)", re.IGNORECASE), "\\1-\u200a"),
)
# an underscore between letters or digits is no markup
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_HEADING = re.compile(r"^(?=#)")


class Cell(NamedTuple):
    """A value in a table, with what some media add to it.

    Attributes:
        text: the value.
        below: what belongs to it: under it in HTML, after a colon elsewhere.
        sign: a sign before it, in HTML.
        color: a name of the page's style, such as `pass`, in which HTML shows the sign and the value.
        note: an explanation under it, in HTML.
        href: where it leads, in HTML and Markdown: an address without spaces and brackets.
        svg: a drawing before it, in HTML: markup of this package.
        css: classes of the page's style.
        id: what links to it name, in HTML.
    """

    text: str
    below: str = ""
    sign: str = ""
    color: str = ""
    note: str = ""
    href: str = ""
    svg: str = ""
    css: str = ""
    id: str = ""


_VERDICTS = {
    "passed": ("✓", "pass"),
    "failed": ("✗", "fail"),
    "error": ("!", "broken"),
    "vacuous": ("∅", "warn"),
    "known_hole": ("○", "plain"),
    "not_run": ("\u2013", "plain"),
    "quarantined": ("‖", "plain"),
    "partial": ("\u2013", "warn"),
}
"""The sign and the colour of each verdict of a case, and of the statuses of a run."""
SIGNS = {verdict: sign for verdict, (sign, _) in _VERDICTS.items() if verdict != "partial"}
"""The sign of each verdict of a case."""
Value: TypeAlias = "str | int | Cell | None"
T = TypeVar("T")
Row: TypeAlias = Sequence[Value]


class Text(NamedTuple):
    """A paragraph.

    Attributes:
        text: one or more sentences.
        strong: whether it is emphasised.
        sign: a word or sign before it, in HTML.
        color: a name of the page's style for the sign.
        css: classes of the page's style.
    """

    text: str
    strong: bool = False
    sign: str = ""
    color: str = ""
    css: str = ""


class Points(NamedTuple):
    """A list of sentences; `css` has classes of the page's style."""

    items: Sequence[str]
    css: str = ""


class Facts(NamedTuple):
    """A list of names, each with a value."""

    items: Sequence[tuple[str, str]]


class Table(NamedTuple):
    """A table whose first cells name its rows. Columns in which no row has a value are left out.

    Attributes:
        title: what it shows; empty if what is around it says so.
        head: the names of the columns.
        rows: the cells of each row, those that are shown; None, an empty text or a dash is no value.
        total: how many rows there are, if that are more; they are counted below the table.
        where: where the others are.
        last: rows after all others, which no limit applies to, such as the sum.
        numbers: the columns with numbers, which are aligned to the right.
        css: classes of the page's style.
        quiet: whether only screen readers get the title on the page, because a heading says the same.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Row]
    total: int = 0
    where: str = WHERE
    last: Sequence[Row] = ()
    numbers: Sequence[int] = ()
    css: str = ""
    quiet: bool = False

    def columns(self, *, drawn: bool = False) -> list[int]:
        """Return the columns in which some row has a value, or a drawing where these are `drawn`."""
        every = [*self.rows, *self.last]
        return [column for column in range(len(self.head)) if any(_is_shown(row[column], drawn) for row in every)]

    def more(self, shown: int) -> str:
        """Say how many rows there are if more than these; else return an empty text."""
        total = max(self.total, len(self.rows))
        return f"{shown} of {total} shown; {self.where}." if total > shown else ""


class Code(NamedTuple):
    """A command or another text that is copied as it is; of one line."""

    text: str


class Markup(NamedTuple):
    """Markup of this package, only for HTML, such as a drawing. Text from models and cases in it has to be escaped."""

    html: str


class Section(NamedTuple):
    """Blocks under a title.

    Attributes:
        title: what they are about.
        blocks: the blocks.
        folded: whether a reader opens it with a click, where the medium can do that.
        css: classes of the page's style, such as `screen` for what is not printed, or `printed` for what only is.
        name: what links to it name, in HTML; unique on the page.
    """

    title: str
    blocks: Sequence[Block]
    folded: bool = False
    css: str = ""
    name: str = ""


Block: TypeAlias = Text | Points | Facts | Table | Code | Markup | Section


def text(blocks: Iterable[Block]) -> list[str]:
    """Write blocks for a terminal, without colours; return the lines without their ends."""
    return [line for block in blocks for line in _text_lines(block)]


def _text_lines(block: Block) -> list[str]:
    match block:
        case Table():
            return _titled(block.title, _text_table(block))
        case Section(title, parts):
            return _titled(title, text(parts))
        case _:
            return [one_line(sentence, _SENTENCE) for sentence in _sentences(block)]


def _sentences(block: Block) -> Sequence[str]:
    match block:
        case Text(said) | Code(said):
            return [said] if said else []
        case Points(items):
            return items
        case Facts(pairs):
            return [f"{name}: {value}" for name, value in pairs]
        case _:
            return []


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    if not lines or not title:
        return ["", *lines] if lines else []
    return ["", f"{one_line(title)}:", *(f"  {line}".rstrip() for line in lines)]


def _text_table(table: Table) -> list[str]:
    columns = table.columns()
    if not columns:
        return []
    rows: list[Row] = [table.head, *table.rows, *table.last]
    cells = [tuple(one_line(_said(row[column]), _SENTENCE) for column in columns) for row in rows]
    more = table.more(len(table.rows))
    aligned = text_table(cells, numbers=all(column in table.numbers for column in columns[1:]))
    return [*aligned, *([more] if more else [])]


def markdown(blocks: Iterable[Block], *, level: int = 1, max_rows: int = MAX_ROWS, padded: bool = False) -> str:
    """Write blocks as GitHub Flavored Markdown.

    Args:
        blocks: the blocks.
        level: of the headings of sections and tables, 1 to 6; those within a section are one level below.
        max_rows: how many rows of a table are written, 1 or more.
        padded: whether columns are aligned, for readers in a terminal.

    Returns:
        Markdown without a line end at its end; empty if no block has anything to say.
    """
    return "\n\n".join(part for block in blocks if (part := _markdown(block, level, max_rows, padded=padded)))


def _markdown(block: Block, level: int, max_rows: int, *, padded: bool) -> str:
    written = ""
    match block:
        case Text(said, strong=strong) if said:
            shown = escape_markdown(said, _SENTENCE)
            written = f"**{shown}**" if strong else shown
        case Points() | Facts():
            written = "\n".join(f"- {escape_markdown(sentence, _SENTENCE)}" for sentence in _sentences(block))
        case Code(said) if said:
            fence = "`" * max(3, *(len(ticks) + 1 for ticks in _TICKS.findall(said) or ("",)))
            written = f"{fence}sh\n{said}\n{fence}"
        case Table(title):
            table = _markdown_table(block, max_rows, padded=padded)
            written = f"{_heading(title, level)}{table}" if table else ""
        case Section(title, parts, folded):
            inner = markdown(parts, level=level + 1, max_rows=max_rows, padded=padded)
            if folded and inner:
                written = f"<details>\n<summary>{html_text(title)}</summary>\n\n{inner}\n\n</details>"
            elif inner:
                written = f"{_heading(title, level)}{inner}"
    return written


def _heading(title: str, level: int) -> str:
    return f"{'#' * level} {escape_markdown(title, _CELL)}\n\n" if title else ""


def _markdown_table(table: Table, max_rows: int, *, padded: bool) -> str:
    columns, rows = table.columns(), table.rows[:max_rows]
    if not columns:
        return ""
    head = [escape_markdown(table.head[column]) for column in columns]
    body = [[_markdown_cell(row[column]) for column in columns] for row in (*rows, *table.last)]
    widths = [max(3, *map(len, cells)) if padded else 3 for cells in zip(head, *body, strict=True)]
    lines = "\n".join(
        f"| {' | '.join(map(str.ljust, cells, widths))} |" if padded else f"| {' | '.join(cells)} |"
        for cells in (head, ["-" * width for width in widths], *body)
    )
    more = table.more(len(rows))
    return f"{lines}\n\n{escape_markdown(more, _CELL)}" if more else lines


def _markdown_cell(cell: Value) -> str:
    shown = escape_markdown(_said(cell), _CELL)
    return f"[{shown}]({cell.href})" if isinstance(cell, Cell) and cell.href else shown


def _said(cell: Value) -> str:
    """Return what text and Markdown show of a cell."""
    if isinstance(cell, Cell):
        return f"{cell.text}: {cell.below}" if cell.below else cell.text or DASH
    return DASH if cell is None else str(cell) or DASH


def _is_shown(cell: Value, drawn: bool) -> bool:  # noqa: FBT001 - as in `Table.columns`
    return _said(cell) != DASH or (drawn and isinstance(cell, Cell) and bool(cell.svg))


# the same values recur within a column
@lru_cache(maxsize=1024)
def escape_markdown(said: str, limit: int = _CELL) -> str:
    """Escape text for a table cell or a sentence of GitHub Flavored Markdown.

    Args:
        said: any text, also from a model or a case.
        limit: maximum number of characters before escaping.

    Returns:
        One line without markup, links, images or HTML, cut with an ellipsis if too long.
    """
    safe = _UNDERSCORE.sub(r"\\_", one_line(said, limit).translate(_SPECIAL))
    for pattern, replacement in _LINKS:
        safe = pattern.sub(replacement, safe)
    return _HEADING.sub(r"\\", safe)


def with_texts(value: T, change: Callable[[str], str]) -> T:
    """Return blocks, or any named tuples and sequences, with each of their texts changed, such as by a redactor."""
    changed: Any = value
    if isinstance(value, str):
        changed = change(value)
    elif isinstance(value, tuple | list):
        parts = [with_texts(part, change) for part in value]
        changed = type(value)(*parts) if hasattr(value, "_fields") else parts
    same_kind: T = changed
    return same_kind


def html(blocks: Iterable[Block], *, level: int = 2) -> str:
    """Write blocks as HTML.

    Args:
        blocks: the blocks.
        level: of the headings of sections, 1 to 6; those within a section are one level below.

    Returns:
        HTML in which all text is escaped and printable; only drawings and `Markup` are as they are.
    """
    return "".join(_html(block, level) for block in blocks)


def html_text(said: str) -> str:
    """Return a text for HTML, also for an attribute in quotation marks, with control characters as their escapes."""
    return escape(printable(said))


def _html(block: Block, level: int) -> str:
    written = ""
    match block:
        case Text(said, strong, sign, color, css) if said:
            badge = f"{_badge(sign, color)} " if sign else ""
            shown = html_text(said)
            written = _element("p", f"{badge}<strong>{shown}</strong>" if strong else f"{badge}{shown}", css)
        case Points(items, css):
            written = _element("ul", "".join(f"<li>{html_text(item)}</li>" for item in items), css)
        case Facts(items):
            pairs = ((html_text(name), html_text(said)) for name, said in items)
            written = _element("dl", "".join(f"<dt>{name}</dt><dd>{said}</dd>" for name, said in pairs), "facts")
        case Code(said):
            written = _element("pre", html_text(said))
        case Table():
            written = _html_table(block)
        case Section(title, parts) if inner := html(parts, level=level + 1):
            written = _html_section(block, html_text(title), inner, level)
        case Markup(markup):
            written = markup
    return written


def _html_section(section: Section, title: str, inner: str, level: int) -> str:
    name, css = section.name, _class(section.css)
    if section.folded:
        return f"<details><summary>{title}</summary>\n{inner}</details>\n"
    if name:
        heading = f'<h{level} id="{name}-title">{title}</h{level}>\n'
        return f'<section id="{name}" aria-labelledby="{name}-title"{css}>\n{heading}{inner}</section>\n'
    written = f"<h{level}>{title}</h{level}>\n{inner}"
    return f"<div{css}>\n{written}</div>\n" if css else written


def _element(tag: str, inner: str, css: str = "") -> str:
    return f"<{tag}{_class(css)}>{inner}</{tag}>\n" if inner else ""


def _html_table(table: Table) -> str:
    columns = table.columns(drawn=True)
    if not columns:
        return ""
    head = "".join(
        f'<th scope="col"{_class("num" * (column in table.numbers))}>{html_text(table.head[column])}</th>'
        for column in columns
    )
    rows = "".join(
        f"<tr{_class('total' * (number >= len(table.rows)))}>{''.join(_html_cells(table, row, columns))}</tr>\n"
        for number, row in enumerate((*table.rows, *table.last))
    )
    title, more = html_text(table.title), html_text(table.more(len(table.rows)))
    caption = f"<caption{_class('quiet' * table.quiet)}>{title}</caption>\n"
    return (
        f'<div class="scroll" role="region" aria-label="{title}" tabindex="0">\n<table{_class(table.css)}>\n{caption}'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n{_element('p', more, 'more')}</div>\n"
    )


def _html_cells(table: Table, row: Row, columns: Sequence[int]) -> Iterator[str]:
    for column in columns:
        given = row[column]
        cell = given if isinstance(given, Cell) else Cell(_said(given))
        css = f"num {cell.css}".strip() if column in table.numbers else cell.css
        shown = html_text(cell.text)
        if cell.color:
            shown = _badge(f"{cell.sign} {cell.text}".strip(), cell.color)
        elif cell.href:
            shown = f'<a href="{html_text(cell.href)}">{shown}</a>'
        below = f'<span class="below">{html_text(cell.below)}</span>' if cell.below else ""
        note = f'<span class="definition">{html_text(cell.note)}</span>' if cell.note else ""
        tag, scope = ("th", ' scope="row"') if column == columns[0] else ("td", "")
        name = f' id="{html_text(cell.id)}"' if cell.id else ""
        yield f"<{tag}{scope}{name}{_class(css)}>{cell.svg}{shown}{below}{note}</{tag}>"


def _badge(said: str, color: str) -> str:
    return f'<span class="badge is-{color}">{html_text(said)}</span>'


def _class(css: str) -> str:
    return f' class="{css}"' if css else ""


def verdict_cell(verdict: str, said: str = "") -> Cell:
    """Return a verdict of a case or the status of a run, with what was answered."""
    sign, color = _VERDICTS.get(verdict, ("", "plain"))
    return Cell(verdict.replace("_", " "), one_line(said, _ANSWER), sign=sign, color=color)


def figure_tables(figures: Iterable[Figure], title: str = "Figures", *, defined: bool = False) -> list[Table]:
    """Return a table for each group of figures, with their definitions in a column of their own if `defined`."""
    tables = []
    for group, members in grouped_figures(figures):
        scale, drawings = interval_svgs([(each.share, each.interval) for each in members])
        rows = [
            (
                Cell(each.name, note=each.definition),
                figure_value(each),
                figure_interval(each),
                each.definition if defined else None,
                Cell("", svg=drawing),
            )
            for each, drawing in zip(members, drawings, strict=True)
        ]
        head = ("figure", "value", "interval", "definition", scale)
        tables.append(Table(f"{title}: {group}" if group else title, head, rows))
    return tables
