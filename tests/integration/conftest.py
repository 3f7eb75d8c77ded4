"""A project with a small pack of its own, in which tests run suites with pytest."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pytest_packbench.testing import SuiteResults, case, run_folders, write_case, write_suite
from tests.conftest import SUITE

TOY = Path(__file__).with_name("toy_pack.py").read_text("utf-8")
CASES = "storage/benchmarks/toy/cases"
MANY = f"{CASES}/plain/many.jsonl"


def toy_case(case_id: str, *, case_type: str = "plain", **fields: Any) -> dict[str, Any]:
    """Return a case as plain JSON; what is no key of a case belongs to its input."""
    keys = {key: fields.pop(key) for key in ("difficulty", "notes") if key in fields}
    return case(case_id, pack_id="toy", case_type=case_type, input=fields, expected={"colour": "red"}, **keys)


@dataclass
class Project:
    """A project folder with suites, and pytest run in it."""

    pytester: pytest.Pytester
    workers: int

    @property
    def root(self) -> Path:
        return self.pytester.path

    def suite(self, name: str = "toy", text: str = "pack: toy\ndescription: a toy\n") -> Path:
        folder = write_suite(self.root / "storage" / "benchmarks" / name, (), pack="toy")
        (folder / "suite.yaml").write_text(text, encoding="utf-8")
        return folder

    def case(self, case_id: str, *, suite: str = "toy", **fields: Any) -> Path:
        return write_case(self.root / "storage" / "benchmarks" / suite, toy_case(case_id, **fields))

    def case_lines(self, *lines: str | dict[str, Any], path: str = MANY) -> Path:
        """Write a file with one case per line: cases, or lines as they are."""
        return self.write(path, "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def extend_conftest(self, code: str) -> None:
        """Add code to the module of the toy pack."""
        self.write("conftest.py", TOY + dedent(code))

    def run(self, *arguments: str) -> pytest.RunResult:
        workers = ("-n", str(self.workers)) if self.workers else ()
        return self.pytester.runpytest(*workers, *arguments, no_reraise_ctrlc=True)

    def run_toy(self, *arguments: str) -> pytest.RunResult:
        return self.run("--packbench-suite=toy", *arguments)

    def folders(self, suite: str = "toy") -> list[Path]:
        return run_folders(self.root, suite)

    def left(self, suite: str = "toy") -> Path:
        (folder,) = self.folders(suite)
        return folder

    def records(self, suite: str = "toy") -> dict[str, dict[str, Any]]:
        """The records of the only run, by case id."""
        return {record["packbench"]["case_id"]: record for record in self.lines("records.jsonl", suite)}

    def errors(self, suite: str = "toy") -> dict[str, dict[str, Any]]:
        """The errors of the only run, by case id; a case that can't be read has the name of its file or line."""
        return {error["test_id"].rpartition(":")[2]: error for error in self.lines("errors.jsonl", suite)}

    def lines(self, name: str, suite: str = "toy") -> list[dict[str, Any]]:
        return SuiteResults(folder=self.left(suite)).lines(name)

    def report(self, suite: str = "toy") -> dict[str, Any]:
        return SuiteResults(folder=self.left(suite)).report

    def partial(self, suite: str = "toy") -> str:
        """Which part of its suite the only run had; empty for all."""
        text: str = self.report(suite)["packbench"]["run"]["partial"]
        return text


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with the toy pack and an empty suite `toy`; pytest runs in one process."""
    return _project(pytester, monkeypatch, 0)


@pytest.fixture
def bundled(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The suite tariff in the folder of suites of an installed package, which an editable install does not have."""
    folder = tmp_path_factory.mktemp("site") / "_suites"
    shutil.copytree(SUITE, folder / "tariff")
    monkeypatch.setattr("pytest_packbench.plugin.SUITES", folder)
    return folder


@pytest.fixture(params=[0, 2], ids=["plain", "xdist"])
def both(request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The same, once without workers and once with two: for what passes between processes."""
    return _project(pytester, monkeypatch, request.param)


def _project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: int) -> Project:
    for name in [name for name in os.environ if name.startswith(("PACKBENCH_", "GITHUB_")) or name == "CI"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "240")
    pytester.makeconftest(TOY)
    pytester.makeini("[pytest]\n")
    project = Project(pytester, workers)
    project.suite()
    return project
