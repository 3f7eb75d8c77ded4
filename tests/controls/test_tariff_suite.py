"""The suite as a whole can fail: a wrong expectation fails its case alone, a changed input is an error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Copy


def accepted(copy: Copy) -> Path:
    return next(path for path in copy.cases() if json.loads(path.read_text("utf-8"))["case_type"] == "positive")


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["plain", "xdist"])
def test_another_chapter_fails_that_case_alone(copy: Copy, workers: tuple[str, ...]) -> None:
    spoiled = accepted(copy)
    copy.change(spoiled, lambda case: case["expected"].update(preferred_hts=["0101.21.0010"], allowed_hts=[]))
    result = copy.run(*workers)
    result.assert_outcomes(failed=1, passed=len(copy.cases()) - 1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    scores = copy.scores()
    assert scores.pop(spoiled.stem) < 0.4
    assert min(scores.values()) >= 0.8
    result.stdout.fnmatch_lines(["*tariff: FAILED*", f"FAILED *{spoiled.stem}*score 0.00 < 0.80 (no_match)*"])


def test_a_forbidden_code_is_exactly_zero(copy: Copy) -> None:
    spoiled = accepted(copy)

    def forbid(case: dict[str, Any]) -> None:
        gold = case["expected"]["preferred_hts"][0]
        case["expected"].update(must_not_hts=[gold[:7]])

    copy.change(spoiled, forbid)
    copy.run(f"{spoiled}").assert_outcomes(failed=1)
    assert copy.scores() == {spoiled.stem: 0.0}


def test_blanked_inputs_are_errors_every_one(copy: Copy) -> None:
    for path in copy.cases():
        copy.change(path, lambda case: case["input"].update(input=""))
    result = copy.run()
    result.assert_outcomes(errors=len(copy.cases()))
    assert {line["kind"] for line in copy.errors()} == {"cassette_outdated"}
    assert copy.scores() == {}


def test_swapped_cassettes_are_errors(copy: Copy) -> None:
    one, other = (copy.folder / "fixtures" / f"{path.stem}.json" for path in copy.cases()[:2])
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    result = copy.run()
    result.assert_outcomes(errors=2, passed=len(copy.cases()) - 2)
