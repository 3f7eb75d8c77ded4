"""The guide to pipelines with a model client of their own: each is recorded, and replayed without a model."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from pytest_packbench.commands import main
from pytest_packbench.testing import run_folders
from tests.doc_blocks import ROOT, blocks
from tests.integration.conftest import json_lines, without_times
from tests.servers.fake import FakeServer, Received, Reply
from tests.servers.wire import parse_request, reply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = ROOT / "docs" / "your-pipeline.md"
BLOCKS = list(blocks(PAGE))
RECORD = "--packbench-mode=record"
COMMANDS = [
    line
    for block in BLOCKS
    if block.kind == "console"
    for line in block.text.splitlines()
    if line.startswith("pytest") and RECORD in line
][1:]
KEY = "sk-test-0123456789abcdef"
TIMEOUT_S = 120


def program_of(command: str) -> str:
    """The library or program without which a command of the page can't run; empty if there is none."""
    target = next(word for word in shlex.split(command) if word.startswith("--packbench-target=")).partition("=")[2]
    if target.startswith("cmd:"):
        programs = {"node": "node", "sh": "curl"}
        needed = programs[target.removeprefix("cmd:").split()[0]]
        return "" if shutil.which(needed) else needed
    module = next(block.text for block in BLOCKS if block.file == f"{target.partition(':')[0]}.py")
    libraries = re.findall(r"^(?:from|import) (\w+)", module, re.MULTILINE)
    return next((library for library in libraries if find_spec(library) is None), "")


def answered(received: Received) -> Reply:
    question = parse_request(received)
    if question.wants_json:
        number = re.search(r"\d+", question.text)
        return reply(question, {"queue": "refunds", "order": int(number[0]) if number else None})
    return reply(question, "Paris" if "France" in question.text else "Tokyo")


@contextmanager
def model(folder: Path) -> Iterator[tuple[FakeServer, dict[str, str]]]:
    """A model, and the environment of a user whose clients call it."""
    with FakeServer(answered) as server:
        names = ("HOME", "PATH", "PYTHONPATH", "VIRTUAL_ENV", "SYSTEMROOT", "TMPDIR", "COVERAGE_PROCESS_START")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(folder)}
        for provider, ending in (("OPENAI", "/v1"), ("ANTHROPIC", "")):
            environment |= {f"{provider}_API_KEY": KEY, f"{provider}_BASE_URL": f"{server.url}{ending}"}
        yield server, environment


def run(folder: Path, command: str, environment: dict[str, str]) -> str:
    words = [sys.executable, "-m", *shlex.split(command), "-p", "no:cacheprovider"]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def record_and_replay(folder: Path, command: str, *, cases: int) -> list[Any]:
    """Run a command that records, and the same offline, in the environment of a machine without a key."""
    with model(folder) as (server, environment):
        recorded = run(folder, command, environment)
        asked = len(server.requests)
        assert f"{cases} passed" in recorded
        assert asked == cases
        assert {request.headers.get("authorization", f"Bearer {KEY}") for request in server.requests} == {
            f"Bearer {KEY}"
        }
        offline = {name: value for name, value in environment.items() if not name.endswith(("_KEY", "_URL"))}
        replayed = run(folder, command.replace(f" {RECORD}", ""), offline)
        assert f"{cases} passed" in replayed
        assert len(server.requests) == asked
    first, second = [
        list(without_times(json_lines(run_folder / "records.jsonl"), also=("mode", "cost_usd")))
        for run_folder in run_folders(folder, next(folder.glob("storage/benchmarks/*")).name)
    ]
    assert first == second
    return first


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the page, in a project of their own."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    for block in BLOCKS:
        if block.file is not None:
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=lambda line: "".join(re.findall(r"with_(\w+)", line)))
def test_a_pipeline_of_the_page_is_recorded_and_replayed(folder: Path, command: str) -> None:
    missing = program_of(command)
    if missing:
        pytest.skip(f"{missing} is not installed")
    records = record_and_replay(folder, command, cases=2)
    assert {record["llm_model"] for record in records} <= {"gpt-4.1-mini", "claude-sonnet-4-6"}
    assert json.dumps(records).count(KEY) == 0
    for cassette in folder.glob("storage/benchmarks/capitals/fixtures/*.json"):
        text = cassette.read_text("utf-8")
        assert len(json.loads(text)["gateway"]) == 1
        assert KEY not in text


def test_the_page_has_its_pipelines(folder: Path) -> None:
    assert sorted(path.stem for path in folder.glob("with_*")) == [
        "with_anthropic", "with_curl", "with_langchain", "with_litellm", "with_node", "with_openai", "with_pydantic_ai"
    ]  # fmt: skip
    assert len(COMMANDS) == 7
    for block in BLOCKS:
        if block.file is not None and block.file.startswith("with_") and block.kind != "javascript":
            assert len([line for line in block.text.splitlines() if line]) <= 12, block.file


@pytest.mark.parametrize("client", ["openai", "langchain", "node"])
def test_a_new_suite_with_a_client_is_recorded_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], client: str
) -> None:
    needed = {"openai": "openai", "langchain": "langchain_openai", "node": "node"}[client]
    is_missing = shutil.which(needed) is None if client == "node" else find_spec(needed) is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    assert main(["init", "my-mails", "--target", client]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("first:")] == (
        ["first:  pip install langchain-openai"] if client == "langchain" and is_missing else []
    )
    assert not list(tmp_path.rglob("baseline.json"))
    assert main(["lint", "my-mails"]) == 0
    assert capsys.readouterr().out == "0 errors, 0 warnings\n"
    if is_missing:
        pytest.skip(f"{needed} is not installed")
    (command,) = [line.removeprefix("record: ") for line in lines if line.startswith("record: ")]
    assert command.replace(f" {RECORD}", "") == "pytest --packbench-suite=my-mails"
    record_and_replay(tmp_path, command, cases=2)


def test_a_client_that_there_is_no_target_for_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, error in (
        (["mine", "--target", "curl"], '--target: unknown client "curl"; expected one of langchain, node, openai'),
        (["mine", "--pack", "tariff", "--target", "node"], 'expected none with the pack "tariff"'),
        (["--from", "tariff", "--target", "node"], "--target: a copy has the target of its suite; remove the option"),
    ):
        assert main(["init", *words]) == 2
        assert error in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
