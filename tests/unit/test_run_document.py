"""The run's JSON object: complete, plain, sorted, and never without a number where it promises one."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_packbench.model.run import RUN_DOCUMENT_VERSION, Run
from pytest_packbench.runs.report import row_line
from tests.unit import run_builders
from tests.unit.run_builders import COMPLETE, any_case_result, case_result, case_results, gate, run, statistics

if TYPE_CHECKING:
    from pytest_packbench.model.gate import Gate
    from pytest_packbench.model.result import CaseResult

TERM = {"name": "points", "effect": "add", "value": 0.25, "detail": "why"}


def document(found: list[CaseResult], *rules: Gate, **changes: Any) -> dict[str, Any]:
    return run_builders.document(run(**changes), found, *rules)


def test_it_holds_all_of_the_run() -> None:
    found = document(case_results(1), versions={"python": "3"})
    assert found["version"] == RUN_DOCUMENT_VERSION
    assert Run(**{**found["run"], "findings": tuple(found["run"]["findings"])}) == run(versions={"python": "3"})


def test_a_case_is_a_row() -> None:
    case = case_result(
        "one",
        "failed",
        tags=("t",),
        facets={"colour": "red"},
        match_level="near",
        match_depth=4,
        answer="42",
        terms=(TERM,),
        stale=True,
        duration_ms=3,
        case_sha256="ab",
        cassette_sha256="cd",
        trial=2,
        record={"secret": 1},
        payload={"long": 1},
    )
    (row,) = document([case])["cases"]
    assert row == {name: value for name, value in case.as_json().items() if name not in {"suite", "record", "payload"}}
    assert (row["tags"], row["terms"], row["score"], row["trial"]) == (["t"], [TERM], 0.25, 2)


def test_cases_stand_by_id_whatever_their_order() -> None:
    found = [case_result("b"), case_result("a"), case_result("c")]
    assert [row["case_id"] for row in document(found)["cases"]] == ["a", "b", "c"]
    assert document(found) == document(found[::-1])


def test_numbers_are_those_of_the_statistics() -> None:
    found = [
        *case_results(3, 1, match_depth=4),
        case_result("x", "error"),
        case_result("y", "not_run", kind="skip", stale=True),
    ]
    numbers = statistics(found)
    told = document(found, COMPLETE)
    assert told["totals"] == {
        "selected": 6,
        "verdicts": {"passed": 3, "failed": 1, "error": 1, "vacuous": 0, "known_hole": 0, "not_run": 0},
        "quarantined": {"skip": 1, "xfail": 0},
        "stale": 1,
    }
    assert told["overall"]["interval"] == list(numbers.overall.interval or ())
    assert told["interval"] == {"method": "wilson", "sides": 2, "confidence": 0.95}
    assert [(group["name"], group["value"], group["n"]) for group in told["groups"]] == [
        ("case_type", "plain", 4),
        ("difficulty", "easy", 4),
    ]
    assert (told["depth"][0]["level"], told["depth"][0]["agreeing"]) == (4, 4)
    assert told["refusals"] == asdict(numbers.refusals)
    assert (told["authored"], told["models"]) == (0, {"anthropic/m-1": 4})
    assert told["gates"] == [
        {
            "metric": "completeness",
            "by": None,
            "value": None,
            "passed": False,
            "observed": 0.8,
            "min": 1.0,
            "max": None,
            "text": "completeness 4 / 5 = 80.0 % < min 100.0 %: FAIL",
        }
    ]


@pytest.mark.parametrize(
    ("found", "changes", "status", "complete"),
    [
        (case_results(1), {}, "passed", True),
        (case_results(1, 1), {}, "failed", True),
        (case_results(1, 1), {"settings": {"gate": "suite"}}, "passed", True),
        ([*case_results(1), case_result("x", "error")], {"settings": {"gate": "suite"}}, "failed", True),
        ([*case_results(1), case_result("x", "vacuous")], {"settings": {"gate": "suite"}}, "failed", True),
        ([*case_results(1), case_result("x", "known_hole")], {}, "passed", True),
        ([*case_results(1), case_result("x", "not_run", kind="skip")], {}, "passed", True),
        ([*case_results(1), case_result("x", "not_run")], {"partial": "stopped early"}, "partial", False),
        ([*case_results(1), case_result("x", "not_run")], {}, "failed", True),
        ([*case_results(1, 1), case_result("x", "not_run")], {"partial": "stopped early"}, "failed", False),
        (case_results(1), {"partial": "1 of 9 cases selected"}, "partial", False),
        ([], {}, "failed", True),
    ],
)
def test_the_status_is_that_of_the_exit_code(
    found: list[CaseResult],
    changes: dict[str, Any],
    status: str,
    complete: bool,
) -> None:
    told = document(found, COMPLETE, **changes)
    assert (told["status"], told["complete"]) == (status, complete)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_no_number_is_not_a_number(number: float) -> None:
    case = case_result("a", score=number, terms=({**TERM, "value": number},))
    text = json.dumps(document([case], gate("mean_score", min=0.5), settings={"x": [number]}), allow_nan=False)
    told = json.loads(text)
    assert (told["cases"][0]["score"], told["cases"][0]["terms"][0]["value"]) == (None, None)
    assert (told["overall"]["mean_score"], told["gates"][0]["observed"], told["run"]["settings"]) == (
        None,
        None,
        {"x": [None]},
    )


@given(st.lists(any_case_result(), max_size=10))
def test_it_is_plain_json(found: list[CaseResult]) -> None:
    told = document(found, COMPLETE, gate("pass_rate", min=0.5, by="case_type"))
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_it_shares_nothing_with_the_run() -> None:
    case = case_result("a", terms=(dict(TERM),), facets={"colour": "red"})
    told = document([case])
    told["cases"][0]["terms"][0]["value"] = 9
    told["cases"][0]["facets"]["colour"] = "blue"
    assert (case.terms[0]["value"], case.facets["colour"]) == (0.25, "red")


def test_a_row_says_null_where_a_number_is_not_finite() -> None:
    broken = case_result("a", "known_hole", terms=({**TERM, "value": math.nan},), answer="NaN")
    row = json.loads(row_line(broken))
    assert (row["terms"][0]["value"], row["answer"]) == (None, "NaN")
    assert [row] == document([broken])["cases"]
