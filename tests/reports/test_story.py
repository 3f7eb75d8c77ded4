"""What is rendered of a run: its JSON object, page, terminal lines and GitHub commands, which no text of a model or a case can bend."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.changes import BaselineOutcome
from pytest_packbench.analysis.conclusion import times_of
from pytest_packbench.analysis.counting import MAX_ROWS
from pytest_packbench.analysis.statistics import (
    format_interval,
    format_percent,
    format_score,
    format_terms,
    format_with_bounds,
)
from pytest_packbench.model.result import Term
from pytest_packbench.model.run import Run
from pytest_packbench.reports.blocks import Cell, Table, escape_markdown, markdown
from pytest_packbench.reports.github import (
    MAX_ANNOTATIONS,
    Annotation,
    FinishedRun,
    blob_root,
    run_annotations,
    step_summary,
)
from pytest_packbench.reports.story import MAX_CASES, Place, summary_markdown
from pytest_packbench.reports.terminal import escape_commands, one_line, printable, text_table
from pytest_packbench.runs.writing import row_line
from tests.unit.run_builders import (
    COMPLETE,
    ONE_OF_EACH,
    TERMS,
    case_result,
    case_results,
    changed,
    conclusion_of,
    data,
    document,
    gate,
    lines,
    results_of,
    run,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_packbench.model.result import Result
    from pytest_packbench.model.suite import Gate
    from tests.conftest import ExpectedTexts


def finished(results: Sequence[Result], *rules: Gate, gate: str = "case", **outcome: Any) -> FinishedRun:
    conclusion = conclusion_of(run(settings={"gate": gate}), results, *rules)
    baseline = BaselineOutcome(**outcome) if outcome else None
    conclusion = replace(conclusion, baseline=baseline)
    return FinishedRun(conclusion=conclusion, rules="storage/toy/suite.yaml")


RULES = COMPLETE, gate("pass_rate", min=0.5, by="case_type")


def test_the_document_page_and_lines_of_a_run_with_one_of_each(expected: ExpectedTexts) -> None:
    content = document(run(), ONE_OF_EACH, *RULES)
    assert content == document(run(), ONE_OF_EACH[::-1], *RULES)
    assert Run(**{**content["run"], "findings": tuple(content["run"]["findings"])}) == run()
    assert [row["case_id"] for row in content["cases"]] == [result.case.case_id for result in ONE_OF_EACH]
    shortened = json.dumps({**content, "cases": content["cases"][1:2]})
    rounded = json.loads(shortened, parse_float=lambda number: round(float(number), 9))
    expected.check(json.dumps(rounded, indent=1, ensure_ascii=False) + "\n", "json")
    page = summary(ONE_OF_EACH, *RULES)
    assert summary(ONE_OF_EACH[::-1], *RULES) == page
    expected.check(page, "md")
    runs = {
        "one of each": lines(ONE_OF_EACH, COMPLETE, gate("pass_rate", min=0.5), mode="live"),
        "all passed, authored": lines(case_results(2, llm_backend="stub"), COMPLETE),
        "one passed, no gate": lines(case_results(1)),
        "nothing": lines([], COMPLETE),
    }
    expected.check("\n".join(line for name, run in runs.items() for line in (f"[{name}]", *run, "", "")))


def test_a_row_has_all_of_a_result_but_its_record_and_payload_and_null_for_a_number_that_is_not_finite() -> None:
    result = case_result("a", "failed", trial=2, terms=TERMS, record={"secret": 1}, payload={"long": 1})
    result = changed(result, cost_usd=0.25)
    row = {name: value for name, value in result.as_json().items() if name not in {"suite", "record", "payload"}}
    assert json.loads(row_line(result)) == row
    del row["cost_usd"]
    assert json.loads(row_line(changed(result, cost_usd=None))) == row
    for number in (math.nan, math.inf, -math.inf):
        result = case_result("a", terms=(replace(TERMS[0], value=number),), answer="NaN")
        content = document(run(settings={"x": [number]}), [result])
        json.dumps(content, allow_nan=False)
        (row,) = content["cases"]
        assert (row["terms"][0]["value"], row["answer"]) == (None, "NaN")
        assert content["run"]["settings"] == {"x": [None]}


PIECES = (
    *("|", "\\", "`", "```", "**", "_", "~~", "$x$", "# ", "a", "case_1", " "),
    *("<b>", "<!--", "-->", "&lt;", "[x](http://e.com)", "![x](y)"),
    *("#1", "GH-2", "o/r#3", "##[", "##vso[x]"),
    *("https://e.com", "//e.com", "www.e.com", "WWW.e.com", "a@b.com"),
    *("\n", "\r\n", "\t", "\x00", "\x1b[31m", "\u202e", "\u2028", "\ud800"),
)
NASTY = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
RENDERED = data("rendered.yaml")
LONG_CELLS = {
    "x" * 1_000_000: "x" * 399 + "…",
    "|" * 400: r"\|" * 400,
    "|" * 401: r"\|" * 399 + "…",
}


FORMATS: dict[str, Callable[..., Any]] = {
    "cells": escape_markdown,
    "printable": printable,
    "commands": escape_commands,
    "shortened": lambda text: one_line(text, 3),
    "shares": lambda counts: format_percent(*counts),
    "scores": lambda numbers: [*format_score(*numbers)],
    "intervals": format_interval,
}


def test_texts_and_numbers_are_rendered_as_in_their_table() -> None:
    for name, render in FORMATS.items():
        for value, text in RENDERED[name]:
            assert render(value) == text
    for text, cell in LONG_CELLS.items():
        assert escape_markdown(text) == cell

    assert format_terms([]) == ""
    assert format_terms([*TERMS[:1], *TERMS]) == f"match +1.00; {format_terms(TERMS)}"
    notes = [Term(name="unknown_key", effect="note", detail=place) for place in ("/a", "/b")]
    assert format_terms(notes) == "unknown_key"
    assert format_terms(notes, details=True) == "unknown_key (/a); unknown_key (/b)"
    assert format_terms(TERMS) == "match +1.00; order -0.10; limit -0.05; nothing_ran; forbidden =0"
    details = "match +1.00 (whole); order -0.10; limit -0.05 (to 1); nothing_ran (no trace); forbidden =0 (by name)"
    assert format_terms(TERMS, details=True) == details


def as_shown(cell: str) -> str:
    """Return what a viewer shows of a cell."""
    text = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", cell)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("\u200a", "")


@given(NASTY)
@example("_GH-2")
def test_a_cell_shows_its_text_and_contains_nothing_that_a_viewer_would_obey(text: str) -> None:
    assert as_shown(escape_markdown(text, 10_000)) == one_line(text, 10_000)
    cell = escape_markdown(text)
    assert cell.isprintable() or "\u200a" in cell
    bare = re.sub(r"\\[!-/:-@\[-`{-~]|[@#]\u200a|-\u200a", " ", cell)
    assert not set(bare) & set("|`*~[]$<>\\\n")
    assert not re.search(r"&(?!(lt|gt|amp);)|//|(?i:www\.)|@\S|^#|#\d|(?i:\bgh-\d)|\b__|__\b", bare)


def columns(line: str) -> int:
    """Count the cells of a row: a backslash escapes the character after it."""
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) - 1


@settings(max_examples=30)
@given(st.lists(st.tuples(NASTY, NASTY, NASTY, NASTY), max_size=4))
def test_whatever_the_text_a_table_has_its_columns_and_rows_and_the_terminal_gets_no_escape(
    texts: list[tuple[str, str, str, str]],
) -> None:
    results = [
        case_result(
            name,
            "failed",
            case_type=kind,
            answer=answer,
            match_level=level,
            stale=True,
            terms=(replace(TERMS[0], name=name),),
            **dict.fromkeys(("input_text", "expected_text", "actual_text", "nodeid", "file"), f"{name}{level}"),
        )
        for name, kind, answer, level in texts
    ]
    results += [
        case_result(name, "error", kind=kind, message=text, llm_model=text, facets={kind: text})
        for name, kind, text, _ in texts
    ]
    assert all(line.isprintable() for line in lines(results, *RULES, partial="\x1b]0;x\x07", bundled=True))
    content = document(run(), results, *RULES)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    page = summary_markdown(conclusion_of(run(), results, *RULES), place=Place(".."))
    rows = {}
    for part in re.split(r"\n##+ |\n<summary>", page)[1:]:
        title, *rest = part.splitlines()
        table = [line for line in rest if line.startswith("|")]
        assert len({columns(line) for line in table}) <= 1
        # below the head is the line that makes it a table
        rows[title] = len(table) - 2
    assert page.count("<details>") == page.count("\n</details>\n") == page.count("<summary>")
    if texts:
        assert rows["Failed"] == rows["Errors (no score)"] == len(texts)
        assert rows[f"Failed: {len(texts)}, with the terms of their scores</summary>"] == len(texts)
        # the errors are of the type `plain`, and the last row is of all cases
        assert rows["By case type"] == len({kind for _, kind, _, _ in texts} | {"plain"}) + 1


def test_a_case_leads_to_its_file_where_a_reader_can_open_it() -> None:
    for file, address in {
        "cases/a.json": "../../cases/a.json",
        "cases/many.jsonl:12": "../../cases/many.jsonl#L12",
        "my cases/a)(b.json": "../../my%20cases/a%29%28b.json",
        **dict.fromkeys(("bundled:tariff/cases/a.json", "/home/a.json", "../a.json", "c\n.json", "c:\\a.json", "")),
    }.items():
        assert Place("../..").address(file) == (address or "")
    assert Place().address("cases/a.json") == ""
    assert markdown([Table("", ("case",), [(Cell("a [b]", href="x.json"),)])]).endswith(r"| [a \[b\]](x.json) |")
    github = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "o/r", "GITHUB_SHA": "ab12"}
    assert blob_root(github, Path("/w/r"), "/w/r") == "https://github.com/o/r/blob/ab12"
    assert blob_root(github, Path("/w/r/my app"), "/w/r") == "https://github.com/o/r/blob/ab12/my%20app"
    assert blob_root(github, Path("/w/other"), "/w/r") is blob_root({}, Path("/w/r"), "/w/r") is None


def test_a_live_run_says_what_it_used_and_a_failing_one_how_to_run_it_again() -> None:
    spent = {"calls": 3, "tokens": 900, "uncounted": 0, "cost": None, "currency": "USD"}
    results = [case_result("a", "failed", nodeid="it's ```.json::a"), *case_results(0, 30)]
    live = replace(conclusion_of(run(mode="live", settings={"spent": spent}), results), times=times_of([5, 1500, 2000]))
    page = summary_markdown(live, place=Place(options="--packbench-mode=live"))
    assert "\nUsed: 3 model calls, 900 tokens, cost not known; 3 attempts: p50 1.5 s, p95 2.0 s.\n" in page
    assert (
        "\nTo re-run the first 10 of 31 cases that did not pass:\n\n````sh\npytest 'it'\"'\"'s ```.json::a' cases/"
        in page
    )
    assert "::c16 --packbench-mode=live\n````\n" in page
    unknown = summary_markdown(conclusion_of(run(mode="live"), case_results(1)))
    assert "\nUsed: calls, tokens and cost not known.\n" in unknown
    assert "re-run" not in unknown
    assert "Used" not in summary_markdown(replace(live, run=run()))
    bundled = summary(case_results(0, 2), bundled=True)
    assert "\npytest --packbench-suite=bundled/toy -k 'c0 or c1'\n" in bundled
    assert times_of([]) is None
    assert times_of(range(1, 101)) == (100, 50, 95)


def test_the_first_lines_decide_and_say_what_the_run_can_show(expected: ExpectedTexts) -> None:
    pages, texts = {}, []
    for name, vector in data("summaries.yaml").items():
        rules = [COMPLETE if rule == "complete" else gate(**rule) for rule in vector.get("gates", ())]
        results, changes = results_of(vector["results"]), vector.get("run", {})
        pages[name] = summary(results, *rules, **changes)
        content = document(run(**changes), results, *rules)
        assert content["complete"] is ("partial" not in changes)
        texts.append(f"{name}: {content['status']}\n{pages[name].partition('<details>')[0]}")
    expected.check("".join(texts), "md")
    assert "- backend: openai\n- model: m-1\n" in pages["live"]
    assert "- model" not in pages["live, model not named"]
    # answers written by authors have neither an interval nor a model
    assert not re.search("Wilson|m-1", pages["authored"])


def test_the_score_of_several_trials_stands_beside_the_terms_of_the_worst() -> None:
    low, high = (replace(TERMS[0], value=value) for value in (0.4, 1.0))
    scores = {"mean": ((1.0, high), (0.4, low), (0.8, high)), "all": ((1.0, high), (0.7, low), (1.0, high))}
    shown = {"mean": "0.73 < 0.80", "all": "0.90, threshold 0.80"}
    for rule, trials in scores.items():
        settings = {"trials": 3, "trials_rule": rule}
        results = [
            case_result(
                "a", "passed" if score >= 0.8 else "failed", trial=number, score=score, terms=(term,), actual_text="30"
            )
            for number, (score, term) in enumerate(trials)
        ]
        (row,) = [line for line in lines(results, settings=settings) if line.startswith("  a ")]
        assert re.split(" {2,}", row) == ["", "a", shown[rule], "2 / 3", "match +0.40"]
        page = summary(results, settings=settings)
        assert f"| {shown[rule].replace('<', '&lt;')} " in page
        assert "| actual (worst trial) " in page


def test_long_lists_are_cut_and_end_with_their_length() -> None:
    page = summary(case_results(MAX_ROWS + 1))
    assert len(re.findall(r"^\| c\d", page, re.MULTILINE)) == MAX_ROWS
    assert f"{MAX_ROWS} of {MAX_ROWS + 1} shown; report.json lists all." in page
    assert "shown" not in summary(case_results(MAX_ROWS))
    for more, verdict in product((0, 5), ("failed", "error")):
        cases = [(f"c{number:02}", f"message {number}") for number in range(MAX_CASES + more)]
        printed = lines([case_result(case_id, verdict, message=message) for case_id, message in cases])
        assert sum(re.match(r"  c\d", line) is not None for line in printed) == MAX_CASES
        hidden = "  20 of 25 shown; report.json lists all." if verdict == "failed" else "5 more cases without a score"
        assert any(line.startswith(hidden) for line in printed) == (more == 5)
        annotations = run_annotations([finished(case_results(0, MAX_ANNOTATIONS + more))])
        assert len(annotations) == MAX_ANNOTATIONS
        assert re.findall(r"^and (\d+) more", annotations[-1].message) == (["6"] if more else [])
    # equal errors of several cases are one line, those of most cases come first, and none is cut
    long = " ".join(["record it"] * 30)
    same = {name: f"fixtures/{name}.json: missing; {long}" for name in (f"c{number:03}" for number in range(250))}
    messages = {"b": "x" * 300, **same, "d": "cases/d.json: again", "e": "cases/e.json: again"}
    printed = lines([case_result(name, "error", message=message) for name, message in messages.items()])
    shown = [re.split(" {2,}", line) for line in printed[printed.index("Errors and vacuous cases:") + 2 :][:3]]
    assert [cells[1:3] for cells in shown] == [["c000, c001, c002 and 247 more", "250"], ["d, e", "2"], ["b", "-"]]
    assert [cells[-1] for cells in shown] == [same["c000"], messages["d"], messages["b"]]
    # there is room for cases beside gates
    gates = [gate("pass_rate", min=0.5 + number / 100) for number in range(8)]
    first, *others = run_annotations([finished(case_results(0, 3), *gates)])
    assert (first.title, first.message.count("\n"), len(others)) == ("toy: 8 gates failed", 5, 3)
    assert first.message.endswith("\nand 3 more")


_JOINERS = re.compile("[\u200c\u200d]")


@given(st.text(), st.integers(1, 40))
def test_escaped_text_is_printable_and_a_line_is_short(text: str, limit: int) -> None:
    escaped = printable(text)
    assert _JOINERS.sub("", escaped.replace("\n", "")).isprintable()
    assert escaped.count("\n") == text.count("\n")
    assert printable(escaped) == escaped
    line = one_line(text, limit)
    assert len(line) <= limit
    assert _JOINERS.sub("", line).isprintable()


def test_a_table_aligns_columns_and_keeps_text_that_looks_like_a_number() -> None:
    assert text_table([("a", "b"), ("1e3", ""), ("0010", "x\x1b[1m")]) == ["a     b", "1e3", "0010  x\\x1b[1m"]
    assert text_table([("case", "n"), ("a", "10")], numbers=True) == ["case   n", "a     10"]
    assert text_table([]) == []


NEARLY = st.sampled_from([0.0, 1e-12, 9.99e-10, 1e-9, 1.001e-9, 2e-9, 1e-7, 5e-4])


@given(st.floats(0, 1), st.floats(0, 1) | NEARLY, st.booleans(), st.booleans())
def test_formatted_numbers_compare_as_they_do(bound: float, other: float, near: bool, as_percent: bool) -> None:
    value = min(1.0, bound + other) if near else other
    left, right = (float(text.removesuffix(" %")) for text in format_with_bounds(value, bound, as_percent=as_percent))
    assert (left >= right) is (value >= bound - 1e-9)
    assert (left <= right) is (value <= bound + 1e-9)
    assert abs(left - value * (100 if as_percent else 1)) <= 0.05 + 1e-9


COMMAND = re.compile(r"::(?P<level>error|warning) (?P<properties>[^\r\n]*?)::(?P<message>[^\r\n]*)")


def unescaped(text: str) -> str:
    """Decode text as GitHub's runner does."""
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


@given(st.text(), st.text(), st.text(min_size=1))
def test_nothing_breaks_out_of_a_command(title: str, message: str, file: str) -> None:
    match = COMMAND.fullmatch(Annotation(level="error", title=title, message=message).command(file, 7))
    assert match is not None
    properties = dict(pair.split("=", 1) for pair in match["properties"].split(","))
    assert {name: unescaped(text) for name, text in properties.items()} == {
        "file": printable(file),
        "line": "7",
        "title": printable(title),
    }
    assert unescaped(match["message"]) == printable(message)


def test_gates_come_before_errors_and_worse_cases_before_better_ones(expected: ExpectedTexts) -> None:
    example = Annotation(level="error", title="toy: one, two", message="50 %\nor so")
    assert example.command("a/b.json", 3) == "::error file=a/b.json,line=3,title=toy%3A one%2C two::50 %25%0Aor so"
    assert example.command() == "::error title=toy%3A one%2C two::50 %25%0Aor so"
    worse = case_result("worse", "failed", score=0.1, terms=(replace(TERMS[0], value=0.1),))
    annotations = run_annotations([finished([*ONE_OF_EACH, worse], COMPLETE, gate("pass_rate", min=0.9))])
    expected.check("".join(f"{annotation.command(annotation.file, 1)}\n" for annotation in annotations))
    # a failing case is a warning where gates decide
    (annotation,) = run_annotations([finished(case_results(1, 1), gate="suite")])
    assert annotation.level == "warning"


MANY = [case_result(f"case_{n:04}", "failed", answer="é" * 90, tags=(f"t{n}",)) for n in range(1200)]


def test_the_page_fits() -> None:
    long = finished(MANY, COMPLETE, requested="latest", problem="no run | of ours", optional=True)
    for least, limit in ((40_000, 60_000), (15_000, 40_000), (1_000, 6_000), (50, 200)):
        page = step_summary(long, limit)
        assert least < len(page.encode()) <= limit
        assert page.startswith("# packbench: toy - FAILED, 0 of 1200 judged cases passed\n")
    assert "\n- baseline: no run \\| of ours\n" in step_summary(long, 40_000)
    assert step_summary(long, 10) == ""
