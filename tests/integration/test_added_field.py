"""A field that is added to `Score`, and to nothing else, is in each file of a run, on its page and in a comparison."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_packbench
from benchmarks.projects import generic

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "sk-0123456789abcdefghij"
LAST = '    actual_text: Word = ""\n'
ADDED = "    doubt: Share | None = None\n    remark_of_scorer: str | None = None\n"
CONFTEST = """
import os
from dataclasses import replace
from pytest_packbench import Answer, Pack, Term

class Said(Answer):
    text: str

class Sure(Pack):
    name, version, answer_model = "sure", "1", Said

    def terms(self, case, answer, rules):
        yield Term(name="text", value=float(answer.text == "ok"))

scored = Pack.score

def score(self, case, outcome, rules):
    own = {"doubt": float(os.environ["DOUBT"]), "remark_of_scorer": os.environ["REMARK"]}
    return replace(scored(self, case, outcome, rules), **own)

# the package states the field, whose score is its own
Pack.score = score

def pytest_packbench_packs():
    return [Sure()]

def pytest_packbench_target(config, suite):
    return lambda request: {"text": "ok"}
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a copy of the package whose `Score` has two fields more."""
    folder = tmp_path_factory.mktemp("copy")
    package = Path(pytest_packbench.__file__).parent
    shutil.copytree(package, folder / "pytest_packbench", ignore=shutil.ignore_patterns("__pycache__"))
    nouns = folder / "pytest_packbench" / "model" / "result.py"
    assert nouns.read_text("utf-8").count(LAST) == 1
    nouns.write_text(nouns.read_text("utf-8").replace(LAST, LAST + ADDED), "utf-8")
    return folder


@pytest.fixture
def ran(copy: Path, tmp_path: Path) -> Callable[..., Path]:
    """Run pytest or a command in a project, on the copy; return the folder of the last run."""
    project = tmp_path / "project"
    generic(project, 1)
    rules = project / "storage" / "benchmarks" / "toy" / "suite.yaml"
    rules.write_text("pack: sure\ndescription: a trivial case\n", encoding="utf-8")
    (case,) = project.rglob("case_000000.json")
    case.write_text(case.read_text("utf-8").replace('"generic"', '"sure"'), encoding="utf-8")
    (project / "conftest.py").write_text(CONFTEST, encoding="utf-8")

    def run(doubt: float, *words: str) -> Path:
        said = {"DOUBT": str(doubt), "API_KEY": KEY, "REMARK": f"said by {KEY}"}
        environment = {**os.environ, "PYTHONPATH": str(copy), **said}
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in {0, 1}, done.stdout + done.stderr
        return max((project / "reports" / "benchmarks" / "toy").glob("0*"))

    return run


SUITE = ("pytest", "-q", "-p", "no:cacheprovider", "--packbench-suite=toy")


def test_a_field_that_is_added_to_a_score_is_everywhere(ran: Callable[..., Path], tmp_path: Path) -> None:
    before = ran(0.25, *SUITE)
    (row,) = json.loads((before / "report.json").read_text("utf-8"))["packbench"]["cases"]
    extension = json.loads((before / "records.jsonl").read_text("utf-8"))["packbench"]
    assert (row["doubt"], extension["doubt"]) == (0.25, 0.25)
    assert row["remark_of_scorer"] == extension["remark_of_scorer"] == "said by [redacted]"
    packed = (before / "report.html").read_text("utf-8").split('data-name="details-0">')[1].split("<")[0]
    details = json.loads(zlib.decompress(base64.b64decode(packed), 31).split(b"\x1e")[0])
    assert {"judge", "doubt", "remark_of_scorer"} <= {*details["facts"]}
    ((*_, (attempt,), _),) = details["cases"]
    assert dict(zip(details["attempts"], attempt, strict=True))["doubt"] == 0.25
    ran(0.25, "pytest_packbench", "validate", str(before))
    conftest = tmp_path / "project" / "conftest.py"
    conftest.write_text(conftest.read_text("utf-8").replace('"text": "ok"', '"text": "no"'), encoding="utf-8")
    after = ran(0.75, *SUITE)
    ran(0.0, "pytest_packbench", "compare", "--baseline", str(before), "--current", str(after), "--out", "diff.md")
    assert "doubt 0.25 to 0.75" in (tmp_path / "project" / "diff.md").read_text("utf-8")


def test_the_range_of_such_a_field_is_checked(ran: Callable[..., Path]) -> None:
    assert "/doubt: got 2.0; expected 1 or less" in (ran(2, *SUITE) / "errors.jsonl").read_text("utf-8")
