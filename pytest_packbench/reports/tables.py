"""Tables and text of GitHub Flavored Markdown. Text from models and cases has to pass through `escape_markdown`."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from pytest_packbench.analysis.formatting import DASH, figure_interval, figure_value, grouped_figures
from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.reports.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.model.metric import Figure

    Rows = Iterable[tuple[str | None, ...]]

_WIDTH = 120
# for explanations of failures, which may be longer than answers
WIDE = 400
_FIGURE_HEAD = ("figure", "value", "interval", "definition")

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


class Markdown(str):
    """Text that is Markdown already, for a cell of a table: made here, with text from cases escaped in it."""

    __slots__ = ()


# the same values recur within a column
@lru_cache(maxsize=1024)
def escape_markdown(text: str | None, limit: int = _WIDTH) -> str:
    """Escape text for a table cell or a sentence of GitHub Flavored Markdown.

    Args:
        text: any text, also from a model or a case; None for nothing.
        limit: maximum number of characters before escaping.

    Returns:
        One line without markup, links, images or HTML, cut with an ellipsis if too long; a dash for None.
    """
    if text is None:
        return DASH
    safe = _UNDERSCORE.sub(r"\\_", one_line(text, limit).translate(_SPECIAL))
    for pattern, replacement in _LINKS:
        safe = pattern.sub(replacement, safe)
    return _HEADING.sub(r"\\", safe)


def section(
    title: str,
    head: Sequence[str],
    rows: Rows,
    *,
    level: int = 2,
    intro: str = "",
    last: Rows = (),
    widths: Mapping[int, int] | None = None,
    max_rows: int = MAX_ROWS,
    total: int | None = None,
    where: str = "",
    drop_empty: bool = False,
) -> str:
    """Render a heading and a table; return an empty text if there are no rows.

    Args:
        title: the heading; empty for none.
        head: the names of the columns.
        rows: the cells of each row, not escaped; None becomes a dash.
        level: of the heading, 1 to 6.
        intro: Markdown between heading and table.
        last: rows after all others, which `max_rows` does not limit.
        widths: maximum number of characters by column, if not the default.
        max_rows: how many rows are rendered, 1 or more.
        total: how many rows there are, if `rows` does not contain all.
        where: where to find the rows that are not rendered.
        drop_empty: omit columns in which all cells are dashes.
    """
    remaining = iter(rows)
    body = list(islice(remaining, max_rows))
    if not body:
        return ""
    total = len(body) + sum(1 for _ in remaining) if total is None else total
    body_and_last, head = [*body, *last], list(head)
    columns = [
        c for c in range(len(head)) if not drop_empty or any(row[c] not in {DASH, None} for row in body_and_last)
    ]
    parts = [
        f"{'#' * level} {escape_markdown(title)}" if title else "",
        intro,
        _markdown_table(head, body_and_last, columns, widths or {}),
        f"{len(body)} of {total} shown{f'; {where}' if where else ''}." if total > len(body) else "",
    ]
    return "\n\n".join(part for part in parts if part)


def figure_sections(figures: Sequence[Figure], *, title: str = "Figures", level: int = 2) -> list[str]:
    """Return a section of Markdown for each group of figures, with their definitions."""
    return [
        section(
            f"{title}: {group}" if group else title,
            _FIGURE_HEAD,
            ((each.name, figure_value(each), figure_interval(each) or None, each.definition) for each in members),
            level=level,
            widths={1: WIDE, 3: WIDE},
            drop_empty=True,
        )
        for group, members in grouped_figures(figures)
    ]


def folded(title: str, *parts: str) -> str:
    """Return parts of a page under a title that a reader opens with a click; an empty text without a part.

    Args:
        title: words of this package and numbers, no text from elsewhere.
        parts: Markdown.
    """
    body = "\n\n".join(part for part in parts if part)
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


def _cell(text: str | None, limit: int) -> str:
    return text if isinstance(text, Markdown) else escape_markdown(text, limit)


def _markdown_table(head: Sequence[str], rows: Rows, columns: Sequence[int], widths: Mapping[int, int]) -> str:
    from tabulate import tabulate

    cells = [[_cell(row[column], widths.get(column, _WIDTH)) for column in columns] for row in rows]
    names = [escape_markdown(head[column]) for column in columns]
    return tabulate(cells, headers=names, tablefmt="github", disable_numparse=True)
