"""A small project of its own pack, on which every behaviour of the plugin is tried, plain and under xdist."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench.packs.tariff.pack
import pytest_packbench.packs.tariff.target
import pytest_packbench.pytest_plugin.selection
import pytest_packbench.pytest_plugin.session
import pytest_packbench.pytest_plugin.xdist_worker
import pytest_packbench.reports.document
import pytest_packbench.reports.markdown
from pytest_packbench.testing import SuiteResults, case, run_folders, write_case, write_suite

if TYPE_CHECKING:
    from pathlib import Path

# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench.pytest_plugin, pytest_packbench.packs, pytest_packbench.reports)

TOY = """
from dataclasses import dataclass
import pytest
from pytest_packbench.model.outcome import Breakdown, Outcome, ResultError
from pytest_packbench.model.pack import Comparison, Pack, RecordFacts
from pytest_packbench.model.score import Score, Term, judged


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyOutcome(Outcome):
    points: float = 0.0
    word: str = ""


class Toy(Pack):
    name = "toy"
    version = "1"

    def read(self, result):
        if not isinstance(result, dict) or "points" not in result:
            raise ResultError("/points", "is missing")
        down = Breakdown(kind="timeout", message="after 5 s") if result.get("down") else None
        return ToyOutcome(breakdown=down, answer=str(result["points"]), points=result["points"], word=result.get("word", ""))

    def score(self, case, outcome, rules):
        threshold = rules.thresholds.accept
        if outcome.word in ("vacuous", "known_hole"):
            return Score(score=None, threshold=threshold, verdict=outcome.word, message="said " + outcome.word)
        if outcome.word == "crash":
            raise ZeroDivisionError("scorer fell over")
        terms = (Term(name="points", value=outcome.points, detail="as the target says"),)
        verdict = judged(outcome.points, threshold)
        return Score(score=outcome.points, threshold=threshold, verdict=verdict, terms=terms, match_depth=2)

    def facts(self, case, outcome, score):
        return RecordFacts(attack_category=case.case_type, expected="comply_safe", agent_decision="comply_safe")

    def facets(self, case):
        return {"colour": case.expected["colour"]}

    def explain(self, case, outcome):
        return [Comparison(what="points", expected="1.0", actual=str(outcome.points))]


def pytest_packbench_packs():
    return [Toy()]


def act(request, context):
    print("target says hello to", context.case_id)
    order = request.input
    exec(order.get("python", ""))
    result = {"points": order.get("points", 1.0), "word": order.get("word", ""), "down": order.get("down", False)}
    return {**result, "more": eval(order.get("more", "None"))}


def pytest_packbench_target(config, suite):
    return act
"""


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

    def case(self, case_id: str, *, suite: str = "toy", case_type: str = "plain", **fields: Any) -> Path:
        """Write a case; what is no key of a case belongs to its input."""
        keys = {key: fields.pop(key) for key in ("difficulty", "notes") if key in fields}
        plain = case(case_id, pack_id="toy", case_type=case_type, input=fields, expected={"colour": "red"}, **keys)
        return write_case(self.root / "storage" / "benchmarks" / suite, plain)

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

    def lines(self, name: str, suite: str = "toy") -> list[dict[str, Any]]:
        return SuiteResults(folder=self.left(suite)).lines(name)

    def report(self, suite: str = "toy") -> dict[str, Any]:
        return SuiteResults(folder=self.left(suite)).report


@pytest.fixture(params=[0, 2], ids=["plain", "xdist"])
def project(request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with the toy pack and an empty suite `toy`, run plain and by two workers."""
    return _project(pytester, monkeypatch, request.param)


@pytest.fixture
def plain(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The same, run in one process only: for what doesn't depend on workers."""
    return _project(pytester, monkeypatch, 0)


def _project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: int) -> Project:
    for name in [name for name in os.environ if name.startswith(("PACKBENCH_", "GITHUB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "240")
    pytester.makeconftest(TOY)
    pytester.makeini("[pytest]\n")
    project = Project(pytester, workers)
    project.suite()
    return project
