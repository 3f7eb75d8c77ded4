"""Lint reports nothing in the tariff suite, with and without the schedule."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_packbench.api import load_suite
from pytest_packbench.cases.lint import lint
from pytest_packbench.packs.tariff.pack import TariffPack

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "storage" / "benchmarks" / "tariff"
SCHEDULE = ROOT.parent / "shared" / "data" / "tariff" / "hts_2026_rev10.tsv.gz"


def findings(options: dict[str, Path]) -> str:
    return "\n".join(map(str, lint(load_suite(SUITE), TariffPack(), options)))


def test_lint_is_clean() -> None:
    assert findings({}) == ""


@pytest.mark.skipif(not SCHEDULE.is_file(), reason="the tariff schedule of ../shared is not here")
def test_codes_and_rates_agree_with_the_schedule() -> None:
    assert findings({"hts": SCHEDULE}) == ""
