"""What GitHub gets: commands that nothing can break out of, the worst first, and a page that fits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.reports.github import MAX_ANNOTATIONS, Annotation, FinishedRun, run_annotations, step_summary
from tests.unit.run_builders import COMPLETE, ONE_OF_EACH, case_result, case_results, conclusion_of, gate, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.gate import Gate
    from pytest_packbench.model.result import CaseResult
    from tests.conftest import ExpectedTexts

COMMAND = re.compile(r"::(?P<level>error|warning) (?P<properties>[^\r\n]*?)::(?P<message>[^\r\n]*)")


def finished(results: Sequence[CaseResult], *rules: Gate, gate: str = "case", notes: Sequence[str] = ()) -> FinishedRun:
    conclusion = conclusion_of(run(settings={"gate": gate}), results, *rules)
    return FinishedRun(conclusion=conclusion, results=results, rules="storage/toy/suite.yaml", notes=notes)


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
    assert {name: unescaped(text) for name, text in properties.items()} == {"file": file, "line": "7", "title": title}
    assert unescaped(match["message"]) == message


def test_a_command_is_written_as_github_documents_it() -> None:
    annotation = Annotation(level="error", title="toy: one, two", message="50 %\nor so")
    assert annotation.command("a/b.json", 3) == "::error file=a/b.json,line=3,title=toy%3A one%2C two::50 %25%0Aor so"
    assert annotation.command() == "::error title=toy%3A one%2C two::50 %25%0Aor so"


def test_gates_come_before_errors_and_worse_cases_before_better_ones(expected: ExpectedTexts) -> None:
    worse = case_result(
        "worse", "failed", score=0.1, terms=({"name": "x", "effect": "add", "value": 0.1, "detail": ""},)
    )
    annotations = run_annotations([finished([*ONE_OF_EACH, worse], COMPLETE, gate("pass_rate", min=0.9))])
    expected.check("".join(f"{annotation.command(annotation.file, 1)}\n" for annotation in annotations))


def test_a_failing_case_is_a_warning_where_gates_decide() -> None:
    (annotation,) = run_annotations([finished(case_results(1, 1), gate="suite")])
    assert annotation.level == "warning"


@pytest.mark.parametrize("more", [0, 5])
def test_only_as_many_annotations_as_github_shows(more: int) -> None:
    annotations = run_annotations([finished(case_results(0, MAX_ANNOTATIONS + more))])
    assert len(annotations) == MAX_ANNOTATIONS
    assert annotations[-1].message.startswith("and 6 more") is (more == 5)


def test_many_gates_leave_room_for_cases() -> None:
    gates = [gate("pass_rate", min=0.5 + number / 100) for number in range(8)]
    annotations = run_annotations([finished(case_results(0, 3), *gates)])
    assert len(annotations) == 6
    assert annotations[2].message.endswith("\nand 5 other gates of toy")


def test_the_page_lists_failures_first() -> None:
    results = [case_result("a_good"), case_result("b_bad", "failed"), case_result("c_broken", "error", kind="timeout")]
    page = step_summary(finished(results, COMPLETE, notes=["3 regressed | 0 improved"]))
    titles = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert titles == ["Totals", "Gates", "Failed", "Errors (no score)", "By case type", "By difficulty", "All cases"]
    cases = page.partition("## All cases")[2]
    assert re.findall(r"^\| (\w+) +\| \w+ +\| (?:[\d.]+|-)", cases, re.MULTILINE) == ["c_broken", "b_bad", "a_good"]
    assert page.split("\n\n")[2] == "- 3 regressed \\| 0 improved"


LONG = finished(
    [case_result(f"case_{n:04}", "failed", answer="é" * 90, tags=(f"t{n}",)) for n in range(1200)], COMPLETE
)


@pytest.mark.parametrize(("least", "limit"), [(80_000, 400_000), (15_000, 60_000), (50, 3_000), (50, 200)])
def test_the_page_fits(least: int, limit: int) -> None:
    page = step_summary(LONG, limit)
    assert least < len(page.encode()) <= limit
    assert page.startswith("# packbench: toy - FAILED, 0 of 1200 judged cases passed\n")


def test_a_page_without_any_room_is_empty() -> None:
    assert step_summary(finished([case_result()]), 10) == ""
