"""What CI servers read, and the workflows of docs/ci.md, which run as their servers would run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.doc_blocks import ROOT, PageRunner, blocks, clean_environment
from tests.integration.conftest import CASES, ended, toy_case
from tests.integration.policy_repository import commit, git
from tests.servers.wire import openai_reply, parse_request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.integration.conftest import Project
    from tests.integration.options.conftest import Model
    from tests.servers.fake import Received


def github(monkeypatch: pytest.MonkeyPatch, summary: Path, workspace: Path) -> Path:
    """Set the environment of a step in a job."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    return summary


def commands(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line.lstrip().startswith("::")]


def test_github_gets_annotations_with_escaped_texts_and_no_commands_of_cases(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the repository contains the project in a folder
    github(monkeypatch, project.write("step_summary.md", "of another tool"), project.root.parent)
    project.case_lines(toy_case("good"), "", toy_case("bad", points=0.2), path=f"{CASES}/many.jsonl")
    project.case("worse", points=0.1, python="print('::error::one\\n  ::add-mask::two\\nx ##[error]three')")
    project.case("broken", python="print('::error::four'); raise OSError('50 %, gone\\n::error::five')")
    result = project.run_toy()
    folder = f"{project.root.name}/{CASES}"
    assert [line.removeprefix("::error file=") for line in commands(result.outlines)[1:]] == [
        (
            f"{folder}/plain/broken.json,line=1,title=toy%3A broken%3A error (target_error)"
            "::the target raised OSError: 50 %25, gone ::error::five"
        ),
        (
            f"{folder}/plain/worse.json,line=1,title=toy%3A worse scored 0.10 < 0.80"
            "::answer: 0.1%0Apoints +0.10 (as the target says)"
        ),
        (
            f"{folder}/many.jsonl,line=3,title=toy%3A bad scored 0.20 < 0.80"
            "::answer: 0.2%0Apoints +0.20 (as the target says)"
        ),
    ]
    assert {": :error::one", "  : :add-mask::two", "x ## [error]three", ": :error::four"} <= set(result.outlines)


def test_without_a_suite_or_elsewhere_github_gets_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    page = github(monkeypatch, project.write("page.md", "of another tool"), project.root / "elsewhere")
    project.pytester.makepyfile("def test_one():\n    assert True\n")
    assert commands(project.run().outlines) == []
    assert page.read_text("utf-8") == "of another tool"
    project.case("bad", points=0.2)
    # a file outside of the repository has no path in it
    page.unlink()
    page.mkdir()
    error = "::error title=toy%3A bad scored 0.20 < 0.80::*"
    unwritten = f"packbench: GITHUB_STEP_SUMMARY: {page} can't be written: Is a directory"
    ended(project.run_toy(), 1, error, unwritten)
    page.rmdir()
    # each alone
    monkeypatch.setenv("GITHUB_ACTIONS", "false")
    assert commands(project.run_toy().outlines) == []
    assert "packbench: toy - FAILED" in page.read_text("utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    ended(project.run_toy(), 1, error)


@pytest.mark.parametrize(("family", "workers"), [("xunit1", "0"), ("xunit2", "1")])
def test_junit_has_properties_and_one_line_messages(project: Project, family: str, workers: str) -> None:
    project.case("good", python="sum(range(200_000))")
    project.case("bad", points=0.2, case_type="odd")
    project.case("broken", python="raise OSError('gone')")
    options = ("--junitxml=junit.xml", "-o", f"junit_family={family}", "-W", "error", "-n", workers)
    result = project.run_toy(*options, "--packbench-concurrency=4")
    assert "warning" not in result.stdout.str().lower()
    tree = ET.parse(project.root / "junit.xml")  # noqa: S314 - pytest wrote it here and now
    tests = {case.attrib["name"]: case for case in tree.iter("testcase")}
    bad = {one.attrib["name"]: one.attrib["value"] for one in tests["bad"].iter("property")}
    scores = {"verdict": "failed", "score": "0.2", "threshold": "0.8", "match_depth": "2"}
    assert bad == {"suite": "toy", "case_type": "odd", "difficulty": "easy", **scores}
    messages = [test.attrib["message"] for kind in ("failure", "error") for test in tree.iter(kind)]
    assert messages == ["score 0.20 < 0.80 (points)", 'failed on setup with "the target raised OSError: gone"']
    assert tests["bad"].get("file") == (f"{CASES}/odd/bad.json" if family == "xunit1" else None)
    # with concurrency a case waited for little, and worked all the same
    worked = project.records()["good"]["wall_clock_ms"]
    assert 1000 * float(tests["good"].attrib["time"]) >= worked > 0


FILES = {block.file: block.text for block in blocks(ROOT / "docs" / "ci.md") if block.file is not None}
FIXED = """
def answer(request):
    numbers = [int(word) for word in request.input.split() if word.isdigit()]
    return {"queue": "refunds", "order": numbers[0]}
"""
WORKFLOWS: dict[str, dict[str, Any]] = {name: yaml.safe_load(text) for name, text in FILES.items()}


@pytest.fixture
def page(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PageRunner:
    """A repository with a suite that passes."""
    clean_environment(monkeypatch)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    pytester.makeini("[pytest]")
    runner = PageRunner(pytester, capsys)
    assert runner.command("packbench init support") == 0
    (pytester.path / "target_support.py").write_text(FIXED, encoding="utf-8")
    (pytester.path / ".gitignore").write_text("reports/\njunit.xml\n__pycache__/\n", encoding="utf-8")
    git(pytester.path, "init", "--quiet", "--initial-branch=main")
    commit(pytester.path)
    commit(pytester.path)
    return runner


def merge(repository: Path) -> None:
    """Check out what GitHub checks out of a pull request with all changes of the folder: its merge with main."""
    git(repository, "switch", "--quiet", "--create", "request")
    commit(repository)
    git(repository, "switch", "--quiet", "--detach", "main")
    git(repository, "merge", "--quiet", "--no-ff", "request")


@dataclass
class Server:
    """Does what GitHub's runner does with the steps of a job; `stored` is what was uploaded or cached, by name."""

    page: PageRunner
    stored: Path
    values: dict[str, str] = field(default_factory=dict)

    def job(self, job: dict[str, Any]) -> list[int]:
        """Run a job in a fresh checkout and return the exit codes of its commands."""
        shutil.rmtree(self.page.pytester.path / "reports", ignore_errors=True)
        self.page.output = []
        codes: list[int] = []
        for step in job["steps"]:
            passed, is_main = not any(codes), self.values.get("github.ref") == "refs/heads/main"
            known = {"": passed, "!cancelled()": True, "github.ref == 'refs/heads/main'": passed and is_main}
            condition, _, needed = step.get("if", "").strip("${} ").partition(" && hashFiles('")
            file = needed.removesuffix("') != ''")
            if not known[condition] or not (self.page.pytester.path / file).exists():
                continue
            if "uses" in step:
                inputs = {name: self._filled(value) for name, value in step.get("with", {}).items()}
                self._use(step["uses"].partition("@")[0], inputs)
            else:
                lines = [line for line in self._filled(step["run"]).splitlines() if not line.startswith("pip ")]
                codes += [self.page.command(line) for line in lines]
        return codes

    def _use(self, action: str, inputs: dict[str, str]) -> None:
        folder = self.page.pytester.path / inputs.get("path", ".")
        if action in {"actions/upload-artifact", "actions/cache/save"}:
            # without a file, the action only warns
            if folder.exists():
                shutil.copytree(folder, self.stored / inputs.get("name", inputs.get("key", "")))
        elif action == "actions/cache/restore":
            for cached in sorted(self.stored.glob(f"{inputs['restore-keys']}*"))[-1:]:
                shutil.copytree(cached, folder)
        elif action == "actions/download-artifact":
            for artifact in self.stored.glob(inputs["pattern"]):
                shutil.copytree(artifact, folder / artifact.name)
        else:
            assert action in {"actions/checkout", "actions/setup-python"}

    def _filled(self, value: object) -> str:
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda match: self.values[match[1]], str(value))


@pytest.fixture
def server(page: PageRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    github(monkeypatch, tmp_path / "summary.md", page.pytester.path)
    return Server(page, tmp_path / "stored")


SUPPORT = "storage/benchmarks/support"
ASKING = """
import json
from pytest_packbench.model.request import ModelRequest

def answer(request, context):
    message = {"role": "user", "content": request.input}
    schema = {"type": "object"}
    asked = ModelRequest(role="sort", system="sort the message", messages=(message,), output_schema=schema)
    return context.llm.complete_sync(asked).content
"""
REQUESTS: dict[str, tuple[str, str, str, str]] = {
    # what a pull request does: the file, what is in it, what is in its place, and a line of the job
    "a regression within the gates": (
        "target_support.py",
        ".content\n",
        ".content | {'order': 2044}\n",
        "baseline: condition regressed>0 is met: 1: FAIL",
    ),
    "a lowered threshold": (
        f"{SUPPORT}/suite.yaml",
        "accept: 0.8",
        "accept: 0.1",
        "policy: threshold changed: suite.yaml: /thresholds/accept: 0.8 -> 0.1: FAIL",
    ),
    "a removed case": (
        f"{SUPPORT}/cases/answer/refund_by_name.json",
        "",
        "",
        "policy: case removed: cases/answer/refund_by_name.json (case refund_by_name): present -> removed: FAIL",
    ),
    "a quarantined case": (
        f"{SUPPORT}/cases/answer/refund_by_name.json",
        '"source": "example",',
        '"source": "example", "xfail": "the tracking service is being replaced",',
        "policy: case quarantined: cases/answer/refund_by_name.json: /notes/xfail (case refund_by_name): *: FAIL",
    ),
    "a stale recording": (
        "target_support.py",
        "sort the message",
        "sort it",
        "*refund_by_name, refund_in_other_words *2 *cassette_stale *",
    ),
    "a misspelt expectation": (
        f"{SUPPORT}/cases/answer/refund_by_name.json",
        '"queue": "refunds"',
        '"qeue": "refunds"',
        f"{SUPPORT}/cases/answer/refund_by_name.json: /expected/qeue: case_unreadable: no rule in suite.yaml reads the key *",
    ),
}


@pytest.fixture
def recorded(server: Server, model: Model, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, whose repository has a suite with recordings, a baseline and gates that leave room."""
    folder, page = server.page.pytester.path, server.page
    monkeypatch.delenv("CI", raising=False)
    model.handler = lambda received: openai_reply(json.dumps(asked_for(received)))
    (folder / "target_support.py").write_text(ASKING, encoding="utf-8")
    rules = (folder / SUPPORT / "suite.yaml").read_text("utf-8")
    (folder / SUPPORT / "suite.yaml").write_text(rules.replace("min: 0.9", "min: 0.4"), encoding="utf-8")
    options = f"--packbench-mode=record --packbench-backend=openai --packbench-model=m --packbench-base-url={model.url}"
    assert page.command(f"pytest --packbench-suite=support {options}") == 0
    assert page.command("pytest --packbench-suite=support") == 0
    assert page.command('packbench baseline set support/latest --reason "recorded"') == 0
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("CI", "true")
    commit(folder)
    commit(folder)
    return server


def asked_for(received: Received) -> dict[str, Any]:
    numbers = [int(word) for word in parse_request(received).text.split() if word.isdigit()]
    return {"queue": "refunds", "order": numbers[0]}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_pull_request_workflow_catches(recorded: Server, name: str) -> None:
    job = WORKFLOWS[".github/workflows/benchmarks.yml"]["jobs"]["recorded"]
    folder = recorded.page.pytester.path
    assert set(recorded.job(job)) == {0}
    shutil.rmtree(recorded.stored / "benchmarks")
    file, old, new, line = REQUESTS[name]
    path = folder / file
    if old:
        assert old in path.read_text("utf-8")
        path.write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")
    else:
        path.unlink()
        (folder / SUPPORT / "fixtures" / path.name).unlink()
        # their case is the removed one
        shutil.rmtree(folder / SUPPORT / "fixtures" / "controls")
    merge(folder)
    assert any(recorded.job(job))
    assert any(fnmatchcase(each, line) for each in recorded.page.output), "\n".join(recorded.page.output)


def test_shards_are_merged(server: Server, tmp_path: Path) -> None:
    jobs = WORKFLOWS[".github/workflows/sharded.yml"]["jobs"]
    shards = jobs["shard"]["strategy"]["matrix"]["shard"]
    for shard in shards:
        server.values["matrix.shard"] = str(shard)
        assert server.job(jobs["shard"]) == [0]
    assert len(list(server.stored.iterdir())) == len(shards)
    assert server.job(jobs["merge"]) == [0, 0]
    assert "2 cases: 2 passed" in server.page.output
    assert "2 of 2 judged cases passed" in (tmp_path / "summary.md").read_text("utf-8").rpartition("# packbench")[2]


def script(page: PageRunner, job: dict[str, Any], **variables: str) -> list[int]:
    page.output = []
    codes: list[int] = []
    for text in job["script"]:
        # `${NAME:-$OTHER}` as a shell reads it, where the variable is set
        line = re.sub(r"\$\{(\w+):-\$\w+\}", lambda match: variables.get(match[1], match[0]), text.strip())
        line = re.sub(r"\$(\w+)", lambda match: variables.get(match[1], match[0]), line)
        codes.append(page.command(line))
        if codes[-1]:
            break
    return [*codes, *map(page.command, job.get("after_script", []))]


def test_gitlab_runs_the_same_jobs(page: PageRunner) -> None:
    jobs = WORKFLOWS[".gitlab-ci.yml"]
    assert set(script(page, jobs["benchmarks"], CI_MERGE_REQUEST_DIFF_BASE_SHA="HEAD^1")) == {0}
    assert (page.pytester.path / "junit.xml").is_file()
    shutil.rmtree(page.pytester.path / "reports")
    number = jobs["shard"]["parallel"]
    for index in range(1, number + 1):
        assert script(page, jobs["shard"], CI_NODE_INDEX=str(index), CI_NODE_TOTAL=str(number)) == [0]
    assert script(page, jobs["merge"]) == [0]
    assert "2 cases: 2 passed" in page.output
    assert {job["stage"] for job in jobs.values() if isinstance(job, dict) and "stage" in job} == set(jobs["stages"])


def test_the_nightly_run_has_its_caps(page: PageRunner) -> None:
    # the target of the suite calls no model, so that all but the model is tested
    mark = "from pytest_packbench import without_model\n\n@without_model"
    (page.pytester.path / "target_support.py").write_text(mark + FIXED, encoding="utf-8")
    steps = WORKFLOWS[".github/workflows/nightly.yml"]["jobs"]["live"]["steps"]
    (line,) = [step["run"] for step in steps if "env" in step]
    for each in (line, WORKFLOWS[".gitlab-ci.yml"]["nightly"]["script"][0]):
        assert script(page, {"script": [each]}) == [0]
        assert "2 cases: 2 passed" in page.output
        (caps,) = [line for line in page.output if line.startswith("packbench: caps:")]
        assert all(cap in caps for cap in ("tokens 2,000,000", "10", "3600"))
    tested = {".gitlab-ci.yml", *(f".github/workflows/{name}.yml" for name in ("benchmarks", "nightly", "sharded"))}
    assert set(FILES) == tested


def test_no_workflow_of_the_documentation_keeps_the_token_of_its_checkout() -> None:
    workflows = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*") if path.suffix in {".md", ".yml"}]
    checkouts = [
        match[1] for text in workflows for match in re.finditer(r"actions/checkout@\S+((?:\n +[a-z].*)*)", text)
    ]
    assert checkouts
    assert [options for options in checkouts if "persist-credentials: false" not in options] == []
