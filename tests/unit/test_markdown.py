"""The summary: one page that decides, and that nothing out of a model or a case can bend."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.analysis.listing import MAX_ROWS
from pytest_packbench.reports.tables import escape_markdown
from pytest_packbench.reports.terminal import one_line
from tests.unit.run_builders import COMPLETE, case_result, case_results, check, gate, lines, summary

if TYPE_CHECKING:
    from pytest_packbench.model.result import CaseResult

TERM = {"name": "wrong_colour", "effect": "zero", "value": 0.0, "detail": "red was asked"}
PIECES = (
    *("|", "\\", "`", "```", "**", "_", "~~", "$x$", "# ", "a", "case_1", " "),
    *("<b>", "<!--", "-->", "&lt;", "[x](http://e.com)", "![x](y)"),
    *("https://e.com", "//e.com", "www.e.com", "WWW.e.com", "a@b.com"),
    *("\n", "\r\n", "\t", "\x00", "\x1b[31m", "\u202e", "\u2028", "\ud800"),
)
NASTY = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)


def columns(line: str) -> list[str]:
    """The cells of a row of GitHub's tables: a backslash escapes the character after it."""
    cells, rest = [""], iter(line.strip()[1:-1])
    for char in rest:
        if char == "|":
            cells.append("")
        else:
            cells[-1] += char + (next(rest, "") if char == "\\" else "")
    return [text.strip() for text in cells]


def tables(page: str) -> dict[str, list[list[str]]]:
    """Each section's rows under its heading, the head first."""
    found: dict[str, list[list[str]]] = {}
    for section in page.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        rows = [columns(line) for line in body.splitlines() if line.startswith("|")]
        # below the head stands the line that makes it a table
        found[title] = [*rows[:1], *rows[2:]]
    return found


def read(text: str) -> str:
    """What a viewer shows of a cell."""
    shown = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("\u200a", "")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain text, 6404.11.90", "plain text, 6404.11.90"),
        ("case_001_usb", "case_001_usb"),
        ("_x_ a__b", r"\_x\_ a\_\_b"),
        ("a|b", r"a\|b"),
        ("a\\|b", r"a\\\|b"),
        ("`rm`", r"\`rm\`"),
        ("<img src=x>&nbsp;", "&lt;img src=x&gt;&amp;nbsp;"),
        ("[click](http://e.com)", r"\[click\](http:/\/e.com)"),
        ("![x](y)", r"!\[x\](y)"),
        ("Www.e.com", r"Www\.e.com"),
        ("me@e.com @ noon", "me@\u200ae.com @ noon"),
        ("**b** ~~s~~ $m$", r"\*\*b\*\* \~\~s\~\~ \$m\$"),
        ("# title", r"\# title"),
        ("a\r\nb\tc\u2028d", "a b c d"),
        ("\x1b[31m\u202e\x00", r"\\x1b\[31m\\u202e\\x00"),
        ("\ud800", r"\\ud800"),
        ("", ""),
        (None, "-"),
    ],
)
def test_a_cell_is_harmless(text: str | None, safe: str) -> None:
    assert escape_markdown(text) == safe


@given(NASTY)
def test_a_cell_still_says_what_it_said(text: str) -> None:
    assert read(escape_markdown(text, 10_000)) == one_line(text, 10_000)


@given(NASTY)
def test_a_cell_holds_nothing_that_a_viewer_would_obey(text: str) -> None:
    safe = escape_markdown(text)
    assert safe.isprintable() or "\u200a" in safe
    assert "\n" not in safe
    bare = re.sub(r"\\[!-/:-@\[-`{-~]|@\u200a", " ", safe)
    assert not set(bare) & set("|`*~[]$<>\\")
    assert not re.search(r"&(?!(lt|gt|amp);)|//|(?i:www\.)|@\S|^#|\b__|__\b", bare)


def test_a_long_cell_is_cut() -> None:
    text = escape_markdown("x" * 1_000_000)
    assert text == "x" * 119 + "…"
    assert escape_markdown("|" * 120) == r"\|" * 120
    assert escape_markdown("|" * 121) == r"\|" * 119 + "…"


@given(st.lists(st.tuples(NASTY, NASTY, NASTY, NASTY), max_size=6))
def test_a_table_has_its_columns_and_rows_whatever_the_text(texts: list[tuple[str, str, str, str]]) -> None:
    found = [
        case_result(
            case_id, "failed", case_type=kind, answer=answer, match_level=level, stale=True, facets={level: kind}
        )
        for case_id, kind, answer, level in texts
    ]
    found += [case_result(case_id, "error", kind=kind, message=text) for case_id, kind, text, _ in texts]
    page = tables(summary(found, COMPLETE, gate("pass_rate", min=0.5, by="case_type")))
    for rows in page.values():
        assert {len(row) for row in rows} == {len(rows[0])}
    sizes = {title: len(rows) - 1 for title, rows in page.items()}
    kinds = {kind for _, kind, _, _ in texts}
    assert sizes["Totals"] == 1
    if texts:
        assert sizes["Failed"] == sizes["Errors (no score)"] == len(texts)
        assert sizes["All cases"] == 2 * len(texts)
        # the entries that broke are of the type `plain`, and the last row is of all cases
        assert sizes["By case type"] == len(kinds | {"plain"}) + 1


def column(page: str, title: str, name: str) -> list[str]:
    head, *rows = tables(page)[title]
    return [row[head.index(name)] for row in rows]


@pytest.mark.parametrize(
    ("found", "changes", "title", "decides"),
    [
        (
            case_results(2),
            {},
            "# packbench: toy - PASSED, 2 of 2 judged cases passed",
            "**All 2 judged cases passed; the gate passed.**",
        ),
        (
            case_results(1, 1),
            {},
            "# packbench: toy - FAILED, 1 of 2 judged cases passed",
            "**1 of 2 judged cases failed.**",
        ),
        (
            case_results(1, 1),
            {"settings": {"gate": "suite"}},
            "# packbench: toy - PASSED, 1 of 2 judged cases passed",
            "**1 of 2 judged cases passed; no gate judges their scores (completeness passed).**",
        ),
        (
            [case_result("a", "failed"), case_result("x", "not_run", kind="interrupted")],
            {"settings": {"gate": "suite"}, "partial": "half"},
            "# packbench: toy - PARTIAL, 0 of 1 judged cases passed",
            "**0 of 1 judged case passed; no gate judges their scores (completeness failed). The run is incomplete: half.**",
        ),
        (
            [*case_results(1), case_result("x", "error")],
            {},
            "# packbench: toy - FAILED, 1 of 1 judged cases passed",
            "**1 case ended in error; gate completeness 1 / 2 = 50.0 % &lt; min 100.0 %: FAIL.**",
        ),
        (
            [*case_results(1), *(case_result(f"x{number}", "vacuous") for number in range(2))],
            {},
            "# packbench: toy - FAILED, 1 of 1 judged cases passed",
            "**2 cases could not have failed (vacuous); gate completeness 1 / 3 = 33.3 % &lt; min 100.0 %: FAIL.**",
        ),
        (
            [*case_results(1), case_result("x", "not_run", kind="interrupted")],
            {"partial": "interrupted: half"},
            "# packbench: toy - PARTIAL, 1 of 1 judged cases passed",
            "**The only judged case passed; completeness failed. The run is incomplete: interrupted: half.**",
        ),
        (
            [*case_results(1, 1), case_result("x", "not_run", kind="stopped")],
            {"partial": "stopped early"},
            "# packbench: toy - FAILED, PARTIAL, 1 of 2 judged cases passed",
            "**1 of 2 judged cases failed. The run is incomplete: stopped early.**",
        ),
    ],
)
def test_the_first_lines_decide(found: list[CaseResult], changes: dict[str, Any], title: str, decides: str) -> None:
    first, _, third, *_ = summary(found, COMPLETE, **changes).splitlines()
    assert (first, third) == (title, decides)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            case_results(2, stale=True),
            "- 2 of 2 cases used a stale recording: the prompt has changed since the recording was made.",
        ),
        (
            case_results(1, stale=True, llm_backend="stub"),
            "- 1 of 1 case used a stale recording: the prompt has changed",
        ),
    ],
)
def test_stale_recordings_are_told_beside_what_the_run_can_tell(found: list[CaseResult], said: str) -> None:
    assert said in summary(found, COMPLETE)
    assert "used a stale recording" in "\n".join(lines(found, COMPLETE))
    assert "used a stale recording" not in summary(case_results(2), COMPLETE)


def test_a_gate_of_the_suites_own_judges_where_gates_alone_decide() -> None:
    shown = summary(case_results(9, 1), COMPLETE, gate("pass_rate", min=0.9), settings={"gate": "suite"})
    assert "**9 of 10 judged cases passed; all 2 gates passed.**" in shown


def test_many_failing_gates_are_named_and_their_arithmetic_stands_below() -> None:
    found = [case_result(f"c{number}", "failed", case_type=f"t{number}") for number in range(5)]
    rules = COMPLETE, gate("pass_rate", min=0.5, by="case_type")
    page = summary(found, *rules)
    assert (
        "5 of 6 gates failed: pass_rate (case_type t0), pass_rate (case_type t1), "
        "pass_rate (case_type t2) and 2 more." in page
    )
    assert column(page, "Gates", "result") == ["PASS", *["FAIL"] * 5]
    texts = [result.text.removesuffix(": FAIL").removesuffix(": PASS") for result in check(found, rules)]
    assert [read(text) for text in column(page, "Gates", "arithmetic")] == texts


@pytest.mark.parametrize(
    ("changes", "backend", "said"),
    [
        (
            {},
            "stub",
            "- Recordings were authored: this run tests gates and scoring, not a model, so no interval is shown.",
        ),
        ({"mode": "live"}, "stub", "- Answers were scripted: this run tests gates and scoring, not a model, so"),
        (
            {},
            "anthropic",
            "- Fixture mode, answers recorded from anthropic/m-1: this run shows whether the pipeline or",
        ),
        ({}, "unknown", "- Fixture mode: this run shows whether the pipeline or the scoring changed, not how good the"),
        ({"mode": "live"}, "anthropic", "- Live mode (anthropic/m-1): this run shows how good the model is on these"),
        (
            {"mode": "live"},
            "unknown",
            "- Live mode; the target called no model through packbench: this run shows how good the target is on these",
        ),
        ({"bundled": True}, "stub", "- The suite is bundled:"),
        ({"target": "cmd:./run"}, "unknown", "- Pipeline not run: scoring only."),
        ({"target": "https://e.com"}, "unknown", "- Pipeline not run: scoring only."),
    ],
)
def test_what_a_run_can_and_can_not_tell(changes: dict[str, Any], backend: str, said: str) -> None:
    assert f"\n{said}" in summary(case_results(1, llm_backend=backend), **changes)


def test_a_model_that_nobody_named_is_not_said_to_be_asked() -> None:
    assert ", backend openai" not in summary(case_results(1), mode="live", backend="openai")
    assert ", live mode, backend openai / m-1;" in summary(case_results(1), mode="live", backend="openai", model="m-1")


@pytest.mark.parametrize("changes", [{}, {"mode": "live", "target": "https://e.com"}])
def test_what_is_not_so_is_not_said(changes: dict[str, Any]) -> None:
    page = summary(case_results(1), **changes)
    assert not re.search("bundled|Pipeline not run|authored|scripted", page)


def test_some_authored_answers_are_told_apart() -> None:
    page = summary([case_result("a"), case_result("b", llm_backend="stub")])
    assert "1 of 2 answers were authored and say nothing about a model." in page


def test_authored_answers_have_neither_an_interval_nor_a_models_name() -> None:
    page = summary(case_results(2, 1, llm_backend="stub", llm_model="opus", match_depth=4))
    assert "Wilson" not in page
    assert "opus" not in page
    assert "Wilson" in summary(case_results(2, 1))


def test_groups_have_counts_rate_interval_and_mean() -> None:
    page = summary(
        [*case_results(3, 1, facets={"colour": "red"}), case_result("x", "error", case_type="", difficulty="")]
    )
    assert tables(page)["By case type"] == [
        ["case_type", "passed", "judged", "pass rate", "95 % Wilson interval (two-sided)", "mean score", "not judged"],
        ["(can't be read)", "0", "0", "-", "-", "-", "1"],
        ["plain", "3", "4", "75.0 %", "30.1 % to 95.4 %", "0.81", "0"],
        ["all cases", "3", "4", "75.0 %", "30.1 % to 95.4 %", "0.81", "1"],
    ]
    assert column(page, "By difficulty", "difficulty") == ["easy", "(can't be read)", "all cases"]
    assert column(page, "By colour", "colour") == ["red", "all cases"]


def test_totals_depth_and_refusals() -> None:
    page = summary(
        [
            *case_results(2, match_depth=4),
            case_result("x", "failed", match_depth=0),
            case_result("y", "failed", refused=True),
            case_result("z", "not_run", kind="skip"),
        ]
    )
    head, counts = tables(page)["Totals"]
    assert dict(zip(head, counts, strict=True)) == {
        "selected": "5",
        "passed": "2",
        "failed": "2",
        "error": "0",
        "vacuous": "0",
        r"known_hole": "0",
        r"not_run": "0",
        "quarantined: skip": "1",
        "quarantined: xfail": "0",
        "stale recordings": "0",
    }
    assert tables(page)["Depth of agreement"][1][:3] == ["4", "2 / 3", "66.7 %"]
    assert tables(page)["Refusals"][1:] == [["refusal", "0", "0"], ["answer", "1", "3"]]


def test_failing_cases_come_first_with_what_cost_them_the_score() -> None:
    found = [
        case_result("a", answer="red"),
        case_result("b", "failed", score=0.7999, match_level="near", match_depth=4, answer="blue", terms=(TERM,)),
        case_result("c", "vacuous", kind="vacuous", message="never reached"),
        case_result("d", "error", kind="timeout", message="after 5 s"),
        case_result("e", "not_run", kind="stopped", message="stopped early"),
        case_result("f", "known_hole", kind="known_hole", message="upstream"),
        case_result("g", "known_hole", kind="xfail", message="gold in doubt", score=0.1, threshold=0.8),
        case_result("h", "failed", stale=True),
    ]
    page = tables(summary(found))
    titles = list(page)[4:]
    assert list(page)[:4] == ["Totals", "By case type", "By difficulty", "Depth of agreement"]
    assert titles == [
        "Failed",
        "Errors (no score)",
        "Vacuous (could not have failed)",
        "Not run",
        "Known holes",
        "Quarantined (by the notes of the case)",
        "All cases",
        "Stale recordings (the prompt has changed since the recording)",
    ]
    assert page["Failed"][1] == [
        *("b", "plain", "0.7999", "0.8000", "near", "4", "blue"),
        "wrong_colour =0 (red was asked)",
    ]
    assert [row[0] for row in page["Failed"][1:]] == ["b", "h"]
    assert page["Errors (no score)"][1:] == [["d", "timeout", "after 5 s", "cases/d.json"]]
    assert [page[title][1][0] for title in titles[2:6]] == ["c", "e", "f", "g"]
    assert [row[:2] for row in page["All cases"][1:]] == [
        ["a", "passed"],
        ["b", "failed"],
        ["c", "vacuous"],
        ["d", "error"],
        ["e", "not_run"],
        ["f", "known_hole"],
        ["g", "quarantined: xfail"],
        ["h", "failed"],
    ]
    assert page["All cases"][2][-1] == "wrong_colour =0"
    assert page[titles[-1]][1:] == [["h", "cases/h.json"]]


def test_the_order_of_entries_makes_no_difference() -> None:
    found = [case_result("b"), case_result("a", "failed"), case_result("c", "error")]
    assert summary(found) == summary(found[::-1])


def test_a_table_that_nobody_reads_to_its_end_says_how_long_it_is() -> None:
    page = summary(case_results(MAX_ROWS + 1))
    assert len(tables(page)["All cases"]) == MAX_ROWS + 1
    assert f"{MAX_ROWS} of {MAX_ROWS + 1} shown; report.json lists all." in page
    assert "shown; all stand" not in summary(case_results(MAX_ROWS))


def test_a_run_of_nothing_is_a_page() -> None:
    page = summary([], COMPLETE)
    assert page.startswith("# packbench: toy - FAILED, 0 of 0 judged cases passed\n")
    assert "No case was judged; gate completeness: no case to judge: FAIL." in page
    assert page.endswith("|\n")
