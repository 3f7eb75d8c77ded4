"""Tables and text of GitHub Flavored Markdown. Text from models and cases reaches a page through `cell` alone."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from pytest_packbench.analysis.figures import DASH
from pytest_packbench.analysis.listing import MOST_ROWS
from pytest_packbench.reports.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Rows = Iterable[tuple[str | None, ...]]

_WIDTH = 120
# what explains a case that went wrong is worth more room than an answer
WIDE = 400

_SPECIAL = str.maketrans(
    {
        **{char: f"\\{char}" for char in "\\|`*~[]$"},
        "<": "&lt;",
        ">": "&gt;",
        "&": "&amp;",
    }
)
# viewers make links of bare addresses too; of mail, escaped or not, so that only a hair space parts it
_LINKS = (
    (re.compile("//"), r"/\\/"),
    (re.compile(r"(www)\.", re.IGNORECASE), r"\1\\."),
    (re.compile(r"@(?=\S)"), "@\u200a"),
)
# between letters or digits an underscore is no markup
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_HEADING = re.compile(r"^(?=#)")


# columns repeat themselves
@lru_cache(maxsize=1024)
def cell(text: str | None, limit: int = _WIDTH) -> str:
    """Make text harmless and whole in a table's cell or in a sentence of GitHub Flavored Markdown.

    Args:
        text: anything, also out of a model or a case; None for nothing.
        limit: characters shown at most, before escaping.

    Returns:
        One line without markup, links, images or HTML; a dash for None; cut with an ellipsis where too long.
    """
    if text is None:
        return DASH
    safe = _UNDERSCORE.sub(r"\\_", one_line(text, limit).translate(_SPECIAL))
    for pattern, replacement in _LINKS:
        safe = pattern.sub(replacement, safe)
    return _HEADING.sub(r"\\", safe)


def section(
    title: str,
    head: tuple[str, ...],
    rows: Rows,
    *,
    last: Rows = (),
    widths: Mapping[int, int] | None = None,
    most: int = MOST_ROWS,
    total: int | None = None,
    rest: str = "all stand in report.json",
) -> str:
    """Write a heading and a table, or nothing where there is no row.

    Args:
        title: the heading.
        head: the names of the columns.
        rows: text as it came; None for a dash.
        last: rows that are shown after all others, however many these are.
        widths: by column, in characters, where not as usual.
        most: how many rows are shown, 1 or more.
        total: how many rows there are, where not all of them are given.
        rest: what is said of those that are not shown.
    """
    shown, hidden = _cut(rows, most)
    if not shown:
        return ""
    total = most + hidden if total is None else total
    more = f"\n\n{most} of {total} shown; {rest}." if total > len(shown) and len(shown) == most else ""
    return f"## {cell(title)}\n\n{_table([cell(name) for name in head], [*shown, *last], widths or {})}{more}"


def told_table(heading: str, head: Sequence[str], rows: Rows) -> str:
    """Write a heading as it is and a table without the columns of dashes alone; nothing where there is no row."""
    shown, hidden = _cut(rows, MOST_ROWS)
    if not shown:
        return ""
    told = [place for place in range(len(head)) if any(row[place] != DASH for row in shown)]
    table = _table([head[place] for place in told], [tuple(row[place] for place in told) for row in shown], {})
    more = f"{len(shown)} of {len(shown) + hidden} rows shown." if hidden else ""
    return "\n\n".join(part for part in (heading, table, more) if part)


def _cut(rows: Rows, most: int) -> tuple[list[tuple[str | None, ...]], int]:
    """Give the first rows, and how many more there are."""
    left = iter(rows)
    return list(islice(left, most)), sum(1 for _ in left)


def _table(head: Sequence[str], rows: Rows, widths: Mapping[int, int]) -> str:
    from tabulate import tabulate

    cells = [[cell(text, widths.get(column, _WIDTH)) for column, text in enumerate(row)] for row in rows]
    return tabulate(cells, headers=list(head), tablefmt="github", disable_numparse=True)
