"""A copy of the tariff suite that a test may run and spoil."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench.packs.tariff.pack
import pytest_packbench.packs.tariff.target
import pytest_packbench.pytest_plugin.session
import pytest_packbench.pytest_plugin.xdist_worker
import pytest_packbench.reports.document
import pytest_packbench.reports.markdown

if TYPE_CHECKING:
    from collections.abc import Callable

SUITE = Path(__file__).parents[1] / "storage" / "benchmarks" / "tariff"
# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench.pytest_plugin, pytest_packbench.packs, pytest_packbench.reports)


@dataclass
class Copy:
    """The copied suite and pytest run on it."""

    pytester: pytest.Pytester

    @property
    def folder(self) -> Path:
        return self.pytester.path / "storage" / "benchmarks" / "tariff"

    def cases(self) -> list[Path]:
        return sorted(self.folder.glob("cases/*/*.json"))

    def change(self, path: Path, change: Callable[[dict[str, Any]], object]) -> None:
        data = json.loads(path.read_text("utf-8"))
        change(data)
        path.write_text(json.dumps(data), encoding="utf-8")

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest("--packbench-suite=tariff", *arguments)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        (folder,) = (self.pytester.path / "reports" / "benchmarks" / "tariff").glob("*/")
        path = folder / name
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def scores(self) -> dict[str, float]:
        return {line["packbench"]["case_id"]: line["packbench"]["score"] for line in self._lines("records.jsonl")}

    def errors(self) -> list[dict[str, Any]]:
        return self._lines("errors.jsonl")


@pytest.fixture
def copy(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """The tariff suite in a project of its own."""
    for name in [name for name in os.environ if name.startswith(("PACKBENCH_", "GITHUB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "240")
    pytester.makeini("[pytest]\n")
    found = Copy(pytester)
    shutil.copytree(SUITE, found.folder)
    return found
