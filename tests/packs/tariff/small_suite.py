"""A copy of the small tariff suite of `data`, in which lint finds nothing, and of its schedule, for a test to change."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data" / "small_suite"
SCHEDULE = DATA / "schedule.tsv"


@dataclass
class SmallSuite:
    """The copy."""

    folder: Path
    schedule: Path

    def path(self, case_id: str) -> Path:
        (path,) = self.folder.glob(f"cases/*/{case_id}.json")
        return path


def small_suite(folder: Path) -> SmallSuite:
    """Copy the suite and its schedule into an empty folder."""
    shutil.copytree(DATA, folder, dirs_exist_ok=True)
    return SmallSuite(folder / "suite", folder / "schedule.tsv")


GARLIC: str = json.loads((DATA / "suite/cases/positive/powder.json").read_text("utf-8"))["input"]["input"]
REPORT: str = json.loads((DATA / "suite/cases/positive/quoted.json").read_text("utf-8"))["input"]["evidence"][0]["text"]
