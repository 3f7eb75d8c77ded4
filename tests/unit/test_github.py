"""What GitHub is told: commands that nothing can break out of, worst first, and a page that fits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.reports.github import MAX_ANNOTATIONS, Annotation, FinishedRun, run_annotations, step_summary
from tests.unit.run_builders import COMPLETE, case_result, conclusion_of, gate, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_packbench.model.gate import Gate
    from pytest_packbench.model.result import CaseResult

COMMAND = re.compile(r"::(?P<level>error|warning) (?P<properties>[^\r\n]*?)::(?P<message>[^\r\n]*)")


def judged_run(found: Sequence[CaseResult], *rules: Gate, gate: str = "case", notes: Sequence[str] = ()) -> FinishedRun:
    return FinishedRun(
        conclusion=conclusion_of(run(settings={"gate": gate}), found, *rules),
        results=found,
        rules="storage/toy/suite.yaml",
        notes=notes,
    )


def unescaped(text: str) -> str:
    """What GitHub's runner makes of it."""
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


@given(st.text(), st.text(), st.text(min_size=1))
def test_nothing_breaks_out_of_a_command(title: str, message: str, file: str) -> None:
    command = Annotation(level="error", title=title, message=message).command(file, 7)
    found = COMMAND.fullmatch(command)
    assert found is not None
    pairs = dict(pair.split("=", 1) for pair in found["properties"].split(","))
    assert {name: unescaped(text) for name, text in pairs.items()} == {"file": file, "line": "7", "title": title}
    assert unescaped(found["message"]) == message


def test_a_command_reads_as_github_documents_it() -> None:
    remark = Annotation(level="error", title="toy: one, two", message="50 %\nor so")
    assert remark.command("a/b.json", 3) == "::error file=a/b.json,line=3,title=toy%3A one%2C two::50 %25%0Aor so"
    assert remark.command() == "::error title=toy%3A one%2C two::50 %25%0Aor so"


def test_the_worst_comes_first() -> None:
    found = [
        case_result("bad", "failed", score=0.5),
        case_result("good"),
        case_result("worse", "failed", score=0.1),
        case_result("broken", "error", kind="cassette_missing", message="no recording"),
        case_result("hole", "known_hole", message="nobody can"),
        case_result("late", "not_run", kind="stopped"),
        case_result("kept_out", "failed", kind="xfail"),
    ]
    given = run_annotations([judged_run(found, COMPLETE, gate("pass_rate", min=0.9))])
    assert [one.title for one in given] == [
        "toy: gate completeness",
        "toy: gate pass_rate",
        "toy: broken: error (cassette_missing)",
        "toy: worse scored 0.10 < 0.80",
        "toy: bad scored 0.50 < 0.80",
    ]
    assert [one.file for one in given[1:3]] == ["storage/toy/suite.yaml", "cases/broken.json"]
    assert {one.level for one in given} == {"error"}


def test_where_gates_decide_a_case_is_a_warning() -> None:
    (only,) = run_annotations([judged_run([case_result("bad", "failed"), case_result("good")], gate="suite")])
    assert only.level == "warning"


@pytest.mark.parametrize("number", [MAX_ANNOTATIONS, MAX_ANNOTATIONS + 5])
def test_more_than_github_shows_are_counted(number: int) -> None:
    given = run_annotations([judged_run([case_result(f"case_{one:02}", "failed") for one in range(number)])])
    assert len(given) == MAX_ANNOTATIONS
    assert given[-1].message.startswith("and 6 more") is (number > MAX_ANNOTATIONS)


def test_many_gates_leave_room_for_cases() -> None:
    found = [case_result(f"case_{one}", "failed") for one in range(3)]
    given = run_annotations([judged_run(found, *[gate("pass_rate", min=0.5 + one / 100) for one in range(8)])])
    assert len(given) == 6
    assert given[2].message.endswith("\nand 5 other gates of toy")


def test_the_page_shows_what_went_wrong_first() -> None:
    found = [
        case_result("a_good"),
        case_result("b_bad", "failed"),
        case_result("c_broken", "error", kind="timeout", message="late"),
    ]
    page = step_summary(judged_run(found, COMPLETE, notes=["3 regressed | 0 improved"]))
    titles = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert titles.index("Failed") < titles.index("By case type") < titles.index("All cases")
    cases = page.partition("## All cases")[2]
    assert re.findall(r"^\| (\w+) +\| \w+ +\| (?:[\d.]+|-)", cases, re.MULTILINE) == ["c_broken", "b_bad", "a_good"]
    assert page.split("\n\n")[2] == "- 3 regressed \\| 0 improved"


@pytest.mark.parametrize("limit", [400_000, 60_000, 3_000, 200])
def test_the_page_fits(limit: int) -> None:
    found = [case_result(f"case_{one:04}", "failed", answer="é" * 90, tags=(f"tag_{one}",)) for one in range(1200)]
    page = step_summary(judged_run(found, COMPLETE), limit)
    assert 0 < len(page.encode()) <= limit
    assert page.startswith("# packbench: toy - FAILED, 0 of 1200 judged cases passed\n")


def test_a_page_without_any_room_is_empty() -> None:
    assert step_summary(judged_run([case_result()]), 10) == ""
