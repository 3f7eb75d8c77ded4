"""A copy of the small tariff suite of `data`, in which lint finds nothing, and of its schedule, for a test to change."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_packbench.api import load_suite
from pytest_packbench.cases.lint import lint
from pytest_packbench.model.case import canonical_sha256
from pytest_packbench.packs.tariff.pack import TariffPack

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_packbench.model.authoring import Finding

Json = dict[str, Any]
DATA = Path(__file__).parent / "data" / "small_tariff_suite"
SCHEDULE = DATA / "schedule.tsv"


@dataclass
class SmallSuite:
    """The copy."""

    folder: Path
    schedule: Path

    def findings(self, *, with_schedule: bool = True) -> list[Finding]:
        return lint(load_suite(self.folder), TariffPack(), {"hts": self.schedule} if with_schedule else {})

    def path(self, case_id: str) -> Path:
        (path,) = self.folder.glob(f"cases/*/{case_id}.json")
        return path

    def cassette(self, case_id: str) -> Path:
        return self.folder / "fixtures" / f"{case_id}.json"

    def case(self, case_id: str, change: Callable[[Json], object]) -> None:
        """Change a case; its cassette follows a changed input."""
        data = _change(self.path(case_id), change)
        sha256 = canonical_sha256(data["input"])
        self.recording(case_id, lambda cassette: cassette.update(input_sha256=sha256))

    def recording(self, case_id: str, change: Callable[[Json], object]) -> None:
        _change(self.cassette(case_id), change)

    def answer(self, case_id: str, change: Callable[[Json], object]) -> None:
        """Change the proposal in a cassette."""
        self.recording(case_id, lambda cassette: change(cassette["exchanges"][0]["answer"]))

    def rules(self, text: str) -> None:
        with (self.folder / "suite.yaml").open("a", encoding="utf-8") as file:
            file.write(text)


def _change(path: Path, change: Callable[[Json], object]) -> Json:
    data: Json = json.loads(path.read_text("utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return data


def small_suite(folder: Path) -> SmallSuite:
    """Copy the suite and its schedule into an empty folder."""
    shutil.copytree(DATA, folder, dirs_exist_ok=True)
    return SmallSuite(folder / "suite", folder / "schedule.tsv")


GARLIC: str = json.loads((DATA / "suite/cases/positive/powder.json").read_text("utf-8"))["input"]["input"]
REPORT: str = json.loads((DATA / "suite/cases/positive/quoted.json").read_text("utf-8"))["input"]["evidence"][0]["text"]
