"""A git repository with a suite, and changes of its acceptance policy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

import pytest_packbench.policy
import pytest_packbench.runs.reading

# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench.cases, pytest_packbench.policy, pytest_packbench.runs)
DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("data").joinpath("policy.yaml").read_text("utf-8"))
SUITE = "storage/benchmarks/support"
IDENTITY = {f"GIT_{who}_{what}": "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, **IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def commit(folder: Path, message: str = "words") -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)


def make_repository(folder: Path) -> Path:
    """Write a suite on the branch main of a new repository, and check out a branch for a change."""
    for name, text in DATA["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder)
    git(folder, "switch", "--quiet", "--create", "change")
    return folder


def plant(repository: Path, change: dict[str, Any]) -> None:
    path = repository / SUITE / change["file"]
    if "write" in change:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change["write"], encoding="utf-8")
        return
    if "old" not in change:
        path.unlink()
        return
    text = path.read_text("utf-8")
    assert change["old"] in text
    path.unlink()
    (repository / SUITE / change.get("move", change["file"])).write_text(text.replace(change["old"], change["new"]))
