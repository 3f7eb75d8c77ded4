"""What a stranger sent is data: no command executes anything of it, writes outside of the project, or takes its rules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.commands import COMMANDS
from pytest_packbench.testing import case, write_suite
from tests.doc_blocks import ROOT

if TYPE_CHECKING:
    from tests.integration.conftest import Project

ROWS: dict[str, tuple[int, str]] = yaml.safe_load((Path(__file__).parent / "data" / "traps.yaml").read_text("utf-8"))[
    "by_path"
]
# pytest looks for a conftest.py in folders of such names
FOLDER = "test_artifact"
RULES = {"target": "own_target:answer", "criteria": [{"python": "own_rules:same", "path": "/a"}]}
EVIL = {"target": f"{FOLDER}.trap:answer", "criteria": [{"python": f"{FOLDER}.trap:answer", "path": "/a"}]}
NOTE = "with open({file!r}, 'a') as file:\n    print(__file__, file=file)\n"
SCRIPT = """
import io, json, sys
from pytest_packbench.commands import main

for line in json.loads(sys.argv[1]):
    kept = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    try:
        code = main(line.split())
    except SystemExit as end:
        code = end.code
    text = sys.stdout.buffer.getvalue().decode()
    sys.stdout, sys.stderr = kept
    print(json.dumps([code, text]))
"""


class Artifact:
    """A project with a run of its own, and an artifact of somebody else in a folder of it.

    Attributes:
        root: the folder of the project.
        folder: that of the artifact.
        sprung: the file in which a trap notes that it was executed.
        own: that in which the project's own files note it.
        outside: a folder that nothing may write to.
    """

    def __init__(self, project: Project) -> None:
        self.root = project.root
        self.folder = self.root / FOLDER
        self.sprung, self.own, self.outside = (self.root.parent / f"{self.root.name}-{name}" for name in "soe")
        self.outside.mkdir()
        shutil.rmtree(self.root / "storage/benchmarks/toy")
        suite = write_suite(
            self.root / "storage/benchmarks/own",
            [self._case("right", "x"), self._case("wrong", "y")],
            pack="generic",
            rules={**RULES, "gates": [{"metric": "pass_rate", "min": 0.9}]},
        )
        project.write("own_target.py", "def answer(request):\n    return {'a': 'x'}\n")
        own = NOTE.format(file=str(self.own))
        project.write("own_rules.py", f"{own}def same(value, expected, case_input):\n    return value == expected\n")
        project.write("conftest.py", f"{own}def pytest_packbench_packs():\n    return []\n")
        result = project.pytester.runpytest_subprocess("--packbench-suite=own", "-pno:cacheprovider")
        result.assert_outcomes(passed=1, failed=1)
        (run,) = (self.root / "reports/benchmarks/own").glob("01*")
        copied = f"reports/own/{run.name}"
        for name in ("run", "other", "gone", "path", copied):
            shutil.copytree(run, self.folder / name)
            if name not in {"run", copied}:
                (self.folder / name / "report.html").unlink()
        self._edit("other", r'(?<="suite_sha256":").{8}', "0" * 8)
        self._edit("gone", '"suite":"own"', '"suite":"evil"')
        self._edit("path", '"suite":"own"', f'"suite":"{FOLDER}/evil"')
        write_suite(self.folder / "evil", [self._case("right", "x")], pack="generic", rules=EVIL)
        # in the current folder, and within a suite of the project
        shutil.copytree(self.folder / "evil", self.root / "evil")
        shutil.copytree(self.folder / "evil", suite / "hidden")
        (self.folder / "hidden").symlink_to(suite / "hidden")
        trap = NOTE.format(file=str(self.sprung)) + "def answer(*_):\n    return 1\n"
        ini = "[pytest]\naddopts = -p trap\npythonpath = .\npackbench_root = .\n"
        for folder in (".", "run", "gone", "evil"):
            for name in ("conftest", "trap", "sitecustomize", "usercustomize", "json", "own_rules"):
                project.write(f"{FOLDER}/{folder}/{name}.py", trap)
            project.write(f"{FOLDER}/{folder}/pytest.ini", ini)
            project.write(f"{FOLDER}/{folder}/pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-p trap"\n')
        project.write(f"{FOLDER}/cases.jsonl", '{"id": "a", "q": "b", "a": "c"}\n')
        mark = {"version": 1, "suite": "evil", "case": "right", "case_sha256": "0" * 64, "mark": "quarantine"}
        about = {"by": "x", "reason": "y", "run_id": run.name, "marked_at": "2026-01-01T00:00:00Z"}
        project.write(f"{FOLDER}/review.jsonl", json.dumps({**mark, **about}) + "\n")
        (self.folder / "linked").mkdir()
        (self.folder / "linked/own").symlink_to(self.outside)
        for name in ("summary.md", "report.html"):
            (self.folder / "gone" / name).unlink(missing_ok=True)
            (self.folder / "gone" / name).symlink_to(self.outside / name)

    @staticmethod
    def _case(name: str, answer: str) -> dict[str, Any]:
        notes = {"source": "made up", "date": "2026-01-01"}
        return case(name, input={"q": name}, expected={"a": answer}, notes=notes)

    def _edit(self, name: str, old: str, new: str) -> None:
        for path in (self.folder / name).glob("*.json*"):
            path.write_text(re.sub(old, new, path.read_text("utf-8")), "utf-8")

    def run(self, *lines: str, **variables: str) -> list[tuple[int, str]]:
        """Run commands in a process of their own, as the installed program does."""
        script = [sys.executable, "-P", "-c", SCRIPT, json.dumps(lines)]
        env = {**os.environ, **variables}
        ended = subprocess.run(script, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        assert ended.returncode == 0 or "PYTHONPATH" in variables, ended.stderr
        return [tuple(json.loads(line)) for line in ended.stdout.splitlines()]


def _named(text: str) -> str:
    return re.sub(r"\bA(?=[./])", FOLDER, text)


@pytest.fixture
def artifact(project: Project) -> Artifact:
    return Artifact(project)


def test_no_command_executes_anything_of_an_artifact(artifact: Artifact) -> None:
    rows = {_named(line): row for line, row in ROWS.items()}
    wrong = [
        f"{line}: exit {code}, {text!r}"
        for (line, row), (code, text) in zip(rows.items(), artifact.run(*rows), strict=True)
        if (code, _named(row[1]) in text) != (row[0], True)
    ]
    assert not wrong, "\n".join(wrong)
    assert {line.partition(" ")[0] for line in rows} == {*COMMANDS}
    assert not artifact.sprung.exists(), artifact.sprung.read_text("utf-8")
    assert [*artifact.outside.iterdir()] == []
    # the project's own hooks and functions are used
    assert {Path(line).name for line in artifact.own.read_text("utf-8").split()} == {"conftest.py", "own_rules.py"}


def test_what_the_project_trusts_is_executed(artifact: Artifact) -> None:
    """The traps would spring."""
    trusted: dict[str, tuple[str, dict[str, str]]] = {
        "--trust": (f"validate --trust {FOLDER}/evil", {}),
        "the folder of suites": (f"lint {FOLDER}/evil --root {FOLDER}", {}),
        "the environment": ("lint own", {"PYTEST_PLUGINS": f"{FOLDER}.trap"}),
        "the import path": ("schema case", {"PYTHONPATH": FOLDER}),
        "--pack": (f"lint own --pack {FOLDER}.trap:answer", {}),
        "testpaths": ("lint own", {}),
        "the conftest.py of the root": ("lint own", {}),
    }
    for name, (line, variables) in trusted.items():
        if name == "testpaths":
            (artifact.root / "tox.ini").write_text(f"[pytest]\ntestpaths = {FOLDER}\n", "utf-8")
        if name == "the conftest.py of the root":
            (artifact.root / "tox.ini").write_text("[pytest]\n", "utf-8")
            (artifact.root / "conftest.py").write_bytes((artifact.folder / "conftest.py").read_bytes())
        artifact.run(line, **variables)
        assert artifact.sprung.exists(), name
        artifact.sprung.unlink()


def test_a_conftest_that_is_not_that_of_the_root_is_not_imported(artifact: Artifact) -> None:
    (run,) = (artifact.root / "reports/benchmarks/own").glob("01*")
    # below rootdir a new suite needs --root
    init = "init new --root storage/benchmarks"
    lines = ("lint own", f"gate {run}", f"open --print {run}", "audit own --count 1", "accept own", init)
    trap = artifact.folder / "conftest.py"
    # the second time in a folder below, as that of an artifact
    for root in (artifact.root, artifact.root / "below"):
        if root != artifact.root:
            shutil.copytree(artifact.root / "storage", root / "storage")
        for folder in ("tests", "test_x/test_y", "reports/benchmarks/own", "storage/benchmarks"):
            (root / folder).mkdir(parents=True, exist_ok=True)
            shutil.copy(trap, root / folder)
        artifact.own.unlink()
        artifact.root = root
        assert [code for code, _ in artifact.run(*lines)] == [0, 1, 0, 0, 0, 0]
        assert not artifact.sprung.exists(), artifact.sprung.read_text("utf-8")
        assert "conftest.py" in artifact.own.read_text("utf-8")
        shutil.rmtree(root / "storage/benchmarks/new")
        (root / "below").mkdir()
        shutil.copy(trap, root / "below")


def test_each_row_of_the_security_page_is_held_by_tests() -> None:
    _, _, section = (ROOT / "SECURITY.md").read_text("utf-8").partition("| what is sent |")
    table, _, rest = section.partition("<!--")
    rows = [line[2:].partition(" |")[0] for line in table.splitlines()[2:] if line.startswith("| ")]
    held = [line.rpartition(": ") for line in rest.partition("-->")[0].splitlines()[1:]]
    assert len(rows) > 5
    assert [row for row in rows if not any(row.startswith(begin) for begin, _, _ in held)] == []
    for begin, _, test in held:
        file, _, name = test.strip().partition("::")
        assert any(row.startswith(begin) for row in rows), begin
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), test
