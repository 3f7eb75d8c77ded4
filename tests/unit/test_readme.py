"""What the README shows of a run is what the suite is today."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_packbench.plugin import SETTINGS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_run_shown_has_todays_cases() -> None:
    folders = (ROOT / "storage" / "benchmarks" / "tariff" / "cases").iterdir()
    counts = {folder.name: len(list(folder.glob("*.json"))) for folder in folders}
    shown = {name: int(n) for name, n in re.findall(r"^(\w+) +\d+ / (\d+)  100\.0 %", README, re.MULTILINE)}
    assert shown == {**counts, "all": sum(counts.values())}
    assert f"{sum(counts.values())} cases: {sum(counts.values())} passed" in README


def test_every_setting_stands_in_the_table() -> None:
    for setting in SETTINGS:
        assert f"`packbench_{setting.name}`" in README
        assert f"`PACKBENCH_{setting.name.upper()}`" in README
