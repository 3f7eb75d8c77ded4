"""A project folder in which real commands run; what they print and leave is held against the files in `expected`."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pytest_packbench
from tests.golden.normal import Normal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

EXPECTED = Path(__file__).parent / "expected"
SUITES = Path(__file__).parents[2] / "storage" / "benchmarks"
UPDATE = "PACKBENCH_UPDATE_GOLDEN"
_PASSED_ON = ("PATH", "SYSTEMROOT", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
_IGNORED = {"__pycache__", ".pytest_cache"}
_TIMEOUT_S = 120
_LONGEST_DIFF = 150


class Project:
    """One scenario.

    Attributes:
        root: the project's folder.
        env: variables for the commands, beside those that every one gets.
        normal: takes out what is different in each run.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.env: dict[str, str] = {}
        self._expected = EXPECTED / name
        self._found: dict[str, str] = {}
        self._steps = 0
        home = folder / "home"
        home.mkdir()
        package = str(Path(pytest_packbench.__file__).parent)
        self.normal = Normal(
            {
                str(self.root): "<PROJECT>",
                str(folder): "<FOLDER>",
                package: "<PACKAGE>",
                os.path.relpath(package, self.root): "<PACKAGE>",
                sys.executable: "<PYTHON>",
                sys.prefix: "<PREFIX>",
            }
        )
        self._home = str(home)
        self.write("pytest.ini", "[pytest]\n")

    def write(self, name: str, content: str | Mapping[str, Any]) -> Path:
        """Write a file of the project: a text, or JSON."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
        path.write_text(text, encoding="utf-8")
        return path

    def suite(self, name: str, *cases: str) -> Path:
        """Copy a suite of the repository; where cases are named, only those whose ids begin so, and their recordings."""
        folder = self.root / "storage" / "benchmarks" / name
        for path in sorted((SUITES / name).rglob("*")):
            wanted = path.is_file() and (path.suffix == ".yaml" or not cases or path.name.startswith(cases))
            if wanted:
                copy = folder / path.relative_to(SUITES / name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
        return folder

    def runs(self, suite: str) -> list[Path]:
        """Give the folders of a suite's runs, the oldest first."""
        found = self.root.joinpath("reports", "benchmarks", suite).iterdir()
        return sorted(path.relative_to(self.root) for path in found if path.is_dir())

    def pytest(self, step: str, *arguments: str, **how: Any) -> None:
        """Run pytest as a step."""
        self.command(step, "-m", "pytest", *arguments, **how)

    def packbench(self, step: str, *arguments: str, **how: Any) -> None:
        """Run a command of packbench as a step."""
        self.command(step, "-m", "pytest_packbench", *arguments, **how)

    def command(
        self,
        step: str,
        *arguments: str,
        stdin: str = "",
        only: Collection[str] | None = None,
        hashing: Collection[str] = (),
        shown: Callable[[str], str] | None = None,
    ) -> None:
        """Run Python with arguments as a step, and note what it prints and leaves.

        Args:
            step: its name.
            arguments: of Python.
            stdin: what it reads.
            only: the names of the files that are looked into; every one unless given.
            hashing: names of files of which a hash a line is kept.
            shown: makes less of what was printed.
        """
        self._steps += 1
        place = f"{self._steps:02}-{step}"
        before = self._tree()
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {"HOME": self._home, "COLUMNS": "120", "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONUTF8": "1"}
        # so that `python` is this one
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=environment | self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        after = self._tree()
        changed = [path for path in after if before.get(path) != after[path]]
        removed = [path for path in before if path not in after]
        workers = any(first == "-n" and second != "0" for first, second in pairwise(arguments))
        printed = [self.normal.terminal(text, workers=workers) for text in (ran.stdout, ran.stderr)]
        lines = [f"$ python {self.normal.text(shlex.join(arguments))}", f"exit code {ran.returncode}", ""]
        lines += ["--- stdout", shown(printed[0]) if shown else printed[0], ""] if printed[0] else []
        lines += ["--- stderr", printed[1], ""] if printed[1] else []
        lines += ["--- files"] if changed or removed else []
        lines += [*sorted(self.normal.text(path) for path in changed)]
        lines += sorted(f"removed {self.normal.text(path)}" for path in removed)
        self._found[f"{place}/output.txt"] = "\n".join(lines).rstrip("\n") + "\n"
        for path in changed:
            name = path.rpartition("/")[2]
            if only is None or name in only:
                kept = f"{place}/{self.normal.text(path)}"
                text = self.normal.file(name, after[path], hashing=name in hashing, workers=workers)
                # a linter and a type checker would read the one, git the other
                self._found[f"{kept}.txt" if kept.endswith((".py", ".gitignore")) else kept] = text

    def _tree(self) -> dict[str, bytes]:
        found = sorted(path for path in self.root.rglob("*") if path.is_file() and not _IGNORED & set(path.parts))
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in found}

    def check(self) -> None:
        """Hold what was found against what is expected; with the variable `PACKBENCH_UPDATE_GOLDEN` put it there."""
        if os.environ.get(UPDATE):
            shutil.rmtree(self._expected, ignore_errors=True)
            for name, text in self._found.items():
                path = self._expected / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
            return
        paths = sorted(path for path in self._expected.rglob("*") if path.is_file())
        expected = {path.relative_to(self._expected).as_posix(): path.read_text("utf-8") for path in paths}
        said = [f"not there: {name}" for name in expected if name not in self._found]
        said += [f"not expected: {name}" for name in self._found if name not in expected]
        for name, text in self._found.items():
            if name in expected and expected[name] != text:
                said += difflib.unified_diff(
                    expected[name].splitlines(), text.splitlines(), f"expected/{name}", f"found/{name}", "", "", 2, ""
                )
        if said:
            more = [f"... and {len(said) - _LONGEST_DIFF} lines more"] if len(said) > _LONGEST_DIFF else []
            advice = f"if the change is meant: {UPDATE}=1 pytest tests/golden, and read the difference in git"
            pytest.fail("\n".join([*said[:_LONGEST_DIFF], *more, advice]), pytrace=False)
