"""The workflows of docs/ci.md: they parse, and their offline commands run as their servers would run them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import pytest_packbench.packs.generic.pack
import pytest_packbench.pytest_plugin.session
from tests.doc_blocks import ROOT, PageRunner, blocks, clean_environment

# pytester forgets what a run imported: what is imported here is imported once
_WARM = (pytest_packbench.pytest_plugin, pytest_packbench.packs)
FILES = {block.file: block.text for block in blocks(ROOT / "docs" / "ci.md") if block.file is not None}
MENDED = """
def answer(request):
    numbers = [int(word) for word in request.input.split() if word.isdigit()]
    return {"queue": "refunds", "order": numbers[0]}
"""
BROKEN = 'def answer(request):\n    return {"queue": "other", "order": 0}\n'


class Loader(yaml.SafeLoader):
    """Reads `on` as a word, as GitHub does."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:bool"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(FILES[name], Loader)  # noqa: S506 - a safe loader
    return found


@pytest.fixture
def walk(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PageRunner:
    """A repository with a suite that passes."""
    clean_environment(monkeypatch)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    pytester.makeini("[pytest]")
    found = PageRunner(pytester, capsys)
    assert found.command("packbench init support") == 0
    (pytester.path / "target_support.py").write_text(MENDED, encoding="utf-8")
    return found


@dataclass
class Server:
    """Does what GitHub's runner does with the steps of a job, as far as our workflows need it.

    Attributes:
        walk: runs commands in the repository.
        stored: what was uploaded or cached, by name.
        values: what expressions stand for.
    """

    walk: PageRunner
    stored: Path
    values: dict[str, str] = field(default_factory=dict)

    def job(self, job: dict[str, Any]) -> list[int]:
        """Run a job in a fresh checkout and give the exit codes of its commands."""
        shutil.rmtree(self.walk.pytester.path / "reports", ignore_errors=True)
        codes: list[int] = []
        for step in job["steps"]:
            if not self._due(step.get("if"), failed=any(codes)):
                continue
            if "uses" in step:
                self._use(step["uses"].partition("@")[0], self._filled(step.get("with", {})))
                continue
            lines = [line for line in self._filled(step["run"]).splitlines() if not line.startswith("pip ")]
            codes += [self.walk.command(line) for line in lines]
        return codes

    def _due(self, condition: str | None, *, failed: bool) -> bool:
        if condition is None:
            return not failed
        known = {
            "!cancelled()": True,
            "github.ref == 'refs/heads/main'": not failed and self.values.get("github.ref") == "refs/heads/main",
        }
        return known[condition.removeprefix("${{").removesuffix("}}").strip()]

    def _use(self, action: str, given: dict[str, str]) -> None:
        here = self.walk.pytester.path / given.get("path", ".")
        if action in {"actions/upload-artifact", "actions/cache/save"}:
            shutil.copytree(here, self.stored / given.get("name", given.get("key", "")))
        elif action == "actions/cache/restore":
            kept = sorted(self.stored.glob(f"{given['restore-keys']}*"))
            if kept:
                shutil.copytree(kept[-1], here)
        elif action == "actions/download-artifact":
            for one in self.stored.glob(given["pattern"]):
                shutil.copytree(one, here / one.name)
        else:
            assert action in {"actions/checkout", "actions/setup-python"}

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._filled(one) for name, one in value.items()}
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: self.values[found[1]], str(value))


@pytest.fixture
def server(walk: PageRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(walk.pytester.path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return Server(walk, tmp_path / "stored")


def test_a_pull_request_is_compared_with_the_main_branch(server: Server, tmp_path: Path) -> None:
    job = workflow(".github/workflows/benchmarks.yml")["jobs"]["recorded"]
    for number in range(2):
        server.values = {"github.ref": "refs/heads/main", "github.run_id": str(number)}
        shutil.rmtree(server.stored / "benchmarks", ignore_errors=True)
        assert set(server.job(job)) == {0}
    assert len(list((server.stored / "benchmarks-1" / "support").glob("01*"))) == 2
    (server.walk.pytester.path / "target_support.py").write_text(BROKEN, encoding="utf-8")
    shutil.rmtree(server.stored / "benchmarks")
    server.values = {"github.ref": "refs/pull/1/merge", "github.run_id": "2"}
    server.walk.said = []
    assert server.job(job) == [0, 0, 1]
    assert not (server.stored / "benchmarks-2").exists()
    assert any(line.startswith("baseline: 2 regressed, 0 improved, 2 new failures") for line in server.walk.said)
    # two cases, and the gate that they break
    assert sum(line.startswith("::error file=storage/benchmarks/support/") for line in server.walk.said) == 3
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert summary.count("# packbench: support - PASSED") == 2
    assert "- baseline: 2 regressed" in summary.partition("# packbench: support - FAILED")[2]


def test_shards_are_merged(server: Server, tmp_path: Path) -> None:
    jobs = workflow(".github/workflows/sharded.yml")["jobs"]
    shards = jobs["shard"]["strategy"]["matrix"]["shard"]
    for shard in shards:
        server.values["matrix.shard"] = str(shard)
        assert server.job(jobs["shard"]) == [0]
    assert len(list(server.stored.iterdir())) == len(shards)
    server.walk.said = []
    assert server.job(jobs["merge"]) == [0, 0]
    assert "2 cases: 2 passed" in server.walk.said
    assert "2 of 2 judged cases passed" in (tmp_path / "summary.md").read_text("utf-8").rpartition("# packbench")[2]


def script(walk: PageRunner, job: dict[str, Any], **environ: str) -> list[int]:
    """Run the script of a GitLab job, until a command fails."""
    codes: list[int] = []
    for text in job["script"]:
        line = re.sub(r"\$(\w+)", lambda found: environ.get(found[1], found[0]), text.strip())
        codes.append(walk.command(line))
        if codes[-1]:
            break
    return [*codes, *map(walk.command, job.get("after_script", []))]


def test_gitlab_runs_it_too(walk: PageRunner) -> None:
    jobs = workflow(".gitlab-ci.yml")
    # no server answers here: the first run of the main branch
    api = "http://127.0.0.1:9"
    assert set(script(walk, jobs["benchmarks"], CI_API_V4_URL=api)) == {0}
    assert "no run of the main branch yet" in walk.said
    assert (walk.pytester.path / "junit.xml").is_file()
    shutil.rmtree(walk.pytester.path / "reports")
    number = jobs["shard"]["parallel"]
    for index in range(1, number + 1):
        assert script(walk, jobs["shard"], CI_NODE_INDEX=str(index), CI_NODE_TOTAL=str(number)) == [0]
    walk.said = []
    assert script(walk, jobs["merge"]) == [0]
    assert "2 cases: 2 passed" in walk.said
    assert {job["stage"] for job in jobs.values() if isinstance(job, dict) and "stage" in job} == set(jobs["stages"])


def test_the_nightly_run_has_its_caps(walk: PageRunner) -> None:
    """The suite's target asks no model, so that all but the model is tried."""
    (step,) = [one for one in workflow(".github/workflows/nightly.yml")["jobs"]["live"]["steps"] if "env" in one]
    for line in (step["run"], workflow(".gitlab-ci.yml")["nightly"]["script"][0]):
        walk.said = []
        assert walk.command(line.strip()) == 0
        assert "2 cases: 2 passed" in walk.said
        (caps,) = [one for one in walk.said if one.startswith("packbench: caps:")]
        assert all(cap in caps for cap in ("tokens 2,000,000", "10", "3600"))


def test_what_is_on_the_page_is_what_is_checked() -> None:
    assert set(FILES) == {
        ".github/workflows/benchmarks.yml",
        ".github/workflows/nightly.yml",
        ".github/workflows/sharded.yml",
        ".gitlab-ci.yml",
    }
    for name in FILES:
        assert workflow(name)
