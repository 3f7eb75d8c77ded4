"""The summary: one page that decides, and that no text of a model or a case can bend."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.reports.tables import escape_markdown
from pytest_packbench.reports.terminal import one_line
from tests.unit.run_builders import (
    COMPLETE,
    ONE_OF_EACH,
    case_result,
    case_results,
    data,
    document,
    gate,
    results_of,
    run,
    summary,
)

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

PIECES = (
    *("|", "\\", "`", "```", "**", "_", "~~", "$x$", "# ", "a", "case_1", " "),
    *("<b>", "<!--", "-->", "&lt;", "[x](http://e.com)", "![x](y)"),
    *("https://e.com", "//e.com", "www.e.com", "WWW.e.com", "a@b.com"),
    *("\n", "\r\n", "\t", "\x00", "\x1b[31m", "\u202e", "\u2028", "\ud800"),
)
NASTY = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
CELLS = {
    "plain text, 6404.11.90": "plain text, 6404.11.90",
    "case_001_usb": "case_001_usb",
    "_x_ a__b": r"\_x\_ a\_\_b",
    "a|b": r"a\|b",
    "a\\|b": r"a\\\|b",
    "`rm`": r"\`rm\`",
    "<img src=x>&nbsp;": "&lt;img src=x&gt;&amp;nbsp;",
    "[click](http://e.com)": r"\[click\](http:/\/e.com)",
    "![x](y)": r"!\[x\](y)",
    "Www.e.com": r"Www\.e.com",
    "me@e.com @ noon": "me@\u200ae.com @ noon",
    "**b** ~~s~~ $m$": r"\*\*b\*\* \~\~s\~\~ \$m\$",
    "# title": r"\# title",
    "a\r\nb\tc\u2028d": "a b c d",
    "\x1b[31m\u202e\x00": r"\\x1b\[31m\\u202e\\x00",
    "\ud800": r"\\ud800",
    "": "",
    None: "-",
    "x" * 1_000_000: "x" * 119 + "…",
    "|" * 120: r"\|" * 120,
    "|" * 121: r"\|" * 119 + "…",
}


def test_a_cell_is_harmless() -> None:
    assert {text: escape_markdown(text) for text in CELLS} == CELLS


def as_shown(cell: str) -> str:
    """Return what a viewer shows of a cell."""
    text = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", cell)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("\u200a", "")


@given(NASTY)
def test_a_cell_shows_its_text_and_contains_nothing_that_a_viewer_would_obey(text: str) -> None:
    assert as_shown(escape_markdown(text, 10_000)) == one_line(text, 10_000)
    cell = escape_markdown(text)
    assert cell.isprintable() or "\u200a" in cell
    bare = re.sub(r"\\[!-/:-@\[-`{-~]|@\u200a", " ", cell)
    assert not set(bare) & set("|`*~[]$<>\\\n")
    assert not re.search(r"&(?!(lt|gt|amp);)|//|(?i:www\.)|@\S|^#|\b__|__\b", bare)


def columns(line: str) -> int:
    """Count the cells of a row: a backslash escapes the character after it."""
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) - 1


@settings(max_examples=20)
@given(st.lists(st.tuples(NASTY, NASTY, NASTY, NASTY), max_size=4))
def test_a_table_has_its_columns_and_rows_whatever_the_text(texts: list[tuple[str, str, str, str]]) -> None:
    results = [
        case_result(name, "failed", case_type=kind, answer=answer, match_level=level, stale=True, facets={level: kind})
        for name, kind, answer, level in texts
    ]
    results += [case_result(name, "error", kind=kind, message=text) for name, kind, text, _ in texts]
    page = summary(results, COMPLETE, gate("pass_rate", min=0.5, by="case_type"))
    rows = {}
    for part in page.split("\n## ")[1:]:
        title, *lines = part.splitlines()
        table = [line for line in lines if line.startswith("|")]
        assert len({columns(line) for line in table}) == 1
        # below the head is the line that makes it a table
        rows[title] = len(table) - 2
    assert rows["Totals"] == 1
    if texts:
        assert rows["Failed"] == rows["Errors (no score)"] == len(texts)
        assert rows["All cases"] == 2 * len(texts)
        # the errors are of the type `plain`, and the last row is of all cases
        assert rows["By case type"] == len({kind for _, kind, _, _ in texts} | {"plain"}) + 1


def test_the_page_of_a_run_with_one_of_each(expected: ExpectedTexts) -> None:
    rules = COMPLETE, gate("pass_rate", min=0.5, by="case_type")
    page = summary(ONE_OF_EACH, *rules)
    expected.check(page, "md")
    assert summary(ONE_OF_EACH[::-1], *rules) == page


def test_the_first_lines_decide_and_say_what_the_run_can_show(expected: ExpectedTexts) -> None:
    pages, texts = {}, []
    for name, vector in data("summaries.yaml").items():
        rules = [COMPLETE if rule == "complete" else gate(**rule) for rule in vector.get("gates", ())]
        results, changes = results_of(vector["results"]), vector.get("run", {})
        pages[name] = summary(results, *rules, **changes)
        content = document(run(**changes), results, *rules)
        assert content["complete"] is ("partial" not in changes)
        texts.append(f"{name}: {content['status']}\n{pages[name].partition('Run 01J')[0]}")
    expected.check("".join(texts), "md")
    assert ", live mode, backend openai / m-1; " in pages["live"]
    assert "backend" not in pages["live, model not named"]


def test_authored_answers_have_neither_an_interval_nor_a_model() -> None:
    page = summary(case_results(2, 1, llm_backend="stub", llm_model="opus", match_depth=4))
    assert not re.search("Wilson|opus", page)


def test_a_long_table_ends_with_its_length() -> None:
    page = summary(case_results(MAX_ROWS + 1))
    assert len(re.findall(r"^\| c\d", page, re.MULTILINE)) == MAX_ROWS
    assert f"{MAX_ROWS} of {MAX_ROWS + 1} shown; report.json lists all." in page
    assert "shown" not in summary(case_results(MAX_ROWS))
