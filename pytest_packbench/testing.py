"""Tools for the tests of a pack: score a case in memory, or run a suite in a pytest of its own.

    from pytest_packbench.testing import case, run_suite, score, write_suite

    def test_a_missing_word_costs_its_share():
        assert score(HeadlinePack(), case(expected={"words": ["rain"]}), {"headline": "Sun"}).score == 0.25

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_suite_passes(pytester, workers):
        pytester.makeconftest("from headline_hooks import *")
        write_suite(pytester.path / "storage/benchmarks/news", [case("a"), case("b")], pack="headlines")
        assert run_suite(pytester, "news", workers=workers).verdicts == {"a": "passed", "b": "passed"}

`run_suite` needs pytest's fixture `pytester`: write `pytest_plugins = ["pytester"]` in the conftest.py of rootdir.
Workers need pytest-xdist.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench import api
from pytest_packbench.cases.load import scoring_sha256
from pytest_packbench.files import canonical_sha256
from pytest_packbench.model.case import Case
from pytest_packbench.model.recording import CASSETTE_VERSION
from pytest_packbench.model.suite import CONFIG_NAME, Suite, SuiteConfig
from pytest_packbench.packs.registry import Packs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_packbench.model.pack import Pack
    from pytest_packbench.model.result import Score

__all__ = ["SuiteResults", "case", "run_folders", "run_suite", "score", "write_case", "write_suite"]


def case(case_id: str = "case_1", **fields: Any) -> dict[str, Any]:
    """Return a case as plain JSON: difficulty `easy`, case type `plain`, empty `input` and `expected`.

    Args:
        case_id: its id.
        fields: keys of the case to add or replace, such as `input`, `expected`, `notes` or `case_type`.
    """
    defaults = {"id": case_id, "case_type": "plain", "difficulty": "easy", "input": {}, "expected": {}}
    return {**defaults, **fields}


def score(
    pack: Pack, case: Case | Mapping[str, Any], result: object, *, rules: SuiteConfig | Mapping[str, Any] | None = None
) -> Score:
    """Score the result of one case as a run does, without pytest.

    Args:
        pack: the pack.
        case: the case, as a model or as plain JSON; its `pack_id` may be missing.
        result: the target's result, as plain JSON or as a pydantic model.
        rules: the suite's rules, as a model or as the keys of `suite.yaml`; the pack's defaults without them.

    Raises:
        CaseError: the case is not valid for the pack.
        SuiteError: the rules are not valid for the pack.
    """
    if isinstance(rules, SuiteConfig):
        suite = Suite(name="suite", path=Path(), config=rules, sha256=scoring_sha256(rules))
    else:
        with TemporaryDirectory() as folder:
            suite = api.load_suite(write_suite(Path(folder), (), pack=pack.name, rules=rules), packs=Packs([pack]))
    complete = case if isinstance(case, Case) else {"pack_id": pack.name, **case}
    return api.score(complete, result, pack=pack, suite=suite)


def write_suite(
    folder: Path,
    cases: Iterable[Mapping[str, Any]],
    *,
    pack: str,
    rules: Mapping[str, Any] | None = None,
    recordings: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    conditions: Mapping[str, Any] | None = None,
) -> Path:
    """Write a suite into a folder; other files of the folder are kept.

    Args:
        folder: the suite's folder, `<root>/<name>`; created if it is missing.
        cases: the cases, as plain JSON.
        pack: the name of their pack, which is also the `pack_id` of a case that has none.
        rules: further keys of `suite.yaml`.
        recordings: by case id, the exchanges to replay, each with `role` and `answer`, as a person would write them.
        conditions: the conditions that they state, such as `guards`; see `packbench schema cassette`.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases").mkdir(exist_ok=True)
    # JSON is YAML
    (folder / CONFIG_NAME).write_text(json.dumps({"pack": pack, **(rules or {})}, indent=2), encoding="utf-8")
    for plain in cases:
        write_case(folder, {"pack_id": pack, **plain})
        exchanges = (recordings or {}).get(plain["id"])
        if exchanges is not None:
            cassette = {
                "cassette_version": CASSETTE_VERSION,
                "case_id": plain["id"],
                "input_sha256": canonical_sha256(plain["input"]),
                "origin": "authored",
                "llm_backend": "stub",
                "llm_model": "authored",
                "conditions": {
                    "target": {"kind": "reference", "address": pack},
                    "pack": {"name": pack},
                    **(conditions or {}),
                },
                "exchanges": list(exchanges),
            }
            (folder / "fixtures").mkdir(exist_ok=True)
            (folder / "fixtures" / f"{plain['id']}.json").write_text(json.dumps(cassette), encoding="utf-8")
    return folder


def write_case(folder: Path, case: Mapping[str, Any]) -> Path:
    """Write a case into a suite's folder and return its path, `cases/<case type>/<id>.json`."""
    path: Path = folder / "cases" / case["case_type"] / f"{case['id']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(case), encoding="utf-8")
    return path


@dataclass(frozen=True, kw_only=True)
class SuiteResults:
    """The files of a run, and what pytest printed.

    Attributes:
        folder: the run's folder; None if pytest wrote none, as after a usage error.
        pytest: the outcome of pytest itself: `assert_outcomes()`, `stdout`, `stderr`; None for a run read from files.
    """

    folder: Path | None
    pytest: pytest.RunResult | None = None

    @property
    def exit_code(self) -> int | None:
        """The exit code of pytest; None for a run that was read from files."""
        return int(self.pytest.ret) if self.pytest is not None else None

    @property
    def records(self) -> list[dict[str, Any]]:
        """One record per scored case."""
        return self.lines("records.jsonl")

    @property
    def errors(self) -> list[dict[str, Any]]:
        """One object per case that has no score, with `verdict`, `kind` and `message`."""
        return self.lines("errors.jsonl")

    @property
    def scores(self) -> dict[str, float]:
        """The scores by case id."""
        return {record["packbench"]["case_id"]: record["packbench"]["score"] for record in self.records}

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdicts by case id; by the last part of the test id for cases without a score."""
        verdicts = {record["packbench"]["case_id"]: record["packbench"]["verdict"] for record in self.records}
        return verdicts | {error["test_id"].rpartition(":")[2]: error["verdict"] for error in self.errors}

    @cached_property
    def report(self) -> dict[str, Any]:
        """The document `report.json`."""
        document: dict[str, Any] = json.loads(self.read("report.json"))
        return document

    @property
    def summary(self) -> str:
        """The page `summary.md`."""
        return self.read("summary.md")

    def read(self, name: str) -> str:
        """Return the content of a file of the run; empty if there is none."""
        path = self.folder / name if self.folder is not None else None
        return path.read_text("utf-8") if path is not None and path.exists() else ""

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the objects of a `.jsonl` file of the run; none if it does not exist."""
        return [json.loads(line) for line in self.read(name).split("\n") if line]


def run_suite(pytester: pytest.Pytester, suite: str, *arguments: str, workers: int = 0) -> SuiteResults:
    """Run a suite with pytest in the folder of `pytester`, without the settings of this process's environment.

    Args:
        pytester: pytest's fixture; its folder contains the suite, and a conftest.py if the pack is not installed.
        suite: the suite's name.
        arguments: further arguments of pytest.
        workers: how many processes of pytest-xdist run the cases; 0 for none.
    """
    before = set(run_folders(pytester.path, suite))
    options = (f"--packbench-suite={suite}", *arguments)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PACKBENCH_", "GITHUB_"))]:
            patch.delenv(name)
        if workers:
            # xdist gives workers the sys.path of its import, which may lack what was added since
            patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
            result = pytester.runpytest_subprocess("-n", str(workers), *options)
        else:
            result = pytester.runpytest(*options)
    new = [folder for folder in run_folders(pytester.path, suite) if folder not in before]
    return SuiteResults(folder=new[-1] if new else None, pytest=result)


def run_folders(rootdir: Path, suite: str) -> list[Path]:
    """Return the folders of a suite's runs under `reports/benchmarks`, the oldest first."""
    parent = rootdir / "reports" / "benchmarks" / suite
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []
