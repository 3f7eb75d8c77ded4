"""The tariff suite can fail: a wrong expectation fails only its own case, and a changed input is an error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Copy


def first_positive_case(copy: Copy) -> Path:
    return next(path for path in copy.cases() if json.loads(path.read_text("utf-8"))["case_type"] == "positive")


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["plain", "xdist"])
def test_a_wrong_chapter_fails_only_that_case(copy: Copy, workers: tuple[str, ...]) -> None:
    changed = first_positive_case(copy)
    copy.change(changed, lambda case: case["expected"].update(preferred_hts=["0101.21.0010"], allowed_hts=[]))
    result = copy.run(*workers)
    result.assert_outcomes(failed=1, passed=len(copy.cases()) - 1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    scores = copy.scores()
    assert scores.pop(changed.stem) < 0.4
    assert min(scores.values()) >= 0.8
    result.stdout.fnmatch_lines(["*tariff: FAILED*", f"FAILED *{changed.stem}*score 0.00 < 0.80 (no_match)*"])


def test_a_forbidden_code_scores_zero(copy: Copy) -> None:
    changed = first_positive_case(copy)

    def forbid(case: dict[str, Any]) -> None:
        preferred = case["expected"]["preferred_hts"][0]
        case["expected"].update(must_not_hts=[preferred[:7]])

    copy.change(changed, forbid)
    copy.run(f"{changed}").assert_outcomes(failed=1)
    assert copy.scores() == {changed.stem: 0.0}


def test_every_blanked_input_is_an_error(copy: Copy) -> None:
    for path in copy.cases():
        copy.change(path, lambda case: case["input"].update(input=""))
    result = copy.run()
    result.assert_outcomes(errors=len(copy.cases()))
    assert {line["kind"] for line in copy.errors()} == {"cassette_outdated"}
    assert copy.scores() == {}


def test_swapped_cassettes_are_errors(copy: Copy) -> None:
    left, right = (copy.folder / "fixtures" / f"{path.stem}.json" for path in copy.cases()[:2])
    left_bytes, right_bytes = left.read_bytes(), right.read_bytes()
    left.write_bytes(right_bytes)
    right.write_bytes(left_bytes)
    result = copy.run()
    result.assert_outcomes(errors=2, passed=len(copy.cases()) - 2)
