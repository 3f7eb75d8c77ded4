"""The tariff suite can fail, case by case, and lint finds nothing in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_packbench.api import load_suite
from pytest_packbench.cases.lint import lint
from pytest_packbench.packs.tariff.pack import TariffPack
from pytest_packbench.testing import run_suite
from tests.conftest import SUITE

if TYPE_CHECKING:
    from tests.conftest import Copy

SCHEDULE = Path(__file__).parents[2].parent / "shared" / "data" / "tariff" / "hts_2026_rev10.tsv.gz"


def test_only_the_cases_with_wrong_expectations_fail_and_swapped_cassettes_are_errors(copy: Copy) -> None:
    paths = {path.stem: path for path in copy.cases()}
    wrong, forbidden, *_ = sorted(copy.folder.glob("cases/positive/*.json"))
    for path in (wrong, forbidden):
        case = json.loads(path.read_text("utf-8"))
        preferred = case["expected"]["preferred_hts"]
        changes = {"must_not_hts": [preferred[0][:7]]} if path == forbidden else {"preferred_hts": ["0101.21.0010"]}
        case["expected"] |= {"allowed_hts": [], **changes}
        path.write_text(json.dumps(case), encoding="utf-8")
    swapped = [name for name in paths if name not in {wrong.stem, forbidden.stem}][:2]
    left, right = (copy.folder / "fixtures" / f"{name}.json" for name in swapped)
    cassettes = left.read_bytes(), right.read_bytes()
    right.write_bytes(cassettes[0])
    left.write_bytes(cassettes[1])
    run = run_suite(copy.pytester, "tariff")
    assert run.verdicts == dict.fromkeys(paths, "passed") | {
        **dict.fromkeys((wrong.stem, forbidden.stem), "failed"),
        **dict.fromkeys(swapped, "error"),
    }
    low = {name: score for name, score in run.scores.items() if score < 0.8}
    assert low == {wrong.stem: 0.0, forbidden.stem: 0.0}
    assert run.exit_code == pytest.ExitCode.TESTS_FAILED
    assert run.pytest is not None
    run.pytest.stdout.fnmatch_lines(["*tariff: FAILED*", f"FAILED *{wrong.stem}*score 0.00 < 0.80 (no_match)*"])


@pytest.mark.parametrize("schedule", [None, SCHEDULE], ids=["suite", "suite and schedule"])
def test_lint_finds_nothing(schedule: Path | None) -> None:
    if schedule is not None and not schedule.is_file():
        pytest.skip("the tariff schedule of ../shared is not here")
    options = {} if schedule is None else {"hts": schedule}
    assert list(map(str, lint(load_suite(SUITE), TariffPack(), options))) == []
