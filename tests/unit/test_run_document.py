"""The run's JSON object and its status: complete, plain, and never without a number where one is due."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_packbench.model.run import Run
from pytest_packbench.runs.report import row_line
from tests.unit.run_builders import (
    COMPLETE,
    ONE_OF_EACH,
    TERMS,
    any_case_result,
    case_result,
    document,
    gate,
    run,
)

if TYPE_CHECKING:
    from pytest_packbench.model.result import CaseResult
    from tests.conftest import ExpectedTexts


def test_the_document_of_a_run_with_one_of_each(expected: ExpectedTexts) -> None:
    gates = COMPLETE, gate("pass_rate", min=0.5, by="case_type")
    content = document(run(), ONE_OF_EACH, *gates)
    assert content == document(run(), ONE_OF_EACH[::-1], *gates)
    assert Run(**{**content["run"], "findings": tuple(content["run"]["findings"])}) == run()
    assert [row["case_id"] for row in content["cases"]] == [result.case_id for result in ONE_OF_EACH]
    shortened = json.dumps({**content, "cases": content["cases"][1:2]})
    rounded = json.loads(shortened, parse_float=lambda number: round(float(number), 9))
    expected.check(json.dumps(rounded, indent=1, ensure_ascii=False) + "\n", "json")


def test_a_row_has_all_of_a_result_but_its_record_and_payload() -> None:
    result = case_result("a", "failed", trial=2, terms=TERMS, record={"secret": 1}, payload={"long": 1})
    plain = result.as_json()
    assert json.loads(row_line(result)) == {
        name: value for name, value in plain.items() if name not in {"suite", "record", "payload"}
    }


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_null(number: float) -> None:
    result = case_result("a", score=number, terms=({**TERMS[0], "value": number},), answer="NaN")
    content = document(run(settings={"x": [number]}), [result], gate("mean_score", min=0.5))
    json.dumps(content, allow_nan=False)
    (row,) = content["cases"]
    assert (row["score"], row["terms"][0]["value"], row["answer"]) == (None, None, "NaN")
    assert (content["overall"]["mean_score"], content["gates"][0]["observed"]) == (None, None)
    assert content["run"]["settings"] == {"x": [None]}


@settings(max_examples=30)
@given(st.lists(any_case_result(), max_size=8))
def test_the_document_is_plain_json(results: list[CaseResult]) -> None:
    content = document(run(), results, COMPLETE, gate("pass_rate", min=0.5, by="case_type"))
    assert json.loads(json.dumps(content, allow_nan=False)) == content
