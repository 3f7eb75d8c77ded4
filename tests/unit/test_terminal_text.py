"""The lines at the end of a run: enough to decide, and nothing that a terminal would obey."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.analysis.formatting import (
    format_interval,
    format_percent,
    format_score,
    format_terms,
    format_with_bounds,
)
from pytest_packbench.reports.terminal import MAX_CASES, one_line, printable, text_table
from tests.unit.run_builders import COMPLETE, ONE_OF_EACH, TERMS, case_result, case_results, gate, lines

if TYPE_CHECKING:
    from tests.conftest import ExpectedTexts

PRINTABLE = {
    "plain ü 日本 🙂": "plain ü 日本 🙂",
    "two\nlines": "two\nlines",
    "\x1b[2J\x9b1m\x07": r"\x1b[2J\x9b1m\x07",
    "a\rb\x08\x7f": r"a\rb\x08\x7f",
    "a\u202eb\u2066\u200f": r"a\u202eb\u2066\u200f",
    "\u200b\ufeff\U000e0041": r"\u200b\ufeff\U000e0041",
    "\ud800\u2028": r"\ud800\u2028",
    "a\tb\xa0c\u3000d": "a b c d",
}
SHORTENED = {"abc": "abc", "abcd": "ab…", " a \n b ": "a b", "a" + " " * 100 + "b": "a…"}


def test_text_is_escaped_and_shortened() -> None:
    assert {text: printable(text) for text in PRINTABLE} == PRINTABLE
    assert {text: one_line(text, 3) for text in SHORTENED} == SHORTENED


@given(st.text(), st.integers(1, 40))
def test_escaped_text_is_printable_and_a_line_is_short(text: str, limit: int) -> None:
    escaped = printable(text)
    assert escaped.replace("\n", "").isprintable()
    assert escaped.count("\n") == text.count("\n")
    assert printable(escaped) == escaped
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()


def test_the_lines_of_a_run_with_one_of_each_and_of_a_good_one(expected: ExpectedTexts) -> None:
    runs = {
        "one of each": lines(ONE_OF_EACH, COMPLETE, gate("pass_rate", min=0.5), mode="live"),
        "all passed, authored": lines(case_results(2, llm_backend="stub"), COMPLETE),
        "one passed, no gate": lines(case_results(1)),
        "nothing": lines([], COMPLETE),
    }
    expected.check("\n".join(line for name, run in runs.items() for line in (f"[{name}]", *run, "", "")))


def test_a_table_aligns_columns_and_keeps_text_that_looks_like_a_number() -> None:
    assert text_table([("a", "b"), ("1e3", ""), ("0010", "x\x1b[1m")]) == ["a     b", "1e3", "0010  x\\x1b[1m"]
    assert text_table([("case", "n"), ("a", "10")], numbers=True) == ["case   n", "a     10"]
    assert text_table([]) == []


@pytest.mark.parametrize("verdict", ["failed", "error"])
def test_only_the_first_bad_cases_are_listed(verdict: str) -> None:
    for more in (0, 5):
        printed = lines([case_result(f"c{number:02}", verdict) for number in range(MAX_CASES + more)])
        assert sum(line.startswith("  c") for line in printed) == MAX_CASES
        assert ("  and 5 more" in printed, "and 0" in "".join(printed)) == (more == 5, False)


@settings(max_examples=40)
@given(st.text(max_size=20))
def test_no_text_of_a_case_or_a_model_reaches_the_terminal_raw(text: str) -> None:
    nasty = f"\x1b]0;x\x07{text}\n\u202e"
    terms = ({**TERMS[0], "name": nasty},)
    results = [
        case_result(nasty, "failed", case_type=nasty, terms=terms, stale=True, llm_model=nasty),
        case_result(nasty, "error", kind=nasty, message=nasty, facets={nasty: nasty}),
    ]
    printed = lines(results, gate("pass_rate", min=0.5, by="case_type"), partial=nasty, bundled=True)
    assert all(line.isprintable() for line in printed)


SHARES = {
    (0, 0): "-",
    (0, 3): "0.0 %",
    (3, 3): "100.0 %",
    (1, 3): "33.3 %",
    (23, 24): "95.8 %",
    (2499, 2500): "99.96 %",
    (99_999, 100_000): "99.999 %",
    (1, 10_000): "0.01 %",
}
SCORES = {
    (0.25, 0.8): ("0.25", "0.80"),
    (0.7999, 0.8): ("0.7999", "0.8000"),
    (0.8 - 1e-12, 0.8): ("0.80", "0.80"),
    (0.9996, 0.8): ("0.9996", "0.8000"),
    (0.5, 0.875): ("0.500", "0.875"),
    (None, 0.8): ("-", "0.80"),
    (0.5, None): ("0.50", "-"),
    (None, None): ("-", "-"),
}
INTERVALS = {None: "-", (0.1234, 1.0): "12.3 % to 100.0 %"}


def test_numbers_have_the_decimals_that_tell_them_apart() -> None:
    assert {share: format_percent(*share) for share in SHARES} == SHARES
    assert {score: format_score(*score) for score in SCORES} == SCORES
    assert {ends: format_interval(ends) for ends in INTERVALS} == INTERVALS


NEARLY = st.sampled_from([0.0, 1e-12, 9.99e-10, 1e-9, 1.001e-9, 2e-9, 1e-7, 5e-4])


@given(st.floats(0, 1), st.floats(0, 1) | NEARLY, st.booleans(), st.booleans())
def test_formatted_numbers_compare_as_they_do(bound: float, other: float, near: bool, as_percent: bool) -> None:
    value = min(1.0, bound + other) if near else other
    left, right = (float(text.removesuffix(" %")) for text in format_with_bounds(value, bound, as_percent=as_percent))
    assert (left >= right) is (value >= bound - 1e-9)
    assert (left <= right) is (value <= bound + 1e-9)
    assert abs(left - value * (100 if as_percent else 1)) <= 0.05


def test_terms_have_their_effect_and_if_wanted_their_detail() -> None:
    assert format_terms(TERMS) == "match +1.00; order -0.10; limit -0.05; nothing_ran; forbidden =0"
    assert format_terms(TERMS, details=True) == (
        "match +1.00 (whole); order -0.10; limit -0.05 (to 1); nothing_ran (no trace); forbidden =0 (by name)"
    )
    assert format_terms([{}]) == ""
