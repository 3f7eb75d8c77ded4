"""Runs that an earlier version wrote are read, counted, compared, judged and joined as that version did it.

`runs.tar.xz` holds a project as version 0.1.0 of commit 081119d5 left it, paths replaced, pages left out: six runs of 81
generic cases with failures, an error, an unreadable file, a skipped and a quarantined case (two alike, one under two
workers, three shards), two live runs with four trials, a safety suite with and without guards, the tariff suite twice,
a run that was killed, a committed baseline, and records without a report. `expected.json` holds what the commands of
`commands.yaml` printed and wrote; an intended change of a sentence is made there with `PACKBENCH_UPDATE_GOLDEN=1` and
argued in review, a changed number is a mistake.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_packbench.commands import UNUSABLE, main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.json"
COMMANDS: list[str] = yaml.safe_load((HERE / "commands.yaml").read_text("utf-8"))
REPORTS = Path("reports", "benchmarks")
_RULES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "<TIME>"),
    (re.compile(r"\b01[0-9A-HJKMNP-TV-Z]{24}\b"), "<NEW>"),
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    shutil.unpack_archive(HERE / "runs.tar.xz", folder)
    return folder


def names_of(project: Path) -> dict[str, str]:
    """Name the stored runs by suite and number, the oldest first."""
    suites = sorted(path for path in (project / REPORTS).iterdir() if path.is_dir())
    return {
        f"{suite.name}{number}": run.relative_to(project).as_posix()
        for suite in suites
        for number, run in enumerate(sorted(path for path in suite.iterdir() if path.is_dir()), 1)
    }


def written(text: str, ids: dict[str, str]) -> str:
    """Replace the ids of runs by their names, and what differs each time."""
    for run_id, name in ids.items():
        text = text.replace(run_id, name)
    for pattern, name in _RULES:
        text = pattern.sub(name, text)
    return text


def test_all_runs_are_there(project: Path) -> None:
    suites = {name.rstrip("0123456789") for name in names_of(project)}
    assert suites == {"desk", "talk", "injecagent", "tariff", "late"}


def read_files(paths: list[Path], ids: dict[str, str]) -> dict[str, Any]:
    """Return the figures of a report that was written, and a hash of each file of lines."""
    files: dict[str, Any] = {}
    for path in paths:
        content = written(path.read_text("utf-8"), ids)
        if path.name == "report.json":
            document = json.loads(content)["packbench"]
            files["rows"] = sha256(json.dumps(document.pop("cases")).encode()).hexdigest()
            files[path.name] = document
        elif path.suffix == ".jsonl":
            files[path.name] = sha256(content.encode()).hexdigest()
    return files


@pytest.fixture
def kept(project: Path) -> Iterator[Path]:
    """Take back what a command changes below the folder of reports."""
    aside = project.with_name("aside")
    shutil.copytree(project / REPORTS, aside)
    yield project
    shutil.rmtree(project / REPORTS)
    aside.rename(project / REPORTS)


@pytest.fixture
def ran(kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Any]:
    """Run a command in the project: what it came to, printed and wrote."""
    monkeypatch.chdir(kept)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "path", [str(kept), *sys.path])

    def run(command: str) -> dict[str, Any]:
        runs, before, imported = names_of(kept), set(kept.rglob("*")), set(sys.modules)
        ids = {path.rpartition("/")[2]: name for name, path in runs.items()}
        code = main([runs.get(word, word) for word in shlex.split(command)[1:]])
        for name in set(sys.modules) - imported:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(kept)):
                del sys.modules[name]
        out, error = (written(text, ids) for text in capsys.readouterr())
        new = sorted(path for path in set(kept.rglob("*")) - before if path.is_file())
        printed = json.loads(out) if "--format json" in command and code != UNUSABLE else out.splitlines()
        return {"exit": code, "printed": printed, "error": error.splitlines(), "files": read_files(new, ids)}

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_an_earlier_run_says_what_it_said(command: str, ran: Callable[[str], Any]) -> None:
    found = ran(command)
    expected = json.loads(EXPECTED.read_text("utf-8")) if EXPECTED.exists() else {}
    if os.environ.get("PACKBENCH_UPDATE_GOLDEN"):
        expected = {name: expected.get(name) for name in COMMANDS} | {command: found}
        EXPECTED.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == expected[command]
