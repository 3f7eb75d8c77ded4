"""The lines at the end of a run: enough to decide, and nothing that a terminal would obey."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.analysis.formatting import (
    format_interval,
    format_percent,
    format_score,
    format_terms,
    format_with_bounds,
)
from pytest_packbench.reports.terminal import MAX_CASES, one_line, printable, text_table
from tests.unit.run_builders import COMPLETE, case_result, case_results, check, gate, lines

TERMS = (
    {"name": "match", "effect": "add", "value": 1.0, "detail": "whole"},
    {"name": "order", "effect": "add", "value": -0.1, "detail": ""},
    {"name": "limit", "effect": "clamp", "value": -0.05, "detail": "to 1"},
    {"name": "nothing_ran", "effect": "note", "value": 0.0, "detail": "no trace"},
    {"name": "forbidden", "effect": "zero", "value": 0.0, "detail": "by name"},
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 日本 🙂", "plain ü 日本 🙂"),
        ("two\nlines", "two\nlines"),
        ("\x1b[2J\x9b1m\x07", r"\x1b[2J\x9b1m\x07"),
        ("a\rb\x08\x7f", r"a\rb\x08\x7f"),
        ("a\u202eb\u2066\u200f", r"a\u202eb\u2066\u200f"),
        ("\u200b\ufeff\U000e0041", r"\u200b\ufeff\U000e0041"),
        ("\ud800\u2028", r"\ud800\u2028"),
        ("a\tb\xa0c\u3000d", "a b c d"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_printable_text_is_printable_and_stays_so(text: str) -> None:
    shown = printable(text)
    assert shown.replace("\n", "").isprintable()
    assert shown.count("\n") == text.count("\n")
    assert printable(shown) == shown


@given(st.text(), st.integers(1, 40))
def test_one_line_is_short_and_one(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()


def test_one_line_shows_that_it_was_cut() -> None:
    assert one_line("abc", 3) == "abc"
    assert one_line("abcd", 3) == "ab…"
    assert one_line(" a \n b ", 3) == "a b"
    assert one_line("a" + " " * 100 + "b", 3) == "a…"


def test_the_lines_of_a_run() -> None:
    found = [
        *case_results(2),
        case_result("bad", "failed", case_type="odd", score=0.7999, terms=TERMS),
        case_result("broken", "error", kind="timeout", message="after 5 s"),
        case_result("old", stale=True),
        case_result("out", "not_run", kind="skip"),
    ]
    completeness, pass_rate = (result.text for result in check(found, [COMPLETE, gate("pass_rate", min=0.5)]))
    assert lines(found, COMPLETE, gate("pass_rate", min=0.5), mode="live") == [
        "6 cases: 3 passed, 1 failed, 1 error; quarantined 1 skip; 1 stale recording",
        f"1 of 4 judged cases failed; 1 case ended in error; gate {completeness}.",
        "Live mode (anthropic/m-1): this run shows how good the model is on these cases.",
        "",
        "case type  passed     rate  mean score  95 % Wilson interval",
        "odd         0 / 1    0.0 %        0.80       0.0 % to 79.3 %",
        "plain       3 / 3  100.0 %        1.00     43.9 % to 100.0 %",
        "all         3 / 4   75.0 %        0.95      30.1 % to 95.4 %",
        "",
        "gates:",
        f"  {completeness}",
        f"  {pass_rate}",
        "",
        "failed:",
        "  bad  0.7999 < 0.8000  match +1.00; order -0.10; limit -0.05; nothing_ran; forbidden =0",
        "",
        "error or vacuous:",
        "  broken  timeout  after 5 s",
        "",
        "stale recordings:",
        "  old",
    ]


def test_a_table_aligns_columns_and_keeps_text_that_looks_like_a_number() -> None:
    assert text_table([("a", "b"), ("1e3", ""), ("0010", "x\x1b[1m")]) == ["a     b", "1e3", "0010  x\\x1b[1m"]
    assert text_table([("case", "n"), ("a", "10")], numbers=True) == ["case   n", "a     10"]
    assert text_table([]) == []


def test_a_good_run_is_short() -> None:
    assert lines(case_results(2, llm_backend="stub"), COMPLETE) == [
        "2 cases: 2 passed",
        "All 2 judged cases passed; the gate passed.",
        "Recordings were authored: this run tests gates and scoring, not a model, so no interval is shown.",
        "",
        "case type  passed     rate  mean score",
        "plain       2 / 2  100.0 %        1.00",
        "all         2 / 2  100.0 %        1.00",
        "",
        "gates:",
        "  completeness 2 / 2 = 100.0 % >= min 100.0 %: PASS",
    ]


@pytest.mark.parametrize("verdict", ["failed", "error"])
def test_many_bad_cases_are_counted_not_shown(verdict: str) -> None:
    found = [case_result(f"c{number:02}", verdict) for number in range(MAX_CASES + 5)]
    told = lines(found)
    assert sum(line.startswith("  c") for line in told) == MAX_CASES
    assert "  and 5 more" in told


@given(st.text(max_size=20))
def test_nothing_out_of_a_case_or_a_model_reaches_the_terminal_raw(text: str) -> None:
    nasty = f"\x1b]0;x\x07{text}\n\u202e"
    found = [
        case_result(
            nasty, "failed", case_type=nasty, terms=({**TERMS[0], "name": nasty},), stale=True, llm_model=nasty
        ),
        case_result(nasty, "error", kind=nasty, message=nasty, facets={nasty: nasty}),
    ]
    told = lines(found, gate("pass_rate", min=0.5, by="case_type"), partial=nasty, bundled=True)
    assert all(line.isprintable() for line in told)


def test_a_run_of_nothing_has_lines() -> None:
    assert lines([], COMPLETE)[0] == "0 cases: 0 passed"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "-"),
        (0, 3, "0.0 %"),
        (3, 3, "100.0 %"),
        (1, 3, "33.3 %"),
        (23, 24, "95.8 %"),
        (2499, 2500, "99.96 %"),
        (99_999, 100_000, "99.999 %"),
        (1, 10_000, "0.01 %"),
    ],
)
def test_a_share_is_all_or_none_only_where_it_is(part: int, whole: int, text: str) -> None:
    assert format_percent(part, whole) == text


@pytest.mark.parametrize(
    ("value", "threshold", "shown"),
    [
        (0.25, 0.8, ("0.25", "0.80")),
        (0.7999, 0.8, ("0.7999", "0.8000")),
        (0.8 - 1e-12, 0.8, ("0.80", "0.80")),
        (0.9996, 0.8, ("0.9996", "0.8000")),
        (0.5, 0.875, ("0.500", "0.875")),
        (None, 0.8, ("-", "0.80")),
        (0.5, None, ("0.50", "-")),
        (None, None, ("-", "-")),
    ],
)
def test_a_score_beside_its_threshold(value: float | None, threshold: float | None, shown: tuple[str, str]) -> None:
    assert format_score(value, threshold) == shown


NEARLY = st.sampled_from([0.0, 1e-12, 9.99e-10, 1e-9, 1.001e-9, 2e-9, 1e-7, 5e-4])


@given(st.floats(0, 1), st.floats(0, 1) | NEARLY, st.booleans(), st.booleans())
def test_shown_numbers_compare_as_they_do(bound: float, other: float, near: bool, as_percent: bool) -> None:
    value = min(1.0, bound + other) if near else other
    left, right = (float(text.removesuffix(" %")) for text in format_with_bounds(value, bound, as_percent=as_percent))
    assert (left >= right) is (value >= bound - 1e-9)
    assert (left <= right) is (value <= bound + 1e-9)
    assert abs(left - value * (100 if as_percent else 1)) <= 0.05


def test_an_interval() -> None:
    assert format_interval(None) == "-"
    assert format_interval((0.1234, 1.0)) == "12.3 % to 100.0 %"


def test_terms_say_what_they_did() -> None:
    assert format_terms(TERMS) == "match +1.00; order -0.10; limit -0.05; nothing_ran; forbidden =0"
    assert format_terms(TERMS, details=True) == (
        "match +1.00 (whole); order -0.10; limit -0.05 (to 1); nothing_ran (no trace); forbidden =0 (by name)"
    )
    assert format_terms([{}]) == ""
