"""What a report is made of, said once and written as text, as Markdown or as HTML: sentences, tables and sections.

Every text of a block may come from a model or a case: the writers escape it, each for its medium. What has nothing to
say, such as a table without rows or a section without parts, is not written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from pytest_packbench.analysis.formatting import DASH, figure_interval, figure_value, grouped_figures
from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.reports.plots import interval_svgs
from pytest_packbench.reports.terminal import one_line, printable, text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_packbench.model.metric import Figure

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
