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
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import pytest_packbench
from pytest_packbench.cli import main
from tests.golden.normal import Normal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

EXPECTED = Path(__file__).parent / "expected"
SUITES = Path(__file__).parents[2] / "storage" / "benchmarks"
UPDATE = "PACKBENCH_UPDATE_GOLDEN"
_INHERITED = ("PATH", "SYSTEMROOT", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
_IGNORED = {"__pycache__", ".pytest_cache", "basetemp"}
_PROGRAMS = {"pytest": ("-m", "pytest"), "packbench": ("-m", "pytest_packbench"), "python": ()}
_TIMEOUT_S = 120
_LONGEST_DIFF = 150


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
        self.normal = Normal(
            {
                str(self.root): "<PROJECT>",
                str(self.root.parent): "<FOLDER>",
                package: "<PACKAGE>",
                os.path.relpath(package, self.root): "<PACKAGE>",
                sys.executable: "<PYTHON>",
                sys.prefix: "<PREFIX>",
            }
        )
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

    def _run_process(self, arguments: Sequence[str], stdin: str) -> tuple[int, str, str]:
        command = [sys.executable, *arguments]
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        return ended.returncode, ended.stdout, ended.stderr

    def _run_pytest(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        result = self._pytester.runpytest_inprocess(*arguments, no_reraise_ctrlc=True)
        return int(result.ret), result.stdout.str(), result.stderr.str()

    def _run_packbench(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        before = set(sys.modules)
        output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                code = main(list(arguments))
            except SystemExit as exit_:
                code = int(exit_.code or 0)
            texts = []
            for stream in (output, errors):
                stream.seek(0)
                texts.append(stream.read())
        # what is imported from the project changes between steps
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self.root)):
                del sys.modules[name]
        return code, texts[0], texts[1]

    def step(
        self,
        name: str,
        program: str,
        arguments: Sequence[str],
        *,
        process: bool = False,
        stdin: str = "",
        only: Collection[str] | None = None,
        hashing: Collection[str] = (),
        hash_output: bool = False,
    ) -> None:
        """Run a command, and note what it prints and writes.

        Args:
            name: of the step.
            program: `pytest`, `packbench` or `python`.
            arguments: of the program.
            process: give it a process of its own, which may end in any way.
            stdin: what it reads, in a process of its own.
            only: the names of the files whose content is noted; every one by default.
            hashing: names of files of which a hash per line is noted.
            hash_output: note a hash of what was printed.
        """
        command = (*_PROGRAMS[program], *arguments)
        self._steps += 1
        folder = f"{self._steps:02}-{name}"
        before = self._tree()
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        # so that `python` is this one
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        environment |= {"HOME": str(self.root.parent), "COLUMNS": "120", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        environment |= {"PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        imports = mock.patch.object(sys, "path", [str(self.root), *sys.path])
        with imports, mock.patch.dict(os.environ, environment | self.env, clear=True):
            if process or stdin or program == "python":
                code, *printed = self._run_process(command, stdin)
            else:
                code, *printed = (self._run_pytest if program == "pytest" else self._run_packbench)(arguments)
        after = self._tree()
        changed = [path for path in after if before.get(path) != after[path]]
        removed = [path for path in before if path not in after]
        workers = any(first == "-n" and second != "0" for first, second in pairwise(arguments))
        printed = [self.normal.terminal(text, workers=workers) for text in printed]
        lines = [f"$ python {self.normal.text(shlex.join(command))}", f"exit code {code}", ""]
        if hash_output:
            printed[0] = f"sha256 {sha256(printed[0].encode()).hexdigest()}"
        lines += ["--- stdout", printed[0], ""] if printed[0] else []
        lines += ["--- stderr", printed[1], ""] if printed[1] else []
        lines += ["--- files"] if changed or removed else []
        lines += [*sorted(self.normal.text(path) for path in changed)]
        lines += sorted(f"removed {self.normal.text(path)}" for path in removed)
        self._texts[f"{folder}/output.txt"] = "\n".join(lines).rstrip("\n") + "\n"
        for path in changed:
            file = path.rpartition("/")[2]
            if only is None or file in only:
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
        differences = [f"missing: {name}" for name in expected if name not in self._texts]
        differences += [f"not expected: {name}" for name in self._texts if name not in expected]
        for name, text in self._texts.items():
            if name in expected and expected[name] != text:
                lines, files = (
                    (expected[name].splitlines(), text.splitlines()),
                    (f"expected/{name}", f"this run/{name}"),
                )
                differences += difflib.unified_diff(*lines, *files, n=2, lineterm="")
        if differences:
            count = len(differences) - _LONGEST_DIFF
            rest = [f"... and {count} more lines"] if count > 0 else []
            advice = f"if the change is intended: {UPDATE}=1 pytest tests/golden, and read the difference in git"
            pytest.fail("\n".join([*differences[:_LONGEST_DIFF], *rest, advice]), pytrace=False)
