"""The pages on live runs and on resuming, and the tariff suite by the client of each provider."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.doc_blocks import blocks
from tests.integration.model_server import json_lines, without_times
from tests.servers.fake import FakeServer
from tests.servers.tariff import tariff_handler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Copy

ROOT = Path(__file__).parents[2]
COMMANDS = [
    line
    for page in ("live.md", "resume.md")
    for block in blocks(ROOT / "docs" / page)
    if block.kind == "console"
    for line in block.text.splitlines()
    if line.startswith("pytest ")
]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer(tariff_handler(ROOT / "storage" / "benchmarks" / "tariff")) as server:
        yield server


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "sk-made-up-for-this-test")


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_pages_runs(
    copy: Copy, server: FakeServer, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("PACKBENCH_BASE_URL", server.url + ("/v1" if "openai" in line else ""))
    # a few cases instead of all; a command's own selection comes later and wins
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k neg_08")
    if "--packbench-resume" in line:
        assert copy.run().ret == pytest.ExitCode.OK
    result = copy.pytester.runpytest(*shlex.split(line)[1:])
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes()["passed"] >= 1


@pytest.mark.parametrize(("backend", "path"), [("anthropic", ""), ("openai", "/v1"), ("ollama", "")])
def test_a_recorded_suite_replays_to_the_same_records(copy: Copy, server: FakeServer, backend: str, path: str) -> None:
    selected = ("-k", "neg_08 or adv_64")
    model = (f"--packbench-backend={backend}", "--packbench-model=made-up", f"--packbench-base-url={server.url}{path}")
    assert copy.run("--packbench-mode=record", *model, *selected).ret == pytest.ExitCode.OK
    assert copy.run(*selected).ret == pytest.ExitCode.OK
    paths = sorted((copy.pytester.path / "reports/benchmarks/tariff").glob("*/records.jsonl"))
    first, second = (without_times(json_lines(path), also=("mode",)) for path in paths)
    assert first == second
    assert {(record["llm_backend"], record["llm_model"]) for record in first} == {(backend, "made-up")}
    assert all(record["tokens_input"] for record in first)
