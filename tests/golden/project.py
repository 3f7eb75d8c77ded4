"""A project folder in which real commands run; what they print and write is compared with the files in `expected`."""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import pytest_packbench
from pytest_packbench.commands import main
from tests.golden.normal import Normal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

EXPECTED = Path(__file__).parent / "expected"
SUITES = Path(__file__).parents[2] / "storage" / "benchmarks"
UPDATE = "PACKBENCH_UPDATE_GOLDEN"
_INHERITED = ("PATH", "SYSTEMROOT", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
_IGNORED = {"__pycache__", ".pytest_cache", "basetemp"}
_PROGRAMS = {"pytest": ("-m", "pytest"), "packbench": ("-m", "pytest_packbench"), "python": ()}
_LONGEST_DIFF = 150
_BY_NAME = {"report.html", ".gitignore", "latest"}
"""What differs little from run to run."""


class Project:
    """One scenario: its folder, variables for its commands, and names for what differs in each run."""

    def __init__(self, name: str, pytester: pytest.Pytester) -> None:
        self.root = pytester.path
        self.env: dict[str, str] = {}
        self._pytester = pytester
        self._expected = EXPECTED / name
        self._texts: dict[str, str] = {}
        self._steps = 0
        package = str(Path(pytest_packbench.__file__).parent)
        folders = {str(self.root): "<PROJECT>", str(self.root.parent): "<FOLDER>", package: "<PACKAGE>"}
        folders |= {os.path.relpath(package, self.root): "<PACKAGE>"}
        self.normal = Normal(folders | {sys.executable: "<PYTHON>", sys.prefix: "<PREFIX>"})
        self.write("pytest.ini", "[pytest]\n")

    def write(self, name: str, content: str | Mapping[str, Any]) -> Path:
        """Write a file of the project: a text, or JSON."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
        path.write_text(text, encoding="utf-8")
        return path

    def suite(self, name: str, *cases: str) -> Path:
        """Copy a suite of the repository: all of it, or the cases whose ids begin so, and their recordings."""
        folder = self.root / "storage" / "benchmarks" / name
        for path in sorted((SUITES / name).rglob("*")):
            if path.is_file() and (path.suffix == ".yaml" or not cases or path.name.startswith(cases)):
                copy = folder / path.relative_to(SUITES / name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
        return folder

    def runs(self, suite: str) -> list[Path]:
        """Return the folders of a suite's runs, the oldest first."""
        folders = self.root.joinpath("reports", "benchmarks", suite).glob("*/")
        return sorted(path.relative_to(self.root) for path in folders)

    def _run(self, program: str, arguments: Sequence[str], stdin: str, *, process: bool) -> tuple[int, str, str]:
        """Run a command, in a process of its own if it has to be; return its exit code and what it printed."""
        if process or stdin or program == "python":
            command = [sys.executable, *_PROGRAMS[program], *arguments]
            ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)
            return ended.returncode, ended.stdout, ended.stderr
        if program == "pytest":
            result = self._pytester.runpytest_inprocess(*arguments, no_reraise_ctrlc=True)
            return int(result.ret), result.stdout.str(), result.stderr.str()
        before = set(sys.modules)
        streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            try:
                code = main(list(arguments))
            except SystemExit as exit_:
                code = int(exit_.code or 0)
        for stream in streams:
            stream.seek(0)
        # what is imported from the project changes between steps
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self.root)):
                del sys.modules[name]
        return code, streams[0].read(), streams[1].read()

    def step(
        self,
        name: str,
        program: str,
        arguments: Sequence[str],
        *,
        process: bool = False,
        stdin: str = "",
        only: Collection[str] | None = None,
        also: Collection[str] = (),
        hashing: Collection[str] = (),
    ) -> None:
        """Run a command, and note what it prints and writes.

        Args:
            name: of the step.
            program: `pytest`, `packbench` or `python`, with its arguments.
            arguments: see above.
            process: give it a process of its own, which may end in any way.
            stdin: what it reads.
            only: the names of the files whose content is noted; by default every one that is not in `_BY_NAME`.
            also: names of files in `_BY_NAME` whose content is noted too.
            hashing: names of files of which a hash per line is noted.
        """
        self._steps += 1
        before = self._tree()
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        # so that `python` is this one
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        environment |= {"HOME": str(self.root.parent), "COLUMNS": "120", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        environment |= {"PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        imports = mock.patch.object(sys, "path", [str(self.root), *sys.path])
        with imports, mock.patch.dict(os.environ, environment | self.env, clear=True):
            code, *printed = self._run(program, arguments, stdin, process=process)
        after = self._tree()
        changed = [path for path in after if before.get(path) != after[path]]
        workers = any(first == "-n" and second != "0" for first, second in pairwise(arguments))
        printed = [self.normal.terminal(text, workers=workers) for text in printed]
        files = sorted(self.normal.text(path) for path in changed)
        files += sorted(f"removed {self.normal.text(path)}" for path in before if path not in after)
        command = self.normal.text(shlex.join((*_PROGRAMS[program], *arguments)))
        parts = [f"$ python {command}\nexit code {code}\n"]
        sections = zip(("stdout", "stderr", "files"), (*printed, "\n".join(files)), strict=True)
        parts += [f"--- {title}\n{text}\n" for title, text in sections if text]
        folder = f"{self._steps:02}-{name}"
        self._texts[f"{folder}/output.txt"] = "\n".join(parts).rstrip("\n") + "\n"
        for path in changed:
            file = path.rpartition("/")[2]
            if file in also or (file not in _BY_NAME if only is None else file in only):
                location = f"{folder}/{self.normal.text(path)}"
                text = self.normal.file(file, after[path], hashing=file in hashing, workers=workers)
                # a linter and a type checker would read the one, git the other
                self._texts[f"{location}.txt" if location.endswith((".py", ".gitignore")) else location] = text

    def _tree(self) -> dict[str, bytes]:
        files = sorted(path for path in self.root.rglob("*") if path.is_file() and not _IGNORED & set(path.parts))
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in files}

    def check(self) -> None:
        """Compare all texts with what is expected; with the variable `PACKBENCH_UPDATE_GOLDEN`, write them."""
        if os.environ.get(UPDATE):
            shutil.rmtree(self._expected, ignore_errors=True)
            for name, text in self._texts.items():
                path = self._expected / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
            return
        paths = sorted(path for path in self._expected.rglob("*") if path.is_file())
        expected = {path.relative_to(self._expected).as_posix(): path.read_text("utf-8") for path in paths}
        differences: list[str] = []
        for name in sorted(expected.keys() | self._texts.keys()):
            old, new = (texts.get(name, "").splitlines() for texts in (expected, self._texts))
            if expected.get(name) != self._texts.get(name):
                differences += difflib.unified_diff(old, new, f"expected/{name}", f"this run/{name}", n=2, lineterm="")
        if differences:
            count = len(differences) - _LONGEST_DIFF
            rest = [f"... and {count} more lines"] if count > 0 else []
            advice = f"if the change is intended: {UPDATE}=1 pytest tests/golden, and read the difference in git"
            pytest.fail("\n".join([*differences[:_LONGEST_DIFF], *rest, advice]), pytrace=False)
